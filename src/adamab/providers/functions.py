"""Plain functions as embedders and generators, sync or async.

A function is known by its name, and nothing of it is stored: a saved model takes another of that name for it.
A run that is resumed notices where its code was edited.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from types import CodeType, FunctionType, MethodType, NoneType
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


def code_digest(function: Callable[..., Any]) -> str:
    """What changes when a function is edited: its code, its constants, and constants that it closes over.

    What it reads from elsewhere is not looked at.
    """
    is_object = not hasattr(function, "__qualname__") and not isinstance(function, functools.partial)
    parts = repr(_code_parts(type(function).__call__ if is_object else function, ()))
    return hashlib.sha256(parts.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _code_parts(value: Any, within: tuple[object, ...]) -> object:
    if any(value is outer for outer in within):  # a function that calls itself
        return "itself"
    within = (*within, value)
    if isinstance(value, str | bytes | int | float | complex | NoneType):
        return value
    if isinstance(value, tuple):
        return [_code_parts(one, within) for one in value]
    if isinstance(value, frozenset):  # in an order that no process keeps
        return sorted(repr(_code_parts(one, within)) for one in value)
    if isinstance(value, CodeType):
        return value.co_code, value.co_names, _code_parts(value.co_consts, within)
    if isinstance(value, functools.partial):
        return _code_parts((value.func, value.args, tuple(value.keywords.items())), within)
    if isinstance(value, MethodType):
        value = value.__func__
    if not isinstance(value, FunctionType):  # it may change while the function runs
        return type(value).__qualname__
    cells = []
    for cell in value.__closure__ or ():
        with suppress(ValueError):  # it is empty
            cells.append(cell.cell_contents)
    defaults = value.__defaults__, tuple((value.__kwdefaults__ or {}).items())
    return _code_parts((value.__code__, defaults, tuple(cells)), within)


async def _called(function: Callable[..., Any], *arguments: object) -> Any:
    """What it returns, in a thread of its own until there is something to wait for."""
    answer = await asyncio.to_thread(function, *arguments)
    return await answer if inspect.isawaitable(answer) else answer


class FunctionEmbedder(Embedder):
    """The view `pooled` by a function: a list of n different texts in, a matrix of n rows out."""

    def __init__(self, function: EmbedFunction) -> None:
        self.function = function
        self.fingerprint, self.code = f"function:{name_of(function)}", code_digest(function)

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
        self.fingerprint, self.code = f"function:{name_of(function)}", code_digest(function)

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
