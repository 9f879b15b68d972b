"""`onnx-text:DIR`: any exported text encoder on onnxruntime, without torch; `local` is built on the same."""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from adamab.errors import EmbedderError
from adamab.providers.embedders.base import Embedded, Item, Kind, TextError, only_texts
from adamab.providers.embedders.local_models import (
    FIRST_TOKENS,
    VIEWS,
    VIEWS_DEFINITION,
    LocalModelEmbedder,
    LongTexts,
    Piece,
    averaged,
    cannot_load,
    check_long_texts,
    hash_file,
    of_length_one,
    read_modules,
    rounded_to_half,
    split,
    spread,
)
from adamab.providers.embedders.onnx import open_session, read_graph, run_session

BATCH_TOKENS = 2048  # in a trial on one core 4096 and 8192 were no faster
_INTEGERS: dict[str, np.dtype[Any]] = {"tensor(int64)": np.dtype("i8"), "tensor(int32)": np.dtype("i4")}
_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
# Outputs that exporters write: one vector per text, one per token, and the tokens of every layer.
_SENTENCE = ("sentence_embedding", "sentence_embeddings", "text_embeds")
_TOKENS = ("last_hidden_state", "token_embeddings")
_LAYER = ("hidden_states", "hidden_state", "all_layer_embeddings")  # and a number
_SUMMARY, _PRESENT = "adamab.summary", "adamab.present"  # inputs that are added
_LOW = "adamab.low"
_NO_REDUCTION_ATTRIBUTES = 18  # from this opset on a reduction's axes are an input
_ANY_LENGTH = 10**9  # tokenizers write 10**30 for it
_TOKENIZER = "tokenizer.json"
_PROMPTS: dict[Kind, str] = {"query": "query", "class": "document"}
_POOLINGS = {  # as sentence-transformers named them in earlier versions
    "cls_token": "cls",
    "mean_tokens": "mean",
    "max_tokens": "max",
    "mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "weightedmean_tokens": "weightedmean",
    "lasttoken": "lasttoken",
}


@dataclass(frozen=True)
class TextSettings:
    """How texts become an encoder's input, and its tokens one vector."""

    limit: int  # tokens, with special ones
    pooling: str = "mean"  # or cls; others are known by name and refused
    pools_prompt: bool = True
    lower: bool = False
    pad_id: int = 0
    prompts: Mapping[Kind, str] = field(default_factory=dict)  # before a text on that side of the match


# The summaries of tokens, layer by layer, as outputs of the graph.


def hidden_layers(outputs: Sequence[str]) -> list[str]:
    """The outputs that are the tokens of every layer, in the layers' order; none if there are none.

    Example:
        >>> hidden_layers(["last_hidden_state", "hidden_states.1", "hidden_states.0", "hidden_states.10"])
        ['hidden_states.0', 'hidden_states.1', 'hidden_states.10']
    """
    numbered = {}
    for name in outputs:
        stem = name.rstrip("0123456789")
        if stem != name and stem.rstrip("._") in _LAYER:
            numbered[int(name[len(stem) :])] = name
    return [numbered[number] for number in sorted(numbered)] if len(numbered) > 1 else []


def add_summaries(model: Any, layers: Sequence[str], *, with_max: bool) -> None:
    """Replace the outputs of a graph by weighted sums over tokens, and by the maximum over them.

    The weights are an input (batch, sums, tokens), so one product gives a layer's mean and its first
    tokens; which tokens count for the maximum is another (batch, tokens, 1). The outputs are
    (batch, sums, layers * width) and (batch, layers * width).

    Args:
        model: an `onnx.ModelProto`, which is changed.
        layers: the values of its graph that hold tokens (batch, tokens, width).
        with_max: whether the maximum is an output as well.
    """
    from onnx import TensorProto, helper, numpy_helper

    graph = model.graph
    del graph.output[:]

    def add(operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        graph.node.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def join(values: list[str], output: str, axis: int) -> None:
        add("Concat", values, output, axis=axis)
        graph.output.append(helper.make_tensor_value_info(output, TensorProto.FLOAT, None))

    shape: list[str | int] = ["adamab_batch", "adamab_sums", "adamab_tokens"]
    graph.input.append(helper.make_tensor_value_info(_SUMMARY, TensorProto.FLOAT, shape))
    join([add("MatMul", [_SUMMARY, layer], f"{layer}.sums") for layer in layers], "adamab.sums", 2)
    if not with_max:
        return
    shape = ["adamab_batch", "adamab_tokens", 1]
    graph.input.append(helper.make_tensor_value_info(_PRESENT, TensorProto.BOOL, shape))
    graph.initializer.append(numpy_helper.from_array(np.float32(np.finfo(np.float32).min), _LOW))
    opset = next((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), 0)
    axes: dict[str, Any] = {"axes": [1]}
    more = []
    if opset >= _NO_REDUCTION_ATTRIBUTES:
        graph.initializer.append(numpy_helper.from_array(np.array([1]), "adamab.axis"))
        axes, more = {}, ["adamab.axis"]
    maxima = []
    for layer in layers:
        counted = add("Where", [_PRESENT, layer, _LOW], f"{layer}.counted")
        maxima.append(add("ReduceMax", [counted, *more], f"{layer}.max", keepdims=0, **axes))
    join(maxima, "adamab.max", 1)


@dataclass(frozen=True)
class EncoderParts:
    """All that a text encoder consists of.

    `layers` of it are summarised by its graph; 0 where the graph gives one vector per text already.
    `weights` are those that the graph does not hold itself.
    """

    model: Any  # onnx.ModelProto
    tokenizer: Path
    settings: TextSettings
    layers: int
    weights: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)


# A loaded encoder.


@dataclass(frozen=True)
class _Tokens:
    """A text as the encoder takes it."""

    ids: NDArray[np.int64]
    special: NDArray[np.bool_]  # added by the tokenizer, such as CLS
    is_cut: bool


@dataclass(frozen=True)
class TextEncoder:
    """A session and a tokenizer; everything that touches the two libraries.

    `weights` are those of a graph that does not hold them itself: the session uses their memory.
    """

    session: Any
    tokenizer: Any
    settings: TextSettings
    views: tuple[str, ...]
    name: str
    layers: int  # whose summaries are its output; 0 where that is one vector per text already
    weights: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)

    def tokens(self, texts: Sequence[str]) -> list[_Tokens]:
        """Each text's tokens, cut at the limit."""
        lowered = [text.lower() for text in texts] if self.settings.lower else list(texts)
        try:
            encoded = self.tokenizer.encode_batch_fast(lowered)
        except TypeError:  # half a surrogate pair, which no tokenizer takes
            broken = (n for n, text in enumerate(texts) if any("\ud800" <= c <= "\udfff" for c in text))
            raise TextError(self.name, next(broken, 0), "holds half of a surrogate pair") from None
        return [
            _Tokens(
                np.array(each.ids, np.int64),
                np.array(each.special_tokens_mask, np.bool_),
                bool(each.overflowing),
            )
            for each in encoded
        ]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where each token of a whole text begins and ends."""
        self.tokenizer.no_truncation()
        try:
            encoded = self.tokenizer.encode(
                text.lower() if self.settings.lower else text, add_special_tokens=False
            )
        finally:
            self.tokenizer.enable_truncation(self.settings.limit)
        spans: list[tuple[int, int]] = encoded.offsets
        return spans

    def forward(self, batch: Sequence[_Tokens], prompt_tokens: int) -> dict[str, NDArray[np.float32]]:
        """All views of some texts from one pass, unrounded."""
        lengths = np.array([len(each.ids) for each in batch])
        width = max(1, int(lengths.max()))
        positions = np.arange(width)
        filled = positions < lengths[:, None]
        ids = np.full(filled.shape, self.settings.pad_id, np.int64)
        ids[filled] = np.concatenate([each.ids for each in batch])
        mask = positions < np.maximum(lengths, 1)[:, None]  # no token at all: the padding stands for it
        everything = {
            "input_ids": ids,
            "attention_mask": mask,
            "token_type_ids": np.zeros_like(ids),
            "position_ids": np.broadcast_to(positions, ids.shape),
        }
        inputs: dict[str, NDArray[Any]] = {}
        for value in self.session.get_inputs():
            if value.name in everything:
                inputs[value.name] = np.ascontiguousarray(everything[value.name], _INTEGERS[value.type])
        if not self.layers:
            (sentences,) = run_session(self.session, inputs, self.name)
            return {"pooled": of_length_one(self._checked(sentences, (len(batch),)))}
        present = mask & (positions >= prompt_tokens)
        pooled = mask if self.settings.pools_prompt else present
        sums = [mask & (positions == 0)] if self.settings.pooling == "cls" else [pooled]
        if len(self.views) > 1:
            content = np.zeros_like(mask)
            content[filled] = ~np.concatenate([each.special for each in batch])
            content &= present
            rank = np.cumsum(content, axis=1)
            sums += [present, *(content & (rank == place + 1) for place in range(FIRST_TOKENS))]
            inputs[_PRESENT] = present[:, :, None]
        weights = np.stack(sums, axis=1).astype(np.float32)
        weights[:, :2] /= np.maximum(weights[:, :2].sum(axis=2, keepdims=True), 1)  # means
        inputs[_SUMMARY] = weights
        answer = run_session(self.session, inputs, self.name)
        totals = self._checked(answer[0], weights.shape[:2])
        views = {"pooled": of_length_one(totals[:, 0, -(totals.shape[2] // self.layers) :])}
        if len(self.views) > 1:
            maxima = np.where(present.any(axis=1)[:, None], answer[1], 0)  # no token at all: zeros
            views |= {
                "layers": totals[:, 1],
                "first": totals[:, 2:].reshape(len(batch), -1),
                "max": maxima,
            }
        return views

    def _checked(self, answer: NDArray[Any], rows: tuple[int, ...]) -> NDArray[np.float32]:
        """An output that has those sides, and a width."""
        if answer.ndim != len(rows) + 1 or answer.shape[:-1] != rows or answer.dtype.kind != "f":
            raise EmbedderError(
                f"{self.name}: its output for {rows[0]} texts gives {answer.dtype} of shape {answer.shape}, "
                "not a vector per text or per token"
            )
        return answer.astype(np.float32, copy=False)


class TextEncoderEmbedder(LocalModelEmbedder):
    """Texts to vectors on onnxruntime: `pooled`, of length 1, and the views of the hidden layers.

    The views are those of `st:`. A text longer than the encoder takes is flagged; `long_texts` says whether
    its beginning stands for it or the average of its pieces, weighted by their tokens.
    """

    packages: ClassVar[tuple[str, ...]] = ("onnx", "onnxruntime", "tokenizers")

    def __init__(self, name: str, *, long_texts: LongTexts, batch_size: int, device: str) -> None:
        check_long_texts(long_texts)
        super().__init__(name, batch_size=batch_size, device=device)
        if device not in ("auto", "cpu"):
            raise EmbedderError(f"{self}: device is {device!r}; use 'auto' or 'cpu'")
        self.long_texts = long_texts

    @abstractmethod
    def take_apart(self) -> EncoderParts:
        """What the encoder is made of, checked."""

    def _check_inputs(self, inputs: Mapping[str, Any]) -> None:
        """Refuse a graph that cannot be given texts."""

    def _load(self) -> TextEncoder:
        parts = self.take_apart()
        tokenizer = read_tokenizer(parts.tokenizer, parts.settings.limit)
        session = open_session(parts.model.SerializeToString(), str(self), self.device, parts.weights)
        self._check_inputs({value.name: value for value in session.get_inputs()})
        return TextEncoder(
            session, tokenizer, parts.settings, self.views, str(self), parts.layers, parts.weights
        )

    def _embed_with(
        self, model: TextEncoder, items: Sequence[Item], kind: Kind, views: Sequence[str]
    ) -> Embedded:
        texts = only_texts(items)
        prompt = model.settings.prompts.get(kind, "")
        (of_prompt,) = model.tokens([prompt])
        tokens = model.tokens([prompt + text for text in texts])
        overlong = np.array([each.is_cut for each in tokens])
        pieces = [Piece(text, row, len(tokens[row].ids)) for row, text in enumerate(texts)]
        if self.long_texts == "average" and overlong.any():
            room = model.settings.limit - len(of_prompt.ids)
            parts = [
                split(piece.text, piece.row, model.spans(piece.text), room, str(self))
                if overlong[piece.row]
                else [piece]
                for piece in pieces
            ]
            pieces = [piece for each in parts for piece in each]
            tokens = model.tokens([prompt + piece.text for piece in pieces])
        prompt_tokens = len(of_prompt.ids) - int(of_prompt.special[-1:].sum()) if prompt else 0
        lengths = np.array([len(each.ids) for each in tokens])
        matrices: dict[str, NDArray[np.float32]] = {}
        for rows in batches(lengths, self.batch_size):
            answer = model.forward([tokens[row] for row in rows], prompt_tokens)
            for view in views:
                values = answer[view] if view == "pooled" else rounded_to_half(answer[view])
                if view not in matrices:
                    matrices[view] = np.empty((len(tokens), values.shape[1]), np.float32)
                matrices[view][rows] = values
        if len(pieces) > len(texts):
            matrices = averaged(matrices, pieces, len(texts))
        return Embedded(matrices, overlong)


def batches(lengths: NDArray[np.int64], most: int) -> Iterator[NDArray[np.int64]]:
    """Numbers of texts of like length, so that little is padding, and of few tokens at a time.

    Args:
        lengths: tokens per text.
        most: texts per batch.

    Returns:
        The batches, each of at least one text.

    Example:
        >>> [rows.tolist() for rows in batches(np.array([2000, 5, 900, 7, 1000]), 64)]
        [[1, 3], [2, 4], [0]]
    """
    order = np.argsort(lengths, kind="stable")
    start = 0
    for stop in range(1, len(order) + 1):
        is_last = stop == len(order)
        if is_last or stop - start == most or (stop + 1 - start) * lengths[order[stop]] > BATCH_TOKENS:
            yield order[start:stop]
            start = stop


# `onnx-text:DIR`


class OnnxTextEmbedder(TextEncoderEmbedder):
    """An encoder that was exported to a folder: `model.onnx` and `tokenizer.json`, and its settings.

    Pooling, prompts and the longest text are read from the files that sentence-transformers writes, the
    longest text else from `tokenizer_config.json` and `config.json`. Outputs named `hidden_states.0`,
    `hidden_states.1`, ... give the views of the hidden layers.
    """

    scheme: ClassVar[str] = "onnx-text"

    def __init__(
        self, directory: str, *, long_texts: LongTexts = "cut", batch_size: int = 64, device: str = "auto"
    ) -> None:
        super().__init__(directory, long_texts=long_texts, batch_size=batch_size, device=device)
        self.directory = Path(directory).expanduser()
        if not self.directory.is_dir():
            raise EmbedderError(f"{self}: no such folder; give one with model.onnx and tokenizer.json")
        # sentence-transformers and optimum write it into a folder of its own.
        places = [self.directory / "model.onnx", self.directory / "onnx" / "model.onnx"]
        present = [place for place in places if place.is_file()]
        if not present:
            raise EmbedderError(f"{self}: has no model.onnx; export the encoder into this folder")
        self.model_file = present[0]
        if not (self.directory / _TOKENIZER).is_file():
            raise EmbedderError(f"{self}: has no {_TOKENIZER}; save the encoder's fast tokenizer there")

    @cached_property
    def settings(self) -> TextSettings:
        """What the files in the folder say."""
        return read_settings(self.directory)

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]  # it can be assigned as well
        """What decides the vectors: model, tokenizer, settings, how long texts are treated."""
        files = [hash_file(file) for file in (self.model_file, self.directory / _TOKENIZER)]
        identity = hashlib.sha256(repr((files, astuple(self.settings))).encode()).hexdigest()
        return f"onnx-text:sha256:{identity}:{self.long_texts}:{VIEWS_DEFINITION}"

    @cached_property
    def views(self) -> tuple[str, ...]:  # type: ignore[override]
        """`pooled`, and the views of the hidden layers where the graph has them as outputs."""
        names = [value.name for value in read_graph(self.model_file).graph.output]
        return ("pooled", *VIEWS) if hidden_layers(names) else ("pooled",)

    def take_apart(self) -> EncoderParts:
        """The files of the folder."""
        model = read_graph(self.model_file)
        layers, is_pooled = self._outputs(model.graph)
        if is_pooled:
            kept = next(value for value in model.graph.output if value.name == layers[0])
            del model.graph.output[:]
            model.graph.output.append(kept)
        else:
            self._check_modules()
            layers = spread(layers)
            add_summaries(model, layers, with_max=len(self.views) > 1)
        count = 0 if is_pooled else len(layers)
        return EncoderParts(model, self.directory / _TOKENIZER, self.settings, count)

    def _check_inputs(self, inputs: Mapping[str, Any]) -> None:
        for name in _INPUTS[:2]:
            if name not in inputs:
                raise EmbedderError(f"{self}: has no input {name!r}, which a text encoder needs")
        for name, value in inputs.items():
            if name in (_SUMMARY, _PRESENT):
                continue
            if name not in _INPUTS or value.type not in _INTEGERS or len(value.shape) != 2:
                raise EmbedderError(
                    f"{self}: its input {name!r} is {value.type} of shape {value.shape}; a text encoder "
                    f"takes integers (texts, tokens) named {', '.join(_INPUTS)}"
                )
            if any(isinstance(size, int) for size in value.shape):
                raise EmbedderError(
                    f"{self}: its input {name!r} has the fixed shape {value.shape}; export it with "
                    "dynamic axes for texts and tokens"
                )

    def _check_modules(self) -> None:
        """Refuse a model that does more to its tokens than the two kinds of pooling."""
        if self.settings.pooling not in ("mean", "cls"):
            raise EmbedderError(f"{self}: pools by {self.settings.pooling}; use st:, which knows all kinds")
        for kind, _ in read_modules(self.directory):
            if kind.rpartition(".")[2] not in ("Transformer", "Pooling", "Normalize"):
                raise EmbedderError(
                    f"{self}: its module {kind!r} is not in the ONNX file; export the whole model with the "
                    "output sentence_embedding, or use st:"
                )

    def _outputs(self, graph: Any) -> tuple[list[str], bool]:
        """The values to use, and whether they are one vector per text already."""
        ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in graph.output}
        if layers := hidden_layers(list(ranks)):
            return layers, False
        for name in _SENTENCE:
            if name in ranks:
                return [name], True
        for name in _TOKENS:
            if name in ranks:
                return [name], False
        if len(ranks) == 1:
            ((name, rank),) = ranks.items()
            return [name], rank == 2
        known = " or ".join((*_TOKENS, *_SENTENCE))
        raise EmbedderError(f"{self}: none of its outputs ({', '.join(ranks)}) is named {known}")


def read_tokenizer(file: Path, limit: int) -> Any:
    """A tokenizer that cuts at `limit` tokens and does not pad."""
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(file))
        tokenizer.no_padding()
        tokenizer.enable_truncation(limit)
    except Exception as error:  # the library raises Exception itself
        raise cannot_load(str(file), error) from None
    return tokenizer


def read_settings(directory: Path) -> TextSettings:
    """How sentence-transformers would use the model of a folder."""
    own = _document(directory / "sentence_bert_config.json")
    config = _document(directory / "config.json")
    of_tokenizer = _document(directory / "tokenizer_config.json")
    of_prompts = _document(directory / "config_sentence_transformers.json")
    pooling: dict[str, Any] = {}
    for kind, folder in read_modules(directory):
        if kind.rpartition(".")[2] == "Pooling":
            pooling = _document(directory / folder / "config.json")
    earlier = [new for old, new in _POOLINGS.items() if pooling.get(f"pooling_mode_{old}") is True]
    modes = pooling.get("pooling_mode") or earlier or "mean"
    limits = [own.get("max_seq_length")]
    if not isinstance(limits[0], int):
        limits = [of_tokenizer.get("model_max_length"), config.get("max_position_embeddings")]
    known = [limit for limit in limits if isinstance(limit, int) and 0 < limit < _ANY_LENGTH]
    if not known:
        raise EmbedderError(
            f"{directory}: does not say how many tokens the encoder takes; write "
            '{"max_seq_length": 512} or whatever it is to sentence_bert_config.json there'
        )
    pad_id, prompts = config.get("pad_token_id"), of_prompts.get("prompts")
    prompts = prompts if isinstance(prompts, dict) else {}
    return TextSettings(
        limit=min(known),
        pooling=modes if isinstance(modes, str) else ", ".join(map(str, modes)),
        pools_prompt=pooling.get("include_prompt") is not False,
        lower=own.get("do_lower_case") is True,
        pad_id=pad_id if isinstance(pad_id, int) else 0,
        prompts={kind: str(prompts.get(name) or "") for kind, name in _PROMPTS.items()},
    )


def _document(file: Path) -> dict[str, Any]:
    """A JSON object; empty if there is no such file."""
    if not file.is_file():
        return {}
    try:
        document = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        document = None
    if not isinstance(document, dict):
        raise EmbedderError(f"{file}: is no JSON object; the model is damaged")
    return document
