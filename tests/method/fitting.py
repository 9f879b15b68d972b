"""Fits on arrays for the tests of the method."""

from dataclasses import replace

import numpy as np

from adamab.method.discriminant import FitSamples
from adamab.method.heads import fit_views
from adamab.task.recipe import Recipe


def fit_on(views, y, n_classes, recipe=None, *, given=None, seed=0):
    """The first view is the pooled one; of samples that repeat each other in it one counts."""
    recipe = recipe or Recipe()
    given = np.ones(len(y), bool) if given is None else given
    samples, rows = FitSamples.of(views[0].x, y, given, n_classes, views[0].name, recipe)
    views = [replace(view, x=view.x[rows]) for view in views]
    return fit_views(views, samples, recipe, seed=seed)


def all_given(y, n_classes, pooled="pooled"):
    """Samples of which none is a copy of another."""
    n = np.arange(len(y))
    return FitSamples(y, np.ones(len(y), bool), n_classes, pooled, n, n)
