import numpy as np
import pytest

from adamab.testing import HashEmbedder
from experiments import added_classes
from experiments.__main__ import main
from experiments.datasets.text_sets import DemoSet


def test_a_class_is_left_out_and_added():
    draw = DemoSet().draw(0, given=3, part="development")
    fits = list(added_classes.added_accuracies(draw, HashEmbedder(), 1))
    assert len({way for way, *_ in fits}) == len(fits) == 4
    for _, own, others, everything in fits:
        assert np.isclose(everything, (own + 11 * others) / 12)  # as many samples of each of twelve classes


def test_the_command_shows_means_with_errors(monkeypatch, capsys):
    monkeypatch.setattr(added_classes, "open_embedder", lambda spec: HashEmbedder())
    with pytest.raises(SystemExit) as end:
        main(["added-classes", "demo", "--seeds=2", "--left-out=1"])
    assert not end.value.code
    lines = capsys.readouterr().out.splitlines()[2:]
    assert len(lines) == 4
    assert all(" ± " in line for line in lines)
