"""YAML as a tree with lines; what a task file has no use for is refused."""

import subprocess
import sys
import time

import pytest
import yaml

from adamab.errors import TaskError
from adamab.task import task_file
from adamab.task.task_file import read_tree


@pytest.fixture(params=["CSafeLoader", "SafeLoader"], autouse=True)
def parser(request, monkeypatch):
    """Run everything with the C parser and with the Python one that stands in for it."""
    if request.param == "SafeLoader":
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)


def tree(folder, text):
    (folder / "t.yaml").write_bytes(text.encode())
    return read_tree(folder / "t.yaml")


def tree_complaint(folder, text):
    with pytest.raises(TaskError) as caught:
        tree(folder, text)
    assert str(caught.value).isprintable()
    return str(caught.value).replace(f"{folder}/", "")


def test_values_and_lines(tmp_path):
    root = tree(
        tmp_path, "\ufeffa: one\r\nb:\r\n  - |\r\n    two\r\n  - 'yes'\r\nc: {d: true, e: }\r\n"
    ).fields("x")
    assert root["a"].text("x") == "one"
    assert root["a"].place == f"{tmp_path}/t.yaml:1"
    assert root["b"].line == 2
    assert [node.value for node in root["b"].items("x")] == ["two\n", "yes"]
    assert [node.line for node in root["b"].items("x")] == [3, 5]
    assert [node.kind for node in root["c"].fields("x").values()] == ["truth value", "null"]
    assert tree(tmp_path, "!!str 12").text("x") == "12"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("yes", "truth value"),
        ("1.5", "number"),
        ("12:30", "number"),
        ("2024-01-31", "date"),
        ("<<", "merge key"),
        ("=", "default value"),
    ],
)
def test_what_is_not_a_text_should_be_quoted(tmp_path, text, kind):
    with pytest.raises(TaskError, match=f"t.yaml:1: the name {text} is read as a {kind}; quote it"):
        tree(tmp_path, f"a: {text}").fields("x")["a"].text("the name")
    assert f"t.yaml:1: the key {text} is read as a {kind}" in tree_complaint(tmp_path, f"{text}: x")


@pytest.mark.parametrize(
    ("text", "start", "remedy"),
    [
        ("", "t.yaml: is empty", "list the classes"),
        ("# only a comment\n", "t.yaml: is empty", "list the classes"),
        ("a: 1\nb: [x", "t.yaml:2: not valid YAML", "check indents"),
        ("a: b: c", "t.yaml:1: not valid YAML", "check indents"),
        ('a: x\nb: "y\nc: z\n', "t.yaml:3: not valid YAML", "starts at line 2"),
        ('a: "\\UFFFFFFFF"', "t.yaml", "check indents"),
        ('a: "\\U0011FFFF"', "t.yaml", "check indents"),
        ("%YAML 1." + "1" * 5000 + "\n---\na: b", "t.yaml", "check indents"),
        ('a: "x', "t.yaml:1: not valid YAML", "check indents"),
        ("a:\n\t- x", "t.yaml:2: the line is indented with a tab", "use spaces"),
        ("a:\n  - x\n \t- y: z\n", "t.yaml:3: the line is indented with a tab", "use spaces"),
        ("a: b\nc: \x07", "t.yaml:2: YAML allows no character '\\x07'", "remove it"),
        ("a: 1\nb: 2\na: 3", "t.yaml:3: key 'a' stands twice, first at line 1", "keep one"),
        ("a: &x [1]\nb: *x", "t.yaml:2: alias *x", "write the value out"),
        ("a: !!python/object:os.system x", "t.yaml:1: tag tag:yaml.org,2002:python/object", "remove"),
        ("a: ! 12", "t.yaml:1: tag !", "remove it"),
        ("a: !!int 'x'", "t.yaml:1: tag tag:yaml.org,2002:int", "remove it"),
        ("? [a]\n: b", "t.yaml:1: the key is a list", "write a text"),
        ("a: 1\n---\nb: 2", "t.yaml:2: a second document starts", "keep one"),
        ("[" * 100_000, "t.yaml:1: nesting is too deep", "simplify the file"),
        ("%YAML 9.9\n---\na: b", "t.yaml:1: not valid YAML", "check indents"),
    ],
)
def test_malformed_yaml(tmp_path, text, start, remedy):
    message = tree_complaint(tmp_path, text)
    assert message.startswith(start)
    assert remedy in message


def test_a_bomb_is_refused_at_once(tmp_path):
    lines = ["a0: &a0 [x, x]"] + [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 60)]
    start = time.process_time()
    assert tree_complaint(tmp_path, "\n".join(lines)).startswith("t.yaml:2: alias *a0")
    assert time.process_time() - start < 1


def test_a_huge_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(task_file, "_LARGEST", 10)
    assert tree_complaint(tmp_path, "a: b\n" * 3).startswith("t.yaml: larger than 64 MB")


def test_importing_the_room_stays_cheap():
    code = "import sys, adamab.task; print({'yaml', 'scipy', 'numpy', 'pydantic'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
