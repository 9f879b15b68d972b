"""What people say about samples, and what the next fit makes of it."""

import threading

import pytest

from adamab.run.reviews import REVIEWS as FILE_NAME
from adamab.run.reviews import Reviews
from adamab.serving.run_reader import RunReader
from adamab.task.words import normalised_text


def test_the_last_verdict_counts(tmp_path):
    reviews = Reviews(tmp_path)
    assert reviews.latest() == {}
    reviews.add("Refund me!", "refund", "reject")
    reviews.add("other", "refund", "accept")
    reviews.add("refund  ME!", "refund", "accept")
    assert reviews.latest() == {normalised_text("Refund me!"): "accept", "other": "accept"}


def test_a_torn_line_costs_only_itself(tmp_path):
    reviews = Reviews(tmp_path)
    reviews.add("one\ntwo \ud83d", "a", "reject")
    with open(tmp_path / FILE_NAME, "ab") as stream:
        stream.write(b'{"at": 1, "text": "th')
    reviews.add("three", "a", "reject")
    with open(tmp_path / FILE_NAME, "ab") as stream:
        stream.write(b'[1]\n{"text": 3, "verdict": "reject"}\n{"text": "four", "verdict": "eat"}\n\xff\n')
    assert set(reviews.latest()) == {normalised_text("one\ntwo \ud83d"), "three"}


def test_writers_do_not_mix(tmp_path):
    def write(number):
        for i in range(20):
            Reviews(tmp_path).add(f"writer {number} text {i}", "a", "reject")

    threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(Reviews(tmp_path).latest()) == 160


def asked(runs):
    return runs.asked("chat/completions")


def test_the_next_fit_leaves_out_what_was_rejected_and_takes_it_back(both):
    both.fit()
    calls, texts, weights = asked(both), both.texts(), both.left()["weights"]
    Reviews(both.path).add(texts[0].upper(), "refund", "reject")
    summary = both.fit()
    assert summary["changes"] == ["1 sample rejected"]
    assert set(both.texts()) == set(texts) - {texts[0]}
    assert both.left()["weights"] != weights
    assert asked(both) == calls  # nothing was bought again
    assert both.fit()["complete"]
    Reviews(both.path).add(texts[0], "refund", "none")
    assert both.fit()["changes"] == ["1 sample accepted again"]
    assert set(both.texts()) == set(texts)
    assert asked(both) == calls


def test_an_accepted_sample_enters_against_the_gate_but_never_a_held_out_one(both):
    both.recipe = both.recipe.with_options(near_duplicate=0.05)
    both.fit()
    with RunReader(both.path) as reader:
        seen = [s for s in reader.samples() if s.reason == "near duplicate"]
    assert seen
    before = set(both.texts())
    Reviews(both.path).add(seen[0].text, seen[0].class_name, "accept")
    Reviews(both.path).add("nobody wrote this", "refund", "accept")
    assert both.fit()["changes"] == ["1 sample accepted against the quality gate"]
    assert before < set(both.texts())
    assert seen[0].text in both.texts()
    Reviews(both.path).add(seen[0].text, seen[0].class_name, "reject")
    assert both.fit()["changes"] == ["1 sample rejected"]
    assert set(both.texts()) == before
    Reviews(both.path).add(seen[0].text, seen[0].class_name, "accept")
    assert both.fit()["changes"] == ["1 sample accepted against the quality gate"]
    assert seen[0].text in both.texts()


def test_a_run_that_starts_over_keeps_out_what_was_rejected(both):
    both.fit()
    first = both.texts()[0]
    Reviews(both.path).add(first, "refund", "reject")
    both.fit(overwrite=True)
    assert first not in both.texts()
    rounds = [event.data for event in both.events("round")]
    assert [first, "rejected before"] in [pair for data in rounds for pair in data["turned_away"]]


def test_a_rejection_by_file_outlasts_an_older_review(both, tmp_path):
    both.fit()
    first = both.texts()[0]
    Reviews(both.path).add(first, "refund", "accept")
    both.fit()
    both.fit(both.order(reject=(first,)))
    assert first not in both.texts()
    assert both.fit()["complete"]
    assert first not in both.texts()
    assert Reviews(both.path).latest()[normalised_text(first)] == "reject"


@pytest.mark.parametrize("verdict", ["none", "accept"])
def test_a_rejection_before_a_new_beginning_can_be_taken_back(both, verdict):
    both.fit()
    first = both.texts()[0]
    Reviews(both.path).add(first, "refund", "reject")
    both.fit(overwrite=True)
    n = len(both.texts())
    Reviews(both.path).add(first, "refund", verdict)
    assert both.fit()["changes"] == ["1 sample accepted against the quality gate"]
    assert first in both.texts()
    assert len(both.texts()) == n + 1
    assert both.fit()["complete"]
