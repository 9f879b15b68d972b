import json

import numpy as np
import pytest

from adamab.errors import RecipeError, TaskError
from adamab.providers.generators.base import Batch, Generator
from adamab.providers.generators.variations import NoiseGenerator
from adamab.run import samples as training_set
from adamab.run.fit import fit_task
from adamab.run.samples import TaskEmbedder
from adamab.task.recipe import Recipe
from adamab.task.spec import Task
from adamab.testing import HashEmbedder
from tests.run.conftest import DESCRIPTIONS
from tests.run.conftest import THREE as GIVEN

CLASSES = ("refund", "praise", "outage")
RECIPE = Recipe(batch=2, rounds_per_class=3)
PAPER = Recipe.preset("paper").with_options(batch=2, rounds=12)


def make_task(given=GIVEN, **options):
    return Task.from_mapping(given, descriptions=DESCRIPTIONS, **options)


class Writer(Generator):
    """Writes numbered texts; per class at most `limit`, then it says that it is dry."""

    fingerprint = "writer"

    def __init__(self, limit=100, per_call=100):
        self.limit, self.per_call, self.requests = limit, per_call, []
        self.written = {}

    async def generate(self, request):
        self.requests.append(request)
        have = self.written.get(request.spec.name, 0)
        count = min(request.count, self.limit - have, self.per_call)
        self.written[request.spec.name] = have + count
        words = GIVEN[request.spec.name][0].split()
        texts = tuple(f"{words[i % len(words)]} {request.spec.name} {i}" for i in range(have, have + count))
        return Batch(texts, closed="dry" if have + count >= self.limit else None)


def run(task=None, generator=None, recipe=RECIPE, **options):
    options.setdefault("seed", 0)
    return fit_task(task or make_task(), HashEmbedder(), generator=generator, recipe=recipe, **options)


def test_every_round_is_recorded_with_what_was_known():
    result = run(generator=Writer(), recipe=RECIPE.with_options(difficulty=False))
    assert len(result.history) == RECIPE.n_augmentation_rounds(3) == 9
    for number, record in enumerate(result.history, 1):
        assert record.round == number
        assert record.chosen in CLASSES
        assert record.accepted == record.asked == 2
        scores, chosen = record.scores, CLASSES.index(record.chosen)
        assert scores.place == [0, 1, 2]
        assert sum(scores.count) == record.n_samples - 2
        assert scores.exact[chosen]
        assert scores.score[chosen] == max(scores.score)
        bonus = RECIPE.alpha / np.sqrt(record.n_samples * scores.count[chosen])
        assert scores.score[chosen] + scores.shift[chosen] == pytest.approx(bonus)
        assert min(vars(record.seconds).values()) >= 0
        json.dumps(record.to_json(), allow_nan=False)


def test_more_is_generated_where_held_out_samples_are_wrong():
    alike = ["it is down", "it is down again", "all is down", "down it is"]
    given = {"refund": ["money back", "my money back", "the money back", "money back please"]}
    task = make_task({**given, "praise": alike, "outage": [text + " now" for text in alike]})
    counts = {}
    for difficulty in (False, True):
        recipe = RECIPE.with_options(difficulty=difficulty, rounds_per_class=5)
        chosen = [record.chosen for record in run(task, Writer(), recipe).history]
        counts[difficulty] = [chosen.count(name) for name in CLASSES]
    assert counts[False] == [5, 5, 5]
    assert counts[True][0] < min(counts[True][1:])


def test_all_scores_are_exact_on_demand_and_change_nothing():
    lazy = run(generator=Writer(), recipe=PAPER)
    full = run(generator=Writer(), recipe=PAPER, all_scores=True)
    assert [r.chosen for r in lazy.history] == [r.chosen for r in full.history]
    assert all(all(r.scores.exact) for r in full.history)
    for a, b in zip(lazy.history, full.history, strict=True):
        for bound, exact in zip(a.scores.score, b.scores.score, strict=True):
            assert bound >= exact - 1e-12


@pytest.mark.parametrize("policy", ["adamab", "tight", "greedy", "random", "round-robin"])
@pytest.mark.parametrize("recipe", [RECIPE, PAPER], ids=["default", "paper"])
def test_each_policy_runs_and_repeats_itself(policy, recipe):
    first = run(generator=Writer(), policy=policy, recipe=recipe)
    second = run(generator=Writer(), policy=policy, recipe=recipe)
    assert [r.chosen for r in first.history] == [r.chosen for r in second.history]
    for a, b in zip(first.classifier.heads, second.classifier.heads, strict=True):
        np.testing.assert_array_equal(a.linear, b.linear)
    counts = first.synthetic_by_class
    if policy == "round-robin":
        assert len(set(counts.values())) == 1


def test_policy_none_and_no_generator_are_the_same():
    a, b = run(generator=Writer(), policy="none"), run()
    assert a.history == b.history == ()
    np.testing.assert_array_equal(a.classifier.heads[0].linear, b.classifier.heads[0].linear)


def test_a_dry_class_is_closed_and_never_asked_again():
    generator = Writer(limit=2)
    result = run(generator=generator)
    assert result.closed == dict.fromkeys(CLASSES, "dry")
    assert len(generator.requests) == 3
    assert len(result.synthetic) == 6
    assert len(result.history) == 3  # with every class closed the rounds end


def test_paper_trains_on_to_the_last_round_when_classes_are_dry():
    result = run(generator=Writer(limit=2), recipe=PAPER)
    assert len(result.history) == 12
    assert [r.chosen is None for r in result.history] == [False] * 3 + [True] * 9
    assert result.history[-1].loss < result.history[0].loss


def test_a_round_refills_a_bounded_number_of_times():
    generator = Writer(per_call=1)
    result = run(generator=generator, recipe=RECIPE.with_options(batch=5, rounds_per_class=1))
    assert all(record.accepted == 3 for record in result.history)  # one request and two refills
    assert len(generator.requests) == 9


class Parrot(Generator):
    fingerprint = "parrot"
    calls = 0

    async def generate(self, request):
        self.calls += 1
        return Batch((request.given[0], "  " + request.given[0].upper(), ""))


def test_repeats_and_empty_texts_are_no_samples_and_close_the_class():
    parrot = Parrot()
    result = run(generator=parrot)
    assert result.synthetic == ()
    assert set(result.closed.values()) == {"the generator gave nothing new"}
    assert parrot.calls == 9


def test_the_budget_is_a_cap():
    generator = Writer()
    result = run(generator=generator, budget=7)
    assert len(result.synthetic) == 7
    assert sum(r.asked for r in result.history) == 7
    fixed = run(generator=Writer(), recipe=PAPER.with_options(augmentation_rounds=9), budget=5)
    assert len(fixed.synthetic) == 5


def test_classes_without_samples_come_first_lowest_index_first():
    given = {"refund": [], "praise": GIVEN["praise"], "outage": []}
    result = run(make_task(given), Writer())
    assert [r.chosen for r in result.history][:2] == ["refund", "outage"]
    assert result.history[0].scores.place == []
    for record in result.history:
        json.dumps(record.to_json(), allow_nan=False)


@pytest.mark.parametrize("policy", ["adamab", "random"])
def test_with_nothing_given_every_class_is_asked_once_first(policy):
    result = run(make_task({c: [] for c in CLASSES}), Writer(), policy=policy)
    assert [r.chosen for r in result.history][:3] == list(CLASSES)
    assert result.history[0].loss is None
    assert (result.history[-1].loss is None) == (policy == "random")  # which looks at no model
    assert result.estimate is None
    assert result.classifier.heads


def test_descriptions_alone_make_a_zero_shot_classifier():
    result = run(make_task({c: [] for c in CLASSES}))
    views = {"pooled": np.eye(3, 64, dtype=np.float32)}
    assert result.classifier.predict_proba(views, ["a", "b", "c"]).shape == (3, 3)


def test_paper_without_any_sample_says_so():
    with pytest.raises(TaskError, match="no class has an example"):
        run(make_task({c: [] for c in CLASSES}), recipe=PAPER)


def test_noise_works_in_the_pooled_view_only():
    with pytest.raises(RecipeError, match="views=pooled and words=false"):
        run(generator=NoiseGenerator(seed=0))
    pooled = RECIPE.with_options(views=("pooled",), words=False)
    result = run(generator=NoiseGenerator(seed=0), recipe=pooled)
    assert sum(r.accepted for r in result.history) == 18
    assert result.synthetic == ()
    assert result.classifier.vocabulary is None


def test_a_huge_vocabulary_keeps_the_terms_of_several_texts(monkeypatch):
    monkeypatch.setattr(training_set, "MAX_TERMS", 12)
    samples = TaskEmbedder(make_task(), HashEmbedder(), RECIPE).training_set()
    terms = samples.head_views(RECIPE)[1].terms
    assert 0 < len(terms) <= 12
    assert "lovely" in terms


def test_shuffled_labels_are_at_chance_with_words_and_descriptions_too():
    rng = np.random.default_rng(0)
    topics = ["sun sea sand", "law court judge", "goal match team", "soup salt oven"]
    texts = [f"{' '.join(rng.permutation(t.split()))} {rng.integers(900)}" for t in topics for _ in range(12)]
    accuracies = []
    for labels in (np.repeat(np.arange(4), 12), rng.permutation(np.repeat(np.arange(4), 12))):
        given = {f"c{c}": [t for t, label in zip(texts, labels, strict=True) if label == c] for c in range(4)}
        task = Task.from_mapping(given, descriptions={f"c{c}": topics[c] for c in range(4)})
        accuracies.append(fit_task(task, HashEmbedder(), recipe=RECIPE, seed=0).estimate.accuracy)
    assert accuracies[0] > 0.9
    assert accuracies[1] < 0.45


def test_the_classifier_depends_on_what_was_generated_not_on_the_order():
    class Reversed(Writer):
        async def generate(self, request):
            batch = await super().generate(request)
            return Batch(batch.texts[::-1], closed=batch.closed)

    recipe = RECIPE.with_options(batch=4, rounds_per_class=1)
    for policy in ("adamab", "random"):
        a = run(generator=Writer(limit=4), recipe=recipe, policy=policy)
        b = run(generator=Reversed(limit=4), recipe=recipe, policy="round-robin")
        assert sorted(s.text for s in a.synthetic) == sorted(s.text for s in b.synthetic)
        for one, other in zip(a.classifier.heads, b.classifier.heads, strict=True):
            np.testing.assert_array_equal(one.linear, other.linear)


def test_the_theorems_setting_steps_once_a_round_at_a_constant_rate():
    recipe = PAPER.with_options(full_gradient=True, learning_rate=0.05)
    result = run(generator=Writer(), recipe=recipe)
    assert {record.learning_rate for record in result.history} == {0.05}
    annealed = run(generator=Writer(), recipe=PAPER)
    rates = [record.learning_rate for record in annealed.history]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] == 0.005
    assert 0.0025 < rates[-1] < 0.003


def test_paper_trains_on_what_came_when_rounds_were_too_few():
    recipe = PAPER.with_options(augmentation_rounds=2, rounds=4)
    result = run(make_task({c: [] for c in CLASSES}), Writer(), recipe=recipe)
    assert [record.loss is None for record in result.history] == [True, True, False, False]


def test_texts_that_are_too_long_are_counted():
    given = {**GIVEN, "praise": [*GIVEN["praise"], "lovely " * 50]}
    result = fit_task(make_task(given), HashEmbedder(max_words=20), recipe=RECIPE)
    assert result.overlong == 1


def test_rows_that_were_handed_out_stay_as_they_were():
    first = np.arange(3)
    growing = training_set.GrowingRows(first)
    seen = growing.add(np.array([7]))
    assert growing.add(np.array([8, 9])).tolist() == [0, 1, 2, 7, 8, 9]
    assert (first.tolist(), seen.tolist()) == ([0, 1, 2], [0, 1, 2, 7])
