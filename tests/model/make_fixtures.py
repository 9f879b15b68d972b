"""Writes the models that `test_lasting.py` opens for ever: `python tests/model/make_fixtures.py`.

Run it once at a release, with that release's code: it fills tests/model/fixtures/VERSION and refuses to
change a folder that is there. Each case is a saved model beside `expected.json`: inputs, and what the code of
that day said of them. The models are random and small, but every kind of part is in one of them.
"""

import itertools
import json
import sys
from pathlib import Path

import numpy as np

from adamab.model import Classifier, Confidence, Head, save
from adamab.task.words import Vocabulary
from adamab.version import __version__

FIXTURES = Path(__file__).parent / "fixtures"
TEXTS = ["refund my order", "where is my parcel?", "der Käse ist weg", "退款吗", "nothing of it is known"]
LEARNT = ["refund my order please", "my parcel is late", "Käse", "退款"]


def main(folder):
    """Write every case into `folder`, which must be new."""
    folder.mkdir(parents=True)
    for name, (classifier, asked) in cases().items():
        save(classifier, folder / name)
        text = json.dumps(expected(classifier, asked), ensure_ascii=False, indent=1)
        (folder / name / "expected.json").write_text(text + "\n", encoding="utf-8")


def expected(classifier, asked):
    """Inputs, and the answers to them; `asked` adds those that need held-out samples."""
    rng = np.random.default_rng(8)
    widths = {head.view: head.width for head in classifier.heads if head.view != "words"}
    views = {
        view: rng.standard_normal((len(TEXTS), width)).astype(np.float32) for view, width in widths.items()
    }
    answers = {
        "texts": TEXTS,
        "views": {view: rows.tolist() for view, rows in views.items()},
        "classes": list(classifier.classes),
        "embedder": [classifier.embedder_spec, classifier.fingerprint, classifier.query_prompt],
        "metadata": classifier.metadata,
        "probabilities": classifier.predict_proba(views, TEXTS).tolist(),
        "predicted": classifier.predict(views, TEXTS),
    }
    if asked:
        answers["with_unknown"] = classifier.predict(views, TEXTS, unknown=0.5)
        answers["sets"] = [list(names) for names in classifier.predict_sets(views, TEXTS, coverage=0.5)]
        answers["with_priors"] = classifier.predict_proba(views, TEXTS, priors={"délai": 0.8}).tolist()
    return answers


def cases():
    """A plain one, one with hidden layers, one with words, one that knows how sure it may be."""
    rng = np.random.default_rng(7)
    plain = Classifier(classes=("no", "yes"), heads=(head(rng, classes=2),))
    hidden = Classifier(
        classes=("billing", "délai", "配送"),
        heads=tuple(
            head(rng, layers=(4, 5), activation=activation, centre=True, normalise=True)
            for activation in ("relu", "gelu", "silu", "tanh")
        ),
        metadata={"modality": "image", "labels": [1, 2, 3]},
    )
    all_cases = {"plain": (plain, False), "hidden": (hidden, False)}
    all_cases["words"] = (with_words(rng), False)
    confidence = Confidence(
        seen=(5.0, 3.5, 1.0), temperature=1.25, n=3, strangeness=(-4.5, -2.2, -1.2), surprise=(0.25, 2.0, 3.0)
    )
    all_cases["confidence"] = (with_words(rng, confidence=confidence), True)
    return all_cases


def with_words(rng, **more):
    """Two views of an embedder and the words."""
    vocabulary = Vocabulary.learn(LEARNT)
    words = len(vocabulary.terms)
    return Classifier(
        classes=("billing", "délai", "配送"),
        heads=(
            head(rng, layers=(4, 5), centre=True, normalise=True),
            head(rng, view="layers", width=5, rank=2, bias=True, normalise=True),
            head(rng, view="words", width=words, rank=3, layers=(2,), centre=True, normalise=True),
        ),
        vocabulary=vocabulary,
        embedder_spec="st:models/mini",
        fingerprint="st:0123456789abcdef:head:1",
        query_prompt="query: {text}",
        metadata={"recipe": {"name": "default", "views": ["pooled", None]}, "out_of_fold": None, "seed": 3},
        **more,
    )


def head(rng, *, view="pooled", classes=3, width=7, **more):
    """A random one; `more`: layers, rank, bias, centre, normalise, activation."""

    def array(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    sizes = [more.get("rank") or width, *more.get("layers", ())]
    return Head(
        view=view,
        linear=array(classes, sizes[0]),
        hidden=array(classes, sizes[-1]) if len(sizes) > 1 else None,
        bias=array(classes) if more.get("bias") else None,
        tower=tuple(array(b, a) for a, b in itertools.pairwise(sizes)),
        activation=more.get("activation", "relu"),
        centre=array(width) if more.get("centre") else None,
        normalise=more.get("normalise", False),
        basis=array(width, more["rank"]) if more.get("rank") else None,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FIXTURES / __version__)
