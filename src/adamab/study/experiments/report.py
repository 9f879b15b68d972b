"""An experiment's files: `NAME.md` for people, its LaTeX, CSV and JSON twins, and the figures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from adamab.study.experiments.figures import draw
from adamab.study.experiments.findings import answers, chosen_options, headline, in_short, notes
from adamab.study.experiments.published import NOT_COMPARABLE, published_table
from adamab.study.experiments.summary import Summary
from adamab.study.experiments.tables import SETTINGS, as_csv, comparisons, published, tables
from adamab.study.statistics import INTERVALS, TESTS
from adamab.version import __version__

_HOW_TO_READ = (
    "Leads in percentage points with their intervals, which are not corrected; bold where p is below 0.05; "
    "a sign = says that both had as many samples of each class."
)
_ANSWERS = (
    "Of all seeds together. Each is an error; only an answer that was cut off may still name a class, and "
    "then counts as what it says."
)
_HIDDEN = ("correct", "key")  # of a row: for the file of rows only


def write_report(summary: Summary, directory: Path, *, command: str) -> list[Path]:
    """Write everything and return where it is."""
    name = summary.result.experiment.name
    drawn = draw(summary, directory)
    figures = [path for path in drawn if path.suffix == ".svg"]
    latex = "\n\n".join(table.latex() for table in tables(summary)) + "\n"
    written = {
        "md": _markdown(summary, figures, command),
        "tex": latex,
        "csv": as_csv(summary),
        "json": json.dumps(_json(summary, command), indent=1, allow_nan=False, ensure_ascii=False) + "\n",
    }
    for ending, text in written.items():
        (directory / f"{name}.{ending}").write_text(text, encoding="utf-8")
    return [*(directory / f"{name}.{ending}" for ending in written), *drawn]


def _json(summary: Summary, command: str) -> dict[str, object]:
    result = summary.result
    rows = [{k: v for k, v in row.to_json().items() if k not in _HIDDEN} for row in result.rows]
    return {
        "command": command,
        "adamab": __version__,
        "experiment": result.experiment.model_dump(mode="json"),
        "rows": rows,
        **summary.to_json(),
        "in_short": [headline(summary), *in_short(summary)],
        "notes": list(notes(summary)),
        "chosen": list(chosen_options(summary)),
        "answers": list(answers(summary)),
        "intervals": INTERVALS.format(samples="samples"),
        "tests": TESTS.format(n=len(summary.comparisons)),
        "published": [published_table(name).to_json() for name in result.experiment.published],
        "about_published": NOT_COMPARABLE,
    }


def _markdown(summary: Summary, figures: list[Path], command: str) -> str:
    return "\n\n".join(_sections(summary, figures, command)) + "\n"


def _sections(summary: Summary, figures: list[Path], command: str) -> Iterator[str]:
    experiment = summary.result.experiment
    yield f"# {experiment.title}"
    yield headline(summary)
    if told := in_short(summary):
        yield "\n".join(f"- {sentence}" for sentence in told)
    yield (
        f"Made by `{command}`; the figures of each seed are in `{experiment.name}.json`, the table also in "
        f"`{experiment.name}.tex` and `{experiment.name}.csv`."
    )
    for path in figures:
        yield f"![{experiment.title}]({path.name})"
    yield from (f"## {table.title}\n\n{table.markdown()}" for table in tables(summary))
    yield _about(summary)
    if summary.comparisons:
        table = comparisons(summary)
        yield f"## {table.title}\n\n{TESTS.format(n=len(summary.comparisons))} {_HOW_TO_READ}"
        yield table.markdown()
    if chosen := list(chosen_options(summary)):
        yield "## What was chosen\n\n" + "\n".join(f"- {line}" for line in chosen)
    if answered := list(answers(summary)):
        yield f"## Answers that name no class\n\n{_ANSWERS}\n\n" + "\n".join(f"- {a}" for a in answered)
    if noted := list(notes(summary)):
        yield "## Notes\n\n" + "\n".join(f"- {note}" for note in noted)
    if experiment.published:
        yield f"## What the paper prints\n\n{NOT_COMPARABLE}"
        for name in experiment.published:
            yield published(published_table(name), summary).markdown()


def _about(summary: Summary) -> str:
    experiment = summary.result.experiment
    settings = "; ".join(f"{name}: {SETTINGS[name]}" for name in experiment.settings)
    tests = ", ".join(f"{title} {_n_test(summary, name)}" for name, title in summary.result.titles.items())
    return (
        f"Accuracy in %, mean of {experiment.seeds} seeds, embedder `{experiment.embedder}` (sets of "
        f"features bring their own). Settings: {settings}. Test samples: {tests}. Added: synthetic samples, "
        f"set by set. Parameters: trained numbers. Seconds: of training, median of the seeds, lowest to "
        f"highest over the columns; asking a model takes none. {INTERVALS.format(samples='samples')}"
    )


def _n_test(summary: Summary, name: str) -> str:
    found = sorted({(x.n_test, x.n_distinct) for x in summary.lines if x.cell.set == name})
    told = [f"{n}" if n == distinct else f"{n} a seed, {distinct} different ones" for n, distinct in found]
    return " or ".join(told) or "none"
