"""A run that is opened as an estimator has the rounds and the estimate of its fit."""

import pytest

import adamab
from adamab.errors import RunError
from adamab.run.directory import read_summary
from adamab.testing import HashEmbedder


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
