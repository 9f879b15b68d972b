"""`chat:MODEL`: in-context classification by a chat model, all classes in one prompt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from adamab.providers.chat import MAX_TOKENS, PIXELS, ChatModel
from adamab.providers.embedders.base import Item
from adamab.providers.presets import expand
from adamab.providers.replies import Reply
from adamab.study.baselines.base import Floats
from adamab.study.baselines.chat_answers import chosen
from adamab.study.baselines.remote import Keep, Question, RemoteBaseline, Wording
from adamab.task.images import Image
from adamab.task.specs import split_spec

FLOOR = 0.01  # what the classes that were not named share: an answer is no certainty
NO_CLASS = ""  # predicted where no class was named; equal to no label, so always an error


class ChatBaseline(RemoteBaseline):
    """Asks which class suits a text or a picture, one request a sample, and takes a number for an answer.

    With `prompts.with_examples` the prompt shows the given samples of each class (few-shot). The class
    that was named gets 1 - `FLOOR`; where none was, all get the same and `predict` gives `NO_CLASS`.

    After a prediction `none_` counts the answers that no class suits, `unparsed_` those that could not be
    read, `refused_` the refusals, `cut_` those that ended for lack of room, whatever they said;
    `answered_` marks the samples for which a class was named.
    """

    name = "chat"

    def __init__(self, model: ChatModel) -> None:
        super().__init__()
        self.model = model
        self.api = model.api

    def __str__(self) -> str:
        return f"chat:{self.model.model}"

    def predict(self, views: Mapping[str, Floats] | ArrayLike, texts: Sequence[Item] = ()) -> list[str]:
        """The class that was named for each sample, or `NO_CLASS`."""
        named = super().predict(views, texts)
        return [label if known else NO_CLASS for label, known in zip(named, self.answered_, strict=True)]

    @property
    def fingerprint(self) -> str:
        """The model, its place and what it is asked with."""
        return self.model.fingerprint

    def report(self) -> dict[str, int]:
        """The counts of the last prediction, for a table's notes."""
        return {
            "none": self.none_,
            "unparsed": self.unparsed_,
            "refused": self.refused_,
            "cut": self.cut_,
        }

    def _questions(self, wording: Wording, item: Item) -> Iterator[Question]:
        text, image = (item, None) if isinstance(item, str) else (None, item)
        prompt = wording.prompts.classify_text(wording.specs, text, wording.examples)
        expected, most = self.model.usage(prompt, image)
        buy = partial(self._ask, prompt, image)
        yield Question(self.model.digest(prompt, image), expected, most, buy)

    async def _ask(self, prompt: str, image: Image | None, keep: Keep) -> Reply:
        return await self.model.ask(prompt, image, keep=keep)

    def _predict_proba(self, views: Mapping[str, Floats], texts: Sequence[Item]) -> NDArray[np.float64]:
        self._needs(texts, views)
        count = len(self.classes_)
        replies = [replies[0] for replies in self._replies(texts)]
        found = [chosen(reply, count) for reply in replies]
        counts = Counter(answer for answer in found if isinstance(answer, str))
        self.none_, self.unparsed_, self.refused_ = (counts[k] for k in ("none", "unparsed", "refused"))
        self.cut_ = sum(reply.cut for reply in replies)
        self.answered_ = np.array([isinstance(answer, int) for answer in found], dtype=np.bool_)
        rows = [_probabilities(answer, count) for answer in found]
        return np.array(rows, dtype=np.float64).reshape(len(rows), count)


def _probabilities(answer: int | str, count: int) -> NDArray[np.float64]:
    if isinstance(answer, str) or count == 1:
        return np.full(count, 1.0 / count)
    row = np.full(count, FLOOR / (count - 1))
    row[answer] = 1.0 - FLOOR
    return row


def from_spec(
    model: str,
    *,
    base_url: str | None = None,
    key_env: str | None = None,
    temperature: str | float = 0.0,
    max_tokens: str | int = MAX_TOKENS,
    pixels: str | int = PIXELS,
    **limits: str | float | None,
) -> ChatBaseline:
    """The baseline that follows `chat:`, a model's name or a preset's."""
    bare, preset = split_spec(expand(model, "chat"))
    given = {"base_url": base_url, "key_env": key_env, **limits}
    options = {**preset, **{name: value for name, value in given.items() if value is not None}}
    numbers = {"temperature": temperature, "max_tokens": max_tokens, "pixels": pixels}
    return ChatBaseline(ChatModel(bare.partition(":")[2], **{**options, **numbers}))  # type: ignore[arg-type]
