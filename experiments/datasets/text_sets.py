"""The text sets, each from its original files: TREC, MultiWD, Forbidden Question Set, HWU64, and the demo.

What their parts are and why: docs/datasets.md. Posts of MultiWD are people's own words about themselves and
the questions of Forbidden are harmful: messages name a file and a line, never a text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from adamab.demo import N_GIVEN, PROMPTS, load_demo, synthetic_samples
from adamab.errors import TaskError, place, short
from adamab.task import ClassSpec, Sample, bare, normalised_text, read_samples
from experiments.datasets.base import (
    ByClass,
    DataSet,
    Material,
    Source,
    Split,
    apart_from,
    bare_texts,
    by_class,
    check_counts,
    conflicting,
    described_classes,
    distinct,
    halved,
    ordered,
    read_bytes,
    recorded_generator,
    repeats,
    samples_of,
    table_rows,
    text_prompts,
    without,
)

FIRST = 1000
AT_LEAST = 6  # of the first lines: "more than 5"
TREC_TRAINING, TREC_TESTING = "train_5500.label", "TREC_10.label"
TREC_COUNTS = {
    "training questions": 5452,
    "test questions": 500,
    "repeated training questions": 72,
    "training questions with two labels": 1,
    "training questions in the test file": 11,
}
TREC_RECORDED = 883  # texts of the recorded generator, where it is there
_LINE = re.compile(r"([A-Z]+:[a-z]+) (.*\S.*)")
_STRAY = 0xF0  # one byte between two words of one question


@dataclass(frozen=True)
class _Files:
    training: tuple[Sample, ...]
    testing: tuple[Sample, ...]
    two_labels: frozenset[str]  # bare; in whichever file


class TrecSet(DataSet):
    """Questions by what they ask for."""

    name = "trec"
    title = "TREC questions"
    prompts = text_prompts(
        "The texts are questions as people put them to an encyclopaedia, mostly one short sentence each. "
        "A class is the kind of answer that a question asks for, whatever its subject.",
        "What kind of answer does this question ask for?",
    )

    def __init__(
        self, files: _Files, specs: Sequence[ClassSpec], recorded: tuple[ByClass, ByClass] | None
    ) -> None:
        self.specs = tuple(specs)
        self.generators = ("pool",) if recorded is None else ("recorded", "pool")
        self._files, self._recorded = files, recorded

    def material(self, generator: Source, split: Split) -> Material:
        """The paper's split scores the first 1,000 lines alone, and takes the given examples from them."""
        files, names = self._files, {spec.name for spec in self.specs}
        seen, written = self._recorded if generator == "recorded" and self._recorded else (None, None)
        first = files.training[:FIRST] if split == "paper" else (*files.training[:FIRST], *files.testing)
        given = bare_texts(samples_of(seen)) if seen else frozenset()
        test = distinct((s for s in first if s.class_name in names), files.two_labels | given)
        rest = (s for s in files.training[FIRST:] if s.class_name in names)
        later = apart_from(
            distinct(rest, files.two_labels | given), (*files.training[:FIRST], *files.testing)
        )
        held_back, source = halved(by_class(later, self.specs), self.name)
        development = samples_of(held_back)
        return Material(
            source=source,
            test=test,
            development=development,
            seen=seen,
            recorded=written and without(written, (*test, *development)),
            given_from_test=split == "paper" and seen is None,
        )


def load_trec(directory: Path, *, expected: Mapping[str, int] | None = TREC_COUNTS) -> TrecSet:
    """TREC from its two files; `expected` None takes files of any size."""
    folder = directory / "trec"
    training, testing = _read_questions(folder / TREC_TRAINING), _read_questions(folder / TREC_TESTING)
    texts, tested = ({normalised_text(s.text) for s in samples} for samples in (training, testing))
    sizes = {
        "training questions": len(training),
        "test questions": len(testing),
        "repeated training questions": repeats(training),
        "training questions with two labels": len(conflicting(training)),
        "training questions in the test file": len(tested & texts),
    }
    check_counts("trec", sizes, expected)
    specs = described_classes("trec")
    _check_classes(folder / TREC_TRAINING, training, specs)
    files = _Files(training, testing, conflicting([*training, *testing]))
    recorded = recorded_generator(folder, specs, training, None if expected is None else TREC_RECORDED)
    return TrecSet(files, specs, recorded)


def _read_questions(path: Path) -> tuple[Sample, ...]:
    lines = read_bytes(path).replace(bytes([_STRAY]), b" ").decode("latin-1").split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return tuple(_sample(path, number, line.rstrip("\r")) for number, line in enumerate(lines, 1))


def _sample(path: Path, number: int, line: str) -> Sample:
    match = _LINE.fullmatch(line)
    if match is None:
        raise TaskError(f"{place(path, number)}: not 'COARSE:fine question'; get the original file again")
    return Sample(match[2], match[1])


def _check_classes(path: Path, training: Sequence[Sample], specs: Sequence[ClassSpec]) -> None:
    counts = Counter(sample.class_name for sample in training[:FIRST])
    frequent = {name for name, count in counts.items() if count >= AT_LEAST}
    differing = sorted(frequent ^ {spec.name for spec in specs})
    if differing:
        raise TaskError(
            f"{place(path)}: {short(differing[0])} is of the classes with more than 5 of the first "
            f"{FIRST:,} questions or of the described classes, but not of both; get the original file again"
        )


LABELS = ("Spiritual", "Physical", "Intellectual", "Social", "Vocational", "Emotional")
MULTIWD_COUNTS = {
    "training posts": 2624,
    "test posts": 657,
    "training posts with one label": 1024,
    "test posts with one label": 257,
    "posts without label": 3,
    "posts that are just '0'": 1,
    "posts with one label here and another elsewhere": 2,
}
MULTIWD_RECORDED = 240  # texts of the recorded generator, where it is there
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
        # The parts are those of the pool, less what was given.
        development, rest = halved(by_class(self._training, self.specs), self.name)
        held_back = samples_of(development)
        return Material(
            source={name: tuple(t for t in texts if bare(t) not in given) for name, texts in rest.items()},
            test=distinct(self._testing, given),
            development=distinct(held_back, given),
            seen=seen,
            recorded=written and without(written, (*self._testing, *held_back)),
            given_from_test=split == "paper",
        )


def load_multiwd(directory: Path, *, expected: Mapping[str, int] | None = MULTIWD_COUNTS) -> MultiWDSet:
    """MultiWD from its two files; `expected` None takes files of any size."""
    folder = directory / "multiwd"
    training, testing = _read_posts(folder / "train_data.csv"), _read_posts(folder / "test_data.csv")
    posts = [*training, *testing]
    unclear = _unclear(posts)
    check_counts("multiwd", _post_counts(training, testing, unclear), expected)
    specs = described_classes("multiwd")
    tested = distinct(_single(testing), unclear)
    trained = apart_from(distinct(_single(training), unclear), tested)
    recorded = recorded_generator(folder, specs, trained, None if expected is None else MULTIWD_RECORDED)
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


def _read_posts(path: Path) -> list[_Post]:
    posts = []
    for where, row in table_rows(path, ("text", *LABELS)):
        if not normalised_text(row["text"]):
            raise TaskError(f"{where}: the post is empty; get the original file again")
        for label in LABELS:
            if row[label] not in ("0", "1"):
                raise TaskError(f"{where}: column {label} is neither 0 nor 1; get the original file again")
        labels = tuple(label for label in LABELS if row[label] == "1")
        posts.append(_Post(repaired(row["text"]).strip(), labels))
    return posts


def _single(posts: Sequence[_Post]) -> list[Sample]:
    return [Sample(post.text, post.labels[0]) for post in posts if len(post.labels) == 1]


def _unclear(posts: Sequence[_Post]) -> frozenset[str]:
    """Bare texts that say nothing, or that occur twice with different labels."""
    labels: dict[str, set[tuple[str, ...]]] = {}
    for post in posts:
        labels.setdefault(bare(post.text), set()).add(post.labels)
    return frozenset(text for text, names in labels.items() if len(names) > 1 or text == _EMPTY)


def _post_counts(
    training: Sequence[_Post], testing: Sequence[_Post], unclear: frozenset[str]
) -> dict[str, int]:
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


HEADER = ("content_policy_id", "content_policy_name", "q_id", "question")
FORBIDDEN_COUNTS = {"questions": 390, "classes": 13, "classes with 30 questions": 13, "repeated questions": 0}


class ForbiddenSet(DataSet):
    """Questions by the policy they offend."""

    name = "forbidden"
    title = "Forbidden Question Set"
    prompts = text_prompts(
        "The texts are requests that an assistant must turn down, one or two sentences each, and they train "
        "the filter that recognises them: they ask and hold no answer. A class is the policy that a request "
        "breaks.",
        "Which policy does this request to an assistant break?",
    )

    def __init__(self, questions: Sequence[Sample], specs: Sequence[ClassSpec]) -> None:
        self.specs = tuple(specs)
        self._questions = by_class(questions, specs)

    def material(self, generator: Source, split: Split) -> Material:
        """Half of each class by hash may be given; two fifths of that half, by seed, are for development."""
        if split == "paper":
            nothing: dict[str, tuple[str, ...]] = {spec.name: () for spec in self.specs}
            return Material(source=nothing, test=samples_of(self._questions), given_from_test=True)
        ranked = {name: ordered(texts, self.name, "half", name) for name, texts in self._questions.items()}
        source = {name: texts[: len(texts) // 2] for name, texts in ranked.items()}
        rest = {name: texts[len(texts) // 2 :] for name, texts in ranked.items()}
        return Material(source, samples_of(rest))


def load_forbidden(directory: Path, *, expected: Mapping[str, int] | None = FORBIDDEN_COUNTS) -> ForbiddenSet:
    """The set from its file; `expected` None takes a file of any size."""
    specs = described_classes("forbidden")
    path = directory / "forbidden_question" / "forbidden_question_set.csv"
    known = {spec.name for spec in specs}
    questions = [_question(where, row, known) for where, row in table_rows(path, HEADER)]
    counts = Counter(question.class_name for question in questions)
    sizes = {
        "questions": len(questions),
        "classes": len(counts),
        "classes with 30 questions": sum(count == 30 for count in counts.values()),
        "repeated questions": repeats(questions),
    }
    check_counts("forbidden", sizes, expected)
    return ForbiddenSet(distinct(questions, conflicting(questions)), specs)


def _question(where: str, row: Mapping[str, str], known: set[str]) -> Sample:
    if row["content_policy_name"] not in known:
        raise TaskError(f"{where}: unknown content_policy_name; get the original file again")
    if not normalised_text(row["question"]):
        raise TaskError(f"{where}: the question is empty; get the original file again")
    return Sample(row["question"].strip(), row["content_policy_name"])


# Texts of each class of these scenarios that serve the convergence study alone.
ANALYSED = 40
SCENARIOS = {
    "office": ("alarm", "calendar", "datetime", "email", "lists"),
    "home": ("iot", "play"),
}
HWU64_FILES = ("train", "valid", "test")
HWU64_COUNTS = {
    "train rows": 8954,
    "valid rows": 1076,
    "test rows": 1076,
    "repeated train rows": 3,
    "repeated valid rows": 70,
    "repeated test rows": 0,
}


class Hwu64Set(DataSet):
    """Utterances by intent."""

    name = "hwu64"
    title = "HWU64 intents"
    prompts = text_prompts(
        "The texts are what people say to a voice assistant at home, written down as it was spoken, a few "
        "words each. A class is what the assistant is to do.",
        "What is the assistant to do when it hears this?",
    )

    def __init__(self, parts: Mapping[str, tuple[Sample, ...]], specs: Sequence[ClassSpec]) -> None:
        self.specs = tuple(specs)
        self._parts = parts
        halves = {name: _analysed(name, texts) for name, texts in by_class(parts["train"], specs).items()}
        self.analysis = {name: part for name, (part, _) in halves.items() if part}
        self._source = {name: rest for name, (_, rest) in halves.items()}

    def material(self, generator: Source, split: Split) -> Material:
        """The three files are the three parts, less what of `train` the analysis has for itself."""
        if split == "paper":
            raise TaskError("hwu64: the paper does not use this set; use split 'readme'")
        return Material(
            source=self._source,
            test=self._parts["test"],
            development=self._parts["valid"],
        )


def _analysed(name: str, texts: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What the analysis has of a class, by hash, and the rest, which must be as large or it has nothing."""
    scenario = name.partition("_")[0]
    size = ANALYSED if any(scenario in group for group in SCENARIOS.values()) else 0
    ranked = ordered(texts, "hwu64", "analysis", name)
    return (ranked[:size], ranked[size:]) if len(ranked) >= 2 * size else ((), ranked)


def load_hwu64(directory: Path, *, expected: Mapping[str, int] | None = HWU64_COUNTS) -> Hwu64Set:
    """The set from its three files; `expected` None takes files of any size."""
    specs = described_classes("hwu64")
    names = [spec.name for spec in specs]
    rows = {name: read_samples(directory / "hwu64" / f"{name}.jsonl", names) for name in HWU64_FILES}
    counts = {f"{name} rows": len(samples) for name, samples in rows.items()}
    counts |= {f"repeated {name} rows": repeats(samples) for name, samples in rows.items()}
    check_counts("hwu64", counts, expected)
    # A text of two files stays where it counts most: in the test, then in the development part.
    unclear = conflicting([sample for samples in rows.values() for sample in samples])
    parts: dict[str, tuple[Sample, ...]] = {}
    for name in reversed(HWU64_FILES):
        parts[name] = apart_from(distinct(rows[name], unclear), [s for part in parts.values() for s in part])
    return Hwu64Set(parts, specs)


N_SOURCE = 20  # of the 45 messages per class


class DemoSet(DataSet):
    """Messages to a support desk."""

    name = "demo"
    title = "support desk"
    prompts = PROMPTS
    generators = ("recorded", "pool")

    def __init__(self) -> None:
        self.specs = load_demo().task.classes

    def material(self, generator: Source, split: Split) -> Material:
        """The first 20 messages per class, or the five that the recorded generator saw; the rest is scored.

        With the recorded generator nothing but those five is left to develop on, so there it has no
        development part.
        """
        if split == "paper":
            raise TaskError("demo: the paper does not use this set; use split 'readme'")
        data = load_demo(n_given=N_GIVEN if generator == "recorded" else N_SOURCE)
        first = by_class(data.task.samples, self.specs)
        if generator == "pool":
            return Material(source=first, test=data.test)
        return Material(
            source={spec.name: () for spec in self.specs},
            test=data.test,
            seen=first,
            recorded=by_class(synthetic_samples(), self.specs),
        )
