"""What calls cost and what may be spent: budget, usage, prices, and the ledger."""

from __future__ import annotations

import contextlib
import math
import numbers
import operator
import os
import re
import sqlite3
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import astuple, dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adamab.errors import BudgetError, RecipeError, RunError, one_line, place, short, storable
from adamab.providers.embedders.base import Embedder
from adamab.providers.generators.base import Generator
from adamab.providers.services import PROVIDERS, host_of, is_loopback
from adamab.providers.sqlite_file import SqliteFile

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot
    from genai_prices.types import ModelPrice

    from adamab.providers.cache import Replies
    from adamab.providers.http import ApiClient
    from adamab.run.prefetch import BatchLog

NANO = 10**9  # money is counted in billionths of a dollar, as whole numbers: sums of them are exact

_FORM = "such as '200 samples, 1.50 usd, 500 calls'"
# Plain ASCII digits only: int() and Decimal() would also take '1e3', 'nan', '1_000' and Arabic digits.
_PART = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)\s*([a-z]*)", re.IGNORECASE)
_UNITS = {"sample": "samples", "samples": "samples", "usd": "usd", "call": "calls", "calls": "calls"}


@dataclass(frozen=True)
class Budget:
    """Caps on samples, money and calls; a part that is None has no cap.

    >>> Budget.parse("1.5 usd, 200 samples")
    Budget(samples=200, usd=Decimal('1.5'), calls=None)
    >>> print(Budget.parse("500 calls, 1.5 usd"))
    1.50 usd, 500 calls
    """

    samples: int | None = None
    usd: Decimal | None = None
    calls: int | None = None

    def __post_init__(self) -> None:
        for value in (self.samples, self.usd, self.calls):
            if value is not None and not (Decimal(value).is_finite() and value >= 0):
                raise RecipeError(f"a budget of {value} is not possible; give numbers from 0 on, {_FORM}")

    @classmethod
    def parse(cls, text: str | int | Budget | None) -> Budget:
        """A budget from the user's words; a number alone means samples, None or `none` no cap."""
        if text is None or isinstance(text, Budget):
            return text or cls()
        if isinstance(text, numbers.Integral) and not isinstance(text, bool):
            return cls(samples=int(text))
        if isinstance(text, str) and text.strip().lower() == "none":
            return cls()
        if not isinstance(text, str):
            raise RecipeError(f"a budget is a number of samples or a text {_FORM}, not {short(text)}")
        caps: dict[str, Any] = {}
        for part in text.split(","):
            unit, number = _read(part.strip(), alone="," not in text)
            if unit in caps:
                raise RecipeError(f"the budget {short(text)} caps {unit} twice; name each once, {_FORM}")
            caps[unit] = Decimal(number) if unit == "usd" else int(number)
        return cls(**caps)

    @property
    def nano_usd(self) -> int | None:
        """The cap on money in billionths of a dollar."""
        return None if self.usd is None else int(self.usd * NANO)

    def __str__(self) -> str:
        parts = [
            "" if self.samples is None else f"{self.samples} sample{'' if self.samples == 1 else 's'}",
            "" if self.usd is None else f"{_cents(f'{self.usd:f}')} usd",
            "" if self.calls is None else f"{self.calls} call{'' if self.calls == 1 else 's'}",
        ]
        return ", ".join(part for part in parts if part) or "no cap"


@dataclass(frozen=True)
class Spend:
    """What calls have cost. A call whose outcome is unknown counts with all that it may have cost."""

    calls: int = 0
    nano_usd: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    unsettled: int = 0  # calls whose outcome is unknown: still on their way, or their process was killed

    def __add__(self, other: Spend) -> Spend:
        return Spend(*map(operator.add, astuple(self), astuple(other)))


def _read(part: str, *, alone: bool) -> tuple[str, str]:
    """Unit and number of one part, such as '1.50 usd'."""
    match = _PART.fullmatch(part)
    if match is None:
        raise RecipeError(f"the budget's part {short(part)} is not a number with a unit, {_FORM}")
    number, word = match.groups()
    unit = _UNITS.get(word.lower() or ("samples" if alone else ""))
    if unit is None:
        raise RecipeError(f"the budget's part {short(part)} needs samples, usd or calls, {_FORM}")
    if unit != "usd" and "." in number:
        raise RecipeError(f"the budget's part {short(part)} must be a whole number of {unit}")
    return unit, number


def _cents(amount: str) -> str:
    """At least two decimals, nothing rounded."""
    whole, _, fraction = amount.partition(".")
    return f"{whole}.{fraction.rstrip('0'):0<2}"


@dataclass(frozen=True)
class Usage:
    """Tokens of one call and images that it made, or an upper bound of them before it is made."""

    input_tokens: int = 0
    output_tokens: int = 0
    images: int = 0  # made, for services that bill by the image

    def __add__(self, other: Usage) -> Usage:
        return Usage(*map(operator.add, astuple(self), astuple(other)))

    def times(self, number: int) -> Usage:
        """Of so many equal calls."""
        return Usage(*(number * count for count in astuple(self)))

    def or_more(self, other: Usage) -> Usage:
        """The larger of each."""
        return Usage(*map(max, astuple(self), astuple(other)))

    @property
    def tokens(self) -> int:
        """Both kinds together."""
        return self.input_tokens + self.output_tokens


def estimated_tokens(text: str) -> int:
    """About how many tokens a text has: one for four bytes, as in English; only a call tells exactly."""
    return max(1, -(-len(text.encode("utf-8", "replace")) // 4))


_MILLION = 10**6
_IDS = {"voyage": "voyageai"}  # where the list has another name
_PRICES_FORM = (
    "MODEL=INPUT/OUTPUT in usd a million tokens, such as 'gpt-4o-mini=0.15/0.60', "
    "or MODEL=USD/image, such as 'dall-e-3=0.04/image'"
)
_NUMBERS = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,9})?)(?:/(?:([0-9]{1,6}(?:\.[0-9]{1,9})?)|(image)))?")
# Some services write their prompt cache unasked and bill that dearer than plain input.
_INPUT = ("input_mtok", "input_text_mtok", "cache_write_mtok")
# Images may be dearer than the text beside them, and a service counts them together.
_OUTPUT = ("output_mtok", "output_text_mtok", "output_reasoning_mtok", "output_image_mtok")
_A_DAY = [timedelta(minutes=15 * step) for step in range(4 * 24 + 1)]


@dataclass(frozen=True)
class Price:
    """Dollars per million tokens, and dollars per image where those are billed one by one.

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
        images = Fraction(self.image or 0) * usage.images
        return math.ceil((tokens / _MILLION + images) * NANO)

    @classmethod
    def parse(cls, text: str) -> tuple[str, Price]:
        """A model's name and its price: by tokens, where the output may be left out, or by the image."""
        model, _, numbers = (part.strip() for part in text.rpartition("="))
        match = _NUMBERS.fullmatch(numbers)
        if not model or match is None:
            raise RecipeError(f"the price {short(text, 80)} does not read as {_PRICES_FORM}")
        if match[3]:
            return model, cls(Decimal(0), image=Decimal(match[1]))
        return model, cls(Decimal(match[1]), Decimal(match[2] or 0))


def find_price(
    service: str, model: str, own: Mapping[str, Price] | None = None, *, address: str | None = None
) -> Price | None:
    """The price of a model, from the user's prices or from the packaged list of genai-prices.

    Args:
        service: the provider's name, such as openai.
        model: the model's name at that provider.
        own: the user's prices by 'MODEL' or 'SERVICE:MODEL', which come first.
        address: the API's URL; the list is asked about whoever is there, since others speak a
            provider's protocol as well.

    Returns:
        The highest price of the coming day; None where it is unknown. Software that runs models of one's own
        costs nothing on this machine.
    """
    for name in (f"{service}:{model}", model):
        if own is not None and name in own:
            return own[name]
    if service in PROVIDERS and PROVIDERS[service].free and is_loopback(host_of(address or "")):
        return Price(Decimal(0))
    return _listed(service, model, datetime.now(UTC), address)


def check_prices(
    budget: Budget, prices: Mapping[str, Price | None], *, makes_images: Collection[str] = ()
) -> None:
    """Refuse a cap on money that cannot be kept because some model's price is unknown.

    Args:
        budget: the caps.
        prices: the price of each model; None where it is unknown.
        makes_images: the models among them whose images may be billed one by one.
    """
    if budget.usd is None:
        return
    for name in (name for name, price in prices.items() if price is None):
        model = one_line(name)
        images = f", or an image: --price '{model}=0.04/image'" if name in makes_images else ""
        raise RecipeError(
            f"no price is known for {model}, so a budget in usd cannot be kept; give its price in usd "
            f"a million tokens (input/output): --price '{model}=0.15/0.60'{images}, "
            "or cap the calls instead"
        )


def usd(nano: int, rounding: str = ROUND_HALF_UP) -> str:
    """Billionths of a dollar for people: cents from one dollar on, else three digits that count.

    Args:
        nano: the billionths.
        rounding: one of the `decimal` module's; what is left is better rounded down, a cost up.

    >>> [usd(nano) for nano in (0, 250, 12_345_678, 500_000_000, 1_234_567_890_000)]
    ['0.00 usd', '0.00000025 usd', '0.0123 usd', '0.50 usd', '1,234.57 usd']
    """
    amount = Decimal(nano) / NANO
    places = 2 if abs(amount) >= 1 or not nano else 2 - amount.adjusted()
    rounded = amount.quantize(Decimal(1).scaleb(-min(places, 9)), rounding=rounding)
    return f"{_cents(f'{rounded:,f}')} usd"


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
    return _dearest([info.get_prices(now + later) for later in _A_DAY])


def _dearest(prices: list[ModelPrice]) -> Price | None:
    """An upper bound of `prices`; None if they are not by tokens, or not by tokens alone."""
    if any(price.input_mtok is None or price.requests_kcount is not None for price in prices):
        return None
    return Price(*(max(_highest(price, keys) for price in prices) for keys in (_INPUT, _OUTPUT)))


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


AHEAD: ContextVar[bool] = ContextVar("AHEAD", default=False)
"""Set in tasks that run ahead of the policy; their calls leave what `Ledger.plan` asks for."""

_TIMEOUT = 60.0  # seconds to wait for other processes, each of which holds the file for milliseconds
# The column `reservation` is NULL in a reservation; a settlement names the one that it settles.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS spending (
    id INTEGER PRIMARY KEY AUTOINCREMENT, reservation INTEGER UNIQUE REFERENCES spending (id),
    purpose TEXT, class TEXT, nano_usd INTEGER, input_tokens INTEGER, output_tokens INTEGER
);
CREATE TRIGGER IF NOT EXISTS spending_is_not_changed BEFORE UPDATE ON spending
BEGIN SELECT RAISE(ABORT, 'spending is append-only'); END;
CREATE TRIGGER IF NOT EXISTS spending_is_not_deleted BEFORE DELETE ON spending
BEGIN SELECT RAISE(ABORT, 'spending is append-only'); END;
"""
_ROWS = "SELECT id, reservation, purpose, class, nano_usd, input_tokens, output_tokens FROM spending"
_INSERT = (
    "INSERT INTO spending (reservation, purpose, class, nano_usd, input_tokens, output_tokens) "
    "VALUES (?, ?, ?, ?, ?, ?)"
)
_IN_MEMORY = Path("the budget's book")  # as errors name a ledger without a file

Key = tuple[str, str | None]  # purpose and class


class Ledger(SqliteFile, contextlib.AbstractContextManager["Ledger", None]):
    """Caps on calls and money that hold under any concurrency.

    `path` is an SQLite file, which may hold other tables as well; without one, the book is
    kept in memory and for this process only. `budget` may be replaced by a larger one.
    """

    contents = "the ledger"

    def __init__(self, budget: Budget | None = None, path: Path | None = None) -> None:
        super().__init__(_IN_MEMORY if path is None else path, _TIMEOUT)
        self._in_memory = path is None
        self.budget = Budget() if budget is None else budget
        self._rounds = 0
        self._purposes: tuple[str, ...] = ()
        # The sums of the rows that this process has read.
        self._total = Spend()
        self._totals: dict[Key, Spend] = {}
        self._dearest: dict[str, int] = {}  # by purpose
        self._open: dict[int, tuple[Key, int | None]] = {}  # reservations that are not settled
        self._last = 0  # the last row that is part of the sums
        self._lock = threading.RLock()
        self._db: sqlite3.Connection | None = None
        self._prepared = False
        self._process = os.getpid()
        self._ended = ""  # why nothing more can be written

    def __exit__(self, *_: object) -> None:
        self.close()

    def plan(self, rounds: int, purposes: Sequence[str]) -> None:
        """Keep what the rounds to come need out of reach of calls that run ahead of them.

        Args:
            rounds: how many rounds are to come.
            purposes: what each of them calls, at the price of the dearest call so far.
        """
        self._rounds, self._purposes = rounds, tuple(purposes)

    def reserve(
        self, purpose: str, nano_usd: int | None, *, class_name: str | None = None, ahead: bool = False
    ) -> int:
        """Count a call before it is made.

        Args:
            purpose: what the call is for, such as embed.
            nano_usd: the most it may cost; None where no price is known.
            class_name: the class that it is made for, if any.
            ahead: whether it runs ahead of the planned rounds and must leave them what they need.

        Returns:
            The reservation's number, for `settle`.

        Raises:
            BudgetError: the call might exceed a cap; nothing is counted.
        """
        with self._writing() as db:
            planned = Spend()
            if ahead:  # what the rounds to come need, as far as the calls so far and this one tell
                dearest = {**self._dearest}
                dearest[purpose] = max(dearest.get(purpose, 0), nano_usd or 0)
                money = self._rounds * sum(dearest.get(name, 0) for name in self._purposes)
                planned = Spend(calls=self._rounds * len(self._purposes), nano_usd=money)
            self._check(nano_usd, planned)
            amount = None if nano_usd is None else _within(nano_usd)
            name = None if class_name is None else storable(class_name)
            return int(db.execute(_INSERT, (None, purpose, name, amount, None, None)).lastrowid or 0)

    def settle(self, reservation: int, nano_usd: int | None, usage: Usage | None) -> None:
        """Replace what was reserved by what the call cost.

        Args:
            reservation: the number that `reserve` returned.
            nano_usd: the cost; None leaves it at what was reserved.
            usage: the tokens; None where the service did not say.
        """
        with self._writing() as db:
            if reservation not in self._open:
                raise ValueError(f"reservation {reservation} does not exist or is settled already")
            reserved = self._open[reservation][1]
            amount = reserved if nano_usd is None else _within(nano_usd)
            tokens = Usage() if usage is None else usage
            used = _within(tokens.input_tokens), _within(tokens.output_tokens)
            db.execute(_INSERT, (reservation, None, None, amount, *used))

    def spent(self) -> Spend:
        """All calls so far, those of other processes and of earlier starts among them."""
        return sum(self.by_class().values(), Spend())

    def by_class(self) -> dict[Key, Spend]:
        """What was spent by purpose and class."""
        with self._lock, self._readable_errors():
            if not self._ended and (self._in_memory or self.exists()):
                self.read(self._connected())
            return dict(self._totals)

    def read(self, db: sqlite3.Connection) -> None:
        """Add the rows since the last time. Ids grow in the order of commits, so none is missed."""
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'spending'").fetchone():
            return
        for row in db.execute(f"{_ROWS} WHERE id > ? ORDER BY id", (self._last,)).fetchall():
            number, reservation, purpose, class_name, nano_usd, input_tokens, output_tokens = row
            if reservation is None:
                key = purpose, class_name
                self._open[number] = key, nano_usd
                change = Spend(calls=1, nano_usd=nano_usd or 0, unsettled=1)
            elif reservation in self._open:
                key, reserved = self._open.pop(reservation)
                more = (nano_usd or 0) - (reserved or 0)
                change = Spend(0, more, input_tokens or 0, output_tokens or 0, unsettled=-1)
            else:
                raise self._damaged(f"row {number} settles nothing")
            self._totals[key] = self._totals.get(key, Spend()) + change
            self._total += change
            self._dearest[key[0]] = max(self._dearest.get(key[0], 0), nano_usd or 0)
            self._last = number

    def close(self) -> None:
        """Close the file for good. `spent` and `by_class` still answer."""
        with self._lock:
            with contextlib.suppress(RunError):
                self.by_class()
            if self._db is not None:
                self._db.close()
            self._ended = "closed; start the run again"

    def _check(self, nano_usd: int | None, planned: Spend) -> None:
        cap, spent = self.budget.calls, self._total
        if cap is not None and spent.calls >= cap:
            raise BudgetError(f"the budget of {Budget(calls=cap)} is spent")
        if cap is not None and spent.calls + planned.calls >= cap:
            raise BudgetError(f"the planned rounds need what is left of the budget of {Budget(calls=cap)}")
        if self.budget.nano_usd is None:
            return
        money, left = Budget(usd=self.budget.usd), self.budget.nano_usd - spent.nano_usd
        if nano_usd is None:
            raise RecipeError(
                f"the budget of {money} cannot be kept: a price is unknown; give it with --price"
            )
        if nano_usd > max(left, 0):
            # Rounded apart, so that the two amounts never look alike.
            rest = "is spent" if left <= 0 else f"has {usd(left, ROUND_FLOOR)} left"
            raise BudgetError(
                f"the budget of {money} {rest}, and the next call may cost {usd(nano_usd, ROUND_CEILING)}"
            )
        if planned.nano_usd and nano_usd > left - planned.nano_usd:
            raise BudgetError(f"the planned rounds need what is left of the budget of {money}")

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that nobody else can come between, with the sums up to date."""
        with self._lock, self._readable_errors():
            db = self._connected()
            if not self._prepared:
                self._use_write_ahead_log(db)
                self._create_tables(db, _SCHEMA)
                self._prepared = True
            with db:  # commits, or rolls back where anything is raised
                db.execute("BEGIN IMMEDIATE")
                self.read(db)
                yield db

    def _connected(self) -> sqlite3.Connection:
        if self._ended:
            raise RunError(f"{place(self.path)}: {self._ended}")
        if self._process != os.getpid():  # neither SQLite's locks nor sums in memory survive a fork
            raise RunError(f"{place(self.path)}: opened by another process; open it again in this one")
        if self._db is None:
            if not self._in_memory:
                with contextlib.suppress(OSError):  # SQLite says better what is wrong
                    self._create_private()
            db = self._connect("mode=memory" if self._in_memory else "mode=rw")
            db.execute("PRAGMA synchronous = FULL")  # a reservation is on the disk before the call is made
            self._db = db
        return self._db


def spent_in(db: sqlite3.Connection) -> tuple[dict[Key, Spend], int]:
    """What was spent by purpose and class, of a file that somebody has opened to read.

    Beside it the part, in nano-dollars, that calls on their way may cost at most.
    """
    ledger = Ledger()
    ledger.read(db)
    return ledger._totals, sum(nano_usd or 0 for _, nano_usd in ledger._open.values())


def _within(count: int) -> int:
    """What fits a column, whatever a server claims to have used."""
    return max(0, min(count, 2**62))


# What stands between a fit and the world: every paid call is priced, metered and remembered.


@dataclass
class CallContext:
    """How a fit reaches its providers: the caps, the prices, and where answers are kept.

    The default has no cap, keeps nothing on disk, and belongs to one fit.
    """

    budget: Budget = field(default_factory=Budget)
    prices: Mapping[str, Price] = field(default_factory=dict)  # the user's own, by model
    ledger: Ledger | None = None
    replies: Replies | None = None
    log: BatchLog | None = None
    stop: threading.Event | None = None  # set: no further call is begun

    @contextlib.contextmanager
    def connected(self, embedder: Embedder, generator: Generator | None) -> Iterator[None]:
        """Meter embedder and generator for the time of a fit; afterwards they are as before.

        Raises `RecipeError` before any call where money is capped and a price is unknown.
        """
        clients = priced(embedder, generator, self.prices, self.budget)
        for api, _ in clients:
            api.check()
        if clients:
            self.ledger = self.ledger or Ledger(self.budget)
        before = None if generator is None else generator.replies
        try:
            for api, price in clients:
                api.ledger, api.price, api.stop = self.ledger, price, self.stop
            if generator is not None and self.replies is not None:
                generator.replies = self.replies
            yield
        finally:
            for api, _ in clients:
                api.ledger = api.price = api.stop = None
            if generator is not None:
                generator.replies = before

    def spent(self) -> dict[tuple[str, str | None], Spend]:
        """By purpose and class; empty where nothing was called."""
        return {} if self.ledger is None else self.ledger.by_class()

    def plan(self, rounds: int, *, embedding: bool) -> None:
        """Keep what the rounds to come will need out of reach of calls that run ahead.

        Args:
            rounds: how many are to come.
            embedding: whether each of them also calls an embedder behind an API.
        """
        if self.ledger is not None:
            self.ledger.plan(rounds, ("generate", "embed") if embedding else ("generate",))


def priced(
    embedder: Embedder, generator: Generator | None, own: Mapping[str, Price], budget: Budget
) -> list[tuple[ApiClient, Price | None]]:
    """The clients that a fit uses, each with the price of its model.

    Args:
        embedder: its client is among them if it has one.
        generator: the same.
        own: the user's prices by model.
        budget: where it caps money, every price must be known, or a `RecipeError` is raised; servers of
            this machine cost nothing then.

    Returns:
        Clients and prices; None where a price is unknown.
    """
    clients = [(embedder.api, False)]
    if generator is not None:
        clients.append((generator.api, generator.modality == "image"))
    prices: list[tuple[ApiClient, Price | None]] = []
    for api, makes_images in clients:
        if api is None:
            continue
        price = find_price(api.service.name, api.model, own, address=api.service.base_url)
        name = f"{api.service.name}:{api.model}"
        if price is None and budget.usd is not None and api.service.is_local:
            price = Price(Decimal(0))
        if price is not None and price.image is not None and not makes_images:
            raise RecipeError(
                f"{name} makes no images, so its price cannot be by the image; give it by tokens"
            )
        check_prices(budget, {name: price}, makes_images=[name] if makes_images else [])
        prices.append((api, price))
    return prices
