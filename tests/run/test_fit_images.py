"""A fit on images: class means where there is no text side, generated images in the run's folder."""

import json
from pathlib import Path

import pytest

from adamab.errors import GeneratorError, RunError, TaskError
from adamab.model.predictor import Inference
from adamab.providers.registry import resolve_generator, shared_images
from adamab.run.fit import fit_task
from adamab.run.gate import Holdout
from adamab.run.run_log import Journal
from adamab.task import Task, load_task
from adamab.task.image_folders import read_images
from adamab.task.recipe import Recipe
from adamab.task.spec import ClassSpec
from adamab.task.tables import read_texts
from adamab.testing import HashEmbedder, PixelEmbedder
from tests.fitting import Order, fit_run

RECIPE = Recipe(batch=2, rounds_per_class=2, near_duplicate=None)
COUNTS = {"red": 3, "green": 3, "blue": 3}


@pytest.fixture
def task(tmp_path, paint):
    paint(tmp_path / "given", COUNTS)
    return load_task(tmp_path / "given")


def order(task, **changes):
    values = {
        "task": task,
        "embedder": PixelEmbedder(),
        "embedder_spec": "pixels",
        "generator": resolve_generator("transform", seed=0),
        "recipe": RECIPE,
    }
    return Order(**{**values, **changes})


def weights(run):
    return (run / "model.safetensors").read_bytes()


def test_images_are_told_apart_without_a_text_side(task, tmp_path, paint):
    result = fit_task(task, PixelEmbedder(), recipe=RECIPE)
    model = Inference(result.classifier, PixelEmbedder())
    assert model.modality == "image"
    assert result.classifier.vocabulary is None  # images have no words
    paint(tmp_path / "new", COUNTS, seed=5)
    rows = list(read_images(tmp_path / "new"))
    names = [result.classifier.classes[i] for i in model.logits(rows).argmax(axis=1)]
    assert names == [Path(str(row.fields["image"])).parts[0] for row in rows]


def test_generated_images_are_kept_in_the_run_by_content(task, tmp_path):
    run = tmp_path / "run"
    summary = fit_run(order(task), run)
    assert summary["synthetic"] == 12
    rows = [json.loads(line) for line in (run / "synthetic.jsonl").read_text().splitlines()]
    assert len(rows) == 12
    for row in rows:
        digest = row["text"].removeprefix("image:")
        assert row["image"].startswith(f"images/{digest}")
        assert (run / row["image"]).is_file()
        assert (run / "images" / "thumbnails" / f"{digest}.jpg").is_file()
    with Journal(run) as journal:
        batch = journal.batch("red", 0)
    assert batch is not None
    assert all(text.startswith("image:") for text in batch.texts)
    assert (run / "journal.sqlite").stat().st_size < 500_000  # no pixels in it


def test_a_stopped_run_of_images_ends_like_one_that_was_not(task, tmp_path):
    fit_run(order(task), tmp_path / "whole")

    def stop(record):
        if record.round == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_run(order(task), tmp_path / "halves", on_round=stop)
    fit_run(order(task), tmp_path / "halves")
    assert weights(tmp_path / "whole") == weights(tmp_path / "halves")
    assert fit_run(order(task), tmp_path / "halves")["complete"]


def test_what_a_killed_process_left_half_written_is_tidied(task, tmp_path):
    half = tmp_path / "run" / "images" / ".0123-abc.part"
    fit_run(order(task), tmp_path / "run")
    half.write_bytes(b"half")
    (tmp_path / "run" / "model.safetensors").unlink()
    fit_run(order(task), tmp_path / "run")
    assert not half.exists()


def test_a_run_whose_images_are_gone_says_so(task, tmp_path):
    run = tmp_path / "run"
    fit_run(order(task), run)
    for file in (run / "images").glob("*.*"):
        file.unlink()
    (run / "model.safetensors").unlink()
    with pytest.raises(RunError, match="is gone; put it back"):
        fit_run(order(task), run)


def test_images_of_the_holdout_never_enter(task, tmp_path, paint):
    paint(tmp_path / "pool", {"red": 4, "green": 4, "blue": 4}, seed=3)
    paint(tmp_path / "held", {"red": 2}, seed=3)  # two of the same images
    held = Holdout.read(tmp_path / "held", "image")
    pool = resolve_generator(f"pool:{tmp_path / 'pool'}")
    summary = fit_run(order(task, generator=pool, holdout=held), tmp_path / "run")
    used = {row.text for row in read_texts(tmp_path / "run" / "synthetic.jsonl")}
    assert summary["rejected"]["red"]["held out"] == 2
    assert not used & {row.text for row in read_images(tmp_path / "held")}


def test_rejected_images_are_left_out_and_nothing_is_made_again(task, tmp_path):
    run = tmp_path / "run"
    fit_run(order(task), run)
    first = json.loads((run / "synthetic.jsonl").read_text().splitlines()[0])
    made = len(list((run / "images").glob("*.*")))
    fit_run(order(task, reject=(first["text"],)), run)
    texts = [json.loads(line)["text"] for line in (run / "synthetic.jsonl").read_text().splitlines()]
    assert first["text"] not in texts
    assert len(list((run / "images").glob("*.*"))) <= made + 2  # at most one batch more


def test_a_generator_of_images_is_refused_for_texts():
    texts = Task.from_mapping({"a": ["x y"], "b": ["z"]})
    with pytest.raises(GeneratorError, match="makes images and the task is of texts"):
        fit_task(texts, HashEmbedder(), generator=resolve_generator("transform", seed=0), recipe=RECIPE)


def test_a_class_that_nothing_shows_is_refused(task):
    described = Task((*task.classes, ClassSpec("grey", "greyish")), task.samples, modality="image")
    with pytest.raises(TaskError, match="'grey' has no example, and this embedder has no vectors"):
        fit_task(described, PixelEmbedder(), recipe=RECIPE)


def test_a_run_that_is_started_over_keeps_no_images_of_the_old_one(task, tmp_path):
    run = tmp_path / "run"
    fit_run(order(task), run)
    fit_run(order(task, generator=resolve_generator("transform", seed=9)), run, overwrite=True)
    rows = [json.loads(line) for line in (run / "synthetic.jsonl").read_text().splitlines()]
    assert {f"images/{file.name}" for file in (run / "images").glob("*.*")} == {row["image"] for row in rows}
    assert len(list((run / "images" / "thumbnails").iterdir())) == len(rows)


def test_only_what_was_paid_for_is_shared(task, tmp_path, paint):
    paint(tmp_path / "pool", COUNTS, seed=3)
    pool = resolve_generator(f"pool:{tmp_path / 'pool'}")
    fit_run(order(task, generator=pool, cache=True), tmp_path / "one")
    fit_run(order(task, cache=True), tmp_path / "two")
    assert not shared_images().exists()


def test_files_of_others_in_the_folder_of_images_stay(task, tmp_path):
    run = tmp_path / "run"
    fit_run(order(task), run)
    (run / "images" / "notes.txt").write_text("mine")
    (run / "images" / "001.Black").mkdir()
    fit_run(order(task, generator=resolve_generator("transform", seed=9)), run, overwrite=True)
    assert (run / "images" / "notes.txt").read_text() == "mine"
