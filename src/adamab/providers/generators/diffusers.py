"""`diffusers:PATH-or-id`: pictures of a local text-to-image pipeline."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import re
import threading
from collections import Counter
from functools import cached_property
from typing import Any

from adamab.errors import GeneratorError, MissingExtraError
from adamab.providers.embedders.base import Modality
from adamab.providers.generators.base import Batch, Generator, Request, Settings
from adamab.providers.generators.captions import CAPTION, caption, check_template
from adamab.providers.generators.diffusers_model import (
    DTYPES,
    Canvas,
    Pipeline,
    PipelineFiles,
    check_name,
    find_pipeline,
    load,
)
from adamab.providers.generators.pictures import NewPictures, jpeg, own_seed, store_of, stored
from adamab.providers.image_store import ImageStore

_SIZE = re.compile(r"(\d+)x(\d+)")
_MOST_STEPS, _MOST_PIXELS = 1000, 4096
_ATTEMPTS = 3  # at a picture that the class does not have yet


class DiffusersGenerator(Generator):
    """A pipeline of diffusers from a directory or, by id, from the hub; loaded at the first batch.

    Each picture is drawn by itself, from noise that belongs to the seed, the class, the number of the
    batch and the position in it. What the pipeline's own safety checker flags is counted as refused.
    `steps` and `guidance` are the pipeline's own if None; without `width` and `height` the recipe's
    `image_size` counts, though never more pixels than the model was made for.
    """

    modality: Modality = "image"

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
        self.width, self.height, self.prompt, self.device, self.dtype = width, height, prompt, device, dtype
        self._check_options(seed)
        if importlib.util.find_spec("diffusers") is None:
            raise MissingExtraError("diffusers", "diffusers")
        check_name(path_or_id)
        self.seed = seed or 0
        self._own_seed = seed
        self._wanted: tuple[int, int] | None = None  # by the recipe
        self._images: ImageStore | None = None
        self._lock = threading.Lock()
        self._loaded: Pipeline | None = None

    def _check_options(self, seed: int | None) -> None:
        check_template(self.prompt, str(self))
        limits = {
            "steps": (self.steps, 1, _MOST_STEPS),
            "guidance": (self.guidance, 0, 100),
            "width": (self.width, 8, _MOST_PIXELS),
            "height": (self.height, 8, _MOST_PIXELS),
            "seed": (seed, 0, 2**63 - 1),
        }
        for name, (value, least, most) in limits.items():
            if value is not None and not least <= value <= most:
                raise GeneratorError(f"{self}: option {name}={value}; use a number from {least} to {most}")
        if (self.width is None) != (self.height is None):
            raise GeneratorError(f"{self}: options width and height belong together; give both or none")
        if self.dtype not in DTYPES:
            raise GeneratorError(f"{self}: option dtype={self.dtype}; use one of {', '.join(DTYPES)}")

    def __str__(self) -> str:
        return f"diffusers:{self.path_or_id}"

    def __getstate__(self) -> dict[str, Any]:
        # A copy in another process loads the model itself.
        return {**self.__dict__, "_lock": None, "_loaded": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    @property
    def fingerprint(self) -> str:  # type: ignore[override]  # it can be assigned as well
        """What decides the pictures: the model's files, the options, the wording and the seed."""
        wording = hashlib.sha256(self.prompt.encode("utf-8", "surrogatepass")).hexdigest()[:12]
        size = self._canvas
        return (
            f"diffusers:{self._files.identity}:steps={self.steps}:guidance={self.guidance}:"
            f"size={size.width}x{size.height}{'' if size.exact else '-'}:dtype={self.dtype}:"
            f"prompt={wording}:seed={self.seed}"
        )

    def configure(self, settings: Settings) -> None:
        """Learn where the pictures go and how large they are, and the seed unless one was given."""
        self._images = store_of(settings, str(self))
        found = _SIZE.fullmatch(settings.recipe.image_size)
        self._wanted = (int(found[1]), int(found[2])) if found else None
        if self._own_seed is None:
            self.seed = settings.seed

    @cached_property
    def _files(self) -> PipelineFiles:
        return find_pipeline(self.path_or_id)

    @property
    def _canvas(self) -> Canvas:
        if self.width is not None and self.height is not None:
            return Canvas(self.width, self.height, exact=True)
        return Canvas(*self._wanted) if self._wanted else Canvas()

    async def generate(self, request: Request) -> Batch:
        """Pictures of the class; fewer where the safety checker flagged some."""
        store = stored(self._images, str(self))
        return await asyncio.to_thread(self._draw, request, store)

    def _draw(self, request: Request, store: ImageStore) -> Batch:
        fresh, rejected = NewPictures(store, request), Counter[str]()
        with self._lock:
            if self._loaded is None:
                self._loaded = load(self._files, self.device, self.dtype, str(self))
            for position in range(max(request.count, 0)):
                reason = self._draw_one(self._loaded, request, position, fresh)
                rejected.update([reason] if reason else [])
        # A batch of which nothing is left was refused as a whole: the loop must not press.
        refused = not fresh.references and rejected["refusal"] > 0
        useless = not (fresh.references or refused) and request.count > 0
        return Batch(
            tuple(fresh.references),
            closed=f"{self} drew nothing of use ({', '.join(rejected)})" if useless else None,
            refused=refused,
            rejected=dict(rejected),
        )

    def _draw_one(
        self, pipeline: Pipeline, request: Request, position: int, fresh: NewPictures
    ) -> str | None:
        """Why the picture was left out, if it was."""
        words = caption(self.prompt, request.spec, request.number * request.count + position)
        for attempt in range(_ATTEMPTS):
            noise = own_seed(self.seed, request.spec.name, request.number, position, attempt)
            drawn = pipeline.draw(words, noise, steps=self.steps, guidance=self.guidance, canvas=self._canvas)
            if drawn.flagged or drawn.is_blank:
                return "refusal" if drawn.flagged else "blank"
            if fresh.add(jpeg(drawn.picture)):
                return None
        return "repeat"
