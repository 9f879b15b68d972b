from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from adamab.providers.async_bridge import run_sync
from adamab.testing import HashEmbedder
from experiments.__main__ import app
from experiments.datasets.base import Draw
from experiments.measure import known_items, wordings


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADAMAB_CACHE", str(tmp_path / "vectors.sqlite"))


@pytest.fixture
def run() -> Callable[..., Any]:
    """`python -m experiments` in this process."""
    return lambda *arguments: CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture
def refused(run: Callable[..., Any]) -> Callable[..., str]:
    """Calls it so that it must fail with one line on stderr, and returns the line."""

    def call(*arguments: object) -> str:
        result = run(*arguments)
        assert result.exit_code == 2, result.output
        assert result.stderr.startswith("adamab: ")
        assert result.stderr.count("\n") == 1, result.stderr
        return str(result.stderr)

    return call


@pytest.fixture(scope="session")
def save_vectors() -> Callable[..., str]:
    """Writes toy vectors of these texts, or of all that these draws use, to a file; its embedder spec."""

    def save(path: Path, texts: Iterable[str] = (), draws: Iterable[Draw] = (), width: int = 16) -> str:
        toy, ids = HashEmbedder(width=width), list(texts)
        for draw in draws:
            ids += [*known_items(draw, toy), *wordings(draw, ["zero-shot"])]
        ids = list(dict.fromkeys(ids))
        vectors = run_sync(toy.embed(ids)).views["pooled"]
        np.savez(path, **{"ids": np.array(ids), "view/pooled": vectors, "model": np.array("toy")})
        return f"npz:{path}"

    return save
