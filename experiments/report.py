"""An experiment's page: its tables, how to read them, and the files `NAME.md`, `.json`, `.rows.parquet`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from adamab.evaluation.statistics import INTERVALS
from adamab.version import __version__
from experiments.cells import BOTH, Cell
from experiments.datasets.base import published_name
from experiments.definition import (
    BY_FOLDS,
    CALIBRATOR,
    NONE,
    NOT_COMPARABLE,
    Experiment,
    PublishedTable,
    published_table,
)
from experiments.figures import draw
from experiments.findings import RIVALS, answers, chosen_options, headline, in_short, notes, where
from experiments.pages import Table, as_document
from experiments.rows import write_parquet
from experiments.summary import OPEN, TESTS, Comparison, Line, Summary, label_of, recipe_name

SETTINGS = {"zero-shot": "label descriptions only", "few-shot": "descriptions with the given examples"}
ADDED = "Added: synthetic samples, set by set in the order of the columns where they differ."
COUNTED = "Parameters: learned numbers, smallest to largest over seeds, sets and settings."


def tables(summary: Summary) -> list[Table]:
    """One table a generator, with the sets that it serves."""
    shown = [_table(summary, generator) for generator in summary.result.experiment.generators]
    return [table for table in shown if table.rows]


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
    by_place = [
        next((x for x in of_row if x.cell.set == name and x.cell.setting in (setting, "both")), None)
        for name, setting in places
    ]
    by_set = {line.cell.set: line for line in by_place if line is not None}
    sizes = [n for line in by_place if line is not None for n in line.n_parameters]
    times = [line.seconds for line in by_place if line is not None]
    name = key[1] + summary.options_text(of_row[0].cell)
    figures = ("" if x is None else accuracy(x) for x in by_place)
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
    counts = [f"{by_set[name].synthetic:.0f}" if name in by_set else "–" for name in sets]
    return counts[0] if len(set(counts)) == 1 else " / ".join(counts)


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
        (where(summary, cell), *(_lead(leads.get(rival)) for rival in rivals))
        for cell, leads in by_cell.items()
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


_HOW_TO_READ = (
    "Leads in percentage points with their intervals, which are not corrected; bold where p is below 0.05. A "
    "sign = says that both ended with as many samples of each class, and so with the same ones."
)
_ORDER = (
    " Two policies can still score differently there with the recipe paper, which trains while samples come, "
    "so that their order matters."
)
_NO_TESTS = (
    " Not counted, because they are no tests: {n} with the same results. Both had the same samples there, in "
    "the same order or with the recipe default, which trains again once all are there, so that their order "
    "does not matter."
)
_RECIPES = {
    "paper": "the paper’s literal calibrator on the pooled embedding and on that of the description",
    "default": "all views of the embedder, and words and descriptions where there are any, weighed by "
    "leave-one-out on the training samples",
}
_AMOUNTS = {
    "paper": "paper: the paper’s number of rounds for the set",
    "uneven": "uneven: half a pass over the classes less than that, so that no policy can serve all alike",
    "number": "a number: synthetic samples per class, in whole rounds",
    "passes": "passes: rounds per class",
}
_ON_POOLED = ("zero-shot", "centred", "class-mean", "linear-probe", "linear-svm", "knn", "cache-adapter")
_SILENT = (
    " With the recipe default they vary from seed to seed too, because heads that leave-one-out gives a "
    "weight of zero are not in the classifier."
)
_TIMED = (
    "Seconds: of training, median of the seeds, lowest to highest over the columns; asking a model takes "
    "none. They are wall time of a fit with one thread, two at a time on one machine unless `--jobs` says "
    "otherwise, other work on it not excluded: good for orders of magnitude only."
)
_ANSWERS = (
    "Of all seeds together. Each is an error; only an answer that was cut off may still name a class, and "
    "then counts as what it says."
)


def write_report(summary: Summary, directory: Path, *, command: str) -> list[Path]:
    """Write everything and return where it is."""
    name = results_name(summary.result.experiment)
    figures = draw(summary, directory, f"{name}-accuracy")
    page, figures_file = directory / f"{name}.md", directory / f"{name}.json"
    sections = _sections(summary, name, figures, command)
    page.write_text("\n\n".join(sections) + "\n", encoding="utf-8")
    figures_file.write_text(as_document(_json(summary, command)), encoding="utf-8")
    rows = write_parquet(summary.result.rows, directory / f"{name}.rows.parquet")
    return [page, figures_file, rows, *figures]


def results_name(experiment: Experiment) -> str:
    """Of all files: what is scored on the development part never takes the place of the published ones."""
    return experiment.name if experiment.part == "test" else f"{experiment.name}-{experiment.part}"


def _json(summary: Summary, command: str) -> dict[str, object]:
    result = summary.result
    return {
        "command": command,
        "adamab": __version__,
        "experiment": result.experiment.model_dump(mode="json"),
        **summary.to_json(),
        "in_short": [headline(summary), *in_short(summary)],
        "notes": list(notes(summary)),
        "chosen": list(chosen_options(summary)),
        "answers": list(answers(summary)),
        "intervals": INTERVALS.format(samples="samples"),
        "tests": TESTS.format(n=len(summary.tests)),
        "published": [published_table(name).to_json() for name in result.experiment.published],
        "about_published": NOT_COMPARABLE,
    }


def _sections(summary: Summary, name: str, figures: list[Path], command: str) -> Iterator[str]:
    experiment = summary.result.experiment
    yield f"# {experiment.title}"
    yield headline(summary)
    if sentences := in_short(summary):
        yield "\n".join(f"- {sentence}" for sentence in sentences)
    yield (
        f"Made by `{command}`; the figures of the tables are in `{name}.json`, those of each seed in "
        f"`{name}.rows.parquet`."
    )
    for path in figures:
        yield f"![{experiment.title}]({path.name})"
    yield from (f"## {table.title}\n\n{table.markdown()}" for table in tables(summary))
    yield _about(summary)
    if summary.comparisons:
        table = comparisons(summary)
        yield f"## {table.title}\n\n{TESTS.format(n=len(summary.tests))} {_HOW_TO_READ}{_same(summary)}"
        yield table.markdown()
    if chosen := list(chosen_options(summary)):
        yield "## What was chosen\n\n" + "\n".join(f"- {line}" for line in chosen)
    if answered := list(answers(summary)):
        yield f"## Answers that name no class\n\n{_ANSWERS}\n\n" + "\n".join(f"- {a}" for a in answered)
    if noted := list(notes(summary)):
        yield "## Notes\n\n" + "\n".join(f"- {note}" for note in noted)
    if experiment.published:
        yield f"## What the paper prints\n\n{NOT_COMPARABLE}"
        for table_name in experiment.published:
            yield published(published_table(table_name), summary).markdown()


def _same(summary: Summary) -> str:
    """Why what had the same samples may score differently, or the same."""
    text = ""
    if any(c.same_samples and c.cell.recipe == "paper" for c in summary.comparisons):
        text += _ORDER
    if same := len(summary.comparisons) - len(summary.tests):
        text += _NO_TESTS.format(n=same)
    return text


def _about(summary: Summary) -> str:
    experiment = summary.result.experiment
    settings = "; ".join(f"{name}: {SETTINGS[name]}" for name in experiment.settings)
    tests = ", ".join(f"{title} {_n_test(summary, name)}" for name, title in summary.result.titles.items())
    sentences = [
        f"Accuracy in %, mean of {experiment.seeds} seeds, embedder `{experiment.embedder}` (sets of "
        f"features bring their own). {INTERVALS.format(samples='samples')}",
        f"Settings: {settings}.{_wordless(summary)}",
        f"Test samples: {tests}.",
        *_recipes(summary),
        *_amounts(summary),
        f"{ADDED} A dash: the set has no such row.",
        f"{COUNTED}{_silent_heads(summary)}",
        _TIMED,
    ]
    return "## How to read the tables\n\n" + "\n".join(f"- {sentence}" for sentence in sentences)


def _wordless(summary: Summary) -> str:
    wordless = dict.fromkeys(x.cell.method.replace("-", " ") for x in summary.lines if x.cell.setting == BOTH)
    if not wordless or len(summary.result.experiment.settings) == 1:
        return ""
    return f" Methods that read no wording repeat one number under all settings: {', '.join(wordless)}."


def _recipes(summary: Summary) -> Iterator[str]:
    cells = [line.cell for line in summary.lines if line.cell.method == CALIBRATOR]
    known = [f"{recipe}: {_RECIPES[recipe]}" for recipe in _RECIPES if any(c.recipe == recipe for c in cells)]
    known += [
        f"{name}: {recipe} on no other views"
        for name, recipe in dict.fromkeys((recipe_name(c), c.recipe) for c in cells)
        if name != recipe
    ]
    if known:
        yield f"Recipes of the calibrator: {'; '.join(known)}."
    methods = dict.fromkeys(line.cell.method.partition("?")[0] for line in summary.lines)
    if pooled := [name.replace("-", " ") for name in methods if name in _ON_POOLED]:
        yield f"Of the embedder’s views these methods read the pooled embedding only: {', '.join(pooled)}."


def _amounts(summary: Summary) -> Iterator[str]:
    amounts = dict.fromkeys(x.cell.amount for x in summary.lines if x.cell.policy not in (NONE, BY_FOLDS))
    kinds = {_AMOUNTS[_kind(amount)]: None for amount in amounts}
    if kinds:
        yield f"Amounts: {'; '.join(kinds)}."


def _kind(amount: str) -> str:
    return amount if amount in _AMOUNTS else "number" if amount.isdecimal() else "passes"


def _silent_heads(summary: Summary) -> str:
    varied = any(
        line.cell.recipe == "default" and line.n_parameters[0] < line.n_parameters[1]
        for line in summary.lines
    )
    return _SILENT if varied else ""


def _n_test(summary: Summary, name: str) -> str:
    """Of a set, and which generator goes with which number where they differ."""
    by_number: dict[str, dict[str, None]] = {}
    for line in summary.lines:
        if line.cell.set == name:
            n, distinct = line.n_test, line.n_distinct
            number = f"{n}" if n == distinct else f"{n} per seed, {distinct} different ones"
            by_number.setdefault(number, {})[line.cell.generator] = None
    if len(by_number) < 2:
        return next(iter(by_number), "none")
    return " or ".join(f"{number} ({', '.join(which)})" for number, which in by_number.items())
