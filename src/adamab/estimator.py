"""scikit-learn estimators: texts or pictures in (`ADAMABClassifier`), or arrays (`EmbeddingCalibrator`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, check_random_state, validate_data

from adamab.classifier import UNKNOWN, Answers, Asked, Classifier, save
from adamab.errors import TaskError
from adamab.providers.budget import Budget
from adamab.providers.embedders.base import Embedder
from adamab.providers.generators.base import Generator
from adamab.providers.image_store import ImageStore, temporary_store
from adamab.providers.prices import Price
from adamab.run import torch_required
from adamab.run.directory import spending
from adamab.run.inference import Inference
from adamab.run.resolve import open_embedder, open_generator, shared_images, shared_replies
from adamab.task.image_folders import image_at
from adamab.task.images import Image
from adamab.task.messages import checked
from adamab.task.recipe import Recipe
from adamab.task.spec import ClassSpec, Modality, Sample, Task

Floats = NDArray[np.float32]


class ADAMABClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
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
    modality : "text", or "image" where X holds paths of pictures
    random_state : seed of everything random
    cache : keep vectors and answers on disk, so that nothing is bought twice

    Attributes
    ----------
    classes_ : the labels, sorted
    classifier_ : the `Classifier`, NumPy only
    history_ : one record a round
    estimate_ : out-of-fold accuracy on the given samples, or None
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
        modality: Modality = "text",
        random_state: int | None = None,
        cache: bool = True,
    ) -> None:
        self.embedder = embedder
        self.generator = generator
        self.policy = policy
        self.recipe = recipe
        self.budget = budget
        self.prices = prices
        self.prefetch = prefetch
        self.modality = modality
        self.random_state = random_state
        self.cache = cache

    def fit(
        self,
        X: Sequence[str] | Sequence[PathLike[str]],
        y: ArrayLike,
        *,
        descriptions: Mapping[Any, str] | None = None,
    ) -> Self:
        """Fit on texts or paths and their labels; `descriptions` says what a label means, in a sentence."""
        with torch_required():
            from adamab.run.fit import fit_task
            from adamab.run.outside import Outside
        budget = Budget.parse(self.budget)
        rows, labels = self._rows(X), np.asarray(y)
        if len(rows) != len(labels):
            raise TaskError(f"{len(rows)} {self.modality}s and {len(labels)} labels; give one label each")
        _check_labels(labels)
        classes = np.unique(labels)
        seed = _seed(self.random_state)
        result = fit_task(
            _task(rows, labels, classes, descriptions or {}, self.modality),
            self._open_embedder(),
            embedder_spec=self.embedder if isinstance(self.embedder, str) else "",
            generator=open_generator(self.generator, seed=seed),
            policy=self.policy,
            recipe=_recipe(self.recipe),
            budget=budget,
            seed=seed,
            prefetch=self.prefetch,
            outside=Outside(budget, _prices(self.prices), replies=shared_replies() if self.cache else None),
            images=self._images(),
        )
        self.classes_ = classes
        self.classifier_ = result.classifier
        self.history_ = result.history
        self.estimate_ = result.estimate
        self.synthetic_ = result.synthetic
        self.spent_ = spending(result.spent)
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
        return _labels_of(self, self._answers(X, Asked(priors=_named(priors), unknown=unknown)))

    def predict_proba(
        self, X: Sequence[str] | Sequence[PathLike[str]], *, priors: Mapping[Any, float] | None = None
    ) -> Floats:
        """(n, K) probabilities, columns in the order of `classes_`; `priors` as in `Classifier`."""
        check_is_fitted(self)
        model = Inference(self.classifier_, self._open_embedder())
        return model.predict_proba(self._rows(X), priors=_named(priors))

    def predict_sets(
        self, X: Sequence[str] | Sequence[PathLike[str]], *, coverage: float = 0.9
    ) -> list[NDArray[Any]]:
        """Labels of each text or picture of which one is right with that probability, the likeliest first."""
        return _sets_of(self, self._answers(X, Asked(coverage=coverage)))

    def _answers(self, X: Sequence[str] | Sequence[PathLike[str]], asked: Asked) -> Answers:
        check_is_fitted(self)
        return Inference(self.classifier_, self._open_embedder()).answers(self._rows(X), asked)

    def save(self, directory: str | PathLike[str]) -> None:
        """Write the classifier as safetensors and JSON; `adamab.load` reads it.

        A classifier that is in `directory` already is replaced without a question.
        """
        check_is_fitted(self)
        labels = self.classes_.tolist()
        if not all(isinstance(label, (str, int, float, bool)) for label in labels):
            raise TaskError(f"labels of type {self.classes_.dtype} cannot be saved; use strings or numbers")
        classifier: Classifier = self.classifier_
        save(replace(classifier, metadata={**classifier.metadata, "labels": labels}), directory)

    def _rows(self, X: Sequence[str] | Sequence[PathLike[str]]) -> list[Sample]:
        if self.modality == "text":
            return [Sample(text, "") for text in _texts(X)]
        if self.modality != "image":
            raise TaskError(f"modality is {self.modality!r}; use 'text' or 'image'")
        return [Sample.of_image(image, "") for image in _images(X)]

    def _images(self) -> ImageStore | None:
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


class EmbeddingCalibrator(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The calibrator on vectors that you have already: one view, class means as the class side.

    Parameters
    ----------
    recipe : a preset's name or a `Recipe`; its views and words do not matter here
    policy, generator, budget : as in `ADAMABClassifier`; only generators of vectors such as "noise"
    random_state : seed of everything random

    Attributes
    ----------
    classes_, classifier_, history_, estimate_ : as in `ADAMABClassifier`
    n_features_in_ : width of the vectors

    Examples
    --------
    >>> import numpy as np
    >>> from adamab import EmbeddingCalibrator
    >>> X = np.array([[1, 0.1], [0.9, 0], [0, 1], [0.2, 0.8]])
    >>> EmbeddingCalibrator(random_state=0).fit(X, ["a", "a", "b", "b"]).predict([[0.7, 0.1]])
    array(['a'], dtype='<U1')
    """

    def __init__(
        self,
        *,
        recipe: str | Recipe = "default",
        policy: str = "adamab",
        generator: str | Generator | None = None,
        budget: int | str | None = None,
        random_state: int | None = None,
    ) -> None:
        self.recipe = recipe
        self.policy = policy
        self.generator = generator
        self.budget = budget
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, *, class_vectors: ArrayLike | None = None) -> Self:
        """Fit on vectors (n, d) and labels; `class_vectors` (K, d), in the order of the sorted labels,
        are embedded descriptions, if there are any."""
        with torch_required():
            from adamab.run.fit import fit_vectors
        vectors, labels = validate_data(self, X, y, dtype=np.float32)
        _check_labels(labels)
        self.classes_, class_index = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y has {len(self.classes_)} class; a classifier needs at least two")
        seed = _seed(self.random_state)
        result = fit_vectors(
            vectors,
            class_index,
            classes=[ClassSpec(str(label)) for label in self.classes_],
            class_vectors=None if class_vectors is None else self._class_vectors(class_vectors),
            generator=open_generator(self.generator, seed=seed),
            policy=self.policy,
            recipe=_recipe(self.recipe),
            budget=self.budget,
            seed=seed,
        )
        self.classifier_ = result.classifier
        self.history_ = result.history
        self.estimate_ = result.estimate
        return self

    def _class_vectors(self, class_vectors: ArrayLike) -> Floats:
        vectors = check_array(class_vectors, dtype=np.float32)
        expected = (len(self.classes_), self.n_features_in_)
        if vectors.shape != expected:
            raise ValueError(f"class_vectors has shape {vectors.shape}; one a label means {expected}")
        return np.asarray(vectors)

    def predict(
        self, X: ArrayLike, *, priors: Mapping[Any, float] | None = None, unknown: float | None = None
    ) -> NDArray[Any]:
        """The most probable label of each vector; `priors` and `unknown` as in `ADAMABClassifier`."""
        return _labels_of(self, self._answers(X, Asked(priors=_named(priors), unknown=unknown)))

    def predict_proba(self, X: ArrayLike, *, priors: Mapping[Any, float] | None = None) -> Floats:
        """(n, K) probabilities, columns in the order of `classes_`; `priors` as in `ADAMABClassifier`."""
        classifier, views = self._ready(X)
        return classifier.predict_proba(views, priors=_named(priors))

    def predict_sets(self, X: ArrayLike, *, coverage: float = 0.9) -> list[NDArray[Any]]:
        """Labels of each vector of which one is right with that probability, the likeliest first."""
        return _sets_of(self, self._answers(X, Asked(coverage=coverage)))

    def _answers(self, X: ArrayLike, asked: Asked) -> Answers:
        classifier, views = self._ready(X)
        return classifier.answers(views, None, asked)

    def _ready(self, X: ArrayLike) -> tuple[Classifier, dict[str, Floats]]:
        check_is_fitted(self)
        return self.classifier_, {"pooled": validate_data(self, X, dtype=np.float32, reset=False)}


def load(directory: str | PathLike[str], *, embedder: str | Embedder | None = None) -> ADAMABClassifier:
    """A saved classifier as an estimator that predicts.

    The embedder that the model remembers is opened, or the one given; if it is not the one that the
    model was fitted with, `FingerprintError` says so now rather than at the first wrong prediction.
    """
    model = Inference.open(directory, embedder)
    classifier = model.classifier
    estimator = ADAMABClassifier(embedder or classifier.embedder_spec, modality=model.modality)
    labels = classifier.metadata.get("labels")
    estimator.classes_ = np.array(labels if isinstance(labels, list) else list(classifier.classes))
    estimator.classifier_ = classifier
    return estimator


def _images(X: Sequence[Any]) -> list[Image]:
    if isinstance(X, str | PathLike):
        raise TaskError("X is one path; give a list of paths")
    for i, path in enumerate(X):
        if not isinstance(path, str | PathLike):
            raise TaskError(f"X[{i}] is {type(path).__name__}, not a path; give paths of pictures")
    return [image_at(Path(path)) for path in X]


def _texts(X: Sequence[Any]) -> list[str]:
    if isinstance(X, str):
        raise TaskError("X is one string; give a list of texts")
    texts = list(X)
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise TaskError(f"X[{i}] is {type(text).__name__}, not a text; ADAMABClassifier takes raw texts")
        checked(text, f"X[{i}]", "the text")
    return texts


def _check_labels(labels: NDArray[Any]) -> None:
    for i, label in enumerate(labels.tolist()):
        if label is None:
            raise TaskError(f"y[{i}] is None; give every sample a label or leave it out")
    check_classification_targets(labels)


def _task(
    rows: Sequence[Sample],
    labels: NDArray[Any],
    classes: NDArray[Any],
    descriptions: Mapping[Any, str],
    modality: Modality,
) -> Task:
    """The same as a task; labels of any type become names."""
    unknown = [label for label in descriptions if label not in classes]
    if unknown:
        raise TaskError(f"description of {unknown[0]!r}, which is not among the labels")
    specs = tuple(ClassSpec(str(label), descriptions.get(label)) for label in classes.tolist())
    samples = tuple(
        replace(row, class_name=str(label)) for row, label in zip(rows, labels.tolist(), strict=True)
    )
    return Task(specs, samples, modality=modality)


def _prices(prices: Mapping[str, str] | None) -> dict[str, Price]:
    return dict(Price.parse(f"{model}={price}") for model, price in (prices or {}).items())


def _recipe(recipe: str | Recipe) -> Recipe:
    return Recipe.preset(recipe) if isinstance(recipe, str) else recipe


def _seed(random_state: Any) -> int:
    """A seed from what scikit-learn allows: None, a number, or a RandomState."""
    if isinstance(random_state, (int, np.integer)):
        if not 0 <= random_state < 2**32:
            raise ValueError(f"random_state is {random_state}; give a number from 0 to 2**32 - 1")
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def _named(priors: Mapping[Any, float] | None) -> dict[str, float] | None:
    """By the names that the classifier has for the labels."""
    return None if priors is None else {str(label): share for label, share in priors.items()}


def _labels_of(estimator: Any, told: Answers) -> NDArray[Any]:
    labels: NDArray[Any] = estimator.classes_[told.indices[:, 0]]
    if told.unknown is None:
        return labels
    if labels.dtype.kind != "U":  # numbers leave no room for a word
        labels = labels.astype(object)
    return np.where(told.unknown, UNKNOWN, labels)


def _sets_of(estimator: Any, told: Answers) -> list[NDArray[Any]]:
    return [estimator.classes_[found] for found in told.sets or ()]
