"""Real images as a generator."""

import json
from dataclasses import replace

import PIL.Image
import pytest

from adamab.errors import GeneratorError
from adamab.providers.generators.base import Request, Settings
from adamab.providers.generators.recorded import ImagePoolGenerator, pool_from_spec
from adamab.providers.image_store import ImageStore
from adamab.task.image_folders import image_at
from adamab.task.prompts import Prompts
from adamab.task.recipe import Recipe
from adamab.task.spec import ClassSpec
from adamab.testing import check_generator

ROSE = Request(ClassSpec("rose"), 0, 2, (), ())


def draw(file, shade):
    file.parent.mkdir(parents=True, exist_ok=True)
    PIL.Image.new("RGB", (12, 8), (shade, 255 - shade, 40)).save(file)
    return file


def reference(file):
    return image_at(file).reference


@pytest.fixture
def pool(tmp_path):
    for shade in range(5):
        draw(tmp_path / "pool" / "rose" / f"{shade}.png", shade)
    draw(tmp_path / "pool" / "tulip" / "0.png", 200)
    return tmp_path / "pool"


@pytest.fixture
def roses(pool):
    return [reference(pool / "rose" / f"{shade}.png") for shade in range(5)]


@pytest.fixture
def store(tmp_path):
    return ImageStore(tmp_path / "run" / "images")


@pytest.fixture
def opened(store):
    def opened(source, *, seed=None):
        generator = ImagePoolGenerator(source, seed=seed)
        generator.configure(Settings(Prompts(), 0, Recipe(), store))
        return generator

    return opened


async def test_the_order_of_the_files_without_replacement(opened, pool, roses):
    generator = opened(pool)
    batches = [await generator.generate(ROSE) for _ in range(4)]
    assert [batch.texts for batch in batches] == [tuple(roses[:2]), tuple(roses[2:4]), (roses[4],), ()]
    assert [batch.closed for batch in batches] == [None, None, "pool exhausted", "pool exhausted"]
    assert not any(batch.rejected for batch in batches)


async def test_what_is_handed_out_and_nothing_else_is_copied(opened, pool, store, roses):
    batch = await opened(pool).generate(ROSE)
    assert {path.stem for path in store.directory.glob("*.png")} == {
        text.partition(":")[2] for text in batch.texts
    }
    (pool / "rose" / "0.png").unlink()
    assert store.find(roses[0]).path.is_file()


async def test_a_new_instance_goes_on_after_what_exists(opened, pool, roses):
    request = replace(ROSE, given=(roses[0],), existing=(roses[1], roses[3]), number=1)
    batch = await opened(pool).generate(request)
    assert (batch.texts, batch.closed) == ((roses[2], roses[4]), "pool exhausted")


@pytest.mark.parametrize("resumed", [False, True])
async def test_broken_images_are_left_out_and_counted_once(opened, pool, roses, resumed):
    whole = (pool / "rose" / "1.png").read_bytes()
    (pool / "rose" / "0-text.jpg").write_text("no image")  # before 0.png
    (pool / "rose" / "1_cut.png").write_bytes(whole[: len(whole) // 2])
    (pool / "rose" / "1_empty.png").touch()
    (pool / "rose" / "9.png").symlink_to(pool / "gone.png")
    (pool / "rose" / "2.png").write_bytes((pool / "rose" / "0.png").read_bytes())  # a copy
    generator, request, batches = opened(pool), ROSE, []
    for number in range(2):
        batch = await generator.generate(request)
        batches.append((batch.texts, batch.rejected, batch.closed))
        request = replace(request, existing=(*request.existing, *batch.texts), number=number + 1)
        generator = opened(pool) if resumed else generator
    assert batches == [
        ((roses[0], roses[1]), {"unreadable": 1}, None),
        ((roses[3], roses[4]), {"unreadable": 3}, "pool exhausted"),
    ]


async def test_unknown_classes_are_closed(opened, pool):
    batch = await opened(pool).generate(replace(ROSE, spec=ClassSpec("lily")))
    assert batch.closed == "pool has no images of this class"


def test_it_conforms(opened, pool):
    check_generator(lambda: opened(pool), ROSE)
    check_generator(lambda: opened(pool, seed=3), ROSE)


def test_fingerprints_go_by_names_and_sizes(pool, tmp_path):
    first = ImagePoolGenerator(pool).fingerprint
    pool.rename(tmp_path / "moved")
    assert ImagePoolGenerator(tmp_path / "moved").fingerprint == first
    assert ImagePoolGenerator(tmp_path / "moved", seed=0).fingerprint != first
    (tmp_path / "moved" / "rose" / "0.png").rename(tmp_path / "moved" / "tulip" / "1.png")
    second = ImagePoolGenerator(tmp_path / "moved").fingerprint
    assert second != first
    PIL.Image.effect_noise((30, 30), 9).save(tmp_path / "moved" / "tulip" / "1.png")
    assert ImagePoolGenerator(tmp_path / "moved").fingerprint not in (first, second)


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
async def test_a_file_with_paths(opened, pool, store, roses, ending):
    rows = [{"label": "rose", "image": f"pool/rose/{n}.png"} for n in (3, 1)]
    file = pool.parent / f"pool.{ending}"
    if ending == "csv":
        file.write_text("image,label\n" + "".join(f"{row['image']},{row['label']}\n" for row in rows))
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    generator = pool_from_spec(str(file))
    assert isinstance(generator, ImagePoolGenerator)
    generator.configure(Settings(Prompts(), 0, Recipe(), store))
    batch = await generator.generate(ROSE)
    assert (batch.texts, batch.closed) == ((roses[3], roses[1]), "pool exhausted")
    with pytest.raises(
        GeneratorError, match=rf"pool\.{ending}:\d: unknown class 'rose'; did you mean 'rosy'"
    ):
        generator.check(["rosy"])


def test_bad_pools_are_one_line(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(GeneratorError, match="empty") as caught:
        ImagePoolGenerator(tmp_path / "empty")
    assert "\n" not in str(caught.value)
    file = tmp_path / "p.jsonl"
    file.write_text('{"label": "rose", "image": "gone.png"}\n')
    with pytest.raises(GeneratorError, match=r"p\.jsonl:1: .*gone\.png"):
        ImagePoolGenerator(file)
