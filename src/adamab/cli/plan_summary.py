"""What `adamab fit --dry-run` says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from adamab.cli.console import counted, echo, print_table, say

if TYPE_CHECKING:
    from adamab.run.plan import Amount, Ending, Party, Plan

_COLUMNS = ("purpose", "", "calls#", "input tokens#", "output tokens#", "cost#")


def print_plan(plan: Plan) -> None:
    """The plan for people; what is lacking goes to stderr."""
    from adamab.task.messages import one_line

    for line in _before(plan):
        echo(one_line(line))
    remote = [party for party in plan.parties if party.host is not None]
    if not remote:
        return
    print_table(_COLUMNS, _rows(plan, remote))
    for line in _after(plan):
        echo(one_line(line))
    for lacking in dict.fromkeys(party.lacking for party in remote if party.lacking):
        say(f"note: {lacking}")


def _before(plan: Plan) -> Iterator[str]:
    given = counted(plan.given, "given sample")
    rounds = counted(plan.rounds, "round")
    new = f", {counted(plan.samples, 'new one')} in {rounds}" if plan.rounds else ""
    yield f"{plan.task}: {plan.classes} classes, {given}{new}; nothing is sent now"
    if all(party.host is None for party in plan.parties):
        yield "no calls, nothing leaves the machine"
        return
    for party in plan.parties:
        yield f"{party.purpose} with {party.spec}: {_where(party)}"


def _where(party: Party) -> str:
    from adamab.providers.services import host_of, is_loopback

    if party.host is None:
        return "no calls, nothing leaves the machine"
    here = " (this machine)" if is_loopback(host_of(f"//{party.host}")) else ""
    return f"{_listed(party.sends)} go to {party.host}{here}"


def _rows(plan: Plan, remote: Sequence[Party]) -> Iterator[tuple[str, ...]]:
    for party in remote:
        yield party.purpose, "expected", *_cells(party.expected)
        yield "", "at most", *_cells(party.at_most)
    if len(remote) > 1:
        yield "in all", "expected", *_cells(plan.expected)
        yield "", "at most", *_cells(plan.at_most)


def _cells(amount: Amount) -> tuple[str, ...]:
    usage = amount.usage
    return f"{amount.calls:,}", f"{usage.input_tokens:,}", f"{usage.output_tokens:,}", cost(amount)


def _after(plan: Plan) -> Iterator[str]:
    worst = (
        "every batch is as long, and asked for again as often, as it may be" if plan.rounds else "by bytes"
    )
    if plan.at_most.usage.images:
        expected, most = plan.expected.usage.images, plan.at_most.usage.images
        yield f"pictures: {expected:,} expected, {most:,} at most"
    yield f"at most: {worst}; calls that fail and are tried again come on top"
    if plan.cached:
        yield f"{_known(plan)} vectors in the cache already and cost nothing"
    yield "a run that is taken up, and answers that the cache holds, make it cheaper"
    unknown = [p for p in plan.parties if p.host is not None and p.price is None]
    if unknown:
        model = unknown[0].spec.partition(":")[2]
        pictures = f", or a picture: --price '{model}=USD/image'" if unknown[0].makes_images else ""
        yield (
            f"the price of {_listed([p.spec for p in unknown])} is unknown; give it in usd a million "
            f"tokens: --price '{model}=INPUT/OUTPUT'{pictures}"
        )
    yield verdict(plan)


def _known(plan: Plan) -> str:
    one, many = ("text", "texts") if plan.modality == "text" else ("picture or text", "pictures and texts")
    return f"1 known {one} has" if plan.cached == 1 else f"{plan.cached} known {many} have"


def verdict(plan: Plan) -> str:
    """Whether the budget allows what is planned."""
    caps = [str(cap) for cap in _caps(plan)]
    money = "" if plan.expected.nano_usd is None else f" and {cost(plan.expected)}"
    figures = f"expected {counted(plan.expected.calls, 'call')}{money}"
    if plan.ending is not None:
        return f"{figures}; {_ends(plan.ending, plan.rounds)}"
    if not caps:
        return f"{figures}; there is no cap on money or calls: set one with --budget '1.50 usd, 500 calls'"
    sure = ", even at most" if _allows_most(plan) else ", and ends generation should it need more"
    return f"{figures}; the budget of {', '.join(caps)} allows it{sure}"


def _ends(ending: Ending, rounds: int) -> str:
    budget = f"the budget of {ending.cap}"
    if ending.rounds is None:
        return f"{budget} does not suffice for the given samples, so a fit would fail; raise it"
    if ending.rounds == 0:
        return f"{budget} ends generation before the first of {counted(rounds, 'round')}"
    samples = counted(ending.samples, "sample")
    return f"{budget} ends generation after about {ending.rounds} of {counted(rounds, 'round')} ({samples})"


def _caps(plan: Plan) -> list[object]:
    from adamab.providers.budget import Budget

    caps = [Budget(usd=plan.budget.usd), Budget(calls=plan.budget.calls)]
    return [cap for cap in caps if cap != Budget()]


def _allows_most(plan: Plan) -> bool:
    most, calls, nano_usd = plan.at_most, plan.budget.calls, plan.budget.nano_usd
    return (calls is None or most.calls <= calls) and (
        nano_usd is None or (most.nano_usd is not None and most.nano_usd <= nano_usd)
    )


def cost(amount: Amount) -> str:
    """Money for people; nothing is called free that has no price."""
    from adamab.providers.prices import usd

    return "unknown" if amount.nano_usd is None else usd(amount.nano_usd)


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
