"""The published layouts of the image sets; folders drawn here, and the small sets where they are."""

import numpy as np
import pytest
from scipy.io import savemat

from adamab.errors import TaskError
from experiments.datasets.base import data_directory
from experiments.datasets.image_files import FLOWERS, read_image_set
from experiments.datasets.image_sets import features_file, load_features

PETS = {
    "trainval.txt": (
        "#Image CLASS SPECIES BREED",
        "Bombay_1 8 1 1",
        "Bombay_22 8 1 1",
        "saint_bernard_3 29 2 5",
    ),
    "test.txt": ("saint_bernard_4 29 2 5", "Bombay_5 8 1 1"),
}
BIRDS = {
    "classes.txt": ("2 002.Ani", "1 001.Black_footed_Albatross"),
    "images.txt": ("3 002.Ani/c.jpg", "1 001.Black_footed_Albatross/a.jpg", "2 002.Ani/b.jpg"),
    "image_class_labels.txt": ("1 1", "2 2", "3 2"),
    "train_test_split.txt": ("1 1", "2 0", "3 1"),
}


def put(folder, files, *images):
    for name, lines in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("\n".join(lines) + "\n")
    for image in images:
        (folder / image).parent.mkdir(parents=True, exist_ok=True)
        (folder / image).write_bytes(b"opened by nobody here")


@pytest.fixture
def pets(tmp_path):
    put(tmp_path / "annotations", PETS)
    listed = [line.split()[0] for lines in PETS.values() for line in lines if line[0] != "#"]
    put(tmp_path / "images", {}, *(f"{name}.jpg" for name in listed), "stray_7.jpg")
    return tmp_path


@pytest.fixture
def flowers(tmp_path):
    savemat(tmp_path / "imagelabels.mat", {"labels": np.array([[77, 1, 1, 102, 77]], np.uint8)})
    splits = {"trnid": [[2]], "valid": [[1, 4]], "tstid": [[3, 5]]}
    savemat(tmp_path / "setid.mat", {key: np.array(ids, np.uint16) for key, ids in splits.items()})
    put(tmp_path / "jpg", {}, *(f"image_{n:05d}.jpg" for n in range(1, 6)))
    return tmp_path


@pytest.fixture
def birds(tmp_path):
    put(tmp_path, BIRDS)
    put(tmp_path / "images", {}, *(line.split()[1] for line in BIRDS["images.txt"]))
    return tmp_path


def files(image_set, split):
    return [(path.name, class_name) for path, class_name in image_set.of_split(split)]


def refused(name, folder, *words):
    with pytest.raises(TaskError) as raised:
        read_image_set(name, folder)
    message = str(raised.value)
    assert "\n" not in message
    assert all(word in message for word in words), message


def test_pets_go_by_their_annotations(pets):
    (pets / "images" / "Bombay_22.jpg").unlink()  # what the folder lacks is left out
    read = read_image_set("pets", pets)
    assert files(read, "train") == [("Bombay_1.jpg", "Bombay"), ("saint_bernard_3.jpg", "saint bernard")]
    assert files(read, "test") == [("saint_bernard_4.jpg", "saint bernard"), ("Bombay_5.jpg", "Bombay")]
    cat, dog = read.classes.values()
    assert (cat.name, dog.name) == ("Bombay", "saint bernard")
    assert "cat" in cat.description
    assert "dog" in dog.description


def test_flowers_train_is_train_and_val(flowers):
    read = read_image_set("flowers102", flowers)
    assert files(read, "train") == [
        ("image_00002.jpg", FLOWERS[0]),
        ("image_00001.jpg", FLOWERS[76]),
        ("image_00004.jpg", FLOWERS[101]),
    ]
    assert [name for name, _ in files(read, "test")] == ["image_00003.jpg", "image_00005.jpg"]
    assert len(set(FLOWERS)) == len(read.classes) == 102


def test_birds_go_by_number_whatever_the_order_of_the_lines(birds):
    read = read_image_set("cub200", birds)
    assert files(read, "train") == [("a.jpg", "Black footed Albatross"), ("c.jpg", "Ani")]
    assert files(read, "test") == [("b.jpg", "Ani")]
    assert [spec.name for spec in read.classes.values()] == ["Black footed Albatross", "Ani"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("Bombay_1 8 1", "trainval.txt:2: 3 fields"),
        ("Bombay_9 8 3 1", "do not fit (3)"),  # neither a cat nor a dog
        ("Bombay_1 8 1 1", "twice"),
        ("../../Bombay_1 9 1 1", "not below the folder"),
        ("/etc/Bombay_1 9 1 1", "not below the folder"),
        ("..\\Bombay_1 9 1 1", "not below the folder"),
    ],
)
def test_a_bad_line_of_pets_is_refused(pets, line, words):
    put(pets / "annotations", {"trainval.txt": ("Bombay_1 8 1 1", line)})
    refused("pets", pets, words)


def test_a_damaged_matlab_file_is_one_line_wherever_it_ends(flowers):
    whole = (flowers / "imagelabels.mat").read_bytes()
    for damaged in (b"not a MATLAB file", *(whole[:end] for end in range(0, len(whole), 31))):
        (flowers / "imagelabels.mat").write_bytes(damaged)
        refused("flowers102", flowers, "imagelabels.mat")
    refused("flowers102", flowers / "nowhere", "no such folder")


def put_features(data, name="pets", **changes):
    arrays = {
        "X": np.eye(6, 4, dtype=np.float16) + np.float16(0.01),
        "y": np.array([0, 1, 0, 1, 0, 1], np.int16),
        "split": np.array(["trainval", "trainval", "trainval", "test", "test", "test"]),
        "labels": np.array(["cat", "dog"]),
    }
    path = features_file(name, data)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **{key: value for key, value in {**arrays, **changes}.items() if value is not None})
    return path


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"y": None}, "lacks the array 'y'"),
        ({"y": np.zeros(2, np.int16)}, "one length"),
        ({"X": np.full((6, 2), np.nan)}, "not finite"),
        ({"y": np.full(6, 2)}, "no name"),
        ({"labels": np.array([object(), None])}, "cannot be read"),  # a pickle
    ],
)
def test_features_that_do_not_fit_are_refused_by_name(tmp_path, changes, words):
    path = put_features(tmp_path, **changes)
    with pytest.raises(TaskError, match=words) as raised:
        load_features("pets", tmp_path)
    assert str(path) in str(raised.value)


def test_a_damaged_or_missing_file_is_one_line(tmp_path):
    with pytest.raises(TaskError, match="no such file"):
        load_features("pets", tmp_path)
    path = put_features(tmp_path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(TaskError, match=r"mobilenetv2\.npz: cannot be read"):
        load_features("pets", tmp_path)


def test_data_are_where_somebody_says_then_where_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ADAMAB_DATA", "elsewhere")
    assert data_directory(tmp_path) == tmp_path
    assert data_directory().name == "elsewhere"
    monkeypatch.delenv("ADAMAB_DATA")
    with pytest.raises(TaskError, match="--data"):
        data_directory()
