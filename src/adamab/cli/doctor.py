"""`adamab doctor`: what is installed, what is set, what works offline."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from adamab.cli.console import echo, print_json, print_table, size

_YES_NO = {True: "yes", False: "no"}


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """What is installed, which keys are set (never their values), and what works offline."""
    from adamab.cli.examination import examine

    found = examine()
    if as_json:
        print_json(found)
    else:
        _print(found)


def _print(found: dict[str, Any]) -> None:
    echo(f"adamab {found['adamab']}, Python {found['python']}, {found['platform']}")
    packages = found["packages"].items()
    print_table(("package", "version"), [(name, version or "not installed") for name, version in packages])
    extras = found["extras"].items()
    print_table(("extra", "installed", "to install it"), [_extra(name, extra) for name, extra in extras])
    keys = found["keys"].items()
    print_table(("API key", ""), [(name, "set" if there else "not set") for name, there in keys])
    cache, local, torch = found["cache"], found["local_embedder"], found["torch"]
    echo(f"cache: {cache['path']} ({size(cache['bytes'])})")
    echo(f"local embedder: {local['state']}")
    if torch is not None:
        echo(f"torch: {torch['threads']} threads, {torch['device']}")
    echo("works offline:")
    for what, works in found["offline"].items():
        echo(f"  {_YES_NO[works]:3}  {what}")


def _extra(name: str, extra: dict[str, Any]) -> tuple[str, str, str]:
    return name, _YES_NO[extra["installed"]], "" if extra["installed"] else extra["pip"]
