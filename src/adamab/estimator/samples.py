"""The estimator of raw texts and pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from adamab.classifier import Answers, Asked
from adamab.classifier.answers import warn_of_too_few
from adamab.classifier.classifier import WORDS
from adamab.errors import TaskError
from adamab.estimator.inputs import (
    by_name,
    check_labels,
    images_of,
    labels_of,
    new_label,
    prices_of,
    recipe_of,
    seed_of,
    sets_of,
    task_of,
    texts_of,
)
from adamab.estimator.keeping import KeptEstimator, opened
from adamab.providers.budget import Budget
from adamab.providers.embedders.base import Embedder
from adamab.providers.generators.base import Generator
from adamab.providers.image_store import ImageStore, temporary_store
from adamab.run import torch_required
from adamab.run.add_class import extended
from adamab.run.directory import spending
from adamab.run.inference import Inference
from adamab.run.progress import progress, round_counter
from adamab.run.resolve import open_embedder, open_generator, shared_images, shared_replies
from adamab.task.recipe import Recipe
from adamab.task.spec import ClassSpec, Modality, Sample

Floats = NDArray[np.float32]


class ADAMABClassifier(ClassifierMixin, KeptEstimator):  # type: ignore[misc]
    """A classifier for raw texts or pictures with any embedder and, if there is one, any generator.

    Parameters
    ----------
    embedder : a spec such as "local", "st:PATH" or "openai:MODEL", or an `Embedder`
    generator : a spec such as "openai:MODEL" or "replay:FILE", or a `Generator`; None generates nothing
    policy : "adamab", "tight", "greedy", "random", "round-robin" or "none"
    recipe : a preset's name or a `Recipe`
    budget : caps such as "200 samples, 1.50 usd, 500 calls", or a number of samples; None leaves the
        number of samples to the recipe and caps nothing
    prices : your prices by model, in usd a million tokens, such as {"my-model": "0.15/0.60"}
    prefetch : batches to fetch from an API before the policy asks for them
    device : where torch trains and scores: "auto" (a graphics card if there is one), "cpu", "cuda", "mps"
    modality : "text", or "image" where X holds paths of pictures
    random_state : seed of everything random
    cache : keep vectors and answers on disk, so that nothing is bought twice
    verbose : show a bar while it is fitted, in terminals and notebooks

    Attributes
    ----------
    classes_ : the labels, sorted
    classifier_ : the `Classifier`, NumPy only
    history_ : one record a round; of a run that was loaded, too
    estimate_ : out-of-fold accuracy on the given samples, or None; of a run that was loaded, too
    spent_ : calls, tokens and usd, in all, by purpose and by class

    Examples
    --------
    >>> from adamab import ADAMABClassifier
    >>> from adamab.testing import HashEmbedder
    >>> texts = ["cash back please", "refund my cash", "great product", "really great work"]
    >>> clf = ADAMABClassifier(HashEmbedder(), random_state=0)
    >>> clf.fit(texts, ["refund", "refund", "praise", "praise"]).predict(["refund please"])
    array(['refund'], dtype='<U6')
    """

    def __init__(
        self,
        embedder: str | Embedder = "local",
        *,
        generator: str | Generator | None = None,
        policy: str = "adamab",
        recipe: str | Recipe = "default",
        budget: Budget | int | str | None = None,
        prices: Mapping[str, str] | None = None,
        prefetch: int = 4,
        device: str = "auto",
        modality: Modality = "text",
        random_state: int | None = None,
        cache: bool = True,
        verbose: bool = False,
    ) -> None:
        self.embedder = embedder
        self.generator = generator
        self.policy = policy
        self.recipe = recipe
        self.budget = budget
        self.prices = prices
        self.prefetch = prefetch
        self.device = device
        self.modality = modality
        self.random_state = random_state
        self.cache = cache
        self.verbose = verbose

    def fit(
        self,
        X: Sequence[str] | Sequence[PathLike[str]],
        y: ArrayLike,
        *,
        descriptions: Mapping[Any, str] | None = None,
    ) -> Self:
        """Fit on texts or paths and their labels; `descriptions` says what a label means, in a sentence."""
        with torch_required():
            from adamab.run.fit import fit_task, settled
            from adamab.run.outside import Outside
        budget = Budget.parse(self.budget)
        rows, labels = self._rows(X), np.asarray(y)
        if len(rows) != len(labels):
            raise TaskError(f"{len(rows)} {self.modality}s and {len(labels)} labels; give one label each")
        check_labels(labels)
        classes = np.unique(labels)
        seed = seed_of(self.random_state)
        task = task_of(rows, labels, classes, descriptions or {}, self.modality)
        recipe = recipe_of(self.recipe)
        rounds = settled(recipe, task, budget).n_rounds(len(classes))
        with progress("embedding the samples", quiet=not self.verbose) as bar:
            result = fit_task(
                task,
                self._open_embedder(),
                embedder_spec=self.embedder if isinstance(self.embedder, str) else "",
                generator=open_generator(self.generator, seed=seed),
                policy=self.policy,
                recipe=recipe,
                budget=budget,
                seed=seed,
                on_round=round_counter(bar, rounds),
                prefetch=self.prefetch,
                device=self.device,
                outside=Outside(
                    budget, prices_of(self.prices), replies=shared_replies() if self.cache else None
                ),
                images=self._image_store(),
            )
        self.classes_ = classes
        self.classifier_ = result.classifier
        self.class_side_ = result.class_side
        self.history_ = result.history
        self.estimate_ = result.estimate
        self.synthetic_ = result.synthetic
        self.spent_ = spending(result.spent)
        self._n_fitted = len(classes)  # those that are added come after them
        return self

    def add_class(
        self,
        name: Any,
        description: str | None = None,
        examples: Sequence[str] | Sequence[PathLike[str]] = (),
    ) -> Self:
        """Know one more label at once, by what it means, by examples, or better by both; nothing is trained.

        It comes last in `classes_`. A fit with its examples among the others' knows it better.
        """
        model = self._inference()
        label = new_label(name, self.classes_)
        spec = ClassSpec(str(label.tolist()[0]), description)
        rows = [replace(row, class_name=spec.name) for row in self._rows(examples)]
        if description is None and not rows:
            raise TaskError(f"label {spec.name!r} has neither a description nor an example; give one of them")
        self.classifier_ = extended(model, self._known_class_side(), spec, rows)
        self.classes_ = np.concatenate([self.classes_, label])
        return self

    def predict(
        self,
        X: Sequence[str] | Sequence[PathLike[str]],
        *,
        priors: Mapping[Any, float] | None = None,
        unknown: float | None = None,
    ) -> NDArray[Any]:
        """The most probable label of each text or picture; "unknown" for some, if `unknown` says how many.

        `priors` and `unknown` are those of `Classifier.predict`.
        """
        return labels_of(self, self._answers(X, Asked(priors=by_name(priors), unknown=unknown)))

    def predict_proba(
        self, X: Sequence[str] | Sequence[PathLike[str]], *, priors: Mapping[Any, float] | None = None
    ) -> Floats:
        """(n, K) probabilities, columns in the order of `classes_`; `priors` as in `Classifier`."""
        return self._inference().predict_proba(self._rows(X), priors=by_name(priors))

    def predict_sets(
        self, X: Sequence[str] | Sequence[PathLike[str]], *, coverage: float = 0.9
    ) -> list[NDArray[Any]]:
        """Labels of each text or picture of which one is right with that probability, the likeliest first."""
        return sets_of(self, self._answers(X, Asked.for_sets(coverage)))

    def embed(self, X: Sequence[str] | Sequence[PathLike[str]]) -> dict[str, Floats]:
        """What an exported model takes: a matrix (n, d) for each of its views, rows in the order of `X`.

        The view `words` is among them where the model has one, as a matrix that is mostly zeros.
        """
        model, rows = self._inference(), self._rows(X)
        views = model.views(rows)
        if (vocabulary := model.classifier.vocabulary) is not None:
            views[WORDS] = vocabulary.transform([row.text for row in rows]).toarray()
        return views

    def _answers(self, X: Sequence[str] | Sequence[PathLike[str]], asked: Asked) -> Answers:
        answers = self._inference().answers(self._rows(X), asked)
        warn_of_too_few(self.classifier_.confidence, asked)
        return answers

    def _inference(self) -> Inference:
        check_is_fitted(self)
        # Where words alone count, there is nothing to embed, and maybe no embedder.
        return Inference(self.classifier_, self._open_embedder() if self.classifier_.views else None)

    def _rows(self, X: Sequence[str] | Sequence[PathLike[str]]) -> list[Sample]:
        if self.modality == "text":
            return [Sample(text, "") for text in texts_of(X)]
        if self.modality != "image":
            raise TaskError(f"modality is {self.modality!r}; use 'text' or 'image'")
        return [Sample.of_image(image, "") for image in images_of(X)]

    def _image_store(self) -> ImageStore | None:
        if self.modality != "image":
            return None
        # The estimator keeps what was generated alive: its samples point there.
        self.image_store_ = temporary_store(shared=shared_images() if self.cache else None)
        return self.image_store_

    def _open_embedder(self) -> Embedder:
        return open_embedder(self.embedder, cache=self.cache)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.input_tags.one_d_array = True
        return tags


def load(directory: str | PathLike[str], *, embedder: str | Embedder | None = None) -> ADAMABClassifier:
    """A saved classifier as an estimator that predicts.

    The embedder that the model remembers is opened, or the one given; if it is not the one that the
    model was fitted with, `FingerprintError` says so now rather than at the first wrong prediction.
    """
    return opened(ADAMABClassifier, directory, embedder)
