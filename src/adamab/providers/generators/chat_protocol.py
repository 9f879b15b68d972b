"""What goes over the wire to a chat model, and how its answers are read.

Requests and answers are written and read in OpenAI's form; `PROTOCOLS` translates for services that have
another one.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, TypeGuard

from adamab.errors import ApiError, GeneratorError, ProviderError, short
from adamab.providers.cache import Ask, MemoryReplies, Replies, Reply
from adamab.providers.generators import anthropic_messages
from adamab.providers.generators.base import Generator
from adamab.providers.http import ApiClient, BadAnswerError, connection
from adamab.providers.metering import Usage
from adamab.providers.services import PROVIDERS, Service
from adamab.task.prompts import Prompts

Messages = Sequence[Mapping[str, str]]
MOST_OUTPUT = 16_000  # tokens of one answer
_LEAST_TOKENS = 48  # of a sample, as far as the output's bound is concerned
_LEAST_OUTPUT = 128  # tokens; with less an answer seldom has a single text
_HALVINGS = 4  # of an answer's room, then of a prompt's texts
_FRAME = 200  # tokens of an answer beside its samples
_PER_MESSAGE = 16  # tokens that a chat template puts around a message, generously
_PER_TOOL = 1000  # tokens that a service adds to a request with a tool; a few hundred are documented


def _as_it_is(form: Any) -> Any:
    return form


@dataclass(frozen=True)
class Protocol:
    """How a service is asked: where, and in what form beside OpenAI's."""

    path: str = "/chat/completions"
    request: Callable[[dict[str, Any]], dict[str, Any]] = _as_it_is
    answer: Callable[[Any], Any] = _as_it_is

    def reply(self, answer: Any) -> Reply:
        """What the model wrote."""
        return reply_of(self.answer(answer))

    def usage(self, answer: Any) -> Usage | None:
        """The tokens that the service counted; None where it does not say."""
        return usage_of(self.answer(answer))


PROTOCOLS = {
    "openai": Protocol(),
    "anthropic": Protocol(
        anthropic_messages.PATH, anthropic_messages.to_messages, anthropic_messages.from_message
    ),
}


def protocol_of(service: Service) -> Protocol:
    """How the chat models of a service are asked; raises `ProviderError` where it has none."""
    if not service.provider.chats:
        chats = [name for name, provider in PROVIDERS.items() if provider.chats]
        raise ProviderError(f"{service.name}: has no chat models; those who have: {', '.join(chats)}")
    return PROTOCOLS[service.provider.chats]


class ApiGenerator(Generator):
    """What generators behind an API share: a client, and replies that are kept."""

    scheme: str  # in specs: the service's name, or of a generator of its own
    example: ClassVar[str]  # the name of a model

    def __init__(self, model: str, options: Mapping[str, str | float | None], name: str = "openai") -> None:
        if not model.strip():
            raise GeneratorError(
                f"{self.scheme}: no model; write {self.scheme}:MODEL, such as {self.example}"
            )
        service, limits = connection(name, options)
        self.model = model.strip()
        self.api: ApiClient = ApiClient(service, self.model, limits)
        self.replies: Replies = MemoryReplies()
        self.prompts = Prompts()

    def __str__(self) -> str:
        return f"{self.scheme}:{self.model}"

    async def _reply_or_refusal(self, ask: Ask, reply: Awaitable[Reply]) -> Reply:
        """The reply; where the server declines with an error, a refused one."""
        try:
            return await reply
        except ApiError as error:
            if not error.refused:
                raise
        declined = Reply("", refused=True)
        self.replies.put(ask, declined)  # so that a resumed run does not ask a second time
        return declined


@dataclass(frozen=True)
class Dialect:
    """Which of the optional parameters a server takes; learned from its errors, kept for the session."""

    schema: bool = True
    schema_count: bool = False  # the schema may say how many texts; small models need it, OpenAI refuses it
    new_limit: bool = True  # `max_completion_tokens`, which OpenAI wants; others know `max_tokens`
    seed: bool = True
    temperature: bool = True

    def others(self) -> Iterator[Dialect]:
        """What to try after an error that does not say which parameter is unknown.

        One change at a time, most likely first; then without structured output and one change more;
        at last everything at once.
        """
        options = [field.name for field in fields(self)]
        changes = [{name: False} for name in options if getattr(self, name) and name != "new_limit"]
        changes.insert(self.schema + self.schema_count, {"new_limit": not self.new_limit})
        for change in changes:
            yield replace(self, **change)
        if self.schema:
            for change in changes[1:]:
                if "schema_count" not in change:
                    yield replace(self, schema=False, **change)
        for new_limit in (self.new_limit, not self.new_limit):
            yield Dialect(schema=False, new_limit=new_limit, seed=False, temperature=False)


class LearnedDialect:
    """The dialect that one server turns out to speak."""

    def __init__(self, first: Dialect) -> None:
        self.dialect = first

    async def ask(
        self, body_of: Callable[[Dialect], dict[str, Any]], send: Callable[[dict[str, Any]], Awaitable[Any]]
    ) -> Any:
        """The answer to a request in the first dialect that the server understands.

        Args:
            body_of: writes the request in a dialect.
            send: sends it; an `ApiError` that is `unsupported` means that another dialect should be tried.

        Returns:
            What `send` returned; the dialect is remembered.
        """
        tried: list[dict[str, Any]] = []
        failures: list[ApiError] = []
        for dialect in self._to_try():
            body = body_of(dialect)
            if body in tried:
                continue
            tried.append(body)
            try:
                answer = await send(body)
            except ApiError as error:
                if not error.unsupported:
                    raise
                failures.append(error)
            else:
                self.dialect = dialect
                return answer
        raise failures[0]

    def _to_try(self) -> Iterator[Dialect]:
        """In this order; another task may learn the right one in the meantime."""
        for dialect in (self.dialect, *self.dialect.others()):
            yield self.dialect
            yield dialect


@dataclass(frozen=True)
class Size:
    """How large a server lets a request be; learned from its errors as well."""

    output: int = sys.maxsize  # tokens of an answer
    texts: int = sys.maxsize  # existing texts that a prompt shows, and half of the examples

    def smaller(self, limit: int, texts: int) -> Iterator[Size]:
        """What to try after a request that was too large, without saying in what.

        Less room for the answer, since that is a mere allowance; if it is not that, a shorter prompt.

        Args:
            limit: tokens that an answer would have without any limit of the server's.
            texts: how many texts a prompt would show without one.
        """
        allowed = min(limit, self.output)
        room = [max(allowed >> halvings, _LEAST_OUTPUT) for halvings in range(1, 1 + _HALVINGS)]
        for output in dict.fromkeys(room):
            if output < allowed:
                yield replace(self, output=output)
        for halvings in range(1, 1 + _HALVINGS):
            yield Size(min(room[1], allowed), min(texts, self.texts) >> halvings)


def response_format(count: int, *, with_count: bool) -> dict[str, Any]:
    """Structured output of `count` texts; `with_count`: the schema itself demands so many."""
    # OpenAI's strict mode takes no minItems and maxItems, so the count stands in the name as well.
    texts: dict[str, Any] = {"type": "array", "items": {"type": "string"}, "description": f"{count} texts"}
    if with_count:
        texts |= {"minItems": count, "maxItems": count}
    schema = {
        "type": "object",
        "properties": {"texts": texts},
        "required": ["texts"],
        "additionalProperties": False,
    }
    return {
        "type": "json_schema",
        "json_schema": {"name": f"texts_{count}", "strict": True, "schema": schema},
    }


def output_bound(count: int, examples: Sequence[str]) -> int:
    """Tokens that an answer may have: three times the longest example for each text.

    Three bytes per token is about right for most scripts and generous for English.

    Args:
        count: Texts that are asked for.
        examples: Texts as long as those that are expected.

    Returns:
        The limit that a request sets.
    """
    longest = max((len(_utf8(text)) for text in examples), default=0)
    return min(count * max(_LEAST_TOKENS, longest) + _FRAME, MOST_OUTPUT)


def input_bound(body: Mapping[str, Any]) -> int:
    """More tokens than the input can have.

    A token of a byte-level tokenizer covers at least one byte, so the bytes are a strict upper bound.
    """
    messages: Messages = body["messages"]
    prompt = sum(len(_utf8(message["content"])) + _PER_MESSAGE for message in messages)
    form = sum(len(json.dumps(body[name])) for name in ("response_format", "tools") if name in body)
    return prompt + form + (_PER_TOOL if "tools" in body else 0)


def digest(*parts: object) -> str:
    """The sha256 of plain values."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=list)
    return hashlib.sha256(text.encode()).hexdigest()


def seed_of(*parts: object) -> int:
    """A seed that depends on all of `parts`; below 2^31, which every server takes."""
    return int(digest(*parts)[:8], 16) & 0x7FFF_FFFF


def number_option(
    option: str, value: str | float, least: float, most: float = math.inf, *, whole: bool = False
) -> float:
    """The number that a user wrote for an option; raises `ProviderError`.

    Args:
        option: Its name in the error, such as `openai: option seed`.
        value: What the user wrote.
        least: The smallest number that is allowed.
        most: The largest.
        whole: Whether only whole numbers are allowed.

    Returns:
        The number.
    """
    try:
        number: float = int(value) if whole else float(value)
    except ValueError:
        number = math.nan
    if not least <= number <= most:
        limits = f"from {least:g} on" if most == math.inf else f"from {least:g} to {most:g}"
        raise ProviderError(f"{option}={short(value)}: give a {'whole ' * whole}number {limits}")
    return number


def usage_of(answer: Any) -> Usage | None:
    """The tokens that the server counted; None where it does not say."""
    usage = answer.get("usage") if isinstance(answer, dict) else None
    if not isinstance(usage, dict):
        return None
    sent, written = usage.get("prompt_tokens"), usage.get("completion_tokens")
    return Usage(sent, written) if is_count(sent) and is_count(written) else None


def reply_of(answer: Any) -> Reply:
    """The first choice's text; an answer without one is empty, one that is no chat answer an error."""
    if not isinstance(answer, dict) or not isinstance(answer.get("choices"), list):
        raise BadAnswerError("an answer without choices")
    choice = next((c for c in answer["choices"] if isinstance(c, dict)), {})
    message = choice.get("message")
    message = message if isinstance(message, dict) else {}
    reason = choice.get("finish_reason")
    content = message.get("content")
    listed = content if isinstance(content, list) else [content]
    parts = [part if isinstance(part, dict) else {"text": part} for part in listed]
    texts = [part.get("text") for part in parts]
    refused = bool(message.get("refusal")) or reason == "content_filter"
    return Reply(
        "".join(text for text in texts if isinstance(text, str)),
        refused=refused or any(part.get("type") == "refusal" for part in parts),
        cut=reason == "length",
    )


def is_count(value: object) -> TypeGuard[int]:
    """Whether a value of a server's answer can be a number of things."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
