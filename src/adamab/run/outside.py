"""What stands between a fit and the world: every paid call is priced, metered and remembered."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from adamab.errors import RecipeError
from adamab.providers.budget import Budget, Spend
from adamab.providers.embedders.base import Embedder
from adamab.providers.generators.base import Generator
from adamab.providers.ledger import Ledger
from adamab.providers.prices import Price, check_prices, find_price

if TYPE_CHECKING:
    from adamab.providers.http import ApiClient
    from adamab.providers.replies import Replies
    from adamab.run.streams import BatchLog


@dataclass
class Outside:
    """How a fit reaches its providers: the caps, the prices, and where answers are kept.

    The default has no cap, keeps nothing on disk, and belongs to one fit.
    """

    budget: Budget = field(default_factory=Budget)
    prices: Mapping[str, Price] = field(default_factory=dict)  # the user's own, by model
    ledger: Ledger | None = None
    replies: Replies | None = None
    log: BatchLog | None = None
    stop: threading.Event | None = None  # set: no further call is begun

    @contextmanager
    def connected(self, embedder: Embedder, generator: Generator | None) -> Iterator[None]:
        """Meter both for the time of a fit; they may be used again after it, or by another.

        A money cap without a price is told before any call.
        """
        found = priced(embedder, generator, self.prices)
        check_prices(
            self.budget,
            {f"{api.service.name}:{api.model}": price for api, price in found},
            makes_images=_drawing(generator),
        )
        for api, _ in found:
            api.check()
        self.ledger = self.ledger or Ledger(self.budget)
        before = None if generator is None else generator.replies
        try:
            for api, price in found:
                api.ledger, api.price, api.stop = self.ledger, price, self.stop
            if generator is not None and self.replies is not None:
                generator.replies = self.replies
            yield
        finally:
            for api, _ in found:
                api.ledger = api.price = api.stop = None
            if generator is not None:
                generator.replies = before

    def spent(self) -> dict[tuple[str, str | None], Spend]:
        """By purpose and class; empty where nothing was called."""
        return {} if self.ledger is None else self.ledger.by_class()

    def plan(self, rounds: int, *, embedding: bool) -> None:
        """Keep what the rounds to come will need out of reach of calls that run ahead."""
        if self.ledger is not None:
            self.ledger.plan(rounds, ("generate", "embed") if embedding else ("generate",))


def _drawing(generator: Generator | None) -> list[str]:
    """The model that makes pictures, if one behind an API does."""
    if generator is None or generator.api is None or generator.modality != "image":
        return []
    return [f"{generator.api.service.name}:{generator.api.model}"]


def priced(
    embedder: Embedder, generator: Generator | None, own: Mapping[str, Price]
) -> list[tuple[ApiClient, Price | None]]:
    """The clients that a fit uses, each with the price of its model; None where it is unknown."""
    apis = [embedder.api, None if generator is None else generator.api]
    drawing = _drawing(generator)
    found = []
    for api in (api for api in apis if api is not None):
        price = find_price(api.service.name, api.model, own, address=api.service.base_url)
        name = f"{api.service.name}:{api.model}"
        if price is not None and price.image is not None and (name not in drawing or api is embedder.api):
            raise RecipeError(
                f"{name} makes no pictures, so its price cannot be by the picture; give it by tokens"
            )
        found.append((api, price))
    return found
