"""A tiny randomly initialised BERT on disk, in the real format, for the real loader."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

WORDS = "send my money back please the app crashes when i open it refund hello world good bye a"


def _build(directory: Path, *, seed: int = 0, layers: int = 2) -> Path:
    torch = pytest.importorskip("torch")
    library = pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizer

    raw = directory / "raw"
    raw.mkdir(parents=True)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ":", "query", "class", *WORDS.split()]
    (raw / "vocab.txt").write_text("\n".join(dict.fromkeys(vocabulary)) + "\n")
    BertTokenizer(str(raw / "vocab.txt"), model_max_length=16).save_pretrained(raw)
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=64, hidden_size=8, num_hidden_layers=layers, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=32, initializer_range=0.5,
    )  # fmt: skip
    BertModel(config).eval().save_pretrained(raw)
    body = Transformer(str(raw), max_seq_length=16)
    model = library.SentenceTransformer(modules=[body, Pooling(8)], device="cpu")
    out = directory / "model"
    model.save(str(out), create_model_card=False)
    return out


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _build(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def build_model() -> Callable[..., Path]:
    return _build
