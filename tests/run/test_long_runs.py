"""What a run of many rounds needs: counted, not timed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from adamab.providers.embedders.base import Embedded
from adamab.providers.generators.base import Batch
from adamab.providers.generators.noise import NoiseGenerator
from adamab.run._intake import PendingSamples, SampleSource
from adamab.run.gate import Gate
from adamab.run.prefetch import FetchedBatch
from adamab.run.run_log import Journal
from adamab.serving.run_reader import RunReader
from adamab.task.recipe import Recipe

VECTORS = Recipe(views=("pooled",), words=False, checkpoints=(0, 2), folds=2, batch=2)


def test_events_come_in_blocks_without_a_gap(tmp_path, monkeypatch):
    monkeypatch.setattr("adamab.run.run_log._AT_ONCE", 4)
    with Journal(tmp_path, writing=True) as journal:
        for n in range(12):
            journal.note("round" if n % 2 else "choice", {"n": n})
        assert [e.data["n"] for e in journal.events()] == list(range(12))
        assert [e.data["n"] for e in journal.events("round", most=5)] == [1, 3, 5, 7, 9]
        assert [e.data["n"] for e in journal.events("round", after=4, most=-1)] == [5, 7, 9, 11]
        assert [e.data["n"] for e in journal.events(most=8)] == list(range(8))
        assert list(journal.events(most=0)) == []


def rows_read(monkeypatch):
    """Counts the rows that are read from journals, by table."""
    counts = {"events": 0, "batches": 0, "replies": 0}
    whole = Journal.rows

    def counting(file, table, *arguments):
        for row in whole(file, table, *arguments):
            counts[table] += 1
            yield row

    monkeypatch.setattr(Journal, "rows", counting)
    return counts


@pytest.mark.parametrize("rounds", [10, 20, 40])
def test_taking_a_run_of_vectors_up_reads_each_batch_a_few_times(runs, monkeypatch, rounds):
    recipe = VECTORS.with_options(augmentation_rounds=rounds)
    vectors = replace(runs, recipe=recipe)
    order = vectors.order(generator=NoiseGenerator(seed=0), policy="round-robin")

    def every_fifth(session):
        session.checkpoint_rounds = 5

    vectors.fit_until(rounds - 1, order, on_start=every_fifth)
    counts = rows_read(monkeypatch)
    vectors.fit(vectors.order(generator=NoiseGenerator(seed=0), policy="round-robin"))
    assert counts["batches"] <= 3 * rounds  # once for the samples, once for the classes' positions
    assert counts["events"] <= 3 * rounds + 20  # a choice and an outcome a round


def test_a_reader_reads_each_event_once(runs, monkeypatch):
    runs.fit()
    events = len(runs.events())
    counts = rows_read(monkeypatch)
    with RunReader(runs.path) as reader:
        for _ in range(5):
            assert reader.rounds()
            assert reader.samples()
            assert reader.segments()
            assert reader.started()
    assert counts["events"] <= events


def test_vectors_of_texts_that_cannot_enter_are_let_go():
    texts = ("a", "b", "c")
    views = {"pooled": np.eye(3, dtype=np.float32)}
    shelf = PendingSamples()
    shelf.put(FetchedBatch(Batch(texts), Embedded(views, np.array([True, False, True]))))
    shelf.forget(["a", "b", "not there"])
    assert set(shelf.known) == shelf.overlong == {"c"}


def test_a_shelf_that_is_put_back_is_the_same_however_it_is_filled():
    rng = np.random.default_rng(0)
    batches = [Batch((), rng.standard_normal((2, 3)).astype(np.float32), closed="dry") for _ in range(4)]
    at_once, one_by_one = PendingSamples.of(batches), PendingSamples()
    for batch in batches:
        one_by_one.put(FetchedBatch(batch))
    at_once.drop(7)
    one_by_one.drop(7)
    np.testing.assert_array_equal(at_once.vectors, one_by_one.vectors)
    assert at_once.vectors.base is None  # the rest is not kept in memory
    assert at_once.batches == one_by_one.batches == 4
    assert PendingSamples.of([Batch(("a", "b")), Batch(("c",))]).texts == ["a", "b", "c"]


def test_nothing_is_kept_of_texts_that_were_turned_away(runs, monkeypatch):
    judge, fill, sources = Gate.texts, SampleSource.fill, []

    def strict(gate, batch, present, *, given=()):
        passed, rejected = judge(gate, batch, present, given=given)
        return passed[1:], [*rejected, *((text, "refusal") for text in passed[:1])]

    def seen(source, *arguments, **options):
        sources.append(source)
        return fill(source, *arguments, **options)

    monkeypatch.setattr(Gate, "texts", strict)
    monkeypatch.setattr(SampleSource, "fill", seen)
    summary = replace(runs, local=False).fit()
    assert any(reasons.get("refusal") for reasons in summary["rejected"].values())
    for shelf in sources[-1].shelves.values():
        assert set(shelf.known) <= set(shelf.texts)
