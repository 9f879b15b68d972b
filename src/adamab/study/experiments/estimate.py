"""What an experiment would run, call and cost, worked out without sending anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from adamab.providers.embedders.api import ApiEmbedder
from adamab.providers.prices import Price
from adamab.providers.registry import resolve_embedder
from adamab.run.fit_run import Order
from adamab.run.plan import Amount, Party, plan_fit, remote_party
from adamab.run.resolve import open_embedder, open_generator
from adamab.study.baselines.base import TrainingData
from adamab.study.baselines.registry import make_baseline
from adamab.study.baselines.remote import RemoteBaseline
from adamab.study.experiments.cells import POOL, RECORDED, Cell, DrawKey, reads_samples
from adamab.study.experiments.definition import CALIBRATOR, NONE
from adamab.study.experiments.materials import Materials, texts_of
from adamab.study.experiments.runner import Runner
from adamab.task import Task


@dataclass(frozen=True)
class Estimate:
    """Cells by kind, and the paid parties with what they would be asked."""

    experiment: str
    cells: int
    done: int
    by_set: Mapping[str, int]  # cells to run
    seconds: float | None  # of one process, by finished cells of the same kind; None where one has none
    parties: tuple[Party, ...]
    left_out: tuple[str, ...]

    @property
    def expected(self) -> Amount:
        """If nothing goes wrong."""
        return sum((party.expected for party in self.parties), Amount())

    @property
    def at_most(self) -> Amount:
        """If everything is as long, and as often asked, as it may be."""
        return sum((party.at_most for party in self.parties), Amount())

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "experiment": self.experiment,
            "cells": self.cells,
            "done": self.done,
            "to_run": dict(self.by_set),
            "seconds_of_one_process": self.seconds,
            "expected": self.expected.to_json(),
            "at_most": self.at_most.to_json(),
            "parties": [{"purpose": party.purpose} | party.to_json() for party in self.parties],
            "left_out": list(self.left_out),
        }


def estimate(runner: Runner, prices: Mapping[str, Price] | None = None) -> Estimate:
    """Upper bounds where cells share answers or vectors; needs no key and sends nothing."""
    cells = runner.cells()
    todo = runner.to_do(cells)
    known = dict(prices or {})
    parties = [
        *_vectors(runner, todo, known),
        *_generation(runner, todo, known),
        *_asked(runner, todo, known),
    ]
    return Estimate(
        experiment=runner.experiment.name,
        cells=len(cells),
        done=len(cells) - len(todo),
        by_set=dict(Counter(cell.set for cell in todo)),
        seconds=_seconds(runner, todo),
        parties=tuple(_merged(parties)),
        left_out=tuple(
            f"{x.set}, {x.generator}, amount {x.amount}: {x.why}" for x in runner.expansion.left_out
        ),
    )


def _seconds(runner: Runner, todo: Sequence[Cell]) -> float | None:
    """By the mean of what cells of the same kind took."""
    taken: dict[tuple[str, ...], list[float]] = {}
    for row in runner.rows.known.values():
        taken.setdefault(_kind(row.cell), []).append(row.measured.seconds)
    found = [taken.get(_kind(cell)) for cell in todo]
    return sum(sum(x) / len(x) for x in found if x) if all(found) else None


def _kind(cell: Cell) -> tuple[str, ...]:
    return cell.set, cell.method, cell.recipe, cell.amount, cell.policy, cell.scored


def _vectors(runner: Runner, todo: Sequence[Cell], prices: Mapping[str, Price]) -> Iterator[Party]:
    """Of every text that is there before; the classes' wordings are few."""
    keys = dict.fromkeys(cell.draw for cell in todo)
    for name in dict.fromkeys(key.set for key in keys):
        if runner.sets[name].embedder() is not None:
            continue
        embedder = resolve_embedder(runner.experiment.embedder)
        if isinstance(embedder, ApiEmbedder) and embedder.api is not None:
            draws = [runner.draws[key] for key in keys if key.set == name]
            texts = dict.fromkeys(text for draw in draws for text in texts_of(draw))
            yield remote_party(
                "embed the texts", embedder.api, ("the texts",), embedder.requests_for(list(texts)), prices
            )


def _generation(runner: Runner, todo: Sequence[Cell], prices: Mapping[str, Price]) -> Iterator[Party]:
    """A stream of batches a draw and policy; settings and recipes share them through the cache of answers."""
    longest: dict[tuple[DrawKey, str], Cell] = {}
    for cell in todo:
        if cell.policy == NONE or cell.generator in (RECORDED, POOL):
            continue
        key = cell.draw, cell.policy
        if key not in longest or cell.rounds > longest[key].rounds:
            longest[key] = cell
    for (draw, policy), cell in longest.items():
        order = Order(
            task=runner.draws[draw].task,
            embedder=open_embedder(runner.experiment.embedder),
            embedder_spec=runner.experiment.embedder,
            generator=open_generator(draw.generator, seed=draw.seed),
            generator_spec=draw.generator,
            policy=policy,
            recipe=_recipe(cell),
            seed=draw.seed,
            prices=prices,
        )
        for party in plan_fit(order).parties:
            if party.host is not None:
                yield replace(party, purpose=f"{party.purpose} in fits")


def _recipe(cell: Cell) -> Any:
    """A baseline's cell has no recipe of its own."""
    return (
        cell.full_recipe()
        if cell.method == CALIBRATOR
        else replace(cell, recipe="default", options="{}").full_recipe()
    )


def _asked(runner: Runner, todo: Sequence[Cell], prices: Mapping[str, Price]) -> Iterator[Party]:
    """Baselines that send every test sample away."""
    materials = Materials(runner.draws, {})
    for cell in todo:
        if cell.method == CALIBRATOR or not reads_samples(cell) or cell.method == "setfit":
            continue
        baseline = make_baseline(cell.method, seed=cell.seed, **cell.settings)
        if isinstance(baseline, RemoteBaseline):
            task = materials.task(cell.draw, cell.setting)
            texts = [sample.text for sample in runner.draws[cell.draw].test]
            sends = ("the classes' wordings", "the test samples")
            yield remote_party(cell.method, baseline.api, sends, baseline.planned(_data(task), texts), prices)


def _data(task: Task) -> TrainingData:
    texts = [sample.text for sample in task.samples]
    labels = [sample.class_name for sample in task.samples]
    return TrainingData(
        {}, labels, task.class_names, texts, specs=task.classes, prompts=task.prompts, items=texts
    )


def _merged(parties: Iterable[Party]) -> Iterator[Party]:
    """One line for each purpose and model."""
    found: dict[tuple[str, str], Party] = {}
    for party in parties:
        key = party.purpose, party.spec
        old = found.get(key)
        found[key] = (
            party
            if old is None
            else replace(old, expected=old.expected + party.expected, at_most=old.at_most + party.at_most)
        )
    yield from found.values()
