"""YAML as a tree whose nodes know their line, built from the parser's events.

PyYAML's own loader keeps the last of two equal keys, expands aliases without limit and
forgets where things stood; a task file is small and simple enough to refuse all of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from adamab.errors import TaskError
from adamab.task.files import read_lines
from adamab.task.messages import one_line, place, short

if TYPE_CHECKING:
    import yaml

_DEEPEST = 16  # a task file needs five levels
_LARGEST = 64 * 2**20
_TAG = "tag:yaml.org,2002:"
_TRUE = frozenset({"yes", "true", "on"})


@dataclass(frozen=True, slots=True)
class Node:
    """A value of the file; each reading of it either fits or raises with the node's place."""

    path: Path
    line: int
    kind: str  # how YAML reads it, for messages

    @property
    def place(self) -> str:
        """`file:line`."""
        return place(self.path, self.line)

    @property
    def is_empty(self) -> bool:
        """Nothing stands after the key."""
        return self.kind == "null"

    def text(self, what: str) -> str:
        """The node as a text."""
        self.refuse(what, "write a text")

    def flag(self, what: str) -> bool:
        """The node as true or false."""
        self.refuse(what, "write true or false")

    def items(self, what: str) -> list[Node]:
        """The node as a list."""
        self.refuse(what, "write a list")

    def fields(self, what: str) -> dict[str, Node]:
        """The node as a mapping."""
        self.refuse(what, "write a mapping")

    def refuse(self, what: str, remedy: str) -> NoReturn:
        """Say what the node is and what it should be."""
        found = "empty" if self.is_empty else f"a {self.kind}"
        raise TaskError(f"{self.place}: {what} is {found}; {remedy}")


@dataclass(frozen=True, slots=True)
class Scalar(Node):
    """A text, or what YAML takes for something else unless it is quoted."""

    raw: str

    def text(self, what: str) -> str:
        """The node as a text."""
        if self.kind == "text":
            return self.raw
        if self.is_empty:
            self.refuse(what, "fill it in or remove it")
        raise TaskError(
            f'{self.place}: {what} {one_line(self.raw[:40])} is read as a {self.kind}; quote it: "…"'
        )

    def flag(self, what: str) -> bool:
        """The node as true or false."""
        if self.kind != "truth value":
            self.refuse(what, "write true or false")
        return self.raw.lower() in _TRUE


@dataclass(frozen=True, slots=True)
class Items(Node):
    """A list."""

    nodes: list[Node] = field(default_factory=list)

    def items(self, what: str) -> list[Node]:
        """The node as a list."""
        return self.nodes


@dataclass(frozen=True, slots=True)
class Fields(Node):
    """A mapping; its keys are texts and unique."""

    nodes: dict[str, Node] = field(default_factory=dict)

    def fields(self, what: str) -> dict[str, Node]:
        """The node as a mapping."""
        return self.nodes


def read_tree(path: Path) -> Node:
    """The file's one document."""
    import yaml

    text = "".join(_limited(path))
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C parser is ten times faster
    if odd := yaml.reader.Reader.NON_PRINTABLE.search(text):
        line = text.count("\n", 0, odd.start()) + 1
        raise TaskError(f"{place(path, line)}: YAML allows no character {short(odd[0])}; remove it")
    try:
        return _Builder(path, yaml.parse(text, Loader=loader)).document()
    except TaskError:
        raise
    except (yaml.YAMLError, ValueError, OverflowError) as exc:  # the last two: escapes like "\\UFFFFFFFF"
        raise _syntax_error(path, text, exc) from None


def _limited(path: Path) -> Iterator[str]:
    size = 0
    for _, line in read_lines(path):
        size += len(line)
        if size > _LARGEST:
            raise TaskError(f"{place(path)}: larger than 64 MB; move the examples into a JSONL file")
        yield line


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


class _Builder:
    """Turns events into nodes and refuses what a task file has no use for."""

    def __init__(self, path: Path, events: Iterator[yaml.Event]) -> None:
        from yaml.resolver import Resolver

        self._path = path
        self._events = events
        self._resolver = Resolver()

    def document(self) -> Node:
        import yaml

        next(self._events)  # the stream's start
        if isinstance(next(self._events), yaml.StreamEndEvent):
            raise TaskError(f"{place(self._path)}: is empty; list the classes and their examples")
        root = self._node(next(self._events), 0)
        next(self._events)  # the document's end
        after = next(self._events)
        if not isinstance(after, yaml.StreamEndEvent):
            self._fail(after, "a second document starts", "keep one")
        return root

    def _node(self, event: yaml.Event, depth: int) -> Node:
        import yaml

        if depth > _DEEPEST:
            self._fail(event, "nesting is too deep", "simplify the file")
        if isinstance(event, yaml.AliasEvent):
            self._fail(event, f"alias *{event.anchor}", "write the value out")
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event)
        if (tag := getattr(event, "tag", None)) is not None:
            self._fail(event, f"tag {tag}", "remove it")
        if isinstance(event, yaml.SequenceStartEvent):
            return self._items(event, depth)
        return self._fields(event, depth)

    def _scalar(self, event: yaml.ScalarEvent) -> Scalar:
        import yaml

        resolve: Callable[..., str] = self._resolver.resolve
        tag = event.tag or resolve(yaml.ScalarNode, event.value, event.implicit)
        kind = _KINDS.get(tag)
        if kind is None or (event.tag and kind != "text"):
            self._fail(event, f"tag {tag}", "remove it")
        return Scalar(self._path, _line(event), kind, event.value)

    def _items(self, event: yaml.Event, depth: int) -> Items:
        import yaml

        items = Items(self._path, _line(event), "list")
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.nodes.append(self._node(event, depth + 1))
        return items

    def _fields(self, event: yaml.Event, depth: int) -> Fields:
        import yaml

        fields = Fields(self._path, _line(event), "mapping")
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._node(event, depth + 1).text("the key")
            if key in fields.nodes:
                first = fields.nodes[key].line
                self._fail(event, f"key {short(key)} stands twice, first at line {first}", "keep one")
            # A value counts as standing at its key, where people look.
            fields.nodes[key] = replace(self._node(next(self._events), depth + 1), line=_line(event))
        return fields

    def _fail(self, event: yaml.Event, what: str, remedy: str) -> NoReturn:
        raise TaskError(f"{place(self._path, _line(event))}: {one_line(what)}; {remedy}")


def _line(event: yaml.Event) -> int:
    return 1 if event.start_mark is None else event.start_mark.line + 1


_KINDS = {
    _TAG + "str": "text",
    "!": "text",  # the explicit "just a text"
    _TAG + "null": "null",
    _TAG + "bool": "truth value",
    _TAG + "int": "number",
    _TAG + "float": "number",
    _TAG + "timestamp": "date",
    _TAG + "merge": "merge key",
    _TAG + "value": "default value",
}
