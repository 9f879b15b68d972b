"""`adamab evaluate`: how good a run is on labelled texts or pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from adamab.cli.asking import NOTHING_HELD_OUT, Prior, asked_for, notes
from adamab.cli.console import (
    NOUNS,
    counted,
    echo,
    percent,
    print_json,
    print_table,
    progress,
    say,
    say_missing,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from adamab.cli.reliability import Reliability
    from adamab.run.inference import Inference
    from adamab.run.resolve import HasText
    from adamab.study.evaluation import ClassFigures, Evaluation, Figure
    from adamab.task import Sample

    Logits: TypeAlias = NDArray[np.float32]

CHUNK = 512
_SHOWN = 10
_MANY, _MOST_ROWS = 100, 30  # of more classes than that, only so many are printed


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, or a saved model's.")],
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="JSONL, CSV or TSV with text and label; of pictures with image and label, or folders.",
        ),
    ],
    prior: Prior = None,
    unknown: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Judge answers of unknown that keep this share, such as 0.95."),
    ] = None,
    out_of_scope: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Inputs of no class, as predict reads them; goes with --unknown."),
    ] = None,
    coverage: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Judge sets that hold the right class this often, such as 0.9."),
    ] = None,
    embedder: Annotated[
        str | None, typer.Option(metavar="SPEC", help="Instead of the one that the model names.")
    ] = None,
    skip_unknown: Annotated[
        bool, typer.Option("--skip-unknown", help="Leave out rows of classes that the model does not know.")
    ] = False,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Neither read nor store vectors.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Accuracy, macro-F1 and calibration on labelled samples, with intervals, and what is confused."""
    import numpy as np

    from adamab.classifier.confidence import softmax
    from adamab.cli.fit_summary import long_text_warning
    from adamab.cli.reliability import checked_offsets, reliability
    from adamab.errors import TaskError
    from adamab.run.inference import Inference
    from adamab.study.evaluation import evaluate as judge
    from adamab.task import read_image_samples, read_samples

    asked = asked_for(1, prior, unknown, coverage)
    if out_of_scope is not None and unknown is None:
        raise TaskError("--out-of-scope goes with --unknown SHARE; add it, such as --unknown 0.95")
    inference = Inference.open(run, embedder, cache=not no_cache)
    classifier, classes = inference.classifier, inference.classifier.classes
    offsets = checked_offsets(classifier, asked)
    samples = read_image_samples(data) if inference.modality == "image" else read_samples(data)
    missing = say_missing(data) if inference.modality == "image" else 0
    known = _known(data, samples, classes, skip_unknown)
    index = {name: number for number, name in enumerate(classes)}
    truth = np.array([index[sample.class_name] for sample in known], np.int64)
    logits = _logits(inference, known)
    others = None if out_of_scope is None else _logits(inference, _others(inference, out_of_scope))
    result = judge(softmax(logits + offsets), truth, classes)
    more = reliability(logits, truth, others, classifier.confidence, asked, offsets)
    skipped = len(samples) - len(known)
    for note in notes(classifier.confidence, asked):
        say(note)
    if as_json:
        left_out = {"skipped": skipped, "missing": missing, "overlong": inference.overlong}
        print_json({**result.to_json(), **more.to_json(), **left_out})
        return
    _print(result, more, skipped, NOUNS[inference.modality])
    if more.before is None:
        say(NOTHING_HELD_OUT)
    if warning := long_text_warning(inference.overlong, classifier.embedder_spec):
        say(warning)


def _others(inference: Inference, source: str) -> Sequence[HasText]:
    if inference.modality == "text":
        from adamab.cli.prediction_files import read_rows

        return list(read_rows(source))
    from adamab.cli.image_rows import read_image_rows

    return list(read_image_rows(source, None, None))


def _known(
    data: str, samples: Sequence[Sample], classes: Sequence[str], skip_unknown: bool
) -> Sequence[Sample]:
    from adamab.errors import TaskError
    from adamab.task.messages import place, short

    names = set(classes)
    known = [sample for sample in samples if sample.class_name in names]
    unknown = Counter(sample.class_name for sample in samples if sample.class_name not in names)
    if unknown and not (skip_unknown and known):
        named = ", ".join(f"{short(name)} ({count})" for name, count in unknown.most_common(3))
        remedy = "leave them out with --skip-unknown" if known else "is this the right file?"
        raise TaskError(
            f"{place(data)}: {unknown.total()} of {len(samples)} rows are of classes that the model "
            f"does not know: {named}{', …' if len(unknown) > 3 else ''}; {remedy}"
        )
    return known


def _logits(inference: Inference, samples: Sequence[HasText]) -> Logits:
    import numpy as np

    parts = []
    with progress("embedding and predicting") as bar:
        bar.phase("embedding and predicting", len(samples))
        for start in range(0, len(samples), CHUNK):
            parts.append(inference.logits(samples[start : start + CHUNK]))
            bar.step(len(parts[-1]))
    return np.concatenate(parts)


def _print(result: Evaluation, more: Reliability, skipped: int, noun: str) -> None:
    echo(counted(result.n, noun) + (f", {skipped} of unknown classes left out" if skipped else ""))
    echo(f"accuracy           {_figure(result.accuracy)}")
    echo(f"macro-F1           {_figure(result.macro_f1)}")
    for line in more.lines(noun):
        echo(line)
    shown = _worst(result.classes) if len(result.classes) > _MANY else result.classes
    if len(shown) < len(result.classes):
        echo(f"the {len(shown)} of {len(result.classes)} classes with the lowest recall; --json has all")
    print_table(("class", f"{noun}s#", "precision#", "recall#"), _class_rows(shown))
    if result.confusions:
        rows = [(c.true, c.predicted, c.count, percent(c.share)) for c in result.confusions[:_SHOWN]]
        print_table(("is", "was taken for", "times#", "of the class#"), rows)


def _figure(figure: Figure) -> str:
    return f"{percent(figure.value)} (95 % interval {percent(figure.low)} to {percent(figure.high)})"


def _worst(classes: Sequence[ClassFigures]) -> list[ClassFigures]:
    tested = [c for c in classes if c.recall is not None]
    return sorted(tested, key=lambda c: c.recall if c.recall is not None else 1.0)[:_MOST_ROWS]


def _class_rows(classes: Sequence[ClassFigures]) -> Iterator[tuple[Any, ...]]:
    for c in classes:
        precision, recall = ("-" if share is None else percent(share) for share in (c.precision, c.recall))
        yield c.name, c.n, precision, recall
