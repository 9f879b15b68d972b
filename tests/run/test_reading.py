"""Looking into a run while it is fitted and afterwards."""

from functools import partial

import pytest

import adamab
from adamab.errors import RunError
from adamab.run.directory import HELD_OUT, SUMMARY, read_summary, read_vectors
from adamab.run.directory import SAMPLES as VECTORS
from adamab.serving.run_reader import RunReader
from adamab.testing import HashEmbedder


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


def test_a_run_is_followed_while_it_is_fitted_and_when_it_starts_over(both):
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


def test_damaged_files_are_named(runs):
    runs.fit()
    for name in (VECTORS, HELD_OUT, SUMMARY):
        (runs.path / name).write_bytes(b"\xff\xff")
    with RunReader(runs.path) as reader:
        for look in (partial(read_vectors, runs.path), reader.held_out, reader.summary):
            with pytest.raises(RunError):
                look()


def test_looking_writes_nothing_into_the_run(runs):
    summary = runs.fit()
    before = {path.name: path.stat().st_mtime_ns for path in runs.path.iterdir()}
    with RunReader(runs.path) as reader:
        assert reader.spending()["calls"] == summary["spent"]["calls"]
        reader.samples(), reader.state(), reader.rounds()
    for name in ("journal.sqlite-wal", "journal.sqlite-shm"):  # of SQLite, also for those who only read
        before.pop(name, None)
    assert {n: runs.path.joinpath(n).stat().st_mtime_ns for n in before} == before


def test_rounds_and_estimate_of_a_run(runs, tmp_path):
    runs.fit()
    clf = adamab.load(runs.path, embedder=HashEmbedder())
    assert [record.round for record in clf.history_] == runs.left()["rounds"]
    assert len(clf.history_) > 1
    assert clf.history_.plot().axes
    known = read_summary(runs.path)["estimate"]
    assert (clf.estimate_.accuracy, clf.estimate_.n) == (known["accuracy"], known["n"])

    clf.save(tmp_path / "saved")
    saved = adamab.load(tmp_path / "saved", embedder=HashEmbedder())
    assert not hasattr(saved, "history_")
    with pytest.raises(AttributeError, match=r"holds no history\.jsonl"):
        _ = saved.history_
    assert saved.estimate_ == clf.estimate_
    for name in ("history_", "estimate_"):
        with pytest.raises(AttributeError, match="is not fitted yet"):
            getattr(adamab.ADAMABClassifier(), name)


def test_a_damaged_history_hinders_no_prediction(runs):
    runs.fit()
    with open(runs.path / "history.jsonl", "a") as stream:
        stream.write('{"round": ')
    clf = adamab.load(runs.path, embedder=HashEmbedder())
    assert clf.predict(["give me my money back"]).tolist() == ["refund"]
    with pytest.raises(RunError, match=r"history\.jsonl: is damaged; fit again"):
        _ = clf.history_
