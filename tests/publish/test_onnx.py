"""The exported graph, run by onnxruntime, gives what NumPy gives."""

import itertools
import json

import numpy as np
import onnxruntime
import pytest

from adamab.errors import MissingExtraError, RunError
from adamab.model import Classifier, Confidence, Head
from adamab.publish import onnx
from adamab.publish.onnx import Rows, dense_inputs, random_rows
from adamab.task.words import Vocabulary

TEXTS = ["refund my order", "where is my parcel", "der Käse ist weg", "", "refund my refund"]


def head(rng, view="pooled", *, classes=4, width=9, rank=None, layers=(), bias=False, **more):
    def array(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    sizes = [rank or width, *layers]
    return Head(
        view=view,
        linear=array(classes, sizes[0]),
        hidden=array(classes, sizes[-1]) if layers else None,
        bias=array(classes) if bias else None,
        tower=tuple(array(b, a) for a, b in itertools.pairwise(sizes)),
        activation=more.get("activation", "relu"),
        centre=array(width) if more.get("centre") else None,
        normalise=more.get("normalise", False),
        basis=array(width, rank) if rank else None,
    )


def classifier(*heads, vocabulary=None, **more):
    classes = tuple(f"class {number}" for number in range(len(heads[0].linear)))
    return Classifier(classes=classes, heads=heads, vocabulary=vocabulary, **more)


@pytest.fixture
def mixed():
    """Every kind of head at once, and awkward names."""
    rng = np.random.default_rng(3)
    vocabulary = Vocabulary.learn(TEXTS)
    size = len(vocabulary.terms)
    return Classifier(
        classes=('a"b', "c\nd", "Käse", "配送"),
        heads=(
            head(rng, rank=5, layers=(6, 3), centre=True, normalise=True),
            head(rng, bias=True, centre=True, normalise=True),
            head(rng, "layers", width=12, rank=4, bias=True, activation="gelu", layers=(3,)),
            head(rng, "words", width=size, rank=3, layers=(4,), centre=True, normalise=True, bias=True),
            head(rng, "words", width=size, centre=True, normalise=True),
        ),
        vocabulary=vocabulary,
        embedder_spec="st:mini",
        fingerprint="st:0123",
        query_prompt="query: {text}",
        confidence=Confidence(seen=(1.0, 2.0, 3.0, 4.0), temperature=1.5),
    )


def some_rows(model, n=5, seed=0):
    rng = np.random.default_rng(seed)
    widths = {one.view: one.width for one in model.heads if one.view != "words"}
    views = {view: rng.standard_normal((n, width)).astype(np.float32) for view, width in widths.items()}
    return Rows(views, TEXTS[:n] if model.vocabulary else None)


def onnx_answers(model, folder, rows):
    onnx.write_onnx(model, folder)
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    return session.run(["logits", "probabilities"], dense_inputs(model, rows))


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu", "tanh"])
def test_onnx_agrees_for_every_kind_of_head(tmp_path, activation):
    rng = np.random.default_rng(1)
    kinds = itertools.product([False, True], [False, True], [None, 3], [(), (5, 4)])
    heads = [
        head(rng, activation=activation, normalise=n, centre=c, rank=r, layers=layers, bias=bool(layers))
        for n, c, r, layers in kinds
    ]
    model = classifier(*heads)
    for rows in (some_rows(model), random_rows(model)):
        logits, probabilities = onnx_answers(model, tmp_path, rows)
        np.testing.assert_allclose(logits, model.logits(rows.views), atol=1e-3)
        np.testing.assert_allclose(probabilities, model.predict_proba(rows.views), atol=1e-4)


@pytest.mark.parametrize("n", [0, 1, 5])
def test_onnx_takes_any_number_of_rows(tmp_path, mixed, n):
    rows = some_rows(mixed, n)
    logits, probabilities = onnx_answers(mixed, tmp_path, rows)
    assert logits.shape == probabilities.shape == (n, 4)
    np.testing.assert_allclose(probabilities, mixed.predict_proba(rows.views, rows.texts), atol=1e-5)


def test_onnx_says_what_it_is(tmp_path, mixed):
    onnx.write_onnx(mixed, tmp_path)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    known = session.get_modelmeta().custom_metadata_map
    assert json.loads(known["classes"]) == list(mixed.classes)
    assert json.loads(known["views"]) == ["pooled", "layers", "words"]
    assert (known["embedder"], known["fingerprint"]) == ("st:mini", "st:0123")
    assert known["query_prompt"] == "query: {text}"
    assert float(known["temperature"]) == 1.5
    assert Vocabulary.from_json(json.loads(known["vocabulary"])).terms == mixed.vocabulary.terms
    widths = {"pooled": 9, "layers": 12, "words": len(mixed.vocabulary.terms)}
    assert {one.name: one.shape[1] for one in session.get_inputs()} == widths


def test_words_that_are_the_centre_itself_are_no_noise_of_length_one(tmp_path):
    rng = np.random.default_rng(2)
    vocabulary = Vocabulary.learn(TEXTS)
    words = head(rng, "words", width=len(vocabulary.terms), rank=3, normalise=True)
    centre = vocabulary.transform(TEXTS[:1]).toarray()[0]
    # Half a float32's rounding away from the text's row: subtracted, noise is left, not zero.
    near = np.nextafter(centre, np.float32(2)).astype(np.float32)
    for where in (centre, near):
        model = classifier(
            Head(view="words", linear=words.linear, basis=words.basis, centre=where, normalise=True),
            vocabulary=vocabulary,
        )
        rows = Rows({}, TEXTS)
        logits, _ = onnx_answers(model, tmp_path, rows)
        expected = model.logits({}, TEXTS)
        np.testing.assert_allclose(logits, expected, atol=1e-4)
        assert np.abs(expected[0]).max() < 1e-3


def test_an_overflow_shows_in_the_graph_too(tmp_path):
    model = classifier(head(np.random.default_rng(0), normalise=True))
    rows = Rows({"pooled": np.full((1, 9), 1e30, np.float32)}, None)
    logits, _ = onnx_answers(model, tmp_path, rows)
    assert np.isnan(logits).all()


def test_a_graph_that_differs_is_refused(tmp_path, mixed):
    rng = np.random.default_rng(9)
    one, other = classifier(head(rng)), classifier(head(rng))
    onnx.write_onnx(one, tmp_path)
    assert onnx.check_onnx(one, tmp_path, random_rows(one))[1] < 1e-6
    with pytest.raises(RunError, match="onnxruntime differs from NumPy by"):
        onnx.check_onnx(other, tmp_path, random_rows(other))
    (tmp_path / "model.onnx").write_bytes(b"no graph")
    with pytest.raises(RunError, match="onnxruntime cannot run") as error:
        onnx.check_onnx(one, tmp_path, random_rows(one))
    assert "\n" not in str(error.value)


def test_what_onnx_cannot_hold_and_missing_packages_are_one_line(tmp_path, mixed, monkeypatch):
    taken = classifier(head(np.random.default_rng(0), "logits"))
    with pytest.raises(RunError, match="view 'logits' has a name that the graph needs"):
        onnx.write_onnx(taken, tmp_path)
    monkeypatch.setattr(onnx, "_LARGEST", 100)
    with pytest.raises(RunError, match="an ONNX file at most 100; use --format hub"):
        onnx.write_onnx(mixed, tmp_path)
    monkeypatch.setattr(onnx, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"adamab\[onnx\]"):
        onnx.write_onnx(mixed, tmp_path)
    checked, difference = onnx.check_onnx(mixed, tmp_path, random_rows(mixed))
    assert "onnxruntime is not installed" in checked
    assert difference is None
