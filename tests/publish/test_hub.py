"""`save_pretrained` and `from_pretrained`: folders, and ids on a server that speaks the Hub's protocol."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import adamab.publish.hub
from adamab import ADAMABClassifier, load
from adamab.errors import MissingExtraError, ModelFileError, RunError
from adamab.model import Classifier, Head, save
from adamab.task.words import Vocabulary
from adamab.testing import HashEmbedder

TEXTS = ["cash back please", "refund my cash", "great product", "really great work"]
FILES = {"model.json", "model.safetensors", "README.md"}
COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_secretsecretsecret"


@pytest.fixture(scope="module")
def fitted():
    return ADAMABClassifier(HashEmbedder(), random_state=0).fit(TEXTS, [7, 7, 8, 8])


def kept(folder):
    return ADAMABClassifier.from_pretrained(folder, embedder=HashEmbedder())


@pytest.fixture
def model_files(tmp_path):
    """A model of words alone, which needs no embedder, as bytes by file name."""
    vocabulary = Vocabulary.learn(TEXTS)
    linear = np.random.default_rng(0).standard_normal((2, len(vocabulary.terms))).astype(np.float32)
    head = Head(view="words", linear=linear)
    save(Classifier(classes=("no", "yes"), heads=(head,), vocabulary=vocabulary), tmp_path / "source")
    return {path.name: path.read_bytes() for path in (tmp_path / "source").iterdir()}


class Hub(ThreadingHTTPServer):
    """Repositories by id; `sent` says what a download really gives, where that differs."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server_address[1]}"
        self.repositories = {}
        self.sent = {}
        self.refused = {}
        self.requests = []
        self.tokens = set()

    def answer(self, path, method, body):
        """Status, content and headers."""
        match path.partition("?")[0].strip("/").split("/"):
            case ["api", "validate-yaml"]:
                return 200, {"warnings": [], "errors": []}, {}
            case ["api", "repos", "create"]:
                wanted = json.loads(body)
                name = f"{wanted.get('organization') or 'me'}/{wanted['name'].rpartition('/')[2]}"
                if name not in self.refused:
                    self.repositories.setdefault(name, {})
                return self._refusal(name) or (200, {"url": f"{self.address}/{name}", "name": name}, {})
            case ["api", "models", owner, model, "preupload", _]:
                names = [file["path"] for file in json.loads(body)["files"]]
                modes = [{"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in names]
                return 200, {"files": modes}, {}
            case ["api", "models", owner, model, "commit", _]:
                for line in map(json.loads, body.splitlines()):
                    if line["key"] == "file":
                        content = base64.b64decode(line["value"]["content"])
                        self.repositories[f"{owner}/{model}"][line["value"]["path"]] = content
                url = f"{self.address}/{owner}/{model}/commit/{COMMIT}"
                return 200, {"success": True, "commitOid": COMMIT, "commitUrl": url}, {}
            case ["api", "models", owner, model, kind, revision]:
                return self._refusal(f"{owner}/{model}") or self._about(f"{owner}/{model}", kind, revision)
            case [owner, model, "resolve", _, file]:
                name = f"{owner}/{model}"
                content = self.repositories[name][file]
                headers = {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": COMMIT}
                return 200, self.sent.get((name, file), content) if method == "GET" else content, headers
        return 404, {}, {}

    def _refusal(self, name):
        status, code = self.refused.get(name, (0, ""))
        return (status, {"error": "a long story"}, {"X-Error-Code": code} if code else {}) if status else None

    def _about(self, name, kind, revision):
        files = self.repositories.get(name)
        if files is None:
            return 404, {}, {"X-Error-Code": "RepoNotFound"}
        if revision not in ("main", COMMIT):
            return 404, {}, {"X-Error-Code": "RevisionNotFound"}
        rows = [
            {"type": "file", "path": path, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
            for path, content in files.items()
        ]
        siblings = [{"rfilename": path} for path in files]
        info = {"id": name, "sha": COMMIT, "siblings": siblings, "private": False}
        return 200, rows if kind == "tree" else info, {}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.server.requests.append(f"{self.command} {self.path}")
        self.server.tokens.add(self.headers.get("Authorization"))
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, content, headers = self.server.answer(self.path, self.command, body)
        kind = "application/octet-stream" if isinstance(content, bytes) else "application/json"
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Type": kind, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            with contextlib.suppress(ConnectionError):
                self.wfile.write(data)

    do_HEAD = do_POST = do_GET  # noqa: N815


@pytest.fixture
def hub(model_files, monkeypatch):
    extra = {"README.md": b"a card", "pytorch_model.bin": b"a pickle", "code.py": b"print('no')"}
    monkeypatch.setenv("NO_PROXY", "*")
    with Hub() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        server.repositories["me/model"] = {**model_files, **extra}
        constants = pytest.importorskip("huggingface_hub.constants")
        monkeypatch.setattr(constants, "ENDPOINT", server.address)
        template = server.address + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield server
        server.shutdown()


@pytest.fixture
def opened(tmp_path):
    """What a model says that is fetched by its id."""

    def predict(name, **options):
        model = ADAMABClassifier.from_pretrained(name, cache_dir=tmp_path / "cache", **options)
        return model.predict(["refund"]).tolist()

    return predict


def test_a_folder_keeps_labels_and_probabilities(fitted, tmp_path):
    assert fitted.save_pretrained(tmp_path / "kept", license="mit") is None
    assert {path.name for path in (tmp_path / "kept").iterdir()} == FILES
    again = kept(tmp_path / "kept")
    assert again.predict(["refund please"]).tolist() == [7]
    np.testing.assert_array_equal(again.predict_proba(TEXTS), fitted.predict_proba(TEXTS))
    card = (tmp_path / "kept" / "README.md").read_text("utf-8")
    for text in ("license: mit", "generator: none", "| 7 | unknown | 0 |"):
        assert text in card
    assert load(tmp_path / "kept", embedder=HashEmbedder()).classes_.tolist() == [7, 8]
    again.save_pretrained(tmp_path / "again")  # an estimator that was loaded knows less, and says so
    assert "an unknown number of synthetic samples" in (tmp_path / "again" / "README.md").read_text("utf-8")


def test_what_cannot_be_saved_is_one_line(fitted, tmp_path):
    with pytest.raises(NotFittedError):
        ADAMABClassifier().save_pretrained(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    with pytest.raises(ModelFileError, match="cannot be written"):
        fitted.save_pretrained("a\0b")
    (tmp_path / "README.md").mkdir()
    with pytest.raises(ModelFileError, match=r"README\.md: cannot be written"):
        fitted.save_pretrained(tmp_path)


@pytest.mark.parametrize("name", ["./missing", "/no/such/folder", "a/b/c", "", "a b", Path("someone/model")])
def test_what_is_neither_a_folder_nor_an_id_asks_nobody(name, monkeypatch):
    monkeypatch.setattr(adamab.publish.hub, "_hub", None)  # a call would be a TypeError
    with pytest.raises(ModelFileError, match="no such folder, and no id of the Hub"):
        ADAMABClassifier.from_pretrained(name)


def test_without_the_hubs_package_folders_work_and_one_line_names_it(fitted, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError, match=r"'someone/model' is no folder here.*adamab\[hub\]"):
        ADAMABClassifier.from_pretrained("someone/model")
    with pytest.raises(MissingExtraError, match=r"adamab\[hub\]"):
        fitted.save_pretrained(tmp_path, push_to_hub=True)
    fitted.save_pretrained(tmp_path)
    assert kept(tmp_path).predict(["cash"])[0] == 7


def test_an_id_is_fetched_once_and_only_its_model_files(hub, opened, tmp_path):
    assert load(tmp_path / "source").predict(["refund"]).tolist() == ["yes"]
    assert opened("me/model") == opened("me/model", revision=COMMIT, token=TOKEN) == ["yes"]
    fetched = [path.rpartition("/")[2] for path in hub.requests if path.startswith("GET /me/")]
    assert sorted(fetched) == ["model.json", "model.safetensors"]
    hub.requests.clear()
    assert opened("me/model", local_files_only=True) == ["yes"]
    assert hub.requests == []


def test_faults_of_the_hub_are_one_line_each(hub, model_files, opened):
    weights = model_files["model.safetensors"]
    hub.repositories |= {
        "me/damaged": dict(model_files),
        "me/foreign": {"pytorch_model.bin": b"a pickle", "config.json": b"{}"},
        "me/half": {"model.json": model_files["model.json"]},
    }
    hub.sent["me/damaged", "model.safetensors"] = weights[:-1] + bytes([weights[-1] ^ 1])
    hub.refused |= {"me/gated": (403, "GatedRepo"), "me/closed": (401, ""), "me/odd": (418, "")}
    for name, text in {
        "missing": "no such repository, or it needs a token",
        "damaged": "model.safetensors: damaged, or not of the same model",
        "foreign": "holds no model.json; is it a model of adamab?",
        "half": "model.safetensors: no such file",
        "gated": "access has to be asked for",
        "closed": "me/closed",
        "odd": "status 418",
        "model": "no such revision",
    }.items():
        with pytest.raises(ModelFileError) as error:
            opened(f"me/{name}", token=TOKEN, **({"revision": "v9"} if name == "model" else {}))
        line = str(error.value)
        assert text in line
        assert not any(secret in line for secret in ("\n", TOKEN, "a long story"))
    assert f"Bearer {TOKEN}" in hub.tokens


def test_a_model_is_pushed_with_its_card_and_comes_back(hub, model_files, opened, tmp_path):
    hub.refused["me/refused"] = (403, "")
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("secret.txt", "classes.safetensors"):  # the latter holds vectors of samples
        (copy / name).write_text("stays here")
    model = ADAMABClassifier.from_pretrained(tmp_path / "source")
    for options, name in (({"repo_id": "me/new"}, "me/new"), ({}, "me/copy")):
        address = model.save_pretrained(copy, push_to_hub=True, token=TOKEN, **options)
        assert address.endswith(f"/{name}/commit/{COMMIT}")
        assert set(hub.repositories[name]) == FILES
    with pytest.raises(ModelFileError, match="'me/refused' cannot be written to the Hub: status 403"):
        model.save_pretrained(copy, push_to_hub=True, token=TOKEN, repo_id="me/refused")
    assert hub.repositories["me/new"]["model.safetensors"] == model_files["model.safetensors"]
    assert b"from_pretrained('me/new')" in hub.repositories["me/new"]["README.md"]
    assert opened("me/new") == ["yes"]


@pytest.mark.parametrize(
    ("known", "what"),
    [
        ({"embedder_spec": "openai:m?base_url=http://10.0.0.5/v1&key_env=ACME_KEY"}, "name"),
        ({"embedder_spec": "openai:m", "fingerprint": "openai:m@10.0.0.5/v1"}, "fingerprint"),
    ],
)
def test_a_place_of_this_machine_is_not_pushed_unless_told(hub, model_files, tmp_path, known, what):
    model = ADAMABClassifier.from_pretrained(tmp_path / "source")
    model.classifier_ = replace(model.classifier_, **known)
    options = {"repo_id": "me/new", "push_to_hub": True}
    with pytest.raises(ModelFileError, match=f"make public the {what} of the embedder 'openai:m'") as error:
        model.save_pretrained(tmp_path / "copy", **options)
    assert "share_embedder=True" in str(error.value)
    assert not any(secret in str(error.value) for secret in ("10.0.0.5", "ACME_KEY"))
    assert not any(path.startswith("POST") for path in hub.requests)
    assert model.save_pretrained(tmp_path / "copy", share_embedder=True, **options).endswith(COMMIT)
    assert b"10.0.0.5" not in hub.repositories["me/new"]["README.md"]


@pytest.mark.parametrize("mark", ["fit.json", "journal.sqlite"])
def test_a_run_is_no_place_for_a_model(fitted, tmp_path, mark):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / mark).write_text('{"format": "adamab-run"}')
    for name, said in (("run", "is a run"), ("run/model", "lies in the run")):
        for keep in (fitted.save, fitted.save_pretrained):
            with pytest.raises(RunError, match=f"{said}.*name another folder"):
                keep(tmp_path / name)
    assert [path.name for path in (tmp_path / "run").iterdir()] == [mark]


def test_a_card_of_somebody_else_stays(fitted, tmp_path):
    card = tmp_path / "README.md"
    card.write_text("---\nlicense: mit\n---\nmine")
    fitted.save_pretrained(tmp_path, license="apache-2.0")
    assert card.read_text() == "---\nlicense: mit\n---\nmine"
    card.unlink()
    for licence in ("apache-2.0", "bsd-3-clause"):  # one's own may be replaced
        fitted.save_pretrained(tmp_path, license=licence)
        assert f"license: {licence}" in card.read_text("utf-8")
