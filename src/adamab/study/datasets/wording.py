"""Prompts of the data sets: the default ones behind a few words about what kind of samples these are.

What is embedded (`query`, `described`) stays the default for texts: the descriptions of their classes are
sentences already. Those of pictures hold the name of the class, so they stand alone.
"""

from __future__ import annotations

from adamab.task import Prompts
from adamab.task.prompts import CLASSIFY, DRAW, GENERATE


def text_prompts(about: str, asked: str) -> Prompts:
    """`about` says what the texts are and what a class is; `asked` is what a reranker is to find out.

    Example:
        >>> text_prompts("The texts are riddles.", "What is it?").rerank_query
        'What is it? {text}'
    """
    return Prompts(
        generate=f"{about}\n\n{GENERATE}", classify=f"{about}\n\n{CLASSIFY}", rerank_query=f"{asked} {{text}}"
    )


def picture_prompts(about: str, asked: str) -> Prompts:
    """The same for pictures, whose class descriptions hold the name of the class."""
    return Prompts(
        described="{description}",
        rerank_class="{description}",
        draw=f"{about}\n\n{DRAW}",
        classify=f"{about}\n\n{CLASSIFY}",
        rerank_query=f"{asked} {{text}}",
    )
