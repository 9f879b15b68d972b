"""The task file: YAML with classes, examples and prompts, or a plain `{class: [examples]}`.

It is read into a tree whose nodes know their line. PyYAML's own constructor keeps the last of two equal keys,
expands aliases without limit and forgets where things stood; a task file is small and simple enough to refuse
all of that.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, cast, get_args

from adamab.errors import ImageError, TaskError, one_line, place, short, suggestion
from adamab.task.image_folders import image_at, placed_image_samples, resolved
from adamab.task.images import is_url, open_regular
from adamab.task.prompts import FLAG, KEYS, Prompts
from adamab.task.spec import ClassSpec, Modality, Sample, Task
from adamab.task.table_files import AS_IT_IS, ENDINGS, PLAIN, TableOptions, read_lines
from adamab.task.tables import placed_samples, read_columns, unknown_class
from adamab.task.words import checked, normalised_text

if TYPE_CHECKING:
    import yaml

_TASK_KEYS = ("name", "modality", "classes", "examples", "prompts")
_CLASS_KEYS = ("name", "description", "examples")
_FILE_KEYS = ("file", "text_column", "label_column", "id_column", "delimiter", "encoding")
_EXAMPLE_KEYS: dict[Modality, tuple[str, ...]] = {"text": ("text", "id"), "image": ("image", "id")}

Placed = tuple[str, Sample]  # file:line and the sample that stands there
_Parts = tuple[list[ClassSpec], list[Placed], Prompts, str, Modality]  # what a task is made of, as in `Task`

_DEEPEST = 16  # a task file needs five levels
_LARGEST = 64 * 2**20
_TAG = "tag:yaml.org,2002:"
_TRUE = frozenset({"yes", "true", "on"})
# How YAML reads a scalar, for messages.
_KINDS = {
    _TAG + "str": "text",
    _TAG + "null": "null",
    _TAG + "bool": "truth value",
    _TAG + "int": "number",
    _TAG + "float": "number",
    _TAG + "timestamp": "date",
    _TAG + "merge": "merge key",
    _TAG + "value": "default value",
}


def load_task(path: str | PathLike[str], options: TableOptions = AS_IT_IS) -> Task:
    """Read a task file and the data files it names (relative to it), a data file, or a folder of images.

    A data file with texts, or with paths of images, and their classes is a task as it is; so is a folder with
    one folder of images per class.

    A text that is repeated within its class is kept once, unless its `id` differs (see `Task`); a text
    under two classes is refused.

    Args:
        path: the file or the folder.
        options: how the data file is written.
    """
    if is_url(path):
        raise TaskError(f"{place(path)}: is a web address, and URLs are never fetched; download it first")
    task = _load(path, options)
    alike: dict[str, list[str]] = {}
    for name in task.class_names:
        alike.setdefault(normalised_text(name).replace(" ", ""), []).append(name)
    for names in alike.values():
        if len(names) > 1:
            options.note(
                f"note: classes {', '.join(map(short, names))} differ in case or spaces only; write them "
                "alike if they are one"
            )
    return task


def _load(path: str | PathLike[str], options: TableOptions) -> Task:
    if os.path.isdir(path):
        return _of_folder(str(path))
    path = Path(path)
    if is_table(path):
        columns = read_columns(path, ENDINGS[path.suffix.lower()], ("text", "image"), options)
        if columns.text == "image":
            return _of_samples(placed_image_samples(path, None, options), path.stem, "image")
        return _of_samples(placed_samples(path, None, options), path.stem, "text")
    with open_regular(path):  # it says what is wrong with the file itself
        pass
    try:
        root = read_tree(path)
        fields = root.fields("the file")
    except TaskError as error:
        if path.suffix.lower() in (".yaml", ".yml"):
            raise
        endings = ", ".join(sorted(ending for ending, kind in ENDINGS.items() if kind != PLAIN))
        if not path.suffix:
            raise TaskError(f"{error}; or end the name of a data file in one of {endings}") from None
        raise TaskError(
            f"{place(path)}: is no task file in YAML, and by its ending {short(path.suffix)} no data file: "
            f"use one of {endings}"
        ) from None
    parts = _full(root, options) if "classes" in fields or "modality" in fields else _plain(path, fields)
    classes, placed, prompts, name, modality = parts
    samples = tuple(_of_one_class(placed))
    try:
        return Task(tuple(classes), samples, prompts, name, modality)
    except TaskError as exc:
        raise TaskError(f"{place(path)}: {exc}") from None


def _of_folder(source: str) -> Task:
    for file in ("task.yaml", "task.yml"):
        if os.path.isfile(os.path.join(source, file)):
            raise TaskError(f"{place(source)}: is a directory; name {file} in it")
    return _of_samples(placed_image_samples(source), Path(source).resolve().name, "image")


def _of_samples(placed: Iterable[Placed], name: str, modality: Modality) -> Task:
    """A task that its samples say all about."""
    samples = tuple(_of_one_class(placed))
    classes = tuple(ClassSpec(name) for name in sorted({sample.class_name for sample in samples}))
    return Task(classes, samples, name=name, modality=modality)


def is_table(path: Path) -> bool:
    """Whether it is a data file, by its ending."""
    return ENDINGS.get(path.suffix.lower(), PLAIN) != PLAIN


def _plain(path: Path, fields: dict[str, Node]) -> _Parts:
    """The short form: each key is a class, each value its list of texts."""
    classes, placed = list[ClassSpec](), list[Placed]()
    for key, node in fields.items():
        if node.kind not in ("list", "null"):
            remedy = suggestion(key, _TASK_KEYS) if key not in _TASK_KEYS else "add 'classes' beside it"
            node.refuse(f"class {short(key)}", f"write a list of its texts, or a 'classes' list ({remedy})")
        name = checked(key, node.place, "class name")
        classes.append(ClassSpec(name))
        placed.extend(_inline(node, name))
    return classes, placed, Prompts(), path.stem, "text"


def _full(root: Node, options: TableOptions) -> _Parts:
    """The long form: name, classes, examples, prompts."""
    fields = root.fields("the file", _TASK_KEYS, "key")
    modality: Modality = "text"
    if (node := fields.get("modality")) and node.kind != "null":
        modality = cast(Modality, node.text("modality"))
        if modality not in get_args(Modality):
            raise TaskError(f"{node.place}: modality is {short(modality)}; write text or image")
    classes, placed = list[ClassSpec](), list[Placed]()
    for spec, examples in _classes(fields["classes"]) if "classes" in fields else ():
        classes.append(spec)
        placed.extend(_inline(examples, spec.name, modality))
    by_files = "classes" not in fields and modality == "image"  # folders and files name the classes as well
    if "examples" in fields:
        names = None if by_files else [spec.name for spec in classes]
        placed.extend(_examples(fields["examples"], names, modality, options))
    if by_files:
        classes = [ClassSpec(name) for name in sorted({sample.class_name for _, sample in placed})]
    prompts = _prompts(fields["prompts"]) if "prompts" in fields else Prompts()
    name = fields["name"].text("the task's name") if "name" in fields else root.path.stem
    return classes, placed, prompts, name, modality


def _classes(node: Node) -> Iterator[tuple[ClassSpec, Node | None]]:
    """Classes in file order, each with the node of its inline examples."""
    for item in node.fields("'classes'").items() if node.kind == "mapping" else node.items("'classes'"):
        description: Node | None = None
        examples: Node | None = None
        if isinstance(item, tuple):
            key, description = item
            name = checked(key, description.place, "class name")
        elif item.kind == "mapping":
            fields = item.fields("a class", _CLASS_KEYS, "key of a class")
            if "name" not in fields:
                raise TaskError(f"{item.place}: a class without 'name'; give it one")
            name = fields["name"].text("class name")
            description, examples = fields.get("description"), fields.get("examples")
        else:
            name = item.text("class name")
        sentence = None
        if description is not None and description.kind != "null":
            sentence = description.text(f"description of class {short(name)}")
        yield ClassSpec(name, sentence), examples


def _inline(node: Node | None, class_name: str, modality: Modality = "text") -> Iterator[Placed]:
    """Examples written in the task file: texts or paths, or mappings with `text` or `image`, and `id`."""
    if node is None or node.kind == "null":
        return
    what = f"example of class {short(class_name)}"
    for item in node.items(f"'examples' of class {short(class_name)}"):
        written, id_ = item, None
        if item.kind == "mapping":
            fields = item.fields(what, _EXAMPLE_KEYS[modality], "key of an example")
            if modality not in fields:
                raise TaskError(f"{item.place}: {what} without '{modality}'; add it")
            written, id_ = fields[modality], fields.get("id")
        text, id_text = written.text(what), None
        if id_ is not None and id_.kind != "null":
            # A number is taken as it is written, so 007 stays 007.
            id_text = str(id_.value) if id_.kind == "number" else id_.text("id")
        if modality == "text":
            yield item.place, Sample(text, class_name, id=id_text)
            continue
        try:
            image = image_at(resolved(item.path.parent, text, item.place))
        except ImageError as error:
            raise ImageError(f"{item.place}: {error}") from None
        yield item.place, Sample.of_image(image, class_name, id=id_text)


def _examples(
    node: Node, class_names: Collection[str] | None, modality: Modality, options: TableOptions
) -> Iterator[Placed]:
    """The top-level `examples`: a file, several files, or `{class: [texts]}`; of images a folder too.

    A file is its name, or a mapping with `file` that says how it is written.
    """
    if node.kind == "null":
        return
    if node.kind == "mapping" and not _is_file(node):
        for class_name, texts in node.fields("'examples'").items():
            if class_names is not None and class_name.strip() not in class_names:
                raise unknown_class(texts.place, class_name, class_names)
            yield from _inline(texts, class_name.strip(), modality)
        return
    for item in node.items("'examples'") if node.kind == "list" else [node]:
        own = TableOptions(note=options.note)
        named = item
        if item.kind == "mapping":
            fields = item.fields("a file of examples", _FILE_KEYS, "key of a file of examples")
            if "file" not in fields:
                raise TaskError(f"{item.place}: examples without 'file'; name it")
            named = fields.pop("file")
            own = TableOptions(
                **{key: str(one.text(repr(key), stripped=False)) for key, one in fields.items()},
                note=options.note,
            )
        path = item.path.parent / Path(named.text("file name in 'examples'")).expanduser()
        if modality == "image":
            yield from placed_image_samples(path, class_names, own)
        else:
            yield from placed_samples(path, class_names, own)


def _is_file(node: Node) -> bool:
    """Whether a mapping is a file with its options, rather than texts by class."""
    return isinstance(node.value, dict) and "file" in node.value and node.value["file"].kind == "text"


def _prompts(node: Node) -> Prompts:
    if node.kind == "null":
        return Prompts()
    fields = node.fields("'prompts'", KEYS, "prompt")
    given: dict[str, str | bool] = {}
    for key, value in fields.items():
        what = f"prompt {key!r}"
        if key == FLAG:
            if value.kind != "truth value":
                value.refuse(what, "write true or false")
            given[KEYS[key]] = str(value.value).lower() in _TRUE
        else:
            value.text(what)
            given[KEYS[key]] = str(value.value)  # outer line breaks may be meant
    try:
        return Prompts(**given)  # type: ignore[arg-type]  # each key has its type
    except TaskError as exc:
        raise TaskError(f"{node.place}: {exc}") from None


def _of_one_class(placed: Iterable[Placed]) -> Iterator[Sample]:
    """The samples; one text or id under two classes is refused, with both places."""
    owners: dict[tuple[str, str], tuple[str, str]] = {}
    for where, sample in placed:
        text = normalised_text(sample.text)
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


@dataclass(frozen=True, slots=True)
class Node:
    """A value of the file; each reading of it either fits or raises with the node's place."""

    path: Path
    line: int
    kind: str  # list, mapping, text, or what YAML takes for something else unless it is quoted
    value: str | list[Node] | dict[str, Node]  # keys are texts and unique

    @property
    def place(self) -> str:
        """`file:line`."""
        return place(self.path, self.line)

    def text(self, what: str, *, stripped: bool = True) -> str:
        """The node as a text.

        Args:
            what: what the text is, for messages.
            stripped: refuse an empty text and drop white space around it; else the text comes as it stands.
        """
        if self.kind == "null" or not isinstance(self.value, str):
            self.refuse(what, "fill it in or remove it" if self.kind == "null" else "write a text")
        if self.kind != "text":
            written = one_line(self.value[:40])
            raise TaskError(f'{self.place}: {what} {written} is read as a {self.kind}; quote it: "…"')
        return checked(self.value, self.place, what) if stripped else self.value

    def items(self, what: str) -> list[Node]:
        """The node as a list."""
        return self.value if isinstance(self.value, list) else self.refuse(what, "write a list")

    def fields(self, what: str, allowed: Collection[str] | None = None, noun: str = "") -> dict[str, Node]:
        """The node as a mapping.

        Args:
            what: what the mapping is, for messages.
            allowed: the keys that it may have; None allows any.
            noun: what messages call a key.
        """
        if not isinstance(self.value, dict):
            self.refuse(what, "write a mapping")
        for key, node in self.value.items():
            if allowed is not None and key not in allowed:
                raise TaskError(f"{node.place}: unknown {noun} {short(key)}; {suggestion(key, allowed)}")
        return self.value

    def refuse(self, what: str, remedy: str) -> NoReturn:
        """Say what the node is and what it should be.

        Args:
            what: what should stand there, for the message.
            remedy: what the user is to do, which ends the message.
        """
        kind = "empty" if self.kind == "null" else f"a {self.kind}"
        raise TaskError(f"{self.place}: {what} is {kind}; {remedy}")


def read_tree(path: Path) -> Node:
    """The file's one document."""
    import yaml

    lines, size = list[str](), 0
    for _, line in read_lines(path):
        lines.append(line)
        size += len(line)
        if size > _LARGEST:
            raise TaskError(f"{place(path)}: larger than 64 MB; move the examples into a JSONL file")
    text = "".join(lines)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C parser is ten times faster
    if odd := yaml.reader.Reader.NON_PRINTABLE.search(text):
        number = text.count("\n", 0, odd.start()) + 1
        raise TaskError(f"{place(path, number)}: YAML allows no character {short(odd[0])}; remove it")
    try:
        _check_events(path, yaml.parse(text, Loader=loader))
        root = yaml.compose(text, Loader=loader)
    except TaskError:
        raise
    except (yaml.YAMLError, ValueError, OverflowError) as exc:  # the last two: escapes like "\\UFFFFFFFF"
        raise _syntax_error(path, text, exc) from None
    if root is None:
        raise TaskError(f"{place(path)}: is empty; list the classes and their examples")
    return _tree(path, root)


def _syntax_error(path: Path, text: str, exc: Exception) -> TaskError:
    lines = text.splitlines() or [""]
    mark, begun = getattr(exc, "problem_mark", None), getattr(exc, "context_mark", None)
    # At the end of the file the mark may stand on a line that is not there.
    number = None if mark is None else min(mark.line + 1, len(lines))
    line = lines[number - 1] if number else ""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return TaskError(f"{place(path, number)}: the line is indented with a tab; use spaces")
    problem = one_line(getattr(exc, "problem", None) or exc)[:80]
    since = f" in what starts at line {begun.line + 1}" if begun is not None else ""
    return TaskError(
        f"{place(path, number)}: not valid YAML ({problem}{since}); check indents, colons, quotes"
    )


def _check_events(path: Path, events: Iterable[yaml.Event]) -> None:
    """Refuse what a task file has no use for, before a tree is built from it."""
    import yaml

    depth = documents = 0
    for event in events:
        line = 1 if event.start_mark is None else event.start_mark.line + 1
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        documents += isinstance(event, yaml.DocumentStartEvent)
        tag = getattr(event, "tag", None)
        is_text = isinstance(event, yaml.ScalarEvent) and tag == _TAG + "str"
        if depth > _DEEPEST:
            problem, remedy = "nesting is too deep", "simplify the file"
        elif isinstance(event, yaml.AliasEvent):
            problem, remedy = f"alias *{event.anchor}", "write the value out"
        elif tag is not None and not is_text:
            problem, remedy = f"tag {tag}", "remove it"
        elif documents > 1:
            problem, remedy = "a second document starts", "keep one"
        else:
            continue
        raise TaskError(f"{place(path, line)}: {one_line(problem)}; {remedy}")


def _tree(path: Path, node: yaml.Node) -> Node:
    import yaml

    line = node.start_mark.line + 1
    if isinstance(node, yaml.ScalarNode):
        return Node(path, line, _KINDS[node.tag], node.value)
    if isinstance(node, yaml.SequenceNode):
        return Node(path, line, "list", [_tree(path, item) for item in node.value])
    fields: dict[str, Node] = {}
    for key_node, value in node.value:
        key = _tree(path, key_node)
        name = key.text("the key", stripped=False)
        if name in fields:
            first = fields[name].line
            raise TaskError(f"{key.place}: key {short(name)} stands twice, first at line {first}; keep one")
        # A value counts as standing at its key, where people look.
        fields[name] = replace(_tree(path, value), line=key.line)
    return Node(path, line, "mapping", fields)
