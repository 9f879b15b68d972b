"""A disk that is full or read-only, a journal or a cache that is damaged: one line, and nothing is lost."""

import sqlite3

import pytest

from adamab.testing import Fault
from tests.cli.conftest import weights

QUICK = ("--set", "augmentation_rounds=6")


def command(server, *more, run="run", cache=False):
    spec = f"openai:m?base_url={server.url}/v1&retries=0"
    chosen = ("--embedder", spec, "--generator", spec, *(() if cache else ("--no-cache",)))
    return ("fit", "task.yaml", "--run", run, *chosen, *QUICK, "--quiet", "--prefetch", "0", *more)


def files(run):
    return {path.name: path.read_bytes() for path in run.iterdir()}


def replies(run):
    """Answers in the journal, which must be whole."""
    if not (run / "journal.sqlite").exists() or not (run / "journal.sqlite").stat().st_size:
        return 0
    db = sqlite3.connect(run / "journal.sqlite")
    assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    (count,) = db.execute("SELECT COUNT(*) FROM replies").fetchone() if "replies" in tables else (0,)
    db.close()
    return int(count)


@pytest.fixture
def undisturbed(adamab, folder, server):
    """The weights of a run that nothing happens to."""
    result = adamab(*command(server, run="undisturbed"))
    assert result.exit_code == 0, result.output
    server.reset()
    return weights(folder / "undisturbed")


@pytest.fixture
def half(refused, folder, server, undisturbed):
    """A run that stopped half-way, with three batches bought."""
    server.add_fault(Fault("status", path="chat", status=500, after=3, times=None))
    assert "no answer after 1 attempt" in refused(*command(server))
    server.clear_faults()
    assert replies(folder / "run") == 3
    return folder / "run"


@pytest.mark.parametrize("size", [0, 4096, 36_000, 100_000, 350_000])
def test_no_room_from_the_start(adamab, refused, folder, server, undisturbed, files_of_at_most, size):
    with files_of_at_most(size):
        line = refused(*command(server))
    assert line.startswith("adamab: run")
    kept, asked = replies(folder / "run"), server.count("/chat/completions")
    result = adamab(*command(server))
    assert (result.exit_code, result.stderr) == (0, "")
    assert server.count("/chat/completions") - asked == 6 - kept
    assert weights(folder / "run") == undisturbed


def flipped(raw, place):
    return raw[:place] + bytes([raw[place] ^ 0xFF]) + raw[place + 1 :]


DAMAGE = {
    "empty pages": lambda raw: raw[:4096] + bytes(len(raw) - 4096),
    "cut": lambda raw: raw[: len(raw) * 2 // 3],
    "cut inside a page": lambda raw: raw[: len(raw) // 2 + 1234],
    "another kind of file": lambda raw: b"not a database at all\n" * 400,
    "header": lambda raw: flipped(raw, 3),
    "page size": lambda raw: flipped(raw, 17),
}


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("name", ["journal.sqlite", "vectors.sqlite"])
def test_damage_is_told_and_left_as_it_is(refused, half, server, name, kind):
    (half / name).write_bytes(DAMAGE[kind]((half / name).read_bytes()))
    before, asked = files(half), server.count()
    line = refused(*command(server))
    assert line.startswith(f"adamab: run/{name}")
    after = files(half)
    assert after[name] == before[name]
    assert set(before) <= set(after)
    assert server.count() == asked  # nothing is bought for a run that cannot keep it
