"""A class for a classifier that is there already: embedded, given its rows, written; nothing is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from adamab.errors import EmbedderError, TaskError, short
from adamab.model import Classifier, save
from adamab.model.classifier import WORDS
from adamab.model.new_class import NewClass, NewClassModel, load_new_class_model, save_new_class_model
from adamab.model.predictor import Inference
from adamab.providers.registry import HasText, keeping_vectors
from adamab.providers.sqlite_file import WriterLock
from adamab.run import directory as folder
from adamab.run.directory import read_task, write_task
from adamab.task.spec import ClassSpec, Sample, Task

if TYPE_CHECKING:
    from adamab.model.heads import Rows
    from adamab.providers.embedders.base import Embedder
    from adamab.providers.metering import Price


@dataclass(frozen=True)
class Addition:
    """What somebody wants to add to a run."""

    name: str
    description: str | None = None
    examples: tuple[Sample, ...] = ()
    prices: Mapping[str, Price] = field(default_factory=dict)  # the user's own, by model


@dataclass(frozen=True)
class Added:
    """What has come of it."""

    name: str
    classes: int  # in all
    examples: int
    repeats: int  # examples that were left out, because they say the same as another
    overlong: int


def extended(
    model: Inference, side: NewClassModel, spec: ClassSpec, examples: Sequence[HasText]
) -> Classifier:
    """The model's classifier with one more class, whose wording and examples are embedded for it."""
    classifier = model.classifier
    if spec.name in classifier.classes:
        raise TaskError(f"class {short(spec.name)} is there already; name another, or fit again to change it")
    needed, texts = side.described_views(classifier), [row.text for row in examples]
    wording = side.class_text(spec.name, spec.description, texts)
    if not examples and not needed and classifier.vocabulary is None:
        raise TaskError("the model knows classes by their examples only; give some of the new class")
    described: dict[str, Rows] = dict(model.class_views((wording, spec.name), needed))
    if lacking := [view for view in needed if view not in described]:
        raise EmbedderError(
            f"{model.embedder} has no vector of class {short(spec.name)} for view {lacking[0]!r}; "
            "add one for its name or its wording"
        )
    shown: dict[str, Rows] = dict(model.views(examples)) if examples else {}
    if classifier.vocabulary is not None:
        described[WORDS] = classifier.vocabulary.transform([wording])
        shown[WORDS] = classifier.vocabulary.transform(texts)
    new = NewClass(name=spec.name, described=described, examples=shown, n=len(examples))
    return side.extended(classifier, new)


def add_class(
    path: Path,
    addition: Addition,
    *,
    embedder: str | Embedder | None = None,
    cache: bool = True,
    on_calls: Callable[[int], None] = lambda texts: None,
) -> Added:
    """Add a class to the run at `path`: to its classifier at once, and to its task for the next fit.

    `on_calls` is told how many texts or pictures an embedder behind an API is about to be asked for.
    The classifier is written last; a process that is killed before has to be started again.
    """
    folder.read_summary(path)  # refuses what is no run
    lock = WriterLock(path)
    try:
        model = _model(path, embedder, cache=cache)
        side = load_new_class_model(path, model.classifier)
        task = _grown(read_task(path), addition)
        spec, examples = task.classes[-1], task.samples_of(addition.name)
        if model.remote:
            on_calls(len(examples) + bool(side.described_views(model.classifier)))
        with _metered(path, model.embedder, addition.prices):
            grown = extended(model, side, spec, examples)
        write_task(path, task)
        folder.note_added(path, addition.name)
        save_new_class_model(side, path, model.classifier, grown)
        save(grown, path)
    finally:
        lock.release()
    repeats = len(addition.examples) - len(examples)
    return Added(addition.name, len(grown.classes), len(examples), max(repeats, 0), model.overlong)


def _model(path: Path, embedder: str | Embedder | None, *, cache: bool) -> Inference:
    model = Inference.open(path, embedder, cache=cache)
    if model.embedder is None:
        return model
    # What is bought here is bought for the fit as well.
    return Inference(model.classifier, keeping_vectors(model.embedder, path / folder.VECTORS))


def _grown(task: Task, addition: Addition) -> Task:
    """The run's task with the class as its last; one that a killed process has left there is replaced."""
    spec = ClassSpec(addition.name, addition.description)
    classes = tuple(known for known in task.classes if known.name != spec.name)
    samples = tuple(sample for sample in task.samples if sample.class_name != spec.name)
    return replace(task, classes=(*classes, spec), samples=(*samples, *addition.examples))


@contextmanager
def _metered(path: Path, embedder: Embedder | None, prices: Mapping[str, Price]) -> Iterator[None]:
    """Calls of an embedder behind an API count in the run's budget."""
    if embedder is None or embedder.api is None:
        yield
        return
    from adamab.providers.metering import Budget, CallContext, Ledger
    from adamab.run.resume import budget_from_json
    from adamab.run.run_log import SEGMENT, Journal

    with Journal(path) as journal:
        segments = list(journal.events(SEGMENT))
    budget = budget_from_json(segments[-1].data["inputs"]["budget"]) if segments else Budget()
    with (
        Ledger(budget, journal.path) as ledger,
        CallContext(budget, prices, ledger).connected(embedder, None),
    ):
        yield
