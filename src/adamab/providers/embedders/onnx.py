"""`onnx:FILE`: any network that takes images, as a feature extractor; it knows no texts."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from adamab.errors import EmbedderError
from adamab.providers.embedders import local_models as pixels
from adamab.providers.embedders.base import Embedded, Item, Kind, Modality, only_images
from adamab.providers.embedders.local_models import LocalModelEmbedder, cannot_load, hash_file
from adamab.task.images import Image

# An ONNX file in memory: whether it is whole, and with an inner layer as its output.

_MOST_BYTES = 2**31 - 1  # of any one protobuf message
_NAMED = 3  # near names in a message
_EXTERNAL = 1  # TensorProto.EXTERNAL


def read_graph(path: Path) -> Any:
    """An ONNX file, checked, with its weights inside.

    Args:
        path: the file.

    Returns:
        The `onnx.ModelProto`.
    """
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
        model = library.ModelProto()
    if not model.ir_version or not model.graph.node or not model.graph.output:
        raise EmbedderError(f"{path}: is not an ONNX file, or it is damaged")
    if _has_external_data(model):
        raise EmbedderError(
            f"{path}: keeps weights in files beside it; save it as one file (save_as_external_data=False)"
        )
    return model


def with_output(path: Path, output: str | None) -> bytes:
    """The content of an ONNX file, checked, with one value of its graph as the only output.

    Args:
        path: the file, with its weights inside.
        output: the name of the value; None means the file's last output.

    Returns:
        The changed model, for a runtime.
    """
    import onnx

    library: Any = onnx
    model = read_graph(path)
    graph = model.graph
    if output is None:
        del graph.output[:-1]
    else:
        names = [name for node in graph.node for name in node.output if name]
        if output not in (*names, *(value.name for value in graph.output)):
            near = difflib.get_close_matches(output, names, _NAMED, 0.4) or names[-_NAMED:]
            raise EmbedderError(f"{path}: has no output {output!r}; near it: {', '.join(near)}")
        # The runtime finds type and shape itself, and leaves out whatever the output does not need.
        del graph.output[:]
        graph.output.append(library.ValueInfoProto(name=output))
    content: bytes = model.SerializeToString()
    return content


def _has_external_data(message: Any) -> bool:
    """Whether any tensor in a message, however deep, lies in another file."""
    if getattr(message, "data_location", None) == _EXTERNAL:
        return True
    parts = [value for field, value in message.ListFields() if field.message_type is not None]
    return any(
        _has_external_data(part)
        for value in parts
        for part in ([value] if hasattr(value, "ListFields") else value)
    )


# A graph in onnxruntime.

_GPUS = ("CUDAExecutionProvider", "ROCMExecutionProvider")


def open_session(
    content: bytes, name: str, device: str, weights: Mapping[str, NDArray[Any]] | None = None
) -> Any:
    """A session of onnxruntime, with as many threads as this process may use.

    Args:
        content: the model as a file has it.
        name: the embedder's, for messages.
        device: `auto` takes a GPU if the installed onnxruntime has one, `cpu` never.
        weights: of a model that does not hold them itself; they must live as long as the session.

    Returns:
        The session.
    """
    import onnxruntime

    library: Any = onnxruntime
    options = library.SessionOptions()
    options.log_severity_level = 4  # what matters is raised
    options.intra_op_num_threads = thread_count()
    # Threads that spin while they wait take the processor from whoever else works on this machine.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    gpus = [each for each in _GPUS if each in library.get_available_providers() and device == "auto"]
    try:
        if weights:
            values = [library.OrtValue.ortvalue_from_numpy(array) for array in weights.values()]
            options.add_external_initializers(list(weights), values)
        return library.InferenceSession(content, options, providers=[*gpus, "CPUExecutionProvider"])
    except Exception as error:  # whatever a damaged file makes the runtime raise
        raise cannot_load(name, error) from None


def run_session(session: Any, inputs: Mapping[str, NDArray[Any]], name: str) -> list[NDArray[Any]]:
    """All outputs of a graph; what the runtime raises becomes one line."""
    try:
        answer: list[NDArray[Any]] = session.run(None, dict(inputs))
    except Exception as error:  # the runtime's errors share no base of their own
        reason = " ".join(str(error).split())[:160]
        raise EmbedderError(f"{name}: the network failed ({reason})") from None
    return answer


def thread_count() -> int:
    """What OMP_NUM_THREADS says, or the processors that this process may use."""
    named = os.environ.get("OMP_NUM_THREADS", "")
    if named.isdecimal() and int(named) > 0:
        return int(named)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# How colours are scaled: mean and deviation to normalise with, and whether they go from 0 to 1 before.
SCALES: dict[str, tuple[pixels.Colour, pixels.Colour, bool]] = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), True),
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5), True),
    "none": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0), True),
    "raw": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0), False),
}
_FLOATS: dict[str, np.dtype[Any]] = {"tensor(float)": np.dtype("f4"), "tensor(float16)": np.dtype("f2")}
_USUAL_SIZE = 224
_USUAL_MARGIN = 256 / 224
_DEFINITION = "features-1"  # changes whenever the same file would give other vectors


class OnnxEmbedder(LocalModelEmbedder):
    """Features of images from a network in an ONNX file; `output` names the layer they are taken from.

    Without `output` it is the file's last one, which of a classifier are the scores of its own classes.
    An image is resized so that its shorter side is `resize`, and `size` is cut from its middle.
    """

    scheme: ClassVar[str] = "onnx"
    packages: ClassVar[tuple[str, ...]] = ("onnx", "onnxruntime", "PIL")
    modalities: frozenset[Modality] = frozenset({"image"})

    def __init__(
        self,
        file: str,
        *,
        output: str | None = None,
        size: int | None = None,
        resize: int | None = None,
        scale: str = "imagenet",
        batch_size: int = 32,
        device: str = "auto",
    ) -> None:
        super().__init__(file, batch_size=batch_size, device=device)
        if scale not in SCALES:
            raise EmbedderError(f"{self}: scale is {scale!r}; use one of: {', '.join(SCALES)}")
        if device not in ("auto", "cpu"):
            raise EmbedderError(f"{self}: device is {device!r}; use 'auto' or 'cpu'")
        for option, value in (("size", size), ("resize", resize)):
            if value is not None and not 1 <= value <= 4096:
                raise EmbedderError(f"{self}: {option} is {value}; use 1 to 4096")
        self.path = Path(file).expanduser()
        if not self.path.is_file():
            raise EmbedderError(f"{self}: no such file; give the path of an ONNX file")
        self.output, self.size, self.resize, self.scale = output, size, resize, scale

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]  # it can be assigned as well
        """What decides the vectors: the file's content, the layer, and how images are prepared."""
        options = f"{self.output}:{self.size}:{self.resize}:{self.scale}"
        return f"onnx:sha256:{hash_file(self.path)}:{options}:{_DEFINITION}:{pixels.DEFINITION}"

    def _load(self) -> _Network:
        session = open_session(with_output(self.path, self.output), str(self), self.device)
        inputs = session.get_inputs()
        if len(inputs) != 1:
            raise EmbedderError(f"{self}: has {len(inputs)} inputs; a network that takes only images has one")
        only = inputs[0]
        # Sizes that may vary are names or None.
        sizes = [size if isinstance(size, int) and size > 0 else None for size in only.shape]
        if len(sizes) != 4 or only.type not in _FLOATS or 3 not in (sizes[1] or 3, sizes[3] or 3):
            raise EmbedderError(
                f"{self}: its input {only.name!r} is {only.type} of shape {only.shape}, "
                "not float images in three colours"
            )
        last = sizes[1] != 3 and (sizes[3] == 3 or sizes[1] is not None)
        preparation = self._preparation(*(sizes[1:3] if last else sizes[2:]))
        return _Network(session, only.name, sizes[0], last, _FLOATS[only.type], preparation, str(self))

    def _preparation(self, height: int | None, width: int | None) -> pixels.Preparation:
        height = height or self.size or _USUAL_SIZE
        width = width or self.size or _USUAL_SIZE
        if self.size is not None and (height, width) != (self.size, self.size):
            raise EmbedderError(
                f"{self}: size is {self.size}, but the file takes {height} x {width} pixels; leave it out"
            )
        margin = self.resize / min(height, width) if self.resize is not None else _USUAL_MARGIN
        if margin < 1:
            raise EmbedderError(f"{self}: resize is {self.resize}; use {min(height, width)} or more")
        mean, std, unit = SCALES[self.scale]
        return pixels.Preparation(height, width, margin=margin, mean=mean, std=std, unit=unit)

    def _embed_with(
        self, model: _Network, items: Sequence[Item], kind: Kind, views: Sequence[str]
    ) -> Embedded:
        size = model.batch or self.batch_size
        vectors = pixels.in_batches(only_images(items), size, model.features)
        return Embedded({"pooled": vectors}, np.zeros(len(items), np.bool_))


@dataclass(frozen=True)
class _Network:
    """A loaded file; everything that touches the runtime."""

    session: Any
    input_name: str
    batch: int | None  # None where the file takes any number
    channels_last: bool
    number: np.dtype[Any]
    preparation: pixels.Preparation
    title: str

    def features(self, images: Sequence[Image]) -> NDArray[np.float32]:
        """One vector of length 1 per image."""
        data = self.preparation.batch(images)
        if self.batch is not None and len(images) < self.batch:
            data = np.concatenate([data, np.zeros((self.batch - len(images), *data.shape[1:]), np.float32)])
        if self.channels_last:
            data = np.ascontiguousarray(data.transpose(0, 2, 3, 1))
        inputs = {self.input_name: data.astype(self.number, copy=False)}
        answer = run_session(self.session, inputs, self.title)[-1]
        return pixels.of_length_one(self._pooled(np.asarray(answer), len(data))[: len(images)])

    def _pooled(self, answer: NDArray[Any], rows: int) -> NDArray[np.float32]:
        """One vector per image: the mean over space or over tokens where there are such."""
        usable = np.issubdtype(answer.dtype, np.floating) and 2 <= answer.ndim <= 4 and len(answer) == rows
        if not usable:
            raise EmbedderError(
                f"{self.title}: its output for {rows} images is {answer.dtype} of shape {answer.shape}, "
                "which are no features; name another output"
            )
        values = answer.astype(np.float32, copy=False)
        if values.ndim == 3:
            return values.mean(axis=1)  # type: ignore[no-any-return]
        if values.ndim == 4:
            # By the two sides that are equal, since converters change layouts; else as the input has it.
            _, first, second, third = values.shape
            decided = (first == second) != (second == third)
            last = first == second if decided else self.channels_last
            return values.mean(axis=(1, 2) if last else (2, 3))  # type: ignore[no-any-return]
        return values
