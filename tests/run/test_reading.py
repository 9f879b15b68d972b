"""Looking into a run while it is fitted and afterwards."""

from __future__ import annotations

import shutil
from functools import partial

import numpy as np
import pytest

from adamab.errors import RunError
from adamab.providers.sqlite_file import WriterLock, is_being_written
from adamab.run.directory import HELD_OUT, SUMMARY, read_vectors
from adamab.run.directory import SAMPLES as VECTORS
from adamab.run.directory import TASK as TASK
from adamab.run.records import RoundRecord
from adamab.run.reviews import Reviews
from adamab.run.run_log import JOURNAL as JOURNAL
from adamab.serving.run_reader import RunReader, sample_id


def test_a_finished_run(both):
    summary = both.fit()
    with RunReader(both.path) as reader:
        assert reader.state() == "finished"
        assert reader.summary()["synthetic"] == summary["synthetic"]
        assert reader.task().class_names == ("refund", "praise", "outage")
        rounds = reader.rounds()
        assert [r.round for r in rounds] == both.left()["rounds"]
        assert {r.segment for r in rounds} == {1}
        samples = reader.samples()
        assert [s.text for s in samples if s.source == "given"] == [s.text for s in reader.task().samples]
        assert sorted(s.text for s in samples if s.source == "synthetic" and s.used) == sorted(both.texts())
        assert len({s.id for s in samples}) == len(samples)
        spent = reader.spending()
        assert spent["calls"] == summary["spent"]["calls"] > 0
        assert spent["by_class"].keys() == summary["spent"]["by_class"].keys()


def test_vectors_and_held_out_answers(runs):
    summary = runs.fit()
    with RunReader(runs.path) as reader:
        vectors = read_vectors(runs.path)
        assert vectors is not None
        assert len(vectors.given) == summary["given"]
        assert len(vectors.synthetic) == summary["synthetic"]
        assert len(vectors.described) == 3
        lengths = np.linalg.norm(vectors.given.astype(np.float32), axis=1)
        np.testing.assert_allclose(lengths, 1, atol=1e-2)
        answers = reader.held_out()
    assert len(answers) == summary["estimate"]["n"]
    right = sum(answer.label == answer.predicted for answer in answers)
    assert right / len(answers) == summary["estimate"]["accuracy"]
    assert all(1 / 3 <= answer.probability <= 1 for answer in answers)


def test_a_run_is_followed_while_it_is_fitted_and_when_it_begins_anew(both):
    both.fit_until(2)
    with RunReader(both.path) as reader:
        assert reader.state() == "broken off"
        assert len(reader.rounds()) == 2
        seen = []

        def look(record):
            seen.append((reader.state(), len(reader.rounds())))

        both.fit(on_round=look)
        assert {state for state, _ in seen} == {"running"}
        assert [n for _, n in seen] == sorted(n for _, n in seen)
        assert reader.state() == "finished"
        assert reader.summary()
        before = len(reader.rounds())
        assert before > 2
        order = both.order(seed=1)
        both.fit_until(1, order, overwrite=True)
        assert len(reader.rounds()) == 1


def test_verdicts_are_seen_before_and_after_the_fit_that_follows_them(both):
    both.fit()
    first = both.texts()[0]
    Reviews(both.path).add(first, "refund", "reject")
    with RunReader(both.path) as reader:
        (sample,) = [s for s in reader.samples() if s.text == first]
        assert (sample.used, sample.verdict) == (True, "reject")
        both.fit()
        (sample,) = [s for s in reader.samples() if s.text == first]
        assert (sample.used, sample.verdict) == (False, "reject")
        assert reader.segments()[-1].data["changes"] == ["1 sample rejected"]


def test_the_lock_is_seen_and_not_taken(tmp_path):
    assert not is_being_written(tmp_path)
    lock = WriterLock(tmp_path)
    assert is_being_written(tmp_path)
    lock.release()
    assert not is_being_written(tmp_path)
    WriterLock(tmp_path).release()


def test_damaged_files_are_named(runs):
    runs.fit()
    for name in (VECTORS, HELD_OUT, SUMMARY):
        (runs.path / name).write_bytes(b"\xff\xff")
    with RunReader(runs.path) as reader:
        for look in (partial(read_vectors, runs.path), reader.held_out, reader.summary):
            with pytest.raises(RunError):
                look()


def test_ids_tell_classes_and_texts_apart():
    assert len({sample_id("a", "b"), sample_id("a", "c"), sample_id("ab", ""), sample_id("", "ab")}) == 4
    assert sample_id("a", "\ud83d")


def test_a_moved_run_tells_the_same(runs):
    runs.fit()
    shutil.move(runs.path, runs.path.with_name("moved"))
    with RunReader(runs.path.with_name("moved")) as reader:
        assert reader.state() == "finished"
        assert reader.rounds()


def test_the_last_change_is_told_and_nothing_is_read_twice(runs, monkeypatch):
    runs.fit()
    with RunReader(runs.path) as reader:
        rounds = reader.rounds()
        assert reader.last_change() >= rounds[-1].at
        assert reader.started()["embedder"] == "hash"
        first = reader.samples()
        monkeypatch.setattr(RoundRecord, "from_json", None)  # what was read before is told again
        assert reader.samples() == first
        assert reader.rounds() == rounds


def test_texts_with_line_separators_of_their_own(runs):
    given = {
        "refund": ["give me my\u2028money back", "i want a refund\u0085of the fee"],
        "praise": ["what a lovely\u2029product", "i love your lovely team"],
        "outage": ["the site is down again", "nothing loads, site down"],
    }
    runs.fit(runs.order(given))
    with RunReader(runs.path) as reader:
        assert {answer.text for answer in reader.held_out()} == {t for texts in given.values() for t in texts}


def test_looking_writes_nothing_into_the_run(runs):
    summary = runs.fit()
    before = {path.name: path.stat().st_mtime_ns for path in runs.path.iterdir()}
    with RunReader(runs.path) as reader:
        assert reader.spending()["calls"] == summary["spent"]["calls"]
        reader.samples(), reader.state(), reader.rounds()
    for name in ("journal.sqlite-wal", "journal.sqlite-shm"):  # of SQLite, also for those who only read
        before.pop(name, None)
    assert {n: runs.path.joinpath(n).stat().st_mtime_ns for n in before} == before
