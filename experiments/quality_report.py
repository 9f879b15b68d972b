"""The yardstick's files: page, figures as JSON, rows and drawing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from adamab.demo.story import COLOURS, QUIET, new_figure
from adamab.evaluation.statistics import INTERVALS, points
from adamab.version import __version__
from experiments.pages import Table, as_document, save_figure
from experiments.quality import Yardstick
from experiments.quality_plan import (
    API,
    DEFAULT,
    EVENLY,
    FULL,
    IMAGE_SETS,
    METHODS,
    OLD,
    OLD_API,
    ON_API,
    ONCE,
    RANDOM,
    RIVALS,
    SEEDS,
    SETFIT,
    SETS,
    TEXT_SETS,
    TITLES,
    Place,
)
from experiments.quality_summary import (
    FAMILIES,
    Bar,
    Duel,
    Score,
    Summary,
    Tally,
    bars,
    far_behind,
    in_words,
    lead_in_words,
    median_seconds,
    summarise,
)
from experiments.report import seconds
from experiments.rows import write_parquet
from experiments.summary import TESTS

OURS, LOSS = COLOURS["adamab"], COLOURS["round-robin"]
_TEXT, _IMAGE = {"marker": "o"}, {"marker": "s", "markerfacecolor": "white"}


def draw(summary: Summary, directory: Path, name: str, *, note: str) -> list[Path]:
    """Both panels."""
    tallies = list(summary.tallies)
    methods = _methods(tallies)
    height = 2.3 + 0.42 * max(len(tallies), len(methods))
    with new_figure(figsize=(12.5, height)) as (figure, _):
        left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
        _leads(left, tallies)
        _ranks(right, tallies, methods)
        figure.suptitle(_title(tallies[-1]), x=0.01, ha="left", fontsize=13)
        figure.text(0.01, 0.012, note, color=QUIET, fontsize=9)
        top, bottom = 1 - 1.05 / height, 0.95 / height
        figure.subplots_adjust(left=0.09, right=0.985, bottom=bottom, top=top, wspace=0.55)
        return save_figure(figure, directory, name)


def _title(overall: Tally) -> str:
    lead = 100 * overall.lead.mean
    side = "ahead of" if lead > 0 else "behind"
    return (
        f"The default recipe is {abs(lead):.1f} points {side} the best rival of each cell on average; "
        f"wins–losses {overall.wins}–{overall.losses} in {overall.cells} cells"
    )


def _leads(axes: Any, tallies: Sequence[Tally]) -> None:
    for place, tally in enumerate(tallies):
        low, mean, high = (100 * x for x in (tally.lead.low, tally.lead.mean, tally.lead.high))
        colour = OURS if mean >= 0 else LOSS
        family = tally.name in FAMILIES
        style = {"color": colour, "markersize": 9 if family else 7, "linewidth": 2.4 if family else 1.6}
        axes.errorbar([mean], [place], xerr=[[mean - low], [high - mean]], fmt="o", capsize=3, **style)
        for x, label in ((1.08, f"{mean:+.1f}"), (1.19, f"{tally.wins}–{tally.losses}")):
            where = {"xycoords": ("axes fraction", "data"), "va": "center", "ha": "right"}
            axes.annotate(label, (x, place), fontsize=10, **where)
    axes.axvline(0, color="#333333", linewidth=1)
    for x, label in ((1.08, "lead"), (1.23, "wins–losses")):
        axes.annotate(label, (x, 1.02), xycoords="axes fraction", color=QUIET, fontsize=9, ha="right")
    _names(axes, [tally.name for tally in tallies])
    axes.set_xlabel("Points ahead, mean of the cells with 95 % interval")
    axes.set_title("Against the best rival of each cell", loc="left", fontsize=11.5, pad=16)


def _ranks(axes: Any, tallies: Sequence[Tally], methods: Sequence[str]) -> None:
    families = {"text sets": (TEXT_SETS, _TEXT), "image sets": (IMAGE_SETS, _IMAGE)}
    for name, (members, style) in families.items():
        tally = _of_family(tallies, name, members)
        if tally is None:
            continue
        rows = [(i, tally.ranks[m], m) for i, m in enumerate(methods) if m in tally.ranks]
        for place, rank, method in rows:
            axes.plot(rank, place, color=OURS if method == DEFAULT else QUIET, markersize=8, **style)
        axes.plot([], [], color=QUIET, linestyle="", markersize=8, label=name, **style)
    _names(axes, methods)
    axes.set_xlabel("Mean rank by accuracy, 1 is best")
    axes.set_title("Mean rank", loc="left", fontsize=11.5, pad=16)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), frameon=False, fontsize=9, ncols=2)


def _of_family(tallies: Sequence[Tally], name: str, members: Sequence[str]) -> Tally | None:
    """The family's tally, or that of its only set."""
    by_name = {tally.name: tally for tally in tallies}
    return by_name.get(name) or next((by_name[m] for m in members if m in by_name), None)


def _methods(tallies: Sequence[Tally]) -> list[str]:
    """The best rank over everything first."""
    overall = tallies[-1].ranks
    return sorted(overall, key=lambda method: overall[method])


def _names(axes: Any, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(axis="x", color="#E5E5E5", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)


OTHERS = Path(__file__).parent / "definitions" / "published-intents.json"
STORY = "quality-story.md"  # written by hand: what was tried; a part of the published page if it is there
_TABLE = (
    "Accuracy in %, means over cells and seeds; seeds are the fewest of a cell. Best rival: of each cell "
    "that of {rivals} with the highest accuracy, chosen afterwards, which favours the rivals. Lead: in "
    "points, with its interval. Log loss: that of ours and of the best rivals, over the cells where both "
    "were measured. Wins and losses: cells with a mean lead above and below zero; in brackets those that "
    "are significant after Holm's correction."
)
_CELLS = (
    "Accuracy in %, mean over seeds; the lead is that of `default` over the best rival, in points with its "
    "interval, bold where p is below 0.05 after the correction. A cell is a set, given samples per class, "
    "and synthetic ones per class on average with their source."
)
_KINDS = (
    "A number: so many samples of each class. uneven: five of three classes in ten, one of each other. "
    "drawn: a number from 1 to 15, drawn for each class. unseen: none of a fifth of the classes, five of "
    "the others. codes: classes called c01, c02 and so on, without descriptions."
)
_OLD_AND_NEW = (
    "The default before this one, where both were measured: accuracy in %, and log loss if it is known."
)
_BEHIND = "Cells more than two points behind the best rival with the same inputs, in points."
_OTHERS = (
    "Published by others, accuracy in %: they fine-tune or pre-train encoders on conversations, and their "
    "given samples are other draws. Collected in {source}, which says that all are the authors' "
    "own figures."
)


_CHOICES = (
    "The lead of `default`, whose synthetic samples ADAMAB chooses, over the same with other choices, in "
    "points: means over the cells of a set with synthetic samples. Not corrected for the number of sets."
)


@dataclass(frozen=True)
class Report:
    """What was written, and what it says."""

    files: tuple[Path, ...]
    summary: Summary
    bars: tuple[Bar, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data without the rows, which are in a file."""
        return {
            "files": [str(path) for path in self.files],
            "bars": [asdict(bar) for bar in self.bars],
            "tallies": [asdict(tally) for tally in self.summary.tallies],
        }


def write_report(yardstick: Yardstick, scores: Sequence[Score], directory: Path, *, command: str) -> Report:
    """Write page, JSON and figure."""
    summary, name = summarise(scores), yardstick.plan.results_name
    checked = tuple(bars(summary))
    figure = draw(summary, directory, name, note=_note(yardstick)) if summary.duels else []
    written = {
        f"{name}.md": "\n\n".join(_sections(yardstick, summary, checked, directory, command)) + "\n",
        f"{name}.json": as_document(_json(yardstick, summary, checked, command)),
    }
    for file, text in written.items():
        (directory / file).write_text(text, encoding="utf-8")
    rows = write_parquet(yardstick.measured, directory / f"{name}.rows.parquet")
    return Report((*(directory / file for file in written), rows, *figure), summary, checked)


def _json(yardstick: Yardstick, summary: Summary, checked: Sequence[Bar], command: str) -> dict[str, object]:
    return {
        "command": command,
        "adamab": __version__,
        "commits": yardstick.commits(),
        "part": yardstick.plan.part,
        "embedder": yardstick.plan.embedder,
        "bars": [asdict(bar) for bar in checked],
        "tallies": [asdict(tally) for tally in summary.tallies],
        "by_kind": [asdict(tally) for tally in summary.by_kind],
        "api_tallies": [asdict(tally) for tally in summary.api_tallies],
        "far_behind": [
            {"method": ours, "place": asdict(place), "rival": rival, "lead": lead}
            for ours in (DEFAULT, API)
            for lead, (place, _, rival) in far_behind(summary.scores, ours)
        ],
        "duels": [asdict(duel) for duel in summary.duels],
        "left_out": [asdict(cell) for cell in yardstick.left_out],
        "notes": yardstick.notes,
    }


def _note(yardstick: Yardstick) -> str:
    part = f"{yardstick.plan.part} part"
    return (
        f"{part}; cells: a set, given and synthetic samples per class. Rivals see the same samples and views."
    )


def _sections(
    yardstick: Yardstick, summary: Summary, checked: Sequence[Bar], directory: Path, command: str
) -> Iterator[str]:
    plan = yardstick.plan
    caveat, story = _by_hand(directory) if plan.name == FULL else ("", "")
    yield f"# {TITLES[plan.name]}"
    yield f"{in_words(checked)} {caveat}".strip()
    yield " ".join(lead_in_words(summary))
    yield _made_by(yardstick, command)
    if summary.duels:
        yield f"![Lead over the best rival and mean ranks]({plan.results_name}.svg)"
    yield f"## The bars\n\n{bar_table(checked).markdown()}"
    yield f"## Set by set\n\n{lead_table('Set by set', summary.tallies).markdown()}"
    yield _TABLE.format(rivals=", ".join(RIVALS))
    yield f"## By given samples\n\n{_KINDS}\n\n{lead_table('By given samples', summary.by_kind).markdown()}"
    if summary.api_tallies:
        api = lead_table("What an API embedder gives", summary.api_tallies).markdown()
        about = f"`{API}` against the best of {', '.join(ON_API)}."
        yield f"## What an API embedder gives\n\n{about}\n\n{api}"
    yield f"## Far behind\n\n{_BEHIND}\n\n{_listed(list(_behind(summary)))}"
    if old := _old_table(summary):
        yield f"## The old default\n\n{_OLD_AND_NEW}\n\n{old.markdown()}"
    if plan.name == ONCE:
        yield _published_by_others(summary)
    yield f"## Ranks\n\nMean over the cells, 1 is best.\n\n{_rank_table(summary).markdown()}"
    if choices := _choice_table(summary):
        yield f"## The choice of classes\n\n{_CHOICES}\n\n{choices.markdown()}"
    yield f"{INTERVALS.format(samples='samples')} {TESTS.format(n=len(summary.duels))}"
    if story:
        yield story
    yield f"## Every cell\n\n{_CELLS}\n\n{_cell_table(summary).markdown()}"
    yield f"## Log loss\n\nMean over seeds, lower is better.\n\n{_loss_table(summary).markdown()}"
    if setfit := _setfit_table(summary):
        yield f"## SetFit\n\nOn its own seeds; times are medians of training.\n\n{setfit.markdown()}"
    yield f"## Left out\n\n{_listed(yardstick.left_out)}"
    if yardstick.notes:
        yield f"## Notes\n\n{_listed(yardstick.notes)}"


def _by_hand(directory: Path) -> tuple[str, str]:
    """What the file of the story says before its first heading, which belongs to the bars; and the rest."""
    file = directory / STORY
    written = file.read_text(encoding="utf-8") if file.exists() else ""
    caveat, *story = re.split(r"^(?=## )", written, maxsplit=1, flags=re.MULTILINE)
    return caveat.strip(), "".join(story).strip()


def _made_by(yardstick: Yardstick, command: str) -> str:
    plan = yardstick.plan
    setting = f"{plan.seeds or SEEDS} seeds, embedder `{plan.embedder}`, {plan.part} part"
    code = ", ".join(f"`{name}`" for name in yardstick.commits()) or "unknown"
    rows = f"All rows are in `{plan.results_name}.rows.parquet`."
    return f"Made by `{command}`: {setting}. Measured by the code of commit {code}. {rows}"


def _listed(lines: Sequence[object]) -> str:
    return "\n".join(f"- {line}" for line in lines) or "Nothing."


def bar_table(checked: Sequence[Bar]) -> Table:
    """A line a bar."""
    rows = tuple((bar.name, bar.wanted, bar.measured, bar.verdict) for bar in checked)
    return Table("The bars", ("Bar", "wanted", "measured", "holds"), rows)


def lead_table(title: str, tallies: Sequence[Tally]) -> Table:
    """Leads, wins, losses and log losses, a line per group of cells."""
    header = ("Cells", "number", "seeds", "ours", "best rival", "lead", "wins", "losses")
    rows = tuple(_lead_row(tally) for tally in tallies)
    return Table(title, (*header, "log loss", "of the rivals"), rows)


def _lead_row(tally: Tally) -> tuple[str, ...]:
    return (
        tally.name,
        str(tally.cells),
        str(tally.seeds),
        _percent(tally.accuracy),
        _percent(tally.rival_accuracy),
        points(tally.lead),
        f"{tally.wins} ({tally.significant_wins})",
        f"{tally.losses} ({tally.significant_losses})",
        _loss(tally.log_loss),
        _loss(tally.rival_log_loss),
    )


def _behind(summary: Summary) -> Iterator[str]:
    for ours in (DEFAULT, API):
        for lead, (place, _, rival) in far_behind(summary.scores, ours):
            yield f"`{ours}`, {place}: {100 * lead:+.1f} ({rival})"


def _old_table(summary: Summary) -> Table | None:
    """Old and new side by side, and the difference."""
    scores, rows = summary.scores, []
    for place in scores.places():
        pairs = [(DEFAULT, OLD), (API, OLD_API)]
        known = [scores.get(place, method) for pair in pairs for method in pair]
        if known[0] and known[1]:
            lead = scores.duels([(place, DEFAULT, OLD)])[0].lead
            losses = ["" if s is None else _loss(s.log_loss) for s in known[:2]]
            accuracies = ["" if s is None else _percent(s.accuracy) for s in known]
            rows.append(
                (str(place), *accuracies[:2], points(lead).replace(" points", ""), *losses, *accuracies[2:])
            )
    header = ("Cell", DEFAULT, OLD, "difference", "log loss", f"of {OLD}", API, OLD_API)
    return Table("The old default", header, tuple(rows)) if rows else None


def _published_by_others(summary: Summary) -> str:
    """Ours and theirs in one table."""
    known = json.loads(OTHERS.read_text(encoding="utf-8"))
    cells = [tuple(cell) for cell in known["cells"]]
    header = ("Method", *(f"{name} {given}" for name, given in cells), "source")
    rows = [
        (row["method"], *("" if x is None else f"{x:.1f}" for x in row["accuracy"]), row["source"])
        for row in known["rows"]
    ]
    for method in METHODS:
        ours = [summary.scores.get(Place(name, given, 0, "none"), method) for name, given in cells]
        if any(ours):
            rows.append((f"`{method}`", *("" if s is None else _percent(s.accuracy) for s in ours), "here"))
    table = Table("Published by others", header, tuple(rows)).markdown()
    return f"## Published by others\n\n{_OTHERS.format(source=known['collected'])}\n\n{table}"


def _rank_table(summary: Summary) -> Table:
    ranked = [m for m in (DEFAULT, *RIVALS) if any(m in tally.ranks for tally in summary.tallies)]
    rows = tuple(
        (tally.name, *(f"{tally.ranks[m]:.1f}" if m in tally.ranks else "" for m in ranked))
        for tally in summary.tallies
    )
    return Table("Ranks", ("Cells", *ranked), rows)


def _loss_table(summary: Summary) -> Table:
    known = {score.method for score in summary.scores.measured if score.log_loss is not None}
    methods = [method for method in METHODS if method in known and method != SETFIT]
    rows = []
    for place in summary.scores.places():
        scores = [summary.scores.get(place, method) for method in methods]
        rows.append((str(place), *("" if s is None else _loss(s.log_loss) for s in scores)))
    return Table("Log loss", ("Cell", *methods), tuple(rows))


def _loss(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _cell_table(summary: Summary) -> Table:
    known = {score.method for score in summary.scores.measured}
    methods = [method for method in METHODS if method in known and method != SETFIT]
    duels = {duel.place: duel for duel in summary.duels}
    rows = tuple(
        (str(place), *_accuracies(summary, place, methods), *_fought(duels.get(place)))
        for place in summary.scores.places()
    )
    return Table("Every cell", ("Cell", *methods, "best rival", "lead"), rows)


def _accuracies(summary: Summary, place: Place, methods: Sequence[str]) -> Iterator[str]:
    for method in methods:
        score = summary.scores.get(place, method)
        yield "" if score is None else _percent(score.accuracy)


def _fought(duel: Duel | None) -> tuple[str, str]:
    if duel is None:
        return "", ""
    lead = points(duel.lead).replace(" points", "")
    return duel.rival, f"**{lead}**" if duel.significant else lead


def _setfit_table(summary: Summary) -> Table | None:
    scores = summary.scores
    duels = scores.duels(scores.pairs(scores.places(), SETFIT))
    rows = []
    for duel in duels:
        times = [seconds(median_seconds(scores, duel.place, method)) for method in (SETFIT, DEFAULT)]
        rows.append((str(duel.place), *_accuracies(summary, duel.place, [SETFIT]), points(duel.lead), *times))
    header = ("Cell", "SetFit", "lead of default", "seconds of SetFit", "seconds of default")
    return Table("SetFit", header, tuple(rows)) if rows else None


def _choice_table(summary: Summary) -> Table | None:
    """Leads of ADAMAB's choice set by set, over the cells where something is chosen."""
    scores, rows = summary.scores, []
    for name in SETS:
        places = [place for place in scores.places() if place.set == name]
        leads = [scores.mean_lead(scores.pairs(places, other)) for other in (EVENLY, RANDOM)]
        if any(leads):
            rows.append((name, *("" if lead is None else points(lead) for lead in leads)))
    return Table("The choice of classes", ("Set", EVENLY, RANDOM), tuple(rows)) if rows else None


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"
