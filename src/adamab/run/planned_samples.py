"""What a dry run takes new samples to be: like the given ones, or as large as a generator draws them."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import cycle, islice
from typing import TYPE_CHECKING

from adamab.providers.embedders.base import Item
from adamab.task.images import Image

if TYPE_CHECKING:
    from adamab.run.fit_run import Order
    from adamab.task.recipe import Recipe

_UNSEEN = "x" * 60  # a sample where no class has one to go by
_LONGER = 3  # times a given sample that a recorded one may be long
_LARGEST = (1536, 1024)  # of a picture whose size is left to the service


class PlannedSamples:
    """Stand-ins for what is not made yet, class by class."""

    def __init__(self, order: Order, recipe: Recipe) -> None:
        self._task, self._recipe = order.task, recipe
        samples = [[s for s in order.task.samples if s.class_name == n] for n in order.task.class_names]
        self.given = [tuple(sample.text for sample in of_class) for of_class in samples]
        self._pictures = [[s.image for s in of_class if s.image is not None] for of_class in samples]
        generator = order.generator
        self._drawn = generator is not None and generator.modality == "image" and generator.api is not None
        self._size = str(getattr(generator, "size", recipe.image_size))

    def like_given(self, class_index: int, count: int) -> tuple[str, ...]:
        """As long as the given ones of the class, or of others where it has none."""
        everything = tuple(text for given in self.given for text in given)
        return tuple(islice(cycle(self.given[class_index] or everything or (_UNSEEN,)), count))

    def items(self, class_index: int, count: int) -> list[Item]:
        """What the embedder would be given of `count` new samples."""
        if self._task.modality == "image":
            return list(islice(cycle(self._pictures_like(class_index)), count))
        return [self._task.prompts.query_text(text) for text in self.like_given(class_index, count)]

    def largest_picture(self, cost: Callable[[Image], int]) -> Image:
        """The one that is dearest to embed."""
        pictures = [p for c in range(len(self.given)) for p in self._pictures_like(c)]
        return max(dict.fromkeys(pictures), key=cost)

    def longest_recorded(self) -> str:
        """Longer than what somebody wrote before."""
        return _LONGER * max((_UNSEEN, *(text for given in self.given for text in given)), key=len)

    def _pictures_like(self, class_index: int) -> Sequence[Image]:
        everything = [picture for of_class in self._pictures for picture in of_class]
        known = [] if self._drawn else self._pictures[class_index] or everything
        return known or [self._drawing]

    @cached_property
    def _drawing(self) -> Image:
        """A blank picture of the size that a generator will be asked for."""
        import PIL.Image

        from adamab.providers.image_store import temporary_store

        width, _, height = self._size.partition("x")
        known = width.isdecimal() and height.isdecimal()
        size, data = (int(width), int(height)) if known else _LARGEST, io.BytesIO()
        PIL.Image.new("RGB", size).save(data, "PNG")
        self._store = temporary_store()  # goes when this object goes
        return self._store.put(data.getvalue())
