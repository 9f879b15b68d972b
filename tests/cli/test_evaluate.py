from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

NPZ = ("--embedder", "npz:vectors.npz")


def test_figures_for_people_and_machines(adamab, folder, model):
    result = adamab("evaluate", model, "new.jsonl")
    assert result.exit_code == 0, result.output
    for word in (
        "9 texts",
        "accuracy",
        "macro-F1",
        "calibration error",
        "95 % interval",
        "precision",
        "refund",
    ):
        assert word in result.stdout
    assert "\x1b" not in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    answer = json.loads(adamab("evaluate", model, "new.jsonl", *NPZ, "--json").stdout)
    assert answer["n"] == 9
    assert answer["accuracy"]["low"] <= answer["accuracy"]["value"] <= answer["accuracy"]["high"]
    assert [row["name"] for row in answer["classes"]] == ["refund", "login", "praise"]


def test_confusions_are_shown(adamab, folder, model):
    rows = [json.loads(line) for line in (folder / "new.jsonl").read_text().splitlines()]
    turned = {"refund": "login", "login": "praise", "praise": "refund"}
    (folder / "wrong.jsonl").write_text(
        "".join(json.dumps({**row, "label": turned[row["label"]]}) + "\n" for row in rows)
    )
    result = adamab("evaluate", model, "wrong.jsonl")
    assert "was taken for" in result.stdout


def test_unknown_classes(adamab, refused, folder, model):
    with open(folder / "new.jsonl", "a") as stream:
        stream.write('{"text": "sign in fails", "label": "[red]odd"}\n')
    line = refused("evaluate", model, "new.jsonl")
    assert "1 of 10 rows" in line
    assert "'[red]odd' (1)" in line
    assert "--skip-unknown" in line
    result = adamab("evaluate", model, "new.jsonl", "--skip-unknown")
    assert "9 texts, 1 of unknown classes left out" in result.stdout
    (folder / "other.csv").write_text("text,label\nsign in fails,odd\n")
    assert "right file" in refused("evaluate", model, "other.csv", "--skip-unknown")


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.csv", b"", "no rows"),
        ("a.csv", b"text,label\ncaf\xe9,refund\n", "UTF-8"),
        ("a.csv", b"text\nhello\n", "label"),
        ("a.txt", b"hello\n", "unknown ending"),
        ("a.csv", b"text,label\nnever seen,refund\n", "no vector for 1"),
    ],
)
def test_bad_data(refused, folder, model, name, content, told):
    (folder / name).write_bytes(content)
    assert told in refused("evaluate", model, name)


def test_bad_runs(refused, folder, model):
    assert "no such file" in refused("evaluate", "nowhere", "new.jsonl")
    assert "no such file" in refused("evaluate", model, "none.csv")
    (folder / "foreign").mkdir()
    (folder / "foreign" / "model.json").write_text("{}")
    assert "not a saved ADAMAB classifier" in refused("evaluate", "foreign", "new.jsonl")
    shutil.copytree(model, folder / "cut")
    weights = (folder / "cut" / "model.safetensors").read_bytes()
    (folder / "cut" / "model.safetensors").write_bytes(weights[:-7])
    assert "damaged" in refused("evaluate", "cut", "new.jsonl")


def test_another_embedder_is_refused(refused, folder, model):
    with np.load(folder / "vectors.npz") as found:
        arrays = {name: found[name] for name in found.files}
    np.savez(folder / "other.npz", **{**arrays, "model": np.array("another")})
    line = refused("evaluate", model, "new.jsonl", "--embedder", "npz:other.npz")
    assert "fitted with embedder" in line


def test_a_lost_embedder_can_be_named(adamab, refused, folder, model):
    adamab("fit", "task.yaml", "--run", "run", *NPZ, "--set", "folds=2", "--set", "checkpoints=0,6")
    (folder / "vectors.npz").rename(folder / "moved.npz")
    assert "--embedder" in refused("evaluate", "run", "new.jsonl")
    assert adamab("evaluate", "run", "new.jsonl", "--embedder", "npz:moved.npz").exit_code == 0
