import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import adamab.cli.demo as command
from adamab.demo import demo_generator, load_demo, story, synthetic_samples
from adamab.demo.story import findings, write_report
from adamab.providers.async_bridge import run_sync
from adamab.providers.generators.base import Request
from adamab.task import normalised_text
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
    counts = {m.policy: set(m.samples_by_class.values()) for m in measurements if m.method == "recipe"}
    assert counts["round-robin"] == {10}
    assert len(counts["random"]) > 1


def test_fits_cannot_ask_for_test_messages(materials):
    with pytest.raises(KeyError):
        story.run_sync(materials.training.embed([materials.test[0].text]))


def test_findings_follow_the_numbers(summary):
    assert f"{summary.against['round-robin'].verdict} round-robin" in " ".join(findings(summary))
    assert len(findings(replace(summary, estimate=None))) == len(findings(summary)) - 1
    for policy, same in (("round-robin", True), ("random", False)):
        counts = {**summary.samples_by_class, "adamab": summary.samples_by_class[policy]}
        sentences = " ".join(findings(replace(summary, samples_by_class=counts)))
        assert ("same number of samples of each class" in sentences) is same


def test_the_report_is_written_the_same_twice(summary, tmp_path):
    written = write_report(summary, tmp_path / "new", command="adamab demo")
    assert {path.suffix for path in written} == {".md", ".json", ".png", ".svg"}
    assert all(0 < path.stat().st_size < 200_000 for path in written)
    assert "churn risk" in (tmp_path / "new" / "samples.svg").read_text()
    again = write_report(summary, tmp_path / "again", command="adamab demo")
    assert [path.read_bytes() for path in written] == [path.read_bytes() for path in again]
    data = json.loads((tmp_path / "new" / "demo.json").read_text())
    assert (data["command"], data["seeds"], len(data["rows"])) == ("adamab demo", [0, 1], 7)
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


def test_the_command_prints_a_table_or_json_alone(run, tmp_path):
    result, plans = run()
    assert result.exit_code == 0, result.output
    assert plans[0].seeds == (0, 1, 2)
    assert "linear probe, round-robin" in result.stdout  # the longest name: nothing wraps at 80 columns
    assert (tmp_path / "adamab-demo" / "accuracy.png").exists()
    result, plans = run("--json", "--quick", "--output", "there")
    assert "there/demo.md" in json.loads(result.stdout)["files"]
    assert (plans[1].seeds, plans[1].per_class) == ((0,), (10,))
    assert "--quick" in json.loads(Path("there/demo.json").read_text())["command"]
    assert run("--seeds", "0")[0].exit_code == 2


def test_command_runs_the_plan(monkeypatch, tmp_path, tiny_plan, summary, measurements):
    monkeypatch.setenv("ADAMAB_CACHE", str(tmp_path / "cache.sqlite"))
    monkeypatch.setattr("adamab.providers.registry.resolve_embedder", lambda spec: HashEmbedder(width=16))
    monkeypatch.setattr(story, "measure", lambda plan, materials, on_job: measurements)
    assert command._run(tiny_plan).rows == summary.rows


def test_five_messages_per_class_are_given_and_forty_tested():
    data = load_demo()
    assert len(data.task.classes) == 12
    assert set(Counter(s.class_name for s in data.task.samples).values()) == {5}
    assert set(Counter(s.class_name for s in data.test).values()) == {40}
    assert all(spec.description for spec in data.task.classes)
    few = load_demo(n_given=1)
    assert set(few.task.samples) < set(data.task.samples)
    assert len(few.test) == 12 * 44


def test_no_test_message_is_in_reach_of_training():
    data = load_demo()
    training = {normalised_text(s.text) for s in data.task.samples} | {
        normalised_text(sample.text) for sample in synthetic_samples()
    }
    assert not training & {normalised_text(s.text) for s in data.test}


def test_recording_hands_out_thirty_per_class():
    spec = load_demo().task.classes[0]
    batch = run_sync(demo_generator(seed=1).generate(Request(spec, 0, 99, (), ())))
    assert len(batch) == 30
    assert batch.closed is not None
    assert set(batch.texts) <= {sample.text for sample in synthetic_samples()}
