"""Which files are images, in which order, what they are samples of, and what is refused in one line."""

import hashlib
import json
import os
from contextlib import contextmanager
from pathlib import Path

import pytest

from adamab.errors import ImageError, TaskError
from adamab.task import load_task, read_image_samples, read_images
from adamab.task.image_folders import class_folders, image_at, image_files
from adamab.task.images import Image, is_reference, is_url


def fill(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return folder


def names_below(folder):
    return [path.relative_to(folder).as_posix() for path in image_files(folder)]


def refusal(action, kind=ImageError):
    with pytest.raises(kind) as caught:
        action()
    message = str(caught.value)
    assert "\n" not in message
    assert "; " in message
    assert len(message) < 600
    return message


@contextmanager
def powerless():
    """Whoever runs the tests, permissions count: root lays its power down meanwhile."""
    if os.getuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


class TestImageAt:
    def test_is_known_by_its_content(self, tmp_path):
        fill(tmp_path, "a.jpg")
        (tmp_path / "b.png").write_bytes(b"a.jpg")
        first, second = image_at(tmp_path / "a.jpg"), image_at(tmp_path / "b.png")
        assert first == second == Image(hashlib.sha256(b"a.jpg").hexdigest(), Path("anywhere"))
        assert second.path == tmp_path / "b.png"
        assert is_reference(first.reference)

    @pytest.mark.parametrize("address", [
        "http://example.org/a.jpg",
        "HTTPS://example.org/a.jpg",
        "ftp://example.org/a.jpg",
        "s3://bucket/a.jpg",
        "file:///etc/passwd",
        "data:image/png;base64," + "iVBORw0KGgo" * 2000,
    ])  # fmt: skip
    def test_addresses_are_never_fetched(self, address, tmp_path):
        for path in (Path(address), tmp_path / address):
            message = refusal(lambda path=path: image_at(path))
            assert "URLs are never fetched; download it first" in message

    @pytest.mark.parametrize(
        "path", ["a.jpg", "/data/a.jpg", "C:/a.jpg", "metadata:x/a.jpg", "http/a.jpg", "a:b"]
    )
    def test_what_is_no_address(self, path):
        assert not is_url(path)

    def test_what_is_no_file(self, tmp_path):
        fill(tmp_path, "a.jpg")
        (tmp_path / "empty.jpg").touch()
        (tmp_path / "loop.jpg").symlink_to("loop.jpg")
        (tmp_path / "broken.jpg").symlink_to("nowhere")
        os.mkfifo(tmp_path / "pipe.jpg")
        for name, reason in {
            "gone.jpg": "no such file",
            "a.jpg/b.jpg": "no such file",
            ".": "is a directory",
            "empty.jpg": "is empty",
            "loop.jpg": "Too many levels of symbolic links",
            "broken.jpg": "no such file",
            "pipe.jpg": "is not a regular file",
            "n\0ul.jpg": "null",
            "x" * 5000: "File name too long",
        }.items():
            assert reason in refusal(lambda name=name: image_at(tmp_path / name))


class TestImageFiles:
    def test_by_ending_in_the_order_of_the_paths(self, tmp_path):
        wanted = ["B.PNG", "a.jpg", "a/b.webp", "a/c/d.tiff", "a0.gif", "b.bmp", "ä.jpeg"]
        others = ["Thumbs.db", ".DS_Store", "notes.txt", ".hidden.jpg", ".git/x.jpg", "a/._b.webp", "jpg"]
        fill(tmp_path, *reversed(wanted), *others, "__MACOSX/a.jpg")
        assert names_below(tmp_path) == wanted == sorted(wanted)

    def test_an_empty_one_says_what_is_looked_for(self, tmp_path):
        fill(tmp_path, "a.txt")
        message = refusal(lambda: names_below(tmp_path))
        assert message.startswith(f"{tmp_path}: holds no images")
        assert ".jpg" in message
        assert ".webp" in message

    def test_links_are_followed_but_no_loop(self, tmp_path):
        fill(tmp_path, "real/a.jpg", "top/b.jpg")
        (tmp_path / "top/again").symlink_to(tmp_path / "top")
        (tmp_path / "top/up").symlink_to("..")
        (tmp_path / "top/self").symlink_to("self")
        (tmp_path / "top/c.jpg").symlink_to("../real/a.jpg")
        assert names_below(tmp_path / "top") == ["b.jpg", "c.jpg", "up/real/a.jpg"]

    def test_what_is_no_folder(self, tmp_path):
        fill(tmp_path, "a.jpg")
        (tmp_path / "loop").symlink_to("loop")
        for name, reason in {
            "gone": "No such file",
            "a.jpg": "Not a directory",
            "loop": "Too many",
            "\0": "null",
        }.items():
            for action in (image_files, class_folders):
                message = refusal(lambda action=action, name=name: list(action(tmp_path / name)))
                assert reason in message

    @pytest.mark.parametrize("action", [image_files, class_folders])
    def test_one_that_may_not_be_read(self, action, tmp_path, monkeypatch):
        fill(tmp_path, "top/locked/a.jpg")
        (tmp_path / "top/locked").chmod(0)
        tmp_path.chmod(0o755)
        monkeypatch.chdir(tmp_path)
        with powerless():
            message = refusal(lambda: list(action(Path("top"))))
        assert message.startswith("top/locked: cannot be read as a folder (Permission denied)")


class TestClassFolders:
    def test_one_folder_a_class_with_all_below_it(self, tmp_path):
        fill(tmp_path, "dog/b.jpg", "dog/a.jpg", "cat/deep/c.png", "cat/x.txt", "notes.txt", ".git/a.jpg")
        listed = [(name, path.relative_to(tmp_path).as_posix()) for name, path in class_folders(tmp_path)]
        assert listed == [("cat", "cat/deep/c.png"), ("dog", "dog/a.jpg"), ("dog", "dog/b.jpg")]

    def test_a_class_without_images(self, tmp_path):
        fill(tmp_path, "cat/a.jpg", "dog/a.txt")
        assert f"{tmp_path}/dog: no images for this class" in refusal(lambda: list(class_folders(tmp_path)))

    def test_an_image_beside_the_classes(self, tmp_path):
        fill(tmp_path, "cat/a.jpg", "lost.jpg")
        message = refusal(lambda: next(class_folders(tmp_path)))  # before anything is read
        assert message.startswith(f"{tmp_path}/lost.jpg: belongs to no class")

    def test_a_name_that_cannot_be_written(self, tmp_path):
        folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
        try:
            folder.mkdir()
        except OSError:
            pytest.skip("this file system takes only UTF-8")
        fill(folder, "a.jpg")
        assert "half a character" in refusal(lambda: list(class_folders(tmp_path)), TaskError)


@pytest.fixture
def sample_images(tmp_path, paint):
    paint(tmp_path / "photos", {"red": 2, "blue": 2})
    return tmp_path


def write(folder, text, name="task.yaml"):
    (folder / name).write_text(text)
    return folder / name


def test_a_task_file_names_images_relative_to_itself(sample_images):
    task = load_task(
        write(
            sample_images,
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
def test_examples_may_be_a_folder_or_a_file_with_paths(sample_images, examples):
    rows = [(f"photos/{name}/0-{i}.png", name) for name in ("red", "blue") for i in range(2)]
    write(
        sample_images,
        "".join(json.dumps({"image": p, "label": n}) + "\n" for p, n in rows),
        "photos.jsonl",
    )
    write(sample_images, "image,label\n" + "".join(f"{p},{n}\n" for p, n in rows), "photos.csv")
    file = write(sample_images, f"modality: image\nclasses: [red, blue]\nexamples: {examples}\n")
    task = load_task(file)
    assert sorted((s.class_name, s.text) for s in task.samples) == sorted(
        (s.class_name, s.text) for s in read_image_samples(sample_images / "photos")
    )
    assert all(s.image is not None and s.text == s.image.reference for s in task.samples)


def test_a_task_of_images_may_leave_the_classes_to_the_folders(sample_images):
    task = load_task(write(sample_images, "name: colours\nmodality: image\nexamples: photos\n"))
    assert (task.name, task.class_names, len(task.samples)) == ("colours", ("blue", "red"), 4)


def test_a_folder_is_a_task(sample_images):
    task = load_task(sample_images / "photos")
    assert (task.name, task.class_names, len(task.samples)) == ("photos", ("blue", "red"), 4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("modality: sound\nclasses: [a, b]\n", r"task\.yaml:1: modality is 'sound'; write text or image"),
        (
            "modality: image\nclasses:\n  - name: a\n    examples: [gone.png]\n  - b\n",
            r"task\.yaml:4: there is no image 'gone\.png'",
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
            "cannot quote an image",
        ),
    ],
)
def test_wrong_task_files_are_one_line(sample_images, text, message):
    with pytest.raises(TaskError, match=message) as caught:
        load_task(write(sample_images, text))
    assert "\n" not in str(caught.value)


def test_rows_of_images_stream_and_keep_their_fields(sample_images):
    rows = list(read_images(sample_images / "photos"))
    assert [row.fields for row in rows] == [
        {"image": name} for name in ("blue/0-0.png", "blue/0-1.png", "red/0-0.png", "red/0-1.png")
    ]
    file = write(sample_images, "photos/red/0-0.png\nphotos/blue/0-0.png\n", "list.txt")
    assert [row.image.path.name for row in read_images(file) if row.image] == ["0-0.png", "0-0.png"]
    (sample_images / "photos" / "red" / "0-1.png").write_bytes(b"")
    stream = read_images(sample_images / "photos")
    assert next(stream).fields == {"image": "blue/0-0.png"}  # the empty one is met later
    with pytest.raises(TaskError, match=r"0-1\.png"):
        list(stream)
