"""`adamab cache`: what is stored on this machine, since it may be private."""

from __future__ import annotations

import sys
from dataclasses import asdict
from datetime import datetime
from typing import Annotated

import typer

from adamab.cli.console import echo, print_json, print_table, show_help, size
from adamab.cli.help import Command, Group

app = typer.Typer(cls=Group, add_completion=False)
Json = Annotated[bool, typer.Option("--json", help="Print as JSON.")]


@app.callback(invoke_without_command=True)
def cache(context: typer.Context) -> None:
    """List and purge the vectors, answers and generated images that are stored on this machine.

    What was paid for is kept until it is purged.

    Vectors of free embedders take up to 1 GB; those used longest ago go first.

    ADAMAB_CACHE_GB=4 in the environment allows 4 GB, and 0 keeps none of them.

    ADAMAB_CACHE=FILE puts all of it elsewhere.
    """
    if context.invoked_subcommand is None:
        show_help(context)


@app.command("list", cls=Command)
def list_(as_json: Json = False) -> None:
    """What is stored: vectors by embedder and view, and what generators answered.

    Texts and images that were embedded are not stored, only their vectors; answers are texts, or the
    images that were generated.
    """
    from adamab.providers.cache import CachedReplies, VectorCache, free_vectors
    from adamab.providers.image_store import shared_size
    from adamab.providers.registry import shared_images

    stored, free = VectorCache(), free_vectors()
    entries, answers = [*stored.entries(), *free.entries()], CachedReplies(stored).stored()
    images, room = shared_size(shared_images())
    if as_json:
        print_json(
            {
                "path": str(stored.path),
                "bytes": stored.size,
                "free": {"path": str(free.path), "bytes": free.size, "cap": free.cap},
                "entries": [asdict(entry) for entry in entries],
                "answers": asdict(answers),
                "images": {"path": str(shared_images()), "files": images, "bytes": room},
            }
        )
        return
    something = bool(entries or answers.rows)
    echo(f"{stored.path}: {size(stored.size)}" if something else f"{stored.path}: nothing is stored")
    if free.size:
        echo(
            f"{free.path}: {size(free.size)} of at most {size(free.cap or 0)}, of embedders that cost nothing"
        )
    if entries:
        rows = [(_brief(e.fingerprint), e.view, e.rows, size(e.bytes), _day(e.last_used)) for e in entries]
        print_table(("embedder", "view", "vectors#", "size#", "last used"), rows)
    if answers.rows:
        echo(f"answers of generators: {answers.rows}, {size(answers.bytes)}, {_day(answers.last_stored)}")
    if images:
        echo(f"generated images: {images}, {size(room)}, in {shared_images()}")


@app.command(cls=Command)
def purge(
    embedder: Annotated[
        str | None, typer.Option(metavar="FINGERPRINT", help="Only of the embedder that begins so.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Delete what is stored, for good."""
    from adamab.errors import CacheError, short
    from adamab.providers.cache import VectorCache, free_vectors
    from adamab.providers.image_store import delete_shared
    from adamab.providers.registry import shared_images

    stored, free = VectorCache(), free_vectors()
    chosen = None
    if embedder is not None:
        entries = [*stored.entries(), *free.entries()]
        chosen = sorted({e.fingerprint for e in entries if e.fingerprint.startswith(embedder)})
        if not chosen or not embedder:
            raise CacheError(
                f"no embedder in the cache begins with {short(embedder)}; see: adamab cache list"
            )
    what = (
        "all vectors, answers and generated images"
        if chosen is None
        else f"the vectors of {', '.join(chosen)}"
    )
    if not yes:
        folder = f" and {shared_images()}" if chosen is None and shared_images().exists() else ""
        if not sys.stdin.isatty():
            raise CacheError("nobody is there to confirm that this may be deleted; add --yes")
        if not typer.confirm(f"Delete {what} in {stored.path}{folder}?"):
            echo("nothing was deleted")
            return
    if chosen is None:
        freed = stored.purge() + free.purge() + delete_shared(shared_images())
    else:
        freed = sum(file.purge(name) for name in chosen for file in (stored, free))
    if as_json:
        print_json({"path": str(stored.path), "freed": freed, "embedders": chosen})
    else:
        echo(f"deleted {what}; {size(freed)} are free again")


def _brief(fingerprint: str) -> str:
    """Short enough for a table; what stands before the ellipsis is a prefix that purge takes."""
    return fingerprint if len(fingerprint) <= 36 else f"{fingerprint[:22]}…{fingerprint[-12:]}"


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d")
