"""What tokens and pictures cost: the user's own numbers, else the list that ships with genai-prices.

The list is a file of the installed package; nothing here goes online. A price that is
not known stays unknown. Where a price depends on something that is not known before a
call, such as the time of day, the dearest is taken: a budget needs an upper bound.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from adamab.errors import RecipeError
from adamab.providers.budget import NANO, Budget
from adamab.providers.usage import Usage
from adamab.task.messages import one_line, short

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot
    from genai_prices.types import ModelInfo, ModelPrice

_MILLION = 10**6
_IDS = {"voyage": "voyageai"}  # where the list has another name
_FORM = (
    "MODEL=INPUT/OUTPUT in usd a million tokens, such as 'gpt-4o-mini=0.15/0.60', "
    "or MODEL=USD/image, such as 'dall-e-3=0.04/image'"
)
_NUMBERS = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,9})?)(?:/(?:([0-9]{1,6}(?:\.[0-9]{1,9})?)|(image)))?")
# Some services write their prompt cache unasked and bill that dearer than plain input.
_INPUT = ("input_mtok", "input_text_mtok", "cache_write_mtok")
# Pictures may be dearer than the text beside them, and a service counts them together.
_OUTPUT = ("output_mtok", "output_text_mtok", "output_reasoning_mtok", "output_image_mtok")
_A_DAY = [timedelta(minutes=15 * step) for step in range(4 * 24 + 1)]


@dataclass(frozen=True)
class Price:
    """Dollars a million tokens, and dollars a picture where those are billed one by one.

    >>> Price.parse("gpt-4o-mini=0.15/0.60")
    ('gpt-4o-mini', Price(input=Decimal('0.15'), output=Decimal('0.60'), image=None))
    """

    input: Decimal
    output: Decimal = Decimal(0)
    image: Decimal | None = None

    def __post_init__(self) -> None:
        for value in (self.input, self.output, self.image):
            if value is not None and not (value.is_finite() and value >= 0):
                raise RecipeError(f"a price of {value} is not possible; give numbers from 0 on")

    def __str__(self) -> str:
        """As `parse` takes it, without the model's name."""
        return f"{self.input}/{self.output}" if self.image is None else f"{self.image}/image"

    def nano_usd(self, usage: Usage) -> int:
        """What `usage` costs in billionths of a dollar, rounded up."""
        tokens = Fraction(self.input) * usage.input_tokens + Fraction(self.output) * usage.output_tokens
        pictures = Fraction(self.image or 0) * usage.images
        return math.ceil((tokens / _MILLION + pictures) * NANO)

    @classmethod
    def parse(cls, text: str) -> tuple[str, Price]:
        """A model's name and its price: by tokens, where the output may be left out, or by the picture."""
        model, _, numbers = (part.strip() for part in text.rpartition("="))
        match = _NUMBERS.fullmatch(numbers)
        if not model or match is None:
            raise RecipeError(f"the price {short(text, 80)} does not read as {_FORM}")
        if match[3]:
            return model, cls(Decimal(0), image=Decimal(match[1]))
        return model, cls(Decimal(match[1]), Decimal(match[2] or 0))


_NONE: Mapping[str, Price] = MappingProxyType({})


def find_price(
    service: str, model: str, own: Mapping[str, Price] = _NONE, *, address: str | None = None
) -> Price | None:
    """The price of `model` at `service`; None where it is unknown.

    `own` are the user's prices, by 'MODEL' or 'SERVICE:MODEL'; they come first. The list is asked
    about whoever is at `address`, the API's URL, since others speak a service's protocol as well.
    """
    for name in (f"{service}:{model}", model):
        if name in own:
            return own[name]
    return _listed(service, model, datetime.now(UTC), address)


def check_prices(
    budget: Budget, prices: Mapping[str, Price | None], *, makes_images: Collection[str] = ()
) -> None:
    """Refuse a cap on money that cannot be kept because some model's price is unknown.

    `makes_images` are the models among them whose pictures may be billed one by one.
    """
    if budget.usd is None:
        return
    for name in (name for name, price in prices.items() if price is None):
        model = one_line(name)
        pictures = f", or a picture: --price '{model}=0.04/image'" if name in makes_images else ""
        raise RecipeError(
            f"no price is known for {model}, so a budget in usd cannot be kept; give its price in usd "
            f"a million tokens (input/output): --price '{model}=0.15/0.60'{pictures}, "
            "or cap the calls instead"
        )


def usd(nano: int, rounding: str = ROUND_HALF_UP) -> str:
    """Billionths of a dollar for people: cents from one dollar on, else three digits that count.

    >>> [usd(nano) for nano in (0, 250, 12_345_678, 500_000_000, 1_234_567_890_000)]
    ['0.00 usd', '0.00000025 usd', '0.0123 usd', '0.50 usd', '1,234.57 usd']
    """
    amount = Decimal(nano) / NANO
    places = 2 if abs(amount) >= 1 or not nano else 2 - amount.adjusted()
    rounded = amount.quantize(Decimal(1).scaleb(-min(places, 9)), rounding=rounding)
    whole, _, fraction = f"{rounded:,f}".partition(".")
    return f"{whole}.{fraction.rstrip('0'):0<2} usd"


@cache
def _snapshot() -> DataSnapshot:
    # Imported here: it takes a fifth of a second, which --help should not wait for. Built here: the
    # package's own functions would follow whatever another part of the process has fetched online.
    from genai_prices.data import providers
    from genai_prices.data_snapshot import DataSnapshot

    return DataSnapshot(providers=providers, from_auto_update=False)


def _listed(service: str, model: str, now: datetime, address: str | None = None) -> Price | None:
    """From the list, the dearest of the coming day."""
    try:
        if address is None:
            provider = next(p for p in _snapshot().providers if p.id == _IDS.get(service, service))
        else:
            provider = _snapshot().find_provider(None, None, address)
        _, info = _snapshot().find_provider_model(model, provider, None, None)
    except (LookupError, StopIteration):
        return None
    return _dearest(list(_coming(info, now)))


def _coming(info: ModelInfo, now: datetime) -> Iterator[ModelPrice]:
    return (info.get_prices(now + later) for later in _A_DAY)


def _dearest(prices: list[ModelPrice]) -> Price | None:
    """An upper bound of `prices`; None if they are not by tokens, or not by tokens alone."""
    if any(price.input_mtok is None or price.requests_kcount is not None for price in prices):
        return None
    rates = [(_highest(price, _INPUT), _highest(price, _OUTPUT)) for price in prices]
    return Price(max(rate[0] for rate in rates), max(rate[1] for rate in rates))


def _highest(price: ModelPrice, keys: Iterable[str]) -> Decimal:
    """The highest rate among `keys`, over all tiers of the request's size."""
    from genai_prices.types import TieredPrices

    rates = [Decimal(0)]
    for value in (getattr(price, key, None) for key in keys):  # older lists lack some
        if isinstance(value, TieredPrices):
            rates += [value.base, *(tier.price for tier in value.tiers)]
        elif value is not None:
            rates.append(value)
    return max(rates)
