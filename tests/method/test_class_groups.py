"""Sums within classes against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from adamab.method import gradient_shift as class_groups
from adamab.method.gradient_shift import ClassGroups

COUNTS = {
    "balanced": [4, 4, 4],
    "one sample": [1, 1, 1, 1],
    "unbalanced": [1, 60, 2, 0, 2, 33],
    "alone": [0, 5],
}


def problem(counts: list[int]) -> tuple[torch.Tensor, torch.Tensor, ClassGroups]:
    y = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    y = y[torch.randperm(len(y), generator=torch.Generator().manual_seed(1))]
    weight = torch.rand(len(y), dtype=torch.float64, generator=torch.Generator().manual_seed(2)) + 0.1
    return y, weight, ClassGroups(y, weight, len(counts))


@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
@pytest.mark.parametrize("block", [1, 50, 4_000_000])
def test_sums_are_those_of_the_definition(
    counts: list[int], block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_groups, "BLOCK_NUMBERS", block)
    y, weight, groups = problem(counts)
    generator = torch.Generator().manual_seed(3)
    a, b, c, d = (torch.randn(len(y), w, dtype=torch.float64, generator=generator) for w in (7, 3, 20, 30))
    values = torch.randn(len(y), dtype=torch.float64, generator=generator)
    ordered = [x[groups.order] for x in (a, b, c, d)]
    means = groups.mean(values[groups.order])
    norms = groups.outer_norms([(ordered[0], ordered[1]), (ordered[2], ordered[3])])
    present = [k for k, count in enumerate(counts) if count]
    outer = groups.mean_outer(ordered[0].__getitem__, ordered[1], np.array(present[::-1]))
    assert groups.present.tolist() == [count > 0 for count in counts]
    assert groups.n_present == len(present)
    for k in range(len(counts)):
        if k not in present:
            assert means[k] == 0
            assert norms[k] == 0
            continue
        m = y == k
        w = weight[m] / weight[m].sum()
        first, second = (w[:, None] * a[m]).T @ b[m], (w[:, None] * c[m]).T @ d[m]
        torch.testing.assert_close(groups.totals[k], weight[m].sum())
        torch.testing.assert_close(means[k], (w * values[m]).sum())
        torch.testing.assert_close(norms[k], first.square().sum() + second.square().sum())
        torch.testing.assert_close(outer[present[::-1].index(k)], first)


def test_order_puts_a_class_side_by_side() -> None:
    y, weight, groups = problem(COUNTS["unbalanced"])
    assert sorted(groups.order.tolist()) == list(range(len(y)))
    assert torch.equal(groups.class_index, y[groups.order])
    assert torch.equal(groups.weight, weight[groups.order])
    assert len(torch.unique_consecutive(groups.class_index)) == groups.n_present
    assert torch.unique_consecutive(groups.class_index).tolist() == [0, 2, 4, 5, 1]


def test_no_class_asked_for() -> None:
    _, _, groups = problem([2, 3])
    nothing = np.array([], dtype=np.intp)
    assert groups.mean_outer(torch.ones(5, 2).__getitem__, torch.ones(5, 3), nothing).shape == (0, 2, 3)


@pytest.mark.parametrize("most", [1, 4, 7, 1000])
def test_spans_hold_whole_classes_and_give_the_same_sums(most: int) -> None:
    y, _, groups = problem(COUNTS["unbalanced"])
    spans = list(groups.spans(most))
    assert [row for span in spans for row in range(span.start, span.stop)] == list(range(len(y)))
    of_spans = [set(groups.class_index[span].tolist()) for span in spans]
    assert sum(map(len, of_spans)) == groups.n_present
    assert all(
        span.stop - span.start <= most or len(classes) == 1
        for span, classes in zip(spans, of_spans, strict=True)
    )
    a, b = torch.randn(len(y), 4, dtype=torch.float64), torch.randn(len(y), 3, dtype=torch.float64)
    parts = [groups.outer_norms([(a[span], b[span])], span) for span in spans]
    torch.testing.assert_close(torch.stack(parts).sum(0), groups.outer_norms([(a, b)]))
