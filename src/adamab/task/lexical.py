"""The terms of a text in the lexical view.

Nothing but the standard library is imported here: `adamab export` ships a copy of this file.
"""

from __future__ import annotations

import re
import unicodedata

# Scripts that write without spaces: there, pairs and triples of characters stand for words.
_SPACELESS = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0x2FDF),  # Han radicals
    (0x3005, 0x3007),  # Han iteration mark and zero
    (0x3021, 0x3029),  # Han numerals
    (0x3041, 0x30FF),  # Hiragana, Katakana
    (0x31F0, 0x31FF),  # Katakana extension
    (0x3400, 0x9FFF),  # Han
    (0xF900, 0xFAFF),  # Han compatibility
    (0x20000, 0x3FFFF),  # Han extensions
)
_EMOJI = ((0x2600, 0x27BF), (0x2B00, 0x2BFF), (0x1F000, 0x1FAFF))
_QUESTION_MARKS = frozenset("?؟⸮՞፧")

# An accent on a Latin, Greek or Cyrillic letter; in other scripts a mark may be a vowel.
_ACCENTED = re.compile(
    "([a-z\u00df-\u024f\u0370-\u03ff\u0400-\u052f])"
    "[\u0300-\u036f\u0483-\u0487\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20f0]+"
)
_ASCII_TOKEN = re.compile(r"[a-z0-9]+|\?")
# Over the kinds of `_Kinds`: a word, a run of a script without spaces, a sign of its own.
_TOKEN = re.compile(r"w[wm]*|s[sm]*|p")
_WORD, _RUN, _SIGN = "wsp"


class _Visible(dict[int, int | None]):
    """Translation that drops invisible characters and unifies question marks, learned on demand."""

    def __missing__(self, code: int) -> int | None:
        char = chr(code)
        if char in _QUESTION_MARKS:
            self[code] = ord("?")
        elif unicodedata.category(char) == "Cf" or 0xFE00 <= code <= 0xFE0F or 0xE0100 <= code <= 0xE01EF:
            self[code] = None
        else:
            self[code] = code
        return self[code]


class _Kinds(dict[int, str]):
    """Translation of each character into one letter that says what it does in a word."""

    def __missing__(self, code: int) -> str:
        category = unicodedata.category(chr(code))
        if category[0] in "LMN" and category != "Nd" and _within(code, _SPACELESS):
            kind = _RUN
        elif category[0] in "LN":
            kind = _WORD
        elif category[0] == "M":
            kind = "m"  # continues whatever it follows
        else:
            kind = _SIGN if code == ord("?") or _within(code, _EMOJI) else " "
        self[code] = kind
        return kind


def _within(code: int, ranges: tuple[tuple[int, int], ...]) -> bool:
    return any(first <= code <= last for first, last in ranges)


VISIBLE = _Visible()
_kinds = _Kinds()


def terms(text: str) -> list[str]:
    """Words and pairs of adjacent words; character pairs and triples in scripts without spaces.

    Question marks and emoji are terms of their own and, like runs without spaces, part two words.

    Example:
        >>> terms("Who paid?")
        ['who', 'paid', 'who paid', '?']
        >>> terms("退款吗")
        ['退款', '款吗', '退款吗']
    """
    if text.isascii():  # the common case, several times faster
        tokens = [(token, _SIGN if token == "?" else _WORD) for token in _ASCII_TOKEN.findall(text.lower())]
    else:
        text = unicodedata.normalize("NFKC", text.translate(VISIBLE)).casefold()
        text = unicodedata.normalize("NFC", _ACCENTED.sub(r"\1", unicodedata.normalize("NFD", text)))
        kinds = text.translate(_kinds)  # one letter per character, so spans carry over
        tokens = [(text[m.start() : m.end()], kinds[m.start()]) for m in _TOKEN.finditer(kinds)]
    result: list[str] = []
    previous = ""
    for token, kind in tokens:
        if kind == _WORD:
            result.append(token)
            if previous:
                result.append(f"{previous} {token}")
            previous = token
            continue
        previous = ""
        if kind == _RUN and len(token) > 1:
            result.extend(token[i : i + n] for n in (2, 3) for i in range(len(token) - n + 1))
        else:
            result.append(token)
    return result
