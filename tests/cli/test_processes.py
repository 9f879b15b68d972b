"""The whole way as a new user goes it: real processes in an empty folder."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

from adamab.task import load_task


def run(folder: Path, *arguments: str) -> str:
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
    told = run(tmp_path, "fit", "desk/task.yaml", "--run", "desk/run", "--embedder", "npz:v.npz")
    assert "expected accuracy" in told
    data = "".join(json.dumps({"text": s.text, "label": s.class_name}) + "\n" for s in task.samples)
    (tmp_path / "data.jsonl").write_text(data)
    judged = json.loads(run(tmp_path, "evaluate", "desk/run", "data.jsonl", "--json"))
    assert judged["accuracy"]["value"] > 0.9
    assert run(tmp_path, "predict", "desk/run", "data.jsonl", "-o", "out.csv") == ""
    assert (tmp_path / "out.csv").read_text().startswith("text,label,class,probability\n")
    assert sorted(os.listdir(tmp_path)) == ["data.jsonl", "desk", "out.csv", "v.npz"]


def test_a_person_sees_progress(tmp_path, write_task):
    write_task(tmp_path)
    ours, theirs = pty.openpty()
    options = ["--embedder", "npz:vectors.npz", "--generator", "replay:new.jsonl", "--no-cache"]
    command = [sys.executable, "-m", "adamab", "fit", "task.yaml", "--run", "run", *options]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    shown = b"".join(iter(lambda: read(ours), b""))  # a terminal that nobody reads blocks the process
    os.close(ours)
    told, _ = process.communicate()
    assert process.returncode == 0, shown
    assert b"embedding the samples" in shown
    assert b"\x1b" not in told


def read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # Linux's way to say that the other end is closed
        return b""
