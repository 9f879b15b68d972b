"""The contracts of embedders, generators and policies as checks that anyone can run.

def test_my_embedder():
    check_embedder(MyEmbedder())
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from adamab.errors import EmbedderError
from adamab.method.policies import Arms, Choice, Policy
from adamab.providers.async_bridge import run_sync
from adamab.providers.embedders.base import Embedded, Embedder, Item, Kind, Modality, only_images, only_texts
from adamab.providers.generators.base import Batch, Generator, Request
from adamab.task.images import Image, decoded
from adamab.task.words import normalised_text

ROUNDS = 30  # random states that a policy chooses in
TEXTS = ("please send my money back", "Grüße aus 東京 🦜", "a", "the app crashes when I open it")


def check_embedder(
    embedder: Embedder,
    *,
    texts: Sequence[str] = TEXTS,
    images: Sequence[Image] = (),
    tolerance: float = 1e-4,
) -> None:
    """Raise AssertionError where `embedder` breaks its contract.

    Args:
        embedder: What to check.
        texts: Three or more distinct texts.
        images: Three or more distinct images, for an embedder that takes images.
        tolerance: How far vectors of the same sample may differ, relative to those above 1.
    """
    assert isinstance(embedder.fingerprint, str), "fingerprint must be a string"
    assert embedder.fingerprint, "fingerprint must not be empty"
    assert embedder.views, "there must be at least one view"
    assert embedder.modalities, "there must be at least one modality"
    empty = run_sync(embedder.embed([]))
    assert all(len(matrix) == 0 for matrix in empty.views.values()), "no texts must give no rows"
    assert len(empty.overlong) == 0, "no texts must give no flags"
    _check_refused(embedder, "text", "an unknown view must raise EmbedderError", views=["no such view"])
    samples: dict[Modality, Sequence[Item]] = {"text": texts, "image": images}
    for modality, items in samples.items():
        if modality in embedder.modalities:
            _check_items(embedder, items, modality, tolerance)
        elif items:
            message = f"an embedder that takes no {modality}s must refuse them with EmbedderError"
            _check_refused(embedder, items[0], message)
    if embedder.modalities == {"text", "image"}:
        _check_mixed(embedder, texts, images, tolerance)


def check_generator(
    make_generator: Callable[[], Generator], request: Request, *, calls: int = 20, deterministic: bool = True
) -> None:
    """Raise AssertionError where generators made by `make_generator` break their contract.

    Args:
        make_generator: Makes a new generator; called twice where `deterministic`.
        request: The first request; further ones follow, with `existing` growing.
        calls: How many requests at most.
        deterministic: Whether two generators must give the same samples.
    """
    generator = make_generator()
    assert isinstance(generator.fingerprint, str), "fingerprint must be a string"
    assert generator.fingerprint, "fingerprint must not be empty"
    batches = _batches(generator, request, calls)
    if not deterministic:
        return
    again = _batches(make_generator(), request, calls)
    assert len(batches) == len(again), "a second generator closed the class at another time"
    for first, second in zip(batches, again, strict=True):
        assert first.texts == second.texts, "a second generator gave other texts"
        same = first.vectors is second.vectors or np.array_equal(first.vectors, second.vectors)  # type: ignore[arg-type]
        assert same, "a second generator gave other vectors"


def _check_items(embedder: Embedder, items: Sequence[Item], modality: Modality, tolerance: float) -> None:
    assert len(set(items)) == len(items) >= 3, f"give three or more distinct {modality}s"
    reference = run_sync(embedder.embed(items))
    _check_shapes(embedder, reference, len(items))
    for view in embedder.views:
        single = run_sync(embedder.embed(items, views=[view]))
        assert tuple(single.views) == (view,), f"requested view {view!r} only, got {tuple(single.views)}"
        message = f"view {view!r} differs when requested alone"
        _check_same(reference, single, range(len(items)), tolerance, message)
    again = run_sync(embedder.embed(items))
    _check_same(reference, again, range(len(items)), tolerance, f"the same {modality}s gave other vectors")
    order = [*reversed(range(len(items))), 0, 0]
    shuffled = run_sync(embedder.embed([items[row] for row in order]))
    message = f"order or repetition of the {modality}s changed their vectors"
    _check_same(reference, shuffled, order, tolerance, message)
    alone = run_sync(embedder.embed([items[1]]))
    _check_same(reference, alone, [1], tolerance, f"the vector of one {modality} depends on its neighbours")
    run_sync(embedder.embed(items[:1], kind="class"))


def _check_refused(embedder: Embedder, item: Item, message: str, views: Sequence[str] | None = None) -> None:
    try:
        run_sync(embedder.embed([item], views=views))
    except EmbedderError:
        return
    raise AssertionError(message)


def _check_mixed(embedder: Embedder, texts: Sequence[str], images: Sequence[Image], tolerance: float) -> None:
    """Both towers lead to one space, and may be called together."""
    both = run_sync(embedder.embed([images[0], texts[0], images[1]]))
    image_vectors, words = run_sync(embedder.embed(images[:2])), run_sync(embedder.embed(texts[:1]))
    order = {view: np.stack([x[0], words.views[view][0], x[1]]) for view, x in image_vectors.views.items()}
    apart = Embedded(order, both.overlong)
    _check_same(apart, both, range(3), tolerance, "texts beside images in one call gave other vectors")


def _check_shapes(embedder: Embedder, answer: Embedded, rows: int) -> None:
    assert tuple(answer.views) == tuple(embedder.views), "embed must answer with all views, in order"
    assert answer.overlong.shape == (rows,), "overlong must have one flag per text"
    assert answer.overlong.dtype == np.bool_, "overlong must be boolean"
    for view, matrix in answer.views.items():
        assert matrix.dtype == np.float32, f"view {view!r} must be float32"
        assert matrix.ndim == 2, f"view {view!r} must be a matrix"
        assert len(matrix) == rows, f"view {view!r} must have one row per text"
        assert np.isfinite(matrix).all(), f"view {view!r} must be finite"


def _check_same(
    reference: Embedded, answer: Embedded, rows: Sequence[int], tolerance: float, message: str
) -> None:
    for view, matrix in answer.views.items():
        expected = reference.views[view][list(rows)]
        assert matrix.shape == expected.shape, message
        # float16 steps grow with the value, so the tolerance does too.
        allowed = tolerance * np.maximum(np.abs(expected), 1.0) + (
            0.0 if view == "pooled" else 1e-3 * np.abs(expected)
        )
        assert (np.abs(matrix - expected) <= allowed).all(), message


def _batches(generator: Generator, request: Request, calls: int) -> list[Batch]:
    batches: list[Batch] = []
    for _ in range(calls):
        batch = run_sync(generator.generate(request))
        _check_batch(batch, request)
        batches.append(batch)
        request = replace(request, existing=(*request.existing, *batch.texts), number=request.number + 1)
        if batch.closed is not None:
            break
    return batches


def _check_batch(batch: Batch, request: Request) -> None:
    assert len(batch) <= request.count, f"requested {request.count} samples, got {len(batch)}"
    assert len(batch) > 0 or batch.closed is not None, "an empty batch must close its class"
    assert batch.closed is None or batch.closed.strip(), "closed must give a reason"
    known = {normalised_text(text) for text in (*request.given, *request.existing)}
    for text in batch.texts:
        assert isinstance(text, str), "texts must be strings"
        assert text.strip(), "a generated text is empty"
        assert normalised_text(text) not in known, "a generated text was there already"
        known.add(normalised_text(text))
    if batch.vectors is not None:
        assert not batch.texts, "a batch holds texts or vectors, not both"
        assert batch.vectors.dtype == np.float32, "vectors must be float32"
        assert batch.vectors.ndim == 2, "vectors must be a matrix"
        assert np.isfinite(batch.vectors).all(), "vectors must be finite"


class KnownShift:
    """A gradient shift whose exact values are given; it records which classes a policy refines.

    `lower` is `values` minus `slack`. As the real one, `refine` gives up on a class above its cutoff.
    """

    def __init__(self, values: NDArray[np.float64], slack: NDArray[np.float64], scale: float = 1.0) -> None:
        self.values = values
        self.lower = values - slack
        self.scale = scale
        self.refined: list[int] = []

    def refine(
        self, classes: NDArray[np.intp], cutoffs: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Exact values up to the cutoffs, bounds between cutoff and value above them."""
        self.refined += classes.tolist()
        exact = self.values[classes] <= cutoffs
        between = np.maximum(self.lower[classes], (self.values[classes] + np.where(exact, 0, cutoffs)) / 2)
        return np.where(exact, self.values[classes], between), exact


def check_policy(policy: Policy, *, seed: int = 0) -> None:
    """Raise AssertionError where `policy` breaks the contract of `Policy`.

    Args:
        policy: What to check.
        seed: Of the random states that it has to choose in.
    """
    assert policy.name, "a policy needs a name"
    for case in range(ROUNDS):
        arms, shift = _state(seed + case)
        _check_choice(policy, arms, shift, seed + case)
    _check_empty_first(policy, seed)


def _state(seed: int) -> tuple[Arms, KnownShift]:
    rng = np.random.default_rng(seed)
    n_classes = int(rng.integers(2, 40))
    open_ = rng.random(n_classes) < 0.7
    open_[rng.integers(n_classes)] = True
    counts = rng.integers(1, 5 if seed % 2 else 500, n_classes)
    shift = KnownShift(rng.random(n_classes), rng.random(n_classes) * rng.random(), scale=0.3)
    return Arms(counts, open_, batch=int(rng.integers(1, 6))), shift


def _choose(policy: Policy, arms: Arms, shift: KnownShift, seed: int, *, all_exact: bool = False) -> Choice:
    rng = np.random.default_rng(seed)
    return policy.choose(arms, rng=rng, shift=shift if policy.needs_shift else None, all_exact=all_exact)


def _check_choice(policy: Policy, arms: Arms, shift: KnownShift, seed: int) -> None:
    before = arms.counts.copy(), arms.open.copy()
    choice = _choose(policy, arms, shift, seed)
    assert isinstance(choice.arm, int), "the arm must be an int"
    assert 0 <= choice.arm < len(arms.counts), "the arm must be a class"
    assert arms.open[choice.arm], "a closed class was chosen"
    unchanged = np.array_equal(before[0], arms.counts) and np.array_equal(before[1], arms.open)
    assert unchanged, "the state was changed"
    assert _choose(policy, arms, shift, seed).arm == choice.arm, "the same state and rng gave another class"
    full = _choose(policy, arms, shift, seed, all_exact=True)
    assert full.arm == choice.arm, "computing all scores changed the choice"
    for answer in (choice, full):
        _check_scores(answer, arms)
    if choice.score is None or choice.exact is None or full.score is None or full.exact is None:
        return
    assert choice.exact[choice.arm], "the chosen class's score must be exact"
    assert full.exact.all(), "all_exact left a score inexact"
    assert (choice.score >= full.score - 1e-12).all(), "a score that is not exact must be an upper bound"
    assert np.array_equal(choice.score[choice.exact], full.score[choice.exact]), "an exact score changed"
    best = np.where(arms.open, full.score, -np.inf)
    assert choice.arm == int(np.argmax(best)), "not the lowest open class of the highest score"


def _check_scores(choice: Choice, arms: Arms) -> None:
    for name in ("bonus", "score"):
        values = getattr(choice, name)
        if values is not None:
            assert values.dtype == np.float64, f"{name} must be float64"
            assert values.shape == arms.counts.shape, f"{name} must have one number per class"
            assert np.isfinite(values[arms.counts > 0]).all(), f"{name} must be finite"
    assert (choice.score is None) == (choice.exact is None), "scores need their exactness"


def _check_empty_first(policy: Policy, seed: int) -> None:
    counts = np.array([3, 0, 2, 0, 0])
    open_ = np.array([True, False, True, True, True])
    shift = KnownShift(np.array([0.1, 0.0, 0.2, 0.0, 0.0]), np.zeros(5))
    choice = _choose(policy, Arms(counts, open_, 2), shift, seed)
    assert choice.arm == 3, "open classes without samples come first, lowest index first"
    closed = Arms(counts, counts > 0, 2)  # classes without samples may be closed for good
    for all_exact in (False, True):
        choice = _choose(policy, closed, shift, seed, all_exact=all_exact)
        assert choice.arm in (0, 2), "a closed class was chosen"
        _check_scores(choice, closed)


# Toy embedders for tests: no model, and similar texts or images get similar vectors.

_SIDE = 8  # pixels of a thumbnail
_BINS = 8  # of a colour's histogram


class HashEmbedder(Embedder):
    """The normalised sum of one pseudo-random vector per word; texts that share words are alike.

    `calls` counts the texts that were really embedded, for tests of caches and budgets.
    """

    def __init__(
        self, *, width: int = 64, views: Sequence[str] = ("pooled",), max_words: int | None = None
    ) -> None:
        self.width = width
        self.views = tuple(views)
        self.max_words = max_words
        self.calls = 0
        self.fingerprint = f"hash:{width}:{','.join(views)}:{max_words}"

    async def _embed(self, items: Sequence[Item], *, kind: Kind, views: Sequence[str]) -> Embedded:
        texts = only_texts(items)
        self.calls += len(texts)
        words = [text.casefold().split() or [""] for text in texts]
        overlong = np.array([self.max_words is not None and len(w) > self.max_words for w in words], np.bool_)
        kept = [w[: self.max_words] for w in words]
        return Embedded({v: np.stack([self._vector(w, v) for w in kept]) for v in views}, overlong)

    def _vector(self, words: Sequence[str], view: str) -> NDArray[np.float32]:
        total = np.sum([_word_vector(word, view, self.width) for word in words], axis=0)
        vector: NDArray[np.float32] = (total / max(float(np.linalg.norm(total)), 1e-6)).astype(np.float32)
        return vector if view == "pooled" else vector.astype(np.float16).astype(np.float32)


@lru_cache(maxsize=65536)
def _word_vector(word: str, view: str, width: int) -> NDArray[np.float64]:
    seed = hashlib.sha256(f"{view}\0{word}".encode("utf-8", "surrogatepass")).digest()
    return np.random.default_rng(int.from_bytes(seed[:8], "little")).standard_normal(width)


class PixelEmbedder(Embedder):
    """A small thumbnail's pixels beside a histogram of each colour, of length 1; it knows no texts.

    `calls` counts the images that were really embedded, for tests of caches and budgets.
    """

    modalities: frozenset[Modality] = frozenset({"image"})

    fingerprint = f"pixels:{_SIDE}:{_BINS}"

    def __init__(self) -> None:
        self.calls = 0

    async def _embed(self, items: Sequence[Item], *, kind: Kind, views: Sequence[str]) -> Embedded:
        images = only_images(items)
        self.calls += len(images)
        rows = await asyncio.to_thread(lambda: [self._vector(image) for image in images])
        return Embedded({view: np.stack(rows) for view in views}, np.zeros(len(rows), np.bool_))

    def _vector(self, image: Image) -> NDArray[np.float32]:
        from PIL.Image import Resampling

        small = decoded(image, least_side=4 * _SIDE).resize((_SIDE, _SIDE), Resampling.BOX)
        pixels = np.asarray(small, np.float64).reshape(-1, 3) / 255
        colours = [np.histogram(pixels[:, c], _BINS, (0, 1))[0] / len(pixels) for c in range(3)]
        # The histogram weighs less, since a shade moves to the next bin at once; but a grey image,
        # whose pixels say nothing, has a direction by it.
        parts = [(2 * pixels - 1).ravel() / np.sqrt(pixels.size), 0.2 * np.concatenate(colours)]
        vector = np.concatenate(parts)
        return (vector / np.linalg.norm(vector)).astype(np.float32)  # type: ignore[no-any-return]
