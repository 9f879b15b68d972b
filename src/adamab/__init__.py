"""ADAMAB: few-shot classifiers on frozen embeddings.

Public names are loaded when they are first used: `import adamab` imports neither torch nor a
provider.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from adamab.version import __version__

if TYPE_CHECKING:
    from adamab.errors import AdamabError
    from adamab.estimator import ADAMABClassifier, EmbeddingCalibrator, load
    from adamab.model import Classifier
    from adamab.run.fit import FitResult, fit_task
    from adamab.task.prompts import Prompts
    from adamab.task.recipe import Recipe
    from adamab.task.spec import ClassSpec, Sample, Task
    from adamab.task.task_file import load_task

_PLACES = {
    "ADAMABClassifier": "adamab.estimator",
    "AdamabError": "adamab.errors",
    "ClassSpec": "adamab.task.spec",
    "Classifier": "adamab.model",
    "EmbeddingCalibrator": "adamab.estimator",
    "FitResult": "adamab.run.fit",
    "Prompts": "adamab.task.prompts",
    "Recipe": "adamab.task.recipe",
    "Sample": "adamab.task.spec",
    "Task": "adamab.task.spec",
    "fit_task": "adamab.run.fit",
    "load": "adamab.estimator",
    "load_task": "adamab.task.task_file",
}

__all__ = [
    "ADAMABClassifier",
    "AdamabError",
    "ClassSpec",
    "Classifier",
    "EmbeddingCalibrator",
    "FitResult",
    "Prompts",
    "Recipe",
    "Sample",
    "Task",
    "__version__",
    "fit_task",
    "load",
    "load_task",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'adamab' has no attribute {name!r}")
    from adamab.run import torch_required

    with torch_required():
        return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
