"""`openai:MODEL`, `anthropic:MODEL` and others: a chat model at a service, or at a server like it."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Sequence
from typing import Any

from adamab.errors import ApiError, BudgetError
from adamab.providers.cache import Ask, Reply
from adamab.providers.generators.answers import Answer, is_refusal, read_answer
from adamab.providers.generators.base import Batch, NewSamples, Request, Settings, clipped, diverse
from adamab.providers.generators.chat_protocol import (
    MOST_OUTPUT,
    ApiGenerator,
    Dialect,
    LearnedDialect,
    Messages,
    Size,
    digest,
    input_bound,
    number_option,
    output_bound,
    protocol_of,
    response_format,
    seed_of,
)
from adamab.providers.http import Call
from adamab.providers.metering import AHEAD, Usage, estimated_tokens
from adamab.task.words import normalised_text

MORE_ASKS = 2  # further questions where an answer has too few texts
SHOWN = 20  # existing texts that a prompt shows, unless the recipe says otherwise
_MOST_EXAMPLES = 20
_AROUND = 4  # output tokens around each text: quotes, a comma, its share of the frame
_WIDER = 4  # times more room for an answer after one that was cut before its first text


class OpenAIGenerator(ApiGenerator):
    """Asks for several texts at once, structured where the server can; otherwise reads line by line.

    Too few texts mean asking again for the rest, at most `MORE_ASKS` times. A refusal ends the batch:
    it is never argued with. Each answer is kept in `replies` before it is used, and looked for there
    before it is asked for.

    Args:
        model: The name of the model at its server.
        service: Who has it, a name in `PROVIDERS`.
        temperature: Of the sampling; wins over the recipe's.
        max_tokens: The most that an answer may have; None: by the number and length of the examples.
        seed: Of the sampling, until a run sets its own.
        shown: Existing texts that a prompt shows; wins over the recipe's `prompt_examples`.
        **options: Those of the connection: `base_url`, `key_env`, `rpm`, `timeout` and so on.
    """

    example = "openai:gpt-4o-mini"

    def __init__(
        self,
        model: str,
        service: str = "openai",
        *,
        temperature: str | float | None = None,
        max_tokens: str | int | None = None,
        seed: str | int = 0,
        shown: str | int | None = None,
        **options: str | float | None,
    ) -> None:
        self.scheme = service
        super().__init__(model, options, service)
        self._protocol = protocol_of(self.api.service)
        self._own_temperature = (
            None
            if temperature is None
            else number_option(f"{service}: option temperature", temperature, 0, 2)
        )
        self._own_shown = self._whole("shown", shown, 0)
        self.max_tokens = self._whole("max_tokens", max_tokens, 1)
        self.seed = self._whole("seed", seed, 0) or 0
        self.temperature = self._own_temperature
        self.shown = SHOWN if self._own_shown is None else self._own_shown
        self._dialect = LearnedDialect(Dialect(**self.api.service.dialect))
        self._size = Size()

    @property
    def fingerprint(self) -> str:  # type: ignore[override]  # it can be assigned as well
        """Service, model, place if not OpenAI's own, temperature and the template's digest."""
        template = hashlib.sha256(self.prompts.generate.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        own = "" if self._own_shown is None else f":shown={self._own_shown}"
        return f"{self}{self.api.service.at}:temperature={self.temperature}:prompt={template}{own}"

    def configure(self, settings: Settings) -> None:
        """Take a run's wording, seed and settings, but for those that were given to this object."""
        self.prompts, self.seed = settings.prompts, settings.seed
        if self._own_temperature is None:
            self.temperature = settings.recipe.temperature
        if self._own_shown is None:
            self.shown = settings.recipe.prompt_examples

    def check(self, class_names: Sequence[str]) -> None:
        """Refuse to start where the key is lacking."""
        self.api.check()

    def calls_for(self, request: Request, answer: Sequence[str]) -> list[tuple[Usage, Usage]]:
        """One question, if all goes well."""
        bound = self.most_calls(request)[0]
        (message,) = self._messages(request, NewSamples(request))
        written = sum(estimated_tokens(text) + _AROUND for text in answer)
        expected = Usage(estimated_tokens(message["content"]), min(written, bound.output_tokens))
        return [(expected, bound)]

    def most_calls(self, request: Request) -> list[Usage]:
        """As many questions as a batch may take, each with more room for its answer."""
        limit = self._limit(request, request.count, 0)
        messages = self._messages(request, NewSamples(request))
        body = self._body(self._dialect.dialect, messages, 0, limit, request.count)
        wider = [max(limit, min(limit * _WIDER**number, MOST_OUTPUT)) for number in range(1 + MORE_ASKS)]
        return [Usage(input_bound(body), most) for most in wider]

    async def generate(self, request: Request) -> Batch:
        """New texts of the class, different from all that the request shows."""
        new, starved = NewSamples(request, normalised_text), 0
        for number in range(1 + MORE_ASKS):
            if new.missing <= 0:
                break
            try:
                reply = await self._reply(request, new, number, self._limit(request, new.missing, starved))
            except BudgetError:
                if AHEAD.get() or not new.texts:
                    raise
                return new.batch()  # the rest is out of reach, but these are paid for
            answer = read_answer(reply.content, new.missing, cut=reply.cut or reply.refused)
            if _is_refused(reply, answer, request.given):
                new.add(answer.texts if reply.refused and answer.listed else ())
                return new.batch(refused=True)
            starved += reply.cut and not answer.texts  # cut before its first text
            new.add(answer.texts)
        nothing = not new.texts and request.count > 0
        return new.batch(closed=f"{self} gave nothing new in {1 + MORE_ASKS} answers" if nothing else None)

    async def _reply(self, request: Request, new: NewSamples, number: int, limit: int) -> Reply:
        messages = self._messages(request, new)
        name = request.spec.name
        seed = seed_of(self.seed, name, request.number, number)
        options = (self.temperature, seed, new.missing, self.max_tokens)
        ask = Ask(name, request.number, number, digest(self.fingerprint, self.model, messages, *options))
        kept = self.replies.get(ask)
        if kept is not None:
            return kept
        return await self._reply_or_refusal(ask, self._fitting(ask, request, new, seed, limit))

    async def _fitting(self, ask: Ask, request: Request, new: NewSamples, seed: int, limit: int) -> Reply:
        """The answer to a question of a size that the server takes.

        A smaller question is kept under the name of the whole one, so that a resumed run finds it.
        """
        start = self._size
        sizes = (start, *start.smaller(limit, max(self.shown, _MOST_EXAMPLES)))
        tried: list[tuple[Messages, int]] = []
        for size in sizes:
            question = self._messages(request, new, size), min(limit, size.output)
            if question in tried:
                continue
            tried.append(question)
            try:
                answer = await self._post(ask, *question, seed, new.missing)
            except ApiError as error:
                if not error.too_large:
                    raise
                problem, status = str(error), error.status
            else:
                self._size = self._size if size is start else size
                return self._protocol.reply(answer)
        remedy = (
            "give the generator a lower ?max_tokens=, --set prompt_examples= a lower number, "
            "or shorten the examples"
        )
        raise ApiError(f"{problem}, even made smaller; {remedy}", status=status, too_large=True)

    async def _post(self, ask: Ask, messages: Messages, limit: int, seed: int, count: int) -> Any:
        """The answer, in whatever dialect the server turns out to speak."""

        def send(body: dict[str, Any]) -> Awaitable[Any]:
            call = Call(
                path=self._protocol.path,
                body=body,
                bound=Usage(input_bound(body), limit),
                purpose="generate",
                class_name=ask.class_name,
                # Of the body too: a key that comes back with another body is an error for some servers.
                idempotency_key=digest(ask.class_name, ask.batch, ask.number, ask.digest, body),
            )
            return self.api.post(
                call,
                usage=self._protocol.usage,
                keep=lambda answer: self.replies.put(ask, self._protocol.reply(answer)),
            )

        return await self._dialect.ask(lambda form: self._body(form, messages, seed, limit, count), send)

    def _body(
        self, dialect: Dialect, messages: Messages, seed: int, limit: int, count: int
    ) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model, "messages": list(messages)}
        body["max_completion_tokens" if dialect.new_limit else "max_tokens"] = limit
        if dialect.temperature and self.temperature is not None:
            body["temperature"] = self.temperature
        if dialect.seed:
            body["seed"] = seed
        if dialect.schema:
            body["response_format"] = response_format(count, with_count=dialect.schema_count)
        return self._protocol.request(body)

    def _messages(self, request: Request, new: NewSamples, size: Size = Size()) -> Messages:  # noqa: B008  # frozen
        # One message of the user's: some models' chat templates know no system message.
        existing = [*request.existing, *new.texts]
        shown = min(self.shown, size.texts)
        examples = min(_MOST_EXAMPLES, max(1, 2 * size.texts))
        latest = max(shown // 4, len(new.texts))  # a model likes to repeat what it wrote last
        prompt = self.prompts.generate_text(
            request.spec,
            [clipped(text) for text in diverse(request.given, examples)],
            [clipped(text) for text in diverse(existing, shown, latest=latest)],
            new.missing,
            apart_from=request.apart_from,
        )
        return [{"role": "user", "content": prompt}]

    def _whole(self, name: str, value: str | int | None, least: int) -> int | None:
        option = f"{self.scheme}: option {name}"
        return None if value is None else int(number_option(option, value, least, whole=True))

    def _limit(self, request: Request, count: int, starved: int) -> int:
        if self.max_tokens is not None:
            return self.max_tokens
        # What a reasoning model thinks counts as output, so it may use up all the room before it writes.
        bound = output_bound(count, [clipped(text) for text in request.given])
        return min(bound * int(_WIDER**starved), MOST_OUTPUT)


def _is_refused(reply: Reply, answer: Answer, given: Sequence[str]) -> bool:
    if reply.refused:
        return True
    if any(is_refusal(text) for text in given):
        return False  # a class of refusals
    read = answer.texts if answer.listed else answer.texts[:1]
    return bool(read) and all(map(is_refusal, read))
