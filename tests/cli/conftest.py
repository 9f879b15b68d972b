"""A small task whose vectors stand in an npz file, so that no model has to be loaded."""

import hashlib
import json
from contextlib import contextmanager

import numpy as np
import pytest
from typer.testing import CliRunner

from adamab.cli.app import app
from adamab.providers.async_bridge import run_sync
from adamab.testing import HashEmbedder, ProviderServer

CLASSES = {"refund": "money back", "login": "cannot sign in", "praise": "likes it"}
TEXTS = {
    "refund": ["money back please", "send my money back", "I want the money returned"],
    "login": ["cannot sign in today", "sign in fails", "the sign in page is broken"],
    "praise": ["likes it a lot", "she likes it", "everyone likes it here"],
}
NEW = {
    "refund": ["money money back", "back with the money", "money please"],
    "login": ["sign in cannot work", "cannot sign in", "in the sign"],
    "praise": ["it likes me", "who likes it", "likes likes"],
}


def write_npz(path, ids, **more):
    """Vectors of texts, by the toy embedder, with the texts as ids."""
    vectors = run_sync(HashEmbedder(width=16).embed(ids)).views["pooled"]
    np.savez(path, **{"ids": np.array(ids), "view/pooled": vectors, "model": np.array("toy"), **more})
    return path


def write_rows(path, texts):
    rows = [{"text": text, "label": name} for name, members in texts.items() for text in members]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_task(folder):
    """task.yaml, vectors.npz (with everything that any test asks for) and new.jsonl in `folder`."""
    classes = [{"name": n, "description": d, "examples": TEXTS[n]} for n, d in CLASSES.items()]
    (folder / "task.yaml").write_text(json.dumps({"name": "toy", "classes": classes}))
    texts = [text for group in (TEXTS, NEW) for members in group.values() for text in members]
    write_npz(folder / "vectors.npz", [*texts, *(f"{n}: {d}" for n, d in CLASSES.items())])
    write_rows(folder / "new.jsonl", NEW)
    return folder / "task.yaml"


def weights(run):
    """What two runs have in common only if they did the same."""
    return hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest()


@pytest.fixture(name="write_npz")
def _write_npz():
    return write_npz


@pytest.fixture(name="write_task", scope="session")
def _write_task():
    return write_task


@pytest.fixture
def new_texts():
    """The texts of new.jsonl."""
    return [text for members in NEW.values() for text in members]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ADAMAB_CACHE", str(tmp_path / "vectors.sqlite"))


@pytest.fixture
def adamab():
    """Calls a command in this process."""

    def call(*arguments, stdin=None):
        return CliRunner().invoke(app, [str(a) for a in arguments], input=stdin)

    return call


@pytest.fixture
def refused(adamab):
    """Calls a command that must fail with one line on stderr, and returns the line."""

    def call(*arguments, stdin=None):
        result = adamab(*arguments, stdin=stdin)
        assert result.exit_code == 2, result.output
        assert result.stderr.startswith("adamab: ")
        assert result.stderr.count("\n") == 1, result.stderr
        return str(result.stderr)

    return call


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current directory, with the toy task in it."""
    write_task(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """A run that was fitted once; tests that change it copy it."""
    return fitted_run(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def vector_model(tmp_path_factory):
    """A run whose model needs vectors only."""
    return fitted_run(tmp_path_factory.mktemp("vectors"), "--set", "words=false")


def fitted_run(place, *more):
    task, vectors = write_task(place), place / "vectors.npz"
    command = ["fit", task, "--run", place / "run", "--embedder", f"npz:{vectors}", "--no-cache", *more]
    result = CliRunner().invoke(app, [str(part) for part in command])
    assert result.exit_code == 0, result.output
    return place / "run"


@pytest.fixture
def paid_run(adamab, folder):
    """`with paid_run(batch=4) as server`: the run `paid`; its embedder is an API, so many texts a call."""

    @contextmanager
    def fitted(batch):
        with ProviderServer() as server:
            spec = f"openai:m?base_url={server.url}/v1&first_wait=0.01&batch={batch}"
            result = adamab("fit", "task.yaml", "--run", "paid", "--embedder", spec, "--no-cache")
            assert result.exit_code == 0, result.output
            yield server

    return fitted
