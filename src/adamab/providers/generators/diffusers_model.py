"""A pipeline of diffusers: where its files are, whether they are safe, and how it draws."""

from __future__ import annotations

import contextlib
import inspect
import json
import logging
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adamab.errors import EmbedderError, GeneratorError
from adamab.providers.embedders.model_files import hash_directory
from adamab.task.messages import one_line, place, short

DTYPES = ("auto", "float32", "float16", "bfloat16")
_INDEX = "model_index.json"
_STEP = 8  # pipelines take sides that are multiples of it


@dataclass(frozen=True)
class PipelineFiles:
    """A pipeline's directory and what identifies its contents."""

    directory: Path
    identity: str


@dataclass(frozen=True)
class Canvas:
    """The size that is wanted: as it is, or at most as many pixels as the model was made for."""

    width: int | None = None
    height: int | None = None
    exact: bool = False

    def sides(self, own: int | None) -> tuple[int, int] | None:
        """Width and height for a model whose own pictures are squares of side `own`.

        Example:
            >>> Canvas(1024, 1024).sides(512), Canvas(1536, 1024).sides(512), Canvas(256, 256).sides(512)
            ((512, 512), (624, 416), (256, 256))
        """
        if self.width is None or self.height is None:
            return None
        if self.exact:
            return self.width, self.height
        scale = 1.0 if own is None else min(1.0, own / math.sqrt(self.width * self.height))
        return _rounded(self.width * scale), _rounded(self.height * scale)


@dataclass(frozen=True)
class Drawn:
    """A picture, and whether the pipeline's safety checker blackened it."""

    picture: Any
    flagged: bool

    @property
    def is_blank(self) -> bool:
        """One colour all over, which is what numbers out of range give."""
        return all(low == high for low, high in self.picture.convert("RGB").getextrema())


@dataclass(frozen=True)
class Pipeline:
    """A loaded pipeline; everything that touches torch."""

    pipe: Any
    name: str

    @property
    def own_side(self) -> int | None:
        """Pixels of the side of the squares that the model was made for, where it tells."""
        body = getattr(self.pipe, "unet", None) or getattr(self.pipe, "transformer", None)
        size = getattr(self.pipe, "default_sample_size", None)
        size = size or getattr(getattr(body, "config", None), "sample_size", None)
        scale = getattr(self.pipe, "vae_scale_factor", None)
        return size * scale if isinstance(size, int) and isinstance(scale, int) else None

    def draw(
        self, prompt: str, seed: int, *, steps: int | None, guidance: float | None, canvas: Canvas
    ) -> Drawn:
        """One picture by itself: in a batch, numbers would round by what stands beside it."""
        import torch

        sides = canvas.sides(self.own_side) or (None, None)
        options = {"num_inference_steps": steps, "guidance_scale": guidance}
        options |= {"width": sides[0], "height": sides[1]}
        # Noise of the CPU, which is the same whatever the device is.
        noise = torch.Generator("cpu").manual_seed(seed)
        given = {name: value for name, value in options.items() if value is not None}
        try:
            with _quiet(), torch.inference_mode():
                answer = self.pipe(prompt=prompt, generator=noise, **given)
        except Exception as error:  # whatever a pipeline makes of an option that it does not take
            raise GeneratorError(f"{self.name}: cannot draw ({_reason(error)})") from None
        flags = getattr(answer, "nsfw_content_detected", None)
        return Drawn(answer.images[0], bool(flags and flags[0]))


def check_name(path_or_id: str) -> None:
    """Refuse early what is neither a pipeline's directory nor the form of a hub id."""
    path = Path(path_or_id).expanduser()
    if path_or_id.strip() and path.is_dir():
        if not (path / _INDEX).is_file():
            raise GeneratorError(f"{place(path)} is not the directory of a pipeline: it has no {_INDEX}")
        return
    looks_like_path = path.is_absolute() or path_or_id.startswith((".", "~")) or path_or_id.count("/") != 1
    if path.exists() or looks_like_path:
        raise GeneratorError(
            f"diffusers:{one_line(path_or_id)}: no such pipeline; give a directory or a hub id (org/name)"
        )


def find_pipeline(path_or_id: str) -> PipelineFiles:
    """The directory of a pipeline, or of the hub's snapshot of it, downloaded if it is not there yet."""
    directory = Path(path_or_id).expanduser()
    if not directory.is_dir():
        snapshot = _snapshot(path_or_id)
        return PipelineFiles(snapshot, f"{path_or_id}@{snapshot.name}")
    try:
        return PipelineFiles(directory, f"sha256:{hash_directory(directory)}")
    except EmbedderError as error:
        raise GeneratorError(str(error)) from None


def load(files: PipelineFiles, device: str, dtype: str, name: str) -> Pipeline:
    """The pipeline, ready to draw; one that brings code of its own or pickled weights is refused."""
    import diffusers
    import torch

    _check_index(files.directory)
    device = _device(device)
    kind = _dtype(device) if dtype == "auto" else getattr(torch, dtype)
    library: Any = diffusers
    try:
        with _quiet(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about settings of the model that its user cannot change
            pipe = library.DiffusionPipeline.from_pretrained(
                str(files.directory), use_safetensors=True, local_files_only=True, torch_dtype=kind
            ).to(device)
    except Exception as error:  # whatever a damaged file makes the libraries raise
        raise GeneratorError(f"{name}: the pipeline cannot be loaded ({_reason(error)})") from None
    pipe.set_progress_bar_config(disable=True)
    _check_call(pipe, name)
    return Pipeline(pipe, name)


def _check_index(directory: Path) -> None:
    """Every part must be of diffusers or transformers: others would be code from the directory."""
    import diffusers.pipelines

    file = directory / _INDEX
    try:
        index = json.loads(file.read_text("utf-8"))
        parts = {key: value for key, value in index.items() if isinstance(value, list)}
        libraries = {key: value[0] for key, value in parts.items() if value[0] is not None}
    except (OSError, ValueError, AttributeError, IndexError):
        raise GeneratorError(f"{place(file)}: not the index of a pipeline; the model is damaged") from None
    for part, library in libraries.items():
        known = library in ("diffusers", "transformers") or hasattr(diffusers.pipelines, str(library))
        if part.startswith("_class") or not known:
            raise GeneratorError(
                f"{place(file)}: {short(part)} is not part of diffusers or transformers; "
                "models that bring their own code are not loaded"
            )


def _check_call(pipe: Any, name: str) -> None:
    taken = inspect.signature(type(pipe).__call__).parameters
    needs_picture = "image" in taken and taken["image"].default is inspect.Parameter.empty
    if "prompt" not in taken or needs_picture:
        raise GeneratorError(f"{name}: a {type(pipe).__name__} does not make pictures from a text alone")


def _snapshot(name: str) -> Path:
    import diffusers

    fetch: Any = diffusers.DiffusionPipeline.download
    try:
        with _quiet():
            found = Path(fetch(name, use_safetensors=True, local_files_only=True))
        if any(found.rglob("*.safetensors")):
            return found
    except (OSError, ValueError):  # not in the local cache: naming an id is asking for the download
        logging.getLogger(__name__).debug("diffusers:%s is not in the local cache", name)
    try:
        return Path(fetch(name, use_safetensors=True))
    except Exception as error:  # the hub's errors share no base with each other
        raise GeneratorError(
            f"diffusers:{name}: cannot be fetched from the hub ({type(error).__name__}); "
            "check the id and the network, or give a directory"
        ) from None


def _device(wanted: str) -> str:
    import torch

    if wanted != "auto":
        return wanted
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def _dtype(device: str) -> Any:
    """Half the memory where it is worth it; numbers of bfloat16 do not run out of range."""
    import torch

    if not device.startswith("cuda"):
        return torch.float32
    return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16


def _rounded(side: float) -> int:
    return max(_STEP, int(side) // _STEP * _STEP)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {one_line(' '.join(str(error).split())[:160])}"


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars and no advice on stderr from the libraries while they work for us."""
    from diffusers.utils import logging as diffusers_logging
    from transformers.utils import logging as transformers_logging

    libraries: list[Any] = [diffusers_logging, transformers_logging]
    bars = [library for library in libraries if library.is_progress_bar_enabled()]
    loggers = [logging.getLogger(name) for name in ("diffusers", "transformers")]
    levels = [logger.level for logger in loggers]
    for library in libraries:
        library.disable_progress_bar()
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        for library in bars:
            library.enable_progress_bar()
