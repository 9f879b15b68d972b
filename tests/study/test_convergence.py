import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_limits
from torch.nn import functional

from adamab.errors import TaskError
from adamab.method.gradient_shift import GradientShift, ViewTerms
from adamab.study import convergence
from adamab.study.convergence_bound import (
    biased_descent,
    logistic_checks,
    noisy_line,
    quadratic_check,
)
from adamab.study.convergence_descent import (
    POLICIES,
    Population,
    Setting,
    _chooser,
    curvature,
    descend,
    extremes,
    gradients,
    start_model,
)
from adamab.study.convergence_figures import span
from adamab.study.convergence_population import population_of
from adamab.study.convergence_summary import interval, ratio_interval
from adamab.study.datasets.base import data_directory, load_data_set
from adamab.study.datasets.demo import load_demo
from adamab.task import bare
from adamab.task.recipe import Recipe
from adamab.testing import HashEmbedder

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
    loss = functional.cross_entropy(model(queries, classes), class_index)
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])


# The first theorem where the smoothness is known


def test_smoothness_of_logistic_regression_is_a_true_bound():
    problem, rng = noisy_line(), np.random.default_rng(1)
    for _ in range(50):
        a, b = rng.normal(size=(2, 5)) * 3
        change = np.linalg.norm(problem.gradient(a) - problem.gradient(b))
        assert change <= problem.smoothness * np.linalg.norm(a - b)


def test_smoothness_of_logistic_regression_is_reached():
    # At w = 0 every sample's second derivative is 1/4, so the curvature along the first singular vector is β.
    problem = noisy_line()
    step = 1e-4 * np.linalg.svd(problem.x)[2][0]
    change = np.linalg.norm(problem.gradient(step) - problem.gradient(np.zeros(5)))
    assert change / 1e-4 == pytest.approx(problem.smoothness, rel=1e-4)


def test_logistic_gradient_is_that_of_the_loss():
    problem, w = noisy_line(), np.linspace(-1, 1, 5)
    steps = 1e-6 * np.eye(5)
    numeric = [(problem.loss(w + s) - problem.loss(w - s)) / 2e-6 for s in steps]
    assert problem.gradient(w) == pytest.approx(numeric, abs=1e-8)


@pytest.mark.parametrize("factor", [1.0, 0.5, 0.1])
def test_bound_of_the_first_theorem_holds_at_every_step(factor):
    checks = logistic_checks(steps=500, factor=factor)
    assert [c.name for c in checks] == ["no bias", "training set that grows", "bias against the gradient"]
    for check in checks:
        assert (check.left <= check.right).all(), check.name


def test_bound_is_within_six_percent_of_the_worst_bias():
    worst = logistic_checks(steps=2000)[-1]
    # What is left above one is 2 L(w_1) / (η T δ²), which falls with T.
    assert 1 <= worst.factor < 1.06
    assert logistic_checks(steps=500)[-1].factor > worst.factor


def test_a_smaller_bound_would_be_false():
    worst = logistic_checks(steps=2000)[-1]
    assert (worst.left > 0.94 * worst.right).any()


@pytest.mark.parametrize("factor", [0.3, 0.9, 1.0])
def test_quadratic_obeys_the_bound_up_to_the_rate_of_the_condition(factor):
    assert quadratic_check(factor, steps=20).holds
    assert quadratic_check(factor).factor == pytest.approx(1 / factor)


@pytest.mark.parametrize("factor", [1.01, 1.5, 3.0])
def test_a_rate_above_the_condition_breaks_the_bound(factor):
    check = quadratic_check(factor)
    assert not check.holds
    assert check.left[0] > check.right[0]


def test_a_rate_far_above_the_condition_breaks_it_on_logistic_regression_too():
    assert not any(check.holds for check in logistic_checks(steps=300, factor=8.0))


def test_understated_shift_breaks_the_bound():
    # The check can fail: without the bias in the sum the stalled descent is above the bound.
    problem = noisy_line()
    rate = 1 / problem.smoothness

    def opposed(_, w):
        true = problem.gradient(w)
        return -0.1 * true / np.linalg.norm(true)

    check = biased_descent(problem, opposed, rate=rate, steps=1000)
    assert check.holds
    assert (check.left > check.right - 0.01).any()


# Descents


def test_group_gradients_are_autograds(population):
    model = start_model(population, SHORT, seed=0)
    queries, classes = torch.from_numpy(population.queries), torch.from_numpy(population.classes)
    own = torch.arange(4)[:, None].expand(4, 9)
    losses, found = gradients(model, queries, own, classes)
    for c in range(4):
        assert torch.allclose(found[c], flat_gradient(model, queries[c], own[c], classes), atol=1e-5)
    assert float(losses[2]) == pytest.approx(
        float(functional.cross_entropy(model(queries[2], classes), own[2]).detach()), rel=1e-5
    )


def test_true_and_estimated_shift_agree_when_the_training_set_is_the_population(population):
    model = start_model(population, SHORT, seed=0)
    classes = torch.from_numpy(population.classes)
    queries = torch.from_numpy(population.queries).flatten(0, 1)
    own = torch.arange(4).repeat_interleave(9)
    estimated = GradientShift([ViewTerms(model, queries, classes)], own, n_classes=4, batch=1)
    of_class = torch.stack(
        [flat_gradient(model, queries[own == c], own[own == c], classes) for c in range(4)]
    )
    true = of_class.mean(0)  # also the mean over the set, which is balanced
    direct = ((of_class + 36 * true) / 37 - true).square().sum(1)
    assert estimated.exact(np.arange(4)) == pytest.approx(direct.numpy(), rel=1e-4)


@pytest.mark.parametrize("policy", POLICIES)
def test_trace_follows_from_its_choices(population, traces, policy):
    """Replay the choices with plain autograd and get the same numbers."""
    trace, setting = traces[policy], SHORT
    model = start_model(population, setting, seed=1)
    vectors, classes = torch.from_numpy(population.queries), torch.from_numpy(population.classes)
    queues = [np.random.default_rng([1, 11, c]).integers(9, size=16) for c in range(4)]
    drawn = [(c, int(queues[c][i])) for c in range(4) for i in range(2)]
    counts = [2, 2, 2, 2]
    everything, own = vectors.flatten(0, 1), torch.arange(4).repeat_interleave(9)
    for t in range(5):
        assert trace.counts[t].tolist() == counts
        c = int(trace.chosen[t])
        class_index, rows = torch.tensor(drawn).T
        before = flat_gradient(model, vectors[class_index, rows], class_index, classes)
        true = flat_gradient(model, everything, own, classes)
        of_class = torch.stack([flat_gradient(model, vectors[k], own[own == k], classes) for k in range(4)])
        shifts = ((of_class + len(drawn) * before) / (len(drawn) + 1) - true).square().sum(1)
        assert trace.expected[t] == pytest.approx(float(shifts[c]), rel=1e-3)
        assert trace.best[t] == pytest.approx(float(shifts.min()), rel=1e-3)
        drawn.append((c, int(queues[c][counts[c]])))
        counts[c] += 1
        class_index, rows = torch.tensor(drawn).T
        step = flat_gradient(model, vectors[class_index, rows], class_index, classes)
        assert trace.shift[t] == pytest.approx(float((step - true).square().sum()), rel=1e-3)
        assert trace.slope[t] == pytest.approx(float(true.square().sum()), rel=1e-3)
        with torch.no_grad():
            start = 0
            for p in model.parameters():
                p.sub_(setting.rate * step[start : start + p.numel()].view_as(p))
                start += p.numel()


def test_oracle_has_no_regret_and_nobody_has_less(traces):
    assert (traces["oracle"].regret == 0).all()
    assert all((trace.regret >= 0).all() for trace in traces.values())
    assert traces["random"].regret.sum() > 0


def test_round_robin_and_a_large_alpha_choose_the_smallest_class(traces):
    for policy in ("round-robin", "adamab"):
        assert (traces[policy].chosen_ratio == 1).all()
        assert traces[policy].count_ratio.max() == 1.5  # (3, 2): whole numbers
    assert traces["random"].chosen_ratio.max() > 1


def test_product_has_the_recipes_alpha_on_relative_shift(population, traces):
    product = _chooser("product", SHORT)
    assert (product.name, product.alpha, product.relative) == ("adamab", Recipe().alpha, True)
    paper = _chooser("adamab", SHORT)
    assert (paper.alpha, paper.relative) == (100.0, False)
    assert _chooser("oracle", SHORT) is None
    for policy, trace in traces.items():
        assert np.isfinite(trace.scale).all() == (policy in ("adamab", "product", "tight", "greedy"))
    # One α times the scale on δ² itself chooses as the recipe's α does on δ² over the scale.
    first = traces["product"]
    alike = replace(SHORT, rounds=1, alpha=Recipe().alpha * float(first.scale[0]))
    assert descend(population, "adamab", seed=1, setting=alike).chosen[0] == first.chosen[0]


def test_policies_share_start_and_given_samples(traces):
    assert len({float(trace.loss[0]) for trace in traces.values()}) == 1
    assert len({float(trace.best[0]) for trace in traces.values()}) == 1


def test_same_seed_same_trace_and_more_rounds_only_go_on(population, traces):
    again = descend(population, "random", seed=1, setting=Setting(rounds=20))
    assert (again.chosen[:14] == traces["random"].chosen).all()
    assert again.shift[:14] == pytest.approx(traces["random"].shift, rel=1e-4)
    other = descend(population, "random", seed=2, setting=SHORT)
    assert other.loss[0] != again.loss[0] or (other.shift != again.shift[:14]).any()


def test_descent_goes_down(traces):
    assert all(trace.loss[-1] < trace.loss[0] for trace in traces.values())


def test_extremes_are_those_of_single_samples(population):
    model = start_model(population, SHORT, seed=0)
    classes, vectors = torch.from_numpy(population.classes), torch.from_numpy(population.queries)
    single = torch.stack(
        [
            flat_gradient(model, vectors[c, i][None], torch.tensor([c]), classes)
            for c in range(4)
            for i in range(9)
        ]
    )
    entry, norm = extremes(model, population)
    assert entry == pytest.approx(float(single.abs().max()), rel=1e-4)
    assert norm == pytest.approx(float(single.norm(dim=1).max()), rel=1e-4)
    assert norm <= entry * np.sqrt(single.shape[1])


def test_curvature_is_the_largest_eigenvalue_of_the_hessian():
    rng = np.random.default_rng(3)
    small = Population(
        "tiny", ("a", "b"), rng.normal(size=(2, 3, 4)).astype(np.float32), np.eye(2, 4, dtype=np.float32)
    )
    setting = Setting(calibrator="paper")
    model = start_model(small, setting, seed=0)
    names, parameters = zip(*model.named_parameters(), strict=True)
    queries, classes = torch.from_numpy(small.queries).flatten(0, 1), torch.from_numpy(small.classes)

    def loss(*values):
        logits = torch.func.functional_call(model, dict(zip(names, values, strict=True)), (queries, classes))
        return functional.cross_entropy(logits, torch.tensor([0, 0, 0, 1, 1, 1]))

    blocks = torch.autograd.functional.hessian(loss, tuple(p.detach() for p in parameters))
    sizes = [p.numel() for p in parameters]
    hessian = torch.cat(
        [
            torch.cat([b.reshape(n, m) for b, m in zip(row, sizes, strict=True)], 1)
            for row, n in zip(blocks, sizes, strict=True)
        ]
    )
    largest = float(torch.linalg.eigvalsh(hessian).abs().max())
    assert curvature(model, small, steps=60) == pytest.approx(largest, rel=0.02)


# The study


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("convergence")
    return convergence.run(None, folder, quick=True, jobs=0, embedder=HashEmbedder(width=16))


def test_quick_run_needs_no_data_folder_and_writes_everything(written):
    names = [path.name for path in written]
    figures = ["convergence.png", "convergence.svg", "convergence-bound.png", "convergence-bound.svg"]
    assert names == ["convergence.md", "convergence.json", *figures]
    assert all(path.stat().st_size > 1000 for path in written)


def test_json_has_command_policies_and_constants_but_no_accuracy(written):
    text = written[1].read_text()
    data = json.loads(text)
    assert data["command"].startswith("python -m adamab.study.convergence --sets demo")
    (problem,) = data["problems"]
    assert [p["policy"] for p in problem["policies"]] == list(POLICIES)
    assert len(problem["by_round"]["adamab"]["shift"]) == problem["rounds"] == 6
    constants = problem["constants"]
    assert constants["theorem_alpha"] > 0
    assert (constants["alpha"], constants["product_alpha"]) == (100.0, Recipe().alpha)
    assert all(0 < alpha < constants["product_alpha"] for alpha in constants["product_alpha_here"])
    assert constants["second_theorem"]["total"] > problem["policies"][1]["smallest_slope"]
    assert len(problem["population_sha256"]) == 64
    assert '"accuracy"' not in text


def test_first_paragraph_says_what_came_out(written):
    _, first, second = written[0].read_text().split("\n\n")[:3]
    assert "ADAMAB's mean gradient shift δ² is" in first
    assert "the theorem's α would be" in first
    assert "The first theorem held at every T" in first
    assert "With the paper's α = 100 on δ² itself ADAMAB chose" in first
    assert "With the product's, which is 3,000 on δ² relative to its scale (on δ² itself" in first
    assert second.startswith("Made by `python -m adamab.study.convergence")


class Noting(HashEmbedder):
    """Keeps the texts that it embedded."""

    async def _embed(self, items, *, kind, views):
        self.noted = {*getattr(self, "noted", ()), *items}
        return await super()._embed(items, kind=kind, views=views)


def test_population_is_even_and_holds_no_test_text():
    embedder = Noting(width=8)
    found = population_of("demo", None, embedder=embedder, texts=40)
    assert found.queries.shape == (12, 40, 8)
    assert len(embedder.noted) == 12 * 40 + 12
    assert not embedder.noted & {sample.text for sample in load_demo(n_given=20).test}


def test_too_many_texts_and_sets_of_accuracy_tables_are_refused(tmp_path):
    with pytest.raises(TaskError, match="a class of demo has 50 texts, not 60"):
        population_of("demo", None, embedder=HashEmbedder(width=8), texts=60)
    for name in ("trec", "hwu64", "multiwd"):
        with pytest.raises(TaskError, match=f"no population '{name}'"):
            population_of(name, tmp_path, embedder=HashEmbedder(width=8))


def test_page_says_what_the_texts_serve(written):
    assert "The support desk's are those that its given examples" in written[0].read_text()
    assert "serves this analysis alone" not in written[0].read_text()


def test_errors_of_the_command_are_one_line(tmp_path, capsys):
    with pytest.raises(SystemExit, match="error: convergence: no population 'nothing'"):
        convergence.main(["--sets", "nothing", "--data", str(tmp_path), "--output", str(tmp_path)])


def test_worker_gives_what_this_process_gives(population, monkeypatch):
    problem = convergence.Problem("toy", Setting(rounds=3, marks=2))
    job, threads = convergence.Job(problem, "adamab", 0), torch.get_num_threads()
    ((_, here),) = convergence._descents([job], {"toy": population}, 0)
    monkeypatch.setattr(convergence, "_populations", {})
    with threadpool_limits(None):  # puts the limits back
        convergence._start_worker({"toy": population})
    there = convergence._run_in_worker(job)
    torch.set_num_threads(threads)
    assert (here.chosen == there.chosen).all()
    assert here.shift == pytest.approx(there.shift, rel=1e-4)


def test_interval_and_span():
    # 1, 2, 3: s = 1, s / sqrt(3) = 0.57735; t(0.975, 2) = 4.30265; 0.57735 · 4.30265 = 2.48414
    assert interval(np.array([1.0, 2.0, 3.0])).high == pytest.approx(4.48414, abs=1e-5)
    # logarithms of 1/2, 1 and 2: 0 ± 2.48414 log 2, so 1 is between 2^-2.48414 and 2^2.48414 = 5.5951
    assert ratio_interval(np.array([0.5, 1.0, 2.0])).high == pytest.approx(4.5951, abs=1e-3)
    assert (span([1.2, -2.64]), span([0.31, 0.29])) == ("-2.6 to +1.2", "+0.3")


@pytest.mark.parametrize(("name", "classes"), [("hwu64-office", 13), ("hwu64-home", 12)])
def test_population_of_hwu64_serves_nothing_else(name, classes):
    try:
        folder = data_directory()
    except TaskError as missing:
        pytest.skip(f"hwu64 is not here: {missing}")
    embedder = Noting(width=4)
    found = population_of(name, folder, embedder=embedder)
    assert found.queries.shape == (classes, 40, 4)
    assert len(embedder.noted) == classes * 41
    data_set = load_data_set("hwu64", folder)
    population = {bare(text) for text in embedder.noted}
    for part in ("test", "development"):
        drawn = data_set.draw(0, part=part)
        used = [s.text for s in (*drawn.task.samples, *drawn.test)]
        used += [text for texts in drawn.pool.values() for text in texts]
        assert not population & {bare(text) for text in used}
