"""`st:PATH-or-id`: any sentence-transformers model, with the views that its hidden layers give."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from adamab.errors import EmbedderError
from adamab.providers.embedders.base import Embedded, Item, Kind, only_texts
from adamab.providers.embedders.local_models import (
    FIRST_TOKENS,
    VIEWS,
    VIEWS_DEFINITION,
    LocalModelEmbedder,
    LongTexts,
    ModelFiles,
    Piece,
    averaged,
    cannot_load,
    check_long_texts,
    check_name,
    find_model,
    quiet,
    rounded_to_half,
    split,
    spread,
    torch_device,
)

# Views of a frozen transformer: summaries of its tokens in every hidden layer.


def token_views(
    hidden: Sequence[Any],  # tensors (batch, tokens, width), one per layer
    mask: Any,  # (batch, tokens) 1 where there is a token
    special: Any,  # (batch, tokens) 1 where the tokenizer added the token, such as CLS
    *,
    prompt_tokens: int,
    views: Sequence[str],
) -> dict[str, NDArray[np.float32]]:
    """Mean, maximum and the first three content tokens of at most seven layers, concatenated.

    The layers are evenly spaced, the first and the last among them. The tokens of the model's prompt are
    the same for all texts and are left out.
    """
    import torch

    present = mask.bool()
    present = present & (present.cumsum(1) > prompt_tokens)  # also right where padding is on the left
    layers = spread(hidden)
    answer = {}
    # Padding may hold NaN (a row of attention with nothing to attend to), and 0 * NaN is NaN: it is filled.
    for view in views:
        if view == "layers":
            weight = present / present.sum(1, keepdim=True).clamp(min=1)
            filled = [layer.masked_fill(~present[:, :, None], 0.0) for layer in layers]
            parts = [torch.einsum("btd,bt->bd", layer, weight.to(layer.dtype)) for layer in filled]
            summary = torch.stack(parts, 1)  # (batch, layers, width)
        elif view == "first":
            content = present & ~special.bool()
            rank = content.cumsum(1)
            picks = torch.stack([content & (rank == place + 1) for place in range(FIRST_TOKENS)], 1)
            filled = [layer.masked_fill(~content[:, :, None], 0.0) for layer in layers]
            parts = [torch.einsum("btd,bjt->bjd", layer, picks.to(layer.dtype)) for layer in filled]
            summary = torch.stack(parts, 2)  # (batch, token, layers, width)
        else:
            filled = [layer.masked_fill(~present[:, :, None], -torch.inf) for layer in layers]
            summary = torch.stack([layer.amax(1) for layer in filled], 1)
            summary = summary.nan_to_num(neginf=0.0)  # no token at all: zeros
        answer[view] = rounded_to_half(summary.flatten(1).cpu().numpy())
    return answer


# The names under which sentence-transformers' encode_query and encode_document look for prompts.
_PROMPTS: dict[Kind, tuple[str, ...]] = {"query": ("query",), "class": ("document", "passage", "corpus")}
_TASKS: dict[Kind, str] = {"query": "query", "class": "document"}


class SentenceTransformerEmbedder(LocalModelEmbedder):
    """A sentence-transformers model from a directory or, by id, from the hub.

    The views are `pooled` (the model's own output, of length 1) and, for a plain transformer,
    `layers`, `first` and `max` (see `token_views`). The model is loaded at the first `embed`.
    A text longer than the model takes is flagged; `long_texts` says whether its beginning
    stands for it or the average of its pieces, weighted by their tokens.
    """

    scheme: ClassVar[str] = "st"
    packages: ClassVar[tuple[str, ...]] = ("sentence_transformers",)

    def __init__(
        self,
        path_or_id: str,
        *,
        long_texts: LongTexts = "cut",
        batch_size: int = 64,
        device: str = "auto",
        revision: str = "",
    ) -> None:
        check_long_texts(long_texts)
        super().__init__(path_or_id, batch_size=batch_size, device=device)
        check_name(path_or_id)
        self.path_or_id, self.revision = path_or_id, revision
        self.long_texts = long_texts

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]  # it can be assigned as well
        """What decides the vectors: the model's files, how long texts are treated, how views are made."""
        return f"st:{self._files.identity}:{self.long_texts}:{VIEWS_DEFINITION}"

    @cached_property
    def views(self) -> tuple[str, ...]:  # type: ignore[override]
        """`pooled`, and the views of the hidden layers where the model has them."""
        return ("pooled", *VIEWS) if self._files.is_plain_transformer else ("pooled",)

    @cached_property
    def _files(self) -> ModelFiles:
        return find_model(self.path_or_id, revision=self.revision)

    def _load(self) -> Any:
        self._files.check()
        model = open_model("SentenceTransformer", self._files, self.device, str(self))
        if self._files.is_plain_transformer:
            model.transformers_model.config.output_hidden_states = True
        return model.eval()

    @quiet()
    def _embed_with(self, model: Any, items: Sequence[Item], kind: Kind, views: Sequence[str]) -> Embedded:
        texts = only_texts(items)
        names = (*_PROMPTS[kind], model.default_prompt_name)
        prompt = next((model.prompts[name] for name in names if name in model.prompts), "") or ""
        limit = getattr(model.tokenizer, "model_max_length", None)
        limit = np.inf if limit is None else limit  # static word vectors have none
        tokens = _count_tokens(model.tokenizer, texts, prompt)
        overlong = tokens > limit
        pieces: list[Piece] = []  # whole texts, or the parts of those that are too long
        for row, text in enumerate(texts):
            if overlong[row] and self.long_texts == "average":
                room = int(limit) - int(_count_tokens(model.tokenizer, [""], prompt)[0])
                pieces.extend(split(text, row, _spans(model.tokenizer, text, str(self)), room, str(self)))
            else:
                pieces.append(Piece(text, row, int(tokens[row])))
        # Pieces of like length share a batch, so that little is padding.
        order = sorted(range(len(pieces)), key=lambda index: pieces[index].tokens)
        answers: list[dict[str, NDArray[np.float32]]] = []
        for start in range(0, len(order), self.batch_size):
            batch = [pieces[index].text for index in order[start : start + self.batch_size]]
            answers.append(_forward(model, batch, kind, prompt, views))
        back = np.argsort(order)
        matrices = {view: np.concatenate([answer[view] for answer in answers])[back] for view in views}
        if len(pieces) > len(texts):
            matrices = averaged(matrices, pieces, len(texts))
        return Embedded(matrices, overlong)


class LoadedSentenceTransformer(SentenceTransformerEmbedder):
    """A `SentenceTransformer` that is in memory already, with the views that its files would give."""

    def __init__(self, model: Any) -> None:
        import sentence_transformers

        library: Any = sentence_transformers
        if not isinstance(model, library.SentenceTransformer):
            kind = type(model).__name__
            raise EmbedderError(
                f"embedder is of type {kind}; of sentence-transformers give a SentenceTransformer"
            )
        LocalModelEmbedder.__init__(self, "a loaded model", batch_size=64, device=str(model.device))
        self.model, self.long_texts = model, "cut"
        is_plain = type(model[0]).__name__ == "Transformer"
        self.views = ("pooled", *VIEWS) if is_plain else ("pooled",)

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]  # it can be assigned as well
        """What decides the vectors: weights, modules and prompts; the tokenizer belongs to them."""
        model, digest = self.model, hashlib.sha256()
        tokenizer = type(model.tokenizer).__name__
        digest.update(f"{model}\0{model.prompts}\0{model.default_prompt_name}\0{tokenizer}".encode())
        for name, tensor in model.state_dict().items():
            digest.update(f"{name}\0{tensor.dtype}".encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().data)
        return f"st:object:{digest.hexdigest()}:{self.long_texts}:{VIEWS_DEFINITION}"

    def _load(self) -> Any:
        return self.model.eval()

    def _embed_with(self, model: Any, items: Sequence[Item], kind: Kind, views: Sequence[str]) -> Embedded:
        if len(self.views) == 1:
            return super()._embed_with(model, items, kind, views)
        config = model.transformers_model.config
        before, config.output_hidden_states = config.output_hidden_states, True
        try:
            return super()._embed_with(model, items, kind, views)
        finally:
            config.output_hidden_states = before


def _spans(tokenizer: Any, text: str, name: str) -> list[tuple[int, int]]:
    """Where each token of a text begins and ends."""
    if not getattr(tokenizer, "is_fast", False):
        raise EmbedderError(f"{name}: its tokenizer does not tell where tokens begin; use long_texts='cut'")
    encoded = tokenizer(
        text, add_special_tokens=False, return_offsets_mapping=True, truncation=False, verbose=False
    )
    spans: list[tuple[int, int]] = encoded["offset_mapping"]
    return spans


def _count_tokens(tokenizer: Any, texts: Sequence[str], prompt: str) -> NDArray[np.int64]:
    """Tokens of each text with prompt and special tokens, uncut."""
    if getattr(tokenizer, "model_max_length", None) is None:
        return np.fromiter((len(text) for text in texts), np.int64, len(texts))  # only for sorting
    encoded = tokenizer([prompt + text for text in texts], truncation=False, verbose=False)
    return np.fromiter((len(ids) for ids in encoded["input_ids"]), np.int64, len(texts))


def _forward(
    model: Any, texts: list[str], kind: Kind, prompt: str, views: Sequence[str]
) -> dict[str, NDArray[np.float32]]:
    """All wanted views from one pass."""
    import torch

    wide = [view for view in views if view != "pooled"]
    options: dict[str, Any] = {"task": _TASKS[kind]}
    if wide:
        options["processing_kwargs"] = {"text": {"return_special_tokens_mask": True}}
    with torch.inference_mode():
        features = dict(model.preprocess(texts, prompt=prompt or None, **options))
        special = features.pop("special_tokens_mask", None)
        features = {k: v.to(model.device) if isinstance(v, torch.Tensor) else v for k, v in features.items()}
        output = model(features, task=_TASKS[kind])
        pooled = output["sentence_embedding"][:, : model.truncate_dim].float()
        answer = {"pooled": torch.nn.functional.normalize(pooled, dim=1).cpu().numpy()}
        if wide:
            answer |= token_views(
                output["all_layer_embeddings"],
                output["attention_mask"],
                special.to(model.device),
                prompt_tokens=int(features.get("prompt_length", 0)),
                views=wide,
            )
    return {view: answer[view] for view in views}


def open_model(kind: str, files: ModelFiles, device: str, name: str) -> Any:
    """A `SentenceTransformer` or `CrossEncoder` of the library, from its files and nothing else."""
    import sentence_transformers
    import torch

    library: Any = sentence_transformers
    chosen_device = torch_device(device, name)
    try:
        with quiet():
            return getattr(library, kind)(
                str(files.directory),
                device=str(chosen_device),
                local_files_only=True,
                trust_remote_code=False,
                # Half precision would make a result depend on its neighbours in the batch.
                model_kwargs={"use_safetensors": True, "dtype": torch.float32},
            )
    except Exception as error:  # whatever a damaged file makes transformers raise
        raise cannot_load(name, error) from None
