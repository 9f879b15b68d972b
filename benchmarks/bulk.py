"""Bulk prediction: peak memory of ten times the rows, and the time of Ray's one worker against this process.

A corpus goes through in parts, so the peak must not grow with the rows. Each command runs in a process of its
own, through the command line, and tells the highest resident size that the kernel saw (`VmHWM`, as in
`benchmarks.memory`). Vectors come from an npz file, since the point is what is not the embedder.

`python -m benchmarks.bulk COMMAND …` runs one command of adamab and prints its peak in MB and its seconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.memory import peak
from benchmarks.report import Figure, Group, Table

FEW, MANY = 40_000, 400_000
BAR, BAR_RAY = 1.2, 4.0
N_TEXTS, WIDTH = 500, 64
CLASSES = ("refund", "login", "praise", "shipping")


def run() -> Group:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        _prepare(place)
        few, many = (_measured(place, n, f"local-{n}") for n in (FEW, MANY))
        ray = _measured(place, MANY, "ray", "--engine", "ray")
    rows = [
        [title, f"{n:,}", f"{megabytes:.0f}", f"{n / seconds:,.0f}"]
        for title, n, (megabytes, seconds) in (
            ("local", FEW, few),
            ("local", MANY, many),
            ("ray, 1 worker", MANY, ray),
        )
    ]
    table = Table(
        "adamab predict into a folder, start of the process included",
        ["engine", "rows", "peak MB of the command", "rows a second"],
        rows,
    )
    note = f"{many[0]:.0f} MB against {few[0]:.0f} MB at the peak"
    memory = Figure(
        f"memory, predict of {MANY:,} rows to {FEW:,}, local engine", many[0] / few[0], BAR, note=note
    )
    slower = Figure(
        f"time, predict of {MANY:,} rows by Ray's one worker to the local engine",
        ray[1] / many[1],
        BAR_RAY,
        note=f"{ray[1]:.0f} s against {many[1]:.0f} s; Ray's start is in it",
    )
    return Group([memory, slower], [table])


def _prepare(place: Path) -> None:
    rng = np.random.default_rng(0)
    texts = [f"message number {n} about {CLASSES[n % len(CLASSES)]}" for n in range(N_TEXTS)]
    ids = [*texts, *(f"{name}: about {name}" for name in CLASSES)]
    centres = rng.normal(size=(len(CLASSES), WIDTH))
    vectors = centres[np.arange(len(ids)) % len(CLASSES)] + rng.normal(size=(len(ids), WIDTH))
    np.savez(
        place / "vectors.npz",
        **{"ids": np.array(ids), "view/pooled": vectors.astype(np.float32), "model": np.array("toy")},
    )
    classes = [
        {"name": c, "description": f"about {c}", "examples": texts[n :: len(CLASSES)][:5]}
        for n, c in enumerate(CLASSES)
    ]
    (place / "task.yaml").write_text(json.dumps({"name": "bulk", "classes": classes}))
    _command(
        place,
        "fit",
        "task.yaml",
        "--run",
        "run",
        "--embedder",
        f"npz:{place / 'vectors.npz'}",
        "--set",
        "words=false",
    )
    for n in (FEW, MANY):
        with open(place / f"{n}.jsonl", "w") as stream:
            stream.writelines(
                json.dumps({"text": texts[row % N_TEXTS], "number": row}) + "\n" for row in range(n)
            )


def _measured(place: Path, rows: int, out: str, *more: str) -> tuple[float, float]:
    """Peak in MB and seconds of a prediction."""
    output = _command(place, "predict", "run", f"{rows}.jsonl", "-o", out, "--no-cache", *more)
    megabytes, seconds = output.split()[-2:]
    return float(megabytes), float(seconds)


def _command(place: Path, *arguments: str) -> str:
    environment = {**os.environ, "ADAMAB_CACHE": str(place / "cache.sqlite"), "PYTHONPATH": os.getcwd()}
    command = [sys.executable, "-m", "benchmarks.bulk", *arguments]
    done = subprocess.run(command, cwd=place, env=environment, check=True, capture_output=True, text=True)
    return done.stdout


def _main() -> None:
    from adamab.cli import main

    start = time.perf_counter()
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
    print(f"{peak():.1f} {time.perf_counter() - start:.2f}")


if __name__ == "__main__":
    _main()
