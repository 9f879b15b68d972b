"""Small classifiers, and the formula they stand for written down once more."""

import numpy as np
import pytest

from adamab.model import Classifier, Confidence
from adamab.task.words import Vocabulary
from tests.model.make_fixtures import head as random_head

TEXTS = ["refund my order", "where is my parcel", "the parcel is late", "refund please", "cancel it all"]


@pytest.fixture
def make_head():
    rng = np.random.default_rng(0)
    return lambda **options: random_head(rng, **options)


@pytest.fixture(scope="session")
def model():
    """Two views of the embedder's and the words."""
    rng = np.random.default_rng(1)
    vocabulary = Vocabulary.learn(TEXTS)
    words = len(vocabulary.terms)
    return Classifier(
        classes=("billing", "délai", "配送"),
        heads=(
            random_head(rng, layers=(4, 5), centre=True, normalise=True),
            random_head(rng, view="layers", width=5, rank=2, bias=True, normalise=True),
            random_head(rng, view="words", width=words, rank=3, layers=(2,), centre=True, activation="silu"),
        ),
        vocabulary=vocabulary,
        embedder_spec="st:models/mini",
        fingerprint="st:0123456789abcdef:head:1",
        query_prompt="query: {text}",
        metadata={"recipe": {"rate": 0.1, "views": ["pooled", None]}, "estimate": 0.75, "rounds": 3},
        confidence=Confidence(
            seen=(5.0, 3.5, 1.0), temperature=1.25, n=2, strangeness=(-2.5, -1.5), surprise=(0.25, 3.0)
        ),
    )


@pytest.fixture(scope="session")
def texts():
    return TEXTS


@pytest.fixture(scope="session")
def views():
    rng = np.random.default_rng(2)
    return {
        name: rng.standard_normal((5, d)).astype(np.float32) for name, d in {"pooled": 7, "layers": 5}.items()
    }
