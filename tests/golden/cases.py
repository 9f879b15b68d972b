"""Runs the golden cases, each through the command line or top-level names of `adamab` alone.

    python cases.py FILE [CASE ...]

writes into FILE what each case, or each of those named, came to. A process of its
own, so that the caller can fix its kernels.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import tasks

DEFAULT = ("batch=2",)
PAPER = ("batch=2", "augmentation_rounds=9", "rounds=12")
GATED = ("near_duplicate=0.6", "max_label_rank=3")
POOLED = ("views=pooled", "words=false")

# Fits: task, embedder, recipe, policy, generator, options. `npz` is the task's own vectors.
FITS = {
    "trec-default-adamab-replay": ("trec", "npz", "default", "adamab", "replay", DEFAULT),
    "trec-default-tight-pool": ("trec", "npz", "default", "tight", "pool", DEFAULT),
    "trec-default-random-replay": ("trec", "npz", "default", "random", "replay", DEFAULT),
    "trec-default-round-robin-replay": ("trec", "npz", "default", "round-robin", "replay", DEFAULT),
    "trec-default-adamab-noise": ("trec", "npz", "default", "adamab", "noise", (*DEFAULT, *POOLED)),
    "trec-gated": ("trec", "npz", "default", "adamab", "replay", (*DEFAULT, *GATED)),
    "trec-one-shot": ("trec/one_shot", "npz", "default", "adamab", "replay", DEFAULT),
    "trec-one-shot-none": ("trec/one_shot", "npz", "default", "none", "none", DEFAULT),
    "trec-paper-adamab-replay": ("trec", "npz", "paper:trec", "adamab", "replay", PAPER),
    "trec-paper-tight-replay": ("trec", "npz", "paper:trec", "tight", "replay", PAPER),
    "trec-paper-random-pool": ("trec", "npz", "paper:trec", "random", "pool", PAPER),
    "trec-paper-round-robin-noise": ("trec", "npz", "paper:trec", "round-robin", "noise", PAPER),
    "demo-default-adamab-replay": ("demo", "local", "default", "adamab", "replay", DEFAULT),
    "demo-paper-tight-pool": ("demo", "local", "paper:trec", "tight", "pool", PAPER),
    "demo-default-random-noise": ("demo", "npz", "default", "random", "noise", (*DEFAULT, *POOLED)),
    "demo-paper-adamab-replay": ("demo", "npz", "paper:trec", "adamab", "replay", PAPER),
    "features-default-none": ("features", "npz", "default", "none", "none", ("words=false",)),
    "features-default-adamab-pool": ("features", "npz", "default", "adamab", "pool", (*DEFAULT, *POOLED)),
    "features-default-tight-noise": ("features", "npz", "default", "tight", "noise", (*DEFAULT, *POOLED)),
    "features-paper-adamab-pool": ("features", "npz", "paper:trec", "adamab", "pool", PAPER),
    "features-paper-random-noise": ("features", "npz", "paper:trec", "random", "noise", PAPER),
}
METHODS = (
    "zero-shot,centred,class-mean,linear-probe,linear-svm,knn,cache-adapter,calibrator,calibrator+adamab"
)
USUAL, UNSURE = "trec-default-adamab-replay", "features-default-tight-noise"  # other cases go on from them
BUDGET = ("--budget", "18 samples")


def adamab(*arguments):
    """What the command prints."""
    from adamab.cli import main

    words = [str(argument) for argument in arguments]
    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    before, sys.argv = sys.argv, ["adamab", *words]
    try:
        with contextlib.redirect_stdout(printed):
            main()
    except SystemExit as error:
        if error.code not in (None, 0):
            raise RuntimeError(f"adamab {' '.join(words)} ended with {error.code}") from error
    finally:
        sys.argv = before
    printed.flush()
    return printed.buffer.getvalue().decode()


def fit_words(folder, run, name):
    place, embedder, recipe, policy, generator, options = FITS[name]
    task, _, file = place.partition("/")
    if embedder == "npz":
        embedder = f"npz:{folder / task / 'vectors.npz'}"
    if generator in ("replay", "pool"):
        generator = f"{generator}:{folder / task / 'more.jsonl'}"
    words = ["fit", folder / task / f"{file or 'task'}.yaml", "--run", run, "--embedder", embedder]
    words += ["--generator", generator, "--policy", policy, "--recipe", recipe, "--json"]
    words += [] if generator == "none" else BUDGET
    return words + [word for option in options for word in ("--set", option)]


def fitted(folder, name):
    printed = adamab(*fit_words(folder, folder / name, name))
    (folder / f"{name}.json").write_text(printed, encoding="utf-8")
    return contents(folder / name, folder / FITS[name][0].partition("/")[0])


def contents(run, task):
    """What must not change of a finished run: decisions, predictions, probabilities, the estimate."""
    from adamab import load

    summary = json.loads((run / "fit.json").read_text(encoding="utf-8"))
    offered = {row["text"]: number for number, row in enumerate(rows(task / "more.jsonl"))}
    held_out = rows(run / "held_out.jsonl")
    new = [row["text"] for row in rows(task / "new.jsonl")]
    model = load(run)
    return {
        **{key: summary[key] for key in ("synthetic_by_class", "views", "estimate")},
        "rounds": rows(run / "history.jsonl"),
        "synthetic": [offered.get(row.get("text")) for row in rows(run / "synthetic.jsonl")],
        "held_out": [[row["predicted"], row["probability"]] for row in held_out],
        "class_names": [str(name) for name in model.classes_],
        "predictions": [str(name) for name in model.predict(new)],
        "probabilities": model.predict_proba(new).tolist(),
    }


def rows(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def printed_fit(folder):
    return json.loads((folder / f"{USUAL}.json").read_text(encoding="utf-8"))


def printed_evaluate(folder):
    words = ("--unknown", "0.8", "--coverage", "0.8", "--json")
    runs = {"trec": USUAL, "features": UNSURE}
    return {
        task: json.loads(adamab("evaluate", folder / run, folder / task / "new.jsonl", *words))
        for task, run in runs.items()
    }


def printed_predict(folder):
    new = folder / "trec" / "new.jsonl"
    ways = {
        "sets": ("--top-k", "6", "--unknown", "0.8", "--coverage", "0.8"),
        "priors": ("--top-k", "2", "--prior", "number=0.5"),
    }
    printed = {way: adamab("predict", folder / USUAL, new, *words, "--json") for way, words in ways.items()}
    return {way: [json.loads(line) for line in lines.splitlines()] for way, lines in printed.items()}


def printed_compare(folder):
    return json.loads(adamab(*compare_words(folder), "--json"))


def compare_words(folder):
    task = folder / "trec"
    words = ["compare", task / "task.yaml", task / "new.jsonl", "--methods", METHODS, *BUDGET]
    words += ["--embedder", f"npz:{task / 'vectors.npz'}", "--generator", f"replay:{task / 'more.jsonl'}"]
    return words + [word for option in DEFAULT for word in ("--set", option)]


def added_class(folder):
    """A class that was added to a finished run, and then trained in."""
    run = folder / "added"
    shutil.copytree(folder / USUAL, run)
    name, description, examples = tasks.ADDED
    (folder / "added.txt").write_text("\n".join(examples), encoding="utf-8")
    words = ("--description", description, "--examples", folder / "added.txt", "--json")
    adamab("add-class", run, name, *words, "--no-fit")
    added = contents(run, folder / "trec")
    adamab("fit", "--run", run, "--json")
    return {"added": added, "trained": contents(run, folder / "trec")}


def dry_run(folder):
    """The planned calls of an API for samples and vectors; nothing is sent."""
    words = fit_words(folder, folder / "dry", USUAL)
    words[words.index("--embedder") + 1] = "openai:text-embedding-3-small"
    words[words.index("--generator") + 1] = "openai:gpt-4.1-mini"
    prices = ("--price", "text-embedding-3-small=0.02/0", "--price", "gpt-4.1-mini=0.4/1.6")
    return json.loads(adamab(*words, *prices, "--dry-run"))


def dry_run_replay(folder):
    words = fit_words(folder, folder / "dry", USUAL)
    return json.loads(adamab(*words, "--dry-run"))


def dry_run_compare(folder):
    return json.loads(adamab(*compare_words(folder), "--json", "--dry-run"))


def estimators(folder):
    """The scikit-learn classes, on texts and on vectors."""
    import numpy as np

    from adamab import ADAMABClassifier, EmbeddingCalibrator, Recipe

    task = folder / "features"
    archive = np.load(task / "vectors.npz")
    vectors = dict(zip(archive["ids"].tolist(), archive["view/pooled"], strict=True))
    given = json.loads((task / "task.yaml").read_text())["classes"]
    ids = [key for row in given for key in row["examples"]]
    labels = [row["name"] for row in given for _ in row["examples"]]
    new = [row["text"] for row in rows(task / "new.jsonl")]
    recipe = Recipe.preset("default").with_options(words=False)
    text = ADAMABClassifier(f"npz:{task / 'vectors.npz'}", recipe=recipe, random_state=3)
    text.fit(ids, labels)
    array = EmbeddingCalibrator(random_state=3)
    array.fit(np.stack([vectors[key] for key in ids]), labels)
    return {
        "ADAMABClassifier": text.predict_proba(new).tolist(),
        "EmbeddingCalibrator": array.predict_proba(np.stack([vectors[key] for key in new])).tolist(),
    }


def resumed(folder):
    """A run that was killed while it waited for the vectors of a round, and went on; and one that was not."""
    whole, killed = (_bought(folder, folder / name, last) for name, last in (("whole", None), ("killed", 6)))
    return {"whole": whole, "resumed": killed}


def _bought(folder, run, last):
    with embedding_server() as server:
        words = fit_words(folder, run, USUAL)
        spec = f"openai:golden?base_url=http://127.0.0.1:{server.server_port}/v1&first_wait=0.01"
        words[words.index("--embedder") + 1] = spec
        if last is not None:
            command = [sys.executable, "-m", "adamab", *map(str, words), "--no-cache"]
            with subprocess.Popen(command) as process:
                server.kill_at = (last, process.pid)
            assert process.returncode == -signal.SIGKILL
            server.kill_at = None
            assert not (run / "fit.json").exists()
            words = ["fit", "--run", run, "--json"]
        adamab(*words, "--no-cache")
        result = contents(run, folder / "trec")
        kinds = "SELECT DISTINCT kind FROM events ORDER BY kind"
        with contextlib.closing(sqlite3.connect(run / "journal.sqlite")) as journal:
            result["record_kinds"] = [kind for (kind,) in journal.execute(kinds)]
        return result


class EmbeddingServer(ThreadingHTTPServer):
    """OpenAI's protocol for embeddings; kills a process when that many requests have come."""

    kill_at: tuple[int, int] | None = None
    requests = 0


class _Handler(BaseHTTPRequestHandler):
    server: EmbeddingServer

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests += 1
        if self.server.kill_at is not None and self.server.requests >= self.server.kill_at[0]:
            os.kill(self.server.kill_at[1], signal.SIGKILL)
            return
        vectors = tasks.hashed(body["input"])
        packed = body.get("encoding_format") == "base64"
        data = [
            {"index": n, "embedding": base64.b64encode(row.tobytes()).decode() if packed else row.tolist()}
            for n, row in enumerate(vectors)
        ]
        words = sum(len(text.split()) for text in body["input"])
        answer = json.dumps({"data": data, "usage": {"prompt_tokens": words, "total_tokens": words}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def embedding_server():
    with EmbeddingServer(("127.0.0.1", 0), _Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.shutdown()


OTHERS: dict[str, Callable[[Path], Any]] = {
    "json-fit": printed_fit,
    "json-evaluate": printed_evaluate,
    "json-predict": printed_predict,
    "json-compare": printed_compare,
    "added-class": added_class,
    "dry-run": dry_run,
    "dry-run-replay": dry_run_replay,
    "dry-run-compare": dry_run_compare,
    "estimators": estimators,
    "resumed": resumed,
}


def main(output, wanted):
    """Run the cases; what one raises stands in the place of its result."""
    results = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["ADAMAB_CACHE"] = str(folder / "cache.sqlite")
        for write in (tasks.write_trec, tasks.write_demo, tasks.write_features):
            write(folder / write.__name__.removeprefix("write_"))
        cases = {case: lambda case=case: fitted(folder, case) for case in FITS}
        cases |= {case: lambda run=run: run(folder) for case, run in OTHERS.items()}
        for case, run in cases.items():
            if wanted and case not in (*wanted, USUAL, UNSURE):
                continue
            try:
                results[case] = run()
            except Exception as error:
                results[case] = {"error": f"{type(error).__name__}: {error}"}
        written = json.dumps(results).replace(str(folder), "FOLDER")
    output.write_text(written, encoding="utf-8")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]), sys.argv[2:])
