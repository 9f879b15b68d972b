"""What a fit would call and cost, worked out without sending anything.

The requests are those that the providers build for a fit. How many there are is known where nothing goes
wrong; how long new texts will be is not, so they are taken to be as long as the given ones, and at most as
long as an answer may be. Which classes the policy will choose is not known either: the ones with the fewest
samples stand for them.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from adamab.errors import ApiError, EmbedderError
from adamab.providers.cache import CachedEmbedder, PlaceError
from adamab.providers.embedders.api import ApiEmbedder
from adamab.providers.embedders.base import Item, Kind
from adamab.providers.generators.base import Request
from adamab.providers.image_store import temporary_store
from adamab.providers.metering import NANO, Budget, Price, Usage, find_price, priced
from adamab.providers.registry import embedder_key
from adamab.run._intake import REFILLS
from adamab.run.settings import FitSetup, check_holdout
from adamab.task.images import Image

if TYPE_CHECKING:
    from adamab.providers.embedders.base import Modality
    from adamab.providers.http import ApiClient

EMBED, GENERATE = "embed", "generate"
_UNSEEN = "x" * 60  # a sample where no class has one to go by
_LONGER = 3  # times a given sample that a recorded one may be long
_LARGEST = (1536, 1024)  # of an image whose size is left to the service
_LOOKED_UP = 256  # samples in one query of the cache


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
    def of(cls, usages: Iterable[Usage], price: Price | None) -> Amount:
        """The sum of some calls.

        Args:
            usages: what each call uses.
            price: of the model; None where it is unknown.

        Returns:
            Nothing where there is no call, whatever the price.
        """
        calls = list(usages)
        cost = None if price is None and calls else sum(price.nano_usd(usage) for usage in calls if price)
        return cls(len(calls), sum(calls, Usage()), cost)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        usd = None if self.nano_usd is None else self.nano_usd / NANO
        return {"calls": self.calls, **vars(self.usage), "usd": usd}


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
        price, tokens, image = self.price, None, None
        if price is not None:
            tokens = {"input": float(price.input), "output": float(price.output)}
            image = None if price.image is None else float(price.image)
        return {
            "spec": self.spec,
            "host": self.host,
            "sends": list(self.sends),
            "usd_a_million_tokens": tokens,
            "usd_an_image": image,
            "lacking": self.lacking,
            "expected": self.expected.to_json(),
            "at_most": self.at_most.to_json(),
        }


@dataclass(frozen=True)
class PlannedCall:
    """A call: what it should use, and the most that it may, which is reserved for it."""

    purpose: str
    expected: Usage
    bound: Usage
    round: int = 0  # 0: before the first


@dataclass(frozen=True)
class Ending:
    """The cap that is reached first, and after how many rounds and samples.

    Where `rounds` is None the cap does not even suffice for the given samples, and a fit would fail.
    """

    cap: Budget
    rounds: int | None
    samples: int = 0


@dataclass(frozen=True)
class Plan:
    """What a new run calls and costs; answers that are in the cache make it cheaper."""

    task: str
    classes: int
    given: int
    rounds: int
    samples: int
    cached: int  # known texts and images whose vectors are in the cache
    parties: tuple[Party, ...]
    calls: tuple[PlannedCall, ...]  # in their order, if every answer is as long and as good as it should be
    budget: Budget
    ending: Ending | None
    modality: Modality = "text"  # of the task

    @property
    def expected(self) -> Amount:
        """What is called if nothing goes wrong."""
        return sum((party.expected for party in self.parties), Amount())

    @property
    def at_most(self) -> Amount:
        """What a bad generator may make of it; calls that fail and are tried again are not counted."""
        return sum((party.at_most for party in self.parties), Amount())

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        ending = self.ending
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
            "ends_early": None if ending is None else {**vars(ending), "cap": str(ending.cap)},
        }


def plan_fit(setup: FitSetup) -> Plan:
    """What `setup` would call, where, and what that would cost; needs no key and touches nothing.

    Raises what a fit would raise before its first call, but for a missing key, which the plan names.
    """
    if setup.holdout is not None:
        check_holdout(setup.task, setup.holdout)
    task, embedder, generator = setup.task, setup.embedder, setup.generator
    prices = {id(api): p for api, p in priced(embedder, generator, setup.settings.prices, setup.budget)}
    samples = "images" if task.modality == "image" else "samples"
    sent = [f"the given {samples}", *(["the classes' wordings"] if "text" in embedder.modalities else ())]
    providers = [(EMBED, setup.embedder_spec, embedder.api, sent)]
    if generator is not None:
        if not generator.yields_vectors:
            sent.append(f"the new {samples}")
        if generator.api is None:  # a plan needs no key, so one behind an API is not checked
            generator.check(task.class_names)
        prompt = ["the classes' names and descriptions"]
        if generator.modality == "text":  # one that draws is sent no image
            prompt += ["the given samples", "the new samples"]
        providers.append((GENERATE, setup.generator_spec, generator.api, prompt))
    planner = _Planner(setup)
    calls, most = planner.expected(), planner.at_most()
    parties = []
    for purpose, spec, api, sends in providers:
        party = Party(purpose, spec) if api is None else _remote(purpose, api, sends, prices[id(api)])
        draws = purpose == GENERATE and api is not None and planner.draws
        usages = [call.expected for call in calls if call.purpose == purpose]
        bounds = [call.bound for call in most if call.purpose == purpose]
        amounts = Amount.of(usages, party.price), Amount.of(bounds, party.price)
        parties.append(replace(party, makes_images=draws, expected=amounts[0], at_most=amounts[1]))
    return Plan(
        task=task.name,
        classes=len(task.classes),
        given=len(task.samples),
        rounds=len(planner.sizes),
        samples=sum(planner.sizes),
        cached=planner.cached,
        parties=tuple(parties),
        calls=tuple(calls),
        budget=setup.budget,
        ending=_ending(setup.budget, calls, planner.sizes, {p.purpose: p.price for p in parties}),
        modality=task.modality,
    )


def remote_party(
    purpose: str,
    api: ApiClient,
    sends: Iterable[str],
    usages: Iterable[tuple[Usage, Usage]],
    prices: Mapping[str, Price],
) -> Party:
    """A provider behind an API, with its calls.

    Args:
        purpose: what it is called for.
        api: the client.
        sends: what would leave the machine, in words.
        usages: what each call should use, and the most that it may.
        prices: the user's own, by model.

    Returns:
        The provider with the sums of its calls.
    """
    price = find_price(api.service.name, api.model, prices, address=api.service.base_url)
    calls = list(usages)
    return replace(
        _remote(purpose, api, sends, price),
        expected=Amount.of((usage for usage, _ in calls), price),
        at_most=Amount.of((bound for _, bound in calls), price),
    )


def _remote(purpose: str, api: ApiClient, sends: Iterable[str], price: Price | None) -> Party:
    lacking = None
    try:
        api.check()
    except ApiError as error:
        lacking = str(error)
    host = urlsplit(api.service.base_url).netloc
    return Party(purpose, f"{api.service.name}:{api.model}", tuple(sends), host, price, lacking=lacking)


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


class _Planner:
    """Has the providers build the requests of a fit, with stand-ins for the samples that are not made yet."""

    def __init__(self, setup: FitSetup) -> None:
        self._setup, self._task, self._recipe = setup, setup.task, setup.recipe
        generator, embedder = setup.generator, setup.embedder
        self.sizes: list[int] = []  # samples of each round that generates, if all are accepted
        if generator is not None and setup.settings.policy != "none":
            batch, rounds = self._recipe.batch, self._recipe.n_augmentation_rounds(len(self._task.classes))
            cap = rounds * batch if setup.budget.samples is None else setup.budget.samples
            self.sizes = [min(batch, cap - made) for made in range(0, rounds * batch, batch) if made < cap]
        self._batch = self.sizes[0] if self.sizes else 0
        self._writer = generator if generator is not None and generator.api is not None else None
        self._embeds_new = generator is not None and not generator.yields_vectors
        self.draws = generator is not None and generator.modality == "image"
        self._given = [[s for s in self._task.samples if s.class_name == n] for n in self._task.class_names]
        self.cached = 0  # items whose vectors are in the cache already, of those that are known before
        self._caches = []
        while isinstance(embedder, CachedEmbedder):
            self._caches.append(embedder.cache)
            embedder = embedder.embedder
        self._embedder = embedder if isinstance(embedder, ApiEmbedder) else None
        if self._embedder is None and embedder.api is not None:
            raise EmbedderError(
                f"{embedder}: does not say what its calls take, so there is no dry run with it"
            )
        self._drawing: Image | None = None
        self._before = list(self._known_items())

    def expected(self) -> list[PlannedCall]:
        """In their order, if nothing goes wrong."""
        calls = list(self._before)
        counts, batches = [len(given) for given in self._given], Counter[int]()
        for number, size in enumerate(self.sizes, 1):
            chosen = counts.index(min(counts))
            if self._writer is not None:
                existing = self._texts_like(chosen, batches[chosen] * self._batch)
                request = self._request(chosen, existing, batches[chosen])
                usages = self._writer.calls_for(request, self._texts_like(chosen, size))
                calls += [PlannedCall(GENERATE, *usage, number) for usage in usages]
            if self._embedder is not None and self._embeds_new:
                items: Sequence[Item] = list(
                    map(self._task.prompts.query_text, self._texts_like(chosen, size))
                )
                if self._task.modality == "image":
                    items = list(islice(cycle(self._images_like(chosen)), size))
                usages = self._embedder.requests_for(items)
                calls += [PlannedCall(EMBED, *usage, number) for usage in usages]
            counts[chosen] += size
            batches[chosen] += 1
        return calls

    def at_most(self) -> list[PlannedCall]:
        """As many as the bounds of asking again allow, and what is fetched ahead for nothing."""
        rounds = self._recipe.n_augmentation_rounds(len(self._given)) if self.sizes else 0
        ahead = 0 if self._writer is None else min(self._setup.settings.prefetch, max(rounds - 1, 0))
        batches = rounds * (1 + REFILLS) + ahead
        calls, classes = list(self._before), range(len(self._given))
        if not batches:
            return calls
        longest = _LONGER * max((_UNSEEN, *(sample.text for sample in self._task.samples)), key=len)
        if self._writer is not None:
            # A sample that takes its share of the longest answer, of letters of four bytes.
            outputs = [self._writer.most_calls(self._request(c))[0].output_tokens for c in classes]
            answers = ["\U0001f600" * -(-output // self._batch) for output in outputs]
            n_quoted = min(batches * self._batch, getattr(self._writer, "shown", 0))
            bounds = [self._writer.most_calls(self._request(c, [answers[c]] * n_quoted)) for c in classes]
            largest = [reduce(Usage.or_more, each) for each in zip(*bounds, strict=True)]
            calls += batches * [PlannedCall(GENERATE, bound, bound) for bound in largest]
            longest = max(answers, key=len)
        if self._embedder is not None and self._embeds_new:
            embedder = self._embedder
            item: Item = self._task.prompts.query_text(longest)
            if self._task.modality == "image":
                images = dict.fromkeys(image for c in classes for image in self._images_like(c))
                item = max(images, key=lambda image: embedder.requests_for([image])[0][1].tokens)
            usages = embedder.requests_for([item] * self._batch)
            calls += batches * [PlannedCall(EMBED, *usage) for usage in usages]
        return calls

    def _known_items(self) -> Iterator[PlannedCall]:
        """The given samples, then the wordings of the classes."""
        if self._embedder is None:
            return
        task = self._task
        keys = [embedder_key(sample, self._embedder, task.prompts) for sample in task.samples]
        items: list[tuple[Kind, Sequence[Item]]] = [("query", keys)]
        if "text" in self._embedder.modalities:
            items += [("class", wordings) for wordings in self._wordings()]
        known: set[tuple[Kind, Item]] = set()
        for kind, group in items:
            new = [item for item in dict.fromkeys(group) if (kind, item) not in known]
            known |= {(kind, item) for item in new}
            held = self._held(new, kind)
            self.cached += len(held)
            for usage in self._embedder.requests_for([item for item in new if item not in held]):
                yield PlannedCall(EMBED, *usage)

    def _wordings(self) -> Iterator[list[str]]:
        """Of the classes, once; where they quote examples, once more without: evidence may not see those."""
        task = self._task
        quoting = (True, False) if task.prompts.with_examples and self._recipe.refit else (True,)
        for quotes in quoting:
            yield [
                task.prompts.class_text(spec, [s.text for s in task.samples_of(spec.name)] if quotes else [])
                for spec in task.classes
            ]

    def _held(self, items: Sequence[Item], kind: Kind) -> set[Item]:
        """What a cache has vectors of."""
        assert self._embedder is not None
        views, held = self._recipe.views or self._embedder.views, set[Item]()
        for cache in self._caches:
            for start in range(0, len(items), _LOOKED_UP):
                some = items[start : start + _LOOKED_UP]
                try:
                    stored = cache.get(self._embedder.fingerprint, kind, some, views)
                except PlaceError:
                    break  # a fit warns of it when it stores something
                held |= {item for n, item in enumerate(some) if all((n, view) in stored for view in views)}
        return held

    def _request(self, class_index: int, existing: Sequence[str] = (), batch: int = 0) -> Request:
        """With `contrast` the longest other class stands for the one that it will be told apart from."""
        spec, given = self._task.classes[class_index], tuple(s.text for s in self._given[class_index])
        others = [other for other in self._task.classes if other != spec] if self._recipe.contrast else []
        return Request(
            spec,
            class_index,
            self._batch,
            given,
            tuple(existing),
            number=batch,
            apart_from=max(others, key=lambda s: len(s.name) + len(s.description or ""), default=None),
        )

    def _texts_like(self, class_index: int, count: int) -> list[str]:
        """As long as the given ones of the class, or of others where it has none."""
        samples = self._given[class_index] or self._task.samples
        return list(islice(cycle([sample.text for sample in samples] or [_UNSEEN]), count))

    def _images_like(self, class_index: int) -> list[Image]:
        """The given ones, or a blank one of the size that a generator behind an API is asked for."""
        if self._writer is None:
            samples = self._given[class_index] or self._task.samples
            if images := [sample.image for sample in samples if sample.image is not None]:
                return images
        if self._drawing is None:
            import PIL.Image

            predict_options = str(getattr(self._setup.generator, "size", self._recipe.image_size))
            known = re.fullmatch(r"(\d+)x(\d+)", predict_options)
            size = (int(known[1]), int(known[2])) if known else _LARGEST
            data = io.BytesIO()
            PIL.Image.new("RGB", size).save(data, "PNG")
            self._store = temporary_store()  # goes when this object goes
            self._drawing = self._store.put(data.getvalue())
        return [self._drawing]
