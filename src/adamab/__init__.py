"""ADAMAB: few-shot classifiers on frozen embeddings.

Public names are loaded when they are first used: `import adamab` imports neither NumPy nor a
provider.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from adamab.version import __version__

if TYPE_CHECKING:
    from adamab.errors import AdamabError as AdamabError
    from adamab.estimator import ADAMABClassifier as ADAMABClassifier
    from adamab.estimator import EmbeddingCalibrator as EmbeddingCalibrator
    from adamab.estimator import load as load
    from adamab.model import Classifier as Classifier
    from adamab.providers.embedders.base import Embedder as Embedder
    from adamab.providers.generators.base import Generator as Generator
    from adamab.run.fit import FitResult as FitResult
    from adamab.run.fit import fit_task as fit_task
    from adamab.task.prompts import Prompts as Prompts
    from adamab.task.recipe import Recipe as Recipe
    from adamab.task.spec import ClassSpec as ClassSpec
    from adamab.task.spec import Sample as Sample
    from adamab.task.spec import Task as Task
    from adamab.task.task_file import load_task as load_task

_PLACES = {
    "ADAMABClassifier": "adamab.estimator",
    "AdamabError": "adamab.errors",
    "ClassSpec": "adamab.task.spec",
    "Classifier": "adamab.model",
    "Embedder": "adamab.providers.embedders.base",
    "EmbeddingCalibrator": "adamab.estimator",
    "FitResult": "adamab.run.fit",
    "Generator": "adamab.providers.generators.base",
    "Prompts": "adamab.task.prompts",
    "Recipe": "adamab.task.recipe",
    "Sample": "adamab.task.spec",
    "Task": "adamab.task.spec",
    "fit_task": "adamab.run.fit",
    "load": "adamab.estimator",
    "load_task": "adamab.task.task_file",
}

__all__ = ["__version__", *_PLACES]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'adamab' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
