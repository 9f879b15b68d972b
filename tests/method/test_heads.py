import numpy as np
import pytest

from adamab.method.cross_validation import split_samples
from adamab.method.training import train_heads
from adamab.model.heads import through
from adamab.run._arrays import heads_of_fit
from adamab.task.recipe import Recipe
from tests.method.fitting import fit_on, view_of

RNG = np.random.default_rng(2)
Y = np.arange(24) % 3
X = (2 * np.eye(3, 20)[Y] + RNG.standard_normal((24, 20))).astype(np.float32)
GIVEN = np.ones(24, dtype=bool)
FAST = Recipe(checkpoints=(0, 5, 20))


def test_a_member_trained_with_others_is_the_member_trained_alone():
    recipe = Recipe(dropout=0.0, checkpoints=(8,))
    queries = np.stack([X, X[::-1]])
    classes = np.stack([X[:3], X[3:6]])
    weight = np.stack([np.ones(24), np.arange(24) % 2]).astype(np.float32)
    seen = {}

    def keep(name):
        def at_checkpoint(step, model):
            seen[name] = model
            return False

        return at_checkpoint

    train_heads(queries, classes, Y, weight, recipe, seed=0, at_checkpoint=keep("both"))
    both = seen["both"](queries, classes)
    held_out = weight[1] == 0
    changed = queries.copy()
    changed[1, held_out] = 0  # what a member does not see cannot change it
    train_heads(changed, classes, Y, weight, recipe, seed=0, at_checkpoint=keep("changed"))
    np.testing.assert_allclose(seen["changed"](queries, classes), both, rtol=1e-5, atol=1e-5)


def test_training_stops_when_held_out_loss_has_risen():
    noise = np.random.default_rng(0).standard_normal(X.shape).astype(np.float32)
    recipe = Recipe(checkpoints=(0, 10, 60, 120, 240), discriminants=False, dropout=0.0)
    (head,) = fit_on([view_of(noise)], Y, GIVEN, 3, recipe).heads
    assert 240 not in head.states
    (head,) = fit_on([view_of(noise)], Y, GIVEN, 3, recipe.with_options(folds=0)).heads
    assert tuple(head.states) == recipe.checkpoints


def test_wide_views_have_a_discriminant_in_place_of_a_calibrator():
    views = [view_of(X), view_of(X, name="layers", is_wide=True)]

    def kinds(**options):
        fitted = fit_on(views, Y, GIVEN, 3, FAST.with_options(**options), seed=0)
        return [(s.view, s.kind) for s in fitted.shares]

    of_pooled = [("pooled", "calibrator"), ("pooled", "discriminant")]
    assert kinds() == [*of_pooled, ("layers", "discriminant")]
    assert kinds(discriminants=False) == [("pooled", "calibrator"), ("layers", "calibrator")]


@pytest.mark.parametrize(
    ("described", "options", "kinds"),
    [
        (False, {}, ["discriminant"]),
        (False, {"discriminants": False}, ["calibrator"]),
        (True, {}, ["calibrator", "similarity"]),
    ],
)
def test_where_one_sample_a_class_is_all_nothing_is_trained(described, options, kinds):
    vectors = np.eye(3, 20, dtype=np.float32) if described else None
    view = view_of(X[:3], vectors) if described else view_of(X[:3])
    recipe = FAST.with_options(**options)
    fitted = fit_on([view], Y[:3], GIVEN[:3], 3, recipe, seed=0)
    assert [share.kind for share in fitted.shares if share.weight] == kinds
    logits = sum(part.head.logits(X[:3]) for part in heads_of_fit(fitted, recipe))
    assert (logits.argmax(axis=1) == Y[:3]).all()


def test_descriptions_alone_give_a_zero_shot_classifier():
    vectors = np.eye(3, 20, dtype=np.float32)
    recipe = Recipe(checkpoints=(0,))
    fitted = fit_on([view_of(X[:0], vectors)], Y[:0], GIVEN[:0], 3, recipe, seed=0)
    ((head, *_),) = heads_of_fit(fitted, recipe)
    assert (np.argmax(head.logits(vectors), axis=1) == np.arange(3)).all()


def test_of_many_samples_a_part_of_the_folds_is_judged():
    folds = split_samples(Y, GIVEN, 3, Recipe(evidence=10), seed=0).folds
    assert set(folds) == {-1, 0, 1, 2}
    assert 10 <= (folds >= 0).sum() < 24
    whole = split_samples(Y, GIVEN, 3, Recipe(), seed=0).folds
    np.testing.assert_array_equal(folds[folds >= 0], whole[folds >= 0])
    fitted = fit_on([view_of(X)], Y, GIVEN, 3, Recipe(evidence=10), seed=0)
    assert fitted.held_out.estimate().n == (folds >= 0).sum()


def test_given_and_synthetic_samples_are_spread_over_all_folds():
    given = np.arange(24) < 15
    folds = split_samples(Y, given, 3, Recipe(folds=3), seed=0).folds
    for source in (given, ~given):
        sizes = np.bincount(folds[source], minlength=3)
        assert sizes.max() - sizes.min() <= 3  # one a class


def test_folded_heads_compute_what_the_calibrators_compute():
    recipe = Recipe(checkpoints=(20,), weight_ridge=2400.0, layers=4, activation="gelu")
    vectors = np.eye(3, 20, dtype=np.float32)
    fitted = fit_on([view_of(X, vectors)], Y, GIVEN, 3, recipe, seed=3)
    trained, untrained, closed = fitted.shares
    (head, *_), (linear, *_) = heads_of_fit(fitted, recipe)
    state, prepared = fitted.heads[0].states[trained.option], fitted.heads[0].prepared
    q = prepared.queries
    padded = np.pad(q, ((0, 0), (0, state.class_vectors.shape[1] - q.shape[1])))
    calibrated = padded + through(state.tower[:-1], padded, "gelu") @ state.tower[-1].T
    expected = trained.weight * calibrated @ state.class_vectors.T
    expected += untrained.weight * recipe.similarity_scale * q @ prepared.described.T
    np.testing.assert_allclose(head.logits(X), expected, rtol=1e-4, atol=1e-4)
    (discriminant,) = fitted.discriminants
    expected = closed.weight * discriminant.states[closed.option].logits(discriminant.prepared.queries)
    np.testing.assert_allclose(linear.logits(X), expected, rtol=1e-4, atol=1e-4)


def test_copies_of_held_out_samples_do_not_give_them_away():
    rng = np.random.default_rng(0)
    given = rng.standard_normal((60, 200)).astype(np.float32)  # nothing to learn: labels are drawn
    labels = np.concatenate([np.arange(60) % 3] * 2)
    both = np.concatenate([given, given + 0.01 * rng.standard_normal(given.shape).astype(np.float32)])
    view = view_of(both)
    mask = np.arange(120) < 60
    trained_on, left_out = (
        fit_on([view], labels, mask, 3, Recipe(checkpoints=(50,)), seed=0, copies=copies).held_out.estimate()
        for copies in (False, True)
    )
    assert trained_on.accuracy > 0.8  # what the mask is for
    assert left_out.low < 1 / 3 < left_out.high


def test_batches_of_some_classes_are_no_evidence_for_all():
    y = np.concatenate([np.arange(3), np.zeros(6, np.int64)])
    given = np.arange(9) < 3
    assert (split_samples(y, given, 3, Recipe(), seed=0).folds == -1).all()
    y = np.concatenate([np.arange(3), np.arange(6) % 3])
    np.testing.assert_array_equal(split_samples(y, given, 3, Recipe(), seed=0).folds >= 0, ~given)


def one_of_each(described, n_classes=8):
    """Shares of a fit on one sample a class, which lies near the unit vector of its class."""
    rng, y = np.random.default_rng(0), np.arange(n_classes)
    x = (np.eye(n_classes, 20) + 0.1 * rng.standard_normal((n_classes, 20))).astype(np.float32)
    view = view_of(x, described.astype(np.float32))
    fitted = fit_on([view], y, np.ones(n_classes, bool), n_classes, FAST, seed=0)
    return {share.kind for share in fitted.shares if share.weight}, fitted


def test_descriptions_that_speak_against_the_only_samples_are_left_out():
    true = np.eye(8, 20)
    assert one_of_each(true)[0] == {"calibrator", "similarity"}
    kinds, fitted = one_of_each(np.roll(true, 1, axis=0))  # each class is called like another
    assert "similarity" not in kinds
    (closed,) = fitted.discriminants  # as if there were no descriptions
    states = [state.logits(closed.prepared.queries) for state in closed.states.values()]
    assert all((logits.argmax(axis=1) == np.arange(8)).all() for logits in states)
