"""`openai:MODEL`: a chat model at OpenAI or at any server that speaks its protocol."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Awaitable, Sequence
from typing import Any

from adamab.errors import ApiError, BudgetError, GeneratorError
from adamab.providers.generators.answers import Answer, read_answer, without_thoughts
from adamab.providers.generators.base import Batch, Generator, Request, Settings
from adamab.providers.generators.chat_protocol import (
    MOST_OUTPUT,
    Dialect,
    Messages,
    Size,
    Spoken,
    digest,
    input_bound,
    output_bound,
    reply_of,
    request_body,
    seed_of,
    usage_of,
)
from adamab.providers.generators.diverse import clipped, diverse
from adamab.providers.generators.refusals import is_refusal
from adamab.providers.http import ApiClient, Call, connection
from adamab.providers.ledger import AHEAD
from adamab.providers.replies import Ask, MemoryReplies, Replies, Reply
from adamab.providers.usage import Usage, estimated_tokens
from adamab.task.messages import short
from adamab.task.prompts import Prompts
from adamab.task.words import folded

MORE_ASKS = 2  # further questions where an answer has too few texts
SHOWN = 20  # existing texts that a prompt shows, unless told otherwise
_MOST_EXAMPLES = 20
_WIDER = 4  # times more room for an answer after one that was cut before its first text


class OpenAIGenerator(Generator):
    """Asks for several texts at once, structured where the server can; otherwise reads line by line.

    Too few texts mean asking again for the rest, at most `MORE_ASKS` times. A refusal ends the batch:
    it is never argued with. Each answer is kept in `replies` before it is used, and looked for there
    before it is asked for. `temperature` and `shown` given here win over those of a run.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        key_env: str | None = None,
        temperature: str | float | None = None,
        max_tokens: str | int | None = None,
        seed: str | int = 0,
        prompts: Prompts | None = None,
        shown: str | int | None = None,
        **limits: str | float | None,
    ) -> None:
        if not model.strip():
            raise GeneratorError("openai: no model; write openai:MODEL, such as openai:gpt-4o-mini")
        service, pace = connection("openai", {"base_url": base_url, "key_env": key_env, **limits})
        self.model = model.strip()
        self.api: ApiClient = ApiClient(service, self.model, pace)
        self.replies: Replies = MemoryReplies()
        self._own_temperature = _number("temperature", temperature, 0, 2)
        self._own_shown = _whole("shown", shown, 0)
        self.max_tokens = _whole("max_tokens", max_tokens, 1)
        self.prompts = prompts or Prompts()
        self.seed = _whole("seed", seed, 0) or 0
        self.temperature = self._own_temperature
        self.shown = SHOWN if self._own_shown is None else self._own_shown
        self._spoken = Spoken(Dialect(new_limit=service.needs_key, counted=not service.needs_key))
        self._size = Size()

    def __str__(self) -> str:
        return f"openai:{self.model}"

    def __repr__(self) -> str:
        return f"OpenAIGenerator({self.model!r})"

    @property
    def fingerprint(self) -> str:  # type: ignore[override]  # it can be assigned as well
        """Service, model, place if not OpenAI's own, temperature and the template's digest."""
        service = self.api.service
        place = "" if service.needs_key else f"@{service.place}"
        template = hashlib.sha256(self.prompts.generate.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        own = "" if self._own_shown is None else f":shown={self._own_shown}"
        return f"{service.name}:{self.model}{place}:temperature={self.temperature}:prompt={template}{own}"

    def configure(self, settings: Settings) -> None:
        """Take a run's wording, seed and settings, but for those that were given to this object."""
        self.prompts, self.seed = settings.prompts, settings.seed
        if self._own_temperature is None:
            self.temperature = settings.recipe.temperature
        if self._own_shown is None:
            self.shown = settings.recipe.shown

    def check(self, class_names: Sequence[str]) -> None:
        """Refuse to start where the key is lacking."""
        self.api.check()

    def tokens_of(self, request: Request) -> tuple[int, list[Usage]]:
        """The input tokens to expect of a batch's first question, and the most that each question may use."""
        found = _Found(request)
        messages = self._messages(request, found)
        limit, count = self._limit(request, found), found.missing
        body = request_body(
            self.model,
            messages,
            self._spoken.dialect,
            seed=0,
            temperature=self.temperature,
            limit=limit,
            count=count,
        )
        wider = [max(limit, min(limit * _WIDER**number, MOST_OUTPUT)) for number in range(1 + MORE_ASKS)]
        expected = estimated_tokens("".join(message["content"] for message in messages))
        return expected, [Usage(input_bound(body), most) for most in wider]

    async def generate(self, request: Request) -> Batch:
        """New texts of the class, different from all that the request shows."""
        found = _Found(request)
        for number in range(1 + MORE_ASKS):
            if found.missing <= 0:
                break
            try:
                reply = await self._reply(request, found, number)
            except BudgetError:
                if AHEAD.get() or not found.texts:
                    raise
                return found.batch()  # the rest is out of reach, but these are paid for
            answer = read_answer(reply.content, found.missing)
            if _is_refused(reply, answer, request.given):
                found.add(answer.texts if reply.refused and answer.listed else ())
                return found.batch(refused=True)
            found.starved += reply.cut and not answer.texts
            found.add(answer.texts)
        closed = (
            None
            if found.texts or request.count <= 0
            else f"{self} gave nothing new in {1 + MORE_ASKS} answers"
        )
        return found.batch(closed=closed)

    async def _reply(self, request: Request, found: _Found, number: int) -> Reply:
        messages = self._messages(request, found)
        name = request.spec.name
        seed = seed_of(self.seed, name, request.number, number)
        asked = digest(
            self.fingerprint, self.model, messages, self.temperature, seed, found.missing, self.max_tokens
        )
        ask = Ask(name, request.number, number, asked)
        kept = self.replies.get(ask)
        if kept is not None:
            return kept
        try:
            return reply_of(await self._fitting(ask, request, found, seed))
        except ApiError as error:
            if not error.refused:
                raise
        declined = Reply("", refused=True)
        self.replies.put(ask, declined)  # so that a resumed run does not ask a second time
        return declined

    async def _fitting(self, ask: Ask, request: Request, found: _Found, seed: int) -> Any:
        """The answer to a question of a size that the server takes.

        A smaller question is kept under the name of the whole one, so that a resumed run finds it.
        """
        start, limit = self._size, self._limit(request, found)
        sizes = (start, *start.smaller(limit, max(self.shown, _MOST_EXAMPLES)))
        tried: list[tuple[Messages, int]] = []
        for size in sizes:
            question = self._messages(request, found, size), size.limit(limit)
            if question in tried:
                continue
            tried.append(question)
            try:
                answer = await self._post(ask, *question, seed, found.missing)
            except ApiError as error:
                if not error.too_large:
                    raise
                problem, status = str(error), error.status
            else:
                self._size = self._size if size is start else size
                return answer
        remedy = (
            "give the generator a lower ?max_tokens=, --set shown= a lower number, or shorten the examples"
        )
        raise ApiError(f"{problem}, even made smaller; {remedy}", status=status, too_large=True)

    async def _post(self, ask: Ask, messages: Messages, limit: int, seed: int, count: int) -> Any:
        """The answer, in whatever dialect the server turns out to speak."""

        def body_of(dialect: Dialect) -> dict[str, Any]:
            return request_body(
                self.model,
                messages,
                dialect,
                seed=seed,
                temperature=self.temperature,
                limit=limit,
                count=count,
            )

        def send(body: dict[str, Any]) -> Awaitable[Any]:
            return self.api.post(self._call(ask, body, limit), usage=usage_of, keep=self._keep(ask))

        return await self._spoken.ask(body_of, send)

    def _call(self, ask: Ask, body: dict[str, Any], limit: int) -> Call:
        return Call(
            path="/chat/completions",
            body=body,
            bound=Usage(input_bound(body), limit),
            purpose="generate",
            class_name=ask.class_name,
            # Of the body too: a key that comes back with another body is an error for some servers.
            idempotency_key=digest(ask.class_name, ask.batch, ask.number, ask.digest, body),
        )

    def _keep(self, ask: Ask) -> Any:
        return lambda answer: self.replies.put(ask, reply_of(answer))

    def _messages(self, request: Request, found: _Found, size: Size = Size()) -> Messages:  # noqa: B008  # frozen
        # One message of the user's: some models' chat templates know no system message.
        existing = [*request.existing, *found.texts]
        shown = size.shown(self.shown)
        latest = max(shown // 4, len(found.texts))  # a model likes to repeat what it wrote last
        prompt = self.prompts.generate_text(
            request.spec,
            [clipped(text) for text in diverse(request.given, size.examples(_MOST_EXAMPLES))],
            [clipped(text) for text in diverse(existing, shown, latest=latest)],
            found.missing,
            apart_from=request.apart_from,
        )
        return [{"role": "user", "content": prompt}]

    def _limit(self, request: Request, found: _Found) -> int:
        if self.max_tokens is not None:
            return self.max_tokens
        # What a reasoning model thinks counts as output, so it may use up all the room before it writes.
        bound = output_bound(found.missing, [clipped(text) for text in request.given])
        return min(bound * int(_WIDER**found.starved), MOST_OUTPUT)


class _Found:
    """The new texts of a batch so far."""

    def __init__(self, request: Request) -> None:
        self._known = {folded(text) for text in (*request.given, *request.existing)}
        self._count = request.count
        self.texts: tuple[str, ...] = ()
        self.starved = 0  # answers that were cut before their first text
        self.rejected: Counter[str] = Counter()

    @property
    def missing(self) -> int:
        return self._count - len(self.texts)

    def add(self, texts: Sequence[str]) -> None:
        for text in texts:
            key = folded(text)
            if key in self._known:
                self.rejected["repeat"] += 1
            else:
                self._known.add(key)
                self.texts += (text,)

    def batch(self, *, closed: str | None = None, refused: bool = False) -> Batch:
        return Batch(self.texts, closed=closed, refused=refused, rejected=dict(self.rejected))


def _is_refused(reply: Reply, answer: Answer, given: Sequence[str]) -> bool:
    if reply.refused:
        return True
    if any(is_refusal(text) for text in given):
        return False  # a class of refusals
    if answer.listed:
        return bool(answer.texts) and all(is_refusal(text) for text in answer.texts)
    return is_refusal(without_thoughts(reply.content))


def _number(name: str, value: str | float | None, least: float, most: float) -> float | None:
    if value is None:
        return None
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not least <= number <= most:
        raise GeneratorError(
            f"openai: option {name}={short(value)}: give a number from {least:g} to {most:g}"
        )
    return number


def _whole(name: str, value: str | int | None, least: int) -> int | None:
    if value is None:
        return None
    try:
        number = int(value)
    except ValueError:
        number = least - 1
    if number < least:
        raise GeneratorError(f"openai: option {name}={short(value)}: give a whole number from {least} on")
    return number
