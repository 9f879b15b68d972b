"""What an experiment would run, call and cost, worked out without sending anything."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from adamab.compare.methods import TrainingData, items_of, make_baseline
from adamab.compare.remote import RemoteBaseline
from adamab.providers.cache import Ask, Reply
from adamab.providers.embedders.api import ApiEmbedder
from adamab.providers.metering import Price
from adamab.providers.registry import resolve_embedder
from adamab.run.plan import Amount, Party, PlannedCall, plan_fit, remote_party
from adamab.run.settings import FitSettings, FitSetup, set_up
from adamab.task.recipe import Recipe
from experiments.cells import FOLDS, POOL, RECORDED, TEST, Cell, reads_samples
from experiments.definition import BY_FOLDS, CALIBRATOR, EVENLY, NONE
from experiments.measure import N_FOLDS, Materials, check_takes, known_items, wordings
from experiments.runner import Runner, place_of

_BLIND = (EVENLY, "random")  # policies that look at the seed and at nothing else
_WRITTEN = "temperature", "prompt_examples", "image_size", "image_quality"  # what a generator's batches obey
_ASKED = ("batch", "augmentation_rounds", "views", "refit", *_WRITTEN)  # what calls obey
_CHEAPEST = json.dumps({"refit": False})  # of the fit that adds samples to a baseline's


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
        """If nothing goes wrong; the cost is of those that have a price."""
        return self._in_all(party.expected for party in self.parties)

    @property
    def at_most(self) -> Amount:
        """If everything is as long, and as often asked, as it may be; the cost as in `expected`."""
        return self._in_all(party.at_most for party in self.parties)

    @property
    def unpriced(self) -> tuple[str, ...]:
        """Models whose cost is not in the totals, because no price of them is known."""
        return tuple(dict.fromkeys(party.spec for party in self.parties if party.price is None))

    def _in_all(self, amounts: Iterable[Amount]) -> Amount:
        """The sum; its cost is None if no party has a price."""
        counted = list(zip(self.parties, amounts, strict=True))
        total = sum((amount for _, amount in counted), Amount())
        costs = [amount.nano_usd or 0 for party, amount in counted if party.price is not None]
        return replace(total, nano_usd=sum(costs) if costs or not counted else None)

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
            "unpriced": list(self.unpriced),
            "parties": [{"purpose": party.purpose} | party.to_json() for party in self.parties],
            "left_out": list(self.left_out),
        }


def estimate(runner: Runner, prices: Mapping[str, Price] | None = None) -> Estimate:
    """What cells without a row would ask, as expected and at most; needs no key and sends nothing."""
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
    times = [taken.get(_kind(cell)) for cell in todo]
    return sum(sum(x) / len(x) for x in times if x) if all(times) else None


def _kind(cell: Cell) -> tuple[str, ...]:
    return cell.set, cell.method, cell.recipe, cell.amount, cell.policy, cell.scored


def _vectors(runner: Runner, todo: Sequence[Cell], prices: Mapping[str, Price]) -> Iterator[Party]:
    """Of every sample and wording that is there before."""
    keys = dict.fromkeys(cell.draw for cell in todo)
    for name in dict.fromkeys(key.set for key in keys):
        if runner.sets[name].embedder() is not None:
            continue
        embedder = resolve_embedder(runner.experiment.embedder)
        check_takes(embedder, runner.sets[name])
        if isinstance(embedder, ApiEmbedder) and embedder.api is not None:
            draws = [runner.draws[key] for key in keys if key.set == name]
            items = dict.fromkeys(item for draw in draws for item in known_items(draw, embedder))
            worded = dict.fromkeys(w for draw in draws for w in wordings(draw, runner.experiment.settings))
            what = "the images" if runner.sets[name].images else "the texts"
            asked = [*embedder.requests_for(list(items)), *embedder.requests_for(list(worded))]
            yield remote_party(f"embed {what}", embedder.api, (what, "the classes' wordings"), asked, prices)


def _generation(runner: Runner, todo: Sequence[Cell], prices: Mapping[str, Price]) -> Iterator[Party]:
    """What fits ask for.

    Expected is what they ask if nothing goes wrong, once where they are certain to choose the same classes
    in the same order. At most each asks for batches of its own, as far as there are so many.
    """
    plans = _Plans(runner, prices)
    fits = list(dict.fromkeys(_fit_of(c) for c in [*todo, *_chosen_later(runner)] if _is_fitted(c)))
    fits = [fit for fit in fits if plans.asks(fit)]
    for fit in _within_streams(fits, runner):
        yield from _times(plans.at_most(fit), _n_fits(fit))
    for fit in {(fit.draw, fit.setting, fit.scored): fit for fit in reversed(fits)}.values():
        yield from _times(plans.before(fit), _n_fits(fit))
    longest = {_course(fit): fit for fit in sorted(fits, key=lambda fit: fit.rounds)}
    for fit in _within_streams(longest.values(), runner):
        yield from _times(plans.rounds(fit), _n_fits(fit))


def _within_streams(fits: Iterable[Cell], runner: Runner) -> Iterator[Cell]:
    """The fits, or fewer where they cannot but share.

    The batches of a class are the same for all fits with its stream, and a fit of R rounds takes R of them at
    most. So K fits, one for each class, take all that any number of fits can.
    """
    streams: dict[Cell, list[Cell]] = {}
    for fit in fits:
        streams.setdefault(_stream(fit), []).append(fit)
    for stream, members in streams.items():
        longest = max(members, key=lambda fit: fit.rounds)
        enough = [longest] * len(runner.sets[stream.set].specs)
        yield from min((members, enough), key=lambda fits: sum(fit.rounds for fit in fits))


def _chosen_later(runner: Runner) -> Iterator[Cell]:
    """What will be scored when the folds have decided: of each choice the candidate with most rounds."""
    if runner.experiment.chosen != BY_FOLDS:
        return
    candidates: dict[Cell, list[Cell]] = {}
    for cell in runner.cells():
        candidates.setdefault(place_of(cell), []).append(replace(cell, scored=TEST))
    for cells in candidates.values():
        if len(runner.to_do(cells)) == len(cells):
            yield max(cells, key=lambda cell: cell.rounds)


def _is_fitted(cell: Cell) -> bool:
    return cell.method == CALIBRATOR or cell.policy != NONE


def _fit_of(cell: Cell) -> Cell:
    """The cell itself, or what adds samples to a baseline's: one fit for all baselines."""
    if cell.method == CALIBRATOR:
        return cell
    return replace(cell, method=CALIBRATOR, setting="zero-shot", recipe="default", options=_CHEAPEST)


def _stream(fit: Cell) -> Cell:
    """Fits with the same stream are given the same j-th batch of a class."""
    recipe = fit.full_recipe()
    asked = json.dumps({option: getattr(recipe, option) for option in _WRITTEN})
    return replace(fit, setting="", policy="", recipe="", options=asked, amount="", rounds=0)


def _course(fit: Cell) -> Cell:
    """Fits with the same course choose the same classes, the longer ones after the shorter ones."""
    return replace(_stream(fit), policy=fit.policy) if fit.policy in _BLIND else fit


def _n_fits(fit: Cell) -> int:
    """Each fold is a fit with other given samples, so with other questions."""
    return N_FOLDS if fit.scored == FOLDS else 1


def _times(parties: Sequence[Party], count: int) -> Iterator[Party]:
    for party in parties:
        expected = sum([party.expected] * count, Amount())
        yield replace(party, expected=expected, at_most=sum([party.at_most] * count, Amount()))


class _Plans:
    """Plans of fits, made once for all that ask alike; folds are planned with all given samples."""

    def __init__(self, runner: Runner, prices: Mapping[str, Price]) -> None:
        self._runner, self._prices = runner, prices
        self._materials = Materials(runner.draws, {})
        self._embedder = runner.experiment.embedder
        self._made: dict[Any, tuple[list[PlannedCall], list[Party]]] = {}

    def asks(self, fit: Cell) -> bool:
        """Whether an API would be called."""
        if self._runner.sets[fit.set].embedder() is not None:
            return False
        return self._generates(fit) or isinstance(resolve_embedder(self._embedder), ApiEmbedder)

    def at_most(self, fit: Cell) -> list[Party]:
        """If everything is asked, as often and at such length as it may be."""
        return [replace(party, expected=Amount()) for party in self._plan(fit)[1]]

    def before(self, fit: Cell) -> list[Party]:
        """What is embedded before the first round, which fits of a draw and setting share."""
        return self._expected(fit, lambda call: call.round == 0)

    def rounds(self, fit: Cell) -> list[Party]:
        """What the rounds ask."""
        return self._expected(fit, lambda call: call.round > 0)

    def _expected(self, fit: Cell, wanted: Callable[[PlannedCall], bool]) -> list[Party]:
        calls, parties = self._plan(fit)
        expected = []
        for party in parties:
            own = [c.expected for c in calls if wanted(c) and party.purpose == _purpose(c.purpose)]
            expected.append(replace(party, expected=Amount.of(own, party.price), at_most=Amount()))
        return expected

    def _generates(self, fit: Cell) -> bool:
        return fit.policy != NONE and fit.generator not in (RECORDED, POOL)

    def _plan(self, fit: Cell) -> tuple[list[PlannedCall], list[Party]]:
        recipe = fit.full_recipe()
        asked = tuple(getattr(recipe, option) for option in _ASKED)
        key = fit.draw, fit.setting, self._generates(fit), asked
        if key not in self._made:
            plan = plan_fit(self._order(fit, recipe))
            remote = [party for party in plan.parties if party.host is not None]
            named = [replace(party, purpose=_purpose(party.purpose)) for party in remote]
            self._made[key] = list(plan.calls), named
        return self._made[key]

    def _order(self, fit: Cell, recipe: Recipe) -> FitSetup:
        """A set's own texts are embedded before all fits, so a fit that adds them asks for nothing more."""
        spec = fit.generator if self._generates(fit) else "none"
        settings = FitSettings(
            embedder=self._embedder,
            generator=spec,
            policy=fit.policy if self._generates(fit) else NONE,
            recipe=recipe,
            seed=fit.seed,
            prices=self._prices,
            cache=True,
        )
        return set_up(self._materials.task(fit.draw, fit.setting), settings)


def _purpose(planned: str) -> str:
    return f"{planned} in fits"


def _asked(runner: Runner, todo: Sequence[Cell], prices: Mapping[str, Price]) -> Iterator[Party]:
    """Baselines that send every test sample away; a question that two cells have is bought once."""
    materials, foreseen = Materials(runner.draws, {}), _Foreseen()
    asking = [c for c in todo if c.method not in (CALIBRATOR, "setfit") and reads_samples(c.method)]
    for cell in _asking_differently(asking, materials):
        baseline = make_baseline(cell.method, seed=cell.seed, **cell.settings)
        if isinstance(baseline, RemoteBaseline):
            baseline.replies = foreseen
            known = TrainingData.of_task(materials.task(cell.draw, cell.setting))
            asked = baseline.planned(known, items_of(runner.draws[cell.draw].test))
            sends = ("the classes' wordings", "the test samples")
            yield remote_party(cell.method, baseline.api, sends, asked, prices)


def _asking_differently(cells: Iterable[Cell], materials: Materials) -> Iterator[Cell]:
    """Cells without those that differ in the seed alone and have the same wordings and test samples.

    To look at each question again would take minutes where there are thousands of images.
    """
    seen = set()
    for cell in cells:
        quoted = materials.task(cell.draw, cell.setting).prompts.with_examples
        known = cell if quoted else (cell.group, tuple(s.text for s in materials.draws[cell.draw].test))
        if known not in seen:
            seen.add(known)
            yield cell


class _Foreseen:
    """Answers of a run that does not take place: whatever was asked for before is there."""

    def __init__(self) -> None:
        self._asked: set[Ask] = set()

    def get(self, ask: Ask) -> Reply | None:
        """None the first time."""
        if ask in self._asked:
            return Reply("")
        self._asked.add(ask)
        return None

    def put(self, ask: Ask, reply: Reply) -> None:
        """Nothing is bought here."""


def _merged(parties: Iterable[Party]) -> Iterator[Party]:
    """One line for each purpose and model."""
    merged: dict[tuple[str, str], Party] = {}
    for party in parties:
        key = party.purpose, party.spec
        old = merged.get(key)
        merged[key] = (
            party
            if old is None
            else replace(old, expected=old.expected + party.expected, at_most=old.at_most + party.at_most)
        )
    yield from merged.values()
