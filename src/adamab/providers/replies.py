"""Answers of a generator's API, kept before they are used: what was paid for is never bought twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Ask:
    """Which answer: of which class, for its which batch, the how-manieth question of that batch.

    `digest` is the sha256 of what is asked, so that another run that asks the same can be answered.
    """

    class_name: str
    batch: int
    number: int
    digest: str


@dataclass(frozen=True)
class Reply:
    """What came back: the text of the answer, or that there was none and why."""

    content: str
    refused: bool = False
    cut: bool = False  # the answer ended because it grew too long


class Replies(Protocol):
    """Where answers are kept: in memory, in a run's journal, in the cache that runs share."""

    def get(self, ask: Ask) -> Reply | None:
        """The answer, if it is there."""

    def put(self, ask: Ask, reply: Reply) -> None:
        """Keep an answer; returns when it is safe."""


class MemoryReplies:
    """Kept as long as the process lives."""

    def __init__(self) -> None:
        self._replies: dict[Ask, Reply] = {}

    def get(self, ask: Ask) -> Reply | None:
        """The answer, if it is there."""
        return self._replies.get(ask)

    def put(self, ask: Ask, reply: Reply) -> None:
        """Keep an answer."""
        self._replies[ask] = reply
