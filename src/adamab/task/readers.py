"""The task file: YAML with classes, examples and prompts, or a plain `{class: [examples]}`."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import get_args

from adamab.errors import ImageError, TaskError
from adamab.task.image_folders import image_at
from adamab.task.image_samples import placed_image_samples, resolved, source_at
from adamab.task.image_sets import is_image_set, read_image_set
from adamab.task.images import is_url
from adamab.task.messages import checked, place, short, suggestion
from adamab.task.prompts import KEYS, Prompts
from adamab.task.samples import (
    TextRow,
    placed_samples,
    read_samples,
    read_text_stream,
    read_texts,
    unknown_class,
)
from adamab.task.spec import ClassSpec, Modality, Sample, Task, listed_twice, unexplained
from adamab.task.words import folded
from adamab.task.yaml_tree import Fields, Items, Node, Scalar, read_tree

__all__ = ["TextRow", "load_task", "read_samples", "read_text_stream", "read_texts"]

_TASK_KEYS = ("name", "modality", "classes", "examples", "prompts")
_CLASS_KEYS = ("name", "description", "examples")
_EXAMPLE_KEYS: dict[Modality, tuple[str, ...]] = {"text": ("text", "id"), "image": ("image", "id")}
_FLAG = "with_examples"

Placed = tuple[str, Sample]  # file:line and the sample that stands there


def load_task(path: str | PathLike[str]) -> Task:
    """Read a task file and the data files it names (relative to it), or a folder of pictures.

    A folder with a folder a class, and a known data set such as `pets:DIR?split=train`, are tasks of
    pictures as they are.

    A text that is repeated within its class is kept once, unless its `id` differs (see `Task`); a text
    under two classes is refused.
    """
    if is_url(path):
        raise TaskError(f"{place(path)}: is a web address, and URLs are never fetched; download it first")
    if is_image_set(str(path)) or os.path.isdir(path):
        return _of_pictures(str(path))
    path = Path(path)
    fields = read_tree(path).fields("the file")
    full = "classes" in fields or "modality" in fields
    parts = _full(path, fields) if full else _plain(path, fields)
    _check_names(parts)
    samples = tuple(_of_one_class(parts.placed))
    _check_explained(parts, samples)
    try:
        return Task(tuple(parts.classes), samples, parts.prompts, parts.name, parts.modality)
    except TaskError as exc:
        raise TaskError(f"{place(path)}: {exc}") from None


def _of_pictures(source: str) -> Task:
    for file in ("task.yaml", "task.yml"):
        if os.path.isfile(os.path.join(source, file)):
            raise TaskError(f"{place(source)}: is a directory; name {file} in it")
    samples = tuple(_of_one_class(placed_image_samples(source)))
    shown = dict.fromkeys(sample.class_name for sample in samples)
    if is_image_set(source):  # of a part of a set, the classes that it shows
        found = read_image_set(source)
        classes = [spec for spec in found.classes if spec.name in shown]
        name, prompts = found.name, Prompts(described="{description}")  # sentences that hold the name
    else:
        classes = [ClassSpec(name) for name in shown]
        name, prompts = Path(source).resolve().name, Prompts()
    return Task(tuple(classes), samples, prompts, name, "image")


@dataclass(frozen=True)
class _Parts:
    """What a file says, before it is checked as a whole."""

    name: str
    classes: list[ClassSpec]
    places: list[str]  # file:line of each class
    placed: Iterable[Placed]
    prompts: Prompts = field(default_factory=Prompts)
    modality: Modality = "text"


def _check_names(parts: _Parts) -> None:
    seen: set[str] = set()
    for spec, where in zip(parts.classes, parts.places, strict=True):
        if spec.name in seen:
            raise TaskError(f"{where}: {listed_twice(spec)}")
        seen.add(spec.name)


def _check_explained(parts: _Parts, samples: Iterable[Sample]) -> None:
    shown = {sample.class_name for sample in samples}
    if len(parts.classes) < 2:
        return  # the task itself has something more important to say
    for spec, where in zip(parts.classes, parts.places, strict=True):
        if spec.description is None and spec.name not in shown:
            raise TaskError(f"{where}: {unexplained(spec)}")


def _plain(path: Path, fields: dict[str, Node]) -> _Parts:
    """The short form: each key is a class, each value its list of texts."""
    classes, places, placed = list[ClassSpec](), list[str](), list[Placed]()
    for key, node in fields.items():
        if not (isinstance(node, Items) or node.is_empty):
            remedy = suggestion(key, _TASK_KEYS) if key not in _TASK_KEYS else "add 'classes' beside it"
            node.refuse(f"class {short(key)}", f"write a list of its texts, or a 'classes' list ({remedy})")
        name = checked(key, node.place, "class name")
        classes.append(ClassSpec(name))
        places.append(node.place)
        placed.extend(_inline(node, name))
    return _Parts(path.stem, classes, places, placed)


def _full(path: Path, fields: dict[str, Node]) -> _Parts:
    """The long form: name, classes, examples, prompts."""
    _refuse_unknown(fields, _TASK_KEYS, "key")
    modality = _modality(fields.get("modality"))
    classes, places, placed = list[ClassSpec](), list[str](), list[Placed]()
    for where, spec, examples in _classes(fields["classes"]) if "classes" in fields else ():
        classes.append(spec)
        places.append(where)
        placed.extend(_inline(examples, spec.name, modality))
    if "classes" not in fields and modality == "image":  # folders and files name the classes as well
        placed = list(_examples(fields.get("examples"), None, modality))
        shown = {sample.class_name: where for where, sample in reversed(placed)}
        classes, places = [ClassSpec(name) for name in sorted(shown)], [shown[name] for name in sorted(shown)]
        return _Parts(_name(path, fields), classes, places, placed, _prompts(fields.get("prompts")), modality)
    names = [spec.name for spec in classes]
    return _Parts(
        name=_name(path, fields),
        classes=classes,
        places=places,
        placed=chain(placed, _examples(fields.get("examples"), names, modality)),
        prompts=_prompts(fields.get("prompts")),
        modality=modality,
    )


def _name(path: Path, fields: dict[str, Node]) -> str:
    return _text(fields["name"], "the task's name") if "name" in fields else path.stem


def _modality(node: Node | None) -> Modality:
    if node is None or node.is_empty:
        return "text"
    written = _text(node, "modality")
    for modality in get_args(Modality):
        if written == modality:
            return modality  # type: ignore[no-any-return]
    raise TaskError(f"{node.place}: modality is {short(written)}; write text or image")


def _classes(node: Node) -> Iterator[tuple[str, ClassSpec, Node | None]]:
    """Classes in file order, each with its place and the node of its inline examples."""
    if isinstance(node, Fields):
        for key, description in node.nodes.items():
            name = checked(key, description.place, "class name")
            yield description.place, ClassSpec(name, _description(description, name)), None
        return
    for item in node.items("'classes'"):
        if isinstance(item, Fields):
            yield (item.place, *_class(item))
        else:
            yield item.place, ClassSpec(_text(item, "class name")), None


def _class(node: Fields) -> tuple[ClassSpec, Node | None]:
    _refuse_unknown(node.nodes, _CLASS_KEYS, "key of a class")
    if "name" not in node.nodes:
        raise TaskError(f"{node.place}: a class without 'name'; give it one")
    name = _text(node.nodes["name"], "class name")
    return ClassSpec(name, _description(node.nodes.get("description"), name)), node.nodes.get("examples")


def _description(node: Node | None, class_name: str) -> str | None:
    if node is None or node.is_empty:
        return None
    return _text(node, f"description of class {short(class_name)}")


def _inline(node: Node | None, class_name: str, modality: Modality = "text") -> Iterator[Placed]:
    """Examples written in the task file: texts or paths, or mappings with `text` or `image`, and `id`."""
    if node is None or node.is_empty:
        return
    what = f"example of class {short(class_name)}"
    for item in node.items(f"'examples' of class {short(class_name)}"):
        if isinstance(item, Fields):
            _refuse_unknown(item.nodes, _EXAMPLE_KEYS[modality], "key of an example")
            if modality not in item.nodes:
                raise TaskError(f"{item.place}: {what} without '{modality}'; add it")
            text, id_ = _text(item.nodes[modality], what), _id(item.nodes.get("id"))
        else:
            text, id_ = _text(item, what), None
        yield item.place, _sample(item, text, class_name, id_, modality)


def _sample(node: Node, text: str, class_name: str, id_: str | None, modality: Modality) -> Sample:
    if modality == "text":
        return Sample(text, class_name, id=id_)
    try:
        return Sample.of_image(image_at(resolved(node.path.parent, text, node.place)), class_name, id=id_)
    except ImageError as error:
        raise ImageError(f"{node.place}: {error}") from None


def _examples(node: Node | None, class_names: Collection[str] | None, modality: Modality) -> Iterator[Placed]:
    """The top-level `examples`: a file, several files, or `{class: [texts]}`; of pictures a folder too."""
    if node is None or node.is_empty:
        return
    if isinstance(node, Fields):
        for class_name, texts in node.nodes.items():
            if class_names is not None and class_name.strip() not in class_names:
                raise unknown_class(texts.place, class_name, class_names)
            yield from _inline(texts, class_name.strip(), modality)
        return
    for item in [node] if isinstance(node, Scalar) else node.items("'examples'"):
        written = _text(item, "file name in 'examples'")
        if modality == "image":
            yield from placed_image_samples(source_at(item.path.parent, written), class_names)
        else:
            yield from placed_samples(item.path.parent / written, class_names)


def _prompts(node: Node | None) -> Prompts:
    if node is None or node.is_empty:
        return Prompts()
    fields = node.fields("'prompts'")
    _refuse_unknown(fields, KEYS, "prompt")
    given: dict[str, str | bool] = {}
    for key, value in fields.items():
        what = f"prompt {key!r}"
        given[KEYS[key]] = value.flag(what) if key == _FLAG else _template(value, what)
    try:
        return Prompts(**given)  # type: ignore[arg-type]  # each key has its type
    except TaskError as exc:
        raise TaskError(f"{node.place}: {exc}") from None


def _template(node: Node, what: str) -> str:
    template = node.text(what)
    checked(template, node.place, what)
    return template  # outer line breaks may be meant


def _of_one_class(placed: Iterable[Placed]) -> Iterator[Sample]:
    """The samples; one text or id under two classes is refused, with both places."""
    owners: dict[tuple[str, str], tuple[str, str]] = {}
    for where, sample in placed:
        text = folded(sample.text)
        marks = [("text", text)] if sample.id is None else [("text", text), ("id", sample.id)]
        for mark in marks:
            class_name, first = owners.setdefault(mark, (sample.class_name, where))
            if class_name != sample.class_name:
                what = "content" if sample.image is not None and mark[0] == "text" else mark[0]
                raise TaskError(
                    f"{where}: example {short(str(sample))} of class {short(sample.class_name)} has the same "
                    f"{what} as one of class {short(class_name)} at {first}; keep it in one class"
                )
        yield sample


def _text(node: Node, what: str) -> str:
    return checked(node.text(what), node.place, what)


def _id(node: Node | None) -> str | None:
    if node is None or node.is_empty:
        return None
    # A number is taken as it is written, so 007 stays 007.
    return node.raw if isinstance(node, Scalar) and node.kind == "number" else _text(node, "id")


def _refuse_unknown(fields: dict[str, Node], known: Collection[str], what: str) -> None:
    for key, node in fields.items():
        if key not in known:
            raise TaskError(f"{node.place}: unknown {what} {short(key)}; {suggestion(key, known)}")
