"""Sets that are scored once: their files, and that nobody can choose on them."""

import json

import pytest

from adamab.errors import TaskError
from adamab.testing import HashEmbedder
from experiments.datasets.score_once import BANKING77_COUNTS, load_banking77, load_clinc150
from experiments.out_of_scope import KEEP, measure, table


@pytest.fixture
def banking(tmp_path):
    folder = tmp_path / "banking77"
    folder.mkdir()
    training = [f"card number {i},card_arrival" for i in range(5)] + [
        f"pin of {i},change_pin" for i in range(5)
    ]
    training += ["where is my card?,card_arrival", "both,card_arrival", "both,change_pin"]
    testing = ["Where is my card,card_arrival", "a new pin,change_pin", "a new pin,change_pin"]
    for name, rows in (("train", training), ("test", testing)):
        (folder / f"{name}.csv").write_text("\n".join(["text,category", *rows]) + "\n")
    return tmp_path


@pytest.fixture
def clinc(tmp_path):
    folder = tmp_path / "clinc150"
    folder.mkdir()
    rows = {
        "train": [
            [f"{word} {i}", label] for word, label in (("fly", "book"), ("pay", "bill")) for i in range(6)
        ],
        "test": [["fly me", "book"], ["pay it", "bill"]],
        "oos_test": [["how tall is it", "oos"], ["why", "oos"]],
    }
    (folder / "data_full.json").write_text(json.dumps(rows))
    return tmp_path


def test_test_texts_are_in_no_other_part(banking):
    data = load_banking77(banking, expected=None)
    draw = data.draw(0, given=3)
    assert [sample.text for sample in draw.test] == ["Where is my card", "a new pin"]
    assert {name: len(texts) for name, texts in draw.pool.items()} == {"card_arrival": 2, "change_pin": 2}
    assert data.most_given() == {"card_arrival": 5, "change_pin": 5}  # no copies, nothing with two labels
    assert draw.task.classes[0].description is None


def test_there_is_nothing_to_choose_on(banking):
    data = load_banking77(banking, expected=None)
    for ask in (data.draw, data.pool_sizes, data.most_given):
        with pytest.raises(TaskError, match="scored once and has no development part"):
            ask(*([0] if ask == data.draw else []), part="development")


def test_other_files_are_refused(banking, clinc):
    with pytest.raises(TaskError, match="banking77: the files hold 13 train rows instead of 10,003"):
        load_banking77(banking, expected=BANKING77_COUNTS)
    (clinc / "clinc150" / "data_full.json").write_text("{}")
    with pytest.raises(TaskError, match="get it again"):
        load_clinc150(clinc)


def test_texts_of_no_class_are_judged(clinc):
    data = load_clinc150(clinc, expected=None)
    assert data.out_of_scope == ("how tall is it", "why")
    assert [spec.name for spec in data.specs] == ["bill", "book"]
    rows = list(measure(data, HashEmbedder(width=16), 5, 0))
    assert [row.promised for row in rows] == list(KEEP)
    assert all(0 <= row.caught <= 1 for row in rows)
    assert [line[:2] for line in table(rows).rows] == [("5", "95"), ("5", "90")]
