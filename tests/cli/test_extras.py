import pytest

from adamab.cli import errors as extras


@pytest.fixture
def without(monkeypatch):
    """Pretends that a module is not installed."""

    def hide(module):
        find_spec = extras.find_spec
        monkeypatch.setattr(extras, "find_spec", lambda name: None if name == module else find_spec(name))

    return hide


@pytest.mark.parametrize(("embedder", "extra"), [("st:model", "st"), ("clip:model", "clip")])
def test_a_model_that_runs_in_torch_names_the_line_that_brings_it(refused, folder, without, embedder, extra):
    without("torch")
    message = refused("fit", "task.yaml", "--run", "run", "--embedder", embedder)
    assert message.endswith(f"is not installed; run: pip install 'adamab[{extra}]'\n")
    extras.need_torch_for("npz:vectors.npz")


def test_the_demo_names_all_that_it_needs(refused, folder, without):
    without("matplotlib")
    assert "pip install 'adamab[local,plots]'" in refused("demo", "--output", "out")
    assert not (folder / "out").exists()


def test_the_demo_needs_a_directory(refused, folder, monkeypatch):
    monkeypatch.setattr("adamab.cli.demo._run", lambda plan: pytest.fail("work was done"))
    message = refused("demo", "--output", "task.yaml")
    assert message == "adamab: task.yaml: is a file; name a directory for the results\n"
