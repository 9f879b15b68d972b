"""What a model card says that its model cannot do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adamab.classifier import Classifier


def limits(classifier: Classifier, summary: Mapping[str, Any], *, added: int = 0) -> Iterator[str]:
    """One list item each; `added` counts the classes that came after the fit."""
    picture = classifier.metadata.get("modality") == "image"
    yield f"- A {'picture' if picture else 'text'} has one class here, not several."
    yield _unknown(classifier)
    if not picture:
        yield (
            "- It understands the languages that its embedder understands, and was judged on the languages "
            "of the given samples only."
        )
    yield "- It was fitted on few samples. Where inputs differ from these, expect it to be worse."
    if added:
        yield (
            f"- {added} of {len(classifier.classes)} classes {'was' if added == 1 else 'were'} added after "
            "the fit, without training. Expect such a class to be recognised less well, and fit again."
        )
    yield from _synthetic(summary)
    if overlong := summary.get("overlong"):
        yield f"- {int(overlong)} of the texts in training were longer than the embedder takes."
    yield from _probabilities(classifier)


def _unknown(classifier: Classifier) -> str:
    known = "- An input of no class gets one all the same"
    if classifier.confidence is None or not classifier.confidence.n:
        return f"{known}: nothing was held out, so it cannot answer `unknown`."
    return (
        f"{known}, unless you ask for `unknown` (`predict(..., unknown=0.95)`). The threshold comes from "
        f"{classifier.confidence.n} held-out given samples, not from samples of no class."
    )


def _synthetic(summary: Mapping[str, Any]) -> Iterator[str]:
    if synthetic := sum(summary.get("synthetic_by_class", {}).values()):
        given = summary.get("given")
        share = f"{synthetic}" if given is None else f"{synthetic} of {synthetic + given}"
        yield (
            f"- {share} training samples are synthetic. What their generator gets wrong, or leaves out, the "
            "model may have learnt."
        )


def _probabilities(classifier: Classifier) -> Iterator[str]:
    if classifier.confidence is None or not classifier.confidence.n:
        yield "- Its probabilities were not calibrated on held-out samples."
    else:
        yield (
            f"- Its probabilities were calibrated on {classifier.confidence.n} held-out samples, at the "
            "classes' shares in training; state other shares with `priors`."
        )
