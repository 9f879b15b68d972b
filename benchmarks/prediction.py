"""Throughput of prediction against the bare matrix products of the same network in NumPy."""

from __future__ import annotations

import numpy as np

from adamab.model import Classifier, Head
from benchmarks.report import Figure, Group, alternating

N_CLASSES, WIDTH, N = 200, 768, 100_000
REPEAT = 5


def run() -> Group:
    rng = np.random.default_rng(0)
    hidden = WIDTH // 4

    def weights(out: int, width: int) -> np.ndarray:
        return rng.uniform(-1, 1, (out, width)).astype(np.float32) / np.float32(width**0.5)

    first, second, last = weights(hidden, WIDTH), weights(hidden, hidden), weights(WIDTH, hidden)
    vectors = weights(N_CLASSES, WIDTH)
    # The classifier keeps the last layer and the class vectors as one matrix.
    head = Head(view="pooled", linear=vectors, hidden=vectors @ last, tower=(first, second))
    model = Classifier(classes=tuple(f"class {c}" for c in range(N_CLASSES)), heads=(head,))
    x = rng.standard_normal((N, WIDTH)).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)

    def products() -> np.ndarray:
        return x @ first.T @ second.T @ last.T @ vectors.T

    bare, predict = alternating([products, lambda: model.predict_proba({"pooled": x})], REPEAT)
    note = f"{N / predict:,.0f} vectors a second; the bare products of all four matrices {N / bare:,.0f}"
    name = f"prediction, throughput of {N} vectors to the bare products, K={N_CLASSES} d={WIDTH}"
    return Group([Figure(name, bare / predict, 0.7, at_most=False, note=note)])
