"""Texts that must never be trained on: the leak check of `--holdout`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from adamab.task.image_samples import read_images
from adamab.task.samples import read_texts
from adamab.task.spec import Modality
from adamab.task.words import bare

# A held-out text of so many characters is also found inside a longer sample. A shorter one may be there
# by chance: 'how do I cancel' begins many messages.
CONTAINED_FROM = 30


class Holdout:
    """A set of held-out texts that knows whether a sample gives one of them away.

    Texts are compared without case, white space and punctuation. A sample is held out when it equals
    a held-out text or contains one of at least `CONTAINED_FROM` characters, as after 'Hello, '. A part
    of a held-out text, or one in other words, is not recognised.

    Example:
        >>> "where is my Parcel" in Holdout(["Where is my parcel?"])
        True
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._keys = frozenset(bare(text) for text in texts)
        # The beginnings of long texts, and how long the texts are that begin so: to look for all of
        # them in a sample takes one look-up a character, however many there are.
        self._lengths: dict[str, set[int]] = {}
        for key in self._keys:
            if len(key) >= CONTAINED_FROM:
                self._lengths.setdefault(key[:CONTAINED_FROM], set()).add(len(key))

    @classmethod
    def read(cls, source: str | Path, modality: Modality = "text") -> Holdout:
        """Texts of a JSONL, CSV or TSV file with `text`, or of a `.txt` file with one a line.

        Of pictures a folder, a file with paths or a data set; they are recognised by their bytes.
        """
        if modality == "image":
            return cls(row.text for row in read_images(source))
        return cls(row.text for row in read_texts(source))

    def __len__(self) -> int:
        """Different texts."""
        return len(self._keys)

    def __contains__(self, text: str) -> bool:
        key = bare(text)
        return key in self._keys or any(self._found_at(key, start) for start in range(len(key)))

    def _found_at(self, key: str, start: int) -> bool:
        lengths = self._lengths.get(key[start : start + CONTAINED_FROM], ())
        return any(key[start : start + length] in self._keys for length in lengths)

    @property
    def digest(self) -> str:
        """sha256 of the set: the same whatever order, format or repeats the file has."""
        digests = sorted(hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest() for key in self._keys)
        return hashlib.sha256(b"".join(digests)).hexdigest()
