"""A fit as it happens: where the method meets the providers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from adamab.errors import MissingExtraError


@contextmanager
def torch_required() -> Iterator[None]:
    """Around whatever imports or runs training: a missing torch becomes the error with the pip line.

    Example:
        >>> with torch_required():
        ...     from adamab.run.fit import fit_task
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "torch":
            raise
        raise MissingExtraError("PyTorch, which training needs,", "train") from None
