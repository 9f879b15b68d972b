"""An extension of Griffe: the docstrings of this project in the form that it reads.

Entries of scikit-learn's docstrings are `name : meaning` here, since types are in the signatures; Griffe
would take the meaning for the type. Other docstrings have `Example:` and indented lines below it.
"""

from __future__ import annotations

import re
from textwrap import dedent
from typing import Any

import griffe

_SECTION = re.compile(r"^(?:Parameters|Attributes)\n-+\n(?:.+\n?)*", re.MULTILINE)
_ENTRY = re.compile(r"^(\w+) : ", re.MULTILINE)
_EXAMPLE = re.compile(r"^Examples?:\n((?:    .*\n?|\n)+)", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Rewrites docstrings as they are read; the files stay as they are."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for every module, class, function and attribute that was read."""
        if obj.docstring is not None:
            value = _SECTION.sub(_moved, obj.docstring.value)
            obj.docstring.value = _EXAMPLE.sub(_headed, value)


def _moved(section: re.Match[str]) -> str:
    return _ENTRY.sub(r"\1\n    ", section[0])


def _headed(example: re.Match[str]) -> str:
    return f"Examples\n--------\n{dedent(example[1])}"
