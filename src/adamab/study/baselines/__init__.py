"""What the method has to beat, all behind one contract; `make_baseline` knows them by name."""

from adamab.study.baselines.base import Baseline, TrainingData
from adamab.study.baselines.cache_adapter import CacheAdapter
from adamab.study.baselines.class_mean import ClassMean
from adamab.study.baselines.knn import NearestNeighbours
from adamab.study.baselines.linear_probe import LinearProbe
from adamab.study.baselines.linear_svm import LinearSVM
from adamab.study.baselines.registry import METHODS, make_baseline
from adamab.study.baselines.setfit import SetFit
from adamab.study.baselines.similarity import CentredSimilarity, Similarity

__all__ = [
    "METHODS",
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
