"""The paper's convergence analysis, looked at on real texts, and its first theorem checked.

    python -m experiments convergence --data DIR --output results

Nothing here reports an accuracy, and its texts of HWU64 serve nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from adamab.demo.report import check_matplotlib
from adamab.engines import Engine
from adamab.providers.embedders.base import Embedder
from experiments.convergence_descent import (
    DEMO,
    POLICIES,
    RESERVED,
    TEXTS,
    Population,
    Problem,
    Setting,
    Trace,
    descend,
    population_of,
    summarise,
)
from experiments.convergence_report import write_report
from experiments.theory import STEPS, logistic_checks

SETS = tuple(RESERVED)
SEEDS, ROUNDS = 5, 120
RATES = {"default": 0.1, "paper": 0.7}  # below one over the curvature met on the way, see the page
QUICK = Setting(rounds=6, marks=2)


@dataclass(frozen=True)
class Job:
    """One descent."""

    problem: Problem
    policy: str
    seed: int


def run(
    data: Path | None,
    output: Path,
    *,
    sets: Sequence[str] | None = None,
    seeds: int | None = None,
    rounds: int | None = None,
    quick: bool = False,
    jobs: int = 2,
    embedder: Embedder | None = None,
    command: str = "python -m experiments convergence",
) -> list[Path]:
    """Run every descent, check the first theorem, write page, JSON and figures; where they are.

    `quick` is for a look in seconds: the built-in set, two seeds, six rounds. `data` may be None where
    only `demo` is asked for. `jobs` 0 runs everything in this process.
    """
    check_matplotlib()
    names = tuple(dict.fromkeys(sets or ((DEMO,) if quick else SETS)))
    seeds = seeds or (2 if quick else SEEDS)
    rounds = rounds or (QUICK.rounds if quick else ROUNDS)
    texts = TEXTS // 4 if quick else TEXTS
    populations = {name: population_of(name, data, embedder=embedder, texts=texts) for name in names}
    problems = _problems(names, rounds, quick=quick)
    todo = [Job(p, policy, seed) for p in problems for policy in POLICIES for seed in range(seeds)]
    traces: dict[Job, Trace] = {}
    with Engine(jobs=jobs).workers(_descend, populations) as map_items:
        for number, (job, trace) in enumerate(map_items(todo), 1):
            traces[job] = trace
            done = f"{number}/{len(todo)} {job.problem.name} {job.policy} {job.seed}"
            print(done, file=sys.stderr, flush=True)
    summaries = [
        summarise(p, populations[p.set], [traces[job] for job in todo if job.problem == p]) for p in problems
    ]
    checks = logistic_checks(steps=200 if quick else STEPS)
    return write_report(summaries, checks, output, command=command)


def _problems(names: Sequence[str], rounds: int, *, quick: bool) -> list[Problem]:
    """Every set with the product's calibrator, and the first once more with the paper's."""
    marks = QUICK.marks if quick else Setting.marks
    kinds = [(name, "default") for name in names] + ([] if quick else [(names[0], "paper")])
    return [
        Problem(name, Setting(calibrator=kind, rate=RATES[kind], rounds=rounds, marks=marks))
        for name, kind in kinds
    ]


def _descend(job: Job, populations: dict[str, Population]) -> Trace:
    return descend(populations[job.problem.set], job.policy, seed=job.seed, setting=job.problem.setting)
