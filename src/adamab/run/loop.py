"""The paper's algorithm: score, generate for the chosen class, embed, add, train; a record a round.

Nothing here can see test data: the signature has no place for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from adamab.method.policies import Arms, Choice, Policy
from adamab.providers.generators.base import Batch, Generator, GivenVectors, Request
from adamab.providers.sync import run_sync
from adamab.run.joint_model import JointModel
from adamab.run.records import RoundRecord, Seconds, class_scores
from adamab.run.training_set import TrainingSet
from adamab.task.recipe import Recipe
from adamab.task.spec import ClassSpec
from adamab.task.words import folded

Floats = NDArray[np.float32]
REFILLS = 2  # further requests in a round that was not filled
Embed = Callable[[Sequence[str]], dict[str, Floats]]


@dataclass
class Source:
    """Where synthetic samples come from, and which classes have run dry."""

    generator: Generator
    embed: Embed | None  # None where samples are vectors
    classes: Sequence[ClassSpec]
    budget: int | None = None  # samples in all
    spent: int = 0
    closed: dict[int, str] = field(default_factory=dict)

    def open(self) -> NDArray[np.bool_]:
        """(K,) classes that can still be asked for."""
        return np.array([c not in self.closed for c in range(len(self.classes))])

    def size(self, batch: int) -> int:
        """Samples to ask for in a round; 0 when the budget is spent or every class is closed."""
        if len(self.closed) == len(self.classes):
            return 0
        return batch if self.budget is None else min(batch, self.budget - self.spent)


def augment(
    samples: TrainingSet,
    make_model: Callable[[], JointModel],
    source: Source | None,
    policy: Policy | None,
    recipe: Recipe,
    *,
    rng: np.random.Generator,
    all_scores: bool = False,
) -> Iterator[RoundRecord]:
    """Run the rounds; `samples` grows and the model learns as the records are drawn.

    The model is made in the first round that has samples to learn from; where nothing is given at
    all, that is when each class has been generated for once. In the `default` recipe rounds end
    with the generation: the classifier is trained anew after them. In `paper` training goes on to
    the last round.
    """
    model = make_model() if len(samples) else None
    n_generating = recipe.n_augmentation_rounds(samples.n_classes)
    for round_ in range(1, recipe.n_rounds(samples.n_classes) + 1):
        size = 0 if source is None or policy is None or round_ > n_generating else source.size(recipe.batch)
        if size == 0 and recipe.refit:
            return
        counts, choice, batch, trained = samples.counts(), None, _Added(), None
        seeding = size > 0 and source is not None and bool((source.open() & (counts == 0)).any())
        if model is None and len(samples) and not seeding:
            model = make_model()
        clock = _Clock()
        if size and source is not None and policy is not None:
            choice = _choose(policy, model, source, counts, size, rng, all_scores)
            clock.lap("scoring")
            batch = _generate(samples, source, choice.arm, size, clock)
        if model is not None:
            model.follow()
            trained = model.epoch(round_)
            clock.lap("training")
        yield RoundRecord(
            round=round_,
            chosen=None if choice is None or source is None else source.classes[choice.arm].name,
            asked=size,
            accepted=batch.accepted,
            closed=batch.closed,
            n_samples=len(samples),
            scores=class_scores(counts, choice),
            loss=None if trained is None else trained.loss,
            learning_rate=None if trained is None else trained.learning_rate,
            seconds=Seconds(**clock.laps),
        )


def _choose(
    policy: Policy,
    model: JointModel | None,
    source: Source,
    counts: NDArray[np.int64],
    size: int,
    rng: np.random.Generator,
    all_scores: bool,
) -> Choice:
    arms = Arms(counts, source.open(), size)
    forced = bool((arms.open & (counts == 0)).any())  # no gradient is needed to choose an empty class
    if forced or model is None or not policy.needs_shift:
        return policy.choose(arms, rng=rng)
    with model.threads():
        return policy.choose(arms, rng=rng, shift=model.shift(size), all_exact=all_scores)


@dataclass
class _Added:
    accepted: int = 0
    closed: str | None = None


class _Clock:
    """Seconds by activity; a lap ends where the next begins."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = self.laps.get(name, 0.0) + now - self._last
        self._last = now


def _generate(samples: TrainingSet, source: Source, class_index: int, size: int, clock: _Clock) -> _Added:
    """One request and a bounded number of refills; adds what is new and embeds it."""
    added = _Added()
    for _ in range(1 + REFILLS):
        if added.accepted == size or added.closed is not None:
            break
        batch = run_sync(
            source.generator.generate(_request(samples, source, class_index, size - added.accepted))
        )
        clock.lap("generating")
        added.closed = batch.closed
        added.accepted += _add(samples, source, class_index, batch, size - added.accepted)
        clock.lap("embedding")
    if not added.accepted and added.closed is None:
        added.closed = "the generator gave nothing new"
    if added.closed is not None:
        source.closed[class_index] = added.closed
    source.spent += added.accepted
    return added


def _request(samples: TrainingSet, source: Source, class_index: int, count: int) -> Request:
    vectors = None
    if source.embed is None:
        pooled = samples.views[samples.pooled]
        vectors = GivenVectors(pooled[samples.given], samples.class_index[samples.given])
    return Request(
        spec=source.classes[class_index],
        class_index=class_index,
        count=count,
        given=samples.texts_of(class_index, given=True),
        existing=samples.texts_of(class_index, given=False),
        vectors=vectors,
    )


def _add(samples: TrainingSet, source: Source, class_index: int, batch: Batch, room: int) -> int:
    """Add the new samples of a batch, at most `room`; returns how many."""
    if batch.vectors is not None:
        vectors = batch.vectors[:room]
        samples.add([class_index] * len(vectors), {samples.pooled: vectors}, given=False)
        return len(vectors)
    fresh: dict[str, str] = {}
    for text in batch.texts:
        if folded(text) not in samples.keys:
            fresh.setdefault(folded(text), text)
    texts = [text for key, text in fresh.items() if key][:room]
    if texts and source.embed is not None:
        samples.add([class_index] * len(texts), source.embed(texts), given=False, texts=texts)
    return len(texts) if source.embed is not None else 0
