"""The rows of an experiment: finished cells and what they yielded.

While it runs, each finished cell is a line of `NAME.rows.jsonl` in the folder of its work. When it has
ended, all of them are written beside its page as `NAME.rows.parquet`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from adamab.errors import RunError, place
from experiments.cells import Cell
from experiments.measure import Measured

COLUMNS = ["key", "experiment", *Cell.__dataclass_fields__, "synthetic", "accuracy", "n_test"]
COLUMNS += ["log_loss", "fit_seconds", "n_parameters", "counts", "answers", "correct"]


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
        return {
            "key": self.key,
            "experiment": self.experiment,
            **asdict(self.cell),
            "options": self.cell.settings,
            "synthetic": m.synthetic,
            "accuracy": round(self.accuracy, 6),
            "n_test": len(m.correct),
            "log_loss": None if m.log_loss is None else round(m.log_loss, 6),
            "fit_seconds": round(m.seconds, 3),
            "n_parameters": m.n_parameters,
            "counts": list(m.counts),
            "answers": dict(m.answers),
            "correct": np.packbits(m.correct).tobytes().hex(),
        }

    @classmethod
    def from_json(cls, read: dict[str, Any]) -> Row:
        """The reverse of `to_json`."""
        fields = {name: read[name] for name in Cell.__dataclass_fields__ if name in read}
        cell = Cell(**fields | {"options": json.dumps(read["options"], sort_keys=True)})
        log_loss = read.get("log_loss")
        bits = np.frombuffer(bytes.fromhex(read["correct"]), np.uint8)
        measured = Measured(
            correct=np.unpackbits(bits, count=read["n_test"]).astype(np.bool_),
            counts=tuple(read["counts"]),
            seconds=read["fit_seconds"],
            n_parameters=read["n_parameters"],
            synthetic=read["synthetic"],
            answers=read["answers"],
            log_loss=None if pd.isna(log_loss) else log_loss,
        )
        return cls(read["key"], read["experiment"], cell, measured)


class Rows:
    """The finished cells of the experiment `name` in a folder; several experiments may share them.

    Rows of other data or settings have other keys and are simply not asked for. A line that was cut off is
    the work of a process that was killed: its cell is measured again.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / f"{name}.rows.jsonl"
        try:
            published = read_parquet(folder / f"{name}.rows.parquet")
            self.known = {row.key: row for row in (*published, *_read_lines(self.path))}
        except OSError as error:
            raise RunError(f"{place(self.path)}: cannot be read ({error.strerror}); see --work") from None

    def add(self, row: Row) -> None:
        """Keep one row, on the disk before anything else happens."""
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row.to_json()) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise RunError(
                f"{place(self.path)}: cannot be written ({error.strerror}); what is in it is kept: run the "
                "same command again to go on"
            ) from None
        self.known[row.key] = row


def _read_lines(path: Path) -> Iterator[Row]:
    if not path.exists():
        return
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        os.truncate(path, whole)
    for line in content[:whole].splitlines():
        try:
            yield Row.from_json(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError):
            continue


def write_parquet(rows: Iterable[Row], path: Path) -> Path:
    """Write rows with a column a field; options and answers are JSON, keys and hits are bytes."""
    frame = pd.DataFrame([row.to_json() for row in rows], columns=COLUMNS)
    for column in ("options", "answers"):
        frame[column] = [json.dumps(value, sort_keys=True) for value in frame[column]]
    for column in ("key", "correct"):
        frame[column] = [bytes.fromhex(value) for value in frame[column]]
    frame.to_parquet(path, compression="zstd", compression_level=19, index=False)
    return path


def read_parquet(path: Path) -> Iterator[Row]:
    """The rows of such a file, none if there is no file; those without hits cannot stand in for a cell."""
    if not path.exists():
        return
    for read in pd.read_parquet(path).dropna(subset=["correct"]).to_dict("records"):
        texts = {"key": read["key"].hex(), "correct": read["correct"].hex()}
        parsed = {name: json.loads(read[name]) for name in ("options", "answers")}
        yield Row.from_json(read | texts | parsed)
