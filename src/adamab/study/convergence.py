"""The paper's convergence analysis, looked at on real texts, and its first theorem checked.

    python -m adamab.study.convergence --data DIR --output results

Nothing here reports an accuracy, and its texts of HWU64 serve nothing else.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from adamab.errors import AdamabError
from adamab.providers.embedders.base import Embedder
from adamab.study.convergence_bound import STEPS, logistic_checks
from adamab.study.convergence_descent import POLICIES, Population, Setting, Trace, descend
from adamab.study.convergence_population import DEMO, NAMES, RESERVED, TEXTS, population_of
from adamab.study.convergence_report import write_report
from adamab.study.convergence_summary import Problem, summarise
from adamab.study.figures import check_matplotlib
from adamab.study.processes import end_with_parent

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
    command: str | None = None,
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
    found: dict[Job, Trace] = {}
    for number, (job, trace) in enumerate(_descents(todo, populations, jobs), 1):
        found[job] = trace
        print(f"{number}/{len(todo)} {job.problem.name} {job.policy} {job.seed}", file=sys.stderr, flush=True)
    summaries = [
        summarise(p, populations[p.set], [found[job] for job in todo if job.problem == p]) for p in problems
    ]
    checks = logistic_checks(steps=200 if quick else STEPS)
    written = command or _command(names, seeds, rounds, quick=quick)
    return write_report(summaries, checks, output, command=written)


def _problems(names: Sequence[str], rounds: int, *, quick: bool) -> list[Problem]:
    """Every set with the product's calibrator, and the first once more with the paper's."""
    marks = QUICK.marks if quick else Setting.marks
    kinds = [(name, "default") for name in names] + ([] if quick else [(names[0], "paper")])
    return [
        Problem(name, Setting(calibrator=kind, rate=RATES[kind], rounds=rounds, marks=marks))
        for name, kind in kinds
    ]


_populations: dict[str, Population] = {}  # of a worker process


def _descents(
    todo: Sequence[Job], populations: dict[str, Population], jobs: int
) -> Iterator[tuple[Job, Trace]]:
    """Each descent as it ends, in no particular order."""
    if jobs == 0:
        for job in todo:
            yield job, _descend(job, populations[job.problem.set])
        return
    # One thread each: small matrices gain nothing from more.
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), _start_worker, (populations,))
    try:
        waiting = {pool.submit(_run_in_worker, job): job for job in todo}
        for done in as_completed(waiting):
            yield waiting[done], done.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _descend(job: Job, population: Population) -> Trace:
    return descend(population, job.policy, seed=job.seed, setting=job.problem.setting)


def _start_worker(populations: dict[str, Population]) -> None:
    import torch
    from threadpoolctl import threadpool_limits

    end_with_parent()
    torch.set_num_threads(1)
    threadpool_limits(1)
    _populations.update(populations)


def _run_in_worker(job: Job) -> Trace:
    return _descend(job, _populations[job.problem.set])


def _command(sets: Sequence[str], seeds: int, rounds: int, *, quick: bool) -> str:
    what = f"--sets {','.join(sets)} --seeds {seeds} --rounds {rounds}" + (" --quick" if quick else "")
    return f"python -m adamab.study.convergence {what}"


def main(arguments: list[str] | None = None) -> None:
    """Run and say where the results are."""
    options = _parser().parse_args(arguments)
    sets = None if options.sets is None else [name.strip() for name in options.sets.split(",")]
    try:
        written = run(
            options.data,
            options.output,
            sets=sets,
            seeds=options.seeds,
            rounds=options.rounds,
            quick=options.quick,
            jobs=options.jobs,
        )
    except AdamabError as error:
        sys.exit(f"error: {error}")
    for path in written:
        print(path)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m adamab.study.convergence", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--data", type=Path, help="folder of data sets; ADAMAB_DATA or ../shared/data")
    parser.add_argument("--output", type=Path, default=Path("results"), help="where results are written")
    parser.add_argument("--sets", help=f"populations, with commas between them: {','.join(NAMES)}")
    parser.add_argument("--seeds", type=int, choices=range(2, 101), metavar="N", help=f"{SEEDS}")
    parser.add_argument("--rounds", type=int, choices=range(2, 10_001), metavar="N", help=f"{ROUNDS}")
    parser.add_argument("--jobs", type=int, default=2, choices=range(65), metavar="N", help="processes")
    parser.add_argument("--quick", action="store_true", help="a look in seconds, at the built-in set")
    return parser


if __name__ == "__main__":
    main()
