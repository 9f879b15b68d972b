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
from adamab.task.lexical import VISIBLE, terms

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix  # type: ignore[import-untyped,unused-ignore]

_IDF_RANGE = (1e-6, 1e6)  # squares and their sums stay finite and above zero


def normalised_text(text: str) -> str:
    """`text` as it is compared for duplicates: compatibility forms, case, invisibles and spaces folded.

    Example:
        >>> normalised_text("  Refund\\u00a0ME ")
        'refund me'
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text.translate(VISIBLE))
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
