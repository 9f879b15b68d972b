"""Indexes of FAISS that are not exact: what they find is counted, and what FAISS refuses is one line."""

from __future__ import annotations

import json

import faiss
import numpy as np
import pytest

from adamab.classifier import Classifier, Head
from adamab.errors import RunError
from adamab.serving import export_faiss, export_recall
from adamab.serving.export_checks import random_rows
from adamab.serving.export_recall import found_shares

CLASSES = 400


@pytest.fixture(scope="module")
def many():
    """Classes in 20 groups, with biases."""
    rng = np.random.default_rng(0)
    groups = rng.standard_normal((20, 16))[np.arange(CLASSES) % 20]
    linear = (groups + 0.5 * rng.standard_normal((CLASSES, 16))).astype(np.float32)
    head = Head(view="pooled", linear=linear, bias=rng.standard_normal(CLASSES).astype(np.float32))
    return Classifier(classes=tuple(f"class {number}" for number in range(CLASSES)), heads=(head,))


def checked(model, folder, spec):
    export_faiss.write_faiss(model, folder, spec)
    return export_faiss.check_faiss(model, folder, random_rows(model))


def test_the_flat_index_finds_everything(tmp_path, many):
    verdict = checked(many, tmp_path, "Flat")
    assert verdict.worst < 1e-4
    assert [(one.of, one.rows) for one in verdict.recall] == [("random rows", 64), ("class vectors", 256)]
    assert all(one.at_1 == one.at_10 == 1.0 for one in verdict.recall)


@pytest.mark.parametrize("spec", ["HNSW32", "IVF20,Flat", "IVF20,Flat:nprobe=4", "SQ8", "PCA8,Flat"])
def test_another_index_is_told_by_what_it_finds(tmp_path, many, spec):
    verdict = checked(many, tmp_path, spec)
    assert verdict.worst is None  # nothing that could fail
    rows = random_rows(many)
    logits = many.logits(rows.views)
    found = faiss.read_index(str(tmp_path / "classes.faiss")).search(
        export_faiss.features(many, rows.views), 10
    )[1]
    best = np.argsort(-logits, axis=1, kind="stable")[:, :10]
    both = [len(set(one) & set(other)) / 10 for one, other in zip(found.tolist(), best.tolist(), strict=True)]
    # Row 0 and 1 are zero: the biases decide, and no two of them are equal.
    assert verdict.recall[0].at_10 == pytest.approx(np.mean(both))
    assert verdict.recall[0].at_1 == pytest.approx(np.mean(found[:, 0] == best[:, 0]))
    assert 0 < verdict.recall[0].at_10 <= 1


def test_settings_of_the_search_are_kept_in_the_file_and_find_more(tmp_path, many):
    few = checked(many, tmp_path, "IVF20,Flat").recall[0]
    index = faiss.read_index(str(tmp_path / "classes.faiss"))
    assert (index.metric_type, index.nprobe) == (faiss.METRIC_INNER_PRODUCT, 1)
    assert few.at_10 < 1
    all_lists = checked(many, tmp_path, "IVF20,Flat:nprobe=20").recall[0]
    assert faiss.read_index(str(tmp_path / "classes.faiss")).nprobe == 20
    assert all_lists.at_10 == all_lists.at_1 == 1.0


def test_equal_classes_are_equally_right_and_nothing_found_is_wrong():
    vectors = np.array([[1, 0], [1, 0], [0, 0]] * 10, np.float32)
    queries = np.array([[1, 1], [0, 1]], np.float32)

    class Index:
        def __init__(self, *numbers):
            self.numbers = np.array([numbers] * 2)

        def search(self, rows, k):
            return None, self.numbers[: len(rows), :k]

    right = [number for number in range(30) if number % 3 < 2][-10:]  # not the first ten
    np.testing.assert_array_equal(found_shares(Index(*right), queries, vectors), np.ones((2, 2)))
    half = [2, *right[:4], -1, -1, -1, -1, -1]
    np.testing.assert_allclose(found_shares(Index(*half), queries, vectors), [[0, 0.4], [1, 0.5]])


def test_blocks_change_nothing(tmp_path, many, monkeypatch):
    whole = checked(many, tmp_path, "IVF20,Flat").recall
    monkeypatch.setattr(export_recall, "_BLOCK", 3 * CLASSES)
    assert export_faiss.check_faiss(many, tmp_path, random_rows(many)).recall == whole


def test_the_recall_stands_beside_the_index(tmp_path, many):
    recall = checked(many, tmp_path, "HNSW32").recall
    export_faiss.write_names(many, tmp_path, "HNSW32", recall)
    told = json.loads((tmp_path / "classes.json").read_text("utf-8"))
    assert told["index"] == "HNSW32"
    assert told["recall"][1] == {
        "of": "class vectors",
        "rows": 256,
        "at_1": recall[1].at_1,
        "at_10": recall[1].at_10,
    }


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("nonsense", "could not parse index string nonsense"),
        ("", "could not parse index string"),
        ("IVF512,Flat", "Number of training points (400) should be at least as large as number of clusters"),
        ("PQ7", "should be a multiple of the number of subquantizers"),
        ("HNSW0", "a number in it is too small or too large"),
        ("HNSW1", "a number in it is too small or too large"),
        ("IVF4_HNSW1,Flat", "a number in it is too small or too large"),
        ("HNSW999999999", "a number in it is too small or too large"),
        ("IVF20,Flat:nprobe=0", "nprobe"),
        ("Flat:nprobe=3", "could not set parameter nprobe"),
        ("IVF20,Flat:nprobe", "could not interpret parameters nprobe"),
        ("L\n2", "could not parse index string L\\n2"),
    ],
)
def test_what_faiss_does_not_make_is_one_line(tmp_path, many, spec, why):
    with pytest.raises(RunError) as caught:
        export_faiss.write_faiss(many, tmp_path, spec)
    line = str(caught.value)
    assert line.startswith(f"--index {spec!r}: FAISS makes no such index of 400 class vectors, 17 wide (")
    assert why in line
    assert "\n" not in line
    assert ".cpp" not in line
    assert not (tmp_path / "classes.faiss").exists()
