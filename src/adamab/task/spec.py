"""What the user says: classes, samples, and the task that holds them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Literal, get_args

from adamab.errors import ProviderError, TaskError, clean, short, suggestion
from adamab.task.images import Image
from adamab.task.prompts import Prompts
from adamab.task.words import normalised_text

Source = Literal["given", "synthetic"]
Modality = Literal["text", "image"]

UNKNOWN = "unknown"  # the answer to an input that is unlike every class
MOST_ROWS = 20  # of a table in a notebook
_WIDEST_CELL = 120
_OPTIONS = re.compile(r"[a-z_]+=[^&]*(&[a-z_]+=[^&]*)*")


@dataclass(frozen=True, slots=True)
class ClassSpec:
    """One class: its name and, if the user wrote one, a sentence about it."""

    name: str
    description: str | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """One text or image of a known class; the text of an image is its reference.

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
        """A given image.

        Args:
            image: its text is then its reference.
            class_name: the class that it is an example of; empty where that is unknown.
            id: what precomputed vectors are looked up by.
        """
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
        seen: set[str] = set()
        for number, spec in enumerate(self.classes, 1):
            if not isinstance(spec.name, str) or not spec.name.strip():
                raise TaskError(f"class {number} has no name; give it one")
            check_reserved(spec.name)
            if spec.name in seen:
                raise TaskError(f"class {short(spec.name)} is listed twice; merge the two or rename one")
            seen.add(spec.name)
            if spec.description is not None:
                _check_text(spec.description, f"the description of class {short(spec.name)}")
        if len(seen) < 2:
            raise TaskError(f"a classifier needs at least two classes, found {len(seen)}; add more")
        owner: dict[str, str] = {}
        for sample in self.samples:
            if sample.class_name not in seen:
                raise TaskError(
                    f"example {short(str(sample))} is of unknown class {short(sample.class_name)}; "
                    f"{suggestion(sample.class_name, self.class_names)}"
                )
            _check_text(sample.text, f"an example of class {short(sample.class_name)}")
            first = owner.setdefault(normalised_text(sample.text), sample.class_name)
            if first != sample.class_name:
                raise TaskError(
                    f"example {short(str(sample))} stands under both {short(first)} and "
                    f"{short(sample.class_name)}; keep it in one class"
                )
            if (sample.image is not None) != (self.modality == "image"):
                kind = "an image" if sample.image is not None else "a text"
                raise TaskError(
                    f"example {short(str(sample))} is {kind} in a task of {self.modality}s; "
                    f"set modality: {'image' if self.modality == 'text' else 'text'}, or take it out"
                )
        if self.modality == "image" and self.prompts.with_examples:
            raise TaskError("prompts.with_examples: a wording cannot quote an image; leave it out")
        distinct: dict[tuple[str, str | None], Sample] = {}
        for sample in self.samples:
            distinct.setdefault((normalised_text(sample.text), sample.id), sample)
        object.__setattr__(self, "repeats", len(self.samples) - len(distinct))
        object.__setattr__(self, "samples", tuple(distinct.values()))
        with_samples = {sample.class_name for sample in self.samples}
        for spec in self.classes:
            if spec.description is None and spec.name not in with_samples:
                name = short(spec.name)
                raise TaskError(f"class {name} has neither a description nor an example; add one of them")

    @classmethod
    def from_mapping(
        cls,
        examples: Mapping[str, Sequence[str]],
        *,
        descriptions: Mapping[str, str] | None = None,
        prompts: Prompts | None = None,
        name: str = "task",
    ) -> Task:
        """A task of texts.

        Args:
            examples: texts by class; a class may have none if it has a description.
            descriptions: sentences by class.
            prompts: wording for embedder and generator.
            name: of the task.
        """
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
        rows = [(spec.name, spec.description, given[spec.name]) for spec in self.classes[:MOST_ROWS]]
        known = {
            "classes": len(self.classes),
            "given samples": len(self.samples),
            "modality": self.modality,
            "repeats left out": self.repeats or None,
        }
        columns = ("class", "description", "given samples")
        return notebook_html(
            f"Task {self.name}", known, columns, rows, len(self.classes) - len(rows), "classes"
        )


def check_reserved(class_name: str) -> None:
    """Refuse the name that is an answer of its own."""
    if class_name == UNKNOWN:
        raise TaskError(
            "no class can be called 'unknown', which is the answer to inputs unlike every class; "
            "give it another name, such as 'other'"
        )


def _check_text(text: object, what: str) -> None:
    if not isinstance(text, str):
        raise TaskError(f"{what} is {short(text)}; write a text")
    if not normalised_text(text):
        raise TaskError(f"{what} is empty; fill it in or remove it")


def notebook_html(
    title: str,
    facts: Mapping[str, object],
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    left_out: int,
    noun: str,
) -> str:
    """What a notebook shows of an object.

    Args:
        title: the heading.
        facts: values by name, in one line; None is left out.
        columns: header of the table.
        rows: its cells.
        left_out: number of rows that are not shown.
        noun: what the rows are.
    """
    known = [f"{escape(name)}: {_cell(value)}" for name, value in facts.items() if value is not None]
    parts = [f"<p><strong>{_cell(title)}</strong><br>{'; '.join(known)}</p>"]
    if rows:
        head = "".join(f"<th>{escape(column)}</th>" for column in columns)
        body = "".join(f"<tr>{''.join(f'<td>{_cell(v)}</td>' for v in row)}</tr>" for row in rows)
        parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
    if left_out > 0:
        parts.append(f"<p>and {left_out:,} more {escape(noun)}</p>")
    return "".join(parts)


def _cell(value: object) -> str:
    if isinstance(value, int | float):
        return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
    # The direction in which a value is written does not reach what stands around it.
    return "" if value is None else f"<bdi>{escape(clean(value, _WIDEST_CELL))}</bdi>"


def split_spec(spec: str) -> tuple[str, dict[str, str]]:
    """A spec without its options, and these. A question mark that none follows is part of a path.

    Example:
        >>> split_spec("openai:m?rpm=500&dimensions=256"), split_spec("npz:why?.npz")
        (('openai:m', {'rpm': '500', 'dimensions': '256'}), ('npz:why?.npz', {}))
    """
    for mark in re.finditer(r"\?", spec):
        written = spec[mark.end() :]
        if _OPTIONS.fullmatch(written):
            pairs = [part.split("=", 1) for part in written.split("&")]
            if len({name for name, _ in pairs}) < len(pairs):
                raise ProviderError(f"{short(spec)} names an option twice; keep one of them")
            return spec[: mark.start()], dict(pairs)
    return spec, {}


def join_spec(spec: str, options: Mapping[str, str]) -> str:
    """The spec with its options, as `split_spec` takes it apart."""
    return f"{spec}?{'&'.join(f'{name}={value}' for name, value in options.items())}" if options else spec
