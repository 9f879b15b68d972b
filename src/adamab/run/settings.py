"""What a user says about a fit, and the one place where that becomes providers, caps and stores."""

from __future__ import annotations

import math
import os
import threading
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from adamab.errors import (
    AdamabError,
    EmbedderError,
    GeneratorError,
    RecipeError,
    RunError,
    TaskError,
    place,
    short,
)
from adamab.method.policies import make_policy
from adamab.providers.embedders.base import Embedder
from adamab.providers.generators.base import Generator, Settings
from adamab.providers.image_store import FOLDER as IMAGES
from adamab.providers.image_store import ImageStore, temporary_store
from adamab.providers.metering import Budget, CallContext, Ledger, Price
from adamab.providers.registry import (
    AUTO,
    embedder_for,
    open_embedder,
    open_generator,
    remembered,
    resolve_embedder,
    resolve_generator,
    shared_images,
    shared_replies,
)
from adamab.run import directory as folder
from adamab.run.gate import Holdout
from adamab.run.run_log import STARTED, Journal, budget_of_run
from adamab.task.image_folders import read_references
from adamab.task.languages import other_language
from adamab.task.recipe import Recipe
from adamab.task.spec import Task, join_spec, split_spec
from adamab.task.tables import read_texts

if TYPE_CHECKING:
    from adamab.providers.cache import Replies
    from adamab.providers.http import ApiClient

_REMEDY = {
    "image": "use one that does, such as clip:PATH-or-id or onnx:FILE",
    "text": "use one that does, such as local, or set modality: image",
}


class FitSettings(BaseModel):
    """Everything about a fit but its task; the command, the estimators and a run's journal say it so.

    Args:
        embedder: what turns samples into vectors: a spec such as "local", or what else `resolve_embedder`
            takes; "auto" is the built-in one for texts and the CLIP model of the hub's cache for images.
        embedder_spec: the string that `adamab predict` finds an embedder by that is an object.
        generator: what makes synthetic samples: a spec, or what else `resolve_generator` takes.
        policy: which class gets the next batch.
        recipe: every hyperparameter, the name of a preset, or a mapping of options; see `Recipe.of`.
        budget: caps such as "200 samples, 1.50 usd, 500 calls"; a number means samples. Without a cap on
            samples they are what the recipe's rounds ask for. None: the caps that a run had before.
        prices: the user's own by model, such as {"my-model": "0.15/0.60"}.
        seed: of everything random.
        all_scores: compute the exact score of every class in each round.
        prefetch: batches to fetch before the policy asks for them, so that waiting overlaps.
        holdout: samples that must not be among the synthetic ones, or the file that has them.
        reject: synthetic samples of the run to train without, or the file that has them.
        cache: use vectors, answers and generated images of other runs, and leave them some.
        run_dir: where the run is written as it happens; one that is there is resumed.
        overwrite: start over instead.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    embedder: str | Embedder = AUTO
    embedder_spec: str = ""
    generator: str | Generator = "none"
    policy: str = "adamab"
    recipe: Recipe = Field(default_factory=Recipe)
    budget: Budget | None = None
    prices: Mapping[str, Price] = Field(default_factory=dict)
    seed: int = 0
    all_scores: bool = False
    prefetch: int = 0
    holdout: str | Holdout | None = None
    reject: Path | tuple[str, ...] = ()
    cache: bool = False
    run_dir: Path | None = None
    overwrite: bool = False

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            first = error.errors()[0]
            original = first.get("ctx", {}).get("error")
            if isinstance(original, AdamabError):
                raise original from None
            name = ".".join(str(part) for part in first["loc"])
            raise RecipeError(f"setting {name!r}: {first['msg']} (got {short(first['input'])})") from None

    @field_validator("embedder", "generator", "recipe", "budget", "prices", mode="before")
    @classmethod
    def _parsed(cls, value: Any, field: ValidationInfo) -> Any:
        if field.field_name == "embedder":
            return value if isinstance(value, str) else resolve_embedder(value)
        if field.field_name == "generator":
            return value if isinstance(value, str) else resolve_generator(value) or "none"
        if field.field_name == "recipe":
            return Recipe() if value is None else Recipe.of(value)
        if field.field_name == "budget":
            return None if value is None else Budget.parse(value)
        return dict(
            (model, price) if isinstance(price, Price) else Price.parse(f"{model}={price}")
            for model, price in (value or {}).items()
        )


@dataclass(frozen=True)
class FitSetup:
    """A task with its settings, and what they name opened."""

    task: Task
    settings: FitSettings
    budget: Budget  # without a cap where none was named
    recipe: Recipe  # as the fit follows it: for the task's modality, and within the budget
    embedder: Embedder
    embedder_spec: str  # empty for an object without one
    generator: Generator | None
    generator_spec: str  # `none` where there is none
    holdout: Holdout | None
    reject: tuple[str, ...]
    images: ImageStore | None  # where generated images are put; None in a task of texts

    @property
    def apis(self) -> list[ApiClient | None]:
        """The clients that paid calls go through."""
        return [self.embedder.api, None if self.generator is None else self.generator.api]

    def call_context(
        self,
        *,
        journal: Journal | None = None,
        ledger: Ledger | None = None,
        replies: Replies | None = None,
        stop: threading.Event | None = None,
    ) -> CallContext:
        """What the calls are metered by, and where their answers are kept.

        Args:
            journal: of the run that the calls belong to.
            ledger: what they are counted in; a new one if None.
            replies: where answers are kept; None means the journal, then the cache if the settings use it.
            stop: set: no further call is begun.

        Returns:
            The caps and prices of the settings, with these.
        """
        if replies is None and self.generator is not None:
            from adamab.providers.cache import ChainedReplies

            replies = shared_replies() if self.settings.cache else None
            if journal is not None:
                replies = journal if replies is None else ChainedReplies(journal, replies)
        return CallContext(self.budget, self.settings.prices, ledger, replies, journal, stop)


def check_holdout(task: Task, holdout: Holdout) -> None:
    """Refuse a task whose own examples are among the samples to be kept out."""
    leaked = [sample for sample in task.samples if sample.text in holdout]
    if leaked:
        raise TaskError(
            f"{len(leaked)} of the given samples, the first of class {short(leaked[0].class_name)}, "
            f"are among the {task.modality}s of --holdout; take them out of the task or out of there"
        )


def set_up(task: Task, settings: FitSettings, *, images: ImageStore | None = None) -> FitSetup:
    """Open what the settings name, and check that it goes with the task.

    Args:
        task: classes, given samples and prompts.
        settings: a run that is resumed keeps its budget where they name none, and for images its embedder.
        images: where generated images are put, if neither in the run's directory nor in a temporary folder.

    Returns:
        What a fit, a dry run and a comparison start from.
    """
    budget = settings.budget or Budget()
    if settings.run_dir is not None:
        folder.check_place(settings.run_dir, overwrite=settings.overwrite)
        if not settings.overwrite and folder.has_journal(settings.run_dir):
            if settings.budget is None:
                budget = budget_of_run(settings.run_dir)
                if settings.generator == "none":
                    budget = replace(budget, samples=None)  # of a generator that is not asked any more
            if settings.embedder == AUTO and task.modality == "image":  # the cache may have others by now
                with suppress(RunError):
                    before = stored_settings(settings.run_dir, generator="none").embedder
                    settings = settings.model_copy(update={"embedder": before})
    make_policy(settings.policy, alpha=settings.recipe.alpha, relative=settings.recipe.relative_shift)
    holdout, reject = settings.holdout, settings.reject
    if isinstance(holdout, str):
        holdout = Holdout.read(holdout, task.modality)
    if isinstance(reject, Path):
        is_image = task.modality == "image"
        reject = tuple(read_references(reject) if is_image else (row.text for row in read_texts(reject)))
    if images is None and task.modality == "image":
        shared, run_dir = shared_images() if settings.cache else None, settings.run_dir
        images = ImageStore(run_dir / IMAGES, shared=shared) if run_dir else temporary_store(shared=shared)
    recipe = within_budget(settings.recipe.for_modality(task.modality), budget)
    if isinstance(settings.embedder, str):
        named = embedder_for(settings.embedder, task.modality)
        settings = settings.model_copy(update={"embedder": named})
    embedder = open_embedder(settings.embedder, cache=settings.cache)
    if task.modality not in embedder.modalities and embedder.cacheable:
        raise EmbedderError(f"{embedder} embeds no {task.modality}s; {_REMEDY[task.modality]}")
    check_language(task, settings.embedder)
    generator = open_generator(settings.generator, seed=settings.seed)
    generator_spec = "none"
    if generator is not None:
        if not generator.yields_vectors and generator.modality != task.modality:
            raise GeneratorError(
                f"the generator makes {generator.modality}s and the task is of {task.modality}s; "
                "name another with --generator"
            )
        # Its fingerprint depends on these settings.
        generator.configure(Settings(task.prompts, settings.seed, recipe, images))
        spec = settings.generator
        generator_spec = spec if isinstance(spec, str) else generator.fingerprint
    return FitSetup(
        task=task,
        settings=settings,
        budget=budget,
        recipe=recipe,
        embedder=embedder,
        embedder_spec=settings.embedder if isinstance(settings.embedder, str) else settings.embedder_spec,
        generator=generator,
        generator_spec=generator_spec,
        holdout=holdout,
        reject=reject,
        images=images,
    )


def check_language(task: Task, embedder: str | Embedder) -> None:
    """Warn where the built-in embedder, which knows English, would read another language."""
    if task.modality != "text" or not isinstance(embedder, str):
        return
    if split_spec(embedder)[0].partition(":")[0] != "local":
        return
    described = (spec.description for spec in task.classes if spec.description)
    language = other_language(chain((sample.text for sample in task.samples), described))
    if language is not None:
        warnings.warn(
            f"most texts seem to be in {language}, and the built-in embedder knows only English; use one "
            "that knows more, such as st:paraphrase-multilingual-MiniLM-L12-v2, st:intfloat/"
            "multilingual-e5-small or st:BAAI/bge-m3?revision=refs/pr/130 (they need the extra st)",
            stacklevel=3,
        )


def within_budget(recipe: Recipe, budget: Budget) -> Recipe:
    """A cap on samples sets the number of rounds that generate, unless the recipe fixes it."""
    if budget.samples is None or recipe.augmentation_rounds is not None:
        return recipe
    return recipe.with_options(augmentation_rounds=math.ceil(budget.samples / recipe.batch))


def store_settings(journal: Journal, run_dir: Path, settings: FitSettings) -> None:
    """Write down how the run was started, unless that is there already; see `stored_settings`.

    Args:
        journal: the run's journal.
        run_dir: the run's directory; the way from there to the working directory is kept as well.
        settings: what is written; embedders and generators only where they have a name to open them by.
    """
    embedder, generator, holdout = settings.embedder, settings.generator, settings.holdout
    data = {
        # Objects have no name to open them by, but for an embedder that was given one.
        "embedder": embedder if isinstance(embedder, str) else settings.embedder_spec or None,
        "generator": generator if isinstance(generator, str) else None,
        "holdout": holdout if isinstance(holdout, str) else None,
        "prices": {model: str(price) for model, price in settings.prices.items()},
        "policy": settings.policy,
        "recipe": settings.recipe.model_dump(mode="json"),
        "seed": settings.seed,
        "all_scores": settings.all_scores,
        "from": folder.path_between(run_dir, Path.cwd()),
    }
    last = journal.last(STARTED)
    if last is None or last.data != data:
        journal.note(STARTED, data)


def stored_settings(
    run_dir: Path, *, embedder: str | None = None, generator: str | None = None
) -> FitSettings:
    """How the run was started last; files that it names are found from anywhere.

    Args:
        run_dir: the run's directory, which may be somebody else's: see `remembered`.
        embedder: one that the user names now, in place of the run's.
        generator: the same.
    """
    if not folder.has_journal(run_dir):
        raise RunError(f"{place(run_dir)}: there is no run to go on with; name TASK")
    with Journal(run_dir) as journal:
        last = journal.last(STARTED)
    if last is None or None in (embedder or last.data["embedder"], generator or last.data["generator"]):
        raise RunError(
            f"{place(run_dir)}: does not say how it was started; name TASK, --embedder and --generator"
        )
    data = dict(last.data)
    base = Path(os.path.realpath(run_dir)) / data.pop("from")
    named: dict[Literal["embedder", "generator"], str | None] = {"embedder": embedder, "generator": generator}
    for what, spec in named.items():
        if spec is None:
            stored = remembered(data[what], what, place(run_dir), " to adamab fit")
            spec = _spec_from_here(stored, base)
        data[what] = spec
    holdout = data.pop("holdout")
    return FitSettings(
        **data
        | {"recipe": Recipe.model_validate(data["recipe"])}
        | {"holdout": holdout and (_path_from_here(holdout, base) or holdout)}
    )


def _spec_from_here(spec: str, base: Path) -> str:
    """A spec whose file was named from `base`, as it has to be named from here."""
    bare, options = split_spec(spec)
    kind, colon, name = bare.partition(":")
    path = _path_from_here(name, base) if colon else None
    return spec if path is None else join_spec(f"{kind}:{path}", options)


def _path_from_here(name: str, base: Path) -> str | None:
    """The file or folder that a relative name meant; None where there is none, as with a model's id."""
    path = base / name
    return None if not name or Path(name).is_absolute() or not path.exists() else os.path.relpath(path)
