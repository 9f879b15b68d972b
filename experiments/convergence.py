"""The paper's convergence analysis, looked at on real texts, and its first theorem checked.

    python -m experiments convergence --data DIR --output results

Nothing here reports an accuracy, and its texts of HWU64 serve nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from adamab.demo.story import check_matplotlib
from adamab.engines import Engine
from adamab.providers.embedders.base import Embedder
from experiments.convergence_descent import (
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
from experiments.theory import logistic_checks

SETS = tuple(RESERVED)
SEEDS = 5
RATES = {"default": 0.1, "paper": 0.7}  # below one over the curvature met on the way, see the page


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
    setting: Setting | None = None,
    texts: int = TEXTS,
    jobs: int = 2,
    embedder: Embedder | None = None,
    command: str = "python -m experiments convergence",
) -> list[Path]:
    """Run every descent, check the first theorem, write page, JSON and figures; where they are.

    Every set is looked at with the product's calibrator, and the first once more with the paper's. `data`
    may be None where only `demo` is asked for. `jobs` 0 runs everything in this process.
    """
    check_matplotlib()
    names = tuple(dict.fromkeys(sets or SETS))
    populations = {name: population_of(name, data, embedder=embedder, texts=texts) for name in names}
    kinds = [*((name, "default") for name in names), (names[0], "paper")]
    setting = setting or Setting()
    problems = [Problem(n, replace(setting, calibrator=kind, rate=RATES[kind])) for n, kind in kinds]
    todo = [Job(p, policy, seed) for p in problems for policy in POLICIES for seed in range(seeds or SEEDS)]
    traces: dict[Job, Trace] = {}
    with Engine(jobs=jobs).workers(_descend, populations) as map_items:
        for number, (job, trace) in enumerate(map_items(todo), 1):
            traces[job] = trace
            done = f"{number}/{len(todo)} {job.problem.name} {job.policy} {job.seed}"
            print(done, file=sys.stderr, flush=True)
    summaries = [
        summarise(p, populations[p.set], [traces[job] for job in todo if job.problem == p]) for p in problems
    ]
    return write_report(summaries, logistic_checks(), output, command=command)


def _descend(job: Job, populations: dict[str, Population]) -> Trace:
    return descend(populations[job.problem.set], job.policy, seed=job.seed, setting=job.problem.setting)
