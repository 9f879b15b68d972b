"""Which rows of a chunk have an answer, and which an error."""

from types import SimpleNamespace

import numpy as np
import pytest

from adamab.errors import ImageError
from adamab.model.classifier import Answers, PredictOptions
from adamab.predict import CHUNK
from adamab.predict.predictor import Predictor, Question
from adamab.predict.readers import Source
from adamab.providers.embedders.base import TextError
from adamab.task.tables import Row


class Picky:
    """Takes texts that begin with "good", and tells of another one: the first, the last, or one unnamed."""

    embedder, remote = None, False
    classifier = SimpleNamespace(classes=["a", "b"])

    def __init__(self, which):
        self.which, self.taken = which, []

    def answers(self, rows, options):
        broken = [number for number, row in enumerate(rows) if not row.text.startswith("good")]
        if broken and self.which is None:
            raise ImageError("one of them is no image")
        if broken:
            raise TextError("toy", broken[self.which], "is too large")
        self.taken += [row.text for row in rows]
        shape = (len(rows), 1)
        return Answers(np.zeros(shape, np.int64), np.ones(shape, np.float32), None, None)


@pytest.mark.parametrize("which", [0, -1, None])
def test_any_number_of_broken_rows_is_told_each_beside_its_own(which):
    texts = [f"good {n}" if n % 50 == 7 else f"bad {n}" for n in range(CHUNK)]
    inference = Picky(which)
    source = Source("in.txt", "in.txt", "txt", "text")
    answers = Predictor(Question("run", "in.txt", None, PredictOptions()), inference).answers(
        source, [Row(source.place, 1, {"text": text}) for text in texts]
    )
    assert [text for text, answer in zip(texts, answers, strict=True) if "error" not in answer] == [
        text for text in texts if text.startswith("good")
    ]
    assert inference.taken == [text for text in texts if text.startswith("good")]
