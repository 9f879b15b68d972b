"""`save_pretrained` and `from_pretrained`: folders, and ids on a server that speaks the Hub's protocol."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import adamab.run.hub
from adamab import ADAMABClassifier, load
from adamab.classifier import Classifier, Head, save
from adamab.errors import MissingExtraError, ModelFileError, RunError
from adamab.task.words import Vocabulary
from adamab.testing import HashEmbedder

TEXTS = ["cash back please", "refund my cash", "great product", "really great work"]
FILES = {"model.json", "model.safetensors", "README.md"}
COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_secretsecretsecret"


@pytest.fixture(scope="module")
def fitted():
    return ADAMABClassifier(HashEmbedder(), random_state=0).fit(TEXTS, [7, 7, 8, 8])


@pytest.fixture
def model_files(tmp_path):
    """A model of words alone, which needs no embedder, as bytes by file name."""
    vocabulary = Vocabulary.fit(TEXTS)
    linear = np.random.default_rng(0).standard_normal((2, len(vocabulary.terms))).astype(np.float32)
    head = Head(view="words", linear=linear)
    save(Classifier(classes=("no", "yes"), heads=(head,), vocabulary=vocabulary), tmp_path / "source")
    return {path.name: path.read_bytes() for path in (tmp_path / "source").iterdir()}


class Hub(ThreadingHTTPServer):
    """Repositories by id; `sent` says what a download really gives, where that differs."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.sent: dict[tuple[str, str], bytes] = {}
        self.refused: dict[str, tuple[int, str]] = {}
        self.asked: list[str] = []
        self.tokens: set[str | None] = set()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        self.server.asked.append(f"{self.command} {self.path}")
        self.server.tokens.add(self.headers.get("Authorization"))
        parts = self.path.partition("?")[0].strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            self._about("/".join(parts[2:4]), parts[4:])
        elif len(parts) == 5 and parts[2] == "resolve":
            self._file("/".join(parts[:2]), parts[3], parts[4])
        else:
            self._say(404, {})

    def do_POST(self):
        self.server.asked.append(f"POST {self.path}")
        self.server.tokens.add(self.headers.get("Authorization"))
        body = self.rfile.read(int(self.headers["Content-Length"]))
        parts = self.path.partition("?")[0].strip("/").split("/")
        if parts == ["api", "repos", "create"]:
            self._create(json.loads(body))
        elif parts == ["api", "validate-yaml"]:
            self._say(200, {"warnings": [], "errors": []})
        elif parts[4] == "preupload":
            names = [file["path"] for file in json.loads(body)["files"]]
            modes = [{"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in names]
            self._say(200, {"files": modes})
        else:
            self._commit("/".join(parts[2:4]), body)

    def _create(self, wanted):
        name = f"{wanted.get('organization') or 'me'}/{wanted['name'].rpartition('/')[2]}"
        if name in self.server.refused:
            return self._refuse(name)
        self.server.repositories.setdefault(name, {})
        self._say(200, {"url": f"{self.server.address}/{name}", "name": name})

    def _commit(self, name, body):
        for line in map(json.loads, body.splitlines()):
            if line["key"] == "file":
                content = base64.b64decode(line["value"]["content"])
                self.server.repositories[name][line["value"]["path"]] = content
        url = f"{self.server.address}/{name}/commit/{COMMIT}"
        self._say(200, {"success": True, "commitOid": COMMIT, "commitUrl": url})

    def _about(self, name, rest):
        if name in self.server.refused:
            return self._refuse(name)
        files = self.server.repositories.get(name)
        if files is None:
            return self._say(404, {}, {"X-Error-Code": "RepoNotFound"})
        if rest[1] not in ("main", COMMIT):
            return self._say(404, {}, {"X-Error-Code": "RevisionNotFound"})
        if rest[0] == "tree":
            rows = [
                {"type": "file", "path": path, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                for path, content in files.items()
            ]
            return self._say(200, rows)
        siblings = [{"rfilename": path} for path in files]
        self._say(200, {"id": name, "sha": COMMIT, "siblings": siblings, "private": False})

    def _refuse(self, name):
        status, code = self.server.refused[name]
        self._say(status, {"error": "a long story"}, {"X-Error-Code": code} if code else {})

    def _file(self, name, revision, path):
        content = self.server.repositories[name][path]
        sent = self.server.sent.get((name, path), content) if self.command == "GET" else content
        told = {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": COMMIT}
        self._send(200, sent, {**told, "Content-Type": "application/octet-stream"})

    def _say(self, status, value, headers=None):
        self._send(
            status, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})}
        )

    def _send(self, status, content, headers):
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            with contextlib.suppress(ConnectionError):
                self.wfile.write(content)


@pytest.fixture
def hub(model_files):
    extra = {"README.md": b"a card", "pytorch_model.bin": b"a pickle", "code.py": b"print('no')"}
    with Hub() as server:
        server.repositories["me/model"] = {**model_files, **extra}
        yield server


SCRIPT = """
import json, sys
from adamab import ADAMABClassifier
from adamab.errors import AdamabError
for name, options in json.loads(sys.argv[1]):
    try:
        print(json.dumps(ADAMABClassifier.from_pretrained(name, **options).predict(["refund"]).tolist()))
    except AdamabError as error:
        print(json.dumps(f"{type(error).__name__}: {error}"))
print(json.dumps("huggingface_hub" in sys.modules))
"""


def in_a_process(script, hub, home, *arguments):
    """What a script prints, line by line; the Hub's client reads its address when it is imported."""
    mine = {"HF_ENDPOINT": hub.address, "HF_HOME": str(home), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        env={**kept, **mine, "NO_PROXY": "*"},
        cwd=home,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def opened(hub, home, *calls):
    return in_a_process(SCRIPT, hub, home, json.dumps(calls))


def test_a_folder_keeps_labels_and_probabilities(fitted, tmp_path):
    assert fitted.save_pretrained(tmp_path / "kept", license="mit") is None
    assert {path.name for path in (tmp_path / "kept").iterdir()} == FILES
    again = ADAMABClassifier.from_pretrained(tmp_path / "kept", embedder=HashEmbedder())
    assert again.predict(["refund please"]).tolist() == [7]
    np.testing.assert_array_equal(again.predict_proba(TEXTS), fitted.predict_proba(TEXTS))
    card = (tmp_path / "kept" / "README.md").read_text("utf-8")
    assert "license: mit" in card
    assert "generator: none" in card
    assert "| 7 | unknown | 0 |" in card
    assert load(tmp_path / "kept", embedder=HashEmbedder()).classes_.tolist() == [7, 8]
    again.save_pretrained(tmp_path / "again")  # an estimator that was loaded knows less, and says so
    assert "an unknown number of synthetic samples" in (tmp_path / "again" / "README.md").read_text("utf-8")


def test_a_subclass_gets_its_own_kind(fitted, tmp_path):
    class Mine(ADAMABClassifier):
        pass

    fitted.save_pretrained(tmp_path)
    assert type(Mine.from_pretrained(str(tmp_path), embedder=HashEmbedder())) is Mine


def test_what_was_not_fitted_is_not_saved(tmp_path):
    with pytest.raises(NotFittedError):
        ADAMABClassifier().save_pretrained(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_place_that_cannot_be_written_is_one_line(fitted, tmp_path):
    (tmp_path / "README.md").mkdir()
    with pytest.raises(ModelFileError, match=r"README\.md: cannot be written"):
        fitted.save_pretrained(tmp_path)


@pytest.mark.parametrize(
    "name", ["./missing", "/no/such/folder", "a/b/c", "~/x", "", "a b", Path("someone/model")]
)
def test_what_is_neither_a_folder_nor_an_id_asks_nobody(name, monkeypatch):
    monkeypatch.setattr(adamab.run.hub, "_hub", None)  # a call would be a TypeError
    with pytest.raises(ModelFileError, match="no such folder, and no id of the Hub"):
        ADAMABClassifier.from_pretrained(name)


def test_without_the_hubs_package_one_line_names_it(fitted, tmp_path, monkeypatch):
    monkeypatch.setattr(adamab.run.hub, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"'someone/model' is no folder here.*adamab\[hub\]"):
        ADAMABClassifier.from_pretrained("someone/model")
    with pytest.raises(MissingExtraError, match=r"adamab\[hub\]"):
        fitted.save_pretrained(tmp_path, push_to_hub=True)
    fitted.save_pretrained(tmp_path)
    assert ADAMABClassifier.from_pretrained(tmp_path, embedder=HashEmbedder()).predict(["cash"])[0] == 7


def test_a_folder_needs_neither_the_package_nor_the_network(hub, tmp_path):
    told = opened(hub, tmp_path, ("source", {}))
    assert told[0] == ["yes"]
    assert told[1] is False  # the Hub's client was not even imported
    assert hub.asked == []


def test_an_id_is_fetched_once_and_only_its_model_files(hub, tmp_path):
    local = load(tmp_path / "source").predict(["refund"]).tolist()
    assert local == ["yes"]
    told = opened(hub, tmp_path, ("me/model", {}), ("me/model", {"revision": COMMIT, "token": TOKEN}))
    assert told[:2] == [local, local]
    fetched = [path.rpartition("/")[2] for path in hub.asked if path.startswith("GET /me/")]
    assert sorted(fetched) == ["model.json", "model.safetensors"]
    assert not any(name in path for path in hub.asked for name in ("bin", ".py", "README"))
    hub.asked.clear()
    assert opened(hub, tmp_path, ("me/model", {"local_files_only": True}))[0] == local
    assert hub.asked == []


def test_faults_of_the_hub_are_one_line_each(hub, model_files, tmp_path):
    weights = model_files["model.safetensors"]
    hub.repositories |= {"me/damaged": dict(model_files), "me/short": dict(model_files)}
    hub.sent["me/damaged", "model.safetensors"] = weights[:-1] + bytes([weights[-1] ^ 1])
    hub.sent["me/short", "model.safetensors"] = weights[:-8]
    hub.repositories["me/foreign"] = {"pytorch_model.bin": b"a pickle", "config.json": b"{}"}
    hub.repositories["me/half"] = {"model.json": model_files["model.json"]}
    hub.refused |= {"me/gated": (403, "GatedRepo"), "me/closed": (401, ""), "me/odd": (418, "")}
    names = ("missing", "damaged", "short", "foreign", "half", "gated", "closed", "odd")
    secret = {"token": TOKEN}
    calls = [*((f"me/{name}", secret) for name in names), ("me/model", {**secret, "revision": "v9"})]
    *told, _ = opened(hub, tmp_path, *calls)
    assert len(told) == 9
    found = dict(zip((*names, "revision"), told, strict=True))
    assert "no such repository, or it needs a token" in found["missing"]
    assert "model.safetensors: damaged, or not of the same model" in found["damaged"]
    assert "'me/short' cannot be had from the Hub" in found["short"] or "damaged" in found["short"]
    assert "holds no model.json; is it a model of adamab?" in found["foreign"]
    assert "model.safetensors: no such file" in found["half"]
    assert "access has to be asked for" in found["gated"]
    assert "me/closed" in found["closed"]
    assert "status 418" in found["odd"]
    assert "no such revision" in found["revision"]
    for line in told:
        assert line.startswith("ModelFileError: ")
        assert "\n" not in line
        assert TOKEN not in line
        assert "a long story" not in line
    assert f"Bearer {TOKEN}" in hub.tokens


def test_nobody_at_the_other_end_is_one_line(hub, tmp_path):
    hub.shutdown()
    hub.server_close()
    (told, _) = opened(hub, tmp_path, ("me/model", {}))
    assert told.startswith("ModelFileError: 'me/model' cannot be had from the Hub")


PUSH = """
import json, sys
from adamab import ADAMABClassifier
from adamab.errors import AdamabError
model = ADAMABClassifier.from_pretrained("source")
for options in ({"repo_id": "me/new"}, {}, {"repo_id": "me/refused"}):
    try:
        print(json.dumps(model.save_pretrained("copy", push_to_hub=True, token=sys.argv[1], **options)))
    except AdamabError as error:
        print(json.dumps(str(error)))
"""


def test_a_model_is_pushed_with_its_card_and_comes_back(hub, model_files, tmp_path):
    hub.refused["me/refused"] = (403, "")
    (tmp_path / "copy").mkdir()
    for name in ("secret.txt", "classes.safetensors"):  # the latter holds vectors of samples
        (tmp_path / "copy" / name).write_text("stays here")
    first, second, third = in_a_process(PUSH, hub, tmp_path, TOKEN)
    assert first.endswith(f"/me/new/commit/{COMMIT}")
    assert second.endswith(f"/me/copy/commit/{COMMIT}")
    assert "'me/refused' cannot be written to the Hub: status 403" in third
    assert TOKEN not in third
    assert set(hub.repositories["me/new"]) == set(hub.repositories["me/copy"]) == FILES
    assert hub.repositories["me/new"]["model.safetensors"] == model_files["model.safetensors"]
    assert b"from_pretrained('me/new')" in hub.repositories["me/new"]["README.md"]
    assert opened(hub, tmp_path, ("me/new", {}))[0] == ["yes"]


@pytest.mark.parametrize("mark", ["fit.json", "journal.sqlite"])
def test_a_run_is_no_place_for_a_model(fitted, tmp_path, mark):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / mark).write_text('{"format": "adamab-run"}')
    for name, said in (("run", "is a run"), ("run/model", "lies in the run")):
        for keep in (fitted.save, fitted.save_pretrained):
            with pytest.raises(RunError, match=f"{said}.*name another folder"):
                keep(tmp_path / name)
    assert [path.name for path in (tmp_path / "run").iterdir()] == [mark]
    fitted.save(tmp_path / "saved")
    fitted.save(tmp_path / "saved")  # one's own may be replaced
    fitted.save_pretrained(tmp_path / "saved")


def test_a_path_that_is_none_is_one_line(fitted):
    for keep in (fitted.save, fitted.save_pretrained):
        with pytest.raises(ModelFileError, match="cannot be written"):
            keep("a\0b")


def test_a_card_of_somebody_else_stays(fitted, tmp_path):
    card = tmp_path / "README.md"
    card.write_text("---\nlicense: mit\n---\nmine")
    fitted.save_pretrained(tmp_path, license="apache-2.0")
    assert card.read_text() == "---\nlicense: mit\n---\nmine"
    assert ADAMABClassifier.from_pretrained(tmp_path, embedder=HashEmbedder()).predict(["cash"])[0] == 7
    card.unlink()
    for licence in ("apache-2.0", "bsd-3-clause"):
        fitted.save_pretrained(tmp_path, license=licence)
        assert f"license: {licence}" in card.read_text("utf-8")


def test_a_card_tells_which_labels_were_added(tmp_path):
    clf = ADAMABClassifier(HashEmbedder(), random_state=0).fit(TEXTS, [7, 7, 8, 8])
    clf.add_class(1, "asks how").save_pretrained(tmp_path)
    card = (tmp_path / "README.md").read_text("utf-8")
    assert "| 1 (added later, not trained yet) | unknown | 0 |" in card
    assert "| 7 | unknown | 0 |" in card


PUSH_PLACES = """
import json, sys
from dataclasses import replace
from adamab import ADAMABClassifier
from adamab.errors import AdamabError
model = ADAMABClassifier.from_pretrained("source")
plain = model.classifier_
for told in ({"embedder_spec": "openai:m?base_url=http://10.0.0.5/v1&key_env=ACME_KEY"},
             {"embedder_spec": "openai:m", "fingerprint": "openai:m@10.0.0.5/v1"}):
    model.classifier_ = replace(plain, **told)
    for options in ({}, {"share_embedder": True}):
        try:
            print(json.dumps(model.save_pretrained("copy", repo_id="me/new", push_to_hub=True, **options)))
        except AdamabError as error:
            print(json.dumps(f"{type(error).__name__}: {error}"))
"""


def test_a_place_of_this_machine_is_not_pushed_unless_told(hub, tmp_path):
    first, pushed, second, again = in_a_process(PUSH_PLACES, hub, tmp_path)
    assert "make public the name of the embedder 'openai:m'" in first
    assert "make public the fingerprint of the embedder 'openai:m'" in second
    for line in (first, second):
        assert line.startswith("ModelFileError: ")
        assert "share_embedder=True" in line
        assert "10.0.0.5" not in line
        assert "ACME_KEY" not in line
    assert pushed.endswith(COMMIT)
    assert again.endswith(COMMIT)
    assert sum(path.startswith("POST") and "/commit/" in path for path in hub.asked) == 2
    assert b"10.0.0.5" not in hub.repositories["me/new"]["README.md"]
