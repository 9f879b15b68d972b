"""A comparison fits with everything that its settings say."""

import json

import pytest

from adamab.compare.bench import compare
from adamab.compare.methods import Method
from adamab.run.gate import Holdout
from adamab.run.settings import FitSettings, set_up
from adamab.task import Sample, Task
from adamab.task.recipe import Recipe
from adamab.testing import HashEmbedder

TASK = Task.from_mapping(
    {"refund": ["money back please", "send it back"], "praise": ["likes it", "so happy"]}
)
TEST = [Sample("where is my money", "refund"), Sample("happy with it", "praise")]
NEW = [("refund", "return the sum"), ("praise", "what a joy"), ("refund", "pay it"), ("praise", "great")]
RECIPE = Recipe(batch=1, augmentation_rounds=4)


@pytest.fixture
def settings(tmp_path):
    rows = [json.dumps({"label": name, "text": text}) for name, text in NEW]
    (tmp_path / "new.jsonl").write_text("\n".join(rows))
    recording = f"replay:{tmp_path / 'new.jsonl'}"
    return {"embedder": HashEmbedder(width=16), "generator": recording, "recipe": RECIPE}


def test_every_policy_starts_with_a_whole_recording(settings):
    methods = [Method("calibrator", policy) for policy in ("round-robin", "random")]
    rows = compare(set_up(TASK, FitSettings(**settings)), TEST, methods).rows
    assert [row.samples for row in rows] == [8, 8]


def test_samples_of_the_settings_holdout_stay_out(settings):
    setup = set_up(TASK, FitSettings(**settings, holdout=Holdout(["What a joy!"])))
    (row,) = compare(setup, TEST, [Method("calibrator", "round-robin")]).rows
    assert row.samples == 7


def test_the_settings_prices_are_used(server):
    embedder = f"openai:own-model?base_url={server.url}/v1&first_wait=0.01"
    settings = FitSettings(embedder=embedder, recipe=RECIPE, budget="1 usd", prices={"own-model": "0.10"})
    assert len(compare(set_up(TASK, settings), TEST, [Method("knn")]).rows) == 1
