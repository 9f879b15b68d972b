"""`adamab compare` on the toy task, on images, and with methods behind an API."""

import csv
import json
import re

import numpy as np
import pytest

from adamab.compare.bench import compare, paired_difference, unseen
from adamab.compare.methods import ON_GIVEN, WITH_GENERATOR, Baseline, Method
from adamab.providers.async_bridge import run_sync
from adamab.run.settings import FitSettings, set_up
from adamab.task import Prompts, Sample, Task
from adamab.task.recipe import Recipe
from adamab.testing import Fault, HashEmbedder, PixelEmbedder, ProviderServer

NPZ = ("--embedder", "npz:vectors.npz")
TASK = ("compare", "task.yaml", "new.jsonl", *NPZ, "--no-cache")


def rows_of(result):
    assert result.exit_code == 0, result.output
    return {row["method"]: row for row in json.loads(result.stdout)["rows"]}


def test_all_usual_methods_in_one_table(adamab, folder):
    result = adamab(*TASK)
    assert result.exit_code == 0, result.output
    for name in (*ON_GIVEN, "accuracy", "F1", "difference", "fit s", "params", "reference"):
        assert name in result.stdout
    assert "toy: 3 classes, 9 given samples, 9 test texts" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 88
    assert result.stderr == ""
    assert list(folder.glob("run*")) == []


def test_figures_for_machines(adamab, folder):
    result = adamab(*TASK, "--json", "--seed", "3")
    rows = rows_of(result)
    assert tuple(rows) == ON_GIVEN
    again = rows_of(adamab(*TASK, "--json", "--seed", "3"))
    assert [row["accuracy"] for row in again.values()] == [row["accuracy"] for row in rows.values()]
    for name, row in rows.items():
        assert row["samples"] == 9
        assert row["accuracy"]["low"] <= row["accuracy"]["value"] <= row["accuracy"]["high"]
        assert (row["difference"] is None) == (name == "calibrator")
        assert row["fit_seconds"] >= 0
    assert rows["linear-probe"]["n_parameters"] == 3 * 16 + 3
    assert rows["zero-shot"]["n_parameters"] == 0
    assert rows["calibrator"]["n_parameters"] > 0
    read = json.loads(result.stdout)
    assert (read["reference"], read["n_test"], read["left_out"]) == ("calibrator", 9, 0)
    assert read["spent"]["calls"] == 0


def test_synthetic_samples_serve_every_method_that_asks(adamab, folder, write_npz):
    lines = [f"{word} again {n}" for n in range(3) for word in ("money", "sign", "likes")]
    names = ["refund", "login", "praise"] * 3
    (folder / "more.csv").write_text(
        "text,label\n" + "".join(f"{t},{n}\n" for t, n in zip(lines, names, strict=True))
    )
    with np.load(folder / "vectors.npz") as archive:
        write_npz(folder / "vectors.npz", [*archive["ids"].tolist(), *lines])
    more = ("--generator", "replay:more.csv", "--budget", "6 samples", "--json")
    rows = rows_of(adamab(*TASK, *more))
    assert tuple(rows) == (*ON_GIVEN, *WITH_GENERATOR)
    assert {rows[name]["samples"] for name in ON_GIVEN} == {9}
    assert {rows[name]["samples"] for name in WITH_GENERATOR} == {15}
    named = ("--methods", "knn+random, calibrator,knn,knn", "--against", "knn")
    assert tuple(rows_of(adamab(*TASK, *more, *named))) == ("knn+random", "calibrator", "knn")


def test_test_data_never_reaches_training(adamab, folder):
    task = json.loads((folder / "task.yaml").read_text())
    task["classes"][0]["examples"].append("Money PLEASE!")
    (folder / "task.yaml").write_text(json.dumps(task))
    with np.load(folder / "vectors.npz") as archive:
        ids, vectors = archive["ids"].tolist(), archive["view/pooled"]
    extended = {"ids": [*ids, "Money PLEASE!"], "view/pooled": np.concatenate([vectors, vectors[:1]])}
    np.savez(folder / "vectors.npz", **{k: np.array(v) for k, v in extended.items()})
    result = adamab(*TASK, "--methods", "knn")
    assert result.stderr == "warning: 1 test sample is also a given one and was left out\n"
    assert "8 test texts" in result.stdout
    options = ("--generator", "replay:new.jsonl", "--budget", "9", "--methods", "knn+round-robin", "--json")
    read = json.loads(adamab(*TASK, *options).stdout)
    assert read["rows"][0]["samples"] == 10  # all that the generator has is test data, or given
    assert any("kept out because the test data has them" in note for note in read["notes"])


def test_output_files(adamab, folder):
    chosen = (*TASK, "--methods", "zero-shot,calibrator")
    for ending in ("md", "csv", "json"):
        assert adamab(*chosen, "-o", f"out.{ending}").exit_code == 0
    page = (folder / "out.md").read_text()
    assert "| zero-shot |" in page
    assert "`adamab compare task.yaml new.jsonl --methods zero-shot,calibrator --embedder npz:" in page
    rows = list(csv.DictReader((folder / "out.csv").read_text().splitlines()))
    assert [row["method"] for row in rows] == ["zero-shot", "calibrator"]
    assert rows[0]["difference"] != ""
    assert json.loads((folder / "out.json").read_text())["reference"] == "calibrator"


def test_the_output_is_no_input(refused, folder):
    (folder / "new.csv").write_text("text,label\na,refund\n")
    before = (folder / "new.csv").read_bytes()
    words = ("compare", "task.yaml", "new.csv", "--methods", "zero-shot", "-o", "new.csv")
    assert "new.csv: is an input as well" in refused(*words)
    assert (folder / "new.csv").read_bytes() == before


def test_a_method_that_fails_is_named_and_the_others_go_on(adamab, folder, refused, monkeypatch):
    monkeypatch.setattr("adamab.compare._setfit.import_module", _missing)
    with ProviderServer(faults=[Fault("status", status=404, times=100)]) as server:
        retired = f"chat:m?base_url={server.url}/v1"
        result = adamab(*TASK, "--methods", f"setfit,{retired},knn", "--output", "table.md", "--json")
    assert rows_of(result).keys() == {"knn"}
    failed = json.loads(result.stdout)["failed"]
    assert "setfit, which SetFit needs, is not installed" in failed["setfit"]
    assert "404" in failed[retired]
    assert f"no row of {retired}" in (folder / "table.md").read_text()
    assert "adamab[baselines]" in refused(*TASK, "--methods", "setfit")


def _missing(name):
    raise ModuleNotFoundError(name, name=name)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--methods", "knnn"), "did you mean 'knn'"),
        (("--methods", ","), "no method is named"),
        (("--methods", "chat"), "write chat:MODEL"),
        (("--methods", "calibrator+adamab"), "name a --generator"),
        (("--against", "setfit"), "not among the methods"),
        (("--budget", "5 samples"), "name what writes them"),
        (("-o", "out.txt"), "unknown ending"),
        (("-o", "none/out.md"), "no such folder"),
    ],
)
def test_bad_options(refused, folder, options, message):
    assert message in refused(*TASK, *options)


def test_bad_data(adamab, refused, folder):
    with open(folder / "new.jsonl", "a") as stream:
        stream.write('{"text": "sign in fails", "label": "odd"}\n')
    assert "1 of 10 rows are of unknown classes: 'odd' (1)" in refused(*TASK)
    assert "9 test texts" in adamab(*TASK, "--methods", "knn", "--skip-unknown").stdout
    (folder / "new.jsonl").write_text('{"text": "She likes it", "label": "praise"}\n')
    assert "nothing to compare on" in refused(*TASK)
    (folder / "new.jsonl").write_text('{"text": "never seen", "label": "praise"}\n')
    assert "no vector for 1" in refused(*TASK)


def test_without_vectors_of_the_wordings_the_samples_stand_alone(adamab, folder):
    with np.load(folder / "vectors.npz") as archive:
        keep = [": " not in text for text in archive["ids"].tolist()]
        np.savez(folder / "only.npz", **{k: archive[k][keep] for k in ("ids", "view/pooled")})
    result = adamab(*TASK, "--embedder", "npz:only.npz", "--json")
    assert set(rows_of(result)) == set(ON_GIVEN) - {"zero-shot", "centred"}
    failed = json.loads(result.stdout)["failed"]
    assert set(failed) == {"zero-shot", "centred"}
    assert "no vectors of the classes' wordings" in failed["centred"]


def test_images(adamab, tmp_path, monkeypatch, paint):
    monkeypatch.chdir(tmp_path)
    paint(tmp_path / "given", {"red": 2, "green": 2, "blue": 2})
    paint(tmp_path / "test", {"red": 3, "green": 3, "blue": 3}, seed=1)
    monkeypatch.setattr("adamab.providers.registry.resolve_embedder", lambda spec, **options: PixelEmbedder())
    options = (
        "--embedder",
        "pixels",
        "--methods",
        "zero-shot,class-mean,setfit,calibrator,calibrator+random",
    )
    more = ("--generator", "transform", "--budget", "3 samples", "--set", "near_duplicate=none", "--json")
    read = json.loads(adamab("compare", "given", "test", *options, *more, "--no-cache").stdout)
    rows = {row["method"]: row for row in read["rows"]}
    assert set(rows) == {"class-mean", "calibrator", "calibrator+random"}
    assert set(read["failed"]) == {"zero-shot", "setfit"}
    assert rows["class-mean"]["accuracy"]["value"] == 1.0
    assert rows["calibrator+random"]["samples"] == 9


def test_methods_behind_an_api_share_one_budget(adamab, folder, server):
    chat = f"chat:gpt-4o-mini?base_url={server.url}/v1&first_wait=0.01"
    options = ("--methods", f"knn,{chat}", "--json")
    plan = json.loads(adamab(*TASK, *options, "--dry-run").stdout)
    assert server.count() == 0
    assert plan["expected"]["calls"] == 9
    result = adamab(*TASK, *options, "--price", "gpt-4o-mini=1/2", "--budget", "1 usd")
    rows = rows_of(result)
    assert rows[chat]["n_parameters"] == 0
    spent = json.loads(result.stdout)["spent"]
    assert spent["calls"] == server.count() == 9
    assert spent["usd"] > 0
    capped = json.loads(adamab(*TASK, *options, "--budget", "4 calls").stdout)
    assert set(capped["failed"]) == {chat}
    assert "4 calls" in capped["failed"][chat]
    assert server.count() == 13


def test_a_dry_run_names_every_key_that_is_not_set(adamab, folder, monkeypatch):
    asked = {
        "mistral:mistral-embed": "MISTRAL_API_KEY",
        "anthropic:claude": "ANTHROPIC_API_KEY",
        "chat:groq:llama": "GROQ_API_KEY",
        "chat:gemini-2.0-flash-lite": "GEMINI_API_KEY",
        "chat:m?base_url=https://example.org/v1&key_env=MY_OWN_KEY": "MY_OWN_KEY",
        "rerank:jina:m": "JINA_API_KEY",
    }
    for variable in asked.values():
        monkeypatch.delenv(variable, raising=False)
    embedder, generator, *judges = asked
    methods = ",".join(["calibrator+adamab", *judges, "chat:ollama:m"])
    options = ["--embedder", embedder, "--generator", generator, "--methods", methods]
    result = adamab("compare", "task.yaml", "new.jsonl", *options, "--dry-run")
    assert result.exit_code == 0, result.output
    assert re.findall(r"no key; set (\w+)", result.stderr) == list(asked.values())


def test_an_answer_that_names_no_class_is_wrong(adamab, folder, server, monkeypatch):
    monkeypatch.setattr("adamab.compare.remote.chosen", lambda reply, count: "none")
    name = f"chat:gpt-4o-mini?base_url={server.url}/v1&first_wait=0.01"
    result = adamab(*TASK, "--methods", name, "--json")
    assert rows_of(result)[name]["accuracy"]["value"] == 0
    assert "9 none" in json.loads(result.stdout)["notes"][0]


def test_policies_ask_for_a_batch_once(adamab, folder, server):
    spec = f"openai:m?base_url={server.url}/v1&first_wait=0.01"
    options = ("--embedder", spec, "--generator", spec, "--budget", "4 samples", "--set", "batch=2")
    chosen = ("--methods", "calibrator+round-robin,calibrator+random,linear-probe+random", "--json")
    plan = json.loads(adamab(*TASK[:3], "--no-cache", *options, *chosen, "--dry-run").stdout)
    assert {"embed", "embed the test data", "random: generate"} < set(plan["by_purpose"])
    assert server.count() == 0
    read = json.loads(adamab(*TASK[:3], "--no-cache", *options, *chosen).stdout)
    assert [row["samples"] for row in read["rows"]] == [13, 13, 13]
    assert read["spent"]["calls"] == server.count() <= plan["at_most"]["calls"]
    assert server.billed("/chat/completions") <= 4


def test_a_given_text_within_a_test_text_is_a_leak_and_the_other_way_round():
    long = "my parcel was delivered to the wrong house again"
    task = Task.from_mapping({"a": [long], "b": ["praise", f"well, {long[::-1]}"]})
    test = [Sample(f"Hello, {long}", "a"), Sample(long[::-1], "b"), Sample("praise be", "b")]
    assert [sample.text for sample in unseen(task, test)] == ["praise be"]


def test_paired_differences():
    ours, theirs = np.array([True, True, False, True] * 25), np.array([True, False, False, True] * 25)
    figure = paired_difference(ours, theirs)
    assert figure.value == 0.25
    assert 0.15 < figure.low < 0.25 < figure.high < 0.35
    same = paired_difference(ours, ours)
    assert (same.value, same.low, same.high) == (0, 0, 0)


class Recording(Baseline):
    """Keeps what it is given to learn from."""

    name, data = "recording", None

    def _fit(self, data):
        Recording.data = data

    def _predict_proba(self, views, texts):
        return np.full((len(texts), len(self.classes_)), 1 / len(self.classes_))


@pytest.mark.parametrize("quoting", [False, True])
def test_baselines_know_the_wordings_without_examples_too(monkeypatch, quoting):
    monkeypatch.setattr("adamab.compare.bench.make_baseline", lambda spec, **options: Recording())
    given = {"refund": ["money back please", "send it back"], "praise": ["likes it", "so happy"]}
    task = Task.from_mapping(given, prompts=Prompts(with_examples=quoting))
    setup = set_up(task, FitSettings(embedder=HashEmbedder(width=16)))
    compare(setup, [Sample("my money", "refund")], [Method("knn")])
    plain = run_sync(HashEmbedder(width=16).embed([Prompts().class_text(c) for c in task.classes])).views
    views = Recording.data.plain_class_views if quoting else Recording.data.class_views
    np.testing.assert_array_equal(views["pooled"], plain["pooled"])
    assert bool(Recording.data.plain_class_views) == quoting


def test_a_chat_model_is_shown_given_samples_and_no_generated_ones(server, tmp_path):
    given = {"refund": ["money back please", "send it back"], "praise": ["likes it", "so happy"]}
    new = [{"label": "refund", "text": "return the sum"}, {"label": "praise", "text": "what a joy"}]
    (tmp_path / "new.jsonl").write_text("".join(json.dumps(row) + "\n" for row in new))
    settings = FitSettings(
        embedder=HashEmbedder(width=16),
        generator=f"replay:{tmp_path / 'new.jsonl'}",
        recipe=Recipe(batch=1, rounds_per_class=1),
    )
    setup = set_up(Task.from_mapping(given, prompts=Prompts(with_examples=True)), settings)
    methods = [Method.parse(f"chat:m?base_url={server.url}/v1+round-robin")]
    comparison = compare(setup, [Sample("where is my money", "refund")], methods)
    assert comparison.rows[0].samples == 6
    (prompt,) = (seen.body["messages"][0]["content"] for seen in server.seen)
    assert all(text in prompt for texts in given.values() for text in texts)
    assert not any(row["text"] in prompt for row in new)
