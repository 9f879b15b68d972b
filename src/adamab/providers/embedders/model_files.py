"""The files of a model as the hub lays them out: where they are, whether they are safe, what they hash to.

Nothing here imports torch: a fingerprint must be cheap to ask for.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from adamab.errors import EmbedderError, MissingExtraError

# What decides the vectors: weights, configuration, vocabulary. A README does not.
_DECISIVE = (".safetensors", ".json", ".txt", ".model", ".spm", ".jinja")
_FOREIGN_BACKENDS = ("onnx", "openvino")
_PICKLED = (".bin", ".pt", ".pth", ".ckpt")
_TRANSFORMER = "Transformer"
_MODULES = "modules.json"
_CONFIG = "config.json"
_OWN = "st"  # sentence-transformers has names and a cache of its own


@dataclass(frozen=True)
class ModelFiles:
    """A model's directory and what identifies its contents."""

    directory: Path
    identity: str

    @property
    def is_plain_transformer(self) -> bool:
        """A transformer whose hidden layers can be read, followed by pooling and the like."""
        modules = [kind for kind, _ in _modules(self.directory)]
        # Without modules.json sentence-transformers itself adds mean pooling to the transformer.
        return not modules or modules[0].rpartition(".")[2] == _TRANSFORMER

    def check(self) -> None:
        """Refuse what could run code while loading: pickled weights, modules from elsewhere."""
        for module, _ in _modules(self.directory):
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


def find_model(path_or_id: str, *, scheme: str = _OWN) -> ModelFiles:
    """The directory of a model, or of the hub's snapshot of it, downloaded if it is not there yet.

    `scheme` is what stands before the colon where the user named it.
    """
    directory = Path(path_or_id).expanduser()
    if directory.is_dir():
        return ModelFiles(directory, f"sha256:{hash_directory(directory)}")
    name = hub_id(path_or_id) if scheme == _OWN else path_or_id
    snapshot = _snapshot(name, scheme)
    return ModelFiles(snapshot, f"{name}@{snapshot.name}")


def check_name(path_or_id: str, *, scheme: str = _OWN) -> None:
    """Refuse early what is neither a model's directory nor the form of a hub id."""
    path = Path(path_or_id).expanduser()
    if path.is_dir():
        if not any((path / name).is_file() for name in (_MODULES, _CONFIG)):
            raise EmbedderError(f"{path} is not a model directory: it has neither {_MODULES} nor {_CONFIG}")
        return
    looks_like_path = path.is_absolute() or path_or_id.startswith((".", "~")) or path_or_id.count("/") > 1
    if not path_or_id.strip() or path.exists() or looks_like_path:
        raise EmbedderError(
            f"{scheme}:{path_or_id}: no such model directory; give a directory or a hub id (org/name)"
        )


def hub_id(name: str) -> str:
    """A bare name is one of sentence-transformers' own models."""
    return name if "/" in name else f"sentence-transformers/{name}"


def hash_directory(directory: Path, *, known: dict[str, str] | None = None) -> str:
    """sha256 over the names and contents of the files that decide the vectors.

    `known` gives the digests of files that are verified elsewhere, by relative name.
    """
    total = hashlib.sha256()
    for file in _files(directory):
        if file.suffix not in _DECISIVE:
            continue
        name = file.relative_to(directory).as_posix()
        digest = (known or {}).get(name) or hash_file(file)
        total.update(f"{name}\0{digest}\n".encode())
    return total.hexdigest()


def hash_file(file: Path) -> str:
    """sha256 of a file, remembered for as long as its size and time stay the same."""
    try:
        status = file.stat()
        return _hash_file(str(file), status.st_size, status.st_mtime_ns)
    except OSError as error:
        raise EmbedderError(f"{file}: cannot be read ({error.strerror})") from None


@lru_cache(maxsize=256)
def _hash_file(path: str, size: int, mtime_ns: int) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _files(directory: Path) -> list[Path]:
    """The model's files, sorted: of the directory, its folders, and the folders of its modules.

    No deeper, since the directory may hold anything beside the model.
    """
    folders = [f for f in _listed(directory) if f.is_dir() and f.name not in _FOREIGN_BACKENDS]
    modules = {Path(path).parts[0] for _, path in _modules(directory) if Path(path).parts}
    # A module may consist of modules: a router keeps each of its routes in a folder of its own.
    inner = [f for folder in folders if folder.name in modules for f in _listed(folder) if f.is_dir()]
    return sorted(f for folder in (directory, *folders, *inner) for f in _listed(folder) if f.is_file())


def _listed(folder: Path) -> list[Path]:
    try:
        return [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    except OSError as error:
        raise EmbedderError(f"{folder}: cannot be read ({error.strerror})") from None


def _modules(directory: Path) -> list[tuple[str, str]]:
    """Type and folder of each module; none without `modules.json`."""
    file = directory / _MODULES
    if not file.is_file():
        return []
    try:
        modules = json.loads(file.read_text("utf-8"))
        return [(str(module["type"]), str(module.get("path", ""))) for module in modules]
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise EmbedderError(f"{file}: not a list of modules; the model is damaged") from None


def _snapshot(name: str, scheme: str) -> Path:
    try:
        import huggingface_hub
        import huggingface_hub.utils  # an attribute only where somebody has imported it
    except ImportError:
        raise MissingExtraError("huggingface-hub", "local" if scheme == _OWN else scheme) from None
    hub: Any = huggingface_hub
    options = {
        "cache_dir": os.environ.get("SENTENCE_TRANSFORMERS_HOME") if scheme == _OWN else None,
        "allow_patterns": [f"*{suffix}" for suffix in _DECISIVE],
        "ignore_patterns": [f"{backend}/*" for backend in _FOREIGN_BACKENDS],
    }
    with _progress_for_people_only(hub.utils):
        try:
            found = Path(hub.snapshot_download(name, local_files_only=True, **options))
            if any(found.rglob("*.safetensors")):
                return found
        except (OSError, ValueError):
            pass  # not in the local cache: naming an id is asking for the download
        try:
            return Path(hub.snapshot_download(name, **options))
        except Exception as error:  # the hub's errors share no base with each other
            raise EmbedderError(
                f"{scheme}:{name}: cannot be fetched from the hub ({type(error).__name__}); "
                "check the id and the network, or give a model directory"
            ) from None


@contextlib.contextmanager
def _progress_for_people_only(utils: Any) -> Iterator[None]:
    """A download may take minutes, so it shows its progress, but not to a file or a pipe."""
    decided = "HF_HUB_DISABLE_PROGRESS_BARS" in os.environ or utils.are_progress_bars_disabled()
    if decided or sys.stderr.isatty():
        yield
        return
    utils.disable_progress_bars()  # a context manager itself, but in new versions only
    try:
        yield
    finally:
        utils.enable_progress_bars()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No progress bars and no advice on stderr from the libraries while they work for us."""
    from transformers.utils import logging as transformers_logging

    chatty: Any = transformers_logging
    bars = chatty.is_progress_bar_enabled()
    loggers = [logging.getLogger(name) for name in ("transformers", "sentence_transformers")]
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
