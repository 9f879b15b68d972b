"""`chat:MODEL`: a chat model is asked which class suits a sample, and answers with its number."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from adamab.compare.base import Floats
from adamab.compare.remote import Question, RemoteBaseline, Wording
from adamab.providers.cache import Reply
from adamab.providers.embedders.base import Item
from adamab.providers.generators.answers import is_refusal, without_thoughts
from adamab.providers.judges.chat import ChatModel
from adamab.providers.registry import expand
from adamab.task.spec import split_spec

FLOOR = 0.01  # what the classes that were not named share: an answer is no certainty
NO_CLASS = ""  # predicted where no class was named; equal to no label, so always an error
NONE = -1  # the number for "no class suits"
Missing = Literal["none", "unparsed", "refused"]

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
_OBJECT, _VALUE = re.compile(r"\{[^{}]*\}"), re.compile(r""":\s*["']?(-?[0-9]{1,6})["']?\s*[,}]""")  # JSON
_LEADING = re.compile(rf"({_NUMBER})(?:[.):]\s|\s*\n)")
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
    for numbers in _readings(content):
        if numbers:  # the strictest way of reading in which there is any number decides
            return numbers.pop() if len(numbers) == 1 else None
    return None


def _readings(text: str) -> Iterator[set[int]]:
    """The numbers of a text in ever looser ways of reading it."""
    braces = _OBJECT.search(text)
    yield {int(number) for number in _VALUE.findall(braces[0])} if braces else set()
    lines = [line for line in text.splitlines() if line.strip()]
    ends = [match for line in {*lines[:1], *lines[-1:]} if (match := _ALONE.fullmatch(line))]
    yield {int(match[1]) for match in ends}
    named = [(match[1].lower(), int(match[2])) for match in _NAMED.finditer(text)]
    yield {number for word, number in named if word == "answer"}
    yield {number for _, number in named}
    leading = _LEADING.match(text)
    yield {int(leading[1])} if leading else set()
    yield {int(match[0]) for match in _WHOLE.finditer(text)}


class ChatBaseline(RemoteBaseline):
    """Asks which class suits a text or an image, one request per sample, and takes a number for an answer.

    With `prompts.with_examples` the prompt shows the given samples of each class (few-shot). The class
    that was named gets 1 - `FLOOR`; where none was, all get the same and `predict` gives `NO_CLASS`.

    After a prediction `answered_` marks the samples for which a class was named, and `report` counts the
    answers that no class suits (none), that could not be read (unparsed), the refusals (refused), and those
    that ended for lack of room, whatever they said (cut).
    """

    name = "chat"
    answered_: NDArray[np.bool_]

    def __str__(self) -> str:
        return f"chat:{self.api.model}"

    def predict(self, views: Mapping[str, Floats] | ArrayLike, texts: Sequence[Item] = ()) -> list[str]:
        """The class that was named for each sample, or `NO_CLASS`."""
        named = super().predict(views, texts)
        return [label if known else NO_CLASS for label, known in zip(named, self.answered_, strict=True)]

    def report(self) -> dict[str, int]:
        """The counts of the last prediction, for a table's notes."""
        return {kind: self._counts[kind] for kind in ("none", "unparsed", "refused", "cut")}

    def _questions(self, wording: Wording, item: Item) -> Iterator[Question]:
        text, image = (item, None) if isinstance(item, str) else (None, item)
        yield wording.prompts.classify_text(wording.specs, text, wording.examples), image

    def _predict_proba(self, views: Mapping[str, Floats], texts: Sequence[Item]) -> NDArray[np.float64]:
        count = len(self.classes_)
        replies = [reply for (reply,) in self._replies(texts, views)]
        answers = [chosen(reply, count) for reply in replies]
        self._counts: Counter[str] = Counter(answer for answer in answers if isinstance(answer, str))
        self._counts["cut"] = sum(reply.cut for reply in replies)
        self.answered_ = np.array([isinstance(answer, int) for answer in answers], dtype=np.bool_)
        probabilities = np.full((len(answers), count), 1.0 / count)
        if count > 1:
            probabilities[self.answered_] = FLOOR / (count - 1)
            for row, answer in enumerate(answers):
                if isinstance(answer, int):
                    probabilities[row, answer] = 1.0 - FLOOR
        return probabilities


def from_spec(model: str, **options: Any) -> ChatBaseline:
    """The baseline that follows `chat:`, a model's name or a preset's; options are those of `ChatModel`."""
    bare, preset = split_spec(expand(model, "chat"))
    given = {name: value for name, value in options.items() if value is not None}
    return ChatBaseline(ChatModel(bare.partition(":")[2], **{**preset, **given}))
