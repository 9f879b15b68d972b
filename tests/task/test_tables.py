"""Data files as rows, samples and texts: every malformed file is one line with its place."""

import json
import os
import zipfile
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adamab.errors import TaskError
from adamab.task import table_files
from adamab.task.spec import Sample
from adamab.task.table_files import TableOptions, read_lines
from adamab.task.tables import TextRow, placed_samples, read_rows, read_samples, read_texts


def write(folder, name, data):
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def complaint(path):
    """The message about `path`, with the folder taken off."""
    with pytest.raises(TaskError) as caught:
        list(read_rows(path, plain_text=True))
    assert "\n" not in str(caught.value)
    return str(caught.value).replace(f"{path.parent}/", "")


def test_jsonl_rows(tmp_path):
    path = write(tmp_path, "a.JSONL", '\ufeff{"text": "é", "n": 1}\r\n\r\n  {"text": "🙂"}')
    rows = list(read_rows(path))
    assert [(r.line, r.fields) for r in rows] == [(1, {"text": "é", "n": 1}), (3, {"text": "🙂"})]
    assert rows[1].place == f"{path}:3"


def test_csv_rows_with_quotes_newlines_and_mark(tmp_path):
    data = '\ufefftext, label \r\n"two\r\nlines, ""quoted""",a\r\n\r\n你好,b\r\n'
    rows = list(read_rows(write(tmp_path, "a.csv", data)))
    assert [(r.line, r.fields) for r in rows] == [
        (2, {"text": 'two\r\nlines, "quoted"', "label": "a"}),
        (5, {"text": "你好", "label": "b"}),
    ]


@pytest.mark.parametrize(
    ("name", "data", "start", "remedy"),
    [
        ("a.jsonl", "", "a.jsonl: holds no rows", "add at least one"),
        ("a.csv", "text,label\n", "a.csv: holds no rows", "add at least one"),
        ("a.txt", "\n\n", "a.txt: holds no rows", "add at least one"),
        ("a.json", "[]", "a.json: unknown ending '.json'", "use one of .csv, .jsonl"),
        ("a.jsonl", "{}\n{'a': 1}", "a.jsonl:2: not valid JSON", "write one object per line"),
        ("a.jsonl", '["x"]', "a.jsonl:1: '[\"x\"]' is not an object", 'write {"text": …}'),
        ("a.jsonl", '{"a": 1, "a": 2}', "a.jsonl:1: key 'a' stands there twice", "keep one"),
        ("a.jsonl", '{"a": NaN}', "a.jsonl:1: NaN is not a JSON value", "write null"),
        ("a.jsonl", '{"a": ' + "9" * 5000 + "}", "a.jsonl:1: a number too long", "simplify"),
        ("a.jsonl", "[" * 200_000, "a.jsonl:1: a number too long or nesting too deep", "simplify"),
        ("a.txt", b"ok\n\xff\xfe", "a.txt:2: byte 3 (0xff) is not UTF-8", "save the file as UTF-8"),
        (
            "a.csv",
            "text\n".encode("utf-16-le"),
            "a.csv:1: NUL at byte 1, not a text file",
            "try --encoding utf-16-le",
        ),
        ("a.csv", b"text\nab\0c", "a.csv:2: NUL at byte 7", "save the file as UTF-8"),
        ("a.csv", "hello,a\nbye,b\n", "a.csv:1: no column 'text' in 'hello, a'", "header line"),
        ("a.csv", "text,a,a\n", "a.csv:1: column 'a' stands there twice", "rename one"),
        ("a.csv", "text,label\nx\n", "a.csv:2: 1 fields where the header has 2", "double quotes"),
        ("a.csv", 'text,label\n"open,b\nmore\n', "a.csv:2: not valid CSV", "check the quotes"),
        ("a.csv", 'text,label\n"a"b,c\n', "a.csv:2: not valid CSV", "check the quotes"),
        (
            "a.csv",
            "text,label\ra,b\r",
            "a.csv:1: not valid CSV (lines that end in a carriage return",
            "check",
        ),
        (
            "a.csv",
            "Report of 2024\n\nid;text\n1;a, b\n",
            "a.csv:1: 'Report of 2024' stands alone",
            "line 3 is",
        ),
        (
            "a.csv",
            "Report,,\nid,text,n\n1,a,b\n",
            "a.csv:1: 'Report' stands alone",
            "if line 2 is the header",
        ),
        ("a.tsv", "Report\nid\ttext\n1\ta\n", "a.tsv:1: 'Report' stands alone", "remove what is above it"),
        ("a.csv", "text\n" + "x" * 140_000, "a.csv:2: not valid CSV", "field limit"),
    ],
)
def test_malformed_files(tmp_path, name, data, start, remedy):
    message = complaint(write(tmp_path, name, data))
    assert message.startswith(start)
    assert remedy in message


def test_a_line_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(table_files, "LONGEST_LINE", 10)
    assert complaint(write(tmp_path, "a.txt", "short\n" + "x" * 11)).startswith("a.txt:2: the line is longer")
    assert [r.line for r in read_rows(write(tmp_path, "b.txt", "123456789\n" * 2), plain_text=True)] == [1, 2]


def test_what_is_not_a_file_is_refused(tmp_path):
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


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs Linux")
def test_a_read_that_fails_half_way_is_refused():
    with pytest.raises(TaskError, match=r"^/proc/self/mem: cannot be read \(Input/output error\)"):
        list(read_lines(Path("/proc/self/mem")))


FUZZ = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def jsonl(folder, *rows):
    path = folder / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_samples_of_every_format_are_the_same(tmp_path):
    expected = [Sample("one, two", "a", id="7"), Sample("三", "b")]
    rows = jsonl(tmp_path, {"text": " one, two ", "label": "a", "id": 7}, {"class": " b", "text": "三"})
    (tmp_path / "a.csv").write_text('id,text,label\n7,"one, two",a\n,三,b\n', encoding="utf-8-sig")
    (tmp_path / "a.tsv").write_text("id\ttext\tclass\r\n7\tone, two\ta\r\n\t三\tb\r\n")
    assert read_samples(rows, ["a", "b"]) == expected
    assert read_samples(str(tmp_path / "a.csv")) == expected
    assert read_samples(tmp_path / "a.tsv", {"a", "b"}) == expected


TEXTS = ["where is my parcel today", "the parcel is late", "I cannot sign in", "my password fails"]
TEAMS = ["post", "post", "login", "login"]


def rows_with(**columns):
    names = list(columns)
    return [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)]


@pytest.mark.parametrize(
    ("columns", "options", "expected"),
    [
        ({"Message": TEXTS, "Intent": TEAMS}, {}, ("Message", "Intent")),
        ({"nr": "abcd", "Anfrage": TEXTS, "an": TEAMS, "am": "1234"}, {}, ("Anfrage", "an")),
        ({"text": TEXTS, "title": TEXTS, "team": TEAMS}, {}, ("text", "team")),
        ({"title": "wxyz", "body": TEXTS, "content": ["-"] * 4, "topic": TEAMS}, {}, ("body", "topic")),
        ({"text": TEAMS, "long": TEXTS, "label": "abcd"}, {"text_column": "long", "label_column": "text"},
         ("long", "text")),
        ({"id": "abcd", "a": TEXTS, "n": TEAMS}, {"id_column": "n", "label_column": "id"}, ("a", "id")),
        ({"a": TEXTS, "b": TEXTS, "label": TEAMS}, {}, "no column 'text' in 'a, b, label'"),
        ({"text": TEXTS, "a": TEAMS, "b": TEAMS}, {}, "no 'label' \\(or 'class'\\) in 'text, a, b'"),
        ({"text": TEXTS, "a": TEAMS}, {"label_column": "A"}, "--label-column: no column 'A'"),
        ({"text": TEXTS, "nr": "1234"}, {}, "no 'label' \\(or 'class'\\) in 'text, nr'"),
        ({"text": TEXTS, "a": "xxyz"}, {}, ("text", "a")),
        ({TEXTS[0] + " and why is it so late?": TEXTS, "x": TEAMS}, {}, "start with a header line"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet", "xlsx"])
def test_obvious_columns_are_recognised_and_said(tmp_path, ending, columns, options, expected):
    path, rows = tmp_path / f"a.{ending}", rows_with(**columns)
    if ending == "csv":
        lines = [";".join(row) for row in (columns, *(row.values() for row in rows))]
        path.write_text("\n".join(lines), "utf-8-sig")
    elif ending == "jsonl":
        jsonl(tmp_path, *rows)
    elif ending == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        spreadsheet(path, list(columns), *(list(row.values()) for row in rows))
    notes = []
    options = TableOptions(**options, note=notes.append)
    if isinstance(expected, str):
        if ending == "jsonl":
            expected = expected.replace("no column 'text' in 'a, b, label'", "no 'text' in the row")
            expected = expected.replace("start with a header line", "no 'text' in the row")
        with pytest.raises(TaskError, match=expected):
            read_samples(path, options=options)
        return
    text, label = expected
    samples = read_samples(path, options=options)
    assert [(sample.text, sample.class_name) for sample in samples] == [
        (row[text], row[label]) for row in rows
    ]
    if options.text_column is None and text != "text":
        assert f"note: taking column '{text}' for the texts; --text-column names another" in notes
    guessed = [text not in ("text", options.text_column), label not in ("label", options.label_column)]
    assert len(notes) == sum(guessed)


def spreadsheet(path, *rows):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.save(path)
    return path


def test_cells_of_a_spreadsheet_are_texts(tmp_path):
    moment = datetime(2024, 3, 1, 12, 30)
    path = spreadsheet(
        tmp_path / "a.xlsx",
        ["text", "label", "at"],
        ["a", 3.0, moment],
        [],
        [7, True],
        ["x", 0.5, None, "a note"],
    )
    assert [(row.line, list(row.fields.values())) for row in read_rows(path)] == [
        (2, ["a", "3", "2024-03-01 12:30:00"]),
        (4, ["7", "TRUE", ""]),
        (5, ["x", "0.5", ""]),
    ]
    assert [sample.class_name for sample in read_samples(path)] == ["3", "TRUE", "0.5"]


@pytest.mark.parametrize(
    ("limit", "value", "message"),
    [
        ("MOST_UNPACKED", 3 * 2**20, "a.xlsx: holds more than 3 MB when unpacked; save it as CSV"),
        ("MOST_ROWS", 50, "a.xlsx:51: more than 50 rows or 1,000 columns"),
        ("MOST_COLUMNS", 1, "a.xlsx:1: more than 1,048,576 rows or 1 columns"),
    ],
)
def test_spreadsheets_have_limits(tmp_path, monkeypatch, limit, value, message):
    path = spreadsheet(tmp_path / "a.xlsx", ["text", "label"], *[["x" * 30_000, "y"]] * 200)
    assert path.stat().st_size < 200_000  # unpacked it is six million
    monkeypatch.setattr(table_files, limit, value)
    assert complaint(path).startswith(message)


def test_empty_cells_count_as_columns_of_a_spreadsheet(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["text", "label"])
    book.active.cell(2, 16_384).number_format = "0"  # empty, and yet all before it are looked at
    book.save(tmp_path / "a.xlsx")
    assert complaint(tmp_path / "a.xlsx").startswith("a.xlsx:2: more than 1,048,576 rows or 1,000 columns")


def test_a_title_above_the_header_of_a_spreadsheet_is_refused(tmp_path):
    path = spreadsheet(tmp_path / "a.xlsx", ["Report of 2024"], [], ["at", "text"], ["today", "my money"])
    assert complaint(path).startswith(
        "a.xlsx:1: 'Report of 2024' stands alone above rows of several cells; if line 3 is the header, remove"
    )
    path = spreadsheet(tmp_path / "b.xlsx", [None, "text"], [0, "my money"], [1, "more"])
    assert [row.fields["text"] for row in read_rows(path)] == ["my money", "more"]


def test_what_is_no_spreadsheet_is_one_line(tmp_path):
    pytest.importorskip("openpyxl")
    whole = spreadsheet(tmp_path / "b.xlsx", ["text"], ["x"]).read_bytes()
    for data in (
        b"",
        b"PK",
        b"text,label",
        whole[:-100],
        whole.replace(b"xl/workbook.xml", b"xl/workbo0k.xml"),
    ):
        assert complaint(write(tmp_path, "a.xlsx", data)).startswith("a.xlsx: is no XLSX file (")
    bomb = (
        '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">'
        + "".join(f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">' for n in range(9))
        + "]>"
    )
    with zipfile.ZipFile(tmp_path / "b.xlsx") as archive, zipfile.ZipFile(tmp_path / "a.xlsx", "w") as bad:
        for name in archive.namelist():
            content = archive.read(name).decode()
            if "sheet1" in name:
                content = bomb + content.replace("<sheetData>", "<sheetData><x>&j;</x>")
            bad.writestr(name, content)
    assert complaint(tmp_path / "a.xlsx").startswith("a.xlsx: is no XLSX file (")


@pytest.mark.parametrize(
    ("data", "options", "text"),
    [
        ("text;label\nÄpfel, Öl;a", {"encoding": "cp1252"}, "Äpfel, Öl"),
        ("sep=;\r\ntext;label\r\n1,5;a", {}, "1,5"),
        ("text\tlabel\n1,5\ta", {}, "1,5"),
        ("text|label\n1,5|a", {}, "1,5"),
        ("text;label;price, EUR, net\none, two, three;a;0,5", {}, "one, two, three"),
        ("text~label\n1,5~a", {"delimiter": "~"}, "1,5"),
        ("text\tlabel\n你好\ta", {"delimiter": "tab", "encoding": "gb18030"}, "你好"),
        ("text,label\nç,a", {"encoding": "utf-16"}, "ç"),
        ("\ufefftext,label\nç,a", {"encoding": "UTF8"}, "ç"),
        ("\ufefftext,label\nç,a", {"encoding": "utf-16-be"}, "ç"),
    ],
)
def test_delimiters_and_encodings(tmp_path, data, options, text):
    path = write(tmp_path, "a.csv", data.encode(options.get("encoding", "utf-8")))
    assert read_samples(path, options=TableOptions(**options)) == [Sample(text, "a")]
    assert table_files.count_rows(path, "csv", TableOptions(**options)) == 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"sep=\xa7\ntext\xa7label\na\xa7b\n", "a.csv:1: byte 4 (0xa7) is not UTF-8; a guess is cp1252"),
        (b'sep="\ntext"label\n', "a.csv:1: delimiter '\"' divides no cells; use one character"),
        (b"sep=\0\ntext,label\n", "a.csv:1: NUL at byte 4"),
    ],
)
def test_a_stated_delimiter_that_is_none_is_one_line(tmp_path, data, message):
    assert complaint(write(tmp_path, "a.csv", data)).startswith(message)
    encoded = write(tmp_path, "a.csv", "sep=§\ntext§label\na,b§c\n".encode("cp1252"))
    assert read_samples(encoded, options=TableOptions(encoding="cp1252")) == [Sample("a,b", "c")]


@pytest.mark.parametrize(
    ("text", "encoding", "likely"),
    [
        ("Grüße für Renée", "cp1252", "cp1252"),
        ("“quoted” – naïve", "cp1252", "cp1252"),
        ("верните мне деньги, пожалуйста", "cp1251", "cp1251"),
        ("请退款,发票不对", "gb18030", "gb18030"),
        ("x\x81é", "latin-1", "latin-1"),
        ("Grüße", "utf-16", "utf-16"),
        ("Grüße", "utf-16-be", "utf-16-be"),
    ],
)
def test_the_likely_encoding_is_named(tmp_path, text, encoding, likely):
    message = complaint(write(tmp_path, "a.txt", text.encode(encoding)))
    assert (
        f"a guess is {likely}: try --encoding {likely} and look at the letters, or save the file as UTF-8"
        in message
    )


@pytest.mark.parametrize(
    ("text", "written", "encoding", "warning"),
    [
        (
            "Bitte überweisen",
            "utf-8",
            "cp1252",
            "'Bitte Ã¼berweisen' looks like UTF-8 that was read as cp1252; leave",
        ),
        ("请退款", "utf-8", "latin-1", "looks like UTF-8 that was read as latin-1"),
        ("Bitte Ã¼berweisen", "utf-8", None, "looks like UTF-8 that was read as cp1252; save the file again"),
        ("Bitte überweisen", "utf-8", None, None),
        ("Bitte überweisen, Ã¼", "utf-8", None, None),
        ("Bitte überweisen", "cp1252", "cp1252", None),
        ("请退款,发票不对", "gb18030", "gb18030", None),
    ],
)
def test_texts_in_a_wrong_encoding_are_warned_of(tmp_path, text, written, encoding, warning):
    path, notes = write(tmp_path, "a.csv", f'text,label\nplain,a\n"{text}",a\n'.encode(written)), []
    read_samples(path, options=TableOptions(encoding=encoding, note=notes.append))
    assert [warning in note for note in notes] == [True] * (warning is not None)


def test_numbers_of_a_parquet_file_are_labels_and_nan_is_none(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["x", "y"], "label": [0.0, float("nan")]}), path)
    rows = placed_samples(path, None)
    assert next(rows)[1].class_name == "0"
    with pytest.raises(TaskError, match=r"a\.parquet:2: 'label' is empty"):
        next(rows)
    pq.write_table(pa.table({"text": ["x"], "label": [True]}), path)
    with pytest.raises(TaskError, match="'True', not a text; save the column as texts"):
        read_samples(path)


def test_texts_keep_their_fields(tmp_path):
    path = jsonl(tmp_path, {"id": "k", "text": " hi ", "more": [1]}, {"text": "yo"})
    rows = list(read_texts(path))
    assert rows[0] == TextRow("hi", {"id": "k", "text": " hi ", "more": [1]}, 1, "k")
    assert [row.id for row in rows] == ["k", None]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"label": "a"}, r"no 'text' in the row \(known: label\); add it"),
        ({"label": "a", "Text": "x"}, r"no 'text' in the row \(did you mean 'Text'\?\); add it"),
        ({"text": "x"}, "no 'label' \\(or 'class'\\)"),
        ({"text": "x", "label": "a", "class": "a"}, "both 'label' and 'class'"),
        ({"text": "", "label": "a"}, "'text' is empty"),
        ({"text": "\u200b \n", "label": "a"}, "'text' is empty"),
        ({"text": 1.5, "label": "a"}, "'text' is '1.5', not a text; put it in double quotes"),
        ({"text": None, "label": "a"}, "'text' is empty; put a text there"),
        ({"text": "x", "label": 3.5}, "'label' is '3.5', not a text"),
        ({"text": "x", "label": " "}, "'label' is empty"),
        (
            {"text": "NaN", "label": "N/A"},
            "'label' is 'N/A', as programs write a missing one; remove the row",
        ),
        ({"text": "x", "label": ["a"]}, "'label' is .* a text has one class"),
        ({"text": "\ud800", "label": "a"}, "half a character"),
        ({"text": "a\0", "label": "a"}, "holds a NUL"),
        ({"text": "x", "label": "a", "id": [1]}, "'id' is"),
        ({"text": "x", "label": "a", "id": True}, "'id' is 'True'"),
        ({"text": "x", "label": "churn"}, "unknown class 'churn'; did you mean 'churns'"),
        ({"text": "x", "label": "zzz"}, "unknown class 'zzz'; known: a, churns"),
    ],
)
def test_malformed_rows_are_named_with_their_line(tmp_path, row, message):
    path = jsonl(tmp_path, {"text": "fine", "label": "a"}, row)
    with pytest.raises(TaskError, match=f"a.jsonl:2: .*{message}") as caught:
        read_samples(path, ["a", "churns"])
    assert "\n" not in str(caught.value)


@FUZZ
@given(
    data=st.binary() | st.text().map(str.encode) | st.text('"{},:\\\n\r\t textlabel').map(str.encode),
    head=st.sampled_from([b"", b"text,label\n", b"text\tlabel\n", b'{"text": "x", "label": "y"}\n']),
    name=st.sampled_from(["a.jsonl", "a.csv", "a.tsv", "a.txt"]),
)
@pytest.mark.parametrize("reader", [read_samples, lambda path: list(read_texts(path))])
def test_no_bytes_escape_as_a_traceback(tmp_path, reader, data, head, name):
    (tmp_path / name).write_bytes(head + data)
    message = name
    try:
        assert reader(tmp_path / name)
    except TaskError as exc:
        message = str(exc)
    assert message.isprintable()
    assert name in message
