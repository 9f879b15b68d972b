"""Both rankings and the nearest samples, against what NumPy says about the same vectors."""

import json
from dataclasses import replace

import numpy as np
import pytest

from adamab.model import PredictOptions, load
from adamab.model.predictor import Inference
from adamab.providers.async_bridge import run_sync
from adamab.run.directory import read_task, read_vectors
from adamab.serving._questions import Row
from adamab.serving.page import TEMPERATURE, StoredVectors, explained
from adamab.testing import HashEmbedder

TEXT = "the money should come back"


@pytest.fixture
def inference(first_shown_run):
    return Inference(load(first_shown_run), HashEmbedder(width=16))


def units(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def test_before_is_the_cosine_with_descriptions_and_after_the_classifier(first_shown_run, inference):
    around = StoredVectors.of(first_shown_run, inference.classifier.classes)
    explanation = explained(inference, around, Row(TEXT))
    vectors = read_vectors(first_shown_run)
    x = run_sync(HashEmbedder(width=16).embed([TEXT])).views["pooled"]
    cosines = (units(vectors.described.astype(np.float64)) @ units(x).T)[:, 0]
    odds = np.exp(cosines / TEMPERATURE)
    shares = dict(zip(inference.classifier.classes, odds / odds.sum(), strict=True))
    assert explanation.compared_with == "descriptions"
    assert {one.class_name: one.before for one in explanation.classes} == pytest.approx(shares, abs=1e-4)
    expected = dict(zip(inference.classifier.classes, inference.predict_proba([Row(TEXT)])[0], strict=True))
    assert {one.class_name: one.after for one in explanation.classes} == pytest.approx(expected, abs=1e-5)
    assert [one.after_rank for one in explanation.classes] == [1, 2, 3]
    assert sorted(one.before_rank for one in explanation.classes) == [1, 2, 3]
    assert max(explanation.classes, key=lambda one: one.before).before_rank == 1


def test_the_nearest_samples_are_those_of_the_largest_centred_cosine(first_shown_run, inference):
    vectors = read_vectors(first_shown_run)
    rows = np.concatenate([vectors.given, vectors.synthetic]).astype(np.float64)
    centre = rows.mean(axis=0)
    x = run_sync(HashEmbedder(width=16).embed([TEXT])).views["pooled"].astype(np.float64)
    cosines = (units(rows - centre) @ units(x - centre).T)[:, 0]
    lines = (first_shown_run / "synthetic.jsonl").read_text().splitlines()
    texts = {"given": [s.text for s in read_task(first_shown_run).samples]}
    texts["synthetic"] = [json.loads(line)["text"] for line in lines]
    parts = {"given": cosines[: len(vectors.given)], "synthetic": cosines[len(vectors.given) :]}
    explanation = explained(
        inference, StoredVectors.of(first_shown_run, inference.classifier.classes), Row(TEXT)
    )
    for source, near in (("given", explanation.given), ("synthetic", explanation.synthetic)):
        best = np.sort(parts[source])[::-1][:5]
        np.testing.assert_allclose([one.similarity for one in near], best, atol=2e-3)
        assert {one.source for one in near} == {source}
        place = texts[source].index(near[0].text)
        assert parts[source][place] == pytest.approx(near[0].similarity, abs=2e-3)


def test_an_input_is_marked_as_strange_as_prediction_does(inference):
    confidence = inference.classifier.confidence
    share = confidence.n / (confidence.n + 1)  # 13 held-out samples vouch for no more
    marks = set()
    for text in ("zzz qqq", "?", "the the", TEXT, "cannot sign in today"):
        unknown = explained(inference, None, Row(text)).unknown_share
        (expected,) = inference.answers([Row(text)], PredictOptions(unknown=share)).unknown
        assert unknown == (pytest.approx(1 - share) if expected else None)
        marks.add(unknown)
    assert len(marks) == 2  # some are, some are not
    few = replace(confidence, n=8, strangeness=(-3.0,) * 8, surprise=(0.0,) * 8)
    unsure = Inference(replace(inference.classifier, confidence=few), inference.embedder)
    assert explained(unsure, None, Row("zzz qqq")).unknown_share is None


def test_vectors_of_other_samples_are_not_used(shown_run, inference):
    classes = inference.classifier.classes
    assert StoredVectors.of(shown_run, classes[:2]) is None
    lines = (shown_run / "synthetic.jsonl").read_text().splitlines(keepends=True)
    (shown_run / "synthetic.jsonl").write_text("".join(lines[1:]))
    assert StoredVectors.of(shown_run, classes) is None
    (shown_run / "task.json").unlink()
    assert StoredVectors.of(shown_run, classes) is None


def test_a_text_may_hold_other_line_ends(shown_run, inference):
    file = shown_run / "synthetic.jsonl"
    rows = [json.loads(line) for line in file.read_text().split("\n") if line]
    rows[0]["text"] = "the\u2028first\u2029money\u0085is not back"
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    around = StoredVectors.of(shown_run, inference.classifier.classes)
    assert around is not None
    assert rows[0]["text"] in {sample.text for sample in around._samples}
