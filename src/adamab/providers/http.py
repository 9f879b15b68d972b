"""One client for all paid APIs: limits, retries and metering of every attempt in one place.

The providers' own SDKs are not used: they retry by themselves, out of sight, so that neither a cap on
calls nor one on money could hold.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

import httpx

from adamab.errors import ApiError, StoppedError
from adamab.providers.connections import connections
from adamab.providers.http_errors import GAVE_UP, Again, BadAnswerError, failure
from adamab.providers.limits import Claim, Limits, Pace, backoff, limits_of
from adamab.providers.services import Service, connection, service_of
from adamab.providers.usage import Usage
from adamab.version import __version__

if TYPE_CHECKING:
    from adamab.providers.ledger import Ledger
    from adamab.providers.prices import Price

__all__ = [
    "ApiClient",
    "BadAnswerError",
    "Call",
    "Limits",
    "Service",
    "connection",
    "limits_of",
    "service_of",
]

LONGEST_ANSWER = 256 * 2**20  # bytes
_LONGEST_ERROR = 2**16
_STEP = 0.2  # seconds between looks at `stop` while waiting
_UNUSABLE = 2  # answers of the wrong shape that are asked for again; each may be billed
_WRONG_SHAPE = (ValueError, LookupError, TypeError, AttributeError)


@dataclass(frozen=True)
class Call:
    """What is asked. Its `repr` leaves the body out: prompts do not belong into logs."""

    path: str
    body: Mapping[str, Any]
    bound: Usage  # at most this many tokens, for the reservation and for tokens a minute
    purpose: str  # "embed", "generate", "classify" or "rerank"
    class_name: str | None = None
    idempotency_key: str = ""  # the same over retries and after a resume
    spoiled: int = 0  # answers to it that another one is wanted for

    def __repr__(self) -> str:
        return f"Call({self.path!r}, purpose={self.purpose!r})"


class ApiClient:
    """Posts to one service for one model; may be used from any number of tasks, loops and threads.

    A run sets `ledger` and `price`: each attempt is reserved before it is sent and settled after it.
    Once `stop` is set, no further attempt is begun; `active` are on their way.
    """

    def __init__(self, service: Service, model: str, limits: Limits = Limits()) -> None:  # noqa: B008  # frozen
        self.service = service
        self.model = model
        self.limits = limits
        self.ledger: Ledger | None = None
        self.price: Price | None = None
        self.stop: threading.Event | None = None
        self._prepare()

    def __repr__(self) -> str:
        return f"ApiClient({self.service.name}:{self.model})"

    def check(self) -> None:
        """Raise `ApiError` now if a key is lacking; sends nothing."""
        self.service.key()

    async def post(
        self,
        call: Call,
        *,
        usage: Callable[[Any], Usage | None],
        keep: Callable[[Any], None] | None = None,
    ) -> Any:
        """The JSON that the service answers, after `keep` has stored it.

        `usage` reads the tokens from the answer. ValueError, LookupError, TypeError and AttributeError
        of `keep` mean that the answer has the wrong shape; it is asked for again then, a few times.
        """
        unusable = garbled = 0
        for attempt in range(self.limits.retries + 1):
            answer = await self._attempt(call, usage, keep)
            if not isinstance(answer, Again):
                return answer
            unusable += answer.answered
            garbled += answer.garbled
            call = replace(call, spoiled=unusable + max(garbled - 1, 0))
            if attempt == self.limits.retries or unusable > _UNUSABLE:
                break
            await self._pause(backoff(self.limits, attempt, answer.wait, self._randomness))
        raise answer.give_up(self.service, attempt + 1)

    async def _attempt(
        self, call: Call, usage: Callable[[Any], Usage | None], keep: Callable[[Any], None] | None
    ) -> Any:
        headers = self._headers(call)
        async with self._slot():
            claims = await self._turn(call)
            self._check_stop()
            with _Meter(self, call) as meter:
                self.active += 1
                try:
                    answer = await self._answer(call, headers, meter)
                finally:
                    self.active -= 1
                if not isinstance(answer, Again):
                    meter.usage = _read(usage, answer)
                    answer = _kept(keep, answer)
            if self._tokens is not None and meter.usage is not None:
                self._tokens.settle(claims[-1], meter.usage.tokens)
        return answer

    async def _pause(self, seconds: float) -> None:
        """Sleep, but not past a wish to stop."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._check_stop()
            await asyncio.sleep(min(left, _STEP))

    def _check_stop(self) -> None:
        if self.stop is not None and self.stop.is_set():
            raise StoppedError(f"{self.service.name}: stopped before a call")

    async def _turn(self, call: Call) -> list[Claim]:
        claims = [] if self._requests is None else [self._requests.claim()]
        if self._tokens is not None:
            claims.append(self._tokens.claim(call.bound.tokens))
        for claim in claims:
            await self._pause(claim.start - time.monotonic())
        return claims

    async def _answer(self, call: Call, headers: Mapping[str, str], meter: _Meter) -> Any:
        """The answer's JSON, or why to ask again; raises `ApiError` where that would not help.

        Nothing is raised inside an `except`: the errors of httpx carry the request with its key.
        """
        url = self.service.base_url + call.path
        content = json.dumps(call.body, ensure_ascii=False).encode("utf-8", "replace")
        status, body, response_headers = 0, b"", httpx.Headers()
        trouble: Again | None = None
        http = await connections(url)
        try:
            async with (
                asyncio.timeout(self.limits.timeout),
                http.stream("POST", url, content=content, headers=headers, timeout=self._timeout) as response,
            ):
                status, response_headers = response.status_code, response.headers
                body = await _body(response, LONGEST_ANSWER if response.is_success else _LONGEST_ERROR)
        except (httpx.ConnectError, httpx.ConnectTimeout):
            meter.free()  # it was never sent
            trouble = Again(f"cannot connect to {self.service.place}")
        except (TimeoutError, httpx.TimeoutException):
            trouble = Again(f"nothing for {self.limits.timeout:g} s")
        except (httpx.HTTPError, httpx.StreamError, OSError):
            trouble = Again("the connection broke")
        if status >= 300:
            if status not in GAVE_UP:
                meter.free()
            answer = failure(self.service, self.model, headers, status, body, response_headers)
            if isinstance(answer, ApiError):
                raise answer
            return answer
        return trouble or _parsed(body)

    def _headers(self, call: Call) -> dict[str, str]:
        headers = {"User-Agent": f"adamab/{__version__}", "Content-Type": "application/json"}
        key = self.service.key()
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        if call.idempotency_key:
            # A service that knows the key gives the same answer again. That is wanted after one that got
            # lost, or was spoiled on the way once; not after one that cannot be used.
            suffix = f"-{call.spoiled}" if call.spoiled else ""
            headers["Idempotency-Key"] = call.idempotency_key + suffix
        return headers

    def _slot(self) -> asyncio.Semaphore:
        """A place among the calls of the running loop."""
        running = asyncio.get_running_loop()
        if running not in self._slots:
            for loop in [loop for loop in self._slots if loop.is_closed()]:
                del self._slots[loop]
            self._slots[running] = asyncio.Semaphore(self.limits.concurrency)
        return self._slots[running]

    def _prepare(self) -> None:
        self._slots: dict[asyncio.AbstractEventLoop, asyncio.Semaphore] = {}
        seconds = self.limits.timeout
        self._timeout = httpx.Timeout(seconds, connect=min(seconds, 10.0), pool=None)
        self._requests = None if self.limits.rpm is None else Pace(self.limits.rpm)
        self._tokens = None if self.limits.tpm is None else Pace(self.limits.tpm)
        self._randomness = random.Random()
        self.active = 0

    def __getstate__(self) -> dict[str, Any]:
        # Estimators are copied and sent to other processes with their embedder; a ledger is a run's.
        return {"service": self.service, "model": self.model, "limits": self.limits, "price": self.price}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self.ledger = self.stop = None
        self._prepare()


class _Meter:
    """One attempt in the ledger: reserved on entering, settled on leaving, whatever happens between.

    Unless told otherwise it settles at what was reserved: a call that was cancelled or whose
    connection broke may have been billed.
    """

    def __init__(self, client: ApiClient, call: Call) -> None:
        self.usage: Usage | None = None
        self._ledger, self._price, self._call = client.ledger, client.price, call
        self._reserved = None if client.price is None else client.price.nano_usd(call.bound)
        self._free = False

    def __enter__(self) -> _Meter:
        if self._ledger is not None:
            from adamab.providers.ledger import AHEAD

            self._number = self._ledger.reserve(
                self._call.purpose, self._reserved, class_name=self._call.class_name, ahead=AHEAD.get()
            )
        return self

    def free(self) -> None:
        """The attempt cost nothing."""
        self._free = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ledger is not None:
            self._ledger.settle(self._number, self._cost(), self.usage)

    def _cost(self) -> int | None:
        if self._free:
            return 0
        if self._price is None or self.usage is None:
            return self._reserved
        return self._price.nano_usd(self.usage)


async def _body(response: httpx.Response, longest: int) -> bytes:
    """The body; of an answer that is too long only the beginning, which is no JSON then."""
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > longest:
            break
    return bytes(body[:longest])


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return Again("an answer that is no JSON", garbled=True)


def _read(usage: Callable[[Any], Usage | None], answer: Any) -> Usage | None:
    try:
        return usage(answer)
    except _WRONG_SHAPE:
        return None


def _kept(keep: Callable[[Any], None] | None, answer: Any) -> Any:
    try:
        if keep is not None:
            keep(answer)
    except BadAnswerError as problem:
        return Again(str(problem), answered=True)
    except _WRONG_SHAPE:
        return Again("an answer of the wrong shape", answered=True)
    return answer
