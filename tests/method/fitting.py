"""Fits on arrays for the tests of the method: views whose rows are the same in every fold."""

import numpy as np

from adamab.method.cross_validation import split_samples
from adamab.method.heads import fit_views
from adamab.method.views import View


def view_of(matrix, described=None, name="pooled", is_wide=False):
    return View(name, [(matrix, described)], is_wide)


def fit_on(views, y, given, n_classes, recipe, *, seed=0, copies=False):
    samples = split_samples(y, given, n_classes, recipe, seed=seed, copies=copies)
    folded = [View(v.name, [*v.rows] * len(samples.learned_from), v.is_wide) for v in views]
    return fit_views(folded, samples, recipe, seed=seed)


def fit_samples(training_set, recipe):
    everything = [np.ones(len(training_set), bool)]
    views, _ = training_set.fold_views(recipe, everything)
    return fit_on(views, training_set.class_index, training_set.given, training_set.n_classes, recipe)
