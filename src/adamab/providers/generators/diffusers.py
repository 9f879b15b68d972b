"""`diffusers:PATH-or-id`: images of a local text-to-image pipeline."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import inspect
import json
import logging
import math
import re
import threading
import warnings
from collections import Counter
from functools import cached_property
from pathlib import Path
from typing import Any

from adamab.errors import EmbedderError, GeneratorError, MissingExtraError, one_line, place, short
from adamab.providers.embedders.local_models import find_device, hash_directory, quiet
from adamab.providers.generators.base import Batch, ImageGenerator, NewSamples, Request, Settings, own_seed
from adamab.task.prompts import SCENES
from adamab.task.spec import ClassSpec

# Models cut what is too long: the scene stands before the description, which may have many words.
CAPTION = "a photo of {name}, {scene}, {description}"
# What the images of a class differ in, beside their noise.
_SCENES = [scene for group in SCENES for scene in group]
DTYPES = ("auto", "float32", "float16", "bfloat16")
_PLACEHOLDER = re.compile(r"\{(name|description|scene)\}")
_NO_DESCRIPTION = re.compile(r"[\s,;:–—(-]*\{description\}[)]*")
_SIZE = re.compile(r"(\d+)x(\d+)")
_INDEX = "model_index.json"
_STEP = 8  # pipelines take sides that are multiples of it
_MOST_STEPS, _MOST_PIXELS = 1000, 4096
_ATTEMPTS = 3  # at an image that the class does not have yet


class DiffusersGenerator(ImageGenerator):
    """A pipeline of diffusers from a directory or, by id, from the hub; loaded at the first batch.

    Each image is drawn by itself, from noise that belongs to the seed, the class, the number of the
    batch and the position in it. What the pipeline's own safety checker flags is counted as refused.
    `steps` and `guidance` are the pipeline's own if None; without `width` and `height` the recipe's
    `image_size` counts, though never more pixels than the model was made for.
    """

    def __init__(
        self,
        path_or_id: str,
        *,
        steps: int | None = None,
        guidance: float | None = None,
        width: int | None = None,
        height: int | None = None,
        prompt: str = CAPTION,
        device: str = "auto",
        dtype: str = "auto",
        seed: int | None = None,
    ) -> None:
        self.path_or_id, self.steps, self.guidance = path_or_id, steps, guidance
        self.prompt, self.device, self.dtype = prompt, device, dtype
        self._check_options(width, height, seed)
        if importlib.util.find_spec("diffusers") is None:
            raise MissingExtraError("diffusers", "diffusers")
        _check_name(path_or_id)
        self.seed = seed or 0
        self._own_seed = seed
        self._exact = width is not None
        self._size = None if width is None or height is None else (width, height)
        self._lock = threading.Lock()
        self._pipeline: Any = None

    def _check_options(self, width: int | None, height: int | None, seed: int | None) -> None:
        placeholders = re.findall(r"\{\w*\}", self.prompt)
        unknown = [name for name in placeholders if not _PLACEHOLDER.fullmatch(name)]
        if unknown:
            known = "{name}, {description}, {scene}"
            raise GeneratorError(f"{self}: option prompt has {short(unknown[0])}; known: {known}")
        if not {"{name}", "{description}"} & {*placeholders}:  # it would say the same of every class
            raise GeneratorError(f"{self}: option prompt lacks {{name}} or {{description}}; add one of them")
        limits = {
            "steps": (self.steps, 1, _MOST_STEPS),
            "guidance": (self.guidance, 0, 100),
            "width": (width, 8, _MOST_PIXELS),
            "height": (height, 8, _MOST_PIXELS),
            "seed": (seed, 0, 2**63 - 1),
        }
        for name, (value, least, most) in limits.items():
            if value is not None and not least <= value <= most:
                raise GeneratorError(f"{self}: option {name}={value}; use a number from {least} to {most}")
        if (width is None) != (height is None):
            raise GeneratorError(f"{self}: options width and height belong together; give both or none")
        if self.dtype not in DTYPES:
            raise GeneratorError(f"{self}: option dtype={self.dtype}; use one of {', '.join(DTYPES)}")

    def __str__(self) -> str:
        return f"diffusers:{self.path_or_id}"

    def __getstate__(self) -> dict[str, Any]:
        # A copy in another process loads the model itself.
        return {**self.__dict__, "_lock": None, "_pipeline": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    @property
    def fingerprint(self) -> str:  # type: ignore[override]  # it can be assigned as well
        """What decides the images: the model's files, the options, the wording and the seed."""
        wording = hashlib.sha256(self.prompt.encode("utf-8", "surrogatepass")).hexdigest()[:12]
        width, height = self._size or (None, None)
        return (
            f"diffusers:{self._files[1]}:steps={self.steps}:guidance={self.guidance}:"
            f"size={width}x{height}{'' if self._exact else '-'}:dtype={self.dtype}:"
            f"prompt={wording}:seed={self.seed}"
        )

    def configure(self, settings: Settings) -> None:
        """Learn where the images go and how large they are, and the seed unless one was given."""
        super().configure(settings)
        if not self._exact:
            size = _SIZE.fullmatch(settings.recipe.image_size)
            self._size = (int(size[1]), int(size[2])) if size else None
        if self._own_seed is None:
            self.seed = settings.seed

    @cached_property
    def _files(self) -> tuple[Path, str]:
        """The pipeline's directory, downloaded if need be, and what identifies its contents."""
        directory = Path(self.path_or_id).expanduser()
        if not directory.is_dir():
            snapshot = _snapshot(self.path_or_id)
            return snapshot, f"{self.path_or_id}@{snapshot.name}"
        try:
            return directory, f"sha256:{hash_directory(directory)}"
        except EmbedderError as error:
            raise GeneratorError(str(error)) from None

    async def generate(self, request: Request) -> Batch:
        """Images of the class; fewer where the safety checker flagged some."""
        _ = self.store  # raises where there is none
        return await asyncio.to_thread(self._batch, request)

    def _batch(self, request: Request) -> Batch:
        new, rejected = NewSamples(request), Counter[str]()
        with self._lock:
            if self._pipeline is None:
                self._pipeline = _load(self._files[0], self.device, self.dtype, str(self))
            for position in range(max(request.count, 0)):
                rejected[self._add_one(request, position, new)] += 1
        del rejected[""]
        # A batch of which nothing is left was refused as a whole: the loop must not press.
        refused = not new.texts and rejected["refusal"] > 0
        useless = not (new.texts or refused) and request.count > 0
        return Batch(
            tuple(new.texts),
            closed=f"{self} drew nothing of use ({', '.join(rejected)})" if useless else None,
            refused=refused,
            rejected=dict(+rejected),
        )

    def _add_one(self, request: Request, position: int, new: NewSamples) -> str:
        """Why the image was left out; empty where it was added."""
        words = caption(self.prompt, request.spec, request.number * request.count + position)
        for attempt in range(_ATTEMPTS):
            seed = own_seed(self.seed, request.spec.name, request.number, position, attempt)
            image, flagged = self._draw(words, seed)
            if flagged:
                return "refusal"
            # One colour all over is what numbers out of range give.
            if all(low == high for low, high in image.convert("RGB").getextrema()):
                return "blank"
            if self.add_image(new, image):
                return ""
        return "repeat"

    def _draw(self, prompt: str, seed: int) -> tuple[Any, bool]:
        """One image, by itself since a batch changes how numbers round; and whether it was flagged."""
        import torch

        width, height = self._sides() or (None, None)
        options = {"num_inference_steps": self.steps, "guidance_scale": self.guidance}
        options |= {"width": width, "height": height}
        # Noise of the CPU, which is the same whatever the device is.
        noise = torch.Generator("cpu").manual_seed(seed)
        given = {name: value for name, value in options.items() if value is not None}
        try:
            with quiet(), quiet("diffusers"), torch.inference_mode():
                answer = self._pipeline(prompt=prompt, generator=noise, **given)
        except Exception as error:  # whatever a pipeline makes of an option that it does not take
            raise GeneratorError(f"{self}: cannot draw ({_reason(error)})") from None
        flags = getattr(answer, "nsfw_content_detected", None)
        return answer.images[0], bool(flags and flags[0])

    def _sides(self) -> tuple[int, int] | None:
        """Width and height: as given, or as in the recipe with no more pixels than the model was made for."""
        if self._size is None or self._exact:
            return self._size
        body = getattr(self._pipeline, "unet", None) or getattr(self._pipeline, "transformer", None)
        side = getattr(self._pipeline, "default_sample_size", None)
        side = side or getattr(getattr(body, "config", None), "sample_size", None)
        scale = getattr(self._pipeline, "vae_scale_factor", None)
        shrink = 1.0
        if isinstance(side, int) and isinstance(scale, int):
            shrink = min(1.0, side * scale / math.sqrt(math.prod(self._size)))
        width, height = (max(_STEP, int(pixels * shrink) // _STEP * _STEP) for pixels in self._size)
        return width, height


def caption(template: str, spec: ClassSpec, number: int) -> str:
    """What an image should show.

    Args:
        template: With placeholders for name, description and scene.
        spec: The class.
        number: Of the image, counted over all batches of the class; scenes take turns.

    Returns:
        The text for the model.

    Example:
        >>> caption(CAPTION, ClassSpec("water_lily", "A flower on a pond."), 0)
        'a photo of water lily, seen from the front, A flower on a pond'
        >>> caption(CAPTION, ClassSpec("water_lily"), 5)
        'a photo of water lily, close up'
    """
    if spec.description is None and "{name}" in template:
        template = _NO_DESCRIPTION.sub("", template)
    texts = {"name": spec.name, "description": spec.description or spec.name}
    values = {key: " ".join(text.replace("_", " ").split()).rstrip(".") for key, text in texts.items()}
    values["scene"] = _SCENES[number % len(_SCENES)]
    return _PLACEHOLDER.sub(lambda match: values[match[1]], template)


def _check_name(path_or_id: str) -> None:
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


def _snapshot(name: str) -> Path:
    import diffusers

    fetch: Any = diffusers.DiffusionPipeline.download
    try:
        with quiet(), quiet("diffusers"):
            local = Path(fetch(name, use_safetensors=True, local_files_only=True))
        if any(local.rglob("*.safetensors")):
            return local
    except (OSError, ValueError):  # not in the local cache: naming an id is asking for the download
        logging.getLogger(__name__).debug("diffusers:%s is not in the local cache", name)
    try:
        return Path(fetch(name, use_safetensors=True))
    except Exception as error:  # the hub's errors share no base with each other
        raise GeneratorError(
            f"diffusers:{name}: cannot be fetched from the hub ({type(error).__name__}); "
            "check the id and the network, or give a directory"
        ) from None


def _load(directory: Path, wanted: str, dtype: str, name: str) -> Any:
    """The pipeline, ready to draw; one that brings code of its own or pickled weights is refused."""
    import diffusers
    import torch

    _check_index(directory)
    device = find_device(wanted)
    if device is None:
        raise GeneratorError(f"{name}: there is no device {wanted!r} here; leave it out or write cpu")
    kind = torch.float32 if dtype == "auto" else getattr(torch, dtype)
    if dtype == "auto" and device.type == "cuda":
        # Half the memory; numbers of bfloat16 do not run out of range.
        kind = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    library: Any = diffusers
    try:
        with quiet(), quiet("diffusers"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about settings of the model that its user cannot change
            pipeline = library.DiffusionPipeline.from_pretrained(
                str(directory), use_safetensors=True, local_files_only=True, torch_dtype=kind
            ).to(device)
    except Exception as error:  # whatever a damaged file makes the libraries raise
        raise GeneratorError(f"{name}: the pipeline cannot be loaded ({_reason(error)})") from None
    pipeline.set_progress_bar_config(disable=True)
    taken = inspect.signature(type(pipeline).__call__).parameters
    needs_image = "image" in taken and taken["image"].default is inspect.Parameter.empty
    if "prompt" not in taken or needs_image:
        raise GeneratorError(f"{name}: a {type(pipeline).__name__} does not make images from a text alone")
    return pipeline


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


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {one_line(' '.join(str(error).split())[:160])}"
