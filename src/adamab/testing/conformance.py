"""The contracts of embedders and generators as checks that anyone can run on an implementation.

def test_my_embedder():
    check_embedder(MyEmbedder())
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from adamab.errors import EmbedderError
from adamab.providers.embedders.base import Embedded, Embedder, Item, Modality
from adamab.providers.generators.base import Batch, Generator, Request
from adamab.providers.sync import run_sync
from adamab.task.images import Image
from adamab.task.words import folded

TEXTS = ("please send my money back", "Grüße aus 東京 🦜", "a", "the app crashes when I open it")


def check_embedder(
    embedder: Embedder,
    *,
    texts: Sequence[str] = TEXTS,
    images: Sequence[Image] = (),
    tolerance: float = 1e-4,
) -> None:
    """Raise AssertionError where `embedder` breaks its contract.

    `texts`, `images`: three or more distinct ones of what it takes; one that takes pictures is checked
    with the pictures it is given here.
    """
    assert isinstance(embedder.fingerprint, str), "fingerprint must be a string"
    assert embedder.fingerprint, "fingerprint must not be empty"
    assert embedder.views, "there must be at least one view"
    assert embedder.fingerprint == embedder.fingerprint, "fingerprint must not change"
    assert embedder.modalities, "there must be at least one modality"
    _check_empty(embedder)
    _check_unknown_view(embedder)
    samples: dict[Modality, Sequence[Item]] = {"text": texts, "image": images}
    for modality, items in samples.items():
        if modality in embedder.modalities:
            _check_items(embedder, items, modality, tolerance)
        elif items:
            _check_refused(embedder, items[0], modality)
    if embedder.modalities == {"text", "image"}:
        _check_mixed(embedder, texts, images, tolerance)


def check_generator(
    make_generator: Callable[[], Generator], request: Request, *, calls: int = 20, deterministic: bool = True
) -> None:
    """Raise AssertionError where generators made by `make_generator` break their contract.

    `request` is asked for again and again, with `existing` growing, at most `calls` times.
    """
    generator = make_generator()
    assert isinstance(generator.fingerprint, str), "fingerprint must be a string"
    assert generator.fingerprint, "fingerprint must not be empty"
    batches = _ask(generator, request, calls)
    if not deterministic:
        return
    again = _ask(make_generator(), request, calls)
    assert len(batches) == len(again), "a second generator closed the class at another time"
    for first, second in zip(batches, again, strict=True):
        assert first.texts == second.texts, "a second generator gave other texts"
        assert _equal(first, second), "a second generator gave other vectors"


def _check_items(embedder: Embedder, items: Sequence[Item], modality: Modality, tolerance: float) -> None:
    assert len(set(items)) == len(items) >= 3, f"give three or more distinct {modality}s"
    reference = run_sync(embedder.embed(items))
    _check_shapes(embedder, reference, len(items))
    _check_single_views(embedder, items, reference, tolerance)
    again = run_sync(embedder.embed(items))
    _check_same(reference, again, range(len(items)), tolerance, f"the same {modality}s gave other vectors")
    order = [*reversed(range(len(items))), 0, 0]
    shuffled = run_sync(embedder.embed([items[row] for row in order]))
    message = f"order or repetition of the {modality}s changed their vectors"
    _check_same(reference, shuffled, order, tolerance, message)
    alone = run_sync(embedder.embed([items[1]]))
    _check_same(reference, alone, [1], tolerance, f"the vector of one {modality} depends on its neighbours")
    run_sync(embedder.embed(items[:1], kind="class"))


def _check_refused(embedder: Embedder, item: Item, modality: Modality) -> None:
    try:
        run_sync(embedder.embed([item]))
    except EmbedderError:
        return
    raise AssertionError(f"an embedder that takes no {modality}s must refuse them with EmbedderError")


def _check_mixed(embedder: Embedder, texts: Sequence[str], images: Sequence[Image], tolerance: float) -> None:
    """Both towers lead to one space, and may be asked in one call."""
    both = run_sync(embedder.embed([images[0], texts[0], images[1]]))
    pictures, words = run_sync(embedder.embed(images[:2])), run_sync(embedder.embed(texts[:1]))
    order = {view: np.stack([x[0], words.views[view][0], x[1]]) for view, x in pictures.views.items()}
    apart = Embedded(order, both.overlong)
    _check_same(apart, both, range(3), tolerance, "texts beside images in one call gave other vectors")


def _check_shapes(embedder: Embedder, answer: Embedded, rows: int) -> None:
    assert tuple(answer.views) == tuple(embedder.views), "embed must answer with all views, in order"
    assert answer.overlong.shape == (rows,), "overlong must have one flag a text"
    assert answer.overlong.dtype == np.bool_, "overlong must be boolean"
    for view, matrix in answer.views.items():
        assert matrix.dtype == np.float32, f"view {view!r} must be float32"
        assert matrix.ndim == 2, f"view {view!r} must be a matrix"
        assert len(matrix) == rows, f"view {view!r} must have one row a text"
        assert np.isfinite(matrix).all(), f"view {view!r} must be finite"


def _check_empty(embedder: Embedder) -> None:
    empty = run_sync(embedder.embed([]))
    assert all(len(matrix) == 0 for matrix in empty.views.values()), "no texts must give no rows"
    assert len(empty.overlong) == 0, "no texts must give no flags"


def _check_unknown_view(embedder: Embedder) -> None:
    try:
        run_sync(embedder.embed(["text"], views=["no such view"]))
    except EmbedderError:
        return
    raise AssertionError("an unknown view must raise EmbedderError")


def _check_single_views(
    embedder: Embedder, items: Sequence[Item], reference: Embedded, tolerance: float
) -> None:
    for view in embedder.views:
        single = run_sync(embedder.embed(items, views=[view]))
        assert tuple(single.views) == (view,), f"asked for view {view!r} only, got {tuple(single.views)}"
        rows = range(len(items))
        _check_same(reference, single, rows, tolerance, f"view {view!r} differs when asked for alone")


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


def _ask(generator: Generator, request: Request, calls: int) -> list[Batch]:
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
    assert len(batch) <= request.count, f"asked for {request.count} samples, got {len(batch)}"
    assert len(batch) > 0 or batch.closed is not None, "an empty batch must close its class"
    assert batch.closed is None or batch.closed.strip(), "closed must give a reason"
    known = {folded(text) for text in (*request.given, *request.existing)}
    for text in batch.texts:
        assert isinstance(text, str), "texts must be strings"
        assert text.strip(), "a generated text is empty"
        assert folded(text) not in known, "a generated text was there already"
        known.add(folded(text))
    if batch.vectors is not None:
        assert not batch.texts, "a batch holds texts or vectors, not both"
        assert batch.vectors.dtype == np.float32, "vectors must be float32"
        assert batch.vectors.ndim == 2, "vectors must be a matrix"
        assert np.isfinite(batch.vectors).all(), "vectors must be finite"


def _equal(first: Batch, second: Batch) -> bool:
    if first.vectors is None or second.vectors is None:
        return first.vectors is second.vectors
    return np.array_equal(first.vectors, second.vectors)
