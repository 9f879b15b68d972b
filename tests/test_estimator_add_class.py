"""`add_class` of the estimators."""

import pickle

import numpy as np
import pytest

import adamab
from adamab import ADAMABClassifier, EmbeddingCalibrator
from adamab.errors import ModelFileError, TaskError
from adamab.model.predictor import Inference
from adamab.run.add_class import extended
from adamab.run.fit import fit_task
from adamab.task.spec import ClassSpec, Sample, Task
from adamab.testing import HashEmbedder

TEXTS = [
    *["money back", "my money back please", "refund my money", "a refund", "money refund now"],
    *["lovely work", "what lovely people", "love this", "great, love it", "lovely and great"],
]
LABELS = ["refund"] * 5 + ["praise"] * 5
HOW = ["how does it work", "how do i change it", "how is this done"]


def fitted(labels=LABELS, **options):
    clf = ADAMABClassifier(HashEmbedder(), random_state=0, cache=False)
    return clf.fit(TEXTS, labels, **options)


def test_a_label_is_known_at_once():
    clf = fitted(descriptions={"refund": "wants money back", "praise": "is happy"})
    before = clf.predict_proba(TEXTS)
    assert clf.add_class("question", "asks how", HOW) is clf
    assert clf.classes_.tolist() == ["praise", "refund", "question"]
    assert clf.classifier_.classes == ("praise", "refund", "question")
    assert clf.predict(["how does this work", "money please"]).tolist() == ["question", "refund"]
    after = clf.predict_proba(TEXTS)
    np.testing.assert_allclose(after[:, 0] / after[:, 1], before[:, 0] / before[:, 1], rtol=1e-3)
    clf.add_class("spam", "sells cheap pills").add_class("bye", examples=["bye now"])
    assert clf.classes_.tolist() == ["praise", "refund", "question", "spam", "bye"]
    copy = pickle.loads(pickle.dumps(clf))
    np.testing.assert_array_equal(copy.predict_proba(TEXTS), clf.predict_proba(TEXTS))
    copy.add_class("more", "one more")
    assert clf.fit(TEXTS, LABELS).classes_.tolist() == ["praise", "refund"]


def test_a_class_needs_what_the_model_knows_classes_by():
    """Descriptions that speak against the samples count for nothing; without samples examples do count."""
    texts, labels = [f"a{i} b{i} c{i} d{i}" for i in range(12)], [f"c{i:02}" for i in range(12)]
    misleading = dict(zip(labels, texts[1:] + texts[:1], strict=True))
    clf = ADAMABClassifier(HashEmbedder(), random_state=0, cache=False)
    clf.fit(texts, labels, descriptions=misleading)
    with pytest.raises(TaskError, match="by their examples only"):
        clf.add_class("dogs", "barks in the yard")
    assert clf.add_class("dogs", "barks", ["barks in the yard"]).predict(["barks in the yard"])[0] == "dogs"
    task = Task.from_mapping({"sea": [], "wood": []}, descriptions={"sea": "a ship", "wood": "a tree"})
    fit = fit_task(task, HashEmbedder(), seed=0)
    model = Inference(fit.classifier, HashEmbedder())
    foxes = [Sample(text, "animal") for text in ("quick brown fox", "lazy brown fox")]
    shares = []
    for examples in ([], foxes):
        grown = Inference(extended(model, fit.new_class, ClassSpec("animal"), examples), HashEmbedder())
        shares.append(grown.predict_proba([Sample("brown fox", "")])[0, 2])
    assert shares[0] < 0.5 < shares[1]


def test_labels_keep_their_type():
    clf = fitted([7] * 5 + [3] * 5)
    clf.add_class(5, "asks how", HOW)
    assert clf.classes_.tolist() == [3, 7, 5]
    assert clf.predict(["how does this work"])[0] == 5
    with pytest.raises(TaskError, match="'five' is of type str, and the others are of int64"):
        clf.add_class("five", "asks how")
    assert clf.classes_.tolist() == [3, 7, 5]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("refund", "again"), "'refund' is there already"),
        (("question",), "neither a description nor an example"),
        (("question", " ", []), "neither a description nor an example"),
        ((None, "nothing"), "the label is None"),
        (("unknown", "anything"), "no class can be called 'unknown'"),
        (("question", None, "how"), "examples is of type str"),
        ((["a", "b"], "two"), "of their type"),
    ],
)
def test_what_cannot_be_added(arguments, message):
    clf = fitted()
    with pytest.raises(TaskError, match=message):
        clf.add_class(*arguments)
    assert clf.classes_.tolist() == ["praise", "refund"]


def test_saved_and_loaded(tmp_path):
    clf = fitted([7] * 5 + [3] * 5)
    clf.add_class(5, "asks how", HOW).save(tmp_path / "model")
    loaded = adamab.load(tmp_path / "model", embedder=HashEmbedder())
    assert loaded.classes_.tolist() == [3, 7, 5]
    for one in (clf, loaded):
        one.add_class(9, "sells cheap pills")
    np.testing.assert_array_equal(loaded.predict_proba(TEXTS), clf.predict_proba(TEXTS))
    loaded.save(tmp_path / "again")
    again = adamab.load(tmp_path / "again", embedder=HashEmbedder())
    assert again.add_class(11, "one more").classes_.tolist() == [3, 7, 5, 9, 11]


def test_a_saved_model_without_its_class_side(tmp_path):
    fitted().save(tmp_path / "model")
    (tmp_path / "model" / "classes.safetensors").unlink()
    loaded = adamab.load(tmp_path / "model", embedder=HashEmbedder())
    assert loaded.predict(["money back"]).tolist() == ["refund"]
    with pytest.raises(ModelFileError, match="fit again to add classes"):
        loaded.add_class("question", "asks how")
    loaded.save(tmp_path / "copy")  # as far as it goes
    assert not (tmp_path / "copy" / "classes.safetensors").exists()


@pytest.mark.parametrize("described", [False, True])
def test_vectors(described):
    rng = np.random.default_rng(0)
    index = np.arange(18) % 3
    vectors = rng.standard_normal((18, 6)) + 4 * np.eye(3, 6)[index]
    old = index < 2
    classes = np.eye(3, 6) if described else None
    clf = EmbeddingCalibrator(random_state=0)
    clf.fit(vectors[old], index[old], class_vectors=None if classes is None else classes[:2])
    if described:
        with pytest.raises(ValueError, match="class_vector"):
            clf.add_class(2, vectors[~old])
    clf.add_class(2, vectors[~old][:3], class_vector=None if classes is None else classes[2])
    assert clf.classes_.tolist() == [0, 1, 2]
    assert np.mean(clf.predict(vectors) == index) > 0.9
