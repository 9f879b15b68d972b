"""What `make e2e` classifies: the small real sets where they are, else images drawn on the spot."""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw, ImageFilter

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the experiments are not installed
from experiments.datasets.image_files import Split, read_image_set

DATA = Path(os.environ.get("ADAMAB_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
# Set, its folder, and given images per class: one is left for the pool.
REAL = (("pets", "oxford_pets", 3), ("flowers102", "flowers102", 2), ("cub200", "cub200", 1))
SIDE = 160


@dataclass(frozen=True)
class ImageTask:
    """A task: what `fit`, `pool:`, `evaluate` and `predict` are given, and what to expect."""

    name: str
    given: str
    pool: str
    test: str
    folder: Path  # the test images with a folder a class
    n_classes: int
    n_given: int
    n_test: int

    @property
    def least(self) -> float:
        """An accuracy far above chance."""
        return min(10 / self.n_classes, 0.5)


def image_tasks(folder: Path) -> Iterator[ImageTask]:
    """The real sets that are there; else the drawn one. Copies and drawings go into `folder`."""
    there = [row for row in REAL if (DATA / row[1] / "mini").is_dir()]
    for name, place, given in there:
        yield _real(name, DATA / place / "mini", given, folder)
    if not there:
        print(f"no image sets in {DATA}: drawing some")
        yield _drawn(folder)


def _real(name: str, source: Path, given: int, folder: Path) -> ImageTask:
    image_set = read_image_set(name, source)

    def copied(part: str, split: Split, most: int | None = None) -> str:
        target = folder / f"{name}-{part}"
        by_class: dict[str, list[Path]] = {}
        for path, class_name in image_set.of_split(split):
            by_class.setdefault(class_name, []).append(path)
        for class_name, paths in by_class.items():
            (target / class_name).mkdir(parents=True, exist_ok=True)
            for path in paths[:most]:
                shutil.copy(path, target / class_name)
        return target.name

    drawn, pool, test = copied("given", "train", given), copied("pool", "train"), copied("new", "test")
    n, n_test = len(image_set.classes), len(image_set.of_split("test"))
    return ImageTask(name, drawn, pool, test, folder / test, n, given * n, n_test)


def _drawn(folder: Path) -> ImageTask:
    counts = {"given": 3, "pool": 3, "test": 5}
    rng = random.Random(0)
    for part, count in counts.items():
        for name, draw in SHAPES.items():
            (folder / part / name).mkdir(parents=True)
            for number in range(count):
                _image(rng, draw).save(folder / part / name / f"{number}.jpg")
    n = len(SHAPES)
    return ImageTask("drawn", "given", "pool", "test", folder / "test", n, 3 * n, 5 * n)


Box = tuple[int, int, int, int]
Draw = Callable[[ImageDraw.ImageDraw, Box, tuple[int, ...]], None]


def _image(rng: random.Random, draw: Draw) -> Image.Image:
    """A shape of some colour, somewhere on a ground of another."""
    ground, ink = (tuple(rng.randrange(low, low + 100) for _ in range(3)) for low in (150, 0))
    image = Image.new("RGB", (SIDE, SIDE), ground)
    left, top, side = rng.randrange(10, 40), rng.randrange(10, 40), rng.randrange(80, 110)
    draw(ImageDraw.Draw(image), (left, top, left + side, top + side), ink)
    return image.filter(ImageFilter.GaussianBlur(rng.uniform(0, 1.5)))


def _bars(draw: ImageDraw.ImageDraw, box: Box, ink: tuple[int, ...]) -> None:
    for x in range(box[0], box[2], 16):
        draw.rectangle((x, box[1], x + 7, box[3]), fill=ink)


def _dots(draw: ImageDraw.ImageDraw, box: Box, ink: tuple[int, ...]) -> None:
    for x in range(box[0], box[2], 20):
        for y in range(box[1], box[3], 20):
            draw.ellipse((x, y, x + 11, y + 11), fill=ink)


def _star(draw: ImageDraw.ImageDraw, box: Box, ink: tuple[int, ...]) -> None:
    middle, radius = ((box[0] + box[2]) / 2, (box[1] + box[3]) / 2), (box[2] - box[0]) / 2
    draw.regular_polygon((middle, radius), 3, fill=ink)
    draw.regular_polygon((middle, radius), 3, rotation=180, fill=ink)


SHAPES: dict[str, Draw] = {
    "bars": _bars,
    "disc": lambda draw, box, ink: draw.ellipse(box, fill=ink),
    "dots": _dots,
    "ring": lambda draw, box, ink: draw.ellipse(box, outline=ink, width=12),
    "square": lambda draw, box, ink: draw.rectangle(box, fill=ink),
    "star": _star,
}
