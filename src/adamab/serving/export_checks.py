"""Rows on which an export is compared with NumPy: random ones, and real ones where that costs nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from adamab.classifier.classifier import WORDS
from adamab.errors import AdamabError, ImageError, RunError
from adamab.run.directory import SYNTHETIC
from adamab.task.messages import place
from adamab.task.spec import Sample

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from adamab.classifier import Classifier
    from adamab.run.inference import Inference
    from adamab.serving.export_recall import Recall

    Floats = NDArray[np.float32]

_RANDOM, _REAL = 64, 32
_LONGEST = 12  # terms of a random text


@dataclass(frozen=True)
class Rows:
    """Inputs of a classifier, and what they are."""

    views: Mapping[str, Floats]  # (n, d) each
    texts: list[str] | None  # where there is a vocabulary
    parts: Mapping[str, int]  # what the first rows are and how many, then the next

    def __str__(self) -> str:
        return " and ".join(f"{count} {what}" for what, count in self.parts.items())


@dataclass(frozen=True)
class Verdict:
    """What was checked, and by how much the export differs from NumPy at most; None if it was not run."""

    said: str
    worst: float | None
    recall: Sequence[Recall] = ()  # of an index


def check_rows(classifier: Classifier, run: Path, embedder: str | None) -> Rows:
    """Random rows, and real ones if an embedder of this machine is at hand: no call is made for a check."""
    random = random_rows(classifier)
    samples = _samples(classifier, run)
    inference = _at_hand(run, embedder)
    if inference is None or not samples:
        return random
    try:
        real = inference.views(samples)
    except AdamabError:  # vectors that are looked up, and not there: the random ones remain
        return random
    views = {view: np.concatenate([random.views[view], real[view]]) for view in classifier.views}
    texts = None if random.texts is None else [*random.texts, *(sample.text for sample in samples)]
    noun = "sample" if len(samples) == 1 else "samples"
    return Rows(views, texts, {**random.parts, f"embedded {noun}": len(samples)})


def random_rows(classifier: Classifier) -> Rows:
    """Directions at random, and the rows where a norm is zero: nothing at all, and the centre itself."""
    rng = np.random.default_rng(0)
    views = {}
    for head in classifier.heads:
        if head.view != WORDS and head.view not in views:
            rows = rng.standard_normal((_RANDOM, head.width)).astype(np.float32)
            rows /= np.linalg.norm(rows, axis=1, keepdims=True)
            rows[0] = 0
            rows[1] = 0 if head.centre is None else head.centre
            views[head.view] = rows
    terms = None if classifier.vocabulary is None else classifier.vocabulary.terms
    texts = None if terms is None else ["", *(_random_text(rng, terms) for _ in range(_RANDOM - 1))]
    return Rows(views, texts, {"random rows": _RANDOM})


def dense_inputs(classifier: Classifier, rows: Rows) -> dict[str, Floats]:
    """Every view as a matrix, the words as well."""
    inputs = dict(rows.views)
    if classifier.vocabulary is not None and rows.texts is not None:
        inputs[WORDS] = classifier.vocabulary.transform(rows.texts).toarray()
    return inputs


def worst_difference(
    classifier: Classifier,
    rows: Rows,
    *,
    logits: Floats,
    probabilities: Floats,
    tolerance: float,
    by: str,
) -> float:
    """Of the probabilities (n, K); refused above `tolerance`, and so are logits, by their largest one."""
    ours = classifier.logits(rows.views, rows.texts)
    scale = 1 + float(np.abs(ours).max())
    off = float(np.abs(probabilities - classifier.predict_proba(rows.views, rows.texts)).max())
    off_logits = float(np.abs(logits - ours).max())
    # Written so that a value that is no number is refused too.
    if not (off <= tolerance and off_logits <= tolerance * scale):
        raise RunError(
            f"{by} differs from NumPy by {off:.2g} in a probability and {off_logits:.2g} in a logit "
            f"(at most {tolerance:g}); nothing was written, please report it"
        )
    return off


def _random_text(rng: np.random.Generator, terms: tuple[str, ...]) -> str:
    if not terms:
        return ""
    return " ".join(terms[index] for index in rng.integers(len(terms), size=rng.integers(1, _LONGEST)))


def _at_hand(run: Path, embedder: str | None) -> Inference | None:
    from adamab.run.inference import Inference

    try:
        inference = Inference.open(run, embedder)
    except AdamabError:
        if embedder is not None:  # whoever names one wants to know
            raise
        return None
    return None if inference.remote else inference


def _samples(classifier: Classifier, run: Path) -> list[Sample]:
    """Synthetic samples of the run, or else the classes' names as texts; pictures only if there are some."""
    read = (_sample(run, row) for row in _lines(run / SYNTHETIC))
    found = [sample for sample in read if sample is not None]
    if found or classifier.metadata.get("modality") == "image":
        return found
    return [Sample(name, name) for name in classifier.classes[:_REAL]]


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():  # a saved model without a run
        return []
    try:
        with open(path, encoding="utf-8") as stream:
            return [json.loads(line) for line, _ in zip(stream, range(_REAL), strict=False)]
    except (OSError, ValueError):
        raise RunError(f"{place(path)}: is damaged; fit again") from None


def _sample(run: Path, row: Mapping[str, Any]) -> Sample | None:
    try:
        if "image" not in row:
            return Sample(row["text"], row["label"])
        from adamab.task.image_folders import image_at

        return Sample.of_image(image_at(run / row["image"]), row["label"])
    except ImageError:  # a picture that is gone is no reason to export nothing
        return None
    except (KeyError, TypeError):
        raise RunError(f"{place(run / SYNTHETIC)}: is damaged; fit again") from None
