"""SetFit on a tiny random model, where the library is installed."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from adamab.compare import SetFit, TrainingData
from adamab.errors import MissingExtraError, TaskError

TEXTS = ["send my money back", "refund please", "the app crashes", "crashes when i open it", "hello world"]
LABELS = ["refund", "refund", "bug", "bug", "greeting"]
CLASSES = ("refund", "nothing", "bug", "greeting")


def data_of(texts=TEXTS, labels=LABELS):
    return TrainingData({"pooled": np.zeros((len(labels), 2))}, labels, CLASSES, texts=texts)


def test_it_trains_the_encoder_in_silence_and_leaves_nothing(tiny_model, tmp_path, monkeypatch, capfd):
    pytest.importorskip("setfit", reason="the extra 'baselines' is not installed")
    monkeypatch.chdir(tmp_path)
    before = sorted(tiny_model.rglob("*"))
    first, second = (SetFit(model=str(tiny_model), random_state=1).fit(data_of()) for _ in range(2))
    probabilities = first.predict_proba({}, ["refund my money", "hello"])
    assert probabilities.shape == (2, 4)
    assert (probabilities[:, 1] == 0).all()
    np.testing.assert_array_equal(probabilities, second.predict_proba({}, ["refund my money", "hello"]))
    assert first.n_parameters_ > 1000
    assert first.fit_seconds_ > 0
    assert list(tmp_path.iterdir()) == []
    assert sorted(tiny_model.rglob("*")) == before
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")


def test_a_pickled_head_in_the_folder_is_not_opened(tiny_model, tmp_path):
    pytest.importorskip("setfit", reason="the extra 'baselines' is not installed")
    import shutil

    folder = tmp_path / "model"
    shutil.copytree(tiny_model, folder)
    (folder / "model_head.pkl").write_bytes(b"cos\nsystem\n(S'touch owned'\ntR.")
    SetFit(model=str(folder), max_steps=1).fit(data_of())
    assert not Path("owned").exists()


def test_what_is_missing_is_told(tmp_path):
    with pytest.raises(TaskError, match="it reads texts, 0 for 5 labels"):
        SetFit().fit(data_of(texts=()))
    with pytest.raises(TaskError, match="at least two classes"):
        SetFit().fit(data_of(TEXTS[:2], LABELS[:2]))
    if find_spec("setfit") is None:
        with pytest.raises(MissingExtraError, match=r"adamab\[baselines\]"):
            SetFit().fit(data_of())
    else:
        with pytest.raises(TaskError, match="is no folder"):
            SetFit(model=str(tmp_path / "none")).fit(data_of())
