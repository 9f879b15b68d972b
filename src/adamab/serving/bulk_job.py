"""What a bulk prediction is asked to do, as plain values: the same in this process and in a worker's."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from adamab.classifier.answers import Asked
from adamab.classifier.files import read_document
from adamab.errors import TaskError
from adamab.run.inference import Inference
from adamab.serving.bulk_rows import DELIMITERS, table_names
from adamab.serving.bulk_schema import Columns
from adamab.serving.bulk_sources import (
    PARQUET,
    PICTURE_LIST,
    Source,
    find_sources,
    identity_of,
    parquet_schema,
    rows_of,
)
from adamab.task.messages import place

_CACHE = "ADAMAB_CACHE"


@dataclass(frozen=True)
class Job:
    """Everything that decides the parts of OUT, and how the embedder is opened."""

    run: str
    output: str
    sources: tuple[Source, ...]
    part_rows: int
    asked: Asked = field(default_factory=Asked)
    embedder: str | None = None
    cache: bool = True
    columns: Columns = field(default_factory=Columns)
    cache_file: str | None = None  # of the process that started it, as is its current folder
    folder: str = field(default_factory=os.getcwd)
    vectors: str = ""  # what else decides the answers, where the embedder only looks vectors up

    @property
    def several(self) -> bool:
        """Whether rows must say which file they are of."""
        return len(self.sources) > 1

    def open(self) -> Inference:
        """The model with its embedder, as the user who started the job meant it."""
        if self.cache_file is not None:
            os.environ[_CACHE] = self.cache_file
        return Inference.open(self.run, self.embedder, cache=self.cache)

    def identity(self) -> dict[str, Any]:
        """What a second start must find again, to go on where the first stopped."""
        asked: dict[str, Any] = {
            "k": self.asked.k,
            "priors": _listed(self.asked.priors),
            "unknown": self.asked.unknown,
        }
        asked |= {"coverage": self.asked.coverage, "embedder": self.embedder}
        return {
            "input": [[*identity_of(source), source.kind] for source in self.sources],
            "model": hashlib.sha256(read_document(Path(self.run))).hexdigest(),
            "question": asked,
            "vectors": self.vectors,
            "part_rows": self.part_rows,
        }


def make_job(
    run: Path, text: str, output: Path, inference: Inference, *, kind: str | None, part_rows: int, **more: Any
) -> Job:
    """The job for INPUT; its columns are decided here, by its header or its first rows."""
    sources = find_sources(text, kind, inference.modality)
    columns = _columns(sources, part_rows)
    cache_file = os.environ.get(_CACHE)
    # A worker has another current folder.
    absolute = tuple(Source(_absolute(s.path), s.name, s.kind, s.modality) for s in sources)
    run_path, out = os.path.abspath(run), os.path.abspath(output)
    return Job(
        run_path,
        out,
        absolute,
        part_rows,
        columns=columns,
        cache_file=cache_file,
        vectors=inference.vectors_version,
        **more,
    )


def _absolute(path: str) -> str:
    name, colon, rest = path.partition(":")
    if colon and not os.path.exists(path):  # a published set of pictures, such as pets:DIR?split=test
        return f"{name}:{os.path.abspath(rest)}"
    return os.path.abspath(path)


def _columns(sources: list[Source], part_rows: int) -> Columns:
    first, several = sources[0], len(sources) > 1
    if first.kind == PARQUET:
        _check_schemas(sources)
        return Columns()
    if not several and next(rows_of(first), None) is None:
        raise TaskError(f"{place(first.path)}: holds no rows; add at least one")
    if first.kind == "jsonl":
        rows = (row.fields for source in sources for row in rows_of(source) if row.fields is not None)
        return Columns.of_objects(islice(rows, part_rows))
    if first.kind in DELIMITERS:
        # All of them now: what is wrong with the last file should not show after hours.
        headers = [table_names(Path(source.path), source.kind, source.columns) for source in sources]
        return Columns.of_texts(next(filter(None, headers), []), spill=several)
    return Columns.of_texts(["image" if first.kind == PICTURE_LIST else "text"])


def _check_schemas(sources: list[Source]) -> None:
    first = parquet_schema(sources[0])
    for source in sources[1:]:
        if not parquet_schema(source).equals(first):
            raise TaskError(
                f"{place(source.path)}: has other columns or types than {sources[0].name}; "
                "keep files of one schema in a folder"
            )


def _listed(priors: Mapping[str, float] | None) -> list[list[Any]] | None:
    return None if priors is None else [[name, share] for name, share in sorted(priors.items())]
