"""The finished classifier: NumPy inference, and safetensors + JSON on disk."""

from adamab.model.classifier import UNKNOWN, Answerer, Answers, Classifier, PredictOptions
from adamab.model.confidence import Confidence
from adamab.model.heads import Head
from adamab.model.storage import load, save

__all__ = [
    "UNKNOWN",
    "Answerer",
    "Answers",
    "Classifier",
    "Confidence",
    "Head",
    "PredictOptions",
    "load",
    "save",
]
