"""The image sets in the layouts in which they are published, with the classes in words.

The sentences were written from the names alone, before anything was measured with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

import numpy as np
from scipy.io import loadmat  # type: ignore[import-untyped,unused-ignore]

from adamab.errors import TaskError, place, short
from adamab.task import ClassSpec
from adamab.task.table_files import read_lines

Split = Literal["train", "test"]

# In the order of the numbers in imagelabels.mat; the set's files hold no names.
FLOWERS = (
    *("pink primrose", "hard-leaved pocket orchid", "canterbury bells", "sweet pea", "english marigold"),
    *("tiger lily", "moon orchid", "bird of paradise", "monkshood", "globe thistle", "snapdragon"),
    *("colt's foot", "king protea", "spear thistle", "yellow iris", "globe-flower", "purple coneflower"),
    *("peruvian lily", "balloon flower", "giant white arum lily", "fire lily", "pincushion flower"),
    *("fritillary", "red ginger", "grape hyacinth", "corn poppy", "prince of wales feathers"),
    *("stemless gentian", "artichoke", "sweet william", "carnation", "garden phlox", "love in the mist"),
    *("mexican aster", "alpine sea holly", "ruby-lipped cattleya", "cape flower", "great masterwort"),
    *("siam tulip", "lenten rose", "barbeton daisy", "daffodil", "sword lily", "poinsettia"),
    *("bolero deep blue", "wallflower", "marigold", "buttercup", "oxeye daisy", "common dandelion"),
    *("petunia", "wild pansy", "primula", "sunflower", "pelargonium", "bishop of llandaff", "gaura"),
    *("geranium", "orange dahlia", "pink-yellow dahlia", "cautleya spicata", "japanese anemone"),
    *("black-eyed susan", "silverbush", "californian poppy", "osteospermum", "spring crocus"),
    *("bearded iris", "windflower", "tree poppy", "gazania", "azalea", "water lily", "rose"),
    *("thorn apple", "morning glory", "passion flower", "lotus lotus", "toad lily", "anthurium"),
    *("frangipani", "clematis", "hibiscus", "columbine", "desert-rose", "tree mallow", "magnolia"),
    *("cyclamen", "watercress", "canna lily", "hippeastrum", "bee balm", "ball moss", "foxglove"),
    *("bougainvillea", "camellia", "mallow", "mexican petunia", "bromelia", "blanket flower"),
    *("trumpet creeper", "blackberry lily"),
)
SPECIES = {1: "cat", 2: "dog"}  # as the Pets annotations number them


@dataclass(frozen=True)
class LabelledFile:
    """An image as the index of a set names it."""

    path: Path
    class_number: int
    split: Split  # the official one; Flowers102's training is its train and val


@dataclass(frozen=True)
class PublishedSet:
    """All images of a set that its folder holds, and its classes in their official order."""

    classes: dict[int, ClassSpec]
    files: list[LabelledFile]

    def of_split(self, split: Split) -> list[tuple[Path, str]]:
        """Files of a split with the names of their classes."""
        return [(f.path, self.classes[f.class_number].name) for f in self.files if f.split == split]


def pet_sentence(name: str, species: int) -> str:
    """What an image of a breed shows.

    Example:
        >>> pet_sentence("Maine Coon", 1)
        'a photo that shows a cat of the Maine Coon breed'
    """
    return f"a photo that shows a {SPECIES[species]} of the {name} breed"


def flower_sentence(name: str) -> str:
    """What an image of a flower shows."""
    return f"a close photo of a flower, the {name}"


def bird_sentence(name: str) -> str:
    """What an image of a bird shows."""
    return f"a photo of a bird in the wild, the {name}"


def read_image_set(name: str, folder: Path) -> PublishedSet:
    """The set `pets`, `flowers102` or `cub200` in its folder; no image is opened.

    An index that does not read, or names a file twice or outside of the folder, is a `TaskError`.
    """
    if not folder.is_dir():
        raise TaskError(f"{place(folder)}: no such folder; name the one of the {name} files")
    try:
        index = _LAYOUTS[name](folder)
    except (KeyError, ValueError) as error:
        if isinstance(error, TaskError):
            raise
        raise TaskError(f"{place(folder)}: its index files do not fit ({error}); get them again") from None
    paths = [file.path for file in index.files]
    if len(set(paths)) < len(paths):
        raise TaskError(f"{place(folder)}: its index names an image twice; get the files again")
    return PublishedSet(index.classes, [file for file in index.files if file.path.is_file()])


def _pets(folder: Path) -> PublishedSet:
    """`images/NAME_12.jpg`, and a line `NAME_12 CLASS SPECIES BREED` of each in `annotations/*.txt`."""
    classes: dict[int, ClassSpec] = {}
    files = []
    splits: tuple[tuple[str, Split], ...] = (("trainval.txt", "train"), ("test.txt", "test"))
    for index, split in splits:
        for name, number, species, _ in _fields(folder / "annotations" / index, 4):
            class_name = name.rpartition("_")[0].replace("_", " ")
            classes[int(number)] = ClassSpec(class_name, pet_sentence(class_name, int(species)))
            files.append(LabelledFile(_inside(folder / "images", f"{name}.jpg"), int(number), split))
    return PublishedSet(dict(sorted(classes.items())), files)


def _flowers(folder: Path) -> PublishedSet:
    """`jpg/image_00012.jpg`; classes in `imagelabels.mat`, image numbers of the splits in `setid.mat`."""
    classes = {c: ClassSpec(name, flower_sentence(name)) for c, name in enumerate(FLOWERS, 1)}
    labels = dict(enumerate(_matlab_numbers(folder / "imagelabels.mat", "labels"), 1))
    if not set(labels.values()) <= set(classes):
        raise ValueError(f"imagelabels.mat: a class is not 1 to {len(FLOWERS)}")
    splits: tuple[tuple[str, Split], ...] = (("trnid", "train"), ("valid", "train"), ("tstid", "test"))
    files = []
    for key, split in splits:
        for number in _matlab_numbers(folder / "setid.mat", key):
            files.append(LabelledFile(folder / "jpg" / f"image_{number:05d}.jpg", labels[number], split))
    return PublishedSet(classes, files)


def _matlab_numbers(path: Path, key: str) -> list[int]:
    """The whole numbers of a variable of a MATLAB file, in their order."""
    try:
        array = np.asarray(loadmat(str(path), variable_names=[key])[key])
    except Exception as error:  # a damaged file fails in many ways
        raise TaskError(
            f"{place(path)}: no readable MATLAB file with {key} ({type(error).__name__}); get it again"
        ) from None
    if array.dtype.kind not in "iu":
        raise TaskError(f"{place(path)}: {key} does not hold whole numbers; get the file again")
    return [int(number) for number in array.ravel()]


def _birds(folder: Path) -> PublishedSet:
    """`images/001.Name/file.jpg`; `images.txt`, `classes.txt` and so on have a number first in each line."""
    classes = {}
    for number, folder_name in sorted(_numbered(folder / "classes.txt").items()):
        name = folder_name.partition(".")[2].replace("_", " ") or folder_name
        classes[number] = ClassSpec(name, bird_sentence(name))
    labels = _numbered(folder / "image_class_labels.txt")
    splits: dict[str, Split] = {"1": "train", "0": "test"}
    is_training = _numbered(folder / "train_test_split.txt")
    files = []
    for number, file in sorted(_numbered(folder / "images.txt").items()):
        path, label = _inside(folder / "images", file), int(labels[number])
        files.append(LabelledFile(path, label, splits[is_training[number]]))
    if not {file.class_number for file in files} <= set(classes):
        raise ValueError("a class is not in classes.txt")
    return PublishedSet(classes, files)


_LAYOUTS: dict[str, Callable[[Path], PublishedSet]] = {
    "pets": _pets,
    "flowers102": _flowers,
    "cub200": _birds,
}


def _numbered(path: Path) -> dict[int, str]:
    """Lines `NUMBER VALUE`."""
    return {int(number): value for number, value in _fields(path, 2)}


def _fields(path: Path, count: int) -> Iterator[list[str]]:
    """The fields of each line; blank lines and remarks are passed over."""
    for line, text in read_lines(path):
        fields = text.split()
        if not fields or fields[0].startswith("#"):
            continue
        if len(fields) != count:
            raise TaskError(f"{place(path, line)}: {len(fields)} fields, not {count}; get the file again")
        yield fields


def _inside(folder: Path, file: str) -> Path:
    """A path below a folder; an index that points out of it is not followed."""
    inner = PurePosixPath(file)
    if inner.is_absolute() or ".." in inner.parts or "\\" in file or ":" in file:
        raise ValueError(f"{short(file)} is not below the folder")
    return folder / inner
