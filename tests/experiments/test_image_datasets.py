import numpy as np
import pytest

from adamab.errors import TaskError
from experiments.datasets.base import data_directory
from experiments.datasets.image_sets import features_file, load_features


def put(data, name="pets", **changes):
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
    path = put(tmp_path, **changes)
    with pytest.raises(TaskError, match=words) as raised:
        load_features("pets", tmp_path)
    assert str(path) in str(raised.value)


def test_a_damaged_or_missing_file_is_one_line(tmp_path):
    with pytest.raises(TaskError, match="no such file"):
        load_features("pets", tmp_path)
    path = put(tmp_path)
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
