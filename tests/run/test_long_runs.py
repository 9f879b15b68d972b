"""What a run of many rounds needs: counted, not timed."""

from dataclasses import replace

import numpy as np
import pytest

from adamab.providers.generators.variations import NoiseGenerator
from adamab.run.run_log import Journal
from adamab.run.samples import GrowingRows
from adamab.task.recipe import Recipe

VECTORS = Recipe(views=("pooled",), words=False, batch=2)


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


def test_what_was_handed_out_and_what_was_handed_in_stays():
    first = np.arange(3)
    growing = GrowingRows(first)
    seen = growing.add(np.array([7]))
    assert growing.add(np.array([8, 9])).tolist() == [0, 1, 2, 7, 8, 9]
    assert (first.tolist(), seen.tolist()) == ([0, 1, 2], [0, 1, 2, 7])
