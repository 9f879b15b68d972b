"""The image sets, as stored vectors and as the images themselves.

Given images and pool come from the official training split (Flowers102: train and val) without copies of
test images. The paper's counts are met by its split: 3,669 − 111, 6,149 − 204 and 5,794 − 400 images are
tested with 3, 2 and 2 given ones per class.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adamab.errors import TaskError, place, short
from adamab.providers.embedders.base import Embedded, Embedder, Item, Kind, only_texts
from adamab.task import ClassSpec, Sample
from adamab.task.image_folders import image_at
from experiments.datasets.base import (
    DataSet,
    Material,
    Source,
    Split,
    apart_from,
    by_class,
    check_counts,
    conflicting,
    distinct,
    halved,
    image_prompts,
    published_name,
    samples_of,
)
from experiments.datasets.image_files import bird_sentence, flower_sentence, pet_sentence, read_image_set

FOLDERS = {"pets": "oxford_pets", "flowers102": "flowers102", "cub200": "cub200"}
FILE = "mobilenetv2.npz"
_ARRAYS = ("X", "y", "split", "labels")
_BLOCK = 1024
# Of ten thousand pairs of one class at most two or three exceed it, and these are copies.
TWIN = 0.97


@dataclass(frozen=True)
class ImageFeatures:
    """All images of a set, and which of them are for testing."""

    name: str
    vectors: NDArray[np.float32]  # (n, d)
    class_index: NDArray[np.int64]  # (n,)
    is_test: NDArray[np.bool_]  # (n,) by the official split
    class_names: tuple[str, ...]

    @cached_property
    def twins_of_test(self) -> NDArray[np.bool_]:
        """(n,) training images whose cosine with a test image is at least `TWIN`.

        The sets hold some images twice, on both sides of the official split.
        """
        units = self.vectors / np.maximum(np.linalg.norm(self.vectors, axis=1, keepdims=True), 1e-12)
        tests, twins = units[self.is_test], np.zeros(len(units), dtype=np.bool_)
        training = np.flatnonzero(~self.is_test)
        for start in range(0, len(training), _BLOCK):
            rows = training[start : start + _BLOCK]
            twins[rows] = (units[rows] @ tests.T >= TWIN).any(axis=1)
        return twins


def features_file(name: str, directory: Path) -> Path:
    """Where the vectors of a data set are."""
    return directory / FOLDERS[name] / FILE


def load_features(name: str, directory: Path) -> ImageFeatures:
    """The vectors of data set `name` below `directory`."""
    path = features_file(name, directory)
    arrays = _arrays(path)
    vectors = arrays["X"].astype(np.float32)
    index, split, labels = arrays["y"].astype(np.int64), arrays["split"], arrays["labels"]
    if vectors.ndim != 2 or not len(vectors) == len(index) == len(split):
        raise TaskError(f"{place(path)}: X, y and split are not of one length; get the file again")
    if not np.isfinite(vectors).all() or index.min() < 0 or index.max() >= len(labels):
        raise TaskError(f"{place(path)}: a vector is not finite or a class has no name; get the file again")
    is_test: NDArray[np.bool_] = split == "test"
    return ImageFeatures(name, vectors, index, is_test, tuple(str(label) for label in labels))


def _arrays(path: Path) -> Mapping[str, NDArray[Any]]:
    try:
        with path.open("rb") as handle, np.load(handle, allow_pickle=False) as file:
            return {key: file[key] for key in _ARRAYS}
    except FileNotFoundError:
        raise TaskError(f"{place(path)}: no such file; name the folder of data sets with --data") from None
    except KeyError as error:
        missing = next((key for key in _ARRAYS if key in str(error)), "")
        raise TaskError(f"{place(path)}: lacks the array {short(missing)}; get the file again") from None
    except Exception as error:  # a damaged archive fails in many ways
        raise TaskError(f"{place(path)}: cannot be read ({type(error).__name__}); get it again") from None


TITLES = {"pets": "Oxford-IIIT Pets", "flowers102": "Flowers102", "cub200": "CUB-200-2011"}
EXPECTED = {
    "pets": {"classes": 37, "training images": 3680, "test images": 3669},
    "flowers102": {"classes": 102, "training images": 2040, "test images": 6149},
    "cub200": {"classes": 200, "training images": 5994, "test images": 5794},
}
PROMPTS = {
    "pets": image_prompts(
        "The photos show one cat or dog each, at somebody's home. A class is a breed.",
        "Which breed is the pet in this photo?",
    ),
    "flowers102": image_prompts(
        "The photos show one flower or a few of one kind each, near, where it grows. A class is a kind of "
        "flower.",
        "Which flower does this photo show?",
    ),
    "cub200": image_prompts(
        "The photos show one wild bird each, outdoors. A class is a species.",
        "Which bird does this photo show?",
    ),
}
_CAT, _DOG = 1, 2


class OfficialSplits(DataSet):
    """An image set by its official splits; a part of the training split is for development."""

    def _divide(self, test: tuple[Sample, ...], usable: Sequence[Sample]) -> None:
        self._test = test
        self._development, self._source = halved(by_class(usable, self.specs), self.name)

    def material(self, generator: Source, split: Split) -> Material:
        """The official splits; the paper takes the given images from the test split."""
        return Material(
            source=self._source,
            test=self._test,
            development=samples_of(self._development),
            given_from_test=split == "paper",
        )


class FeatureSet(OfficialSplits):
    """Images, of which only vectors are there."""

    def __init__(self, features: ImageFeatures) -> None:
        self.name, self.title = features.name, TITLES[features.name]
        self.specs = tuple(ClassSpec(name, _sentence(features.name, name)) for name in features.class_names)
        self.prompts, self.content = PROMPTS[features.name], _content(features)
        self._features = features
        usable = ~features.is_test & ~features.twins_of_test
        self._divide(self._samples(features.is_test), self._samples(usable))

    def embedder(self) -> FeatureVectors:
        """Vectors of all images of the set, by name."""
        return FeatureVectors(self._features, self.content)

    def _samples(self, rows: NDArray[np.bool_]) -> tuple[Sample, ...]:
        names, classes = self._features.class_names, self._features.class_index
        return tuple(
            Sample(_image(self.name, row), names[classes[row]]) for row in np.flatnonzero(rows).tolist()
        )


class FeatureVectors(Embedder):
    """Vectors of images by name; a class has none, so class means take their place."""

    def __init__(self, features: ImageFeatures, content: str) -> None:
        self.fingerprint = f"features:{features.name}:{content}"
        self._vectors = features.vectors
        self._rows = {_image(features.name, row): row for row in range(len(features.vectors))}

    def has(self, items: Sequence[Item]) -> NDArray[np.bool_]:
        """Images of the set only."""
        return np.array([item in self._rows for item in items], dtype=np.bool_)

    async def _embed(self, items: Sequence[Item], *, kind: Kind, views: Sequence[str]) -> Embedded:
        rows = [self._rows[name] for name in only_texts(items)]
        return Embedded({"pooled": self._vectors[rows]}, np.zeros(len(rows), dtype=np.bool_))


def load_feature_set(
    name: str, directory: Path, *, expected: Mapping[str, Mapping[str, int]] | None = EXPECTED
) -> FeatureSet:
    """An image set from its `mobilenetv2.npz`; `expected` None takes a file of any size."""
    features = load_features(name, directory)
    counts = {
        "classes": len(features.class_names),
        "training images": int((~features.is_test).sum()),
        "test images": int(features.is_test.sum()),
    }
    check_counts(name, counts, None if expected is None else expected[name])
    return FeatureSet(features)


def _image(set_name: str, row: int) -> str:
    return f"{set_name} {row}"


def _sentence(set_name: str, class_name: str) -> str:
    if set_name == "pets":  # the set writes cats with a capital
        return pet_sentence(class_name, _CAT if class_name[:1].isupper() else _DOG)
    return flower_sentence(class_name) if set_name == "flowers102" else bird_sentence(class_name)


def _content(features: ImageFeatures) -> str:
    """What the names of the images stand for, as a hash."""
    state = hashlib.sha256(np.ascontiguousarray(features.vectors).tobytes())
    state.update(features.class_index.tobytes() + features.is_test.tobytes())
    return state.hexdigest()


class ImageSet(OfficialSplits):
    """Images of an image set; of the same bytes the first counts, a test image before the others."""

    def __init__(
        self, name: str, specs: Sequence[ClassSpec], training: Sequence[Sample], test: Sequence[Sample]
    ) -> None:
        published = published_name(name)
        self.name, self.title = name, f"{TITLES[published]}, images"
        self.specs, self.prompts = tuple(specs), PROMPTS[published]
        unclear = conflicting([*training, *test])
        scored = distinct(test, unclear)
        usable = apart_from(distinct(training, unclear), scored)
        self.images = {s.text: s.image for s in (*scored, *usable) if s.image is not None}
        self._divide(scored, usable)


def load_image_set(
    name: str, directory: Path, *, expected: Mapping[str, Mapping[str, int]] | None = EXPECTED
) -> ImageSet:
    """An image set from its original files; every image is read, to be known by its content.

    `expected` None takes folders of any size.
    """
    published = published_name(name)
    read = read_image_set(published, directory / FOLDERS[published])
    training, test = read.of_split("train"), read.of_split("test")
    counts = {"classes": len(read.classes), "training images": len(training), "test images": len(test)}
    check_counts(name, counts, None if expected is None else expected[published])
    train_samples, test_samples = (
        [Sample.of_image(image_at(path), class_name) for path, class_name in files]
        for files in (training, test)
    )
    return ImageSet(name, tuple(read.classes.values()), train_samples, test_samples)
