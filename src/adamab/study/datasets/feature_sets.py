"""The image sets as stored vectors: a sample is the name of a picture, such as `pets 17`.

Given pictures and pool come from the official training split (Flowers102: train and val) without the
copies of test pictures. The paper's counts are met by its split: 3,669 − 111, 6,149 − 204 and
5,794 − 400 pictures are tested with 3, 2 and 2 given ones a class.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adamab.providers.embedders.base import Embedded, Embedder, Item, Kind, only_texts
from adamab.study.datasets.base import (
    DataSet,
    Material,
    Source,
    Split,
    by_class,
    check_counts,
    development_part,
    samples_of,
)
from adamab.study.datasets.image_features import ImageFeatures, load_features
from adamab.study.datasets.wording import picture_prompts
from adamab.task import ClassSpec, Sample
from adamab.task.image_set_names import bird_sentence, flower_sentence, pet_sentence

TITLES = {"pets": "Oxford-IIIT Pets", "flowers102": "Flowers102", "cub200": "CUB-200-2011"}
EXPECTED = {
    "pets": {"classes": 37, "training pictures": 3680, "test pictures": 3669},
    "flowers102": {"classes": 102, "training pictures": 2040, "test pictures": 6149},
    "cub200": {"classes": 200, "training pictures": 5994, "test pictures": 5794},
}
PROMPTS = {
    "pets": picture_prompts(
        "The photos show one cat or dog each, at somebody's home. A class is a breed.",
        "Which breed is the pet in this photo?",
    ),
    "flowers102": picture_prompts(
        "The photos show one flower or a few of one kind each, near, where it grows. A class is a kind of "
        "flower.",
        "Which flower does this photo show?",
    ),
    "cub200": picture_prompts(
        "The photos show one wild bird each, outdoors. A class is a species.",
        "Which bird does this photo show?",
    ),
}
_CAT, _DOG = 1, 2


class FeatureSet(DataSet):
    """Pictures, of which only vectors are there."""

    def __init__(self, features: ImageFeatures) -> None:
        self.name, self.title = features.name, TITLES[features.name]
        self.specs = tuple(ClassSpec(name, _sentence(features.name, name)) for name in features.class_names)
        self.prompts, self.content = PROMPTS[features.name], _content(features)
        self._features = features
        self._test = self._samples(features.is_test)
        usable = by_class(self._samples(~features.is_test & ~features.twins_of_test), self.specs)
        self._halves = {name: development_part(rows, self.name, name) for name, rows in usable.items()}

    def material(self, generator: Source, split: Split) -> Material:
        """The official splits; the paper takes the given pictures from the test split."""
        return Material(
            source={name: rest for name, (_, rest) in self._halves.items()},
            test=self._test,
            development=samples_of({name: part for name, (part, _) in self._halves.items()}),
            given_from_test=split == "paper",
        )

    def embedder(self) -> FeatureVectors:
        """Vectors of all pictures of the set, by name."""
        return FeatureVectors(self._features, self.content)

    def _samples(self, rows: NDArray[np.bool_]) -> tuple[Sample, ...]:
        names, classes = self._features.class_names, self._features.class_index
        return tuple(
            Sample(_picture(self.name, row), names[classes[row]]) for row in np.flatnonzero(rows).tolist()
        )


class FeatureVectors(Embedder):
    """Vectors of pictures by name; a class has none, so class means stand in for it."""

    def __init__(self, features: ImageFeatures, content: str) -> None:
        self.fingerprint = f"features:{features.name}:{content}"
        self._vectors = features.vectors
        self._rows = {_picture(features.name, row): row for row in range(len(features.vectors))}

    def has(self, items: Sequence[Item]) -> NDArray[np.bool_]:
        """Pictures of the set only."""
        return np.array([item in self._rows for item in items], dtype=np.bool_)

    async def _embed(self, items: Sequence[Item], *, kind: Kind, views: Sequence[str]) -> Embedded:
        rows = [self._rows[name] for name in only_texts(items)]
        return Embedded({"pooled": self._vectors[rows]}, np.zeros(len(rows), dtype=np.bool_))


def load_feature_set(
    name: str, directory: Path, *, expected: Mapping[str, Mapping[str, int]] | None = EXPECTED
) -> FeatureSet:
    """An image set from its `mobilenetv2.npz`; `expected` None takes a file of any size."""
    features = load_features(name, directory)
    found = {
        "classes": len(features.class_names),
        "training pictures": int((~features.is_test).sum()),
        "test pictures": int(features.is_test.sum()),
    }
    check_counts(name, found, None if expected is None else expected[name])
    return FeatureSet(features)


def _picture(set_name: str, row: int) -> str:
    return f"{set_name} {row}"


def _sentence(set_name: str, class_name: str) -> str:
    if set_name == "pets":  # the set writes cats with a capital
        return pet_sentence(class_name, _CAT if class_name[:1].isupper() else _DOG)
    return flower_sentence(class_name) if set_name == "flowers102" else bird_sentence(class_name)


def _content(features: ImageFeatures) -> str:
    """What the names of the pictures stand for, as a hash."""
    state = hashlib.sha256(np.ascontiguousarray(features.vectors).tobytes())
    state.update(features.class_index.tobytes() + features.is_test.tobytes())
    return state.hexdigest()
