"""Scores of a round, packed: nothing that explains a choice is lost, and little room is taken."""

from __future__ import annotations

import json

import numpy as np
import pytest

from adamab.method.policies import Choice
from adamab.run.class_scores import MOST, ClassScore, ClassScores

FEW = [ClassScore(3, 2.0, 1.5, True), ClassScore(0), ClassScore(7, 2.0, 1.0, False), ClassScore(2)]


def chosen_of(n_classes: int, seed: int = 0) -> tuple[np.ndarray, Choice]:
    rng = np.random.default_rng(seed)
    counts = 2 + rng.poisson(8, n_classes)
    bonus = 3000 / np.sqrt(20.0 * counts)
    score = bonus - rng.random(n_classes)
    return counts, Choice(int(score.argmax()), bonus, score, rng.random(n_classes) < 0.1)


def test_scores_come_back():
    scores = ClassScores.of(FEW)
    assert list(scores) == FEW
    assert (len(scores), scores[2], scores[-1], scores[1:3]) == (4, FEW[2], FEW[3], tuple(FEW[1:3]))
    again = ClassScores.from_json(json.loads(json.dumps(scores.to_json())))
    assert again == scores == ClassScores.of(scores)
    assert hash(again) == hash(scores)
    assert scores != ClassScores.of(FEW[:3])
    assert list(ClassScores.of([])) == []


def test_the_form_of_earlier_journals_is_read():
    then = [vars(score) for score in FEW]
    assert ClassScores.from_json(then) == ClassScores.of(FEW)


def test_a_small_shift_is_not_lost_in_a_large_bonus():
    (found,) = ClassScores.of([ClassScore(1, 3000.0, 3000.0 - 1.25e-4, True)])
    assert found.bonus - found.score == pytest.approx(1.25e-4, rel=1e-6)
    assert found.score == pytest.approx(3000.0)


def test_the_best_are_kept_in_order_and_the_chosen_one_with_them():
    counts, choice = chosen_of(200)
    worst = Choice(int(choice.score.argmin()), choice.bonus, choice.score, choice.exact)  # others are closed
    scores = ClassScores.of_choice(counts, worst, all_scores=False)
    known = {place for place, score in enumerate(scores) if score.score is not None}
    assert known == {*np.argsort(-choice.score)[:MOST].tolist(), worst.arm}
    assert [score.count for score in scores] == counts.tolist()
    ranked = sorted(known, key=lambda place: -scores[place].score)
    assert ranked == sorted(known, key=lambda place: -choice.score[place])
    assert all(scores[place].exact == bool(choice.exact[place]) for place in known)


def test_all_are_kept_on_demand_and_where_they_are_few():
    for n_classes, all_scores in ((200, True), (MOST, False)):
        counts, choice = chosen_of(n_classes)
        scores = ClassScores.of_choice(counts, choice, all_scores=all_scores)
        assert all(score.score is not None for score in scores)
        np.testing.assert_allclose([score.score for score in scores], choice.score, rtol=1e-6)
        np.testing.assert_allclose([score.bonus for score in scores], choice.bonus, rtol=1e-6)


def test_a_policy_without_scores_and_a_class_without_samples():
    counts, choice = chosen_of(3)
    assert list(ClassScores.of_choice(counts, None, all_scores=True)) == [ClassScore(int(n)) for n in counts]
    counts[1], choice.score[1], choice.bonus[1] = 0, np.nan, np.nan
    assert ClassScores.of_choice(counts, choice, all_scores=True)[1] == ClassScore(0)


def test_a_thousand_classes_take_little_room():
    counts, choice = chosen_of(1000)
    packed = ClassScores.of_choice(counts, choice, all_scores=False)
    assert len(packed.to_json()) < 1500
    assert len(ClassScores.of_choice(counts, choice, all_scores=True).to_json()) < 12_000
    grown = ClassScores.of_choice(counts * 20, choice, all_scores=False)
    assert len(grown.to_json()) < 2 * len(packed.to_json())


@pytest.mark.parametrize("damage", ["", "AAAA", "no base64!", "x" * 40])
def test_damage_is_told(damage):
    with pytest.raises(ValueError, match="damaged"):
        ClassScores.from_json(damage)


def test_a_shortened_text_is_told():
    whole = ClassScores.of(FEW).to_json()
    with pytest.raises(ValueError, match="damaged"):
        ClassScores.from_json(whole[: len(whole) // 8 * 4])
