"""Methods by name, such as `knn`, `chat:MODEL?temperature=0` or `calibrator+adamab`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any

from pydantic import TypeAdapter, ValidationError

from adamab.compare.base import Baseline
from adamab.errors import TaskError, short, suggestion
from adamab.task.spec import split_spec

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
