import re
import subprocess
import sys
import warnings

import pytest
import typer

from adamab.cli import console
from adamab.cli import errors as extras
from adamab.cli.app import COMMANDS
from adamab.cli.errors import exit_code
from adamab.errors import TaskError
from adamab.version import __version__


def test_version_and_help(adamab):
    assert adamab("--version").output == f"adamab {__version__}\n"
    for arguments in ([], ["--help"], ["-h"]):
        result = adamab(*arguments)
        assert result.exit_code == 0
        assert all(name in result.output for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_help(adamab, name):
    result = adamab(name, "--help")
    assert result.exit_code == 0
    assert name in result.output
    assert not re.search(r"<bool>|range>|[{}]|\[\[", result.output)


def test_usage_errors_are_one_line(refused):
    assert "did you mean" in refused("fti").lower()
    assert "No such option" in refused("fit", "--wrong")
    assert "Missing" in refused("evaluate", "run")
    assert "--seed" in refused("fit", "task.yaml", "--run", "x", "--seed", "-1")
    assert "No such option" in refused("--wrong")


def test_start_imports_nothing_heavy():
    heavy = "{'numpy', 'torch', 'scipy', 'sklearn', 'yaml', 'sqlite3'}"
    code = (
        "import sys, contextlib, adamab.cli\n"
        "sys.argv = ['adamab', 'fit', '--help']\n"
        "with contextlib.suppress(SystemExit): adamab.cli.main()\n"
        f"print(sorted({heavy} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def raising(error):
    def run():
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (TaskError("bad\nfile"), 2, "adamab: bad\\nfile\n"),
        (FileNotFoundError(2, "No such file or directory", "x.csv"), 2, "adamab: x.csv: No such file"),
        (OSError(28, "No space left on device"), 2, "adamab: No space left on device\n"),
        (KeyboardInterrupt(), 130, "adamab: stopped\n"),
        (typer.Abort(), 130, "adamab: stopped\n"),
        (typer.Exit(3), 3, ""),
        (BrokenPipeError(), 141, ""),
        (SystemExit(1), 141, ""),
    ],
)
def test_exit_codes(capsys, error, code, line):
    assert exit_code(raising(error)) == code
    assert capsys.readouterr().err.startswith(line)


def test_bugs_keep_their_traceback_and_debugging_shows_all(capsys, monkeypatch):
    for bug in (ZeroDivisionError(), ModuleNotFoundError("no foo", name="foo")):
        with pytest.raises(type(bug)):
            exit_code(raising(bug))
    monkeypatch.setenv("ADAMAB_DEBUG", "1")
    assert exit_code(raising(TaskError("bad"))) == 2
    assert "Traceback" in capsys.readouterr().err


def test_warnings_are_one_line_and_work_that_was_never_begun_has_none(capsys):
    """Ctrl-C between the making of a coroutine and its start: one line says all there is to say."""

    def run():
        warnings.simplefilter("always")
        warnings.warn("coroutine 'ask' was never awaited", RuntimeWarning, stacklevel=1)
        warnings.warn("the answer was never awaited", UserWarning, stacklevel=1)
        raise KeyboardInterrupt

    assert exit_code(run) == 130
    assert capsys.readouterr().err == "adamab: warning: the answer was never awaited\nadamab: stopped\n"


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
    wrong = ("fit", "task.yaml", "--run", "run", "--embedder", embedder, "--set", "dropout=9")
    assert "dropout" in refused(*wrong), "which is told whatever is installed"


WRONG = [
    "fit task.yaml --run run {st} --set dropout=9",
    "fit task.yaml --run run {st} --policy nope",
    "fit task.yaml --run run {st} --generator replay:none.jsonl",
    "fit task.yaml --run run {st} --generator openai:m",
    "fit task.yaml --run run {st} --holdout none.csv",
    "fit task.yaml --run run {st}?batch_size=x",
    "fit task.yaml --run run {st} --set views=nope",
    "compare task.yaml new.jsonl {st} --methods knn?k=x,calibrator",
    "compare task.yaml new.jsonl {st} --methods knn,chat:antropic:m",
    "sweep task.yaml {st} --search nope=1",
]
IN_ONE_PROCESS = """
import sys
from typer.testing import CliRunner
from adamab.cli.app import app
for line in sys.stdin.read().splitlines():
    result = CliRunner().invoke(app, line.split())
    assert result.exit_code == 2 and 'torch' not in sys.modules, (line, result.output)
"""


def test_what_is_wrong_is_told_before_torch_is_imported(folder, tiny_model, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    lines = "\n".join(line.format(st=f"--embedder st:{tiny_model}") for line in WRONG)
    command = [sys.executable, "-c", IN_ONE_PROCESS]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_demo_names_all_that_it_needs(refused, folder, without):
    without("matplotlib")
    assert "pip install 'adamab[local,plots]'" in refused("demo", "--output", "out")
    assert not (folder / "out").exists()


def test_the_demo_needs_a_directory(refused, folder, monkeypatch):
    monkeypatch.setattr("adamab.cli.demo._run", lambda plan: pytest.fail("work was done"))
    message = refused("demo", "--output", "task.yaml")
    assert message == "adamab: task.yaml: is a file; name a directory for the results\n"


def test_a_bar_only_for_people(monkeypatch, capsys):
    for there in (False, True):
        monkeypatch.setattr(sys.stderr, "isatty", lambda there=there: there)
        for quiet in (False, True):
            with console.progress("waiting", quiet=quiet) as bar:
                bar.phase("working", 3)
                bar.step()
                bar.step(2)
            assert ("working" in capsys.readouterr().err) is (there and not quiet)


def test_tables_take_names_literally(capsys):
    console.print_table(("name", "n#"), [("[red]x[/red]", 1), ("a" * 100, 22)], title="all")
    out = capsys.readouterr().out
    assert "[red]x[/red]" in out
    assert max(map(len, out.splitlines())) <= 80
