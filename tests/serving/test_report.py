"""The report of a run: one file that needs nothing, says what is known, and keeps quiet where asked to."""

import json
import os
import re
import shutil
from contextlib import closing
from html.parser import HTMLParser

import pytest

from adamab.errors import RunError
from adamab.providers.sqlite_file import WriterLock
from adamab.run.directory import HELD_OUT, SUMMARY, TASK
from adamab.run.run_log import ROUND, Journal
from adamab.serving.report import report_html, write_report
from adamab.task.recipe import Recipe
from adamab.task.spec import Task
from adamab.testing import HashEmbedder
from tests.fitting import Order, fit_run
from tests.serving.conftest import write_rounds

RECIPE = Recipe(batch=2, rounds_per_class=2)
ODD = {
    "<script>alert(1)</script>": ["<img src=x onerror=alert(2)> zebra", "</q></style><b>yak {{ 7 * 7 }}"],
    "مديح \u202e": ["منتج رائع walrus \u202eabc", "أحب فريقكم penguin"],
    "🙂 'a' & \"b\"": ["👍🏽 ocelot " + "w" * 5000, "half \ud83d a character, badger"],
}
SECRETS = ("zebra", "yak", "walrus", "penguin", "ocelot", "badger", "gnu", "ibex", "wwwww", "رائع", "onerror")
VOID = {"meta", "img", "br", "rect", "line", "polyline"}
ALLOWED = re.compile(
    "html|head|title|style|body|main|header|section|div|figure|figcaption|h1|h2|h3|p|ul|li|dl|dt|dd|table|"
    "thead|tbody|tr|th|td|span|strong|code|bdi|q|svg|text|" + "|".join(VOID)
)


class Page(HTMLParser):
    """Checks that a page is well formed, and holds nothing that runs or loads."""

    def __init__(self, text):
        super().__init__()
        self.open = []
        self.seen = []
        self.addresses = []
        self.texts = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        assert ALLOWED.fullmatch(tag), tag
        self.seen.append(tag)
        for name, value in attrs:
            assert not name.startswith("on"), (tag, name)
            if name in ("src", "href", "action", "data", "srcset"):
                self.addresses.append(value or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self):
        return re.sub(r"\s+", " ", " ".join(self.texts))


def fitted(path, given, **options):
    descriptions = {name: f"<i>all of</i> {name}" for name in given}
    task = Task.from_mapping(given, descriptions=descriptions, name="odd <b>")
    options.setdefault("recipe", RECIPE)
    fit_run(Order(task, HashEmbedder(), "st:/home/somebody/m", **options), path)
    return path


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """A finished run of texts of all kinds, with synthetic ones and some that the gate kept out."""
    place = tmp_path_factory.mktemp("odd")
    rows = [{"label": name, "text": f"gnu {i // 2} of {name}"} for name in ODD for i in range(6)]
    rows += [{"label": name, "text": f"ibex {i} <u>"} for name in ODD for i in range(2)]
    (place / "pool.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = f"replay:{place / 'pool.jsonl'}"
    run = fitted(place / "run", ODD, generator=spec)
    (run / HELD_OUT).write_text(_wrong_answers(run))  # so that every given sample is an example
    return run


def test_one_file_says_what_is_known_and_loads_nothing(odd):
    text = report_html(odd)
    page = Page(text)
    assert page.addresses == []
    assert "script" not in page.seen
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:" in text
    assert not re.search(r"https?://|url\(|@import", text)
    summary = json.loads((odd / SUMMARY).read_text("utf-8"))
    kept_out = sum(sum(reasons.values()) for reasons in summary["rejected"].values())
    assert kept_out > 0
    for words in (
        f"{100 * summary['estimate']['accuracy']:.1f} % right",
        "No paid calls",
        f"{kept_out} repeat",
        f"scipy {summary['packages']['scipy']}",
        "within_share",
        "half � a character",
        "{{ 7 * 7 }}",
        "st:m",
        *ODD,
    ):
        assert words in page.text, words
    assert page.seen.count("figure") == 3  # choices, loss, matrix
    assert text.encode()  # no half of a character
    assert "w" * 400 not in text  # long texts are cut
    assert "ibex" in page.text.partition("Quality gate")[2]
    assert "/home/" not in text
    assert str(odd.parent) not in text


def test_without_samples_no_text_of_one_is_in_the_file(odd):
    whole, silent = report_html(odd), report_html(odd, samples=False)
    assert [secret for secret in SECRETS if secret not in whole] == ["gnu"]  # it entered, and is no example
    assert [secret for secret in SECRETS if secret in silent] == []
    assert "&lt;i&gt;all of&lt;/i&gt;" in silent  # descriptions are the task's wording
    assert len(Page(silent).text) > 3000


def test_images_are_small_few_and_those_of_the_fit(image_run, tmp_path, monkeypatch):
    (image_run / HELD_OUT).write_text(_wrong_answers(image_run))
    page = Page(report_html(image_run))
    assert len(page.addresses) == 9
    assert all(a.startswith("data:image/jpeg;base64,") and len(a) < 20_000 for a in page.addresses)
    with monkeypatch.context() as few:
        few.setattr("adamab.serving.report.MOST_THUMBNAILS", 2)
        assert len(Page(report_html(image_run)).addresses) == 2
    given = sorted((tmp_path / "given" / "red").iterdir())
    given[0].unlink()
    shutil.copy(given[1], given[2])
    page = Page(report_html(image_run))
    assert len(page.addresses) == 7
    assert page.text.count("(an image that is not shown)") == 2
    text = report_html(image_run, samples=False)
    assert Page(text).addresses == []
    assert "image:" not in text
    for file in [*image_run.rglob("*.*"), *(tmp_path / "given").rglob("*.png")]:
        assert file.name not in text or file.name == "history.jsonl"
        assert file.stem not in text or len(file.stem) < 32


def _wrong_answers(run):
    """Every given sample taken for another class."""
    task = json.loads((run / TASK).read_bytes().decode("utf-8", "surrogatepass"))
    names = [spec["name"] for spec in task["classes"]]
    lines = []
    for sample in task["samples"]:
        wrong = names[names.index(sample["label"]) - 1]
        row = {"label": sample["label"], "text": sample["text"], "predicted": wrong, "probability": 0.5}
        lines.append(json.dumps(row) + "\n")
    return "".join(lines)


def test_a_run_that_is_not_finished_says_so(odd, tmp_path):
    run = shutil.copytree(odd, tmp_path / "run")
    for name in (SUMMARY, HELD_OUT):
        (run / name).unlink()
    with Journal(run) as journal:
        record = next(iter(journal.events(ROUND))).data
    with Journal(run, writing=True) as journal:
        journal.note(ROUND, record)
    page = Page(report_html(run))
    assert "This run broke off before its end." in page.text
    assert "generator replay:pool.jsonl" in page.text
    lock = WriterLock(run)
    try:
        assert "This run is still being fitted." in Page(report_html(run)).text
    finally:
        lock.release()


@pytest.mark.parametrize(("classes", "rounds"), [(2, 2000), (400, 30)])
def test_large_runs_are_boiled_down(tmp_path, classes, rounds):
    given = {f"class {i}": [f"word{i} thing", f"word{i} stuff"] for i in range(classes)}
    recipe = RECIPE.with_options(words=False)
    run = fitted(tmp_path / "run", given, recipe=recipe)
    write_rounds(run, list(given), rounds)
    text = report_html(run)
    page = Page(text)
    assert len(text) < 400_000
    assert max(len(points.split()) for points in re.findall(r'points="([^"]*)"', text)) <= 200
    if rounds > 1000:
        assert "1,960 rounds between these are not shown" in page.text
        assert "200 of 2,000 rounds drawn" in page.text
    else:
        assert "the 24 hardest of 400 classes" in page.text
        assert "Not shown here: 300 classes" in page.text
        assert "Not shown here: 376 classes, chosen less often" in page.text


def test_a_report_of_the_same_run_is_replaced_and_nothing_else(odd, tmp_path):
    file, notes = tmp_path / "report.html", tmp_path / "notes.html"
    first = write_report(odd, file)
    assert (first.path, first.bytes, first.replaced) == (file, file.stat().st_size, False)
    assert write_report(odd, file, samples=False).replaced
    other = fitted(tmp_path / "other", {"a": ["one thing"], "b": ["another"]})
    page = Page(report_html(other))
    assert "nothing was generated" in page.text
    assert "Nothing was held out" in page.text
    notes.write_text("<p>mine")
    before = file.read_bytes()
    for run, place, words in (
        (other, file, "is the report of another run; name another file with -o"),
        (odd, notes, "is there and is no report"),
        (odd, tmp_path, "is a directory; name a file"),
        (odd, odd / "report.html", "lies among the run's own files"),
        (odd, tmp_path / "nowhere" / "report.html", "no such directory; make it"),
        (tmp_path, file, "holds no run"),
    ):
        with pytest.raises(RunError, match=words):
            write_report(run, place)
    assert (file.read_bytes(), notes.read_text()) == (before, "<p>mine")


def test_what_cannot_be_written_or_read_leaves_the_earlier_report(odd, tmp_path, monkeypatch):
    run, file = shutil.copytree(odd, tmp_path / "run"), tmp_path / "report.html"
    write_report(run, file)
    before = file.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "replace", full)
        with pytest.raises(RunError, match="cannot be written"):
            write_report(run, file, samples=False)
    summary = json.loads((run / SUMMARY).read_text("utf-8"))
    (run / SUMMARY).write_text(json.dumps({**summary, "estimate": {"accuracy": "high"}}))
    with pytest.raises(RunError, match="damaged or were edited"):
        write_report(run, file)
    assert file.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "run"]


def test_a_browser_runs_nothing_loads_nothing_and_needs_no_sideways_scrolling(odd, tmp_path, chromium):
    write_report(odd, tmp_path / "report.html")
    address = (tmp_path / "report.html").as_uri()
    for width in (1200, 390):
        requests = []
        messages = []
        with closing(chromium.new_page(viewport={"width": width, "height": 800})) as page:
            page.on("request", lambda request, urls=requests: urls.append(request.url))
            page.on("dialog", lambda dialog, said=messages: (said.append(dialog.message), dialog.dismiss()))
            page.on("console", lambda message, said=messages: said.append(message.text))
            page.goto(address)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.locator("h1").inner_text() == "odd <b>"
        assert messages == []
        assert requests == [address]
