"""`adamab report`: a run as one HTML file that needs nothing else, for people to read, send and print."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adamab.errors import AdamabError, RunError
from adamab.providers.budget import NANO
from adamab.providers.prices import usd
from adamab.run.reading import RunReader
from adamab.task.html import clean
from adamab.task.messages import one_line, place

if TYPE_CHECKING:
    from jinja2 import Environment

_HEAD = 4096  # bytes in which a report says whose it is
_MARK = re.compile(rb'<meta name="adamab-report" content="([0-9a-f]{16})">')


@dataclass(frozen=True)
class Written:
    """A report in a file."""

    path: Path
    bytes: int
    replaced: bool


def write_report(run: Path, file: Path, *, samples: bool = True) -> Written:
    """Write the report of a run; only an earlier report of the same run is ever replaced."""
    with RunReader(run) as reader:
        name = _run_name(reader)
        _check_place(file, run, name)
        page = _page(reader, name, samples).encode()
    replaced = file.exists()
    _write(file, page)
    return Written(file, len(page), replaced)


def report_html(run: Path, *, samples: bool = True) -> str:
    """The report as text."""
    with RunReader(run) as reader:
        return _page(reader, _run_name(reader), samples)


def _page(reader: RunReader, name: str, samples: bool) -> str:
    from jinja2 import TemplateError

    from adamab.serving.report_content import Seen, content

    try:
        known = content(Seen.of(reader), samples=samples)
        return _environment().get_template("report.html.j2").render(known, mark=name)
    except AdamabError:
        raise
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, TemplateError):
        raise RunError(
            f"{place(reader.directory)}: its files are damaged or were edited, so there is no report of it; "
            "fit again"
        ) from None


def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("adamab.serving", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"percent": _percent, "number": _number, "usd": _usd, "count": _count}
    made.filters |= {"plural": _plural, "cut": clean}
    return made


def _shown(value: Any) -> Any:
    """What stands in the page for a value; what the template itself made is left as it is."""
    return value if hasattr(value, "__html__") else clean("" if value is None else value)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}".replace("-", "−")


def _usd(amount: float) -> str:
    return usd(round(amount * NANO))


def _count(value: int) -> str:
    return f"{value:,}"


def _plural(count: int, noun: str, many: str | None = None) -> str:
    """`1 class`, `2 classes`."""
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"


def _run_name(reader: RunReader) -> str:
    """What tells a run from others, wherever its directory lies."""
    segments = reader.segments()
    summary = reader.summary() or {}
    known = segments[0].at if segments else (summary.get("task"), summary.get("seed"))
    return hashlib.sha256(repr(known).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _check_place(file: Path, run: Path, name: str) -> None:
    if file.is_dir():
        raise RunError(f"{place(file)}: is a directory; name a file with -o")
    if run.resolve() in file.resolve().parents:
        raise RunError(f"{place(file)}: lies among the run's own files; name another place with -o")
    if not file.parent.is_dir():
        raise RunError(f"{place(file.parent)}: no such directory; make it, or name another file with -o")
    if not (file.exists() or file.is_symlink()):
        return
    if not file.is_file():  # a pipe or a device would never end
        raise RunError(f"{place(file)}: is not a regular file; name another one with -o")
    try:
        with open(file, "rb") as stream:
            found = _MARK.search(stream.read(_HEAD))
    except OSError as error:
        raise RunError(f"{place(file)}: cannot be read ({one_line(error.strerror or error)})") from None
    if found is None:
        raise RunError(f"{place(file)}: is there and is no report; name another file with -o")
    if found[1].decode() != name:
        raise RunError(f"{place(file)}: is the report of another run; name another file with -o")


def _write(file: Path, page: bytes) -> None:
    """Under its name only when all of it is there."""
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        with open(part, "wb") as stream:
            stream.write(page)
        os.replace(part, file)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise RunError(f"{place(file)}: cannot be written ({one_line(error.strerror or error)})") from None
