"""`adamab report`: a run as one HTML file that needs nothing else, for people to read, send and print.

Whatever could be long is bounded here, and what is left out is counted.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adamab.errors import AdamabError, ImageError, MissingExtraError, RunError, clean, os_errors, place
from adamab.model.storage import replace_file
from adamab.providers.image_store import small_jpeg
from adamab.providers.metering import NANO, usd
from adamab.publish.model_card import changed_options, public_fingerprint, without_place
from adamab.serving import _run_view
from adamab.serving.run_reader import Round, RunReader
from adamab.task.images import decoded_bytes, digest_of, open_image
from adamab.version import __version__

MOST_CLASSES, MOST_HARD, MOST_EXAMPLES = 100, 8, 3
MOST_STRIPS = 24  # classes whose choices are drawn
MOST_ROUNDS = 40  # of the table: the first half of them and the last
MOST_THUMBNAILS = 40  # few enough that the file can be mailed
_THUMBNAIL = 128  # pixels of the longer side: sharp at the 96 of the page
TEXT_WIDTH = 300  # characters of a sample
# Folders of this machine in a reason; addresses begin otherwise and stay.
_FOLDERS = re.compile(r"(?<![:/\w.])(?:~|[A-Za-z]:)?[/\\](?:[^\s/\\'\"]+[/\\])+")
Example = Callable[[str], dict[str, Any]]
_HEAD = 4096  # bytes in which a report says whose it is
_MARK = re.compile(rb'<meta name="adamab-report" content="([0-9a-f]{16})">')


@dataclass(frozen=True)
class Written:
    """A report in a file."""

    path: Path
    bytes: int
    replaced: bool


def write_report(run: Path, file: Path, *, samples: bool = True) -> Written:
    """Write the report of a run; only an earlier report of the same run is ever replaced.

    Args:
        run: The run's directory.
        file: The HTML file to write.
        samples: Whether it shows texts and images; False for readers who may not see them.

    Returns:
        What was written.
    """
    with RunReader(run) as reader:
        _check_place(file, run, _run_name(reader))
    page = report_html(run, samples=samples).encode()
    replaced = file.exists()
    with os_errors(file, "cannot be written"):
        replace_file(file, page)
    return Written(file, len(page), replaced)


def report_html(run: Path, *, samples: bool = True) -> str:
    """The report as text.

    Args:
        run: The run's directory.
        samples: Whether it shows texts and images, as in `write_report`.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, TemplateError

    environment = Environment(
        loader=ChoiceLoader([PackageLoader("adamab.serving", folder) for folder in ("templates", "web")]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "percent": lambda share: f"{100 * share:.1f} %",
        "css": "{:.2%}".format,
        "number": lambda value: "–" if value is None else f"{value:.4g}".replace("-", "−"),
        "count": "{:,}".format,
        "usd": lambda amount: usd(round(amount * NANO)),
        "plural": _plural,
        "cut": clean,
        "polyline": _polyline,
    }
    try:
        with RunReader(run) as reader:
            content = _content(reader, samples)
        return environment.get_template("report.html.j2").render(content)
    except AdamabError:
        raise
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, TemplateError):
        raise RunError(
            f"{place(run)}: its files are damaged or were edited, so there is no report of it; fit again"
        ) from None


def _shown(value: Any) -> Any:
    """What stands in the page for a value; what the template itself made is left as it is."""
    return value if hasattr(value, "__html__") else clean("" if value is None else value)


def _plural(count: int, noun: str, many: str | None = None) -> str:
    """`1 class`, `2 classes`."""
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"


def _run_name(reader: RunReader) -> str:
    """What tells a run from others, wherever its directory lies."""
    if not reader.is_run or reader.task() is None:
        raise RunError(f"{place(reader.directory)}: holds no run; name the directory of adamab fit --run")
    began = [segment.at for segment in reader.segments()][:1]
    return hashlib.sha256(repr(began).encode()).hexdigest()[:16]


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
    with os_errors(file, "cannot be read"), open(file, "rb") as stream:
        mark = _MARK.search(stream.read(_HEAD))
    if mark is None:
        raise RunError(f"{place(file)}: is there and is no report; name another file with -o")
    if mark[1].decode() != name:
        raise RunError(f"{place(file)}: is the report of another run; name another file with -o")


def _content(reader: RunReader, with_samples: bool) -> dict[str, Any]:
    """By the names that the template uses; without `with_samples` no text and no image of one is in it."""
    thumbnails = _Thumbnails({s.text: s.image for s in reader.samples() if s.image is not None})

    def example(text: str) -> dict[str, Any]:
        """A text, or a small image."""
        if text.startswith("image:"):
            return {"image": thumbnails.data_url(text), "text": None}
        return {"image": None, "text": text if len(text) <= TEXT_WIDTH else text[: TEXT_WIDTH - 1] + "…"}

    run = _run_view.overview(reader)
    return {
        "mark": _run_name(reader),
        "run": run,
        "noun": "images" if run["modality"] == "image" else "texts",
        "with_samples": with_samples,
        "adamab": __version__,
        "summary": reader.summary(),
        "spending": _run_view.spending(reader),
        "figures": _run_view.figures(reader, 0, MOST_STRIPS),
        "rounds": _rounds(reader.rounds()),
        "classes": _classes(reader),
        "confusion": _run_view.confusion(reader),
        "hardest": _hardest(reader, example, with_samples),
        "gate": _gate(reader, example, with_samples),
        "making": _making(reader),
    }


def _polyline(values: Sequence[float], width: float, height: float) -> str:
    """The points of a line through evenly spaced values, from the lowest at the bottom to the highest."""
    low, span = min(values), (max(values) - min(values)) or 1
    step = width / max(len(values) - 1, 1)
    return " ".join(f"{i * step:.1f},{height * (1 - (v - low) / span):.1f}" for i, v in enumerate(values))


def _rounds(rounds: Sequence[Round]) -> dict[str, Any]:
    half = MOST_ROUNDS // 2
    shown = rounds if len(rounds) <= MOST_ROUNDS else [*rounds[:half], *rounds[-half:]]
    return {
        "n": len(rounds),
        "first": rounds[0].round if rounds else 0,
        "last": rounds[-1].round if rounds else 0,
        "table": [
            {
                **vars(ended),
                "next": ended.runners_up[0] if ended.runners_up else None,
                "kept_out": sum(ended.rejected.values()),
                "notes": [
                    *(["refused"] if ended.refused else []),
                    *(_without_folders(why) for why in (ended.closed, ended.ended) if why),
                ],
            }
            for ended in shown
        ],
        "left_out": len(rounds) - len(shown),
        "scored": any(ended.why is not None and ended.why.score is not None for ended in rounds),
    }


def _classes(reader: RunReader) -> dict[str, Any]:
    order = "hardest" if len(reader.classes()) > MOST_CLASSES else "task"
    view = _run_view.classes(reader, None, order, 0, MOST_CLASSES)
    rows = view["classes"]
    most = max((row["given"] + row["synthetic"] + row["kept_out"] for row in rows), default=0)
    return {"rows": rows, "left_out": view["total"] - len(rows), "most": most or 1}


def _hardest(reader: RunReader, example: Example, with_samples: bool) -> dict[str, Any]:
    hard = [one for one in _run_view.class_errors(reader.held_out()).values() if one.right < one.n]
    rows = [
        {
            "errors": one,
            "examples": [
                {**example(a.text), "predicted": a.predicted, "probability": a.probability}
                for a in (one.examples if with_samples else ())
            ],
        }
        for one in hard[:MOST_HARD]
    ]
    return {"rows": rows, "left_out": len(hard) - len(rows)}


def _gate(reader: RunReader, example: Example, with_samples: bool) -> dict[str, Any]:
    examples: dict[str, list[dict[str, Any]]] = defaultdict(list)  # a few of each reason
    for sample in reader.samples() if with_samples else ():
        if sample.reason is not None and not sample.used and len(examples[sample.reason]) < MOST_EXAMPLES:
            examples[sample.reason].append({**example(sample.text), "class_name": sample.class_name})
    refused = sum(ended.refused for ended in reader.rounds())
    return {**_run_view.gate(reader), "refused": refused, "examples": examples}


def _making(reader: RunReader) -> dict[str, Any]:
    segments = [segment.data for segment in reader.segments()]
    inputs: Mapping[str, Any] = segments[-1]["inputs"] if segments else {}
    started, summary = reader.started(), reader.summary()
    recipe = summary.get("recipe") or inputs.get("recipe") or {}
    embedder = summary.get("embedder", {})
    generator = summary.get("generator") or started.get("generator") or inputs.get("generator")
    changed = changed_options(recipe)
    return {
        "embedder": without_place(embedder.get("spec") or started.get("embedder") or ""),
        "fingerprint": public_fingerprint(embedder.get("fingerprint") or inputs.get("embedder") or ""),
        "generator": without_place(str(generator or "none")),
        "policy": summary.get("policy") or inputs.get("policy"),
        "seed": summary.get("seed", inputs.get("seed")),
        "recipe": [(key, _value(value), key in changed) for key, value in recipe.items()],
        "recipe_name": recipe.get("name"),
        "closed": [(name, _without_folders(why)) for name, why in summary.get("closed", {}).items()],
        "ended": _without_folders(summary.get("ended") or ""),
        "changes": [
            (number, [_without_folders(change) for change in segment.get("changes", ())])
            for number, segment in enumerate(segments, 1)
        ],
    }


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_value, value))
    return "not set" if value is None else str(value)


def _without_folders(reason: str) -> str:
    """A reason that was made for the person at this machine, for others to read."""
    return _FOLDERS.sub("", reason)


class _Thumbnails:
    """Small images inside a report, each made once, few enough that the file can be mailed."""

    def __init__(self, images: Mapping[str, Path]) -> None:
        self._images = images  # by reference
        self._addresses: dict[str, str] = {}

    def data_url(self, reference: str) -> str:
        """The image in its own address; empty where it is gone, changed or one too many."""
        if reference not in self._addresses:
            full = sum(map(bool, self._addresses.values())) >= MOST_THUMBNAILS
            path = self._images.get(reference)
            self._addresses[reference] = "" if full or path is None else _data_url(reference, path)
        return self._addresses[reference]


def _data_url(reference: str, path: Path) -> str:
    try:
        with open_image(path) as stream:
            data = stream.read()
        if not reference.endswith(digest_of(data)):
            return ""  # somebody has put another one in its place
        image = decoded_bytes(data, path.name, least_side=_THUMBNAIL)
    except (ImageError, MissingExtraError, OSError):
        return ""
    return "data:image/jpeg;base64," + base64.b64encode(small_jpeg(image, _THUMBNAIL, 72)).decode()
