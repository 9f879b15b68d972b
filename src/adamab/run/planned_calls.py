"""The calls that a fit would make, foreseen without making one.

How many there are is known where nothing goes wrong; how long new texts will be is not, so they are
taken to be as long as the given ones, and at most as long as an answer may be. Which classes the policy
will choose is not known either: the ones with the fewest samples stand for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from adamab.errors import GeneratorError
from adamab.providers.embedders.base import Embedder, Item, Kind, only_texts
from adamab.providers.generators.base import Request
from adamab.providers.usage import Usage, estimated_tokens
from adamab.run.fit import settled
from adamab.run.planned_samples import PlannedSamples
from adamab.run.resolve import embedder_key
from adamab.run.source import REFILLS
from adamab.task.messages import one_line
from adamab.task.spec import ClassSpec

if TYPE_CHECKING:
    from adamab.providers.generators.openai import OpenAIGenerator
    from adamab.providers.generators.openai_image import OpenAIImageGenerator
    from adamab.run.fit_run import Order
    from adamab.task.recipe import Recipe

EMBED, GENERATE = "embed", "generate"
_AROUND = 4  # output tokens around each sample: quotes, a comma, its share of the frame
_BYTES = 4  # of a written token, generously
_LOOKED_UP = 256  # samples that the cache is asked for at once


@dataclass(frozen=True)
class PlannedCall:
    """A call: what it should use, and the most that it may, which is reserved for it."""

    purpose: str
    expected: Usage
    bound: Usage
    round: int = 0  # 0: before the first


@dataclass(frozen=True)
class AtMost:
    """Calls of one kind, however badly the generator writes: no more of them, and none larger."""

    purpose: str
    bound: Usage
    times: int


class PlannedCalls:
    """What `order` would have called in a run that is begun anew."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._recipe = settled(order.recipe, order.task, order.caps)
        self._vectors = _Vectors(order.embedder, self._recipe)
        self._new = PlannedSamples(order, self._recipe)
        self._given = self._new.given
        self._sizes = _sizes(order, self._recipe)
        self._writes = order.generator is not None and order.generator.api is not None
        self._embeds = order.embedder.api is not None
        self._first = list(self._before()) if self._embeds else []

    @property
    def sizes(self) -> Sequence[int]:
        """Samples asked for, round by round."""
        return self._sizes

    @property
    def cached(self) -> int:
        """Items whose vectors are in the cache already, of those that are known before the first round."""
        return self._vectors.found

    def expected(self) -> list[PlannedCall]:
        """In their order, if every answer is as long and as good as it should be."""
        calls = list(self._first)
        counts, batches = [len(given) for given in self._given], [0] * len(self._given)
        for number, size in enumerate(self._sizes, 1):
            chosen = counts.index(min(counts))
            calls += self._round(number, size, chosen, batches[chosen])
            counts[chosen] += size
            batches[chosen] += 1
        return calls

    def at_most(self) -> list[AtMost]:
        """As many as the bounds of asking again allow, and what is fetched ahead for nothing."""
        most = [AtMost(call.purpose, call.bound, 1) for call in self._first]
        rounds = self._most_rounds()
        ahead = min(self._order.prefetch, max(rounds - 1, 0)) if self._writes else 0
        batches = rounds * (1 + REFILLS) + ahead
        if not batches:
            return most
        if self._writes:
            most += [AtMost(GENERATE, bound, batches) for bound in self._largest_asks(batches)]
        if self._embeds and self._has_texts():
            asked = self._vectors.requests([self._largest_item()] * self._recipe.batch)
            most += [AtMost(EMBED, bound, batches) for _, bound in asked]
        return most

    def _before(self) -> Iterator[PlannedCall]:
        """The given samples, then the classes."""
        task, embedder = self._order.task, self._order.embedder
        keys = [embedder_key(sample, embedder, task.prompts) for sample in task.samples]
        lacking = [self._vectors.lacking(keys, "query")]
        if "text" in embedder.modalities:
            lacking += [self._vectors.lacking(wordings, "class") for wordings in self._wordings()]
        for items in lacking:
            for expected, bound in self._vectors.requests(items):
                yield PlannedCall(EMBED, expected, bound)

    def _wordings(self) -> Iterator[list[str]]:
        """Of the classes, once; where they quote examples, once more for each fold that holds some out."""
        task = self._order.task
        folds = self._folds()
        for fold in (-1, *range(folds.max(initial=-1) + 1 if task.prompts.with_examples else 0)):
            shown = [s for s, held in zip(task.samples, folds, strict=True) if fold < 0 or held != fold]
            examples = [[s.text for s in shown if s.class_name == spec.name] for spec in task.classes]
            yield [
                task.prompts.class_text(spec, texts)
                for spec, texts in zip(task.classes, examples, strict=True)
            ]

    def _folds(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """As the evidence makes them; it takes fewer of large tasks, and of copies, which vectors tell."""
        from adamab.method.evidence import stratified_folds

        index = {name: c for c, name in enumerate(self._order.task.class_names)}
        classes = np.array([index[s.class_name] for s in self._order.task.samples], np.int64)
        n_folds = min(self._recipe.folds, max(map(len, self._given), default=0))
        if n_folds < 2 or not self._recipe.refit:
            return np.full(len(classes), -1, np.int64)
        return stratified_folds(classes, n_folds, np.random.default_rng(self._order.seed))

    def _round(self, number: int, size: int, class_index: int, batch: int) -> Iterator[PlannedCall]:
        if self._writes:
            asked = self._drawn(class_index, batch) or [self._written(class_index, size, batch)]
            for expected, bound in asked:
                yield PlannedCall(GENERATE, expected, bound, number)
        if self._embeds and self._has_texts():
            for expected, bound in self._vectors.requests(self._new.items(class_index, size)):
                yield PlannedCall(EMBED, expected, bound, number)

    def _written(self, class_index: int, size: int, batch: int) -> tuple[Usage, Usage]:
        """The question for a batch of texts: what it should use, and the most."""
        existing = self._new.like_given(class_index, batch * self._recipe.batch)
        input_tokens, bounds = self._ask(class_index, size, existing, batch)
        texts = self._new.like_given(class_index, size)
        output_tokens = sum(estimated_tokens(text) + _AROUND for text in texts)
        return Usage(input_tokens, min(output_tokens, bounds[0].output_tokens)), bounds[0]

    def _drawn(self, class_index: int, batch: int) -> list[tuple[Usage, Usage]]:
        """The questions for a batch of pictures, always a whole one; none where texts are written."""
        artist = self._artist()
        return [] if artist is None else artist.calls_for(self._request(class_index, batch))

    def _artist(self) -> OpenAIImageGenerator | None:
        from adamab.providers.generators.openai_image import OpenAIImageGenerator

        generator = self._order.generator
        return generator if isinstance(generator, OpenAIImageGenerator) else None

    def _request(self, class_index: int, batch: int = 0) -> Request:
        spec, given = self._order.task.classes[class_index], self._given[class_index]
        return Request(spec, class_index, self._recipe.batch, given, (), number=batch)

    def _ask(
        self, class_index: int, count: int, existing: Sequence[str], batch: int = 0
    ) -> tuple[int, list[Usage]]:
        spec, given = self._order.task.classes[class_index], self._given[class_index]
        request = Request(spec, class_index, count, given, tuple(existing), number=batch)
        return self._writer().tokens_of(replace(request, apart_from=self._longest_rival(class_index)))

    def _longest_rival(self, class_index: int) -> ClassSpec | None:
        """The other class that takes most words, since nobody knows yet which one it will be."""
        if not self._recipe.contrast:
            return None
        others = [spec for c, spec in enumerate(self._order.task.classes) if c != class_index]
        return max(others, key=lambda spec: len(spec.name) + len(spec.description or ""))

    def _writer(self) -> OpenAIGenerator:
        from adamab.providers.generators.openai import OpenAIGenerator

        if not isinstance(self._order.generator, OpenAIGenerator):
            raise GeneratorError(
                f"{one_line(self._order.generator_spec)}: does not tell what its calls take, so there is no "
                "dry run with it; cap the calls with --budget instead"
            )
        return self._order.generator

    def _largest_asks(self, batches: int) -> list[Usage]:
        """What the questions of any class have at most, with as much to show as there can be."""
        artist, size = self._artist(), self._recipe.batch
        if artist is not None:
            drawn = [artist.most_calls(self._request(c)) for c in range(len(self._given))]
            return [reduce(Usage.or_more, bounds) for bounds in zip(*drawn, strict=True)]
        shown = min(batches * size, self._writer().shown)
        asks = [self._ask(c, size, [self._longest_answer(c)] * shown)[1] for c in range(len(self._given))]
        return [reduce(Usage.or_more, bounds) for bounds in zip(*asks, strict=True)]

    def _longest_answer(self, class_index: int) -> str:
        """A sample that takes its share of the longest answer; of letters of four bytes."""
        _, bounds = self._ask(class_index, self._recipe.batch, ())
        return "\U0001f600" * -(-bounds[0].output_tokens * _BYTES // (4 * self._recipe.batch))

    def _largest_item(self) -> Item:
        if self._order.task.modality == "image":
            return self._new.largest_picture(lambda picture: self._vectors.requests([picture])[0][1].tokens)
        longest = self._new.longest_recorded()
        if self._writes:
            longest = max((self._longest_answer(c) for c in range(len(self._given))), key=len)
        return self._order.task.prompts.query_text(longest)

    def _most_rounds(self) -> int:
        """Where batches are not filled, the cap on samples is reached later or never."""
        return self._recipe.n_augmentation_rounds(len(self._given)) if self._sizes else 0

    def _has_texts(self) -> bool:
        return self._order.generator is not None and not self._order.generator.yields_vectors


class _Vectors:
    """What has to be embedded, in which requests; looks into caches and asks no service."""

    def __init__(self, embedder: Embedder, recipe: Recipe) -> None:
        from adamab.providers.cache import CachedEmbedder

        self._caches = []
        while isinstance(embedder, CachedEmbedder):
            self._caches.append(embedder.cache)
            embedder = embedder.embedder
        self._embedder, self._views = embedder, recipe.views
        self._known: set[tuple[Kind, Item]] = set()
        self.found = 0

    def lacking(self, items: Sequence[Item], kind: Kind) -> list[Item]:
        """What neither a cache nor an earlier call of this run has vectors of."""
        new = [item for item in dict.fromkeys(items) if (kind, item) not in self._known]
        self._known |= {(kind, item) for item in new}
        held = {
            item
            for start in range(0, len(new), _LOOKED_UP)
            for item in self._held(new[start : start + _LOOKED_UP], kind)
        }
        self.found += len(held)
        return [item for item in new if item not in held]

    def requests(self, items: Sequence[Item]) -> list[tuple[Usage, Usage]]:
        """What is expected of each request, and the most."""
        from adamab.providers.embedders.api import ApiEmbedder

        if isinstance(self._embedder, ApiEmbedder):
            return self._embedder.requests_for(items)
        texts = only_texts(items)  # nobody but its service knows what a picture has
        bytes_ = sum(len(text.encode("utf-8", "replace")) for text in texts)
        return [(Usage(sum(map(estimated_tokens, texts))), Usage(bytes_))] if items else []

    def _held(self, items: Sequence[Item], kind: Kind) -> set[Item]:
        from adamab.providers.cache_file import PlaceError

        views, held = self._views or self._embedder.views, set[Item]()
        for cache in self._caches:
            try:
                stored = cache.get(self._embedder.fingerprint, kind, items, views)
            except PlaceError:
                continue  # a fit warns of it when it stores something
            held |= {item for n, item in enumerate(items) if all((n, view) in stored for view in views)}
        return held


def _sizes(order: Order, recipe: Recipe) -> list[int]:
    """Samples of each round that generates, if every batch is accepted as a whole."""
    if order.generator is None or order.policy == "none":
        return []
    left, sizes = order.caps.samples, []
    for _ in range(recipe.n_augmentation_rounds(len(order.task.classes))):
        size = recipe.batch if left is None else min(recipe.batch, left)
        if size <= 0:
            break
        sizes.append(size)
        left = None if left is None else left - size
    return sizes
