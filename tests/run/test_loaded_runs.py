"""A run that is opened as an estimator tells what its fit told."""

import pytest

import adamab
from adamab.errors import RunError
from adamab.publish.model_card import facts_of, model_card
from adamab.run.add_class import Addition, add_class
from adamab.run.directory import read_summary
from adamab.task.spec import Sample
from adamab.testing import HashEmbedder


def test_rounds_and_estimate_of_a_run(runs, tmp_path):
    runs.fit()
    clf = adamab.load(runs.path, embedder=HashEmbedder())
    assert [record.round for record in clf.history_] == runs.left()["rounds"]
    assert len(clf.history_) > 1
    assert clf.history_.plot().axes
    told = read_summary(runs.path)["estimate"]
    assert (clf.estimate_.accuracy, clf.estimate_.n) == (told["accuracy"], told["n"])

    clf.save(tmp_path / "saved")
    saved = adamab.load(tmp_path / "saved", embedder=HashEmbedder())
    assert not hasattr(saved, "history_")
    with pytest.raises(AttributeError, match=r"holds no fit\.json"):
        _ = saved.estimate_
    with pytest.raises(AttributeError, match="no history_ before it is fitted"):
        _ = adamab.ADAMABClassifier().history_


def test_a_damaged_history_hinders_no_prediction(runs):
    runs.fit()
    with open(runs.path / "history.jsonl", "a") as stream:
        stream.write('{"round": ')
    clf = adamab.load(runs.path, embedder=HashEmbedder())
    assert clf.predict(["give me my money back"]).tolist() == ["refund"]
    with pytest.raises(RunError, match=r"history\.jsonl: is damaged; fit again"):
        _ = clf.history_


def test_the_card_after_a_class_was_added(runs):
    runs.fit()
    examples = tuple(Sample(text, "question") for text in ("how does this work", "how do i change it"))
    add_class(runs.path, Addition("question", "asks how", examples), embedder=HashEmbedder())
    clf = adamab.load(runs.path, embedder=HashEmbedder())
    card = model_card(clf.classifier_, facts_of(runs.path))
    assert "| question (added later, not trained yet) | 2 | 0 |" in card
    assert "| refund | 2 |" in card
    assert "6 given samples" in card
