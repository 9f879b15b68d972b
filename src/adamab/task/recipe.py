"""Every hyperparameter, exactly once, each with its reason; presets `default` and `paper`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from adamab.errors import RecipeError

# Batch size, training rounds, samples a round, augmentation rounds and α of the paper's appendix.
PAPER_SETTINGS: dict[str, dict[str, float]] = {
    "multiwd": {"batch_size": 32, "rounds": 30, "batch": 5, "augmentation_rounds": 18, "alpha": 100},
    "forbidden": {"batch_size": 32, "rounds": 50, "batch": 5, "augmentation_rounds": 39, "alpha": 100},
    "trec": {"batch_size": 64, "rounds": 100, "batch": 5, "augmentation_rounds": 60, "alpha": 30},
    "pets": {"batch_size": 64, "rounds": 100, "batch": 3, "augmentation_rounds": 74, "alpha": 100},
    "flowers102": {"batch_size": 128, "rounds": 300, "batch": 2, "augmentation_rounds": 102, "alpha": 30},
    "cub200": {"batch_size": 256, "rounds": 500, "batch": 2, "augmentation_rounds": 400, "alpha": 100},
}


class Recipe(BaseModel):
    """How a classifier is made. The defaults are the preset `default`.

    Example:
        >>> Recipe.preset("default").with_options(dropout=0.3).dropout
        0.3
        >>> Recipe.preset("paper:trec").augmentation_rounds
        60
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str = "default"

    # What is seen of a sample
    views: tuple[str, ...] | None = Field(default=None, min_length=1)
    """Views asked of the embedder; None means all that it offers, the pooled embedding first."""
    words: bool = True
    """A lexical view (TF-IDF) beside the embedder's: free, and worth up to 0.8 points beside the others
    (results/ablation-development.md)."""
    similarity: bool = True
    """Untrained similarity to the description, as a view without parameters: worth 5.2 points on MultiWD, 1.7
    on the demo and at most 0.5 elsewhere (results/ablation-development.md)."""
    similarity_scale: float = Field(default=10.0, gt=0)
    """Logits of a cosine before evidence is there: ten makes a softmax of a few classes plausible."""
    centre: bool = True
    """Subtract the training mean: pooled embeddings share a large common part that says nothing."""
    normalise: bool = True
    """Scale to length one after centring: short and long texts then count alike. Without it Forbidden
    lost 1 point and nothing else changed by more than 0.4 (the same page)."""
    max_width: int | None = Field(default=256, ge=1)
    """Widest input of a tower; a wider view is reduced to the span of the training samples. The time of
    training grows with its square, and beside the discriminants more than this cannot matter much."""

    # The calibrator
    class_input: Literal["description", "mean", "both"] = "both"
    """What the class tower sees: the description's vector, the class mean, or their sum. The sum also works
    where a class has no description or no sample; the description alone gained at most 0.8 points."""
    layers: int = Field(default=3, ge=1, le=8)
    """Of a tower: the paper's."""
    bottleneck: int = Field(default=4, ge=1)
    """Inner layers are so many times narrower than the view: the paper's, by its counts of parameters."""
    activation: Literal["relu", "gelu", "silu", "tanh"] = "relu"
    """Between the layers. The paper names none; the plainest."""
    dropout: float = Field(default=0.5, ge=0, lt=1)
    """Strong, because a fit sees a handful of samples a class; with as few steps as `checkpoints` has,
    none at all gives the same accuracy (results/ablation-development.md)."""
    zero_last: bool = True
    """Start as the identity, which keeps what the embedder knows."""
    free_vectors: bool = True
    """A trained vector a class beside the class tower: a linear probe is then a special case."""
    logit_scale: float = Field(default=16.0, gt=0)
    """Unit vectors give logits in [-1, 1], from which a softmax of many classes can learn nothing. A quarter
    of it loses 0 to 0.5 points (results/ablation-development.md)."""

    # The loop: augmentation and training by rounds
    batch: int = Field(default=5, ge=1)
    """Samples asked for in one round, the paper's Δn."""
    augmentation_rounds: int | None = Field(default=None, ge=0)
    """Rounds that generate; None means `passes` times the number of classes."""
    passes: int = Field(default=2, ge=0)
    """Augmentation rounds a class: twice five samples are ten a class on average."""
    rounds: int | None = Field(default=None, ge=0)
    """All rounds, the last ones without generation; None means the augmentation rounds. With `refit`
    rounds end with the generation."""
    alpha: float = Field(default=3000.0, ge=0)
    """Exploration of the bandit: so much that counts decide and δ² mostly tells classes of equal counts
    apart, as with the paper's values and its far smaller δ². At 100 the counts of 200 classes came to differ
    by ten, which cost 6 points against round-robin (CUB200, development part, two seeds); 3000 was level."""
    relative_shift: bool = True
    """Divide δ² by u² times the mean squared class gradient of the query towers (`GradientShift.scale`,
    a number that the round has anyway), so that α has no unit."""
    ahead: int | None = Field(default=1, ge=1)
    """Batches by which the bandit may put a class ahead of the one with the fewest samples, both counted as
    `difficulty` does; None is no limit. Without one the counts of CUB200 with one given sample a class ran
    from 3 to 18, since the bonus falls with all samples and some δ² of 200 is always far from the others."""
    difficulty: bool = True
    """Count a class that held-out given samples find w times as difficult as the average as one with n_C / √w
    samples, so that more is generated where errors are: the errors of all classes are fewest by the square
    root, if those of one fall with 1 / n. By w itself the counts of HWU64 ran from 10 to 70, 1 point behind
    round-robin on its test part. On TREC's development part √w is 1.3 points ahead of round-robin with
    batches for half of the classes and 0 to 0.5 with more (w: 2.1 and 0.5); on four others the two are level
    with each other. Only with `refit`."""
    optimiser: Literal["adam", "adamw"] = "adamw"
    """AdamW takes the decay off the weights themselves, whatever Adam makes of the gradients' size."""
    learning_rate: float = Field(default=3e-3, gt=0)
    """Of the loop and the refit: with it the few steps of `checkpoints` are enough."""
    final_rate: float = Field(default=1.0, gt=0, le=1)
    """Last learning rate as a share of the first (cosine annealing, one step a round): constant, since
    nobody knows at the start how many rounds a budget pays for."""
    weight_decay: float = Field(default=1e-2, ge=0)
    """The optimiser's usual one. None at all gives the same accuracy (results/ablation-development.md)."""
    batch_size: int | None = Field(default=None, ge=1)
    """Mini-batch of the loop's epochs; None is the full batch, which is small enough and draws no order."""
    full_gradient: bool = False
    """One full-batch step of plain gradient descent at a constant rate a round instead of an epoch of
    Adam: the theorem's setting. The refit of the heads does not change."""
    synthetic_weight: float = Field(default=1.0, gt=0)
    """Weight of a synthetic sample in every loss; a given one has weight one. Less than one changed 0.2
    points (results/ablation-added-development.md)."""

    # What may enter (the quality gate) and how it is written
    near_duplicate: float | None = Field(default=0.97, gt=0, le=1)
    """Cosine of the pooled embeddings from which a sample repeats one that is there; None is off.
    With `local` a greeting or another word order mostly scores above 0.97; different samples recorded
    for three tasks score at most 0.86, and 'turn up' and 'turn down the lights', two classes, 0.94.
    Other embedders score higher, so a lower default would not do for all."""
    consistent: int | None = Field(default=None, ge=1)
    """A sample's class must be among so many of the most probable by the current model; None is off,
    because a model of a few examples is least right about the samples that teach it most."""
    temperature: float = Field(default=1.0, ge=0, le=2)
    """Of a chat generator. The paper tuned its own and names no value; one is the models' own."""
    shown: int = Field(default=20, ge=0)
    """Existing samples that a prompt shows as those to differ from: enough to differ from, cheap to send."""
    contrast: bool = False
    """Tell a chat generator which other class a class is mistaken for by held-out given samples, and ask for
    samples that are not. Off: no figures with a real generator are at hand. Only with `refit` and folds."""
    image_size: str = Field(default="1024x1024", pattern=r"^(auto|[1-9][0-9]{1,4}x[1-9][0-9]{1,4})$")
    """Pixels of a generated picture, as the generator's service writes them."""
    image_quality: str = Field(default="low", pattern=r"^[a-z]+$")
    """Of a generated picture: the cheapest is enough for an embedder, which looks at it in small."""
    max_refusals: int = Field(default=3, ge=1)
    """Refusals after which a class is asked for no more: one may be chance, a fourth is money lost."""

    # The discriminant
    discriminants: bool = True
    """A linear discriminant in every view beside the calibrator, and in its place in the views of many
    columns (layers, tokens), where training a calibrator as well changed nothing on development parts."""
    shrinkages: tuple[Annotated[int, Field(ge=1, le=100)], ...] = Field(
        default=(20, 40, 10, 70, 5, 100), min_length=1
    )
    """Percent by which the scatter within classes is shrunk towards the same in all directions; the folds
    choose, of equals the first. 100 leaves the cosines with the class means. 20 alone is as good but for
    Forbidden (-0.5) and MultiWD (+1.2; results/ablation-development.md); choosing serves other tasks."""
    discriminant_width: int | None = Field(default=512, ge=1)
    """Widest input of a discriminant. With five samples a class 256 does nearly as well
    (results/ablation-development.md); more samples have more directions."""

    # Evidence: what the folds decide
    refit: bool = True
    """After the loop train every view's head anew, for the steps and with the weights of the folds."""
    folds: int = Field(default=5, ge=0)
    """Three lose up to 1.6 points, none at all 12 on TREC (results/ablation-development.md)."""
    synthetic_evidence: float = Field(default=0.2, ge=0, le=1)
    """What a held-out synthetic sample counts beside a given one; 0 judges by given samples alone. With five
    given a class it matters little (results/ablation-added-development.md). With one nothing could be judged
    without it."""
    evidence: int = Field(default=400, ge=1)
    """Held-out samples that are enough to choose by: an accuracy among so many has a standard error of at
    most 2.5 points, less between views on the same samples. Of more only a part of the folds is judged, which
    saves the time of the others."""
    checkpoints: tuple[Annotated[int, Field(ge=0)], ...] = Field(default=(0, 4, 16), min_length=1)
    """Numbers of full-batch steps that the folds choose from, view by view. Beside the discriminants
    training adds 0 to 0.5 points, and more steps add nothing (results/ablation-development.md). Like all of
    evidence and `similarity` it matters only with `refit`."""
    default_steps: int = Field(default=4, ge=0)
    """Steps where there are no folds (one example a class): the middle one of `checkpoints`, since nobody can
    say there when training has gone too far."""
    pull: float = Field(default=3.0, ge=0)
    """Strength of the pull of the weights towards each other, in samples: with few samples the evidence
    hardly tells the views apart. Neither none nor ten times as much differs by more than a point."""
    typical: float = Field(default=40.0, ge=0)
    """Where a class has one sample, so that none of it can be held out: what the weights that views have
    without evidence count, in held-out samples. With five samples of three in ten classes and one of each
    other, 0 loses 1.4 to 3.9 points and 80 is level (development parts of four text sets, four seeds:
    results/quality-story.md)."""

    @classmethod
    def preset(cls, name: str) -> Recipe:
        """`default`, `paper`, or `paper:SET` with the settings of one of the paper's data sets."""
        if name == "default":
            return cls()
        if name == "paper":
            # Rounds as for TREC and Pets: with those that generate alone, nothing would be trained where
            # nothing is generated.
            return _paper(name, {"batch_size": 32, "rounds": 100, "batch": 5, "passes": 3, "alpha": 100.0})
        family, _, data_set = name.partition(":")
        if family == "paper" and data_set in PAPER_SETTINGS:
            return _paper(name, PAPER_SETTINGS[data_set])
        raise RecipeError(
            f"unknown recipe {name!r}; choose default, paper or paper:SET with SET one of: "
            + ", ".join(PAPER_SETTINGS)
        )

    def with_options(self, **options: Any) -> Recipe:
        """The same recipe with some values changed, all checked again."""
        return _checked({**self.model_dump(), **options})

    def for_modality(self, modality: str) -> Recipe:
        """The recipe as a task of that modality can use it: pictures have no words."""
        return self if modality == "text" else self.with_options(words=False)

    def n_augmentation_rounds(self, n_classes: int) -> int:
        """Rounds that generate, for a task of that many classes."""
        return self.passes * n_classes if self.augmentation_rounds is None else self.augmentation_rounds

    def n_rounds(self, n_classes: int) -> int:
        """All rounds, for a task of that many classes."""
        augmentation = self.n_augmentation_rounds(n_classes)
        return augmentation if self.rounds is None else max(self.rounds, augmentation)


def _paper(name: str, settings: Mapping[str, Any]) -> Recipe:
    """The literal recipe: one view, no centring, no scale, the loop's weights are the final ones."""
    literal: dict[str, Any] = {
        "name": name,
        "views": ("pooled",),
        "words": False,
        "similarity": False,
        "centre": False,
        "normalise": False,
        "max_width": None,
        "class_input": "description",
        "dropout": 0.0,
        "zero_last": False,
        "free_vectors": False,
        "logit_scale": 1.0,
        "relative_shift": False,
        "ahead": None,
        "difficulty": False,
        "optimiser": "adam",
        "learning_rate": 0.005,
        "final_rate": 0.5,
        "weight_decay": 1e-4,
        "near_duplicate": None,  # exact repeats stay out, as in every recipe
        "refit": False,
        "discriminants": False,
        "folds": 0,
    }
    return _checked({**literal, **settings})


def _checked(values: Mapping[str, Any]) -> Recipe:
    try:
        return Recipe.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise RecipeError(f"recipe option {place!r}: {first['msg']} (got {first['input']!r})") from None
