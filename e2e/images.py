"""`make e2e`, second part: images from start to end with a real network, through the command line.

Run by the project's Python; its argument is the Python that has the wheel with the network: a MobileNetV2
in ONNX (Apache-2.0). The file is used, none of the wheel's code. Ends with a line PASS or FAIL.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from check import LONGEST, CheckError, check, rows
from image_tasks import ImageTask, image_tasks

NETWORK = "continuityguard/score/models/mobilenetv2-7.onnx"
SHA256 = "c1c513582d56afceff8516c73804e484c81c6a830712ab6d682253f4a3cd042f"
EMBEDDER = "onnx:mobilenetv2.onnx?output=mobilenetv20_features_pool0_fwd"
AMOUNT = ("--set", "rounds_per_class=1", "--set", "batch=3")  # three images per class
ROUNDS_BEFORE_KILL = 5


@dataclass(frozen=True)
class Place:
    """An empty folder to type commands in; vectors are kept in it too."""

    folder: Path

    def __call__(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run `adamab`; it has to end with `code`."""
        done = subprocess.run(
            self.command(*arguments), cwd=self.folder, capture_output=True, text=True, timeout=LONGEST
        )
        if done.returncode != code:
            raise CheckError(
                f"adamab {' '.join(arguments)} ended with {done.returncode}: {done.stderr.strip()[-400:]}"
            )
        return done

    @staticmethod
    def command(*arguments: str) -> list[str]:
        """What the system is to start."""
        return [sys.executable, "-m", "adamab", *arguments]


def fit_command(task: ImageTask, run: str, generator: str, *more: str) -> tuple[str, ...]:
    """The command that people would type."""
    options = ("--embedder", EMBEDDER, "--generator", generator, *AMOUNT, *more, "--json")
    return ("fit", task.given, "--run", run, *options)


def whole_fit(adamab: Place, task: ImageTask, kind: str, generator: str) -> float:
    """Fit, evaluate, predict, and start it again; gives the accuracy."""
    run, command = f"{task.name}-{kind}", fit_command(task, f"{task.name}-{kind}", generator)
    summary = json.loads(adamab(*command).stdout)
    fine = summary["given"] == task.n_given and summary["synthetic"] > 0
    check(fine, f"{run}: {task.n_given} given images, {summary['synthetic']} synthetic ones")
    check_stored(adamab.folder / run, summary["synthetic"])
    judged = json.loads(adamab("evaluate", run, task.test, "--json").stdout)
    accuracy = float(judged["accuracy"]["value"])
    result = f"{100 * accuracy:.1f} % of {judged['n']} test images of {task.n_classes} classes are right"
    check(judged["n"] == task.n_test and accuracy >= task.least, result)
    check_predictions(adamab, task, run, accuracy)
    before = contents(adamab.folder / run)
    again = json.loads(adamab(*command).stdout)
    check(again["complete"] and contents(adamab.folder / run) == before, "a second start does nothing")
    return accuracy


def check_stored(run: Path, expected: int) -> None:
    """Every image that was trained on is in the run under the hash of its content."""
    listed = [json.loads(line) for line in (run / "synthetic.jsonl").read_text(encoding="utf-8").splitlines()]
    digests = [hashlib.sha256((run / row["image"]).read_bytes()).hexdigest() for row in listed]
    fine = [f"image:{digest}" for digest in digests] == [row["text"] for row in listed]
    small = all((run / "images" / "thumbnails" / f"{digest}.jpg").is_file() for digest in digests)
    check(len(listed) == expected and fine and small, "all of them are stored by content, with thumbnails")


def check_predictions(adamab: Place, task: ImageTask, run: str, accuracy: float) -> None:
    """`predict` on the folder says what `evaluate` counted."""
    adamab("predict", run, str(task.folder), "-o", f"{run}.csv")
    predicted = read_csv(adamab.folder / f"{run}.csv")
    right = sum(row["class"] == row["image"].split("/")[0] for row in predicted)
    fine = len(predicted) == task.n_test and abs(right / len(predicted) - accuracy) < 1e-9
    check(fine, f"predict names a class for each of {len(predicted)}, as right as evaluate says")


def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows of a file of predictions."""
    with open(path, encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def contents(run: Path) -> dict[str, str]:
    """Hashes of the files of a run, except what SQLite may leave beside its own."""
    files = (file for file in run.rglob("*") if file.is_file() and not file.name.startswith("journal"))
    return {str(file.relative_to(run)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def killed_fit(adamab: Place, task: ImageTask) -> None:
    """SIGKILL in the middle, then the same command again: the weights of a run that was not killed."""
    command = fit_command(task, "killed", "transform", "--no-cache")
    run = adamab.folder / "killed"
    quiet: Any = subprocess.DEVNULL
    with subprocess.Popen(adamab.command(*command), cwd=adamab.folder, stdout=quiet, stderr=quiet) as process:
        while process.poll() is None and len(finished_rounds(run)) < ROUNDS_BEFORE_KILL:
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    check(process.returncode == -signal.SIGKILL, f"killed after {len(finished_rounds(run))} rounds")
    check(not (run / "model.safetensors").exists(), "there is no model yet")
    adamab(*command)
    whole, taken_up = (contents(adamab.folder / name) for name in (f"{task.name}-transform", "killed"))
    fine = all(whole[name] == taken_up[name] for name in ("model.safetensors", "synthetic.jsonl"))
    check(fine, "resumed, it ends with the samples and the weights of the run that was not killed")


def finished_rounds(run: Path) -> list[tuple[Any, ...]]:
    """What the journal says; nothing if it is not there yet."""
    return rows(run, "SELECT 1 FROM events WHERE kind = 'round'")


def broken_files(adamab: Place, task: ImageTask) -> None:
    """A damaged and an empty file among the images."""
    run, folder = f"{task.name}-transform", adamab.folder / "damaged"
    shutil.copytree(task.folder, folder)
    first = next(file for file in sorted(folder.rglob("*")) if file.is_file())
    (folder / "cut.jpg").write_bytes(first.read_bytes()[:2000])
    (folder / "empty.png").write_bytes(b"")
    adamab("predict", run, "damaged", "-o", "rest.csv", "--strict", code=1)
    rows = read_csv(adamab.folder / "rest.csv")
    broken = {Path(row["image"]).name for row in rows if row["error"]}
    fine = broken == {"cut.jpg", "empty.png"} and len(rows) == task.n_test + 2
    check(fine, f"{len(rows)} rows, and two broken images have an error: {sorted(broken)}")


def fetch_network(python: str, folder: Path) -> None:
    """Copy the file out of the wheel, and check that it is the one that was looked at."""
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    place = subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True).stdout.strip()
    content = (Path(place) / NETWORK).read_bytes()
    check(hashlib.sha256(content).hexdigest() == SHA256, f"the network is the one expected ({SHA256[:12]}…)")
    (folder / "mobilenetv2.onnx").write_bytes(content)


def everything(python: str, folder: Path) -> str:
    """All checks; gives the figures for the last line."""
    fetch_network(python, folder)
    os.environ["ADAMAB_CACHE"] = str(folder / "cache" / "vectors.sqlite")
    adamab, figures = Place(folder), []
    for number, task in enumerate(image_tasks(folder)):
        for kind, generator in (("transform", "transform"), ("pool", f"pool:{task.pool}")):
            print(f"{task.name}: a fit with {kind}", flush=True)
            accuracy = whole_fit(adamab, task, kind, generator)
            figures.append(f"{task.name} {100 * accuracy:.1f} % with {kind}")
        if number == 0:
            print("a fit that is killed and resumed, then broken files", flush=True)
            killed_fit(adamab, task)
            broken_files(adamab, task)
    return ", ".join(figures)


def main(arguments: Sequence[str]) -> int:
    """All of it; 0 if everything is as it should be."""
    started = time.monotonic()
    try:
        with tempfile.TemporaryDirectory() as folder:
            figures = everything(arguments[0], Path(folder))
    except Exception as error:  # whatever it is, the last line says how it ended
        if not isinstance(error, CheckError):
            traceback.print_exc(file=sys.stdout)
        print(f"FAIL: {error}")
        return 1
    print(f"PASS in {time.monotonic() - started:.0f} s: {figures}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
