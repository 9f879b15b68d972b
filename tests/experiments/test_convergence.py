import json

import numpy as np
import pytest
import torch
from torch.nn import functional

from adamab.demo import load_demo
from adamab.errors import TaskError
from adamab.testing import HashEmbedder
from benchmarks._torch_reference import TorchCalibrator
from experiments import convergence
from experiments.convergence_descent import (
    POLICIES,
    Population,
    Setting,
    descend,
    population_of,
    start_model,
)
from experiments.theory import logistic_checks, quadratic_check

SHORT = Setting(rounds=14, marks=2)


@pytest.fixture(scope="module")
def population():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(4, 1, 12))
    queries = centres + 0.8 * rng.normal(size=(4, 9, 12))
    queries /= np.linalg.norm(queries, axis=2, keepdims=True)
    classes = np.eye(4, 12)  # which say nothing of the classes: there is something to learn
    return Population("toy", ("a", "b", "c", "d"), queries.astype(np.float32), classes.astype(np.float32))


@pytest.fixture(scope="module")
def traces(population):
    return {policy: descend(population, policy, seed=1, setting=SHORT) for policy in POLICIES}


def flat_gradient(model, queries, class_index, classes):
    """By autograd."""
    reference = TorchCalibrator(model)
    loss = functional.cross_entropy(reference(tensor(queries), tensor(classes)), tensor(class_index))
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, reference.ordered())]).numpy()


def tensor(array):
    array = np.ascontiguousarray(array)
    return torch.from_numpy(array if array.dtype == np.int64 else array.astype(np.float64))


# The first theorem where the smoothness is known


@pytest.mark.parametrize("factor", [1.0, 0.1])
def test_bound_of_the_first_theorem_holds_at_every_step(factor):
    checks = logistic_checks(steps=500, factor=factor)
    assert [c.name for c in checks] == ["no bias", "training set that grows", "bias against the gradient"]
    for check in checks:
        assert (check.left <= check.right).all(), check.name


def test_quadratic_obeys_the_bound_up_to_the_rate_of_the_condition_and_no_further():
    for factor in (0.3, 1.0):
        assert quadratic_check(factor, steps=20).holds
        assert quadratic_check(factor).factor == pytest.approx(1 / factor)
    assert not quadratic_check(1.01).holds


# Descents


@pytest.mark.parametrize("policy", ["oracle", "adamab", "product"])
def test_trace_follows_from_its_choices(population, traces, policy):
    """Replay the choices with plain autograd and get the same numbers."""
    trace, setting = traces[policy], SHORT
    model = start_model(population, setting, seed=1)
    vectors, classes = population.queries.astype(np.float64), population.classes.astype(np.float64)
    queues = [np.random.default_rng([1, 11, c]).integers(9, size=16) for c in range(4)]
    drawn = [(c, int(queues[c][i])) for c in range(4) for i in range(2)]
    counts = [2, 2, 2, 2]
    everything, own = vectors.reshape(36, -1), np.repeat(np.arange(4), 9)
    for t in range(5):
        assert trace.counts[t].tolist() == counts
        c = int(trace.chosen[t])
        class_index, rows = np.array(drawn).T
        before = flat_gradient(model, vectors[class_index, rows], class_index, classes)
        true = flat_gradient(model, everything, own, classes)
        of_class = np.stack([flat_gradient(model, vectors[k], own[own == k], classes) for k in range(4)])
        shifts = (((of_class + len(drawn) * before) / (len(drawn) + 1) - true) ** 2).sum(1)
        assert trace.expected[t] == pytest.approx(float(shifts[c]), rel=1e-3)
        assert trace.best[t] == pytest.approx(float(shifts.min()), rel=1e-3)
        drawn.append((c, int(queues[c][counts[c]])))
        counts[c] += 1
        class_index, rows = np.array(drawn).T
        step = flat_gradient(model, vectors[class_index, rows], class_index, classes)
        assert trace.shift[t] == pytest.approx(float(((step - true) ** 2).sum()), rel=1e-3)
        assert trace.slope[t] == pytest.approx(float((true**2).sum()), rel=1e-3)
        model.parameters -= setting.rate * step


def test_oracle_has_no_regret_and_nobody_has_less(traces):
    assert (traces["oracle"].regret == 0).all()
    assert all((trace.regret >= 0).all() for trace in traces.values())
    assert traces["random"].regret.sum() > 0


# The study


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("convergence")
    setting, embedder = Setting(rounds=6, marks=2), HashEmbedder(width=16)
    options = {"sets": ["demo"], "seeds": 2, "setting": setting, "texts": 10, "jobs": 0}
    return convergence.run(None, folder, embedder=embedder, **options)


def test_a_run_on_the_demo_needs_no_data_folder(written):
    page, file, *figures = written
    assert [path.name for path in written[:2]] == ["convergence.md", "convergence.json"]
    assert [path.name for path in figures] == ["convergence.svg", "convergence-bound.svg"]
    assert "product" in page.read_text()
    problem, with_the_papers_calibrator = json.loads(file.read_text())["problems"]
    assert with_the_papers_calibrator["calibrator"] == "paper"
    assert [p["policy"] for p in problem["policies"]] == list(POLICIES)
    assert len(problem["by_round"]["adamab"]["shift"]) == problem["rounds"] == 6
    constants = problem["constants"]
    assert all(0 < alpha < constants["product_alpha"] for alpha in constants["product_alpha_here"])
    assert constants["second_theorem"]["total"] > problem["policies"][1]["smallest_slope"]


class Noting(HashEmbedder):
    """Keeps the texts that it embedded."""

    async def _embed(self, items, *, kind, views):
        self.noted = {*getattr(self, "noted", ()), *items}
        return await super()._embed(items, kind=kind, views=views)


def test_population_is_even_and_holds_no_test_text():
    embedder = Noting(width=8)
    population = population_of("demo", None, embedder=embedder, texts=40)
    assert population.queries.shape == (12, 40, 8)
    assert len(embedder.noted) == 12 * 40 + 12
    assert not embedder.noted & {sample.text for sample in load_demo(n_given=20).test}


def test_too_many_texts_and_sets_of_accuracy_tables_are_refused(tmp_path):
    with pytest.raises(TaskError, match="a class of demo has 50 texts, not 60"):
        population_of("demo", None, embedder=HashEmbedder(width=8), texts=60)
    for name in ("trec", "hwu64", "multiwd"):
        with pytest.raises(TaskError, match=f"no population '{name}'"):
            population_of(name, tmp_path, embedder=HashEmbedder(width=8))
