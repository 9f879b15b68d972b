"""Bytes to lines to rows: every malformed file is one line with its place."""

import os
import socket
from pathlib import Path

import pytest

from adamab.errors import TaskError
from adamab.task import files
from adamab.task.files import read_lines, read_rows


def write(folder: Path, name: str, data: bytes | str) -> Path:
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def complaint(path: Path) -> str:
    """The message about `path`, with the folder taken off."""
    with pytest.raises(TaskError) as caught:
        list(read_rows(path, plain_text=True))
    assert "\n" not in str(caught.value)
    return str(caught.value).replace(f"{path.parent}/", "")


def test_lines_keep_their_ends_and_lose_the_mark(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "\ufeffone\r\n二\n\ufefflast")
    assert list(read_lines(path)) == [(1, "one\r\n"), (2, "二\n"), (3, "\ufefflast")]


def test_jsonl_rows(tmp_path: Path) -> None:
    path = write(tmp_path, "a.JSONL", '\ufeff{"text": "é", "n": 1}\r\n\r\n  {"text": "🙂"}')
    rows = list(read_rows(path))
    assert [(r.line, r.fields) for r in rows] == [(1, {"text": "é", "n": 1}), (3, {"text": "🙂"})]
    assert rows[1].place == f"{path}:3"


def test_csv_rows_with_quotes_newlines_and_mark(tmp_path: Path) -> None:
    data = '\ufefftext, label \r\n"two\r\nlines, ""quoted""",a\r\n\r\n你好,b\r\n'
    rows = list(read_rows(write(tmp_path, "a.csv", data)))
    assert [(r.line, r.fields) for r in rows] == [
        (2, {"text": 'two\r\nlines, "quoted"', "label": "a"}),
        (5, {"text": "你好", "label": "b"}),
    ]


def test_tsv_rows(tmp_path: Path) -> None:
    rows = list(read_rows(write(tmp_path, "a.tsv", "label\ttext\na\tone, two\n")))
    assert [r.fields for r in rows] == [{"label": "a", "text": "one, two"}]


def test_txt_rows_skip_blank_lines(tmp_path: Path) -> None:
    rows = list(read_rows(write(tmp_path, "a.txt", " one \n\n\r\nสอง\n"), plain_text=True))
    assert [(r.line, r.fields["text"]) for r in rows] == [(1, "one"), (4, "สอง")]


def test_rows_are_a_stream(tmp_path: Path) -> None:
    rows = read_rows(write(tmp_path, "a.jsonl", '{"text": "fine"}\nbroken\n'))
    assert next(rows).fields == {"text": "fine"}
    with pytest.raises(TaskError):
        next(rows)


@pytest.mark.parametrize(
    ("name", "data", "start", "remedy"),
    [
        ("a.jsonl", "", "a.jsonl: holds no rows", "add at least one"),
        ("a.csv", "text,label\n", "a.csv: holds no rows", "add at least one"),
        ("a.txt", "\n\n", "a.txt: holds no rows", "add at least one"),
        ("a.json", "[]", "a.json: unknown ending '.json'", "use one of .csv, .jsonl"),
        ("a", "x", "a: unknown ending ''", "use one of"),
        ("a.jsonl", "{}\n{'a': 1}", "a.jsonl:2: not valid JSON", "write one object a line"),
        ("a.jsonl", '{"text": "x"', "a.jsonl:1: not valid JSON", "column 13"),
        ("a.jsonl", '["x"]', "a.jsonl:1: '[\"x\"]' is not an object", 'write {"text": …}'),
        ("a.jsonl", '{"a": 1, "a": 2}', "a.jsonl:1: key 'a' stands there twice", "keep one"),
        ("a.jsonl", '{"a": NaN}', "a.jsonl:1: NaN is not a JSON value", "write null"),
        ("a.jsonl", '{"a": ' + "9" * 5000 + "}", "a.jsonl:1: a number too long", "simplify"),
        ("a.jsonl", "[" * 200_000, "a.jsonl:1: a number too long or nesting too deep", "simplify"),
        (
            "a.jsonl",
            b'{}\n{"text": "caf\xe9"}',
            "a.jsonl:2: byte 16 (0xe9) is not UTF-8",
            "save the file as UTF-8",
        ),
        ("a.txt", b"ok\n\xff\xfe", "a.txt:2: byte 3 (0xff) is not UTF-8", "save the file as UTF-8"),
        ("a.csv", "text\n".encode("utf-16"), "a.csv:1: the file is in UTF-16", "save it as UTF-8"),
        ("a.csv", "text\n".encode("utf-16-le"), "a.csv:1: NUL at byte 1", "save it as UTF-8"),
        ("a.csv", b"text\nab\0c", "a.csv:2: NUL at byte 7", "save it as UTF-8"),
        ("a.csv", "hello,a\nbye,b\n", "a.csv:1: no column 'text' in 'hello, a'", "header line"),
        ("a.csv", "text;label\nx;y\n", "a.csv:1: no column 'text' in 'text;label'", "text,label"),
        ("a.csv", "text,a,a\n", "a.csv:1: column 'a' stands there twice", "rename one"),
        (
            "a.csv",
            "text,label\nx,a\none, two,b\n",
            "a.csv:3: 3 fields where the header has 2",
            "double quotes",
        ),
        ("a.csv", "text,label\nx\n", "a.csv:2: 1 fields where the header has 2", "double quotes"),
        ("a.csv", 'text,label\n"open,b\nmore\n', "a.csv:2: not valid CSV", "check the quotes"),
        ("a.csv", 'text,label\n"a"b,c\n', "a.csv:2: not valid CSV", "check the quotes"),
        ("a.csv", "text\n" + "x" * 140_000, "a.csv:2: not valid CSV", "field limit"),
    ],
)
def test_malformed_files(tmp_path: Path, name: str, data: bytes | str, start: str, remedy: str) -> None:
    message = complaint(write(tmp_path, name, data))
    assert message.startswith(start)
    assert remedy in message


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LONGEST_LINE", 10)
    assert complaint(write(tmp_path, "a.txt", "short\n" + "x" * 11)).startswith("a.txt:2: the line is longer")
    assert [r.line for r in read_rows(write(tmp_path, "b.txt", "123456789\n" * 2), plain_text=True)] == [1, 2]


def test_what_is_not_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "dir.csv").mkdir()
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
    assert complaint(tmp_path / "none.csv") == "none.csv: no such file; check the path"
    assert complaint(tmp_path / "none") == "none: no such file; check the path"
    assert complaint(tmp_path / "dir.csv") == "dir.csv: is a directory; name a file in it"
    assert complaint(tmp_path / "pipe.csv").startswith("pipe.csv: is not a regular file")
    assert complaint(tmp_path / "loop.csv").startswith("loop.csv: cannot be read")
    assert complaint(tmp_path / "nul\0.csv").startswith("nul\\x00.csv: cannot be read")
    assert complaint(tmp_path / "line\nbreak.csv").startswith("line\\nbreak.csv: no such file")


def test_a_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's name must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s.csv")
        assert "not a regular file" in complaint(tmp_path / "s.csv")


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs Linux")
def test_a_read_that_fails_half_way_is_refused() -> None:
    with pytest.raises(TaskError, match=r"^/proc/self/mem: cannot be read \(Input/output error\)"):
        list(read_lines(Path("/proc/self/mem")))
