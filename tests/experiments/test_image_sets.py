"""The image sets as images: drawn from a small folder in the published layout, and run end to end."""

import os
import shutil
from pathlib import Path

import pytest

from adamab.errors import EmbedderError, TaskError
from adamab.providers.embedders.base import Embedder
from adamab.providers.metering import CallContext
from adamab.providers.registry import shared_images, shared_replies
from adamab.task import bare
from adamab.testing import PixelEmbedder, ProviderServer
from experiments.cells import Expansion
from experiments.datasets.base import IMAGE_SETS, load_data_set
from experiments.datasets.image_sets import FOLDERS, load_image_set
from experiments.definition import Experiment
from experiments.estimate import estimate
from experiments.runner import Runner

PETS = "pets-images"
BREEDS = {"red": ("Bombay", 1), "green": ("pug", 2), "blue": ("Siamese", 1)}  # and its species
TRAIN, TEST = 10, 4
OPTIONS = {"near_duplicate": None}
DATA = Path(os.environ.get("ADAMAB_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")


@pytest.fixture
def data(tmp_path, paint):
    """A folder of data sets with ten and four Pets of three breeds; one of them is in both parts."""
    folder = tmp_path / "data" / "oxford_pets"
    (folder / "images").mkdir(parents=True)
    (folder / "annotations").mkdir()
    lines = {"trainval": [], "test": []}
    for number, (colour, (breed, species)) in enumerate(BREEDS.items(), 1):
        # So small that noise keeps them from being near copies.
        painted = paint(tmp_path / "painted", {colour: TRAIN + TEST}, seed=number, side=8, ending="jpg")
        for n, path in enumerate(painted):
            path.rename(folder / "images" / f"{breed}_{n}.jpg")
            lines["trainval" if n < TRAIN else "test"].append(f"{breed}_{n} {number} {species} 1")
    shutil.copy(folder / "images" / f"pug_{TRAIN}.jpg", folder / "images" / "pug_0.jpg")
    for part, listed in lines.items():
        (folder / "annotations" / f"{part}.txt").write_text("\n".join(listed) + "\n")
    return tmp_path / "data"


@pytest.fixture
def pets(data):
    return load_image_set(PETS, data, expected=None)


@pytest.fixture
def pixels(monkeypatch):
    """The toy embedder, by any name; it has no text side."""
    embedder = PixelEmbedder()
    monkeypatch.setattr(
        "adamab.providers.registry.resolve_embedder",
        lambda spec: spec if isinstance(spec, Embedder) else embedder,
    )
    return embedder


@pytest.fixture
def work(tmp_path):
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def files(samples):
    return {sample.image.path.name for sample in samples}


def pool_files(draw):
    return {draw.images[text].path.name for texts in draw.pool.values() for text in texts}


# Draws


def test_a_draw_follows_the_official_split(pets):
    draw = pets.draw(0, given=3)
    assert draw.task.modality == "image"
    assert [spec.name for spec in draw.task.classes] == ["Bombay", "pug", "Siamese"]
    assert files(draw.test) == {f"{breed}_{n}.jpg" for breed, _ in BREEDS.values() for n in range(10, 14)}
    trained = files(draw.task.samples) | pool_files(draw)
    assert all(int(Path(name).stem.rpartition("_")[2]) < TRAIN for name in trained)
    assert (len(draw.task.samples), {name: len(x) for name, x in draw.pool.items()}) == (
        9,
        {"Bombay": 3, "pug": 3, "Siamese": 3},  # six of ten or nine, two fifths being for development
    )
    assert all(sample.text == sample.image.reference for sample in (*draw.task.samples, *draw.test))


def test_a_training_image_that_is_also_tested_is_used_for_nothing(pets):
    draws = [pets.draw(seed, part=part, given=3) for seed in range(3) for part in ("test", "development")]
    assert not any("pug_0.jpg" in files(draw.task.samples) | pool_files(draw) for draw in draws)


def test_a_draw_goes_by_content_and_not_by_place(pets, data):
    moved = data.rename(data.parent / "elsewhere")
    again = load_image_set(PETS, moved, expected=None)
    assert [again.draw(seed).digest for seed in (0, 1)] == [pets.draw(seed).digest for seed in (0, 1)]
    (moved / "oxford_pets/images/pug_1.jpg").write_bytes(b"another image")
    assert load_image_set(PETS, moved, expected=None).draw(0).digest != pets.draw(0).digest


def test_folders_that_lack_images_are_refused_in_one_line(data):
    with pytest.raises(TaskError, match="30 training images instead of 3,680, 12 test images"):
        load_data_set(PETS, data)
    with pytest.raises(TaskError, match="cub200: no such folder"):
        load_data_set("cub200-images", data)


@pytest.mark.parametrize("name", IMAGE_SETS)
def test_the_published_layouts(name, tmp_path):
    folder = FOLDERS[name.removesuffix("-images")]
    mini = DATA / folder / "mini"
    if not mini.is_dir():
        pytest.skip(f"no folder {mini}")
    (tmp_path / folder).symlink_to(mini)
    data = load_image_set(name, tmp_path, expected=None)
    draw = data.draw(0, given=1)
    assert len(draw.task.samples) == len(data.specs)
    held = {bare(sample.text) for sample in draw.test}
    assert not held & {bare(sample.text) for sample in draw.task.samples}
    assert {sample.class_name for sample in draw.test} == {spec.name for spec in data.specs}


# Experiments


def experiment(**changes):
    base = {
        "name": "toy",
        "title": "A toy",
        "sets": [PETS],
        "given": 3,
        "generators": ["pool"],
        "amounts": [3],
        "embedder": "pixels",
        "seeds": 1,
        "methods": [
            {"method": "class-mean", "samples": "both"},
            {"method": "calibrator", "policies": ["none", "round-robin", "adamab"], "options": OPTIONS},
        ],
    }
    return Experiment.model_validate(base | changes)


def test_a_generator_that_has_test_images_teaches_nothing(pets, pixels, tmp_path, work):
    for sample in pets.draw(0).test:
        (tmp_path / "pool" / sample.class_name).mkdir(parents=True, exist_ok=True)
        shutil.copy(sample.image.path, tmp_path / "pool" / sample.class_name)
    rows = Runner(experiment(generators=[f"pool:{tmp_path / 'pool'}"]), {PETS: pets}, work).run().rows
    assert {row.measured.synthetic for row in rows} == {0}


def test_wordings_cannot_quote_images(pets):
    with pytest.raises(TaskError, match="pets-images are images, which no wording can quote"):
        Expansion(experiment(settings=["zero-shot", "few-shot"]), {PETS: pets})


def test_an_embedder_of_texts_is_refused_before_anything_is_done(pets, work):
    runner = Runner(experiment(embedder="openai:m?base_url=http://127.0.0.1:9/v1"), {PETS: pets}, work)
    for begin in (runner.run, lambda: estimate(runner)):
        with pytest.raises(EmbedderError, match="embeds no images, and pets-images are images") as raised:
            begin()
        assert "\n" not in str(raised.value)


@pytest.fixture
def server():
    with ProviderServer(width=16) as running:
        yield running


def bought(server):
    fast = "first_wait=0.01"
    return experiment(
        embedder=f"voyage:voyage-multimodal-3?base_url={server.url}/voyage/v1&{fast}",
        generators=[f"openai-image:gpt-image-1-mini?base_url={server.url}/v1&{fast}"],
        methods=[
            "zero-shot",
            f"chat:m?base_url={server.url}/v1&{fast}",
            f"rerank:jina:jina-reranker-m0?base_url={server.url}/jina/v1&{fast}",
            {"method": "linear-probe", "samples": "both"},
            {"method": "calibrator", "policies": ["none", "round-robin", "adamab"], "options": OPTIONS},
        ],
    )


def test_an_experiment_on_images_behind_apis(pets, server, tmp_path, work):
    before = estimate(Runner(bought(server), {PETS: pets}, work))
    assert server.count() == 0
    assert list(work.iterdir()) == []
    calls = {party.purpose.partition("?")[0]: party.expected.calls for party in before.parties}
    assert calls["chat:m"] == calls["rerank:jina:jina-reranker-m0"] == 12
    assert calls["generate in fits"] == 2 * 3  # two policies, nine images in batches of three
    assert calls["embed the images"] > 0
    result = Runner(bought(server), {PETS: pets}, work).run(
        call_context=CallContext(replies=shared_replies())
    )
    assert server.count() <= before.at_most.calls
    assert server.count("/chat/completions") == server.count("/rerank") == 12
    sent = [seen.body for seen in server.seen if "/chat/completions" in seen.path]
    assert all("image_url" in str(body) for body in sent)
    added = {(row.cell.method, row.cell.policy): row.measured.synthetic for row in result.rows}
    assert added["calibrator", "adamab"] == added["linear-probe", "round-robin"] == 9
    assert len(list(shared_images().iterdir())) >= 9
    drawn = server.count("/images/generations")
    work.rename(tmp_path / "before")
    work.mkdir()
    again = Runner(bought(server), {PETS: pets}, work).run(call_context=CallContext(replies=shared_replies()))
    assert server.count("/images/generations") == drawn  # answers and images are in the cache
    assert [row.accuracy for row in again.rows] == [row.accuracy for row in result.rows]
