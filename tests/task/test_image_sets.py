import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from adamab.errors import AdamabError, TaskError
from adamab.task.image_set_names import FLOWERS
from adamab.task.image_sets import is_image_set, read_image_set

DATA = Path(os.environ.get("ADAMAB_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")
PETS = {"trainval.txt": ("Bombay_1 8 1 1", "Bombay_22 8 1 1", "saint_bernard_3 29 2 5")}
PETS["test.txt"] = ("saint_bernard_4 29 2 5", "Bombay_5 8 1 1")
BIRDS = {
    "classes.txt": ("1 001.Black_footed_Albatross", "2 002.Ani"),
    "images.txt": ("1 001.Black_footed_Albatross/a.jpg", "2 002.Ani/b.jpg", "3 002.Ani/c.jpg"),
    "image_class_labels.txt": ("1 1", "2 2", "3 2"),
    "train_test_split.txt": ("1 1", "2 0", "3 1"),
}


def put(folder, files, *pictures):
    for name, lines in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("\n".join(lines) + "\n")
    for picture in pictures:
        (folder / picture).parent.mkdir(parents=True, exist_ok=True)
        (folder / picture).write_bytes(b"opened by nobody here")


@pytest.fixture
def pets(tmp_path):
    listed = [line.split()[0] for lines in PETS.values() for line in lines]
    put(tmp_path / "annotations", {**PETS, "list.txt": ("#Image CLASS-ID SPECIES BREED ID",)})
    put(tmp_path / "images", {"Bombay_1.mat": ("x",)}, *(f"{name}.jpg" for name in listed), "stray_7.jpg")
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


def names(found):
    return [image.path.name for image in found]


def refused(spec, *words):
    with pytest.raises(TaskError) as raised:
        read_image_set(spec)
    message = str(raised.value)
    assert "\n" not in message
    assert all(word in message for word in words), message


def test_only_known_names_before_a_colon_are_data_sets():
    assert all(map(is_image_set, ("pets:x", "flowers102:a?split=all", "cub200:")))
    assert not any(map(is_image_set, ("pets", "pets.jsonl", "c:pets", "dogs:x", "")))


def test_pets_go_by_their_annotations(pets):
    found = read_image_set(f"pets:{pets}")
    assert names(found) == ["Bombay_1.jpg", "Bombay_22.jpg", "saint_bernard_3.jpg"]
    assert [image.class_name for image in found] == ["Bombay", "Bombay", "saint bernard"]
    assert {image.split for image in found} == {"train"}
    assert [spec.name for spec in found.classes] == ["Bombay", "saint bernard"]
    assert "cat" in found.classes[0].description
    assert "dog" in found.classes[1].description
    assert found.missing == 0


def test_splits_are_apart_and_training_is_the_default(pets):
    train, test, whole = (names(read_image_set(f"pets:{pets}?split={s}")) for s in ("train", "test", "all"))
    assert names(read_image_set(f"pets:{pets}")) == train
    assert not set(train) & set(test)
    assert whole == train + test


def test_flowers_train_is_train_and_val(flowers):
    found = read_image_set(f"flowers102:{flowers}")
    assert names(found) == ["image_00002.jpg", "image_00001.jpg", "image_00004.jpg"]
    assert [image.class_name for image in found] == [FLOWERS[0], FLOWERS[76], FLOWERS[101]]
    assert names(read_image_set(f"flowers102:{flowers}?split=test")) == ["image_00003.jpg", "image_00005.jpg"]
    assert [spec.name for spec in found.classes] == list(FLOWERS)
    assert len(set(FLOWERS)) == 102


def test_birds_go_by_their_four_lists(birds):
    found = read_image_set(f"cub200:{birds}")
    assert [(i.path.name, i.class_name) for i in found] == [
        ("a.jpg", "Black footed Albatross"),
        ("c.jpg", "Ani"),
    ]
    assert names(read_image_set(f"cub200:{birds}?split=test")) == ["b.jpg"]
    assert all(spec.name in spec.description for spec in found.classes)


def test_classes_are_in_official_order_whatever_the_order_of_the_lines(birds):
    put(birds, {"classes.txt": reversed(BIRDS["classes.txt"]), "images.txt": reversed(BIRDS["images.txt"])})
    found = read_image_set(f"cub200:{birds}?split=all")
    assert [spec.name for spec in found.classes] == ["Black footed Albatross", "Ani"]
    assert names(found) == ["a.jpg", "b.jpg", "c.jpg"]


@pytest.fixture
def many_pets(tmp_path):
    lines = [f"Bengal_{n} 1 1 1" for n in range(30)] + [f"pug_{n} 2 2 1" for n in range(2)]
    put(tmp_path / "annotations", {"trainval.txt": lines, "test.txt": ()})
    put(tmp_path / "images", {}, *(f"{line.split()[0]}.jpg" for line in lines))
    return tmp_path


def test_draw_takes_so_many_of_each_class_by_the_seed(many_pets):
    def drawn(options):
        return read_image_set(f"pets:{many_pets}?{options}")

    assert Counter(i.class_name for i in drawn("given=3&seed=1")) == {"Bengal": 3, "pug": 2}
    assert names(drawn("given=3&seed=1")) == names(drawn("given=3&seed=1"))
    assert names(drawn("given=3&seed=1")) != names(drawn("given=3&seed=2"))
    assert set(names(drawn("given=3&seed=1"))) < set(names(drawn("given=5&seed=1")))


def test_draw_does_not_depend_on_where_the_folder_is(many_pets, tmp_path_factory):
    before = names(read_image_set(f"pets:{many_pets}?given=9"))
    moved = tmp_path_factory.mktemp("moved") / "elsewhere"
    many_pets.rename(moved)
    assert names(read_image_set(f"pets:{moved}?given=9")) == before


def test_pictures_that_are_not_there_are_counted(pets):
    (pets / "images" / "Bombay_1.jpg").unlink()
    found = read_image_set(f"pets:{pets}")
    assert (len(found), found.missing) == (2, 1)


def test_no_picture_at_all_is_an_error(pets):
    for picture in (pets / "images").iterdir():
        picture.unlink()
    refused(f"pets:{pets}", str(pets), "none of the 3 pictures")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("Bombay_1 8 1", ("trainval.txt:2", "3 fields")),
        ("Bombay_9 eight 1 1", ("trainval.txt:2", "'eight'")),
        ("Bombay_9 -8 1 1", ("trainval.txt:2", "'-8'")),
        ("Bombay_9 ٨ 1 1", ("trainval.txt:2", "whole number")),
        ("Bombay_9 8 3 1", ("trainval.txt:2", "species")),
        ("nobreed 8 1 1", ("trainval.txt:2", "'nobreed'")),
        ("pug_9 8 1 1", ("trainval.txt:2", "'pug'", "'Bombay'")),
        ("Bombay_1 8 1 1", ("trainval.txt:2", "trainval.txt:1", "again")),
        ("../../Bombay_1 9 1 1", ("trainval.txt:2", "'../../Bombay_1.jpg'")),
        ("/etc/Bombay_1 9 1 1", ("trainval.txt:2", "below the folder")),
        ("..\\Bombay_1 9 1 1", ("trainval.txt:2", "below the folder")),
        ("Bom\x1bbay_1 9 1 1", ("trainval.txt:2", "below the folder")),
    ],
)
def test_a_bad_line_is_named(pets, line, words):
    put(pets / "annotations", {"trainval.txt": ("Bombay_1 8 1 1", line)})
    refused(f"pets:{pets}", *words)


def test_a_picture_in_both_splits_is_refused(pets):
    put(pets / "annotations", {"test.txt": ("Bombay_1 8 1 1",)})
    refused(f"pets:{pets}", "test.txt:1", "trainval.txt:1")


@pytest.mark.parametrize(
    ("file", "lines", "words"),
    [
        ("images.txt", ("1 ../../../etc/passwd",), ("images.txt:1", "below the folder")),
        ("images.txt", ("1 /etc/passwd",), ("images.txt:1", "below the folder")),
        ("images.txt", ("1 a.jpg", "1 b.jpg"), ("images.txt:2", "number 1")),
        ("images.txt", ("1 a b.jpg",), ("images.txt:1", "3 fields")),
        ("images.txt", ("9 002.Ani/b.jpg",), ("images.txt:1", "image_class_labels.txt")),
        ("train_test_split.txt", ("1 1", "2 0"), ("images.txt:3", "train_test_split.txt")),
        ("train_test_split.txt", ("1 2", "2 0", "3 0"), ("train_test_split.txt:1", "'2'")),
        ("image_class_labels.txt", ("1 7", "2 2", "3 2"), ("image_class_labels.txt:1", "class 7")),
    ],
)
def test_lists_of_birds_that_do_not_fit_are_named(birds, file, lines, words):
    put(birds, {file: lines})
    refused(f"cub200:{birds}", *words)


@pytest.mark.parametrize("file", list(BIRDS))
def test_a_missing_list_is_named(birds, file):
    (birds / file).unlink()
    refused(f"cub200:{birds}", file, "no such file")


@pytest.mark.parametrize("damage", [b"", b"not a MATLAB file", b"MATLAB 5.0 MAT-file" + bytes(200)])
def test_a_damaged_matlab_file_is_one_line(flowers, damage):
    (flowers / "setid.mat").write_bytes(damage)
    refused(f"flowers102:{flowers}", "setid.mat")


def test_a_truncated_matlab_file_is_one_line_wherever_it_ends(flowers):
    whole = (flowers / "imagelabels.mat").read_bytes()
    for end in range(0, len(whole), 7):
        (flowers / "imagelabels.mat").write_bytes(whole[:end])
        refused(f"flowers102:{flowers}", "imagelabels.mat")


@pytest.mark.parametrize(
    ("file", "variables", "words"),
    [
        ("setid.mat", {"trnid": [[1]], "valid": [[2]]}, ("'tstid'",)),
        ("setid.mat", {"trnid": [[1]], "valid": [[2]], "tstid": [[6]]}, ("picture 6", "knows 5")),
        ("setid.mat", {"trnid": [[1]], "valid": [[2]], "tstid": [[0]]}, ("picture 0",)),
        ("setid.mat", {"trnid": [[1]], "valid": [[2]], "tstid": [[1]]}, ("image_00001.jpg", "again")),
        ("setid.mat", {"trnid": [[1.5]], "valid": [[2]], "tstid": [[3]]}, ("whole numbers",)),
        ("imagelabels.mat", {"labels": [[103, 1]]}, ("1 to 102",)),
        ("imagelabels.mat", {"labels": "text"}, ("whole numbers",)),
        ("imagelabels.mat", {"labels": [[np.nan]]}, ("whole numbers",)),
    ],
)
def test_numbers_that_do_not_fit_are_named(flowers, file, variables, words):
    savemat(flowers / file, variables)
    refused(f"flowers102:{flowers}", file, *words)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("dogs:{0}", ("'dogs", "pets")),
        ("pets:", ("pets:DIR",)),
        ("pets:{0}/nowhere", ("nowhere", "no such folder")),
        ("pets:{0}?split=val", ("'val'",)),
        ("pets:{0}?splitt=test", ("'splitt'", "'split'")),
        ("pets:{0}?given=some", ("'some'",)),
        ("pets:{0}?given=0", ("given=3",)),
        ("pets:{0}?seed=1", ("given=3",)),
        ("pets:{0}?given=1&seed=-1", ("'-1'",)),
        ("flowers102:{0}", ("imagelabels.mat", "no such file")),
    ],
)
def test_a_spec_that_cannot_be_followed_says_why(pets, spec, words):
    refused(spec.format(pets), *words)


def test_an_option_twice_is_refused(pets):
    with pytest.raises(AdamabError, match="twice"):
        read_image_set(f"pets:{pets}?split=test&split=train")


@pytest.mark.parametrize(
    ("name", "folder", "n_classes", "train", "test"),
    [
        ("pets", "oxford_pets", 37, 148, 111),
        ("flowers102", "flowers102", 102, 306, 102),
        ("cub200", "cub200", 200, 400, 200),
    ],
)
def test_the_published_layouts(name, folder, n_classes, train, test):
    mini = DATA / folder / "mini"
    if not mini.is_dir():
        pytest.skip(f"no folder {mini}")
    found = {split: read_image_set(f"{name}:{mini}?split={split}") for split in ("train", "test")}
    assert (len(found["train"]), len(found["test"])) == (train, test)
    assert len(found["train"].classes) == n_classes
    assert {image.class_name for image in found["test"]} == {spec.name for spec in found["test"].classes}
    features = DATA / folder / "mobilenetv2.npz"
    if features.exists():
        with np.load(features) as arrays:
            assert [spec.name for spec in found["train"].classes] == arrays["labels"].tolist()
