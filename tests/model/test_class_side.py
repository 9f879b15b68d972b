"""A class that comes later: its strength against the others, and the file that it needs."""

from dataclasses import replace

import numpy as np
import pytest

from adamab.errors import ModelFileError, TaskError
from adamab.method.discriminant import MeanLengthCorrection
from adamab.model import Classifier, Confidence, Head
from adamab.model.confidence import softmax
from adamab.model.new_class import (
    Matching,
    NewClass,
    NewClassModel,
    Reference,
    Scatter,
    load_new_class_model,
    save_new_class_model,
)

D, K, N = 6, 3, 60
RNG = np.random.default_rng(0)
CLASS_INDEX = np.arange(N) % K
X = (RNG.standard_normal((N, D)) + 3 * np.eye(K, D)[CLASS_INDEX]).astype(np.float32)
NEW = (RNG.standard_normal((40, D)) + 3 * np.eye(K + 1, D)[3]).astype(np.float32)


def made(strength=1.0):
    """A classifier of two heads whose rows are the class means, and its class side."""
    means = np.stack([X[k == CLASS_INDEX].mean(axis=0) for k in range(K)])
    heads = (
        Head(view="pooled", linear=strength * means.astype(np.float32)),
        Head(view="pooled", linear=means.astype(np.float32), bias=-0.5 * (means**2).sum(axis=1)),
    )
    classifier = Classifier(
        classes=("a", "b", "c"), heads=heads, confidence=Confidence(seen=(20.0, 20.0, 20.0))
    )
    logits = classifier.logits({"pooled": X})
    side = NewClassModel(
        heads=(
            Matching(class_input="description", described=True, similarity=strength),
            Scatter(scale=1.0, inverse=np.eye(D, dtype=np.float32)),
        ),
        reference=Reference.of(heads, (X, X), CLASS_INDEX, (np.arange(N), logits)),
    )
    return classifier, side


def new_class(n, name="d"):
    described = {"pooled": 3 * np.eye(K + 1, D, dtype=np.float32)[3:4]}
    return NewClass(name=name, described=described, examples={"pooled": NEW[:n]} if n else {}, n=n)


@pytest.mark.parametrize("n", [0, 1, 2, 5, 40])
def test_a_new_class_is_neither_too_strong_nor_too_weak(n):
    classifier, side = made()
    grown = side.extended(classifier, new_class(n))
    assert grown.classes == ("a", "b", "c", "d")
    taken = grown.predict_proba({"pooled": X})[:, 3].mean()
    lacking = 1 - softmax(classifier.logits({"pooled": X}))[np.arange(N), CLASS_INDEX].mean()
    assert taken < 3 * max(lacking / (K - 1), 1 / N)
    fresh = (np.random.default_rng(1).standard_normal((200, D)) + 3 * np.eye(K + 1, D)[3]).astype(np.float32)
    assert np.mean(np.array(grown.predict({"pooled": fresh})) == "d") > (0.5 if n < 2 else 0.85)


@pytest.mark.parametrize("shift", [-30.0, 30.0])
def test_what_is_added_to_all_logits_changes_nothing(shift):
    classifier, side = made()
    first, last = classifier.heads
    moved = replace(classifier, heads=(first, replace(last, bias=last.bias + np.float32(shift))))
    plain = side.extended(classifier, new_class(1)).predict_proba({"pooled": X})
    other = side.extended(moved, new_class(1)).predict_proba({"pooled": X})
    np.testing.assert_allclose(plain, other, atol=1e-3)


def test_the_others_stay_as_they_are_and_more_can_come():
    classifier, side = made()
    grown = side.extended(classifier, new_class(2))
    twice = side.extended(grown, new_class(4, "e"))
    assert twice.classes == ("a", "b", "c", "d", "e")
    np.testing.assert_array_equal(twice.logits({"pooled": X})[:, :4], grown.logits({"pooled": X}))
    np.testing.assert_array_equal(grown.logits({"pooled": X})[:, :3], classifier.logits({"pooled": X}))
    assert twice.confidence.seen == (20.0, 20.0, 20.0, 2.0, 4.0)
    assert side.extended(classifier, new_class(0)).confidence.seen[-1] == 1.0
    with pytest.raises(TaskError, match="'a' is there already"):
        side.extended(classifier, new_class(1, "a"))


def test_without_samples_nothing_is_settled():
    classifier, side = made()
    assert Reference.of(classifier.heads, (X[:0], X[:0]), CLASS_INDEX[:0], None) is None
    bare = replace(side, reference=None)
    grown = bare.extended(classifier, new_class(0))
    np.testing.assert_allclose(grown.heads[0].linear[3], 3 * np.eye(K + 1, D)[3])
    assert grown.heads[0].bias is None


def test_many_samples_are_thinned_out_and_samples_in_training_stand_in():
    classifier, _ = made()
    many, of_class = np.tile(X, (20, 1)), np.tile(CLASS_INDEX, 20)
    reference = Reference.of(classifier.heads, (many, many), of_class, None)
    assert reference.logits.shape == (256, K)
    np.testing.assert_allclose(reference.logits.mean(axis=1), 0, atol=1e-4)
    assert 0 < reference.lack < 1


def test_written_and_read(tmp_path):
    classifier, side = made()
    side = replace(side, wording="{name}!", with_examples=True)
    grown = side.extended(classifier, new_class(2))
    save_new_class_model(side, tmp_path, classifier, grown)
    for model in (classifier, grown):  # whichever of the two a killed process has left
        read = load_new_class_model(tmp_path, model)
        assert (read.wording, read.with_examples) == ("{name}!", True)
        one, other = (s.extended(model, new_class(3, "z")).logits({"pooled": X}) for s in (side, read))
        np.testing.assert_array_equal(one, other)
    assert read.class_text("churn_risk", "may leave", ["bye"]) == "churn risk!\nFor example:\n- bye"


def test_a_tower_is_written_and_read(tmp_path):
    rng = np.random.default_rng(3)
    head = Head(
        view="pooled",
        linear=rng.standard_normal((K, D), np.float32),
        hidden=rng.standard_normal((K, 2), np.float32),
        tower=(rng.standard_normal((2, D), np.float32),),
    )
    matching = Matching(
        class_input="both",
        described=True,
        similarity=0.5,
        scale=2.0,
        described_centre=rng.standard_normal(D, np.float32),
        tower=(rng.standard_normal((2, D), np.float32), rng.standard_normal((D + 1, 2), np.float32)),
        free=rng.standard_normal(D + 1, np.float32),
        last=rng.standard_normal((D + 1, 2), np.float32),
    )
    classifier, side = Classifier(classes=("a", "b", "c"), heads=(head,)), NewClassModel(heads=(matching,))
    save_new_class_model(side, tmp_path, classifier)
    read = load_new_class_model(tmp_path, classifier)
    assert read.reference is None
    one, other = (s.extended(classifier, new_class(2)).heads[0] for s in (side, read))
    np.testing.assert_array_equal(one.linear, other.linear)
    np.testing.assert_array_equal(one.hidden, other.hidden)


def test_the_lengths_of_means_are_kept(tmp_path):
    """Of two examples: E = 4 + 6 (1/2 - 1/4) = 5.5, so that a mean is shortened as in the fit."""
    classifier, side = made()
    scatter = replace(side.heads[1], lengths=MeanLengthCorrection(4.0, 0.25, 6.0, 0.25))
    side = replace(side, heads=(side.heads[0], scatter))
    save_new_class_model(side, tmp_path, classifier)
    kept = load_new_class_model(tmp_path, classifier).heads[1]
    assert kept.lengths == scatter.lengths
    mean = NEW[:2].mean(axis=0)
    row = kept.row(classifier.heads[1], None, NEW[:2])
    np.testing.assert_allclose(row.linear, (4 / 5.5) ** 0.25 * mean, rtol=1e-5)
    assert row.bias == pytest.approx(-0.5 * 4 / 5.5 * float(mean @ mean), rel=1e-5)


def test_a_file_of_another_model_is_refused(tmp_path):
    classifier, side = made()
    other, _ = made(strength=2.0)
    save_new_class_model(side, tmp_path, classifier)
    with pytest.raises(ModelFileError, match=r"classes\.safetensors: belongs to another model; fit again"):
        load_new_class_model(tmp_path, other)
    with pytest.raises(ModelFileError, match=r"has no classes\.safetensors.*fit again to add classes"):
        load_new_class_model(tmp_path / "elsewhere", classifier)


def test_a_damaged_file_is_one_clear_line(tmp_path):
    classifier, side = made()
    save_new_class_model(side, tmp_path, classifier)
    file = tmp_path / "classes.safetensors"
    whole = file.read_bytes()
    damaged = [b"", b"x", whole[: len(whole) // 2], whole[:-4], b"\xff" * 40]
    for place in range(0, len(whole), max(1, len(whole) // 97)):
        damaged.append(whole[:place] + bytes([whole[place] ^ 5]) + whole[place + 1 :])
    for content in damaged:
        file.write_bytes(content)
        with pytest.raises(ModelFileError, match=r"fit again to add classes|another model") as caught:
            load_new_class_model(tmp_path, classifier)
        assert "\n" not in str(caught.value)


def test_parts_that_do_not_fit_are_refused(tmp_path):
    classifier, side = made()
    first, second = side.heads
    reference = side.reference
    for changes in (
        {"heads": (first,), "reference": None},
        {"heads": (first, Scatter(scale=1.0, inverse=np.eye(2, dtype=np.float32)))},
        {"heads": (first, replace(second, inverse=np.full((D, D), np.nan, np.float32)))},
        {"heads": (replace(first, last=np.eye(2, dtype=np.float32)), second)},
        {"wording": "no placeholder"},
        {"reference": replace(reference, queries=(X[:3], X[:3]))},
        {"reference": replace(reference, logits=np.ones((N, K + 1), np.float32))},
    ):
        save_new_class_model(replace(side, **changes), tmp_path, classifier)
        with pytest.raises(ModelFileError, match=r"classes\.safetensors: .*; fit again to add classes"):
            load_new_class_model(tmp_path, classifier)
