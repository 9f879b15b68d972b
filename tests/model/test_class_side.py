"""A class that comes later: its rows are those of a fit, and the file that it needs."""

from dataclasses import replace

import numpy as np
import pytest

from adamab.errors import ModelFileError, TaskError
from adamab.method.discriminant import Discriminant, FitSamples
from adamab.method.views import ViewTransform
from adamab.model import Classifier, Confidence, Head
from adamab.model.new_class import (
    Matching,
    NewClass,
    NewClassModel,
    Stacked,
    load_new_class_model,
    save_new_class_model,
)
from adamab.task.recipe import Recipe

D, K = 6, 3
RNG = np.random.default_rng(0)
Y = np.repeat(np.arange(K + 1), [20, 9, 2, 5])  # the last class is the one that comes later
X = (RNG.standard_normal((len(Y), D)) + 3 * np.eye(K + 1, D)[Y]).astype(np.float32)
NEW, OLD = X[Y == K], X[Y < K]
CENTRE = X.mean(axis=0)
WORDINGS = (RNG.standard_normal((K + 1, D)) + 3 * np.eye(K + 1, D)).astype(np.float32)
WORDING_CENTRE = WORDINGS[:K].mean(axis=0)
EXAMPLES, DESCRIPTIONS = 30.0, 7.0  # weights
BASIS = np.linalg.qr(RNG.standard_normal((D, D)))[0].astype(np.float32)


def fitted(basis=BASIS):
    """The heads of a fit on all four classes: of the first three, of all, and what adds the last."""
    transform = ViewTransform(CENTRE, True, basis)
    number = np.arange(len(Y))
    samples = FitSamples(Y, number >= 0, K + 1, "pooled", number, number)
    discriminant = Discriminant(transform(X), samples, Recipe())
    wordings = ViewTransform(WORDING_CENTRE, True, basis)(WORDINGS)
    linear = (EXAMPLES * discriminant.vectors + DESCRIPTIONS * wordings).astype(np.float32)
    bias = (EXAMPLES * discriminant.bias).astype(np.float32)
    head = Head(view="pooled", linear=linear, bias=bias, centre=CENTRE, normalise=True, basis=basis)
    shared = discriminant.shared
    part = Stacked(
        precision=shared.precision.astype(np.float32),
        outside=shared.outside,
        ratio=shared.ratio,
        length=shared.length,
        example_weight=EXAMPLES,
        description_weight=DESCRIPTIONS,
        described=True,
        described_centre=WORDING_CENTRE,
    )
    return replace(head, linear=linear[:K], bias=bias[:K]), head, part


def made(strength=1.0, **options):
    """A classifier of three classes, and what adds others."""
    head, _, part = fitted()
    head = replace(head, linear=np.float32(strength) * head.linear)
    confidence = Confidence(seen=(20.0, 9.0, 2.0))
    classifier = Classifier(classes=("a", "b", "c"), heads=(head,), confidence=confidence)
    return classifier, NewClassModel(heads=(part,), **options)


def new_class(n, name="d"):
    examples = {"pooled": NEW[:n]} if n else {}
    return NewClass(name=name, described={"pooled": WORDINGS[K:]}, examples=examples, n=n)


@pytest.mark.parametrize("basis", [BASIS, None], ids=["basis", "no basis"])
def test_a_class_has_the_row_of_a_fit_that_had_seen_it(basis):
    """Centre, covariance and weights are those of the fit."""
    of_others, whole, part = fitted(basis)
    grown = part.extended(of_others, WORDINGS[K:], NEW)
    assert grown.linear.shape == whole.linear.shape
    np.testing.assert_allclose(grown.linear, whole.linear, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(grown.bias, whole.bias, rtol=1e-4, atol=1e-4)


def test_a_class_outside_the_span_gets_directions_of_its_own():
    """Two of six directions are lacking; the others' logits stay, and the class's are those of all six."""
    head, _, part = fitted()
    narrow = replace(head, basis=BASIS[:, :4], linear=head.linear[:, :4])
    precision = np.diag(np.r_[2, 3, 4, 5]).astype(np.float32)
    part = replace(part, precision=precision, outside=1.5)
    grown = part.extended(narrow, WORDINGS[K:], NEW)
    assert grown.basis.shape == (D, D)
    np.testing.assert_allclose(grown.basis.T @ grown.basis, np.eye(D), atol=1e-5)
    np.testing.assert_allclose(grown.logits(X)[:, :K], narrow.logits(X), rtol=1e-4, atol=1e-4)
    assert not grown.linear[:K, 4:].any()
    full = replace(part, precision=np.diag(np.r_[2, 3, 4, 5, 1.5, 1.5]).astype(np.float32))
    wide = full.extended(head, WORDINGS[K:], NEW)
    np.testing.assert_allclose(grown.logits(X)[:, K], wide.logits(X)[:, K], rtol=1e-4, atol=1e-4)
    again = part.extended(grown, WORDINGS[K:], NEW)  # what is spanned needs no further direction
    assert again.basis.shape == (D, D)
    np.testing.assert_allclose(again.linear[K + 1], again.linear[K], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n", [0, 1, 5])
def test_a_new_class_is_known_and_takes_little_from_the_others(n):
    classifier, side = made()
    grown = side.extended(classifier, new_class(n))
    assert grown.classes == ("a", "b", "c", "d")
    before = np.array(classifier.predict({"pooled": OLD}))
    assert np.mean(np.array(grown.predict({"pooled": OLD})) == before) > 0.85
    fresh = (np.random.default_rng(1).standard_normal((200, D)) + 3 * np.eye(K + 1, D)[3]).astype(np.float32)
    assert np.mean(np.array(grown.predict({"pooled": fresh})) == "d") > 0.7


def test_the_others_stay_as_they_are_and_more_can_come():
    classifier, side = made()
    grown = side.extended(classifier, new_class(2))
    twice = side.extended(grown, new_class(4, "e"))
    assert twice.classes == ("a", "b", "c", "d", "e")
    np.testing.assert_allclose(twice.logits({"pooled": X})[:, :4], grown.logits({"pooled": X}), rtol=1e-5)
    np.testing.assert_allclose(
        grown.logits({"pooled": X})[:, :3], classifier.logits({"pooled": X}), rtol=1e-5
    )
    assert twice.confidence.seen == (20.0, 9.0, 2.0, 2.0, 4.0)
    assert side.extended(classifier, new_class(0)).confidence.seen[-1] == 1.0
    with pytest.raises(TaskError, match="'a' is there already"):
        side.extended(classifier, new_class(1, "a"))


def matching(layers):
    """A classifier of one head that matches samples with classes, and what adds others."""
    rng = np.random.default_rng(3)

    def drawn(*shape):
        return rng.standard_normal(shape, np.float32)

    tower, hidden = ((drawn(2, D),), drawn(K, 2)) if layers == 2 else ((), None)
    head = Head(view="pooled", linear=drawn(K, D), hidden=hidden, tower=tower)
    part = Matching(
        class_input="both",
        described=True,
        scale=2.0,
        described_centre=drawn(D),
        tower=(drawn(2, D), drawn(D, 2)) if layers == 2 else (drawn(D, D),),
        free=drawn(D),
        last=drawn(D, 2) if layers == 2 else drawn(D, D),
    )
    return Classifier(classes=("a", "b", "c"), heads=(head,)), NewClassModel(heads=(part,))


@pytest.mark.parametrize(("make", "options"), [(made, ()), (matching, (1,)), (matching, (2,))])
def test_written_and_read(make, options, tmp_path):
    classifier, side = make(*options)
    side = replace(side, wording="{name}!", with_examples=True)
    grown = side.extended(classifier, new_class(2))
    save_new_class_model(side, tmp_path, classifier, grown)
    for model in (classifier, grown):  # whichever of the two a killed process has left
        read = load_new_class_model(tmp_path, model)
        assert (read.wording, read.with_examples) == ("{name}!", True)
        one, other = (s.extended(model, new_class(3, "z")).logits({"pooled": X}) for s in (side, read))
        np.testing.assert_array_equal(one, other)
    assert read.class_text("churn_risk", "may leave", ["bye"]) == "churn risk!\nFor example:\n- bye"
    assert read.described_views(classifier) == ("pooled",)


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
    (part,) = side.heads
    for changes in (
        {"heads": ()},
        {"heads": (part, part)},
        {"heads": (replace(part, precision=np.eye(D + 1, dtype=np.float32)),)},
        {"heads": (replace(part, precision=np.full((D, D), np.nan, np.float32)),)},
        {"heads": (replace(part, described_centre=np.ones(D - 1, np.float32)),)},
        {"heads": (replace(part, ratio="much"),)},
        {"heads": matching(2)[1].heads},  # of a head without a tower
        {"wording": "no placeholder"},
    ):
        save_new_class_model(replace(side, **changes), tmp_path, classifier)
        with pytest.raises(ModelFileError, match=r"classes\.safetensors: .*; fit again to add classes"):
            load_new_class_model(tmp_path, classifier)
