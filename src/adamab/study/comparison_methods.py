"""What `adamab compare` compares: names of methods, with the policy that gives them samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from adamab.errors import TaskError
from adamab.study.baselines.registry import method_name
from adamab.task.messages import short

CALIBRATOR, NONE = "calibrator", "none"
POLICIES = ("random", "round-robin", "adamab", "tight", "greedy")
ON_GIVEN = (
    "zero-shot", "centred", "class-mean", "linear-probe", "linear-svm", "knn", "cache-adapter", CALIBRATOR
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
    """Those that a comma-separated list names, each once; None means the usual ones."""
    names = [*ON_GIVEN, *(WITH_GENERATOR if generator else ())] if text is None else text.split(",")
    methods = tuple(dict.fromkeys(Method.parse(name) for name in names if name.strip()))
    if not methods:
        raise TaskError("no method is named; leave --methods out, or name some: knn,calibrator")
    lacking = [method for method in methods if method.policy != NONE and not generator]
    if lacking:
        raise TaskError(f"{lacking[0]}: a policy needs something that writes samples; name a --generator")
    return methods


def reference_of(methods: Sequence[Method], against: str | None) -> str | None:
    """What the others are compared with: the calibrator, with ADAMAB's samples where there are some."""
    names = [str(method) for method in methods]
    if against is not None:
        if against not in names:
            raise TaskError(f"{short(against)} is not among the methods; compared are: {', '.join(names)}")
        return against
    return next((name for name in (f"{CALIBRATOR}+adamab", CALIBRATOR) if name in names), None)
