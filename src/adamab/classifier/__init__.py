"""The finished classifier: NumPy inference, and safetensors + JSON on disk."""

from adamab.classifier.answers import UNKNOWN, Answerer, Answers, Asked
from adamab.classifier.classifier import Classifier
from adamab.classifier.confidence import Confidence
from adamab.classifier.heads import Head
from adamab.classifier.storage import load, save

__all__ = [
    "UNKNOWN",
    "Answerer",
    "Answers",
    "Asked",
    "Classifier",
    "Confidence",
    "Head",
    "load",
    "save",
]
