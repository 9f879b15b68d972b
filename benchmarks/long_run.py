"""A run of ten thousand rounds: what a round costs besides the training, and what is left at the end.

Each run has a process of its own (`python -m benchmarks.long_run NAME`), which prints what it measured. The
run is broken off after its first block of rounds and after its last, so that it can be resumed, read and
reported at two lengths. The generator writes at once. All times are the process's CPU time, of all its
threads, so that they tell little about what else the machine does. A round's cost is the median of a block.
"""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from adamab.providers.generators.base import Batch, Generator, Request
from adamab.run.fit import resume_run
from adamab.run.loop import Loop
from adamab.run.records import RoundRecord
from adamab.run.settings import FitSettings, FitSetup, set_up
from adamab.serving.report import report_html
from adamab.serving.run_reader import RunReader
from adamab.task.recipe import Recipe
from adamab.task.spec import Task
from adamab.testing import HashEmbedder
from benchmarks.report import Figure, Group, Table

WIDTH = 16
_PLAIN = Recipe(batch=1, words=False)
_TRAINED = Recipe.preset("paper").with_options(batch=1, batch_size=None, layers=2, bottleneck=1)


@dataclass(frozen=True)
class Setting:
    """One run; `round-robin` in the default recipe trains in no round, so that all the rest is seen alone."""

    classes: int
    rounds: int
    block: int  # rounds at the beginning and at the end that are compared
    policy: str
    recipe: Recipe

    def set_up(self, run: Path) -> FitSetup:
        """What is fitted; one round more than are measured, so that there is something to resume."""
        names = [f"class{c}" for c in range(self.classes)]
        settings = FitSettings(
            embedder=HashEmbedder(width=WIDTH),
            generator=Writer(),
            policy=self.policy,
            recipe=self.recipe.with_options(rounds=self.rounds + 1, augmentation_rounds=self.rounds + 1),
            run_dir=run,
        )
        task = Task.from_mapping({name: [f"{name} one", f"{name} other"] for name in names})
        return set_up(task, settings)


SETTINGS = {
    "bookkeeping": Setting(4, 10_000, 1000, "round-robin", _PLAIN),
    "trained": Setting(4, 2000, 200, "adamab", _TRAINED),
    "classes": Setting(500, 500, 50, "adamab", _TRAINED),
}


class Writer(Generator):
    """Texts of words of their own, at once."""

    fingerprint = "writer"

    async def generate(self, request: Request) -> Batch:
        """As many as asked for."""
        return Batch(
            tuple(
                f"{request.spec.name} a{number} b{number % 97} c{number % 89}"
                for number in range(request.number * request.count, (request.number + 1) * request.count)
            )
        )


class BrokenOff(Exception):  # noqa: N818
    """Raised in `on_round`, as a process that is killed."""


def run() -> Group:
    figures, rows = [], []
    for name, setting in SETTINGS.items():
        command = [sys.executable, "-m", "benchmarks.long_run", name]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        report = json.loads(output)
        what = f"{setting.rounds:,} rounds, {setting.classes} classes, {setting.policy}"
        figures += _figures(what, setting, report)
        rows += [[what, *(_rounded(end[key]) for key in COLUMNS)] for end in report["ends"]]
    table = Table("At the end of the first and of the last block of rounds", ["run", *COLUMNS.values()], rows)
    return Group(figures, [table])


def _rounded(value: float) -> str:
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"


COLUMNS = {
    "round": "round",
    "other": "a round without choosing and training, CPU ms",
    "whole": "a round, CPU ms",
    "bytes": "journal, bytes a round",
    "memory": "resident, MB",
    "resumed": "resumed, CPU s",
    "read": "read, CPU s",
    "report": "report, CPU s",
}


def _figures(what: str, setting: Setting, report: dict[str, list[dict[str, float]]]) -> list[Figure]:
    first, last = report["ends"]
    longer = last["round"] / first["round"]
    trained = (last["whole"] - last["other"]) / max(first["whole"] - first["other"], 1e-9)
    figures = [
        Figure(
            f"long run, {what}, a round at the end to one at the start in CPU time, "
            "beside choosing and training",
            last["other"] / first["other"],
            2,
            note=f"{first['other']:.2f} and {last['other']:.2f} ms"
            + (f"; choosing and training {trained:.1f} times" if setting.policy == "adamab" else ""),
        ),
        Figure(
            f"long run, {what}, bytes of journal a round, end to start", last["bytes"] / first["bytes"], 1.2
        ),
        Figure(
            f"long run, {what}, CPU seconds to take it up again, a round, end to start",
            last["resumed"] / first["resumed"] / longer,
            1.5,
            note=f"{last['resumed']:.1f} s after {last['round']:,.0f} rounds",
        ),
        Figure(f"long run, {what}, CPU seconds of a report", last["report"], 10),
    ]
    if setting.policy == "round-robin":  # elsewhere what training needs grows with the samples
        grown = 1e3 * (last["memory"] - first["memory"]) / (last["round"] - first["round"])
        name = f"long run, {what}, kB of memory a round, samples included"
        figures.append(Figure(name, grown, 8, note="records, texts, vectors"))
    return figures


def _measure(setting: Setting, folder: Path) -> dict[str, list[dict[str, float]]]:
    run = folder / "run"
    costs: list[tuple[float, float]] = []  # of every round: all of it, choosing and training
    _go_on(setting, run, setting.block, costs)
    first = _end(setting, run, setting.block, costs)
    first["resumed"] = _go_on(setting, run, setting.rounds, costs)
    last = _end(setting, run, setting.rounds, costs)
    last["resumed"] = _go_on(setting, run, setting.rounds + 1, [])
    return {"ends": [first, last]}


def _end(setting: Setting, run: Path, round_: int, costs: list[tuple[float, float]]) -> dict[str, float]:
    """What there is to measure after a block of rounds."""
    resident = _resident()
    block = 1e3 * np.array(costs[-setting.block + 1 :])  # not the first one, which waits for the beginning
    return {
        "round": round_,
        "whole": float(np.median(block[:, 0])),
        "other": float(np.median(block[:, 0] - block[:, 1])),
        "bytes": _bytes(run / "journal.sqlite", round_ - setting.block),
        "memory": resident,
        "read": _seconds(lambda: _read(run)),
        "report": _seconds(lambda: report_html(run)),
    }


def _go_on(setting: Setting, run: Path, until: int, costs: list[tuple[float, float]]) -> float:
    """Fit till the end of a round; returns the seconds to the first one that this process runs."""
    started = last = time.process_time()
    first, of_method = 0.0, _OfMethod()

    def on_round(record: RoundRecord) -> None:
        nonlocal last, first
        now = time.process_time()
        first = first or now - started
        costs.append((now - last, of_method.seconds))
        last, of_method.seconds = now, 0.0
        if record.round == until:
            raise BrokenOff

    try:
        with of_method:
            resume_run(setting.set_up(run), on_round=on_round)
    except BrokenOff:
        return first
    raise RuntimeError("the run ended before its last round")


class _OfMethod:
    """The CPU time of choosing and training while it is entered; a record's own seconds are wall time."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._patches = [
            mock.patch.object(Loop, name, self._timed(getattr(Loop, name)))
            for name in ("_computed", "_train")
        ]

    def __enter__(self) -> None:
        for patch in self._patches:
            patch.start()

    def __exit__(self, *_: object) -> None:
        for patch in self._patches:
            patch.stop()

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            start = time.process_time()
            try:
                return method(*arguments)
            finally:
                self.seconds += time.process_time() - start

        return timed


def _seconds(action: Callable[[], object]) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start


def _read(run: Path) -> None:
    with RunReader(run) as reader:
        reader.growth()
        reader.samples()


def _bytes(journal: Path, after: int) -> float:
    """Of the events per round, the choices included, since a round."""
    db = sqlite3.connect(journal)
    since = "SELECT MIN(seq) FROM events WHERE json_extract(data, '$.round') > ?"
    ((size, rounds),) = db.execute(
        f"SELECT SUM(LENGTH(data)), SUM(kind = 'round') FROM events WHERE seq >= ({since})", (after,)
    )
    db.close()
    return float(size / rounds)


def _resident() -> float:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) * 1024 / 1e6


def _main() -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        print(json.dumps(_measure(SETTINGS[sys.argv[1]], folder)))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    _main()
