"""The journal's file: append-only, checked, and left alone when it is damaged."""

import sqlite3

import numpy as np
import pytest

from adamab.errors import RunError
from adamab.providers.cache import Ask, Reply
from adamab.providers.generators.base import Batch
from adamab.providers.sqlite_file import WriterLock
from adamab.run.run_log import Journal

ASK = Ask("refund", 0, 1, "digest")


@pytest.fixture
def journal(tmp_path):
    with Journal(tmp_path, writing=True) as made:
        yield made


@pytest.fixture
def filled(tmp_path):
    """The file of a journal with a row in each table, closed."""
    with Journal(tmp_path, writing=True) as made:
        made.note("segment", {"segment": 1})
        made.note("round", {"texts": ["planted sentence of a round"]})
        made.put(ASK, Reply("planted answer of an ask"))
        made.put_batch("refund", 0, Batch(("planted text of a batch",)))
        made.put_batch("praise", 0, Batch((), np.full((2, 3), 7.25, np.float32)))
    return tmp_path / "journal.sqlite"


def refused(path, words, **options):
    """Opening fails with one line, and the file is left as it was."""
    before = path.read_bytes()
    with pytest.raises(RunError, match=words) as caught, Journal(path.parent, **options):
        pass
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before


def test_events_come_back_in_order_and_by_kind(journal):
    for n in range(3):
        journal.note("round", {"n": n})
        journal.note("choice", {"n": n, "name": "café \ud800"})
    assert [(e.kind, e.data["n"]) for e in journal.events()][:3] == [
        ("round", 0),
        ("choice", 0),
        ("round", 1),
    ]
    assert [e.data["n"] for e in journal.events("round")] == [0, 1, 2]
    second = next(iter(journal.events("choice")))
    assert second.data["name"] == "café \ud800"
    assert [e.data["n"] for e in journal.events("choice", after=second.seq)] == [1, 2]
    assert all(e.at > 1.7e9 for e in journal.events())


def test_answers_and_batches_come_back(journal):
    assert journal.get(ASK) is None
    journal.put(ASK, Reply("one", refused=True))
    journal.put(ASK, Reply("another"))  # what is there stays
    assert journal.get(ASK) == Reply("one", refused=True)
    assert journal.get(Ask("refund", 0, 1, "other wording")) == Reply("one", refused=True)
    assert journal.get(Ask("refund", 1, 1, "digest")) is None
    vectors = np.arange(6, dtype=np.float32).reshape(2, 3)
    batches = [Batch(("a", "b"), closed="dry"), Batch(refused=True), Batch((), vectors)]
    for number, batch in enumerate(batches):
        journal.put_batch("a\ud800b", number, batch)
    assert journal.batch("a\ud800b", 0) == batches[0]
    assert journal.batch("a\ud800b", 3) is None
    *texts, last = journal.first_batches("a\ud800b", 3).values()
    assert texts == batches[:2]
    np.testing.assert_array_equal(last.vectors, vectors)
    assert last.vectors.dtype == np.float32
    assert len(journal.first_batches("a\ud800b", 1)) == 1


@pytest.mark.parametrize("table", ["events", "replies", "batches"])
@pytest.mark.parametrize("statement", ["UPDATE {} SET data = '1'", "DELETE FROM {}"])
def test_nothing_is_changed_or_deleted(filled, table, statement):
    db = sqlite3.connect(filled)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        db.execute(statement.format(table))
    db.close()


PLANTED = [
    b"planted sentence",
    b"planted answer",
    b"planted text",
    np.full(3, 7.25, "<f4").tobytes(),
    b"segment",  # the kind of an event
    b"refund",  # of an answer and of a batch
]


@pytest.mark.parametrize("writing", [True, False])
@pytest.mark.parametrize("planted", PLANTED)
def test_a_changed_byte_is_found(filled, planted, writing):
    raw = bytearray(filled.read_bytes())
    start = raw.find(planted)
    places = []
    while start >= 0:
        places.append(start)
        start = raw.find(planted, start + 1)
    assert places
    for at in places:
        changed = bytearray(raw)
        changed[at + 1] ^= 1
        filled.write_bytes(changed)
        refused(filled, "is damaged .*; it was left as it is: put back a copy", writing=writing)


def test_a_row_written_with_another_time_is_found(filled):
    db = sqlite3.connect(filled)
    db.executescript("DROP TRIGGER events_UPDATE; UPDATE events SET at = at + 1 WHERE seq = 1")
    db.close()
    refused(filled, "a row was changed")


@pytest.mark.parametrize("length", [100, 4096, 9000])
@pytest.mark.parametrize("writing", [True, False])
def test_a_truncated_file_is_one_line(filled, length, writing):
    filled.write_bytes(filled.read_bytes()[:length])
    refused(filled, "damaged|not a journal", writing=writing)


@pytest.mark.parametrize("content", [b"garbage " * 1000, b"SQLite format 3\0" + b"\xff" * 5000, b"x"])
@pytest.mark.parametrize("writing", [True, False])
def test_garbage_is_one_line(tmp_path, content, writing):
    path = tmp_path / "journal.sqlite"
    path.write_bytes(content)
    refused(path, "damaged", writing=writing)


def test_a_damaged_file_with_a_log_is_left_alone_too(filled):
    """SQLite empties its log into the file when a writer closes it; not into this one."""
    db = sqlite3.connect(filled)
    db.execute("PRAGMA wal_autocheckpoint = 0")
    db.execute("INSERT INTO events (at, kind, data, crc) VALUES (1.0, 'x', '{}', 0)")
    db.commit()
    copy = filled.parent / "copy"
    copy.mkdir()
    for name in ("journal.sqlite", "journal.sqlite-wal"):
        (copy / name).write_bytes((filled.parent / name).read_bytes())
    db.close()
    before = (copy / "journal.sqlite-wal").read_bytes()
    refused(copy / "journal.sqlite", "a row was changed", writing=True)
    assert (copy / "journal.sqlite-wal").read_bytes() == before


def test_another_database_is_left_alone(tmp_path):
    path = tmp_path / "journal.sqlite"
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE mine (a)")
    db.commit()
    db.close()
    for writing in (True, False):
        refused(path, "is not a journal of a run; name another directory", writing=writing)


def test_a_newer_format_is_named(filled):
    db = sqlite3.connect(filled)
    db.execute("PRAGMA user_version = 7")
    db.close()
    refused(filled, r"another version of adamab \(format 7\)", writing=True)


def test_no_journal_is_one_line(tmp_path):
    with pytest.raises(RunError, match="holds no journal"):
        Journal(tmp_path)
    (tmp_path / "journal.sqlite").mkdir()
    with pytest.raises(RunError, match=r"journal\.sqlite"):
        Journal(tmp_path, writing=True)


@pytest.mark.parametrize("statement", [None, "PRAGMA journal_mode = WAL"])
def test_a_process_killed_before_the_first_row_leaves_an_empty_journal(tmp_path, statement):
    path = tmp_path / "journal.sqlite"
    path.touch()
    if statement is not None:
        db = sqlite3.connect(path)
        db.execute(statement)  # as far as a killed process may have come
        db.close()
    content = path.read_bytes()
    with Journal(tmp_path) as journal:
        assert not list(journal.events())
    assert path.read_bytes() == content
    with Journal(tmp_path, writing=True) as journal:
        journal.note("segment", {})
    assert len(list(Journal(tmp_path).events())) == 1


def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path):
    with Journal(tmp_path, writing=True) as journal:
        journal.note("segment", {"n": 0})
        pages = journal._db.execute("PRAGMA page_count").fetchone()[0]
        journal._db.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(RunError, match=r"disk is full\); free some space and start again"):
            journal.put(ASK, Reply("x" * 100_000))
        assert journal.get(ASK) is None
    with Journal(tmp_path, writing=True) as journal:
        journal.put(ASK, Reply("x" * 100_000))
        assert [e.data for e in journal.events()] == [{"n": 0}]


def test_a_lock_that_is_no_lock_is_one_line(tmp_path):
    (tmp_path / "writer.lock").write_bytes(b"something else " * 100)
    with pytest.raises(RunError, match=r"writer\.lock: cannot be locked"):
        WriterLock(tmp_path)
