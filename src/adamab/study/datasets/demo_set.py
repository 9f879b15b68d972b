"""The built-in task as a data set: it needs no files but those of the package."""

from __future__ import annotations

from adamab.errors import TaskError
from adamab.study.datasets.base import DataSet, Material, Source, Split, by_class
from adamab.study.datasets.demo import N_GIVEN, PROMPTS, load_demo, synthetic_samples

N_SOURCE = 20  # of the 45 messages a class


class DemoSet(DataSet):
    """Messages to a support desk."""

    name = "demo"
    title = "support desk"
    prompts = PROMPTS
    generators = ("recorded", "pool")

    def __init__(self) -> None:
        self.specs = load_demo().task.classes

    def material(self, generator: Source, split: Split) -> Material:
        """The first 20 messages a class, or the five that the recorded generator saw; the rest is for tests.

        With the recorded generator nothing but those five is left to develop on, so there it has no
        development part.
        """
        if split == "paper":
            raise TaskError("demo: the paper does not use this set; use split 'readme'")
        data = load_demo(n_given=N_GIVEN if generator == "recorded" else N_SOURCE)
        first = by_class(data.task.samples, self.specs)
        if generator == "pool":
            return Material(source=first, test=data.test)
        return Material(
            source={spec.name: () for spec in self.specs},
            test=data.test,
            seen=first,
            recorded=by_class(synthetic_samples(), self.specs),
        )
