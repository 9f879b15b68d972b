"""Numbers out of MATLAB files, which some data sets keep their lists in."""

from __future__ import annotations

import warnings
from pathlib import Path

from adamab.errors import TaskError
from adamab.task.messages import one_line, place, short

_LARGEST = 64 * 2**20  # bytes; the lists that are read here have some thousand numbers


def matlab_numbers(path: Path, key: str) -> list[int]:
    """The whole numbers of variable `key`, in their order."""
    try:
        if not path.is_file():
            raise TaskError(f"{place(path)}: no such file; check the path")
        if path.stat().st_size > _LARGEST:
            raise TaskError(f"{place(path)}: larger than 64 MB, so not this data set's; get it again")
    except OSError as error:
        reason = one_line(error.strerror)
        raise TaskError(f"{place(path)}: cannot be read ({reason}); check the path") from None
    found = _loaded(path, key)
    if found is None:
        raise TaskError(f"{place(path)}: has no variable {short(key)}; get the file again")
    return _whole_numbers(found, f"{place(path)}: variable {short(key)}")


def _loaded(path: Path, key: str) -> object:
    from scipy.io import loadmat  # not needed by most who read tasks, and slow to import

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return loadmat(str(path), variable_names=[key]).get(key)
    except Exception as error:  # a damaged file fails in many ways, a full disk among them
        raise TaskError(
            f"{place(path)}: not a readable MATLAB file ({type(error).__name__}); get it again"
        ) from None


def _whole_numbers(found: object, where: str) -> list[int]:
    import numpy as np

    array = np.asarray(found)
    if (
        array.dtype.kind not in "iuf"
        or not np.isfinite(array).all()
        or (array != array.astype(np.int64)).any()
    ):
        raise TaskError(f"{where} does not hold whole numbers; get the file again")
    return [int(number) for number in array.ravel()]
