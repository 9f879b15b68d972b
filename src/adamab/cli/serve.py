"""`adamab serve`: a run's model behind HTTP."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING, Annotated

import typer

from adamab.cli.console import echo, progress, say
from adamab.cli.options import Model, OtherEmbedder

if TYPE_CHECKING:
    from adamab.serving.requests import Access, Limits
    from adamab.serving.service import Service

_PACKAGES = {
    "fastapi": "FastAPI",
    "uvicorn": "uvicorn",
    "prometheus_client": "prometheus-client",
    "python_multipart": "python-multipart",
}
_IMAGES_BODY = 32 * 2**20  # bytes; images are larger than texts


def serve(
    run: Model,
    host: Annotated[
        str, typer.Option(metavar="ADDR", help="The address to listen at; 0.0.0.0 is every one.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 chooses a free one and says which.")] = 8000,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A name under which clients reach the server, besides localhost."),
    ] = None,
    embedder: OtherEmbedder = None,
    max_items: Annotated[int, typer.Option(min=1, help="Texts or images per request.")] = 256,
    max_body: Annotated[
        int | None,
        typer.Option(min=1, metavar="BYTES", help="Size of a request; 1 MiB of texts, 32 MiB of images."),
    ] = None,
    max_batch: Annotated[int, typer.Option(min=1, help="Items that are embedded together.")] = 64,
    max_wait_ms: Annotated[
        float, typer.Option(min=0, max=1000, help="How long an idle server waits for more to embed together.")
    ] = 2.0,
    timeout: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="To answer a request.")] = 30.0,
) -> None:
    """Show a run on a page, live while it is fitted, and answer requests over HTTP.

    The page is at /; POST /v1/classify, GET /v1/classes, /healthz and /metrics are for programs, see /docs.

    ADAMAB_TOKEN in the environment is the token that clients must send. SIGHUP opens a newer model of the
    run; SIGTERM and Ctrl-C finish what was accepted.
    """
    from adamab.cli.errors import need_modules

    need_modules(_PACKAGES, "serve")
    from adamab.providers.services import is_loopback
    from adamab.serving.page import page_router
    from adamab.serving.requests import TOKEN
    from adamab.serving.run_reader import RunReader
    from adamab.serving.server import address_of, bind, create_app, server_of
    from adamab.serving.service import Service

    access = _access(host, allow_host or [])
    with bind(host, port) as bound, RunReader(run) as reader:
        with progress(f"loading the model of {run}"):
            service = Service(run, embedder, log=say)
        limits = _limits(service, max_items, max_body, max_batch, max_wait_ms, timeout)
        app = create_app(service, [page_router(reader, service)], limits=limits, access=access, log=say)
        what = (
            f"{len(service.model.classes)} classes" if service.ready else "no model yet: it is being fitted"
        )
        line = f"serving {run} at {address_of(bound)} ({what}); Ctrl-C stops"
        if access.token is None and not is_loopback(host):
            who = f"warning: everybody who reaches {host} may ask, change the run and fit it"
            say(f"{who}; set {TOKEN}, and let a proxy speak TLS")
        server_of(app, limits, ready=lambda: echo(line), log=say).run(sockets=[bound])
    gc.freeze()  # else the interpreter looks through all objects once more, which takes seconds


def _access(host: str, names: list[str]) -> Access:
    """Loopback answers to its own names only; elsewhere to any, unless names are given."""
    from adamab.providers.services import is_loopback
    from adamab.serving.page import OPEN_PATHS
    from adamab.serving.requests import LOOPBACK, Access, without_port

    allowed = frozenset(without_port(name.lower()) for name in names)
    own = f"[{host}]" if ":" in host else host.lower()
    hosts = LOOPBACK | allowed | {own} if is_loopback(host) or allowed else None
    return Access(hosts, _token(), OPEN_PATHS)


def _token() -> str | None:
    from adamab.serving.requests import TOKEN
    from adamab.serving.server import ServerError

    token = os.environ.get(TOKEN)
    if token is not None and (not token.isascii() or not token.isprintable() or not token.strip()):
        raise ServerError(f"{TOKEN} is empty or holds what no header can; set it again, or unset it")
    return None if token is None else token.strip()


def _limits(
    service: Service, items: int, body: int | None, batch: int, wait_ms: float, timeout: float
) -> Limits:
    from adamab.serving.requests import Limits

    size = body or (_IMAGES_BODY if service.modality == "image" else Limits().body)
    return Limits(
        items=items,
        body=size,
        all_bodies=max(Limits().all_bodies, size),
        answer_seconds=timeout,
        batch_items=batch,
        batch_wait=wait_ms / 1000,
        waiting_items=max(Limits().waiting_items, items),
    )
