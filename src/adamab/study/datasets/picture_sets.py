"""The image sets as the pictures themselves, in the layouts in which they are published.

A sample is named by the content of its file. Given pictures and pool come from the official training split
(Flowers102: train and val), and nothing that is also a test picture is among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from adamab.study.datasets.base import (
    DataSet,
    Material,
    Source,
    Split,
    by_class,
    check_counts,
    development_part,
    published_name,
    samples_of,
)
from adamab.study.datasets.feature_sets import EXPECTED, PROMPTS, TITLES
from adamab.study.datasets.image_features import FOLDERS
from adamab.study.datasets.labelled import apart_from, conflicting, distinct
from adamab.task import ClassSpec, Sample
from adamab.task.image_folders import image_at
from adamab.task.image_sets import ImageSet, read_image_set


class PictureSet(DataSet):
    """Pictures of an image set; of the same bytes the first counts, a test picture before the others."""

    def __init__(
        self, name: str, specs: Sequence[ClassSpec], training: Sequence[Sample], test: Sequence[Sample]
    ) -> None:
        published = published_name(name)
        self.name, self.title = name, f"{TITLES[published]}, pictures"
        self.specs, self.prompts = tuple(specs), PROMPTS[published]
        unclear = conflicting([*training, *test])
        self._test = distinct(test, unclear)
        usable = apart_from(distinct(training, unclear), self._test)
        self.images = {s.text: s.image for s in (*self._test, *usable) if s.image is not None}
        self._halves = {
            c: development_part(texts, name, c) for c, texts in by_class(usable, self.specs).items()
        }

    def material(self, generator: Source, split: Split) -> Material:
        """The official splits; the paper takes the given pictures from the test split."""
        return Material(
            source={c: rest for c, (_, rest) in self._halves.items()},
            test=self._test,
            development=samples_of({c: part for c, (part, _) in self._halves.items()}),
            given_from_test=split == "paper",
        )


def load_picture_set(
    name: str, directory: Path, *, expected: Mapping[str, Mapping[str, int]] | None = EXPECTED
) -> PictureSet:
    """An image set from its original files; every picture is read, to be known by its content.

    `expected` None takes folders of any size.
    """
    published = published_name(name)
    found = read_image_set(f"{published}:{directory / FOLDERS[published]}?split=all")
    check_counts(name, _counts(found), None if expected is None else expected[published])
    samples = {
        split: [Sample.of_image(image_at(i.path), i.class_name) for i in found if i.split == split]
        for split in ("train", "test")
    }
    return PictureSet(name, found.classes, samples["train"], samples["test"])


def _counts(found: ImageSet) -> dict[str, int]:
    tests = sum(image.split == "test" for image in found)
    return {
        "classes": len(found.classes),
        "training pictures": len(found) - tests,
        "test pictures": tests,
    }
