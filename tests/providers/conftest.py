"""Images, a server with wider vectors, and an empty hub."""

import shutil

import numpy as np
import pytest

from adamab.providers.image_store import ImageStore
from adamab.task.images import Image, digest_of
from adamab.testing import ProviderServer


@pytest.fixture
def server():
    with ProviderServer(width=16) as running:
        yield running


@pytest.fixture(scope="session")
def images(tmp_path_factory):
    """Images of several shapes, as PNG, so that nothing is lost on the way."""
    pillow = pytest.importorskip("PIL.Image")
    random = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("images")
    images = []
    for number, (height, width) in enumerate([(40, 60), (33, 32), (20, 78), (64, 64), (100, 30)]):
        small = random.integers(0, 256, (4, 4, 3), np.uint8)
        path = folder / f"{number}.png"
        pillow.fromarray(small).resize((width, height), pillow.Resampling.BICUBIC).save(path)
        images.append(Image(digest_of(path.read_bytes()), path))
    return images


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """An empty local cache of the hub, and no network."""
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "hub"


def cached_at(hub, name, files, reference="main"):
    """A snapshot in the hub's cache, as its library lays it out on disk; its name is its commit."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = hub / f"models--{name.replace('/', '--')}"
    (repository / "refs" / reference).parent.mkdir(parents=True)
    (repository / "refs" / reference).write_text(commit)
    return shutil.copytree(files, repository / "snapshots" / commit)


@pytest.fixture
def store(tmp_path):
    return ImageStore(tmp_path / "images")
