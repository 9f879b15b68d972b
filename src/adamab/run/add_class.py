"""A class for a classifier that is there already: embedded, given its rows, written; nothing is trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from adamab.errors import EmbedderError, TaskError, short
from adamab.model import Classifier, save
from adamab.model.classifier import WORDS
from adamab.model.new_class import NewClass, NewClassModel, load_new_class_model, save_new_class_model
from adamab.model.predictor import Inference
from adamab.model.storage import JOURNAL
from adamab.providers.registry import HasText, keeping_vectors
from adamab.providers.sqlite_file import WriterLock
from adamab.run import directory as folder
from adamab.run.classes import Addition as Addition
from adamab.run.classes import with_class, write_edited
from adamab.run.directory import read_task
from adamab.task.spec import ClassSpec

if TYPE_CHECKING:
    from adamab.model.heads import Rows
    from adamab.providers.embedders.base import Embedder


@dataclass(frozen=True)
class Added:
    """What was added."""

    name: str
    classes: int  # in all
    examples: int
    repeats: int  # examples that were left out, because they say the same as another
    overlong: int


def extended(
    model: Inference, side: NewClassModel, spec: ClassSpec, examples: Sequence[HasText]
) -> Classifier:
    """The model's classifier with one more class, whose wording and examples are embedded for it.

    Args:
        model: the classifier with its embedder.
        side: what gives the class its rows.
        spec: the new class.
        examples: its samples, which may be none where descriptions count.

    Returns:
        A new classifier, in which the class is the last.
    """
    classifier = model.classifier
    if spec.name in classifier.classes:
        raise TaskError(f"class {short(spec.name)} is there already; name another, or fit again to change it")
    needed, texts = side.described_views(classifier), [row.text for row in examples]
    wording = side.class_text(spec.name, spec.description, texts)
    if not examples and not any(head.described for head in side.heads):
        raise TaskError("the model knows classes by their examples only; give some of the new class")
    described: dict[str, Rows] = dict(model.class_views((wording, spec.name), needed))
    if lacking := [view for view in needed if view not in described]:
        raise EmbedderError(
            f"{model.embedder} has no vector of class {short(spec.name)} for view {lacking[0]!r}; "
            "add one for its name or its wording"
        )
    embedded: dict[str, Rows] = dict(model.views(examples)) if examples else {}
    if classifier.vocabulary is not None:
        described[WORDS] = classifier.vocabulary.transform([wording])
        embedded[WORDS] = classifier.vocabulary.transform(texts)
    new = NewClass(name=spec.name, described=described, examples=embedded, n=len(examples))
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

    The classifier is written last; a process that is killed before has to be started again.

    Args:
        path: the run's directory.
        addition: the class, its examples, and the user's own prices.
        embedder: another name or object for the run's embedder; None opens the one that it remembers.
        cache: use vectors that are in the shared cache, and leave it some.
        on_calls: called with the number of texts or images that an embedder behind an API will be sent.

    Returns:
        What was added.
    """
    folder.read_summary(path)  # refuses what is no run
    with ExitStack() as held:
        held.callback(WriterLock(path).release)
        model = Inference.open(path, embedder, cache=cache)
        if model.embedder is not None:  # what is bought here is bought for the fit as well
            model = Inference(model.classifier, keeping_vectors(model.embedder, path / folder.VECTORS))
        side = load_new_class_model(path, model.classifier)
        before, spec = read_task(path), ClassSpec(addition.name, addition.description)
        task = with_class(before, addition)
        examples = task.samples_of(spec.name)
        if model.embedder is not None and model.remote:  # its calls count in the run's budget
            from adamab.providers.metering import CallContext, Ledger
            from adamab.run.run_log import budget_of_run, prices_of_run

            on_calls(len(examples) + bool(side.described_views(model.classifier)))
            budget = budget_of_run(path)
            ledger = held.enter_context(Ledger(budget, path / JOURNAL))
            prices = {**prices_of_run(path), **addition.prices}
            held.enter_context(CallContext(budget, prices, ledger).connected(model.embedder, None))
        grown = extended(model, side, spec, examples)
        write_edited(path, before, task)
        folder.note_added(path, addition.name)
        save_new_class_model(side, path, model.classifier, grown)
        save(grown, path)
    repeats = len(addition.examples) - len(examples)
    return Added(addition.name, len(grown.classes), len(examples), max(repeats, 0), model.overlong)
