"""One client for all paid APIs: limits, retries and metering of every attempt in one place.

The providers' own SDKs are not used: they retry by themselves, out of sight, so that neither a cap on
calls nor one on money could hold.
"""

from __future__ import annotations

import asyncio
import email.utils
import json
import math
import random
import re
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import httpx

from adamab.errors import ApiError, ProviderError, StoppedError, short, suggestion
from adamab.providers.metering import AHEAD, Usage
from adamab.providers.services import PROVIDERS, Service, host_of, is_loopback, service_of
from adamab.version import __version__

if TYPE_CHECKING:
    from adamab.providers.metering import Ledger, Price


# How fast a service is called, how long an answer may take, how often a call is repeated.

MINUTE = 60.0


@dataclass(frozen=True)
class Limits:
    """Of one client: calls at a time, requests and tokens per minute, retries, seconds to wait."""

    concurrency: int = 8
    rpm: float | None = None
    tpm: float | None = None
    retries: int = 5
    timeout: float = 60.0
    first_wait: float = 0.5
    longest_wait: float = 60.0


_SMALLEST = {"concurrency": 1, "retries": 0}  # the whole numbers
OPTIONS = tuple(field.name for field in fields(Limits))


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
        """The earliest start of something that takes `amount`; more than a minute's worth takes all of it.

        Args:
            amount: requests or tokens, whichever `per_minute` counts.
            now: seconds of the monotonic clock; None reads it.
        """
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


def backoff(limits: Limits, attempt: int, requested: float | None, randomness: random.Random) -> float:
    """Seconds before the next attempt: exponential back-off with jitter.

    Without the jitter, calls that failed together would come back together.

    Args:
        limits: the first and the longest wait.
        attempt: how many attempts failed before the last one.
        requested: the seconds that the service asked for, which are never undercut.
        randomness: draws the jitter.

    Returns:
        The seconds to wait.
    """
    longest = min(limits.longest_wait, limits.first_wait * 2.0 ** min(attempt, 60))
    if requested is None:
        return longest * randomness.uniform(0.5, 1.0)
    return requested + min(longest, limits.first_wait) * randomness.random()


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds that an answer's headers ask to wait: a number, or a date.

    Example:
        >>> retry_after({"retry-after": "2"}), retry_after({"retry-after-ms": "250"}), retry_after({})
        (2.0, 0.25, None)
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "")
        with suppress(ValueError):
            if not math.isnan(seconds := float(text) * unit):
                return max(seconds, 0.0)
        with suppress(TypeError, ValueError, OverflowError):
            return max(email.utils.parsedate_to_datetime(text).timestamp() - time.time(), 0.0)
    return None


def connection(name: str, options: Mapping[str, str | float | None]) -> tuple[Service, Limits]:
    """What the options of a spec such as `openai:MODEL?base_url=URL&rpm=500` say about the connection.

    Args:
        name: the provider's.
        options: `base_url`, `key_env`, the fields of `Limits` and, where an API has versions, `api_version`;
            None counts as not given.

    Returns:
        The service, and the limits of a client for it.
    """
    given: dict[str, Any] = {option: value for option, value in options.items() if value is not None}
    own = PROVIDERS[name]
    texts = ("base_url", "key_env", *(("api_version",) if own.api_version else ()))
    place = {option: given.pop(option, None) for option in texts}
    numbers: dict[str, Any] = dict(own.limits)
    for option, value in given.items():
        if option not in OPTIONS:
            known = suggestion(option, (*texts, *OPTIONS))
            raise ProviderError(f"{name}: option {short(option)} is unknown; {known}")
        numbers[option] = _number(option, value)
    return service_of(name, **place), Limits(**numbers)


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


# The open connections of an event loop, shared by all clients and closed when the loop ends.
#
# They belong to the loop they were opened in, not to a client: a client that is thrown away has no way to
# close them, since that takes an `await`.

_KEPT = httpx.Limits(max_connections=None, max_keepalive_connections=64)
_Open = tuple[httpx.AsyncClient, AsyncGenerator[None]]
# By loop, and whether they lead past all proxies.
_open: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[bool, _Open]] = WeakKeyDictionary()


async def connections(url: str) -> httpx.AsyncClient:
    """Those of the running loop to the place of `url`.

    Redirects are not followed: they could lead a key astray. The environment's proxies are used, but not
    on the way to this machine: a key goes there in the clear, and a proxy is another machine.
    """
    direct = is_loopback(host_of(url))
    loop = asyncio.get_running_loop()
    clients = _open.setdefault(loop, {})
    if direct not in clients:
        # With a transport of its own httpx does not look for proxies.
        own = httpx.AsyncHTTPTransport(limits=_KEPT, trust_env=True) if direct else None
        http = httpx.AsyncClient(transport=own, limits=_KEPT, follow_redirects=False)
        # A loop that ends finishes its asynchronous generators, which is the only notice that it gives.
        end = _closing(loop, http)
        clients[direct] = http, end
        await anext(end)
    return clients[direct][0]


async def _closing(loop: asyncio.AbstractEventLoop, http: httpx.AsyncClient) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        _open.pop(loop, None)
        await http.aclose()


# What an answer that is an error means: ask again, or one line that says what to do.
#
# The body of such an answer may repeat the prompt or the key. It is looked through for known words and
# never quoted, but for one short token such as `invalid_api_key`.

LONGEST_WAIT = 600.0  # seconds that a service may ask us to wait
_SEARCHED = 400  # characters of a message; what it quotes of the request comes later
_RETRIED = (408, 409, 429)
# Something on the way gave up waiting; the model may have gone on, and its work be billed.
GAVE_UP = (408, 502, 504, 524)
_CODES = ("code", "type", "error_type")
_MESSAGES = ("param", "message", "detail", "error", "msg")
_TOKEN = re.compile(r"[A-Za-z0-9_.-]{1,60}")
_TOO_LARGE = re.compile(
    r"context[ _](length|window|size)|too (large|long|big)|too many (inputs?|tokens|texts|items)"
    r"|max(imum)? (allowed |number of |total )*(context|inputs?|batch|tokens|texts|items)|batch size"
    r"|max(imum)? (allowed )?(number of )?(output|completion) tokens|range of max_tokens"
    r"|max_(completion_|new_)?tokens\W{0,3}(value|exceeds|>|must be (less|at most|<|in|between))"
    r"|max_tokens_per_request|must have less than \d+ tokens|reduce (the length|your (prompt|input))",
    re.IGNORECASE,
)
# More tokens than a minute allows: no wait makes room for them.
_NEVER_FITS = re.compile(r"request (is )?too large", re.IGNORECASE)
_REFUSED = re.compile(
    r"content[ _](policy|filter|management policy|moderation)|moderation_blocked|responsibleaipolicy"
    r"|safety (system|policy|policies)|usage polic",
    re.IGNORECASE,
)
_UNSUPPORTED = re.compile(
    r"response_format|json_schema|structured output|max_completion_tokens|max_tokens\b|\bseed\b"
    r"|dimensions?\b|encoding_format|temperature|top_p|input_type|\btask\b|tool_choice|\btools\b"
    r"|truncat|extra (inputs|fields)"
    r"|(unknown|unsupported|unrecognized)[ _]((request )?argument|parameter|value)",
    re.IGNORECASE,
)
_OUT_OF_CREDIT = re.compile(r"credit balance is too low", re.IGNORECASE)  # Anthropic's, with status 400
_NO_CREDIT = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active")


class BadAnswerError(ValueError):
    """An answer has the wrong shape; the message quotes nothing of it, so it may be shown."""


@dataclass(frozen=True)
class Again:
    """An attempt failed in a way that may pass."""

    reason: str
    status: int | None = None
    wait: float | None = None  # seconds that the service asked for
    answered: bool = False  # completely, and paid for, but what it says cannot be used
    garbled: bool = False  # an answer that is no JSON: the service's, or what became of it on the way


def failure(
    service: Service,
    model: str,
    key: str | None,
    status: int,
    body: bytes,
    headers: Mapping[str, str],
) -> Again | ApiError:
    """What to make of a status that is no success.

    Args:
        service: who answered.
        model: the model that was asked for.
        key: that was sent; it is not shown.
        status: the answer's status, 300 or more.
        body: the answer's body.
        headers: the answer's headers.

    Returns:
        `Again` where another attempt may help, else the error to raise.
    """
    content = _json(body)
    said = ("error", str(status))
    codes = [code for code in _texts(content, _CODES) if _TOKEN.fullmatch(code) and code not in said]
    token = next((code for code in codes if not key or key not in code), "")
    words = " ".join(text[:_SEARCHED] for text in _texts(content, (*_CODES, *_MESSAGES)))
    shown = f"{status} {token}".rstrip()

    def error(text: str, **flags: bool) -> ApiError:
        return ApiError(f"{service.name}: {text}", status=status, **flags)

    if token in _NO_CREDIT:
        return error(f"the account's quota is used up ({shown}); add credit, then start again")
    # llama.cpp says so with status 500. A parameter that is out of range is not a matter of size.
    about_size = status in (400, 422, 429, 500) and not token.startswith(("unsupported", "unknown"))
    if status == 413 or (about_size and (_NEVER_FITS if status == 429 else _TOO_LARGE).search(words)):
        return error(f"the request is too large ({shown})", too_large=True)
    if status in _RETRIED or status >= 500:
        wait = retry_after(headers)
        if wait is not None and wait > LONGEST_WAIT:
            minutes = "hours" if wait == float("inf") else f"{wait / 60:.0f} minutes"
            return error(f"asks to wait {minutes} ({shown}); start again later")
        return Again(shown, status, wait)
    if status in (400, 403, 422, 451) and _REFUSED.search(words):
        return error(f"declines on grounds of content ({shown})", refused=True)
    if status in (401, 403):
        if key:
            return error(f"the key in {service.key_env} was refused ({shown})")
        if not service.private:
            return error(f"wants a key ({shown}), and none is sent over plain http; use https")
        return error(f"wants a key ({shown}); set {service.key_env}")
    if status in (400, 422) and _UNSUPPORTED.search(words):
        return error(f"does not take this request's parameters ({shown})", unsupported=True)
    if status == 404:
        kind = "deployment" if service.name == "azure" else "model"
        return error(
            f"no {kind} {short(model)} at {service.place} ({shown}); check the {kind}'s name and base_url"
        )
    if status == 402 or _OUT_OF_CREDIT.search(words):
        return error(f"the account is out of credit ({shown}); add credit, then start again")
    if status < 400:
        return error(f"{service.place} answers with a redirect ({shown}); check base_url")
    return error(f"refuses the request to model {short(model)} ({shown})")


def _json(body: bytes) -> Any:
    """What a body holds; None where it is no JSON."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _texts(content: Any, names: Sequence[str]) -> Iterator[str]:
    """Fields of the objects in which services put their errors: `error`, `detail`, a list, or the top."""
    if isinstance(content, list):
        for part in content[:10]:
            yield from _texts(part, names)
    if isinstance(content, dict):
        for name in ("error", "detail", "errors"):
            if isinstance(content.get(name), dict | list):
                yield from _texts(content[name], names)
        yield from (content[name] for name in names if isinstance(content.get(name), str))


LONGEST_ANSWER = 256 * 2**20  # bytes
_LONGEST_ERROR = 2**16
_STEP = 0.2  # seconds between looks at `stop` while waiting
_UNUSABLE = 2  # answers of the wrong shape after which a call is repeated; each may be billed
_WRONG_SHAPE = (ValueError, LookupError, TypeError, AttributeError)


@dataclass(frozen=True)
class Call:
    """A request. Its `repr` leaves the body out: prompts do not belong into logs."""

    path: str
    body: Mapping[str, Any]
    bound: Usage  # at most this many tokens, for the reservation and for tokens per minute
    purpose: str  # "embed", "generate", "classify" or "rerank"
    class_name: str | None = None
    idempotency_key: str = ""  # the same over retries and after a resume
    spoiled: int = 0  # answers to it that another one is wanted for

    def __repr__(self) -> str:
        return f"Call({self.path!r}, purpose={self.purpose!r})"


@dataclass
class _Outcome:
    """What is known of an attempt when it is over."""

    usage: Usage | None = None
    free: bool = False  # it cost nothing


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
        self.active = 0
        self._slots: dict[asyncio.AbstractEventLoop, asyncio.Semaphore] = {}
        self._slots_lock = threading.Lock()
        self._timeout = httpx.Timeout(limits.timeout, connect=min(limits.timeout, 10.0), pool=None)
        self._requests = None if limits.rpm is None else Pace(limits.rpm)
        self._tokens = None if limits.tpm is None else Pace(limits.tpm)
        self._randomness = random.Random()

    def __reduce__(self) -> tuple[type[ApiClient], tuple[Service, str, Limits]]:
        # Estimators are copied and sent to other processes with their embedder; a ledger is a run's.
        return ApiClient, (self.service, self.model, self.limits)

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

        Args:
            call: the request; it is repeated while the service gives no usable answer, as the limits allow.
            usage: reads the tokens from the answer; None where it does not tell them.
            keep: stores the answer. If it raises ValueError, LookupError, TypeError or AttributeError, the
                answer has the wrong shape, and the call is repeated a few times.
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
        attempts = "1 attempt" if attempt == 0 else f"{attempt + 1} attempts"
        what = "no usable answer" if answer.answered else "no answer"
        remedy = f"see what serves {self.service.place}" if answer.answered else "start again later"
        raise ApiError(
            f"{self.service.name}: {what} after {attempts} (last: {answer.reason}); {remedy}",
            status=answer.status,
        )

    async def _attempt(
        self, call: Call, usage: Callable[[Any], Usage | None], keep: Callable[[Any], None] | None
    ) -> Any:
        key = self.service.key()
        async with self._slot():
            claims = [] if self._requests is None else [self._requests.claim()]
            if self._tokens is not None:
                claims.append(self._tokens.claim(call.bound.tokens))
            for claim in claims:
                await self._pause(claim.start - time.monotonic())
            self._check_stop()
            with self._metered(call) as outcome:
                self.active += 1
                try:
                    answer = await self._answer(call, key, outcome)
                finally:
                    self.active -= 1
                if not isinstance(answer, Again):
                    with suppress(*_WRONG_SHAPE):
                        outcome.usage = usage(answer)
                    answer = _kept(keep, answer)
            if self._tokens is not None and outcome.usage is not None:
                self._tokens.settle(claims[-1], outcome.usage.tokens)
        return answer

    @contextmanager
    def _metered(self, call: Call) -> Iterator[_Outcome]:
        """One attempt in the ledger: reserved before it, settled after it, whatever happens between.

        An outcome that stays unknown settles at what was reserved: a call that was cancelled or whose
        connection broke may have been billed.
        """
        outcome, ledger, price = _Outcome(), self.ledger, self.price
        if ledger is None:
            yield outcome
            return
        cost = None if price is None else price.nano_usd(call.bound)
        number = ledger.reserve(call.purpose, cost, class_name=call.class_name, ahead=AHEAD.get())
        try:
            yield outcome
        finally:
            if outcome.free:
                cost = 0
            elif price is not None and outcome.usage is not None:
                cost = price.nano_usd(outcome.usage)
            ledger.settle(number, cost, outcome.usage)

    async def _pause(self, seconds: float) -> None:
        """Sleep, but not past a wish to stop."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._check_stop()
            await asyncio.sleep(min(left, _STEP))

    def _check_stop(self) -> None:
        if self.stop is not None and self.stop.is_set():
            raise StoppedError(f"{self.service.name}: stopped before a call")

    async def _answer(self, call: Call, key: str | None, outcome: _Outcome) -> Any:
        """The answer's JSON, or why to ask again; raises `ApiError` where that would not help.

        Nothing is raised inside an `except`: the errors of httpx carry the request with its key.
        """
        url, headers = self.service.url(self.model, call.path), self._headers(call, key)
        content = json.dumps(call.body, ensure_ascii=False).encode("utf-8", "replace")
        status, body, response_headers = 0, b"", httpx.Headers()
        trouble: Again | None = None
        refused = False
        http = await connections(url)
        try:
            async with (
                asyncio.timeout(self.limits.timeout),
                http.stream("POST", url, content=content, headers=headers, timeout=self._timeout) as response,
            ):
                status, response_headers = response.status_code, response.headers
                body = await _body(response, LONGEST_ANSWER if response.is_success else _LONGEST_ERROR)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            outcome.free = True  # it was never sent
            refused = self.service.is_local and isinstance(error, httpx.ConnectError)
            trouble = Again(f"cannot connect to {self.service.place}")
        except (TimeoutError, httpx.TimeoutException):
            trouble = Again(f"nothing for {self.limits.timeout:g} s")
        except (httpx.HTTPError, httpx.StreamError, OSError):
            trouble = Again("the connection broke")
        if refused:  # on this machine nothing comes up by waiting
            raise ApiError(
                f"{self.service.name}: nothing answers at {self.service.place}; is the server running?"
            )
        if status >= 300:
            if status not in GAVE_UP:
                outcome.free = True
            answer = failure(self.service, self.model, key, status, body, response_headers)
            if isinstance(answer, ApiError):
                raise answer
            return answer
        answer = _json(body)
        if trouble is None and answer is None:
            return Again("an answer that is no JSON", garbled=True)
        return trouble or answer

    def _headers(self, call: Call, key: str | None) -> dict[str, str]:
        headers = {"User-Agent": f"adamab/{__version__}", "Content-Type": "application/json"}
        headers |= self.service.headers(key)
        if call.idempotency_key:
            # A service that knows the key gives the same answer again. That is wanted after one that got
            # lost, or was spoiled on the way once; not after one that cannot be used.
            suffix = f"-{call.spoiled}" if call.spoiled else ""
            headers["Idempotency-Key"] = call.idempotency_key + suffix
        return headers

    def _slot(self) -> asyncio.Semaphore:
        """A place among the calls of the running loop."""
        running = asyncio.get_running_loop()
        with self._slots_lock:  # other threads have loops of their own
            if running not in self._slots:
                for loop in [loop for loop in self._slots if loop.is_closed()]:
                    del self._slots[loop]
                self._slots[running] = asyncio.Semaphore(self.limits.concurrency)
            return self._slots[running]


async def _body(response: httpx.Response, longest: int) -> bytes:
    """The body; of an answer that is too long only the beginning, which is no JSON then."""
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > longest:
            break
    return bytes(body[:longest])


def _kept(keep: Callable[[Any], None] | None, answer: Any) -> Any:
    try:
        if keep is not None:
            keep(answer)
    except BadAnswerError as problem:
        return Again(str(problem), answered=True)
    except _WRONG_SHAPE:
        return Again("an answer of the wrong shape", answered=True)
    return answer
