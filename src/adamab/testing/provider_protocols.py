"""Which provider speaks at which path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from adamab.testing.provider_chat import CREATED, openai_chat
from adamab.testing.provider_embeddings import cohere_embed, openai_embeddings, voyage_embeddings
from adamab.testing.provider_errors import Answer, Refused
from adamab.testing.provider_faults import Fault
from adamab.testing.provider_images import openai_images
from adamab.testing.provider_looks import pictures_shown
from adamab.testing.provider_model import Options
from adamab.testing.provider_multimodal import pictures_sent, voyage_multimodal
from adamab.testing.provider_rerank import cohere_rerank, jina_rerank, voyage_rerank

MODELS = ("gpt-4o-mini", "text-embedding-3-small")
IMAGE_MODEL = "gpt-image-1-mini"
MODELS_PATH = "/v1/models"
IMAGES_PATH = "/v1/images/generations"

Maker = Callable[[dict[str, Any], Options, Fault | None], dict[str, Any]]


@dataclass(frozen=True)
class Route:
    """Who speaks at a path and how it answers."""

    protocol: str
    make: Maker

    def answer(self, body: Any, options: Options, fault: Fault | None) -> Answer:
        """The reply to a request, good or bad."""
        try:
            if not isinstance(body, dict):
                raise Refused(400, "We could not parse the JSON body of your request.")
            return Answer(200, self.make(body, options, fault))
        except Refused as refused:
            return refused.answer(self.protocol, body)


ROUTES: dict[str, Route] = {
    "/v1/embeddings": Route("openai", openai_embeddings),
    "/v1/chat/completions": Route("openai", openai_chat),
    IMAGES_PATH: Route("openai", openai_images),
    "/voyage/v1/embeddings": Route("voyage", voyage_embeddings),
    "/voyage/v1/multimodalembeddings": Route("voyage", voyage_multimodal),
    "/voyage/v1/rerank": Route("voyage", voyage_rerank),
    "/cohere/v2/embed": Route("cohere", cohere_embed),
    "/cohere/v2/rerank": Route("cohere", cohere_rerank),
    "/jina/v1/rerank": Route("jina", jina_rerank),
}


def protocol_of(path: str) -> str:
    """Whose error shape a path speaks."""
    return next((name for name in ("voyage", "cohere", "jina") if path.startswith(f"/{name}/")), "openai")


def pictures_in(path: str, body: Any, answer: Answer) -> int:
    """How many pictures were made, or sent to be embedded or looked at."""
    if path == IMAGES_PATH:
        return len(answer.payload["data"])
    return pictures_sent(body) + pictures_shown(body)


def models() -> Answer:
    """GET /v1/models; other names are served too."""
    names = (*MODELS, IMAGE_MODEL)
    listed = [{"id": name, "object": "model", "created": CREATED, "owned_by": "adamab"} for name in names]
    return Answer(200, {"object": "list", "data": listed})
