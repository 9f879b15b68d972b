"""What an answer that is an error means: ask again, or one line that says what to do.

The body of such an answer may repeat the prompt or the key. It is looked through for known words and
never quoted, but for one short token such as `invalid_api_key`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from adamab.errors import ApiError
from adamab.providers.limits import retry_after
from adamab.providers.services import Service
from adamab.task.messages import short

LONGEST_WAIT = 600.0  # seconds that a service may ask us to wait
_LOOKED_AT = 400  # characters of a message; what it quotes of the request comes later
_RETRIED = (408, 409, 429)
# Something on the way gave up waiting; the model may have gone on, and its work be billed.
GAVE_UP = (408, 502, 504, 524)
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
    r"|dimensions?\b|encoding_format|temperature|top_p|input_type|truncat|extra (inputs|fields)"
    r"|(unknown|unsupported|unrecognized)[ _]((request )?argument|parameter|value)",
    re.IGNORECASE,
)
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

    def give_up(self, service: Service, attempts: int) -> ApiError:
        """The error when all attempts have failed."""
        times = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        what = "no usable answer" if self.answered else "no answer"
        remedy = f"see what serves {service.place}" if self.answered else "start again later"
        return ApiError(
            f"{service.name}: {what} after {times} (last: {self.reason}); {remedy}", status=self.status
        )


@dataclass(frozen=True)
class _Problem:
    service: Service
    model: str
    status: int
    token: str  # "" where there is none that may be shown
    words: str  # for looking through only

    @property
    def shown(self) -> str:
        return f"{self.status} {self.token}".rstrip()

    def error(self, text: str, **flags: bool) -> ApiError:
        return ApiError(f"{self.service.name}: {text}", status=self.status, **flags)


def failure(
    service: Service,
    model: str,
    sent: Mapping[str, str],
    status: int,
    body: bytes,
    headers: Mapping[str, str],
) -> Again | ApiError:
    """What to make of a status that is no success; `sent` are the request's headers."""
    key = sent.get("Authorization", "").removeprefix("Bearer ")
    told = _told(body)
    token = next((t for t in _tokens(told) if not key or key not in t), "")
    problem = _Problem(service, model, status, token, " ".join(_words(told)))
    if problem.token in _NO_CREDIT:
        return problem.error(
            f"the account's quota is used up ({problem.shown}); add credit, then start again"
        )
    if status == 413 or (status in (400, 422, 429, 500) and _is_too_large(problem)):
        return problem.error(f"the request is too large ({problem.shown})", too_large=True)
    if status in _RETRIED or status >= 500:
        return _again(problem, retry_after(headers))
    return _final(problem, bool(key))


def _is_too_large(problem: _Problem) -> bool:
    if problem.status == 429:
        return bool(_NEVER_FITS.search(problem.words))
    # llama.cpp says so with status 500. A parameter that is out of range is not a matter of size.
    return not problem.token.startswith(("unsupported", "unknown")) and bool(_TOO_LARGE.search(problem.words))


def _again(problem: _Problem, wait: float | None) -> Again | ApiError:
    if wait is not None and wait > LONGEST_WAIT:
        minutes = "hours" if wait == float("inf") else f"{wait / 60:.0f} minutes"
        return problem.error(f"asks to wait {minutes} ({problem.shown}); start again later")
    return Again(problem.shown, problem.status, wait)


def _final(problem: _Problem, with_key: bool) -> ApiError:
    status, words, shown = problem.status, problem.words, problem.shown
    if status in (400, 403, 422, 451) and _REFUSED.search(words):
        return problem.error(f"declines on grounds of content ({shown})", refused=True)
    if status in (401, 403):
        return problem.error(_about_key(problem, with_key))
    if status in (400, 422) and _UNSUPPORTED.search(words):
        return problem.error(f"does not take this request's parameters ({shown})", unsupported=True)
    if status == 404:
        return problem.error(
            f"no model {short(problem.model)} at {problem.service.place} ({shown}); "
            "check the model's name and base_url"
        )
    if status == 402:
        return problem.error(f"the account is out of credit ({shown}); add credit, then start again")
    if status < 400:
        return problem.error(f"{problem.service.place} answers with a redirect ({shown}); check base_url")
    return problem.error(f"refuses the request to model {short(problem.model)} ({shown})")


def _about_key(problem: _Problem, with_key: bool) -> str:
    if with_key:
        return f"the key in {problem.service.key_env} was refused ({problem.shown})"
    if not problem.service.private:
        return f"wants a key ({problem.shown}), and none is sent over plain http; use https"
    return f"wants a key ({problem.shown}); set {problem.service.key_env}"


def _told(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _tokens(told: Any) -> Iterator[str]:
    """`error.code`, `error.type` and the like, if they are short and plain."""
    for part in _objects(told):
        for name in ("code", "type", "error_type"):
            value = part.get(name)
            if isinstance(value, str) and _TOKEN.fullmatch(value) and value != "error":
                yield value


def _words(told: Any) -> Iterator[str]:
    for part in _objects(told):
        for name in ("code", "type", "error_type", "param", "message", "detail", "error", "msg"):
            value = part.get(name)
            if isinstance(value, str):
                yield value[:_LOOKED_AT]
    if isinstance(told, str):
        yield told[:_LOOKED_AT]


def _objects(told: Any) -> Iterator[Mapping[str, Any]]:
    """The objects in which services put their errors: `error`, `detail`, a list of them, or the top."""
    if isinstance(told, list):
        for part in told[:10]:
            yield from _objects(part)
    if isinstance(told, dict):
        for name in ("error", "detail", "errors"):
            if isinstance(told.get(name), dict | list):
                yield from _objects(told[name])
        yield told
