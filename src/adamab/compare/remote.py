"""Methods that ask a judge about the samples, each question bought once and under the caps.

`chat:MODEL` asks a chat model which class suits a sample; it answers with a number. For a reranker the sample
is the query and the wordings of the classes are the documents: `rerank:SERVICE:MODEL` is one behind an API,
`cross-encoder:PATH-or-id` a local one by sentence-transformers, such as BGE-reranker-v2-m3.
"""

from __future__ import annotations

import asyncio
import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from adamab.compare.methods import Baseline, Floats, TrainingData
from adamab.errors import ApiError, TaskError, short, suggestion
from adamab.providers.async_bridge import run_sync
from adamab.providers.cache import Ask, MemoryReplies, Replies, Reply
from adamab.providers.embedders.base import Item
from adamab.providers.generators.answers import is_refusal, without_thoughts
from adamab.providers.judges import (
    SCHEME,
    ChatModel,
    CohereReranker,
    CrossEncoder,
    JinaReranker,
    Reranker,
    VoyageReranker,
    joined,
    scores_of,
)
from adamab.providers.metering import Usage
from adamab.providers.registry import CHATS, expand, unknown
from adamab.providers.services import split_service
from adamab.task.images import Image
from adamab.task.prompts import Prompts
from adamab.task.spec import ClassSpec, split_spec

if TYPE_CHECKING:
    from adamab.providers.metering import CallContext

Question: TypeAlias = tuple[Any, ...]  # what a judge's methods take
SERVICES: dict[str, Callable[..., Reranker]] = {
    "cohere": CohereReranker,
    "jina": JinaReranker,
    "voyage": VoyageReranker,
}
FLOOR = 0.01  # what the classes that were not named share: an answer is no certainty
NO_CLASS = ""  # predicted where no class was named; equal to no label, so always an error
NONE = -1  # the number for "no class suits"
Missing = Literal["none", "unparsed", "refused"]

# A whole number by itself: no part of a word, a decimal, a range or a percentage. A minus belongs to it
# only where nothing stands before it, as in "class-3" something does.
_NUMBER = r"(?<![\w.,])(?<![0-9][-:/])(?:(?<!-)-)?[0-9]{1,6}(?![0-9]|[.,:/%-][0-9]|\s?%|\w)"
_WHOLE = re.compile(_NUMBER)
_ALONE = re.compile(rf"[\s\W]*?({_NUMBER})[\s\W]*")
_NAMED = re.compile(
    rf"\b(answer|class|number|category|label|option|index)\b[\s\"'*_`#:=(\[]*"
    rf"(?:(?:is|number|no\.?|class|should be)\b[\s\"'*_`#:=(\[]*){{0,3}}({_NUMBER})",
    re.IGNORECASE,
)
_OBJECT, _VALUE = re.compile(r"\{[^{}]*\}"), re.compile(r""":\s*["']?(-?[0-9]{1,6})["']?\s*[,}]""")  # JSON
_LEADING = re.compile(rf"({_NUMBER})(?:[.):]\s|\s*\n)")
_MINUS = re.compile("[\u2010\u2011\u2012\u2013\u2212](?=[0-9])")
_CUT = re.compile(r"\S+\s*\Z")
_LOOKED_AT = 20_000  # characters; an answer of more is no number


@dataclass(frozen=True)
class Wording:
    """What a question says of the classes."""

    prompts: Prompts
    specs: tuple[ClassSpec, ...]
    examples: Mapping[str, tuple[str, ...]]  # by class; none unless the prompts want them

    @classmethod
    def of(cls, data: TrainingData) -> Wording:
        """Of training data; its given samples are the examples where `prompts.with_examples` says so."""
        specs = data.specs or tuple(ClassSpec(name) for name in data.classes)
        if tuple(spec.name for spec in specs) != data.classes:
            raise TaskError("the classes' descriptions are not in the order of the classes; give one each")
        return cls(data.prompts, specs, _examples(data) if data.prompts.with_examples else {})

    def documents(self) -> list[str]:
        """The classes as a reranker reads them."""
        return [self.prompts.rerank_class_text(spec, self.examples.get(spec.name, ())) for spec in self.specs]


class RemoteBaseline(Baseline):
    """A baseline that asks a judge behind an API. An implementation writes `_questions`.

    Nothing is trained. Every answer is looked for in `replies` before it is bought, and kept there before
    it is used; `metered` puts the calls under a budget.
    """

    def __init__(self, judge: ChatModel | Reranker) -> None:
        self.judge, self.api = judge, judge.api
        self.replies: Replies = MemoryReplies()

    @property
    def fingerprint(self) -> str:
        """The model, its place and what it is asked with."""
        return self.judge.fingerprint

    def planned(self, data: TrainingData, texts: Sequence[Item]) -> list[tuple[Usage, Usage]]:
        """The requests that a prediction would make; known answers and repeated texts need none.

        Args:
            data: what the baseline would be fitted on.
            texts: the samples to predict.

        Returns:
            For each request the expected usage and the most that it may be.
        """
        distinct = self._distinct(Wording.of(data), texts, [])
        return [self.judge.usage(*q) for name, q in distinct if self.replies.get(_ask(name)) is None]

    @abstractmethod
    def _questions(self, wording: Wording, item: Item) -> Iterator[Question]:
        """What is asked about a sample."""

    def _fit(self, data: TrainingData) -> None:
        self.wording_ = Wording.of(data)

    def _replies(self, texts: Sequence[Item], views: Mapping[str, Any]) -> list[list[Reply]]:
        """The answers to the questions about each sample; refuses vectors without their samples."""
        rows = len(next(iter(views.values()))) if views else len(texts)
        if len(texts) != rows:
            raise TaskError(
                f"{self.name}: {len(texts)} samples for {rows} vectors; pass the samples as texts"
            )
        if not texts:
            return []
        order: list[list[str]] = []
        replies = run_sync(self._bought(self._distinct(self.wording_, texts, order)))
        return [[replies[name] for name in names] for names in order]

    def _distinct(
        self, wording: Wording, texts: Sequence[Item], order: list[list[str]]
    ) -> Iterator[tuple[str, Question]]:
        """Each question once, with its name; `order` gets the names of those about each sample."""
        seen: set[str] = set()
        for item in texts:
            order.append([])
            for question in self._questions(wording, item):
                name = self.judge.digest(*question)
                order[-1].append(name)
                if name not in seen:
                    seen.add(name)
                    yield name, question

    async def _bought(self, questions: Iterator[tuple[str, Question]]) -> dict[str, Reply]:
        """All answers. After a failure nothing more is begun, and what is under way is waited for."""
        replies: dict[str, Reply] = {}
        failures: list[Exception] = []

        async def work() -> None:
            for name, question in questions:  # of all workers together
                try:
                    replies[name] = await self._answer(name, question)
                except Exception as error:
                    failures.append(error)
                if failures:
                    return

        await asyncio.gather(*(work() for _ in range(self.api.limits.concurrency)))
        if failures:
            raise failures[0]
        return replies

    async def _answer(self, name: str, question: Question) -> Reply:
        kept = self.replies.get(_ask(name))
        if kept is not None:
            return kept
        try:
            return await self.judge.ask(*question, keep=partial(self.replies.put, _ask(name)))
        except ApiError as error:
            if not error.too_large:
                raise
            remedy = "show fewer or shorter examples, set a smaller batch, or use a model that takes more"
            raise ApiError(f"{error}; {remedy}", status=error.status, too_large=True) from None


@contextmanager
def metered(baseline: Baseline, calls: CallContext) -> Iterator[None]:
    """Put a baseline's calls under caps, and its answers where `calls` keeps them, until the block ends.

    Args:
        baseline: one without an API passes through.
        calls: the caps, the prices and the answers that are there already.
    """
    if not isinstance(baseline, RemoteBaseline):
        yield
        return
    before = baseline.replies
    with calls.connected(baseline, None):  # type: ignore[arg-type]  # which looks at the client alone
        try:
            baseline.replies = calls.replies or before
            yield
        finally:
            baseline.replies = before


def _ask(name: str) -> Ask:
    """A question's name where answers are kept."""
    return Ask("", 0, 0, name)


def _examples(data: TrainingData) -> dict[str, tuple[str, ...]]:
    items = data.items or data.texts
    if any(isinstance(item, Image) for item in items):
        raise TaskError("prompts.with_examples: a wording cannot quote an image; leave it out")
    if len(items) != len(data.labels):
        raise TaskError(f"{len(items)} texts for {len(data.labels)} labels; examples need both")
    given = list(zip(items, data.labels, strict=True))[: data.given]
    return {name: tuple(str(item) for item, label in given if label == name) for name in data.classes}


def chosen(reply: Reply, classes: int) -> int | Missing:
    """Which of so many classes an answer names, counted from 0, or why it names none.

    Example:
        >>> chosen(Reply("Class 3."), 5), chosen(Reply("-1"), 5), chosen(Reply("between 2 and 3"), 5)
        (2, 'none', 'unparsed')
    """
    if reply.refused:
        return "refused"
    content = without_thoughts(reply.content)[:_LOOKED_AT]
    # The last word of an answer that was cut may be half a number.
    number = read_number(_CUT.sub("", content) if reply.cut else content)
    if number == NONE:
        return "none"
    if number is not None and 1 <= number <= classes:
        return number - 1
    return "refused" if number is None and is_refusal(content) else "unparsed"


def read_number(content: str) -> int | None:
    """The one whole number that an answer gives; None where it gives none, or several.

    Example:
        >>> [read_number(text) for text in ('```json\\n{"class": 4}\\n```', "7. Reason: 24 hours", "1 or 2")]
        [4, 7, None]
    """
    content = _MINUS.sub("-", content).strip()
    for numbers in _readings(content):
        if numbers:  # the strictest way of reading in which there is any number decides
            return numbers.pop() if len(numbers) == 1 else None
    return None


def _readings(text: str) -> Iterator[set[int]]:
    """The numbers of a text in ever looser ways of reading it."""
    braces = _OBJECT.search(text)
    yield {int(number) for number in _VALUE.findall(braces[0])} if braces else set()
    lines = [line for line in text.splitlines() if line.strip()]
    ends = [match for line in {*lines[:1], *lines[-1:]} if (match := _ALONE.fullmatch(line))]
    yield {int(match[1]) for match in ends}
    named = [(match[1].lower(), int(match[2])) for match in _NAMED.finditer(text)]
    yield {number for word, number in named if word == "answer"}
    yield {number for _, number in named}
    leading = _LEADING.match(text)
    yield {int(leading[1])} if leading else set()
    yield {int(match[0]) for match in _WHOLE.finditer(text)}


class ChatBaseline(RemoteBaseline):
    """Asks which class suits a text or an image, one request per sample, and takes a number for an answer.

    With `prompts.with_examples` the prompt shows the given samples of each class (few-shot). The class
    that was named gets 1 - `FLOOR`; where none was, all get the same and `predict` gives `NO_CLASS`.

    After a prediction `answered_` marks the samples for which a class was named, and `report` counts the
    answers that no class suits (none), that could not be read (unparsed), the refusals (refused), and those
    that ended for lack of room, whatever they said (cut).
    """

    name = "chat"
    answered_: NDArray[np.bool_]

    judge: ChatModel

    def __str__(self) -> str:
        return f"chat:{self.judge.name}"

    def predict(self, views: Mapping[str, Floats] | ArrayLike, texts: Sequence[Item] = ()) -> list[str]:
        """The class that was named for each sample, or `NO_CLASS`."""
        named = super().predict(views, texts)
        return [label if known else NO_CLASS for label, known in zip(named, self.answered_, strict=True)]

    def report(self) -> dict[str, int]:
        """The counts of the last prediction, for a table's notes."""
        return {kind: self._counts[kind] for kind in ("none", "unparsed", "refused", "cut")}

    def _questions(self, wording: Wording, item: Item) -> Iterator[Question]:
        text, image = (item, None) if isinstance(item, str) else (None, item)
        yield wording.prompts.classify_text(wording.specs, text, wording.examples), image

    def _predict_proba(self, views: Mapping[str, Floats], texts: Sequence[Item]) -> NDArray[np.float64]:
        count = len(self.classes_)
        replies = [reply for (reply,) in self._replies(texts, views)]
        answers = [chosen(reply, count) for reply in replies]
        self._counts: Counter[str] = Counter(answer for answer in answers if isinstance(answer, str))
        self._counts["cut"] = sum(reply.cut for reply in replies)
        self.answered_ = np.array([isinstance(answer, int) for answer in answers], dtype=np.bool_)
        probabilities = np.full((len(answers), count), 1.0 / count)
        if count > 1:
            probabilities[self.answered_] = FLOOR / (count - 1)
            for row, answer in enumerate(answers):
                if isinstance(answer, int):
                    probabilities[row, answer] = 1.0 - FLOOR
        return probabilities


def chat_from_spec(model: str, **options: Any) -> ChatBaseline:
    """The baseline that follows `chat:`: MODEL, PROVIDER:MODEL or a preset; options are `ChatModel`'s."""
    bare, preset = split_spec(expand(model, "chat"))
    given = {name: value for name, value in options.items() if value is not None}
    service, name = split_service(bare.partition(":")[2])
    judge = ChatModel(name, service, **{**preset, **given})
    head, colon, _ = name.partition(":")
    # No name of OpenAI's own models has a colon, but for those that were tuned.
    if colon and head != "ft" and service == "openai" and judge.api.service.own:
        raise TaskError(f"chat:{name}: {unknown('service', head, CHATS)}")
    return ChatBaseline(judge)


class RerankBaseline(RemoteBaseline):
    """The class whose wording a reranker finds most relevant to the sample, one request per sample.

    With `prompts.with_examples` a wording is followed by the given samples of its class (few-shot).
    More classes than a request takes are spread over several. `scale` turns scores, which lie between 0
    and 1, into logits; it changes the probabilities and never the prediction.
    """

    name = "reranker"

    def __init__(self, reranker: Reranker, *, scale: float = 10.0) -> None:
        super().__init__(reranker)
        self.batch, self.scale = reranker.batch, scale

    def __str__(self) -> str:
        return f"rerank:{self.api.service.name}:{self.api.model}"

    def _questions(self, wording: Wording, item: Item) -> Iterator[Question]:
        query = wording.prompts.rerank_query_text(item) if isinstance(item, str) else item
        documents = tuple(wording.documents())
        for start in range(0, len(documents), self.batch):
            yield query, documents[start : start + self.batch]

    def _predict_proba(self, views: Mapping[str, Floats], texts: Sequence[Item]) -> NDArray[np.float64]:
        rows = [scores_of(joined(replies)) for replies in self._replies(texts, views)]
        scores = np.array(rows, dtype=np.float64).reshape(len(rows), len(self.classes_))
        return np.asarray(softmax(self.scale * scores, axis=1), dtype=np.float64)


def rerank_from_spec(
    service_and_model: str, *, scale: float = 10.0, **options: str | float | None
) -> Baseline:
    """The baseline that follows `rerank:`, a service and its model, or a preset's name."""
    bare, preset = split_spec(expand(service_and_model, "reranker"))
    given = {**preset, **{name: value for name, value in options.items() if value is not None}}
    method, _, rest = bare.partition(":")
    if method == SCHEME:
        return cross_encoder_from_spec(rest, **given)  # type: ignore[arg-type]
    service, _, model = rest.partition(":")
    if service not in SERVICES or not model:
        raise TaskError(
            f"rerank:{short(rest)} does not read; write rerank:SERVICE:MODEL with a service of "
            f"{', '.join(SERVICES)}; {suggestion(service, SERVICES)}"
        )
    return RerankBaseline(SERVICES[service](model, **given), scale=scale)


class CrossEncoderBaseline(Baseline):
    """The class whose wording a cross-encoder scores highest beside the text: every pair goes through it.

    `model_parameters_` counts the model's own numbers, of which none is trained here.
    """

    name = SCHEME

    def __init__(self, model: CrossEncoder) -> None:
        self.model = model

    def __str__(self) -> str:
        return str(self.model)

    @property
    def fingerprint(self) -> str:
        """The model's."""
        return self.model.fingerprint

    def _fit(self, data: TrainingData) -> None:
        self.wording_ = Wording.of(data)
        self.model_parameters_ = self.model.n_parameters

    def _predict_proba(self, views: Mapping[str, Floats], texts: Sequence[Item]) -> NDArray[np.float64]:
        if any(not isinstance(item, str) for item in texts):
            raise TaskError(f"{self}: takes no images; use rerank:jina:jina-reranker-m0")
        if not texts:
            return np.zeros((0, len(self.classes_)))
        queries = [self.wording_.prompts.rerank_query_text(str(item)) for item in texts]
        distinct, row_of = np.unique(queries, return_inverse=True)
        documents = self.wording_.documents()
        scores = self.model.scores([(str(query), document) for query in distinct for document in documents])
        logits = scores.reshape(len(distinct), len(documents))[row_of]
        return np.asarray(softmax(logits, axis=1), dtype=np.float64)


def cross_encoder_from_spec(
    path_or_id: str, *, batch_size: int = 32, device: str = "auto"
) -> CrossEncoderBaseline:
    """The baseline that follows `cross-encoder:`, a directory, an id, or a preset's name."""
    bare, _ = split_spec(expand(f"{SCHEME}:{path_or_id}", "reranker"))
    model = CrossEncoder(bare.partition(":")[2], batch_size=batch_size, device=device)
    return CrossEncoderBaseline(model)
