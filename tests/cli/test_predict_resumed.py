"""`adamab predict -o FILE` that is stopped, started twice at once, or started again with something else."""

from __future__ import annotations

import json
from contextlib import ExitStack, suppress

import pytest

from adamab.cli import predict as predict_command
from adamab.cli import resumed_file
from adamab.cli.resumed_file import ResumedFile
from adamab.errors import TaskError

JOB = {"input": "one"}


def numbered(*numbers):
    return [{"n": n} for n in numbers]


def content(path):
    return [json.loads(line)["n"] for line in path.read_bytes().splitlines()]


def test_a_second_writer_is_refused_and_harms_nothing(tmp_path):
    out = tmp_path / "out.jsonl"
    with ResumedFile(out, "jsonl", JOB).opened() as first:
        first.put(numbered(0, 1, 2), 3)
        second = ResumedFile(out, "jsonl", JOB)
        with pytest.raises(TaskError, match="another process is writing it"), second.opened():
            pass
        first.put(numbered(3), 1)
    assert content(out) == [0, 1, 2, 3]
    with second.opened() as later:  # what it saw before is over
        assert later.done == 0
        later.put(numbered(7), 1)
    assert content(out) == [7]
    assert list(tmp_path.iterdir()) == [out]


def test_a_file_that_takes_its_name_between_opening_and_locking(tmp_path, monkeypatch):
    out, lock = tmp_path / "out.jsonl", resumed_file._lock
    ending = ExitStack()
    first = ending.enter_context(ResumedFile(out, "jsonl", JOB).opened())
    first.put(numbered(0, 1, 2), 3)

    def late(stream, shown):
        ending.close()
        lock(stream, shown)

    monkeypatch.setattr(resumed_file, "_lock", late)
    with ResumedFile(out, "jsonl", JOB).opened() as second:
        assert second.done == 0
        assert content(out) == [0, 1, 2]  # the finished file is not written into
        second.put(numbered(5), 1)
        assert content(out) == [0, 1, 2]
    assert content(out) == [5]


def test_a_state_that_speaks_of_more_than_there_is_is_refused(tmp_path, capsys):
    out = tmp_path / "out.jsonl"
    with suppress(KeyboardInterrupt), ResumedFile(out, "jsonl", JOB).opened() as first:
        first.put(numbered(0, 1, 2), 3)
        raise KeyboardInterrupt
    (tmp_path / ".out.jsonl.partial").write_bytes(b'{"n": 0}\n')
    with ResumedFile(out, "jsonl", JOB).opened() as second:
        assert second.done == 0
        second.put(numbered(4), 1)
    assert "begun anew" in capsys.readouterr().err
    assert content(out) == [4]


def stopped_at(monkeypatch, chunk):
    """The prediction is stopped when it comes to this chunk, once."""
    asked, answers = [], predict_command._answers

    def stopping(inference, rows, *more):
        asked.append(rows[0].text)
        if len(asked) == chunk:
            raise KeyboardInterrupt
        return answers(inference, rows, *more)

    monkeypatch.setattr(predict_command, "_answers", stopping)


def test_a_folder_of_texts_goes_on_where_it_was_stopped(adamab, folder, model, new_texts, monkeypatch):
    (folder / "data").mkdir()
    for name, texts in (("a", new_texts[:5]), ("b", new_texts[5:])):
        (folder / "data" / f"{name}.txt").write_text("".join(f"{text}\n" for text in texts))
    (folder / "data" / "logo.png").write_bytes(b"no text")
    assert adamab("predict", model, "data", "-o", "whole.jsonl").exit_code == 0
    monkeypatch.setattr(predict_command, "CHUNK", 2)
    stopped_at(monkeypatch, 3)
    command = ("predict", model, "data", "-o", "out.jsonl")
    assert adamab(*command).exit_code != 0
    result = adamab(*command)
    assert "going on after 4 rows" in result.stderr
    assert (folder / "out.jsonl").read_bytes() == (folder / "whole.jsonl").read_bytes()
    stopped_at(monkeypatch, 2)
    assert adamab(*command).exit_code != 0
    (folder / "data" / "b.txt").write_text("money please\n")  # not the first file, and no picture
    result = adamab(*command)
    assert "begun anew" in result.stderr
    assert len((folder / "out.jsonl").read_text().splitlines()) == 6
    assert not list(folder.glob(".out*"))


@pytest.fixture
def server(paid_run):
    """A run whose embedder is behind an API, one text a call."""
    with paid_run(batch=1) as server:
        yield server


def test_the_book_of_paid_calls_is_that_of_one_job(adamab, refused, folder, server, monkeypatch):
    monkeypatch.setattr(predict_command, "CHUNK", 2)
    for name in ("one", "two"):
        (folder / f"{name}.txt").write_text("".join(f"{name} {n}\n" for n in range(4)))
    before = server.count("/embeddings")

    def calls():
        return server.count("/embeddings") - before

    command = ("predict", "paid", "one.txt", "-o", "out.csv", "--budget")
    for _ in range(2):  # the second start has nothing left, though no chunk was finished
        assert "budget of 1 call is spent" in refused(*command, "1 calls")
        assert calls() == 1
    assert "budget of 3 calls is spent" in refused(*command, "3 calls")
    assert calls() == 3
    other = adamab("predict", "paid", "two.txt", "-o", "out.csv", "--budget", "4 calls")
    assert other.exit_code == 0, other.output
    assert "begun anew" in other.stderr
    assert "spent: 4 calls" in other.stderr
    assert not list(folder.glob(".out*"))


def test_a_book_is_not_kept_for_what_cannot_be_read_twice(adamab, refused, folder, server):
    (folder / "one.txt").write_text("one 0\none 1\n")
    assert "is spent" in refused("predict", "paid", "one.txt", "-o", "out.csv", "--budget", "1 calls")
    result = adamab("predict", "paid", "-", "-o", "out.csv", "--budget", "1 calls", stdin="new\n")
    assert result.exit_code == 0, result.output
    assert "spent: 1 call," in result.stderr
    assert not list(folder.glob(".out*"))
    assert "is spent" in refused("predict", "paid", "-", "-o", "b.csv", "--budget", "1 calls", stdin="a\nb\n")
    assert not list(folder.glob(".b*"))
