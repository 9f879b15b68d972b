"""An answer line by line: numbering, bullets, quotes, headings and chatter are taken off.

A number in front of a text is numbering only where the answer as a whole counts: '3. Oktober war
zu spät' and '24 hours is too long' stay what they are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from adamab.task.words import folded

_THING = (
    "text|sample|example|message|item|sentence|entry|output|variation|version|option|answer|response"
    "|query|question|review|e-?mail|comment|post|tweet|beispiel|nachricht|exemple|ejemplo|esempio"
)
_NUMBER = re.compile(
    rf"^(?:\#+[ ]*)?(?P<bold>\*\*|__)?"
    rf"(?:(?P<thing>(?:{_THING})[ ]*\#?)?(?P<plain>\d{{1,3}})[ ]?(?P<end>[.)\]:、．）]|[-–—](?=\s))"
    rf"|[(\[（【](?P<round>\d{{1,3}})[)\]）】][.:]?)"
    rf"(?P<close>\*\*|__)?[:.]?(?:\s+|(?=[^\s\d]))(?=\S)",
    re.IGNORECASE,
)
_BULLET = re.compile(r"^(?:[-*+–—](?=\s)|[•●▪◦‣⁃∙·○■])\s*(?:\[[ xX]?\]\s+)?")
_RULE = re.compile(r"^[-*_=#~`\s]+$")
_BRACKETS = re.compile(r"^[\[\]{}(),;:\s\"']*$|^[\"']?\w+[\"']?\s*:\s*\[$")
_HEADING = re.compile(r"^(?:#{1,6}\s+\S.*|\*\*[^*]+:?\*\*:?|__[^_]+:?__:?)$")
_GREETING = re.compile(
    r"^(?:sure(?: thing)?|certainly|of course|absolutely|okay|ok|alright|got it|understood|gladly|"
    r"natürlich|gerne?|klar|bien sûr|claro|por supuesto|certo|certamente|当然|もちろんです?)\b"
    r"[^\w]*(?P<rest>.*)$",
    re.IGNORECASE,
)
_THINGS = (
    r"(?:(?:training|synthetic|new|different|more|additional|other|unique|diverse|sample|customer)\s+)*"
    r"(?:texts?|samples?|examples?|messages?|sentences?|entries|items|variations?|versions?|"
    r"strings?|queries|questions|reviews?|e-?mails?|comments?|posts?|tweets?)"
)
_PRESENTING = re.compile(
    rf"^(?:here(?:'s| is| are|’s)|below (?:is|are)|these are|the following(?: (?:is|are))?)\b.*\b{_THINGS}\b",
    re.IGNORECASE,
)
_CLOSING = re.compile(
    r"^(?:please )?(?:let me know|i hope|hope (?:this|these|that)|feel free|if you(?:'d| would| need| want)|"
    r"would you like|do you (?:want|need)|these (?:texts|samples|examples)|each (?:text|sample|of these)|"
    r"all of these|is there anything|note(?: that)?\b|remember\b|"
    r"i(?:'ve| have) (?:written|created|tried|made))",
    re.IGNORECASE,
)
_ABOUT_THE_WORK = re.compile(
    rf"\b(?:{_THINGS}|adjust\w*|modif\w+|tweak\w*|revis\w+|assist\w*|anything else|"
    r"classif\w+|dataset|class)\b",
    re.IGNORECASE,
)
_PAIRS = {
    '"': '"“”', "“": "”“\"", "”": "”", "„": "“”\"", "«": "»", "»": "«", "‹": "›", "›": "‹",
    "'": "'", "‘": "’‘", "‚": "‘’", "「": "」", "『": "』", "`": "`'", "＂": "＂",
}  # fmt: skip
_INSIDE_WORD = re.compile(r"(?<=\w)['’](?=\w)")
_MOST_TURNS = 3  # marks around marks: '- 1. "text"'


@dataclass(frozen=True)
class _Line:
    text: str
    marked: bool = False
    apart: bool = False  # a blank line stands before it


def read_lines(content: str, count: int) -> tuple[list[str], bool]:
    """The samples of an answer that is no JSON, and whether it was a list with marks."""
    lines = _content_lines(content)
    lines = _without_openings(lines)
    bulleted = _debulleted(lines)
    numbered = _denumbered(bulleted)
    if _is_list(numbered):
        return [unquoted(_debullet(text)) for text in _items(numbered)], True
    plain = _without_closings([_Line(unquoted(line.text), apart=line.apart) for line in bulleted], count)
    quoted = len(lines) > 1 and all(unquoted(line.text) != _bare(line.text) for line in lines)
    return [line.text for line in plain], quoted


def unmarked(texts: Sequence[str]) -> list[str]:
    """Strings of a JSON array without numbering or quotes, where every one of them has it.

    What only some have belongs to them.
    """
    if len(texts) < 2:
        return list(texts)
    matches = [_NUMBER.match(text.strip()) for text in texts]
    numbers = [_value(match) for match in matches if match is not None]
    if numbers in (list(range(len(texts))), list(range(1, len(texts) + 1))):
        texts = [_cut_number(text.strip()) for text in texts]
    bare = [unquoted(text) for text in texts]
    all_quoted = all(short != text.strip() for short, text in zip(bare, texts, strict=True))
    return bare if all_quoted else list(texts)


def unquoted(text: str) -> str:
    """`text` without the pair of quotes around all of it, if there is one.

    Example:
        >>> unquoted("“I can't log in”"), unquoted('"A" or "B"')
        ("I can't log in", '"A" or "B"')
    """
    text = _bare(text)
    inside = text.rstrip(",;") if text[:1] in _PAIRS else text
    if len(inside) < 2 or inside[0] not in _PAIRS or inside[-1] not in _PAIRS[inside[0]]:
        return text
    return inside[1:-1].replace('\\"', '"').strip() if _is_one_pair(inside) else text


def _is_one_pair(text: str) -> bool:
    """Whether the first quote closes with the last character, and not before."""
    opening, closing = text[0], text[-1]
    inner = _INSIDE_WORD.sub("x", text[1:-1].replace('\\"', ""))
    depth = 1
    for place, char in enumerate(inner):
        if char not in (opening, closing):
            continue
        starts = place > 0 and inner[place - 1].isspace() if opening == closing else char == opening
        depth += 1 if starts else -1
        if depth == 0:
            return False
    return depth == 1


def _bare(text: str) -> str:
    """Without white space and without the emphasis of Markdown around all of it."""
    text = text.strip()
    for sign in ("**", "__"):
        inner = text[2:-2]
        if len(text) > 4 and text.startswith(sign) and text.endswith(sign) and sign not in inner:
            return inner.strip()
    return text


def _content_lines(content: str) -> list[_Line]:
    lines: list[_Line] = []
    apart = False
    for raw in content.splitlines():
        text = raw.strip()
        if not folded(text) or _RULE.match(text) or _BRACKETS.match(text):
            apart = True
            continue
        lines.append(_Line(text, apart=apart))
        apart = False
    return _without_headings(lines)


def _without_headings(lines: list[_Line]) -> list[_Line]:
    is_heading = [bool(_HEADING.match(line.text)) and not _NUMBER.match(line.text) for line in lines]
    return (
        lines if all(is_heading) else [line for line, is_ in zip(lines, is_heading, strict=True) if not is_]
    )


def _without_openings(lines: list[_Line]) -> list[_Line]:
    while lines and _is_opening(lines[0].text, alone=len(lines) == 1):
        lines = lines[1:]
    return lines


def _is_opening(text: str, *, alone: bool) -> bool:
    if _is_marked(text):
        return False
    if text.endswith((":", "：")) and (not alone or _PRESENTING.match(text)):
        return True  # in any language: 'Voici cinq exemples :'
    if alone:
        return False
    greeting = _GREETING.match(text)
    if greeting is not None and not greeting["rest"]:
        return True
    return bool(_PRESENTING.match(greeting["rest"] if greeting is not None else text))


def _without_closings(lines: list[_Line], count: int) -> list[_Line]:
    while len(lines) > 1 and _is_closing(lines, count):
        lines = lines[:-1]
    return lines


def _is_closing(lines: list[_Line], count: int) -> bool:
    """A customer, too, writes 'let me know if ...': more must speak for chatter than how it begins."""
    last = lines[-1]
    if not _CLOSING.match(last.text):
        return False
    set_apart = last.apart and not any(line.apart for line in lines[1:-1])
    return len(lines) > count or (set_apart and len(lines) > 2) or bool(_ABOUT_THE_WORK.search(last.text))


def _is_marked(text: str) -> bool:
    return bool(_BULLET.match(text) or _NUMBER.match(text))


def _debullet(text: str) -> str:
    for _ in range(_MOST_TURNS):
        text = _BULLET.sub("", text, count=1)
    return text


def _debulleted(lines: list[_Line]) -> list[_Line]:
    return [
        _Line(_BULLET.sub("", line.text, count=1), bool(_BULLET.match(line.text)), line.apart)
        for line in lines
    ]


def _denumbered(lines: list[_Line]) -> list[_Line]:
    matches = [_NUMBER.match(line.text) for line in lines]
    if not _is_numbering(matches):
        return lines
    return [
        line if match is None else _Line(_cut_number(line.text), True, line.apart)
        for line, match in zip(lines, matches, strict=True)
    ]


def _is_numbering(matches: Sequence[re.Match[str] | None]) -> bool:
    found = [match for match in matches if match is not None]
    numbers = [_value(match) for match in found]
    if not numbers or not _is_list([_Line("", match is not None) for match in matches]):
        return False
    if len(numbers) == 1:
        return numbers[0] <= 1 or found[0]["end"] in (")", "]") or found[0]["round"] is not None
    pairs = pairwise(numbers)
    return all(new - old in (0, 1, 2) or new == 1 for old, new in pairs)


def _is_list(lines: Sequence[_Line]) -> bool:
    """Whether marks are the rule: a lone dash somewhere makes no list of the answer."""
    marked = sum(line.marked for line in lines)
    return marked > 0 and (lines[0].marked or 2 * marked >= len(lines))


def _value(match: re.Match[str]) -> int:
    return int(match["plain"] or match["round"])


def _cut_number(text: str) -> str:
    match = _NUMBER.match(text)
    if match is None:
        return text
    rest = text[match.end() :]
    sign = match["bold"]
    if sign and not match["close"] and rest.count(sign) % 2:  # '**1. text**'
        rest = "".join(rest.rsplit(sign, 1)) if rest.endswith(sign) else rest.replace(sign, "", 1)
    return rest


def _items(lines: Sequence[_Line]) -> list[str]:
    """Marked lines, each with the unmarked ones right below it; others are chatter."""
    items: list[list[str]] = []
    inside = False
    for line in lines:
        if line.marked:
            items.append([line.text])
        elif inside and not line.apart and not (line is lines[-1] and _CLOSING.match(line.text)):
            items[-1].append(line.text)
        inside = line.marked or (inside and not line.apart)
    return ["\n".join(item) for item in items]
