"""`adamab sweep`: a search for a better recipe by cross-validation on a task's given samples.

What is minimised is the mean loss of held-out samples, minus the logarithm of the true class's probability.
Accuracy would be too coarse: of sixty samples one more hit is 1.7 points, most recipes tie, and a sampler
that sees ties learns nothing. The loss moves with every sample. But it can fall while accuracy falls too, so
accuracy has a say before anything is recommended.

The best of many trials flatters. So the winner meets the first recipe again, on folds and with seeds that the
search did not use. The samples are the same, though, and part of the winner's luck may lie in them; so the
p-value of that examination is multiplied by the number of recipes that were tried (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from adamab.errors import RecipeError, StoppedError, TaskError
from adamab.study.engines import Engine
from adamab.study.row_file import RowFile
from adamab.study.statistics import Bootstrap, Interval, paired_p
from adamab.study.sweep_bench import Bench, OnCell, Options
from adamab.study.sweep_cells import FoldRow, SweepMaterials, score
from adamab.study.sweep_directory import SweepInputs, taken_up
from adamab.study.sweep_space import Choices, Space
from adamab.study.sweep_trials import BATCH, SamplerName, Trials
from adamab.task.messages import place, short, suggestion

REPEATS = 5  # cross-validations of the examination, each with folds of its own
LEVEL = 0.05
ROWS, JOURNAL = "rows.jsonl", "optuna.jsonl"


@dataclass(frozen=True)
class Trial:
    """A recipe that was tried, and how it did on held-out samples."""

    number: int
    options: Options  # what differs from trial 0
    loss: float
    accuracy: float


@dataclass(frozen=True)
class Examination:
    """The winner against trial 0: what it gains, sample by sample."""

    loss: Interval  # that of trial 0 minus the winner's
    accuracy: Interval  # the winner's minus that of trial 0
    p: float  # of no difference in loss, for the number of recipes tried


@dataclass(frozen=True)
class Outcome:
    """All trials, the best of them, and whether it is worth a change."""

    trials: tuple[Trial, ...]
    n_held_out: int  # samples
    best: Trial
    searched: Examination | None  # on the folds of the search, where it flatters; None if trial 0 is best
    examined: Examination | None  # on other folds

    @property
    def recommended(self) -> bool:
        """The loss is told apart from that of trial 0, and accuracy does not pay for it."""
        found = self.examined
        return found is not None and found.loss.low > 0 and found.p < LEVEL and found.accuracy.mean >= -1e-12


@dataclass(frozen=True)
class Search:
    """What is searched and how."""

    space: Space
    trials: int = 30
    seed: int = 0
    sampler: SamplerName = "tpe"


class Sweep:
    """A search in a directory; started again there, it goes on where it was."""

    def __init__(self, materials: SweepMaterials, search: Search, directory: Path) -> None:
        self.materials, self.search, self.directory = materials, search, directory
        if not materials.used_folds(search.seed):
            raise TaskError("no class has two examples, so none can be held out; give two or more a class")
        _check_views(search.space, materials.vectors.views)
        self._fresh_seeds = [search.seed + 1 + number for number in range(REPEATS)]

    @property
    def n_search(self) -> int:
        """Fits of the search; a recipe that comes twice is fitted once."""
        return self.search.trials * len(self.materials.used_folds(self.search.seed))

    @property
    def n_examination(self) -> int:
        """Fits of the examination, if there is one."""
        return 2 * sum(len(self.materials.used_folds(seed)) for seed in self._fresh_seeds)

    def run(
        self,
        *,
        engine: Engine | None = None,
        on_cell: OnCell = lambda *_: None,
        prepare: Callable[[], None] = lambda: None,
    ) -> Outcome:
        """Measure what is missing, then judge.

        `prepare` is called before the first fit, when the directory is known to be that of this sweep.
        """
        search = self.search
        inputs = SweepInputs.of(self.materials, search.space, search.seed, search.sampler)
        with taken_up(self.directory, inputs):
            rows = RowFile(self.directory / ROWS, FoldRow.from_json, "--output")
            try:
                prepare()
                with (engine or Engine()).crew(score, self.materials) as crew:
                    bench = Bench(self.materials, rows, crew, on_cell)
                    return self._outcome(self._searched(bench), bench)
            except (KeyboardInterrupt, StoppedError):
                kept = f"{len(rows.known)} fits are done and kept in {place(rows.path)}"
                raise StoppedError(f"stopped; {kept}: run the same command again to go on") from None

    def _searched(self, bench: Bench) -> list[Trial]:
        search, found = self.search, list[Trial]()
        journal, recipe = self.directory / JOURNAL, self.materials.recipe
        trials = Trials(journal, search.space, recipe, sampler=search.sampler, seed=search.seed)
        for start, end in _batches(search.trials):
            asked = trials.batch(start, end)
            bench.measure([(options, search.seed) for options in asked], self.n_search, "searching")
            for number, options in enumerate(asked, start):
                found.append(self._judged(number, options, bench))
                if number >= len(trials):
                    trials.add(options, found[-1].loss)
        return found

    def _judged(self, number: int, options: Options, bench: Bench) -> Trial:
        losses, hits = bench.by_sample(options, self.search.seed)
        return Trial(number, options, round(float(losses.mean()), 6), round(float(hits.mean()), 6))

    def _outcome(self, trials: Sequence[Trial], bench: Bench) -> Outcome:
        best = min(trials, key=lambda trial: (trial.loss, trial.number))
        n = len(bench.by_sample({}, self.search.seed)[0])
        if not best.options:
            return Outcome(tuple(trials), n, best, None, None)
        both = [(options, seed) for seed in self._fresh_seeds for options in ({}, best.options)]
        bench.measure(both, self.n_examination, "examining")
        tried = len({str(sorted(trial.options.items())) for trial in trials if trial.options})
        searched = _examined(best.options, [self.search.seed], tried, bench)
        return Outcome(
            tuple(trials), n, best, searched, _examined(best.options, self._fresh_seeds, tried, bench)
        )


def _check_views(space: Space, known: Sequence[str]) -> None:
    """Now, and not when the sampler comes to a view that the embedder lacks."""
    part = space.get("views")
    for views in part.values if isinstance(part, Choices) else ():
        for view in views or ():
            if view not in known:
                raise RecipeError(
                    f"--search views: the embedder has no {short(view)}; {suggestion(view, known)}"
                )


def _batches(n_trials: int) -> Iterator[tuple[int, int]]:
    """Trial 0 alone, so that every proposal can learn from it, then batches; the last may be shorter."""
    yield 0, 1
    for start in range(1, n_trials, BATCH):
        yield start, min(start + BATCH, n_trials)


def _examined(options: Options, seeds: Sequence[int], tried: int, bench: Bench) -> Examination:
    """Differences on the same samples and folds, a row a seed."""
    pairs = [(bench.by_sample(options, seed), bench.by_sample({}, seed)) for seed in seeds]
    losses = np.stack([first[0] - ours[0] for ours, first in pairs])  # (seeds, n)
    hits = np.stack([ours[1] - first[1] for ours, first in pairs])
    bootstrap = Bootstrap(*losses.shape)
    return Examination(bootstrap(losses), bootstrap(hits), min(1.0, tried * paired_p(losses)))
