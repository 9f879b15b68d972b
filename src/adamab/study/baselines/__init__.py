"""What the method has to beat, all behind one contract."""

from adamab.study.baselines.base import Baseline, TrainingData
from adamab.study.baselines.linear_probe import LinearProbe
from adamab.study.baselines.similarity import Similarity

__all__ = ["Baseline", "LinearProbe", "Similarity", "TrainingData"]
