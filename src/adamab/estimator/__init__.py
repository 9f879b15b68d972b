"""scikit-learn estimators: texts or pictures in (`ADAMABClassifier`), or arrays (`EmbeddingCalibrator`)."""

from adamab.estimator.samples import ADAMABClassifier, load
from adamab.estimator.vectors import EmbeddingCalibrator

__all__ = ["ADAMABClassifier", "EmbeddingCalibrator", "load"]
