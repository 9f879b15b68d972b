"""What the provider server has received, answered and billed."""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from typing import Any

from adamab.testing.provider_errors import Answer, Refused


@dataclass
class Seen:
    """One request, as far as it has come: `status` is None until there is an answer."""

    path: str
    body: Any
    headers: dict[str, str] = field(repr=False)  # names in lower case; never the key
    has_key: bool = False
    idempotency_key: str = ""
    at: float = field(default_factory=time.monotonic)
    status: int | None = None
    fault: str | None = None
    billed: bool = False


class Book:
    """Counts and remembers, from any thread; the last `keep` requests and answers, or all."""

    def __init__(self, keep: int | None = None) -> None:
        self._lock = threading.Lock()
        self.keep = keep
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._seen: deque[Seen] = deque(maxlen=self.keep)
            self._received: Counter[str] = Counter()
            self._billed: Counter[str] = Counter()
            self._repeated: Counter[str] = Counter()
            self._pictures: Counter[str] = Counter()
            self._drawn: Counter[str] = Counter()
            self._numbers: OrderedDict[str, int] = OrderedDict()
            self._bodies: set[tuple[str, str]] = set()
            self._answers: OrderedDict[str, tuple[str, Answer | None]] = OrderedDict()

    def receive(self, seen: Seen) -> None:
        """Count a request."""
        with self._lock:
            self._seen.append(seen)
            self._received[seen.path] += 1

    def known(self, key: str, digest: str) -> Answer | None:
        """The answer made before under this key; raises `Refused` when that was to another body."""
        with self._lock:
            before, answer = self._answers.get(key, (digest, None)) if key else (digest, None)
        if before != digest:
            message = "Keys for idempotent requests can only be used with the same body as at first."
            raise Refused(400, message, type="idempotency_error")
        return answer

    def draw(self, prompt: str, count: int, key: str) -> int:
        """How many pictures the prompt has had, before it gets `count` more; the same under the same key."""
        with self._lock:
            if key in self._numbers:
                return self._numbers[key]
            before = self._drawn[prompt]
            self._drawn[prompt] += count
            if key:
                self._numbers[key] = before
                while self.keep is not None and len(self._numbers) > self.keep:
                    self._numbers.popitem(last=False)
        return before

    def bill(
        self, seen: Seen, key: str, digest: str, answer: Answer, *, whole: bool, pictures: int = 0
    ) -> None:
        """Count an answer made, each key once; a whole one is remembered under its key."""
        with self._lock:
            if not key or key not in self._answers:
                seen.billed = True
                self._billed[seen.path] += 1
                self._pictures[seen.path] += pictures
                self._repeated[seen.path] += (seen.path, digest) in self._bodies
                self._bodies.add((seen.path, digest))
            if key:
                self._answers[key] = (digest, answer if whole else None)
                while self.keep is not None and len(self._answers) > self.keep:
                    self._answers.popitem(last=False)

    @property
    def seen(self) -> list[Seen]:
        """The requests in the order they came."""
        with self._lock:
            return list(self._seen)

    def received(self, ending: str = "") -> int:
        """Requests at paths that end so."""
        return self._total(self._received, ending)

    def billed(self, ending: str = "") -> int:
        """Answers made and not answered from memory."""
        return self._total(self._billed, ending)

    def repeated(self, ending: str = "") -> int:
        """Answers billed although one to the very same body had been billed before."""
        return self._total(self._repeated, ending)

    def pictures(self, ending: str = "") -> int:
        """Pictures in the answers billed, or in the requests that they answer."""
        return self._total(self._pictures, ending)

    def by_path(self) -> dict[str, dict[str, int]]:
        """The counts as JSON; pictures where there were any."""
        with self._lock:
            return {path: self._counts(path, n) for path, n in sorted(self._received.items())}

    def _counts(self, path: str, received: int) -> dict[str, int]:
        counts = {"received": received, "billed": self._billed[path], "repeated": self._repeated[path]}
        return {**counts, "pictures": self._pictures[path]} if self._pictures[path] else counts

    def _total(self, counter: Counter[str], ending: str) -> int:
        with self._lock:
            return sum(n for path, n in counter.items() if path.endswith(ending))
