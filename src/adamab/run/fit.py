"""From a task of texts to a classifier: embed, augment, weigh the views, fold the result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adamab.classifier import Classifier, Head
from adamab.errors import RecipeError
from adamab.method.evidence import Estimate
from adamab.providers.embedders.base import Embedder
from adamab.providers.generators.base import Generator
from adamab.run.core import OnRound, fit_samples
from adamab.run.loop import Source
from adamab.run.records import History
from adamab.run.text_side import TextSide
from adamab.run.training_set import DescribedClasses, TrainingSet, WordsView
from adamab.task.recipe import Recipe
from adamab.task.spec import ClassSpec, Sample, Task
from adamab.task.words import Vocabulary
from adamab.version import __version__

Floats = NDArray[np.float32]
POOLED = "pooled"


@dataclass(frozen=True)
class FitResult:
    """The classifier and what happened on the way to it."""

    classifier: Classifier
    history: History
    synthetic: tuple[Sample, ...]
    estimate: Estimate | None  # of the given samples alone; None without folds
    closed: dict[str, str]  # class -> why it could give no more
    overlong: int  # texts longer than the embedder takes


def fit_task(
    task: Task,
    embedder: Embedder,
    *,
    embedder_spec: str = "",
    generator: Generator | None = None,
    policy: str = "adamab",
    recipe: Recipe | None = None,
    budget: int | None = None,
    seed: int = 0,
    all_scores: bool = False,
    on_round: OnRound | None = None,
) -> FitResult:
    """Fit a classifier for a task of texts.

    Args:
        task: classes, given samples, wording.
        embedder: what turns texts into vectors.
        embedder_spec: the string that names it, kept for `adamab predict`.
        generator: what writes synthetic samples; None for none.
        policy: which class gets the next batch.
        recipe: every hyperparameter; the preset `default` if None.
        budget: synthetic samples in all; what the recipe's rounds ask for if None.
        seed: of everything random.
        all_scores: compute the exact score of every class in each round.
        on_round: called with each record as it happens.
    """
    recipe = within_budget(recipe or Recipe(), budget)
    texts = TextSide(task, embedder, recipe)
    samples = texts.training_set()
    source = None if generator is None else _source(generator, task, texts, samples, recipe, budget)
    outcome = fit_samples(
        samples, recipe, source, policy, seed=seed, all_scores=all_scores, on_round=on_round
    )
    classifier = Classifier(
        classes=task.class_names,
        heads=outcome.heads,
        vocabulary=_vocabulary(samples, outcome.heads, recipe),
        embedder_spec=embedder_spec,
        fingerprint=embedder.fingerprint,
        query_prompt=task.prompts.query,
        metadata=_metadata(recipe, policy, seed, outcome.estimate),
    )
    synthetic = _synthetic(samples, task)
    closed = _closed(source, task.classes)
    return FitResult(classifier, outcome.history, synthetic, outcome.estimate, closed, texts.overlong)


def fit_vectors(
    vectors: Floats,  # (n, d)
    class_index: NDArray[np.int64],  # (n,)
    *,
    classes: Sequence[ClassSpec],
    class_vectors: Floats | None = None,  # (K, d)
    generator: Generator | None = None,
    policy: str = "adamab",
    recipe: Recipe | None = None,
    budget: int | None = None,
    seed: int = 0,
) -> FitResult:
    """Fit a classifier on vectors that were made elsewhere: one view, no texts."""
    recipe = within_budget(recipe or Recipe(), budget).with_options(words=False)
    side = None if class_vectors is None else DescribedClasses((), {POOLED: class_vectors})
    samples = TrainingSet(len(classes), lambda _: side, has_texts=False)
    samples.add(class_index.tolist(), {POOLED: vectors}, given=True)
    if generator is not None and not generator.yields_vectors:
        raise RecipeError("arrays need a generator of vectors, such as noise; this one writes texts")
    source = None if generator is None else Source(generator, None, classes, budget)
    outcome = fit_samples(samples, recipe, source, policy, seed=seed)
    classifier = Classifier(
        classes=tuple(spec.name for spec in classes),
        heads=outcome.heads,
        metadata=_metadata(recipe, policy, seed, outcome.estimate),
    )
    return FitResult(classifier, outcome.history, (), outcome.estimate, _closed(source, classes), 0)


def within_budget(recipe: Recipe, budget: int | None) -> Recipe:
    """A budget of samples sets the number of rounds that generate, unless the recipe fixes it."""
    if budget is None or recipe.augmentation_rounds is not None:
        return recipe
    return recipe.with_options(augmentation_rounds=math.ceil(budget / recipe.batch))


def _source(
    generator: Generator,
    task: Task,
    texts: TextSide,
    samples: TrainingSet,
    recipe: Recipe,
    budget: int | None,
) -> Source:
    generator.check(task.class_names)
    if not generator.yields_vectors:
        return Source(generator, texts.embed, task.classes, budget)
    if len(samples.views) > 1 or recipe.words:
        raise RecipeError(
            "this generator yields vectors of the pooled embedding, so the recipe may have no other view; "
            "set views=pooled and words=false"
        )
    samples.has_texts = False  # from here on a sample is its vector
    return Source(generator, None, task.classes, budget)


def _closed(source: Source | None, classes: Sequence[ClassSpec]) -> dict[str, str]:
    return {} if source is None else {classes[c].name: why for c, why in source.closed.items()}


def _vocabulary(samples: TrainingSet, heads: tuple[Head, ...], recipe: Recipe) -> Vocabulary | None:
    """The vocabulary that the words' head was fitted with, if there is such a head."""
    for view in samples.raw_views(recipe):
        if isinstance(view, WordsView) and any(head.view == view.name for head in heads):
            return view.vocabulary(np.ones(len(samples), dtype=np.bool_))
    return None


def _synthetic(samples: TrainingSet, task: Task) -> tuple[Sample, ...]:
    if not samples.has_texts:
        return ()
    rows, names = np.flatnonzero(~samples.given), task.class_names
    return tuple(Sample(samples.texts[i], names[samples.class_index[i]], "synthetic") for i in rows)


def _metadata(recipe: Recipe, policy: str, seed: int, estimate: Estimate | None) -> dict[str, Any]:
    return {
        "adamab": __version__,
        "recipe": recipe.model_dump(mode="json"),
        "policy": policy,
        "seed": seed,
        "out_of_fold": None if estimate is None else asdict(estimate),
    }
