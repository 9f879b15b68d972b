"""From the text of a chat answer to the number of a class: strict about the number, not about chatter."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Literal

from adamab.providers.generators.answers import without_thoughts
from adamab.providers.generators.refusals import is_refusal
from adamab.providers.replies import Reply

NONE = -1
Missing = Literal["none", "unparsed", "refused"]

_FENCED = re.compile(r"^[ \t]*```[^\n`]*\n(.*?)(?:^[ \t]*```|\Z)", re.DOTALL | re.MULTILINE)
# A whole number by itself: no part of a word, a decimal, a range or a percentage. A minus belongs to it
# only where nothing stands before it, as in "class-3" something does.
_NUMBER = r"(?<![\w.,])(?<![0-9][-:/])(?:(?<!-)-)?[0-9]{1,6}(?![0-9]|[.,:/%-][0-9]|\s?%|\w)"
_WHOLE = re.compile(_NUMBER)
_ALONE = re.compile(rf"[\s\W]*?({_NUMBER})[\s\W]*")
_NAMED = re.compile(
    rf"\b(answer|class|number|category|label|option|index)\b[\s\"'*_`#:=(\[]*"
    rf"(?:(?:is|number|no\.?|class|should be)\b[\s\"'*_`#:=(\[]*){{0,3}}({_NUMBER})",
    re.IGNORECASE,
)
_MINUS = re.compile("[\u2010\u2011\u2012\u2013\u2212](?=[0-9])")
_CUT = re.compile(r"\S+\s*\Z")
_LOOKED_AT = 20_000  # characters; an answer of more is no number


def chosen(reply: Reply, classes: int) -> int | Missing:
    """Which of so many classes an answer names, counted from 0, or why it names none.

    Example:
        >>> chosen(Reply("Class 3."), 5), chosen(Reply("-1"), 5), chosen(Reply("between 2 and 3"), 5)
        (2, 'none', 'unparsed')
    """
    if reply.refused:
        return "refused"
    content = without_thoughts(reply.content)[:_LOOKED_AT]
    # The last word of an answer that was cut may be half a number.
    number = read_number(_CUT.sub("", content) if reply.cut else content)
    if number == NONE:
        return "none"
    if number is not None and 1 <= number <= classes:
        return number - 1
    return "refused" if number is None and is_refusal(content) else "unparsed"


def read_number(content: str) -> int | None:
    """The one whole number that an answer gives; None where it gives none, or several.

    Example:
        >>> [read_number(text) for text in ('```json\\n{"class": 4}\\n```', "7. Reason: 24 hours", "1 or 2")]
        [4, 7, None]
    """
    content = _MINUS.sub("-", content).strip()
    blocks: list[str] = _FENCED.findall(content)
    for text in (*(block.strip() for block in blocks[:1]), content):
        for numbers in _readings(text):
            if numbers:  # the strictest way of reading in which there is any number decides
                return numbers.pop() if len(numbers) == 1 else None
    return None


def _readings(text: str) -> Iterator[set[int]]:
    """The numbers of a text in ever looser ways of reading it."""
    yield _of_json(text)
    lines = [line for line in text.splitlines() if line.strip()]
    ends = [match for line in {*lines[:1], *lines[-1:]} if (match := _ALONE.fullmatch(line))]
    yield {int(match[1]) for match in ends}
    named = [(match[1].lower(), int(match[2])) for match in _NAMED.finditer(text)]
    yield {number for word, number in named if word == "answer"}
    yield {number for _, number in named}
    leading = _WHOLE.match(text)
    yield {int(leading[0])} if leading and re.match(r"[.):]\s|\s*\n", text[leading.end() :]) else set()
    yield {int(match[0]) for match in _WHOLE.finditer(text)}


def _of_json(text: str) -> set[int]:
    start = re.search(r"[\[{]", text)
    for candidate in (text, text[start.start() :] if start else ""):
        try:
            value = json.JSONDecoder().raw_decode(candidate)[0] if candidate != text else json.loads(text)
        except (ValueError, RecursionError):
            continue
        return set(_integers(value))
    return set()


def _integers(value: object) -> Iterator[int]:
    """The whole numbers of an answer that is a number, a list, or an object, in quotes or not."""
    if isinstance(value, bool):
        return
    if isinstance(value, int):
        yield value
    elif isinstance(value, str) and re.fullmatch(r"\s*-?[0-9]{1,6}\s*", value):
        yield int(value)
    elif isinstance(value, list):
        yield from (
            number for part in value[:100] for number in _integers(part) if not isinstance(part, list)
        )
    elif isinstance(value, dict):
        yield from (
            number
            for part in value.values()
            if not isinstance(part, list | dict)
            for number in _integers(part)
        )
