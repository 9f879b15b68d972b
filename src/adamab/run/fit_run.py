"""A fit with a run directory: begin it or take it up, write its journal, leave its results."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from adamab.classifier import load
from adamab.errors import ModelFileError, RunError, StoppedError, TaskError
from adamab.providers.budget import Budget
from adamab.providers.embedders.base import Embedder
from adamab.providers.generators.base import Generator
from adamab.providers.image_store import FOLDER as IMAGES
from adamab.providers.image_store import ImageStore
from adamab.providers.prices import Price
from adamab.providers.replies import Replies
from adamab.run import directory as folder
from adamab.run.core import OnRound
from adamab.run.fit import configure, fit_task, settled
from adamab.run.holdout import Holdout
from adamab.run.inputs import Inputs, budget_from_json
from adamab.run.journal import SEGMENT, Journal
from adamab.run.kept_task import read_task, write_task
from adamab.run.outside import Outside
from adamab.run.resolve import keeping_vectors
from adamab.run.session import Session
from adamab.task.messages import place, short
from adamab.task.recipe import Recipe
from adamab.task.spec import Modality, Task
from adamab.task.words import folded
from adamab.torch_device import AUTO


@dataclass(frozen=True)
class Order:
    """Everything that a user asks for when a run is begun or taken up."""

    task: Task
    embedder: Embedder
    embedder_spec: str
    generator: Generator | None = None
    generator_spec: str = "none"
    policy: str = "adamab"
    recipe: Recipe = field(default_factory=Recipe)
    budget: Budget | None = None  # None: as before where a run is taken up, else no cap
    seed: int = 0
    all_scores: bool = False
    prefetch: int = 0
    device: str = AUTO  # where torch trains and scores; a run may be taken up on another
    holdout: Holdout | None = None
    holdout_path: str | None = None
    prices: Mapping[str, Price] = field(default_factory=dict)
    reject: tuple[str, ...] = ()
    shared_images: Path | None = None  # where generated pictures are kept for other runs

    def inputs(self) -> Inputs:
        """What must be the same when the run is taken up."""
        if self.generator is not None:  # its fingerprint tells its settings
            configure(self.generator, self.task, self.recipe, seed=self.seed)
        return Inputs.of(
            self.task,
            self.recipe,
            self.caps,
            policy=self.policy,
            seed=self.seed,
            embedder=self.embedder.fingerprint,
            generator="none" if self.generator is None else self.generator.fingerprint,
            holdout=None if self.holdout is None else self.holdout.digest,
        )

    @property
    def caps(self) -> Budget:
        """The budget; one without a cap where none was named."""
        return self.budget or Budget()

    def started(self) -> dict[str, Any]:
        """What `order_of` needs beside the run's inputs to start it again."""
        return {
            "embedder": self.embedder_spec,
            "generator": self.generator_spec,
            "holdout": self.holdout_path,
            "all_scores": self.all_scores,
            "prices": {model: str(price) for model, price in self.prices.items()},
        }

    def rounds(self) -> int:
        """Rounds in all."""
        return settled(self.recipe, self.task, self.caps).n_rounds(len(self.task.classes))

    def taken_up(self, path: Path) -> Order:
        """The order with the budget of the run that is there, if it names none itself."""
        if self.budget is not None or not folder.has_journal(path):
            return self
        with Journal(path) as journal:
            segments = list(journal.events(SEGMENT))
        if not segments:
            return self
        return replace(self, budget=budget_from_json(segments[-1].data["inputs"]["budget"]))


def fit_run(
    order: Order,
    path: Path,
    *,
    overwrite: bool = False,
    shared: Replies | None = None,
    stop: threading.Event | None = None,
    on_start: Callable[[Session], None] = lambda session: None,
    on_round: OnRound | None = None,
) -> dict[str, Any]:
    """Fit into a run directory and return the contents of its `fit.json`.

    A run that is there already is taken up: nothing that was bought is bought again. `shared` keeps
    answers beyond this run. When `stop` is set, the fit ends after the calls that are on their way.
    """
    started = time.perf_counter()
    folder.check_place(path, overwrite=overwrite)
    check_holdout(order.task, order.holdout)
    if not overwrite:
        order = order.taken_up(path)
        _check_added(order.task, path)
    with _session(order, path, overwrite=overwrite) as session:
        on_start(session)
        write_task(path, order.task)
        if session.complete and folder.has_results(path) and _is_sound(path):
            return {**folder.read_summary(path), "changes": [], "complete": True}
        images = _images(order, path)
        with _stopping(session, path):
            result = fit_task(
                order.task,
                keeping_vectors(order.embedder, path / folder.VECTORS),
                embedder_spec=order.embedder_spec,
                generator=order.generator,
                policy=order.policy,
                recipe=order.recipe,
                budget=order.caps,
                seed=order.seed,
                all_scores=order.all_scores,
                on_round=_until(stop, on_round),
                prefetch=order.prefetch,
                device=order.device,
                holdout=order.holdout,
                outside=_outside(order, session, shared, stop),
                trail=session.trail,
                images=images,
            )
        summary = folder.summarise(
            order.task,
            result,
            settled(order.recipe, order.task, order.caps),
            policy=order.policy,
            generator=order.generator_spec,
            budget=order.caps,
            seed=order.seed,
            seconds=time.perf_counter() - started,
        )
        folder.write_results(path, order.task, result, summary)
        session.finished({"synthetic": summary["synthetic"]})
        if images is not None and folder.has_set_aside(path):
            images.keep_only(session.journal.references())
        folder.drop_set_aside(path)
        return {**summary, "changes": session.changes, "complete": False}


def _is_sound(path: Path) -> bool:
    """Whether the classifier can be read; if not, it is written again, which costs no call."""
    try:
        load(path)
    except ModelFileError:
        return False
    return True


def _check_added(task: Task, path: Path) -> None:
    """A task file that lacks a class which the run's classifier has would take it away again."""
    added = folder.read_summary(path).get("added", []) if folder.is_run(path) else []
    if not added:
        return
    kept, known = read_task(path), {(s.class_name, folded(s.text)) for s in task.samples}
    for name in added:
        lost = [s for s in kept.samples_of(name) if (name, folded(s.text)) not in known]
        if name not in task.class_names or lost:
            what = "is not" if name not in task.class_names else "has examples that are not"
            raise RunError(
                f"class {short(name)} was added to this run with adamab add-class and {what} in the task; "
                f"leave TASK out (adamab fit --run {place(path)}), or write them into it"
            )


def check_holdout(task: Task, holdout: Holdout | None) -> None:
    """Refuse a task whose own examples are among the texts to be kept out."""
    leaked = [] if holdout is None else [s for s in task.samples if s.text in holdout]
    if leaked:
        raise TaskError(
            f"{len(leaked)} of the given samples, the first of class {short(leaked[0].class_name)}, "
            f"are among the {task.modality}s of --holdout; take them out of the task or out of there"
        )


def _session(order: Order, path: Path, *, overwrite: bool) -> Session:
    if order.generator is not None and order.generator.yields_vectors and order.reject:
        raise RunError("vectors have no text to reject them by; --reject is for runs of texts")
    return Session(path, order.inputs(), reject=order.reject, anew=overwrite, started=order.started())


def _images(order: Order, path: Path) -> ImageStore | None:
    if order.task.modality != "image":
        return None
    store = ImageStore(path / IMAGES, shared=order.shared_images)
    store.tidy()
    return store


def _outside(order: Order, session: Session, shared: Replies | None, stop: threading.Event | None) -> Outside:
    from adamab.providers.reply_cache import ChainedReplies

    replies = session.journal if shared is None else ChainedReplies(session.journal, shared)
    return Outside(order.caps, order.prices, session.ledger, replies, session.journal, stop)


def _until(stop: threading.Event | None, on_round: OnRound | None) -> OnRound:
    def told(record: Any) -> None:
        if on_round is not None:
            on_round(record)
        if stop is not None and stop.is_set():
            raise StoppedError("stopped")

    return told


@contextmanager
def _stopping(session: Session, path: Path) -> Iterator[None]:
    """Whatever ends a fit early, the journal has everything; say so where somebody meant to stop."""
    try:
        yield
    except (KeyboardInterrupt, StoppedError):
        session.stopped()
        raise KeyboardInterrupt(
            f"stopped; everything that was bought is in {place(path)}: run the same command again to go on"
        ) from None


def rejected_texts(path: Path, modality: Modality = "text") -> Iterable[str]:
    """The samples of a file that should not be trained on: texts, or references or paths of pictures."""
    from adamab.task.image_samples import read_references
    from adamab.task.samples import read_texts

    return read_references(path) if modality == "image" else [row.text for row in read_texts(path)]
