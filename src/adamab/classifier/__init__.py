"""The finished classifier: NumPy inference, and safetensors + JSON on disk."""

from adamab.classifier.classifier import Classifier
from adamab.classifier.heads import Head
from adamab.classifier.storage import load, save

__all__ = ["Classifier", "Head", "load", "save"]
