"""What the user says: classes, samples, and the task that holds them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from adamab.errors import TaskError
from adamab.task import html
from adamab.task.images import Image
from adamab.task.messages import short, suggestion
from adamab.task.prompts import Prompts
from adamab.task.words import folded

Source = Literal["given", "synthetic"]
Modality = Literal["text", "image"]


@dataclass(frozen=True, slots=True)
class ClassSpec:
    """One class: its name and, if the user wrote one, a sentence about it."""

    name: str
    description: str | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """One text or picture of a known class; the text of a picture is its reference.

    `id` is what an embedder of precomputed vectors looks the sample up by; everything
    else goes by the text.
    """

    text: str
    class_name: str
    source: Source = "given"
    id: str | None = None
    image: Image | None = None

    @classmethod
    def of_image(cls, image: Image, class_name: str, *, id: str | None = None) -> Sample:
        """A given picture."""
        return cls(image.reference, class_name, id=id, image=image)

    def __str__(self) -> str:
        return self.text if self.image is None else str(self.image)


@dataclass(frozen=True)
class Task:
    """Classes, given samples and wording; valid once constructed.

    A text that is repeated within its class is kept once, unless its `id` differs: its vector may then
    differ, and where it does not, folds hold the copies out together. `repeats` counts what was left out.

    Example:
        >>> task = Task.from_mapping({"refund": ["money back please"], "praise": ["love it"]})
        >>> task
        Task('task': 2 classes, 2 given texts)
        >>> task.class_names
        ('refund', 'praise')
    """

    classes: tuple[ClassSpec, ...]
    samples: tuple[Sample, ...] = ()
    prompts: Prompts = field(default_factory=Prompts)
    name: str = "task"
    modality: Modality = "text"
    repeats: int = field(init=False, default=0, compare=False)

    def __post_init__(self) -> None:
        if self.modality not in get_args(Modality):
            raise TaskError(f"modality is {short(self.modality)}; write text or image")
        _check_classes(self.classes)
        _check_samples(self.samples, self.class_names)
        _check_modality(self.samples, self.modality)
        if self.modality == "image" and self.prompts.with_examples:
            raise TaskError("prompts.with_examples: a wording cannot quote a picture; leave it out")
        distinct: dict[tuple[str, str | None], Sample] = {}
        for sample in self.samples:
            distinct.setdefault((folded(sample.text), sample.id), sample)
        object.__setattr__(self, "repeats", len(self.samples) - len(distinct))
        object.__setattr__(self, "samples", tuple(distinct.values()))
        shown = {sample.class_name for sample in self.samples}
        for spec in self.classes:
            if spec.description is None and spec.name not in shown:
                raise unexplained(spec)

    @classmethod
    def from_mapping(
        cls,
        examples: Mapping[str, Sequence[str]],
        *,
        descriptions: Mapping[str, str] | None = None,
        prompts: Prompts | None = None,
        name: str = "task",
    ) -> Task:
        """Build a task from `{class: [examples]}` and, if there are any, descriptions."""
        described = dict(descriptions or {})
        unknown = [c for c in described if c not in examples]
        if unknown:
            raise TaskError(f"description of unknown class {short(unknown[0])}; add the class or drop it")
        for class_name, texts in examples.items():
            if isinstance(texts, str) or not isinstance(texts, Sequence):
                raise TaskError(f"class {short(class_name)} holds {short(texts)}; write a list of texts")
        return cls(
            classes=tuple(ClassSpec(c, described.get(c)) for c in examples),
            samples=tuple(Sample(t, c) for c, texts in examples.items() for t in texts),
            prompts=prompts or Prompts(),
            name=name,
        )

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names in the order of the task file, which is the order of the class indices."""
        return tuple(spec.name for spec in self.classes)

    def samples_of(self, class_name: str) -> tuple[Sample, ...]:
        """The given samples of one class, in file order."""
        return tuple(s for s in self.samples if s.class_name == class_name)

    def __repr__(self) -> str:
        given = f"{len(self.samples)} given {self.modality}s"
        return f"Task({short(self.name)}: {len(self.classes)} classes, {given})"

    def _repr_html_(self) -> str:
        """What a notebook shows: the first classes, and how many samples they have."""
        given = Counter(sample.class_name for sample in self.samples)
        rows = [(spec.name, spec.description, given[spec.name]) for spec in self.classes[: html.MOST_ROWS]]
        known = {
            "classes": len(self.classes),
            "given samples": len(self.samples),
            "modality": self.modality,
            "repeats left out": self.repeats or None,
        }
        return (
            html.facts(f"Task {self.name}", known)
            + html.table(("class", "description", "given samples"), rows)
            + html.and_more(len(self.classes) - len(rows), "classes")
        )


def listed_twice(spec: ClassSpec) -> TaskError:
    """The error for a second class of the same name."""
    return TaskError(f"class {short(spec.name)} is listed twice; merge the two or rename one")


def unexplained(spec: ClassSpec) -> TaskError:
    """The error for a class of which nothing but the name is known."""
    return TaskError(f"class {short(spec.name)} has neither a description nor an example; add one of them")


def _check_classes(classes: Sequence[ClassSpec]) -> None:
    seen: set[str] = set()
    for number, spec in enumerate(classes, 1):
        if not isinstance(spec.name, str) or not spec.name.strip():
            raise TaskError(f"class {number} has no name; give it one")
        if spec.name in seen:
            raise listed_twice(spec)
        seen.add(spec.name)
        if spec.description is not None:
            _check_text(spec.description, f"the description of class {short(spec.name)}")
    if len(classes) < 2:
        raise TaskError(f"a classifier needs at least two classes, found {len(classes)}; add more")


def _check_samples(samples: Sequence[Sample], class_names: Sequence[str]) -> None:
    known = set(class_names)
    owner: dict[str, str] = {}
    for sample in samples:
        if sample.class_name not in known:
            raise TaskError(
                f"example {short(str(sample))} is of unknown class {short(sample.class_name)}; "
                f"{suggestion(sample.class_name, class_names)}"
            )
        _check_text(sample.text, f"an example of class {short(sample.class_name)}")
        first = owner.setdefault(folded(sample.text), sample.class_name)
        if first != sample.class_name:
            raise TaskError(
                f"example {short(str(sample))} stands under both {short(first)} and "
                f"{short(sample.class_name)}; keep it in one class"
            )


def _check_modality(samples: Sequence[Sample], modality: Modality) -> None:
    for sample in samples:
        if (sample.image is not None) != (modality == "image"):
            found = "a picture" if sample.image is not None else "a text"
            raise TaskError(
                f"example {short(str(sample))} is {found} in a task of {modality}s; "
                f"set modality: {'image' if modality == 'text' else 'text'}, or take it out"
            )


def _check_text(text: object, what: str) -> None:
    if not isinstance(text, str):
        raise TaskError(f"{what} is {short(text)}; write a text")
    if not folded(text):
        raise TaskError(f"{what} is empty; fill it in or remove it")
