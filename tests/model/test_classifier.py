"""Logits, probabilities and class names of a classifier, and what it refuses."""

import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from adamab.errors import EmbedderError, FingerprintError, TaskError
from adamab.model import Classifier, Head


def linear_model(k, **options):
    """The logits are the vectors."""
    head = Head(view="pooled", linear=np.eye(k, dtype=np.float32))
    return Classifier(classes=tuple(f"c{i}" for i in range(k)), heads=(head,), **options)


def test_logits_are_the_sum_of_the_heads(model, views, texts):
    assert model.vocabulary is not None
    rows = {**views, "words": model.vocabulary.transform(texts)}
    expected = sum(head.logits(rows[head.view]) for head in model.heads)
    logits = model.logits(views, texts)
    assert logits.dtype == np.float32
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)
    assert model.views == ("pooled", "layers")


def test_probabilities_sum_to_one_and_follow_the_logits(model, views, texts):
    probabilities = model.predict_proba(views, texts)
    assert probabilities.dtype == np.float32
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-6)
    best = model.logits(views, texts).argmax(axis=1)
    assert model.predict(views, texts) == [model.classes[i] for i in best]


@pytest.mark.parametrize("row", [[3e38, -3e38, 0], [1000, 999, -1000], [-1e30, -1e30, -1e30]])
def test_extreme_logits_give_probabilities(row):
    probabilities = linear_model(3).predict_proba({"pooled": [row]})
    assert np.isfinite(probabilities).all()
    assert probabilities.sum() == pytest.approx(1)


def test_top_k_is_sorted_and_equals_keep_their_order():
    model = linear_model(4)
    indices, probabilities = model.top_k({"pooled": [[1, 2, 2, 1], [0, 0, 0, 0]]}, 3)
    assert indices.tolist() == [[1, 2, 0], [0, 1, 2]]
    assert (np.diff(probabilities, axis=1) <= 0).all()
    np.testing.assert_allclose(probabilities[1], 0.25)
    assert model.top_k({"pooled": np.zeros((1, 4))}, 99)[0].tolist() == [[0, 1, 2, 3]]
    with pytest.raises(ValueError, match="k is 0"):
        model.top_k({"pooled": np.zeros((1, 4))}, 0)


@pytest.mark.parametrize("empty", [np.zeros((0, 3)), np.zeros((0, 0)), []])
def test_no_samples_are_fine(empty):
    model = linear_model(3)
    assert model.predict_proba({"pooled": empty}).shape == (0, 3)
    assert model.predict({"pooled": empty}) == []
    assert model.top_k({"pooled": empty}, 2)[0].shape == (0, 2)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32])
def test_any_numbers_will_do(dtype):
    vectors = np.array([[0, 1, 0], [5, 2, 1]]).astype(dtype)
    assert linear_model(3).predict({"pooled": vectors, "unused": None}) == ["c1", "c0"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "needs view 'pooled', which is missing; given: none"),
        ({"pooled": [[1, 2], [3]]}, "not numbers of one width"),
        ({"pooled": [["a", "b", "c"]]}, "a matrix of numbers is needed"),
        ({"pooled": [1, 2, 3]}, "a matrix of numbers is needed"),
        ({"pooled": [[1, 2]]}, "2 wide, the model was fitted on 3"),
        ({"pooled": [[0, 0, 0], [0, np.nan, 0]]}, "vector 1 of view 'pooled' is not finite"),
        ({"pooled": [[1e300, 0, 0]]}, "vector 0 of view 'pooled' is not finite"),
    ],
)
def test_wrong_vectors_are_refused_in_one_line(given, message):
    with pytest.raises(EmbedderError, match=message) as caught:
        linear_model(3).predict_proba(given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("rows", [1, 50])
@pytest.mark.parametrize("bad", [np.nan, -np.inf])
@pytest.mark.parametrize(
    "options",
    [{}, {"normalise": True, "centre": True}, {"rank": 2, "normalise": True}, {"layers": (4,)}],
)
def test_no_bad_value_hides_behind_zero_weights(make_head, rows, bad, options):
    head = make_head(**options)
    head.linear[:] = 0
    model = Classifier(classes=("a", "b", "c"), heads=(head,))
    for column in range(7):
        vectors = np.ones((rows, 7), np.float32)
        vectors[-1, column] = bad
        with pytest.raises(EmbedderError, match=f"vector {rows - 1} of view 'pooled' is not finite"):
            model.predict({"pooled": vectors})


def test_an_overflow_is_refused(make_head):
    model = Classifier(classes=("a", "b", "c"), heads=(make_head(normalise=True),))
    with pytest.raises(EmbedderError, match="logits of row 1 overflow"):
        model.logits({"pooled": np.array([[1.0] * 7, [1e30] * 7])})


def test_rows_must_agree(model, views, texts):
    with pytest.raises(
        EmbedderError, match=r"rows differ \(view 'pooled': 4, view 'layers': 5, view 'words': 5\)"
    ):
        model.logits({**views, "pooled": views["pooled"][:4]}, texts)
    with pytest.raises(EmbedderError, match="view 'words': 2"):
        model.logits(views, texts[:2])


@pytest.mark.parametrize("given", [None, "abcde"])
def test_words_need_the_texts(model, views, given):
    with pytest.raises(TaskError, match="pass a list of the texts"):
        model.predict(views, given)


def test_texts_must_be_texts(model, views):
    with pytest.raises(TaskError, match="text 1 is of type int"):
        model.predict(views, ["a", 2, "c", "d", "e"])  # type: ignore[list-item]


def test_words_alone_need_no_vectors(model, texts):
    lexical = replace(model, heads=model.heads[2:])
    assert lexical.views == ()
    assert len(lexical.predict({}, texts)) == len(texts)


def test_another_embedder_is_refused():
    model = linear_model(2, fingerprint="st:abc", embedder_spec="st:mini")
    model.check_fingerprint("st:abc")
    with pytest.raises(
        FingerprintError, match=r"'st:mini' .*'st:abc'.*'npz:x'; use that embedder or fit again"
    ):
        model.check_fingerprint("npz:x")
    for then, now, remedy in (
        ("openai:m:384@host/v1", "openai:m:384", "set OPENAI_BASE_URL as then, or name it with ?base_url="),
        ("azure:m@a.com", "azure:m@b.com", "set AZURE_OPENAI_ENDPOINT as then, or name it with ?base_url="),
        ("tei:m@host", "tei:m", "another address: name it with ?base_url="),
        ("openai:m@host/v1", "openai:n", "use that embedder or fit again"),
    ):
        with pytest.raises(FingerprintError, match=re.escape(remedy)):
            linear_model(2, fingerprint=then).check_fingerprint(now)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"classes": ("a",)}, "two or more"),
        ({"classes": ("a", "b", "a")}, "class 'a' stands there twice"),
        ({"classes": ("a", "b", "")}, "a class name is empty"),
        ({"classes": ("a", "b", 3)}, "a class name is of type int"),
        ({"classes": ("a", "b")}, "made for 3 classes, not 2"),
        ({"heads": ()}, "one or more heads"),
        ({"vocabulary": None}, "go together"),
        ({"fingerprint": None}, "fingerprint is of type NoneType"),
        ({"metadata": {"a": float("inf")}}, "metadata cannot be written as JSON"),
        ({"metadata": {"a": {"b": object()}}}, "metadata cannot be written as JSON"),
        ({"metadata": []}, "metadata are of type list"),
    ],
)
def test_what_cannot_be_a_classifier_is_refused(model, change, message):
    with pytest.raises(ValueError, match=message):
        replace(model, **change)


def test_deep_metadata_are_refused(model):
    deep = None
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ValueError, match="metadata cannot be written as JSON"):
        replace(model, metadata={"a": deep})
    while deep:  # taken apart by hand: freeing it at once would recurse as deeply
        deep = deep[0]


def test_the_import_is_light():
    heavy = "torch", "sklearn", "pydantic", "scipy", "yaml", "httpx"
    code = f"import sys, adamab.model; print([m for m in {heavy} if m in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
