"""How many numbers a fit has learned."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from adamab.classifier import Classifier
from adamab.task.recipe import Recipe

if TYPE_CHECKING:
    from adamab.classifier import Head


def n_parameters(classifier: Classifier, recipe: Recipe) -> int:
    """Learned numbers of a finished classifier: towers without biases, free vectors, discriminants.

    Untrained similarity counts nothing. With `layers: 1` a tower is folded away, so that its head looks like
    one of similarity alone, and is counted as a tower.
    """
    return sum(_of_head(head, recipe) for head in classifier.heads)


def _of_head(head: Head, recipe: Recipe) -> int:
    if head.bias is not None:  # which only a discriminant has
        return head.linear.size + head.bias.size
    if not head.tower and recipe.layers > 1:
        return 0
    width: int = head.linear.shape[1]
    towers = 2 * sum(a * b for a, b in pairwise([width, *map(len, head.tower), width]))
    return towers + (head.classes * width if recipe.free_vectors else 0)
