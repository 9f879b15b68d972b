"""MultiWD: forum posts about one of six dimensions of wellness; posts with one label only.

The posts are people's own words about themselves: messages name a file and a line, never a text.
The paper's counts (30 given of the test file's 257, 227 tested) are met by its split.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from adamab.errors import TaskError
from adamab.study.datasets.base import (
    ByClass,
    DataSet,
    Material,
    Source,
    Split,
    by_class,
    check_counts,
    described_classes,
    development_part,
    samples_of,
)
from adamab.study.datasets.labelled import (
    apart_from,
    bare_texts,
    distinct,
    recorded_generator,
    table_rows,
    without,
)
from adamab.study.datasets.wording import text_prompts
from adamab.task import ClassSpec, Sample, bare, folded

LABELS = ("Spiritual", "Physical", "Intellectual", "Social", "Vocational", "Emotional")
EXPECTED = {
    "training posts": 2624,
    "test posts": 657,
    "training posts with one label": 1024,
    "test posts with one label": 257,
    "posts without label": 3,
    "posts that are just '0'": 1,
    "posts with one label here and another elsewhere": 2,
}
RECORDED = 240  # texts of the recorded generator, where it is there
_EMPTY = "0"  # what is left of a post that a spreadsheet took for a number
_FOREIGN = re.compile(r"[^\x00-\x7f]+")


@dataclass(frozen=True)
class _Post:
    text: str
    labels: tuple[str, ...]


class MultiWDSet(DataSet):
    """Posts by the dimension of wellness they are about."""

    name = "multiwd"
    title = "MultiWD posts"
    prompts = text_prompts(
        "The texts are posts to a forum in which people write about themselves and how they are doing, a few "
        "plain sentences each. A class is the side of a person's wellness that a post is most about.",
        "Which side of the writer's wellness is this forum post about?",
    )

    def __init__(
        self,
        training: Sequence[Sample],
        testing: Sequence[Sample],
        specs: Sequence[ClassSpec],
        recorded: tuple[ByClass, ByClass] | None,
    ) -> None:
        self.specs = tuple(specs)
        self.generators = ("pool",) if recorded is None else ("recorded", "pool")
        self._training, self._testing, self._recorded = tuple(training), tuple(testing), recorded

    def material(self, generator: Source, split: Split) -> Material:
        """The paper's split takes the given examples from the test file; the pool stays the same."""
        seen, written = self._recorded if generator == "recorded" and self._recorded else (None, None)
        if seen and split == "paper":
            raise TaskError(
                "multiwd: the recorded generator saw training posts; use the pool with split paper"
            )
        given = bare_texts(samples_of(seen)) if seen else frozenset()
        halves = {
            name: development_part(texts, self.name, name)
            for name, texts in by_class(self._training, self.specs).items()
        }
        # The parts are those of the pool, less what was given.
        left = {name: tuple(t for t in rest if bare(t) not in given) for name, (_, rest) in halves.items()}
        held_back = samples_of({name: part for name, (part, _) in halves.items()})
        return Material(
            source=left,
            test=distinct(self._testing, given),
            development=distinct(held_back, given),
            seen=seen,
            recorded=written and without(written, (*self._testing, *held_back)),
            given_from_test=split == "paper",
        )


def load_multiwd(directory: Path, *, expected: Mapping[str, int] | None = EXPECTED) -> MultiWDSet:
    """MultiWD from its two files; `expected` None takes files of any size."""
    folder = directory / "multiwd"
    training, testing = _read(folder / "train_data.csv"), _read(folder / "test_data.csv")
    posts = [*training, *testing]
    unclear = _unclear(posts)
    check_counts("multiwd", _counts(training, testing, unclear), expected)
    specs = described_classes("multiwd")
    tested = distinct(_single(testing), unclear)
    trained = apart_from(distinct(_single(training), unclear), tested)
    recorded = recorded_generator(folder, specs, trained, None if expected is None else RECORDED)
    return MultiWDSet(trained, tested, specs, recorded)


def repaired(text: str) -> str:
    """UTF-8 that was read as MacRoman, undone; a run of characters that is something else stays.

    Example:
        >>> repaired("don‚Äôt")
        'don’t'
    """
    return _FOREIGN.sub(_repaired_run, text)


def _repaired_run(match: re.Match[str]) -> str:
    try:
        return match[0].encode("mac_roman").decode("utf-8")
    except UnicodeError:
        return match[0]


def _read(path: Path) -> tuple[_Post, ...]:
    return tuple(_post(where, row) for where, row in table_rows(path, ("text", *LABELS)))


def _post(where: str, row: Mapping[str, str]) -> _Post:
    if not folded(row["text"]):
        raise TaskError(f"{where}: the post is empty; get the original file again")
    for label in LABELS:
        if row[label] not in ("0", "1"):
            raise TaskError(f"{where}: column {label} is neither 0 nor 1; get the original file again")
    return _Post(repaired(row["text"]).strip(), tuple(label for label in LABELS if row[label] == "1"))


def _single(posts: Sequence[_Post]) -> list[Sample]:
    return [Sample(post.text, post.labels[0]) for post in posts if len(post.labels) == 1]


def _unclear(posts: Sequence[_Post]) -> frozenset[str]:
    """Bare texts that say nothing, or that stand there twice with different labels."""
    labels: dict[str, set[tuple[str, ...]]] = {}
    for post in posts:
        labels.setdefault(bare(post.text), set()).add(post.labels)
    return frozenset(text for text, found in labels.items() if len(found) > 1 or text == _EMPTY)


def _counts(training: Sequence[_Post], testing: Sequence[_Post], unclear: frozenset[str]) -> dict[str, int]:
    posts = [*training, *testing]
    single = {bare(post.text) for post in posts if len(post.labels) == 1}
    return {
        "training posts": len(training),
        "test posts": len(testing),
        "training posts with one label": len(_single(training)),
        "test posts with one label": len(_single(testing)),
        "posts without label": sum(not post.labels for post in posts),
        "posts that are just '0'": sum(post.text == _EMPTY for post in posts),
        "posts with one label here and another elsewhere": len(single & unclear - {_EMPTY}),
    }
