"""What a fit has spent, for people: in all, by purpose and by class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from adamab.cli.console import counted, echo, print_table

_ROWS = 15
_COLUMNS = ("class", "calls#", "tokens#", "cost#", "samples#", "cost a sample#")


def print_spending(summary: Mapping[str, Any]) -> None:
    """Nothing where nothing was called."""
    spent = summary.get("spent", {})  # not there in runs of earlier versions
    if not spent.get("calls"):
        return
    for line in spending_lines(summary):
        echo(line)
    if spent["by_class"]:
        print_table(_COLUMNS, _rows(spent["by_class"], summary["synthetic_by_class"]))


def spending_lines(summary: Mapping[str, Any]) -> Iterator[str]:
    """In all and by purpose, what was cut off, and what was fetched for nothing."""
    spent = summary["spent"]
    tokens = f"{spent['input_tokens']:,} tokens in and {spent['output_tokens']:,} out"
    yield f"spent: {_calls(spent)}, {tokens}{_total(spent)}"
    if len(spent["by_purpose"]) > 1:
        parts = (f"{purpose} {_calls(part)}{_money(part)}" for purpose, part in spent["by_purpose"].items())
        yield f"by purpose: {'; '.join(parts)}"
    if unsettled := spent["unsettled"]:
        were = "call was cut off; it is" if unsettled == 1 else "calls were cut off; they are"
        yield f"{unsettled} {were} counted at the full price"
    if unused := summary.get("unused_batches"):
        were = "was not needed; it stays" if unused == 1 else "were not needed; they stay"
        batches = "1 batch" if unused == 1 else f"{unused} batches"
        yield f"{batches} fetched ahead {were} in the run, and in the cache unless that is off"


def _rows(
    by_class: Mapping[str, Mapping[str, Any]], samples: Mapping[str, int]
) -> Iterator[tuple[object, ...]]:
    """The dearest first; those beyond the last row together."""
    ordered = sorted(by_class.items(), key=lambda item: (-item[1]["usd"], -_tokens(item[1]), item[0]))
    for name, spend in ordered[:_ROWS]:
        yield _row(name, spend, samples.get(name, 0))
    if rest := ordered[_ROWS:]:
        keys = ("usd", "calls", "input_tokens", "output_tokens")
        together = {key: sum(spend[key] for _, spend in rest) for key in keys}
        yield _row(f"and {len(rest)} more", together, sum(samples.get(name, 0) for name, _ in rest))


def _row(name: str, spend: Mapping[str, Any], samples: int) -> tuple[object, ...]:
    from adamab.task.messages import one_line

    each = _usd(spend["usd"] / samples) if samples and spend["usd"] else "-"
    cost = _usd(spend["usd"]) if spend["usd"] else "-"
    return one_line(name), spend["calls"], f"{_tokens(spend):,}", cost, samples, each


def _total(spent: Mapping[str, Any]) -> str:
    unpriced = [p for p, part in spent["by_purpose"].items() if _tokens(part) and not part["usd"]]
    if not spent["usd"]:
        return ""  # a price of nothing, or no price: nobody asked for money
    return _money(spent) + (f" ({', '.join(unpriced)} without a price)" if unpriced else "")


def _calls(spend: Mapping[str, Any]) -> str:
    return counted(spend["calls"], "call")


def _money(spend: Mapping[str, Any]) -> str:
    return f", {_usd(spend['usd'])}" if spend["usd"] else ""


def _tokens(spend: Mapping[str, Any]) -> int:
    return int(spend["input_tokens"] + spend["output_tokens"])


def _usd(amount: float) -> str:
    from adamab.providers.budget import NANO
    from adamab.providers.prices import usd

    return usd(round(amount * NANO))
