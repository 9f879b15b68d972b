"""Pictures as samples and as rows to classify: folders, data files with paths, and known data sets."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from adamab.errors import ImageError, TaskError
from adamab.task.files import Row, read_rows
from adamab.task.image_folders import ENDINGS, class_folders, image_at, image_files
from adamab.task.image_sets import is_image_set, read_image_set
from adamab.task.images import is_reference, is_url
from adamab.task.messages import place, short, suggestion
from adamab.task.samples import TextRow, class_name_of, id_of, string_of, unknown_class
from adamab.task.spec import Sample

PATH_KEYS = ("image", "path", "file")


def placed_image_samples(
    source: str | Path, class_names: Collection[str] | None = None
) -> Iterator[tuple[str, Sample]]:
    """Labelled pictures, each with the place where it was found.

    `source` is a folder with a folder a class, a JSONL, CSV or TSV file with `image` (a path relative
    to it) and `label`, or a known data set such as `pets:DIR?split=test`.
    """
    known = None if class_names is None else frozenset(class_names)
    for where, path, class_name, id_ in labelled_files(source):
        if known is not None and class_name not in known:
            raise unknown_class(where, class_name, class_names or ())
        yield where, Sample.of_image(image_at(path), class_name, id=id_)


def missing_pictures(source: str | Path) -> int:
    """How many pictures the index of a data set names that its folder lacks; 0 for other sources."""
    return read_image_set(str(source)).missing if is_image_set(str(source)) else 0


def read_image_samples(source: str | Path) -> list[Sample]:
    """The same without places."""
    return [sample for _, sample in placed_image_samples(source)]


def read_images(
    source: str | Path, *, kind: str | None = None, broken: list[str] | None = None
) -> Iterator[TextRow]:
    """Pictures to classify: one, those of a folder and below it, of a file with paths, of a data set.

    A stream: a picture is looked at when its row is asked for, not before. Files that cannot be read are
    left out where `broken` is a list to name them in; else the first is an `ImageError`.
    """
    for number, (path, fields, id_) in enumerate(_unlabelled(source, kind), 1):
        try:
            image = image_at(path)
        except ImageError:
            if broken is None:
                raise
            broken.append(place(path))
            continue
        yield TextRow(image.reference, fields, number, id_, image)


def read_references(source: str | Path) -> list[str]:
    """References of pictures that a file lists as such, as `text`, or by their paths."""
    rows = read_rows(Path(source), plain_text=True, columns=("text", *PATH_KEYS))
    return [_reference(row) for row in rows]


def _reference(row: Row) -> str:
    written = row.fields.get("text")
    if isinstance(written, str) and is_reference(written.strip()):
        return written.strip()
    return image_at(picture_path(row)).reference


def labelled_files(source: str | Path) -> Iterator[tuple[str, Path, str, str | None]]:
    """Place, path, class and id of each labelled picture; none is opened."""
    if is_image_set(str(source)):
        for found in read_image_set(str(source)):
            yield place(found.path), found.path, found.class_name, None
    elif os.path.isdir(source):
        for class_name, path in class_folders(Path(source)):
            yield place(path), path, class_name, None
    else:
        for row in read_rows(Path(source), columns=PATH_KEYS):
            yield row.place, picture_path(row), class_name_of(row), id_of(row)


def _unlabelled(source: str | Path, kind: str | None) -> Iterator[tuple[Path, dict[str, object], str | None]]:
    if is_image_set(str(source)):
        for found in read_image_set(str(source)):
            yield found.path, {"image": str(found.path)}, None
    elif os.path.isdir(source):
        for path in image_files(Path(source)):
            yield path, {"image": path.relative_to(source).as_posix()}, None
    elif kind is None and Path(source).suffix.lower() in ENDINGS:
        yield Path(source), {"image": str(source)}, None
    elif not os.path.exists(source):
        raise TaskError(f"{place(source)}: no such file or folder; check the path")
    else:
        for row in read_rows(Path(source), plain_text=True, kind=kind, columns=PATH_KEYS):
            yield picture_path(row), row.fields, id_of(row)


def picture_path(row: Row) -> Path:
    """Where the picture of a row is; a plain list of paths calls them `text`."""
    found = [key for key in PATH_KEYS if key in row.fields]
    if not found and set(row.fields) == {"text"}:
        found = ["text"]
    if not found:
        keys = suggestion("image", row.fields) if row.fields else "the object is empty"
        raise TaskError(f"{row.place}: no 'image' with a path in the row ({keys}); add it")
    return resolved(row.path.parent, string_of(row, found[0]), row.place)


def source_at(folder: Path, written: str) -> str:
    """A folder, file or data set as a task file names it: relative to that file."""
    if not is_image_set(written):
        return str(folder / Path(written).expanduser())
    name, _, rest = written.partition(":")
    return f"{name}:{folder / Path(rest).expanduser()}"


def resolved(folder: Path, written: str, where: str) -> Path:
    """A path as somebody wrote it, relative to the file in which it stands."""
    if is_url(written):
        raise TaskError(
            f"{where}: {short(written, 80)} is a web address, and URLs are never fetched; download it"
        )
    path = folder / Path(written).expanduser()
    if not path.exists():
        raise ImageError(f"{where}: there is no picture {short(written, 80)}; check the path")
    return path
