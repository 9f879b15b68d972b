"""The estimator of vectors that were made elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from adamab.classifier import Answers, Asked, Classifier
from adamab.classifier.answers import warn_of_too_few
from adamab.classifier.class_side import NewClass
from adamab.estimator.inputs import (
    by_name,
    check_labels,
    check_magnitude,
    labels_of,
    new_label,
    recipe_of,
    seed_of,
    sets_of,
)
from adamab.providers.generators.base import Generator
from adamab.run import torch_required
from adamab.run.resolve import open_generator
from adamab.task.recipe import Recipe
from adamab.task.spec import ClassSpec

Floats = NDArray[np.float32]


class EmbeddingCalibrator(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The calibrator on vectors that you have already: one view, class means as the class side.

    Parameters
    ----------
    recipe : a preset's name or a `Recipe`; its views and words do not matter here
    policy, generator, budget : as in `ADAMABClassifier`; only generators of vectors such as "noise"
    device : as in `ADAMABClassifier`
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
        device: str = "auto",
        random_state: int | None = None,
    ) -> None:
        self.recipe = recipe
        self.policy = policy
        self.generator = generator
        self.budget = budget
        self.device = device
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, *, class_vectors: ArrayLike | None = None) -> Self:
        """Fit on vectors (n, d) and labels; `class_vectors` (K, d), in the order of the sorted labels,
        are embedded descriptions, if there are any."""
        with torch_required():
            from adamab.run.fit import fit_vectors
        vectors, labels = validate_data(self, X, y, dtype=np.float32)
        check_magnitude(vectors)
        check_labels(labels)
        self.classes_, class_index = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y has {len(self.classes_)} class; a classifier needs at least two")
        seed = seed_of(self.random_state)
        result = fit_vectors(
            vectors,
            class_index,
            classes=[ClassSpec(str(label)) for label in self.classes_],
            class_vectors=None if class_vectors is None else self._class_vectors(class_vectors),
            generator=open_generator(self.generator, seed=seed),
            policy=self.policy,
            recipe=recipe_of(self.recipe),
            budget=self.budget,
            seed=seed,
            device=self.device,
        )
        self.classifier_ = result.classifier
        self.class_side_ = result.class_side
        self.history_ = result.history
        self.estimate_ = result.estimate
        return self

    def add_class(self, label: Any, X: ArrayLike, *, class_vector: ArrayLike | None = None) -> Self:
        """Know one more label at once, by vectors (n, d) of its samples; nothing is trained.

        Where `fit` had `class_vectors`, a vector (d,) of the new description is needed as well.
        """
        check_is_fitted(self)
        vectors = validate_data(self, X, dtype=np.float32, reset=False)
        new, described = new_label(label, self.classes_), {}
        if self.class_side_.described_views(self.classifier_):
            if class_vector is None:
                raise ValueError("fit had class_vectors; give the new label's class_vector")
            row = np.asarray(class_vector, dtype=np.float32).reshape(1, -1)
            described = {"pooled": validate_data(self, row, dtype=np.float32, reset=False)}
        self.classifier_ = self.class_side_.extended(
            self.classifier_,
            NewClass(
                name=str(new.tolist()[0]), described=described, examples={"pooled": vectors}, n=len(vectors)
            ),
        )
        self.classes_ = np.concatenate([self.classes_, new])
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
        return labels_of(self, self._answers(X, Asked(priors=by_name(priors), unknown=unknown)))

    def predict_proba(self, X: ArrayLike, *, priors: Mapping[Any, float] | None = None) -> Floats:
        """(n, K) probabilities, columns in the order of `classes_`; `priors` as in `ADAMABClassifier`."""
        classifier, views = self._ready(X)
        return classifier.predict_proba(views, priors=by_name(priors))

    def predict_sets(self, X: ArrayLike, *, coverage: float = 0.9) -> list[NDArray[Any]]:
        """Labels of each vector of which one is right with that probability, the likeliest first."""
        return sets_of(self, self._answers(X, Asked.for_sets(coverage)))

    def _answers(self, X: ArrayLike, asked: Asked) -> Answers:
        classifier, views = self._ready(X)
        answers = classifier.answers(views, None, asked)
        warn_of_too_few(classifier.confidence, asked)
        return answers

    def _ready(self, X: ArrayLike) -> tuple[Classifier, dict[str, Floats]]:
        check_is_fitted(self)
        return self.classifier_, {"pooled": validate_data(self, X, dtype=np.float32, reset=False)}
