"""The model that a server answers with: opened once, replaced whole, asked in batches."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adamab.classifier import Answerer, load
from adamab.classifier.answers import too_few
from adamab.classifier.files import DOCUMENT, read_document
from adamab.errors import AdamabError, ApiError, ModelFileError, TaskError
from adamab.run.directory import has_journal
from adamab.run.inference import Inference
from adamab.run.kept_task import read_task
from adamab.serving.models import rendered
from adamab.serving.pictures import Row
from adamab.serving.problems import Refused, invalid
from adamab.serving.questions import other_kind
from adamab.task.messages import one_line, place
from adamab.task.specs import split_spec

if TYPE_CHECKING:
    from collections.abc import Callable

    from adamab.classifier import Asked
    from adamab.providers.embedders.base import Embedder
    from adamab.serving.batching import Job
    from adamab.task.spec import Modality

_TRIES, _PAUSE = 10, 0.2  # a fit that ends at this moment replaces two files one after the other
_WARM_UP = "warm-up"


@dataclass(frozen=True)
class Model:
    """A classifier with its embedder, and what identifies it."""

    run: str
    digest: str
    inference: Inference

    @property
    def name(self) -> dict[str, str]:
        """What answers say about the model."""
        return {"run": self.run, "digest": self.digest}

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes' names."""
        return self.inference.classifier.classes


class Service:
    """Answers with the newest model that could be opened; a reload swaps it between two batches."""

    def __init__(
        self, run: Path, embedder: str | Embedder | None = None, *, log: Callable[[str], None]
    ) -> None:
        self.run, self._embedder, self._log = run, embedder, log
        self.started = time.monotonic()
        self.reloading = False
        self._lock = threading.Lock()
        self._model = self._first()

    @property
    def ready(self) -> bool:
        """Whether there is a model to answer with."""
        return self._model is not None

    @property
    def model(self) -> Model:
        """The one that answers; raises `Refused` while the run's first fit has not ended."""
        if self._model is None:
            raise Refused(
                503, "no_model", "the run's first fit has not ended; try again", {"Retry-After": "5"}
            )
        return self._model

    @property
    def modality(self) -> Modality:
        """What is classified."""
        return self._model.inference.modality if self._model is not None else read_task(self.run).modality

    def _first(self) -> Model | None:
        """None for a run that is being fitted for the first time: its page can be looked at already."""
        try:
            return self._opened(None)
        except ModelFileError:
            if has_journal(self.run) and not (self.run / DOCUMENT).exists():
                return None
            raise

    @property
    def embedder(self) -> str:
        """The embedder's name for strangers: without options, and of a path only its last part."""
        spec = str(self._embedder or self.model.inference.classifier.embedder_spec)
        kind, colon, rest = split_spec(spec)[0].partition(":")
        return f"{kind}{colon}{Path(rest).name if kind == 'npz' or Path(rest).is_absolute() else rest}"

    def digest_on_disk(self) -> str | None:
        """Of the model that the run holds now; None where there is none."""
        try:
            return _digest(self.run)
        except (ModelFileError, OSError):
            return None

    def reload(self) -> str:
        """Open what the run holds now: `changed`, `unchanged` or, where that failed, `failed`."""
        with self._lock:
            self.reloading = True
            try:
                return self._reload()
            finally:
                self.reloading = False

    def _reload(self) -> str:
        before = self._model
        try:
            model = self._opened(before)
        except Exception as error:  # whatever it is, the next reload must be tried
            why = (
                one_line(error)
                if isinstance(error, AdamabError)
                else f"{type(error).__name__}, {one_line(error)}"
            )
            what = "there is no model yet" if before is None else "the model from before stays"
            self._log(f"reload failed, {what}: {why}")
            return "failed"
        self._model = model
        if before is not None and model.digest == before.digest:
            self._log(f"reloaded {place(self.run)}: the model is the same as before")
            return "unchanged"
        self._log(f"reloaded {place(self.run)}: model {model.digest[:12]} ({len(model.classes)} classes)")
        return "changed"

    def _opened(self, before: Model | None) -> Model:
        for left in reversed(range(_TRIES)):
            try:
                digest = _digest(self.run)
                inference = self._inference(before)
                if _digest(self.run) == digest or not left:
                    break
            except ModelFileError:
                # While the server starts, whoever started it waits for the word that there is no model.
                if not left or before is None:
                    raise
            time.sleep(_PAUSE)
        _warm_up(inference)
        return Model(self.run.resolve().name, digest, inference)

    def _inference(self, before: Model | None) -> Inference:
        """With the embedder from before where it is the same: a second copy would need its memory."""
        if before is not None and (embedder := before.inference.embedder) is not None and embedder.cacheable:
            classifier, old = load(self.run), before.inference.classifier
            if (classifier.embedder_spec, classifier.fingerprint) == (old.embedder_spec, old.fingerprint):
                return Inference(classifier, embedder)
        return Inference.open(self.run, self._embedder, cache=False)

    def compute(self, jobs: Sequence[Job[bytes]]) -> list[bytes | Exception]:
        """One answer or refusal a job; all are embedded together, by one model."""
        model = self.model
        answers: list[bytes | Exception] = [_GONE] * len(jobs)
        admitted: dict[int, Answerer] = {}
        for number, job in enumerate(jobs):
            try:
                if not job.answer.cancelled():
                    admitted[number] = _answerer(model, job)
            except AdamabError as error:
                answers[number] = invalid(str(error))
            except Refused as refusal:
                answers[number] = refusal
        for number, answer in self._told(model, [(n, jobs[n], a) for n, a in admitted.items()]):
            answers[number] = answer
        return answers

    def _told(
        self, model: Model, asked: list[tuple[int, Job[bytes], Answerer]]
    ) -> list[tuple[int, bytes | Exception]]:
        if not asked:
            return []
        try:
            logits = model.inference.logits([row for _, job, _ in asked for row in job.rows])
        except Exception as error:
            if len(asked) > 1 and _may_be_one_rows_fault(error):
                return [told for one in asked for told in self._told(model, [one])]
            return [(number, self.failure(model, error)) for number, _, _ in asked]
        told: list[tuple[int, bytes | Exception]] = []
        start = 0
        for number, job, answerer in asked:
            block = logits[start : start + len(job.rows)]
            notes = _notes(model, job.asked)
            told.append((number, rendered(model.name, model.classes, answerer(block), notes)))
            start += len(job.rows)
        return told

    def failure(self, model: Model, error: Exception) -> Exception:
        """What the client is told: paths, hosts and keys are for the log."""
        if not isinstance(error, AdamabError):
            return error
        if model.inference.embedder is not None and not model.inference.embedder.cacheable:
            return invalid("the model's vectors were computed elsewhere, and there is none for this item")
        if isinstance(error, TaskError) or (isinstance(error, ApiError) and error.refused):
            return invalid("the embedder refuses an item of this request")
        self._log(f"an embedding failed: {one_line(error)}")
        return Refused(502, "embedder_failed", "the embedder failed; the server's log says why")


def _digest(run: Path) -> str:
    """Of the document, which holds the weights' digest."""
    return hashlib.sha256(read_document(run)).hexdigest()


_GONE = Refused(499, "gone", "the client has gone")


def _answerer(model: Model, job: Job[Any]) -> Answerer:
    """Refuses what this model cannot answer, before anything is embedded and paid for."""
    wanted, classifier = model.inference.modality, model.inference.classifier
    given = "text" if job.rows[0].image is None else "image"
    if given != wanted:
        raise other_kind(wanted)
    _check_top_k(job.asked, classifier.classes)
    return Answerer(classifier.classes, classifier.confidence, job.asked)


def _notes(model: Model, asked: Asked) -> list[str]:
    """Where too few samples were held out for a share that is asked for."""
    few = too_few(model.inference.classifier.confidence, asked)
    return [f"too few samples were held out to vouch for {share:g}, so {result}" for share, result in few]


def _check_top_k(asked: Asked, classes: Sequence[str]) -> None:
    if asked.k > len(classes):
        raise invalid(f"top_k: is {asked.k}, and the model has {len(classes)} classes")


def _may_be_one_rows_fault(error: Exception) -> bool:
    """Whether the other requests of a batch may do better alone; when a service is down, they do not."""
    return not isinstance(error, ApiError) or error.refused or error.too_large


def _warm_up(inference: Inference) -> None:
    """Load what is loaded at the first item, so that no client waits for it; costs nothing elsewhere."""
    embedder = inference.embedder
    if embedder is None or inference.remote or not embedder.cacheable:
        return
    if inference.modality == "text":
        inference.logits([Row(_WARM_UP)])
        return
    _warm_up_pictures(inference)


def _warm_up_pictures(inference: Inference) -> None:
    import tempfile

    import PIL.Image

    from adamab.task.images import Image, digest_of

    with tempfile.TemporaryDirectory(prefix="adamab-serve-") as folder:
        path = Path(folder) / "grey.png"
        PIL.Image.new("RGB", (64, 64), "grey").save(path)
        image = Image(digest_of(path.read_bytes()), path)
        inference.logits([Row(image.reference, image)])
