"""Pictures in task files, data files and folders."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from adamab.errors import TaskError
from adamab.task import load_task, read_image_samples, read_images

Paint = Callable[..., list[Path]]


@pytest.fixture
def pictures(tmp_path: Path, paint: Paint) -> Path:
    paint(tmp_path / "photos", {"red": 2, "blue": 2})
    return tmp_path


def write(folder: Path, text: str, name: str = "task.yaml") -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_a_task_file_names_pictures_relative_to_itself(pictures: Path) -> None:
    task = load_task(
        write(
            pictures,
            """
modality: image
classes:
  - name: red
    description: mostly red
    examples: [photos/red/0-0.png, {image: photos/red/0-1.png, id: second}]
  - name: blue
    examples:
      - photos/blue/0-0.png
""",
        )
    )
    assert task.modality == "image"
    assert [(s.class_name, str(s.image and s.image.path.name), s.id) for s in task.samples] == [
        ("red", "0-0.png", None),
        ("red", "0-1.png", "second"),
        ("blue", "0-0.png", None),
    ]


@pytest.mark.parametrize("examples", ["photos", "photos.jsonl", "photos.csv"])
def test_examples_may_be_a_folder_or_a_file_with_paths(pictures: Path, examples: str) -> None:
    rows = [(f"photos/{name}/0-{i}.png", name) for name in ("red", "blue") for i in range(2)]
    write(
        pictures,
        "".join(json.dumps({"image": p, "label": n}) + "\n" for p, n in rows),
        "photos.jsonl",
    )
    write(pictures, "image,label\n" + "".join(f"{p},{n}\n" for p, n in rows), "photos.csv")
    file = write(pictures, f"modality: image\nclasses: [red, blue]\nexamples: {examples}\n")
    task = load_task(file)
    assert sorted((s.class_name, s.text) for s in task.samples) == sorted(
        (s.class_name, s.text) for s in read_image_samples(pictures / "photos")
    )
    assert all(s.image is not None and s.text == s.image.reference for s in task.samples)


def test_a_task_of_pictures_may_leave_the_classes_to_the_folders(pictures: Path) -> None:
    task = load_task(write(pictures, "name: colours\nmodality: image\nexamples: photos\n"))
    assert (task.name, task.class_names, len(task.samples)) == ("colours", ("blue", "red"), 4)


def test_a_folder_is_a_task(pictures: Path) -> None:
    task = load_task(pictures / "photos")
    assert (task.name, task.class_names, len(task.samples)) == ("photos", ("blue", "red"), 4)


def test_a_data_set_is_a_task_with_descriptions(tmp_path: Path, paint: Paint) -> None:
    paint(tmp_path / "set" / "images", {"red": 2, "blue": 2}, ending="jpg")
    folder = tmp_path / "set"
    names = ["001.Red_Bird", "002.Blue_Bird"]
    files = [f"{colour}/0-{i}.jpg" for colour in ("red", "blue") for i in range(2)]
    write(folder, "".join(f"{i} {name}\n" for i, name in enumerate(names, 1)), "classes.txt")
    write(folder, "".join(f"{i} {file}\n" for i, file in enumerate(files, 1)), "images.txt")
    write(folder, "1 1\n2 1\n3 2\n4 2\n", "image_class_labels.txt")
    write(folder, "1 1\n2 0\n3 1\n4 0\n", "train_test_split.txt")
    task = load_task(f"cub200:{folder}")
    assert task.class_names == ("Red Bird", "Blue Bird")
    assert len(task.samples) == 2  # the training part
    assert all(spec.description for spec in task.classes)
    file = write(
        tmp_path, "modality: image\nclasses: [Red Bird, Blue Bird]\nexamples: cub200:set?split=all\n"
    )
    assert len(load_task(file).samples) == 4
    assert [row.fields["image"] for row in read_images(f"cub200:{folder}?split=test")] == [
        str(folder / "images" / file) for file in (files[1], files[3])
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("modality: sound\nclasses: [a, b]\n", r"task\.yaml:1: modality is 'sound'; write text or image"),
        (
            "modality: image\nclasses:\n  - name: a\n    examples: [gone.png]\n  - b\n",
            r"task\.yaml:4: there is no picture 'gone\.png'",
        ),
        (
            "modality: image\nclasses:\n  - name: a\n    examples: [https://example.org/a.png]\n  - b\n",
            r"task\.yaml:4: 'https://example\.org/a\.png' is a web address, and URLs are never",
        ),
        (
            "modality: image\nclasses:\n  - name: a\n    examples: [{text: hello}]\n  - b\n",
            r"unknown key of an example 'text'",
        ),
        (
            "modality: image\nclasses: [a, b]\nexamples: photos\n",
            r"photos/blue/0-0\.png: example of unknown class 'blue'",
        ),
        (
            "modality: image\nclasses: [red, blue]\nexamples: photos\nprompts: {with_examples: true}\n",
            "cannot quote a picture",
        ),
    ],
)
def test_wrong_task_files_are_one_line(pictures: Path, text: str, message: str) -> None:
    with pytest.raises(TaskError, match=message) as caught:
        load_task(write(pictures, text))
    assert "\n" not in str(caught.value)


def test_rows_of_pictures_stream_and_keep_their_fields(pictures: Path) -> None:
    rows = list(read_images(pictures / "photos"))
    assert [row.fields for row in rows] == [
        {"image": name} for name in ("blue/0-0.png", "blue/0-1.png", "red/0-0.png", "red/0-1.png")
    ]
    file = write(pictures, "photos/red/0-0.png\nphotos/blue/0-0.png\n", "list.txt")
    assert [row.image.path.name for row in read_images(file) if row.image] == ["0-0.png", "0-0.png"]
    (pictures / "photos" / "red" / "0-1.png").write_bytes(b"")
    stream = read_images(pictures / "photos")
    assert next(stream).fields == {"image": "blue/0-0.png"}  # the empty one is met later
    with pytest.raises(TaskError, match=r"0-1\.png"):
        list(stream)
    broken: list[str] = []
    assert len(list(read_images(pictures / "photos", broken=broken))) == 3
    assert len(broken) == 1


def test_a_row_without_a_path_is_named(pictures: Path) -> None:
    file = write(pictures, '{"text": "x", "label": "red"}\n', "rows.jsonl")
    with pytest.raises(TaskError, match=r"rows\.jsonl:1: no 'image' with a path"):
        read_image_samples(file)
