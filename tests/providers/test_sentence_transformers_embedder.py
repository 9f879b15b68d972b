"""`st:` on a tiny model that the real loader reads."""

import json
import shutil
import socket
import sys
from pathlib import Path

import numpy as np
import pytest

from adamab.errors import EmbedderError, MissingExtraError
from adamab.providers.embedders import local_models as model_files
from adamab.providers.embedders.sentence_transformers import SentenceTransformerEmbedder as Embedder
from adamab.testing import check_embedder
from tests.providers.conftest import cached_at

pytest.importorskip("sentence_transformers", reason="the extra 'st' is not installed")

TEXTS = ["send my money back", "the app crashes", "hello", "good bye world when i open it", "refund please"]
LONG = "money back please hello world refund the app crashes when i open it good bye a hello world please"
VIEWS = ("pooled", "layers", "first", "max")


def copied(model, target):
    shutil.copytree(model, target)
    return target


def edit(file, **changes):
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


async def test_views_and_shapes(tiny_model):
    embedder = Embedder(str(tiny_model))
    assert embedder.views == VIEWS
    answer = await embedder.embed(TEXTS)
    assert {v: x.shape for v, x in answer.views.items()} == {
        "pooled": (5, 8), "layers": (5, 24), "first": (5, 72), "max": (5, 24),
    }  # fmt: skip
    np.testing.assert_allclose(np.linalg.norm(answer.views["pooled"], axis=1), 1, rtol=1e-5)
    for view in VIEWS[1:]:
        np.testing.assert_array_equal(answer.views[view], answer.views[view].astype(np.float16))
    check_embedder(embedder)


async def test_long_texts_are_flagged_and_cut(tiny_model):
    answer = await Embedder(str(tiny_model)).embed(
        [LONG, "hello", " ".join(LONG.split()[:14]), " ".join(LONG.split()[:15])]
    )
    assert answer.overlong.tolist() == [True, False, False, True]  # 16 tokens with CLS and SEP
    np.testing.assert_allclose(answer.views["pooled"][0], answer.views["pooled"][2], atol=1e-5)


async def test_long_texts_are_averaged_over_their_pieces(tiny_model):
    embedder = Embedder(str(tiny_model), long_texts="average")
    words = LONG.split()
    answer = await embedder.embed([LONG, "hello", " ".join(words[:14]), " ".join(words[14:])])
    assert answer.overlong.tolist() == [True, False, False, False]
    weights = np.array([14, len(words) - 14]) / len(words)
    for view, x in answer.views.items():
        expected = weights @ x[2:].astype(np.float64)
        if view == "pooled":
            expected /= np.linalg.norm(expected)
        np.testing.assert_allclose(x[0], expected, atol=2e-3)
    cut = await Embedder(str(tiny_model)).embed(["hello"])
    np.testing.assert_allclose(answer.views["pooled"][1], cut.views["pooled"][0], atol=1e-5)


@pytest.mark.parametrize("name", ["document", "passage"])
async def test_prompts_of_the_model_are_used_by_kind(tiny_model, tmp_path, name):
    from sentence_transformers import SentenceTransformer

    prompted = copied(tiny_model, tmp_path / "m")
    edit(prompted / "config_sentence_transformers.json", prompts={"query": "query : ", name: "class : "})
    own = SentenceTransformer(str(prompted), device="cpu")
    embedder = Embedder(str(prompted))
    query = await embedder.embed(["hello world"])
    klass = await embedder.embed(["hello world"], kind="class")
    np.testing.assert_allclose(
        query.views["pooled"], own.encode_query(["hello world"], normalize_embeddings=True), atol=1e-6
    )
    np.testing.assert_allclose(
        klass.views["pooled"], own.encode_document(["hello world"], normalize_embeddings=True), atol=1e-6
    )
    # The first content tokens are the text's own, read in the prompt's context.
    written = await Embedder(str(tiny_model)).embed(["query : hello world"])
    np.testing.assert_allclose(query.views["pooled"], written.views["pooled"], atol=1e-6)
    first, third = query.views["first"].reshape(3, -1), written.views["first"].reshape(3, -1)[2]
    np.testing.assert_array_equal(first[0], third)
    assert (first[2] == 0).all()


async def test_a_bare_transformer_gets_mean_pooling(tiny_model):
    bare = Embedder(str(tiny_model.parent / "raw"))
    assert bare.views == VIEWS
    whole = await Embedder(str(tiny_model)).embed(TEXTS)
    np.testing.assert_allclose((await bare.embed(TEXTS)).views["pooled"], whole.views["pooled"], atol=1e-6)


async def test_models_without_hidden_layers_offer_only_pooled(tmp_path, tiny_model):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tiny_model / "tokenizer.json"))
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=8)], device="cpu").save(
        str(tmp_path / "static"), create_model_card=False
    )
    embedder = Embedder(str(tmp_path / "static"))
    assert embedder.views == ("pooled",)
    assert not (await embedder.embed([LONG])).overlong.any()
    check_embedder(embedder)


def test_fingerprint_follows_what_decides_the_vectors(tiny_model, tmp_path):
    reference = Embedder(str(tiny_model)).fingerprint
    same = copied(tiny_model, tmp_path / "same")
    (same / "README.md").write_text("words")
    assert Embedder(str(same)).fingerprint == reference
    assert Embedder(str(tiny_model), long_texts="average").fingerprint != reference
    assert Embedder(str(tiny_model), batch_size=3).fingerprint == reference
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        other = copied(tiny_model, tmp_path / name)
        content = bytearray((other / name).read_bytes())
        content[-1] ^= 1
        (other / name).write_bytes(content)
        assert Embedder(str(other)).fingerprint != reference


async def test_loading_is_silent_and_stays_off_the_network(tiny_model, monkeypatch, capfd):
    def refuse(*args):
        raise AssertionError("a network call")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    await Embedder(str(tiny_model)).embed([LONG])
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("model.safetensors", lambda path: path.rename(path.with_name("model.bin")), "are not safetensors"),
        ("model.safetensors", Path.unlink, "no safetensors weights"),
        ("model.safetensors", lambda path: path.write_bytes(path.read_bytes()[:1000]), "cannot be loaded"),
        ("modules.json", lambda path: path.write_text("{}x"), "the model is damaged"),
        (
            "modules.json",
            lambda path: path.write_text(path.read_text().replace("sentence_transformers.", "evil.", 1)),
            "is not part of sentence-transformers",
        ),
    ],
    ids=["pickle", "none", "cut", "modules", "code"],
)
async def test_unsafe_and_damaged_models_are_refused(tiny_model, tmp_path, file, change, message):
    model = copied(tiny_model, tmp_path / "bad")
    change(model / file)
    with pytest.raises(EmbedderError, match=message) as caught:
        await Embedder(str(model)).embed(["hello"])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["/no/such/dir", "./missing", "a/b/c", " ", __file__])
def test_missing_directories_are_refused_at_once(name, tmp_path):
    with pytest.raises(EmbedderError, match="no such model directory"):
        Embedder(name)
    with pytest.raises(EmbedderError, match="is not a model directory: it has neither"):
        Embedder(str(tmp_path))


def test_only_the_models_own_files_are_looked_at(tiny_model, tmp_path):
    model = copied(tiny_model, tmp_path / "m")
    reference = Embedder(str(tiny_model)).fingerprint
    for folder in ("data/deep", ".git/objects", "onnx"):
        (model / folder).mkdir(parents=True)
        (model / folder / "notes.json").write_text("{}")
        (model / folder / "old.bin").write_text("")
    (model / "gone.json").symlink_to(model / "vanished")
    assert Embedder(str(model)).fingerprint == reference
    model_files.find_model(str(model)).check()
    inner = next(folder for folder in model.iterdir() if folder.name.endswith("_Pooling")) / "route_0"
    inner.mkdir()
    (inner / "config.json").write_text("{}")  # as a router keeps its modules
    assert Embedder(str(model)).fingerprint != reference
    (inner / "pytorch_model.bin").write_text("")
    with pytest.raises(EmbedderError, match="weights are not safetensors"):
        model_files.find_model(str(model)).check()


def test_missing_packages_name_the_extra(tiny_model, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "huggingface_hub", None)
        with pytest.raises(MissingExtraError):
            _ = Embedder("org/name").fingerprint
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtraError, match=r"sentence-transformers .* 'adamab\[st\]'"):
        Embedder(str(tiny_model))


async def test_hub_ids(tiny_model, hub, monkeypatch, capfd):
    monkeypatch.delenv("SENTENCE_TRANSFORMERS_HOME", raising=False)
    with pytest.raises(EmbedderError, match=r"^st:nope/nope: cannot be fetched from the hub"):
        await Embedder("nope/nope").embed(["hello world"])
    for switch in ("ADAMAB_OFFLINE", "HF_HUB_OFFLINE"):
        with monkeypatch.context() as patch:
            patch.setenv(switch, "1")
            with pytest.raises(EmbedderError, match=f"is not on this machine, and .*{switch}"):
                await Embedder("nope/nope").embed(["hello world"])
    snapshot = cached_at(hub, "org/tiny", tiny_model)
    embedder = Embedder("org/tiny")
    assert embedder.fingerprint == f"st:org/tiny@{snapshot.name}:cut:views-1"
    await embedder.embed(["hello world"])
    assert capfd.readouterr().err == "", "no progress bars without a terminal"
