"""scikit-learn estimators: texts or images in (`ADAMABClassifier`), or arrays (`EmbeddingCalibrator`)."""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, check_random_state, validate_data

from adamab.display import progress, round_counter
from adamab.errors import ModelFileError, RunError, TaskError, place
from adamab.model import UNKNOWN, Answers, Asked, Classifier, save
from adamab.model import load as load_classifier
from adamab.model.classifier import WORDS, warn_of_too_few
from adamab.model.new_class import NewClass, NewClassModel, load_new_class_model, save_new_class_model
from adamab.model.predictor import Inference
from adamab.providers.embedders.base import Embedder
from adamab.providers.generators.base import Generator
from adamab.providers.image_store import ImageStore
from adamab.providers.metering import Budget
from adamab.providers.registry import open_embedder
from adamab.run import torch_required
from adamab.run.add_class import extended
from adamab.run.directory import HISTORY, SUMMARY, SYNTHETIC, read_summary, spending
from adamab.run.records import History, RoundRecord
from adamab.task.image_folders import image_at
from adamab.task.images import Image
from adamab.task.recipe import Recipe
from adamab.task.spec import ClassSpec, Modality, Sample, Task
from adamab.task.words import checked

if TYPE_CHECKING:
    from adamab.method.stacking import Estimate
    from adamab.model.new_class import Reference
    from adamab.publish.model_card import Facts

LARGEST = 1e12  # of a number in X: squares of many of them, or of inverses, are far from the limits


def images_of(X: Sequence[Any]) -> list[Image]:
    """The images that a list of paths names."""
    if isinstance(X, str | PathLike):
        raise TaskError("X is one path; give a list of paths")
    for i, path in enumerate(X):
        if not isinstance(path, str | PathLike):
            raise TaskError(f"X[{i}] is {type(path).__name__}, not a path; give paths of images")
    return [image_at(Path(path)) for path in X]


def texts_of(X: Sequence[Any]) -> list[str]:
    """The texts, checked one by one."""
    if isinstance(X, str):
        raise TaskError("X is one string; give a list of texts")
    texts = list(X)
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise TaskError(f"X[{i}] is {type(text).__name__}, not a text; ADAMABClassifier takes raw texts")
        checked(text, f"X[{i}]", "the text")
    return texts


def check_magnitude(vectors: NDArray[np.float32]) -> None:
    """Refuse vectors whose squares a computer cannot hold in single precision."""
    most = float(np.abs(vectors).max(initial=0))
    if most > LARGEST or 0 < most < 1 / LARGEST:
        raise ValueError(
            f"the largest number of X is {most:.3g}; scale X so that it is between {1 / LARGEST:g} and "
            f"{LARGEST:g}"
        )


def check_labels(labels: NDArray[Any]) -> None:
    """Refuse labels that are none."""
    for i, label in enumerate(labels.tolist()):
        if label is None:
            raise TaskError(f"y[{i}] is None; give every sample a label or leave it out")
    with warnings.catch_warnings():
        # With one or two samples a class, which is what this is for, it asks whether numbers are meant.
        warnings.filterwarnings("ignore", message="The number of unique classes is greater than 50%")
        check_classification_targets(labels)


def new_label(label: Any, known: NDArray[Any]) -> NDArray[Any]:  # (1,)
    """A label that comes later, of the type of the others."""
    if label is None:
        raise TaskError("the label is None; name the new class")
    new = np.array([label], dtype=object if known.dtype == object else None)
    if new.shape != (1,) or new.dtype.kind != known.dtype.kind:
        raise TaskError(
            f"label {label!r} is of type {type(label).__name__}, and the others are of {known.dtype}; "
            "give one of their type"
        )
    return new


def task_of(
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


def seed_of(random_state: Any) -> int:
    """A seed from what scikit-learn allows: None, a number, or a RandomState."""
    if isinstance(random_state, (int, np.integer)):
        if not 0 <= random_state < 2**32:
            raise ValueError(f"random_state is {random_state}; give a number from 0 to 2**32 - 1")
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def by_name(priors: Mapping[Any, float] | None) -> dict[str, float] | None:
    """By the names that the classifier has for the labels."""
    if not isinstance(priors, Mapping):  # None, or something that is refused where it is asked for
        return priors
    return {str(label): share for label, share in priors.items()}


def labels_of(estimator: Any, answers: Answers) -> NDArray[Any]:
    """The most probable labels, and "unknown" where that was asked for."""
    labels: NDArray[Any] = estimator.classes_[answers.indices[:, 0]]
    if answers.unknown is None:
        return labels
    if labels.dtype.kind != "U":  # numbers leave no room for a word
        labels = labels.astype(object)
    return np.where(answers.unknown, UNKNOWN, labels)


def sets_of(estimator: Any, answers: Answers) -> list[NDArray[Any]]:
    """The labels of each prediction set."""
    return [estimator.classes_[members] for members in answers.sets or ()]


def read_history(directory: Path) -> History:
    """The rounds of the run in `directory`; without them there is no such attribute."""
    file = directory / HISTORY
    if not file.is_file():
        raise AttributeError(f"{place(directory)} holds no {HISTORY}, so the rounds of the fit are not known")
    try:
        with open(file, encoding="utf-8") as lines:
            return History(RoundRecord.from_json(json.loads(line)) for line in lines)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise RunError(f"{place(file)}: is damaged; fit again") from None


def read_synthetic(directory: Path, images: ImageStore | None) -> tuple[Sample, ...]:
    """The synthetic samples of the run in `directory`; `images` finds theirs."""
    with open(directory / SYNTHETIC, encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return tuple(
        Sample(
            row["text"], row["label"], "synthetic", image=None if images is None else images.find(row["text"])
        )
        for row in rows
    )


def read_estimate(directory: Path) -> Estimate | None:
    """The out-of-fold estimate of the run in `directory`; without a run there is no such attribute."""
    from adamab.method.stacking import Estimate

    if not (directory / SUMMARY).is_file():
        raise AttributeError(f"{place(directory)} holds no {SUMMARY}, so the estimate is not known")
    known = read_summary(directory).get("estimate")
    try:
        return None if known is None else Estimate(**known)
    except TypeError:
        raise RunError(f"{place(directory / SUMMARY)}: is damaged; fit again") from None


def models_with(side: NewClassModel, directory: Path) -> tuple[Classifier, ...]:
    """The classifier in `directory` if `side` is good for it too: both come from one fit."""
    with suppress(ModelFileError):  # nothing there yet, or nothing that could be gone on with
        there = load_classifier(directory)
        if _same(side, load_new_class_model(directory, there)):
            return (there,)
    return ()


def _same(one: NewClassModel, other: NewClassModel) -> bool:
    if (one.wording, one.with_examples, len(one.heads)) != (
        other.wording,
        other.with_examples,
        len(other.heads),
    ):
        return False
    heads = zip(one.heads, other.heads, strict=True)
    return _same_reference(one.reference, other.reference) and all(
        type(a) is type(b)
        and a.arrays.keys() == b.arrays.keys()
        and all(np.array_equal(array, b.arrays[name]) for name, array in a.arrays.items())
        for a, b in heads
    )


def _same_reference(one: Reference | None, other: Reference | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.lack == other.lack and np.array_equal(one.logits, other.logits)


Kind = TypeVar("Kind", bound="PersistenceMixin")


class PersistenceMixin(BaseEstimator):  # type: ignore[misc]
    """What an estimator can do with a directory; `fit` sets the attributes."""

    @cached_property
    def history_(self) -> History:
        """Read when it is asked for, where `fit` has not set it: of a run, not of a saved classifier."""
        return read_history(self._directory("history_"))

    @cached_property
    def estimate_(self) -> Estimate | None:
        """As `history_`."""
        return read_estimate(self._directory("estimate_"))

    def _directory(self, attribute: str) -> Path:
        if not hasattr(self, "_saved_in"):
            raise AttributeError(f"{type(self).__name__} has no {attribute} before it is fitted")
        return Path(self._saved_in)

    def save(self, directory: str | PathLike[str]) -> None:
        """Write the classifier as safetensors and JSON; `adamab.load` reads it.

        A classifier that is in `directory` already is replaced without a question, a run is refused.
        `classes.safetensors` beside it is what `add_class` needs; it holds vectors of samples.
        """
        from adamab.publish.hub import check_no_run

        classifier, folder = self._with_labels(), Path(directory)
        check_no_run(folder)
        side: NewClassModel | None = None
        with contextlib.suppress(ModelFileError):  # loaded from where there was none
            side = self._loaded_new_class()
        if side is not None:
            save_new_class_model(side, folder, *models_with(side, folder), classifier)
        save(classifier, folder)

    def save_pretrained(
        self,
        save_directory: str | PathLike[str],
        *,
        repo_id: str | None = None,
        push_to_hub: bool = False,
        license: str | None = None,
        share_embedder: bool = False,
        **push_to_hub_kwargs: Any,
    ) -> str | None:
        """Write the classifier and a model card, and upload both if `push_to_hub` says so.

        `repo_id` is the directory's name unless it is given. Other options are those of the Hub: token,
        private, branch, create_pr, commit_message. Returns the address of the commit, if there is one.
        What `add_class` needs is left out, since it holds vectors of samples; `save` keeps it. A README.md
        that is there and was not made here stays.

        The files name the embedder as you do. Where that tells a server or a folder of yours, nothing is
        uploaded unless `share_embedder` says that it may be known.
        """
        from adamab.publish.hub import check_no_run, check_public, push, write_folder
        from adamab.publish.model_card import model_card

        classifier, folder, facts = self._with_labels(), Path(save_directory), self._facts()
        check_no_run(folder)
        if push_to_hub and not share_embedder:
            check_public(classifier)
        write_folder(classifier, folder, model_card(classifier, facts, licence=license, source=repo_id or ""))
        return push(folder, repo_id or folder.name, **push_to_hub_kwargs) if push_to_hub else None

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | PathLike[str],
        *,
        embedder: str | Embedder | None = None,
        force_download: bool = False,
        token: str | bool | None = None,
        cache_dir: str | PathLike[str] | None = None,
        local_files_only: bool = False,
        revision: str | None = None,
    ) -> Self:
        """A classifier that predicts, from a folder or, if there is no such folder, from the Hub by its id.

        `embedder` as in `adamab.load`; the rest is for the Hub and has no meaning for folders.
        """
        from adamab.publish.hub import model_folder

        folder = model_folder(
            pretrained_model_name_or_path,
            force_download=force_download,
            token=token,
            cache_dir=cache_dir,
            local_files_only=local_files_only,
            revision=revision,
        )
        return opened(cls, folder, embedder)

    def _facts(self) -> Facts | None:
        """What a card can tell of the fit; nothing where the estimator was loaded."""
        if not hasattr(self, "spent_"):
            return None
        from adamab.publish.model_card import fit_facts

        fitted = self.classifier_.classes[: self._n_fitted]
        added = [name for name in self.classifier_.classes if name not in fitted]
        return fit_facts(self.generator, self.synthetic_, self.spent_, added)

    def _with_labels(self) -> Classifier:
        check_is_fitted(self)
        labels = self.classes_.tolist()
        if not all(isinstance(label, (str, int, float, bool)) for label in labels):
            raise TaskError(f"labels of type {self.classes_.dtype} cannot be saved; use strings or numbers")
        classifier: Classifier = self.classifier_
        return replace(classifier, metadata={**classifier.metadata, "labels": labels})

    def _loaded_new_class(self) -> NewClassModel:
        if not hasattr(self, "new_class_"):  # a saved classifier, of which predictions need less
            self.new_class_ = load_new_class_model(self._saved_in, self.classifier_)
        side: NewClassModel = self.new_class_
        return side


def opened(kind: type[Kind], directory: str | PathLike[str], embedder: str | Embedder | None) -> Kind:
    """The classifier in `directory` as an estimator of that kind."""
    model = Inference.open(directory, embedder)
    classifier = model.classifier
    estimator = kind(embedder or classifier.embedder_spec, modality=model.modality)
    labels = classifier.metadata.get("labels")
    estimator.classes_ = np.array(labels if isinstance(labels, list) else list(classifier.classes))
    estimator.classifier_ = classifier
    estimator._saved_in = os.path.abspath(directory)
    return estimator


Floats = NDArray[np.float32]


class ADAMABClassifier(ClassifierMixin, PersistenceMixin):  # type: ignore[misc]
    """A classifier for raw texts or images with any embedder and, if there is one, any generator.

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
    modality : "text", or "image" where X holds paths of images
    random_state : seed of everything random
    cache : keep vectors and answers on disk, so that nothing is bought twice
    run_dir : directory to write the run into as it happens, as `adamab fit --run` does; a fit that was
        interrupted goes on where it was, under the same budget, when `fit` is called again. The seed is 0
        where `random_state` is None
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
        run_dir: str | PathLike[str] | None = None,
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
        self.run_dir = run_dir
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
            from adamab.run.fit import build_classifier, resume_run
            from adamab.run.settings import FitSettings, set_up
        rows, labels = self._rows(X), np.asarray(y)
        if len(rows) != len(labels):
            raise TaskError(f"{len(rows)} {self.modality}s and {len(labels)} labels; give one label each")
        check_labels(labels)
        classes = np.unique(labels)
        settings = FitSettings(
            embedder=self.embedder,
            generator=self.generator,
            policy=self.policy,
            recipe=self.recipe,
            budget=self.budget,
            prices=self.prices,
            # A run could not be resumed with another seed.
            seed=0 if self.random_state is None and self.run_dir is not None else seed_of(self.random_state),
            prefetch=self.prefetch,
            device=self.device,
            cache=self.cache,
            run_dir=self.run_dir,
        )
        setup = set_up(task_of(rows, labels, classes, descriptions or {}, self.modality), settings)
        self.image_store_ = setup.images  # where synthetic images lie, which go with it if it is temporary
        with progress("embedding the samples", quiet=not self.verbose) as bar:
            on_round = round_counter(bar, setup.rounds)
            if settings.run_dir is None:
                result = build_classifier(setup, setup.call_context(), on_round=on_round)
            else:
                summary = resume_run(setup, on_round=on_round)
        self.classes_ = classes
        if settings.run_dir is None:
            self.classifier_ = result.classifier
            self.new_class_ = result.new_class
            self.history_ = result.history
            self.estimate_ = result.estimate
            self.synthetic_ = result.synthetic
            self.spent_ = spending(result.spent)
        else:
            self.classifier_ = load_classifier(settings.run_dir)
            self.new_class_ = load_new_class_model(settings.run_dir, self.classifier_)
            self.history_ = read_history(settings.run_dir)
            self.estimate_ = read_estimate(settings.run_dir)
            self.synthetic_ = read_synthetic(settings.run_dir, setup.images)
            self.spent_ = summary["spent"]
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
        self.classifier_ = extended(model, self._loaded_new_class(), spec, rows)
        self.classes_ = np.concatenate([self.classes_, label])
        return self

    def predict(
        self,
        X: Sequence[str] | Sequence[PathLike[str]],
        *,
        priors: Mapping[Any, float] | None = None,
        unknown: float | None = None,
    ) -> NDArray[Any]:
        """The most probable label of each text or image; "unknown" for some, if `unknown` says how many.

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
        """Labels of each text or image of which one is right with that probability, the likeliest first."""
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
        result = fit_vectors(
            vectors,
            class_index,
            classes=[ClassSpec(str(label)) for label in self.classes_],
            class_vectors=None if class_vectors is None else self._class_vectors(class_vectors),
            generator=self.generator,
            policy=self.policy,
            recipe=self.recipe,
            budget=self.budget,
            seed=seed_of(self.random_state),
            device=self.device,
        )
        self.classifier_ = result.classifier
        self.new_class_ = result.new_class
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
        if self.new_class_.described_views(self.classifier_):
            if class_vector is None:
                raise ValueError("fit had class_vectors; give the new label's class_vector")
            row = np.asarray(class_vector, dtype=np.float32).reshape(1, -1)
            described = {"pooled": validate_data(self, row, dtype=np.float32, reset=False)}
        self.classifier_ = self.new_class_.extended(
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
