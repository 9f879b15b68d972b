"""`replay:FILE` and `pool:FILE`: samples written down before, handed out a class at a time."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from adamab.errors import GeneratorError, TaskError
from adamab.providers.generators.base import Batch, Generator, Request
from adamab.task.readers import read_samples
from adamab.task.words import folded


class ReplayGenerator(Generator):
    """Recorded samples (JSONL with `label` and `text`) in file order, each at most once.

    With `seed` every class is shuffled on its own. Texts that the request gives or that exist
    already are passed over, so a run that starts again goes on where it was.
    """

    prefix = "replay"
    source = "recording"

    def __init__(self, path: str | Path, *, seed: int | None = None) -> None:
        self.path = Path(path).expanduser()
        self._queues = _read(self.path)
        self._cursors = dict.fromkeys(self._queues, 0)
        if seed is not None:
            self._queues = {name: _shuffled(name, texts, seed) for name, texts in self._queues.items()}
        digest = hashlib.sha256(self.path.read_bytes()).hexdigest()
        self.fingerprint = f"{self.prefix}:sha256:{digest}" + ("" if seed is None else f":seed={seed}")

    def __str__(self) -> str:
        return f"{self.prefix}:{self.path}"

    async def generate(self, request: Request) -> Batch:
        """The next samples of the class; the batch with the last of them closes it."""
        name = request.spec.name
        queue = self._queues.get(name)
        if queue is None:
            return Batch(closed=f"{self.source} has no samples of this class")
        known = {folded(text) for text in (*request.given, *request.existing)}
        left = [
            place for place in range(self._cursors[name], len(queue)) if folded(queue[place]) not in known
        ]
        taken = left[: max(request.count, 0)]
        if taken:
            self._cursors[name] = taken[-1] + 1
        exhausted = len(taken) == len(left)
        return Batch(tuple(queue[place] for place in taken), closed=self._exhausted if exhausted else None)

    @property
    def _exhausted(self) -> str:
        return f"{self.source} exhausted"


class PoolGenerator(ReplayGenerator):
    """Real held-out samples, as a perfect generator: what a generator could give at best."""

    prefix = "pool"
    source = "pool"


def _read(path: Path) -> dict[str, list[str]]:
    """The distinct texts of each class, in file order."""
    try:
        samples = read_samples(path)
    except TaskError as error:
        raise GeneratorError(str(error)) from None
    queues: dict[str, dict[str, str]] = {}
    for sample in samples:
        queues.setdefault(sample.class_name, {}).setdefault(folded(sample.text), sample.text)
    return {name: list(texts.values()) for name, texts in queues.items()}


def _shuffled(name: str, texts: list[str], seed: int) -> list[str]:
    # Seeded by name: a class keeps its order whatever other classes the file has.
    own = int.from_bytes(hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()[:8], "little")
    return [texts[place] for place in np.random.default_rng([seed, own]).permutation(len(texts))]
