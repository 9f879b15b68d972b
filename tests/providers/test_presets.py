"""The paper's models by name."""

from __future__ import annotations

import pytest

from adamab.providers.embedders.api import OpenAIEmbedder, VoyageEmbedder
from adamab.providers.generators.openai import OpenAIGenerator
from adamab.providers.generators.openai_image import OpenAIImageGenerator
from adamab.providers.http import service_of
from adamab.providers.registry import (
    EMBEDDERS,
    GENERATORS,
    PRESETS,
    expand,
    resolve_embedder,
    resolve_generator,
)
from adamab.task.spec import split_spec


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
        ("cohere-rerank-v3.5", "reranker", "rerank:cohere:rerank-v3.5"),
        ("rerank:cohere-rerank-v3.5", "reranker", "rerank:cohere:rerank-v3.5"),
        ("rerank:bge-reranker-v2-m3", "reranker", "cross-encoder:BAAI/bge-reranker-v2-m3"),
        ("cross-encoder:bge-reranker-v2-m3", "reranker", "cross-encoder:BAAI/bge-reranker-v2-m3"),
        ("jina-reranker-m0", "reranker", "rerank:jina:jina-reranker-m0"),
        ("voyage:rerank-2.5", "reranker", "rerank:voyage:rerank-2.5"),
        ("cross-encoder:./model", "reranker", "cross-encoder:./model"),
    ],
)
def test_names_become_specs(spec: str, kind: str, expanded: str) -> None:
    assert expand(spec, kind) == expanded  # type: ignore[arg-type]
    assert expand(expanded, kind) == expanded  # type: ignore[arg-type]


def test_other_services_have_their_own_address_and_variable() -> None:
    services = {}
    for name, spec in PRESETS["chat"].items():
        options = split_spec(spec)[1]
        service = service_of("openai", base_url=options.get("base_url"), key_env=options.get("key_env"))
        services[name] = (service.place, service.key_env)
    assert services == {
        "gpt-4o-mini": ("api.openai.com/v1", "OPENAI_API_KEY"),
        "gemini-2.0-flash-lite": ("generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"),
        "mistral-small": ("api.mistral.ai/v1", "MISTRAL_API_KEY"),
        "llama-3.2": ("localhost:11434/v1", "OLLAMA_API_KEY"),
    }


def test_the_providers_take_what_the_presets_say() -> None:
    for kind, table in (("embedder", EMBEDDERS), ("generator", GENERATORS)):
        for name in PRESETS[kind]:  # type: ignore[index]
            assert expand(name, kind).partition(":")[0] in table  # type: ignore[arg-type]
    assert isinstance(resolve_embedder(expand("text-embedding-3-small", "embedder")), OpenAIEmbedder)
    voyage = resolve_embedder(expand("voyage-multimodal-3", "embedder"))
    assert isinstance(voyage, VoyageEmbedder)
    assert "image" in voyage.modalities
    generator = resolve_generator(expand("gpt-4o-mini", "generator"))
    assert isinstance(generator, OpenAIGenerator)
    assert generator.temperature == 1
    drawn = resolve_generator(expand("gpt-image-1-mini", "generator"))
    assert isinstance(drawn, OpenAIImageGenerator)
