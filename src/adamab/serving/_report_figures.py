"""The report's figures as inline SVG, and its thumbnails.

Figures have shades of one colour and hatching, so that they read in greyscale. Colours are variables of the
page's style sheet, which has them for light, dark and paper. Texts come from data; every one is cleaned, cut
and escaped here.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from adamab.errors import ImageError, MissingExtraError, clean
from adamab.serving.run_reader import Round, RunReader
from adamab.task.images import decoded_bytes, digest_of, open_image

WIDTH = 760
_LABELS, _ROW, _TOP, _END = 190, 20, 8, 56  # room for names, height of a row, above it, for numbers behind it
MOST_ROWS, MOST_COLUMNS = 24, 120  # of a figure with a row a class
MOST_ROUNDS = 40  # of the table: the first half of them and the last
MOST_THUMBNAILS = 40
_THUMBNAIL = 128  # pixels of the longer side: sharp at the 96 of the page
_NAME = 26  # characters of a class's name beside a row


@dataclass(frozen=True)
class HeatRow:
    """A class with one value a column, and what stands behind them."""

    name: str
    values: Sequence[float]
    end: str = ""


@dataclass(frozen=True)
class BarRow:
    """A class with the parts of its bar, in the order of the legend."""

    name: str
    parts: Sequence[int]


def line_chart(points: Sequence[tuple[float, float]], *, label: str, x_name: str, y_name: str) -> Markup:
    """A line through `points`, which are in the order of x."""
    height, left, bottom = 240, 56, 34
    low, high, ticks = _scale([y for _, y in points])
    first, last = points[0][0], points[-1][0]

    def x(value: float) -> float:
        return left + (value - first) / ((last - first) or 1) * (WIDTH - left - 16)

    def y(value: float) -> float:
        return height - bottom - (value - low) / (high - low) * (height - bottom - 14)

    parts = [
        _line(left, y(t), WIDTH - 16, y(t), "grid") + _text(left - 8, y(t) + 4, _number(t), "end")
        for t in ticks
    ]
    parts += [_text(x(t), height - bottom + 18, f"{t:,.0f}", "middle") for t in _whole_ticks(first, last)]
    parts.append(_text(WIDTH - 16, height - 2, x_name, "end", "axis"))
    parts.append(_text(left, 10, y_name, "start", "axis"))
    path = " ".join(f"{'L' if i else 'M'}{x(a):.1f} {y(b):.1f}" for i, (a, b) in enumerate(points))
    parts.append(Markup('<path class="line" d="{}"/>').format(path))
    if len(points) <= 60:
        parts += [
            Markup('<circle class="dot" cx="{:.1f}" cy="{:.1f}" r="2.6"/>').format(x(a), y(b))
            for a, b in points
        ]
    return _svg(height, label, parts)


def heat_rows(rows: Sequence[HeatRow], *, label: str, columns: tuple[str, str], gap: bool) -> Markup:
    """A row a class, darker where its value is higher; `columns` are the first and the last one's names."""
    count = max((len(row.values) for row in rows), default=0) or 1
    most = max((max(row.values, default=0) for row in rows), default=0) or 1
    step = (WIDTH - _LABELS - _END) / count
    between = 1 if gap and step > 3 else 0
    parts = []
    for place, row in enumerate(rows):
        top = _TOP + place * _ROW
        parts.append(_row_name(row.name, top))
        parts.append(_rect(_LABELS, top + 2, WIDTH - _LABELS - _END, _ROW - 4, "empty"))
        for column, length, value in _runs(row.values, merge=not gap):
            left, wide = _LABELS + column * step, max(length * step - between, 0.5)
            parts.append(_rect(left, top + 2, wide, _ROW - 4, "heat", 0.15 + 0.85 * value / most))
        parts.append(_text(WIDTH - _END + 8, top + 14, row.end, "start"))
    bottom = _TOP + len(rows) * _ROW + 14
    parts.append(_text(_LABELS, bottom, columns[0], "start", "axis"))
    if columns[1] != columns[0]:
        parts.append(_text(WIDTH - _END, bottom, columns[1], "end", "axis"))
    return _svg(bottom + 6, label, parts)


def _runs(values: Sequence[float], *, merge: bool) -> list[tuple[int, int, float]]:
    """Places, lengths and values of what is to be drawn; with `merge`, equal neighbours are one."""
    runs: list[tuple[int, int, float]] = []
    for place, value in enumerate(values):
        if merge and runs and runs[-1][2] == value and sum(runs[-1][:2]) == place:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1, value)
        elif value > 0:
            runs.append((place, 1, value))
    return runs


def stacked_bars(rows: Sequence[BarRow], legend: Sequence[str], *, label: str) -> Markup:
    """A bar a class; the parts are filled `part-0`, `part-1` and so on by the style sheet."""
    most = max((sum(row.parts) for row in rows), default=0) or 1
    sums = [" + ".join(f"{part:,}" for part in row.parts) for row in rows]
    longest = max(map(len, sums), default=0)
    scale = (WIDTH - _LABELS - 12 - 7.2 * longest) / most
    parts, left = [], float(_LABELS)
    for number, name in enumerate(legend):
        parts += [_rect(left, 6, 14, 12, f"part-{number}"), _text(left + 20, 16, name, "start")]
        left += 34 + 7.2 * len(name)
    for place, row in enumerate(rows):
        top, left = _TOP + 22 + place * _ROW, float(_LABELS)
        parts.append(_row_name(row.name, top))
        for number, part in enumerate(row.parts):
            if part:
                parts.append(_rect(left, top + 3, part * scale, _ROW - 6, f"part-{number}"))
            left += part * scale
        parts.append(_text(left + 6, top + 14, sums[place], "start"))
    return _svg(_TOP + 22 + len(rows) * _ROW + 6, label, parts)


def matrix(counts: Sequence[Sequence[int]], names: Sequence[str], *, label: str) -> Markup:
    """A row a true class, a column a predicted one; the diagonal is framed."""
    cell = max(17.0, min(34.0, (WIDTH - _LABELS - 80) / len(names)))
    head = 24 + 5.4 * max(len(_short(name, 20)) for name in names)
    most = max((max(row) for row in counts), default=0) or 1
    parts = [_text(_LABELS - 8, head - 8, "true ↓  predicted →", "end", "axis")]
    for column, name in enumerate(names):
        turned = Markup(
            '<text class="label" text-anchor="start" transform="translate({:.1f} {:.1f}) rotate(-55)">{}'
            "<title>{}</title></text>"
        )
        left = _LABELS + (column + 0.5) * cell
        parts.append(turned.format(left, head - 6, _short(name, 20), clean(name, 200)))
    for row, line in enumerate(counts):
        top = head + row * cell
        parts.append(_row_name(names[row], top + cell / 2 - 10))
        for column, count in enumerate(line):
            left = _LABELS + column * cell
            parts.append(_rect(left, top, cell - 1, cell - 1, "right" if row == column else "empty"))
            if count:
                share = count / most
                parts.append(_rect(left, top, cell - 1, cell - 1, "heat", 0.12 + 0.88 * share))
                kind = "on-dark" if share > 0.5 else "on-light"
                parts.append(_text(left + (cell - 1) / 2, top + cell / 2 + 4, f"{count}", "middle", kind))
    width = max(WIDTH, math.ceil(_LABELS + cell * len(names) + 80))
    return _svg(math.ceil(head + cell * len(names) + 4), label, parts, width=width)


def interval_bar(value: float, low: float, high: float, chance: float, *, label: str) -> Markup:
    """A share between 0 and 1 on a scale, with its interval and what guessing would give."""
    width, left, right = 340, 8, 8

    def x(share: float) -> float:
        return left + share * (width - left - right)

    parts = [_rect(x(0), 12, x(1) - x(0), 12, "empty"), _rect(x(low), 12, x(high) - x(low), 12, "heat", 0.45)]
    parts.append(_rect(x(value) - 1.5, 8, 3, 20, "heat", 1))
    parts.append(_line(x(chance), 8, x(chance), 28, "chance"))
    parts += [_text(x(0), 42, "0 %", "start"), _text(x(1), 42, "100 %", "end")]
    if chance < 0.75:
        parts.append(_text(min(max(x(chance), x(0) + 62), x(1) - 80), 42, "guessing", "middle", "axis"))
    return _svg(48, label, parts, width=width)


def rounds_section(reader: RunReader, worded: Callable[[str], str]) -> dict[str, Any]:
    """Figures and the table; `worded` is applied to what was said about a round."""
    rounds, chosen = reader.rounds(), reader.chosen()
    if not rounds:
        return {"n": 0}
    classes = [spec.name for spec in reader.classes()]
    names = classes  # few stand in the task's order, so that figures can be compared
    if len(names) > MOST_ROWS:
        names = list(dict.fromkeys([*chosen, *classes]))[:MOST_ROWS]
    half = MOST_ROUNDS // 2
    shown = rounds if len(rounds) <= MOST_ROUNDS else [*rounds[:half], *rounds[-half:]]
    losses, loss_label = reader.losses(), ""
    if losses:
        (start, before), (_, after) = losses[0], losses[-1]
        loss_label = f"training loss from {before:.3g} in round {start} to {after:.3g} at the end"
    ends = f"round {rounds[0].round:,}", f"round {rounds[-1].round:,}"
    return {
        "n": len(rounds),
        "loss": line_chart(losses, label=loss_label, x_name="round", y_name="loss") if losses else None,
        "loss_points": len(losses),
        "choices": _choices(rounds, names, chosen, ends) if chosen else None,
        "growth": _growth(reader, names, ends),
        "left_out": len(classes) - len(names),
        "a_column": -(-len(rounds) // MOST_COLUMNS),
        "table": [_round_row(figure, worded) for figure in shown],
        "table_left_out": max(len(rounds) - MOST_ROUNDS, 0),
        "scored": any(figure.why is not None and figure.why.score is not None for figure in rounds),
    }


def _choices(
    rounds: Sequence[Round], names: Sequence[str], chosen: Mapping[str, int], ends: tuple[str, str]
) -> Markup:
    """Columns are rounds, or as many rounds each as needed."""
    columns = min(len(rounds), MOST_COLUMNS)
    counts = {name: [0] * columns for name in names}
    for index, ended in enumerate(rounds):
        if ended.chosen in counts:
            counts[ended.chosen][index * columns // len(rounds)] += 1
    rows = [HeatRow(name, counts[name], f"{chosen.get(name, 0):,} ×") for name in names]
    label = f"which of {len(names)} classes was chosen in each of {len(rounds)} rounds"
    return heat_rows(rows, label=label, columns=ends, gap=True)


def _growth(reader: RunReader, names: Sequence[str], ends: tuple[str, str]) -> Markup:
    _, counts = reader.growth(MOST_COLUMNS)
    lines = [(name, counts.get(name, ())) for name in names]
    rows = [HeatRow(name, line, f"{line[-1]:,}" if line else "") for name, line in lines]
    label = f"samples of {len(names)} classes after each round, given and synthetic"
    return heat_rows(rows, label=label, columns=ends, gap=False)


def _round_row(ended: Round, worded: Callable[[str], str]) -> dict[str, Any]:
    notes = ["refused"] if ended.refused else []
    notes += [worded(why) for why in (ended.closed, ended.ended) if why]
    return {
        **vars(ended),
        "next": ended.runners_up[0] if ended.runners_up else None,
        "kept_out": sum(ended.rejected.values()),
        "note": "; ".join(notes),
    }


class Thumbnails:
    """Small images inside a report, each made once, few enough that the file can be mailed."""

    def __init__(self, images: Mapping[str, Path]) -> None:
        self._images = images  # by reference
        self._addresses: dict[str, str] = {}

    def of(self, reference: str) -> str:
        """A data URL; empty where it is gone, changed or one too many."""
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


def small_jpeg(image: Any, side: int, quality: int = 80) -> bytes:
    """The image of Pillow, no side longer than `side`, as a JPEG."""
    image.thumbnail((side, side))
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=quality)
    return stream.getvalue()


def _svg(height: float, label: str, parts: Sequence[str], *, width: int = WIDTH) -> Markup:
    return Markup('<svg class="{}" viewBox="0 0 {} {:.0f}" role="img" aria-label="{}">{}</svg>').format(
        "wide" if width >= WIDTH else "small", width, height, clean(label), Markup("").join(parts)
    )


def _text(x: float, y: float, text: str, anchor: str, kind: str = "label") -> Markup:
    return Markup('<text class="{}" x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>').format(
        kind, x, y, anchor, clean(text)
    )


def _rect(x: float, y: float, width: float, height: float, kind: str, opacity: float | None = None) -> Markup:
    shade = Markup("") if opacity is None else Markup(' fill-opacity="{:.2f}"').format(min(opacity, 1))
    return Markup('<rect class="{}" x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}"{}/>').format(
        kind, x, y, width, height, shade
    )


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    return Markup('<line class="{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>').format(
        kind, x1, y1, x2, y2
    )


def _row_name(name: str, top: float) -> Markup:
    """The name before a row; all of it, up to a length, as a title."""
    return Markup(
        '<text class="label" x="{}" y="{:.1f}" text-anchor="end">{}<title>{}</title></text>'
    ).format(_LABELS - 8, top + 14, _short(name), clean(name, 200))


def _short(name: str, width: int = _NAME) -> str:
    return clean(" ".join(name.split()), width)


def _scale(values: Sequence[float]) -> tuple[float, float, list[float]]:
    """The lowest and the highest value of an axis, and round numbers between."""
    low, high = min(values), max(values)
    if not high > low:
        low, high = low - (abs(low) or 1) / 2, high + (abs(high) or 1) / 2
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * 0.999)
    start, end = math.floor(low / step), math.ceil(high / step)
    return start * step, end * step, [i * step for i in range(start, end + 1)]


def _whole_ticks(first: float, last: float) -> list[float]:
    step = max(1, math.ceil((last - first) / 8))
    return [first + i * step for i in range(int((last - first) / step) + 1)]


def _number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 10_000 else f"{value:.2g}"
