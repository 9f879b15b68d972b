"""What `adamab fit` says at its end, and what its dry run says: samples, calls, money."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adamab.cli.console import counted, echo, percent, print_json, print_table, say
from adamab.errors import one_line

if TYPE_CHECKING:
    from adamab.run.plan import Amount, Ending, Party, Plan

_ROWS = 15
_SPENDING_COLUMNS = ("class", "calls#", "tokens#", "cost#", "samples#", "cost per sample#")


def spending_lines(summary: Mapping[str, Any]) -> Iterator[str]:
    """In all and by purpose, what was cut off, and what was fetched for nothing."""
    spent = summary["spent"]
    tokens = f"{spent['input_tokens']:,} tokens in and {spent['output_tokens']:,} out"
    yield f"spent: {_calls(spent)}, {tokens}{_total(spent)}"
    if len(spent["by_purpose"]) > 1:
        parts = (f"{purpose} {_calls(part)}{_money(part)}" for purpose, part in spent["by_purpose"].items())
        yield f"by purpose: {'; '.join(parts)}"
    if spent["unsettled"]:
        yield f"cut off, and counted at the full price: {counted(spent['unsettled'], 'call')}"
    if unused := summary.get("unused_batches"):
        yield f"batches fetched ahead and not needed: {unused}; kept in the run, and in the cache unless off"


def _spending_rows(
    by_class: Mapping[str, Mapping[str, Any]], samples: Mapping[str, int]
) -> Iterator[tuple[object, ...]]:
    """The dearest first; those beyond the last row together."""
    ordered = sorted(by_class.items(), key=lambda item: (-item[1]["usd"], -_tokens(item[1]), item[0]))
    rows = [(name, spend, samples.get(name, 0)) for name, spend in ordered[:_ROWS]]
    if rest := ordered[_ROWS:]:
        keys = ("usd", "calls", "input_tokens", "output_tokens")
        together = {key: sum(spend[key] for _, spend in rest) for key in keys}
        rows.append((f"and {len(rest)} more", together, sum(samples.get(name, 0) for name, _ in rest)))
    for name, spend, count in rows:
        each = _usd(spend["usd"] / count) if count and spend["usd"] else "-"
        cost = _usd(spend["usd"]) if spend["usd"] else "-"
        yield one_line(name), spend["calls"], f"{_tokens(spend):,}", cost, count, each


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
    from adamab.providers.metering import NANO, usd

    return usd(round(amount * NANO))


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
    for line in _result(summary):
        echo(one_line(line))
    spent = summary["spent"]
    if spent["calls"]:
        for line in spending_lines(summary):
            echo(line)
        if spent["by_class"]:
            samples = {**summary.get("set_aside", {}), **summary["synthetic_by_class"]}
            print_table(_SPENDING_COLUMNS, _spending_rows(spent["by_class"], samples))
    took = "" if summary.get("complete") else f"{summary['seconds']:.1f} seconds; "
    labelled, new = _INPUTS[summary["task"].get("modality", "text")]
    echo(one_line(f"{took}the run is in {run}"))
    echo(one_line(f"next: adamab evaluate {run} {labelled}   or: adamab predict {run} {new} -o OUT.csv"))
    echo(one_line(f"look into it: adamab serve {run}   or: adamab report {run}"))
    if summary["overlong"]:
        say(long_text_warning(summary["overlong"], summary["embedder"]["spec"]))
    if summary["synthetic"] and (warning := likeness_warning(summary)):
        say(one_line(warning))


def long_text_warning(count: int, embedder: str) -> str:
    """The line about texts longer than the embedder takes."""
    texts = "1 text is" if count == 1 else f"{count} texts are"
    if embedder.endswith("=average"):
        return f"note: {texts} longer than the embedder takes; the average of the pieces stands for each"
    warning = f"warning: {texts} longer than the embedder takes, and what goes beyond is not seen"
    averages = embedder.partition("?")[0].partition(":")[0] in ("local", "st", "onnx-text")
    return f"{warning}; fit with --long-texts average to use all of it" if averages else warning


def likeness_warning(summary: Mapping[str, Any]) -> str:
    """The line about classes whose synthetic samples repeat each other; empty where there are none."""
    if summary["generator"].startswith(_NEAR_ON_PURPOSE):
        return ""
    alike = [
        name
        for name, f in summary["diversity"].items()
        if f["given"] and f["synthetic"] is not None and f["synthetic"] < _ALIKE * f["given"]
    ]
    if not alike:
        return ""
    return (
        f"warning: the synthetic samples of {_named(alike, _NAMED)} are much more alike than the given ones; "
        + _LIKENESS_REMEDY[summary["task"].get("modality", "text")]
    )


def _result(summary: dict[str, Any]) -> Iterator[str]:
    from adamab.providers.metering import Budget

    samples = counted(summary["given"], "given sample")
    if summary["generator"] != "none":
        rounds = counted(summary["rounds"], "round")
        samples += f", {counted(summary['synthetic'], 'synthetic one')} in {rounds} ({summary['policy']})"
    yield f"{summary['task']['name']}: {summary['classes']} classes, {samples}"
    if repeats := summary["repeats"]:
        yield f"{counted(repeats, 'repeated example')} {'was' if repeats == 1 else 'were'} left out"
    yield f"views that count: {', '.join(summary['views'])}"
    estimate = summary["estimate"]
    if estimate is None:
        yield "expected accuracy: unknown, too few given samples to hold some out (or a recipe without refit)"
    else:
        low, high = percent(estimate["low"]), percent(estimate["high"])
        alone = " alone, without the synthetic ones" if summary["synthetic"] else ""
        yield (
            f"expected accuracy: {percent(estimate['accuracy'])} if all classes are equally frequent (95 % "
            f"interval {low} to {high}, out of fold, measured on {estimate['n']} given samples{alone})"
        )
        if lacking := summary["classes"] - estimate["n_classes"]:
            yield (
                f"{lacking} of {summary['classes']} classes had no sample to hold out; the expected accuracy "
                "leaves them out and may be too high"
            )
    if any(summary["rejected"].values()):
        yield _kept_out(summary["rejected"])
    if reused := summary.get("reused"):
        these = counted(sum(reused.values()), "synthetic sample")
        yield f"bought before and reused: {these} ({_counts(reused)})"
    if aside := summary.get("set_aside"):
        these = f"{counted(sum(aside.values()), 'synthetic sample')} ({_counts(aside)})"
        yield f"kept in the run, but out of training, for want of their class: {these}"
    if refused := summary["refused"]:
        yield f"refused by the generator: {_counts(refused)}"
    closed: dict[str, list[str]] = {}
    for name, reason in summary["closed"].items():
        closed.setdefault(reason, []).append(name)
    for reason, names in closed.items():
        yield f"closed: {_named(names, _SHOWN)} ({reason})"
    budget = Budget.parse(summary.get("budget")).samples
    bought = summary["synthetic"] + sum(summary.get("set_aside", {}).values())
    if budget is not None and bought < budget:  # why stands beside it
        yield f"short of the budget: {bought} of {counted(budget, 'sample')}"
    if ended := summary.get("ended"):
        yield f"generation ended early: {ended}"


def _kept_out(rejected: Mapping[str, Mapping[str, int]]) -> str:
    reasons: Counter[str] = Counter()
    for counts in rejected.values():
        reasons.update(counts)
    countable = ("near duplicate", "repeat", "refusal")
    why = ", ".join(
        counted(n, reason) if reason in countable else f"{n} {reason}" for reason, n in reasons.most_common()
    )
    by_class = {name: sum(counts.values()) for name, counts in rejected.items()}
    return f"kept out by the quality gate: {why} ({_counts(by_class)})"


def _counts(by_class: Mapping[str, int]) -> str:
    ordered = sorted(by_class.items(), key=lambda item: -item[1])
    return _named([f"{name} {n}" for name, n in ordered], _SHOWN)


def _named(names: Sequence[str], most: int) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


_COLUMNS = ("purpose", "", "calls#", "input tokens#", "output tokens#", "cost#")


def print_plan(plan: Plan, *, as_json: bool = False) -> None:
    """The plan for people or as JSON; what is lacking goes to stderr."""
    if as_json:
        print_json(plan.to_json())
        return
    given, rounds = counted(plan.given, "given sample"), counted(plan.rounds, "round")
    new = f", {counted(plan.samples, 'new one')} in {rounds}" if plan.rounds else ""
    echo(one_line(f"{plan.task}: {plan.classes} classes, {given}{new}; nothing is sent now"))
    remote = [party for party in plan.parties if party.host is not None]
    if not remote:
        echo("no calls, nothing leaves the machine")
        return
    for party in plan.parties:
        echo(one_line(f"{party.purpose} with {party.spec}: {_where(party)}"))
    print_table(_COLUMNS, _rows(plan, remote))
    for line in _after(plan):
        echo(one_line(line))
    for lacking in dict.fromkeys(party.lacking for party in remote if party.lacking):
        say(f"note: {lacking}")


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
        yield f"images: {expected:,} expected, {most:,} at most"
    yield f"at most: {worst}; calls that fail and are tried again come on top"
    if plan.cached:
        one, many = ("text", "texts") if plan.modality == "text" else ("image or text", "images and texts")
        cached = f"1 known {one} has" if plan.cached == 1 else f"{plan.cached} known {many} have"
        yield f"{cached} vectors in the cache already and cost nothing"
    yield "a resumed run, and answers in the cache, make it cheaper"
    unknown = [p for p in plan.parties if p.host is not None and p.price is None]
    if unknown:
        model = unknown[0].spec.partition(":")[2]
        images = f", or an image: --price '{model}=USD/image'" if unknown[0].makes_images else ""
        yield (
            f"the price of {_listed([p.spec for p in unknown])} is unknown; give it in usd per million "
            f"tokens: --price '{model}=INPUT/OUTPUT'{images}"
        )
    yield verdict(plan)


def verdict(plan: Plan) -> str:
    """Whether the budget allows what is planned."""
    from adamab.providers.metering import Budget

    budget = Budget(usd=plan.budget.usd, calls=plan.budget.calls)
    money = "" if plan.expected.nano_usd is None else f" and {cost(plan.expected)}"
    figures = f"expected {counted(plan.expected.calls, 'call')}{money}"
    if plan.ending is not None:
        return f"{figures}; {_ends(plan.ending, plan.rounds)}"
    if budget == Budget():
        return f"{figures}; there is no cap on money or calls: set one with --budget '1.50 usd, 500 calls'"
    most, money_cap = plan.at_most, budget.nano_usd
    enough = (budget.calls is None or most.calls <= budget.calls) and (
        money_cap is None or (most.nano_usd is not None and most.nano_usd <= money_cap)
    )
    sure = ", even at most" if enough else ", and ends generation should it need more"
    return f"{figures}; the budget of {budget} allows it{sure}"


def _ends(ending: Ending, rounds: int) -> str:
    budget = f"the budget of {ending.cap}"
    if ending.rounds is None:
        return f"{budget} does not suffice for the given samples, so a fit would fail; raise it"
    if ending.rounds == 0:
        return f"{budget} ends generation before the first of {counted(rounds, 'round')}"
    samples = counted(ending.samples, "sample")
    return f"{budget} ends generation after about {ending.rounds} of {counted(rounds, 'round')} ({samples})"


def cost(amount: Amount) -> str:
    """Money for people; nothing is called free that has no price."""
    from adamab.providers.metering import usd

    return "unknown" if amount.nano_usd is None else usd(amount.nano_usd)


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
