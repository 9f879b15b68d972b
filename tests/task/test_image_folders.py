"""Which files are pictures, in which order, and what is refused in one line."""

import hashlib
import os
from contextlib import contextmanager
from pathlib import Path

import pytest

from adamab.errors import ImageError, TaskError
from adamab.task.image_folders import class_folders, image_at, image_files
from adamab.task.images import LARGEST_FILE, Image, is_reference, is_url


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

    def test_of_several_chunks(self, tmp_path):
        data = b"0123456789" * 300_000
        (tmp_path / "a.jpg").write_bytes(data)
        assert image_at(tmp_path / "a.jpg").digest == hashlib.sha256(data).hexdigest()

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

    def test_a_file_that_is_too_long(self, tmp_path):
        with (tmp_path / "a.jpg").open("wb") as stream:
            stream.truncate(LARGEST_FILE + 1)
        assert "has 200 MB, more than 200" in refusal(lambda: image_at(tmp_path / "a.jpg"))

    def test_one_that_may_not_be_read(self, tmp_path, monkeypatch):
        fill(tmp_path, "a.jpg")
        (tmp_path / "a.jpg").chmod(0)
        tmp_path.chmod(0o755)
        monkeypatch.chdir(tmp_path)
        with powerless():
            assert refusal(lambda: image_at(Path("a.jpg"))).startswith(
                "a.jpg: cannot be read (Permission denied)"
            )

    def test_a_control_character_in_the_name(self, tmp_path):
        assert r"a\n\x1b.jpg: no such file" in refusal(lambda: image_at(tmp_path / "a\n\x1b.jpg"))


class TestImageFiles:
    def test_by_ending_in_the_order_of_the_paths(self, tmp_path):
        wanted = ["B.PNG", "a.jpg", "a/b.webp", "a/c/d.tiff", "a0.gif", "b.bmp", "ä.jpeg"]
        others = ["Thumbs.db", ".DS_Store", "notes.txt", ".hidden.jpg", ".git/x.jpg", "a/._b.webp", "jpg"]
        fill(tmp_path, *reversed(wanted), *others, "__MACOSX/a.jpg")
        assert names_below(tmp_path) == wanted == sorted(wanted)

    def test_is_a_stream(self, tmp_path):
        fill(tmp_path, "a/1.jpg", "b/1.jpg")
        files = image_files(tmp_path)
        assert next(files).name == "1.jpg"
        fill(tmp_path, "b/2.jpg")
        assert [path.name for path in files] == ["1.jpg", "2.jpg"]

    def test_an_empty_one_says_what_is_looked_for(self, tmp_path):
        fill(tmp_path, "a.txt")
        message = refusal(lambda: names_below(tmp_path))
        assert message.startswith(f"{tmp_path}: holds no pictures")
        assert ".jpg" in message
        assert ".webp" in message

    def test_links_are_followed_but_no_loop(self, tmp_path):
        fill(tmp_path, "real/a.jpg", "top/b.jpg")
        (tmp_path / "top/again").symlink_to(tmp_path / "top")
        (tmp_path / "top/up").symlink_to("..")
        (tmp_path / "top/self").symlink_to("self")
        (tmp_path / "top/c.jpg").symlink_to("../real/a.jpg")
        assert names_below(tmp_path / "top") == ["b.jpg", "c.jpg", "up/real/a.jpg"]

    def test_many_folders_that_link_to_each_other(self, tmp_path):
        for name in "abcdefgh":
            fill(tmp_path, f"{name}/1.jpg")
            for other in "abcdefgh":
                (tmp_path / name / other).symlink_to(tmp_path / other)
        assert len(names_below(tmp_path)) == 8

    def test_a_deep_one(self, tmp_path):
        steps = 1100  # deeper than Python recurses, and than what tidies up after a test does
        folders = [f"{tmp_path}{'/d' * depth}" for depth in range(1, steps + 1)]
        for folder in folders:
            os.mkdir(folder)
        Path(folders[-1], "a.jpg").touch()
        try:
            assert names_below(tmp_path) == ["d/" * steps + "a.jpg"]
        finally:
            os.remove(f"{folders[-1]}/a.jpg")
            for folder in reversed(folders):
                os.rmdir(folder)

    def test_a_name_of_strange_bytes(self, tmp_path):
        try:
            Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\n.jpg")).write_bytes(b"x")
        except OSError:
            pytest.skip("this file system takes only UTF-8")
        [path] = image_files(tmp_path)
        assert image_at(path).digest == hashlib.sha256(b"x").hexdigest()
        path.unlink()
        assert refusal(lambda: image_at(path)).isprintable()

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
        found = [(name, path.relative_to(tmp_path).as_posix()) for name, path in class_folders(tmp_path)]
        assert found == [("cat", "cat/deep/c.png"), ("dog", "dog/a.jpg"), ("dog", "dog/b.jpg")]

    def test_a_class_that_is_a_link(self, tmp_path):
        fill(tmp_path, "cat/a.jpg")
        (tmp_path / "kitten").symlink_to("cat")
        assert [name for name, _ in class_folders(tmp_path)] == ["cat", "kitten"]

    def test_a_class_without_pictures(self, tmp_path):
        fill(tmp_path, "cat/a.jpg", "dog/a.txt")
        assert f"{tmp_path}/dog: no pictures for this class" in refusal(lambda: list(class_folders(tmp_path)))

    def test_a_picture_beside_the_classes(self, tmp_path):
        fill(tmp_path, "cat/a.jpg", "lost.jpg")
        message = refusal(lambda: next(class_folders(tmp_path)))  # before anything is read
        assert message.startswith(f"{tmp_path}/lost.jpg: belongs to no class")

    def test_no_folder_at_all(self, tmp_path):
        assert "holds no folders" in refusal(lambda: list(class_folders(tmp_path)))

    def test_a_name_that_cannot_be_written(self, tmp_path):
        folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
        try:
            folder.mkdir()
        except OSError:
            pytest.skip("this file system takes only UTF-8")
        fill(folder, "a.jpg")
        assert "half a character" in refusal(lambda: list(class_folders(tmp_path)), TaskError)
