"""The tables of an experiment as Markdown, LaTeX and CSV; columns are sets and settings, rows methods."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from adamab.study.datasets.base import published_name
from adamab.study.experiments.cells import Cell
from adamab.study.experiments.findings import ANSWERS, RIVALS, where
from adamab.study.experiments.published import PublishedTable
from adamab.study.experiments.summary import OPEN, Comparison, Line, Summary, label_of

SETTINGS = {"zero-shot": "label descriptions only", "few-shot": "descriptions with the given examples"}
ADDED = "Added: synthetic samples, set by set in the order of the columns where they differ."
COUNTED = "Parameters: learned numbers, smallest to largest over seeds, sets and settings."
_ESCAPES = {
    "\\": r"\textbackslash{}",
    "%": r"\%",
    "&": r"\&",
    "_": r"\_",
    "#": r"\#",
    "α": r"$\alpha$",
    "’": "'",
    "–": "--",
}
_CSV = (
    "set", "setting", "generator", "given", "amount", "synthetic", "method", "recipe", "policy", "options",
    "accuracy", "low", "high", "n_test", "seeds", "fewest_parameters", "most_parameters",
    "fit_seconds", *ANSWERS,
)  # fmt: skip


@dataclass(frozen=True)
class Table:
    """Text ready to be laid out."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""  # for the caption of a table that stands alone

    def markdown(self) -> str:
        """A table for Markdown."""
        rule = ["---", *("---:" for _ in self.header[1:])]
        return "\n".join(_piped(row) for row in (self.header, rule, *self.rows))

    def latex(self) -> str:
        """A table environment for LaTeX; it needs no package."""
        body = "\n".join(" & ".join(map(_escaped, row)) + r" \\" for row in self.rows)
        return "\n".join(
            [
                r"\begin{table}",
                rf"\caption{{{_escaped(f'{self.title}. {self.note}' if self.note else self.title)}}}",
                rf"\begin{{tabular}}{{l{'r' * (len(self.header) - 1)}}}",
                r"\hline",
                " & ".join(map(_escaped, self.header)) + r" \\ \hline",
                body,
                r"\hline",
                r"\end{tabular}",
                r"\end{table}",
            ]
        )


def tables(summary: Summary) -> list[Table]:
    """One table a generator, with the sets that it serves."""
    found = [_table(summary, generator) for generator in summary.result.experiment.generators]
    return [table for table in found if table.rows]


def _table(summary: Summary, generator: str) -> Table:
    lines = [line for line in summary.lines if line.cell.generator == generator]
    places = _places(summary, lines)
    titles = summary.result.titles
    several = len({setting for _, setting in places}) > 1
    header = [f"{titles[name]}{f', {setting}' if several else ''}" for name, setting in places]
    rows = [_cells(summary, lines, key, places) for key in _keys(lines)]
    what = {"recorded": "the recorded generator", "pool": "the pool of real samples"}.get(
        generator, generator
    )
    return Table(
        f"Samples from {what}",
        ("Method", "Added", *header, "Parameters", "Seconds"),
        tuple(row for row in rows if row),
        f"Accuracy in %, mean of {summary.result.experiment.seeds} seeds, and in brackets the range that "
        f"holds 95 % of a bootstrap that draws test samples and seeds anew. {ADDED} {COUNTED}",
    )


Key = tuple[int, str, str]  # place of the amount, label, varied options


def _keys(lines: Sequence[Line]) -> list[Key]:
    """The rows: nothing added first, then amount by amount, methods in the experiment's order."""
    return sorted(dict.fromkeys(_key(lines, line.cell) for line in lines), key=lambda key: key[0])


def _key(lines: Sequence[Line], cell: Cell) -> Key:
    """Amounts are matched between sets by their place, because they are written differently for each."""
    amounts = list(dict.fromkeys(line.cell.amount for line in lines if line.cell.set == cell.set))
    added = sorted(amounts, key=lambda amount: amount != "0")
    shift = 0 if "0" in amounts else 1
    return added.index(cell.amount) + shift, label_of(cell), cell.options


def _places(summary: Summary, lines: Sequence[Line]) -> list[tuple[str, str]]:
    experiment = summary.result.experiment
    served = {line.cell.set for line in lines}
    return [(name, setting) for name in experiment.sets if name in served for setting in experiment.settings]


def _cells(
    summary: Summary, lines: Sequence[Line], key: Key, places: Sequence[tuple[str, str]]
) -> tuple[str, ...]:
    of_row = [line for line in lines if _key(lines, line.cell) == key]
    found = [
        next((x for x in of_row if x.cell.set == name and x.cell.setting in (setting, "both")), None)
        for name, setting in places
    ]
    by_set = {line.cell.set: line for line in found if line is not None}
    sizes = [n for line in found if line is not None for n in line.n_parameters]
    times = [line.seconds for line in found if line is not None]
    name = key[1] + summary.options_text(of_row[0].cell)
    figures = ("" if x is None else accuracy(x) for x in found)
    return (
        name,
        _added(by_set, places),
        *figures,
        _range(map(size, sorted(sizes))),
        _range(map(seconds, sorted(times))),
    )


def _added(by_set: Mapping[str, Line], places: Sequence[tuple[str, str]]) -> str:
    """Of every set in the order of the columns; once if all are alike."""
    sets = dict.fromkeys(name for name, _ in places)
    told = [f"{by_set[name].synthetic:.0f}" if name in by_set else "–" for name in sets]
    return told[0] if len(set(told)) == 1 else " / ".join(told)


def accuracy(line: Line) -> str:
    """Mean and interval in %."""
    a = line.accuracy
    return f"{100 * a.mean:.1f} ({100 * a.low:.1f}–{100 * a.high:.1f})"


def _range(ordered: Iterable[str]) -> str:
    """The first and the last, or the one that both are."""
    different = list(dict.fromkeys(ordered))
    return "–".join(dict.fromkeys((different[0], different[-1]))) if different else ""


def seconds(taken: float) -> str:
    """A time of training.

    Example:
        >>> seconds(0.004), seconds(0.26), seconds(7.31), seconds(1234.5)
        ('0.00', '0.26', '7.3', '1234')
    """
    return f"{taken:.{2 if taken < 1 else 1 if taken < 100 else 0}f}"


def size(count: int) -> str:
    """A number of parameters.

    Example:
        >>> size(0), size(2310), size(165888), size(2654208)
        ('0', '2.3k', '166k', '2.654M')
    """
    if count < 1000:
        return str(count)
    if count < 1_000_000:
        return f"{count / 1000:.1f}k" if count < 100_000 else f"{count / 1000:.0f}k"
    return f"{count / 1_000_000:.3f}M"


def published(table: PublishedTable, summary: Summary) -> Table:
    """The paper's numbers in the columns of ours."""
    experiment, titles = summary.result.experiment, summary.result.titles
    places = [
        (n, s)
        for n in experiment.sets
        for s in experiment.settings
        if published_name(n) in table.sets and s in table.settings
    ]
    several = len(experiment.settings) > 1
    header = [f"{titles[n]}{f', {s}' if several else ''}" for n, s in places]
    rows = tuple(
        (row.method, *(f"{row.accuracy[published_name(n), s]:.2f}" for n, s in places), row.parameters)
        for row in table.rows
    )
    return Table(f"Printed in the paper ({table.name})", ("Printed", *header, "Parameters"), rows)


def comparisons(summary: Summary) -> Table:
    """ADAMAB's lead in points over each rival; bold where it is certain after the correction."""
    rivals = [r for r in RIVALS if any(c.rival_name == r for c in summary.comparisons)]
    by_cell: dict[Cell, dict[str, Comparison]] = {}
    for c in summary.comparisons:
        by_cell.setdefault(c.cell, {})[c.rival_name] = c
    rows = tuple(
        (where(summary, cell), *(_lead(found.get(rival)) for rival in rivals))
        for cell, found in by_cell.items()
    )
    return Table("ADAMAB against the others", ("ADAMAB on", *(f"over {RIVALS[r]}" for r in rivals)), rows)


def _lead(c: Comparison | None) -> str:
    if c is None:
        return ""
    if c.same_results:
        return "same results ="
    lead = f"{100 * c.lead.mean:+.1f} ({100 * c.lead.low:+.1f}, {100 * c.lead.high:+.1f})"
    p = "p < 0.001" if c.corrected < 0.001 else f"p {c.corrected:.3f}"
    same = " =" if c.same_samples else ""
    return f"{lead if c.verdict == OPEN else f'**{lead}**'} {p}{same}"


def as_csv(summary: Summary) -> str:
    """One line a method, set, setting and amount."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(_CSV)
    writer.writerows(_csv_rows(summary))
    return file.getvalue()


def _csv_rows(summary: Summary) -> Iterator[tuple[object, ...]]:
    for line in summary.lines:
        c, a = line.cell, line.accuracy
        figures = [f"{value:.5f}" for value in (a.mean, a.low, a.high)]
        yield (
            c.set, c.setting, c.generator, c.given, c.amount, f"{line.synthetic:g}", c.method, c.recipe,
            c.policy, c.options, *figures, line.n_test, len(line.by_seed), *line.n_parameters,
            f"{line.seconds:.3f}", *(line.answers.get(kind, "") for kind in ANSWERS),
        )  # fmt: skip


def _piped(values: Sequence[str]) -> str:
    return "| " + " | ".join(value.replace("|", r"\|") for value in values) + " |"


def _escaped(text: str) -> str:
    return "".join(_ESCAPES.get(c, c) for c in text)
