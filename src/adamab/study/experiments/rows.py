"""Finished cells in a file of one JSON line each, so that a run can be taken up again."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from adamab.errors import RunError
from adamab.study.experiments.cells import Cell
from adamab.study.experiments.measure import Measured
from adamab.task.messages import place


@dataclass(frozen=True)
class Row:
    """A cell and what it yielded; its draw has the samples that `correct` is about, in the same order."""

    key: str
    experiment: str
    cell: Cell
    measured: Measured

    @property
    def accuracy(self) -> float:
        """The share of correct predictions."""
        return float(self.measured.correct.mean())

    def to_json(self) -> dict[str, Any]:
        """Plain data; `correct` has a bit a sample, in the order of the draw."""
        m = self.measured
        cell = asdict(self.cell)
        return {
            "key": self.key,
            "experiment": self.experiment,
            **cell,
            "options": self.cell.settings,
            "synthetic": m.synthetic,
            "accuracy": round(self.accuracy, 6),
            "n_test": len(m.correct),
            "fit_seconds": round(m.seconds, 3),
            "n_parameters": m.n_parameters,
            "counts": list(m.counts),
            "answers": dict(m.answers),
            "correct": np.packbits(m.correct).tobytes().hex(),
        }

    @classmethod
    def from_json(cls, read: dict[str, Any]) -> Row:
        """The reverse of `to_json`."""
        fields = {name: read[name] for name in Cell.__dataclass_fields__}
        cell = Cell(**fields | {"options": json.dumps(read["options"], sort_keys=True)})
        bits = np.frombuffer(bytes.fromhex(read["correct"]), np.uint8)
        measured = Measured(
            correct=np.unpackbits(bits, count=read["n_test"]).astype(np.bool_),
            counts=tuple(read["counts"]),
            seconds=read["fit_seconds"],
            n_parameters=read["n_parameters"],
            synthetic=read["synthetic"],
            answers=read["answers"],
        )
        return cls(read["key"], read["experiment"], cell, measured)


class Rows:
    """The file. Rows of other experiments, data or settings have other keys and are simply not asked for.

    A line that was cut off is the work of a process that was killed: its cell is measured again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known = {row.key: row for row in self._read()}

    def add(self, row: Row) -> None:
        """Keep one row, on the disk before anything else happens."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row.to_json()) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.known[row.key] = row

    def _read(self) -> Iterator[Row]:
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise RunError(f"{place(self.path)}: cannot be read ({error.strerror}); see --work") from None
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(self.path, whole)
        for line in content[:whole].splitlines():
            try:
                yield Row.from_json(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError):
                continue
