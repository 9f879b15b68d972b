import pytest

from adamab.errors import RecipeError
from adamab.task.recipe import PAPER_SETTINGS, Recipe


def test_presets_of_the_paper():
    for name, settings in PAPER_SETTINGS.items():
        recipe = Recipe.preset(f"paper:{name}")
        assert {key: getattr(recipe, key) for key in settings} == settings
        assert (recipe.learning_rate, recipe.final_rate, recipe.weight_decay) == (0.005, 0.5, 1e-4)
        assert (recipe.refit, recipe.words, recipe.views) == (False, False, ("pooled",))
    assert Recipe.preset("paper").n_augmentation_rounds(30) == 90
    assert Recipe.preset("paper:cub200").n_rounds(200) == 500


def test_rounds_follow_the_number_of_classes():
    assert Recipe().n_rounds(12) == Recipe().n_augmentation_rounds(12) == 24
    assert Recipe(augmentation_rounds=7).n_rounds(12) == 7
    assert Recipe(augmentation_rounds=7, rounds=3).n_rounds(12) == 7


@pytest.mark.parametrize("name", ["paper", *(f"paper:{data_set}" for data_set in PAPER_SETTINGS)])
def test_the_paper_trains_where_nothing_is_generated(name):
    assert Recipe.preset(name).with_options(augmentation_rounds=0).n_rounds(64) >= 30


@pytest.mark.parametrize("data_set", ["", *(f":{name}" for name in PAPER_SETTINGS)])
def test_the_calibrator_preset_is_the_papers_but_for_four_values(data_set):
    paper = Recipe.preset(f"paper{data_set}").model_dump()
    own = Recipe.preset(f"calibrator{data_set}").model_dump()
    assert {key: value for key, value in own.items() if value != paper[key]} == {
        "name": f"calibrator{data_set}",
        "logit_scale": 16.0,
        "zero_last": True,
        "centre": True,
        "learning_rate": 1e-3,
    }


@pytest.mark.parametrize("name", ["papr", "paper:imagenet", "calibrator:imagenet", "paper:", ""])
def test_unknown_presets(name):
    with pytest.raises(RecipeError, match="unknown recipe"):
        Recipe.preset(name)


@pytest.mark.parametrize(
    "options",
    [
        {"dropout": 1.0},
        {"calibrator_steps": -1},
        {"weight_ridge": 0.0},
        {"within_share": 1.0},
        {"folds": 5},
        {"layers": 0},
        {"alpha": float("inf")},
        {"views": ()},
        {"activation": "step"},
        {"colour": "red"},
        {"near_duplicate": 0.0},
        {"near_duplicate": 1.01},
        {"max_label_rank": 0},
        {"temperature": -0.1},
        {"temperature": 2.5},
        {"prompt_examples": -1},
        {"max_refusals": 0},
    ],
)
def test_wrong_options_are_one_line(options):
    with pytest.raises(RecipeError) as caught:
        Recipe().with_options(**options)
    assert "\n" not in str(caught.value)
    assert next(iter(options)) in str(caught.value)


def test_options_are_read_as_the_command_line_reads_them():
    recipe = Recipe.of({"views": "pooled, max", "dropout": "0.3"})
    assert (recipe.views, recipe.dropout) == (("pooled", "max"), 0.3)
    with pytest.raises(RecipeError, match=r"^recipe option 'dropout' must be a valid number \(got 'much'\)$"):
        Recipe.of({"dropout": "much"})
    with pytest.raises(RecipeError, match="recipe is of type int; give a preset's name"):
        Recipe.of(3)


def test_a_recipe_shows_what_differs_from_its_preset():
    assert repr(Recipe.preset("paper:trec").with_options(batch=2)) == "Recipe(name='paper:trec', batch=2)"
    assert repr(Recipe(name="mine", batch=5)) == "Recipe(name='mine')"
