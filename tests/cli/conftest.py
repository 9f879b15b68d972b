"""A small task whose vectors stand in an npz file, so that no model has to be loaded."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
FAST = ("--set", "folds=2", "--set", "checkpoints=0,6", "--no-cache")


def write_npz(path: Path, ids: list[str], **more: Any) -> Path:
    """Vectors of texts, by the toy embedder, with the texts as ids."""
    vectors = run_sync(HashEmbedder(width=16).embed(ids)).views["pooled"]
    np.savez(path, **{"ids": np.array(ids), "view/pooled": vectors, "model": np.array("toy"), **more})
    return path


def write_rows(path: Path, texts: dict[str, list[str]]) -> Path:
    rows = [{"text": text, "label": name} for name, members in texts.items() for text in members]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_task(folder: Path) -> Path:
    """task.yaml, vectors.npz (with everything that any test asks for) and new.jsonl in `folder`."""
    classes = [{"name": n, "description": d, "examples": TEXTS[n]} for n, d in CLASSES.items()]
    (folder / "task.yaml").write_text(json.dumps({"name": "toy", "classes": classes}))
    texts = [text for group in (TEXTS, NEW) for members in group.values() for text in members]
    write_npz(folder / "vectors.npz", [*texts, *(f"{n}: {d}" for n, d in CLASSES.items())])
    write_rows(folder / "new.jsonl", NEW)
    return folder / "task.yaml"


@pytest.fixture(name="write_npz")
def _write_npz() -> Callable[..., Path]:
    return write_npz


@pytest.fixture(name="write_task", scope="session")
def _write_task() -> Callable[[Path], Path]:
    return write_task


@pytest.fixture
def new_texts() -> list[str]:
    """The texts of new.jsonl."""
    return [text for members in NEW.values() for text in members]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADAMAB_CACHE", str(tmp_path / "vectors.sqlite"))


@pytest.fixture
def adamab() -> Callable[..., Any]:
    """Calls a command in this process."""

    def call(*arguments: object, stdin: str | bytes | None = None) -> Any:
        return CliRunner().invoke(app, [str(a) for a in arguments], input=stdin)

    return call


@pytest.fixture
def refused(adamab: Callable[..., Any]) -> Callable[..., str]:
    """Calls a command that must fail with one line on stderr, and returns the line."""

    def call(*arguments: object, stdin: str | bytes | None = None) -> str:
        result = adamab(*arguments, stdin=stdin)
        assert result.exit_code == 2, result.output
        assert result.stderr.startswith("adamab: ")
        assert result.stderr.count("\n") == 1, result.stderr
        return str(result.stderr)

    return call


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with the toy task in it."""
    write_task(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was fitted once; tests that change it copy it."""
    return fitted_run(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def vector_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose model needs vectors only."""
    return fitted_run(tmp_path_factory.mktemp("vectors"), "--set", "words=false")


def fitted_run(place: Path, *more: str) -> Path:
    task, vectors = write_task(place), place / "vectors.npz"
    command = ["fit", task, "--run", place / "run", "--embedder", f"npz:{vectors}", *FAST, *more]
    result = CliRunner().invoke(app, [str(part) for part in command])
    assert result.exit_code == 0, result.output
    return place / "run"


@pytest.fixture
def server():
    with ProviderServer() as running:
        yield running


@pytest.fixture
def paid_run(adamab, folder):
    """`with paid_run(batch=4) as server`: the run `paid`; its embedder is an API, so many texts a call."""

    @contextmanager
    def fitted(batch):
        with ProviderServer() as server:
            spec = f"openai:m?base_url={server.url}/v1&first_wait=0.01&batch={batch}"
            result = adamab("fit", "task.yaml", "--run", "paid", "--embedder", spec, "--set", "folds=0",
                            "--set", "checkpoints=0,6", "--no-cache")  # fmt: skip
            assert result.exit_code == 0, result.output
            yield server

    return fitted
