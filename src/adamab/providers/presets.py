"""The models of the paper by name, so that its tables can be asked for without knowing where they are.

A preset is a spec like any other; its options can be overruled by writing one's own after the name, as in
`gemini-2.0-flash-lite?rpm=30`. Keys come from the environment: a preset names the variable, never a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

from adamab.errors import ProviderError
from adamab.task.messages import short, suggestion
from adamab.task.specs import join_spec, split_spec

Kind: TypeAlias = Literal["embedder", "generator", "chat", "reranker"]

_GEMINI = "base_url=https://generativelanguage.googleapis.com/v1beta/openai&key_env=GEMINI_API_KEY"
_MISTRAL = "base_url=https://api.mistral.ai/v1&key_env=MISTRAL_API_KEY"
# A variable of its own, so that a key for OpenAI is not sent to whoever listens at that port. One at a time
# and patiently: so large a model may take minutes on one's own machine.
_OLLAMA = "base_url=http://localhost:11434/v1&key_env=OLLAMA_API_KEY&concurrency=1&timeout=600"

PRESETS: Mapping[Kind, Mapping[str, str]] = MappingProxyType(
    {
        "chat": {
            "gpt-4o-mini": "chat:gpt-4o-mini",
            "gemini-2.0-flash-lite": f"chat:gemini-2.0-flash-lite?{_GEMINI}",
            # Of the versions with 24B parameters, which is what the paper tells, one that sees pictures.
            "mistral-small": f"chat:mistral-small-2506?{_MISTRAL}",
            # The paper counts 90B parameters: the larger of the two that see pictures.
            "llama-3.2": f"chat:llama3.2-vision:90b?{_OLLAMA}",
        },
        "reranker": {
            "cohere-rerank-v3.5": "rerank:cohere:rerank-v3.5",
            "bge-reranker-v2-m3": "cross-encoder:BAAI/bge-reranker-v2-m3",
            "jina-reranker-m0": "rerank:jina:jina-reranker-m0",
        },
        "embedder": {
            "text-embedding-3-small": "openai:text-embedding-3-small",
            "qwen3-embedding-0.6b": "st:Qwen/Qwen3-Embedding-0.6B",
            "clip-vit-large": "clip:openai/clip-vit-large-patch14",
            "voyage-multimodal-3": "voyage:voyage-multimodal-3",
        },
        "generator": {
            # The paper tunes the temperature and does not tell it; 1 is the service's own default.
            "gpt-4o-mini": "openai:gpt-4o-mini?temperature=1",
            "gpt-image-1-mini": "openai-image:gpt-image-1-mini",
        },
    }
)
# What may stand before a preset's name where a method is named.
_METHODS: Mapping[Kind, tuple[str, ...]] = {"chat": ("chat",), "reranker": ("rerank", "cross-encoder")}
_PREFIX = "preset:"


def expand(spec: str, kind: Kind) -> str:
    """The spec that a preset stands for; any other spec as it is.

    Of a chat model or a reranker it is the whole name of a method, `chat:MODEL` or `rerank:SERVICE:MODEL`.
    `preset:NAME` insists on a preset.

    Example:
        >>> expand("text-embedding-3-small?dimensions=256", "embedder")
        'openai:text-embedding-3-small?dimensions=256'
        >>> expand("chat:gpt-4o-mini", "chat"), expand("gpt-4.1", "chat"), expand("jina:m", "reranker")
        ('chat:gpt-4o-mini', 'chat:gpt-4.1', 'rerank:jina:m')
    """
    bare, written = split_spec(spec)
    method, _, rest = bare.partition(":")
    named = method in _METHODS.get(kind, ()) and bool(rest)
    name = rest if named else bare
    wanted = name.startswith(_PREFIX)
    name = name.removeprefix(_PREFIX)
    found = PRESETS[kind].get(name.lower())
    if found is None and wanted:
        raise ProviderError(f"unknown preset {short(name)}; {suggestion(name, PRESETS[kind])}")
    if found is not None:
        bare, options = split_spec(found)
        return join_spec(bare, options | written)
    if named or kind not in _METHODS:
        return spec
    return f"{_METHODS[kind][0]}:{spec}"
