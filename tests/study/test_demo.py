import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import adamab.cli.demo as command
from adamab.study import demo
from adamab.study.demo import Job, KnownVectors, Plan, gather, measure, run_job
from adamab.study.demo_report import write_report
from adamab.study.demo_summary import Interval, findings, summarise
from adamab.testing import HashEmbedder


def test_every_method_is_measured_on_all_test_messages(measurements):
    kinds = {(m.method, m.policy, m.synthetic) for m in measurements}
    assert kinds == {
        ("similarity", "none", 0),
        ("probe", "none", 0),
        ("recipe", "none", 0),
        ("probe", "round-robin", 60),
        ("recipe", "random", 60),
        ("recipe", "round-robin", 60),
        ("recipe", "adamab", 60),
    }
    assert {len(m.correct) for m in measurements} == {480}
    assert all(sum(m.samples_by_class.values()) == 60 + m.synthetic for m in measurements)


def test_round_robin_is_even_and_random_is_not(measurements):
    counts = {m.policy: set(m.samples_by_class.values()) for m in measurements if m.method == "recipe"}
    assert counts["round-robin"] == {10}
    assert len(counts["random"]) > 1


def test_fits_cannot_ask_for_test_messages(materials):
    with pytest.raises(KeyError):
        demo.run_sync(materials.training.embed([materials.test[0].text]))


def test_every_text_is_embedded_once():
    embedder = HashEmbedder(width=8)
    materials = gather(embedder, Plan().recipe)
    assert embedder.calls == 60 + 360 + 12 + 480
    assert isinstance(materials.training, KnownVectors)


def test_same_seed_same_answers(materials, tiny_plan, measurements):
    again = run_job(Job("adamab", 5, 1), materials, tiny_plan.recipe)[0]
    before = next(m for m in measurements if (m.method, m.policy, m.seed) == ("recipe", "adamab", 1))
    assert (again.correct == before.correct).all()


@pytest.mark.slow
def test_processes_give_what_this_process_gives(materials, tiny_plan, measurements):
    # Fewer jobs than the plan of the other tests: starting processes is what is tested.
    plan = replace(tiny_plan, seeds=(0,), per_class=(), workers=1)
    done = []
    found = {m.method: m for m in measure(plan, materials, on_job=lambda: done.append(1))}
    assert len(done) == 1
    for m in measurements:
        if m.seed == 0 and m.policy == "none":
            assert (found[m.method].correct == m.correct).mean() > 0.98  # threads may round otherwise


def test_worker_that_was_not_started_says_so(monkeypatch):
    monkeypatch.setattr(demo, "_worker", None)
    with pytest.raises(RuntimeError, match="_start_worker"):
        demo._run_in_worker(Job("none", 0, 0))


def test_worker_runs_jobs_of_its_materials(monkeypatch, materials, tiny_plan):
    import torch

    threads = torch.get_num_threads()
    monkeypatch.setattr(demo, "_worker", None)
    with demo.threadpool_limits(None):  # puts the limits back
        demo._start_worker(materials, tiny_plan.recipe)
    torch.set_num_threads(threads)
    assert [m.method for m in demo._run_in_worker(Job("none", 0, 0))] == ["recipe", "probe", "similarity"]


def test_rows_stand_in_the_order_of_the_story(summary):
    assert [row.label for row in summary.table()] == [
        "zero-shot similarity",
        "linear probe, given only",
        "calibrator, given only",
        "linear probe, round-robin",
        "calibrator, random",
        "calibrator, round-robin",
        "calibrator, ADAMAB",
    ]
    for row in summary.rows:
        assert row.accuracy.low <= row.accuracy.mean <= row.accuracy.high
        assert np.isclose(np.mean(row.by_seed), row.accuracy.mean)
        assert (row.difference is None) == (row.method == "probe")


def test_difference_is_to_the_probe_with_as_many_samples(summary):
    row, probe = summary.row("recipe", "random", 60), summary.row("probe", "round-robin", 60)
    assert np.isclose(row.difference.mean, row.accuracy.mean - probe.accuracy.mean)


def test_order_of_measurements_does_not_matter(measurements, summary):
    assert summarise(measurements[::-1]).rows == summary.rows


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.01, 0.03, "ahead of"), (-0.01, 0.03, "level with"), (-0.03, -0.01, "behind")],
)
def test_verdict_needs_an_interval_without_zero(low, high, verdict):
    assert Interval((low + high) / 2, low, high).verdict == verdict


def test_findings_say_what_the_numbers_say(summary):
    said = " ".join(findings(summary))
    assert f"{summary.against['round-robin'].verdict} round-robin" in said
    assert "480 test messages" in said
    assert "given examples alone" not in " ".join(findings(replace(summary, estimate=None)))


def test_equal_samples_are_said_to_be_equal(summary):
    even = {**summary.samples_by_class, "adamab": summary.samples_by_class["round-robin"]}
    assert "same number of samples of each class" in " ".join(
        findings(replace(summary, samples_by_class=even))
    )
    uneven = {**even, "adamab": summary.samples_by_class["random"]}
    assert "same number" not in " ".join(findings(replace(summary, samples_by_class=uneven)))


def test_report_has_table_and_raw_figures(summary, tmp_path):
    written = write_report(summary, tmp_path / "new", command="adamab demo")
    assert all(path.stat().st_size for path in written)
    data = json.loads((tmp_path / "new" / "demo.json").read_text())
    assert data["command"] == "adamab demo"
    assert data["seeds"] == [0, 1]
    assert len(data["rows"]) == 7
    assert "| calibrator, ADAMAB | 60 |" in (tmp_path / "new" / "demo.md").read_text()


@pytest.fixture
def run(monkeypatch, tmp_path, summary):
    app = typer.Typer()
    app.command()(command.demo)
    plans = []

    def remembered(plan):
        plans.append(plan)
        return summary

    monkeypatch.setattr(command, "_run", remembered)
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: (CliRunner().invoke(app, arguments), plans)


def test_command_prints_table_findings_and_places(run, tmp_path):
    result, plans = run()
    assert result.exit_code == 0, result.output
    assert plans[0].seeds == (0, 1, 2)
    assert "linear probe, round-robin" in result.stdout  # the longest name: nothing wraps at 80 columns
    assert "ADAMAB's choice of classes" in result.stdout
    assert (tmp_path / "adamab-demo" / "accuracy.png").exists()


def test_command_json_is_json_alone(run):
    result, plans = run("--json", "--quick", "--output", "there")
    data = json.loads(result.stdout)
    assert plans[0].seeds == (0,)
    assert plans[0].per_class == (10,)
    assert "there/demo.md" in data["files"]
    assert "--quick" in json.loads(Path("there/demo.json").read_text())["command"]


def test_command_refuses_no_seeds(run):
    assert run("--seeds", "0")[0].exit_code == 2


def test_command_runs_the_plan(monkeypatch, tmp_path, tiny_plan, summary):
    monkeypatch.setenv("ADAMAB_CACHE", str(tmp_path / "cache.sqlite"))
    monkeypatch.setattr("adamab.providers.registry.resolve_embedder", lambda spec: HashEmbedder(width=16))
    found = command._run(tiny_plan)
    assert [row.by_seed for row in found.rows] == [row.by_seed for row in summary.rows]
