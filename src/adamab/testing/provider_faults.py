"""Faults that the provider server makes on demand."""

from __future__ import annotations

import json
import math
import random
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

# Kind -> what happens to the request.
KINDS: dict[str, str] = {
    "status": "answered with `status` (429), and a Retry-After of `retry_after` if given",
    "slow": "answered `seconds` later than others",
    "hang": "never answered, or left hanging after the share `sent` of the body; for `seconds` if given",
    "reset": "connection reset after the share `sent` (0.5) of the body; 0 resets before the first byte",
    "truncate": "the body ends after the share `sent` (0.5), cleanly; how='length' announces all of it",
    "garbage": "200 with a page that is not JSON; a proxy's, so not billed",
    "few_vectors": "one vector, or one score of a document, less than asked for",
    "many_vectors": "one vector, or one score, more than asked for",
    "wrong_width": "vectors of half the width; how='last': the last one only",
    "nan": "a NaN in the last vector or as the last score; how='null': a null",
    "shuffled": "vectors in another order, each with its right index (no real fault; OpenAI and Voyage)",
    "wrong_index": "the last score carries the number of the first document",
    "answer": (
        "the number of a class written otherwise; how='chatter' (or nothing), 'json', 'fenced', 'think'; "
        "how='none': -1; how='garbage': no number at all; how='two': two numbers"
    ),
    "duplicates": "all samples are the same; how='given': they are the texts that the prompt shows",
    "empty": (
        "all samples are empty; how='content': the whole answer is; for embeddings no vector at all, "
        "for reranking no score"
    ),
    "few_pictures": "one picture less than asked for",
    "no_picture": "bytes that are no picture; how='base64': letters that are no base64",
    "cut_picture": "pictures that end after the share `sent` (0.5) of their bytes",
    "picture_url": "addresses instead of pictures",
    "refusal": (
        "message.refusal; how='text': a content that declines; how='filter': content_filter; "
        "for pictures 400, moderation_blocked"
    ),
    "refusal_status": "400, a violation of the content policy",
    "no_usage": "an answer without usage numbers",
    "overcharge": "usage numbers `factor` (10) times too large",
    "too_large": (
        "413 (or `status`) where a request has more than `items` inputs or `bytes` bytes; "
        "400 where it allows the answer more than `tokens` tokens"
    ),
    "no_schema": "400 where a request has a response_format (how='json_schema': of that type only)",
}
_STATUS = {"status": 429, "too_large": 413, "refusal_status": 400, "no_schema": 400}
_Raw = bytes  # a field of Fault has that name
_SPOILED = frozenset(
    {"few_vectors", "many_vectors", "wrong_width", "nan", "wrong_index"}
    | {"few_pictures", "no_picture", "cut_picture", "picture_url"}
)


@dataclass(frozen=True)
class Fault:
    """What goes wrong, in which requests and how often.

    A request matches when its path contains `path`, its body `contains` and, for `too_large` and
    `no_schema`, when it has what is refused. The first `after` matching requests pass, the next
    `times` fail (None: all of them), each with `probability` if one is given. `how` picks a variant;
    `KINDS` lists them.

    Example:
        >>> Fault("status", path="embeddings", status=503, times=2).status_code
        503
    """

    kind: str
    path: str = ""
    times: int | None = 1
    after: int = 0
    probability: float | None = None
    contains: str = ""
    status: int | None = None
    retry_after: float | str | None = None
    seconds: float | None = None
    sent: float | None = None
    how: str = ""
    items: int | None = None
    bytes: int | None = None
    tokens: int | None = None
    factor: float = 10.0
    seed: int = 0

    def __post_init__(self) -> None:
        _check_kind(self.kind)
        if self.sent is not None and not 0 <= self.sent < 1:
            raise ValueError(f"sent is {self.sent}; it is a share of the body, at least 0 and below 1")
        if self.probability is not None and not 0 <= self.probability <= 1:
            raise ValueError(f"probability is {self.probability}; write a number from 0 to 1")

    @property
    def status_code(self) -> int:
        """The status of the answer where the fault sets one."""
        if self.status is None and self.tokens is not None:
            return 400
        return self.status if self.status is not None else _STATUS.get(self.kind, 200)

    @classmethod
    def parse(cls, text: str) -> Fault:
        """A fault as written on the command line: `KIND[:key=value,...]`; `times=none` means always.

        Example:
            >>> Fault.parse("status:status=500,times=none") == Fault("status", status=500, times=None)
            True
        """
        kind, _, rest = text.partition(":")
        pairs = [part.partition("=") for part in rest.split(",") if part.strip()]
        return cls.from_json({"kind": kind.strip(), **{key.strip(): value for key, _, value in pairs}})

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Fault:
        """A fault from its fields, whose values may be texts."""
        types = {field.name: str(field.type) for field in fields(cls)}
        _check_kind(values.get("kind"))
        for key in values:
            if key not in types:
                raise ValueError(f"a fault has no {key!r}; it has {', '.join(types)}")
        return cls(**{key: _value(key, value, types[key]) for key, value in values.items()})

    def matches(self, path: str, body: Any, raw: _Raw) -> bool:
        """Whether the request is one that this fault is about."""
        if self.path not in path or (self.contains and self.contains not in _text(raw)):
            return False
        if self.kind == "too_large":
            return self._exceeded(body, raw)
        if self.kind == "no_schema":
            wanted = body.get("response_format") if isinstance(body, dict) else None
            return isinstance(wanted, dict) and self.how in ("", wanted.get("type"))
        return True

    def _exceeded(self, body: Any, raw: _Raw) -> bool:
        if self.items is None and self.bytes is None and self.tokens is None:
            return True
        if self.tokens is not None and output_limit(body) > self.tokens:
            return True
        too_many = self.items is not None and input_count(body) > self.items
        return too_many or (self.bytes is not None and len(raw) > self.bytes)


def input_count(body: Any) -> int:
    """How many texts, documents, pictures or all of these a request carries."""
    asked = body if isinstance(body, dict) else {}
    inputs = next((asked[key] for key in ("input", "texts", "inputs", "documents") if key in asked), None)
    return len(inputs) if isinstance(inputs, list) else 1


def output_limit(body: Any) -> int:
    """How many tokens a chat request allows the answer; 0 where it does not say."""
    asked = body if isinstance(body, dict) else {}
    limit = asked.get("max_completion_tokens") or asked.get("max_tokens")
    return limit if isinstance(limit, int) else 0


def spoiled(fault: Fault | None, path: str) -> bool:
    """Whether an answer is no good after the fault, so that a repeated Idempotency-Key has it made anew."""
    if fault is None:
        return False
    return fault.kind in _SPOILED or (fault.kind == "empty" and "chat" not in path)


def charged(numbers: dict[str, int], fault: Fault | None) -> dict[str, int]:
    """Usage numbers as the fault leaves them."""
    if fault is not None and fault.kind == "no_usage":
        return {}
    factor = fault.factor if fault is not None and fault.kind == "overcharge" else 1
    return {key: math.ceil(factor * value) for key, value in numbers.items()}


class Faults:
    """The faults in force; counts what each has met, from any thread."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self._met: list[int] = []
        for fault in faults:
            self.add(fault)

    def add(self, fault: Fault) -> None:
        """Put one more in force."""
        with self._lock:
            self._faults.append(fault)
            self._met.append(0)

    def clear(self) -> None:
        """End them all."""
        with self._lock:
            self._faults.clear()
            self._met.clear()

    def take(self, path: str, body: Any, raw: bytes) -> Fault | None:
        """The fault that befalls this request: the first in force. All that match count it."""
        with self._lock:
            due = [self._meet(n, f) for n, f in enumerate(self._faults) if f.matches(path, body, raw)]
        return next((fault for fault in due if fault is not None), None)

    def _meet(self, number: int, fault: Fault) -> Fault | None:
        met = self._met[number] - fault.after
        self._met[number] += 1
        if met < 0 or (fault.times is not None and met >= fault.times):
            return None
        chance = fault.probability
        spared = chance is not None and random.Random(f"{fault.seed}:{met}").random() >= chance
        return None if spared else fault


def _check_kind(kind: object) -> None:
    if kind not in KINDS:
        raise ValueError(f"unknown fault {kind!r}; known: {', '.join(KINDS)}")


def _text(raw: bytes) -> str:
    try:
        return json.dumps(json.loads(raw), ensure_ascii=False)
    except ValueError:
        return raw.decode("utf-8", "replace")


def _value(key: str, value: Any, kind: str) -> Any:
    if not isinstance(value, str):
        return value
    if "None" in kind and value.lower() in ("none", "null"):
        return None
    try:
        if kind.startswith("int"):
            return int(value)
        if kind.startswith("float"):
            return float(value)
    except ValueError:
        if "str" not in kind:
            raise ValueError(f"{key}={value!r} is not a number") from None
    return value
