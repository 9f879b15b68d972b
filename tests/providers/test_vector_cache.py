"""The vector cache: what goes in comes out, and nothing that happens to the file loses a run."""

import os
import sqlite3
import stat
import subprocess
import sys
import warnings
from contextlib import closing

import numpy as np
import pytest

from adamab.errors import CacheError
from adamab.providers.cache import CachedEmbedder, VectorCache, free_vectors
from adamab.providers.registry import open_embedder
from adamab.testing import HashEmbedder, ProviderServer, check_embedder

TEXTS = [f"text number {n}" for n in range(10)]


@pytest.fixture
def cache(tmp_path):
    return VectorCache(tmp_path / "deep" / "vectors.sqlite", timeout=0.1)


def toy(**options):
    return HashEmbedder(width=8, views=("pooled", "wide"), max_words=3, **options)  # type: ignore[arg-type]


async def fill(cache, texts=TEXTS):
    return await CachedEmbedder(toy(), cache).embed(texts)


async def test_a_cached_embedder_gives_the_same_vectors(cache):
    embedder = toy()
    cached = CachedEmbedder(embedder, cache, slice_size=3)
    assert (cached.fingerprint, cached.views, str(cached)) == (
        embedder.fingerprint,
        embedder.views,
        str(embedder),
    )
    fresh = await toy().embed([*TEXTS, "one two three four"])
    for _ in range(2):
        answer = await cached.embed([*TEXTS, "one two three four"])
        for view in fresh.views:
            np.testing.assert_array_equal(answer.views[view], fresh.views[view])
        np.testing.assert_array_equal(answer.overlong, fresh.overlong)
    assert embedder.calls == 11
    check_embedder(cached)


async def test_only_missing_rows_are_asked_for(cache):
    await CachedEmbedder(toy(), cache).embed(TEXTS[:4], views=["pooled"])
    embedder = toy()
    cached = CachedEmbedder(embedder, cache)
    await cached.embed(TEXTS[:6], views=["pooled"])
    assert embedder.calls == 2
    await cached.embed(TEXTS[:6])  # the other view is missing
    assert embedder.calls == 8
    await cached.embed(TEXTS[:1], kind="class")
    assert embedder.calls == 9


async def test_texts_are_not_stored_and_the_file_is_private(cache):
    await fill(cache, ["a very secret sentence"])
    assert stat.S_IMODE(cache.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(cache.path.parent.stat().st_mode) == 0o700
    for file in cache.path.parent.iterdir():
        assert b"secret" not in file.read_bytes()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE vectors SET data = zeroblob(length(data))",
        "UPDATE vectors SET data = 'text'",
        "UPDATE vectors SET dtype = 'O'",
        "UPDATE vectors SET overlong = 1 - overlong",
        "DELETE FROM vectors WHERE view = 'wide'",
    ],
)
async def test_damaged_rows_are_computed_again(cache, change):
    fresh = await fill(cache)
    with closing(sqlite3.connect(cache.path)) as db:
        db.executescript(change)
    embedder = toy()
    for _ in range(2):
        answer = await CachedEmbedder(embedder, cache).embed(TEXTS)
        np.testing.assert_array_equal(answer.views["pooled"], fresh.views["pooled"])
        np.testing.assert_array_equal(answer.overlong, fresh.overlong)
    assert embedder.calls == len(TEXTS)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"garbage" * 2000,
        lambda content: content[: len(content) // 2],
        lambda content: content[:100] + b"\xff" * (len(content) - 100),
    ],
    ids=["garbage", "cut", "holes"],
)
async def test_a_damaged_file_is_one_line_and_purge_replaces_it(cache, damage):
    await fill(cache)
    cache.path.write_bytes(damage(cache.path.read_bytes()))
    for action in (
        lambda: cache.get("f", "query", ["a"], ["pooled"]),
        cache.entries,
        lambda: cache.purge("f"),
    ):
        with pytest.raises(
            CacheError, match=r"damaged .*; run: adamab cache purge, or use --no-cache"
        ) as caught:
            action()
        assert "\n" not in str(caught.value)
    assert cache.purge() > 0
    assert cache.entries() == []
    await fill(cache)
    assert len(cache.entries()) == 2


async def test_other_peoples_files_are_left_alone(tmp_path):
    thesis = tmp_path / "thesis.txt"
    thesis.write_text("years of work " * 1000)
    message = r"thesis\.txt is not a vector cache; set ADAMAB_CACHE to another file or delete it$"
    for action in (VectorCache(thesis).purge, VectorCache(thesis).entries):
        with pytest.raises(CacheError, match=message):
            action()
    with pytest.raises(CacheError, match=message):  # what `predict` meets
        await fill(VectorCache(thesis))
    foreign = tmp_path / "foreign.db"
    with closing(sqlite3.connect(foreign)) as db:
        db.execute("CREATE TABLE mine (x)")
    before = foreign.read_bytes()
    for action in (VectorCache(foreign).purge, VectorCache(foreign).entries):
        with pytest.raises(CacheError, match="a database, but not a vector cache"):
            action()
    with pytest.warns(RuntimeWarning, match="not a vector cache"):
        VectorCache(foreign).put("f", "query", ["a"], await toy().embed(["a"]))
    assert foreign.read_bytes() == before
    assert thesis.stat().st_size == 14000


async def test_a_directory_in_its_place(tmp_path):
    cache = VectorCache(tmp_path)
    assert cache.get("f", "query", ["a"], ["pooled"]) == {}
    for action in (cache.entries, cache.purge, lambda: cache.purge("f")):
        with pytest.raises(CacheError, match=r"is a directory, but ADAMAB_CACHE names a file; set it to"):
            action()
    cached = CachedEmbedder(toy(), cache, slice_size=2)
    with pytest.warns(RuntimeWarning, match="is a directory, .*; going on without") as caught:
        answer = await cached.embed(TEXTS)
    assert len(caught) == 1
    assert len(answer.views["pooled"]) == len(TEXTS)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(CacheError, match=r"cannot be reached \(Not a directory\); set ADAMAB_CACHE"):
        VectorCache(tmp_path / "file" / "vectors.sqlite").entries()


async def test_a_locked_cache_is_not_waited_for_forever(cache):
    await fill(cache, TEXTS[:2])
    with closing(sqlite3.connect(cache.path, isolation_level=None)) as db:
        db.execute("BEGIN EXCLUSIVE")
        with pytest.warns(RuntimeWarning, match="locked"):
            answer = await fill(cache)
        with pytest.raises(CacheError, match=r"locked.*; try again"):
            cache.purge()
    assert len(answer.views["pooled"]) == len(TEXTS)


@pytest.mark.parametrize("room", [4096, 100_000])
async def test_a_full_disk_warns_and_keeps_what_was_there(cache, files_of_at_most, room):
    await fill(cache)
    texts = [f"more {n}" for n in range(300)]
    with files_of_at_most(cache.size + room), pytest.warns(RuntimeWarning, match="can be stored"):
        answer = await CachedEmbedder(HashEmbedder(width=512), cache).embed(texts)
    assert len(answer.views["pooled"]) == 300
    assert {entry.rows for entry in cache.entries() if entry.fingerprint == toy().fingerprint} == {10}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
async def test_a_read_only_directory_is_read_and_not_written(tmp_path):
    cache = VectorCache(tmp_path / "vectors.sqlite", timeout=0.1)
    await fill(cache, TEXTS[:5])
    cache.path.chmod(0o444)
    for parent in (tmp_path, *tmp_path.parents[:3]):
        parent.chmod(parent.stat().st_mode | 0o555)
    embedder = toy()
    os.seteuid(65534)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            await CachedEmbedder(embedder, cache).embed(TEXTS)
        with pytest.raises(CacheError, match="readonly"):
            cache.purge()
    finally:
        os.seteuid(0)
    assert embedder.calls == 5
    assert len(caught) == 1


WRITER = """
import sys, asyncio
from adamab.providers.cache import CachedEmbedder, VectorCache
from adamab.testing import HashEmbedder
class Slow(HashEmbedder):
    async def _embed(self, texts, **options):
        await asyncio.sleep(float(sys.argv[4]))
        return await super()._embed(texts, **options)
texts = [f"text {n}" for n in range(int(sys.argv[2]), int(sys.argv[3]))]
cached = CachedEmbedder(Slow(), VectorCache(sys.argv[1]), slice_size=20)
asyncio.run(cached.embed(texts))
"""


def writer(path, start, stop, delay):
    arguments = [str(path), str(start), str(stop), str(delay)]
    return subprocess.Popen([sys.executable, "-W", "error", "-c", WRITER, *arguments])


async def test_several_processes_write_at_once(cache):
    writers = [writer(cache.path, 50 * n, 50 * n + 100, 0.0) for n in range(4)]
    assert [process.wait() for process in writers] == [0, 0, 0, 0]
    embedder = HashEmbedder()
    await CachedEmbedder(embedder, cache).embed([f"text {n}" for n in range(250)])
    assert embedder.calls == 0


async def test_a_strict_cache_does_not_go_on_without_storing(cache):
    await fill(cache)
    strict = VectorCache(cache.path, timeout=0.1, strict=True)
    embedder = toy()
    with closing(sqlite3.connect(cache.path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(
            CacheError, match=r"nothing can be stored .*locked.*; make room, then start again"
        ):
            await CachedEmbedder(embedder, strict).embed([*TEXTS, "new"])
    assert embedder.calls == 0, "tried before anything was paid for"
    answer = await CachedEmbedder(embedder, strict).embed([*TEXTS, "new"])
    assert (embedder.calls, answer.overlong.shape) == (1, (11,))


async def test_free_vectors_stay_within_the_cap_and_the_latest_used_remain(tmp_path, monkeypatch):
    monkeypatch.setenv("ADAMAB_CACHE", str(tmp_path / "vectors.sqlite"))
    monkeypatch.setenv("ADAMAB_CACHE_GB", "0.0005")
    embedder, used = HashEmbedder(width=256), [f"used again {n}" for n in range(20)]
    cached = CachedEmbedder(embedder, free_vectors())
    await cached.embed(used)
    for start in range(0, 2000, 200):  # 2 MB of vectors
        await cached.embed([f"text {n}" for n in range(start, start + 200)])
        await cached.embed(used)
        assert free_vectors().size < 1_000_000  # with what SQLite has not written back yet
    stored = free_vectors()
    assert stored.path.name == "vectors.free.sqlite"
    assert stored.path.stat().st_size <= 520_000
    held = {text for (number, _), text in _held(stored, embedder, [*used, "text 0", "text 1999"])}
    assert held == {*used, "text 1999"}
    assert embedder.calls == 2020  # what was used again and again was embedded once
    assert not VectorCache().exists()  # where paid vectors are kept


def _held(cache, embedder, texts):
    return [(key, texts[key[0]]) for key in cache.get(embedder.fingerprint, "query", texts, ["pooled"])]


async def test_paid_vectors_have_no_cap_and_a_cap_of_nothing_keeps_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("ADAMAB_CACHE", str(tmp_path / "vectors.sqlite"))
    monkeypatch.setenv("ADAMAB_CACHE_GB", "0")
    await fill(free_vectors())
    assert free_vectors().entries() == []
    with ProviderServer() as server:
        paid = open_embedder(f"openai:m?base_url={server.url}/v1")
        await paid.embed(TEXTS)
        await open_embedder(f"openai:m?base_url={server.url}/v1").embed(TEXTS)
        assert server.count() == 1
    assert VectorCache().entries()[0].rows == len(TEXTS)
    for wrong in ("much", "-1", "nan", "1e9"):
        monkeypatch.setenv("ADAMAB_CACHE_GB", wrong)
        with pytest.raises(CacheError, match=r"ADAMAB_CACHE_GB=.*gigabytes"):
            free_vectors()
