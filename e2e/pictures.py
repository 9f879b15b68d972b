"""What `make e2e` classifies: the small real sets where they are, else pictures drawn on the spot."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw, ImageFilter

from adamab.task.image_sets import read_image_set

DATA = Path(os.environ.get("ADAMAB_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
# Set, its folder, and given pictures a class: one is left for the pool.
REAL = (("pets", "oxford_pets", 3), ("flowers102", "flowers102", 2), ("cub200", "cub200", 1))
SIDE = 160


@dataclass(frozen=True)
class Pictures:
    """A task: what `fit`, `pool:`, `evaluate` and `predict` are given, and what to expect."""

    name: str
    given: str
    pool: str
    test: str
    folder: Path  # the test pictures with a folder a class
    n_classes: int
    n_given: int
    n_test: int

    @property
    def least(self) -> float:
        """An accuracy far above chance."""
        return min(10 / self.n_classes, 0.5)


def all_pictures(folder: Path) -> Iterator[Pictures]:
    """The real sets that are there; else the drawn one. Copies and drawings go into `folder`."""
    there = [row for row in REAL if (DATA / row[1] / "mini").is_dir()]
    for name, place, given in there:
        yield _real(name, f"{name}:{DATA / place / 'mini'}", given, folder)
    if not there:
        print(f"no picture sets in {DATA}: drawing some")
        yield _drawn(folder)


def _real(name: str, spec: str, given: int, folder: Path) -> Pictures:
    found = read_image_set(f"{spec}?split=test")
    target = folder / f"{name}-new"
    for image in found:
        (target / image.class_name).mkdir(parents=True, exist_ok=True)
        shutil.copy(image.path, target / image.class_name)
    n = len(found.classes)
    drawn, pool, test = (f"{spec}?{options}" for options in (f"given={given}", "split=train", "split=test"))
    return Pictures(name, drawn, pool, test, target, n, given * n, len(found))


def _drawn(folder: Path) -> Pictures:
    counts = {"given": 3, "pool": 3, "test": 5}
    rng = random.Random(0)
    for part, count in counts.items():
        for name, draw in SHAPES.items():
            (folder / part / name).mkdir(parents=True)
            for number in range(count):
                _picture(rng, draw).save(folder / part / name / f"{number}.jpg")
    n = len(SHAPES)
    return Pictures("drawn", "given", "pool", "test", folder / "test", n, 3 * n, 5 * n)


Box = tuple[int, int, int, int]
Draw = Callable[[ImageDraw.ImageDraw, Box, tuple[int, ...]], None]


def _picture(rng: random.Random, draw: Draw) -> Image.Image:
    """A shape of some colour, somewhere on a ground of another."""
    ground, ink = (tuple(rng.randrange(low, low + 100) for _ in range(3)) for low in (150, 0))
    picture = Image.new("RGB", (SIDE, SIDE), ground)
    left, top, side = rng.randrange(10, 40), rng.randrange(10, 40), rng.randrange(80, 110)
    draw(ImageDraw.Draw(picture), (left, top, left + side, top + side), ink)
    return picture.filter(ImageFilter.GaussianBlur(rng.uniform(0, 1.5)))


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
