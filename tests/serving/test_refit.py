"""A fit that is started on the page: a process of its own, one at a time, that loses nothing."""

import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager

import httpx
import pytest

from adamab.model.storage import WEIGHTS
from adamab.providers.sqlite_file import is_being_written
from adamab.run.settings import stored_settings
from adamab.serving.page import OPEN_PATHS
from adamab.serving.requests import Access
from adamab.task.recipe import Recipe
from adamab.task.spec import Task
from adamab.testing import Fault, HashEmbedder
from tests.fitting import Order, fit_run
from tests.serving.conftest import EXAMPLES

TASK = Task.from_mapping(EXAMPLES, name="desk")


def said(url, path="", **headers):
    return httpx.post(f"{url}/v1/run/fit{path}", json={}, headers=headers, timeout=30)


def fit_of(url, **headers):
    return httpx.get(f"{url}/v1/run", headers=headers, timeout=30).json()["fit"]


def test_it_fits_again_while_questions_are_answered(live, local_run, eventually):
    server = live(local_run, None)
    assert fit_of(server.url) is None
    sample = server.get("/v1/run/samples", params={"source": "synthetic", "reason": "used"}).json()[
        "samples"
    ][0]
    review = {"ids": [sample["id"]], "verdict": "reject"}
    httpx.post(f"{server.url}/v1/run/reviews", json=review, timeout=30)
    before = server.service.model.digest
    assert said(server.url, "/stop").json()["error"]["code"] == "not_fitting"
    begun = said(server.url)
    assert (begun.status_code, begun.json()["fit"]["state"]) == (202, "running")
    second = said(server.url)
    assert (second.status_code, second.json()["error"]["code"]) == (409, "fitting")
    task = (local_run / "task.json").read_bytes()
    for path, body in (
        ("moves", {"ids": [sample["id"]], "class": "praise"}),
        ("examples?class=praise", {"text": "a correction while the fit starts"}),
        ("classes", {"action": "remove", "name": "praise"}),
    ):  # its process has not locked the run yet
        change = httpx.post(f"{server.url}/v1/run/{path}", json=body, timeout=30)
        assert (change.status_code, change.json()["error"]["code"]) == (409, "fitting")
    assert (local_run / "task.json").read_bytes() == task
    answered = 0
    while fit_of(server.url)["state"] == "running":
        assert server.post(text="money back").status_code == 200
        answered += 1
    assert answered
    assert fit_of(server.url)["state"] == "done"
    known = server.get("/v1/run").json()
    assert (known["state"], known["waiting"], known["rejected"]) == ("finished", 0, 1)
    assert known["model"]["newer"] is False  # it is in use already
    assert known["model"]["digest"] != before


def test_it_is_told_the_embedder_that_the_server_was_told(live, local_run, eventually):
    server = live(local_run, "local?batch_size=3")
    assert said(server.url).status_code == 202
    eventually(lambda: fit_of(server.url)["state"] == "done")
    assert stored_settings(local_run).embedder == "local?batch_size=3"


def test_who_may_not_change_anything_cannot_start_a_fit(live, local_run, text_model):
    server = live(local_run, None, Access(token="secret", open_paths=OPEN_PATHS))
    right = {"Authorization": "Bearer secret"}
    for path in ("", "/stop"):
        assert said(server.url, path).status_code == 401
        for foreign in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
            assert said(server.url, path, **right, **foreign).status_code == 403
        assert said(server.url, path, **right, Host="evil.example").status_code == 421
        form = httpx.post(f"{server.url}/v1/run/fit{path}", data={"a": "b"}, headers=right)
        assert form.status_code == 415
    assert fit_of(server.url, **right) is None
    model_only = live(text_model, HashEmbedder(width=16))
    assert said(model_only.url).json()["error"]["code"] == "no_run"


def test_a_fit_that_fails_says_why_in_a_line(live, local_run, eventually, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "json.py").write_text("raise SystemExit('a module of whatever directory the server is in')")
    server = live(local_run, None)
    (local_run.parent / "written.jsonl").unlink()
    assert said(server.url).status_code == 202
    eventually(lambda: fit_of(server.url)["state"] == "failed")
    assert "written.jsonl" in fit_of(server.url)["message"]
    assert "\n" not in fit_of(server.url)["message"]
    assert server.post(text="money back").status_code == 200


@pytest.fixture
def paid_order(server):
    """A fit whose embedder and generator are a provider's."""
    spec = f"openai:m?base_url={server.url}/v1"
    return Order(TASK, spec, generator=spec, recipe=Recipe(batch=2, augmentation_rounds=3))


@pytest.fixture
def stopped_run(paid_order, tmp_path):
    """Stopped after its first round."""
    stop = threading.Event()
    with pytest.raises(KeyboardInterrupt):
        fit_run(paid_order, tmp_path / "run", stop=stop, on_round=lambda record: stop.set())
    return tmp_path / "run"


@contextmanager
def serving(run):
    process = subprocess.Popen(
        [sys.executable, "-m", "adamab", "serve", str(run), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )
    try:
        yield process, re.findall(r"http://\S+", process.stdout.readline())[0].rstrip(";")
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", ["SIGTERM", "SIGKILL"])
def test_nothing_is_lost_when_the_server_ends_during_a_fit(
    server, paid_order, stopped_run, tmp_path, eventually, number
):
    bought = server.count()
    server.add_fault(Fault("slow", path="chat", after=1, seconds=0.5))
    with serving(stopped_run) as (process, url):
        assert said(url).status_code == 202
        eventually(lambda: any(seen.fault == "slow" for seen in server.seen))
        process.send_signal(getattr(signal, number))
        assert process.wait(30) == (0 if number == "SIGTERM" else -signal.SIGKILL)
    eventually(lambda: not is_being_written(stopped_run))
    assert (stopped_run / WEIGHTS).exists() == (
        number == "SIGKILL"
    )  # then the fit goes on without the server
    server.clear_faults()
    fit_run(paid_order, stopped_run)
    keys = [seen.idempotency_key for seen in server.seen]
    assert len(keys) == len(set(keys)) > bought
    fit_run(paid_order, tmp_path / "undisturbed")
    assert (stopped_run / WEIGHTS).read_bytes() == (tmp_path / "undisturbed" / WEIGHTS).read_bytes()


def test_a_fit_goes_on_and_is_stopped_on_the_page(live, server, stopped_run, eventually):
    desk = live(stopped_run, None)
    server.add_fault(Fault("slow", path="chat", after=1, seconds=0.5))
    assert said(desk.url).status_code == 202
    eventually(lambda: any(seen.fault == "slow" for seen in server.seen))
    assert said(desk.url, "/stop").json()["fit"]["stopping"]
    eventually(lambda: fit_of(desk.url)["state"] == "stopped")
    assert desk.get("/v1/run").json()["state"] == "stopped"
    assert said(desk.url).status_code == 202
    eventually(lambda: fit_of(desk.url)["state"] == "done")
    assert desk.get("/v1/run").json()["model"]["classes"] == 3
