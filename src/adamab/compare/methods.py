"""Methods: the contract of a baseline (fit on samples, then probabilities of classes), and their names.

A name is such as `knn`, `chat:MODEL?temperature=0` or `calibrator+adamab`.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from types import MappingProxyType
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import TypeAdapter, ValidationError

from adamab.errors import TaskError, short, suggestion
from adamab.providers.embedders.base import Item
from adamab.task.prompts import Prompts
from adamab.task.spec import ClassSpec, Sample, Task, split_spec

Floats: TypeAlias = NDArray[np.floating[Any]]
POOLED = "pooled"


@dataclass(frozen=True)
class TrainingData:
    """Everything a baseline may learn from; there is no place for test samples.

    `classes` fixes the order of the probabilities' columns. `class_views` are the vectors of the
    classes' wordings, one row per class, where the embedder has them: the caller decides whether the
    wordings quote given examples (`prompts.with_examples`), and so whether similarity to them is
    zero-shot or few-shot. Where they do, `plain_class_views` are those of wordings that quote nothing,
    for choices by held-out samples. `items` are the texts or images themselves, for baselines that
    send them on; `texts` are theirs where they have words. The first `given` samples are given ones, and
    the only ones that a prompt may quote; None means all.
    """

    views: Mapping[str, Floats]  # (n, d) each
    labels: Sequence[str]  # (n,)
    classes: tuple[str, ...]
    texts: Sequence[str] = ()
    class_views: Mapping[str, Floats] = field(default_factory=dict)  # (K, d) each
    specs: tuple[ClassSpec, ...] = ()  # (K,) names and descriptions
    prompts: Prompts = field(default_factory=Prompts)
    items: Sequence[Item] = ()  # (n,)
    given: int | None = None
    plain_class_views: Mapping[str, Floats] = field(default_factory=dict)  # (K, d) each

    @classmethod
    def of_task(
        cls,
        task: Task,
        added: Sequence[Sample] = (),
        *,
        views: Mapping[str, Floats] | None = None,
        class_views: Mapping[str, Floats] | None = None,
        plain_class_views: Mapping[str, Floats] | None = None,
    ) -> TrainingData:
        """The task's samples and those `added` to them; a plan needs no vectors of them.

        Args:
            task: with its given samples.
            added: synthetic samples.
            views: vectors of all samples, by view.
            class_views: vectors of the classes' wordings.
            plain_class_views: those of wordings that quote no example.

        Returns:
            What a baseline is fitted on.
        """
        samples = [*task.samples, *added]
        items = items_of(samples)
        return cls(
            views=views or {},
            labels=[sample.class_name for sample in samples],
            classes=task.class_names,
            texts=[item for item in items if isinstance(item, str)],
            class_views=class_views or {},
            specs=task.classes,
            prompts=task.prompts,
            items=items,
            given=len(task.samples),
            plain_class_views=plain_class_views or {},
        )

    def class_index(self) -> NDArray[np.int64]:
        """(n,) the labels as numbers."""
        index = {name: i for i, name in enumerate(self.classes)}
        unknown = [label for label in self.labels if label not in index]
        if unknown:
            raise TaskError(f"label {unknown[0]!r} is not among the classes; add it to them")
        return np.array([index[label] for label in self.labels], dtype=np.int64)


def items_of(samples: Sequence[Sample]) -> list[Item]:
    """The texts or images themselves."""
    return [sample.image or sample.text for sample in samples]


class Baseline(ABC):
    """A classifier to compare with. An implementation sets `name` and writes two methods.

    `fit` takes `TrainingData`, or a matrix of pooled vectors and their labels; `predict` takes
    views, or a matrix of pooled vectors. `texts` are for baselines that read the words, or look at
    the images. After `fit`, `n_parameters_` counts the numbers that were trained. `version` is raised
    with every change that may change predictions.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1
    n_parameters_: int = 0
    answered_: NDArray[np.bool_] | None = None  # of the last prediction; None where all samples always are

    def fit(self, data: TrainingData | ArrayLike, y: Sequence[str] | None = None) -> Self:
        """Learn from training samples and nothing else.

        Args:
            data: training data, or a matrix of pooled vectors.
            y: labels of a matrix.

        Returns:
            Itself.
        """
        if not isinstance(data, TrainingData):
            if y is None:
                raise TaskError(f"{self.name}: vectors without labels; pass both")
            labels = [str(label) for label in y]
            data = TrainingData({POOLED: np.asarray(data)}, labels, tuple(sorted(set(labels))))
        self.classes_ = data.classes
        self._fit(data)
        return self

    def predict_proba(
        self, views: Mapping[str, Floats] | ArrayLike, texts: Sequence[Item] = ()
    ) -> NDArray[np.float64]:
        """Probabilities of classes.

        Args:
            views: vectors of the samples by view, or a matrix of pooled vectors.
            texts: the samples themselves, for baselines that read them.

        Returns:
            (n, K) probabilities, columns in the order of `classes_`.
        """
        known = views if isinstance(views, Mapping) else {POOLED: np.asarray(views)}
        if known and not any(map(len, known.values())):
            return np.zeros((0, len(self.classes_)))  # which scikit-learn would refuse
        return self._predict_proba(known, texts)

    def predict(self, views: Mapping[str, Floats] | ArrayLike, texts: Sequence[Item] = ()) -> list[str]:
        """The most probable class of each sample; of equals, the first.

        Args:
            views: vectors of the samples by view, or a matrix of pooled vectors.
            texts: the samples themselves, for baselines that read them.

        Returns:
            A class per sample.
        """
        return [self.classes_[i] for i in np.argmax(self.predict_proba(views, texts), axis=1)]

    @property
    def fingerprint(self) -> str:
        """What predictions depend on beside options and data: a model, if there is one.

        To work it out nothing is loaded and nobody is asked.
        """
        return ""

    def report(self) -> dict[str, int]:
        """How often the last prediction was answered with something else than a class, by kind."""
        return {}

    @abstractmethod
    def _fit(self, data: TrainingData) -> None:
        """Learn."""

    @abstractmethod
    def _predict_proba(self, views: Mapping[str, Floats], texts: Sequence[Item]) -> NDArray[np.float64]:
        """(n, K) probabilities."""


# Module and attribute of what makes a baseline, imported when it is asked for. On vectors they are classes
# that take options by name, among them `view` and, if anything is random, `random_state`.
METHODS = {
    "zero-shot": ("_vectors", "Similarity"),
    "centred": ("_vectors", "CentredSimilarity"),
    "class-mean": ("_vectors", "ClassMean"),
    "mean-and-text": ("_vectors", "MeanAndText"),
    "linear-probe": ("_vectors", "LinearProbe"),
    "linear-svm": ("_vectors", "LinearSVM"),
    "knn": ("_vectors", "NearestNeighbours"),
    "cache-adapter": ("_vectors", "CacheAdapter"),
    # On all views, the words and the descriptions.
    "joint-probe": ("_views", "JointProbe"),
    "soft-vote": ("_views", "SoftVote"),
    "setfit": ("_setfit", "SetFit"),
    # On the samples themselves: callables that take what follows the colon, and options by name.
    "chat": ("remote", "chat_from_spec"),
    "rerank": ("remote", "rerank_from_spec"),
    "cross-encoder": ("remote", "cross_encoder_from_spec"),
}
NEEDS_CLASS_VECTORS = ("zero-shot", "centred")
WITH_ARGUMENT = {"chat": "MODEL", "rerank": "SERVICE:MODEL", "cross-encoder": "PATH-or-id"}
READS_SAMPLES = ("setfit", *WITH_ARGUMENT)  # rather than their vectors


def method_name(spec: str) -> str:
    """The name that a spec begins with; refuses one that does not read.

    Example:
        >>> method_name("chat:gpt-4o-mini?rpm=500")
        'chat'
    """
    name, _, rest = split_spec(spec)[0].partition(":")
    if name not in METHODS:
        raise TaskError(f"unknown method {short(name)}; {suggestion(name, METHODS)}")
    wanted = WITH_ARGUMENT.get(name)
    if bool(rest) != (wanted is not None):
        raise TaskError(f"method {short(spec)} does not read; write {f'{name}:{wanted}' if wanted else name}")
    return name


def make_baseline(name: str, *, seed: int = 0, view: str | None = None, **options: Any) -> Baseline:
    """The baseline that `name` names, not fitted yet.

    Args:
        name: a key of `METHODS`; `chat:`, `rerank:` and `cross-encoder:` are followed by a model. Options
            may follow a question mark, as in `knn?k=3`.
        seed: of everything random in it.
        view: the view of the embedder that it works on; a method that reads the samples ignores it.
        options: more of them, by name; None counts as not given.

    Returns:
        A baseline to be fitted.
    """
    maker, arguments, given = _call(name, seed, view, options)
    return maker(*arguments, **given)


def check_method(spec: str) -> None:
    """Refuse services and options that do not read, before anything is loaded or embedded for a method."""
    if spec == CALIBRATOR:
        return
    maker, arguments, given = _call(spec)
    if method_name(spec) in ("chat", "rerank"):  # which are made without loading anything
        maker(*arguments, **given)


def _call(
    name: str, seed: int = 0, view: str | None = None, options: Mapping[str, Any] = MappingProxyType({})
) -> tuple[Callable[..., Baseline], tuple[str, ...], dict[str, Any]]:
    """What makes a baseline, and its arguments."""
    method = method_name(name)
    bare, written = split_spec(name)
    rest = bare.partition(":")[2]
    module, attribute = METHODS[method]
    maker: Callable[..., Baseline] = getattr(import_module(f"adamab.compare.{module}"), attribute)
    signature = inspect.signature(maker, eval_str=True)
    taken = signature.parameters
    given: dict[str, Any] = dict(written)
    for option, text in written.items():
        try:
            kind = taken[option].annotation if option in taken else str
            given[option] = TypeAdapter(kind).validate_strings(text)
        except ValidationError:
            raise TaskError(f"method {method!r}: option {option}={short(text)} is not a number") from None
    given |= {name: value for name, value in options.items() if value is not None}
    for option, value in (("view", view), ("random_state", seed), ("seed", seed)):
        if value is not None and option in taken:
            given.setdefault(option, value)
    arguments = (rest,) if method in WITH_ARGUMENT else ()
    try:
        signature.bind(*arguments, **given)
    except TypeError as problem:
        raise TaskError(f"method {method!r} does not take these options: {problem}") from None
    return maker, arguments, given


CALIBRATOR, NONE = "calibrator", "none"
POLICIES = ("random", "round-robin", "adamab", "tight", "greedy")
ON_GIVEN = (
    "zero-shot", "centred", "class-mean", "mean-and-text", "linear-probe", "linear-svm", "knn",
    "cache-adapter", "joint-probe", CALIBRATOR
)  # fmt: skip
WITH_GENERATOR = (
    "linear-probe+round-robin", "calibrator+random", "calibrator+round-robin", "calibrator+adamab"
)  # fmt: skip


@dataclass(frozen=True)
class Method:
    """A baseline or the calibrator, on the given samples or with those that a policy adds.

    Example:
        >>> Method.parse("linear-probe+round-robin")
        Method(spec='linear-probe', policy='round-robin')
    """

    spec: str
    policy: str = NONE

    @classmethod
    def parse(cls, text: str) -> Method:
        """From `knn`, `chat:MODEL` or `calibrator+adamab`; refuses what no method is called."""
        spec, plus, policy = text.strip().rpartition("+")
        if not plus or policy not in POLICIES:
            spec, policy = text.strip(), NONE
        if spec != CALIBRATOR:
            try:
                method_name(spec)
            except TaskError as error:
                raise TaskError(f"{error}; or {CALIBRATOR}, or +POLICY after a name") from None
        return cls(spec, policy)

    def __str__(self) -> str:
        return self.spec if self.policy == NONE else f"{self.spec}+{self.policy}"


def chosen_methods(text: str | None, *, generator: bool) -> tuple[Method, ...]:
    """The methods to compare.

    Args:
        text: a comma-separated list; None means the usual ones.
        generator: whether synthetic samples can be made.

    Returns:
        The methods, each once.
    """
    names = [*ON_GIVEN, *(WITH_GENERATOR if generator else ())] if text is None else text.split(",")
    methods = tuple(dict.fromkeys(Method.parse(name) for name in names if name.strip()))
    if not methods:
        raise TaskError("no method is named; leave --methods out, or name some: knn,calibrator")
    lacking = [method for method in methods if method.policy != NONE and not generator]
    if lacking:
        raise TaskError(f"{lacking[0]}: a policy needs something that writes samples; name a --generator")
    return methods


def reference_of(methods: Sequence[Method], against: str | None) -> str | None:
    """What the others are compared with.

    Args:
        methods: that are compared.
        against: one of them; None means the calibrator, with ADAMAB's samples where there are some.

    Returns:
        Its name; None where there is none.
    """
    names = [str(method) for method in methods]
    if against is not None:
        if against not in names:
            raise TaskError(f"{short(against)} is not among the methods; compared are: {', '.join(names)}")
        return against
    return next((name for name in (f"{CALIBRATOR}+adamab", CALIBRATOR) if name in names), None)
