"""The rows of an experiment: a finished cell and what it yielded, as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from adamab.study.experiments.cells import Cell
from adamab.study.experiments.measure import Measured
from adamab.study.row_file import RowFile


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


class Rows(RowFile[Row]):
    """The file of an experiment's rows; several experiments may share it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, Row.from_json, "--work")
