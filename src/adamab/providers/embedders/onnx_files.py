"""An ONNX file in memory: whether it is whole, and with an inner layer as its output."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from adamab.errors import EmbedderError

_MOST_BYTES = 2**31 - 1  # of any one protobuf message
_NAMED = 3  # near names in a message


def with_output(path: Path, output: str | None) -> bytes:
    """The file's content; with `output`, that value of its graph is the only thing it computes."""
    model = _parsed(path)
    if any(_is_elsewhere(tensor) for tensor in _tensors(model)):
        raise EmbedderError(
            f"{path}: keeps weights in files beside it; save it as one file (save_as_external_data=False)"
        )
    graph = model.graph
    if output is not None:
        _keep_only(graph, output, path)
    elif not graph.output:
        raise EmbedderError(f"{path}: has no output; it is damaged")
    else:
        del graph.output[:-1]
    content: bytes = model.SerializeToString()
    return content


def _parsed(path: Path) -> Any:
    import onnx

    library: Any = onnx
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise EmbedderError(f"{path}: is larger than 2 GB, which one ONNX file cannot be")
        model = library.load_model_from_string(path.read_bytes())
    except OSError as error:
        raise EmbedderError(f"{path}: cannot be read ({error.strerror})") from None
    except EmbedderError:
        raise
    except Exception:  # protobuf's DecodeError, which differs between its implementations
        raise _no_onnx(path) from None
    if not model.ir_version or not model.graph.node:
        raise _no_onnx(path)
    return model


def _no_onnx(path: Path) -> EmbedderError:
    return EmbedderError(f"{path}: is not an ONNX file, or it is damaged")


def _keep_only(graph: Any, output: str, path: Path) -> None:
    import onnx

    known = [value.name for value in graph.output if value.name == output]
    names = [name for node in graph.node for name in node.output if name]
    if not known and output not in names:
        near = difflib.get_close_matches(output, names, _NAMED, 0.4) or names[-_NAMED:]
        raise EmbedderError(f"{path}: has no output {output!r}; near it: {', '.join(near)}")
    # The runtime finds type and shape itself, and leaves out whatever the output does not need.
    library: Any = onnx
    del graph.output[:]
    graph.output.append(library.ValueInfoProto(name=output))


def _is_elsewhere(tensor: Any) -> bool:
    return bool(tensor.data_location == tensor.EXTERNAL)


def _tensors(model: Any) -> Iterator[Any]:
    """Every tensor of the file: also those of sparse weights, of constants, and of graphs in a node."""
    yield from _graph_tensors(model.graph)
    for function in model.functions:
        yield from _node_tensors(function.node)


def _graph_tensors(graph: Any) -> Iterator[Any]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _node_tensors(graph.node)


def _node_tensors(nodes: Any) -> Iterator[Any]:
    for attribute in (attribute for node in nodes for attribute in node.attribute):
        yield from (attribute.t, *attribute.tensors)
        for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
            yield from (sparse.values, sparse.indices)
        for graph in (attribute.g, *attribute.graphs):
            yield from _graph_tensors(graph)
