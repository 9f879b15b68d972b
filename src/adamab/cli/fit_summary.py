"""What `adamab fit` says at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from adamab.cli.console import counted, echo, percent, say
from adamab.cli.spending import print_spending

_SHOWN = 5
_ALIKE = 0.5  # synthetic samples with less than this share of the given ones' diversity are much alike
_NAMED = 3
_NEAR_ON_PURPOSE = ("noise", "transform")  # generators that stay close to the given samples
_LIKENESS_REMEDY = {
    "text": "more varied examples or a higher --set temperature=… may help",
    "image": "more varied examples, or another generator, may help",
}
_INPUTS = {"text": ("LABELLED.csv", "TEXTS.csv"), "image": ("LABELLED-FOLDER", "FOLDER")}


def print_summary(run: Path, summary: dict[str, Any]) -> None:
    """The summary for people; warnings go to stderr."""
    from adamab.task.messages import one_line

    for line in _result(summary):
        echo(one_line(line))
    print_spending(summary)
    for line in _last(run, summary):
        echo(one_line(line))
    overlong = long_text_warning(summary["overlong"], summary["embedder"]["spec"])
    for warning in filter(None, (overlong, likeness_warning(summary))):
        say(one_line(warning))


def long_text_warning(count: int, embedder: str) -> str:
    """The line about texts longer than the embedder takes; empty where there are none."""
    if not count:
        return ""
    texts = "1 text is" if count == 1 else f"{count} texts are"
    if embedder.endswith("=average"):
        return f"note: {texts} longer than the embedder takes; the average of the pieces stands for each"
    warning = f"warning: {texts} longer than the embedder takes, and what goes beyond is not seen"
    averages = embedder.partition("?")[0].partition(":")[0] in ("local", "st")
    return f"{warning}; fit with --long-texts average to use all of it" if averages else warning


def likeness_warning(summary: Mapping[str, Any]) -> str:
    """The line about classes whose synthetic samples repeat each other; empty where there are none."""
    if summary["generator"].startswith(_NEAR_ON_PURPOSE):
        return ""
    figures = summary.get("diversity", {}).items()  # not there in runs of earlier versions
    alike = [
        name
        for name, f in figures
        if f["given"] and f["synthetic"] is not None and f["synthetic"] < _ALIKE * f["given"]
    ]
    if not alike:
        return ""
    return (
        f"warning: the synthetic samples of {_named(alike, _NAMED)} are much more alike than the given ones; "
        + _LIKENESS_REMEDY[summary["task"].get("modality", "text")]
    )


def _result(summary: dict[str, Any]) -> Iterator[str]:
    name = summary["task"]["name"]
    given = counted(summary["given"], "given sample")
    yield f"{name}: {summary['classes']} classes, {given}" + _synthetic(summary)
    if repeats := summary["repeats"]:
        yield f"{counted(repeats, 'repeated example')} {'was' if repeats == 1 else 'were'} left out"
    yield f"views that count: {', '.join(summary['views'])}"
    yield _estimate(summary)
    yield from _kept_out(summary.get("rejected", {}))
    if refused := summary.get("refused"):
        yield f"refused by the generator: {_counts(refused)}"
    yield from _closed(summary["closed"])
    yield from _short_of(summary)
    if ended := summary.get("ended"):
        yield f"generation ended early: {ended}"


def _short_of(summary: Mapping[str, Any]) -> Iterator[str]:
    """A budget of samples that was not reached; why stands beside it."""
    from adamab.providers.budget import Budget

    wanted = Budget.parse(summary.get("budget")).samples
    if wanted is not None and summary["synthetic"] < wanted:
        yield f"short of the budget: {summary['synthetic']} of {counted(wanted, 'sample')}"


def _last(run: Path, summary: dict[str, Any]) -> Iterator[str]:
    took = "" if summary.get("complete") else f"{summary['seconds']:.1f} seconds; "
    yield f"{took}the run is in {run}"
    labelled, new = _INPUTS[summary["task"].get("modality", "text")]
    yield f"next: adamab evaluate {run} {labelled}   or: adamab predict {run} {new} -o OUT.csv"
    yield f"look into it: adamab serve {run}   or: adamab report {run}"


def _synthetic(summary: dict[str, Any]) -> str:
    if summary["generator"] == "none":
        return ""
    synthetic, rounds = counted(summary["synthetic"], "synthetic one"), counted(summary["rounds"], "round")
    return f", {synthetic} in {rounds} ({summary['policy']})"


def _estimate(summary: dict[str, Any]) -> str:
    estimate = summary["estimate"]
    if estimate is None:
        return (
            "expected accuracy: unknown, too few given samples to hold some out (or a recipe without folds)"
        )
    low, high = percent(estimate["low"]), percent(estimate["high"])
    alone = " alone, without the synthetic ones" if summary["synthetic"] else ""
    return (
        f"expected accuracy: {percent(estimate['accuracy'])} (95 % interval {low} to {high}, out of fold, "
        f"measured on {estimate['n']} given samples{alone})"
    )


def _kept_out(rejected: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    reasons: Counter[str] = Counter()
    for counts in rejected.values():
        reasons.update(counts)
    if reasons:
        why = ", ".join(f"{n} {_plural(reason, n)}" for reason, n in reasons.most_common())
        by_class = {name: sum(counts.values()) for name, counts in rejected.items()}
        yield f"kept out by the quality gate: {why} ({_counts(by_class)})"


def _plural(reason: str, count: int) -> str:
    return f"{reason}s" if count > 1 and reason in ("near duplicate", "repeat", "refusal") else reason


def _counts(by_class: Mapping[str, int]) -> str:
    ordered = sorted(by_class.items(), key=lambda item: -item[1])
    return _named([f"{name} {n}" for name, n in ordered], _SHOWN)


def _named(names: Sequence[str], most: int) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _closed(closed: dict[str, str]) -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    for name, reason in closed.items():
        reasons.setdefault(reason, []).append(name)
    for reason, names in reasons.items():
        yield f"closed: {_named(names, _SHOWN)} ({reason})"
