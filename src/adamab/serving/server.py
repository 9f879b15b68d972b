"""The HTTP interface: what can be asked at which path."""

from __future__ import annotations

import asyncio
import inspect
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from adamab.errors import RunError
from adamab.serving import models
from adamab.serving.batching import Batcher
from adamab.serving.guard import Access, Guard
from adamab.serving.limits import Bodies, Limits
from adamab.serving.metrics import CONTENT_TYPE, Metrics
from adamab.serving.pictures import PictureFiles
from adamab.serving.problems import Refused, invalid
from adamab.serving.questions import read_question
from adamab.task.messages import one_line
from adamab.version import __version__

if TYPE_CHECKING:
    from adamab.classifier import Asked
    from adamab.serving.limits import Receive
    from adamab.serving.pictures import Row
    from adamab.serving.service import Service

JSON = "application/json"
_LOOK_SECONDS = 1.0  # between two looks for a run's first model
_REMOTE_LANES = 4  # batches on their way to an API at a time
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


@dataclass(frozen=True)
class Settings:
    """How a server behaves; `log` takes lines for whoever runs it."""

    limits: Limits = field(default_factory=Limits)
    access: Access = field(default_factory=Access)
    log: Callable[[str], None] = print


class Desk:
    """Where questions are answered: the service, its batcher and its limits."""

    def __init__(self, service: Service, settings: Settings) -> None:
        self.service, self.limits = service, settings.limits
        self.metrics = Metrics()
        self.bodies = Bodies(self.limits)
        self.files = PictureFiles()
        self._batcher: Batcher[bytes] | None = None
        self.stopping = False  # from the moment that somebody asks for it

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """While it is open, questions are answered."""
        self._batcher = Batcher(self.service.compute, self.limits, self.metrics, most_lanes=_REMOTE_LANES)
        self._widen()
        self._batcher.start()
        first = asyncio.get_running_loop().create_task(self._wait_for_the_first_model())
        try:
            yield
        finally:
            first.cancel()
            await self._batcher.stop()
            self.files.remove()

    async def _wait_for_the_first_model(self) -> None:
        """A run that is looked at while it is fitted for the first time answers as soon as it can."""
        tried = None
        while not self.service.ready:
            await asyncio.sleep(_LOOK_SECONDS)
            found = await asyncio.to_thread(self.service.digest_on_disk)
            if found not in (None, tried):
                tried = found
                await self.reload()
        self._widen()

    def _widen(self) -> None:
        """An embedder behind an API is asked for several batches at once."""
        assert self._batcher is not None
        if self.service.ready and self.service.model.inference.remote:
            self._batcher.widen(_REMOTE_LANES)

    async def answer(self, rows: Sequence[Row], asked: Asked, receive: Receive) -> bytes:
        """The answer's JSON; a question whose client has gone or waited too long is withdrawn."""
        assert self._batcher is not None
        job = self._batcher.submit(rows, asked)
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
            raise Refused(499, "gone", "the client has gone")
        seconds = self.limits.answer_seconds
        raise Refused(504, "too_slow", f"no answer within {seconds:g} seconds; send less or try again later")

    async def reload(self) -> str:
        """Open what the run holds now; questions are answered meanwhile. Tells the outcome."""
        outcome = await asyncio.to_thread(self.service.reload)
        self.metrics.reload(outcome)
        return outcome


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def create_app(
    service: Service, settings: Settings | None = None, routers: Sequence[APIRouter] = ()
) -> FastAPI:
    """The application; `routers` are added to it. What they need is in `app.state.desk`."""
    settings = settings or Settings()
    desk = Desk(service, settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with desk.open():
            yield

    app = FastAPI(
        title="adamab",
        version=__version__,
        summary="Classifies texts or pictures.",
        lifespan=lifespan,
        docs_url=None,  # these pages load scripts from elsewhere
        redoc_url=None,
        **_silent(),
    )
    app.state.desk = desk
    for router in (_api(desk), *routers):
        app.include_router(router)
    _refuse_in_one_shape(app, settings.log)
    app.add_middleware(
        Guard,
        access=settings.access,
        metrics=desk.metrics,
        log=settings.log,
        stopping=lambda: desk.stopping,
    )
    return app


def _silent() -> dict[str, Any]:
    """Newer FastAPI sends traces where the environment says so; a server of ours tells nobody anything."""
    if "telemetry" not in inspect.signature(FastAPI).parameters:
        return {}
    return {"telemetry": {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}}


def _refuse_in_one_shape(app: FastAPI, log: Callable[[str], None]) -> None:
    @app.exception_handler(Refused)
    async def refused(request: Request, refusal: Refused) -> Response:
        return Response(refusal.body(), refusal.status, dict(refusal.headers), JSON)

    async def unavailable(request: Request, error: Exception) -> Response:
        told = error.strerror if isinstance(error, OSError) and error.strerror else error
        log(f"{request.url.path} cannot be answered: {one_line(told)}")
        return await refused(request, Refused(503, "unavailable", one_line(told), {"Retry-After": "5"}))

    # A full disk or a damaged file of the run is told in a line, by every path.
    for kind in (RunError, OSError, sqlite3.Error):
        app.add_exception_handler(kind, unavailable)

    @app.exception_handler(HTTPException)
    async def not_here(request: Request, error: HTTPException) -> Response:
        code = {404: "not_found", 405: "wrong_method"}.get(error.status_code, "refused")
        refusal = Refused(error.status_code, code, str(error.detail).lower(), error.headers or {})
        return await refused(request, refusal)

    @app.exception_handler(RequestValidationError)
    async def wrong(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        return await refused(request, invalid(f"{'.'.join(map(str, first['loc']))}: {first['msg']}"))


def _refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": models.Problems, "description": _REFUSALS[status]} for status in statuses}


def _api(desk: Desk) -> APIRouter:
    router = APIRouter()
    refusals = _refusals(*_REFUSALS)

    @router.post(
        "/v1/classify",
        response_model=models.Answer,
        responses=refusals,
        openapi_extra={"requestBody": {"required": True, "content": models.request_schemas()}},
    )
    async def classify(request: Request) -> Response:
        """Classify one text, many texts, or pictures."""
        with desk.bodies.counted() as account:
            headers = request.headers
            body = await desk.bodies.read(
                account, request.receive, headers.get("content-length"), asks_first="expect" in headers
            )
            modality = desk.service.model.inference.modality
            question = await read_question(request, body, modality, desk.limits, desk.files)
            del body
            with desk.files.kept(question.rows):
                answer = await desk.answer(question.rows, question.asked, request.receive)
        return Response(answer, media_type=JSON)

    few = _refusals(401, 421)

    @router.get("/v1/classes", response_model=models.Classes, responses=few | _refusals(503))
    async def classes() -> models.Classes:
        """What the model tells apart."""
        model = desk.service.model
        return models.Classes(
            model=models.ModelName(**model.name),
            modality=model.inference.modality,
            embedder=desk.service.embedder,
            classes=[models.ClassName(name=name) for name in model.classes],
        )

    @router.get("/healthz", response_model=models.Health, responses=_refusals(421, 503))
    async def healthz() -> models.Health:
        """Whether the server lives, with which model; needs no token."""
        ready = desk.service.ready
        return models.Health(
            status="waiting" if not ready else "reloading" if desk.service.reloading else "ready",
            model=models.ModelName(**desk.service.model.name) if ready else None,
            uptime_seconds=round(time.monotonic() - desk.service.started, 3),
        )

    # Who watches a server often asks for the headers only.
    router.add_api_route("/healthz", healthz, methods=["HEAD"], include_in_schema=False)

    @router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}, **few})
    async def metrics() -> Response:
        """Counters for Prometheus."""
        return Response(desk.metrics.page(), media_type=CONTENT_TYPE)

    return router
