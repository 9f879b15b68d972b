"""What a run may spend, as the user says it, and what it has spent."""

from __future__ import annotations

import numbers
import re
from dataclasses import dataclass
from decimal import Decimal

from adamab.errors import RecipeError
from adamab.task.messages import short

NANO = 10**9  # money is counted in billionths of a dollar, as whole numbers: sums of them are exact

_FORM = "such as '200 samples, 1.50 usd, 500 calls'"
# Plain ASCII digits only: int() and Decimal() would also take '1e3', 'nan', '1_000' and Arabic digits.
_PART = re.compile(r"([0-9]{1,12})(?:\.([0-9]{1,9}))?\s*([a-z]*)", re.IGNORECASE)
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
        return cls._of_parts(text)

    @classmethod
    def _of_parts(cls, text: str) -> Budget:
        found: dict[str, str] = {}
        for part in text.split(","):
            unit, number = _read(part, alone="," not in text)
            if unit in found:
                raise RecipeError(f"the budget {short(text)} caps {unit} twice; name each once, {_FORM}")
            found[unit] = number
        samples, usd, calls = (found.get(unit) for unit in ("samples", "usd", "calls"))
        return cls(
            samples=None if samples is None else int(samples),
            usd=None if usd is None else Decimal(usd),
            calls=None if calls is None else int(calls),
        )

    @property
    def nano_usd(self) -> int | None:
        """The cap on money in billionths of a dollar."""
        return None if self.usd is None else int(self.usd * NANO)

    def __str__(self) -> str:
        parts = [
            "" if self.samples is None else f"{self.samples} sample{_s(self.samples)}",
            "" if self.usd is None else f"{_cents(self.usd)} usd",
            "" if self.calls is None else f"{self.calls} call{_s(self.calls)}",
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
        return Spend(
            self.calls + other.calls,
            self.nano_usd + other.nano_usd,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.unsettled + other.unsettled,
        )


def _read(part: str, *, alone: bool) -> tuple[str, str]:
    """Unit and number of one part, such as '1.50 usd'."""
    match = _PART.fullmatch(part.strip())
    if match is None:
        raise RecipeError(f"the budget's part {short(part.strip())} is not a number with a unit, {_FORM}")
    whole, fraction, word = match.groups()
    unit = _UNITS.get(word.lower() or ("samples" if alone else ""))
    if unit is None:
        raise RecipeError(f"the budget's part {short(part.strip())} needs samples, usd or calls, {_FORM}")
    if unit != "usd" and fraction is not None:
        raise RecipeError(f"the budget's part {short(part.strip())} must be a whole number of {unit}")
    return unit, whole if fraction is None else f"{whole}.{fraction}"


def _cents(amount: Decimal) -> str:
    """At least two decimals, no exponent, nothing rounded."""
    whole, _, fraction = f"{amount:f}".partition(".")
    return f"{whole}.{fraction.rstrip('0'):0<2}"


def _s(count: int) -> str:
    return "" if count == 1 else "s"
