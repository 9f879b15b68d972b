"""Images on disk as samples and as rows: files, folders, and data files with paths."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

from adamab.errors import ImageError, TaskError, one_line, os_errors, place, short, suggestion
from adamab.task.images import Image, is_reference, is_url, open_image
from adamab.task.spec import Sample
from adamab.task.table_files import AS_IT_IS, TableOptions
from adamab.task.tables import Row, TextRow, class_name_of, id_of, read_rows, string_of, unknown_class
from adamab.task.words import checked

ENDINGS: tuple[str, ...] = (".apng", ".avif", ".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".mpo")
ENDINGS += (".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp")
_LISTED = ", ".join(ENDINGS)
# Endings of files that are images, or may be, and are not read.
_UNREAD: tuple[str, ...] = ("", ".arw", ".cr2", ".cr3", ".dng", ".heic", ".heif", ".ico", ".jp2")
_UNREAD += (".jxl", ".nef", ".psd", ".svg")
PATH_KEYS = ("image", "path", "file")
_RUN_FILES = ("journal.sqlite", "model.safetensors")
_LEFT_OUT = {"__MACOSX", "@eaDir"}  # folders that archives and file servers add
_CHUNK = 2**20


def image_at(path: Path) -> Image:
    """The image in a file, known by its content; raises `ImageError`. The pixels are not looked at."""
    digest = hashlib.sha256()
    with open_image(path) as stream, os_errors(path, "cannot be read", ImageError, "check the disk"):
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return Image(digest.hexdigest(), path)


def image_files(folder: Path) -> Iterator[Path]:
    """Every image below a folder, by its ending, in the order of the relative paths.

    Hidden files and folders are left out. Links are followed, but no folder is entered twice.
    """
    path = None
    for path in _images_below(folder):
        yield path
    if path is None:
        raise ImageError(
            f"{place(folder)}: holds no images; put files there that end in {_LISTED}, or name another"
        )


def passed_over(folder: Path) -> Counter[str]:
    """Number of files below a folder that may be images and are not read, by ending."""
    return Counter(
        path.suffix.lower() or "no ending" for path in _files_below(folder) if path.suffix.lower() in _UNREAD
    )


def class_folders(folder: Path) -> Iterator[tuple[str, Path]]:
    """Every image below a folder with its class, which is the name of the first folder on the way to it."""
    folders = []
    for entry, is_folder in _entries(folder):
        if is_folder:
            folders.append(entry)
        elif _is_image(entry):
            raise ImageError(f"{place(entry)}: belongs to no class; move it into the folder of its class")
    if not folders:
        raise ImageError(
            f"{place(folder)}: holds no folders; make one for each class and put its images there"
        )
    for entry in folders:
        name = checked(entry.name, place(folder), "the name of the folder")
        path = None
        for path in _images_below(entry):
            yield name, path
        if path is None:
            raise ImageError(
                f"{place(entry)}: no images for this class; put files there that end in {_LISTED}, "
                "or remove the folder"
            )


def _images_below(folder: Path) -> Iterator[Path]:
    return filter(_is_image, _files_below(folder))


def _files_below(folder: Path) -> Iterator[Path]:
    entered: set[str] = set()  # or links in a circle would never end
    pending = [(folder, True)]
    while pending:
        entry, is_folder = pending.pop()
        if not is_folder:
            yield entry
            continue
        entries = _entries(entry)
        if (real := os.path.realpath(entry)) not in entered:
            entered.add(real)
            pending.extend(reversed(entries))


def _entries(folder: Path) -> list[tuple[Path, bool]]:
    """What lies in a folder and whether it is one itself, in the order of the paths below it.

    A folder sorts as its name with the slash, so that walking it in place keeps the whole in order.
    """
    try:
        with os.scandir(folder) as listing:
            visible = [entry for entry in listing if not entry.name.startswith(".")]
            # A link to itself leads nowhere: it is no folder, and asking the entry would raise.
            names = [(e.name, os.path.isdir(e.path) if e.is_symlink() else e.is_dir()) for e in visible]
    except (OSError, ValueError) as error:
        raise ImageError(
            f"{place(folder)}: cannot be read as a folder ({_why(error)}); check the path"
        ) from None
    names.sort(key=lambda entry: entry[0] + "/" if entry[1] else entry[0])
    return [
        (folder / name, is_folder)
        for name, is_folder in names
        if not (is_folder and (name in _LEFT_OUT or _is_run(folder / name)))
    ]


def _is_run(folder: Path) -> bool:
    """Whether `adamab fit` wrote it: the images of a run are no examples, wherever it lies."""
    return any(os.path.isfile(folder / name) for name in _RUN_FILES)


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in ENDINGS


def _why(error: OSError | ValueError) -> str:
    return one_line(error.strerror if isinstance(error, OSError) else error)


def placed_image_samples(
    source: str | Path, class_names: Collection[str] | None = None, options: TableOptions = AS_IT_IS
) -> Iterator[tuple[str, Sample]]:
    """Labelled images, each with its place.

    Args:
        source: a folder with one folder per class, or a data file with `image` (a path relative to it) and
            `label`.
        class_names: those that are allowed; None allows all.
        options: how the file is written.
    """
    known = None if class_names is None else frozenset(class_names)
    for where, path, class_name, id_ in labelled_files(source, options):
        if known is not None and class_name not in known:
            raise unknown_class(where, class_name, class_names or ())
        yield where, Sample.of_image(image_at(path), class_name, id=id_)


def read_image_samples(source: str | Path, options: TableOptions = AS_IT_IS) -> list[Sample]:
    """The same without places.

    Args:
        source: a folder, or a data file.
        options: how the file is written.
    """
    return [sample for _, sample in placed_image_samples(source, None, options)]


def read_images(source: str | Path) -> Iterator[TextRow]:
    """Images to classify: one, those of a folder and below it, or those of a file with paths.

    A stream: an image is opened when its row is asked for, not before.
    """
    for number, (path, fields, id_) in enumerate(_unlabelled(source), 1):
        image = image_at(path)
        yield TextRow(image.reference, fields, number, id_, image)


def read_references(source: str | Path) -> list[str]:
    """References of images that a file lists as such, as `text`, or by their paths."""
    rows = read_rows(Path(source), plain_text=True, columns=("text", *PATH_KEYS))
    references = []
    for row in rows:
        text = row.fields.get("text")
        listed = isinstance(text, str) and is_reference(text.strip())
        references.append(str(text).strip() if listed else image_at(image_path(row)).reference)
    return references


def labelled_files(
    source: str | Path, options: TableOptions = AS_IT_IS
) -> Iterator[tuple[str, Path, str, str | None]]:
    """Place, path, class and id of each labelled image; none is opened.

    Args:
        source: a folder, or a data file.
        options: how the file is written.
    """
    if os.path.isdir(source):
        for class_name, path in class_folders(Path(source)):
            yield place(path), path, class_name, None
    else:
        for row in read_rows(Path(source), columns=PATH_KEYS, options=options, labelled=True):
            yield row.place, image_path(row), class_name_of(row), id_of(row)


def _unlabelled(source: str | Path) -> Iterator[tuple[Path, dict[str, object], str | None]]:
    if os.path.isdir(source):
        for path in image_files(Path(source)):
            yield path, {"image": path.relative_to(source).as_posix()}, None
    elif Path(source).suffix.lower() in ENDINGS:
        yield Path(source), {"image": str(source)}, None
    elif not os.path.exists(source):
        raise TaskError(f"{place(source)}: no such file or folder; check the path")
    else:
        for row in read_rows(Path(source), plain_text=True, columns=PATH_KEYS):
            yield image_path(row), row.fields, id_of(row)


def image_path(row: Row) -> Path:
    """Where the image of a row is; a plain list of paths calls them `text`."""
    keys_of_paths = [key for key in PATH_KEYS if key in row.fields]
    if row.columns.text not in ("text", *PATH_KEYS):  # somebody named it
        keys_of_paths = [row.columns.text]
    if not keys_of_paths and set(row.fields) == {"text"}:
        keys_of_paths = ["text"]
    if not keys_of_paths:
        keys = suggestion("image", row.fields) if row.fields else "the object is empty"
        raise TaskError(f"{row.place}: no 'image' with a path in the row ({keys}); add it")
    return resolved(row.path.parent, string_of(row, keys_of_paths[0]), row.place)


def resolved(folder: Path, written: str, where: str) -> Path:
    """A path as somebody wrote it, relative to the file in which it stands.

    Args:
        folder: of the file in which the path stands.
        written: the path.
        where: place of the path, for messages.
    """
    if is_url(written):
        raise TaskError(
            f"{where}: {short(written, 80)} is a web address, and URLs are never fetched; download it"
        )
    path = folder / Path(written).expanduser()
    if not path.exists():
        raise ImageError(f"{where}: there is no image {short(written, 80)}; check the path")
    return path
