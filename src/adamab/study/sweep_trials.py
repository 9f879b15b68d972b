"""The trials of a sweep: what Optuna's sampler proposes, and the journal of what was tried.

A batch of trials is proposed from the trials before it, whoever works out how good they are and in which
order; each trial has a stream of chance of its own. So a proposal need not be kept: it is made again.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np

from adamab.errors import MissingExtraError, RunError
from adamab.study.row_file import whole_lines
from adamab.study.sweep_space import Choices, Range, Space
from adamab.task.messages import one_line, place
from adamab.task.recipe import Recipe

SamplerName = Literal["tpe", "random"]
BATCH = 4  # trials that are proposed together, however many can be worked out at once


class Trials:
    """What was tried, in Optuna's journal file; trial 0 is the recipe that the search begins with."""

    def __init__(self, path: Path, space: Space, recipe: Recipe, *, sampler: SamplerName, seed: int) -> None:
        self._optuna, self._space, self._recipe = need_optuna(), space, recipe
        self._sampler, self._seed = sampler, seed
        with _quietly(), _readable(path):
            whole_lines(path)
            backend = self._optuna.storages.journal.JournalFileBackend(str(path), _NoLock())
            self._study = self._study_of(self._optuna.storages.JournalStorage(backend))

    def __len__(self) -> int:
        return len(self._study.get_trials(deepcopy=False))

    def batch(self, start: int, end: int) -> list[dict[str, Any]]:
        """The options of the trials from `start` to before `end`, which are of one batch."""
        if start == 0:
            return [{}]
        trials = self._study.get_trials(deepcopy=False)
        with _quietly():
            study = self._study_of(None)
            study.add_trials(trials[:start])
            proposed = [self._proposed(study, number) for number in range(start, end)]
        tried = [trial.params for trial in trials[start:end]]
        return [self._options(params) for params in (*tried, *proposed[len(tried) :])]

    def add(self, options: Mapping[str, Any], loss: float) -> None:
        """Keep how the next trial did."""
        values = {name: options.get(name, getattr(self._recipe, name)) for name in self._space}
        inside = all(values[name] in part for name, part in self._space.items())
        trial = self._optuna.trial.create_trial(
            # A recipe outside the space is none of the sampler's business.
            params={name: _param(part, values[name]) for name, part in self._space.items()} if inside else {},
            distributions=self._distributions() if inside else {},
            value=loss,
        )
        with _quietly():
            self._study.add_trial(trial)

    def _study_of(self, storage: Any) -> Any:
        return self._optuna.create_study(
            storage=storage, study_name="sweep", direction="minimize", load_if_exists=True
        )

    def _proposed(self, study: Any, number: int) -> Mapping[str, Any]:
        seed = int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0])
        samplers = self._optuna.samplers
        kind = samplers.TPESampler if self._sampler == "tpe" else samplers.RandomSampler
        study.sampler = kind(seed=seed)
        proposed: Mapping[str, Any] = study.ask(self._distributions()).params
        return proposed

    def _options(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """What differs from the recipe that the search begins with."""
        values = {name: _value(self._space[name], param) for name, param in params.items()}
        return {name: value for name, value in values.items() if value != getattr(self._recipe, name)}

    def _distributions(self) -> dict[str, Any]:
        return {name: self._distribution(part) for name, part in self._space.items()}

    def _distribution(self, part: Choices | Range) -> Any:
        kinds = self._optuna.distributions
        if isinstance(part, Choices):
            return kinds.CategoricalDistribution([json.dumps(value) for value in part.values])
        if part.whole:
            return kinds.IntDistribution(int(part.low), int(part.high), log=part.log)
        return kinds.FloatDistribution(part.low, part.high, log=part.log)


def need_optuna() -> Any:
    """The module, or the one line that says how to get it."""
    try:
        import optuna
    except ImportError:
        raise MissingExtraError("Optuna, which proposes what a sweep tries,", "sweep") from None
    return optuna


def _param(part: Choices | Range, value: Any) -> Any:
    return json.dumps(value) if isinstance(part, Choices) else value


def _value(part: Choices | Range, param: Any) -> Any:
    """As the recipe has it: six digits are enough, and people can write them."""
    if isinstance(part, Range):
        return param if part.whole else min(max(float(f"{param:.6g}"), part.low), part.high)
    value = json.loads(param)
    return tuple(value) if isinstance(value, list) else value


class _NoLock:
    """The sweep's directory is locked as a whole; Optuna's own lock would outlive a killed process."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        return


@contextmanager
def _quietly() -> Iterator[None]:
    """Optuna tells every trial, and that parts of it may change."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(before)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunError(f"{place(path)}: cannot be used ({error.strerror}); see --output") from None
    except (ValueError, KeyError, AssertionError) as error:
        raise RunError(
            f"{place(path)}: is no journal of Optuna or is damaged ({one_line(error)}); name another --output"
        ) from None
