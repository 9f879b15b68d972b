"""What several rooms' tests fit: a task with its settings, also into run directories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from adamab.providers.generators.base import Batch, Generator
from adamab.run.fit import resume_run
from adamab.run.settings import FitSettings, FitSetup, set_up
from adamab.task.spec import Task


class Order:
    """A task and settings, which may be set up again and again."""

    def __init__(self, task: Task, embedder: Any, embedder_spec: str = "", **settings: Any) -> None:
        self.task = task
        self.settings = FitSettings(embedder=embedder, embedder_spec=embedder_spec, **settings)

    @property
    def embedder(self) -> Any:
        return self.settings.embedder

    @property
    def generator(self) -> Any:
        return self.settings.generator

    @property
    def recipe(self) -> Any:
        return self.settings.recipe

    def changed(self, task: Task | None = None, **settings: Any) -> Order:
        """The same with some settings changed."""
        values = {name: getattr(self.settings, name) for name in FitSettings.model_fields}
        return Order(task or self.task, **(values | settings))

    def set_up(self, **settings: Any) -> FitSetup:
        return set_up(self.task, self.changed(**settings).settings)


def fit_run(order: Order, path: Path, *, overwrite: bool = False, **hooks: Any) -> dict[str, Any]:
    """Fit into a run directory."""
    return resume_run(order.set_up(run_dir=path, overwrite=overwrite), **hooks)


class Writer(Generator):
    """Other texts of the class each time."""

    fingerprint = "writer"

    async def generate(self, request):
        have = len(request.existing)
        return Batch(tuple(f"{request.spec.name} text {have + i} {i}" for i in range(request.count)))
