"""Baselines by name, such as `knn` or `chat:MODEL?temperature=0`; what a method needs is imported with it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, TypeAlias

from adamab.errors import TaskError
from adamab.study.baselines.base import Baseline
from adamab.task.messages import short, suggestion
from adamab.task.specs import split_spec

Factory: TypeAlias = Callable[[], Callable[..., Baseline]]


def _later(module: str, attribute: str) -> Factory:
    """What makes the baseline, imported when it is asked for."""

    def load() -> Callable[..., Baseline]:
        found: Callable[..., Baseline] = getattr(import_module(f"adamab.study.baselines.{module}"), attribute)
        return found

    return load


# On vectors: classes that take options by name, among them `view` and, if anything is random, `random_state`.
METHODS: dict[str, Factory] = {
    "zero-shot": _later("similarity", "Similarity"),
    "centred": _later("similarity", "CentredSimilarity"),
    "class-mean": _later("class_mean", "ClassMean"),
    "linear-probe": _later("linear_probe", "LinearProbe"),
    "linear-svm": _later("linear_svm", "LinearSVM"),
    "knn": _later("knn", "NearestNeighbours"),
    "cache-adapter": _later("cache_adapter", "CacheAdapter"),
    "setfit": _later("setfit", "SetFit"),
    # On the samples themselves: callables that take what follows the colon, and options by name.
    "chat": _later("chat", "from_spec"),
    "rerank": _later("rerank", "from_spec"),
    "cross-encoder": _later("cross_encoder", "from_spec"),
}
NEEDS_CLASS_VECTORS = ("zero-shot", "centred")
WITH_ARGUMENT = {"chat": "MODEL", "rerank": "SERVICE:MODEL", "cross-encoder": "PATH-or-id"}
READS_SAMPLES = ("setfit", *WITH_ARGUMENT)  # rather than their vectors
_NUMBERS: dict[str, Callable[[str], float]] = {"int": int, "float": float}


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
    """
    method = method_name(name)
    bare, written = split_spec(name)
    rest = bare.partition(":")[2]
    maker = METHODS[method]()
    taken = inspect.signature(maker).parameters
    given = _converted(taken, written, method) | {k: v for k, v in options.items() if v is not None}
    for option, value in (("view", view), ("random_state", seed), ("seed", seed)):
        if value is not None and option in taken:
            given.setdefault(option, value)
    arguments = (rest,) if method in WITH_ARGUMENT else ()
    try:
        inspect.signature(maker).bind(*arguments, **given)
    except TypeError as problem:
        raise TaskError(f"method {method!r} does not take these options: {problem}") from None
    return maker(*arguments, **given)


def _converted(
    taken: Mapping[str, inspect.Parameter], written: Mapping[str, str], method: str
) -> dict[str, Any]:
    """The written options as the annotations want them; where there is none they stay strings."""
    given: dict[str, Any] = dict(written)
    for option, text in written.items():
        kinds = str(taken[option].annotation).split(" | ") if option in taken else []
        for kind in [kind for kind in kinds if kind in _NUMBERS and "str" not in kinds]:
            try:
                given[option] = _NUMBERS[kind](text)
            except ValueError:
                raise TaskError(f"method {method!r}: option {option}={short(text)} is not a number") from None
    return given
