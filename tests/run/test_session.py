"""Segments, refused changes, one writer, and beginning anew."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from adamab.errors import ApiError, RecipeError, RunError
from adamab.model import load
from adamab.providers.async_bridge import run_sync
from adamab.providers.generators.base import Batch, Generator
from adamab.providers.metering import Budget
from adamab.providers.sqlite_file import WriterLock
from adamab.run.gate import Holdout
from adamab.run.run_log import Journal, JournalRunLog
from adamab.task.prompts import Prompts
from adamab.task.recipe import Recipe
from adamab.testing import Fault, HashEmbedder

GIVEN = {
    "refund": ["give me my money back", "i want a refund of the fee"],
    "praise": ["what a lovely product", "i love your lovely team"],
    "outage": ["the site is down again", "nothing loads, site down"],
}
WITH_SAMPLE = GIVEN | {"praise": [*GIVEN["praise"], "you are the best of all"]}
QUESTION = {"question": ["how do i change my name", "where is the menu"]}
WITH_CLASS, WITH_BOTH = GIVEN | QUESTION, WITH_SAMPLE | QUESTION


def questions(runs):
    """Class and batch cannot be told from a body, but no body is ever sent twice."""
    return runs.asked("chat/completions")


def fit_in_pieces(runs, order, **options):
    """Die after every second round, then end."""
    last = order().set_up().rounds
    with Journal(runs.path) as journal:
        done = len(list(journal.events("round")))
    for round_ in range(done + 1, last, 2):
        runs.fit_until(round_, order(), **options)
    return runs.fit(order(), **options)


def copied(runs, name):
    """The same run as it is now, to compare with."""
    shutil.copytree(runs.path, runs.path.with_name(name))
    return runs.path.with_name(name)


@pytest.mark.parametrize("change", ["sample", "class", "reject", "all"])
@pytest.mark.parametrize("stopped", [3, None], ids=["stopped", "complete"])
def test_what_is_changed_on_purpose_begins_a_segment_and_keeps_every_sample(both, change, stopped):
    both.recipe = both.recipe.with_options(augmentation_rounds=None, rounds=None, rounds_per_class=2)
    if stopped is None:
        both.fit()
    else:
        both.fit_until(stopped)
    bought = [text for e in both.events("round") for text in e.data["texts"]]
    rejected = (bought[0],) if change in ("reject", "all") else ()
    given = {"sample": WITH_SAMPLE, "class": WITH_CLASS, "all": WITH_BOTH}.get(change, GIVEN)
    asked = questions(both)

    def order():
        return both.order(given, reject=rejected)

    other = copied(both, "other")
    in_one = both.fit(order(), other)
    calls = len(questions(both)) - len(asked)
    fit_in_pieces(both, order)
    assert both.left() == both.left(other)
    texts = both.texts()
    assert set(bought) - set(rejected) <= set(texts)
    assert not set(rejected) & set(texts)
    assert in_one["synthetic"] == sum(in_one["synthetic_by_class"].values()) == len(texts)
    assert len(questions(both)) == len(asked) + 2 * calls  # the other's, and the same ones of this run
    rounds = both.left()["rounds"]
    assert rounds == list(range(1, len(rounds) + 1))
    assert len(both.events("segment")) == 2
    assert not in_one["complete"]
    assert load(both.path).classes == tuple(given)


def test_several_segments_one_after_the_other(both):
    both.recipe = both.recipe.with_options(augmentation_rounds=None, rounds=None)
    budget = Budget.parse("6 samples")
    both.fit(both.order(budget=budget))
    assert len(both.texts()) == 6
    budget = Budget.parse("10 samples")
    fit_in_pieces(both, lambda: both.order(budget=budget))
    assert len(both.texts()) == 10
    first = both.texts()[0]
    fit_in_pieces(both, lambda: both.order(reject=(first,), budget=budget))
    assert first not in both.texts()
    assert len(both.texts()) == 9
    budget = Budget.parse("14 samples")
    fit_in_pieces(both, lambda: both.order(WITH_BOTH, budget=budget), on_start=checkpoints)
    assert len(both.texts()) == 13
    assert first not in both.texts()
    assert {"budget raised from 6 samples to 10 samples"} <= set(both.events("segment")[1].data["changes"])
    assert both.events("segment")[-1].data["changes"] == [
        "class 'question' added",
        "1 given sample of class 'praise' added",
        "budget raised from 10 samples to 14 samples",
    ]
    bodies = questions(both)
    assert len(set(bodies)) == len(bodies)
    summary = both.fit(both.order(WITH_BOTH, budget=budget))
    assert summary["complete"]


def checkpoints(session):
    session.checkpoint_rounds = 1


def test_a_budget_that_ended_a_segment_does_not_end_the_next(runs, server):
    """With a checkpoint in the second segment, too."""
    assert runs.fit(runs.order(budget=Budget(calls=3)))["ended"] == "the budget of 3 calls is spent"
    more = Budget(calls=6)
    runs.fit_until(5, runs.order(budget=more), on_start=checkpoints)
    runs.fit(runs.order(budget=more))
    assert server.count("chat/completions") == 6
    assert len(runs.texts()) == 12


def test_a_round_that_the_budget_ended_stays_ended(runs, server):
    runs.fit(runs.order(budget=Budget(calls=3)))
    left = runs.left()
    (runs.path / "fit.json").unlink()
    runs.fit(runs.order(budget=Budget(calls=3)))
    assert runs.left() == left
    assert server.count("chat/completions") == 3


class Brief(Generator):
    """Three texts of a class for every sample that is given, then it is dry."""

    fingerprint = "brief"

    def __init__(self):
        self.asked = 0

    async def generate(self, request):
        self.asked += 1
        name, start = request.spec.name, 2 * request.number
        texts = tuple(f"{name} {i} and {i * 7919}" for i in range(start, start + 2))
        return Batch(texts, closed="dry" if request.number >= len(request.given) - 1 else None)


@pytest.mark.parametrize("rounds", [1, 1000])
def test_a_closed_class_opens_again_when_it_gains_samples(both, rounds):
    both.recipe = both.recipe.with_options(augmentation_rounds=12, rounds=14, near_duplicate=None)
    both.fit_until(6, both.order(generator=Brief()))
    bought = [text for e in both.events("round") for text in e.data["texts"]]
    assert len(bought) == 12
    assert both.events("round")[-1].data["record"]["closed"] == "dry"

    def order():
        return both.order(WITH_SAMPLE, generator=Brief())

    def checkpointed(session):
        session.checkpoint_rounds = rounds

    both.fit(order(), copied(both, "other"))
    both.fit_until(7, order(), on_start=checkpointed)
    both.fit(order())
    assert both.left() == both.left(both.path.with_name("other"))
    assert set(both.texts()) - set(bought) == {"praise 4 and 31676", "praise 5 and 39595"}


def test_refusals_are_forgotten_when_a_class_gains_samples(runs):
    class Refusing(Brief):
        async def generate(self, request):
            if request.spec.name == "praise" and request.number < 3:
                return Batch(refused=True)  # the third time after it has gained a sample
            return Batch((f"{request.spec.name} {request.number} {request.number * 7919}",))

    runs.recipe = runs.recipe.with_options(augmentation_rounds=8, batch=1, max_refusals=2)
    runs.fit_until(3, runs.order(generator=Refusing(), policy="round-robin"))
    assert "refused 2 times" in runs.events("round")[-1].data["record"]["closed"]
    grown = runs.order(WITH_BOTH, generator=Refusing(), policy="round-robin")
    summary = runs.fit(grown)
    assert "praise" not in summary["closed"]
    assert summary["refused"] == {"praise": 3}


def test_a_rejected_text_does_not_come_back(runs):
    class Insistent(Generator):
        fingerprint = "insistent"

        async def generate(self, request):
            n = request.number
            return Batch((f"{request.spec.name} always", f"{request.spec.name} {n} of {n * 7919}"))

    budget = Budget(samples=6)
    runs.fit(runs.order(generator=Insistent(), budget=budget))
    assert "refund always" in runs.texts()
    order = runs.order(generator=Insistent(), budget=Budget(samples=12), reject=("  REFUND always",))
    summary = runs.fit(order)
    assert summary["changes"][-1] == "1 sample rejected"
    assert "refund always" not in runs.texts()
    assert summary["rejected"]["refund"]["rejected before"] >= 1
    # the file may be named again, or not: the text stays out
    assert runs.fit(order)["complete"]
    assert runs.fit(order.changed(reject=()))["complete"]
    assert runs.fit(order.changed(reject=("refund always", "refund always")))["complete"]


def test_only_samples_of_the_run_can_be_rejected(runs):
    with pytest.raises(RunError, match="no sample to reject yet"):
        runs.fit(runs.order(reject=("a text",)))
    assert not runs.path.exists()  # it was made for nothing
    runs.fit()
    with pytest.raises(RunError, match="not among the run's synthetic samples"):
        runs.fit(runs.order(reject=("a text",)))
    assert len(runs.events("segment")) == 1


def test_any_other_change_is_refused_and_the_journal_left_alone(runs, tmp_path):
    runs.fit_until(2, runs.order(budget=Budget(samples=12)))
    before = runs.events()
    holdout = Holdout(["something else"])
    removed = {name: GIVEN[name] for name in ("refund", "praise")}
    named = {name: "is " + name for name in removed}
    changed = GIVEN | {"praise": ["what a lovely product", "i love your team"]}
    relabelled = GIVEN | {"praise": GIVEN["praise"][:1], "outage": [*GIVEN["outage"], GIVEN["praise"][1]]}
    turned = dict(reversed(GIVEN.items()))
    budget = Budget(samples=12)
    described = {"refund": "another", "praise": "is happy", "outage": "the site is down"}
    recipe = runs.recipe.with_options(dropout=0.25)
    cases = [
        (runs.order(recipe=recipe, budget=budget), r"recipe: dropout \('0.5', now '0.25'\)"),
        (runs.order(policy="random", budget=budget), r"policy \('adamab', now 'random'\)"),
        (runs.order(seed=3, budget=budget), r"seed \('0', now '3'\)"),
        (runs.order(embedder=HashEmbedder(width=8), budget=budget), "another embedder"),
        (runs.order(generator=Brief(), budget=budget), r"generator \(.*, now 'brief'\)"),
        (runs.order(holdout=holdout, budget=budget), "--holdout"),
        (runs.order(descriptions=described, budget=budget), "description of class 'refund'"),
        (runs.order(removed, descriptions=named, budget=budget), "class"),
        (runs.order(changed, budget=budget), "given sample of class 'praise' is gone or was changed"),
        (runs.order(relabelled, budget=budget), "given sample of class 'praise' is gone or was changed"),
        (runs.order(turned, budget=budget), "another order of the classes"),
        (runs.order(budget=Budget(samples=8)), "budget was 12 samples; .* lowered to 8 samples"),
    ]
    for order, words in cases:
        with pytest.raises(RunError, match=words) as told:
            runs.fit(order)
        assert "\n" not in str(told.value)
    task = replace(runs.order().task, prompts=Prompts(query="say: {text}"))
    with pytest.raises(RunError, match="wording of the prompts"):
        runs.fit(runs.order(budget=budget).changed(task=task))
    assert runs.events() == before
    runs.fit(runs.order(budget=budget, prefetch=3))
    assert len(runs.texts()) == 12


# One writer, any number of readers


def test_a_second_writer_of_this_process_is_told_so(runs):
    inputs = runs.order().set_up().inputs()
    with JournalRunLog(runs.path, inputs) as session:
        session.journal.note("round", {"no": "matter"})
        with pytest.raises(RunError, match="another process is writing this run; wait for it or stop it"):
            JournalRunLog(runs.path, inputs)
        with Journal(runs.path) as reader:
            assert [e.kind for e in reader.events()] == ["segment", "round"]
            session.journal.note("choice", {})
            assert [e.kind for e in reader.events()] == ["segment", "round", "choice"]
    with pytest.raises(RunError, match="given sample"):
        JournalRunLog(runs.path, runs.order({**GIVEN, "refund": ["x"]}).set_up().inputs())
    WriterLock(runs.path).release()  # whoever is refused lets go of it


WRITER = """
import sys, time
from pathlib import Path
from adamab.providers.generators.base import Batch
from adamab.run.run_log import Journal
from adamab.providers.sqlite_file import WriterLock
lock = WriterLock(Path(sys.argv[1]))
journal = Journal(Path(sys.argv[1]), writing=True)
for n in range(5):
    journal.note("round", {"n": n})
    journal.put_batch("refund", n, Batch((f"text {n}",)))
print("ready", flush=True)
time.sleep(60)
"""


@pytest.fixture
def writer(tmp_path):
    (tmp_path / "run").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path / "run")], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_writer_of_another_process_keeps_others_out_until_it_is_killed(writer, runs):
    inputs = runs.order().set_up().inputs()
    with pytest.raises(RunError, match="another process is writing"):
        JournalRunLog(runs.path, inputs)
    with Journal(runs.path) as reader:
        assert [e.data["n"] for e in reader.events("round")] == list(range(5))
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    with Journal(runs.path) as reader:  # with a log that nobody has put away
        assert reader.batch("refund", 4) == Batch(("text 4",))
    with Journal(runs.path, writing=True) as journal:
        assert len(list(journal.events("round"))) == 5
    with pytest.raises(KeyError):  # the lock is free; the events are no real rounds
        JournalRunLog(runs.path, inputs)


def test_another_program_that_looks_does_not_take_the_log_away(runs):
    """SQLite's locks must be held: whoever closes a file last deletes its log."""
    inputs = runs.order().set_up().inputs()
    with JournalRunLog(runs.path, inputs) as session:
        session.ledger.settle(session.ledger.reserve("generate", 5), 5, None)
        look = (
            "import sqlite3, sys\n"
            "db = sqlite3.connect(sys.argv[1])\n"
            "print(db.execute('SELECT COUNT(*) FROM events').fetchone()[0])\n"
            "db.close()\n"
        )
        command = [sys.executable, "-c", look, str(runs.path / "journal.sqlite")]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "1\n"
        assert (runs.path / "journal.sqlite-wal").exists()
        session.journal.note("finished", {})
    with Journal(runs.path) as journal:
        assert [e.kind for e in journal.events()] == ["segment", "finished"]


# What is written


def test_no_key_prompt_or_response_in_the_events(runs, server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-key")
    server.add_fault(Fault("status", path="chat", status=401, after=4))
    with pytest.raises(ApiError) as told:
        runs.fit()
    runs.fit()
    events = json.dumps([e.data for e in runs.events()])
    assert "sk-secret" not in events + str(told.value)
    raw = b"".join(file.read_bytes() for file in runs.path.iterdir())
    assert b"sk-secret" not in raw
    for seen in server.seen:
        prompt = seen.body["messages"][0]["content"]
        assert prompt[:60] not in events
        assert prompt[:60] not in str(told.value)
    with Journal(runs.path) as journal:
        answers = [row.data["content"] for row in journal.rows("replies")]
    assert len(answers) == 6
    assert not [answer for answer in answers if json.dumps(answer)[1:-1] in events]


def test_files_that_hold_samples_are_their_owners_only(runs):
    runs.local = False
    before = os.umask(0o022)
    try:
        modes = {}

        def look(record):
            for file in runs.path.glob("*.sqlite*"):
                modes[file.name] = file.stat().st_mode & 0o777

        runs.fit(on_round=look)
    finally:
        os.umask(before)
    assert {"journal.sqlite", "journal.sqlite-wal", "vectors.sqlite"} <= set(modes)
    assert set(modes.values()) == {0o600}


# Beginning anew


def test_a_new_fit_that_fails_leaves_the_old_results(runs, server):
    runs.fit()
    left = runs.left()
    server.add_fault(Fault("status", path="chat", status=401, times=None, after=2))
    with pytest.raises(ApiError):
        runs.fit(runs.order(seed=7), overwrite=True)
    assert runs.left() == left
    assert load(runs.path).classes == tuple(GIVEN)
    assert (runs.path / "journal.sqlite.old").exists()
    with pytest.raises(RunError, match="seed"):
        runs.fit()  # the new run is the one that can be taken up
    server.clear_faults()
    asked = len(questions(runs))
    runs.fit(runs.order(seed=7))
    assert len(questions(runs)) == asked + 4  # two of its six batches were there
    assert runs.left() != left
    assert not [name for name in os.listdir(runs.path) if name.endswith(".old")]


def test_what_is_begun_anew_knows_nothing_of_before(runs):
    runs.fit(on_start=checkpoints)
    runs.fit(runs.order(seed=7), runs.path.with_name("other"))
    runs.fit(runs.order(seed=7), overwrite=True)
    assert runs.left() == runs.left(runs.path.with_name("other"))
    assert len(runs.events("segment")) == 1
    assert not [name for name in os.listdir(runs.path) if name.endswith(".old")]


def test_a_refused_fit_makes_no_directory_its_own(runs, server):
    server.add_fault(Fault("status", path="chat", status=401, times=None))
    with pytest.raises(ApiError):
        runs.fit(runs.order(budget=Budget(samples=3)))
    assert [event.kind for event in runs.events()] == ["segment", "started", "choice"]
    server.clear_faults()
    runs.fit(runs.order(budget=Budget(samples=2), seed=4))  # nothing was bought, so nothing binds
    assert len(runs.texts()) == 2


def test_a_later_segment_of_a_complete_paper_run_is_trained(runs):
    """Its rounds have passed, but its weights must come from somewhere."""

    def certainty():
        texts = [text for given in GIVEN.values() for text in given]
        views = run_sync(HashEmbedder().embed(texts, kind="query")).views
        found = load(runs.path).predict_proba(views)
        return np.mean([row[i // 2] for i, row in enumerate(found)])

    runs.recipe = Recipe.preset("paper").with_options(batch=2, rounds=30, augmentation_rounds=4)
    runs.fit()
    before = certainty()
    runs.fit(runs.order(WITH_SAMPLE))
    assert certainty() > 0.9 * before > 0.7


def test_training_that_diverges_is_one_line(runs):
    recipe = Recipe.preset("paper").with_options(learning_rate=1e30, batch=2)
    with pytest.raises(RecipeError, match="diverged"):
        runs.fit(runs.order(recipe=recipe, policy="round-robin"))
