"""A folder of finished parts: whole or not there, with a manifest that says of what they are."""

from __future__ import annotations

import json
import os
import re
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adamab.errors import RunError
from adamab.run.journal_file import WriterLock
from adamab.serving.bulk_sources import pyarrow
from adamab.task.messages import one_line, place

MANIFEST = "_manifest.json"  # readers of Parquet folders pass by names that begin with _ or .
SPENDING = "_spending.db"
_LOCK = ".lock"
_MAGIC = b"PAR1"
_PART = re.compile(r"part-(\d{5,})-(\d{6,})\.parquet")
_ERRORS = b"adamab.errors"
_WORDS = {
    "input": "another input",
    "model": "another model",
    "question": "another question",
    "vectors": "other vectors",
}


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
    """Where parts are written: by one job at a time, which may have workers in many processes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def held(self) -> Iterator[None]:
        """Make the folder and keep other jobs out of it; an empty one is removed at the end."""
        lock = self._locked()
        try:
            yield
        finally:
            with suppress(OSError):  # before it is released: whoever waits for it sees that it is gone
                (self.path / _LOCK).unlink()
            lock.release()
            with suppress(OSError):
                self.path.rmdir()

    def _locked(self) -> WriterLock:
        while True:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise RunError(f"{place(self.path)}: cannot be made ({one_line(error.strerror)})") from None
            lock = WriterLock(self.path, _LOCK, "these parts")
            if (self.path / _LOCK).exists():
                return lock
            lock.release()

    def begin(self, identity: Mapping[str, Any]) -> None:
        """Go on if what is there is of the same input, model and question; begin where there is nothing."""
        before = self.manifest()
        if before is None and any(not name.startswith((".part-", _LOCK)) for name in os.listdir(self.path)):
            raise RunError(f"{place(self.path)}: holds other files; name a new or an empty folder")
        known = json.loads(json.dumps(identity))
        other = [] if before is None else [name for name, value in known.items() if before.get(name) != value]
        if before is not None and (before.get("left_over") or (other and not self.finished())):
            self.clear()
            before = None
        if before is None:
            self._write({"format": 1, **known})
        elif other:
            what = _WORDS.get(other[0], f"{before.get(other[0])} rows a part (--part-rows)")
            raise RunError(
                f"{place(self.path)}: holds parts of {what}; name another folder, or remove this one"
            )

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
        """Numbers of the parts that are there and whole, by the number of their source."""
        found: dict[int, set[int]] = defaultdict(set)
        for name in os.listdir(self.path):
            if (match := _PART.fullmatch(name)) and _is_whole(self.path / name):
                found[int(match[1])].add(int(match[2]))
        return found

    def parts(self) -> list[Path]:
        """In the order of their rows."""
        return [
            self.part(source, n) for source, found in sorted(self.finished().items()) for n in sorted(found)
        ]

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
            sync(temporary)
            os.replace(temporary, target)
        except OSError as error:
            raise RunError(f"{place(target)}: cannot be written ({one_line(error)[:200]})") from None
        finally:
            temporary.unlink(missing_ok=True)

    def status(self, source: int, number: int) -> Status:
        """Of a part that is there."""
        path = self.part(source, number)
        with _told_if_damaged(path):
            metadata = pyarrow().parquet.read_metadata(path)
            errors = int((metadata.metadata or {}).get(_ERRORS, b"0"))
        return Status(source, number, metadata.num_rows, errors, fresh=False)

    def sweep(self) -> None:
        """Remove what killed workers left behind."""
        self._remove(lambda name: name.startswith(".part-"))

    def forget_parts(self) -> None:
        """Remove what is made; the next start makes it anew, with what is spent still counted."""
        self._remove(lambda name: name.startswith(".part-") or _PART.fullmatch(name) is not None)

    def clear(self) -> None:
        """Remove everything of ours; killed meanwhile, it leaves a folder that says that it is left over."""
        with suppress(RunError):  # on a full disk: then room is made without it
            self._write({"format": 1, "left_over": True})
        self.forget_parts()
        self._remove(lambda name: name.startswith(SPENDING))
        (self.path / MANIFEST).unlink(missing_ok=True)

    def _remove(self, meant: Callable[[str], bool]) -> None:
        for name in filter(meant, os.listdir(self.path)):
            (self.path / name).unlink(missing_ok=True)

    def _replace(self, name: str, content: bytes) -> None:
        temporary = self.path / f".part-{uuid.uuid4().hex}"
        try:
            temporary.write_bytes(content)
            sync(temporary)
            os.replace(temporary, self.path / name)
        except OSError as error:
            raise RunError(f"{place(self.path / name)}: cannot be written ({one_line(error)})") from None
        finally:
            temporary.unlink(missing_ok=True)


def _is_whole(path: Path) -> bool:
    """A Parquet file ends as it begins; one that was cut off does not."""
    with suppress(OSError), open(path, "rb") as stream:
        first = stream.read(len(_MAGIC))
        stream.seek(-len(_MAGIC), os.SEEK_END)
        return first == stream.read() == _MAGIC
    return False


def read_part(path: Path) -> Any:
    """The table of a part."""
    with _told_if_damaged(path):
        return pyarrow().parquet.read_table(path).replace_schema_metadata(None)


@contextmanager
def _told_if_damaged(path: Path) -> Iterator[None]:
    try:
        yield
    except (pyarrow().ArrowException, OSError, ValueError) as error:
        raise RunError(
            f"{place(path)}: is damaged ({one_line(error)[:200]}); remove it, then start again"
        ) from None


def sync(path: Path) -> None:
    """Wait until the file is on the disk."""
    with open(path, "rb") as stream:
        os.fsync(stream.fileno())
