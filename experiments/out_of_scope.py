"""`unknown` on CLINC150: do texts of no class look unlike those of the 150 classes? Scored once.

    python -m experiments out-of-scope

The default is fitted on a few given samples per class; no text of no class is ever seen before. The
threshold keeps a stated share of texts of known classes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from adamab.errors import TaskError
from adamab.evaluation.metrics import judge_unknown
from adamab.model.predictor import Inference
from adamab.providers.embedders.base import Embedder
from adamab.providers.registry import open_embedder
from adamab.run.fit import fit_task
from adamab.task import Sample
from experiments.datasets.base import data_directory
from experiments.datasets.score_once import ScoreOnceSet, load_clinc150
from experiments.pages import Table, as_document, means_with_errors
from experiments.quality import commit

GIVEN, SEEDS, KEEP = (5, 10), 3, (0.95, 0.9)
NAME = "out-of-scope"
_ABOUT = (
    "CLINC150, test part: 4,491 texts of 150 classes and 1,000 of none, by the default recipe. Kept: texts "
    "of known classes that are not called unknown, which the threshold promises by held-out given samples. "
    "Caught: texts of no class that are. Mean over seeds with the standard error, in %; the area under the "
    "ROC curve needs no threshold."
)


@dataclass(frozen=True)
class Row:
    """One threshold of one classifier."""

    given: int
    seed: int
    promised: float
    accuracy: float  # of texts of known classes, none of them called unknown
    kept: float
    caught: float
    auroc: float


def measure(data: ScoreOnceSet, embedder: Embedder, given: int, seed: int) -> Iterator[Row]:
    """The rows of one fit."""
    draw = data.draw(seed, given=given)
    fit = fit_task(draw.task, embedder, seed=seed)
    model, classes = Inference(fit.classifier, embedder), fit.classifier.classes
    known = model.logits(draw.test)
    others = model.logits([Sample(text, classes[0]) for text in data.out_of_scope])
    truth = np.array([classes.index(sample.class_name) for sample in draw.test])
    accuracy = float((known.argmax(axis=1) == truth).mean())
    for share in KEEP:
        figures = judge_unknown(known, others, fit.classifier.confidence, share)
        if figures.caught is None or figures.auroc is None:
            raise TaskError("nothing was held out; give two samples per class or more")
        yield Row(given, seed, share, accuracy, figures.kept, figures.caught, figures.auroc)


def table(rows: Sequence[Row]) -> Table:
    """Means over seeds."""
    figures = ["kept", "caught", "auroc", "accuracy"]
    texts = means_with_errors(pd.DataFrame(rows)[["given", "promised", *figures]], ["given", "promised"])
    lines = tuple((str(given), f"{100 * kept:.0f}", *line) for (given, kept), line in texts.iterrows())
    header = ("Given", "kept, promised", "kept", "caught", "area under the curve", "accuracy")
    return Table("Texts of no class", header, lines)


def main(arguments: Sequence[str]) -> None:
    """Measure and write the page, unless there is one: what is scored once is not scored again."""
    parser = argparse.ArgumentParser(f"python -m experiments {NAME}")
    parser.add_argument("--data", type=Path, help="folder of data sets; ADAMAB_DATA or ../shared/data")
    parser.add_argument("--output", type=Path, default=Path("results"))
    options = parser.parse_args(arguments)
    page = options.output / f"{NAME}.md"
    if page.exists():
        raise TaskError(f"{page} is there: this is scored once; remove it to publish another default")
    data, embedder = load_clinc150(data_directory(options.data)), open_embedder("local")
    rows = [row for given in GIVEN for seed in range(SEEDS) for row in measure(data, embedder, given, seed)]
    figures = table(rows)
    command = f"python -m experiments {NAME}"
    made = f"Made by `{command}` with the code of commit `{commit()}`, {SEEDS} seeds."
    page.write_text(f"# Texts of no class\n\n{_ABOUT}\n\n{made}\n\n{figures.markdown()}\n", encoding="utf-8")
    document = {"command": command, "commit": commit(), "rows": [asdict(row) for row in rows]}
    (options.output / f"{NAME}.json").write_text(as_document(document), encoding="utf-8")
    print(figures.markdown())
