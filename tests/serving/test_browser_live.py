"""The page beside real processes: `adamab fit` goes on while `adamab serve` shows it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adamab.testing import ProviderServer

CLASSES = {
    "refund": ["give me my money back", "i want a refund of the fee", "refund me"],
    "praise": ["what a lovely product", "i love your lovely team", "lovely work"],
    "outage": ["the site is down again", "nothing loads, site down", "it is down"],
}
ROUNDS = "document.querySelectorAll('.rounds > tbody > tr:not(.detail)').length"


class Processes:
    """Commands in their own processes, in one directory, all ended with the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "adamab", *arguments],
            cwd=self.folder,
            env={**os.environ, "OPENAI_API_KEY": "key"},
            stdout=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def serve(self) -> str:
        process = self.start("serve", "run", "--port", "0")
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found is not None
        return found[0]

    def end(self) -> None:
        for process in self.started:
            process.terminate()
            process.communicate()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    found = Processes(tmp_path)
    yield found
    found.end()


@pytest.mark.slow
def test_a_fit_is_followed_and_rejecting_buys_nothing_again(
    processes: Processes, visit: Any, until: Any, tmp_path: Path
) -> None:
    classes = [{"name": name, "description": name, "examples": texts} for name, texts in CLASSES.items()]
    (tmp_path / "task.yaml").write_text(json.dumps({"name": "desk", "classes": classes}))
    with ProviderServer() as provider:
        spec = f"openai:m?base_url={provider.url}/v1"
        options = ("--embedder", spec, "--generator", spec, "--budget", "16 samples", "--prefetch", "0")
        quick = ("--set", "batch=2", "--set", "folds=2", "--set", "checkpoints=0,5")
        fit = processes.start("fit", "task.yaml", "--run", "run", *options, *quick)
        while not (tmp_path / "run" / "task.json").exists():
            assert fit.poll() is None, "the fit ended before the page was opened"
        provider.latency = 1.5  # so that the page is there in time
        page = visit(processes.serve(), "run")
        page.evaluate("window.stayed = true")

        until(page, f"{ROUNDS} >= 1")
        assert page.locator("#state").get_attribute("data-state") == "running"
        assert "first fit is under way" in page.inner_text("#notices")
        seen = page.evaluate(ROUNDS)
        provider.latency = 0.2
        until(page, f"{ROUNDS} > {seen}")
        until(page, "document.getElementById('state').dataset.state === 'finished'")
        until(page, f"{ROUNDS} === 8")
        until(page, "document.getElementById('notices').textContent === ''")  # the model is loaded
        page.click("nav a[href='#try']")
        page.fill("#text", "money back")
        page.keyboard.press("Enter")
        page.wait_for_selector(".answer")

        bought = provider.count("chat/completions")
        page.click("nav a[href='#samples']")
        rejected = page.inner_text(".sample >> nth=0 >> .quote")
        page.keyboard.press("r")
        page.wait_for_selector(".sample.rejected")
        assert "adamab fit --run run" in page.inner_text(".waiting")
        again = processes.start("fit", "--run", "run")
        assert again.wait() == 0
        lines = (tmp_path / "run" / "synthetic.jsonl").read_text().splitlines()
        assert rejected not in [json.loads(line)["text"] for line in lines]
        assert len(lines) == 15
        assert provider.count("chat/completions") == bought

        page.get_by_role("button", name="Use the new model").click()
        until(page, "document.getElementById('notices').textContent === ''")
        until(page, "document.querySelector('.waiting').textContent === ''")
        assert page.evaluate("window.stayed")  # all of it without a reload
