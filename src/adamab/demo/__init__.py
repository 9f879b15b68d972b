"""The built-in task: messages to a support desk, 12 classes that share most of their words."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

from adamab.providers.generators.recorded import ReplayGenerator
from adamab.task import ClassSpec, Prompts, Sample, Task, read_samples
from adamab.task.prompts import CLASSIFY, GENERATE

N_GIVEN = 5
_ABOUT = (
    "The texts are messages from customers to the support desk of an online service, a sentence or two each. "
    "A class is what a message is about."
)
PROMPTS = Prompts(
    generate=f"{_ABOUT}\n\n{GENERATE}",
    classify=f"{_ABOUT}\n\n{CLASSIFY}",
    rerank_query="What is this message to the support desk about? {text}",
)


@dataclass(frozen=True)
class DemoData:
    """The task holds the given messages only, so a fit on it cannot see the others."""

    task: Task
    test: tuple[Sample, ...]


def load_demo(*, n_given: int = N_GIVEN) -> DemoData:
    """The first `n_given` messages of each class are given, all others are for testing."""
    with _resource("classes.json") as path:
        rows = json.loads(path.read_text(encoding="utf-8"))
    classes = tuple(ClassSpec(row["label"], row["description"]) for row in rows)
    with _resource("messages.jsonl") as path:
        messages = read_samples(path, [spec.name for spec in classes])
    by_class = {c.name: [m for m in messages if m.class_name == c.name] for c in classes}
    given = tuple(m for of_class in by_class.values() for m in of_class[:n_given])
    test = tuple(m for of_class in by_class.values() for m in of_class[n_given:])
    return DemoData(Task(classes, given, PROMPTS, name="support desk"), test)


def demo_generator(*, seed: int | None = None) -> ReplayGenerator:
    """Messages that a language model wrote for these classes, recorded: 30 per class."""
    with _resource("synthetic.jsonl") as path:
        return ReplayGenerator(path, seed=seed)


def synthetic_samples() -> list[Sample]:
    """All recorded synthetic messages with their classes."""
    with _resource("synthetic.jsonl") as path:
        return read_samples(path)


def _resource(name: str) -> AbstractContextManager[Path]:
    # As a file even where the package is imported from a zip archive.
    return as_file(files("adamab.demo") / "data" / name)
