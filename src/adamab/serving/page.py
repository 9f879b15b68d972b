"""The page that people look at, and the JSON behind it; to be added to the server's routes.

Everything that comes from data is sent as JSON and put into the page as text. The page runs its own
scripts only and asks nobody but this server.

An answer is explained by its ranking before and after calibration, and by the nearest samples. Before
calibration a sample is ranked by the cosine of its raw pooled vector with those of the classes' wordings, or
with the means of the classes' given samples where the embedder has no vectors of wordings. Nearest are the
samples with the largest cosine once the mean of all samples is subtracted: raw vectors of one domain all
point the same way.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import numpy as np
from fastapi import APIRouter, Query, Request, Response
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from adamab.errors import AdamabError, ImageError, RunError, TaskError, one_line, place, suggestion
from adamab.model.confidence import softmax, strangeness
from adamab.providers.image_store import FOLDER as IMAGES
from adamab.providers.image_store import THUMBNAILS, ImageStore, small_jpeg
from adamab.providers.sqlite_file import is_being_written
from adamab.run.classes import Addition, edit_class, edit_task, merge_classes, remove_class, with_class
from adamab.run.directory import SYNTHETIC, TASK, is_run, read_summary, read_task, read_vectors
from adamab.run.examples import label_examples
from adamab.run.resume import sample_digest
from adamab.run.reviews import Review
from adamab.serving import _run_view
from adamab.serving._questions import Row, content_type
from adamab.serving.requests import JSON, Access, Refused, invalid
from adamab.serving.run_reader import RunReader, RunSample, sample_id
from adamab.task.images import Image, decoded
from adamab.task.spec import Sample
from adamab.task.words import checked

if TYPE_CHECKING:
    from adamab.model.predictor import Inference
    from adamab.providers.registry import HasText
    from adamab.serving.server import ServerState
    from adamab.serving.service import Model, Service
    from adamab.task.spec import Source

Floats = NDArray[np.float32]

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FILES = {file.name: file.read_bytes() for file in (files("adamab.serving") / "web").iterdir()}
# What holds no data and needs no token.
OPEN_PATHS = Access.open_paths | {"/", "/docs", *(f"/web/{name}" for name in _FILES)}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_AT_ONCE = 2  # questions that are explained, or images that are decoded, at a time
_THUMBNAIL, _LARGE = 160, 1600  # pixels of the longer side
_THUMBNAILS = 1000  # that are kept, of some kilobytes each
TEMPERATURE = 0.05  # of the softmax over raw cosines, which all lie close together
KNOWN = 0.95  # an input is marked that is stranger than this share of the held-out samples
FEWEST = 9  # held-out samples that can vouch for that
NEAREST = 5  # of each source
SHOWN = 10  # best classes of each ranking
_SMALLEST = 1e-12
_POOLED = "pooled"
Offset = Annotated[int, Query(ge=0, le=10**9)]
Limit = Annotated[int, Query(ge=1, le=200)]
Words = Annotated[str | None, Query(max_length=200)]
ClassName = Annotated[str | None, Query(alias="class", max_length=1000)]
Change = TypeVar("Change", bound=BaseModel)
_CHANGES = threading.Lock()


Ids = Annotated[list[Annotated[str, Field(max_length=64)]], Field(min_length=1, max_length=200)]


class ReviewRequest(BaseModel):
    """A verdict on samples; none takes one back."""

    model_config = ConfigDict(extra="forbid", strict=True)
    ids: Ids
    verdict: Review


class MoveRequest(BaseModel):
    """The class that samples are examples of; null takes given ones out of the task."""

    model_config = ConfigDict(extra="forbid", strict=True)
    ids: Ids
    class_name: str | None = Field(alias="class")


class ClassChange(BaseModel):
    """A change of one class of the run's task; `to` is its new name, or the class that it is merged into.

    An edit without `description` keeps the one that is there; null takes it away.
    """

    model_config = ConfigDict(extra="forbid", strict=True)
    action: Literal["add", "edit", "merge", "remove"]
    name: str
    to: str | None = None
    description: str | None = None
    examples: list[str] = []


def page_router(reader: RunReader, service: Service) -> APIRouter:
    """The page at `/`, its files, what it asks for under `/v1/run` and `/v1/explain`, and `/docs`.

    Args:
        reader: The run that the page shows.
        service: Has the model whose answers it explains.
    """
    router = APIRouter(include_in_schema=False)

    @router.get("/web/{name}")
    async def web(name: str) -> Response:
        if name not in _FILES:
            raise Refused(404, "not_found", "not found")
        headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"}
        return Response(_FILES[name], media_type=_TYPES[Path(name).suffix], headers=headers)

    @router.get("/")
    @router.head("/")
    async def index() -> Response:
        return await web("index.html")

    @router.get("/docs")
    async def docs() -> Response:
        return await web("docs.html")

    _add_reading(router, reader, service)
    _add_writing(router, reader, service)
    return router


def _add_reading(router: APIRouter, reader: RunReader, service: Service) -> None:
    turns = asyncio.Semaphore(_AT_ONCE)

    @router.get("/v1/run")
    def run(request: Request) -> Response:
        fit = request.app.state.server_state.refit.view()
        return _json({**_run_view.overview(reader), "model": _model(service), "fit": fit, "now": time.time()})

    @router.get("/v1/run/figures")
    def figures(offset: Offset = 0, limit: Limit = 24) -> Response:
        return _json(_run_view.figures(reader, offset, limit))

    @router.get("/v1/run/rounds")
    def rounds(after: Offset = 0, before: Offset | None = None, limit: Limit = 50) -> Response:
        return _json(_run_view.rounds(reader, after, before, limit))

    @router.get("/v1/run/classes")
    def classes(q: Words = None, order: str = "task", offset: Offset = 0, limit: Limit = 50) -> Response:
        return _json(_run_view.classes(reader, q, order, offset, limit))

    @router.get("/v1/run/class")
    def one_class(name: Annotated[str, Query(max_length=1000)]) -> Response:
        details = _run_view.one_class(reader, name)
        if details is None:
            raise Refused(404, "not_found", "the run has no class of this name")
        return _json(details)

    @router.get("/v1/run/confusion")
    def confusion() -> Response:
        return _json(_run_view.confusion(reader))

    @router.get("/v1/run/samples")
    def samples(
        wanted: Annotated[_run_view.SampleFilter, Query()], offset: Offset = 0, limit: Limit = 50
    ) -> Response:
        return _json(_run_view.samples(reader, wanted, offset, limit))

    @router.get("/v1/run/images/{id_}")
    async def image(id_: str, large: bool = False) -> Response:
        """By sample, never by a path that a client sends."""
        sample = await asyncio.to_thread(_sample, reader, id_)
        path = sample.image
        if path is None:
            raise Refused(404, "not_found", "this sample is no image")
        small = path.parent / THUMBNAILS / f"{path.stem}.jpg"
        if not large and sample.source == "synthetic" and small.is_file():
            path = small
        try:
            status = path.stat()
            async with turns:
                if large:
                    jpeg = await asyncio.to_thread(
                        lambda: small_jpeg(decoded(path, least_side=_LARGE), _LARGE)
                    )
                else:
                    jpeg = await asyncio.to_thread(_thumbnail, path, status.st_mtime_ns, status.st_size)
        except (OSError, ImageError):
            raise Refused(404, "not_found", "the image is gone or cannot be read") from None
        headers = {"Cache-Control": "private, max-age=3600"}  # an id stands for one content
        return Response(jpeg, media_type="image/jpeg", headers=headers)


def _add_writing(router: APIRouter, reader: RunReader, service: Service) -> None:
    explainer = _Explainer(reader, service)

    @router.post("/v1/run/reviews")
    async def review(request: Request) -> Response:
        wanted = await _read_change(request, ReviewRequest)
        try:
            samples = await asyncio.to_thread(_review, reader, wanted)
        except AdamabError:
            raise Refused(
                500, "cannot_write", "the run's directory cannot be written by the server"
            ) from None
        return _json({"samples": [_run_view.sample_row(sample) for sample in samples]})

    @router.post("/v1/run/moves")
    async def move(request: Request) -> Response:
        wanted = await _read_change(request, MoveRequest)
        _check_idle(request)
        before = await asyncio.to_thread(_move, reader, wanted)
        return _json({"moved": len(before)})

    @router.post("/v1/run/examples")
    async def examples(request: Request, class_name: ClassName = None) -> Response:
        """The body is a question; its texts or images become examples of the class, or of none."""
        _check_own_page(request)
        server_state: ServerState = request.app.state.server_state
        async with server_state.question(request) as (rows, _):
            _check_idle(request)
            before = await asyncio.to_thread(_add_examples, reader, rows, class_name)
        return _json({"before": before})

    @router.post("/v1/run/classes")
    async def change_class(request: Request) -> Response:
        wanted = await _read_change(request, ClassChange)
        _check_idle(request)
        await asyncio.to_thread(_change_class, reader, wanted)
        return _json({"classes": [spec.name for spec in reader.classes()]})

    @router.post("/v1/run/reload")
    async def reload(request: Request) -> Response:
        _check_own_page(request)
        outcome = await request.app.state.server_state.reload()
        if outcome == "failed":
            raise Refused(
                409, "reload_failed", "the run's model cannot be opened; the server's output says why"
            )
        return _json({"outcome": outcome, "model": _model(service)})

    @router.post("/v1/run/fit")
    async def fit(request: Request) -> Response:
        """As `adamab fit --run` without a task: the run's own settings, what is left of its budget."""
        _check_own_page(request)
        server_state: ServerState = request.app.state.server_state
        await server_state.refit.start(server_state.reload)
        return _json({"fit": server_state.refit.view()}, status=202)

    @router.post("/v1/run/fit/stop")
    async def stop_fit(request: Request) -> Response:
        _check_own_page(request)
        server_state: ServerState = request.app.state.server_state
        server_state.refit.stop()
        return _json({"fit": server_state.refit.view()})

    @router.post("/v1/explain")
    async def explain(request: Request) -> Response:
        server_state: ServerState = request.app.state.server_state
        async with server_state.question(request) as (rows, _):
            if len(rows) != 1:
                raise invalid("send one text or one image")
            return _json(await explainer.ask(rows[0], server_state.limits.answer_seconds))


def _sample(reader: RunReader, id_: str) -> RunSample:
    sample = reader.sample(id_)
    if sample is None:
        raise Refused(404, "not_found", "the run has no sample with this id")
    return sample


async def _read_change(request: Request, kind: type[Change]) -> Change:
    _check_own_page(request)
    try:
        async with request.app.state.server_state.bodies.read(request) as body:
            return kind.model_validate_json(body)
    except ValidationError as error:
        raise invalid(one_line(error.errors(include_url=False)[0]["msg"])) from None


def _check_idle(request: Request) -> None:
    """A fit that was started here goes by the task as it is; a change would have to wait for the next one."""
    if request.app.state.server_state.refit.is_running:
        raise Refused(409, "fitting", "a fit of this run is under way; make changes when it has ended")


def _review(reader: RunReader, wanted: ReviewRequest) -> list[RunSample]:
    samples = [_sample(reader, id_) for id_ in wanted.ids]
    for sample in samples:
        if sample.source == "given":
            raise invalid("ids: a given sample has no verdict; move it to another class, or take it out")
        if wanted.verdict == "accept" and not sample.can_enter:
            raise invalid(f"ids: the gate kept a sample out as {sample.reason}, which stands")
    reader.review(samples, wanted.verdict)
    return [_sample(reader, sample.id) for sample in samples]


def _move(reader: RunReader, wanted: MoveRequest) -> dict[str, str | None]:
    """A synthetic sample is an example from now on, as if somebody had written it."""
    samples = [_sample(reader, id_) for id_ in wanted.ids]
    synthetic = [sample for sample in samples if sample.source == "synthetic"]
    if wanted.class_name is None and synthetic:
        raise invalid("ids: a synthetic sample is no example that could be taken out; reject it")
    images = (None if s.image is None else Image(s.text.rpartition(":")[2], s.image) for s in samples)
    examples = [Sample(s.text, s.class_name, image=image) for s, image in zip(samples, images, strict=True)]
    before = _label(reader, examples, wanted.class_name)
    if synthetic:
        reader.review(synthetic, "reject")  # else it would be trained on in its old class, too
    return before


def _change_class(reader: RunReader, wanted: ClassChange) -> None:
    path, name, to = reader.directory, wanted.name, wanted.to
    description = wanted.description
    with _changing(reader):
        if description is not None:
            description = checked(description, "description", "the text")
        match wanted.action:
            case "add":
                examples = tuple(
                    Sample(checked(text, "examples", "the text"), name) for text in wanted.examples
                )
                addition = Addition(checked(name, "name", "the class"), description, examples)
                edit_task(path, lambda task: with_class(task, addition))
            case "edit":
                kept = "description" not in wanted.model_fields_set
                new = name if to is None else checked(to, "to", "the class")
                edit_class(path, name, new, None if kept else description or "")
            case "merge":
                merge_classes(path, [name], to or "")
            case "remove":
                remove_class(path, name)


@contextmanager
def _changing(reader: RunReader) -> Iterator[None]:
    """Around a change of the run's task; what makes no task is the client's to correct."""
    if not reader.classes():
        raise Refused(409, "no_task", "only a model is served here; classes and examples belong to a run")
    with _CHANGES:  # of two at once the second waits
        if is_being_written(reader.directory):
            raise Refused(409, "in_use", "another process is writing this run; try again when it has ended")
        try:
            yield
        except TaskError as error:  # such as a class that would be left without anything
            raise invalid(str(error)) from None


def _add_examples(reader: RunReader, rows: Sequence[Row], class_name: str | None) -> dict[str, str | None]:
    for row in rows:
        if row.problem is not None:  # all of them become examples, or none
            raise row.problem
    store = ImageStore(reader.directory / IMAGES)

    def examples() -> Iterator[Sample]:
        for row in rows:
            image = None if row.image is None else store.put(row.image.path.read_bytes())
            yield Sample(row.text, "", image=image)

    return _label(reader, examples(), class_name)


def _label(reader: RunReader, samples: Iterable[Sample], class_name: str | None) -> dict[str, str | None]:
    """Samples are made only where they can become examples."""
    with _changing(reader):
        names = [spec.name for spec in reader.classes()]
        if class_name is not None and class_name not in names:
            raise invalid(f"class: the task has none of this name; {suggestion(class_name, names)}")
        return label_examples(reader.directory, list(samples), class_name)


@lru_cache(_THUMBNAILS)
def _thumbnail(path: Path, changed: int, size: int) -> bytes:
    """Kept as long as the file stays the same."""
    return small_jpeg(decoded(path, least_side=_THUMBNAIL), _THUMBNAIL)


class _Explainer:
    """Explains with the server's model and the vectors that belong to it."""

    def __init__(self, reader: RunReader, service: Service) -> None:
        self._reader, self._service = reader, service
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._stored: tuple[str, StoredVectors | None] | None = None

    async def ask(self, row: Row, seconds: float) -> dict[str, Any]:
        """What the page shows; raises `Refused`."""
        model = self._service.model
        wanted, given = model.inference.modality, "text" if row.image is None else "image"
        if wanted != given:
            raise invalid(
                f"the model classifies {wanted}s; send {'an image' if wanted == 'image' else 'a text'}"
            )
        try:
            async with asyncio.timeout(seconds), self._turns:
                explanation = await asyncio.to_thread(
                    lambda: explained(model.inference, self._stored_vectors(model), row)
                )
        except TimeoutError:
            raise Refused(504, "too_slow", f"no answer within {seconds:g} seconds; try again later") from None
        except AdamabError as error:
            raise self._service.failure(model, error) from None
        return {**asdict(explanation), "model": model.name, "why_not": self._why_not(explanation)}

    def _stored_vectors(self, model: Model) -> StoredVectors | None:
        """Read once a model; none where the run holds those of another model already, or damaged ones."""
        if self._stored is None or self._stored[0] != model.digest:
            if self._service.digest_on_disk() != model.digest:
                return None
            try:
                self._stored = model.digest, StoredVectors.of(self._reader.directory, model.classes)
            except RunError:
                return None
        return self._stored[1]

    def _why_not(self, explanation: Explanation) -> str | None:
        if explanation.compared_with is not None:
            return None
        if self._service.digest_on_disk() != self._service.model.digest:
            return "The run holds a newer model; reload it to see what an answer rests on."
        return "There are no vectors of this model's samples to compare with; a fit leaves them in its run."


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
    if content_type(request) != JSON:
        raise Refused(415, "unknown_type", "send application/json as the Content-Type")


def _json(content: dict[str, Any], status: int = 200) -> Response:
    """Escaped, since texts may hold half a character, which UTF-8 cannot."""
    return Response(json.dumps(content, allow_nan=False), status, media_type=JSON)


@dataclass(frozen=True)
class Ranked:
    """A class in both rankings; ranks count from 1, and are None where there is no ranking before."""

    class_name: str
    after: float
    after_rank: int
    before_rank: int | None = None
    before: float | None = None
    similarity: float | None = None


@dataclass(frozen=True)
class Neighbour:
    """A sample of the run whose vector was kept, and how near it is to the one that was asked about."""

    text: str
    class_name: str
    source: Source
    image: bool
    similarity: float = 0.0
    id: str = ""


@dataclass(frozen=True)
class Explanation:
    """The best classes of either ranking, the most probable first; the nearest samples, the nearest first."""

    classes: tuple[Ranked, ...]
    given: tuple[Neighbour, ...]
    synthetic: tuple[Neighbour, ...]
    compared_with: str | None  # descriptions or class means; None without a ranking before
    without: tuple[str, ...] = ()  # classes that have no place before: nothing of them was kept
    unknown_share: float | None = None  # of inputs like the given ones look as strange; None: not strange
    temperature: float = TEMPERATURE


class StoredVectors:
    """The kept vectors of a run, ready to compare a new one with."""

    def __init__(
        self,
        samples: Sequence[Neighbour],
        vectors: NDArray[np.float16],  # (n, d), rows of `samples`
        described: NDArray[np.float16],  # (K, d), or no rows; fewer where the last classes were added later
        classes: Sequence[str],
    ) -> None:
        self.compared_with = "descriptions" if len(described) else "class means"
        self._samples, wide = samples, vectors.astype(np.float32)
        self._centre = wide.mean(axis=0) if len(wide) else np.zeros(wide.shape[1], np.float32)  # (d,)
        self._directions = _units(wide - self._centre)  # (n, d)
        anchors = np.zeros((len(classes), wide.shape[1]), np.float32)
        if len(described):
            anchors[: len(described)] = described
        else:
            place_of = {name: i for i, name in enumerate(classes)}
            for sample, vector in zip(samples, wide, strict=True):
                if sample.source == "given" and sample.class_name in place_of:
                    anchors[place_of[sample.class_name]] += vector
        self._anchors = _units(anchors)  # (K, d)
        self.without = tuple(name for name, row in zip(classes, anchors, strict=True) if not row.any())

    @classmethod
    def of(cls, directory: Path, classes: Sequence[str]) -> StoredVectors | None:
        """Those of the run in `directory`; None where it kept no vectors, or of other samples or classes.

        What was added since the fit has none, and does not keep the rest from being compared. Very large runs
        keep no vectors.
        """
        vectors = read_vectors(directory)
        if vectors is None or not len(vectors.given) + len(vectors.described):
            return None
        if not (directory / TASK).exists():
            return None
        synthetic = _synthetic(directory)
        if (len(vectors.digests), len(vectors.synthetic)) != (len(vectors.given), len(synthetic)):
            return None
        # Examples may have come, gone and changed their class since the fit that left the vectors.
        given = {sample_digest(sample): sample for sample in read_task(directory).samples}
        rows = [row for row, digest in enumerate(vectors.digests) if digest in given]
        known = [given[vectors.digests[row]] for row in rows]
        samples = [Neighbour(s.text, s.class_name, "given", s.image is not None) for s in known]
        # So may classes have been added to the model, each after those that were there.
        added = read_summary(directory).get("added", ()) if is_run(directory) else ()
        kept = [name for name in classes if name not in added]
        if len(vectors.described) not in (0, len(kept)) or list(classes[: len(kept)]) != kept:
            return None
        both = np.concatenate([vectors.given[rows], vectors.synthetic])
        return cls([*samples, *synthetic], both, vectors.described, classes)

    def similarities(self, pooled: Floats) -> Floats:  # (d,) -> (K,)
        """The cosine with every class; NaN for a class that has neither wording nor sample."""
        cosines = self._anchors @ _units(pooled)
        return np.where(self._anchors.any(axis=1), cosines, np.nan).astype(np.float32)

    def nearest(self, pooled: Floats, source: Source) -> tuple[Neighbour, ...]:
        """The given or the synthetic samples with the largest centred cosine."""
        cosines = self._directions @ _units(pooled - self._centre)  # (n,)
        order = np.argsort(-cosines, kind="stable").tolist()
        best = islice((row for row in order if self._samples[row].source == source), NEAREST)
        near = ((self._samples[row], float(cosines[row])) for row in best)
        return tuple(replace(s, similarity=cosine, id=sample_id(s.class_name, s.text)) for s, cosine in near)


def explained(inference: Inference, stored: StoredVectors | None, row: HasText) -> Explanation:
    """Embed a row once and say what there is to say."""
    classes = inference.classifier.classes
    extra = () if stored is None else pooled_view(inference)
    views = inference.views([row], extra)
    logits = inference.classifier.logits(views, [row.text])  # (1, K)
    unknown_share = _unknown_share(inference, logits)
    after = softmax(logits)[0].astype(np.float64)
    if stored is None or not extra:
        ranked = _ranked(classes, after, np.full(len(classes), np.nan, np.float32))
        return Explanation(ranked, (), (), None, unknown_share=unknown_share)
    pooled = views[extra[0]][0].astype(np.float32)
    return Explanation(
        _ranked(classes, after, stored.similarities(pooled)),
        stored.nearest(pooled, "given"),
        stored.nearest(pooled, "synthetic"),
        stored.compared_with,
        stored.without,
        unknown_share,
    )


def _unknown_share(inference: Inference, logits: Floats) -> float | None:
    """How rare an answer like this is among inputs like the given samples; None where it is not rare."""
    confidence = inference.classifier.confidence
    if confidence is None or confidence.n < FEWEST:
        return None
    share = min(KNOWN, confidence.n / (confidence.n + 1))
    strange = strangeness(logits)[0] > confidence.threshold("strangeness", share)
    return 1 - share if strange else None


def pooled_view(inference: Inference) -> tuple[str, ...]:
    """The view whose vectors a run keeps; none where nothing is embedded."""
    if inference.embedder is None:
        return ()
    recipe: Any = inference.classifier.metadata.get("recipe")
    names = (recipe.get("views") if isinstance(recipe, dict) else None) or inference.embedder.views
    return (_POOLED if _POOLED in names else names[0],)


def _ranked(classes: Sequence[str], after: NDArray[np.float64], similarities: Floats) -> tuple[Ranked, ...]:
    """The best classes of either ranking; a class whose similarity is NaN has no place before."""
    known = np.flatnonzero(~np.isnan(similarities))
    order_before = known[np.argsort(-similarities[known], kind="stable")].tolist()
    rank_before = {c: rank for rank, c in enumerate(order_before, 1)}
    before = np.full(len(classes), np.nan, np.float32)
    if len(known):
        before[known] = softmax(similarities[None, known] / TEMPERATURE)[0]
    ranked = []
    for rank, c in enumerate(np.argsort(-after, kind="stable").tolist(), 1):
        if min(rank, rank_before.get(c, rank)) > SHOWN:
            continue
        one = Ranked(classes[c], float(after[c]), rank)
        if c in rank_before:
            similarity = float(similarities[c])
            one = replace(one, before_rank=rank_before[c], before=float(before[c]), similarity=similarity)
        ranked.append(one)
    return tuple(ranked)


def _synthetic(directory: Path) -> list[Neighbour]:
    """In the order of their file, which is that of their vectors."""
    file = directory / SYNTHETIC
    try:
        # Texts may hold other characters that Python takes for the end of a line.
        lines = file.read_bytes().decode("utf-8", "surrogatepass").split("\n")
        rows = [json.loads(line) for line in lines if line]
        return [Neighbour(row["text"], row["label"], "synthetic", "image" in row) for row in rows]
    except (OSError, ValueError, KeyError, TypeError):
        raise RunError(f"{place(file)}: cannot be read; fit again to write it") from None


def _units(x: Floats) -> Floats:  # (..., d)
    units: Floats = x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), _SMALLEST)
    return units
