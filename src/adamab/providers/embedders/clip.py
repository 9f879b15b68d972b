"""`clip:PATH-or-id`: CLIP, SigLIP and other models with a tower for images and one for texts."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from adamab.errors import EmbedderError
from adamab.providers.embedders import local_models as pixels
from adamab.providers.embedders.base import Embedded, Item, Kind, Modality, only_images, only_texts
from adamab.providers.embedders.local_models import (
    LocalModelEmbedder,
    ModelFiles,
    cannot_load,
    check_name,
    find_model,
    quiet,
    torch_device,
)
from adamab.task.images import Image, decoded
from adamab.task.spec import join_spec

PRESETS = {"vit-large": "openai/clip-vit-large-patch14"}

# A small one for a start. Its own branch has no safetensors weights; that pull request adds them.
SUGGESTED = "clip:openai/clip-vit-base-patch32?revision=refs/pr/15"
_SUGGESTION = (
    "a task of images needs an embedder of images, and the Hugging Face cache has no CLIP model; run: "
    f"pip install 'adamab[clip]', and add --embedder '{SUGGESTED}', which fetches it once (605 MB; licence: "
    "MIT, in github.com/openai/CLIP), or name another"
)

_DEFINITION = "towers-1"  # changes whenever the same model would give other vectors
_PADDED_TO_THE_END = ("siglip", "siglip2")  # trained so: shorter padding gives other vectors


class ClipEmbedder(LocalModelEmbedder):
    """A two-tower model from a directory or, by id or preset, from the hub.

    The view `pooled` is what the model itself compares: its projected features, of length 1. The model
    is loaded at the first `embed`. A text longer than the text tower takes is cut and flagged.
    """

    scheme: ClassVar[str] = "clip"
    packages: ClassVar[tuple[str, ...]] = ("transformers", "torch", "PIL")
    modalities: frozenset[Modality] = frozenset({"text", "image"})

    def __init__(
        self, path_or_id: str, *, batch_size: int = 32, device: str = "auto", revision: str = ""
    ) -> None:
        super().__init__(path_or_id, batch_size=batch_size, device=device)
        self.path_or_id, self.revision = PRESETS.get(path_or_id, path_or_id), revision
        check_name(self.path_or_id, scheme=self.scheme)
        if "/" not in self.path_or_id and not Path(self.path_or_id).is_dir():
            raise EmbedderError(
                f"{self}: no directory, no hub id (org/name) and no preset; presets: {', '.join(PRESETS)}"
            )

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]  # it can be assigned as well
        """What decides the vectors: the model's files, and how images are decoded."""
        return f"clip:{self._files.identity}:{_DEFINITION}:{pixels.DEFINITION}"

    @cached_property
    def _files(self) -> ModelFiles:
        return find_model(self.path_or_id, scheme=self.scheme, revision=self.revision)

    def _load(self) -> _TwoTowers:
        self._files.check()
        device = torch_device(self.device, str(self))
        try:
            with quiet():
                return _loaded(self._files.directory, device)
        except EmbedderError:
            raise
        except Exception as error:  # whatever a damaged file makes transformers raise
            if "sentencepiece" in str(error).lower():
                raise EmbedderError(
                    f"{self}: its tokenizer needs sentencepiece; run: pip install sentencepiece"
                ) from None
            raise cannot_load(str(self), error) from None

    @quiet()
    def _embed_with(
        self, model: _TwoTowers, items: Sequence[Item], kind: Kind, views: Sequence[str]
    ) -> Embedded:
        is_image = np.fromiter((isinstance(item, Image) for item in items), np.bool_, len(items))
        overlong = np.zeros(len(items), np.bool_)
        texts, images = only_texts(items), only_images(items)
        overlong[~is_image] = model.too_long(texts)
        words = pixels.in_batches(texts, self.batch_size, model.of_texts)
        of_images = pixels.in_batches(images, self.batch_size, model.of_images)
        pooled = np.empty((len(items), max(words.shape[1], of_images.shape[1])), np.float32)
        if texts:
            pooled[~is_image] = words
        if images:
            pooled[is_image] = of_images
        return Embedded({"pooled": pooled}, overlong)


def cached_clip() -> str:
    """The spec of the CLIP model that the hub's cache has, the first by name if there are several."""
    try:
        import huggingface_hub.constants as hub
    except ImportError:
        raise EmbedderError(_SUGGESTION) from None
    for repository in sorted(Path(hub.HF_HUB_CACHE).glob("models--*--*")):
        references = repository / "refs"
        for reference in sorted(file for file in references.rglob("*") if file.is_file()):
            snapshot = repository / "snapshots" / reference.read_text("utf-8").strip()
            if _is_clip(snapshot):
                name = repository.name.removeprefix("models--").replace("--", "/")
                revision = reference.relative_to(references).as_posix()
                return join_spec(f"clip:{name}", {} if revision == "main" else {"revision": revision})
    raise EmbedderError(_SUGGESTION)


def _is_clip(snapshot: Path) -> bool:
    try:
        config = json.loads((snapshot / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return config.get("model_type") == "clip" and any(snapshot.glob("*.safetensors"))


@dataclass(frozen=True)
class _TwoTowers:
    """A loaded model with what prepares its inputs; everything that touches torch."""

    model: Any
    tokenizer: Any
    processor: Any

    @cached_property
    def max_tokens(self) -> int | None:
        """The least of what the tokenizer and the text tower's positions allow; None without a limit."""
        positions = getattr(self.model.config.text_config, "max_position_embeddings", None)
        limits = [limit for limit in (self.tokenizer.model_max_length, positions) if limit]
        least = min(limits, default=math.inf)
        return int(least) if least < 1e9 else None  # a tokenizer without a limit says 1e30

    def too_long(self, texts: list[str]) -> NDArray[np.bool_]:
        """Which texts have more tokens than the tower takes."""
        limit = self.max_tokens
        if limit is None or not texts:
            return np.zeros(len(texts), np.bool_)
        whole = self.tokenizer(texts, truncation=False, verbose=False)["input_ids"]
        return np.fromiter((len(ids) > limit for ids in whole), np.bool_, len(texts))

    def of_texts(self, texts: list[str]) -> NDArray[np.float32]:
        """The text tower's vectors, of the beginnings of what is too long."""
        limit = self.max_tokens
        to_the_end = limit is not None and self.model.config.model_type in _PADDED_TO_THE_END
        encoded = self.tokenizer(
            texts,
            padding="max_length" if to_the_end else True,
            truncation=limit is not None,
            max_length=limit,
            return_tensors="np",
        )
        return self._features(self.model.get_text_features, encoded)

    def of_images(self, images: Sequence[Image]) -> NDArray[np.float32]:
        """The image tower's vectors."""
        prepared = []
        for image in images:  # one by one, so that a single image is open at its full size
            pil_image = decoded(image, least_side=self._least_side)
            if getattr(self.processor, "do_center_crop", False):
                pil_image = pixels.without_ends(pil_image)
            prepared.append(self.processor(images=pil_image, return_tensors="np"))
        joined = {name: np.concatenate([each[name] for each in prepared]) for name in prepared[0]}
        return self._features(self.model.get_image_features, joined)

    @cached_property
    def _least_side(self) -> int | None:
        """How large an image must be decoded; None where the processor does not say what it needs."""
        size = getattr(self.processor, "size", None) or {}
        sides = [size.get(name) for name in ("shortest_edge", "height", "width")]
        return max((int(side) for side in sides if side), default=None)

    def _features(self, tower: Any, inputs: Mapping[str, Any]) -> NDArray[np.float32]:
        import torch

        device = self.model.device
        with torch.inference_mode():
            output = tower(**{name: torch.as_tensor(value).to(device) for name, value in inputs.items()})
            # A tensor up to transformers 4, an output that holds it since.
            features = output if isinstance(output, torch.Tensor) else output.pooler_output
            return pixels.of_length_one(features.float().cpu().numpy())


def _loaded(directory: Path, device: Any) -> _TwoTowers:
    import transformers

    library: Any = transformers
    options = {"local_files_only": True, "trust_remote_code": False}
    # Pillow's way of resizing everywhere, whether torchvision is installed or not.
    by_pillow = {"backend": "pil"} if int(library.__version__.partition(".")[0]) >= 5 else {"use_fast": False}
    model, loading_info = library.AutoModel.from_pretrained(
        directory, use_safetensors=True, output_loading_info=True, **options
    )
    if not all(hasattr(model, name) for name in ("get_image_features", "get_text_features")):
        raise EmbedderError(
            f"{directory}: not a model with a tower for images and one for texts, such as CLIP or SigLIP"
        )
    if loading_info["missing_keys"]:  # transformers would leave them at random values
        raise EmbedderError(
            f"{directory}: the weights lack {min(loading_info['missing_keys'])!r}; it is damaged"
        )
    tokenizer = library.AutoTokenizer.from_pretrained(directory, **options)
    if not set(tokenizer.get_vocab().values()) - set(tokenizer.all_special_ids):  # made up for want of a file
        raise EmbedderError(f"{directory}: has no vocabulary (tokenizer.json or the like); it is damaged")
    processor = library.AutoImageProcessor.from_pretrained(directory, **by_pillow, **options)
    # Half precision would make a vector depend on its neighbours in the batch.
    return _TwoTowers(model.float().to(device).eval(), tokenizer, processor)
