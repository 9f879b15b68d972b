"""Strings become embedders and generators."""

from importlib import metadata

import numpy as np
import pytest

from adamab.errors import EmbedderError, GeneratorError, ProviderError
from adamab.providers import registry
from adamab.providers.embedders.stored import NpzEmbedder
from adamab.providers.generators.recorded import PoolGenerator, ReplayGenerator
from adamab.providers.generators.variations import NoiseGenerator
from adamab.providers.registry import expand, resolve_embedder, resolve_generator
from adamab.task.spec import join_spec, split_spec
from adamab.testing import HashEmbedder


def test_instances_pass_through():
    embedder, generator = HashEmbedder(), NoiseGenerator()
    assert resolve_embedder(embedder) is embedder
    assert resolve_generator(generator) is generator
    assert resolve_generator(None) is None
    assert resolve_generator("none") is None


def test_builtin_names(tmp_path):
    np.savez(tmp_path / "v:1.npz", **{"ids": np.array(["a"]), "view/pooled": np.ones((1, 2))})
    assert isinstance(resolve_embedder(f"npz:{tmp_path / 'v:1.npz'}"), NpzEmbedder)
    (tmp_path / "r.jsonl").write_text('{"label": "a", "text": "b"}\n')
    assert isinstance(resolve_generator(f"replay:{tmp_path / 'r.jsonl'}", seed=3), ReplayGenerator)
    assert isinstance(resolve_generator(f"pool:{tmp_path / 'r.jsonl'}"), PoolGenerator)
    noise = resolve_generator("noise", seed=3)
    assert isinstance(noise, NoiseGenerator)
    assert noise.seed == 3


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            "lokal",
            r"unknown embedder 'lokal'; did you mean 'local'\? "
            r"\(openai:MODEL\?base_url=URL is any server that speaks OpenAI's protocol\)",
        ),
        ("olama:nomic-embed-text", "did you mean 'ollama'?"),
        ("anthropic:claude", "anthropic has no embedders here; services that have: azure, .*voyage"),
        ("groq:m?service=openai", "groq has no embedders here"),
        ("mistral:m?service=openai", "does not take these options: multiple values"),
        ("azure:m", "azure: has no address; set AZURE_OPENAI_ENDPOINT"),
        ("mistral:m?api_version=1", "option 'api_version' is unknown"),
        ("npz", "write npz:PATH"),
        ("st:", "write st:PATH"),
        ("local:x", "no such folder; .* for another model write st:x"),
        ("npz:x?long_texts=cut", "does not take these options: .*long_texts"),
        ("st:x?batch_size=many", "option batch_size='many' is not a whole number"),
        ("local?long_texts=some", "use 'cut' or 'average'"),
        (3, "embedder is of type int"),
    ],
)
def test_bad_embedders(spec, message, monkeypatch):
    monkeypatch.delenv("AZURE_OPENAI_ENDPOINT", raising=False)
    with pytest.raises(ProviderError, match=message):
        resolve_embedder(spec)


def test_bad_generators():
    with pytest.raises(
        GeneratorError,
        match=r"unknown generator 'antropic'; did you mean 'anthropic'\?",
    ):
        resolve_generator("antropic:claude")
    with pytest.raises(GeneratorError, match=r"voyage has no generators here; .* anthropic, azure"):
        resolve_generator("voyage:x")
    with pytest.raises(GeneratorError, match="'noise' takes no argument"):
        resolve_generator("noise:1")


@pytest.mark.parametrize(
    ("spec", "parts"),
    [
        ("openai:m?base_url=http://h:1/v1&rpm=5", ("openai:m", {"base_url": "http://h:1/v1", "rpm": "5"})),
        ("openai:m?key_env=", ("openai:m", {"key_env": ""})),
        ("npz:why?.npz?device=cpu", ("npz:why?.npz", {"device": "cpu"})),
        ("npz:a?B=c/d", ("npz:a?B=c/d", {})),
    ],
)
def test_options_of_a_spec(spec, parts):
    assert split_spec(spec) == parts
    assert join_spec(*parts) == spec


def test_options_become_what_the_factory_wants(tiny_model):
    embedder = resolve_embedder(f"st:{tiny_model}?batch_size=3&device=cpu&long_texts=average")
    assert (embedder.batch_size, embedder.device, embedder.long_texts) == (3, "cpu", "average")


def entry(name, value, group):
    return metadata.EntryPoint(name, value, group)


def test_entry_points_add_names(monkeypatch):
    entries = {
        "adamab.embedders": [
            entry("toy", "adamab.testing:HashEmbedder", "adamab.embedders"),
            entry("wrong", "json:dumps", "adamab.embedders"),
            entry("gone", "no_such_package:thing", "adamab.embedders"),
        ],
        "adamab.generators": [entry("wrong", "json:dumps", "adamab.generators")],
    }
    monkeypatch.setattr(registry.metadata, "entry_points", lambda group: entries[group])
    with pytest.raises(
        EmbedderError,
        match=r"unknown embedder 'toys'; did you mean 'toy'\?",
    ):
        resolve_embedder("toys")
    with pytest.raises(EmbedderError, match="wrong:abc: made a str, which is not an Embedder"):
        resolve_embedder("wrong:abc")
    with pytest.raises(EmbedderError, match="'gone': its package cannot be loaded"):
        resolve_embedder("gone:x")
    with pytest.raises(EmbedderError, match="does not take these options"):
        resolve_embedder("toy:8")  # takes no rest
    with pytest.raises(GeneratorError, match="is not a Generator"):
        resolve_generator("wrong:abc")


@pytest.mark.parametrize(
    ("spec", "kind", "expanded"),
    [
        ("text-embedding-3-small", "embedder", "openai:text-embedding-3-small"),
        ("Qwen3-Embedding-0.6B", "embedder", "st:Qwen/Qwen3-Embedding-0.6B"),
        ("CLIP-ViT-Large", "embedder", "clip:openai/clip-vit-large-patch14"),
        ("voyage-multimodal-3?rpm=9", "embedder", "voyage:voyage-multimodal-3?rpm=9"),
        ("openai:text-embedding-3-small", "embedder", "openai:text-embedding-3-small"),
        ("local", "embedder", "local"),
        ("gpt-4o-mini", "generator", "openai:gpt-4o-mini?temperature=1"),
        ("gpt-4o-mini?temperature=0.5", "generator", "openai:gpt-4o-mini?temperature=0.5"),
        ("gpt-image-1-mini", "generator", "openai-image:gpt-image-1-mini"),
        ("none", "generator", "none"),
        ("gpt-4o-mini", "chat", "chat:gpt-4o-mini"),
        ("chat:gpt-4o-mini?rpm=3", "chat", "chat:gpt-4o-mini?rpm=3"),
        ("some-model", "chat", "chat:some-model"),
        ("llama3.2:3b", "chat", "chat:llama3.2:3b"),
        ("mistral-small?rpm=3", "chat", "chat:mistral:mistral-small-2506?rpm=3"),
        ("anthropic:claude-haiku", "chat", "chat:anthropic:claude-haiku"),
        ("cohere-rerank-v3.5", "reranker", "rerank:cohere:rerank-v3.5"),
        ("rerank:cohere-rerank-v3.5", "reranker", "rerank:cohere:rerank-v3.5"),
        ("rerank:bge-reranker-v2-m3", "reranker", "cross-encoder:BAAI/bge-reranker-v2-m3"),
        ("cross-encoder:bge-reranker-v2-m3", "reranker", "cross-encoder:BAAI/bge-reranker-v2-m3"),
        ("jina-reranker-m0", "reranker", "rerank:jina:jina-reranker-m0"),
        ("voyage:rerank-2.5", "reranker", "rerank:voyage:rerank-2.5"),
        ("cross-encoder:./model", "reranker", "cross-encoder:./model"),
    ],
)
def test_names_become_specs(spec, kind, expanded):
    assert expand(spec, kind) == expanded  # type: ignore[arg-type]
    assert expand(expanded, kind) == expanded  # type: ignore[arg-type]
