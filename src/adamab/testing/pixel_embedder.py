"""A toy embedder of pictures for tests: no model, only Pillow; pictures that look alike are alike."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from adamab.providers.embedders.base import Embedded, Embedder, Item, Kind, Modality, only_images
from adamab.task.images import Image


class PixelEmbedder(Embedder):
    """A small thumbnail's pixels beside a histogram of each colour, of length 1; it knows no texts.

    `calls` counts the pictures that were really embedded, for tests of caches and budgets.
    """

    modalities: frozenset[Modality] = frozenset({"image"})

    def __init__(self, *, side: int = 8, bins: int = 8) -> None:
        self.side = side
        self.bins = bins
        self.calls = 0
        self.fingerprint = f"pixels:{side}:{bins}"

    async def _embed(self, items: Sequence[Item], *, kind: Kind, views: Sequence[str]) -> Embedded:
        images = only_images(items)
        self.calls += len(images)
        rows = await asyncio.to_thread(lambda: [self._vector(image) for image in images])
        return Embedded({view: np.stack(rows) for view in views}, np.zeros(len(rows), np.bool_))

    def _vector(self, image: Image) -> NDArray[np.float32]:
        from PIL.Image import Resampling

        from adamab.task.image_decoding import decoded

        picture = decoded(image, least_side=4 * self.side)
        small = picture.resize((self.side, self.side), Resampling.BOX)
        pixels = np.asarray(small, np.float64).reshape(-1, 3) / 255
        colours = [np.histogram(pixels[:, c], self.bins, (0, 1))[0] / len(pixels) for c in range(3)]
        # The histogram weighs less, since a shade moves to the next bin at once; but a grey picture,
        # whose pixels say nothing, has a direction by it.
        parts = [(2 * pixels - 1).ravel() / np.sqrt(pixels.size), 0.2 * np.concatenate(colours)]
        vector = np.concatenate(parts)
        return (vector / np.linalg.norm(vector)).astype(np.float32)  # type: ignore[no-any-return]
