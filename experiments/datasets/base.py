"""What a data set is: samples with fixed parts, and how tasks are drawn from them.

Also what the loaders share: labelled rows without repeats, the recorded generator, prompts.
"""

from __future__ import annotations

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, get_args

from adamab.errors import TaskError, place, short, suggestion
from adamab.run.gate import Holdout
from adamab.task import ClassSpec, Image, Prompts, Sample, Task, bare, normalised_text, read_samples
from adamab.task.prompts import CLASSIFY, DRAW, GENERATE
from adamab.task.spec import Modality
from adamab.task.tables import read_rows

if TYPE_CHECKING:
    from adamab.providers.embedders.base import Embedder

Source = Literal["recorded", "pool"]
Part = Literal["test", "development"]
Split = Literal["readme", "paper"]
ByClass = Mapping[str, tuple[str, ...]]

_IMAGES = "-images"  # behind the name that an image set has as stored vectors
TEXTS, FEATURES = ("trec", "multiwd", "forbidden", "hwu64", "demo"), ("pets", "flowers102", "cub200")
IMAGE_SETS = tuple(f"{name}{_IMAGES}" for name in FEATURES)
SCORED_ONCE = ("banking77", "clinc150")
NAMES = (*TEXTS, *FEATURES, *SCORED_ONCE, *IMAGE_SETS)


@dataclass(frozen=True)
class Draw:
    """What one seed of an experiment uses; nothing of `test` is in any of the other parts."""

    set: str
    seed: int
    task: Task  # classes with descriptions, given samples
    pool: ByClass  # real texts that are neither given nor scored, in the draw's order
    recorded: ByClass  # recorded synthetic texts in the draw's order; {} unless they were asked for
    test: tuple[Sample, ...]  # what is scored: the test part, or the development part if asked for
    digest: str  # sha256 of all of it, texts and labels
    images: Mapping[str, Image] = field(default_factory=dict)  # what `pool` names, where that is images


@dataclass(frozen=True)
class Material:
    """The parts of a set before a seed draws from them; `source`, `development` and `test` share no text."""

    source: ByClass  # given examples and the pool are drawn from it
    test: tuple[Sample, ...]
    development: tuple[Sample, ...] | None = None  # None: two fifths of the source, by seed
    seen: ByClass | None = None  # the examples that the recorded generator saw, which are the given ones
    recorded: ByClass | None = None
    given_from_test: bool = False  # as in the paper


class _Shared:
    """What all seeds have in common: the material, and what is known about its texts.

    Every draw asks the same of nearly the same texts, which takes far longer than to draw them.
    """

    def __init__(self, material: Material) -> None:
        self.material = material
        self.bare = cache(bare)
        self._answers: dict[str, Callable[[str], bool]] = {}  # by part

    def gives_away(self, scored: tuple[Sample, ...]) -> Callable[[str], bool]:
        """Whether a text gives one of these away; answers about a part that depends on no seed are kept."""
        for part in ("test", "development"):
            if scored is getattr(self.material, part):
                if part not in self._answers:
                    self._answers[part] = cache(_holdout(scored).__contains__)
                return self._answers[part]
        return _holdout(scored).__contains__


class DataSet(ABC):
    """A set of labelled samples with fixed parts.

    An implementation sets the attributes and writes `material`. `prompts` say what kind of samples these
    are; `content` identifies what the samples' names stand for, where samples are not texts; `images` are
    the images by reference, where they are images. `analysis` holds texts that are in no part: they
    serve a study which reports no accuracy.
    """

    name: str
    title: str
    specs: tuple[ClassSpec, ...]
    prompts: Prompts = Prompts()
    generators: tuple[Source, ...] = ("pool",)
    content: str = ""
    images: Mapping[str, Image] = MappingProxyType({})
    analysis: ByClass = MappingProxyType({})

    @abstractmethod
    def material(self, generator: Source, split: Split) -> Material:
        """The parts for this generator and split; a TaskError where the set has no such split."""

    def embedder(self) -> Embedder | None:
        """Vectors of the samples by name; None where samples are texts, which any embedder takes."""
        return None

    def draw(
        self,
        seed: int,
        *,
        given: int = 5,
        generator: Source = "pool",
        part: Part = "test",
        split: Split = "readme",
    ) -> Draw:
        """What `seed` uses: up to `given` examples per class, the pool or recording, and what is scored.

        A class with fewer texts than asked for gives what it has. Development draws are never those of
        the test part: `part` changes them like another seed.
        """
        self._check_request(seed, given, generator, part, split)
        shared, key = self._shared(generator, split), (self.name, split, part, str(seed))
        examples, source, scored = self._cut(shared, given, generator, part, key)
        pool = {name: ordered(texts, *key, "pool", name) for name, texts in source.items()}
        recorded = {
            name: ordered(texts, *key, "recorded", name)
            for name, texts in (shared.material.recorded or {}).items()
        }
        samples = samples_of(examples)
        self._check_apart(shared.gives_away(scored), samples, pool, recorded)
        modality: Modality = "image" if self.images else "text"
        return Draw(
            set=self.name,
            seed=seed,
            task=Task(self.specs, self._shown(samples), self.prompts, name=self.title, modality=modality),
            pool=pool,
            recorded=recorded,
            test=self._shown(scored),
            digest=_digest(self.content, samples, pool, recorded, scored),
            images={t: self.images[t] for texts in pool.values() for t in texts if t in self.images},
        )

    @cached_property
    def _known(self) -> dict[tuple[Source, Split], _Shared]:
        return {}

    def _shared(self, generator: Source, split: Split) -> _Shared:
        """The material, worked out once: seeds draw from the same."""
        if (generator, split) not in self._known:
            self._known[generator, split] = _Shared(self.material(generator, split))
        return self._known[generator, split]

    def _cut(
        self, shared: _Shared, given: int, generator: Source, part: Part, key: Sequence[str]
    ) -> tuple[ByClass, ByClass, tuple[Sample, ...]]:
        """The given examples, what they leave of the source, and what is scored."""
        source, scored = _scored(shared.material, part, key)
        if not scored:
            raise TaskError(
                f"{self.name}: no {part} part with generator {generator!r}; use another generator"
            )
        return _given(shared, source, scored, given, key)

    def _shown(self, samples: Sequence[Sample]) -> tuple[Sample, ...]:
        """The samples with their images."""
        return tuple(replace(sample, image=self.images.get(sample.text)) for sample in samples)

    def pool_sizes(
        self, given: int = 5, *, generator: Source = "pool", part: Part = "test", split: Split = "readme"
    ) -> dict[str, int]:
        """How many texts of each class a policy can ask for; every seed has the same number."""
        self._check_request(0, given, generator, part, split)
        shared = self._shared(generator, split)
        _, left, _ = self._cut(shared, given, generator, part, (self.name, split, part, "0"))
        texts = (shared.material.recorded or {}) if generator == "recorded" else left
        return {spec.name: len(texts.get(spec.name, ())) for spec in self.specs}

    def most_given(
        self, *, generator: Source = "pool", part: Part = "test", split: Split = "readme"
    ) -> dict[str, int]:
        """How many samples each class can give, none without such a part; every seed has the same number."""
        self._check_request(0, 0, generator, part, split)
        material = self._shared(generator, split).material
        source, scored = _scored(material, part, (self.name, split, part, "0"))
        start = _start(material, source, scored) if scored else {}
        return {spec.name: len(start.get(spec.name, ())) for spec in self.specs}

    def _check_request(self, seed: int, given: int, generator: str, part: str, split: str) -> None:
        if seed < 0 or given < 0:
            raise TaskError(f"{self.name}: seed {seed} and given {given} must not be negative")
        for what, value, known in (
            ("generator", generator, get_args(Source)),
            ("part", part, get_args(Part)),
            ("split", split, get_args(Split)),
        ):
            if value not in known:
                raise TaskError(f"{self.name}: unknown {what} {short(value)}; {suggestion(value, known)}")
        if generator not in self.generators:
            raise TaskError(f"{self.name} has no recorded generator here; use generator 'pool'")
        if split == "paper" and part == "development":
            raise TaskError(f"{self.name}: the paper's split has no development part; use split 'readme'")

    def _check_apart(
        self, gives_away: Callable[[str], bool], given: Sequence[Sample], pool: ByClass, recorded: ByClass
    ) -> None:
        for what, texts in (
            ("given examples", [sample.text for sample in given]),
            ("pool", [text for of_class in pool.values() for text in of_class]),
            ("recording", [text for of_class in recorded.values() for text in of_class]),
        ):
            shared = sum(map(gives_away, texts))
            if shared:
                raise TaskError(f"{self.name}: {shared} scored texts are in the {what}; take them out there")


def load_data_set(name: str, directory: Path) -> DataSet:
    """The data set `name` from its original files below `directory` (`demo` needs none)."""
    from experiments.datasets import image_sets, score_once, text_sets

    loaders: dict[str, Callable[[Path], DataSet]] = {
        "trec": text_sets.load_trec,
        "multiwd": text_sets.load_multiwd,
        "forbidden": text_sets.load_forbidden,
        "hwu64": text_sets.load_hwu64,
        "demo": lambda _: text_sets.DemoSet(),
        "banking77": score_once.load_banking77,
        "clinc150": score_once.load_clinc150,
        **{images: partial(image_sets.load_image_set, images) for images in IMAGE_SETS},
    }
    if name in loaders:
        return loaders[name](directory)
    if name in NAMES:
        return image_sets.load_feature_set(name, directory)
    raise TaskError(f"unknown data set {short(name)}; {suggestion(name, NAMES)}")


def published_name(name: str) -> str:
    """What a set is called in the paper's tables, be it stored vectors or images.

    Example:
        >>> published_name("pets-images"), published_name("trec")
        ('pets', 'trec')
    """
    return name.removesuffix(_IMAGES)


def data_directory(given: Path | None = None) -> Path:
    """Where data sets are: `given`, else `ADAMAB_DATA`, else `../shared/data` if it is there."""
    if given is not None:
        return given
    if named := os.environ.get("ADAMAB_DATA"):
        return Path(named)
    beside = Path("../shared/data")
    if not beside.is_dir():
        raise TaskError("no folder of data sets; name it with --data or ADAMAB_DATA")
    return beside


def described_classes(name: str) -> tuple[ClassSpec, ...]:
    """The classes of a set and a sentence about each, in our own words; the files are beside this one."""
    text = (Path(__file__).parent / name / "classes.json").read_text(encoding="utf-8")
    return tuple(ClassSpec(row["label"], row["description"]) for row in json.loads(text))


def ordered(texts: Iterable[str], *key: str) -> tuple[str, ...]:
    """`texts` in an order that depends on `key` and on nothing else, not even on their first order."""
    return tuple(sorted(texts, key=lambda text: (_rank((*key, normalised_text(text))), text)))


def development_part(texts: Iterable[str], *key: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Two fifths of `texts` by hash, rounded down, and the rest."""
    ranked = ordered(texts, *key, "development")
    size = 2 * len(ranked) // 5
    return ranked[:size], ranked[size:]


def halved(texts: ByClass, set_name: str) -> tuple[ByClass, ByClass]:
    """`development_part` of every class, and the rest of every class."""
    halves = {name: development_part(of_class, set_name, name) for name, of_class in texts.items()}
    return {name: part for name, (part, _) in halves.items()}, {
        name: rest for name, (_, rest) in halves.items()
    }


def by_class(samples: Iterable[Sample], specs: Sequence[ClassSpec]) -> dict[str, tuple[str, ...]]:
    """Texts of each class, in their order; a class without any has none."""
    texts: dict[str, list[str]] = {spec.name: [] for spec in specs}
    for sample in samples:
        texts[sample.class_name].append(sample.text)
    return {name: tuple(of_class) for name, of_class in texts.items()}


def samples_of(texts: ByClass) -> tuple[Sample, ...]:
    """The reverse of `by_class`."""
    return tuple(Sample(text, name) for name, of_class in texts.items() for text in of_class)


def check_counts(name: str, counts: Mapping[str, int], expected: Mapping[str, int] | None) -> None:
    """Refuse files that are not those the splits were written for, and say what differs."""
    differences = [
        f"{counts.get(what, 0):,} {what} instead of {count:,}"
        for what, count in (expected or {}).items()
        if counts.get(what, 0) != count
    ]
    if differences:
        raise TaskError(f"{name}: the files hold {', '.join(differences)}; get the original files again")


def _scored(material: Material, part: Part, key: Sequence[str]) -> tuple[ByClass, tuple[Sample, ...]]:
    if part == "test":
        return material.source, material.test
    if material.development is not None:
        return material.source, material.development
    halves = {name: development_part(texts, *key) for name, texts in material.source.items()}
    held_back = {name: scored for name, (scored, _) in halves.items()}
    return {name: rest for name, (_, rest) in halves.items()}, samples_of(held_back)


def _start(material: Material, source: ByClass, scored: Sequence[Sample]) -> ByClass:
    """What given examples are chosen from."""
    if material.seen is not None:
        return material.seen
    if material.given_from_test:
        return {name: tuple(s.text for s in scored if s.class_name == name) for name in source}
    return source


def _given(
    shared: _Shared, source: ByClass, scored: tuple[Sample, ...], given: int, key: Sequence[str]
) -> tuple[ByClass, ByClass, tuple[Sample, ...]]:
    """The given examples, and what they leave of the source and of what is scored."""
    material, bare_of = shared.material, shared.bare
    start = _start(material, source, scored)
    most = max(len(texts) for texts in start.values())
    if material.seen is not None and given > most:
        raise TaskError(f"{key[0]}: the recorded generator saw {most} examples per class, not {given}")
    chosen = {name: ordered(texts, *key, "given", name)[:given] for name, texts in start.items()}
    taken = {bare_of(text) for texts in chosen.values() for text in texts}
    left = {name: tuple(t for t in texts if bare_of(t) not in taken) for name, texts in source.items()}
    if material.given_from_test:
        scored = tuple(sample for sample in scored if bare_of(sample.text) not in taken)
    return chosen, left, scored


def _holdout(samples: Iterable[Sample]) -> Holdout:
    return Holdout(sample.text for sample in samples)


def _rank(parts: Sequence[str]) -> bytes:
    return hashlib.sha256("\x1f".join(parts).encode()).digest()


def _digest(
    content: str, given: Sequence[Sample], pool: ByClass, recorded: ByClass, test: Sequence[Sample]
) -> str:
    state = hashlib.sha256(content.encode())
    for row in _rows(given, pool, recorded, test):
        state.update(json.dumps(row).encode() + b"\n")
    return state.hexdigest()


def _rows(
    given: Sequence[Sample], pool: ByClass, recorded: ByClass, test: Sequence[Sample]
) -> Iterator[tuple[str, str, str]]:
    yield from (("given", sample.class_name, sample.text) for sample in given)
    for part, texts in (("pool", pool), ("recorded", recorded)):
        yield from ((part, name, text) for name, of_class in texts.items() for text in of_class)
    yield from (("test", sample.class_name, sample.text) for sample in test)


EXAMPLES, RECORDING = "classes.json", "synthetic.jsonl"


def read_bytes(path: Path) -> bytes:
    """The file, or one line that says where it should be."""
    try:
        return path.read_bytes()
    except OSError:
        raise TaskError(
            f"{place(path)}: no such file, or it cannot be read; name the folder of data sets with --data"
        ) from None


def table_rows(path: Path, header: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Rows of a CSV file with exactly these columns, each with its `file:line`."""
    for row in read_rows(path, columns=header[:1]):
        if tuple(row.fields) != tuple(header):
            raise TaskError(f"{place(path, 1)}: the columns are not {', '.join(header)}; get the file again")
        yield row.place, {name: str(value) for name, value in row.fields.items()}


def repeats(samples: Sequence[Sample]) -> int:
    """How many of the samples have the text of an earlier one."""
    return len(samples) - len({normalised_text(sample.text) for sample in samples})


def conflicting(samples: Iterable[Sample]) -> frozenset[str]:
    """Bare texts with more than one class: which is right cannot be known."""
    classes: dict[str, set[str]] = defaultdict(set)
    for sample in samples:
        classes[bare(sample.text)].add(sample.class_name)
    return frozenset(text for text, names in classes.items() if len(names) > 1)


def distinct(samples: Iterable[Sample], leave_out: Collection[str] = ()) -> tuple[Sample, ...]:
    """The first of each bare text, without those of `leave_out` (bare as well)."""
    seen = set(leave_out)
    kept: list[Sample] = []
    for sample in samples:
        text = bare(sample.text)
        if text not in seen:
            seen.add(text)
            kept.append(sample)
    return tuple(kept)


def bare_texts(samples: Iterable[Sample]) -> frozenset[str]:
    """All texts of the samples, bare."""
    return frozenset(bare(sample.text) for sample in samples)


def apart_from(samples: Iterable[Sample], held_back: Iterable[Sample]) -> tuple[Sample, ...]:
    """The samples that give none of `held_back` away: no near copies, and none with one of them inside."""
    holdout = Holdout(sample.text for sample in held_back)
    return tuple(sample for sample in samples if sample.text not in holdout)


def without(texts: ByClass, held_back: Iterable[Sample]) -> dict[str, tuple[str, ...]]:
    """`apart_from` of texts by class; a class may be left with none."""
    kept = set(apart_from(samples_of(texts), held_back))
    return {name: tuple(t for t in of_class if Sample(t, name) in kept) for name, of_class in texts.items()}


def recorded_generator(
    folder: Path, specs: Sequence[ClassSpec], training: Iterable[Sample], expected: int | None
) -> tuple[ByClass, ByClass] | None:
    """The examples that the recorded generator saw and what it wrote; None where there is no recording.

    The examples must be of the `training` samples, and the recording of `expected` texts unless that is None.
    """
    examples, recording = folder / EXAMPLES, folder / RECORDING
    if not (examples.is_file() and recording.is_file()):
        return None
    seen = _seen(examples, specs)
    known = {(bare(sample.text), sample.class_name) for sample in training}
    for name, texts in seen.items():
        for number, text in enumerate(texts, 1):
            if (bare(text), name) not in known:
                raise TaskError(
                    f"{place(examples)}: example {number} of class {short(name)} is no training sample of it"
                )
    written = distinct(read_samples(recording, [spec.name for spec in specs]))
    if expected is not None:
        check_counts(folder.name, {"recorded texts": len(written)}, {"recorded texts": expected})
    return seen, by_class(written, specs)


def _seen(path: Path, specs: Sequence[ClassSpec]) -> ByClass:
    try:
        rows = json.loads(read_bytes(path))
        examples = {row["label"]: tuple(row["examples"]) for row in rows}
    except (ValueError, KeyError, TypeError):
        raise TaskError(
            f"{place(path)}: not a list of objects with label and examples; get it again"
        ) from None
    for spec in specs:
        texts = examples.get(spec.name)
        if not texts or not all(isinstance(text, str) and normalised_text(text) for text in texts):
            raise TaskError(f"{place(path)}: class {short(spec.name)} has no examples; get it again")
    return {spec.name: examples[spec.name] for spec in specs}


def text_prompts(about: str, asked: str) -> Prompts:
    """`about` says what the texts are and what a class is; `asked` is what a reranker is to find out.

    Example:
        >>> text_prompts("The texts are riddles.", "What is it?").rerank_query
        'What is it? {text}'
    """
    return Prompts(
        generate=f"{about}\n\n{GENERATE}", classify=f"{about}\n\n{CLASSIFY}", rerank_query=f"{asked} {{text}}"
    )


def image_prompts(about: str, asked: str) -> Prompts:
    """The same for images, whose class descriptions hold the name of the class."""
    return Prompts(
        described="{description}",
        rerank_class="{description}",
        draw=f"{about}\n\n{DRAW}",
        classify=f"{about}\n\n{CLASSIFY}",
        rerank_query=f"{asked} {{text}}",
    )
