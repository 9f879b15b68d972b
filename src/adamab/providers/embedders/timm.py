"""`timm:NAME-or-PATH`: the image networks of timm, without their classifiers; they know no texts."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np
from numpy.typing import NDArray

from adamab.errors import EmbedderError
from adamab.providers.embedders import local_models as pixels
from adamab.providers.embedders.base import Embedded, Item, Kind, Modality, only_images
from adamab.providers.embedders.local_models import (
    LocalModelEmbedder,
    ModelFiles,
    cannot_load,
    check_name,
    find_model,
    hash_file,
    torch_device,
)
from adamab.task.images import Image

_DEFINITION = "features-1"  # changes whenever the same weights would give other vectors
_WEIGHTS = ".safetensors"
_Model = tuple[Any, pixels.Preparation]  # the network, and what it wants done to images


class TimmEmbedder(LocalModelEmbedder):
    """Pooled features of one of timm's networks, resized and normalised as its weights want it.

    The weights come from a directory in the hub's layout, from `checkpoint` (a safetensors file for the
    architecture `name`), or from the hub, where timm's own name or an id (org/name) asks for them.
    """

    scheme: ClassVar[str] = "timm"
    packages: ClassVar[tuple[str, ...]] = ("timm", "torch", "PIL")
    modalities: frozenset[Modality] = frozenset({"image"})

    def __init__(
        self, name: str, *, checkpoint: str | None = None, batch_size: int = 32, device: str = "auto"
    ) -> None:
        super().__init__(name, batch_size=batch_size, device=device)
        check_name(name, scheme=self.scheme)
        self.checkpoint = None if checkpoint is None else Path(checkpoint).expanduser()
        if self.checkpoint is None:
            return
        if self.checkpoint.suffix != _WEIGHTS or not self.checkpoint.is_file():
            raise EmbedderError(f"{self}: checkpoint {checkpoint} is no {_WEIGHTS} file")
        if "/" in name or Path(name).is_dir():
            raise EmbedderError(f"{self}: with a checkpoint, give the architecture's name, such as resnet50")

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]  # it can be assigned as well
        """What decides the vectors: the weights, the architecture, and how images are prepared."""
        if self.checkpoint is None:
            identity = self._files.identity
        else:
            identity = f"{self.name}:sha256:{hash_file(self.checkpoint)}"
        return f"timm:{identity}:{_DEFINITION}:{pixels.DEFINITION}"

    @cached_property
    def _files(self) -> ModelFiles:
        if "/" in self.name or Path(self.name).expanduser().is_dir():
            return find_model(self.name, scheme=self.scheme)
        # Where the hub keeps the weights that timm has under this name.
        library = self._library(self.name)
        try:
            config = library.models.get_pretrained_cfg(self.name)
        except RuntimeError:  # the part after the dot
            config = None
        if config is None or not config.hf_hub_id:
            raise EmbedderError(f"{self}: timm has no weights of that name; give a checkpoint or a directory")
        return find_model(config.hf_hub_id, scheme=self.scheme)

    def _library(self, architecture: str) -> Any:
        """timm itself, if it knows the architecture."""
        try:
            import timm
        except Exception as error:  # a torchvision of another build than torch raises a RuntimeError
            reason = " ".join(str(error).split())[:120]
            raise EmbedderError(
                f"{self}: timm cannot be loaded ({type(error).__name__}: {reason}); "
                "install torch and torchvision of one build"
            ) from None
        library: Any = timm
        if not library.is_model(architecture):
            names = library.list_models()
            near = difflib.get_close_matches(architecture, names, 3) or ["resnet50", "convnext_tiny"]
            raise EmbedderError(f"{self}: timm knows no model {architecture!r}; it knows: {', '.join(near)}")
        return library

    def _load(self) -> _Model:
        if self.checkpoint is not None:
            source = _Source(self.name, self.checkpoint)
        else:
            self._files.check()
            source = _in_directory(self._files.directory)
        library = self._library(source.architecture)
        device = torch_device(self.device, str(self))
        try:
            network = _network(library, source)
            preparation = _preparation(library.data.resolve_model_data_config(network))
        except Exception as error:  # whatever a damaged file makes timm raise
            raise cannot_load(str(self), error) from None
        return network.float().to(device).eval(), preparation

    def _embed_with(self, model: _Model, items: Sequence[Item], kind: Kind, views: Sequence[str]) -> Embedded:
        import torch

        network, preparation = model
        device = torch_device(self.device, str(self))

        def features(images: Sequence[Image]) -> NDArray[np.float32]:
            with torch.inference_mode():
                data = torch.from_numpy(preparation.batch(images)).to(device)
                return pixels.of_length_one(network(data).float().cpu().numpy())

        vectors = pixels.in_batches(only_images(items), self.batch_size, features)
        return Embedded({"pooled": vectors}, np.zeros(len(items), np.bool_))


@dataclass(frozen=True)
class _Source:
    """Which network, and the file of its weights."""

    architecture: str
    weights: Path
    config: dict[str, Any] | None = None  # how the weights want their images; None: as timm has it
    arguments: Mapping[str, Any] = field(default_factory=dict)


def _network(library: Any, source: _Source) -> Any:
    """The network without its classifier.

    It is loaded with the classifier that the file has, since timm leaves weights that a file lacks at
    random values, unless the number of classes is the file's own.
    """
    config = source.config or library.models.get_pretrained_cfg(source.architecture).to_dict()
    classes = _classes(source.weights, config.get("classifier"))
    # The file and nothing else: no URL, no hub, no loader for other formats.
    from_file = {"file": str(source.weights), "source": "", "custom_load": False}
    model = library.create_model(
        source.architecture,
        pretrained=True,
        pretrained_cfg=source.config,
        pretrained_cfg_overlay={**from_file, "num_classes": classes, "label_offset": 0},
        num_classes=classes,
        **source.arguments,
    )
    model.reset_classifier(0)
    return model


def _classes(weights: Path, classifier: str | Sequence[str] | None) -> int:
    """How many classes the file's classifier has; 0 without one."""
    from safetensors import safe_open

    with safe_open(weights, framework="np") as file:
        present = set(file.keys())
        names = [classifier] if isinstance(classifier, str) else list(classifier or ())
        shapes = [file.get_slice(f"{n}.weight").get_shape() for n in names if f"{n}.weight" in present]
    return int(shapes[0][0]) if shapes else 0


def _in_directory(directory: Path) -> _Source:
    """The network of a directory as the hub has it: `config.json` beside the weights."""
    file = directory / "config.json"
    try:
        config = json.loads(file.read_text("utf-8"))
        architecture = str(config["architecture"])
        wanted = dict(config.get("pretrained_cfg") or config)
        arguments = dict(config.get("model_args") or {})
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise EmbedderError(
            f"{file}: names no timm architecture; is this a timm model's directory?"
        ) from None
    weights = sorted(directory.glob(f"*{_WEIGHTS}"))
    usual = directory / f"model{_WEIGHTS}"
    arguments.pop("num_classes", None)
    return _Source(architecture, usual if usual in weights else weights[0], wanted, arguments)


def _preparation(config: Mapping[str, Any]) -> pixels.Preparation:
    """What timm's own evaluation does to an image, done with Pillow."""
    channels, height, width = config["input_size"]
    if channels != 3:
        raise ValueError(f"it takes {channels} colour channels, not three")
    known: tuple[pixels.Filter, ...] = get_args(pixels.Filter)
    return pixels.Preparation(
        height=height,
        width=width,
        margin=max(math.floor(min(height, width) / config["crop_pct"]) / min(height, width), 1.0),
        squash=config["crop_mode"] == "squash",
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
        # timm's `random` is for training.
        resample=next((name for name in known if name == config["interpolation"]), "bicubic"),
    )
