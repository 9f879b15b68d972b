"""The task file, good and bad."""

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adamab.errors import TaskError
from adamab.task import Prompts, Task, load_task
from adamab.task.spec import ClassSpec, Sample
from adamab.task.table_files import TableOptions

FUZZ = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
TWO = "classes: {refund: money back, praise: kind words}\n"

FULL = """\
name: support desk
classes:
  - name: churn_risk
    description: hints that they may leave
    examples:
      - we look around
      - {text: "bye 👋", id: 007}
      - text: ta ta
        id: "k-1"
  - name: 退款
    description:
    examples: ["我要退款"]
  - praise
examples: [more.jsonl, sub/more.csv]
prompts:
  query: "Customer: {text}"
  class: "{name} = {description}"
  with_examples: yes
"""


def write(folder, text, name="desk.yaml"):
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def complaint(folder, text):
    path = write(folder, text)
    with pytest.raises(TaskError) as caught:
        load_task(path)
    assert str(caught.value).isprintable()
    return str(caught.value).replace(f"{folder}/", "")


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_full_task(tmp_path, newline, mark):
    write(tmp_path, '{"text": "love it", "label": "praise"}\n', "more.jsonl")
    write(tmp_path, "text,class\nวิเศษ,praise\n", "sub/more.csv")
    task = load_task(str(write(tmp_path, mark + FULL.replace("\n", newline))))
    assert task == Task(
        classes=(
            ClassSpec("churn_risk", "hints that they may leave"),
            ClassSpec("退款"),
            ClassSpec("praise"),
        ),
        samples=(
            Sample("we look around", "churn_risk"),
            Sample("bye 👋", "churn_risk", id="007"),
            Sample("ta ta", "churn_risk", id="k-1"),
            Sample("我要退款", "退款"),
            Sample("love it", "praise"),
            Sample("วิเศษ", "praise"),
        ),
        prompts=Prompts(query="Customer: {text}", described="{name} = {description}", with_examples=True),
        name="support desk",
    )


def test_a_plain_mapping_in_yaml_and_in_python(tmp_path):
    path = write(tmp_path, "refund: [money back, 'no']\npraise:\n- |\n  love\n  it\n")
    given = {"refund": ["money back", "no"], "praise": ["love\nit"]}
    assert load_task(path) == Task.from_mapping(given, name="desk")


def test_classes_as_a_mapping_with_examples_by_class(tmp_path):
    task = load_task(
        write(tmp_path, "classes: {a: the first, b: }\nexamples:\n  b: [x, {text: y}]\n  a:\nprompts:\n")
    )
    assert task.classes == (ClassSpec("a", "the first"), ClassSpec("b"))
    assert task.samples == (Sample("x", "b"), Sample("y", "b"))
    assert task.prompts == Prompts()


def test_one_examples_file_as_a_plain_name(tmp_path):
    write(tmp_path, "text\tlabel\nx\trefund\n", "d.tsv")
    assert load_task(write(tmp_path, TWO + "examples: d.tsv")).samples == (Sample("x", "refund"),)
    assert load_task(write(tmp_path, TWO + f"examples: {tmp_path}/d.tsv")).samples == (Sample("x", "refund"),)
    assert load_task(write(tmp_path, TWO + "examples:")).samples == ()


def test_repeats_within_a_class_are_kept_once(tmp_path):
    path = write(tmp_path, "a: [Hello there, hello  THERE, 'hello there\u200b', bye]\nb: [x]\n")
    assert [s.text for s in load_task(path).samples] == ["Hello there", "bye", "x"]
    with_ids = write(tmp_path, "a: [{text: x, id: 1}, {text: x, id: 2}, {text: x, id: 2}]\nb: [y]\n")
    assert [s.id for s in load_task(with_ids).samples] == ["1", "2", None]


@pytest.mark.parametrize(
    ("text", "start", "remedy"),
    [
        ("- a\n- b\n", "desk.yaml:1: the file is a list", "write a mapping"),
        ("classes:\n", "desk.yaml:1: 'classes' is empty", "write a list"),
        ("classes: [a]\nexamples: {a: [x]}", "desk.yaml: a classifier needs at least two classes", "found 1"),
        ("{}", "desk.yaml: a classifier needs at least two classes", "found 0"),
        ("a: [x]\nb: []\n", "desk.yaml: class 'b' has neither", "add one of them"),
        (TWO + "exmples: x\n", "desk.yaml:2: unknown key 'exmples'", "did you mean 'examples'?"),
        ("name: x\nclases: [a]\n", "desk.yaml:1: class 'name' is a text", "add 'classes' beside it"),
        ("'': [x]\nb: [y]\n", "desk.yaml:1: class name is empty", "fill it in"),
        ("classes:\n- a\n- a\n", "desk.yaml: class 'a' is listed twice", "merge"),
        ("classes:\n- {nme: a}\n", "desk.yaml:2: unknown key of a class 'nme'", "did you mean 'name'?"),
        ("classes:\n- {description: a}\n", "desk.yaml:2: a class without 'name'", "give it one"),
        ("classes: [a, yes]", "desk.yaml:1: class name yes is read as a truth value", "quote it"),
        ("classes: {a: [x]}", "desk.yaml:1: description of class 'a' is a list", "write a text"),
        ("a: [x]\nb:\n- ok\n- 1.5\n", "desk.yaml:4: example of class 'b' 1.5 is read as a number", "quote"),
        ("a: [x]\nb: [~]\n", "desk.yaml:2: example of class 'b' is empty", "remove it"),
        ("a: [x]\nb: [{id: x}]\n", "desk.yaml:2: example of class 'b' without 'text'", "add it"),
        ("a: [x]\nb: [{text: x, id: yes}]\n", "desk.yaml:2: id yes is read as a truth value", "quote it"),
        ('a: [x]\nb: ["\\0"]\n', "desk.yaml:2: example of class 'b' '\\x00' holds a NUL", "remove it"),
        (TWO + "examples: {refnd: [x]}", "desk.yaml:2: example of unknown class 'refnd'", "did you mean"),
        (TWO + "examples: none.csv", "none.csv: no such file", "check the path"),
        (TWO + "examples: .", ": unknown ending", "use one of"),
        (TWO + "prompts: {clas: x}", "desk.yaml:2: unknown prompt 'clas'", "did you mean 'class'?"),
        (TWO + "prompts: {query: 5}", "desk.yaml:2: prompt 'query' 5 is read as a number", "quote it"),
        (TWO + "prompts: {with_examples: 1}", "desk.yaml:2: prompt 'with_examples' is a number", "true or"),
        (
            TWO + 'prompts:\n  class: "{label}"',
            "desk.yaml:2: prompts.class",
            "allowed: {name}, {description}",
        ),
        (b"a: [caf\xe9]\n", "desk.yaml:1: byte 7 (0xe9) is not UTF-8", "save the file as UTF-8"),
    ],
)
def test_malformed_tasks(tmp_path, text, start, remedy):
    message = complaint(tmp_path, text)
    assert start in message
    assert remedy in message


def test_a_text_under_two_classes_names_both_places(tmp_path):
    write(tmp_path, "text,label\nok,praise\nMONEY back,praise\n", "d.csv")
    text = "classes:\n- name: refund\n  examples:\n  - money  back\n- praise\nexamples: d.csv\n"
    message = complaint(tmp_path, text)
    assert message.startswith("d.csv:3: example 'MONEY back' of class 'praise' has the same text")
    assert "class 'refund' at desk.yaml:4; keep it in one class" in message
    assert "same id" in complaint(tmp_path, "a: [{text: x, id: 1}]\nb: [{text: y, id: 1}]\n")


def test_an_unknown_class_in_a_data_file_names_its_line(tmp_path):
    write(tmp_path, '{"text": "x", "label": "refund"}\n\n{"text": "y", "label": "refunds"}\n', "d.jsonl")
    message = complaint(tmp_path, TWO + "examples: d.jsonl")
    assert message == "d.jsonl:3: example of unknown class 'refunds'; did you mean 'refund'?"


def test_classes_that_differ_in_case_or_spaces_are_noted(tmp_path):
    rows = ("a,Sign in", "b,signin", "c,sign in ", "d,pay", "e,SIGN  IN")
    path, notes = write(tmp_path, "\n".join(["text,label", *rows]), "a.csv"), []
    load_task(path, TableOptions(note=notes.append))
    (note,) = notes
    assert note.startswith(
        "note: classes 'SIGN  IN', 'Sign in', 'sign in', 'signin' differ in case or spaces"
    )


@pytest.mark.parametrize("name", ["a.json", "a.xls", "a.csv.gz"])
def test_what_is_no_task_file_says_what_is_read(tmp_path, name):
    path = write(tmp_path, '[{"text": "\\ud83d"}]', name)
    with pytest.raises(TaskError, match=r"and by its ending '\.\w+' no data file: use one of \.csv, \.jsonl"):
        load_task(path)
    path = write(tmp_path, "text,label\nmy money,a\n", "tickets")
    with pytest.raises(
        TaskError, match=r"the file is a text; .* or end the name of a data file in one of \.csv"
    ):
        load_task(path)


def test_the_task_itself_must_be_a_file(tmp_path):
    (tmp_path / "task.yaml").touch()
    with pytest.raises(TaskError, match=r"is a directory; name task\.yaml in it"):
        load_task(tmp_path)
    with pytest.raises(TaskError, match="no such file"):
        load_task(tmp_path / "none.yaml")


def outcome(path):
    """The error message, or nothing for a good task; any other exception goes through."""
    try:
        load_task(path)
    except TaskError as exc:
        return str(exc)
    return ""


@FUZZ
@given(st.binary() | st.text().map(str.encode) | st.text("{}[]-:&*!|>'\"%@`\n\r\t #a?,~\\").map(str.encode))
def test_no_bytes_escape_as_a_traceback(tmp_path, data):
    assert outcome(write(tmp_path, data)).isprintable()
    assert outcome(write(tmp_path, TWO.encode() + data)).isprintable()


KEY = st.sampled_from(["name", "classes", "examples", "prompts", "description", "text", "id", "query"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(KEY | st.text() | st.integers(), inner, max_size=4)
    ),
    max_leaves=12,
)


@FUZZ
@given(VALUES, st.dictionaries(KEY, VALUES), st.booleans())
def test_no_yaml_value_escapes_as_a_traceback(tmp_path, value, fields, escaped):
    for document in (value, fields):
        text = yaml.safe_dump(document, allow_unicode=not escaped)
        assert outcome(write(tmp_path, text.encode("utf-8", "surrogatepass"))).isprintable()
