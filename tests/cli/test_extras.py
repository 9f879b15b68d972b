from __future__ import annotations

import pytest

from adamab.cli import errors as extras


@pytest.fixture
def without(monkeypatch):
    """Pretends that a module is not installed."""

    def hide(module: str) -> None:
        find_spec = extras.find_spec
        monkeypatch.setattr(extras, "find_spec", lambda name: None if name == module else find_spec(name))

    return hide


@pytest.mark.parametrize("options", [(), ("--embedder", "st:model"), ("--long-texts", "average")])
def test_fit_without_torch_names_one_line(refused, folder, without, options):
    without("torch")
    message = refused("fit", "task.yaml", "--run", "run", *options)
    assert message.endswith("is not installed; run: pip install 'adamab[local]'\n")
    extras.need_torch_for("npz:vectors.npz")  # needs it for training alone


@pytest.mark.parametrize("module", ["torch", "sentence_transformers", "matplotlib"])
def test_the_demo_names_all_that_it_needs(refused, folder, without, module):
    without(module)
    assert "pip install 'adamab[local,plots]'" in refused("demo", "--output", "out")
    assert not (folder / "out").exists()


def test_the_demo_needs_a_directory(refused, folder, monkeypatch):
    monkeypatch.setattr("adamab.cli.demo._run", lambda plan: pytest.fail("work was done"))
    message = refused("demo", "--output", "task.yaml")
    assert message == "adamab: task.yaml: is a file; name a directory for the results\n"
