"""fit, evaluate and predict on folders of images, with a small real ONNX network as the embedder."""

import csv
import json

import pytest

from adamab.task import load_task

SETTINGS = ("--set", "batch=2", "--set", "near_duplicate=none")


def write_network(path):
    """Mean colours of a 4 x 4 grid: a network of one layer, in the real format."""
    import onnx
    from onnx import TensorProto, helper

    graph = helper.make_graph(
        [helper.make_node("AveragePool", ["image"], ["features"], kernel_shape=[4, 4], strides=[4, 4]),
         helper.make_node("Flatten", ["features"], ["flat"])],
        "grid",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 3, 16, 16])],
        [helper.make_tensor_value_info("flat", TensorProto.FLOAT, ["N", 48])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=9)
    onnx.save(model, path)
    return path


@pytest.fixture
def place(tmp_path, monkeypatch, paint):
    """The current directory, with network.onnx and folders `given`, `test` and `more`."""
    monkeypatch.chdir(tmp_path)
    write_network(tmp_path / "network.onnx")
    paint(tmp_path / "given", {"red": 2, "green": 2, "blue": 2})
    paint(tmp_path / "test", {"red": 3, "green": 3, "blue": 3}, seed=1)
    paint(tmp_path / "more", {"red": 4, "green": 4, "blue": 4}, seed=2)
    return tmp_path


@pytest.mark.parametrize("generator", ["none", "transform", "pool:more"])
def test_from_a_folder_of_images_to_predictions(place, adamab, generator):
    fitted = adamab(
        "fit", "given", "--run", "run", "--embedder", "onnx:network.onnx", "--generator", generator, *SETTINGS
    )
    assert fitted.exit_code == 0, fitted.output
    assert "3 classes, 6 given samples" in fitted.stdout
    judged = adamab("evaluate", "run", "test", "--json")
    assert judged.exit_code == 0, judged.output
    assert json.loads(judged.stdout)["accuracy"]["value"] == 1.0
    assert "9 images" in adamab("evaluate", "run", "test").stdout
    predicted = adamab("predict", "run", "test", "-o", "out.csv")
    assert predicted.exit_code == 0, predicted.output
    rows = list(csv.DictReader((place / "out.csv").read_text().splitlines()))
    assert [row["class"] for row in rows] == [row["image"].partition("/")[0] for row in rows]
    assert len(rows) == 9


def test_parts_of_images_have_an_error_beside_a_broken_one(place, adamab):
    import pyarrow as pa
    import pyarrow.parquet as pq

    adamab("fit", "given", "--run", "run", "--embedder", "onnx:network.onnx", *SETTINGS)
    assert adamab("predict", "run", "test", "-o", "out.jsonl").exit_code == 0
    read = [json.loads(line) for line in (place / "out.jsonl").read_text().splitlines()]
    (place / "test" / "green" / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\n cut short")
    result = adamab("predict", "run", "test", "-o", "parts", "--part-rows", "4")
    assert result.exit_code == 0, result.output
    files = sorted((place / "parts").glob("part-*"))
    assert len(files) == 3
    rows = pa.concat_tables(pq.read_table(file) for file in files).to_pylist()
    assert [row["image"] for row in rows if row["error"]] == ["green/bad.png"]
    ours = ("image", "class", "probability", "error")
    assert [{name: row[name] for name in ours} for row in rows if not row["error"]] == read
    paths = [f"test/{row['image']}" for row in read]
    pq.write_table(pa.table({"image": paths}), place / "paths.parquet")
    assert adamab("predict", "run", "paths.parquet", "-o", "again.jsonl").exit_code == 0
    again = [json.loads(line) for line in (place / "again.jsonl").read_text().splitlines()]
    assert [row["class"] for row in again] == [row["class"] for row in read]


def test_images_come_from_a_list_or_alone_and_not_from_stdin(place, adamab, refused):
    adamab("fit", "given", "--run", "run", "--embedder", "onnx:network.onnx", *SETTINGS)
    (place / "list.csv").write_text("image,size\ntest/red/1-0.png,small\ntest/blue/1-1.png,large\n")
    result = adamab("predict", "run", "list.csv", "--json")
    assert [json.loads(line)["class"] for line in result.stdout.splitlines()] == ["red", "blue"]
    assert json.loads(result.stdout.splitlines()[0])["size"] == "small"
    assert ",red," in adamab("predict", "run", "test/red/1-0.png").stdout
    (place / "task.csv").write_text("image,label\ntest/red/1-0.png,red\ntest/blue/1-1.png,blue\n")
    assert adamab("init", "desk", "--from", "task.csv").exit_code == 0
    task = load_task(place / "desk" / "task.yaml")
    assert (task, task.modality) == (load_task(place / "task.csv"), "image")
    (place / "task.csv").write_text("path,label\ntest/red/1-0.png,red\ntest/blue/1-1.png,blue\n")
    assert "no column 'text' in 'path, label'" in refused("fit", "task.csv")
    assert "gone: no such file or folder" in refused("predict", "run", "gone")
    assert "not read from stdin" in refused("predict", "run", "-", stdin="a.png\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("given", "--embedder", "local"), "embeds no images; use one that does, such as clip:"),
        (("gone", "--embedder", "onnx:network.onnx"), "gone"),
        (("given", "--embedder", "onnx:gone.onnx"), "no such file"),
        (("given", "--embedder", "onnx:network.onnx", "--generator", "openai:m"), "makes texts"),
        (("given", "--embedder", "onnx:network.onnx", "--generator", "pool:gone"), "gone"),
        (("given/red", "--embedder", "onnx:network.onnx"), "belongs to no class"),
    ],
)
def test_what_cannot_work_is_one_line(place, refused, arguments, message):
    task, *options = arguments
    assert message in refused("fit", task, "--run", "run", *options, *SETTINGS)
    assert not (place / "run" / "model.json").exists()


def test_a_run_in_the_folder_of_its_images_is_refused_and_never_a_class(place, adamab, refused):
    fit = ("--embedder", "onnx:network.onnx", "--generator", "transform", *SETTINGS)
    assert "lies in the folder of the images" in refused("fit", "given", "--run", "given/run", *fit)
    assert adamab("fit", "given", "--run", "run", *fit).exit_code == 0
    (place / "run").rename(place / "given" / "run")
    again = adamab("fit", "given", "--run", "other", *fit)
    assert "3 classes, 6 given samples" in again.stdout


def test_files_that_may_be_images_are_not_passed_over_in_silence(place, adamab):
    for name in ("a.heic", "b.heic", "noending", "notes.txt"):
        (place / "given" / "red" / name).write_bytes(b"x")
    fitted = adamab("fit", "given", "--run", "run", "--embedder", "onnx:network.onnx", *SETTINGS)
    assert "passed over 3 files that may be images (.heic 2, no ending 1)" in fitted.stderr


def test_images_are_rejected_by_path_or_reference(place, adamab):
    providers = ("--embedder", "onnx:network.onnx", "--generator", "transform")
    fit = ("fit", "given", "--run", "run", *providers, *SETTINGS)
    adamab(*fit)
    lines = (place / "run" / "synthetic.jsonl").read_text().splitlines()
    first, second = map(json.loads, lines[:2])
    (place / "bad.txt").write_text(f"{first['text']}\nrun/{second['image']}\n")
    again = adamab(*fit, "--reject", "bad.txt")
    assert again.exit_code == 0, again.output
    assert "2 samples rejected" in again.stderr
    left = (place / "run" / "synthetic.jsonl").read_text()
    assert first["text"] not in left
    assert second["text"] not in left


def test_web_addresses_are_never_paths(place, refused):
    run = ("--run", "https://example.org/run", "--embedder", "onnx:network.onnx")
    assert "is a web address" in refused("fit", "https://example.org/photos", "--run", "run")
    assert "is a web address" in refused("fit", "given", *run)
    assert not (place / "https:").exists()
