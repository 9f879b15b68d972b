"""From the text of a chat answer to samples: JSON where there is any, else line by line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from adamab.providers.generators.answer_lines import read_lines, unmarked
from adamab.task.words import folded

_THOUGHTS = re.compile(r"^\s*<(think|thinking|reasoning)>.*?(?:</\1>|$)", re.DOTALL | re.IGNORECASE)
_END_OF_THOUGHTS = re.compile(r"^[ \t]*</think>[ \t]*$", re.MULTILINE)
_FENCED = re.compile(r"^[ \t]*```[^\n`]*\n(.*?)(?:^[ \t]*```|\Z)", re.DOTALL | re.MULTILINE)
_OPENING = re.compile(r"[\[{]")
_CUT_JSON = re.compile(r"(?:\A|[\n:])\s{0,99}[\[{]\s{0,99}[\"\[{]")
# A complete JSON string that is an element or a value. What is cut off in the middle has no closing quote.
_STRING = re.compile(r'[\[,:{\n]\s{0,99}("(?:[^"\\]|\\.)*")\s{0,99}(?=[,\]}\n]|\Z)', re.DOTALL)
_PYTHON_LIST = re.compile(r"^\s*\[\s*'(.*)['\"]\s*,?\s*\]\s*$", re.DOTALL)
_PYTHON_COMMA = re.compile(r"['\"]\s*,\s*['\"]")
_TEXT_KEYS = ("text", "content", "sample", "example", "message", "sentence", "body", "query", "value")
_COUNTED_KEY = re.compile(r"[a-z]*[ _-]?\d+", re.IGNORECASE)
# Small models write down the prompt's own marks and the schema's own names.
_ECHO = re.compile(r"</?data>|texts?[ _]?[0-9]{0,3}", re.IGNORECASE)
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")  # what caches, tokenizers and output files choke on
_TRIES = 64  # brackets that are tried as the start of JSON; more than that is no JSON
_DECODER = json.JSONDecoder(strict=False)  # small models put raw line breaks into their strings


@dataclass(frozen=True)
class Answer:
    """The samples of an answer, and whether it was a list of any kind rather than prose."""

    texts: tuple[str, ...] = ()
    listed: bool = False


def read_answer(content: str, count: int) -> Answer:
    """At most `count` samples of a chat answer; never raises, whatever the model wrote.

    Example:
        >>> read_answer('Sure! ```json\\n{"texts": ["money back!", "refund"]}\\n```', 5).texts
        ('money back!', 'refund')
        >>> read_answer("Here are two:\\n1. 24 hours is too long\\n2. refund me", 5).texts
        ('24 hours is too long', 'refund me')
    """
    content = without_thoughts(content)
    found = _from_json(content)
    if found is not None:
        return Answer(_tidy(unmarked(found), count), listed=True)
    lines, listed = read_lines(_unfenced(content), count)
    return Answer(_tidy(lines, count), listed)


def without_thoughts(content: str) -> str:
    """The answer without the thinking that reasoning models put before it."""
    bare = _THOUGHTS.sub("", content, count=1)
    # Some chat templates write the opening tag themselves, so that only the closing one comes back.
    end = _END_OF_THOUGHTS.search(bare) if bare == content else None
    return bare if end is None else bare[end.end() :]


def _tidy(texts: Sequence[str], count: int) -> tuple[str, ...]:
    tidied = (_UNWRITABLE.sub("", text).strip() for text in texts)
    return tuple(text for text in tidied if folded(text) and not _ECHO.fullmatch(text))[: max(count, 0)]


def _unfenced(content: str) -> str:
    blocks: list[str] = _FENCED.findall(content)
    return "\n".join(blocks) if blocks else content


def _from_json(content: str) -> list[str] | None:
    """The strings of the JSON in an answer; None where it has none."""
    block = _unfenced(content).strip()
    try:
        for candidate in (block,) if block == content.strip() else (block, content):
            whole = _whole(candidate)
            found = whole if whole is not None else _embedded(candidate)
            if found is not None:
                return found
    except RecursionError:  # brackets within brackets, a thousand deep
        return []
    return _salvaged(block)


def _whole(candidate: str) -> list[str] | None:
    value = _loaded(candidate)
    if isinstance(value, str):  # JSON within JSON, or a single text in quotes
        inner = _loaded(value)
        return _strings(inner) if isinstance(inner, list | dict) else [value]
    return _strings(value) if isinstance(value, list | dict) else None


def _loaded(text: str) -> object:
    try:
        return json.loads(text, strict=False)
    except ValueError:
        return None


def _embedded(candidate: str) -> list[str] | None:
    """Strings of the JSON values that stand among other text, such as one object a line."""
    values = list(_values(candidate))
    found = [text for value in values for text in _strings(value)]
    empty = any(isinstance(value, dict) or not value for value in values)
    return found if found or empty else None


def _values(text: str) -> Iterator[object]:
    position = 0
    for _ in range(_TRIES):
        match = _OPENING.search(text, position)
        if match is None:
            return
        try:
            value, end = _DECODER.raw_decode(text, match.start())
        except ValueError:
            position = match.end()
            continue
        if _stands_alone(text, match.start(), end, value):
            yield value
        position = end


def _stands_alone(text: str, start: int, end: int, value: object) -> bool:
    """Whether it is (part of) the answer; a text may well quote JSON: 'it says {"code": "500"}'."""
    before = text[:start].rpartition("\n")[2].strip()
    after = text[end:].partition("\n")[0].strip(" \t\r,;]}")
    if not before.strip("[,:{") and not after:
        return True
    several = isinstance(value, list) and len(value) > 1 and all(isinstance(item, str) for item in value)
    return several and before.endswith(":")


def _salvaged(text: str) -> list[str] | None:
    """The complete strings of JSON that was cut off or is broken."""
    start = _CUT_JSON.search(text)
    if start is not None:
        return [_unescaped(quoted) for quoted in _STRING.findall(text, start.start())]
    python = _PYTHON_LIST.match(text)
    return None if python is None else _PYTHON_COMMA.split(python[1])


def _unescaped(quoted: str) -> str:
    try:
        return str(json.loads(quoted, strict=False))
    except ValueError:  # an escape that JSON does not have
        return quoted[1:-1].replace('\\"', '"').replace("\\n", "\n")


def _strings(value: object) -> list[str]:
    """The samples in a JSON value."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for item in value for text in _of_item(item)]
    if isinstance(value, dict):
        return _of_object(value)
    return []


def _of_item(item: object) -> list[str]:
    """What an element of a list stands for: a sample, whatever fields it comes with."""
    if not isinstance(item, dict):
        return _strings(item)
    texts = [value for value in item.values() if isinstance(value, str)]
    named = [item[key] for key in _TEXT_KEYS if isinstance(item.get(key), str)]
    if named or texts:
        return [named[0] if named else max(texts, key=len)]
    return _of_object(item)


def _of_object(value: dict[str, object]) -> list[str]:
    lists = [inner for inner in value.values() if isinstance(inner, list | dict)]
    if lists:
        found = [_strings(inner) for inner in lists]
        return next((texts for texts in found if texts), [])
    named = [value[key] for key in _TEXT_KEYS if isinstance(value.get(key), str)]
    counted = all(_COUNTED_KEY.fullmatch(key) for key in value)
    if named and not counted:
        return [str(named[0])]
    return [text for text in value.values() if isinstance(text, str)]
