"""Plain functions as embedders and generators, sync or async.

A function is known by its name alone: nothing of it is stored, and another of that name is taken for it.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from adamab.errors import GeneratorError, short
from adamab.providers.embedders.base import Embedded, Embedder, Item, Kind, only_texts
from adamab.providers.generators.base import Batch, Generator, NewSamples, Request
from adamab.task.words import normalised_text

EmbedFunction: TypeAlias = Callable[[list[str]], ArrayLike | Awaitable[ArrayLike]]
GenerateFunction: TypeAlias = Callable[
    [str, str | None, list[str], int], Sequence[str] | Awaitable[Sequence[str]]
]


def name_of(function: Callable[..., Any]) -> str:
    """Module and name of a function, or of the class of an object that can be called.

    Example:
        >>> name_of(functools.partial(len)), name_of(functools.reduce)
        ('builtins.len', '_functools.reduce')
    """
    while isinstance(function, functools.partial):
        function = function.func
    named: Any = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


async def _called(function: Callable[..., Any], *arguments: object) -> Any:
    """What it returns, in a thread of its own until there is something to wait for."""
    answer = await asyncio.to_thread(function, *arguments)
    return await answer if inspect.isawaitable(answer) else answer


class FunctionEmbedder(Embedder):
    """The view `pooled` by a function: a list of n different texts in, a matrix of n rows out."""

    def __init__(self, function: EmbedFunction) -> None:
        self.function = function
        self.fingerprint = f"function:{name_of(function)}"

    def __str__(self) -> str:
        return self.fingerprint

    async def _embed(self, items: Sequence[Item], *, kind: Kind, views: Sequence[str]) -> Embedded:
        matrix = await _called(self.function, only_texts(items))
        if hasattr(matrix, "detach"):  # a tensor of torch's may be on another device, or have a gradient
            matrix = matrix.detach().cpu()
        return Embedded({"pooled": matrix}, np.zeros(len(items), np.bool_))


class FunctionGenerator(Generator):
    """Texts by a function: a class's name, its description, its samples and a number in, new texts out."""

    def __init__(self, function: GenerateFunction) -> None:
        self.function = function
        self.fingerprint = f"function:{name_of(function)}"

    def __str__(self) -> str:
        return self.fingerprint

    async def generate(self, request: Request) -> Batch:
        """What the function writes; a class for which it writes nothing is closed."""
        spec, examples = request.spec, [*request.given, *request.existing]
        texts = await _called(self.function, spec.name, spec.description, examples, request.count)
        listed = isinstance(texts, Sequence) and not isinstance(texts, str | bytes)
        if not listed or not all(isinstance(text, str) for text in texts):
            raise GeneratorError(f"{self} returned {short(repr(texts))}; return a list of texts")
        new = NewSamples(request, normalised_text)
        new.add(texts)
        return new.batch(closed=None if texts else f"{self} wrote nothing")
