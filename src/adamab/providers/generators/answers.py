"""From the text of a chat answer to samples: JSON where there is any, else one sample per line."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from adamab.task.words import normalised_text

_THOUGHTS = re.compile(r"^\s*<(think|thinking|reasoning)>.*?(?:</\1>|$)", re.DOTALL | re.IGNORECASE)
_END_OF_THOUGHTS = re.compile(r"^[ \t]*</think>[ \t]*$", re.MULTILINE)
_FENCED = re.compile(r"^[ \t]*```[^\n`]*\n(.*?)(?:^[ \t]*```|\Z)", re.DOTALL | re.MULTILINE)
# JSON starts a line, or follows the colon of the first one; a sample may well quote some further on.
_JSON = re.compile(r"(?:\A[^\n:]*:\s{0,99}|^[ \t]*)(?=[\[{]\s{0,99}[\"'\[{\]}])", re.MULTILINE)
_DECODER = json.JSONDecoder(strict=False)  # small models put raw line breaks into their strings
_LONGEST_REPAIR = 20_000  # characters: the time that a repair takes grows with their square
_NUMBER = re.compile(
    r"(?:[#*(\[ ]|text |example )*(\d{1,3})(?:[.):\]*]+(?:\s+|(?=[^\s\d]))|\s-\s+)(?=\S)", re.IGNORECASE
)
_BULLET = re.compile(r"[-*+–•](?:\s+\[[ x]\])?\s+|•")
_QUOTES = {'"': '"', "“": "”", "„": "“", "«": "»", "'": "'", "‘": "’", "「": "」"}
_RULE = re.compile(r"[-*_=#~`\s]*")
_OPENING = re.compile(r"(?:sure|certainly|of course|okay)\W*|.*[:：]", re.IGNORECASE)
# Small models write down the prompt's own marks and the schema's own names.
_ECHO = re.compile(r"</?data>|texts?[ _]?[0-9]{0,3}", re.IGNORECASE)
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")  # what caches, tokenizers and output files choke on
# What a refusal declines is the request itself: "I can't create an account" declines nothing.
_REFUSAL = re.compile(
    r"(?:(?:i'm|i am)? ?(?:really |very |so )?sorry|i apologi[sz]e|unfortunately)?[\s,.]*(?:but )?"
    r"i(?: can't| cannot| can not| won't| will not|(?:'m| am) (?:unable|not able) to) "
    r"(?:assist|help|comply|fulfil+|generate|create|write|provide|produce)(?: you)?(?: with)? ?"
    r"(?:(?:this|that|it)?\s*(?:$|[.,;!*])"
    r"|(?:this|that|these|such|your|harmful|hateful|offensive|explicit)\b (?:\w+ ){0,3}?"
    r"(?:requests?|content|texts?|messages?|examples?|task)\b)"
    r"|as an? (?:ai|(?:large )?language model)(?: language model| assistant)?,? i "
)


@dataclass(frozen=True)
class Answer:
    """The samples of an answer, and whether it was a list of any kind rather than prose."""

    texts: tuple[str, ...] = ()
    listed: bool = False


def read_answer(content: str, count: int, *, cut: bool = False) -> Answer:
    """The samples of a chat answer; never raises, whatever the model wrote.

    Args:
        content: What the model wrote.
        count: How many samples at most.
        cut: Whether the answer ended at the token limit; its last sample may be half a one and is left out.

    Returns:
        The samples, and whether the answer was a list of them.

    Example:
        >>> read_answer('Sure! ```json\\n{"texts": ["money back!", "refund"]}\\n```', 5).texts
        ('money back!', 'refund')
        >>> read_answer("Here are two:\\n1. 24 hours is too long\\n2. refund me", 5).texts
        ('24 hours is too long', 'refund me')
    """
    content = without_thoughts(content)
    content = "\n".join(_FENCED.findall(content)) or content
    texts = _from_json(content, cut=cut)
    if texts is not None:
        texts, listed = _without_marks(texts)[0], True
    else:
        lines = [line.strip() for line in content.splitlines() if not _RULE.fullmatch(line)]
        if len(lines) > 1 and _OPENING.fullmatch(lines[0]):
            lines = lines[1:]
        texts, listed = _without_marks(lines[:-1] if cut else lines)
    texts = [_UNWRITABLE.sub("", text).strip() for text in texts]
    texts = [text for text in texts if normalised_text(text) and not _ECHO.fullmatch(text)]
    return Answer(tuple(texts[: max(count, 0)]), listed)


def without_thoughts(content: str) -> str:
    """The answer without the thinking that reasoning models put before it."""
    bare = _THOUGHTS.sub("", content, count=1)
    # Some chat templates write the opening tag themselves, so that only the closing one comes back.
    end = _END_OF_THOUGHTS.search(bare) if bare == content else None
    return bare if end is None else bare[end.end() :]


def is_refusal(text: str) -> bool:
    """Whether a model declines to write, in the commonest English forms.

    Servers say it in a field of its own; this is for models that say it in the answer.

    Example:
        >>> is_refusal("I'm sorry, but I can't assist with that."), is_refusal("I'm sorry, I can't log in.")
        (True, False)
    """
    first = normalised_text(text.strip()[:400].partition("\n")[0]).replace("’", "'")
    return _REFUSAL.match(first.lstrip("\"'“*")) is not None


def _from_json(content: str, *, cut: bool) -> list[str] | None:
    """The strings of the JSON in an answer; None where it has none."""
    import json_repair  # here, because predicting has no use for it

    start = _JSON.search(content)
    if start is None:
        return None
    values: list[object] = []
    broken = content[start.end() :]
    try:
        while start is not None:
            value, end = _DECODER.raw_decode(content, start.end())
            values.append(value)
            start = _JSON.search(content, end)
    except (ValueError, RecursionError):
        if values:
            return _strings(values)
        try:
            texts = _strings(json_repair.loads(broken[:_LONGEST_REPAIR]))
        except (ValueError, RecursionError):
            return []
        return texts[:-1] if cut or len(broken) > _LONGEST_REPAIR else texts
    return _strings(values)


def _strings(value: object) -> list[str]:
    """The samples in a JSON value: of an object its `text`, or its first list, or all its strings."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for item in value for text in _strings(item)]
    if not isinstance(value, dict):
        return []
    if isinstance(value.get("text"), str):
        return [value["text"]]
    lists = [_strings(inner) for inner in value.values() if isinstance(inner, list | dict)]
    if lists:
        return next((texts for texts in lists if texts), [])
    return [text for text in value.values() if isinstance(text, str)]


def _without_marks(texts: Sequence[str]) -> tuple[list[str], bool]:
    """Texts without numbers, bullets or quotes where these are the rule, and whether they were.

    What stands between marked lines is chatter. A number is a mark only where the texts count up:
    '3. Oktober war zu spät' stays what it is.
    """
    marked = False
    for mark in (_BULLET, _NUMBER):
        matches = [match for text in texts if (match := mark.match(text))]
        numbers = [int(match[1]) for match in matches] if mark is _NUMBER else []
        rising = all(new in (old, old + 1) for old, new in pairwise(numbers))
        counting = numbers in ([], [1]) or (len(numbers) > 1 and rising)
        if matches and counting and 2 * len(matches) >= len(texts):
            texts, marked = [match.string[match.end() :] for match in matches], True
    quoted = [_unquoted(text) for text in texts]
    if len(texts) > 1 and all(short != text for short, text in zip(quoted, texts, strict=True)):
        return quoted, True
    return (quoted if marked else list(texts)), marked


def _unquoted(text: str) -> str:
    """`text` without the quotes or the Markdown emphasis around all of it."""
    text = text.strip()
    if text.startswith("**") and text.endswith("**") and text.count("**") == 2:
        text = text[2:-2]
    bare = text.rstrip(",")
    if len(bare) < 2 or _QUOTES.get(bare[0]) != bare[-1]:
        return text
    inner = bare[1:-1]
    return text if bare[0] in inner or bare[-1] in inner else inner  # such as '"A" or "B"'
