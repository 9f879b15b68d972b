from adamab.testing import HashEmbedder
from experiments import accuracy_estimate
from experiments.datasets.text_sets import DemoSet


def test_draws_are_counted_by_inputs_and_samples(monkeypatch):
    monkeypatch.setattr(accuracy_estimate, "embedder_of", lambda data, spec: (HashEmbedder(), spec))
    rows = list(accuracy_estimate.measure(DemoSet(), "development", 1))
    assert [row["n"] for row in rows] == [24, 24, 24, 60, 60, 60, 120, 120, 120]
    assert all(row["low"] <= row["accuracy"] <= row["high"] for row in rows)
    figures = accuracy_estimate.table([*rows, {**rows[0], "set": accuracy_estimate.RECORDED}])
    names = [line[0] for line in figures.rows]
    assert names == ["demo", "mean of the draws", accuracy_estimate.RECORDED]
    bias = sum(row["accuracy"] - row["true"] for row in rows) / 9
    assert figures.rows[0][-2].startswith(f"{100 * bias:+.1f} ± ")
    assert figures.rows[0][-1] == f"{sum(row['low'] <= row['true'] <= row['high'] for row in rows)} of 9"
