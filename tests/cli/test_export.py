"""`adamab export` as people call it: on real runs, and on everything that is none."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from adamab.classifier import load, save
from adamab.run.inference import Inference
from adamab.run.resolve import open_embedder
from adamab.serving import export_onnx
from adamab.task.spec import Sample

DOCS = Path(__file__).parents[2] / "docs" / "export.md"
FILES = {
    "onnx": {"model.onnx", "README.md"},
    "npz": {"model.npz", "README.md"},
    "faiss": {"classes.faiss", "classes.json", "README.md"},
    "hub": {"model.json", "model.safetensors", "README.md"},
}


@pytest.mark.parametrize("kind", FILES)
def test_every_format_is_written_checked_and_described(adamab, model, tmp_path, kind):
    result = adamab("export", model, "--format", kind, "-o", tmp_path / "out", "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert {entry.name for entry in (tmp_path / "out").iterdir()} == FILES[kind] == set(told["files"])
    assert all((tmp_path / "out" / name).stat().st_size == size for name, size in told["files"].items())
    assert told["classes"] == 3
    assert told["inputs"]["pooled"] == 16
    assert told["checked"]
    assert "words and pairs of words of the training texts" in result.stderr
    card = (tmp_path / "out" / "README.md").read_text("utf-8")
    assert "| refund | 3 | 0 |" in card
    assert ("from_pretrained" in card) == (kind == "hub")
    assert str(model.parent) not in card


def test_onnx_answers_like_the_run(adamab, model, tmp_path, new_texts):
    result = adamab("export", model, "--format", "onnx", "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "onnxruntime" in result.stdout
    assert "against NumPy on 64 random rows" in result.stdout
    inference = Inference.open(model)
    samples = [Sample(text, "", id=text) for text in new_texts]
    classifier = inference.classifier
    inputs = dict(inference.views(samples))
    inputs["words"] = classifier.vocabulary.transform(new_texts).toarray()
    session = onnxruntime.InferenceSession(
        tmp_path / "out" / "model.onnx", providers=["CPUExecutionProvider"]
    )
    (found,) = session.run(["probabilities"], inputs)
    np.testing.assert_allclose(found, inference.predict_proba(samples), atol=1e-5)


def test_a_hub_folder_is_a_model_that_predicts(adamab, model, tmp_path, folder):
    assert adamab("export", model, "--format", "hub", "-o", "out", "--license", "mit").exit_code == 0
    assert load("out").classes == load(model).classes
    assert "\nlicense: mit\n" in Path("out/README.md").read_text("utf-8")
    before, after = (adamab("predict", place, "new.jsonl").stdout for place in (model, "out"))
    assert before == after
    assert before.count("\n") == 10


def test_the_folder_beside_the_run_is_the_default(adamab, vector_model, tmp_path, monkeypatch):
    shutil.copytree(vector_model, tmp_path / "here" / "run")
    result = adamab("export", tmp_path / "here" / "run", "--format", "npz")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "here" / "run-npz" / "model.npz").is_file()
    assert "words" not in result.stderr
    monkeypatch.chdir(tmp_path / "here" / "run")
    assert adamab("export", ".", "--format", "hub").exit_code == 0
    assert (tmp_path / "here" / "run-hub" / "model.json").is_file()


def test_a_saved_model_without_a_run_can_be_exported(adamab, model, tmp_path):
    (tmp_path / "saved").mkdir()
    for name in ("model.json", "model.safetensors"):
        shutil.copy(model / name, tmp_path / "saved")
    assert adamab("export", tmp_path / "saved", "--format", "onnx").exit_code == 0
    assert "an unknown number of given samples" in (tmp_path / "saved-onnx" / "README.md").read_text("utf-8")


def test_what_is_there_stays_unless_told(adamab, refused, model, tmp_path):
    (tmp_path / "README.md").write_text("mine")
    (tmp_path / "notes.txt").write_text("mine")
    line = refused("export", model, "--format", "npz", "-o", tmp_path)
    assert "holds 'README.md' already; name another folder or add --overwrite" in line
    assert (tmp_path / "README.md").read_text() == "mine"
    assert not (tmp_path / "model.npz").exists()
    line = refused("export", model, "--format", "npz", "-o", tmp_path, "--overwrite")
    assert "holds 'README.md', which no export wrote" in line
    assert (tmp_path / "README.md").read_text() == "mine"
    (tmp_path / "README.md").unlink()
    (tmp_path / "model.npz").write_text("mine")
    line = refused("export", model, "--format", "npz", "-o", tmp_path, "--overwrite")
    assert "holds 'model.npz', which no export wrote" in line
    (tmp_path / "model.npz").unlink()
    for more in ((), ("--overwrite",)):
        (tmp_path / "notes.txt").write_text("mine")
        assert adamab("export", model, "--format", "npz", "-o", tmp_path, *more).exit_code == 0
        assert (tmp_path / "notes.txt").read_text() == "mine"


def test_another_run_is_no_place_for_an_export(refused, model, vector_model, tmp_path):
    shutil.copytree(vector_model, tmp_path / "run")
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()}
    for more in ((), ("--overwrite",)):
        line = refused("export", model, "--format", "hub", "-o", tmp_path / "run", *more)
        assert "is a run, which keeps its own files only; name another folder" in line
    line = refused("export", model, "--format", "hub", "-o", tmp_path / "run" / "hub")
    assert "lies in the run" in line
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize(
    ("spec", "secrets"),
    [
        ("openai:m?base_url=http://10.0.0.5:8080/v1&key_env=ACME_KEY", [b"ACME_KEY", b"base_url"]),
        ("npz:clients/acme/v.npz", [b"acme"]),
        ("st:../models/secret-project/mini", [b"secret-project"]),
        ("st:file:///home/me/mini", [b"/home/me"]),
    ],
)
def test_no_file_tells_a_place_of_this_machine(adamab, model, tmp_path, kind, spec, secrets):
    known = replace(load(model), embedder_spec=spec, fingerprint="openai:m:8@10.0.0.5:8080/v1")
    save(known, tmp_path / "saved")
    result = adamab("export", tmp_path / "saved", "--format", kind, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "which others cannot open so" in result.stderr
    for secret in secrets:
        assert secret.decode() not in result.stderr
    assert ("holds the embedder's fingerprint 'openai:m:8@10.0.0.5:8080/v1'" in result.stderr) == (
        kind == "hub"
    )
    for path in (tmp_path / "out").iterdir():
        content = path.read_bytes()
        assert not any(secret in content for secret in secrets), path
        kept = path.name == "model.json"  # which is checked by it
        assert (b"10.0.0.5" in content) == kept, path


def test_an_export_that_fails_its_check_leaves_everything_as_it_was(
    refused, adamab, model, tmp_path, monkeypatch
):
    assert adamab("export", model, "--format", "onnx", "-o", tmp_path / "old").exit_code == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "old").iterdir()}
    monkeypatch.setattr(export_onnx, "TOLERANCE", -1.0)
    line = refused("export", model, "--format", "onnx", "-o", tmp_path / "new")
    assert "onnxruntime differs from NumPy by" in line
    assert not (tmp_path / "new").exists()
    refused("export", model, "--format", "onnx", "-o", tmp_path / "old", "--overwrite")
    assert {path.name: path.read_bytes() for path in (tmp_path / "old").iterdir()} == before


def test_what_is_no_run_is_one_line(refused, model, tmp_path):
    assert "nowhere: no such directory" in refused("export", tmp_path / "nowhere", "--format", "npz")
    (tmp_path / "empty").mkdir()
    assert "model.json: no such file" in refused("export", tmp_path / "empty", "--format", "npz")
    (tmp_path / "begun").mkdir()
    shutil.copy(model / "journal.sqlite", tmp_path / "begun")
    assert "its fit has not ended yet" in refused("export", tmp_path / "begun", "--format", "npz")
    shutil.copytree(model, tmp_path / "damaged")
    (tmp_path / "damaged" / "model.safetensors").write_bytes(b"no")
    assert "damaged" in refused("export", tmp_path / "damaged", "--format", "npz")
    shutil.copytree(model, tmp_path / "edited")
    (tmp_path / "edited" / "fit.json").write_text("{")
    assert "fit.json: is damaged" in refused("export", tmp_path / "edited", "--format", "npz")
    assert not (tmp_path / "edited-npz").exists()


def test_places_that_cannot_be_written_are_one_line(refused, model, tmp_path):
    (tmp_path / "file").write_text("")
    assert "is a file" in refused("export", model, "--format", "npz", "-o", tmp_path / "file")
    assert "cannot be written" in refused("export", model, "--format", "npz", "-o", tmp_path / "file" / "x")
    assert "is a web address" in refused("export", model, "--format", "npz", "-o", "https://example.org/x")
    for inside in (model, model / "export"):
        assert "lies in the run" in refused("export", model, "--format", "npz", "-o", inside)


@pytest.mark.skipif(os.name != "posix", reason="a device that is full")
def test_a_folder_that_may_not_be_written_is_one_line(refused, model):
    assert "/proc/adamab: cannot be written" in refused(
        "export", model, "--format", "npz", "-o", "/proc/adamab"
    )


@pytest.mark.parametrize("spec", [None, "HNSW32"])
def test_the_recall_of_an_index_is_told(adamab, model, tmp_path, spec):
    options = ("--format", "faiss", "-o", tmp_path / "out", *(() if spec is None else ("--index", spec)))
    result = adamab("export", model, *options)
    assert result.exit_code == 0, result.output
    line = result.stdout.splitlines()[-1]
    assert line.startswith("recall@1 and recall@10 against the exact answer: 1.000 and 1.000 on 64 random")
    assert line.endswith("on 3 class vectors")
    again = json.loads(adamab("export", model, *options, "--overwrite", "--json").stdout)
    assert again["recall"][0] == {"of": "random rows", "rows": 64, "at_1": 1.0, "at_10": 1.0}
    assert (again["largest_difference"] is None) == (spec is not None)
    told = json.loads((tmp_path / "out" / "classes.json").read_text("utf-8"))
    assert told["index"] == (spec or "Flat")
    assert told["recall"] == again["recall"]


def test_an_index_that_cannot_be_is_one_line_and_leaves_nothing(refused, model, tmp_path):
    line = refused("export", model, "--format", "faiss", "-o", tmp_path / "out", "--index", "IVF64,Flat")
    assert "'IVF64,Flat': FAISS makes no such index of 3 class vectors" in line
    assert not (tmp_path / "out").exists()
    line = refused("export", model, "--format", "npz", "-o", tmp_path / "out", "--index", "Flat")
    assert "--index goes with --format faiss; leave it out of an export as npz" in line
    assert not (tmp_path / "out").exists()


def test_unknown_formats_and_a_missing_one_are_named(refused, model):
    line = refused("export", model, "--format", "pickle")
    assert "'onnx', 'npz', 'faiss', 'hub'" in line
    assert "--format" in refused("export", model)


def test_damaged_synthetic_samples_are_one_line_and_leave_nothing(refused, model, tmp_path):
    for number, damage in enumerate(('{"text": ', '["text"]', '{"label": "x"}')):
        run = tmp_path / f"run{number}"
        shutil.copytree(model, run)
        (run / "synthetic.jsonl").write_text(damage + "\n")
        assert "synthetic.jsonl: is damaged" in refused("export", run, "--format", "onnx")
        assert not (tmp_path / f"run{number}-onnx").exists()


def test_an_embedder_that_is_named_is_used_or_refused(adamab, refused, model, tmp_path):
    line = refused("export", model, "--format", "onnx", "-o", tmp_path / "a", "--embedder", "npz:gone.npz")
    assert "gone.npz" in line
    moved = tmp_path / "moved.npz"
    shutil.copy(model.parent / "vectors.npz", moved)
    options = ("--format", "onnx", "-o", tmp_path / "b", "--embedder", f"npz:{moved}")
    assert adamab("export", model, *options).exit_code == 0


def test_an_embedder_behind_an_api_is_not_asked(adamab, model, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "no-key")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        spec = f"openai:m?base_url=http://127.0.0.1:{listening.getsockname()[1]}/v1"
        fingerprint = open_embedder(spec, cache=False).fingerprint
        save(replace(load(model), embedder_spec=spec, fingerprint=fingerprint), tmp_path / "run")
        assert Inference.open(tmp_path / "run").remote
        result = adamab("export", tmp_path / "run", "--format", "onnx")
        with pytest.raises(BlockingIOError):  # nobody has called
            listening.accept()
    assert result.exit_code == 0, result.output
    assert "on 64 random rows;" in result.stdout


def write_network(path: Path) -> str:
    """Mean colours of a 4 x 4 grid: a network of one layer, in the real format."""
    import onnx
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("AveragePool", ["picture"], ["features"], kernel_shape=[4, 4], strides=[4, 4]),
        helper.make_node("Flatten", ["features"], ["flat"]),
    ]
    picture = helper.make_tensor_value_info("picture", TensorProto.FLOAT, ["N", 3, 16, 16])
    flat = helper.make_tensor_value_info("flat", TensorProto.FLOAT, ["N", 48])
    graph = helper.make_graph(nodes, "grid", [picture], [flat])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=9), path)
    return f"onnx:{path}"


def test_a_run_of_pictures(adamab, paint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paint(tmp_path / "given", {"red": 2, "green": 2})
    fast = (
        "--set",
        "folds=2",
        "--set",
        "checkpoints=0,6",
        "--set",
        "batch=2",
        "--set",
        "near_duplicate=none",
    )
    embedder = write_network(tmp_path / "network.onnx")
    fitted = adamab("fit", "given", "--run", "run", "--embedder", embedder, "--generator", "transform", *fast)
    assert fitted.exit_code == 0, fitted.output
    result = adamab("export", "run", "--format", "onnx")
    assert result.exit_code == 0, result.output
    count = int(re.search(r"64 random rows and (\d+) embedded samples", result.stdout).group(1))
    assert count == len(Path("run/synthetic.jsonl").read_text().splitlines())
    assert "'onnx:network.onnx', which others cannot open so; tell them which one it is" in result.stderr
    card = Path("run-onnx/README.md").read_text("utf-8")
    assert "pipeline_tag: image-classification" in card
    assert f"{count} synthetic samples" in card
    assert str(tmp_path) not in card
    for picture in Path("run/images").iterdir():
        if picture.is_file():
            picture.unlink()
    again = adamab("export", "run", "--format", "onnx", "--overwrite")
    assert again.exit_code == 0, again.output
    assert "on 64 random rows;" in again.stdout


def test_help_imports_neither_numpy_nor_onnx():
    script = (
        "import sys\nfrom adamab.cli import main\nsys.argv = ['adamab', 'export', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\nprint(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "adamab" in loaded
    assert not loaded & {"numpy", "onnx", "onnxruntime", "faiss", "torch", "huggingface_hub"}


def test_the_documentation_can_be_followed(adamab, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = DOCS.read_text("utf-8")
    commands = re.findall(r"^\$ adamab (.*)$", text, re.MULTILINE)
    assert len(commands) == 9
    for command in commands:
        result = adamab(*command.split())
        assert result.exit_code == 0, f"{command}: {result.output}"
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, str(DOCS), "exec"), names)
    printed = capsys.readouterr().out
    assert "['refund']" in printed
    for way in ("by ONNX", "by NumPy", "without adamab"):
        assert f"refund {way}\n" in printed
    assert "['refund', " in printed
    assert {entry.name for entry in Path("triage/copy").iterdir()} == FILES["hub"]
