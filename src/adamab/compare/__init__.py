"""What the method has to beat, all behind one contract; `make_baseline` knows them by name."""

from adamab.compare._setfit import SetFit
from adamab.compare._vectors import (
    CacheAdapter,
    CentredSimilarity,
    ClassMean,
    LinearProbe,
    LinearSVM,
    NearestNeighbours,
    Similarity,
)
from adamab.compare.methods import Baseline, TrainingData, make_baseline

__all__ = [
    "Baseline",
    "CacheAdapter",
    "CentredSimilarity",
    "ClassMean",
    "LinearProbe",
    "LinearSVM",
    "NearestNeighbours",
    "SetFit",
    "Similarity",
    "TrainingData",
    "make_baseline",
]
