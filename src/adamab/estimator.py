"""scikit-learn estimators: texts or images in (`ADAMABClassifier`), or arrays (`EmbeddingCalibrator`)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_array, check_is_fitted, check_random_state, validate_data

from adamab.columns import Column, labels_of, new_label, samples_of
from adamab.display import progress, round_counter
from adamab.errors import ModelFileError, RecipeError, RunError, TaskError, place
from adamab.model import UNKNOWN, Answers, Classifier, PredictOptions, save
from adamab.model import load as load_classifier
from adamab.model.classifier import WORDS, warn_of_too_few
from adamab.model.new_class import NewClass, NewClassModel, load_new_class_model, save_new_class_model
from adamab.model.predictor import Inference
from adamab.providers.embedders.base import Embedder
from adamab.providers.functions import EmbedFunction, GenerateFunction
from adamab.providers.generators.base import Generator
from adamab.providers.metering import Budget
from adamab.providers.registry import AUTO, open_embedder
from adamab.run.add_class import extended
from adamab.run.directory import HISTORY, SYNTHETIC, spending
from adamab.run.records import History, RoundRecord
from adamab.task.recipe import Recipe
from adamab.task.spec import ClassSpec, Modality, Sample, Task, check_reserved

if TYPE_CHECKING:
    from adamab.method.stacking import Estimate
    from adamab.publish.model_card import Facts

LARGEST = 1e12  # of a number in X: squares of many of them, or of inverses, are far from the limits
_OPTION = "recipe__"  # before the name of a recipe's option


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


class LabelsMixin(ClassifierMixin):  # type: ignore[misc]
    """Predictions as labels; `_ask` of the estimator says how its samples become answers."""

    def predict(
        self, X: Any, *, priors: Mapping[Any, float] | None = None, unknown: float | None = None
    ) -> NDArray[Any]:
        """The most probable label of each sample; "unknown" for some, if `unknown` says how many.

        Args:
            X: samples, as `fit` takes them.
            priors: how frequent labels are where predictions are used, as in `Classifier.predict`.
            unknown: share of known samples that may be called unknown, as in `Classifier.predict`.

        Returns:
            (n,) labels.
        """
        answers = self._answers(X, PredictOptions(priors=by_name(priors), unknown=unknown))
        labels: NDArray[Any] = self.classes_[answers.indices[:, 0]]
        if answers.unknown is None:
            return labels
        if labels.dtype.kind != "U":  # numbers leave no room for a word
            labels = labels.astype(object)
        return np.where(answers.unknown, UNKNOWN, labels)

    def predict_sets(self, X: Any, *, coverage: float = 0.9) -> list[NDArray[Any]]:
        """Labels of each sample of which one is right with that probability, the likeliest first.

        Args:
            X: samples, as `fit` takes them.
            coverage: probability that the right label is in the set.

        Returns:
            One array of labels per sample.
        """
        answers = self._answers(X, PredictOptions.for_sets(coverage))
        return [self.classes_[members] for members in answers.sets or ()]

    def _answers(self, X: Any, options: PredictOptions) -> Answers:
        answers: Answers = self._ask(X, options)
        warn_of_too_few(self.classifier_.confidence, options)
        return answers


class RecipeMixin(BaseEstimator):  # type: ignore[misc]
    """Options of the recipe as parameters: `recipe__batch` is `batch` of `recipe`, in a grid search too."""

    recipe: str | Recipe | Mapping[str, Any]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name, as scikit-learn asks for them.

        Args:
            deep: with the options of the recipe.
        """
        params: dict[str, Any] = super().get_params(deep)
        with suppress(RecipeError):  # told when it is fitted
            options = Recipe.of(self.recipe).model_dump() if deep else {}
            params |= {f"{_OPTION}{name}": value for name, value in options.items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Change parameters by name, the recipe before its options.

        Args:
            params: their new values.

        Returns:
            The estimator itself.
        """
        own = {name: value for name, value in params.items() if not name.startswith(_OPTION)}
        super().set_params(**own)
        if options := {name.removeprefix(_OPTION): params[name] for name in params.keys() - own.keys()}:
            base = Recipe.of(self.recipe)
            if (name := options.pop("name", base.name)) != base.name:
                base = Recipe.of(name)
            self.recipe = base.with_options(**options)
        return self


class PersistenceMixin(BaseEstimator):  # type: ignore[misc]
    """What an estimator can do with a directory; `fit` sets the attributes."""

    @cached_property
    def history_(self) -> History:
        """Read from the run that was loaded or fitted into, where `fit` has not set it."""
        file = self._file(HISTORY)
        try:
            with open(file, encoding="utf-8") as lines:
                return History(RoundRecord.from_json(json.loads(line)) for line in lines)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            raise RunError(f"{place(file)}: is damaged; fit again") from None

    @cached_property
    def estimate_(self) -> Estimate | None:
        """Of a classifier that was loaded, from its file."""
        from adamab.method.stacking import Estimate

        if not hasattr(self, "classifier_"):
            raise AttributeError(f"this {type(self).__name__} is not fitted yet")
        known = self.classifier_.metadata.get("out_of_fold")
        try:
            return None if known is None else Estimate(**known)
        except TypeError:
            raise ModelFileError(f"{place(self._saved_in)}: its estimate is damaged; fit again") from None

    @cached_property
    def new_class_(self) -> NewClassModel:
        """What gives an added class its rows; of a saved classifier it is read when it is needed."""
        return load_new_class_model(self._saved_in, self.classifier_)

    def _file(self, name: str) -> Path:
        if not hasattr(self, "_saved_in"):
            raise AttributeError(f"this {type(self).__name__} is not fitted yet")
        file = Path(self._saved_in) / name
        if not file.is_file():
            raise AttributeError(f"{place(self._saved_in)} holds no {name}: a saved classifier, not a run")
        return file

    def save(self, directory: str | PathLike[str]) -> None:
        """Write the classifier as safetensors and JSON; `adamab.load` reads it.

        A classifier that is in `directory` already is replaced without a question, a run is refused.
        `classes.safetensors` beside it is what `add_class` needs; it holds vectors of samples.
        """
        from adamab.publish.hub import check_no_run

        classifier, folder = self._with_labels(), Path(directory)
        check_no_run(folder)
        side: NewClassModel | None = None
        with suppress(ModelFileError):  # loaded from where there was none
            side = self.new_class_
        if side is not None:
            save_new_class_model(side, folder, classifier)
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

        What `add_class` needs is left out, since it holds vectors of samples; `save` keeps it. A README.md
        that is there and was not made here stays.

        Args:
            save_directory: where the files go.
            repo_id: the model's name on the Hub; the directory's name if None.
            push_to_hub: upload them.
            license: of the model, for its card.
            share_embedder: upload although the embedder's name reveals a server or a folder of yours.
            push_to_hub_kwargs: token, private, branch, create_pr and commit_message, for the Hub.

        Returns:
            The address of the commit, if there is one.
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
        embedder: str | Embedder | EmbedFunction | None = None,
        **hub_options: Any,
    ) -> Self:
        """A classifier that predicts, from a folder or, if there is no such folder, from the Hub by its id.

        Args:
            pretrained_model_name_or_path: the folder or the id.
            embedder: as in `adamab.load`.
            hub_options: force_download, token, cache_dir, local_files_only and revision, for the Hub alone.

        Returns:
            An estimator that predicts.
        """
        from adamab.publish.hub import model_folder

        return cls._opened(model_folder(pretrained_model_name_or_path, **hub_options), embedder)

    @classmethod
    def _opened(cls, directory: str | PathLike[str], embedder: str | Embedder | EmbedFunction | None) -> Self:
        """The classifier in `directory` as an estimator."""
        model = Inference.open(directory, embedder)
        classifier = model.classifier
        estimator = cls(classifier.embedder_spec if embedder is None else embedder, modality=model.modality)
        labels = classifier.metadata.get("labels")
        estimator.classes_ = np.array(labels if isinstance(labels, list) else list(classifier.classes))
        estimator.classifier_ = classifier
        estimator._saved_in = os.path.abspath(directory)
        return estimator

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


Floats = NDArray[np.float32]


class ADAMABClassifier(LabelsMixin, PersistenceMixin, RecipeMixin):
    """A classifier for raw texts or images with any embedder and, if there is one, any generator.

    Parameters
    ----------
    embedder : a spec such as "local", "st:PATH" or "openai:MODEL"; or an `Embedder`, a function from a list
        of n texts to a matrix of n rows, or a `SentenceTransformer`. "auto" is "local" for texts, and the
        CLIP model that the Hugging Face cache has for images
    generator : a spec such as "openai:MODEL" or "replay:FILE"; or a `Generator`, or a function (name,
        description, examples, n) that returns a list of texts; None generates nothing. Functions may be async
    policy : "adamab", "tight", "greedy", "random", "round-robin" or "none"
    recipe : a preset's name, a `Recipe`, or a mapping of its options such as {"name": "paper", "batch": 3},
        where `name` is the preset that the others start from. `set_params(recipe__batch=3)` changes one, and
        a grid search varies it by that name
    budget : caps such as "200 samples, 1.50 usd, 500 calls", or a number of samples; None leaves the
        number of samples to the recipe and caps nothing
    prices : your prices by model, in usd a million tokens, such as {"my-model": "0.15/0.60"}
    prefetch : batches to fetch from an API before the policy asks for them
    modality : "text", or "image" where X holds paths of images
    random_state : seed of everything random
    cache : keep vectors and answers on disk, so that what has arrived is not bought again
    run_dir : directory to write the run into as it happens, as `adamab fit --run` does; a fit that was
        interrupted goes on where it was, under the same budget, when `fit` is called again. The seed is 0
        where `random_state` is None
    verbose : show a bar while it is fitted, in terminals and notebooks

    Attributes
    ----------
    classes_ : the labels, sorted
    classifier_ : the `Classifier`, NumPy only
    history_ : one record per round; of a run that was loaded, too
    estimate_ : out-of-fold accuracy on the given samples, or None; of what was saved and loaded, too
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
        embedder: str | Embedder | EmbedFunction = "auto",
        *,
        generator: str | Generator | GenerateFunction | None = None,
        policy: str = "adamab",
        recipe: str | Recipe | Mapping[str, Any] = "default",
        budget: Budget | int | str | None = None,
        prices: Mapping[str, str] | None = None,
        prefetch: int = 4,
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
        self.modality = modality
        self.random_state = random_state
        self.cache = cache
        self.run_dir = run_dir
        self.verbose = verbose

    def fit(
        self,
        X: Column,
        y: Column,
        *,
        descriptions: Mapping[Any, str] | None = None,
    ) -> Self:
        """Fit on samples and their labels.

        Args:
            X: texts, or paths of images: a list, an array, a Series, or a table with one column.
            y: the label of each; strings or numbers, if the classifier is to be saved.
            descriptions: what a label means, in a sentence. Labels may be left out, and one that no sample
                has becomes a class without examples.

        Returns:
            The estimator itself.
        """
        from adamab.run.fit import build_classifier, resume_run
        from adamab.run.settings import FitSettings, set_up

        rows, (labels, classes) = samples_of(X, self.modality), labels_of(y, descriptions)
        if len(rows) != len(labels):
            raise TaskError(f"{len(rows)} {self.modality}s and {len(labels)} labels; give one label each")
        described = descriptions or {}
        # A run could not be resumed with another seed.
        seed = 0 if self.random_state is None and self.run_dir is not None else seed_of(self.random_state)
        shared = FitSettings.model_fields.keys() & self.get_params(deep=False).keys()
        settings = FitSettings(seed=seed, **{name: getattr(self, name) for name in shared})
        # Labels of any type become names.
        specs = tuple(ClassSpec(str(label), described.get(label)) for label in classes.tolist())
        pairs = zip(rows, labels.tolist(), strict=True)
        samples = tuple(replace(row, class_name=str(label)) for row, label in pairs)
        setup = set_up(Task(specs, samples, modality=self.modality), settings)
        self.image_store_ = setup.images  # where synthetic images lie, which go with it if it is temporary
        self.classes_ = classes
        with progress("embedding the samples", quiet=not self.verbose) as bar:
            on_round = round_counter(bar, setup.recipe.n_rounds(len(setup.task.classes)))
            if settings.run_dir is None:
                result = build_classifier(setup, setup.call_context(), on_round=on_round)
                self.classifier_ = result.classifier
                self.new_class_ = result.new_class
                self.history_ = result.history
                self.estimate_ = result.estimate
                self.synthetic_ = result.synthetic
                self.spent_ = spending(result.spent)
            else:
                self.spent_ = resume_run(setup, on_round=on_round)["spent"]
                self._saved_in = os.path.abspath(settings.run_dir)
                for name in ("history_", "estimate_", "new_class_"):  # of an earlier fit; read on demand
                    self.__dict__.pop(name, None)
                self.classifier_ = load_classifier(settings.run_dir)
                find_image = (lambda text: None) if setup.images is None else setup.images.find
                with open(settings.run_dir / SYNTHETIC, encoding="utf-8") as lines:
                    written = [json.loads(line) for line in lines]
                self.synthetic_ = tuple(
                    Sample(row["text"], row["label"], "synthetic", image=find_image(row["text"]))
                    for row in written
                )
        self._n_fitted = len(classes)  # those that are added come after them
        return self

    def add_class(
        self,
        name: Any,
        description: str | None = None,
        examples: Column = (),
    ) -> Self:
        """Know one more label at once, by what it means, by examples, or better by both; nothing is trained.

        It comes last in `classes_`. A fit with its examples among the others' knows it better.

        Args:
            name: the new label, of the type of the others.
            description: what it means, in a sentence.
            examples: its samples, as `fit` takes them; may be empty where there is a description.

        Returns:
            The estimator itself.
        """
        model = self._inference()
        label = new_label(name, self.classes_)
        spec = ClassSpec(str(label.tolist()[0]), description)
        rows = [replace(row, class_name=spec.name) for row in samples_of(examples, self.modality, "examples")]
        if not rows and not (description or "").strip():
            raise TaskError(f"label {spec.name!r} has neither a description nor an example; give one of them")
        self.classifier_ = extended(model, self.new_class_, spec, rows)
        self.classes_ = np.concatenate([self.classes_, label])
        return self

    def predict_proba(self, X: Column, *, priors: Mapping[Any, float] | None = None) -> Floats:
        """(n, K) probabilities, columns in the order of `classes_`; `X` and `priors` as in `predict`."""
        return self._inference().predict_proba(samples_of(X, self.modality), priors=by_name(priors))

    def embed(self, X: Column) -> dict[str, Floats]:
        """What an exported model takes: a matrix (n, d) for each of its views, rows in the order of `X`.

        The view `words` is among them where the model has one, as a matrix that is mostly zeros.
        """
        model, rows = self._inference(), samples_of(X, self.modality)
        views = model.views(rows)
        if (vocabulary := model.classifier.vocabulary) is not None:
            views[WORDS] = vocabulary.transform([row.text for row in rows]).toarray()
        return views

    def _ask(self, X: Column, options: PredictOptions) -> Answers:
        return self._inference().answers(samples_of(X, self.modality), options)

    def _inference(self) -> Inference:
        check_is_fitted(self)
        # Where words alone count, there is nothing to embed, and maybe no embedder.
        needed = bool(self.classifier_.views)
        spec = self.classifier_.embedder_spec if self.embedder == AUTO else self.embedder
        return Inference(self.classifier_, open_embedder(spec, cache=self.cache) if needed else None)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.input_tags.one_d_array = True
        return tags


def load(
    directory: str | PathLike[str], *, embedder: str | Embedder | EmbedFunction | None = None
) -> ADAMABClassifier:
    """A saved classifier as an estimator that predicts.

    If the embedder is not the one that the model was fitted with, `FingerprintError` says so now rather
    than at the first wrong prediction.

    Args:
        directory: where `save` wrote the classifier, or a run.
        embedder: another name for the embedder, or the function or object that it is; None opens the one
            remembered, which has to be a spec.
    """
    return ADAMABClassifier._opened(directory, embedder)


class EmbeddingCalibrator(LabelsMixin, RecipeMixin):
    """The calibrator on vectors that you have already: one view, class means as the class side.

    Parameters
    ----------
    recipe : as in `ADAMABClassifier`; its views and words do not matter here
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
        recipe: str | Recipe | Mapping[str, Any] = "default",
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
        """Fit on vectors and their labels.

        Args:
            X: (n, d) vectors of the samples.
            y: (n,) the label of each.
            class_vectors: (K, d) embedded descriptions, in the order of the sorted labels, if there are any.

        Returns:
            The estimator itself.
        """
        from adamab.run.fit import fit_vectors

        vectors, labels = validate_data(self, X, y, dtype=np.float32)
        most = float(np.abs(vectors).max(initial=0))
        if most > LARGEST or 0 < most < 1 / LARGEST:
            raise ValueError(
                f"the largest number of X is {most:.3g}; scale X so that it is between {1 / LARGEST:g} and "
                f"{LARGEST:g}"
            )
        labels_of(y)  # before they became an array, in which a NaN among strings is one
        self.classes_, class_index = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y has {len(self.classes_)} class; a classifier needs at least two")
        for label in self.classes_:
            check_reserved(str(label))
        described = None if class_vectors is None else check_array(class_vectors, dtype=np.float32)
        expected = (len(self.classes_), self.n_features_in_)
        if described is not None and described.shape != expected:
            raise ValueError(f"class_vectors has shape {described.shape}; one per label means {expected}")
        result = fit_vectors(
            vectors,
            class_index,
            classes=[ClassSpec(str(label)) for label in self.classes_],
            class_vectors=described,
            generator=self.generator,
            policy=self.policy,
            recipe=self.recipe,
            budget=self.budget,
            seed=seed_of(self.random_state),
        )
        self.classifier_ = result.classifier
        self.new_class_ = result.new_class
        self.history_ = result.history
        self.estimate_ = result.estimate
        return self

    def add_class(self, label: Any, X: ArrayLike, *, class_vector: ArrayLike | None = None) -> Self:
        """Know one more label at once, by vectors of its samples; nothing is trained.

        Args:
            label: the new label, of the type of the others.
            X: (n, d) vectors of its samples.
            class_vector: (d,) its embedded description, needed where `fit` had `class_vectors`.

        Returns:
            The estimator itself.
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

    def predict_proba(self, X: ArrayLike, *, priors: Mapping[Any, float] | None = None) -> Floats:
        """(n, K) probabilities, columns in the order of `classes_`; `X` and `priors` as in `predict`."""
        classifier, views = self._ready(X)
        return classifier.predict_proba(views, priors=by_name(priors))

    def _ask(self, X: ArrayLike, options: PredictOptions) -> Answers:
        classifier, views = self._ready(X)
        return classifier.answers(views, None, options)

    def _ready(self, X: ArrayLike) -> tuple[Classifier, dict[str, Floats]]:
        check_is_fitted(self)
        return self.classifier_, {"pooled": validate_data(self, X, dtype=np.float32, reset=False)}
