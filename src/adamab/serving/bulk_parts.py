"""A folder of finished parts: whole or not there, with a manifest that says of what they are."""

from __future__ import annotations

import json
import os
import re
import uuid
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adamab.errors import RunError
from adamab.serving.bulk_sources import pyarrow
from adamab.task.messages import one_line, place

MANIFEST = "_manifest.json"  # readers of Parquet folders pass by names that begin with _ or .
SPENDING = "_spending.db"
_PART = re.compile(r"part-(\d{5,})-(\d{6,})\.parquet")
_ERRORS = b"adamab.errors"
_WORDS = {"input": "another input", "model": "another model", "question": "another question"}


@dataclass(frozen=True)
class Status:
    """A part that is there now."""

    source: int
    number: int
    rows: int
    errors: int
    fresh: bool  # made by this start
    overlong: int = 0  # texts that were longer than the embedder takes


class PartsFolder:
    """Where parts are written; any number of processes may write parts of one job at the same time."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def begin(self, identity: Mapping[str, Any]) -> None:
        """Make the folder, or see that it is of the same input, model and question."""
        before = self.manifest()
        if before is None:
            self._make()
            self._write({"format": 1, **identity})
            return
        for name, value in json.loads(json.dumps(identity)).items():
            if before.get(name) != value:
                what = _WORDS.get(name, f"{before.get(name)} rows a part (--part-rows)")
                raise RunError(
                    f"{place(self.path)}: holds parts of {what}; name another folder, or remove this one"
                )

    def _make(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if any(not name.startswith(".part-") for name in os.listdir(self.path)):
                raise RunError(f"{place(self.path)}: holds other files; name a new or an empty folder")
        except OSError as error:
            raise RunError(f"{place(self.path)}: cannot be made ({one_line(error.strerror)})") from None

    def manifest(self) -> dict[str, Any] | None:
        """What is known of the parts; None where there is no job yet."""
        try:
            found = json.loads((self.path / MANIFEST).read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            raise RunError(
                f"{place(self.path / MANIFEST)}: cannot be read ({one_line(error)}); remove the folder"
            ) from None
        return found if isinstance(found, dict) else {}

    def complete(self, rows: int, errors: int, parts: int) -> None:
        """Say that every row of the input is in a part."""
        self._write(
            (self.manifest() or {}) | {"rows": rows, "errors": errors, "parts": parts, "complete": True}
        )

    def _write(self, manifest: Mapping[str, Any]) -> None:
        self._replace(MANIFEST, (json.dumps(manifest, indent=1) + "\n").encode())

    def finished(self) -> dict[int, set[int]]:
        """Numbers of the parts that are there, by the number of their source."""
        found: dict[int, set[int]] = defaultdict(set)
        for name in os.listdir(self.path):
            if match := _PART.fullmatch(name):
                found[int(match[1])].add(int(match[2]))
        return found

    def part(self, source: int, number: int) -> Path:
        """The names sort as the rows do."""
        return self.path / f"part-{source:05d}-{number:06d}.parquet"

    def write(self, source: int, number: int, table: Any, errors: int) -> None:
        """A part appears under its name when all of it is on the disk."""
        pa = pyarrow()
        noted = table.replace_schema_metadata({_ERRORS: str(errors).encode()})
        target = self.part(source, number)
        temporary = self.path / f".{target.name}.{uuid.uuid4().hex}"
        try:
            pa.parquet.write_table(noted, temporary)
            _sync(temporary)
            os.replace(temporary, target)
        except OSError as error:
            raise RunError(f"{place(target)}: cannot be written ({one_line(error)[:200]})") from None
        finally:
            temporary.unlink(missing_ok=True)

    def status(self, source: int, number: int) -> Status:
        """Of a part that is there."""
        pa = pyarrow()
        path = self.part(source, number)
        try:
            metadata = pa.parquet.read_metadata(path)
            errors = int((metadata.metadata or {}).get(_ERRORS, b"0"))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise RunError(
                f"{place(path)}: is damaged ({one_line(error)[:200]}); remove it, then start again"
            ) from None
        return Status(source, number, metadata.num_rows, errors, fresh=False)

    def sweep(self) -> None:
        """Remove what killed workers left behind."""
        for name in os.listdir(self.path):
            if name.startswith(".part-"):
                (self.path / name).unlink(missing_ok=True)

    def _replace(self, name: str, content: bytes) -> None:
        temporary = self.path / f".part-{uuid.uuid4().hex}"
        try:
            temporary.write_bytes(content)
            _sync(temporary)
            os.replace(temporary, self.path / name)
        except OSError as error:
            raise RunError(f"{place(self.path / name)}: cannot be written ({one_line(error)})") from None
        finally:
            temporary.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    with open(path, "rb") as stream:
        os.fsync(stream.fileno())
