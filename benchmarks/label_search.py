"""Searching the best of 10,000 and 100,000 classes: the blocked product of NumPy against indexes of FAISS.

Class vectors are random directions around 100 random topics, as classes of a real task crowd around subjects.
A query is a class vector with noise of its own length. One thread, rows in batches of 256; times are of
the processor, so that other programs do not count.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from adamab.classifier import Classifier, Head
from adamab.serving.export_faiss import class_vectors, features, write_faiss
from adamab.serving.export_recall import found_shares
from benchmarks.report import Figure, Group, Table

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

CLASSES = (10_000, 100_000)
WIDTH, TOPICS, QUERIES, BATCH, BEST = 384, 100, 1024, 256, 10
INDEXES = (
    "Flat",
    "HNSW32",
    "HNSW32:efSearch=128",
    "IVF256,Flat",
    "IVF256,Flat:nprobe=8",
    "IVF256,Flat:nprobe=32",
)


def directions(rng: np.random.Generator, around: NDArray[np.float32], noise: float) -> NDArray[np.float32]:
    """(n, d) rows of length 1 near the rows of `around`."""
    near = around + noise * rng.standard_normal(around.shape).astype(np.float32) / WIDTH**0.5
    made: NDArray[np.float32] = near / np.linalg.norm(near, axis=1, keepdims=True)
    return made


def made_task(classes: int) -> tuple[Classifier, NDArray[np.float32]]:
    """A classifier of that many classes, and (n, d) queries near them."""
    rng = np.random.default_rng(0)
    topics = directions(rng, np.zeros((TOPICS, WIDTH), np.float32), 1.0)
    linear = directions(rng, topics[rng.integers(TOPICS, size=classes)], 1.0)
    queries = directions(rng, linear[rng.integers(classes, size=QUERIES)], 1.0)
    head = Head(view="pooled", linear=linear)
    return Classifier(classes=tuple(f"class {number}" for number in range(classes)), heads=(head,)), queries


def seconds(search: Callable[[NDArray[np.float32]], object], queries: NDArray[np.float32]) -> float:
    """A row, the best of two passes over all queries."""
    times = []
    for _ in range(2):
        start = time.process_time()
        for first in range(0, len(queries), BATCH):
            search(queries[first : first + BATCH])
        times.append((time.process_time() - start) / len(queries))
    return min(times)


def exact(vectors: NDArray[np.float32]) -> Callable[[NDArray[np.float32]], object]:
    """The product with all class vectors, and the best ten of each row in their order."""

    def search(rows: NDArray[np.float32]) -> object:
        logits = rows @ vectors.T
        best = np.argpartition(logits, -BEST, axis=1)[:, -BEST:]
        scores = np.take_along_axis(logits, best, axis=1)
        return np.take_along_axis(best, np.argsort(-scores, axis=1), axis=1)

    return search


def run() -> Group:
    measured = {classes: _searched(classes) for classes in CLASSES}
    header = ["search", "built in, s", "ms a row", "exact products", "recall@1", "recall@10", "MB"]
    tables = [
        Table(f"Label search, {classes:,} classes, {WIDTH} wide, {QUERIES} queries", header, rows)
        for classes, rows in measured.items()
    ]
    recall = float(next(row for row in measured[CLASSES[0]] if row[0] == "IVF256,Flat:nprobe=8")[5])
    name = "label search, recall@10 of IVF256,Flat:nprobe=8 at 10,000 classes"
    return Group(
        [Figure(name, recall, 0.95, at_most=False, note="made-up classes around 100 topics")], tables
    )


def _searched(classes: int) -> list[list[str]]:
    """Rows of the table: the exact product first."""
    import faiss
    from threadpoolctl import threadpool_limits

    faiss.omp_set_num_threads(1)
    classifier, queries = made_task(classes)
    asked, vectors = features(classifier, {"pooled": queries}), class_vectors(classifier)
    with threadpool_limits(1), tempfile.TemporaryDirectory() as folder:
        product = seconds(exact(vectors), asked)
        rows = [["NumPy, exact", "", f"{1e3 * product:.3f}", "1", "1", "1", f"{vectors.nbytes / 1e6:.1f}"]]
        for spec in INDEXES:
            start = time.process_time()
            write_faiss(classifier, Path(folder), spec)
            built = time.process_time() - start
            index = faiss.read_index(f"{folder}/classes.faiss")
            first, ten = found_shares(index, asked, vectors).mean(axis=0)
            taken = seconds(lambda rows, index=index: index.search(rows, BEST), asked)
            size = Path(folder, "classes.faiss").stat().st_size / 1e6
            told = f"{1e3 * taken:.3f}", f"{taken / product:.2f}", f"{first:.3f}", f"{ten:.3f}", f"{size:.1f}"
            rows.append([spec, f"{built:.1f}", *told])
    return rows
