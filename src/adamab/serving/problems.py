"""What the server refuses, in one shape: a status, a word for programs and a line for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class Refused(Exception):  # noqa: N818  a refusal is an answer, not a fault
    """A request that is answered with something else than a result.

    Example:
        >>> Refused(413, "too_many_items", "send fewer").body()
        b'{"error": {"code": "too_many_items", "message": "send fewer"}}'
    """

    status: int
    code: str
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> bytes:
        """The answer's body; what is not printable in the message arrives as an escape."""
        return json.dumps({"error": {"code": self.code, "message": self.message}}).encode()


def invalid(message: str) -> Refused:
    """The request can be read but not be answered as it is."""
    return Refused(422, "invalid", message)


def unreadable(message: str) -> Refused:
    """The request's body is not what it says it is."""
    return Refused(400, "unreadable", message)


def busy(message: str, *, seconds: int = 1) -> Refused:
    """The server has no room for now."""
    return Refused(503, "busy", message, {"Retry-After": str(seconds)})
