"""The words of a text, for the lexical view and for telling whether two texts are the same."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from adamab.errors import ModelFileError, TaskError, short

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix  # type: ignore[import-untyped,unused-ignore]

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

_IDF_RANGE = (1e-6, 1e6)  # squares and their sums stay finite and above zero


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


_visible = _Visible()
_kinds = _Kinds()


def normalised_text(text: str) -> str:
    """`text` as it is compared for duplicates: compatibility forms, case, invisibles and spaces folded.

    Example:
        >>> normalised_text("  Refund\\u00a0ME ")
        'refund me'
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text.translate(_visible))
        text = unicodedata.normalize("NFKC", text.casefold())
    return " ".join(text.casefold().split())


def bare(text: str) -> str:
    """`text` as near copies are recognised by: folded, without white space and punctuation.

    Of a text that is punctuation only, all of it.

    Example:
        >>> bare("Where is  my parcel?") == bare("where is my Par-cel")
        True
    """
    # Separators and punctuation, with the lone accents that some write as quotes. Marks stay: in
    # many scripts they are vowels.
    whole = normalised_text(text)
    return "".join(c for c in whole if not re.match("P|Z|Sk", unicodedata.category(c))) or whole


def checked(text: str, where: str, what: str) -> str:
    """`text` without outer white space; refused when it is empty or cannot be written as UTF-8.

    JSON and YAML escapes can smuggle in NUL and halves of surrogate pairs, which caches,
    tokenizers and output files choke on much later.

    Args:
        text: as somebody wrote it.
        where: its place, for messages.
        what: what it is, for messages.
    """
    if "\0" in text or any("\ud800" <= c <= "\udfff" for c in text):
        raise TaskError(f"{where}: {what} {short(text)} holds a NUL or half a character; remove it")
    if not normalised_text(text):
        raise TaskError(f"{where}: {what} is empty; fill it in or remove it")
    return text.strip()


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
        text = unicodedata.normalize("NFKC", text.translate(_visible)).casefold()
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


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Terms and their inverse document frequencies: all that the lexical view learns, as plain data.

    idf(t) = ln((1 + n) / (1 + df(t))) + 1, and a row is (1 + ln tf) · idf, scaled to length 1.

    Example:
        >>> words = Vocabulary.learn(["money back", "love it"])
        >>> words.transform(["money money", "nothing known"]).shape
        (2, 6)
    """

    terms: tuple[str, ...]
    idf: NDArray[np.float64]  # (len(terms),)

    @classmethod
    def learn(cls, texts: Iterable[str], min_count: int = 1) -> Vocabulary:
        """Learn the terms that stand in at least `min_count` of the `texts`.

        Args:
            texts: to learn from.
            min_count: texts that a term must stand in.
        """
        import numpy as np

        count = 0
        holders: Counter[str] = Counter()
        for text in texts:
            count += 1
            holders.update(set(terms(text)))
        kept = sorted(term for term, df in holders.items() if df >= min_count)
        idf = [math.log((1 + count) / (1 + holders[term])) + 1 for term in kept]
        return cls(tuple(kept), np.array(idf, dtype=np.float64))

    @cached_property
    def _column(self) -> dict[str, int]:
        return {term: column for column, term in enumerate(self.terms)}

    def transform(self, texts: Iterable[str]) -> csr_matrix:
        """One float32 row per text, of length 1, or of zeros when no term is known."""
        import numpy as np
        from scipy.sparse import csr_matrix

        starts, columns, counts = [0], list[int](), list[int]()
        for text in texts:
            term_counts = Counter(self._column[term] for term in terms(text) if term in self._column)
            columns.extend(sorted(term_counts))
            counts.extend(term_counts[column] for column in sorted(term_counts))
            starts.append(len(columns))
        size = len(starts) - 1
        idf = self.idf[np.array(columns, dtype=np.int64)]
        values = (1 + np.log(np.array(counts, dtype=np.float64))) * idf
        rows = np.repeat(np.arange(size), np.diff(starts))
        lengths = np.sqrt(np.bincount(rows, weights=values**2, minlength=size))
        shape = (size, len(self.terms))
        return csr_matrix(((values / lengths[rows]).astype(np.float32), columns, starts), shape=shape)

    def to_json(self) -> dict[str, list[str] | list[float]]:
        """Lists that `json` can write; `from_json` takes them back."""
        return {"terms": list(self.terms), "idf": [float(x) for x in self.idf]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Vocabulary:
        """Take back what `to_json` gave."""
        import numpy as np

        names, idf, (low, high) = data["terms"], data["idf"], _IDF_RANGE
        whole = all(isinstance(term, str) for term in names) and len(set(names)) == len(names) == len(idf)
        if not whole or not all(type(x) in (int, float) and low <= x <= high for x in idf):
            raise ModelFileError("the vocabulary is damaged; save the model again")
        return cls(tuple(names), np.array(idf, dtype=np.float64))
