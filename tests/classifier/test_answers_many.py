"""The best of very many classes, and blocks that stay small."""

import numpy as np
import pytest

from adamab.classifier import Asked, Classifier, Head
from adamab.classifier import classifier as module


def many(n_classes, *, ties=False):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(n_classes, 8)).astype(np.float32)
    if ties:
        rows = np.round(rows)
    classes = tuple(f"c{i}" for i in range(n_classes))
    return Classifier(classes=classes, heads=(Head(view="pooled", linear=rows),))


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("k", [2, 5, 200])
def test_the_best_classes_are_those_of_a_whole_sort(k, ties):
    classifier = many(1000, ties=ties)
    queries = np.round(np.random.default_rng(1).normal(size=(20, 8))).astype(np.float32)
    found, probabilities = classifier.top_k({"pooled": queries}, k)
    shares = classifier.predict_proba({"pooled": queries})
    np.testing.assert_array_equal(found, np.argsort(-shares, axis=1, kind="stable")[:, :k])
    np.testing.assert_array_equal(probabilities, np.take_along_axis(shares, found, axis=1))


def test_small_blocks_give_the_same_answers(monkeypatch):
    classifier = many(50)
    queries = np.random.default_rng(1).normal(size=(30, 8)).astype(np.float32)
    whole = classifier.answers({"pooled": queries}, None, Asked(3))
    sizes = []
    blocks = Classifier._blocks
    monkeypatch.setattr(
        Classifier, "_blocks", lambda self, b: (sizes.append(x[1].shape) or x for x in blocks(self, b))
    )
    monkeypatch.setattr(module, "_MOST_LOGITS", 200)
    parts = classifier.answers({"pooled": queries}, None, Asked(3))
    np.testing.assert_array_equal(parts.indices, whole.indices)
    assert sizes == [(4, 50)] * 7 + [(2, 50)]
