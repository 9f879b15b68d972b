"""Segments, refused changes, one writer, and starting over."""

import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

from adamab.errors import ApiError, RecipeError, RunError
from adamab.model import load
from adamab.providers.async_bridge import run_sync
from adamab.providers.generators.base import Batch, Generator
from adamab.providers.metering import Budget
from adamab.run.resume import Inputs
from adamab.run.run_log import Journal, JournalRunLog
from adamab.task.recipe import Recipe
from adamab.testing import Fault, HashEmbedder
from tests.run.conftest import GIVEN

WITH_SAMPLE = GIVEN | {"praise": [*GIVEN["praise"], "you are the best of all"]}
QUESTION = {"question": ["how do i change my name", "where is the menu"]}
WITH_CLASS, WITH_BOTH = GIVEN | QUESTION, WITH_SAMPLE | QUESTION


def questions(runs):
    """Class and batch are not in a body, but no body is ever sent twice."""
    return runs.asked("chat/completions")


def fit_in_pieces(runs, order):
    """Die after every second round, then end."""
    setup = order().set_up()
    last = setup.recipe.n_rounds(len(setup.task.classes))
    with Journal(runs.path) as journal:
        done = len(list(journal.events("round")))
    for round_ in range(done + 1, last, 2):
        runs.fit_until(round_, order())
    return runs.fit(order())


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


def test_only_samples_of_the_run_can_be_rejected(runs):
    with pytest.raises(RunError, match="not among the run's synthetic samples"):
        runs.fit(runs.order(reject=("a text",)))
    assert not runs.path.exists()  # it was made for nothing
    runs.fit()
    with pytest.raises(RunError, match="not among the run's synthetic samples"):
        runs.fit(runs.order(reject=("a text",)))
    assert len(runs.events("segment")) == 1


def test_another_change_is_refused_and_the_journal_left_alone(runs):
    """What else would be another run is in test_inputs."""
    runs.fit_until(2)
    before = runs.events()
    with pytest.raises(RunError, match=r"seed \('0', now '3'\)"):
        runs.fit(runs.order(seed=3))
    assert runs.events() == before
    runs.fit(runs.order(prefetch=3))
    assert len(runs.texts()) == 12


# One writer, any number of readers


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
    inputs = Inputs.of(runs.order().set_up())
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


# What is written


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


# Starting over


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
        probabilities = load(runs.path).predict_proba(views)
        return np.mean([row[i // 2] for i, row in enumerate(probabilities)])

    runs.recipe = Recipe.preset("paper").with_options(batch=2, rounds=30, augmentation_rounds=4)
    runs.fit()
    before = certainty()
    runs.fit(runs.order(WITH_SAMPLE))
    assert certainty() > 0.9 * before > 0.7


def test_training_that_diverges_is_one_line(runs):
    recipe = Recipe.preset("paper").with_options(learning_rate=1e30, batch=2)
    with pytest.raises(RecipeError, match="diverged"):
        runs.fit(runs.order(recipe=recipe, policy="round-robin"))
