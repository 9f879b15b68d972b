"""The JSON behind the page, over a real socket."""

import base64
import json
import re
import shlex
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from adamab.model import load, save
from adamab.run.add_class import Addition, add_class
from adamab.run.directory import read_task
from adamab.run.reviews import Reviews
from adamab.run.run_log import ROUND, Journal
from adamab.serving import page
from adamab.serving._run_view import overview
from adamab.serving.page import OPEN_PATHS, POLICY
from adamab.serving.requests import Access
from adamab.serving.run_reader import RunReader
from adamab.task.spec import Sample
from adamab.testing import HashEmbedder, PixelEmbedder
from tests.fitting import fit_run
from tests.serving.conftest import HOSTILE


@pytest.fixture
def server(live, shown_run):
    return live(shown_run, HashEmbedder(width=16))


def got(server, path, **query):
    response = server.get(path, params=query)
    assert response.status_code == 200, response.text
    return dict(response.json())


def said(server, path, content, **headers):
    return httpx.post(f"{server.url}{path}", json=content, headers=headers, timeout=30)


def test_the_page_runs_its_own_scripts_only(shown_server):
    index = shown_server.get("/")
    assert index.status_code == httpx.head(f"{shown_server.url}/").status_code == 200
    assert index.headers["content-security-policy"] == POLICY
    for directive in ("default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'"):
        assert directive in POLICY
    assert "unsafe" not in POLICY
    asked = re.findall(r'(?:src|href)="([^"#]+)"', index.text)
    files = {f"web/{name}" for name in ("app.js", "look.css", "style.css", "theme.js", "icon.svg")}
    assert set(asked) == {*files, "docs"}
    assert " style=" not in index.text
    kinds = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
    for path in OPEN_PATHS - {"/", "/docs", "/healthz"}:
        file = shown_server.get(path)
        assert file.status_code == 200
        assert file.headers["content-type"].startswith(kinds[path.rpartition(".")[2]])
        assert re.findall(r"https?://[^\"'\s]+", file.text.replace("http://www.w3.org/2000/svg", "")) == []


@pytest.mark.parametrize("name", ["../page.py", "..%2fpage.py", "%2e%2e/page.py", "none.js", ""])
def test_nothing_else_is_served_as_a_file(shown_server, name):
    assert shown_server.get(f"/web/{name}").status_code == 404


def test_the_run_in_short(shown_server, first_shown_run):
    known = got(shown_server, "/v1/run")
    summary = json.loads((first_shown_run / "fit.json").read_text())
    assert known["state"] == "finished"
    assert known["task"] == 'server_state <i>of "ours"</i>'
    assert known["given"] == 13
    assert (known["synthetic"], known["rounds"]) == (summary["synthetic"], summary["rounds"])
    assert known["estimate"] == summary["estimate"]
    assert known["generator"] == "replay"  # no file name
    assert known["model"]["digest"] == shown_server.service.model.digest
    assert known["model"]["newer"] is False
    assert known.pop("refit") == f"adamab fit --run {first_shown_run}"
    assert str(first_shown_run.parent) not in json.dumps(known)
    assert known["kept_out"] == sum(n for counts in summary["rejected"].values() for n in counts.values())


def test_rounds_come_latest_first_and_after_a_known_one(shown_server, first_shown_run):
    with RunReader(first_shown_run) as reader:
        seqs = [r.seq for r in reader.rounds()]
    first = got(shown_server, "/v1/run/rounds", limit=3)
    assert [r["seq"] for r in first["rounds"]] == seqs[::-1][:3]
    assert first["more"] is True
    older = got(shown_server, "/v1/run/rounds", before=first["rounds"][-1]["seq"])
    assert [r["seq"] for r in older["rounds"]] == seqs[::-1][3:]
    assert got(shown_server, "/v1/run/rounds", after=seqs[-1])["rounds"] == []
    why = first["rounds"][0]["why"]
    assert why["score"] == pytest.approx(why["bonus"] - why["shift"], abs=1e-3)


def test_figures_and_classes_and_confusion(shown_server, first_shown_run):
    figures = got(shown_server, "/v1/run/figures")
    names = {one["class"] for one in figures["classes"]}
    assert names == {one["class"] for one in got(shown_server, "/v1/run/classes")["classes"]}
    assert all(len(one["counts"]) == len(figures["rounds"]) for one in figures["classes"])
    marks = sum(count for one in figures["classes"] for _, count in one["strip"])
    assert marks == len(figures["rounds"]) == len(figures["columns"])
    confusion = got(shown_server, "/v1/run/confusion")
    assert sum(map(sum, confusion["matrix"])) == confusion["held_out"] == 13
    assert [one["class"] for one in got(shown_server, "/v1/run/classes", q="SIGN", limit=5)["classes"]] == []
    (login,) = got(shown_server, "/v1/run/classes", q="logi")["classes"]
    detail = got(shown_server, "/v1/run/class", name="login")
    assert detail["given_samples"][0]["text"] == "cannot sign in today"
    assert login.items() <= detail.items()
    assert shown_server.get("/v1/run/class", params={"name": "nobody"}).status_code == 404


def test_samples_are_filtered_counted_and_paged(shown_server):
    every = got(shown_server, "/v1/run/samples", source="synthetic", limit=200)
    assert every["total"] == len(every["samples"]) == every["counts"]["sources"]["synthetic"]
    half = got(shown_server, "/v1/run/samples", source="synthetic", offset=5, limit=3)
    assert half["samples"] == every["samples"][5:8]
    of_class = got(shown_server, "/v1/run/samples", **{"class": "login", "source": "synthetic"})
    assert {one["class"] for one in of_class["samples"]} == {"login"}
    used = got(shown_server, "/v1/run/samples", reason="used", source="synthetic", limit=200)
    assert used["total"] == every["counts"]["reasons"]["used"]
    out = got(shown_server, "/v1/run/samples", reason="any", source="synthetic")
    assert out["total"] == every["counts"]["reasons"].get("any", 0) > 0
    assert not any(one["used"] for one in out["samples"])
    assert got(shown_server, "/v1/run/samples", q="<SCRIPT>")["total"] == 1
    assert shown_server.get("/v1/run/samples", params={"limit": 1000}).status_code == 422


def synthetic(server):
    return dict(got(server, "/v1/run/samples", reason="used", source="synthetic", limit=1)["samples"][0])


def test_pages_of_other_sites_cannot_change_anything(server, shown_run):
    review = {"ids": [synthetic(server)["id"]], "verdict": "reject"}
    for name, value in (
        ("Origin", "http://evil.example"),
        ("Origin", "null"),
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),
    ):
        assert said(server, "/v1/run/reviews", review, **{name: value}).status_code == 403
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        text = httpx.post(
            f"{server.url}/v1/run/reviews", content=json.dumps(review), headers={"Content-Type": kind}
        )
        assert text.status_code == 415
    for path in ("reload", "examples?class=login", "moves", "classes", "fit"):
        refused = said(server, f"/v1/run/{path}", {"text": "a"}, **{"Sec-Fetch-Site": "cross-site"})
        assert refused.status_code == 403
    assert Reviews(shown_run).latest() == {}
    own = {"Origin": server.url, "Sec-Fetch-Site": "same-origin"}
    assert said(server, "/v1/run/reviews", review, **own).status_code == 200


def test_an_answer_is_explained(shown_server):
    explanation = said(shown_server, "/v1/explain", {"text": "money back now"}).json()
    (known,) = shown_server.post(text="money back now").json()["results"]
    assert explanation["classes"][0]["class_name"] == known["class"]
    assert explanation["classes"][0]["after"] == pytest.approx(known["probability"], abs=1e-4)
    assert explanation["compared_with"] == "descriptions"
    assert len(explanation["given"]) == len(explanation["synthetic"]) == 5
    assert explanation["why_not"] is None
    for wrong in ({}, {"texts": ["a", "b"]}, {"text": ""}, {"image": 1}):
        assert said(shown_server, "/v1/explain", wrong).status_code == 422


def test_a_saved_model_has_a_page_without_a_run(live, text_model):
    server = live(text_model, HashEmbedder(width=16))
    known = got(server, "/v1/run")
    assert (known["state"], known["rounds"], known["model"]["classes"]) == ("model only", 0, 3)
    for path in ("figures", "rounds", "classes", "confusion", "samples"):
        got(server, f"/v1/run/{path}")
    explanation = said(server, "/v1/explain", {"text": "money back"}).json()
    assert "no vectors" in explanation["why_not"]
    assert explanation["classes"][0]["before"] is None


def test_a_run_in_its_first_fit_is_shown_and_answers_when_it_can(live, shown_run, eventually):
    files = {name: (shown_run / name).read_bytes() for name in ("model.json", "model.safetensors")}
    for name in files:
        (shown_run / name).unlink()
    server = live(shown_run, HashEmbedder(width=16))
    assert got(server, "/v1/run")["model"] is None
    for path in ("/v1/explain", "/v1/classify"):
        refused = said(server, path, {"text": "money back"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "no_model")
    assert server.get("/v1/classes").status_code == 503
    health = server.get("/healthz")  # it lives
    assert (health.status_code, health.json()["status"], health.json()["model"]) == (200, "waiting", None)
    for name, content in reversed(files.items()):
        (shown_run / name).write_bytes(content)
    eventually(lambda: got(server, "/v1/run")["model"] is not None)
    assert said(server, "/v1/explain", {"text": "money back"}).status_code == 200


@pytest.mark.parametrize("name", ["desk/run", "it's a run; ls", "-run"])
def test_the_command_to_fit_again_names_the_run_as_it_was_given(shown_run, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Path(name).parent.mkdir(exist_ok=True)
    shown_run.rename(name)
    with RunReader(Path(name)) as reader:
        known = shlex.split(overview(reader)["refit"])
    assert known[:3] == ["adamab", "fit", "--run"]
    assert not known[3].startswith("-")
    assert Path(known[3]) == Path(name)


def test_a_class_that_was_added_leaves_the_others_compared(server, shown_run):
    examples = (Sample("so long then", "bye"), Sample("good bye now", "bye"))
    add_class(shown_run, Addition("bye", "a farewell", examples), embedder=HashEmbedder(width=16))
    assert said(server, "/v1/run/reload", {}).json()["outcome"] == "changed"
    explanation = said(server, "/v1/explain", {"text": "good bye money"}).json()
    ranked = {one["class_name"]: one["before_rank"] for one in explanation["classes"]}
    assert ranked.pop("bye") is None
    assert sorted(ranked.values()) == [1, 2, 3]
    assert sum(one["before"] or 0 for one in explanation["classes"]) == pytest.approx(1, abs=1e-5)
    assert (explanation["without"], explanation["compared_with"]) == (["bye"], "descriptions")
    assert len(explanation["given"]) == len(explanation["synthetic"]) == 5
    rows = {one["class"]: one["added"] for one in got(server, "/v1/run/classes")["classes"]}
    assert [name for name, added in rows.items() if added] == ["bye"]


def test_a_damaged_file_of_the_run_is_reported_in_one_line(server, shown_run):
    (shown_run / "task.json").write_bytes(b"{")
    (shown_run / "held_out.jsonl").write_bytes(b"{")
    for path in ("", "/figures", "/classes", "/class?name=login", "/confusion", "/samples"):
        answer = server.get(f"/v1/run{path}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")
    assert server.log
    assert not [line for line in server.log if "\n" in line]


def test_a_verdict_is_written_and_waits_for_the_next_fit(server, shown_run):
    first = synthetic(server)["id"]
    answer = said(server, "/v1/run/reviews", {"ids": [first], "verdict": "reject"}).json()
    assert (answer["samples"][0]["verdict"], got(server, "/v1/run")["waiting"]) == ("reject", 1)
    assert list(Reviews(shown_run).latest().values()) == ["reject"]
    assert got(server, "/v1/run/samples", verdict="reject")["total"] == 1
    answer = said(server, "/v1/run/reviews", {"ids": [first], "verdict": "none"}).json()
    assert (answer["samples"][0]["verdict"], got(server, "/v1/run")["waiting"]) == (None, 0)
    with Journal(shown_run, writing=True) as journal:
        record = next(iter(journal.events(ROUND))).data
        journal.note(ROUND, {**record, "turned_away": [["an answer", "held out"]]})
    held_out = got(server, "/v1/run/samples", reason="held out")["samples"][0]["id"]
    given = got(server, "/v1/run/samples", source="given", limit=1)["samples"][0]["id"]
    for review, status, words in (
        ({"ids": [given], "verdict": "reject"}, 422, "given sample"),
        ({"ids": [held_out], "verdict": "accept"}, 422, "stands"),
        ({"ids": ["0" * 16], "verdict": "reject"}, 404, "no sample"),
        ({"ids": [first], "verdict": "eat"}, 422, "'accept'"),
        ([], 422, "object"),
    ):
        refused = said(server, "/v1/run/reviews", review)
        assert refused.status_code == status
        assert words in refused.text
    assert list(Reviews(shown_run).latest().values()) == ["none"]


def fitted_again(order, run):
    fit_run(order.changed(task=read_task(run)), run)


def test_texts_become_examples_and_examples_are_taken_back(server, shown_run, shown_order):
    text = "the money is a mystery to me"
    assert said(server, "/v1/run/examples?class=praise", {"text": text}).json() == {"before": {text: None}}
    assert said(server, "/v1/run/examples?class=login", {"text": text}).json() == {"before": {text: "praise"}}
    assert got(server, "/v1/run")["waiting"] == 1
    shown = got(server, "/v1/run/samples", q="mystery")["samples"][0]
    assert (shown["class"], shown["source"], shown["used"]) == ("login", "given", False)
    explanation = said(server, "/v1/explain", {"text": text}).json()  # the other samples are still compared
    assert len(explanation["given"]) == 5
    fitted_again(shown_order, shown_run)
    known = got(server, "/v1/run")
    assert (known["waiting"], known["given"]) == (0, 14)
    said(server, "/v1/run/reload", {})
    assert server.post(text=text).json()["results"][0]["class"] == "login"
    assert said(server, "/v1/explain", {"text": text}).json()["given"][0]["text"] == text
    assert said(server, "/v1/run/examples", {"text": text}).json() == {"before": {text: "login"}}
    assert got(server, "/v1/run")["waiting"] == 1
    for path, question, status, words in (
        ("?class=refunds", {"text": "a"}, 422, "none of this name"),
        ("?class=login", {"texts": ["not alone", " "]}, 422, "texts.1: is empty"),
        ("?class=login", {"texts": []}, 422, "texts"),
    ):
        refused = said(server, f"/v1/run/examples{path}", question)
        assert (refused.status_code, words in refused.text) == (status, True)
    with Journal(shown_run, writing=True), closing(sqlite3.connect(shown_run / "writer.lock")) as lock:
        lock.execute("BEGIN EXCLUSIVE")  # as a fit does
        refused = said(server, "/v1/run/examples?class=login", {"text": text})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "in_use")


def test_of_two_changes_at_once_the_second_waits(server, shown_run, monkeypatch):
    def slowly(run):
        time.sleep(0.3)
        return read_task(run)

    monkeypatch.setattr("adamab.run.classes.read_task", slowly)

    def correct(text):
        return said(server, "/v1/run/examples?class=login", {"text": text}).status_code

    with ThreadPoolExecutor() as pool:
        assert list(pool.map(correct, ["one new text", "another new text"])) == [200, 200]
    assert [sample.text for sample in read_task(shown_run).samples[-2:]].count("one new text") == 1


def test_samples_are_moved_and_reviewed_in_bulk(server, shown_run, shown_order):
    used = got(server, "/v1/run/samples", source="synthetic", reason="used", **{"class": "login"})["samples"]
    ids = [one["id"] for one in used[:2]]
    rejected = said(server, "/v1/run/reviews", {"ids": ids, "verdict": "reject"}).json()["samples"]
    assert [one["verdict"] for one in rejected] == ["reject", "reject"]
    said(server, "/v1/run/reviews", {"ids": ids, "verdict": "none"})
    assert said(server, "/v1/run/moves", {"ids": ids, "class": "praise"}).json() == {"moved": 2}
    assert got(server, "/v1/run")["waiting"] == 4  # two leave login, two are examples of praise
    fitted_again(shown_order, shown_run)
    assert got(server, "/v1/run")["waiting"] == 0
    (praise,) = got(server, "/v1/run/classes", q="praise")["classes"]
    assert praise["given"] == 6
    given = [
        one["id"] for one in got(server, "/v1/run/samples", source="given", **{"class": "praise"})["samples"]
    ]
    for change, status, words in (
        ({"ids": ids, "class": None}, 422, "reject it"),
        ({"ids": given, "class": "x"}, 422, "none of this name"),
        ({"ids": [*given, "0"], "class": "login"}, 404, "no sample"),
        ({"ids": [], "class": "login"}, 422, "at least 1"),
        ({"ids": given}, 422, "required"),
    ):
        refused = said(server, "/v1/run/moves", change)
        assert (refused.status_code, words in refused.text) == (status, True)
    assert said(server, "/v1/run/moves", {"ids": given[:1], "class": None}).json() == {"moved": 1}
    assert got(server, "/v1/run")["given"] == 14


@pytest.mark.filterwarnings("ignore:.*are left out, since this run")
def test_classes_are_changed_and_the_next_fit_follows(server, shown_run, shown_order):
    def change(**wanted):
        return said(server, "/v1/run/classes", wanted)

    names = [HOSTILE, "login", "praise"]
    examples = ["good bye now", "so long then"]
    assert change(action="add", name="bye", description="a farewell", examples=examples).json() == {
        "classes": [*names, "bye"]
    }
    assert change(action="edit", name="login", to="sign in", description="cannot sign in").status_code == 200
    assert change(action="edit", name="bye", to="bye", description=None).status_code == 200
    assert got(server, "/v1/run")["waiting"] == 4  # a class and its two examples; another was renamed
    fitted_again(shown_order, shown_run)
    assert got(server, "/v1/run")["waiting"] == 0
    rows = {row["class"]: row for row in got(server, "/v1/run/classes")["classes"]}
    assert (rows["sign in"]["description"], rows["bye"]["description"]) == ("cannot sign in", None)
    assert rows["sign in"]["synthetic"] > 0  # they moved along
    assert got(server, "/v1/run")["synthetic"] == sum(row["synthetic"] for row in rows.values())
    assert got(server, "/v1/run/class", name="sign in")["synthetic_samples"]
    before = read_task(shown_run).classes
    assert change(action="edit", name="sign in", to="sign-in").status_code == 200
    assert change(action="edit", name="sign-in", to="sign in").status_code == 200
    assert read_task(shown_run).classes == before, "the description is kept where none is sent"
    assert change(action="edit", name="sign in", description=None).status_code == 200
    assert [one.description for one in read_task(shown_run).classes if one.name == "sign in"] == [None]
    assert change(action="merge", name="bye", to="praise").json()["classes"] == [HOSTILE, "sign in", "praise"]
    assert change(action="remove", name="sign in").json()["classes"] == [HOSTILE, "praise"]
    assert said(server, "/v1/explain", {"text": "good bye money"}).status_code == 200
    for wanted, words in (
        ({"action": "edit", "name": "praise", "to": HOSTILE}, "is there already"),
        ({"action": "edit", "name": "praise", "to": " "}, "empty"),
        ({"action": "add", "name": "new"}, "neither a description nor an example"),
        ({"action": "eat", "name": "praise"}, "'add'"),
    ):
        refused = change(**wanted)
        assert (refused.status_code, words in refused.text) == (422, True), refused.text
    fitted_again(shown_order, shown_run)
    assert [row["class"] for row in got(server, "/v1/run/classes")["classes"]] == [HOSTILE, "praise"]
    assert got(server, "/v1/run/figures")["rounds"]
    assert said(server, "/v1/run/reload", {}).json()["model"]["classes"] == 2


def test_an_image_becomes_an_example(live, image_run, paint, tmp_path):
    server = live(image_run, PixelEmbedder())
    (drawn,) = paint(tmp_path / "new", {"red": 1}, seed=7)
    question = {"images": [{"data": base64.b64encode(drawn.read_bytes()).decode()}]}
    stored = list((image_run / "images").rglob("*"))
    assert said(server, "/v1/run/examples?class=none", question).status_code == 422
    assert list((image_run / "images").rglob("*")) == stored, "no class, no image"
    assert said(server, "/v1/run/examples?class=blue", question).status_code == 200
    added = read_task(image_run).samples[-1]
    assert (added.class_name, added.image.path.read_bytes()) == ("blue", drawn.read_bytes())
    assert [one["image"] for one in got(server, "/v1/run/samples", source="given")["samples"]] == [True] * 10


def test_a_newer_model_is_loaded_when_asked(server, shown_run, text_model, monkeypatch):
    monkeypatch.setattr("adamab.serving.service._PAUSE", 0.01)
    (shown_run / "model.json").write_text("{")
    answer = said(server, "/v1/run/reload", {})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "reload_failed")
    assert server.post(text="money back").status_code == 200
    save(load(text_model), shown_run)
    assert got(server, "/v1/run")["model"]["newer"] is True
    assert "newer model" in said(server, "/v1/explain", {"text": "money"}).json()["why_not"]
    assert said(server, "/v1/run/reload", {}).json()["model"]["newer"] is False
    assert got(server, "/v1/run")["model"]["digest"] == server.service.digest_on_disk()


def test_the_token_guards_data_but_not_the_page(live, shown_run):
    server = live(shown_run, HashEmbedder(width=16), Access(token="secret", open_paths=OPEN_PATHS))
    assert {server.get(path).status_code for path in OPEN_PATHS} == {200}
    for path in ("/v1/run", "/v1/run/samples", "/v1/run/images/0"):
        assert server.get(path).status_code == 401
    assert said(server, "/v1/run/reviews", {"ids": ["0"], "verdict": "none"}).status_code == 401
    assert server.get("/v1/run", headers={"Authorization": "Bearer secret"}).status_code == 200


def test_images_are_served_by_sample_and_few_are_decoded_at_once(live, tmp_path, image_run, monkeypatch):
    server = live(image_run, PixelEmbedder())
    inside, made, decoded, lock = [0], [], page.decoded, threading.Lock()

    def watched(path, *, least_side):
        with lock:
            inside.append(inside[-1] + 1)
            made.append(least_side)
        image = decoded(path, least_side=least_side)
        with lock:
            inside.append(inside[-1] - 1)
        return image

    monkeypatch.setattr(page, "decoded", watched)
    ids = [one["id"] for one in got(server, "/v1/run/samples", source="")["samples"]]
    addresses = [f"/v1/run/images/{id_}" for id_ in ids]
    with ThreadPoolExecutor(len(ids)) as pool:
        for image in pool.map(server.get, addresses):
            assert image.headers["content-type"] == "image/jpeg"
            assert image.content.startswith(b"\xff\xd8")
    assert 1 <= max(inside) <= 2
    assert len(made) == len(ids) > 9
    server.get(addresses[0])
    assert len(made) == len(ids)  # it was kept
    assert server.get(addresses[0], params={"large": "true"}).content.startswith(b"\xff\xd8")
    assert made[-1] > made[0]
    for name in ("../../fit.json", "..%2f..%2ffit.json", "0" * 16):
        assert server.get(f"/v1/run/images/{name}").status_code == 404
    chosen = (tmp_path / "given" / "red" / "0-1.png").read_bytes()
    files = {"images": ("a.png", chosen)}
    explanation = httpx.post(f"{server.url}/v1/explain", files=files, timeout=30).json()
    assert explanation["classes"][0]["class_name"] == "red"
    assert explanation["compared_with"] == "class means"
    assert explanation["given"][0]["image"] is True
    assert explanation["given"][0]["similarity"] == pytest.approx(1, abs=1e-3)
    assert "send an image" in said(server, "/v1/explain", {"text": "red"}).text
