"""A newer model takes over between two batches; nobody is dropped."""

import shutil
import threading

import httpx
import pytest

from adamab.model import load, save


@pytest.fixture
def run(text_model, tmp_path):
    return shutil.copytree(text_model, tmp_path / "desk")


def test_a_reload_under_load_drops_nothing(live, run, other_model, text_model, watched, eventually):
    server = live(run, watched)
    stop, answers = threading.Event(), []

    def ask():
        with httpx.Client(timeout=30) as client:
            while not stop.is_set():
                answers.append(client.post(f"{server.url}/v1/classify", json={"text": "my money"}))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    before = server.service.model
    for source in (other_model, text_model, other_model):
        save(load(source), run)
        assert server.service.reload() == "changed"
        seen = len(answers)
        eventually(lambda seen=seen: len(answers) >= seen + 10)
    stop.set()
    for thread in threads:
        thread.join()
    after = server.service.model
    assert {answer.status_code for answer in answers} == {200}
    assert {answer.json()["model"]["digest"] for answer in answers} >= {before.digest, after.digest}
    assert (len(before.classes), len(after.classes)) == (3, 4)
    assert after.inference.embedder is before.inference.embedder  # no second copy in memory
    assert len(server.get("/v1/classes").json()["classes"]) == 4
    assert server.service.reload() == "unchanged"


def test_a_model_that_is_just_being_replaced_is_waited_for(live, run, other_model, watched, monkeypatch):
    server = live(run, watched)
    (run / "model.safetensors").write_bytes((other_model / "model.safetensors").read_bytes())
    copy = threading.Timer(0.3, shutil.copy, (other_model / "model.json", run))
    copy.start()
    assert server.service.reload() == "changed"
    assert len(server.service.model.classes) == 4


def test_an_unforeseen_error_does_not_end_reloading(live, run, other_model, watched, monkeypatch, eventually):
    server = live(run, watched)
    with monkeypatch.context() as broken:
        broken.setattr("adamab.serving.service.Service._inference", lambda *_: 1 / 0)
        server.server._ask_for_reload(1, None)
        eventually(lambda: server.log)
    assert server.log == ["reload failed, the model from before stays: ZeroDivisionError, division by zero"]
    assert server.post(text="money").status_code == 200
    assert server.get("/healthz").json()["status"] == "ready"
    save(load(other_model), run)
    server.server._ask_for_reload(1, None)
    eventually(lambda: len(server.service.model.classes) == 4)
    assert 'adamab_reloads_total{outcome="failed"} 1.0' in server.get("/metrics").text
