import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from adamab.run.directory import read_task

NPZ = ("--embedder", "npz:vectors.npz")


def test_figures_for_people_and_machines(adamab, folder, model):
    result = adamab("evaluate", model, "new.jsonl")
    assert result.exit_code == 0, result.output
    assert "9 texts" in result.stdout
    assert "\x1b" not in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    answer = json.loads(adamab("evaluate", model, "new.jsonl", *NPZ, "--json").stdout)
    assert answer["n"] == 9
    assert answer["accuracy"]["low"] <= answer["accuracy"]["value"] <= answer["accuracy"]["high"]
    assert [row["name"] for row in answer["classes"]] == ["refund", "login", "praise"]


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


def test_samples_that_were_trained_on_are_counted(adamab, folder, model):
    assert "given to the fit" not in adamab("evaluate", model, "new.jsonl").stderr
    known = [json.loads(line) for line in (folder / "new.jsonl").read_text().splitlines()]
    text = read_task(Path(model)).samples[0].text
    lines = [json.dumps(row) + "\n" for row in [{**known[0], "text": text}, *known]]
    (folder / "both.jsonl").write_text("".join(lines))
    result = adamab("evaluate", model, "both.jsonl")
    assert "note: 1 of 10 samples were given to the fit as well; these figures are too high" in result.stderr
    assert json.loads(adamab("evaluate", model, "both.jsonl", "--json").stdout)["trained_on"] == 1


def test_bad_runs(refused, folder, model):
    assert "no such file" in refused("evaluate", "nowhere", "new.jsonl")
    assert "no such file" in refused("evaluate", model, "none.csv")
    assert "none: no such file" in refused("evaluate", model, "none")
    shutil.copytree(model, folder / "cut")
    weights = (folder / "cut" / "model.safetensors").read_bytes()
    (folder / "cut" / "model.safetensors").write_bytes(weights[:-7])
    assert "damaged" in refused("evaluate", "cut", "new.jsonl")


def test_a_lost_embedder_can_be_named(adamab, refused, folder, model):
    adamab("fit", "task.yaml", "--run", "run", *NPZ)
    (folder / "vectors.npz").rename(folder / "moved.npz")
    assert "--embedder" in refused("evaluate", "run", "new.jsonl")
    assert adamab("evaluate", "run", "new.jsonl", "--embedder", "npz:moved.npz").exit_code == 0


def test_probabilities_before_and_after_the_temperature(adamab, folder, model):
    answer = json.loads(adamab("evaluate", model, "new.jsonl", "--json").stdout)
    figures = answer["probabilities"]
    assert figures["binning"] == "15 equal-width bins"
    assert figures["after"]["calibration_error"] == answer["calibration_error"]
    assert figures["temperature"] > 0
    assert figures["before"] != figures["after"]
    assert (answer["unknown"], answer["sets"]) == (None, None)
    moved = json.loads(adamab("evaluate", model, "new.jsonl", "--json", "--prior", "login=0.9").stdout)
    assert moved["probabilities"]["after"]["log_loss"] > figures["after"]["log_loss"]
    ruled_out = json.loads(adamab("evaluate", model, "new.jsonl", "--json", "--prior", "login=0").stdout)
    assert ruled_out["probabilities"]["after"]["log_loss"] > 5


def test_unknown_and_sets_are_judged(adamab, refused, folder, model, new_texts):
    (folder / "other.txt").write_text("the sign in page is broken\nmoney back please\n")
    options = ("--unknown", "0.8", "--out-of-scope", "other.txt", "--coverage", "0.8")
    result = adamab("evaluate", model, "new.jsonl", *options)
    assert result.exit_code == 0, result.output
    assert "of these are kept, asked for 80.0 %" in result.stdout
    assert "of 2 texts of no class are caught; AUROC" in result.stdout
    assert "hold the class, asked for 80.0 %" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    answer = json.loads(adamab("evaluate", model, "new.jsonl", *options, "--json").stdout)
    assert answer["unknown"]["n_out_of_scope"] == 2
    assert 0 <= answer["unknown"]["caught"] <= 1
    assert 1 <= answer["sets"]["mean_size"] <= 3
    alone = json.loads(adamab("evaluate", model, "new.jsonl", "--unknown", "0.8", "--json").stdout)["unknown"]
    assert (alone["auroc"], alone["kept"]) == (None, answer["unknown"]["kept"])
    predicted = adamab("predict", model, "new.jsonl", "--unknown", "0.8", "--json").stdout.splitlines()
    kept = [json.loads(line)["class"] != "unknown" for line in predicted]
    assert alone["kept"] == pytest.approx(np.mean(kept))
    many = adamab("evaluate", model, "new.jsonl", "--coverage", "0.95")
    assert "cannot vouch for 95.0 %, so every set holds all classes" in many.stderr
    assert "100.0 % hold the class" in many.stdout
