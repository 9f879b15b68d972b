"""`adamab sweep`: a search for a better recipe by cross-validation on a task's given samples.

What is minimised is the mean loss of held-out samples, minus the logarithm of the true class's probability.
Accuracy would be too coarse: of sixty samples one more hit is 1.7 points, most recipes tie, and a sampler
that sees ties learns nothing. The loss moves with every sample. But it can fall while accuracy falls too, so
accuracy has a say before anything is recommended.

The best of many trials flatters. So the winner meets the first recipe again, on folds and with seeds that the
search did not use. The samples are the same, though, and part of the winner's luck may lie in them; so the
p-value of that examination is multiplied by the number of recipes that were tried (Bonferroni).

The directory of a sweep holds

optuna.jsonl   Optuna's journal: what the sweep is about, its trials, and one attribute per recipe and fold
sweep.json     the result, written at the end
best.yaml      the options of the best recipe
spending.db    the calls of an embedder behind an API, of all starts
writer.lock    held by the process that writes
"""

from __future__ import annotations

import json
import os
import shlex
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args, get_origin

import numpy as np
import yaml
from numpy.typing import NDArray

from adamab.display import Bar
from adamab.engines import Engine, WorkerMap
from adamab.errors import (
    RecipeError,
    RunError,
    StoppedError,
    TaskError,
    imported,
    one_line,
    os_errors,
    place,
    short,
    suggestion,
)
from adamab.evaluation.statistics import Bootstrap, Interval, paired_p, points
from adamab.model.storage import replace_file
from adamab.providers.async_bridge import run_sync
from adamab.providers.embedders.base import Embedder
from adamab.providers.embedders.stored import MemoryEmbedder
from adamab.providers.registry import embedder_key, open_embedder
from adamab.providers.sqlite_file import LOCK, WriterLock
from adamab.run.directory import task_digest
from adamab.run.resume import first_difference
from adamab.run.settings import FitSetup
from adamab.task import Sample, Task
from adamab.task.recipe import Recipe
from adamab.task.words import normalised_text

SamplerName = Literal["tpe", "random"]
Options: TypeAlias = Mapping[str, Any]  # what differs from the recipe that the search begins with
Floats: TypeAlias = NDArray[np.float64]

JOURNAL, REPORT, BEST, SPENDING = "optuna.jsonl", "sweep.json", "best.yaml", "spending.db"
HEADER = ("trial", "loss#", "accuracy, %#", "what differs from trial 0")
DEFINITION = 2  # of what a fold's row measures; raise it when that changes
BATCH = 4  # trials that are proposed together, however many can be worked out at once
REPEATS = 5  # cross-validations of the examination, each with folds of its own
LEVEL = 0.05
_LEAST = 1e-6  # probability: or one sample that was given none would decide everything
_SHOWN = 5  # of the best trials
_GO_ON = "what is in it is kept: run the same command again to go on"

# Options that change nothing where nothing is generated; `name` is not even one.
_OF_GENERATION = frozenset(
    {
        "name", "batch", "augmentation_rounds", "rounds_per_class", "alpha", "relative_shift", "difficulty",
        "max_batches_ahead", "synthetic_weight", "near_duplicate", "max_label_rank", "temperature",
        "prompt_examples", "contrast", "image_size", "image_quality", "max_refusals",
        "difficulty_prior", "contrast_share",
    }
)  # fmt: skip
# What users call the parts of `Search.identity`.
_LABELS = {name: f"--{name}" for name in ("embedder", "folds", "seed", "sampler")} | {
    "task": "task",
    "recipe": "recipe",
    "space": "--search",
    "definition": "version of what adamab measures",
}
_FORMS = "write FIELD=A,B,… or FIELD=LOW:HIGH or FIELD=LOW:HIGH:log, such as weight_ridge=0.3:30:log"


# What is searched.


@dataclass(frozen=True)
class Choices:
    """Some values."""

    values: tuple[Any, ...]

    def __contains__(self, value: object) -> bool:
        return value in self.values


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both of them too; whole ones where the option is a whole number."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high


Space: TypeAlias = Mapping[str, Choices | Range]


def default_space(setup: FitSetup) -> Space:
    """The options that matter where nothing is generated."""
    if not setup.recipe.refit:
        raise RecipeError("the usual options matter only with refit=true; name others with --search")
    views = setup.embedder.views
    off = Choices((True, False))
    space: dict[str, Choices | Range] = {}
    if len(views) > 1:
        space["views"] = Choices((None, (views[0],)))
    if setup.task.modality == "text":
        space["words"] = off
    if "text" in setup.embedder.modalities:  # class descriptions have vectors
        space["description_weight"] = Range(5.0, 80.0, log=True)
    space["centre"] = off
    space["example_weight"] = Range(10.0, 160.0, log=True)
    space["within_share"] = Range(0.5, 0.95)
    space["weight_ridge"] = Range(0.1, 10.0, log=True)
    space["calibrator"] = off
    return space


def parse_space(recipe: Recipe, texts: Sequence[str]) -> Space:
    """From `--search` as people write it.

    Args:
        recipe: the recipe that the values are checked with.
        texts: one option each, with its values or its range.

    Returns:
        The values or the range of each option.

    Example:
        >>> parse_space(Recipe(), ["weight_ridge=0.3:30:log", "words=true,false"])["words"]
        Choices(values=(True, False))
    """
    space: dict[str, Choices | Range] = {}
    for text in texts:
        name, equals, values = (part.strip() for part in text.partition("="))
        if not equals or not name or not values:
            raise RecipeError(f"--search {short(text)}: {_FORMS}")
        if name not in Recipe.model_fields:
            raise RecipeError(
                f"--search: the recipe has no option {short(name)}; {suggestion(name, Recipe.model_fields)}"
            )
        if name in _OF_GENERATION:
            raise RecipeError(
                f"--search {name}: matters only while samples are generated, which no sweep does"
            )
        space[name] = _range(recipe, name, values) if ":" in values else _choices(recipe, name, values)
    return space


def space_to_json(space: Space) -> dict[str, Any]:
    """Plain data, the same after a trip through JSON."""
    plain: dict[str, Any] = json.loads(json.dumps({name: asdict(part) for name, part in space.items()}))
    return plain


def in_words(part: Choices | Range) -> str:
    """As `--search` takes it."""
    if isinstance(part, Choices):
        return ",".join(setting(value, "+") for value in part.values)
    return f"{part.low:g}:{part.high:g}{':log' if part.log else ''}"


def setting(value: Any, between: str = ",") -> str:
    """A value as `--set` takes it.

    Args:
        value: of an option of the recipe.
        between: what separates the parts of a list.

    Returns:
        Its text.
    """
    if isinstance(value, list | tuple):
        return between.join(setting(item) for item in value)
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _choices(recipe: Recipe, name: str, text: str) -> Choices:
    values = [_checked(recipe, name, value.strip()) for value in text.split(",") if value.strip()]
    if len(set(values)) < 2:
        raise RecipeError(f"--search {short(f'{name}={text}')}: one value is no choice; {_FORMS}")
    return Choices(tuple(dict.fromkeys(values)))


def _range(recipe: Recipe, name: str, text: str) -> Range:
    low, high, log, *more = [*text.split(":"), ""] if text.count(":") == 1 else text.split(":")
    kinds = {Recipe.model_fields[name].annotation, *get_args(Recipe.model_fields[name].annotation)}
    if more or log not in ("", "log") or not kinds & {int, float}:
        raise RecipeError(f"--search {name}={text}: {_FORMS}; a range is for numbers")
    ends = [_checked(recipe, name, end.strip()) for end in (low, high)]
    if None in ends or ends[0] >= ends[1] or (log and ends[0] <= 0):
        raise RecipeError(f"--search {name}={text}: LOW must be below HIGH, and above zero with log")
    return Range(ends[0], ends[1], log=bool(log), whole=int in kinds)


def _checked(recipe: Recipe, name: str, text: str) -> Any:
    """The value as the recipe has it; a list is written with + between its parts."""
    value: object = text
    annotation = Recipe.model_fields[name].annotation
    if text.lower() in ("none", "null"):
        value = None
    elif any(get_origin(kind) is tuple for kind in (annotation, *get_args(annotation))):
        value = tuple(part.strip() for part in text.split("+"))
    return getattr(recipe.with_options(**{name: value}), name)


# What is fitted.


def folds_of(task: Task, n_folds: int, seed: int) -> NDArray[np.int64]:
    """The folds of a stratified cross-validation.

    The same text under another id is in the same fold: trained on, it would give the other away.

    Args:
        task: whose given samples are split.
        n_folds: how many folds.
        seed: of the assignment.

    Returns:
        (n,) the fold of each given sample.
    """
    rng = np.random.default_rng([seed, n_folds])
    folds = np.zeros(len(task.samples), dtype=np.int64)
    first: dict[str, int] = {}
    originals = [first.setdefault(normalised_text(sample.text), i) for i, sample in enumerate(task.samples)]
    for c in task.class_names:
        rows = [i for i in first.values() if task.samples[i].class_name == c]
        folds[rng.permutation(rows)] = (np.arange(len(rows)) + rng.integers(n_folds)) % n_folds
    return folds[originals]


def split(task: Task, held_out: NDArray[np.bool_]) -> tuple[Task, list[Sample]]:
    """Take samples out of a task.

    Args:
        task: whose samples are split.
        held_out: (n,) which samples to take out.

    Returns:
        The task without them, and these samples.
    """
    marked = list(zip(task.samples, held_out, strict=True))
    rest = replace(task, samples=tuple(sample for sample, held in marked if not held))
    return rest, [sample for sample, held in marked if held]


@dataclass(frozen=True)
class Search:
    """What is searched and how; a worker is handed it once."""

    task: Task
    vectors: MemoryEmbedder
    recipe: Recipe  # that of trial 0
    space: Space
    n_folds: int = 5
    trials: int = 30
    seed: int = 0
    sampler: SamplerName = "tpe"

    def folds(self, seed: int) -> NDArray[np.int64]:
        """(n,) the fold of each given sample; -1 for a class's only one, which is never held out."""
        counts = {name: len(self.task.samples_of(name)) for name in self.task.class_names}
        alone = np.array([counts[sample.class_name] < 2 for sample in self.task.samples], dtype=np.bool_)
        return np.where(alone, -1, folds_of(self.task, self.n_folds, seed))

    def cells(self, options: Options, seed: int) -> list[Cell]:
        """The fits that cross-validate a recipe: one for each fold that holds something out.

        Args:
            options: what differs from the first recipe.
            seed: of the folds and the fits.

        Returns:
            The cells.
        """
        text = json.dumps(dict(options), sort_keys=True)
        return [Cell(text, seed, int(fold)) for fold in np.unique(self.folds(seed)) if fold >= 0]

    @property
    def examination_seeds(self) -> range:
        """Seeds that the search does not use."""
        return range(self.seed + 1, self.seed + 1 + REPEATS)

    def n_fits(self) -> dict[str, int]:
        """Fits of the search, where a recipe that comes twice is fitted once, and of the examination."""
        return {
            "search": self.trials * len(self.cells({}, self.seed)),
            "examination": 2 * sum(len(self.cells({}, seed)) for seed in self.examination_seeds),
        }

    def identity(self) -> dict[str, Any]:
        """All that rows and proposals depend on; more trials may be asked for later."""
        return {
            "task": task_digest(self.task),
            "embedder": self.vectors.fingerprint,
            "recipe": self.recipe.model_dump(mode="json"),
            "space": space_to_json(self.space),
            "folds": self.n_folds,
            "seed": self.seed,
            "sampler": self.sampler,
            "definition": DEFINITION,
        }


class Cell(NamedTuple):
    """One fit: a recipe without one fold. `seed` is that of the folds and of the fit."""

    options: str  # JSON
    seed: int
    fold: int


class FoldScores(NamedTuple):
    """Of each held-out sample, in the task's order."""

    hits: list[int]
    losses: list[float]  # minus the logarithm of the true class's probability


def asks_while_fitting(task: Task, embedder: Embedder) -> bool:
    """Whether fits call an API: wordings that quote examples differ from fold to fold, also inside a fit.

    Args:
        task: whose prompts say whether wordings quote examples.
        embedder: of the fits.

    Returns:
        Whether vectors cannot all be computed beforehand.
    """
    return embedder.api is not None and task.prompts.with_examples


def vectors_for(task: Task, embedder: Embedder, spec: str) -> MemoryEmbedder:
    """A store of vectors, to be filled by `embed_all`.

    Args:
        task: that is searched.
        embedder: whose vectors these are.
        spec: what other processes open it by.

    Returns:
        An embedder that asks an API for more than it has only where it must.
    """
    more = embedder.api is None or asks_while_fitting(task, embedder)
    vectors = MemoryEmbedder(embedder, partial(open_embedder, spec) if more else None)
    vectors.api = None  # a fit would meter it again, and forget the budget of the sweep
    return vectors


def embed_all(search: Search, embedder: Embedder) -> None:
    """Compute the vectors of all samples and wordings once, before the first fit.

    Args:
        search: whose store is filled.
        embedder: what computes them.
    """
    task, known = search.task, search.vectors
    items = list(dict.fromkeys(embedder_key(sample, embedder, task.prompts) for sample in task.samples))
    known.put(items, "query", run_sync(embedder.embed(items, kind="query")))
    worded = [task.prompts.class_text(c, [s.text for s in task.samples_of(c.name)]) for c in task.classes]
    for wordings in (worded, task.class_names):  # stored vectors may have the names only
        if embedder.has(wordings).all():
            known.put(wordings, "class", run_sync(embedder.embed(wordings, kind="class")))
            break


def score(cell: Cell, search: Search) -> FoldScores:
    """Fit without the fold, then predict it.

    Args:
        cell: the recipe's options, the seed and the fold.
        search: what all fits share.

    Returns:
        Hits and losses of the held-out samples.
    """
    from adamab.run.fit import fit_task

    rest, held_out = split(search.task, search.folds(cell.seed) == cell.fold)
    recipe = search.recipe.with_options(**json.loads(cell.options))
    fit = fit_task(rest, search.vectors, policy="none", recipe=recipe, seed=cell.seed)
    items = [embedder_key(sample, search.vectors, rest.prompts) for sample in held_out]
    views = run_sync(search.vectors.embed(items)).views
    probabilities = fit.classifier.predict_proba(views, [sample.text for sample in held_out])  # (n, K)
    true = np.array([search.task.class_names.index(sample.class_name) for sample in held_out])
    # A fit that came to no number at all (fmax passes NaN over) is as bad as can be.
    losses = -np.log(np.fmax(probabilities[np.arange(len(true)), true].astype(np.float64), _LEAST))
    hits = np.argmax(probabilities, axis=1) == true
    return FoldScores(hits.astype(int).tolist(), (np.round(losses, 6) + 0.0).tolist())


# The search.


@dataclass(frozen=True)
class Trial:
    """A recipe that was tried, and how it did on held-out samples."""

    number: int
    options: Options
    loss: float
    accuracy: float


@dataclass(frozen=True)
class Examination:
    """The winner against trial 0: what it gains, sample by sample."""

    loss: Interval  # that of trial 0 minus the winner's
    accuracy: Interval  # the winner's minus that of trial 0
    p: float  # of no difference in loss, for the number of recipes tried

    def to_json(self) -> dict[str, Any]:
        """Plain data, rounded: the last digits of a sum depend on its order."""
        intervals = {"loss": self.loss, "accuracy": self.accuracy}
        plain = {name: [round(x, 6) for x in (i.mean, i.low, i.high)] for name, i in intervals.items()}
        return {**plain, "p": float(f"{self.p:.4g}")}

    def __str__(self) -> str:
        loss = f"{-self.loss.mean:+.3f} ({-self.loss.high:+.3f} to {-self.loss.low:+.3f})"
        return f"loss {loss}, accuracy {points(self.accuracy)}"


class Sweep:
    """A search in a directory; started again there, it resumes.

    The score of each recipe and fold is an attribute of Optuna's study, so none is computed twice.
    """

    _study: Any
    _map_items: WorkerMap
    _bar: Bar

    def __init__(self, search: Search, directory: Path) -> None:
        self.search, self.directory = search, directory
        self._scores: dict[Cell, FoldScores] = {}
        if not search.cells({}, search.seed):
            raise TaskError("no class has two examples, so none can be held out; give two or more per class")
        views = search.space.get("views")
        for view in [v for some in (views.values if isinstance(views, Choices) else ()) for v in some or ()]:
            if view not in search.vectors.views:  # now, and not when the sampler comes to it
                known = suggestion(view, search.vectors.views)
                raise RecipeError(f"--search views: the embedder has no {short(view)}; {known}")

    def run(
        self,
        *,
        engine: Engine | None = None,
        bar: Bar | None = None,
        prepare: Callable[[], None] = lambda: None,
    ) -> Outcome:
        """Fit what is missing, then judge.

        Args:
            engine: where the fits run; processes of this machine if None.
            bar: shows how many fits are done.
            prepare: called before the first fit, when the directory is known to be that of this sweep.

        Returns:
            All trials, the best of them, and whether it is worth a change.
        """
        self._bar = bar or Bar()
        with _open_study(self.directory, self.search) as self._study:
            prepare()
            attributes = self._study.user_attrs.items()
            kept = {name: scores for name, scores in attributes if name != "inputs"}
            self._scores = {Cell(*json.loads(name)): FoldScores(*scores) for name, scores in kept.items()}
            try:
                with (engine or Engine()).workers(score, self.search) as self._map_items:
                    return self._outcome(self._trials())
            except (KeyboardInterrupt, StoppedError):
                done = f"{len(self._scores)} fits are done and kept in {place(self.directory / JOURNAL)}"
                raise StoppedError(f"stopped; {done}: run the same command again to go on") from None

    def _trials(self) -> list[Trial]:
        """Trial 0 alone, so that every proposal can learn from it, then batches.

        A batch is proposed as a whole from the trials before it, and each trial has a random seed of its
        own: so proposals depend neither on who fits in which order, nor on how many trials are wanted. On
        resume they are proposed again, by a study in memory, and their scores are known.
        """
        search, optuna = self.search, need_optuna()
        samplers = {"tpe": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler}
        distributions = _distributions(search.space)
        memory = optuna.create_study(direction="minimize")
        self._bar.phase("searching", search.n_fits()["search"])
        self._measure([({}, search.seed)])
        trials = [self._trial(0, {})]
        params = _first_params(search)
        first = {"params": params, "distributions": distributions if params else {}}
        memory.add_trial(optuna.trial.create_trial(**first, value=trials[0].loss))
        while len(trials) < search.trials:
            proposed = []
            for number in range(len(trials), min(len(trials) + BATCH, search.trials)):
                seed = int(np.random.SeedSequence([search.seed, number]).generate_state(1)[0])
                memory.sampler = samplers[search.sampler](seed=seed)
                proposed.append(memory.ask(distributions))
            batch = [_options(search, trial.params) for trial in proposed]
            self._measure([(options, search.seed) for options in batch])
            for trial, options in zip(proposed, batch, strict=True):
                trials.append(self._trial(trial.number, options))
                memory.tell(trial, trials[-1].loss)
            self._study.add_trials(memory.get_trials()[len(self._study.get_trials()) :])
        return trials

    def _outcome(self, trials: Sequence[Trial]) -> Outcome:
        search = self.search
        best = min(trials, key=lambda trial: (trial.loss, trial.number))
        n = len(self._by_sample({}, search.seed)[0])
        if not best.options:
            return Outcome(search, tuple(trials), n, best, None, None)
        self._bar.phase("examining", search.n_fits()["examination"])
        self._measure(
            [(options, seed) for seed in search.examination_seeds for options in ({}, best.options)]
        )
        tried = len({str(sorted(trial.options.items())) for trial in trials if trial.options})
        searched, examined = (
            self._examination(best.options, seeds, tried)
            for seeds in ([search.seed], search.examination_seeds)
        )
        return Outcome(search, tuple(trials), n, best, searched, examined)

    def _measure(self, recipes: Sequence[tuple[Options, int]]) -> None:
        """Cross-validate recipes, each with the seed of its folds."""
        cells = list(dict.fromkeys(c for options, seed in recipes for c in self.search.cells(options, seed)))
        lacking = [cell for cell in cells if cell not in self._scores]
        self._bar.step(len(cells) - len(lacking))
        for cell, scores in self._map_items(lacking) if lacking else ():
            with os_errors(JOURNAL, "cannot be written", RunError, _GO_ON):
                self._study.set_user_attr(json.dumps(cell), list(scores))  # on the disk before anything else
            self._scores[cell] = scores
            self._bar.step()

    def _by_sample(self, options: Options, seed: int) -> tuple[Floats, Floats]:
        """(n,) losses and hits of the samples that are held out, in the task's order."""
        folds = self.search.folds(seed)
        losses, hits = np.full(len(folds), np.nan), np.full(len(folds), np.nan)
        for cell in self.search.cells(options, seed):
            held_out = folds == cell.fold
            hits[held_out], losses[held_out] = self._scores[cell]
        return losses[folds >= 0], hits[folds >= 0]

    def _trial(self, number: int, options: Options) -> Trial:
        losses, hits = self._by_sample(options, self.search.seed)
        return Trial(number, options, round(float(losses.mean()), 6), round(float(hits.mean()), 6))

    def _examination(self, options: Options, seeds: Sequence[int], tried: int) -> Examination:
        """Differences on the same samples and folds, one row per seed."""
        pairs = [(self._by_sample(options, seed), self._by_sample({}, seed)) for seed in seeds]
        losses = np.stack([first[0] - ours[0] for ours, first in pairs])  # (seeds, n)
        hits = np.stack([ours[1] - first[1] for ours, first in pairs])
        bootstrap = Bootstrap(*losses.shape)
        return Examination(bootstrap(losses), bootstrap(hits), min(1.0, tried * paired_p(losses)))


@dataclass(frozen=True)
class Outcome:
    """All trials, the best of them, and whether it is worth a change."""

    search: Search
    trials: tuple[Trial, ...]
    n_held_out: int  # samples
    best: Trial
    searched: Examination | None  # on the folds of the search, where it flatters; None if trial 0 is best
    examined: Examination | None  # on other folds

    @property
    def recommended(self) -> bool:
        """The loss is lower than that of trial 0 beyond chance, and accuracy is not."""
        return self._gains() and self.examined is not None and self.examined.accuracy.mean >= -1e-12

    def _gains(self) -> bool:
        return self.examined is not None and self.examined.loss.low > 0 and self.examined.p < LEVEL

    def command(self, fit: Sequence[str]) -> str:
        """What fits the recommended recipe, where `fit` fits what the search began with."""
        return shlex.join([*fit, *settings_of(self.best.options if self.recommended else {})])

    def to_json(self, fit: Sequence[str]) -> dict[str, Any]:
        """Plain data, without times: the same for every engine and after every stop."""
        search, task = self.search, self.search.task
        return {
            "task": task.name,
            "classes": len(task.classes),
            "samples": len(task.samples),
            "held_out": self.n_held_out,
            "folds": search.n_folds,
            "seed": search.seed,
            "sampler": search.sampler,
            "space": space_to_json(search.space),
            "best": self.best.number,
            "searched": None if self.searched is None else self.searched.to_json(),
            "examined": None if self.examined is None else self.examined.to_json(),
            "recommended": self.recommended,
            "command": self.command(fit),
            "trials": [asdict(trial) for trial in self.trials],
        }

    def write(self, directory: Path, fit: Sequence[str]) -> list[Path]:
        """Write everything as JSON, and the best options as YAML.

        Args:
            directory: of the sweep.
            fit: the command that fits what the search began with.

        Returns:
            The files.
        """
        note = "recommended" if self.recommended else "no clear gain over the recipe as it is"
        options = yaml.safe_dump(json.loads(json.dumps(self.best.options)))
        report = json.dumps(self.to_json(fit), indent=1, ensure_ascii=False)
        contents = {REPORT: f"{report}\n", BEST: f"# Trial {self.best.number}, {note}.\n{options}"}
        for name, text in contents.items():
            with os_errors(directory / name, "cannot be written"):
                replace_file(directory / name, text.encode())
        return [directory / name for name in contents]

    def table(self) -> list[tuple[str, ...]]:
        """The best trials and trial 0."""
        ordered = sorted(self.trials, key=lambda trial: (trial.loss, trial.number))
        return [_table_row(trial) for trial in ordered if trial in ordered[:_SHOWN] or trial.number == 0]

    def lines(self) -> list[str]:
        """What the figures come to."""
        if self.searched is None or self.examined is None:
            return ["No trial has a lower loss than trial 0: keep the recipe as it is."]
        verdict = "That may be chance: keep the recipe as it is."
        if self.recommended:
            verdict = "The gain stands: use it."
        elif self._gains():
            verdict = "The loss is lower, but accuracy is too: keep the recipe as it is."
        return [
            f"Trial {self.best.number} against trial 0 in the search, where the best of many flatters: "
            f"{self.searched}.",
            f"Examined on {REPEATS} x {self.search.n_folds} new folds: {self.examined}; "
            f"p = {self.examined.p:.2g} after correction for the recipes that were tried.",
            verdict,
        ]


def settings_of(options: Options) -> list[str]:
    """As the options `--set` of a command."""
    return [part for name in sorted(options) for part in ("--set", f"{name}={setting(options[name])}")]


def _table_row(trial: Trial) -> tuple[str, ...]:
    changed = ", ".join(f"{name}={setting(value)}" for name, value in sorted(trial.options.items()))
    same = "nothing" if trial.number else "the recipe as it is"
    return str(trial.number), f"{trial.loss:.3f}", f"{100 * trial.accuracy:.1f}", changed or same


# Optuna.


def need_optuna() -> Any:
    """The module, or the one line that says how to get it."""
    return imported("optuna", "Optuna, which proposes what a sweep tries,", "sweep")


@contextmanager
def _open_study(directory: Path, search: Search) -> Iterator[Any]:
    """The study of the sweep that was begun in a directory, or a new one; for this process alone."""
    optuna, journal = need_optuna(), directory / JOURNAL
    if not journal.exists() and any(not name.startswith(LOCK) for name in os.listdir(directory)):
        raise RunError(f"{place(directory)}: holds other files; name a new or an empty folder with --output")
    lock = WriterLock(directory)
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # it reports every trial
    try:
        study, identity = _loaded(optuna, journal), search.identity()
        inputs = study.user_attrs.get("inputs")
        if inputs is None:
            study.set_user_attr("inputs", identity)
        elif difference := first_difference(inputs, identity, _LABELS):
            raise RunError(
                f"{place(directory)}: holds a sweep with another {difference}; go on as it began, or name "
                "another --output"
            )
        yield study
    finally:
        lock.release()


def _loaded(optuna: Any, journal: Path) -> Any:
    try:
        if journal.exists():  # a last line that was cut off is the work of a process that was killed
            os.truncate(journal, journal.read_bytes().rfind(b"\n") + 1)
        # The directory is locked as a whole; Optuna's own lock file would outlive a killed process.
        backend = optuna.storages.journal.JournalFileBackend(str(journal), threading.Lock())
        return optuna.create_study(
            storage=optuna.storages.JournalStorage(backend),
            study_name="sweep",
            direction="minimize",
            load_if_exists=True,
        )
    except OSError as error:
        raise RunError(f"{place(journal)}: cannot be used ({error.strerror}); see --output") from None
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        raise RunError(
            f"{place(journal)}: is no journal of Optuna or is damaged ({one_line(error)}); name another "
            "--output"
        ) from None


def _first_params(search: Search) -> dict[str, Any]:
    """Those of the recipe as it is; none where it is outside the space, and no business of the sampler's."""
    values = {name: getattr(search.recipe, name) for name in search.space}
    if any(values[name] not in part for name, part in search.space.items()):
        return {}
    return {n: json.dumps(v) if isinstance(search.space[n], Choices) else v for n, v in values.items()}


def _distributions(space: Space) -> dict[str, Any]:
    kinds = need_optuna().distributions
    distributions = {}
    for name, part in space.items():
        if isinstance(part, Choices):  # as JSON: Optuna takes no tuples
            distributions[name] = kinds.CategoricalDistribution([json.dumps(v) for v in part.values])
        elif part.whole:
            distributions[name] = kinds.IntDistribution(int(part.low), int(part.high), log=part.log)
        else:
            distributions[name] = kinds.FloatDistribution(part.low, part.high, log=part.log)
    return distributions


def _options(search: Search, params: Mapping[str, Any]) -> dict[str, Any]:
    """What proposed parameters change; six digits are enough, and people can write them."""
    options = {}
    for name, param in params.items():
        part, value = search.space[name], param
        if isinstance(part, Choices):
            value = json.loads(param)
            value = tuple(value) if isinstance(value, list) else value
        elif not part.whole:
            value = min(max(float(f"{param:.6g}"), part.low), part.high)
        if value != getattr(search.recipe, name):
            options[name] = value
    return options
