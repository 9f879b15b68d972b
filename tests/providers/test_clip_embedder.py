"""`clip:` on tiny random CLIP and SigLIP models that the real loader reads from disk."""

from __future__ import annotations

import io
import json
import pickle
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import adamab
from adamab.cli.app import app
from adamab.errors import EmbedderError, MissingExtraError
from adamab.providers.embedders.clip import SUGGESTED, ClipEmbedder
from adamab.testing import check_embedder
from tests.providers.conftest import cached_at

torch = pytest.importorskip("torch", reason="the extra 'clip' is not installed")
transformers = pytest.importorskip("transformers", reason="the extra 'clip' is not installed")
safetensors = pytest.importorskip("safetensors.torch", reason="the extra 'clip' is not installed")
pillow = pytest.importorskip("PIL.Image", reason="the extra 'clip' is not installed")

SIDE, TOKENS = 32, 12
TEXTS = ["a photo of a cat", "dog", "red the cat of dog", "cab"]
LONG = "a photo of a cat a photo of a dog a photo of the red cat"
TEXT_TOWER = {
    "vocab_size": 600, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 2, "max_position_embeddings": TOKENS,
}  # fmt: skip
IMAGE_TOWER = {
    "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "patch_size": 8,
}  # fmt: skip


def save_clip(directory):
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    tokens = [
        *letters,
        *(f"{letter}</w>" for letter in letters),
        "ca",
        "cat</w>",
        "<|startoftext|>",
        "<|endoftext|>",
    ]
    ids = {token: number for number, token in enumerate(tokens)}
    merges = [("c", "a"), ("ca", "t</w>")]
    marks = {"bos_token_id": ids["<|startoftext|>"], "eos_token_id": ids["<|endoftext|>"]}
    config = transformers.CLIPConfig(
        text_config=TEXT_TOWER | marks, vision_config=IMAGE_TOWER | {"image_size": SIDE}, projection_dim=10
    )
    transformers.CLIPModel(config).save_pretrained(directory)
    transformers.CLIPTokenizer(vocab=ids, merges=merges, model_max_length=77).save_pretrained(directory)
    processor = transformers.CLIPImageProcessorPil(
        size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE}
    )
    processor.save_pretrained(directory)


def save_siglip2(directory):
    config = transformers.Siglip2Config(
        text_config=TEXT_TOWER | {"bos_token_id": 2, "eos_token_id": 1},
        vision_config=IMAGE_TOWER | {"num_patches": 16},
    )
    transformers.Siglip2Model(config).save_pretrained(directory)
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "▁"]
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    ids = {token: number for number, token in enumerate([*special, *letters])}
    transformers.Siglip2Tokenizer(vocab=ids, merges=[]).save_pretrained(directory)
    transformers.Siglip2ImageProcessorPil(patch_size=8, max_num_patches=16).save_pretrained(directory)


SAVERS: dict[str, Callable[[Path], None]] = {
    "clip": save_clip,
    "siglip2": save_siglip2,
}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    torch.manual_seed(0)
    directories = {name: tmp_path_factory.mktemp(name) / "model" for name in SAVERS}
    transformers.utils.logging.disable_progress_bar()
    for name, directory in directories.items():
        SAVERS[name](directory)
    transformers.utils.logging.enable_progress_bar()
    return directories


def direct(directory, images):
    """What transformers itself computes, all in one batch."""
    model = transformers.AutoModel.from_pretrained(directory).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    processor = transformers.AutoImageProcessor.from_pretrained(directory, backend="pil")
    padding = True if model.config.model_type == "clip" else "max_length"
    with torch.inference_mode():
        texts = tokenizer(TEXTS, padding=padding, truncation=True, max_length=TOKENS, return_tensors="pt")
        sample_images = processor(images=[pillow.open(image.path) for image in images], return_tensors="pt")
        outputs = model.get_text_features(**texts), model.get_image_features(**sample_images)
        features = [out if isinstance(out, torch.Tensor) else out.pooler_output for out in outputs]
        return tuple(torch.nn.functional.normalize(x, dim=1).numpy() for x in features)


@pytest.mark.parametrize("name", SAVERS)
async def test_both_towers_are_the_models_own(models, images, name, capfd):
    texts, sample_images = direct(models[name], images)
    capfd.readouterr()
    embedder = ClipEmbedder(str(models[name]), device="cpu", batch_size=2)
    answer = await pickle.loads(pickle.dumps(embedder)).embed([*TEXTS, *images])
    assert capfd.readouterr().err == ""  # neither advice nor progress bars
    pooled = answer.views["pooled"]
    np.testing.assert_allclose(pooled, np.concatenate([texts, sample_images]), atol=1e-6)
    assert len(np.unique(pooled.round(4), axis=0)) == len(TEXTS) + len(images)
    assert pooled.dtype == np.float32
    assert not answer.overlong[len(TEXTS) :].any()


@pytest.mark.parametrize("name", SAVERS)
def test_conformance(models, images, name):
    embedder = ClipEmbedder(str(models[name]), batch_size=3)
    assert (embedder.views, embedder.modalities) == (("pooled",), {"text", "image"})
    check_embedder(embedder, texts=TEXTS, images=images)


async def test_long_texts_are_cut_and_flagged(models):
    answer = await ClipEmbedder(str(models["clip"])).embed([LONG, "a cat", LONG + " red"])
    assert answer.overlong.tolist() == [True, False, True]  # the tokenizer of CLIP says 77, the tower 12
    np.testing.assert_allclose(answer.views["pooled"][0], answer.views["pooled"][2], atol=1e-6)


def copied(model, target):
    shutil.copytree(model, target)
    return target


def test_the_fingerprint_is_the_content(models, tmp_path):
    reference = ClipEmbedder(str(models["clip"])).fingerprint
    edited = copied(models["clip"], tmp_path / "edited")
    assert ClipEmbedder(str(edited), batch_size=7).fingerprint == reference
    settings = json.loads((edited / "preprocessor_config.json").read_text())
    (edited / "preprocessor_config.json").write_text(json.dumps({**settings, "do_normalize": False}))
    assert ClipEmbedder(str(edited)).fingerprint != reference


def spoil(model, how):
    config = json.loads((model / "config.json").read_text())
    if how == "text-only":
        transformers.BertModel(
            transformers.BertConfig(
                vocab_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
            )
        ).save_pretrained(model)
    elif how == "half":
        weights = safetensors.load_file(model / "model.safetensors")
        del weights["text_projection.weight"]
        safetensors.save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
    elif how == "pickled":
        buffer = io.BytesIO()
        torch.save({}, buffer)
        (model / "model.safetensors").unlink()
        (model / "pytorch_model.bin").write_bytes(buffer.getvalue())
    elif how == "cut":
        (model / "model.safetensors").write_bytes((model / "model.safetensors").read_bytes()[:100])
    elif how == "config":
        (model / "config.json").write_text("{")
    elif how == "no tokenizer":
        for file in model.glob("*token*"):
            file.unlink()
    elif how == "foreign code":
        (model / "config.json").write_text(
            json.dumps(
                {
                    **config,
                    "model_type": "own",
                    "auto_map": {"AutoModel": "evil.Evil", "AutoConfig": "evil.Evil"},
                }
            )
        )
        (model / "evil.py").write_text("raise SystemExit('it ran')")
    elif how == "sentencepiece":
        (model / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "SiglipTokenizer"}))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("text-only", "not a model with a tower for images and one for texts"),
        ("pickled", "pytorch_model.bin: weights are not safetensors"),
        ("cut", "the model cannot be loaded"),
        ("config", "the model cannot be loaded"),
        ("half", "the weights lack 'text_projection.weight'"),
        ("no tokenizer", "has no vocabulary"),
        ("foreign code", "the model cannot be loaded"),
        ("sentencepiece", "needs sentencepiece; run: pip install sentencepiece"),
    ],
)
async def test_unsafe_and_damaged_models_are_refused(models, tmp_path, how, message):
    model = copied(models["clip"], tmp_path / "bad")
    spoil(model, how)
    with pytest.raises(EmbedderError, match=message) as caught:
        await ClipEmbedder(str(model)).embed(["cat"])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("/no/such/dir", "clip:/no/such/dir: no such model directory"),
        ("vit-huge", "clip:vit-huge: no directory, no hub id .* presets: vit-large"),
    ],
)
def test_missing_models_are_refused_at_once(name, message, tmp_path):
    with pytest.raises(EmbedderError, match=message):
        ClipEmbedder(name)
    with pytest.raises(EmbedderError, match="is not a model directory"):
        ClipEmbedder(str(tmp_path))


def test_the_preset_is_looked_for_on_the_hub(hub):
    assert str(ClipEmbedder("vit-large")) == "clip:vit-large"
    with pytest.raises(EmbedderError, match="clip:openai/clip-vit-large-patch14: cannot be fetched"):
        _ = ClipEmbedder("vit-large").fingerprint


@pytest.mark.parametrize(("package", "named"), [("transformers", "transformers"), ("PIL", "Pillow")])
def test_missing_packages_name_the_extra(models, monkeypatch, package, named):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"{named} is not installed; .*adamab\[clip\]"):
        ClipEmbedder(str(models["clip"]))


@pytest.fixture
def pictures(tmp_path, paint, monkeypatch):
    """The current directory, with a folder of images."""
    paint(tmp_path / "given", {"red": 3, "green": 3})
    monkeypatch.chdir(tmp_path)


def fit(*options):
    return CliRunner().invoke(app, ["fit", "given", "--run", "run", *options])


def test_images_without_an_embedder_take_the_clip_that_is_there(hub, models, tmp_path, pictures):
    refused = fit("--dry-run")
    assert refused.exit_code == 2
    assert refused.stderr.count("\n") == 1
    for fact in ("'adamab[clip]'", SUGGESTED, "605 MB", "MIT"):
        assert fact in refused.stderr
    other = cached_at(hub, "a/text-model", models["siglip2"])
    (other / "config.json").write_text('{"model_type": "bert"}')
    cached_at(hub, "openai/clip-vit-base-patch32", models["clip"], "refs/pr/15")
    fitted = fit()
    assert fitted.exit_code == 0, fitted.output
    assert f"embedder: {SUGGESTED}; --embedder names another" in fitted.stderr
    files = sorted(tmp_path.glob("given/*/*.png"))
    loaded = adamab.load("run")
    assert loaded.classifier_.embedder_spec == SUGGESTED
    labels = [file.parent.name for file in files]
    clf = adamab.ADAMABClassifier(modality="image", random_state=0).fit(files, labels)
    np.testing.assert_array_equal(clf.predict_proba(files), loaded.predict_proba(files))
    cached_at(hub, "a/clip", models["clip"])  # a run goes on with what it began with
    assert adamab.load("run").classifier_.embedder_spec == SUGGESTED
    again = fit("--seed", "0")
    assert "nothing has changed" in again.stderr, again.output


def test_a_repository_without_safetensors_says_where_to_look(hub, models, tmp_path):
    bare = copied(models["clip"], tmp_path / "bare")
    (bare / "model.safetensors").unlink()
    cached_at(hub, "org/pickled", bare)
    message = r"^clip:org/pickled: its repository has no safetensors weights.*\?revision=refs/pr/NUMBER$"
    with pytest.raises(EmbedderError, match=message):
        _ = ClipEmbedder("org/pickled").fingerprint
    with pytest.raises(EmbedderError, match=r"a folder has no revision; leave out \?revision="):
        _ = ClipEmbedder(str(bare), revision="main").fingerprint
