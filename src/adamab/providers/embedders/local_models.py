"""What models of this machine share: their files, how images become their input, and where they run.

Importing this imports no torch: a fingerprint must be cheap to ask for.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib.util
import json
import logging
import os
import sys
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from adamab.errors import EmbedderError, MissingExtraError, imported, os_errors
from adamab.providers.embedders.base import Embedded, Embedder, Item, Kind
from adamab.task.images import Image, decoded

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image as PILImage

# What decides the vectors: weights, configuration, vocabulary. A README does not.
_DECISIVE = (".safetensors", ".json", ".txt", ".model", ".spm", ".jinja")
_FOREIGN_BACKENDS = ("onnx", "openvino")
_PICKLED = (".bin", ".pt", ".pth", ".ckpt")
_MODULES = "modules.json"
_OWN = "st"  # sentence-transformers has names and a cache of its own
_EXTRAS = {"onnx-text": "local"}  # where the extra has another name than the scheme
_LOCK = threading.Lock()  # one model works at a time
_Thing = TypeVar("_Thing")
_DISTRIBUTIONS = {"PIL": "Pillow", "sentence_transformers": "sentence-transformers"}


@dataclass(frozen=True)
class ModelFiles:
    """A model's directory and what identifies its contents."""

    directory: Path
    identity: str

    @property
    def is_plain_transformer(self) -> bool:
        """A transformer whose hidden layers can be read, followed by pooling and the like."""
        modules = [kind for kind, _ in read_modules(self.directory)]
        # Without modules.json sentence-transformers itself adds mean pooling to the transformer.
        return not modules or modules[0].rpartition(".")[2] == "Transformer"

    def check(self) -> None:
        """Refuse what could run code while loading: pickled weights, modules from elsewhere."""
        for module, _ in read_modules(self.directory):
            if not module.startswith("sentence_transformers."):
                raise EmbedderError(
                    f"{self.directory}: module {module!r} is not part of sentence-transformers; "
                    "models that bring their own code are not loaded"
                )
        files = _files(self.directory)
        safe = {file.parent for file in files if file.suffix == ".safetensors"}
        for file in files:
            if file.suffix in _PICKLED and file.parent not in safe:
                raise EmbedderError(
                    f"{file}: weights are not safetensors; save the model again with safe_serialization=True"
                )
        if not safe:
            raise EmbedderError(
                f"{self.directory}: no safetensors weights here; is this a model's directory?"
            )


def find_model(path_or_id: str, *, scheme: str = _OWN, notice: str = "", revision: str = "") -> ModelFiles:
    """The directory of a model, or of the hub's snapshot of it, downloaded if it is not there yet.

    Args:
        path_or_id: a directory, or a name on the hub.
        scheme: what stands before the colon where the user named it.
        notice: a line for stderr before a download.
        revision: branch, commit or pull request (`refs/pr/15`) of the hub's repository; empty: `main`.

    Returns:
        The directory, and what identifies the model.
    """
    directory = Path(path_or_id).expanduser()
    if directory.is_dir():
        if revision:
            raise EmbedderError(f"{scheme}:{path_or_id}: a folder has no revision; leave out ?revision=")
        return ModelFiles(directory, f"sha256:{hash_directory(directory)}")
    # A bare name is one of sentence-transformers' own models.
    name = f"sentence-transformers/{path_or_id}" if scheme == _OWN and "/" not in path_or_id else path_or_id
    snapshot = cached_snapshot(name, scheme, revision) or _downloaded(name, scheme, notice, revision)
    return ModelFiles(snapshot, f"{name}@{snapshot.name}")


def check_name(path_or_id: str, *, scheme: str = _OWN) -> None:
    """Refuse early what is neither a model's directory nor the form of a hub id."""
    path = Path(path_or_id).expanduser()
    if path.is_dir():
        if not any((path / name).is_file() for name in (_MODULES, "config.json")):
            raise EmbedderError(f"{path} is not a model directory: it has neither {_MODULES} nor config.json")
        return
    looks_like_path = path.is_absolute() or path_or_id.startswith((".", "~")) or path_or_id.count("/") > 1
    if not path_or_id.strip() or path.exists() or looks_like_path:
        raise EmbedderError(
            f"{scheme}:{path_or_id}: no such model directory; give a directory or a hub id (org/name)"
        )


def hash_directory(directory: Path) -> str:
    """sha256 over the names and contents of the files that decide the vectors, in hexadecimal digits."""
    total = hashlib.sha256()
    for file in _files(directory):
        if file.suffix in _DECISIVE:
            total.update(f"{file.relative_to(directory).as_posix()}\0{hash_file(file)}\n".encode())
    return total.hexdigest()


_digests: dict[tuple[Path, int, int], str] = {}


def hash_file(file: Path) -> str:
    """sha256 of a file, remembered for as long as its size and time stay the same."""
    with os_errors(file, "cannot be read", EmbedderError):
        status = file.stat()
        key = file, status.st_size, status.st_mtime_ns
        if key not in _digests:
            with open(file, "rb") as stream:
                _digests[key] = hashlib.file_digest(stream, "sha256").hexdigest()
    return _digests[key]


def check_digest(file: Path, digest: str) -> None:
    """Refuse a file that is not the known one."""
    if hash_file(file) != digest:
        raise EmbedderError(
            f"{file}: its sha256 is not {digest[:12]}…, so it is damaged or another model's; "
            "install the model again (adamab doctor says how)"
        )


def _files(directory: Path) -> list[Path]:
    """The model's files, sorted: of the directory, its folders, and the folders of its modules.

    No deeper, since the directory may hold anything beside the model.
    """
    modules = {Path(path).parts[0] for _, path in read_modules(directory) if Path(path).parts}
    files: list[Path] = []
    folders = [directory]  # grows
    for folder in folders:
        with os_errors(folder, "cannot be read", EmbedderError):
            entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
        files += [entry for entry in entries if entry.is_file()]
        if folder == directory:
            folders += [e for e in entries if e.is_dir() and e.name not in _FOREIGN_BACKENDS]
        elif folder.parent == directory and folder.name in modules:
            # A module may consist of modules: a router keeps each of its routes in a folder of its own.
            folders += [entry for entry in entries if entry.is_dir()]
    return sorted(files)


def read_modules(directory: Path) -> list[tuple[str, str]]:
    """Type and folder of each module; none without `modules.json`."""
    file = directory / _MODULES
    if not file.is_file():
        return []
    try:
        modules = json.loads(file.read_text("utf-8"))
        return [(str(module["type"]), str(module.get("path", ""))) for module in modules]
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise EmbedderError(f"{file}: not a list of modules; the model is damaged") from None


def cached_snapshot(name: str, scheme: str = _OWN, revision: str = "") -> Path | None:
    """The hub's snapshot of a model, if its weights are on this machine."""
    hub = _hub(scheme)
    try:
        directory = Path(hub.snapshot_download(name, local_files_only=True, **_wanted(scheme, revision)))
    except (OSError, ValueError):
        return None
    return directory if any(directory.rglob("*.safetensors")) else None


def is_offline() -> bool:
    """Whether the user forbids downloads: ADAMAB_OFFLINE or HF_HUB_OFFLINE is 1."""
    return any(
        os.environ.get(name, "").lower() in ("1", "true", "yes", "on")
        for name in ("ADAMAB_OFFLINE", "HF_HUB_OFFLINE")
    )


def _downloaded(name: str, scheme: str, notice: str, revision: str) -> Path:
    """Naming an id is asking for the download."""
    if is_offline():
        raise EmbedderError(
            f"{scheme}:{name}: is not on this machine, and ADAMAB_OFFLINE or HF_HUB_OFFLINE forbids to "
            "fetch it; give a model directory"
        )
    if notice:
        print(notice, file=sys.stderr, flush=True)
    hub = _hub(scheme)
    try:
        directory = Path(hub.snapshot_download(name, **_wanted(scheme, revision)))
    except Exception as error:  # the hub's errors share no base with each other
        raise EmbedderError(
            f"{scheme}:{name}: cannot be fetched from the hub ({type(error).__name__}); "
            "check the id and the network, or give a model directory"
        ) from None
    if not any(directory.rglob("*.safetensors")):
        raise EmbedderError(
            f"{scheme}:{name}: its repository has no safetensors weights, and others are not loaded; name "
            f"another model, or where a pull request adds them {scheme}:{name}?revision=refs/pr/NUMBER"
        )
    return directory


def _hub(scheme: str) -> Any:
    return imported("huggingface_hub", "huggingface-hub", _EXTRAS.get(scheme, scheme))


def _wanted(scheme: str, revision: str) -> dict[str, Any]:
    """Which files of a repository, and where they are kept."""
    return {
        "revision": revision or None,
        "cache_dir": os.environ.get("SENTENCE_TRANSFORMERS_HOME") if scheme == _OWN else None,
        "allow_patterns": [f"*{suffix}" for suffix in _DECISIVE],
        "ignore_patterns": [f"{backend}/*" for backend in _FOREIGN_BACKENDS],
    }


@contextlib.contextmanager
def quiet(package: str = "transformers") -> Iterator[None]:
    """No progress bars and no advice on stderr from a library of the hub's makers while it works for us."""
    chatty = import_module(f"{package}.utils.logging")
    bars = chatty.is_progress_bar_enabled()
    loggers = [logging.getLogger(name) for name in (package, "sentence_transformers")]
    levels = [logger.level for logger in loggers]
    chatty.disable_progress_bar()
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if bars:
            chatty.enable_progress_bar()


# What the local embedders share: the model is loaded once, late, and used in a thread.


class LocalModelEmbedder(Embedder):
    """An embedder whose model comes from a file or a directory and takes its items in batches."""

    scheme: ClassVar[str]  # what stands before the colon
    packages: ClassVar[tuple[str, ...]]  # that it imports

    def __init__(self, name: str, *, batch_size: int, device: str) -> None:
        if batch_size < 1:
            raise EmbedderError(f"batch_size is {batch_size}; use 1 or more")
        for package in self.packages:
            if importlib.util.find_spec(package) is None:
                extra = _EXTRAS.get(self.scheme, self.scheme)
                raise MissingExtraError(_DISTRIBUTIONS.get(package, package), extra)
        self.name = name
        self.batch_size = batch_size
        self.device = device
        self._loaded: Any = None

    def __str__(self) -> str:
        return f"{self.scheme}:{self.name}"

    def __getstate__(self) -> dict[str, Any]:
        # A copy in another process loads the model itself.
        return {**self.__dict__, "_loaded": None}

    @abstractmethod
    def _load(self) -> Any:
        """The model, checked and ready."""

    @abstractmethod
    def _embed_with(self, model: Any, items: Sequence[Item], kind: Kind, views: Sequence[str]) -> Embedded:
        """Embed with the loaded model; called by one thread at a time."""

    async def _embed(self, items: Sequence[Item], *, kind: Kind, views: Sequence[str]) -> Embedded:
        return await asyncio.to_thread(self._embed_now, items, kind, views)

    def _embed_now(self, items: Sequence[Item], kind: Kind, views: Sequence[str]) -> Embedded:
        with _LOCK:
            if self._loaded is None:
                self._loaded = self._load()
            return self._embed_with(self._loaded, items, kind, views)


def cannot_load(name: str, error: Exception) -> EmbedderError:
    """Whatever a damaged file makes a library raise, in one line."""
    reason = " ".join(str(error).split())[:160]
    return EmbedderError(f"{name}: the model cannot be loaded ({type(error).__name__}: {reason})")


# What text encoders share: the views of their hidden layers, prompts, and texts that are too long.

VIEWS = ("layers", "first", "max")  # beside `pooled`
VIEWS_DEFINITION = "views-1"  # changes whenever the same model would give other vectors
FIRST_TOKENS = 3
_MAX_LAYERS = 7
_HALF_MAX = float(np.finfo(np.float16).max)

LongTexts = Literal["cut", "average"]


def spread(layers: Sequence[_Thing]) -> list[_Thing]:
    """At most seven of a model's layers, evenly spaced, the first and the last among them.

    Example:
        >>> spread(range(13))
        [0, 2, 4, 6, 8, 10, 12]
    """
    indices = np.linspace(0, len(layers) - 1, min(len(layers), _MAX_LAYERS))
    return [layers[round(index)] for index in indices]


def rounded_to_half(values: NDArray[np.floating]) -> NDArray[np.float32]:
    """Rounded to float16, so that a cache of half the size gives the very same numbers.

    Some large models have single huge activations, which would become infinite; they are clipped.
    """
    halves: NDArray[np.float16] = np.clip(values, -_HALF_MAX, _HALF_MAX).astype(np.float16)
    return halves.astype(np.float32)


def check_long_texts(long_texts: str) -> None:
    """Refuse what is neither of the two."""
    if long_texts not in get_args(LongTexts):
        raise EmbedderError(f"long_texts is {long_texts!r}; use 'cut' or 'average'")


@dataclass(frozen=True)
class Piece:
    """A part of text number `row`, and its weight."""

    text: str
    row: int
    tokens: int


def split(text: str, row: int, spans: Sequence[tuple[int, int]], room: int, name: str) -> list[Piece]:
    """Pieces of at most `room` tokens, cut between words where that is possible.

    Args:
        text: the text.
        row: its number.
        spans: where each of its tokens begins and ends.
        room: tokens that the model takes of it at once.
        name: the embedder's, for messages.

    Returns:
        The pieces in their order.
    """
    if room < 1:
        raise EmbedderError(f"{name}: its prompt leaves no room for text; use long_texts='cut'")
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
            answer[view] = rounded_to_half(total)
    return answer


# From images to what a network takes: resized, cropped, normalised, a batch at a time.
#
# At most one image is open at its full size, and only the batch at hand is held as numbers, so that a
# folder may have any number of images.

Filter = Literal["bicubic", "bilinear", "lanczos", "nearest", "box", "hamming"]
Colour = tuple[float, float, float]

DEFINITION = "pixels-1"  # changes whenever the same image would become other numbers
_LONGEST_STRIP = 4  # times the shorter side


@dataclass(frozen=True)
class Preparation:
    """How an image becomes a network's input, as torchvision's Resize and CenterCrop would do it.

    Example:
        >>> Preparation(height=224, width=224, margin=256 / 224).cover
        (256, 256)
    """

    height: int
    width: int
    margin: float = 1.0  # how much larger than its crop the image is resized
    squash: bool = False  # resize both sides to the crop's, whatever the proportions
    mean: Colour = (0.0, 0.0, 0.0)
    std: Colour = (1.0, 1.0, 1.0)
    unit: bool = True  # colours from 0 to 1, not to 255
    resample: Filter = "bicubic"

    @property
    def cover(self) -> tuple[int, int]:
        """Height and width that the resized image must reach."""
        return round(self.height * self.margin), round(self.width * self.margin)

    def batch(self, images: Sequence[Image]) -> NDArray[np.float32]:
        """The images as one array (image, colour, row, column)."""
        pixels = np.empty((len(images), 3, self.height, self.width), np.float32)
        for row, image in enumerate(images):
            pil_image = self.cropped(decoded(image, least_side=max(self.cover)))
            pixels[row] = np.asarray(pil_image, np.uint8).transpose(2, 0, 1)
        if self.unit:
            pixels /= 255
        pixels -= np.array(self.mean, np.float32)[:, None, None]
        pixels /= np.array(self.std, np.float32)[:, None, None]
        return pixels

    def cropped(self, pil_image: PILImage) -> PILImage:
        """The middle of the resized image."""
        from PIL.Image import Resampling

        pil_image = without_ends(pil_image)
        height, width = self.cover
        if not self.squash:  # in the image's own proportions, just large enough
            scale = max(height / pil_image.height, width / pil_image.width)
            height = max(height, int(pil_image.height * scale))
            width = max(width, int(pil_image.width * scale))
        pil_image = pil_image.resize((width, height), Resampling[self.resample.upper()])
        top, left = round((height - self.height) / 2), round((width - self.width) / 2)
        return pil_image.crop((left, top, left + self.width, top + self.height))


def in_batches(
    things: Sequence[_Thing], size: int, vectors_of: Callable[[list[_Thing]], NDArray[np.float32]]
) -> NDArray[np.float32]:
    """The rows that `vectors_of` gives for each batch, in one matrix that is there once, not twice."""
    matrix: NDArray[np.float32] | None = None
    for start in range(0, len(things), size):
        rows = vectors_of(list(things[start : start + size]))
        if matrix is None:
            matrix = np.empty((len(things), rows.shape[1]), np.float32)
        matrix[start : start + size] = rows
    return np.empty((0, 0), np.float32) if matrix is None else matrix


def without_ends(pil_image: PILImage) -> PILImage:
    """The middle of a very long strip, of which a centre crop sees no more anyway.

    A line of ten thousand pixels would otherwise grow to gigabytes when its shorter side is resized.
    """
    width, height = pil_image.size
    most = _LONGEST_STRIP * min(width, height)
    if max(width, height) <= most:
        return pil_image
    left, top = max(0, width - most) // 2, max(0, height - most) // 2
    return pil_image.crop((left, top, width - left, height - top))


def of_length_one(vectors: NDArray[np.floating]) -> NDArray[np.float32]:
    """Each row divided by its length; a row of zeros stays as it is."""
    rows = np.array(vectors, np.float32)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    np.divide(rows, lengths, out=rows, where=lengths > 0)
    return rows


# Where a local model runs.

_KINDS = ("cpu", "cuda", "mps", "xpu")  # torch knows others, on which nothing can be computed


def find_device(wanted: str) -> torch.device | None:
    """The device of that name, for `auto` a graphics card if there is one; None if there is no such device.

    Example:
        >>> find_device("cpu")
        device(type='cpu')
    """
    import torch

    if wanted == "auto":
        mps = "mps" if torch.backends.mps.is_available() else "cpu"
        return torch.device("cuda" if torch.cuda.is_available() else mps)
    try:
        device = torch.empty(0, device=wanted).device
    except (RuntimeError, AssertionError, NotImplementedError):
        return None
    return device if device.type in _KINDS else None


def torch_device(wanted: str, name: str) -> Any:
    """The device of that name, or for `auto` a GPU if there is one."""
    device = find_device(wanted)
    if device is None:
        raise EmbedderError(f"{name}: there is no device {wanted!r} here; leave it out or write cpu")
    return device
