"""`timm:` on a tiny random network that the tests save in the hub's layout."""

import json
import shutil

import numpy as np
import pytest

from adamab.errors import EmbedderError
from adamab.providers.embedders.timm import TimmEmbedder
from adamab.testing import check_embedder

torch = pytest.importorskip("torch", reason="the extra 'timm' is not installed")
pillow = pytest.importorskip("PIL.Image", reason="the extra 'timm' is not installed")
try:
    import timm
except Exception as error:  # torchvision of another build raises a RuntimeError
    pytest.skip(
        f"timm cannot be imported ({type(error).__name__}: {error}); install the extra 'timm' and a "
        "torchvision that fits torch",
        allow_module_level=True,
    )

ARCHITECTURE = "resnet10t"
DATA = {"input_size": [3, 32, 32], "mean": [0.5, 0.4, 0.3], "std": [0.2, 0.25, 0.3], "crop_pct": 0.875}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """With its classifier, as weights are published."""
    torch.manual_seed(0)
    network = timm.create_model(ARCHITECTURE, num_classes=7, pretrained_cfg_overlay=DATA)
    with torch.no_grad():  # so that the statistics of batch norm matter
        for _ in range(5):
            network(torch.rand(8, 3, 32, 32))
    directory = tmp_path_factory.mktemp("timm") / "model"
    timm.models.save_for_hf(network, directory, safe_serialization=True)
    return directory


def direct(model, images):
    """What timm itself computes with its own loader and torchvision's transforms."""
    network = timm.create_model(f"local-dir:{model}", pretrained=True, num_classes=0).eval()
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(network))
    with torch.inference_mode():
        sample_images = torch.stack([transform(pillow.open(image.path)) for image in images])
        return torch.nn.functional.normalize(network(sample_images), dim=1).numpy()


async def test_features_are_timms_own(model, images):
    answer = await TimmEmbedder(str(model), device="cpu", batch_size=2).embed(images)
    np.testing.assert_allclose(answer.views["pooled"], direct(model, images), atol=1e-5)
    assert len(np.unique(answer.views["pooled"].round(4), axis=0)) == len(images)
    assert not answer.overlong.any()


def test_conformance(model, images):
    embedder = TimmEmbedder(str(model), batch_size=3)
    assert (embedder.views, embedder.modalities) == (("pooled",), {"image"})
    check_embedder(embedder, images=images)


async def test_a_checkpoint_for_an_architecture(model, images):
    weights = model / "model.safetensors"
    embedder = TimmEmbedder(ARCHITECTURE, checkpoint=str(weights))
    assert (await embedder.embed(images)).views["pooled"].shape == (5, 512)
    assert embedder._loaded[1].height == 176  # timm's own setting of this architecture
    with pytest.raises(EmbedderError, match="with a checkpoint, give the architecture's name"):
        TimmEmbedder(str(model), checkpoint=str(weights))
    with pytest.raises(EmbedderError, match=r"gone\.safetensors is no \.safetensors file"):
        TimmEmbedder(ARCHITECTURE, checkpoint="gone.safetensors")


async def test_weights_without_a_classifier(model, images, tmp_path):
    from safetensors.torch import load_file, save_file

    bare = tmp_path / "bare"
    shutil.copytree(model, bare)
    tensors = load_file(bare / "model.safetensors")
    kept = {name: tensor for name, tensor in tensors.items() if not name.startswith("fc.")}
    assert len(kept) == len(tensors) - 2
    save_file(kept, bare / "model.safetensors")
    answer = await TimmEmbedder(str(bare)).embed(images)
    np.testing.assert_allclose(answer.views["pooled"], direct(model, images), atol=1e-5)


def spoil(model, how):
    config = json.loads((model / "config.json").read_text())
    weights = model / "model.safetensors"
    if how == "architecture":
        (model / "config.json").write_text(json.dumps({**config, "architecture": "resnet51"}))
    elif how == "other":
        (model / "config.json").write_text(json.dumps({"model_type": "bert"}))
    elif how == "pickled":
        weights.unlink()
        (model / "pytorch_model.bin").write_bytes(b"")
    elif how == "half":
        from safetensors.torch import load_file, save_file

        tensors = load_file(weights)
        del tensors["conv1.0.weight"]
        save_file(tensors, weights)
    elif how == "grey":
        config["pretrained_cfg"]["input_size"] = [1, 32, 32]
        (model / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("architecture", "timm knows no model 'resnet51'; it knows: .*resnet50"),
        ("other", "names no timm architecture"),
        ("pickled", "weights are not safetensors"),
        ("half", r"the model cannot be loaded .*conv1\.0\.weight"),
        ("grey", "it takes 1 colour channels"),
    ],
)
async def test_damaged_models_are_refused(model, images, tmp_path, how, message):
    bad = tmp_path / "bad"
    shutil.copytree(model, bad)
    spoil(bad, how)
    with pytest.raises(EmbedderError, match=message) as caught:
        await TimmEmbedder(str(bad)).embed(images)
    assert "\n" not in str(caught.value)


def test_names_from_the_hub_without_a_network(hub):
    for name, place in (("resnet18", "resnet18.a1_in1k"), ("resnet18.fb_ssl_yfcc100m_ft_in1k",) * 2):
        with pytest.raises(EmbedderError, match=rf"timm:timm/{place}: cannot be fetched from the hub"):
            _ = TimmEmbedder(name).fingerprint
    with pytest.raises(EmbedderError, match="timm has no weights of that name"):
        _ = TimmEmbedder("resnet18.nonsense").fingerprint
    with pytest.raises(EmbedderError, match="timm knows no model 'resnett18'; it knows: resnet18"):
        _ = TimmEmbedder("resnett18").fingerprint
