"""A tiny randomly initialised BERT on disk, in the real format, for the real loader; images; a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from adamab.task.images import Image, digest_of
from adamab.testing import ProviderServer

WORDS = "send my money back please the app crashes when i open it refund hello world good bye a"


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch = pytest.importorskip("torch")
    library = pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizer

    directory = tmp_path_factory.mktemp("tiny")
    raw = directory / "raw"
    raw.mkdir(parents=True)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ":", "query", "class", *WORDS.split()]
    (raw / "vocab.txt").write_text("\n".join(dict.fromkeys(vocabulary)) + "\n")
    BertTokenizer(str(raw / "vocab.txt"), model_max_length=16).save_pretrained(raw)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=64, hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=32, initializer_range=0.5,
    )  # fmt: skip
    BertModel(config).eval().save_pretrained(raw)
    body = Transformer(str(raw), max_seq_length=16)
    model = library.SentenceTransformer(modules=[body, Pooling(8)], device="cpu")
    out = directory / "model"
    model.save(str(out), create_model_card=False)
    return out


@pytest.fixture
def server() -> Iterator[ProviderServer]:
    with ProviderServer(width=16) as running:
        yield running


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[Image]:
    """Images of several shapes, as PNG, so that nothing is lost on the way."""
    pillow = pytest.importorskip("PIL.Image")
    random = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("images")
    images = []
    for number, (height, width) in enumerate([(40, 60), (33, 32), (20, 78), (64, 64), (100, 30)]):
        small = random.integers(0, 256, (4, 4, 3), np.uint8)
        path = folder / f"{number}.png"
        pillow.fromarray(small).resize((width, height), pillow.Resampling.BICUBIC).save(path)
        images.append(Image(digest_of(path.read_bytes()), path))
    return images


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty local cache of the hub, and no network."""
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "hub"
