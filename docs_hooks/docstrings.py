"""An extension of Griffe: the docstrings of scikit-learn's estimators in the form of all others (Google's).

Their entries are `name : meaning` or `name, name : meaning`, since types are in the signatures.
"""

from __future__ import annotations

import re
from textwrap import indent
from typing import Any

import griffe

_SECTION = re.compile(r"^(Parameters|Attributes)\n-+\n((?:.+\n?)*)", re.MULTILINE)
_ENTRY = re.compile(r"^(\w+(?:, \w+)*) : (.*(?:\n +.*)*)", re.MULTILINE)
_EXAMPLE = re.compile(r"^Example:$", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Rewrites docstrings as they are read; the files stay as they are."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for every module, class, function and attribute that was read."""
        if obj.docstring is not None:
            value = _SECTION.sub(_google, obj.docstring.value)
            obj.docstring.value = _EXAMPLE.sub("Examples:", value)


def _google(section: re.Match[str]) -> str:
    title = "Args" if section[1] == "Parameters" else section[1]
    return f"{title}:\n{indent(_ENTRY.sub(_entries, section[2]), '    ')}"


def _entries(entry: re.Match[str]) -> str:
    return "\n".join(f"{name}: {entry[2]}" for name in entry[1].split(", "))
