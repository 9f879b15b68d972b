"""The whole way as a new user goes it: real processes in an empty folder."""

import json
import os
import shlex
import subprocess
import sys

from adamab.task import load_task


def run(folder, *arguments):
    command = [sys.executable, "-m", "adamab", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_init_fit_evaluate_predict(tmp_path, write_npz):
    run(tmp_path, "init", "desk")
    task = load_task(tmp_path / "desk" / "task.yaml")
    texts = [sample.text for sample in task.samples]
    write_npz(tmp_path / "v.npz", [*texts, *(task.prompts.class_text(spec) for spec in task.classes)])
    message = run(tmp_path, "fit", "desk/task.yaml", "--run", "desk/run", "--embedder", "npz:v.npz")
    assert "expected accuracy" in message
    data = "".join(json.dumps({"text": s.text, "label": s.class_name}) + "\n" for s in task.samples)
    (tmp_path / "data.jsonl").write_text(data)
    judged = json.loads(run(tmp_path, "evaluate", "desk/run", "data.jsonl", "--json"))
    assert judged["accuracy"]["value"] > 0.9
    assert run(tmp_path, "predict", "desk/run", "data.jsonl", "-o", "out.csv") == ""
    assert (tmp_path / "out.csv").read_text().startswith("text,label,class,probability,error\n")
    assert sorted(os.listdir(tmp_path)) == ["data.jsonl", "desk", "out.csv", "v.npz"]


def shell(folder, arguments, ending):
    command = f"{shlex.quote(sys.executable)} -m adamab {arguments} {ending}"
    done = subprocess.run(["bash", "-c", command], cwd=folder, stderr=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stderr


def test_closed_streams(tmp_path, write_task, model):
    write_task(tmp_path)
    (tmp_path / "many.txt").write_text("money please\n" * 2000)
    assert shell(tmp_path, f"predict {model} many.txt", ">&-") == (0, "")
    assert shell(tmp_path, f"predict {model} many.txt -o out.csv", ">&- 2>&-") == (0, "")
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 2001
    assert shell(tmp_path, "doctor", ">&-") == (0, "")
    code, message = shell(tmp_path, f"predict {model} -", "<&-")
    assert (code, message) == (2, "adamab: stdin: holds no rows; add at least one\n")


def test_full_disks(tmp_path, write_task, model):
    write_task(tmp_path)
    full = "standard output: No space left on device\n"
    for command in (
        f"predict {model} new.jsonl",
        f"evaluate {model} new.jsonl --json",
        "doctor",
        "--version",
    ):
        assert shell(tmp_path, command, "> /dev/full") == (2, f"adamab: {full}")
    fit = "fit task.yaml --run run --embedder npz:vectors.npz --no-cache --json"
    message = shell(tmp_path, fit, "> /dev/full")
    assert message == (2, f"adamab: run was written, but its summary could not be printed: {full}")
    assert (tmp_path / "run" / "fit.json").exists()
