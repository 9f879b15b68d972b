"""A checkpoint only saves time: one that is no good is as if it were not there."""

import json

import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from adamab.run._loop_model import JointModel, StackedModel
from adamab.run.resume import CHECKPOINT as FILE_NAME
from adamab.run.resume import load_checkpoint, outcome_from_json
from adamab.run.run_log import Journal


def checkpoints(rounds):
    def set_rounds(session):
        session.checkpoint_rounds = rounds

    return set_rounds


@pytest.fixture
def trained(monkeypatch):
    """Rounds that are trained from here on."""
    rounds = []
    for kind in (StackedModel, JointModel):
        epoch = kind.epoch
        monkeypatch.setattr(kind, "epoch", lambda model, r, epoch=epoch: rounds.append(r) or epoch(model, r))
    return rounds


@pytest.fixture
def stopped(both, tmp_path):
    """A run that died after round 4, with a checkpoint of that round; `other` is what it should become."""
    both.fit(path=tmp_path / "other")
    both.fit_until(4, on_start=checkpoints(4))
    return both


def rounds_of(runs):
    with Journal(runs.path) as journal:
        return [outcome_from_json(event.data) for event in journal.events("round")]


def ends_the_same(runs):
    runs.fit()
    return runs.left() == runs.left(runs.path.with_name("other"))


def test_it_saves_the_rounds_before_it(stopped, trained):
    checkpoint = load_checkpoint(stopped.path, 1, rounds_of(stopped))
    assert (checkpoint.round, checkpoint.n_model) == (4, 6)
    assert ends_the_same(stopped)
    assert trained == [r for r in range(5, 9) if r <= stopped.left()["rounds"][-1]]


def _flip(path):
    raw = bytearray(path.read_bytes())
    raw[-5] ^= 64
    path.write_bytes(raw)


def _rewrite(change):
    def act(path):
        with safe_open(path, "np") as file:
            about = json.loads(file.metadata()["checkpoint"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        change(about)
        save_file(tensors, path, {"checkpoint": json.dumps(about)})

    return act


DAMAGES = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "empty": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(b"garbage" * 100),
    "changed": _flip,
    "no metadata": _rewrite(lambda about: about.clear()),
    "another version": _rewrite(lambda about: about.update(adamab="0.0.0")),
    "another segment": _rewrite(lambda about: about.update(segment=2)),
    "another round": _rewrite(lambda about: about.update(round=3)),
}


@pytest.mark.parametrize("how", DAMAGES)
def test_one_that_is_no_good_is_ignored(both, tmp_path, trained, how):
    both.fit(path=tmp_path / "other")
    both.fit_until(4, on_start=checkpoints(4))
    DAMAGES[how](both.path / FILE_NAME)
    assert load_checkpoint(both.path, 1, rounds_of(both)) is None
    trained.clear()
    assert ends_the_same(both)
    assert trained[:5] == [1, 2, 3, 4, 5]


def test_one_newer_than_the_journal_is_ignored(stopped):
    assert load_checkpoint(stopped.path, 1, rounds_of(stopped)[:3]) is None  # the power failed


def test_a_place_where_none_can_be_written_stops_nothing(both, tmp_path):
    both.fit(path=tmp_path / "other")

    def in_the_way(session):
        session.checkpoint_rounds = 1
        (session.directory / FILE_NAME).mkdir()

    both.fit(on_start=in_the_way)
    assert both.left() == both.left(tmp_path / "other")
    assert not list(both.path.glob(".checkpoint*"))
