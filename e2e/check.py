"""`make e2e`: a fit from start to finish against llama.cpp, a server that is not ours.

Run by the project's Python; its argument is the Python that has the server's wheels. Ends with a line
PASS or FAIL. The model is tiny and what it writes is poor: the point is the way there and back.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

HERE = Path(__file__).resolve().parent
TASK = HERE / "task.yaml"
CLASSES = ("praise", "broken", "opening_hours")
SAMPLES, BATCH = 12, 3
TEXTS = ("The mug arrived in pieces.", "When do you open tomorrow?", "I love this spoon!")
RESULTS = (
    "model.safetensors",
    "model.json",
    "history.jsonl",
    "synthetic.jsonl",
    "fit.json",
    "journal.sqlite",
)
LONGEST = 600  # seconds of one command: a machine may be busy


class CheckError(Exception):
    """Something is not as it should be."""


def check(fine: bool, what: str) -> None:
    """Say what was checked, or stop."""
    if not fine:
        raise CheckError(what)
    print(f"  ok: {what}", flush=True)


@dataclass(frozen=True)
class Server:
    """A llama.cpp server on a port of its own."""

    url: str

    @property
    def written(self) -> int:
        """Tokens that it has written so far, by its own count."""
        with urlopen(f"{self.url}/metrics") as reply:
            count = re.search(r"^llamacpp:tokens_predicted_total (\d+)", reply.read().decode(), re.MULTILINE)
        assert count is not None, "the server counts no tokens"
        return int(count[1])

    def spec(self, **options: object) -> str:
        """As --generator or --embedder wants it."""
        given = {"base_url": f"{self.url}/v1", **options}
        return "openai:smollm2?" + "&".join(f"{name}={value}" for name, value in given.items())


@contextmanager
def serving(python: str, *arguments: str) -> Iterator[Server]:
    """A server until the block ends."""
    command = [python, str(HERE / "server.py"), "0", *arguments]
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            if not url:
                log.seek(0)
                raise CheckError(f"the server did not start: {log.read()[-500:]}")
            _wait_until_ready(url)
            yield Server(url)
        finally:
            process.kill()  # it holds nothing that could be lost


def _wait_until_ready(url: str) -> None:
    for _ in range(120):
        try:
            with urlopen(f"{url}/health", timeout=5) as reply:
                if reply.status == 200:
                    return
        except (URLError, TimeoutError):
            pass
        time.sleep(0.5)
    raise CheckError(f"{url} is not ready after a minute")


def adamab(*arguments: str, stdin: str | None = None) -> str:
    """What the command prints; it has to succeed."""
    command = [sys.executable, "-m", "adamab", *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=LONGEST)
    if done.returncode:
        raise CheckError(f"adamab {arguments[0]} ended with {done.returncode}: {done.stderr.strip()[-400:]}")
    return done.stdout


def fit_command(run: Path, chat: Server, embedder: str = "local") -> tuple[str, ...]:
    """The command that people would type; everything is asked of the server, nothing of a cache."""
    generator = chat.spec(timeout=300, concurrency=2, max_tokens=220)
    options = ("--embedder", embedder, "--generator", generator, "--prefetch", "2", "--no-cache")
    amount = ("--budget", f"{SAMPLES} samples", "--set", f"batch={BATCH}")
    return ("fit", str(TASK), "--run", str(run), *options, *amount, "--json")


def rows(run: Path, query: str) -> list[tuple[Any, ...]]:
    """What the journal says; nothing if it is not there yet."""
    try:
        address = f"file:{run / 'journal.sqlite'}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=30)) as journal:
            return journal.execute(query).fetchall()
    except sqlite3.OperationalError:
        return []


def answers(run: Path) -> dict[tuple[Any, ...], float]:
    """Which answers were bought, and when."""
    return {row[:3]: row[3] for row in rows(run, "SELECT class, batch, number, at FROM replies")}


def calls(run: Path) -> int:
    """Calls for texts that were begun."""
    counts = rows(run, "SELECT count(*) FROM spending WHERE reservation IS NULL AND purpose = 'generate'")
    return int(counts[0][0]) if counts else 0


def show(run: Path, summary: dict[str, Any]) -> None:
    """What the model wrote and what became of it."""
    for line in (run / "synthetic.jsonl").read_text(encoding="utf-8").splitlines():
        sample = json.loads(line)
        print(f"  {sample['label']}: {sample['text'][:120]!r}")
    print(f"  kept out: {summary['rejected']}; refused: {summary['refused']}; closed: {summary['closed']}")


def whole_fit(run: Path, chat: Server, embedder: str = "local") -> dict[str, Any]:
    """Fit, look at everything it left, and start it again."""
    before = chat.written
    summary: dict[str, Any] = json.loads(adamab(*fit_command(run, chat, embedder)))
    show(run, summary)
    check(all((run / name).is_file() for name in RESULTS), "the run has a model, results and a journal")
    check(summary["synthetic"] > 0, f"{summary['synthetic']} synthetic samples of {SAMPLES} were accepted")
    spent = summary["spent"]["by_purpose"]["generate"]
    check(spent["calls"] == calls(run) == len(answers(run)), f"{spent['calls']} calls, one answer each")
    check(spent["input_tokens"] > 0, f"{spent['input_tokens']} tokens went out, as the server counts")
    check(
        spent["output_tokens"] == chat.written - before,
        f"{spent['output_tokens']} tokens came back, exactly as many as the server says it wrote",
    )
    start_again(run, chat, embedder)
    predict(run)
    return summary


def start_again(run: Path, chat: Server, embedder: str) -> None:
    """The same command on a run that is complete."""
    written, bought = chat.written, answers(run)
    again = json.loads(adamab(*fit_command(run, chat, embedder)))
    idle = again["complete"] and chat.written == written and answers(run) == bought
    check(idle, "a second start does nothing")


def predict(run: Path) -> None:
    """Let the model loose on texts of ours."""
    lines = adamab("predict", str(run), "-", "--json", stdin="\n".join(TEXTS) + "\n").splitlines()
    predicted = [json.loads(line) for line in lines]
    print("  predicted:", ", ".join(f"{row['text']!r} {row['class']}" for row in predicted))
    named = [row["class"] in CLASSES for row in predicted]
    check(named == [True] * len(TEXTS), "predict names a class for each")


def killed_fit(run: Path, chat: Server) -> None:
    """SIGKILL in the middle, then the same command again."""
    command = [sys.executable, "-m", "adamab", *fit_command(run, chat)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        while process.poll() is None and not rows(run, "SELECT 1 FROM events WHERE kind = 'round'"):
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    check(process.returncode == -signal.SIGKILL, "the fit was killed in the middle")
    bought, begun = answers(run), calls(run)
    summary = json.loads(adamab(*fit_command(run, chat)))
    after = answers(run)
    check(summary["synthetic"] > 0, f"it resumed and ended with {summary['synthetic']} samples")
    check(bought.items() <= after.items(), f"all {len(bought)} answers from before are there, untouched")
    fresh, asked = len(after) - len(bought), calls(run) - begun
    check(asked == fresh, f"{asked} further calls bought {fresh} further answers: nothing was asked twice")


def main(arguments: Sequence[str]) -> int:
    """All of it; 0 if everything is as it should be."""
    started = time.monotonic()
    os.environ.pop("OPENAI_API_KEY", None)  # no key must be needed, and none must go out
    try:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            chat = stack.enter_context(serving(arguments[0]))
            print(f"llama.cpp serves SmolLM2-135M-Instruct on {chat.url}; a fit with the local embedder")
            whole_fit(folder / "run", chat)
            print("a fit that is killed and resumed")
            killed_fit(folder / "killed", chat)
            print("a fit whose vectors come from llama.cpp too")
            vectors = stack.enter_context(serving(arguments[0], "embeddings"))
            summary = whole_fit(folder / "remote", chat, vectors.spec(timeout=300))
            spent = summary["spent"]["by_purpose"]["embed"]
            fine = spent["calls"] > 0 and spent["input_tokens"] > 0
            check(fine, f"{spent['calls']} calls and {spent['input_tokens']} tokens for vectors")
    except Exception as error:  # whatever it is, the last line says how it ended
        if not isinstance(error, CheckError):
            traceback.print_exc(file=sys.stdout)
        print(f"FAIL: {error}")
        return 1
    print(f"PASS in {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
