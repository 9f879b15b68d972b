"""The recipe for Spark, without Spark: what its workers call, on pandas frames."""

import csv
import importlib.util
import io
import json
from pathlib import Path

import numpy as np
import pytest

from adamab.model.predictor import Inference
from adamab.task import Sample

pd = pytest.importorskip("pandas", reason="pandas is not installed")
ROOT = Path(__file__).parents[2]
FILE = ROOT / "examples" / "spark_predict.py"


@pytest.fixture
def recipe():
    spec = importlib.util.spec_from_file_location("spark_predict", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_shows_the_file_as_it_is():
    page = (ROOT / "docs" / "spark.md").read_text("utf-8")
    (shown,) = [block for block in page.split("```python\n")[1:] if block.startswith('"""Classes and prob')]
    assert shown.partition("```\n")[0] == FILE.read_text("utf-8")


def test_texts_get_what_predict_gives(recipe, adamab, model, new_texts, tmp_path):
    frames = [pd.DataFrame({"id": range(5), "text": new_texts[:5]}), pd.DataFrame({"text": new_texts[5:]})]
    read = pd.concat(recipe.predict_texts(iter(frames), str(model)))
    expected = Inference.open(model).predict_proba([Sample(text, "") for text in new_texts])
    np.testing.assert_allclose(read["probability"].astype(float), expected.max(axis=1), atol=1e-6)
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in new_texts))
    rows = csv.DictReader(io.StringIO(adamab("predict", model, tmp_path / "texts.jsonl").stdout))
    assert [row["class"] for row in rows] == list(read["class"])
    assert read["error"].isna().all()
    assert list(read["id"][:5]) == [0, 1, 2, 3, 4]  # columns of the input stay


def test_bad_texts_cost_their_own_row_only(recipe, model, new_texts):
    bad = [None, "", " \t ", "a\0b", float("nan"), 7]
    frame = pd.DataFrame({"text": pd.Series([*bad, new_texts[0]], dtype=object)})
    (read,) = recipe.predict_texts(iter([frame]), str(model))
    assert read["class"][:6].isna().all()
    assert read["probability"][:6].isna().all()
    assert read["error"][:6].str.startswith("row: text ").all()
    (alone,) = recipe.predict_texts(iter([frame[6:]]), str(model))
    assert read["class"][6] == alone["class"][6]
    assert pd.isna(read["error"][6])
    (none,) = recipe.predict_texts(iter([frame[:6]]), str(model))
    assert len(none) == 6
    assert none["class"].isna().all()


def test_vectors_get_what_the_classifier_gives(recipe, vector_model, new_texts):
    inference = Inference.open(vector_model)
    pooled = inference.views([Sample(text, "") for text in new_texts])["pooled"]
    bad = [None, [1.0, 2.0], [np.nan] * pooled.shape[1]]
    frame = pd.DataFrame({"vector": [*bad, *(row.tolist() for row in pooled)]})
    (read,) = recipe.predict_vectors(iter([frame]), str(vector_model))
    assert list(read["class"][3:]) == inference.classifier.predict({"pooled": pooled})
    expected = inference.classifier.predict_proba({"pooled": pooled}).max(axis=1)
    np.testing.assert_allclose(read["probability"][3:].astype(float), expected, atol=1e-6)
    assert list(read["error"][:3]) == [
        "row: vector has 0 numbers, the model takes 16",
        "row: vector has 2 numbers, the model takes 16",
        "row: vector is not finite",
    ]
    assert read["class"][:3].isna().all()
