"""A BERT encoder as an ONNX graph of onnxruntime's fused operators, made from the model's own weights.

The graph is a few kilobytes without its weights, which the runtime takes as arrays. Making it takes
less time than reading a file of it would, so none is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
