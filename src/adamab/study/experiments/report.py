"""An experiment's files: `NAME.md` for people, its LaTeX, CSV and JSON twins, and the figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from adamab.study.documents import as_document
from adamab.study.experiments.cells import BOTH
from adamab.study.experiments.definition import BY_FOLDS, BY_TEST, CALIBRATOR, NONE, Experiment
from adamab.study.experiments.figures import draw
from adamab.study.experiments.findings import answers, chosen_options, headline, in_short, notes
from adamab.study.experiments.published import NOT_COMPARABLE, published_table
from adamab.study.experiments.summary import Summary, recipe_name
from adamab.study.experiments.tables import ADDED, COUNTED, SETTINGS, as_csv, comparisons, published, tables
from adamab.study.statistics import INTERVALS, TESTS
from adamab.version import __version__

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
    "the same order or with the recipe default, which trains anew when all are there, so that their order "
    "does not matter."
)
_RECIPES = {
    "paper": "the paper’s literal calibrator on the pooled embedding and on that of the description",
    "default": "all views of the embedder, and words and descriptions where there are any, weighed by "
    "cross-validation on the training samples",
}
_AMOUNTS = {
    "paper": "paper: the paper’s number of rounds for the set",
    "uneven": "uneven: half a pass over the classes less than that, so that no policy can serve all alike",
    "number": "a number: synthetic samples a class, in whole rounds",
    "passes": "passes: so many rounds a class",
}
_ON_POOLED = ("zero-shot", "centred", "class-mean", "linear-probe", "linear-svm", "knn", "cache-adapter")
_CHOICES = (BY_FOLDS, BY_TEST)
_SILENT = (
    " With the recipe default they vary from seed to seed too, because heads that cross-validation gives a "
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
_HIDDEN = ("correct", "key")  # of a row: for the file of rows only


def write_report(summary: Summary, directory: Path, *, command: str) -> list[Path]:
    """Write everything and return where it is."""
    name = results_name(summary.result.experiment)
    drawn = draw(_renamed(summary, name), directory)
    figures = [path for path in drawn if path.suffix == ".svg"]
    latex = "\n\n".join(table.latex() for table in tables(summary)) + "\n"
    written = {
        "md": _markdown(summary, name, figures, command),
        "tex": latex,
        "csv": as_csv(summary),
        "json": as_document(_json(summary, command)),
    }
    for ending, text in written.items():
        (directory / f"{name}.{ending}").write_text(text, encoding="utf-8")
    return [*(directory / f"{name}.{ending}" for ending in written), *drawn]


def results_name(experiment: Experiment) -> str:
    """Of all files: what is scored on the development part never takes the place of the published ones."""
    return experiment.name if experiment.part == "test" else f"{experiment.name}-{experiment.part}"


def _renamed(summary: Summary, name: str) -> Summary:
    """For the figures, which are called like their experiment."""
    experiment = summary.result.experiment.model_copy(update={"name": name})
    return replace(summary, result=replace(summary.result, experiment=experiment))


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
        "tests": TESTS.format(n=len(summary.tests)),
        "published": [published_table(name).to_json() for name in result.experiment.published],
        "about_published": NOT_COMPARABLE,
    }


def _markdown(summary: Summary, name: str, figures: list[Path], command: str) -> str:
    return "\n\n".join(_sections(summary, name, figures, command)) + "\n"


def _sections(summary: Summary, name: str, figures: list[Path], command: str) -> Iterator[str]:
    experiment = summary.result.experiment
    yield f"# {experiment.title}"
    yield headline(summary)
    if told := in_short(summary):
        yield "\n".join(f"- {sentence}" for sentence in told)
    yield (
        f"Made by `{command}`; the figures of each seed are in `{name}.json`, the table also in "
        f"`{name}.tex` and `{name}.csv`."
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
    told = ""
    if any(c.same_samples and c.cell.recipe == "paper" for c in summary.comparisons):
        told += _ORDER
    if same := len(summary.comparisons) - len(summary.tests):
        told += _NO_TESTS.format(n=same)
    return told


def _about(summary: Summary) -> str:
    experiment = summary.result.experiment
    settings = "; ".join(f"{name}: {SETTINGS[name]}" for name in experiment.settings)
    tests = ", ".join(f"{title} {_n_test(summary, name)}" for name, title in summary.result.titles.items())
    told = [
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
    return "## How to read the tables\n\n" + "\n".join(f"- {sentence}" for sentence in told)


def _wordless(summary: Summary) -> str:
    found = dict.fromkeys(x.cell.method.replace("-", " ") for x in summary.lines if x.cell.setting == BOTH)
    if not found or len(summary.result.experiment.settings) == 1:
        return ""
    return f" Methods that read no wording repeat one number under all settings: {', '.join(found)}."


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
    if found := [name.replace("-", " ") for name in methods if name in _ON_POOLED]:
        yield f"Of the embedder’s views these methods read the pooled embedding only: {', '.join(found)}."


def _amounts(summary: Summary) -> Iterator[str]:
    amounts = dict.fromkeys(x.cell.amount for x in summary.lines if x.cell.policy not in (NONE, *_CHOICES))
    told = {_AMOUNTS[_kind(amount)]: None for amount in amounts}
    if told:
        yield f"Amounts: {'; '.join(told)}."


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
            number = f"{n}" if n == distinct else f"{n} a seed, {distinct} different ones"
            by_number.setdefault(number, {})[line.cell.generator] = None
    if len(by_number) < 2:
        return next(iter(by_number), "none")
    return " or ".join(f"{number} ({', '.join(which)})" for number, which in by_number.items())
