"""The yardstick of quality, run: experiments into one file of rows, rows into scores.

Rows of the test part stay, whatever becomes of the code, until someone removes them; the commits that
measured them are named. On the development part, where one searches, our own cells are measured again after
every change of the code that fits; rivals have versions of their own.
"""

from __future__ import annotations

import ast
import hashlib
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import adamab
from adamab.engines import Engine
from adamab.errors import StoppedError, TaskError, short
from experiments.cells import POOL, Cell, DrawKey
from experiments.datasets.base import DataSet
from experiments.definition import CALIBRATOR, Experiment
from experiments.quality_plan import (
    IMAGE_SETS,
    ONCE,
    SETFIT,
    Place,
    Plan,
    method_of,
    places_of,
)
from experiments.quality_summary import Score
from experiments.rows import Row, Rows, read_parquet
from experiments.runner import OnCell, Result, Runner
from experiments.shapes import EVEN, Shape
from experiments.summary import SampleName, hits_of, sample_names

FITTING = ("method", "model", "run", "task")  # the code that our own figures depend on


@dataclass(frozen=True)
class LeftOutCell:
    """A cell of the plan that cannot be had."""

    set: str
    given: int
    synthetic: str  # a class, or all
    generator: str
    why: str

    def __str__(self) -> str:
        amount = "all cells" if self.synthetic == "all" else f"{self.synthetic} synthetic"
        return f"{self.set}, {self.given} given, {amount}, {self.generator}: {self.why}"


class QualityRunner(Runner):
    """Knows the rows of our own cells by the code too, where there is a search."""

    def __init__(self, experiment: Experiment, sets: Mapping[str, DataSet], work: Path, rows: Rows) -> None:
        super().__init__(experiment, sets, work, rows)
        self._keys: dict[Cell, str] = {}  # thousands, each asked for several times

    def key(self, cell: Cell) -> str:
        """The key of a cell's row."""
        if cell not in self._keys:
            searching = cell.method == CALIBRATOR and self.experiment.part == "development"
            version = code_version() if searching else self.experiment.version
            self._keys[cell] = cell.key(self.draws[cell.draw], self._fingerprint(cell.set), version)
        return self._keys[cell]

    def can_run(self) -> bool:
        """SetFit is a library that few have."""
        methods = [method.method for method in self.experiment.methods]
        return find_spec(SETFIT) is not None or SETFIT not in methods

    def kept(self) -> Result:
        """Rows of SetFit that another installation measured: a key has the library's version, which is
        not known without it, so they are looked up by the cell and its number of test samples."""
        known = {row.cell: row for row in self.rows.known.values() if row.cell.method == SETFIT}
        scored = [known[cell] for cell in self.cells() if cell in known]
        rows = [row for row in scored if len(row.measured.correct) == len(self.draws[row.cell.draw].test)]
        tests = {key: draw.test for key, draw in self.draws.items()}
        return Result(self.experiment, tuple(rows), (), {}, tests)


class Yardstick:
    """A plan on its data sets; `work` is the folder of the rows."""

    def __init__(self, plan: Plan, sets: Mapping[str, DataSet], work: Path) -> None:
        self.plan, self.work = plan, work
        self.left_out: list[LeftOutCell] = []
        self.notes: list[str] = []
        self.runners: list[QualityRunner] = []
        self.measured: tuple[Row, ...] = ()  # what `run` has returned the scores of
        rows = Rows(work, plan.rows_name)
        for name in plan.shapes:
            self._add(sets[name], work, rows)
        if plan.name == ONCE:
            self._check_once(rows)
        self._note_methods()

    @property
    def cells(self) -> int:
        """Of all experiments that can be run here."""
        return sum(len(runner.cells()) for runner in self._runnable())

    def to_do(self) -> dict[str, int]:
        """Cells without a row, by set."""
        todo: dict[str, int] = {}
        for runner in self._runnable():
            for cell in runner.to_do(runner.cells()):
                todo[cell.set] = todo.get(cell.set, 0) + 1
        return todo

    def run(self, *, engine: Engine | None = None, on_cell: OnCell = lambda *_: None) -> list[Score]:
        """Measure what is missing and return all scores."""
        total, before = self.cells, 0
        if self.to_do():
            _remember_commit(self._commits)
        results: list[Result] = list(self._kept_default())
        for runner in self.runners:
            if not runner.can_run():
                results.append(runner.kept())
                continue

            def counted(done: int, _: int, what: str, start: int = before) -> None:
                on_cell(start + done, total, what)

            try:
                results.append(runner.run(engine=engine, on_cell=counted))
            except StoppedError:
                done = total - sum(self.to_do().values())
                raise StoppedError(
                    f"stopped; {done} of {total} cells are done and kept: run the same command again to go on"
                ) from None
            before += len(runner.cells())
        self.measured = tuple(row for result in results for row in result.rows)
        by_set = [[r for r in results if r.experiment.sets == (name,)] for name in self.plan.shapes]
        return [score for of_set in by_set for score in scores_of(of_set)]

    def _kept_default(self) -> Iterator[Result]:
        """The recipe that was the default before, in cells of the plan: rows that are only kept."""
        kept = list(read_parquet(self.work / f"{self.plan.rows_name}-0.rows.parquet"))
        for runner in self.runners if kept else ():
            cells = {(cell.draw, cell.amount) for cell in runner.cells() if cell.method == CALIBRATOR}
            rows = [row for row in kept if (row.cell.draw, row.cell.amount) in cells]
            tests = {row.cell.draw: runner.draws[row.cell.draw].test for row in rows}
            same = [row for row in rows if len(row.measured.correct) == len(tests[row.cell.draw])]
            # Methods with fewer seeds are experiments of their own on the same draws: each row counts once.
            kept = [row for row in kept if row not in same]
            yield Result(runner.experiment, tuple(same), (), {}, tests)

    def _check_once(self, rows: Rows) -> None:
        """What was scored by other code is not scored again: a second look would be a choice."""
        wanted = {runner.key(cell): cell for runner in self._runnable() for cell in runner.cells()}
        scored = {row.cell for key, row in rows.known.items() if key not in wanted}
        again = [cell for key, cell in wanted.items() if key not in rows.known and cell in scored]
        if again:
            raise TaskError(
                f"{self.plan.name}: {len(again)} cells were scored before, by other code or options, and are "
                f"scored once; to publish another default, remove {self.plan.rows_name}.rows.* and say so"
            )

    def commits(self) -> list[str]:
        """Of the code that measured the rows, in their order."""
        try:
            return self._commits.read_text(encoding="utf-8").split()
        except FileNotFoundError:
            return []

    @property
    def _commits(self) -> Path:
        return self.work / f"{self.plan.rows_name}.commits"

    def _runnable(self) -> list[QualityRunner]:
        return [runner for runner in self.runners if runner.can_run()]

    def _add(self, data: DataSet, work: Path, rows: Rows) -> None:
        for experiment in self.plan.experiments(data):
            runner = QualityRunner(experiment, {data.name: data}, work, rows)
            if runner.remote():
                raise TaskError(
                    f"{self.plan.name}: the embedder {short(experiment.embedder)} asks an API, and nothing "
                    "here caps what that costs; name one that runs on this machine with --embedder"
                )
            self.runners.append(runner)
            given = experiment.given_of(data.name)
            self.left_out += [
                LeftOutCell(x.set, given, x.amount, x.generator, x.why) for x in runner.expansion.left_out
            ]
        for shape, given in self.plan.shapes[data.name]:
            self._note_short(data, shape, given)

    def _note_short(self, data: DataSet, shape: Shape, given: int) -> None:
        lack = self.plan.short_classes(data, given)
        if lack.none_has_all and shape == EVEN:
            why = f"no class has more than {lack.most} samples to give"
            self.left_out.append(LeftOutCell(data.name, given, "all", POOL, why))
        elif lack.count:
            cells = f"{given} given" if shape == EVEN else shape
            self._note(
                f"{data.name}, {cells}: {lack.count} of {lack.n_classes} classes cannot give so many; "
                f"they give what they have, {lack.fewest} at least."
            )
        recorded = self.plan.synthetic and len(data.generators) > 1 and given <= 5
        if recorded and self.plan.source(data, given) == POOL:
            self._note(f"{data.name}: no {self.plan.part} part with the recorded generator.")

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    def _note_methods(self) -> None:
        if any(name in IMAGE_SETS for name in self.plan.shapes):
            self._note(
                "Image sets are vectors of one view without a text side: there is no zero-shot and nothing "
                "that the paper's networks could match samples with (`images` has them on class means), "
                "mean-and-text is the centred class mean, and an API's views would be all there are."
            )
        self._note(
            "A class without samples: methods on samples alone (linear-probe, linear-svm, class-mean, knn) "
            "never predict it; paper, calibrator, cache-adapter, mean-and-text, joint-probe and "
            "soft-vote have its description."
        )
        if any(not runner.can_run() for runner in self.runners):
            self._note(
                "SetFit is not installed here (extra baselines): only rows that are already kept count."
            )


def scores_of(results: Sequence[Result]) -> Iterator[Score]:
    """The scores of one set's experiments, on columns that all of them share."""
    # By text alone: classes have other names where they are codes.
    names = {
        draw: sample_names([replace(sample, class_name="") for sample in tests])
        for result in results
        for draw, tests in result.tests.items()
    }
    columns: dict[SampleName, int] = {}
    for of_draw in names.values():
        for name in of_draw:
            columns.setdefault(name, len(columns))
    for (place, method), rows in by_place([row for result in results for row in result.rows]).items():
        yield Score(
            place=place,
            method=method,
            seeds=tuple(row.cell.seed for row in rows),
            hits=hits_of(rows, names, columns),
            seconds=tuple(row.measured.seconds for row in rows),
            losses=tuple(row.measured.log_loss for row in rows),
        )


def by_place(rows: Sequence[Row]) -> dict[tuple[Place, str], list[Row]]:
    """Rows by where they count and by method, seeds in order."""
    amounts: dict[DrawKey, set[int]] = {}
    for row in rows:
        if row.cell.method == CALIBRATOR:
            amounts.setdefault(replace(row.cell.draw, seed=0), set()).add(int(row.cell.amount))
    groups: dict[tuple[Place, str], list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.cell.seed):
        cell = row.cell
        for place in places_of(cell, sorted(amounts.get(replace(cell.draw, seed=0), ()))):
            groups.setdefault((place, method_of(cell)), []).append(row)
    return groups


@cache
def code_version() -> int:
    """A number that changes with the code that fits, but not with its comments and docstrings."""
    state, root = hashlib.sha256(), Path(adamab.__file__).parent
    for folder in FITTING:
        for path in sorted((root / folder).rglob("*.py")):
            state.update(_meaning(path.read_text(encoding="utf-8")).encode())
    return int(state.hexdigest()[:12], 16)


def _meaning(source: str) -> str:
    """The code without docstrings, which change nothing."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [line for line in body if not _is_text(line)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _is_text(line: Any) -> bool:
    constant = isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)
    return constant and isinstance(line.value.value, str)


def _remember_commit(path: Path) -> None:
    known = path.read_text(encoding="utf-8").split() if path.exists() else []
    current = commit()
    if current not in known:
        path.write_text("".join(f"{name}\n" for name in [*known, current]), encoding="utf-8")


def commit() -> str:
    """The commit that this package is a checkout of, marked where files differ from it."""
    folder = Path(adamab.__file__).parent
    try:
        _git(folder, "ls-files", "--error-unmatch", "version.py")  # or it is just installed below a checkout
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no", "--", ".")
        return _git(folder, "rev-parse", "--short=12", "HEAD") + ("-changed" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return f"version-{adamab.__version__}"


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()
