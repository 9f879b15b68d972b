"""Streams that are closed and disks that are full, with real processes."""

import shlex
import subprocess
import sys


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
