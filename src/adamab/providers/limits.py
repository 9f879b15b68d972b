"""How fast a service may be asked, how long it is waited for, how often it is asked again."""

from __future__ import annotations

import email.utils
import math
import random
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, fields

from adamab.errors import ProviderError
from adamab.task.messages import short, suggestion

MINUTE = 60.0


@dataclass(frozen=True)
class Limits:
    """Of one client: calls at a time, requests and tokens a minute, retries, seconds to wait."""

    concurrency: int = 8
    rpm: float | None = None
    tpm: float | None = None
    retries: int = 5
    timeout: float = 60.0
    first_wait: float = 0.5
    longest_wait: float = 60.0


_SMALLEST = {"concurrency": 1, "retries": 0}  # the whole numbers
OPTIONS = tuple(field.name for field in fields(Limits))


def limits_of(options: Mapping[str, str | float | None]) -> Limits:
    """The limits that a spec's options name, such as rpm=500; None counts as not given.

    Example:
        >>> limits_of({"rpm": "500", "retries": 2})
        Limits(concurrency=8, rpm=500.0, tpm=None, retries=2, timeout=60.0, first_wait=0.5, longest_wait=60.0)
    """
    unknown = [name for name in options if name not in OPTIONS]
    if unknown:
        raise ProviderError(f"option {short(unknown[0])} is unknown; {suggestion(unknown[0], OPTIONS)}")
    given = {name: _number(name, value) for name, value in options.items() if value is not None}
    return Limits(**given)  # type: ignore[arg-type]  # the whole numbers are int


def _number(name: str, value: str | float) -> float:
    try:
        number = int(value) if name in _SMALLEST else float(value)
    except ValueError:
        number = math.nan
    enough = number >= _SMALLEST[name] if name in _SMALLEST else number > 0
    if not enough or not math.isfinite(number):
        kind = f"a whole number from {_SMALLEST[name]} on" if name in _SMALLEST else "a number above 0"
        raise ProviderError(f"option {name}={short(value)}: give {kind}")
    return number


class Pace:
    """At most `per_minute` in any minute, in the order of asking.

    A bucket that fills by the minute, as aiolimiter has it, lets twice as much through in its first
    minute and belongs to one event loop. A client serves loops and threads, and the service counts
    them together.
    """

    def __init__(self, per_minute: float) -> None:
        self.per_minute = per_minute
        self._claims: deque[Claim] = deque()
        self._total = 0.0
        self._lock = threading.Lock()

    def claim(self, amount: float = 1.0, now: float | None = None) -> Claim:
        """The earliest start of something that takes `amount`; more than a minute's worth takes all of it."""
        amount = min(amount, self.per_minute)
        with self._lock:
            start = time.monotonic() if now is None else now
            if self._claims:
                start = max(start, self._claims[-1].start)
            while self._claims and (
                self._total + amount > self.per_minute or self._claims[0].start + MINUTE <= start
            ):
                oldest = self._claims.popleft()
                self._total -= oldest.amount
                start = max(start, oldest.start + MINUTE)
            claim = Claim(start, amount)
            self._claims.append(claim)
            self._total = amount if len(self._claims) == 1 else self._total + amount
            return claim

    def settle(self, claim: Claim, amount: float) -> None:
        """Correct a claim to what it took in the end."""
        with self._lock:
            if claim in self._claims:
                amount = min(amount, self.per_minute)
                self._total += amount - claim.amount
                claim.amount = amount


@dataclass(eq=False)
class Claim:
    """A place in a pace's schedule."""

    start: float  # of `time.monotonic`
    amount: float


def backoff(limits: Limits, attempt: int, asked: float | None, randomness: random.Random) -> float:
    """Seconds before attempt `attempt` + 1: doubling, jittered, and never less than the service asked for.

    Without the jitter, calls that failed together would come back together.
    """
    longest = min(limits.longest_wait, limits.first_wait * 2.0 ** min(attempt, 60))
    if asked is None:
        return longest * randomness.uniform(0.5, 1.0)
    return asked + min(longest, limits.first_wait) * randomness.random()


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds that an answer's headers ask to wait: a number, or a date.

    Example:
        >>> retry_after({"retry-after": "2"}), retry_after({"retry-after-ms": "250"}), retry_after({})
        (2.0, 0.25, None)
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        seconds = _seconds(headers.get(name, ""), unit)
        if seconds is not None:
            return max(seconds, 0.0)
    return None


def _seconds(text: str, unit: float) -> float | None:
    try:
        number = float(text) * unit
        return None if math.isnan(number) else number
    except ValueError:
        pass
    try:
        return email.utils.parsedate_to_datetime(text).timestamp() - time.time()
    except (TypeError, ValueError, OverflowError):
        return None
