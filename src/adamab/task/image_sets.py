"""Image data sets in the layouts in which they are published: `pets:DIR`, `flowers102:DIR`, `cub200:DIR`.

Options follow a question mark: `pets:DIR?split=train&given=3&seed=1`. `split` is `train` (the default, so
that no test picture is trained on by an oversight), `test` or `all`, by the official split; Flowers102's
`train` means its train and val. `given` draws so many pictures of each class by `seed`.

Pictures that the index names and the folder lacks are left out and counted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal, cast

from adamab.errors import TaskError
from adamab.task.files import read_lines
from adamab.task.image_set_names import FLOWERS, SPECIES, bird_sentence, flower_sentence, pet_sentence
from adamab.task.matlab_files import matlab_numbers
from adamab.task.messages import one_line, place, short, suggestion
from adamab.task.spec import ClassSpec
from adamab.task.specs import split_spec

Split = Literal["train", "test"]
_SPLITS = ("train", "test", "all")
_OPTIONS = ("split", "given", "seed")


@dataclass(frozen=True, slots=True)
class LabelledImage:
    """A picture of a set; the file was there when the set was read."""

    path: Path
    class_name: str
    split: Split


@dataclass(frozen=True)
class ImageSet:
    """The pictures that a spec asks for, and all classes of the set in their official order."""

    name: str
    classes: tuple[ClassSpec, ...]
    images: tuple[LabelledImage, ...]
    missing: int  # pictures that the index names and the folder lacks

    def __iter__(self) -> Iterator[LabelledImage]:
        return iter(self.images)

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True)
class _Entry:
    """A picture as an index names it."""

    file: PurePosixPath  # below the set's folder
    class_number: int
    split: Split
    where: str  # the line or file that names it


@dataclass(frozen=True)
class _Index:
    """What the index files of a set say: classes by number, and pictures."""

    classes: dict[int, ClassSpec]
    entries: list[_Entry]


def is_image_set(spec: str) -> bool:
    """Whether a string names a data set in its published layout.

    Example:
        >>> is_image_set("pets:data/pets?split=test"), is_image_set("examples.jsonl")
        (True, False)
    """
    name, colon, _ = spec.partition(":")
    return bool(colon) and name in _LAYOUTS


def read_image_set(spec: str) -> ImageSet:
    """The pictures that `spec` names; files are looked up, not opened."""
    bare, options = split_spec(spec)
    name, _, folder = bare.partition(":")
    if name not in _LAYOUTS:
        raise TaskError(f"{short(spec)}: unknown data set; {suggestion(name, _LAYOUTS)}")
    if not folder:
        raise TaskError(f"{short(spec)} lacks what follows the colon; write {name}:DIR")
    split, given, seed = _checked_options(spec, options)
    directory = Path(folder).expanduser()
    if not directory.is_dir():
        raise TaskError(f"{place(directory)}: no such folder; name the one of the {name} files")
    index = _LAYOUTS[name](directory)
    images, missing = _found(directory, index, split)
    if not images:
        raise TaskError(f"{place(directory)}: holds none of the {missing} pictures of {name}; check the path")
    if given is not None:
        images = _drawn(directory, images, given, seed)
    return ImageSet(name, tuple(index.classes.values()), tuple(images), missing)


def _checked_options(spec: str, options: dict[str, str]) -> tuple[str, int | None, int]:
    for option in options:
        if option not in _OPTIONS:
            raise TaskError(f"{short(spec)}: unknown option {short(option)}; {suggestion(option, _OPTIONS)}")
    split = options.get("split", "train")
    if split not in _SPLITS:
        raise TaskError(f"{short(spec)}: unknown split {short(split)}; {suggestion(split, _SPLITS)}")
    given = _whole(spec, "given", options["given"]) if "given" in options else None
    if given == 0 or ("seed" in options and given is None):
        raise TaskError(f"{short(spec)}: say how many pictures of each class to draw; write given=3")
    return split, given, _whole(spec, "seed", options.get("seed", "0"))


def _whole(spec: str, option: str, value: str) -> int:
    if not (value.isascii() and value.isdigit()) or len(value) > 9:
        raise TaskError(f"{short(spec)}: {option}={short(value)} is not a whole number; write {option}=3")
    return int(value)


def _found(directory: Path, index: _Index, split: str) -> tuple[list[LabelledImage], int]:
    """The pictures of a split that are there, and the number of those that are not."""
    seen: dict[PurePosixPath, str] = {}
    images, missing = [], 0
    for entry in index.entries:
        if entry.file in seen:
            again = f"picture {short(entry.file)} stands there again, after {seen[entry.file]}"
            raise TaskError(f"{entry.where}: {again}; keep one of them")
        seen[entry.file] = entry.where
        if split not in (entry.split, "all"):
            continue
        path = directory / entry.file
        if path.is_file():
            images.append(LabelledImage(path, index.classes[entry.class_number].name, entry.split))
        else:
            missing += 1
    return images, missing


def _drawn(directory: Path, images: list[LabelledImage], given: int, seed: int) -> list[LabelledImage]:
    """`given` pictures of each class: those whose hashes with the seed are the smallest.

    By hash of the name, so that a draw is the same on every machine, whatever else the folder holds.
    """

    def rank(image: LabelledImage) -> bytes:
        name = image.path.relative_to(directory).as_posix()
        return hashlib.sha256(f"{seed}/{name}".encode()).digest()

    by_class: dict[str, list[LabelledImage]] = {}
    for image in images:
        by_class.setdefault(image.class_name, []).append(image)
    drawn = {image for of_class in by_class.values() for image in sorted(of_class, key=rank)[:given]}
    return [image for image in images if image in drawn]


def _pets(directory: Path) -> _Index:
    """`images/NAME_12.jpg`, and a line `NAME_12 CLASS SPECIES BREED` of each in `annotations/*.txt`."""
    classes: dict[int, ClassSpec] = {}
    entries = []
    for file, split in (("trainval.txt", "train"), ("test.txt", "test")):
        for where, (name, number, species, _) in _fields(directory / "annotations" / file, 4):
            class_name = name.rpartition("_")[0].replace("_", " ")
            c, kind = _number(where, number), _number(where, species)
            if not class_name or kind not in SPECIES:
                raise TaskError(
                    f"{where}: no breed in {short(name)} or species not 1 or 2; get the file again"
                )
            known = classes.setdefault(c, ClassSpec(class_name, pet_sentence(class_name, kind)))
            if known.name != class_name:
                raise TaskError(
                    f"{where}: class {c} is {short(class_name)} here and {short(known.name)} before; mend one"
                )
            entries.append(_Entry(_inside(where, "images", f"{name}.jpg"), c, cast(Split, split), where))
    return _Index(dict(sorted(classes.items())), entries)


def _flowers(directory: Path) -> _Index:
    """`jpg/image_00012.jpg`; classes in `imagelabels.mat`, picture numbers of the splits in `setid.mat`."""
    classes = {c: ClassSpec(name, flower_sentence(name)) for c, name in enumerate(FLOWERS, 1)}
    label_file, split_file = directory / "imagelabels.mat", directory / "setid.mat"
    labels = matlab_numbers(label_file, "labels")
    if any(label not in classes for label in labels):
        raise TaskError(f"{place(label_file)}: a class is not 1 to {len(FLOWERS)}; get the file again")
    entries = []
    for key, split in (("trnid", "train"), ("valid", "train"), ("tstid", "test")):
        for number in matlab_numbers(split_file, key):
            if not 1 <= number <= len(labels):
                raise TaskError(
                    f"{place(split_file)}: picture {number} in {key}, but {place(label_file)} knows "
                    f"{len(labels)}; get both again"
                )
            file = PurePosixPath("jpg", f"image_{number:05d}.jpg")
            where = f"{place(split_file)} ({key})"
            entries.append(_Entry(file, labels[number - 1], cast(Split, split), where))
    return _Index(classes, entries)


def _birds(directory: Path) -> _Index:
    """`images/001.Name/file.jpg`; `images.txt`, `classes.txt` and so on have a number first in each line."""
    classes = {}
    for number, (_, folder) in _numbered(directory / "classes.txt").items():
        name = folder.partition(".")[2].replace("_", " ") or folder
        classes[number] = ClassSpec(name, bird_sentence(name))
    labels = _numbered(directory / "image_class_labels.txt")
    is_training = _numbered(directory / "train_test_split.txt")
    entries = []
    for picture, (where, file) in _numbered(directory / "images.txt").items():
        for others, what in ((labels, "image_class_labels.txt"), (is_training, "train_test_split.txt")):
            if picture not in others:
                raise TaskError(f"{where}: picture {picture} is not in {what}; get the files again")
        c = _number(*labels[picture])
        if c not in classes:
            raise TaskError(f"{labels[picture][0]}: class {c} is not in classes.txt; get the files again")
        mark, train = is_training[picture]
        if train not in ("0", "1"):
            raise TaskError(f"{mark}: {short(train)} is neither 1 (training) nor 0; get the file again")
        split: Split = "train" if train == "1" else "test"
        entries.append(_Entry(_inside(where, "images", *file.split("/")), c, split, where))
    return _Index(classes, entries)


_LAYOUTS: dict[str, Callable[[Path], _Index]] = {"pets": _pets, "flowers102": _flowers, "cub200": _birds}


def _numbered(path: Path) -> dict[int, tuple[str, str]]:
    """Lines `NUMBER VALUE` as number -> (`file:line`, value)."""
    found: dict[int, tuple[str, str]] = {}
    for where, (number, value) in _fields(path, 2):
        n = _number(where, number)
        if n in found:
            raise TaskError(f"{where}: number {n} stands there again; keep one of the lines")
        found[n] = where, value
    return dict(sorted(found.items()))


def _fields(path: Path, count: int) -> Iterator[tuple[str, list[str]]]:
    """The fields of each line, with its `file:line`; blank lines and remarks are passed over."""
    for line, text in read_lines(path):
        fields = text.split()
        if not fields or fields[0].startswith("#"):
            continue
        if len(fields) != count:
            raise TaskError(f"{place(path, line)}: {len(fields)} fields, not {count}; get the file again")
        yield place(path, line), fields


def _number(where: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise TaskError(f"{where}: {short(text)} is not a whole number; get the file again")
    return int(text)


def _inside(where: str, *parts: str) -> PurePosixPath:
    """A path below the set's folder; an index that points out of it is not followed."""
    for part in parts:
        if part in ("", ".", "..") or any(c in "/\\:" or not c.isprintable() for c in part):
            shown = one_line("/".join(parts[1:]))
            raise TaskError(f"{where}: {short(shown)} is no picture below the folder; get the file again")
    return PurePosixPath(*parts)
