"""`kill -9` at points spread over a run that buys images and their vectors: nothing is bought twice."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from adamab.testing import ProviderServer

pytestmark = pytest.mark.slow

SETTINGS = ("folds=2", "checkpoints=0,6", "augmentation_rounds=8", "batch=2", "near_duplicate=none")
POINTS = (2, 4, 6, 8, 10, 12, 14, 16)


def start(folder: Path, server: ProviderServer) -> subprocess.Popen[str]:
    embedder = f"voyage:voyage-multimodal-3?base_url={server.url}/voyage/v1&batch=5"
    generator = f"openai-image:gpt-image-1-mini?base_url={server.url}/v1"
    command = [sys.executable, "-m", "adamab", "fit", "photos", "--run", "run", "--no-cache", "--quiet"]
    command += ["--embedder", embedder, "--generator", generator]
    command += [part for setting in SETTINGS for part in ("--set", setting)]
    environment = {**os.environ, "ADAMAB_CACHE": str(folder / "no-cache.sqlite")}
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def outcome(folder: Path, server: ProviderServer) -> dict[str, Any]:
    process = start(folder, server)
    output, _ = process.communicate()
    assert (process.returncode, output) == (0, "")
    run = folder / "run"
    history = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    return {
        "chosen": [record["chosen"] for record in history],
        "weights": hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest(),
        "synthetic": (run / "synthetic.jsonl").read_text(),
    }


def kill(folder: Path, server: ProviderServer, requests: int, *, answered: bool) -> None:
    process = start(folder, server)

    def reached() -> bool:
        return sum(one.status is not None or not answered for one in server.seen) >= requests

    while process.poll() is None and not reached():
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    while any(one.status is None for one in server.seen):
        time.sleep(0.005)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("whole")
    paint(folder)
    with ProviderServer(latency=0.03, jitter=0.02) as server:
        ended = outcome(folder, server)
        return {**ended, "billed": server.billed(), "asked": len(server.seen)}


def paint(folder: Path) -> None:
    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(0)
    for name, colour in {"red": (200, 40, 40), "green": (40, 180, 60), "blue": (50, 60, 200)}.items():
        (folder / "photos" / name).mkdir(parents=True)
        for number in range(3):
            pixels = np.clip(np.array(colour) + rng.integers(-40, 40, (24, 24, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / "photos" / name / f"{number}.png")


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_run_of_images_ends_like_a_whole_one(
    tmp_path: Path, whole: dict[str, Any], point: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    paint(tmp_path)
    with ProviderServer(latency=0.03, jitter=0.02, seed=point) as server:
        kill(tmp_path, server, point, answered=point % 4 == 0)
        if point % 3 == 0:
            kill(tmp_path, server, point + 3, answered=True)
        ended = outcome(tmp_path, server)
        assert {key: whole[key] for key in ended} == ended
        keys = [one.idempotency_key for one in server.seen]
        assert server.billed() == len(set(keys))  # what was on its way is asked for again under its key
        assert server.billed() - whole["billed"] <= 8  # batches that were fetched ahead and not needed
        assert not list((tmp_path / "run" / "images").glob(".*part"))


def test_the_points_are_within_the_run(whole: dict[str, Any]) -> None:
    assert whole["asked"] >= max(POINTS)
