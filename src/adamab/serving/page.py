"""The page that people look at, and the JSON behind it; to be added to the server's routes.

Everything that comes from data is sent as JSON and put into the page as text. The page runs its own
scripts only and asks nobody but this server.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import asdict
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from adamab.errors import AdamabError, RunError
from adamab.run.reviews import Verdict
from adamab.serving import page_data
from adamab.serving.explain import Explanation, Surroundings, explained
from adamab.serving.guard import Access
from adamab.serving.page_pictures import RunPictures
from adamab.serving.problems import Refused, invalid
from adamab.serving.questions import read_question
from adamab.serving.run_view import RunView
from adamab.task.messages import one_line

if TYPE_CHECKING:
    from adamab.run.resolve import HasText
    from adamab.serving.limits import Account
    from adamab.serving.server import Desk
    from adamab.serving.service import Model, Service

FILES = {
    "index.html": "text/html; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "parts.js": "text/javascript; charset=utf-8",
    "charts.js": "text/javascript; charset=utf-8",
    "try.js": "text/javascript; charset=utf-8",
    "classes.js": "text/javascript; charset=utf-8",
    "run.js": "text/javascript; charset=utf-8",
    "samples.js": "text/javascript; charset=utf-8",
    "theme.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
# What holds no data and needs no token.
OPEN_PATHS = Access.open_paths | {"/", *(f"/web/{name}" for name in FILES)}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_AT_ONCE = 2  # questions that are explained at a time
JSON = "application/json"
Offset = Annotated[int, Query(ge=0, le=10**9)]
Limit = Annotated[int, Query(ge=1, le=200)]
Words = Annotated[str | None, Query(max_length=200)]


class Review(BaseModel):
    """A verdict on a sample; none takes one back."""

    model_config = ConfigDict(extra="forbid", strict=True)
    id: str = Field(max_length=64)
    verdict: Verdict


def page_router(view: RunView, service: Service) -> APIRouter:
    """The page at `/`, its files, and what it asks for under `/v1/run` and `/v1/explain`."""
    router = APIRouter(include_in_schema=False)
    _add_files(router)
    _add_reading(router, view, service)
    _add_writing(router, view, service)
    return router


def _add_files(router: APIRouter) -> None:
    folder = files("adamab.serving") / "web"
    contents = {name: (folder / name).read_bytes() for name in FILES}

    @router.get("/")
    @router.head("/")
    async def index() -> Response:
        return _file("index.html")

    @router.get("/web/{name}")
    async def web(name: str) -> Response:
        if name not in contents:
            raise Refused(404, "not_found", "not found")
        return _file(name)

    def _file(name: str) -> Response:
        headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"}
        return Response(contents[name], media_type=FILES[name], headers=headers)


def _add_reading(router: APIRouter, view: RunView, service: Service) -> None:
    pictures = RunPictures(view)

    @router.get("/v1/run")
    def run() -> Response:
        return _told({**page_data.overview(view), "model": _model(service), "now": time.time()})

    @router.get("/v1/run/figures")
    def figures(offset: Offset = 0, limit: Limit = 24) -> Response:
        return _told(page_data.figures(view, offset, limit))

    @router.get("/v1/run/rounds")
    def rounds(after: Offset = 0, before: Offset | None = None, limit: Limit = 50) -> Response:
        return _told(page_data.rounds(view, after, before, limit))

    @router.get("/v1/run/classes")
    def classes(q: Words = None, order: str = "task", offset: Offset = 0, limit: Limit = 50) -> Response:
        return _told(page_data.classes(view, q or None, order, offset, limit))

    @router.get("/v1/run/class")
    def one_class(name: Annotated[str, Query(max_length=1000)]) -> Response:
        found = page_data.one_class(view, name)
        if found is None:
            raise Refused(404, "not_found", "the run has no class of this name")
        return _told(found)

    @router.get("/v1/run/confusion")
    def confusion() -> Response:
        return _told(page_data.confusion(view))

    @router.get("/v1/run/samples")
    def samples(wanted: _Wanted, offset: Offset = 0, limit: Limit = 50) -> Response:
        return _told(page_data.samples(view, wanted, offset, limit))

    @router.get("/v1/run/pictures/{id_}")
    async def picture(id_: str, large: bool = False) -> Response:
        headers = {"Cache-Control": "private, max-age=3600"}  # an id stands for one content
        return Response(await pictures.jpeg(id_, large), media_type="image/jpeg", headers=headers)


def _wanted(
    class_: Annotated[str | None, Query(alias="class", max_length=1000)] = None,
    source: Annotated[str | None, Query(max_length=20)] = None,
    reason: Annotated[str | None, Query(max_length=40)] = None,
    verdict: Annotated[str | None, Query(max_length=20)] = None,
    q: Words = None,
) -> page_data.SampleFilter:
    return page_data.SampleFilter(class_ or None, source or None, reason or None, verdict or None, q or None)


_Wanted = Annotated[page_data.SampleFilter, Depends(_wanted)]


def _add_writing(router: APIRouter, view: RunView, service: Service) -> None:
    explainer = _Explainer(view, service)

    @router.post("/v1/run/reviews")
    async def review(request: Request) -> Response:
        _check_own_page(request)
        body = await _body(request)
        try:
            said = Review.model_validate_json(body)
        except ValidationError as error:
            raise invalid(one_line(error.errors(include_url=False)[0]["msg"])) from None
        try:
            sample = await asyncio.to_thread(view.review, said.id, said.verdict)
        except AdamabError:
            raise Refused(
                500, "cannot_write", "the run's directory cannot be written by the server"
            ) from None
        return _told({"sample": page_data.sample_row(sample), "waiting": view.waiting()})

    @router.post("/v1/run/reload")
    async def reload(request: Request) -> Response:
        _check_own_page(request)
        outcome = await _desk(request).reload()
        if outcome == "failed":
            raise Refused(
                409, "reload_failed", "the run's model cannot be opened; the server's output says why"
            )
        return _told({"outcome": outcome, "model": _model(service)})

    @router.post("/v1/explain")
    async def explain(request: Request) -> Response:
        desk = _desk(request)
        with desk.bodies.counted() as account:
            body = await _read(desk, account, request)
            modality = service.model.inference.modality
            question = await read_question(request, body, modality, desk.limits, desk.files)
            with desk.files.kept(question.rows):
                if len(question.rows) != 1:
                    raise invalid("send one text or one picture")
                found = await explainer.ask(question.rows[0], desk.limits.answer_seconds)
        return _told(found)


class _Explainer:
    """Explains with the server's model and the vectors that belong to it."""

    def __init__(self, view: RunView, service: Service) -> None:
        self._view, self._service = view, service
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._around: tuple[str, Surroundings | None] | None = None

    async def ask(self, row: HasText, seconds: float) -> dict[str, Any]:
        """What the page shows; raises `Refused`."""
        model = self._service.model
        wanted, given = model.inference.modality, "text" if row.image is None else "image"
        if wanted != given:
            raise invalid(
                f"the model classifies {wanted}s; send {'a picture' if wanted == 'image' else 'a text'}"
            )
        try:
            async with asyncio.timeout(seconds), self._turns:
                found = await asyncio.to_thread(self._explained, model, row)
        except TimeoutError:
            raise Refused(504, "too_slow", f"no answer within {seconds:g} seconds; try again later") from None
        except AdamabError as error:
            raise self._service.failure(model, error) from None
        return {**asdict(found), "model": model.name, "why_not": self._why_not(found)}

    def _explained(self, model: Model, row: HasText) -> Explanation:
        return explained(model.inference, self._surroundings(model), row)

    def _surroundings(self, model: Model) -> Surroundings | None:
        """Read once a model; none where the run holds those of another model already, or damaged ones."""
        if self._around is None or self._around[0] != model.digest:
            if self._service.digest_on_disk() != model.digest:
                return None
            try:
                self._around = model.digest, Surroundings.of(self._view.directory, model.classes)
            except RunError:
                return None
        return self._around[1]

    def _why_not(self, found: Explanation) -> str | None:
        if found.compared_with is not None:
            return None
        if self._view.reader is None:
            return "This model was saved without its run, so there is nothing to compare with."
        if self._service.digest_on_disk() != self._service.model.digest:
            return "The run holds a newer model; reload it to see what an answer rests on."
        if self._service.model.inference.embedder is None:
            return "Only words count in this model; nothing is embedded, so nothing can be near."
        return "The run keeps no vectors of its present samples; they are written when a fit ends."


def _model(service: Service) -> dict[str, Any] | None:
    """What the page says about the model; None while there is none."""
    if not service.ready:
        return None
    model = service.model
    return {
        **model.name,
        "newer": service.digest_on_disk() not in (None, model.digest),
        "remote": model.inference.remote,
        "modality": model.inference.modality,
        "classes": len(model.classes),
    }


def _check_own_page(request: Request) -> None:
    """Who changes something is this server's page or no browser: forms of other sites cannot send JSON."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise Refused(403, "foreign_origin", "the request comes from a page of another site")
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        raise Refused(415, "unknown_type", "send application/json as the Content-Type")


async def _body(request: Request) -> bytes:
    desk = _desk(request)
    with desk.bodies.counted() as account:
        return await _read(desk, account, request)


async def _read(desk: Desk, account: Account, request: Request) -> bytes:
    headers = request.headers
    return await desk.bodies.read(
        account, request.receive, headers.get("content-length"), asks_first="expect" in headers
    )


def _desk(request: Request) -> Desk:
    desk: Desk = request.app.state.desk
    return desk


def _told(content: dict[str, Any]) -> Response:
    """Escaped, since texts may hold half a character, which UTF-8 cannot."""
    return Response(json.dumps(content, allow_nan=False), media_type=JSON)
