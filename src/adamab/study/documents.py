"""Results as JSON that people and version control can read."""

from __future__ import annotations

import json
from collections.abc import Mapping


def as_document(told: Mapping[str, object]) -> str:
    """`told` as JSON, a key at a time; a list of objects has one of them a line, however many there are.

    Example:
        >>> print(as_document({"seeds": 2, "rows": [{"seed": 0}, {"seed": 1}]}), end="")
        {
         "seeds": 2,
         "rows": [
          {"seed": 0},
          {"seed": 1}
         ]
        }
    """
    parts = ",\n".join(f" {_plain(key)}: {_value(value)}" for key, value in told.items())
    return f"{{\n{parts}\n}}\n"


def _value(value: object) -> str:
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return "[\n" + ",\n".join(f"  {_plain(item)}" for item in value) + "\n ]"
    return json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False).replace("\n", "\n ")


def _plain(value: object) -> str:
    return json.dumps(value, allow_nan=False, ensure_ascii=False)
