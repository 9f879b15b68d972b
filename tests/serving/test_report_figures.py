"""Figures as SVG: well formed, bounded, and safe whatever a class is called."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from adamab.serving import _report_figures as draw

NAMES = ["<script>", "a & b", "x" * 500, "half \ud83d", "\x00 nul", "line\nbreak", "שלום"]


def drawn(svg: str) -> ElementTree.Element:
    svg.encode()
    return ElementTree.fromstring(str(svg))


@pytest.mark.parametrize(
    "points", [[(1, 2.0)], [(1, 0.0), (2, 0.0)], [(1, -5.0), (9, 1e9)], [(3, 1e-12), (4, 2e-12)]]
)
def test_lines_stay_inside_their_frame(points: list[tuple[float, float]]) -> None:
    root = drawn(draw.line_chart(points, label="loss", x_name="round", y_name="loss"))
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for dot in root.iter("circle"):
        assert 0 <= float(dot.attrib["cx"]) <= width
        assert 0 <= float(dot.attrib["cy"]) <= height
    assert len(list(root.iter("text"))) < 30


def test_rows_are_shaded_by_value_and_equal_neighbours_are_one() -> None:
    rows = [draw.HeatRow("a", [0, 1, 1, 2]), draw.HeatRow("b", [2, 2, 0, 2])]
    merged = drawn(draw.heat_rows(rows, label="t", columns=("1", "4"), gap=False))
    heat = [rect for rect in merged.iter("rect") if rect.attrib["class"] == "heat"]
    assert [rect.attrib["fill-opacity"] for rect in heat] == ["0.57", "1.00", "1.00", "1.00"]
    apart = drawn(draw.heat_rows(rows, label="t", columns=("1", "4"), gap=True))
    assert sum(rect.attrib["class"] == "heat" for rect in apart.iter("rect")) == 6


def test_rows_without_values() -> None:
    for figure in (
        draw.heat_rows([], label="t", columns=("1", "1"), gap=True),
        draw.heat_rows([draw.HeatRow("a", ())], label="t", columns=("1", "1"), gap=True),
        draw.stacked_bars([draw.BarRow("a", (0, 0))], ("given", "synthetic"), label="t"),
        draw.stacked_bars([], ("given",), label="t"),
    ):
        assert drawn(figure).attrib["aria-label"] == "t"


def test_names_of_any_kind_are_escaped_and_cut() -> None:
    counts = [[int(i == j) for j in range(len(NAMES))] for i in range(len(NAMES))]
    root = drawn(draw.matrix(counts, NAMES, label='all of "them" <b>'))
    texts = ["".join(text.itertext()) for text in root.iter("text")]
    assert max(map(len, texts)) < 300
    assert sum(text == "1" for text in texts) == len(NAMES)
    assert root.attrib["aria-label"] == 'all of "them" <b>'


def test_bars_hold_their_parts_in_order() -> None:
    rows = [draw.BarRow("a", (5, 10)), draw.BarRow("b", (5, 0))]
    root = drawn(draw.stacked_bars(rows, ("given", "synthetic"), label="t"))
    widths = [float(r.attrib["width"]) for r in list(root.iter("rect"))[2:]]
    assert widths[1] == pytest.approx(2 * widths[0], abs=0.02)
    assert widths[2] == pytest.approx(widths[0])
    assert len(widths) == 3


def test_an_interval_and_what_guessing_gives() -> None:
    for value, low, high, chance in ((0.0, 0.0, 0.1, 0.5), (1.0, 0.9, 1.0, 0.001), (0.5, 0.5, 0.5, 1.0)):
        root = drawn(draw.interval_bar(value, low, high, chance, label="t"))
        width = float(root.attrib["viewBox"].split()[2])
        assert all(0 <= float(rect.attrib["x"]) <= width for rect in root.iter("rect"))
