"""What a fit would call and cost, worked out without sending anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from adamab.errors import ApiError
from adamab.providers.budget import NANO, Budget
from adamab.providers.prices import Price, check_prices, find_price
from adamab.providers.usage import Usage
from adamab.run.fit import configure, settled
from adamab.run.fit_run import Order, check_holdout
from adamab.run.outside import priced
from adamab.run.planned_calls import EMBED, GENERATE, AtMost, PlannedCall, PlannedCalls

if TYPE_CHECKING:
    from adamab.providers.embedders.base import Modality
    from adamab.providers.generators.base import Generator
    from adamab.providers.http import ApiClient


@dataclass(frozen=True)
class Amount:
    """Calls, what they use and their cost; None where a price is unknown."""

    calls: int = 0
    usage: Usage = field(default_factory=Usage)
    nano_usd: int | None = 0

    def __add__(self, other: Amount) -> Amount:
        costs = self.nano_usd, other.nano_usd
        cost = None if costs[0] is None or costs[1] is None else costs[0] + costs[1]
        return Amount(self.calls + other.calls, self.usage + other.usage, cost)

    @classmethod
    def of(cls, usage: Usage, price: Price | None, times: int = 1) -> Amount:
        """Of `times` equal calls."""
        return cls(times, usage.times(times), None if price is None else times * price.nano_usd(usage))

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "calls": self.calls,
            "input_tokens": self.usage.input_tokens,
            "output_tokens": self.usage.output_tokens,
            "images": self.usage.images,
            "usd": None if self.nano_usd is None else self.nano_usd / NANO,
        }


@dataclass(frozen=True)
class Party:
    """One of the two that a fit asks: what it would be sent, where it is, and what that costs."""

    purpose: str  # embed or generate
    spec: str
    sends: tuple[str, ...] = ()
    host: str | None = None  # None where nothing leaves the machine
    price: Price | None = None
    makes_images: bool = False
    lacking: str | None = None  # what a fit needs and is not there, such as a key
    expected: Amount = Amount()
    at_most: Amount = Amount()

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        price = self.price
        return {
            "spec": self.spec,
            "host": self.host,
            "sends": list(self.sends),
            "usd_a_million_tokens": None
            if price is None
            else {"input": float(price.input), "output": float(price.output)},
            "usd_an_image": None if price is None or price.image is None else float(price.image),
            "lacking": self.lacking,
            "expected": self.expected.to_json(),
            "at_most": self.at_most.to_json(),
        }


@dataclass(frozen=True)
class Ending:
    """The cap that is reached first, and after how many rounds and samples.

    Where `rounds` is None the cap does not even suffice for the given samples, and a fit would fail.
    """

    cap: Budget
    rounds: int | None
    samples: int = 0

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {"cap": str(self.cap), "rounds": self.rounds, "samples": self.samples}


@dataclass(frozen=True)
class Plan:
    """Of a run that is begun anew; what it finds in the cache of answers makes it cheaper."""

    task: str
    classes: int
    given: int
    rounds: int
    samples: int
    cached: int  # known texts and pictures whose vectors are in the cache
    parties: tuple[Party, ...]
    budget: Budget
    ending: Ending | None
    modality: Modality = "text"  # of the task

    @property
    def expected(self) -> Amount:
        """If nothing goes wrong."""
        return sum((party.expected for party in self.parties), Amount())

    @property
    def at_most(self) -> Amount:
        """If the generator writes as badly as it may; calls that fail and are tried again are not in it."""
        return sum((party.at_most for party in self.parties), Amount())

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "task": self.task,
            "classes": self.classes,
            "given": self.given,
            "rounds": self.rounds,
            "samples": self.samples,
            "cached_texts": self.cached,
            "expected": self.expected.to_json(),
            "at_most": self.at_most.to_json(),
            "by_purpose": {party.purpose: party.to_json() for party in self.parties},
            "budget": None if self.budget == Budget() else str(self.budget),
            "ends_early": None if self.ending is None else self.ending.to_json(),
        }


def plan_fit(order: Order) -> Plan:
    """What `order` would call, where, and what that would cost; needs no key and touches nothing.

    Raises what a fit would raise before its first call, but for a missing key, which the plan names.
    """
    check_holdout(order.task, order.holdout)
    parties = _parties(order)
    check_prices(
        order.caps,
        {party.spec: party.price for party in parties if party.host is not None},
        makes_images=[party.spec for party in parties if party.makes_images],
    )
    _prepare(order)
    planned = PlannedCalls(order)
    calls, most = planned.expected(), planned.at_most()
    return Plan(
        task=order.task.name,
        classes=len(order.task.classes),
        given=len(order.task.samples),
        rounds=len(planned.sizes),
        samples=sum(planned.sizes),
        cached=planned.cached,
        parties=tuple(_with_amounts(party, calls, most) for party in parties),
        budget=order.caps,
        ending=_ending(order.caps, calls, planned.sizes, {p.purpose: p.price for p in parties}),
        modality=order.task.modality,
    )


def _prepare(order: Order) -> None:
    """What a fit does with a generator before the first call; a key is not asked for."""
    generator = order.generator
    if generator is None:
        return
    if generator.api is None:
        generator.check(order.task.class_names)
    configure(generator, order.task, settled(order.recipe, order.task, order.caps), seed=order.seed)


def _parties(order: Order) -> list[Party]:
    found = {id(api): price for api, price in priced(order.embedder, order.generator, order.prices)}
    asked = [(EMBED, order.embedder_spec, order.embedder.api, _embedded(order))]
    if order.generator is not None:
        asked.append((GENERATE, order.generator_spec, order.generator.api, _told(order.generator)))
    return [
        Party(purpose, spec)
        if api is None
        else replace(_remote(purpose, api, sends, found[id(api)]), makes_images=_draws(purpose, order))
        for purpose, spec, api, sends in asked
    ]


def _draws(purpose: str, order: Order) -> bool:
    return purpose == GENERATE and order.generator is not None and order.generator.modality == "image"


def _embedded(order: Order) -> Iterator[str]:
    """What an embedder is sent."""
    samples = "pictures" if order.task.modality == "image" else "samples"
    yield f"the given {samples}"
    if "text" in order.embedder.modalities:
        yield "the classes' wordings"
    if order.generator is not None and not order.generator.yields_vectors:
        yield f"the new {samples}"


def _told(generator: Generator) -> Iterator[str]:
    """What a generator is sent; one that draws is shown no picture."""
    yield "the classes' names and descriptions"
    if generator.modality == "text":
        yield "the given samples"
        yield "the new samples"


def remote_party(
    purpose: str,
    api: ApiClient,
    sends: Iterable[str],
    usages: Iterable[tuple[Usage, Usage]],
    prices: Mapping[str, Price],
) -> Party:
    """Somebody who would be asked, with what each call should use and the most that it may."""
    price = find_price(api.service.name, api.model, prices, address=api.service.base_url)
    calls = list(usages)
    return replace(
        _remote(purpose, api, sends, price),
        expected=_total(Amount.of(usual, price) for usual, _ in calls),
        at_most=_total(Amount.of(bound, price) for _, bound in calls),
    )


def _remote(purpose: str, api: ApiClient, sends: Iterable[str], price: Price | None) -> Party:
    lacking = None
    try:
        api.check()
    except ApiError as error:
        lacking = str(error)
    host = urlsplit(api.service.base_url).netloc
    spec = f"{api.service.name}:{api.model}"
    return Party(purpose, spec, tuple(sends), host, price, lacking=lacking)


def _with_amounts(party: Party, calls: Iterable[PlannedCall], most: Iterable[AtMost]) -> Party:
    purpose, price = party.purpose, party.price
    return replace(
        party,
        expected=_total(Amount.of(call.expected, price) for call in calls if call.purpose == purpose),
        at_most=_total(Amount.of(m.bound, price, m.times) for m in most if m.purpose == purpose),
    )


def _total(amounts: Iterable[Amount]) -> Amount:
    return sum(amounts, Amount())


def _ending(
    budget: Budget, calls: Sequence[PlannedCall], sizes: Sequence[int], prices: Mapping[str, Price | None]
) -> Ending | None:
    """Go through the calls as the ledger would: each is let through if the most it may cost is there."""
    spent = 0
    for number, call in enumerate(calls):
        price, cap = prices[call.purpose], None
        if budget.calls is not None and number >= budget.calls:
            cap = Budget(calls=budget.calls)
        elif budget.nano_usd is not None and price is not None:
            cap = Budget(usd=budget.usd) if spent + price.nano_usd(call.bound) > budget.nano_usd else None
            spent += price.nano_usd(call.expected)
        if cap is not None:
            rounds = call.round - 1 if call.round else None
            return Ending(cap, rounds, sum(sizes[: rounds or 0]))
    return None
