"""Pictures that `adamab predict` reads, and those among them that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from adamab.cli.prediction_files import STDIN, Row, many_rows
from adamab.errors import ImageError, TaskError
from adamab.task.messages import one_line


def read_image_rows(source: str, kind: str | None, broken: list[str] | None) -> Iterator[Row]:
    """Pictures of a folder, a file with paths or a data set; where `broken` is a list, it takes the names
    of those that are no files to read, and they are left out."""
    from adamab.task import read_images

    if source == STDIN:
        raise TaskError("pictures are not read from stdin; name a folder, or a file with their paths")
    if kind is None and source.lower().endswith(".parquet"):
        return many_rows(source, kind, "image")
    return read_images(source, kind=kind, broken=broken)


def only_readable(rows: Sequence[Row], broken: list[str]) -> list[Row]:
    """The rows whose pictures can be decoded; the others' names go to `broken`."""
    from adamab.task.image_decoding import decoded

    found = []
    for row in rows:
        try:
            if row.image is not None:
                decoded(row.image, least_side=1)
        except ImageError:
            broken.append(one_line(row.image))
        else:
            found.append(row)
    return found
