"""What `adamab reproduce quality` and `quality-full` do: the yardstick, run or counted, and told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adamab.cli.console import Bar, counted, echo, print_json, print_table, progress

if TYPE_CHECKING:
    from adamab.study.engines import Engine
    from adamab.study.quality import Yardstick
    from adamab.study.quality_plan import Plan
    from adamab.study.quality_report import Report

_NARROW = 7  # columns of the table of sets that a terminal has room for; the rest are ranks


@dataclass(frozen=True)
class QualityCommand:
    """One of the two plans."""

    plan: Plan

    def run(
        self,
        data: Path | None,
        output: Path,
        work: Path,
        command: str,
        teller: Callable[[Bar, bool], Any],
        *,
        engine: Engine,
        as_json: bool,
        quiet: bool,
    ) -> None:
        """Measure what is missing, write page, rows and figure, and tell what they say."""
        from adamab.cli.extras import need_torch_for
        from adamab.cli.folders import make_folder
        from adamab.cli.stopping import stop_gently
        from adamab.study.figures import check_matplotlib
        from adamab.study.quality_report import write_report

        need_torch_for(self.plan.embedder)
        check_matplotlib()
        make_folder(output, " for the results")
        make_folder(work, " for finished cells")
        with progress("reading", quiet=quiet) as bar, stop_gently([]), engine.ready():
            yardstick = self._yardstick(data, work)
            scores = yardstick.run(engine=engine, on_cell=teller(bar, quiet))
        report = write_report(yardstick, scores, output, command=command)
        if as_json:
            print_json(report.to_json())
        elif not quiet:
            _tell(yardstick, report, output)

    def dry_run(self, data: Path | None, work: Path, *, as_json: bool) -> None:
        """Count cells and list what is left out."""
        yardstick = self._yardstick(data, work)
        todo, cells = yardstick.to_do(), yardstick.cells
        if as_json:
            left_out = [str(cell) for cell in yardstick.left_out]
            print_json({"cells": cells, "to_run": todo, "left_out": left_out, "notes": yardstick.notes})
            return
        echo(f"{self.plan.name}: {counted(cells, 'cell')}, {cells - sum(todo.values())} done before")
        echo(f"to run: {', '.join(f'{name} {count}' for name, count in todo.items()) or 'nothing'}")
        for cell in yardstick.left_out:
            echo(f"left out: {cell}")
        for note in yardstick.notes:
            echo(f"note: {note}")

    def _yardstick(self, data: Path | None, work: Path) -> Yardstick:
        from adamab.study.datasets.base import data_directory, load_data_set
        from adamab.study.quality import Yardstick

        names = self.plan.grid
        directory = data_directory(data) if any(name != "demo" for name in names) else Path()
        return Yardstick(self.plan, {name: load_data_set(name, directory) for name in names}, work)


def _tell(yardstick: Yardstick, report: Report, output: Path) -> None:
    from adamab.study.quality_bars import in_words
    from adamab.study.quality_report import bar_table, set_table

    leads, checked = set_table(report.summary), bar_table(report.bars)
    print_table(leads.header[:_NARROW], [row[:_NARROW] for row in leads.rows], title=leads.title)
    print_table(checked.header, checked.rows, title=checked.title)
    for line in (in_words(report.bars), *(f"left out: {cell}" for cell in yardstick.left_out)):
        echo(line)
    echo(f"Written to {output}: {', '.join(path.name for path in report.files)}")
