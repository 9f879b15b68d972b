import numpy as np
import pytest
from typer.testing import CliRunner

from adamab.providers.async_bridge import run_sync
from adamab.testing import HashEmbedder
from experiments.__main__ import app
from experiments.measure import known_items, wordings


@pytest.fixture
def run():
    """`python -m experiments` in this process."""
    return lambda *arguments: CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture
def refused(run):
    """Calls it so that it must fail with one line on stderr, and returns the line."""

    def call(*arguments):
        result = run(*arguments)
        assert result.exit_code == 2, result.output
        assert result.stderr.startswith("adamab: ")
        assert result.stderr.count("\n") == 1, result.stderr
        return str(result.stderr)

    return call


@pytest.fixture(scope="session")
def save_vectors():
    """Writes toy vectors of these texts, or of all that these draws use, to a file; its embedder spec."""

    def save(path, texts=(), draws=(), width=16):
        toy, ids = HashEmbedder(width=width), list(texts)
        for draw in draws:
            ids += [*known_items(draw, toy), *wordings(draw, ["zero-shot"])]
        ids = list(dict.fromkeys(ids))
        vectors = run_sync(toy.embed(ids)).views["pooled"]
        np.savez(path, **{"ids": np.array(ids), "view/pooled": vectors, "model": np.array("toy")})
        return f"npz:{path}"

    return save
