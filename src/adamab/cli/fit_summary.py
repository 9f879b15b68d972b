"""What `adamab fit` says at its end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from adamab.cli.console import counted, echo, percent, say

_SHOWN = 5


def print_summary(run: Path, summary: dict[str, Any]) -> None:
    """The summary for people; warnings go to stderr."""
    from adamab.task.messages import one_line

    for line in _lines(run, summary):
        echo(one_line(line))
    warning = long_text_warning(summary["overlong"], summary["embedder"]["spec"])
    if warning:
        say(warning)


def long_text_warning(count: int, embedder: str) -> str:
    """The line about texts longer than the embedder takes; empty where there are none."""
    if not count:
        return ""
    texts = "1 text is" if count == 1 else f"{count} texts are"
    if embedder.endswith("=average"):
        return f"note: {texts} longer than the embedder takes; the average of the pieces stands for each"
    return (
        f"warning: {texts} longer than the embedder takes, and what goes beyond is not seen; "
        "fit with --long-texts average to use all of it"
    )


def _lines(run: Path, summary: dict[str, Any]) -> Iterator[str]:
    name = summary["task"]["name"]
    given = counted(summary["given"], "given sample")
    yield f"{name}: {summary['classes']} classes, {given}" + _synthetic(summary)
    if repeats := summary["repeats"]:
        yield f"{counted(repeats, 'repeated example')} {'was' if repeats == 1 else 'were'} left out"
    yield f"views that count: {', '.join(summary['views'])}"
    yield _estimate(summary)
    yield from _closed(summary["closed"])
    yield f"{summary['seconds']:.1f} seconds; the run is in {run}"
    yield f"next: adamab evaluate {run} LABELLED.csv   or: adamab predict {run} TEXTS.csv -o OUT.csv"


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


def _closed(closed: dict[str, str]) -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    for name, reason in closed.items():
        reasons.setdefault(reason, []).append(name)
    for reason, names in reasons.items():
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        yield f"closed: {', '.join(names[:_SHOWN])}{more} ({reason})"
