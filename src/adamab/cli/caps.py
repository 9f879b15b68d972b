"""`--budget` and `--price` of a prediction: what may be spent, over all starts of one job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from adamab.cli.console import say

if TYPE_CHECKING:
    from adamab.providers.budget import Budget
    from adamab.providers.prices import Price
    from adamab.run.inference import Inference


@dataclass(frozen=True)
class Caps:
    """None where nobody asked; then calls are neither capped nor counted."""

    budget: Budget | None = None
    prices: Mapping[str, Price] | None = None

    @classmethod
    def of(cls, budget: str | None, prices: Sequence[str] | None) -> Caps:
        """What the two options say."""
        if budget is None and not prices:
            return cls()
        from adamab.errors import RecipeError
        from adamab.providers.budget import Budget
        from adamab.providers.prices import Price

        caps = Budget.parse(budget)
        if caps.samples is not None:
            raise RecipeError(
                "--budget: a prediction makes no samples; cap usd or calls, such as '500 calls'"
            )
        return cls(caps, dict(Price.parse(text) for text in prices or ()))

    @contextmanager
    def held(self, inference: Inference, book: Path | None) -> Iterator[None]:
        """Count the embedder's calls in `book`, so that the caps hold over all starts; say what was spent."""
        embedder = inference.embedder
        if self.budget is None or embedder is None or embedder.api is None:
            yield
            return
        from adamab.cli.spending import spending_lines
        from adamab.cli.stopping import stop_gently
        from adamab.providers.ledger import Ledger
        from adamab.run.directory import spending
        from adamab.run.outside import Outside

        with Ledger(self.budget, book) as ledger, stop_gently([embedder.api]) as stop:
            outside = Outside(self.budget, self.prices or {}, ledger, stop=stop)
            with outside.connected(embedder, None):
                yield
            spent = spending(outside.spent())
            if spent["calls"]:
                for line in spending_lines({"spent": spent}):
                    say(line)
