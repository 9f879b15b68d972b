"""`adamab evaluate`: how good a run is on labelled texts or images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from adamab.cli.console import (
    counted,
    echo,
    percent,
    print_json,
    print_table,
    progress,
    say,
    say_passed_over,
)
from adamab.cli.options import (
    NOTHING_HELD_OUT,
    AllJson,
    Coverage,
    Delimiter,
    Encoding,
    IdColumn,
    LabelColumn,
    Model,
    NoVectors,
    OtherEmbedder,
    Prior,
    TextColumn,
    Unknown,
    known_samples,
    notes,
    predict_options,
    table_options,
)
from adamab.errors import TaskError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from adamab.evaluation.metrics import ClassFigures, Evaluation, Figure
    from adamab.model import Confidence, PredictOptions
    from adamab.model.predictor import Inference
    from adamab.providers.registry import HasText
    from adamab.task import Sample

    Logits: TypeAlias = NDArray[np.float32]

CHUNK = 512
_SHOWN = 10
_MANY, _MOST_ROWS = 100, 30  # of more classes than that, only so many are printed
_NEXT = " " * 19  # where a line goes on


def evaluate(
    context: typer.Context,
    run: Model,
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="CSV, TSV, JSONL, Parquet or XLSX with text and label; of images with image and label, or "
            "folders.",
        ),
    ],
    prior: Prior = None,
    unknown: Unknown = None,
    out_of_scope: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Inputs of no class, as predict reads them; goes with --unknown."),
    ] = None,
    coverage: Coverage = None,
    embedder: OtherEmbedder = None,
    skip_unknown: Annotated[
        bool, typer.Option("--skip-unknown", help="Leave out rows of classes that the model does not know.")
    ] = False,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    id_column: IdColumn = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    no_cache: NoVectors = False,
    as_json: AllJson = False,
) -> None:
    """Accuracy, macro-F1 and calibration on labelled samples, with intervals, and what is confused."""
    import numpy as np

    from adamab.cli.summaries import long_text_warning
    from adamab.evaluation.metrics import evaluate as judge
    from adamab.model.classifier import prior_offsets
    from adamab.model.confidence import softmax
    from adamab.model.predictor import Inference
    from adamab.predict import readers
    from adamab.task import read_image_samples, read_samples

    options, table = predict_options(1, prior, unknown, coverage), table_options(context.params)
    if out_of_scope is not None and unknown is None:
        raise TaskError("--out-of-scope goes with --unknown SHARE; add it, such as --unknown 0.95")
    inference = Inference.open(run, embedder, cache=not no_cache)
    classifier, classes = inference.classifier, inference.classifier.classes
    inference.check(options)  # refuses what the model cannot tell before any work
    offsets = np.zeros(len(classes), np.float32)  # (K,) what stated priors add to the logits
    if options.priors is not None:
        offsets = prior_offsets(options.priors, classes, classifier.confidence)
    is_image = inference.modality == "image"
    samples = read_image_samples(data, table) if is_image else read_samples(data, options=table)
    if inference.modality == "image":
        say_passed_over(data)
    known = known_samples(data, samples, classes, skip_unknown)
    index = {name: number for number, name in enumerate(classes)}
    truth = np.array([index[sample.class_name] for sample in known], np.int64)
    strange = None
    if out_of_scope is not None:
        strange = readers.read_samples(out_of_scope, inference.modality, table)
    logits = _logits(inference, known)
    others = None if strange is None else _logits(inference, strange)
    result = judge(softmax(logits + offsets), truth, classes)
    more = _reliability(logits, truth, others, classifier.confidence, options, offsets)
    skipped, trained_on = len(samples) - len(known), _trained_on(run, known)
    for note in notes(classifier.confidence, options):
        say(note)
    if as_json:
        counts = {"skipped": skipped, "trained_on": trained_on, "overlong": inference.overlong}
        print_json({**asdict(result), **more, **counts})
        return
    _print(result, more, skipped, inference.modality)
    if trained_on:
        say(
            f"note: {trained_on} of {counted(len(known), 'sample')} were given to the fit as well; these "
            "figures are too high for new ones"
        )
    if more["probabilities"]["before"] is None:
        say(NOTHING_HELD_OUT)
    if inference.overlong:
        say(long_text_warning(inference.overlong, classifier.embedder_spec))


def _trained_on(run: Path, samples: Sequence[Sample]) -> int:
    """How many of the samples the run was given; none where only the model is there."""
    from adamab.run.directory import TASK, read_task
    from adamab.task.words import normalised_text

    if not (run / TASK).exists():
        return 0
    given = {normalised_text(sample.text) for sample in read_task(run).samples}
    return sum(normalised_text(sample.text) in given for sample in samples)


def _logits(inference: Inference, samples: Sequence[HasText]) -> Logits:
    import numpy as np

    parts = []
    with progress("embedding and predicting") as bar:
        bar.phase("embedding and predicting", len(samples))
        for start in range(0, len(samples), CHUNK):
            parts.append(inference.logits(samples[start : start + CHUNK]))
            bar.step(len(parts[-1]))
    return np.concatenate(parts)


def _print(result: Evaluation, more: Mapping[str, Any], skipped: int, noun: str) -> None:
    echo(counted(result.n, noun) + (f", {skipped} of unknown classes left out" if skipped else ""))
    echo(f"accuracy           {_figure(result.accuracy)}")
    echo(f"macro-F1           {_figure(result.macro_f1)}")
    for line in _reliability_lines(more, noun):
        echo(line)
    shown: Sequence[ClassFigures] = result.classes
    if len(shown) > _MANY:
        tested = [(c.recall, c.name, c) for c in shown if c.recall is not None]
        shown = [c for *_, c in sorted(tested)[:_MOST_ROWS]]
        echo(f"the {len(shown)} of {len(result.classes)} classes with the lowest recall; --json has all")
    print_table(("class", f"{noun}s#", "precision#", "recall#"), _class_rows(shown))
    if result.confusions:
        rows = [(c.true, c.predicted, c.count, percent(c.share)) for c in result.confusions[:_SHOWN]]
        print_table(("is", "was taken for", "times#", "of the class#"), rows)


def _figure(figure: Figure) -> str:
    return f"{percent(figure.value)} (95 % interval {percent(figure.low)} to {percent(figure.high)})"


def _class_rows(classes: Sequence[ClassFigures]) -> Iterator[tuple[Any, ...]]:
    for c in classes:
        precision, recall = ("-" if share is None else percent(share) for share in (c.precision, c.recall))
        yield c.name, c.n, precision, recall


def _reliability(
    logits: Logits,  # (n, K)
    class_index: NDArray[np.int64],  # (n,)
    others: Logits | None,  # of inputs that belong to no class
    confidence: Confidence | None,
    options: PredictOptions,
    offsets: Logits,
) -> dict[str, Any]:
    """Of probabilities, `unknown` and sets; None where something was not asked for or is unknown."""
    import numpy as np

    from adamab.evaluation.metrics import BINNING, judge_probabilities, judge_sets, judge_unknown

    before = temperature = None
    if confidence is not None and confidence.n:
        temperature = confidence.temperature
        before = asdict(judge_probabilities(logits * np.float32(temperature) + offsets, class_index))
    after = asdict(judge_probabilities(logits + offsets, class_index))
    unknown = sets = None
    if options.unknown is not None:
        unknown = asdict(judge_unknown(logits, others, confidence, options.unknown))
    if options.coverage is not None:
        sets = asdict(judge_sets(logits, class_index, confidence, options.coverage))
    scaling = {"binning": BINNING, "temperature": temperature, "before": before, "after": after}
    return {"probabilities": scaling, "unknown": unknown, "sets": sets}


def _reliability_lines(figures: Mapping[str, Any], noun: str) -> Iterator[str]:
    """For people, at most 80 characters each."""
    scaling, unknown, sets = figures["probabilities"], figures["unknown"], figures["sets"]
    before, after, binning = scaling["before"], scaling["after"], scaling["binning"]
    error = f"calibration error  {percent(after['calibration_error'])}"
    scores = f"log loss, Brier    {after['log_loss']:.3f}, {after['brier']:.3f}"
    if before is None:
        yield f"{error} ({binning}; no temperature, see the note)"
        yield scores
    else:
        earlier = f"{before['log_loss']:.3f}, {before['brier']:.3f} before the temperature"
        yield f"{error} ({percent(before['calibration_error'])} before the temperature, {binning})"
        yield f"{scores} ({earlier} of {scaling['temperature']:.3f})"
    if unknown is not None:
        kept, asked = percent(unknown["kept"]), percent(unknown["asked"])
        yield f"unknown            {kept} of these are kept, asked for {asked}"
        if unknown["caught"] is not None:
            others = f"{counted(unknown['n_out_of_scope'], noun)} of no class"
            yield f"{_NEXT}{percent(unknown['caught'])} of {others} are caught; AUROC {unknown['auroc']:.3f}"
    if sets is not None:
        covered, asked = percent(sets["covered"]), percent(sets["asked"])
        yield f"prediction sets    {covered} hold the class, asked for {asked}"
        yield f"{_NEXT}{sets['mean_size']:.2f} classes in a set on average"
