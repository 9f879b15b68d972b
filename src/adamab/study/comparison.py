"""Several methods on one task: fitted on the same samples, judged on the same test samples.

Training sees the task and what a generator writes for it. Test samples are embedded beforehand, so that
one without a vector is told before anything is fitted, and looked at once a method is finished.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adamab.errors import AdamabError, StoppedError, TaskError
from adamab.run.holdout import Holdout
from adamab.study.comparison_bench import Bench, Row, Setup
from adamab.study.comparison_methods import Method, reference_of
from adamab.study.evaluation import Figure
from adamab.task.spec import Sample, Task

DRAWS = 2000


@dataclass(frozen=True)
class Comparison:
    """The table and what has to be said about it."""

    task: str
    modality: str
    classes: int
    given: int
    n_test: int
    left_out: int  # test samples that are also given
    overlong: int
    reference: str | None
    rows: tuple[Row, ...]
    failed: Mapping[str, str]  # method -> why there is no row of it
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {**vars(self), "rows": [row.to_json() for row in self.rows], "notes": list(self.notes)}


def compare(
    setup: Setup,
    methods: Sequence[Method],
    *,
    against: str | None = None,
    on_method: Callable[[Method], None] = lambda method: None,
) -> Comparison:
    """Fit and judge every method; one that cannot be fitted is named with the reason.

    Raises the error of the first where none can be fitted.
    """
    reference = reference_of(methods, against)
    test = unseen(setup.task, setup.test)
    bench = Bench(replace(setup, test=test), Holdout(sample.text for sample in setup.test))
    rows: list[Row] = []
    failed: dict[str, AdamabError] = {}
    for method in methods:
        on_method(method)
        try:
            rows.append(bench.row(method))
        except StoppedError:
            raise
        except AdamabError as error:
            failed[str(method)] = error
    if not rows:
        raise next(iter(failed.values()))
    return Comparison(
        task=setup.task.name,
        modality=setup.task.modality,
        classes=len(setup.task.classes),
        given=len(setup.task.samples),
        n_test=len(test),
        left_out=len(setup.test) - len(test),
        overlong=bench.overlong,
        reference=reference if reference in {row.method for row in rows} else None,
        rows=tuple(_with_differences(rows, reference)),
        failed={name: str(error) for name, error in failed.items()},
        notes=(*bench.notes, *bench.same_samples()),
    )


def unseen(task: Task, test: Sequence[Sample]) -> list[Sample]:
    """The test samples that are no given samples, nor contain one or stand in one."""
    given = Holdout(sample.text for sample in task.samples)
    held = Holdout(sample.text for sample in test)
    suspects = [sample.text for sample in task.samples if sample.text in held]
    kept = [
        sample
        for sample in test
        if sample.text not in given and not any(text in Holdout([sample.text]) for text in suspects)
    ]
    if not kept:
        raise TaskError(
            "every test sample is also a given one, so there is nothing to compare on; add others"
        )
    return kept


def paired_difference(ours: NDArray[np.bool_], theirs: NDArray[np.bool_], *, draws: int = DRAWS) -> Figure:
    """Accuracy of one minus that of the other, with the interval of a bootstrap over the samples.

    A sample is won, lost or neither; drawing samples anew is drawing these three counts.
    """
    won, lost, n = int((ours & ~theirs).sum()), int((theirs & ~ours).sum()), len(ours)
    counts = np.array([won, lost, n - won - lost])
    drawn = np.random.default_rng(0).multinomial(n, counts / n, draws)
    low, high = np.quantile((drawn[:, 0] - drawn[:, 1]) / n, [0.025, 0.975])
    return Figure((won - lost) / n, float(low), float(high))


def _with_differences(rows: Sequence[Row], reference: str | None) -> Iterator[Row]:
    theirs = next((row.correct for row in rows if row.method == reference), None)
    for row in rows:
        if theirs is None or row.method == reference:
            yield row
        else:
            yield replace(row, difference=paired_difference(row.correct, theirs))
