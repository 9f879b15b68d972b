import asyncio
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

import adamab
from adamab import ADAMABClassifier, EmbeddingCalibrator, Recipe
from adamab.errors import ApiError, FingerprintError, RecipeError, TaskError
from adamab.testing import Fault, HashEmbedder, ProviderServer

TEXTS = [
    *[
        "money back",
        "my money back please",
        "refund my money",
        "a refund",
        "money refund now",
        "refund please",
    ],
    *["lovely work", "what lovely people", "love this", "great, love it", "lovely and great", "great work"],
]
LABELS = ["refund"] * 6 + ["praise"] * 6


def texts_classifier(**options):
    return ADAMABClassifier(HashEmbedder(), random_state=0, **options)


def test_fit_predict_and_what_is_learned():
    clf = texts_classifier().fit(TEXTS, LABELS, descriptions={"refund": "wants money back"})
    assert list(clf.classes_) == ["praise", "refund"]
    assert list(clf.predict(["money please", "such lovely work"])) == ["refund", "praise"]
    probabilities = clf.predict_proba(["money please"])
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    assert 0 <= clf.estimate_.low <= clf.estimate_.accuracy <= clf.estimate_.high <= 1
    assert clf.history_ == ()


def test_pipeline_cross_validation_and_clone():
    strip = FunctionTransformer(lambda texts: [t.strip() for t in texts])
    pipeline = Pipeline([("strip", strip), ("classify", texts_classifier())])
    assert pipeline.fit(TEXTS, LABELS).score(TEXTS, LABELS) > 0.8
    scores = cross_val_score(texts_classifier(), TEXTS, LABELS, cv=2)
    assert scores.shape == (2,)
    assert scores.mean() > 0.5
    copy = clone(texts_classifier(budget=5))
    assert copy.budget == 5
    assert not hasattr(copy, "classifier_")


def test_arrays_with_noise_and_described_classes():
    x = np.repeat(np.eye(3, 8), 3, axis=0) + 0.05 * np.random.default_rng(0).standard_normal((9, 8))
    y = np.repeat([0, 1, 2], 3)
    calibrator = EmbeddingCalibrator(generator="noise", budget="9 samples", random_state=0)
    calibrator.fit(x, y, class_vectors=np.eye(3, 8))
    assert sum(record.accepted for record in calibrator.history_) == 9
    assert (calibrator.predict(x) == y).all()
    with pytest.raises(RecipeError, match="generator of vectors"):
        EmbeddingCalibrator(generator=_text_generator()).fit(x, y)


def _text_generator():
    from adamab.providers.generators.base import Batch, Generator

    class Texts(Generator):
        fingerprint = "texts"

        async def generate(self, request):
            return Batch(("x",))

    return Texts()


def test_it_works_inside_a_running_event_loop():
    async def notebook():
        return texts_classifier().fit(TEXTS, LABELS).predict(["money please"])

    assert asyncio.run(notebook())[0] == "refund"


def test_an_interrupted_fit_with_a_run_directory_resumes_and_buys_nothing_twice(tmp_path):
    with ProviderServer() as server:
        paid = {
            "generator": f"openai:m?base_url={server.url}/v1",
            "recipe": Recipe(batch=2, rounds_per_class=2),
            "budget": "8 samples, 30 calls",
            "cache": False,
            "prefetch": 0,
        }
        ADAMABClassifier(HashEmbedder(), **paid, run_dir=tmp_path / "whole").fit(TEXTS, LABELS)
        bought = server.count()
        server.add_fault(Fault("status", status=401, path="chat", after=2, times=1))
        clf = ADAMABClassifier(HashEmbedder(), **paid, run_dir=tmp_path / "run")
        with pytest.raises(ApiError):
            clf.fit(TEXTS, LABELS)
        clf = clone(clf).set_params(budget=None).fit(TEXTS, LABELS)  # under the budget that the run has
        assert server.count() == 2 * bought + 1  # the refused call
    whole = adamab.load(tmp_path / "whole", embedder=HashEmbedder())
    np.testing.assert_array_equal(clf.predict_proba(TEXTS), whole.predict_proba(TEXTS))
    assert (len(clf.synthetic_), clf.spent_["calls"]) == (8, bought + 1)
    assert [record.round for record in clf.history_] == [1, 2, 3, 4]
    again = pickle.loads(pickle.dumps(clone(clf).fit(TEXTS, LABELS)))  # the run is complete
    np.testing.assert_array_equal(again.predict_proba(TEXTS), clf.predict_proba(TEXTS))


def test_save_and_load(tmp_path):
    clf = texts_classifier().fit(TEXTS, [7] * 6 + [3] * 6)
    clf.save(tmp_path / "run")
    again = adamab.load(tmp_path / "run", embedder=HashEmbedder())
    np.testing.assert_array_equal(again.predict_proba(TEXTS), clf.predict_proba(TEXTS))
    np.testing.assert_array_equal(again.predict(TEXTS), clf.predict(TEXTS))
    with pytest.raises(FingerprintError):
        adamab.load(tmp_path / "run", embedder=HashEmbedder(width=32))


def test_labels_that_json_cannot_hold_are_refused_at_saving(tmp_path):
    clf = texts_classifier().fit(TEXTS, LABELS)
    clf.classes_ = np.array([1j, 2j])
    with pytest.raises(TaskError, match="cannot be saved"):
        clf.save(tmp_path)


def test_a_label_without_a_sample_is_a_class_if_it_is_described(tmp_path):
    descriptions = {"refund": "wants money back", "delivery": "asks where the parcel is"}
    clf = texts_classifier().fit(TEXTS, LABELS, descriptions=descriptions)
    assert clf.classes_.tolist() == ["delivery", "praise", "refund"]
    assert clf.predict(["where is the parcel"])[0] == "delivery"
    clf.save(tmp_path / "model")
    loaded = adamab.load(tmp_path / "model", embedder=HashEmbedder())
    assert loaded.classes_.tolist() == clf.classes_.tolist()
    assert loaded.estimate_ == clf.estimate_ is not None
    alone = ADAMABClassifier(HashEmbedder()).fit([], [], descriptions=descriptions)
    assert alone.predict(["my money back"])[0] == "refund"


def test_options_of_the_recipe_are_parameters():
    clf = texts_classifier(recipe={"name": "calibrator", "batch": 3})
    assert clone(clf).get_params()["recipe__batch"] == 3
    clf.set_params(recipe__dropout=0.25, budget=7)
    assert (clf.recipe, clf.budget) == (Recipe.preset("calibrator").with_options(batch=3, dropout=0.25), 7)
    assert clone(clf).set_params(**clf.get_params()).recipe == clf.recipe
    assert clf.set_params(recipe__name="paper", recipe__batch=2).recipe == Recipe.of(
        {"name": "paper", "batch": 2}
    )
    for make in (texts_classifier, EmbeddingCalibrator):
        with pytest.raises(RecipeError, match="no option 'bath'; did you mean 'batch'"):
            make().set_params(recipe__bath=1)
    x = TEXTS if make is texts_classifier else np.repeat(np.eye(2), 6, axis=0)
    grid = GridSearchCV(make(), {"recipe__within_share": [0.5, 0.9]}, cv=2).fit(x, LABELS)
    assert grid.best_params_["recipe__within_share"] == grid.best_estimator_.recipe.within_share
    assert [params["recipe__within_share"] for params in grid.cv_results_["params"]] == [0.5, 0.9]


@pytest.mark.parametrize("recipe", [{"dropout": 2}, {"name": "papr"}, ["paper"], 3])
def test_a_recipe_that_is_none_is_one_line(recipe):
    with pytest.raises(RecipeError, match=r"^(recipe|unknown recipe) .*"):
        texts_classifier(recipe=recipe).fit(TEXTS, LABELS)


@pytest.mark.parametrize("vectors", [np.eye(3, 4), np.eye(2, 3), [[np.nan] * 4] * 2])
def test_class_vectors_are_checked(vectors):
    with pytest.raises(ValueError, match=r"class_vectors|NaN"):
        EmbeddingCalibrator().fit(np.eye(4), [0, 0, 1, 1], class_vectors=vectors)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_out_of_range_is_told(seed):
    with pytest.raises(ValueError, match="random_state"):
        EmbeddingCalibrator(random_state=seed).fit(np.eye(4), [0, 0, 1, 1])


@pytest.mark.parametrize("budget", [-3, "3 euro", True])
def test_a_budget_must_make_sense(budget):
    with pytest.raises(RecipeError, match="budget"):
        texts_classifier(budget=budget, generator=_text_generator()).fit(TEXTS, LABELS)


def test_empty_texts_are_refused_as_on_the_command_line():
    clf = texts_classifier().fit(TEXTS, LABELS)
    for empty in ("", " ", "\u200b"):
        with pytest.raises(TaskError, match=r"^X\[1\]: the text is empty; fill it in or remove it$"):
            clf.predict(["money", empty])


def test_priors_unknown_and_sets_of_texts():
    clf = texts_classifier().fit(TEXTS, LABELS)
    new = ["money please", "such lovely work", "nothing like it"]
    plain, moved = clf.predict_proba(new), clf.predict_proba(new, priors={"refund": 0.9})
    assert (moved[:, 1] > plain[:, 1]).all()
    odds = (moved[:, 1] / moved[:, 0]) / (plain[:, 1] / plain[:, 0])
    np.testing.assert_allclose(odds, 9, rtol=1e-3)  # six of each were given
    assert set(clf.predict(new, priors={"refund": 1.0})) == {"refund"}
    assert set(clf.predict(new, unknown=0.01)) - {"refund", "praise"} == {"unknown"}
    message = "^the 12 held-out samples cannot vouch for a share of 0.99, so every set holds all classes; add"
    with pytest.warns(UserWarning, match=message):
        sets = clf.predict_sets(new, coverage=0.99)
    assert [set(labels) for labels in sets] == [{"refund", "praise"}] * 3
    assert [labels[0] for labels in clf.predict_sets(new, coverage=0.8)] == list(clf.predict(new))
    before = clf.embedder.calls
    for predict in (clf.predict, clf.predict_proba):
        with pytest.raises(TaskError, match="'odd', which is no class"):
            predict(new, priors={"odd": 0.5})
    assert clf.embedder.calls == before  # refused before anything is embedded


def test_priors_unknown_and_sets_of_arrays_with_numbers_for_labels():
    x = np.repeat(np.eye(3), 6, axis=0) + 0.05 * np.random.default_rng(0).standard_normal((18, 3))
    clf = EmbeddingCalibrator(random_state=0).fit(x, np.repeat([10, 20, 30], 6))
    assert clf.predict(x, priors={20: 1.0}).tolist() == [20] * 18
    assert clf.predict_proba(x, priors={20: 0.5, 10: 0.25, 30: 0.25}).shape == (18, 3)
    labels = clf.predict(np.concatenate([x, np.full((1, 3), 1 / 3)]), unknown=0.9)
    assert labels.dtype == object
    assert labels[-1] == "unknown"
    assert {20, 30} <= set(labels.tolist())
    sets = clf.predict_sets(x, coverage=0.9)
    assert all(labels.dtype.kind == "i" and len(labels) for labels in sets)


def test_embed_gives_what_the_classifier_takes():
    texts = ["cash back please", "refund my cash", "great product", "really great work"]
    clf = ADAMABClassifier(HashEmbedder(), random_state=0).fit(
        texts, ["refund", "refund", "praise", "praise"]
    )
    new = ["refund please", "great"]
    rows = clf.embed(new)
    widths = {head.view: head.width for head in clf.classifier_.heads}
    assert "words" in widths
    assert {view: matrix.shape for view, matrix in rows.items()} == {
        view: (2, width) for view, width in widths.items()
    }
    assert all(matrix.dtype == np.float32 for matrix in rows.values())
    np.testing.assert_array_equal(clf.classifier_.predict_proba(rows, new), clf.predict_proba(new))
    without_words = ADAMABClassifier(HashEmbedder(), recipe=Recipe(words=False), random_state=0)
    assert set(without_words.fit(texts, [1, 1, 2, 2]).embed(new)) == {"pooled"}
    with pytest.raises(NotFittedError):
        ADAMABClassifier().embed(new)


def test_one_sample_a_class_of_many_numbered_classes():
    """It is what this is for: no warning, and everything that a fit gives goes on from there."""
    vectors = np.random.default_rng(0).standard_normal((31, 12)).astype(np.float32)
    x, y = vectors[:30], np.arange(30)
    clf = EmbeddingCalibrator(random_state=0).fit(x, y)
    assert (clf.predict(x + 0.01) == y).all()
    assert (pickle.loads(pickle.dumps(clf)).predict(x) == y).all()
    clf.add_class(30, vectors[30:])
    assert (clf.predict(vectors) == np.arange(31)).all()


@pytest.mark.parametrize("vectors", [False, True])
def test_what_is_asked_for_must_make_sense(vectors):
    if vectors:
        new = np.eye(2, 5)
        clf = EmbeddingCalibrator().fit(np.repeat(new, 2, axis=0) + np.eye(4, 5), list("aabb"))
    else:
        new = ["money please"]
        clf = texts_classifier().fit(TEXTS, LABELS)
    for priors in ([0.5, 0.5], np.array([0.5, 0.5]), "a"):
        for predict in (clf.predict, clf.predict_proba):
            with pytest.raises(TaskError, match=r"^priors is .*; give shares by class"):
                predict(new, priors=priors)
    for share in ("x", True):
        with pytest.raises(TaskError, match=r"^unknown is .*; give a share between 0 and 1"):
            clf.predict(new, unknown=share)
    for share in ("x", None, 1):
        with pytest.raises(TaskError, match=r"^coverage is .*; give a share between 0 and 1"):
            clf.predict_sets(new, coverage=share)
    with pytest.warns(UserWarning, match="so no answer is unknown"):
        clf.predict(new, unknown=0.99)


@pytest.mark.parametrize("factor", [1e-11, 1e-3, 1e6, 1e11])
def test_the_length_of_vectors_does_not_matter(factor):
    labels = np.repeat([0, 1, 2], 6)
    x = np.eye(3, 8)[labels] + 0.2 * np.random.default_rng(0).standard_normal((18, 8))
    clf = EmbeddingCalibrator(random_state=0)
    expected = clf.fit(x, labels).predict_proba(x)
    np.testing.assert_allclose(clf.fit(factor * x, labels).predict_proba(factor * x), expected, atol=1e-3)


@pytest.mark.parametrize("factor", [1e-20, 1e20])
def test_numbers_that_no_square_can_hold_are_refused(factor):
    with pytest.raises(ValueError, match=r"^the largest number of X is .*; scale X so that it is between"):
        EmbeddingCalibrator().fit(factor * np.eye(4), [0, 0, 1, 1])
