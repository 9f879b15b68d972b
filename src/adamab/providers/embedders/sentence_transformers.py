"""`st:PATH-or-id`: any sentence-transformers model, with the views that its hidden layers give."""

from __future__ import annotations

import asyncio
import importlib.util
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from adamab.errors import EmbedderError, MissingExtraError
from adamab.providers.embedders import token_views
from adamab.providers.embedders.base import Embedded, Embedder, Item, Kind, only_texts
from adamab.providers.embedders.chunks import Piece, averaged, split
from adamab.providers.embedders.devices import torch_device
from adamab.providers.embedders.model_files import ModelFiles, check_name, find_model, quiet

LongTexts = Literal["cut", "average"]

# The names under which sentence-transformers' encode_query and encode_document look for prompts.
_PROMPTS: dict[Kind, tuple[str, ...]] = {"query": ("query",), "class": ("document", "passage", "corpus")}
_TASKS: dict[Kind, str] = {"query": "query", "class": "document"}
_DEFINITION = "views-1"  # changes whenever the same model would give other vectors


class SentenceTransformerEmbedder(Embedder):
    """A sentence-transformers model from a directory or, by id, from the hub.

    The views are `pooled` (the model's own output, of length 1) and, for a plain transformer,
    `layers`, `first` and `max` (see `token_views`). The model is loaded at the first `embed`.
    A text longer than the model takes is flagged; `long_texts` says whether its beginning
    stands for it or the average of its pieces, weighted by their tokens.
    """

    def __init__(
        self, path_or_id: str, *, long_texts: LongTexts = "cut", batch_size: int = 64, device: str = "auto"
    ) -> None:
        if long_texts not in get_args(LongTexts):
            raise EmbedderError(f"long_texts is {long_texts!r}; use 'cut' or 'average'")
        if batch_size < 1:
            raise EmbedderError(f"batch_size is {batch_size}; use 1 or more")
        if importlib.util.find_spec("sentence_transformers") is None:
            raise MissingExtraError("sentence-transformers", "local")
        check_name(path_or_id)
        self.path_or_id = path_or_id
        self.long_texts = long_texts
        self.batch_size = batch_size
        self.device = device
        self._lock = threading.Lock()
        self._loaded: _Model | None = None

    def __str__(self) -> str:
        return f"st:{self.path_or_id}"

    def __getstate__(self) -> dict[str, Any]:
        # A copy in another process loads the model itself.
        return {**self.__dict__, "_lock": None, "_loaded": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]  # it can be assigned as well
        """What decides the vectors: the model's files, how long texts are treated, how views are made."""
        return f"st:{self._files.identity}:{self.long_texts}:{_DEFINITION}"

    @cached_property
    def views(self) -> tuple[str, ...]:  # type: ignore[override]
        """`pooled`, and the views of the hidden layers where the model has them."""
        return ("pooled", *token_views.VIEWS) if self._files.is_plain_transformer else ("pooled",)

    @cached_property
    def _files(self) -> ModelFiles:
        return find_model(self.path_or_id)

    def _verify(self) -> None:
        self._files.check()

    async def _embed(self, items: Sequence[Item], *, kind: Kind, views: Sequence[str]) -> Embedded:
        return await asyncio.to_thread(self._embed_now, only_texts(items), kind, views)

    def _embed_now(self, texts: Sequence[str], kind: Kind, views: Sequence[str]) -> Embedded:
        with self._lock:
            if self._loaded is None:
                self._verify()
                self._loaded = _load(self._files, self.device, str(self))
            model = self._loaded
            with quiet():
                pieces, overlong = self._pieces(model, texts, kind)
                matrices = self._piece_vectors(model, pieces, kind, views)
        return Embedded(averaged(matrices, pieces, len(texts)), overlong)

    def _pieces(
        self, model: _Model, texts: Sequence[str], kind: Kind
    ) -> tuple[list[Piece], NDArray[np.bool_]]:
        """What goes through the model: whole texts, or the parts of those that are too long."""
        tokens = model.count_tokens(texts, kind)
        overlong = tokens > model.max_tokens
        pieces: list[Piece] = []
        for row, text in enumerate(texts):
            if overlong[row] and self.long_texts == "average":
                room = int(model.max_tokens) - int(model.count_tokens([""], kind)[0])
                pieces.extend(split(text, row, model.tokenizer, room, str(self)))
            else:
                pieces.append(Piece(text, row, int(tokens[row])))
        return pieces, overlong

    def _piece_vectors(
        self, model: _Model, pieces: Sequence[Piece], kind: Kind, views: Sequence[str]
    ) -> dict[str, NDArray[np.float32]]:
        # Pieces of like length share a batch, so that little is padding.
        order = sorted(range(len(pieces)), key=lambda index: pieces[index].tokens)
        answers: list[dict[str, NDArray[np.float32]]] = []
        for start in range(0, len(order), self.batch_size):
            batch = [pieces[index].text for index in order[start : start + self.batch_size]]
            answers.append(model.forward(batch, kind, views))
        back = np.argsort(order)
        return {view: np.concatenate([answer[view] for answer in answers])[back] for view in views}


@dataclass(frozen=True)
class _Model:
    """A loaded model; everything that touches torch."""

    model: Any
    plain: bool

    @property
    def tokenizer(self) -> Any:
        return self.model.tokenizer

    @property
    def max_tokens(self) -> float:
        """Infinite for models without a limit, such as static word vectors."""
        limit = getattr(self.tokenizer, "model_max_length", None)
        return np.inf if limit is None else limit

    def prompt(self, kind: Kind) -> str:
        """The prompt that the model itself puts before a text of this kind."""
        prompts: dict[str, str] = self.model.prompts
        names = (*_PROMPTS[kind], self.model.default_prompt_name)
        return next((prompts[name] for name in names if name in prompts), "") or ""

    def count_tokens(self, texts: Sequence[str], kind: Kind) -> NDArray[np.int64]:
        """Tokens of each text with prompt and special tokens, uncut."""
        if not np.isfinite(self.max_tokens):
            return np.fromiter((len(text) for text in texts), np.int64, len(texts))  # only for sorting
        prompt = self.prompt(kind)
        encoded = self.tokenizer([prompt + text for text in texts], truncation=False, verbose=False)
        return np.fromiter((len(ids) for ids in encoded["input_ids"]), np.int64, len(texts))

    def forward(self, texts: list[str], kind: Kind, views: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """All wanted views from one pass."""
        import torch

        options: dict[str, Any] = {"task": _TASKS[kind]}
        if self.plain:
            options["processing_kwargs"] = {"text": {"return_special_tokens_mask": True}}
        with torch.inference_mode():
            features = dict(self.model.preprocess(texts, prompt=self.prompt(kind) or None, **options))
            special = features.pop("special_tokens_mask", None)
            device = self.model.device
            features = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in features.items()}
            output = self.model(features, task=_TASKS[kind])
            answer = {"pooled": self._pooled(output["sentence_embedding"])}
            if wide := [view for view in views if view != "pooled"]:
                answer |= token_views.token_views(
                    output["all_layer_embeddings"],
                    output["attention_mask"],
                    special.to(device),
                    prompt_tokens=int(features.get("prompt_length", 0)),
                    views=wide,
                )
        return {view: answer[view] for view in views}

    def _pooled(self, vectors: Any) -> NDArray[np.float32]:
        import torch

        vectors = vectors[:, : self.model.truncate_dim]
        normalised: NDArray[np.float32] = torch.nn.functional.normalize(vectors.float(), dim=1).cpu().numpy()
        return normalised


def open_model(kind: str, files: ModelFiles, device: str, name: str) -> Any:
    """A `SentenceTransformer` or `CrossEncoder` of the library, from its files and nothing else."""
    import sentence_transformers
    import torch

    library: Any = sentence_transformers
    found = torch_device(device, name)
    try:
        with quiet():
            return getattr(library, kind)(
                str(files.directory),
                device=str(found),
                local_files_only=True,
                trust_remote_code=False,
                # Half precision would make a result depend on its neighbours in the batch.
                model_kwargs={"use_safetensors": True, "dtype": torch.float32},
            )
    except Exception as error:  # whatever a damaged file makes transformers raise
        reason = " ".join(str(error).split())[:160]
        raise EmbedderError(
            f"{name}: the model cannot be loaded ({type(error).__name__}: {reason})"
        ) from None


def _load(files: ModelFiles, device: str, name: str) -> _Model:
    model = open_model("SentenceTransformer", files, device, name)
    if files.is_plain_transformer:
        model.transformers_model.config.output_hidden_states = True
    return _Model(model.eval(), files.is_plain_transformer)
