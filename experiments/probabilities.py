"""Whether the probabilities of fitted classifiers can be relied on, measured on development parts.

    python -m experiments probabilities

Each classifier is fitted on a few given samples per class, without synthetic ones, and judged on the
development part of its set. What belongs to no class are the development texts of the other sets.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from adamab.errors import TaskError
from adamab.evaluation.metrics import (
    BINNING,
    ProbabilityFigures,
    SetFigures,
    UnknownFigures,
    auroc,
    judge_probabilities,
    judge_sets,
    judge_unknown,
)
from adamab.method.stacking import HeldOut
from adamab.model import Confidence
from adamab.model.confidence import strangeness, surprise
from adamab.model.predictor import Inference
from adamab.providers.embedders.base import Embedder
from adamab.providers.registry import open_embedder
from adamab.run.fit import fit_task
from adamab.version import __version__
from experiments.datasets.base import DataSet, Draw, data_directory, load_data_set
from experiments.pages import Table, as_document

Numbers: TypeAlias = NDArray[np.floating[Any]]
SETS = ("trec", "hwu64", "multiwd")
GIVEN, SEEDS, KEEP, COVERAGE = 5, 3, 0.95, 0.9
MOST_OTHERS = 500  # texts of each other set
CHOSEN, ENERGY = "energy above the mean logit", "energy"


def _energy(logits: Numbers) -> Numbers:
    energy: Numbers = strangeness(logits) - logits.mean(axis=1)
    return energy


def _entropy(logits: Numbers) -> Numbers:
    minus_log = surprise(logits)
    entropy: Numbers = (np.exp(-minus_log) * minus_log).sum(axis=1)
    return entropy


# Larger for what fits worse. The first is what the classifier uses.
SCORES: Mapping[str, Callable[[Numbers], Numbers]] = {
    CHOSEN: strangeness,
    ENERGY: _energy,
    "largest logit": lambda logits: -logits.max(axis=1),
    "entropy": _entropy,
    "largest probability": lambda logits: surprise(logits).min(axis=1),
}


@dataclass(frozen=True)
class Separation:
    """A score that could tell inputs of no class apart: its figures over the other sets together."""

    score: str
    auroc: float
    kept: float
    caught: float


@dataclass(frozen=True)
class Row:
    """One classifier."""

    set: str
    seed: int
    classes: int
    held_out: int
    n: int  # development texts of the set
    temperature: float
    before: ProbabilityFigures
    after: ProbabilityFigures
    unknown: Mapping[str, UnknownFigures]  # by the set that the inputs of no class are from
    scores: tuple[Separation, ...]
    sets: SetFigures


def measure(
    sets: Mapping[str, DataSet],
    embedder: Embedder,
    *,
    given: int = GIVEN,
    seeds: int = SEEDS,
) -> Iterator[Row]:
    """One row per set and seed."""
    by_seed = [
        {of: data.draw(seed, given=given, part="development") for of, data in sets.items()}
        for seed in range(seeds)
    ]
    for name in sets:
        yield from (_row(draws, name, embedder) for draws in by_seed)


def _row(draws: Mapping[str, Draw], name: str, embedder: Embedder) -> Row:
    fit = fit_task(draws[name].task, embedder, seed=draws[name].seed)
    confidence, model = fit.classifier.confidence, Inference(fit.classifier, embedder)
    if confidence is None or fit.held_out is None:
        raise TaskError(f"{name}: nothing was held out; give two samples per class or more")
    test = draws[name].test
    truth = np.array([fit.classifier.classes.index(sample.class_name) for sample in test], np.int64)
    logits = model.logits(test)
    others = {of: model.logits(draw.test[:MOST_OTHERS]) for of, draw in draws.items() if of != name}
    before = logits * np.float32(confidence.temperature)
    return Row(
        name,
        draws[name].seed,
        len(fit.classifier.classes),
        confidence.n,
        len(test),
        confidence.temperature,
        judge_probabilities(before, truth),
        judge_probabilities(logits, truth),
        {of: judge_unknown(logits, rows, confidence, KEEP) for of, rows in others.items()},
        tuple(_separations(fit.held_out, confidence, logits, np.concatenate(list(others.values())))),
        judge_sets(logits, truth, confidence, COVERAGE),
    )


def _separations(
    held_out: HeldOut, confidence: Confidence, known: Numbers, others: Numbers
) -> Iterator[Separation]:
    seen = held_out.logits / confidence.temperature
    for name, score in SCORES.items():
        # The threshold as the classifier would take it, had it kept this score.
        ranked = tuple(np.sort(score(seen.astype(np.float64))).tolist())
        threshold = Confidence(
            seen=confidence.seen, n=len(ranked), strangeness=ranked, surprise=ranked
        ).threshold("strangeness", KEEP)
        kept, caught = float((score(known) <= threshold).mean()), float((score(others) > threshold).mean())
        yield Separation(name, auroc(score(known), score(others)), kept, caught)


def write_results(rows: Sequence[Row], directory: Path, *, command: str) -> list[Path]:
    """`probabilities.md` and `probabilities.json`."""
    directory.mkdir(parents=True, exist_ok=True)
    data = {"command": command, "adamab": __version__, "rows": [asdict(row) for row in rows]}
    paths = [directory / "probabilities.json", directory / "probabilities.md"]
    paths[0].write_text(as_document(data), encoding="utf-8")
    paths[1].write_text(_markdown(rows, command), encoding="utf-8")
    return paths


def _markdown(rows: Sequence[Row], command: str) -> str:
    seeds, held = len({row.seed for row in rows}), ", ".join(dict.fromkeys(str(row.held_out) for row in rows))
    measures = ("AUROC", "Known kept", "Others caught")
    parts = [
        "# Probabilities: calibration, unknown inputs, prediction sets",
        f"Made by `{command}`; the figures of every seed are in `probabilities.json`. Development parts, "
        f"means of {seeds} seeds, no synthetic samples. What each thing is: `docs/probabilities.md`.",
        "## Calibration",
        f"Before and after the temperature. Calibration error in {BINNING}; held-out samples: {held}.",
        _table(
            ("Set", "Classes", "Temperature", "Calibration error", "Log loss", "Brier"), _calibration(rows)
        ),
        f"## Unknown inputs, {100 * KEEP:.0f} % of known ones to be kept",
        _table(("Set", "Texts of no class from", *measures), _unknown(rows)),
        "The same with other scores, texts of all other sets together. The threshold comes from the held-out "
        "samples, so logits of different classifiers must be comparable. What one adds to all logits alike "
        f"changes energy and the largest logit, and not the others. The threshold of {ENERGY} keeps "
        f"{_kept(rows, ENERGY)} of the known texts of a set, that of {CHOSEN}, which is in use, "
        f"{_kept(rows, CHOSEN)}.",
        _table(("Set", "Score", *measures), _scores(rows)),
        f"## Prediction sets, {100 * COVERAGE:.0f} % coverage asked for",
        "The held-out samples are as many of each class, the development texts are not. `By class` weighs "
        "classes alike, as the held-out samples do.",
        _table(("Set", "Coverage", "By class", "Classes in a set", "Classes"), _sets(rows)),
    ]
    return "\n\n".join(parts) + "\n"


def _calibration(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    for name, of_set in _by_set(rows):
        yield (
            name,
            str(of_set[0].classes),
            f"{_mean(r.temperature for r in of_set):.3f}",
            _from_to((r.before.calibration_error, r.after.calibration_error) for r in of_set),
            _from_to((r.before.log_loss, r.after.log_loss) for r in of_set),
            _from_to((r.before.brier, r.after.brier) for r in of_set),
        )


def _unknown(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    for name, of_set in _by_set(rows):
        for other in of_set[0].unknown:
            judged = [row.unknown[other] for row in of_set]
            separated, caught = _mean(f.auroc or 0 for f in judged), _mean(f.caught or 0 for f in judged)
            yield name, other, f"{separated:.3f}", _percent(f.kept for f in judged), f"{100 * caught:.1f} %"


def _scores(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    for name, of_set in _by_set(rows):
        for place, score in enumerate(SCORES):
            judged = [row.scores[place] for row in of_set]
            separated = f"{_mean(f.auroc for f in judged):.3f}"
            yield name, score, separated, _percent(f.kept for f in judged), _percent(f.caught for f in judged)


def _kept(rows: Sequence[Row], score: str) -> str:
    """What the threshold of a score keeps of the known texts: least to most of the sets."""
    place = list(SCORES).index(score)
    shares = sorted(_mean(row.scores[place].kept for row in of_set) for _, of_set in _by_set(rows))
    return " to ".join(dict.fromkeys(_percent([share]) for share in (*shares[:1], *shares[-1:])))


def _sets(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    for name, of_set in _by_set(rows):
        judged = [row.sets for row in of_set]
        covered, by_class = _percent(f.covered for f in judged), _percent(f.covered_by_class for f in judged)
        yield name, covered, by_class, f"{_mean(f.mean_size for f in judged):.2f}", str(of_set[0].classes)


def _by_set(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    for name in dict.fromkeys(row.set for row in rows):
        yield name, [row for row in rows if row.set == name]


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def _percent(values: Iterable[float]) -> str:
    return f"{100 * _mean(values):.1f} %"


def _from_to(pairs: Iterable[tuple[float, float]]) -> str:
    before, after = np.mean(list(pairs), axis=0)
    return f"{before:.4f} → {after:.4f}"


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return Table("", header, tuple(rows)).markdown()


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, write the results and say where they are."""
    parser = argparse.ArgumentParser(
        "python -m experiments probabilities", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--data", type=Path, help="folder of data sets; ADAMAB_DATA or ../shared/data")
    parser.add_argument("--output", type=Path, default=Path("results"), help="where results are written")
    options = parser.parse_args(arguments)
    folder = data_directory(options.data)
    sets = {name: load_data_set(name, folder) for name in SETS}
    rows = list(measure(sets, open_embedder("local")))
    for path in write_results(rows, options.output, command="python -m experiments probabilities"):
        print(path)
