"""A run that is stopped anywhere and resumed ends as one that was never stopped."""

import threading
from dataclasses import replace

import numpy as np
import pytest

from adamab.errors import ApiError
from adamab.providers.generators.base import Batch, Generator
from adamab.providers.generators.variations import NoiseGenerator
from adamab.providers.metering import Budget
from adamab.run.gate import Gate
from adamab.run.run_log import Journal
from adamab.testing import Fault


def every(rounds):
    """What `on_start` does to have a checkpoint after so many rounds."""

    def set_rounds(session):
        session.checkpoint_rounds = rounds

    return set_rounds


def reference(runs, tmp_path, order=None, **options):
    """What an uninterrupted run leaves, and the requests that it sent."""
    path = tmp_path / "reference"
    runs.fit(order, path, **options)
    asked = runs.asked()
    return runs.left(path), asked


@pytest.mark.parametrize("policy", ["adamab", "random"])
@pytest.mark.parametrize("checkpoints", [2, 1000])
def test_a_run_that_dies_in_every_round_ends_the_same(both, tmp_path, policy, checkpoints):
    order = both.order(policy=policy)
    expected, asked = reference(both, tmp_path, order)
    for round_ in range(1, len(expected["rounds"])):
        both.fit_until(round_, both.order(policy=policy), on_start=every(checkpoints))
    both.fit(both.order(policy=policy), on_start=every(checkpoints))
    assert both.left() == expected
    assert sorted(both.asked()[len(asked) :]) == sorted(asked)  # each question once


@pytest.mark.parametrize("prefetch", [0, 3])
def test_paid_vectors_are_not_bought_again_either(both, tmp_path, prefetch):
    runs = replace(both, local=False)
    expected, asked = reference(runs, tmp_path, runs.order(prefetch=0))
    for round_ in (2, 3, 5):
        runs.fit_until(round_, runs.order(prefetch=prefetch), on_start=every(3))
    runs.fit(runs.order(prefetch=prefetch), on_start=every(3))
    assert runs.left() == expected
    again = runs.asked()[len(asked) :]
    assert len(set(again)) == len(again)
    assert set(asked) <= set(again)
    assert len(again) - len(asked) <= 2 * prefetch * 4  # what ran ahead when it died


def test_classes_without_any_sample_are_seeded_as_then(both, tmp_path):
    nothing = {name: [] for name in ("refund", "praise", "outage")}
    expected, _ = reference(both, tmp_path, both.order(nothing))
    for round_ in (1, 2, 4):
        both.fit_until(round_, both.order(nothing), on_start=every(1))
    both.fit(both.order(nothing))
    assert both.left() == expected


@pytest.mark.parametrize("rounds", [2, 1000])
def test_vectors_of_noise_come_back(runs, tmp_path, rounds):
    recipe = runs.recipe.with_options(views=("pooled",), words=False, batch=3)
    budget = Budget(samples=16)

    def order():
        return runs.order(generator=NoiseGenerator(seed=0), recipe=recipe, budget=budget)

    expected, _ = reference(runs, tmp_path, order())
    runs.fit_until(3, order(), on_start=every(rounds))
    runs.fit_until(5, order(), on_start=every(rounds))
    runs.fit(order())
    assert runs.left() == expected


def test_leftovers_and_refusals_stand_after_a_checkpoint(runs, server, tmp_path):
    # 'praise' is refused with texts left on the shelf: it closes once they are used up
    class Moody(type(runs.order().generator)):
        async def generate(self, request):
            texts = tuple(f"{request.spec.name} {request.number} number {i} of {i * 7919}" for i in range(5))
            return Batch(texts, refused=request.spec.name == "praise")

    def order():
        return runs.order(
            generator=Moody("m", base_url=server.url + "/v1"),
            policy="round-robin",
            recipe=runs.recipe.with_options(rounds_per_class=5, max_refusals=1, near_duplicate=None),
        )

    expected, _ = reference(runs, tmp_path, order())
    assert expected["chosen"].count("praise") == 3  # two, two and one of five
    for round_ in range(1, len(expected["rounds"]), 2):
        runs.fit_until(round_, order(), on_start=every(1))
    runs.fit(order())
    assert runs.left() == expected


def test_asks_that_were_answered_are_not_asked_again(runs, server):
    # One text is lacking in each answer, so that a batch takes several asks; the second fails.
    server.add_fault(Fault("duplicates", path="chat", times=1))
    server.add_fault(Fault("status", path="chat", status=401, times=1, after=1))
    with pytest.raises(ApiError):
        runs.fit()
    first, failed = runs.asked("chat/completions")
    with Journal(runs.path) as journal:
        assert journal.batch("refund", 0) is None
    runs.fit()
    bodies = runs.asked("chat/completions")
    assert bodies.count(first) == 1
    assert bodies[2] == failed  # it goes on with the second ask
    assert len(runs.texts()) == 12


def test_a_stop_ends_after_the_round_and_is_noted(runs, tmp_path):
    expected, asked = reference(runs, tmp_path)
    stop = threading.Event()

    def stop_after_three(record):
        if record.round == 3:
            stop.set()

    with pytest.raises(KeyboardInterrupt, match="run the same command again"):
        runs.fit(stop=stop, on_round=stop_after_three)
    assert runs.events("stopped")
    assert [e.data["record"]["round"] for e in runs.events("round")] == [1, 2, 3]
    runs.fit()
    assert runs.left() == expected
    assert sorted(runs.asked()[len(asked) :]) == sorted(asked)


def test_a_complete_run_does_nothing(runs, server):
    runs.local = False
    runs.fit()
    before, left, count = runs.events(), runs.left(), server.count()
    summary = runs.fit()
    assert summary["complete"]
    assert summary["synthetic"] == 12
    assert (runs.events(), runs.left(), server.count()) == (before, left, count)


@pytest.mark.parametrize("lost", [["fit.json"], ["model.safetensors"], ["history.jsonl", "synthetic.jsonl"]])
def test_lost_results_are_written_again_without_a_call(both, server, lost):
    runs = replace(both, local=False)
    runs.fit()
    left, count = runs.left(), server.count()
    for name in lost:
        (runs.path / name).unlink()
    assert not runs.fit()["complete"]
    assert runs.left() == left
    assert server.count() == count
    assert runs.fit()["complete"]


# Another machine's arithmetic


def test_recorded_choices_are_followed_with_one_warning(both):
    both.fit_until(4, path=both.path.with_name("mine"))
    with Journal(both.path.with_name("mine")) as journal:
        mine = [e.data["class"] for e in journal.events("choice")]
    others = {"refund": "praise", "praise": "outage", "outage": "refund"}
    elsewhere = {round_: others[name] for round_, name in enumerate(mine, 1)}

    def choose(session):
        session.resume = replace(session.resume, choices=elsewhere)
        for round_, name in elsewhere.items():
            session.journal.note("choice", {"round": round_, "class": name})

    with pytest.warns(RuntimeWarning, match="following the journal"):
        both.fit_until(4, on_start=choose)
    with pytest.warns(RuntimeWarning, match="round 1 chose .*following the journal") as caught:
        both.fit()
    assert len(caught) == 1
    assert both.left()["chosen"][:4] == list(elsewhere.values())


def test_recorded_verdicts_are_followed_with_one_warning(runs, monkeypatch):
    """The other machine's gate let only the first text of each round in."""

    def only_first(gate, candidates, present):
        return np.arange(len(candidates)) < 1

    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(Gate, "vectors", only_first)
        runs.fit_until(3)
    then = [e.data["texts"] for e in runs.events("round")]
    with pytest.warns(RuntimeWarning, match="quality gate .*following the journal") as caught:
        runs.fit()
    assert len(caught) == 1
    now = runs.texts()
    recorded = [text for texts in then for text in texts]
    assert set(recorded) < set(now)
    with Journal(runs.path) as journal:
        dropped = {
            text
            for name in ("refund", "praise", "outage")
            for batch in journal.first_batches(name, 2).values()
            for text in batch.texts
        } - set(now)
    assert dropped  # what was refused then stays out


def test_a_repeated_text_is_not_taken_for_another_verdict(runs, tmp_path):
    class Repeating(Generator):
        fingerprint = "repeating"

        async def generate(self, request):
            # one that is new and one that is given, then the same new one and another
            name, number = request.spec.name, request.number
            other = f"{name} and {number * 7919}" if number % 2 else request.given[0]
            return Batch((f"{name} {number // 2} of {number // 2 * 6007}", other))

    def order():
        return runs.order(generator=Repeating())

    expected, _ = reference(runs, tmp_path, order())
    for round_ in range(1, 6):
        runs.fit_until(round_, order())
    runs.fit(order())  # a warning would be an error
    assert runs.left() == expected
