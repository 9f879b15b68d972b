"""`kill -9` at points spread over a run against APIs, then resume: nothing differs, nothing is bought twice.

The process dies when the server has received or answered so many requests; every third run dies a second
time. `tests/run/test_killed_everywhere.py` does the same at every write, within one process.
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from adamab.testing import ProviderServer

pytestmark = pytest.mark.slow

POINTS, PREFETCH = 8, 4
IN_FLIGHT = PREFETCH + 2  # the most calls that a kill can interrupt
TASK = {
    "name": "support",
    "classes": {
        "refund": "wants money back",
        "login": "cannot sign in",
        "praise": "likes the product",
        "shipping": "asks where a parcel is",
    },
    "examples": {
        "refund": ["money back please", "send my money back", "I want the money returned"],
        "login": ["cannot sign in today", "sign in fails", "the sign in page is broken"],
        "praise": ["likes it a lot", "she likes it", "everyone likes it here"],
        "shipping": ["where is my parcel", "it has not arrived", "when will it be delivered"],
    },
}
SETTINGS = {
    "texts": ("augmentation_rounds=20",),
    "images": ("augmentation_rounds=8", "batch=2", "near_duplicate=none"),
}


class Run:
    """A task in a folder and a provider of its own."""

    def __init__(self, kind, folder, paint, server):
        self.kind, self.folder, self.server = kind, folder, server
        if kind == "texts":
            (folder / "task.yaml").write_text(json.dumps(TASK))
        else:
            paint(folder / "photos", {"red": 3, "green": 3, "blue": 3})

    def start(self):
        api = f"base_url={self.server.url}"
        if self.kind == "texts":
            source, embedder, generator = "task.yaml", f"openai:m?{api}/v1&batch=5", f"openai:m?{api}/v1"
        else:
            source, embedder = "photos", f"voyage:voyage-multimodal-3?{api}/voyage/v1&batch=5"
            generator = f"openai-image:gpt-image-1-mini?{api}/v1"
        command = [sys.executable, "-m", "adamab", "fit", source, "--run", "run", "--no-cache", "--quiet"]
        command += ["--embedder", embedder, "--generator", generator, "--prefetch", str(PREFETCH)]
        for setting in SETTINGS[self.kind]:
            command += ["--set", setting]
        environment = {**os.environ, "ADAMAB_CACHE": str(self.folder / "no-cache.sqlite")}
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def kill(self, requests, *, answered):
        process = self.start()
        while process.poll() is None:
            if sum(seen.status is not None or not answered for seen in self.server.seen) >= requests:
                break
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        while any(seen.status is None for seen in self.server.seen):
            time.sleep(0.005)  # a server does not know that nobody listens any more, and bills

    def finish(self):
        process = self.start()
        output, _ = process.communicate()
        assert (process.returncode, output) == (0, "")
        run = self.folder / "run"
        assert not list(run.glob("images/.*part"))
        history = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
        return {
            "chosen": [record["chosen"] for record in history],
            "weights": hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest(),
            "synthetic": (run / "synthetic.jsonl").read_text(),
        }

    def requests(self):
        return [seen.path + json.dumps(seen.body, sort_keys=True) for seen in self.server.seen]


@pytest.fixture(scope="module", params=["texts", "images"])
def whole(request, tmp_path_factory, paint):
    """What a run that nobody kills comes to, and how many requests it takes."""
    with ProviderServer(latency=0.03, jitter=0.03) as server:
        run = Run(request.param, tmp_path_factory.mktemp("whole"), paint, server)
        return {"kind": run.kind, "result": run.finish(), "requests": len(server.seen)}


@pytest.mark.parametrize("point", range(POINTS))
def test_a_killed_run_ends_like_a_whole_one(tmp_path, paint, whole, point):
    requests = 1 + point * (whole["requests"] - 1) // (POINTS - 1)
    with ProviderServer(latency=0.03, jitter=0.03, seed=point) as server:
        run = Run(whole["kind"], tmp_path, paint, server)
        run.kill(requests, answered=point % 2 == 0)
        if point % 3 == 0:
            run.kill(requests + 3, answered=False)
        assert run.finish() == whole["result"]
        bought = set(run.requests())
        # Each is billed once: what was on its way is asked for again under the same key.
        assert server.billed() == len(bought) == len({seen.idempotency_key for seen in server.seen})
        assert len(server.seen) - len(bought) <= 2 * IN_FLIGHT
        # At most so many batches were fetched ahead and never needed, in all processes together.
        assert len(bought) - whole["requests"] <= 2 * PREFETCH


def test_without_idempotency_keys_only_what_was_on_its_way_is_billed_twice(tmp_path, paint, whole):
    repeated = 0
    for share in (0.2, 0.5, 0.8):
        folder = tmp_path / str(share)
        folder.mkdir()
        with ProviderServer(latency=0.03, jitter=0.03, idempotent=False) as server:
            run = Run(whole["kind"], folder, paint, server)
            run.kill(round(share * whole["requests"]), answered=False)
            result = run.finish()
            assert run.kind == "images" or result == whole["result"]  # asked again, an image is drawn again
            assert server.repeated() == len(server.seen) - len(set(run.requests())) <= IN_FLIGHT
            repeated += server.repeated()
    assert repeated > 0  # or no kill interrupted a call
