"""Every hyperparameter, exactly once; presets `default`, `paper` and `calibrator`.

How each value was found is in results/recipe-history.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from adamab.errors import RecipeError, short, suggestion

# Batch size, training rounds, samples per round, augmentation rounds and α of the paper's appendix.
PAPER_SETTINGS: dict[str, dict[str, float]] = {
    "multiwd": {"batch_size": 32, "rounds": 30, "batch": 5, "augmentation_rounds": 18, "alpha": 100},
    "forbidden": {"batch_size": 32, "rounds": 50, "batch": 5, "augmentation_rounds": 39, "alpha": 100},
    "trec": {"batch_size": 64, "rounds": 100, "batch": 5, "augmentation_rounds": 60, "alpha": 30},
    "pets": {"batch_size": 64, "rounds": 100, "batch": 3, "augmentation_rounds": 74, "alpha": 100},
    "flowers102": {"batch_size": 128, "rounds": 300, "batch": 2, "augmentation_rounds": 102, "alpha": 30},
    "cub200": {"batch_size": 256, "rounds": 500, "batch": 2, "augmentation_rounds": 400, "alpha": 100},
}
# The literal recipe: one view, no centring, no scale, the loop's weights are the final ones.
_PAPER: dict[str, Any] = {
    "views": ("pooled",),
    "words": False,
    "centre": False,
    "normalise": False,
    "class_input": "description",
    "dropout": 0.0,
    "zero_last": False,
    "free_vectors": False,
    "logit_scale": 1.0,
    "relative_shift": False,
    "max_batches_ahead": None,
    "difficulty": False,
    "optimiser": "adam",
    "learning_rate": 0.005,
    "final_rate": 0.5,
    "weight_decay": 1e-4,
    "near_duplicate": None,  # exact repeats stay out, as in every recipe
    "refit": False,
}
# The paper's networks and bandit with the fewest changes that make them work on ordinary embedders.
_CALIBRATOR: dict[str, Any] = {
    **_PAPER,
    "logit_scale": 16.0,
    "zero_last": True,
    "centre": True,
    "learning_rate": 1e-3,
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
    """Add a lexical view (TF-IDF of words and pairs) beside the embedder's; texts only."""
    centre: bool = True
    """Subtract the training mean: pooled embeddings share a large common part that says nothing."""
    normalise: bool = True
    """Scale to length one after centring, so that short and long texts count alike."""
    described_views: tuple[str, ...] = ("pooled", "layers", "words")
    """Views in which class descriptions are compared with samples: those that are no matter of position."""

    # The calibrator
    class_input: Literal["description", "mean", "both"] = "both"
    """What the class tower sees: the description's vector, the class mean, or their unit sum."""
    layers: int = Field(default=3, ge=1, le=8)
    """Layers of a tower; three are the paper's."""
    bottleneck: int = Field(default=4, ge=1)
    """Inner layers of a tower are so many times narrower than the view; four is the paper's."""
    activation: Literal["relu", "gelu", "silu", "tanh"] = "relu"
    """Function between the layers of a tower."""
    dropout: float = Field(default=0.5, ge=0, lt=1)
    """Share of the hidden units that a training step leaves out, to the nearest 256th."""
    zero_last: bool = True
    """Start the last layer of a tower at zero: the identity, which keeps what the embedder knows."""
    free_vectors: bool = True
    """Train one vector per class beside the class tower: a linear probe is then a special case."""
    logit_scale: float = Field(default=16.0, gt=0)
    """Factor of a calibrator's logits: products of unit vectors alone are too flat for a softmax."""

    # The loop: augmentation and training by rounds
    batch: int = Field(default=5, ge=1)
    """Samples asked for in one round, the paper's Δn."""
    augmentation_rounds: int | None = Field(default=None, ge=0)
    """Rounds that generate; None means `rounds_per_class` times the number of classes."""
    rounds_per_class: int = Field(default=2, ge=0)
    """Augmentation rounds per class, on average."""
    rounds: int | None = Field(default=None, ge=0)
    """All rounds, the last ones without generation; None means the augmentation rounds. With `refit`
    rounds end with the generation."""
    alpha: float = Field(default=3000.0, ge=0)
    """Weight of exploration in the bandit's bound: the larger, the more the counts of samples decide."""
    relative_shift: bool = True
    """Divide δ² by u² times the mean squared class gradient of the query towers (`GradientShift.scale`),
    so that α has no unit."""
    max_batches_ahead: int | None = Field(default=1, ge=1)
    """Batches by which the bandit may put a class ahead of the one with the fewest samples, both counted as
    `difficulty` does; None is no limit."""
    difficulty: bool = True
    """Count a class that held-out given samples find w times as difficult as the average as one with
    n_C / √w samples, so that more is generated where errors are. Only with `refit`."""
    difficulty_prior: float = Field(default=4.0, gt=0)
    """Samples of mean difficulty that are counted beside the held-out ones of a class."""
    optimiser: Literal["adam", "adamw"] = "adamw"
    """AdamW takes the decay off the weights themselves, Adam adds it to the gradients."""
    learning_rate: float = Field(default=3e-3, gt=0)
    """First learning rate of a calibrator."""
    final_rate: float = Field(default=1.0, gt=0, le=1)
    """Last learning rate as a share of the first (cosine annealing, one step per round)."""
    weight_decay: float = Field(default=1e-2, ge=0)
    """The optimiser's weight decay."""
    batch_size: int | None = Field(default=None, ge=1)
    """Mini-batch of the loop's epochs; None is the full batch."""
    full_gradient: bool = False
    """Take one full-batch step of plain gradient descent at a constant rate per round instead of an epoch of
    Adam: the theorem's setting. Only without `refit`."""
    synthetic_weight: float = Field(default=1.0, gt=0)
    """Weight of a synthetic sample in every loss; a given one has weight one."""

    # What may enter (the quality gate) and how it is written
    near_duplicate: float | None = Field(default=0.97, gt=0, le=1)
    """Cosine of the pooled embeddings from which a sample repeats one that is there; None is off."""
    max_label_rank: int | None = Field(default=None, ge=1)
    """A sample's class must be among so many of the most probable by the current model; None is off."""
    temperature: float = Field(default=1.0, ge=0, le=2)
    """Sampling temperature of a chat generator."""
    prompt_examples: int = Field(default=20, ge=0)
    """Existing samples that a prompt shows as those to differ from."""
    contrast: bool = False
    """Tell a chat generator which other class a class is mistaken for by held-out given samples, and ask for
    samples that are not. Only with `refit`."""
    contrast_share: float = Field(default=0.05, ge=0)
    """Probability, both ways together, from which a class is mistaken for another."""
    image_size: str = Field(default="1024x1024", pattern=r"^(auto|[1-9][0-9]{1,4}x[1-9][0-9]{1,4})$")
    """Pixels of a generated image, as the generator's service writes them."""
    image_quality: str = Field(default="low", pattern=r"^[a-z]+$")
    """Quality of a generated image, as the generator's service writes it."""
    max_refusals: int = Field(default=3, ge=1)
    """Refusals after which a class is asked for no more."""

    # The classifier
    refit: bool = True
    """Fit closed-form heads on all samples when the loop has ended; False keeps the loop's networks, as the
    paper does. What follows matters only with `refit`."""
    width: int = Field(default=512, ge=1)
    """Most columns of a view; a wider one is reduced to the strongest directions of its samples."""
    within_share: float = Field(default=0.8, gt=0, lt=1)
    """Share of a sample's squared length that is scatter within its class, before samples say so."""
    within_evidence: float = Field(default=10.0, gt=0)
    """Samples that this share is worth."""
    example_weight: float = Field(default=40.0, gt=0)
    """Weight of all discriminants together, before samples that are left out say so."""
    description_weight: float = Field(default=20.0, gt=0)
    """The same of the cosines with the class descriptions."""
    pooled_share: float = Field(default=2.0, gt=0)
    """Views that the pooled embedding counts as in these two weights."""
    weight_ridge: float = Field(default=1.0, gt=0)
    """Strength, in samples, of the ridge that holds the weights near those before."""
    calibrator: bool = False
    """Add the paper's calibrator on the pooled embedding to the heads."""
    calibrator_weight: float = Field(default=0.5, gt=0)
    """Its weight before held-out samples say so."""
    calibrator_steps: int = Field(default=16, ge=0)
    """Full-batch steps of its training."""
    repeat_distance: float = Field(default=1e-3, ge=0)
    """Share of the typical distance from the middle below which two samples of a class are the same one."""
    family_distance: float = Field(default=0.3, ge=0)
    """Share of the typical distance between samples of a class below which two of them are near copies:
    neither vouches for the other."""

    @field_validator("views", "described_views", mode="before")
    @classmethod
    def _named(cls, value: object) -> object:
        """Names as somebody writes them: `pooled,max`."""
        if not isinstance(value, str):
            return value
        return tuple(part.strip() for part in value.split(",") if part.strip())

    @classmethod
    def preset(cls, name: str) -> Recipe:
        """`default`, `paper`, `calibrator`, or one of the last two with `:SET`, a data set of the paper's.

        Args:
            name: of the preset; `paper:trec` has the paper's settings for TREC.
        """
        if name == "default":
            return cls()
        family, colon, data_set = name.partition(":")
        families = {"paper": _PAPER, "calibrator": _CALIBRATOR}
        if family in families and not colon:
            # Rounds as for TREC and Pets: with those that generate alone, nothing would be trained where
            # nothing is generated.
            settings = {"batch_size": 32, "rounds": 100, "batch": 5, "rounds_per_class": 3, "alpha": 100.0}
        elif family in families and data_set in PAPER_SETTINGS:
            settings = PAPER_SETTINGS[data_set]
        else:
            raise RecipeError(
                f"unknown recipe {name!r}; choose default, paper, calibrator, paper:SET or calibrator:SET "
                "with SET one of: " + ", ".join(PAPER_SETTINGS)
            )
        return cls().with_options(name=name, **families[family], **settings)

    @classmethod
    def of(cls, value: object) -> Recipe:
        """The recipe that a user names.

        Args:
            value: a recipe, a preset's name, or a mapping of options, of which `name` is the preset that the
                others start from.

        Example:
            >>> Recipe.of({"name": "paper", "dropout": 0.3}).dropout
            0.3
        """
        if isinstance(value, Recipe):
            return value
        if isinstance(value, str):
            return cls.preset(value)
        if not isinstance(value, Mapping):
            kind = type(value).__name__
            raise RecipeError(
                f"recipe is of type {kind}; give a preset's name, a mapping of options or a Recipe"
            )
        options = {str(name): option for name, option in value.items()}
        return cls.preset(str(options.pop("name", "default"))).with_options(**options)

    def with_options(self, **options: Any) -> Recipe:
        """The same recipe with some values changed, all checked again."""
        if unknown := [name for name in options if name not in Recipe.model_fields]:
            raise RecipeError(
                f"the recipe has no option {short(unknown[0])}; {suggestion(unknown[0], Recipe.model_fields)}"
            )
        try:
            return Recipe.model_validate({**self.model_dump(), **options})
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            must = first["msg"].replace("Input should be", "must be").partition(", unable to parse")[0]
            raise RecipeError(f"recipe option {place!r} {must} (got {first['input']!r})") from None

    def __repr_args__(self) -> list[tuple[str | None, Any]]:
        # The name, and what differs from the preset of that name.
        try:
            usual = Recipe.preset(self.name)
        except RecipeError:
            usual = Recipe()
        changed = [name for name in Recipe.model_fields if getattr(self, name) != getattr(usual, name)]
        return [(name, getattr(self, name)) for name in dict.fromkeys(("name", *changed))]

    def for_modality(self, modality: str) -> Recipe:
        """The recipe as a task of that modality can use it: images have no words."""
        return self if modality == "text" else self.with_options(words=False)

    def n_augmentation_rounds(self, n_classes: int) -> int:
        """Rounds that generate, for a task of that many classes."""
        if self.augmentation_rounds is not None:
            return self.augmentation_rounds
        return self.rounds_per_class * n_classes

    def n_rounds(self, n_classes: int) -> int:
        """All rounds, for a task of that many classes."""
        augmentation = self.n_augmentation_rounds(n_classes)
        return augmentation if self.rounds is None else max(self.rounds, augmentation)
