"""Whatever a provider does, a fit ends with the right result or one clear line, its journal intact."""

import json
import sqlite3
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from typer.testing import CliRunner

from adamab.cli.app import app
from adamab.run.run_log import ROUND, Journal
from adamab.testing import Fault, ProviderServer
from tests.cli.conftest import weights

QUICK = ("--set", "augmentation_rounds=6", "--no-cache")
LIMITS = "retries=3&first_wait=0.01"
SECRET = "sk-secret-0123456789abcdef"
EMBED, CHAT = "embeddings", "chat"


def command(server, *more, model="m", generator=None):
    spec = f"openai:{model}?base_url={server.url}/v1&{LIMITS}"
    return ("fit", "task.yaml", "--run", "run", "--embedder", spec, "--generator", generator or spec, *more)


def rounds(run):
    """The rounds in the journal, which must be whole."""
    db = sqlite3.connect(f"file:{run / 'journal.sqlite'}?mode=ro", uri=True)
    assert db.execute("PRAGMA quick_check").fetchall() == [("ok",)]
    db.close()
    with Journal(run) as journal:
        return [event.data for event in journal.events(ROUND)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, write_task):
    """The weights of a fit that nothing happens to; they do not depend on the server's port."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch, ProviderServer() as server:
        patch.chdir(folder)
        write_task(folder)
        result = CliRunner().invoke(app, command(server, *QUICK))
        assert result.exit_code == 0, result.output
    return weights(folder / "run")


PASSING = [
    ("slow", {"seconds": 0.1}, (EMBED, CHAT)),
    ("status", {"status": 429, "retry_after": 0.05}, (EMBED, CHAT)),
    ("status", {"status": 500}, (EMBED, CHAT)),
    ("reset", {}, (EMBED, CHAT)),
    ("truncate", {}, (EMBED, CHAT)),
    ("garbage", {}, (EMBED, CHAT)),
    ("no_usage", {}, (EMBED, CHAT)),
    ("few_vectors", {}, (EMBED,)),
    ("wrong_width", {}, (EMBED,)),
    ("nan", {}, (EMBED,)),
    ("empty", {}, (EMBED,)),
    ("shuffled", {}, (EMBED,)),
    ("too_large", {"items": 4, "times": None, "after": 0}, (EMBED,)),
    ("too_large", {"bytes": 200, "status": 400, "times": None, "after": 0}, (EMBED,)),
]


@pytest.mark.parametrize(("kind", "options", "paths"), PASSING)
def test_a_fault_that_passes_changes_nothing(adamab, folder, server, undisturbed, kind, options, paths):
    for path in paths:
        server.add_fault(Fault(kind, path=path, **{"after": 2, **options}))
    result = adamab(*command(server, *QUICK))
    assert (result.exit_code, result.stderr) == (0, "")
    assert sum(seen.fault == kind for seen in server.seen) >= len(paths)
    assert weights(folder / "run") == undisturbed
    assert len(rounds(folder / "run")) == 6


LASTING = [
    ("status", {"status": 429, "retry_after": 0.02}, CHAT, "no answer after 4 attempts (last: 429 "),
    ("status", {"status": 429, "retry_after": 7200}, CHAT, "asks to wait 120 minutes"),
    ("status", {"status": 429, "how": "quota"}, CHAT, "quota is used up (429 insufficient_quota)"),
    ("status", {"status": 500}, CHAT, "no answer after 4 attempts (last: 500 server_error)"),
    ("status", {"status": 401}, EMBED, "wants a key (401 invalid_api_key); set OPENAI_API_KEY"),
    ("truncate", {}, CHAT, "no answer after 4 attempts (last: an answer that is no JSON)"),
    ("few_vectors", {}, EMBED, "no usable answer after 3 attempts (last: 4 vectors for 5 texts)"),
    ("wrong_width", {}, EMBED, "no usable answer after 3 attempts (last: vectors of another width than 64)"),
    ("refusal_status", {}, EMBED, "declines on grounds of content (400 content_policy_violation)"),
    ("too_large", {}, CHAT, "the request is too large (413 "),
]


@pytest.mark.parametrize(("kind", "options", "path", "message"), LASTING)
def test_a_fault_that_lasts_is_one_line_and_the_run_goes_on_later(
    adamab, refused, folder, server, undisturbed, kind, options, path, message
):
    server.add_fault(Fault(kind, path=path, times=None, after=4, **options))
    line = refused(*command(server, *QUICK))
    assert message in line
    bought = {seen.idempotency_key for seen in server.seen if seen.fault is None and seen.status == 200}
    assert len(bought) >= 6  # two for the task, and for some of four batches one or two each
    assert len(rounds(folder / "run")) < 6
    server.clear_faults()
    before = server.count()
    result = adamab(*command(server, *QUICK, "--quiet"))
    assert (result.exit_code, result.stderr) == (0, "")
    assert not bought & {seen.idempotency_key for seen in server.seen[before:]}
    assert weights(folder / "run") == undisturbed


def test_a_wrong_key_and_a_wrong_model(adamab, refused, folder, undisturbed, monkeypatch):
    with ProviderServer(key="sk-right") as server:
        monkeypatch.setenv("OPENAI_API_KEY", SECRET)
        assert "the key in OPENAI_API_KEY was refused (401 invalid_api_key)" in refused(
            *command(server, *QUICK)
        )
        monkeypatch.setenv("OPENAI_API_KEY", "sk-right")
        assert adamab(*command(server, *QUICK)).exit_code == 0
    assert weights(folder / "run") == undisturbed
    with ProviderServer() as server:
        line = refused(*command(server, *QUICK, "--overwrite", model="no-such"))
    assert "no model 'no-such' at " in line


@pytest.mark.parametrize(
    ("kind", "how", "prefetch"),
    [("refusal", "", 0), ("refusal", "text", 4), ("refusal", "filter", 0), ("refusal_status", "", 4)],
)
def test_a_refused_class_is_closed_and_the_others_go_on(adamab, folder, server, kind, how, prefetch):
    server.add_fault(Fault(kind, path=CHAT, contains="money returned", times=None, how=how))
    more = ("--policy", "round-robin", "--set", "augmentation_rounds=15", "--prefetch", str(prefetch))
    result = adamab(*command(server, *QUICK, *more))
    assert result.exit_code == 0, result.output
    assert "closed: refund (refused 3 times by the generator)" in result.stdout
    summary = json.loads((folder / "run" / "fit.json").read_text())
    assert summary["closed"] == {"refund": "refused 3 times by the generator"}
    assert summary["refused"] == {"refund": 3}
    assert summary["synthetic_by_class"] == {"refund": 0, "login": 30, "praise": 30}
    asked = sum(seen.fault == kind for seen in server.seen)
    assert 3 <= asked <= 3 + prefetch
    # Nor does a resumed run ask the class again.
    again = adamab(*command(server, *QUICK, *more))
    assert again.exit_code == 0
    assert sum(seen.fault == kind for seen in server.seen) == asked


class Parrot(BaseHTTPRequestHandler):
    """Answers with an error that repeats the key and the request wherever an error has room for words."""

    protocol_version = "HTTP/1.1"
    status = 400

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        key = self.headers.get("Authorization", "")
        error = {"message": f"{key} {body}", "type": key.split()[-1], "code": key, "param": body}
        answer = json.dumps({"error": error, "detail": f"{key} {body}", "message": f"{key} {body}"})
        raw = f"{key} {body}".encode() if self.status == 200 else answer.encode()
        self.send_response(self.status, key)
        self.send_header("Content-Length", str(len(raw)))
        self.send_header("X-Key", key)
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_): ...


@pytest.fixture
def parrot():
    handler = type("ThisParrot", (Parrot,), {})
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    http.daemon_threads = True
    http.handler = handler
    threading.Thread(target=http.serve_forever, args=(0.05,), daemon=True).start()
    yield http
    http.shutdown()
    http.server_close()


@pytest.mark.parametrize("debug", ["", "1"])
@pytest.mark.parametrize("status", [200, 400, 401, 429, 500, 302])
def test_neither_key_nor_prompt_is_told(adamab, folder, server, parrot, monkeypatch, status, debug):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("ADAMAB_DEBUG", debug)
    parrot.handler.status = status
    bad = f"openai:m?base_url=http://127.0.0.1:{parrot.server_address[1]}/v1&retries=1&first_wait=0.01"
    result = adamab(*command(server, *QUICK[:-1], generator=bad))  # with the cache
    assert result.exit_code == 2
    assert all(seen.has_key for seen in server.seen)
    texts = ["money back please", "cannot sign in today", "likes it a lot"]
    for text in (SECRET, SECRET[3:], *texts, "<data>"):
        assert text not in result.stdout + result.stderr
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "task.yaml"]
    assert {"journal.sqlite", "vectors.sqlite"} <= {path.name for path in files}
    for path in files:
        private = () if path.name == "task.json" else (*texts, "<data>")  # which keeps the samples
        for text in (SECRET, SECRET[3:], *private):
            assert text.encode() not in path.read_bytes(), path


def test_a_run_that_works_keeps_no_key_either(adamab, folder, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    with ProviderServer(key=SECRET) as server:
        result = adamab(*command(server, *QUICK[:-1]))
    assert result.exit_code == 0, result.output
    assert SECRET[3:] not in result.output
    for path in folder.rglob("*"):
        assert not path.is_file() or SECRET[3:].encode() not in path.read_bytes(), path
