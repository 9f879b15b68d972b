"""`adamab serve` as a real process: how it starts, reloads and ends."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

import httpx

LONGEST = 60  # seconds that a test waits for what must happen
SCRIPT = """
import atexit, sys
atexit.register(lambda: print(sorted(set(sys.modules) & {"torch", "sklearn", "transformers"}), flush=True))
from adamab.cli import main
main()
"""


@contextmanager
def serving(run, *options, command=None, **environment):
    """A server's process and its address."""
    start = command or [sys.executable, "-m", "adamab"]
    process = subprocess.Popen(
        [*start, "serve", str(run), "--port", "0", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )
    try:
        line = process.stdout.readline()
        assert line.startswith(f"serving {run} at http://"), process.stderr.read()
        yield process, re.findall(r"http://\S+", line)[0]
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def classify(url, text="money please"):
    return httpx.post(f"{url}/v1/classify", json={"text": text}, timeout=LONGEST)


def begun(url, body):
    """A request that the server has accepted and that lacks its last byte."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    client = socket.create_connection((host, int(port)), timeout=LONGEST)
    head = f"POST /v1/classify HTTP/1.1\r\nhost: {url[7:]}\r\ncontent-type: application/json\r\n"
    client.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body[:-1])
    return client


def lets_in(url):
    try:
        httpx.get(f"{url}/healthz", timeout=LONGEST)
    except httpx.TransportError:
        return False
    return True


def eventually(true):
    until = time.monotonic() + LONGEST
    while not true():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_start_answer_and_stop_without_importing_torch(model):
    with serving(model, command=[sys.executable, "-c", SCRIPT]) as (process, url):
        assert classify(url).json()["results"][0]["class"] == "refund"
        missing = classify(url, "never embedded")
        assert missing.status_code == 422
        assert "npz" not in missing.text  # where the vectors lie stays private
        process.send_signal(signal.SIGTERM)
        assert (
            process.stderr.readline()
            == "stopping: what was accepted is finished; Ctrl-C again stops at once\n"
        )
        assert process.communicate(timeout=LONGEST) == ("[]\n", "")
        assert process.returncode == 0


def test_what_was_accepted_is_finished(model):
    body = json.dumps({"text": "money please"}).encode()
    with serving(model) as (process, url):
        with begun(url, body) as client:
            eventually(lambda: "adamab_requests_in_progress 2.0" in httpx.get(f"{url}/metrics").text)
            process.send_signal(signal.SIGTERM)
            eventually(lambda: not lets_in(url))
            assert process.poll() is None
            client.sendall(body[-1:])
            answer = b"".join(iter(lambda: client.recv(65536), b""))
        assert b"200 OK" in answer
        assert b'"refund"' in answer
        assert process.wait(LONGEST) == 0


def test_a_second_ctrl_c_stops_at_once(model):
    with serving(model) as (process, url), begun(url, b'{"text": "money please"}'):
        eventually(lambda: "adamab_requests_in_progress 2.0" in httpx.get(f"{url}/metrics").text)
        process.send_signal(signal.SIGINT)
        assert "Ctrl-C again" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(LONGEST) == 130


def test_a_signal_reloads(model, vector_model, tmp_path):
    """That no request is dropped meanwhile is tested in tests/serving/test_server_reload.py."""
    run = shutil.copytree(model, tmp_path / "run")
    with serving(run) as (process, url):
        before = classify(url).json()["model"]["digest"]
        for name in ("model.safetensors", "model.json"):
            shutil.copy(vector_model / name, run / name)
        process.send_signal(signal.SIGHUP)
        assert re.match(r"reloaded .*: model [0-9a-f]{12} \(3 classes\)\n", process.stderr.readline())
        after = classify(url).json()["model"]["digest"]
        assert after != before
        (run / "model.json").write_text("{}")
        process.send_signal(signal.SIGHUP)
        assert process.stderr.readline().startswith("reload failed, the model from before stays: ")
        assert classify(url).json()["model"]["digest"] == after
        process.send_signal(signal.SIGTERM)
        assert process.wait(LONGEST) == 0


def test_a_token_from_the_environment(model):
    with serving(model, ADAMAB_TOKEN="s3cret words") as (process, url):
        assert httpx.get(f"{url}/v1/classes").status_code == 401
        right = {"authorization": "Bearer s3cret words"}
        assert httpx.get(f"{url}/v1/classes", headers=right).status_code == 200
        process.send_signal(signal.SIGTERM)
        assert "s3cret" not in "".join(process.communicate(timeout=LONGEST))


def test_limits_address_and_names_from_the_command_line(model):
    options = ("--max-items", "2", "--max-body", "60", "--host", "127.0.0.2")
    with serving(model, *options, "--allow-host", "desk.example:8443") as (_, url):
        assert "127.0.0.2" in url
        many = httpx.post(f"{url}/v1/classify", json={"texts": ["a", "b", "c"]})
        assert many.json()["error"]["code"] == "too_many_items"
        assert classify(url, "a" * 100).json()["error"]["code"] == "body_too_large"
        assert httpx.get(f"{url}/healthz").status_code == 200
        for name, status in (("desk.example", 200), ("desk.example:8443", 200), ("127.0.0.3", 421)):
            assert httpx.get(f"{url}/healthz", headers={"host": name}).status_code == status


def test_an_open_server_without_a_token_is_warned_of(model):
    with serving(model, "--host", "0.0.0.0") as (process, url):
        assert httpx.get(f"{url}/healthz", headers={"host": "any.example"}).status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.stderr.readline().startswith(
            "warning: everybody who reaches 0.0.0.0 may ask, change the run and fit it; set ADAMAB_TOKEN"
        )


def test_a_port_in_use(refused, model):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        line = refused("serve", model, "--port", port)
    assert line.startswith(f"adamab: cannot listen at 127.0.0.1, port {port} (")


def test_what_cannot_be_served(refused, model, tmp_path, monkeypatch):
    assert "no such file" in refused("serve", tmp_path, "--port", "0")
    assert "cannot listen at" in refused("serve", model, "--host", "no.such.host.invalid")
    assert "unknown embedder" in refused("serve", model, "--port", "0", "--embedder", "nothing:x")
    assert "--help" in refused("serve", model, "--port", "70000")
    for token in ("", "  ", "\u00e4"):
        monkeypatch.setenv("ADAMAB_TOKEN", token)
        assert "ADAMAB_TOKEN is empty or holds" in refused("serve", model, "--port", "0")
