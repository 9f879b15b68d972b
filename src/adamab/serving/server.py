"""The HTTP interface: what can be asked at which path; and the process: its socket, its signals, its end.

SIGTERM, SIGINT   stop accepting, finish what was accepted, end with code 0; a second SIGINT ends at once
SIGHUP            open what the run holds now; requests go on meanwhile
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import socket
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvicorn
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.types import Receive

from adamab.errors import AdamabError, RunError, one_line
from adamab.serving import _questions
from adamab.serving._questions import ReceivedImages, Row
from adamab.serving.refit import Refit
from adamab.serving.requests import (
    JSON,
    Access,
    Bodies,
    Guard,
    Limits,
    Metrics,
    Refused,
    client_gone,
    invalid,
)
from adamab.serving.service import Batcher, Service
from adamab.version import __version__

if TYPE_CHECKING:
    from adamab.model import PredictOptions

_STOPPED = 130
_KEEP_ALIVE = 75  # seconds; longer than the usual 60 of proxies, so that they close first
_LONGEST_HEADERS = 32 * 1024
_GRACE = 0.5  # seconds in which the next request of a connection that was kept may be on its way
_ENDS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGBREAK") if hasattr(signal, name))
_LOOK_SECONDS = 1.0  # between two looks for a run's first model
_REFUSALS = {
    400: "The body cannot be read.",
    401: "The token is missing or wrong.",
    403: "A page of another site asks.",
    408: "The body came too slowly.",
    413: "Too large, or too many items.",
    415: "Neither JSON nor a form.",
    421: "Another host is meant.",
    422: "The question cannot be answered as it is.",
    502: "The embedder failed.",
    503: "No room for now; see Retry-After.",
    504: "No answer in time.",
}


class ServerState:
    """Where questions are answered: the service, its batcher and its limits."""

    def __init__(self, service: Service, limits: Limits, log: Callable[[str], None]) -> None:
        self.service, self.limits = service, limits
        self.refit = Refit(service.run, log, service.fit_options)
        self.metrics = Metrics()
        self.bodies = Bodies(limits)
        self.images = ReceivedImages()
        self.stopping = False  # from the moment that somebody asks for it
        self._batcher: Batcher | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """While it is open, questions are answered."""
        self._batcher = Batcher(self.service.compute, self.service.lanes, self.limits, self.metrics)
        first = asyncio.get_running_loop().create_task(self._wait_for_the_first_model())
        try:
            yield
        finally:
            first.cancel()
            await self.refit.close(self.limits.stop_seconds)
            await self._batcher.stop()
            self.images.remove()

    async def _wait_for_the_first_model(self) -> None:
        """A run that is looked at while it is fitted for the first time answers as soon as it can."""
        tried = None
        while not self.service.ready:
            await asyncio.sleep(_LOOK_SECONDS)
            digest = await asyncio.to_thread(self.service.digest_on_disk)
            if digest not in (None, tried):
                tried = digest
                await self.reload()

    @asynccontextmanager
    async def question(self, request: Request) -> AsyncIterator[tuple[list[Row], PredictOptions]]:
        """What a request asks; its body counts and its images are files until the block ends."""
        async with self.bodies.read(request) as body:
            modality = self.service.model.inference.modality
            rows, options = await _questions.read_question(request, body, modality, self.limits, self.images)
            del body
            try:
                yield rows, options
            finally:
                self.images.discard(rows)

    async def answer(self, rows: Sequence[Row], options: PredictOptions, receive: Receive) -> bytes:
        """The answer's JSON; a question whose client has gone or waited too long is withdrawn.

        Args:
            rows: What is to be classified.
            options: What is asked of each of them.
            receive: The request's channel, which tells when its client has gone.
        """
        assert self._batcher is not None
        job = self._batcher.submit(rows, options)
        gone = asyncio.ensure_future(_disconnected(receive))
        either: set[asyncio.Future[Any]] = {job.answer, gone}
        try:
            await asyncio.wait(
                either, timeout=self.limits.answer_seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if job.answer.done():
                return job.answer.result()
        finally:
            gone.cancel()
            self._batcher.withdraw(job)
        if gone.done() and not gone.cancelled():
            raise client_gone()
        seconds = self.limits.answer_seconds
        raise Refused(504, "too_slow", f"no answer within {seconds:g} seconds; send less or try again later")

    async def reload(self) -> str:
        """Open what the run holds now and return the outcome; questions are answered meanwhile."""
        outcome = await asyncio.to_thread(self.service.reload)
        self.metrics.reloads.labels(outcome).inc()
        return outcome


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def create_app(
    service: Service,
    routers: Sequence[APIRouter] = (),
    *,
    limits: Limits | None = None,
    access: Access | None = None,
    log: Callable[[str], None] = print,
) -> FastAPI:
    """The application.

    Args:
        service: Answers.
        routers: Are added to the application; what they need is in `app.state.server_state`.
        limits: What is refused beyond.
        access: Who may ask.
        log: Takes lines for whoever runs the server.
    """
    server_state = ServerState(service, limits or Limits(), log)
    # Newer FastAPI sends traces where the environment says so; a server of ours tells nobody anything.
    silent: dict[str, Any] = {}
    if "telemetry" in inspect.signature(FastAPI).parameters:
        silent = {"telemetry": dict.fromkeys(("tracing", "metrics", "logs", "auto_configure"), False)}
    app = FastAPI(
        title="adamab",
        version=__version__,
        summary="Classifies texts or images.",
        lifespan=lambda app: server_state.open(),
        docs_url=None,  # these pages load scripts from elsewhere; the page has one of its own
        redoc_url=None,
        **silent,
    )
    app.state.server_state = server_state
    for router in (_api(server_state), *routers):
        app.include_router(router)
    _refuse_in_one_shape(app, log)
    app.add_middleware(
        Guard,
        access=access or Access(),
        metrics=server_state.metrics,
        log=log,
        stopping=lambda: server_state.stopping,
    )
    return app


def _refuse_in_one_shape(app: FastAPI, log: Callable[[str], None]) -> None:
    async def unavailable(request: Request, error: Exception) -> Response:
        reason = one_line(getattr(error, "strerror", None) or error)
        log(f"{request.url.path} cannot be answered: {reason}")
        return Refused(503, "unavailable", reason, {"Retry-After": "5"}).response()

    async def not_here(request: Request, error: HTTPException) -> Response:
        code = {404: "not_found", 405: "wrong_method"}.get(error.status_code, "refused")
        return Refused(error.status_code, code, str(error.detail).lower(), error.headers or {}).response()

    async def wrong(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        return invalid(f"{'.'.join(map(str, first['loc']))}: {first['msg']}").response()

    app.exception_handler(HTTPException)(not_here)
    app.exception_handler(RequestValidationError)(wrong)
    # A full disk or a damaged file of the run is reported in a line, by every path.
    for kind in (RunError, OSError, sqlite3.Error):
        app.add_exception_handler(kind, unavailable)


def _refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": _questions.Problems, "description": _REFUSALS[status]} for status in statuses}


def _api(server_state: ServerState) -> APIRouter:
    router = APIRouter()
    refusals = _refusals(*_REFUSALS)

    @router.post(
        "/v1/classify",
        response_model=_questions.Answer,
        responses=refusals,
        openapi_extra={"requestBody": {"required": True, "content": _questions.request_schemas()}},
    )
    async def classify(request: Request) -> Response:
        """Classify one text, many texts, or images."""
        async with server_state.question(request) as (rows, options):
            answer = await server_state.answer(rows, options, request.receive)
        return Response(answer, media_type=JSON)

    few = _refusals(401, 421)

    @router.get("/v1/classes", response_model=_questions.Classes, responses=few | _refusals(503))
    async def classes() -> _questions.Classes:
        """What the model tells apart."""
        model = server_state.service.model
        return _questions.Classes(
            model=_questions.ModelName(**model.name),
            modality=model.inference.modality,
            embedder=server_state.service.embedder,
            classes=[_questions.ClassName(name=name) for name in model.classes],
        )

    @router.get("/healthz", response_model=_questions.Health, responses=_refusals(421, 503))
    async def healthz() -> _questions.Health:
        """Whether the server lives, with which model; needs no token."""
        ready = server_state.service.ready
        return _questions.Health(
            status="waiting" if not ready else "reloading" if server_state.service.reloading else "ready",
            model=_questions.ModelName(**server_state.service.model.name) if ready else None,
            uptime_seconds=round(time.monotonic() - server_state.service.started, 3),
        )

    # Who watches a server often asks for the headers only.
    router.add_api_route("/healthz", healthz, methods=["HEAD"], include_in_schema=False)

    @router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}, **few})
    async def metrics() -> Response:
        """Counters for Prometheus."""
        return Response(server_state.metrics.page(), media_type=CONTENT_TYPE_LATEST)

    return router


class ServerError(AdamabError):
    """The server cannot be started as asked."""


def bind(host: str, port: int) -> socket.socket:
    """A socket at that address, before a model is loaded in vain; raises `ServerError`."""
    try:
        places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = places[0]
        bound = socket.socket(family, kind, protocol)
        try:
            if os.name == "posix":  # elsewhere it would let two servers have the same port
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except OSError:
            bound.close()
            raise
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "no address of this machine"
        raise ServerError(
            f"cannot listen at {host}, port {port} ({reason}); choose another with --host or --port"
        ) from None
    return bound


def address_of(bound: socket.socket) -> str:
    """Where the server is, as a URL."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def server_of(
    app: FastAPI, limits: Limits, *, ready: Callable[[], None], log: Callable[[str], None]
) -> uvicorn.Server:
    """A server that runs until a signal says to stop.

    Args:
        app: What answers the requests.
        limits: How many connections it takes, and how long answers have when it stops.
        ready: Called when requests are accepted.
        log: Takes lines for whoever runs the server.
    """
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="on",
        loop="asyncio",
        log_config=None,
        log_level="critical",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=limits.connections,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=limits.stop_seconds,  # type: ignore[arg-type]  # a fraction will do
        h11_max_incomplete_event_size=_LONGEST_HEADERS,
    )
    return _Server(config, app.state.server_state, ready, log)


class _Server(uvicorn.Server):
    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        ready: Callable[[], None],
        log: Callable[[str], None],
    ) -> None:
        super().__init__(config)
        self._server_state, self._ready, self._log = server_state, ready, log
        self._reload_asked = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reloader: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._reloader = self._loop.create_task(self._reload_when_asked())
        await super().startup(sockets)
        if self.started:
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._server_state.stopping = True
        if self._reloader is not None:
            self._reloader.cancel()
        if self.server_state.connections:  # answers now say that theirs is closed, the others are closed then
            await asyncio.sleep(_GRACE)
        await super().shutdown(sockets)

    async def _reload_when_asked(self) -> None:
        """One after the other; a signal that comes during a reload makes one more of them."""
        while True:
            await self._reload_asked.wait()
            self._reload_asked.clear()
            await self._server_state.reload()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Unlike uvicorn's own, a stop that was asked for ends with code 0."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handlers = dict.fromkeys(_ENDS, self.handle_exit)
        if hasattr(signal, "SIGHUP"):
            handlers[signal.SIGHUP] = self._ask_for_reload
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if not self.should_exit:
            self.should_exit = self._server_state.stopping = True
            self._log("stopping: what was accepted is finished; Ctrl-C again stops at once")
        elif sig == signal.SIGINT:
            self._server_state.images.remove()
            self._server_state.refit.kill()
            os._exit(_STOPPED)  # a batch that is being computed cannot be interrupted otherwise

    def _ask_for_reload(self, sig: int, frame: FrameType | None) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._reload_asked.set)
