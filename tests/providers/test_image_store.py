"""Generated images: stored once, whole or not at all, found again by their content."""

import io
import multiprocessing
import os
import stat
import threading

import pytest

from adamab.errors import ImageError, RunError
from adamab.providers.image_store import ImageStore, delete_shared
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

    @pytest.mark.parametrize(("kind", "ending"), [("PNG", ".png"), ("JPEG", ".jpg"), ("WEBP", ".webp")])
    def test_the_content_names_it(self, kind, ending, tmp_path):
        data = sample_image(kind=kind)
        assert ImageStore(tmp_path).put(data).path == tmp_path / f"{digest_of(data)}{ending}"

    @pytest.mark.parametrize(
        ("size", "small"), [((400, 300), (160, 120)), ((50, 20), (50, 20)), ((3000, 1), (160, 1))]
    )
    def test_a_thumbnail(self, size, small, tmp_path):
        store = ImageStore(tmp_path)
        path = store.thumbnail(store.put(sample_image(size=size)))
        with Pillow.open(path) as thumbnail:
            assert (thumbnail.format, thumbnail.size) == ("JPEG", small)

    def test_a_lost_thumbnail_is_made_again(self, tmp_path):
        image = ImageStore(tmp_path).put(sample_image())
        ImageStore(tmp_path).thumbnail(image).unlink()
        ImageStore(tmp_path).put(sample_image())
        assert ImageStore(tmp_path).thumbnail(image).is_file()

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

    def test_one_that_lies_elsewhere_is_not_copied(self, tmp_path):
        known = Image(digest_of(sample_image()), tmp_path / "given.png")
        store = ImageStore(tmp_path / "run")
        store.know([known])
        assert store.put(sample_image()).path == known.path
        assert store.find(known.reference).path == known.path
        assert not (tmp_path / "run").exists()

    def test_a_damaged_one_is_replaced(self, tmp_path):
        image = ImageStore(tmp_path).put(sample_image())
        image.path.write_bytes(sample_image()[:100])
        assert not ImageStore(tmp_path).has(image.reference)
        assert ImageStore(tmp_path).put(sample_image()).path.read_bytes() == sample_image()

    @pytest.mark.parametrize("blocked", ["run", "run/thumbnails"])
    def test_a_folder_that_cannot_be_written(self, blocked, tmp_path):
        (tmp_path / blocked).parent.mkdir(exist_ok=True)
        (tmp_path / blocked).write_text("a file in the way")
        with pytest.raises(RunError, match=r"cannot be written \(.+\); free space") as caught:
            ImageStore(tmp_path / "run").put(sample_image())
        assert "\n" not in str(caught.value)

    def test_a_full_disk(self, tmp_path):
        limited = multiprocessing.get_context("spawn").Process(
            target=put_on_a_full_disk, args=(tmp_path / "run",)
        )
        limited.start()
        limited.join()
        assert limited.exitcode == 0
        assert [name for name in files(tmp_path) if not name.startswith("run/thumbnails/")] == []
        assert [name for name in files(tmp_path) if ".part" in name] == []


def put_on_a_full_disk(folder):
    import resource
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    data = io.BytesIO()
    Pillow.frombytes("RGB", (100, 100), os.urandom(30_000)).save(data, "PNG")
    try:
        ImageStore(folder).put(data.getvalue())
    except RunError as error:
        os._exit(0 if "cannot be written (File too large)" in str(error) else 2)
    os._exit(1)


class TestFind:
    def test_after_a_restart(self, tmp_path):
        image = ImageStore(tmp_path).put(sample_image())
        assert ImageStore(tmp_path).has(image.reference)
        assert ImageStore(tmp_path).find(image.reference).path == image.path

    def test_what_is_gone(self, tmp_path):
        with pytest.raises(RunError, match=r"the image image:000000000000… is gone; put it back"):
            ImageStore(tmp_path).find("image:" + "0" * 64)

    @pytest.mark.parametrize(
        "reference", ["image:*", "image:", "image:../secret", "rose", "image:" + "0" * 63 + "?"]
    )
    def test_what_is_no_reference(self, reference, tmp_path):
        ImageStore(tmp_path).put(sample_image())
        assert not ImageStore(tmp_path).has(reference)

    def test_leftovers_are_not_taken_for_images(self, tmp_path):
        data = sample_image()
        for name in (f"{digest_of(data)}.123.part", f".{digest_of(data)}-x.part", f"{digest_of(data)}.txt"):
            (tmp_path / name).write_bytes(data)
        reference = Image(digest_of(data), tmp_path).reference
        assert not ImageStore(tmp_path, shared=tmp_path).has(reference)


class TestShared:
    def test_one_run_finds_what_another_made(self, tmp_path):
        image = ImageStore(tmp_path / "one", shared=tmp_path / "shared").put(sample_image(), share=True)
        store = ImageStore(tmp_path / "two", shared=tmp_path / "shared")
        found = store.find(image.reference)
        assert found.path == tmp_path / "two" / image.path.name
        assert found.path.read_bytes() == sample_image()
        assert store.thumbnail(found).is_file()

    def test_a_damaged_one_is_not_used_and_then_mended(self, tmp_path):
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

    def test_deleting(self, tmp_path):
        store = ImageStore(tmp_path / "run", shared=tmp_path / "shared")
        image = store.put(sample_image(), share=True)
        assert delete_shared(tmp_path / "shared") == len(sample_image())
        assert delete_shared(tmp_path / "shared") == 0
        assert image.path.is_file()


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
        check_ten(tmp_path)

    def test_processes(self, tmp_path):
        context = multiprocessing.get_context("spawn")
        workers = [context.Process(target=put_ten, args=(tmp_path,)) for _ in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert [worker.exitcode for worker in workers] == [0, 0]
        check_ten(tmp_path)


def put_ten(folder):
    for value in range(10):
        ImageStore(folder / "run", shared=folder / "shared").put(sample_image(value), share=True)


def check_ten(folder):
    assert len(files(folder / "run")) == 20
    assert len(files(folder / "shared")) == 10
    for path in [*(folder / "run").glob("*.png"), *(folder / "shared").glob("*.png")]:
        assert digest_of(path.read_bytes()) == path.stem
