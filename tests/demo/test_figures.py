import pytest

from adamab.demo import report as figures
from adamab.errors import MissingExtraError


def test_figures_are_written_as_png_and_svg(summary, tmp_path):
    paths = [*figures.draw_accuracy(summary, tmp_path), *figures.draw_samples(summary, tmp_path)]
    assert [p.name for p in paths] == ["accuracy.png", "accuracy.svg", "samples.png", "samples.svg"]
    assert all(p.stat().st_size < 200_000 for p in paths)
    assert "churn risk" in (tmp_path / "samples.svg").read_text()
    before = paths[1].read_bytes()
    figures.draw_accuracy(summary, tmp_path)
    assert paths[1].read_bytes() == before  # the same figure is the same file


def test_missing_matplotlib_names_the_extra(monkeypatch):
    monkeypatch.setattr(figures, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"adamab\[plots\]"):
        figures.check_matplotlib()
