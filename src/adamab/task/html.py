"""Pieces of HTML for notebooks and reports: whatever comes from data is cleaned, cut and escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape

MOST_ROWS = 20
_WIDEST = 120
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff]")  # a file of HTML must not hold these


def clean(value: object, width: int | None = None) -> str:
    """The text of a value as every browser can show it, cut to `width` characters.

    Halves of characters and control characters become the replacement character.

    Example:
        >>> clean("caf\\ud83d\\x00"), clean("long", 3)
        ('caf��', 'lo…')
    """
    text = str(value)
    if width is not None and len(text) > width:
        text = text[: width - 1] + "…"
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return _CONTROL.sub("�", whole)


def cell(value: object) -> str:
    """A value as HTML; its direction of writing does not reach what stands around it.

    Example:
        >>> cell("<b>"), cell(3)
        ('<bdi>&lt;b&gt;</bdi>', '3')
    """
    if isinstance(value, int | float):
        return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
    return "" if value is None else f"<bdi>{escape(clean(value, _WIDEST))}</bdi>"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table with a line for each row; numbers stand on the right."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(map(_data, row))}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def facts(title: object, known: Mapping[str, object]) -> str:
    """A heading, and a line with what is known, in the order given."""
    said = "; ".join(f"{escape(what)}: {cell(value)}" for what, value in known.items() if value is not None)
    return f"<p><strong>{cell(title)}</strong><br>{said}</p>"


def and_more(count: int, noun: str) -> str:
    """What a table leaves out; nothing where that is nothing."""
    return f"<p>and {count:,} more {escape(noun)}</p>" if count > 0 else ""


def _data(value: object) -> str:
    right = isinstance(value, int | float)
    return f'<td style="text-align:{"right" if right else "left"}">{cell(value)}</td>'
