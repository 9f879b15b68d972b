"""A run as the page asks for it: read when it is asked for, and read again only where it changed."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from adamab.errors import RunError
from adamab.run.directory import SUMMARY, spending
from adamab.run.journal_file import FILE_NAME as JOURNAL
from adamab.run.kept_task import FILE_NAME as TASK
from adamab.run.past import OVERRULED
from adamab.run.reading import RunReader, SampleSeen
from adamab.run.reviews import FILE_NAME as REVIEWS
from adamab.run.reviews import Reviews, Verdict
from adamab.run.sample_files import HELD_OUT, HeldOutAnswer
from adamab.serving.problems import Refused, invalid
from adamab.serving.run_figures import ClassSources, RunFigures, completed, sources_by_class
from adamab.task.spec import ClassSpec, Task
from adamab.task.words import folded

T = TypeVar("T")
_LOG = JOURNAL + "-wal"
_OF_SAMPLES = (JOURNAL, _LOG, REVIEWS, TASK)  # where samples and verdicts are read from


class RunView:
    """What the run in `directory` tells; nothing where a model was saved without its run.

    May be asked by several threads: one at a time reads, the others wait for what it finds.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = threading.RLock()
        self._kept: dict[str, tuple[Any, Any]] = {}
        try:
            self.reader: RunReader | None = RunReader(directory)
        except RunError:
            self.reader = None
        self._figures = None if self.reader is None else RunFigures(self.reader)

    def close(self) -> None:
        """Let go of the files."""
        if self.reader is not None:
            self.reader.close()

    def state(self) -> tuple[str, float | None]:
        """What the run is doing, and when something last changed."""
        with self._lock:
            if self.reader is None:
                return "model only", None
            return self.reader.state(), self.reader.last_change()

    def started(self) -> dict[str, Any]:
        """What the journal says about how the run was started; empty without one."""
        return self._of(lambda reader: _started(reader), {}, "started", JOURNAL, _LOG)

    def summary(self) -> dict[str, Any] | None:
        """`fit.json`."""
        return self._of(lambda reader: reader.summary(), None, "summary", SUMMARY)

    def task(self) -> Task | None:
        """The kept task."""
        return self._of(lambda reader: reader.task(), None, "task", TASK)

    def classes(self) -> tuple[ClassSpec, ...]:
        """The task's classes, in its order."""
        task = self.task()
        return () if task is None else task.classes

    def added(self) -> frozenset[str]:
        """Classes that were added since the last fit."""
        return frozenset((self.summary() or {}).get("added", ()))

    def held_out(self) -> list[HeldOutAnswer]:
        """Given samples with what folds that did not see them say."""
        return self._of(lambda reader: reader.held_out(), [], "held out", HELD_OUT)

    def spending(self) -> dict[str, Any]:
        """What was spent so far; `held` is the part that calls on their way may cost at most."""
        empty = {**spending({}), "held": 0.0}
        return self._of(lambda reader: reader.spending(), empty, "spending", JOURNAL, _LOG)

    def samples(self) -> list[SampleSeen]:
        """Given and synthetic ones."""
        return self._of(lambda reader: reader.samples(), [], "samples", *_OF_SAMPLES)

    def sources(self) -> dict[str, ClassSources]:
        """Samples by class and source."""
        samples = self.samples()
        names = [spec.name for spec in self.classes()]
        seen = self._derived("sources", samples, lambda: sources_by_class(samples, names))
        return completed(seen, samples, self.figures(), self.summary() or {})

    def figures(self) -> RunFigures | None:
        """The rounds so far."""
        with self._lock:
            return None if self._figures is None else self._figures.follow()

    def sample(self, id_: str) -> SampleSeen:
        """The sample with that id; raises `Refused`."""
        samples = self.samples()
        by_id = self._derived("by id", samples, lambda: _by_id(samples))
        if id_ not in by_id:
            raise Refused(404, "not_found", "the run has no sample with this id")
        return by_id[id_]

    def review(self, id_: str, verdict: Verdict) -> SampleSeen:
        """Write a verdict down and return the sample as it is then; raises `Refused`."""
        sample = self.sample(id_)
        if sample.source == "given":
            raise invalid("id: is a given sample; change the task file instead")
        if verdict == "accept" and not can_enter(sample):
            raise invalid(f"id: the gate kept this sample out as {sample.reason}, which stands")
        with self._lock:
            Reviews(self.directory).add(sample.text, sample.class_name, verdict)
            self._note(folded(sample.text), verdict)
        return self.sample(id_)

    def _note(self, key: str, verdict: Verdict) -> None:
        """Change what was read before, where nothing else changed: reading 100,000 samples takes a second."""
        stamp, samples = self._kept["samples"]
        now = tuple(_stamp(self.directory / file) for file in _OF_SAMPLES)
        at = _OF_SAMPLES.index(REVIEWS)
        if (*stamp[:at], *stamp[at + 1 :]) != (*now[:at], *now[at + 1 :]):
            return
        places = self._derived("by text", samples, lambda: _by_text(samples))
        ids = self._derived("by id", samples, lambda: _by_id(samples))
        for place in places.get(key, ()):
            samples[place] = replace(samples[place], verdict=None if verdict == "none" else verdict)
            ids[samples[place].id] = samples[place]
        self._kept["samples"] = now, samples
        self._kept.pop("waiting", None)

    def waiting(self) -> int:
        """Samples with which the next fit will deal otherwise than the last one did."""
        samples = self.samples()
        return self._derived("waiting", samples, lambda: self._waiting(samples))

    def _waiting(self, samples: Sequence[SampleSeen]) -> int:
        reviewed = Reviews(self.directory).verdicts()
        return sum(_changes(s) and folded(s.text) in reviewed for s in samples if s.source == "synthetic")

    def _of(self, look: Callable[[RunReader], T], nothing: T, name: str, *files: str) -> T:
        with self._lock:
            if self.reader is None:
                return nothing
            stamp = tuple(_stamp(self.directory / file) for file in files)
            if name not in self._kept or self._kept[name][0] != stamp:
                self._kept[name] = stamp, look(self.reader)
            found: T = self._kept[name][1]
            return found

    def _derived(self, name: str, of: object, make: Callable[[], T]) -> T:
        """What is worked out from something else, as long as that is the same object."""
        with self._lock:
            if name not in self._kept or self._kept[name][0] is not of:
                self._kept[name] = of, make()
            found: T = self._kept[name][1]
            return found


def can_enter(sample: SampleSeen) -> bool:
    """Whether accepting a sample makes a difference or confirms what is."""
    return sample.source == "synthetic" and (sample.reason is None or sample.reason in OVERRULED)


def _by_id(samples: Sequence[SampleSeen]) -> dict[str, SampleSeen]:
    """The first of each id: a text that was written twice has one."""
    return {sample.id: sample for sample in reversed(samples)}


def _by_text(samples: Sequence[SampleSeen]) -> dict[str, list[int]]:
    """Places of the synthetic samples that a verdict on a folded text is about."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, sample in enumerate(samples):
        if sample.source == "synthetic":
            places[folded(sample.text)].append(place)
    return places


def _changes(sample: SampleSeen) -> bool:
    """Whether a fit that follows the last verdict on a sample changes anything."""
    if sample.verdict == "reject":
        return sample.used
    if sample.verdict == "accept":
        return not sample.used and can_enter(sample)
    return sample.used != (sample.reason is None)  # a verdict was taken back


def _started(reader: RunReader) -> dict[str, Any]:
    segments = reader.segments()
    if not segments:
        return {}
    last = segments[-1].data
    return {
        "policy": last["inputs"]["policy"],
        "generator": reader.started().get("generator"),
        "budget": last["inputs"]["budget"],
        "changes": last["changes"],
        "parts": len(segments),
        "at": segments[0].at,
    }


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
