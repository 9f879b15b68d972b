"""Generated images: stored once, whole or not at all, found again by their content."""

import io
import os
import stat
import threading

import pytest

from adamab.errors import ImageError, RunError
from adamab.providers.image_store import ImageStore
from adamab.task.images import Image, digest_of

pytest.importorskip("PIL", reason="the extra images is not installed")
from PIL import Image as Pillow


def sample_image(value=0, kind="PNG", size=(400, 300)):
    stream = io.BytesIO()
    Pillow.new("RGB", size, (value, 0, 0)).save(stream, kind)
    return stream.getvalue()


def files(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


class TestPut:
    def test_twice_is_stored_once(self, tmp_path):
        first = ImageStore(tmp_path).put(sample_image())
        written = first.path.stat().st_mtime_ns, first.path.stat().st_ino
        second = ImageStore(tmp_path).put(sample_image())
        assert first == second
        assert (second.path.stat().st_mtime_ns, second.path.stat().st_ino) == written
        assert files(tmp_path) == sorted([f"{first.digest}.png", f"thumbnails/{first.digest}.jpg"])
        assert first.path.read_bytes() == sample_image()

    @pytest.mark.parametrize(
        ("size", "small"), [((400, 300), (160, 120)), ((50, 20), (50, 20)), ((3000, 1), (160, 1))]
    )
    def test_a_thumbnail(self, size, small, tmp_path):
        store = ImageStore(tmp_path)
        path = store.thumbnail(store.put(sample_image(size=size)))
        with Pillow.open(path) as thumbnail:
            assert (thumbnail.format, thumbnail.size) == ("JPEG", small)

    def test_only_the_owner_may_read(self, tmp_path):
        store = ImageStore(tmp_path / "run", shared=tmp_path / "shared")
        store.put(sample_image(), share=True)
        modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in files(tmp_path)}
        assert len(files(tmp_path)) == 3
        assert modes == {0o600}

    @pytest.mark.parametrize("data", [b"", b"no image", sample_image()[:200], b"%PDF-1.4"])
    def test_no_image_leaves_nothing_behind(self, data, tmp_path):
        with pytest.raises(ImageError):
            ImageStore(tmp_path / "run", shared=tmp_path / "shared").put(data, share=True)
        assert list(tmp_path.iterdir()) == []

    def test_a_folder_that_cannot_be_written(self, tmp_path, monkeypatch):
        monkeypatch.setattr(os, "replace", lambda *_: os.open(tmp_path, os.O_WRONLY))  # fails at the end
        with pytest.raises(RunError, match=r"cannot be written \(.+\); free space") as caught:
            ImageStore(tmp_path / "run").put(sample_image())
        assert "\n" not in str(caught.value)
        assert files(tmp_path) == []

    def test_one_that_lies_elsewhere_is_not_copied(self, tmp_path):
        known = Image(digest_of(sample_image()), tmp_path / "given.png")
        store = ImageStore(tmp_path / "run")
        store.know([known])
        assert store.put(sample_image()).path == known.path
        assert store.find(known.reference).path == known.path
        assert not (tmp_path / "run").exists()


class TestFind:
    def test_what_is_gone(self, tmp_path):
        with pytest.raises(RunError, match=r"the image image:000000000000… is gone; put it back"):
            ImageStore(tmp_path).find("image:" + "0" * 64)

    @pytest.mark.parametrize(
        "reference", ["image:*", "image:", "image:../secret", "rose", "image:" + "0" * 63 + "?"]
    )
    def test_what_is_no_reference(self, reference, tmp_path):
        ImageStore(tmp_path).put(sample_image())
        assert not ImageStore(tmp_path).has(reference)


class TestShared:
    def test_one_run_finds_what_another_made(self, tmp_path):
        image = ImageStore(tmp_path / "one", shared=tmp_path / "shared").put(sample_image(), share=True)
        store = ImageStore(tmp_path / "two", shared=tmp_path / "shared")
        copy = store.find(image.reference)
        assert copy.path == tmp_path / "two" / image.path.name
        assert copy.path.read_bytes() == sample_image()
        assert store.thumbnail(copy).is_file()

    def test_a_damaged_one_is_not_used_and_then_replaced(self, tmp_path):
        image = ImageStore(tmp_path / "one", shared=tmp_path / "shared").put(sample_image(), share=True)
        copy = tmp_path / "shared" / image.path.name
        copy.write_bytes(sample_image(9))
        store = ImageStore(tmp_path / "two", shared=tmp_path / "shared")
        assert not store.has(image.reference)
        store.put(sample_image(), share=True)
        assert copy.read_bytes() == sample_image()

    def test_it_is_a_convenience_that_may_fail(self, tmp_path):
        (tmp_path / "shared").write_text("a file in the way")
        store = ImageStore(tmp_path / "run", shared=tmp_path / "shared")
        assert store.find(store.put(sample_image(), share=True).reference).path.is_file()
        assert not store.has("image:" + "0" * 64)


class TestAtOnce:
    def test_threads(self, tmp_path):
        errors = []

        def put():
            try:
                for value in range(10):
                    ImageStore(tmp_path / "run", shared=tmp_path / "shared").put(
                        sample_image(value), share=True
                    )
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=put) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert len(files(tmp_path / "run")) == 20
        assert len(files(tmp_path / "shared")) == 10
        for path in [*(tmp_path / "run").glob("*.png"), *(tmp_path / "shared").glob("*.png")]:
            assert digest_of(path.read_bytes()) == path.stem
