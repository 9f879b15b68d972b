"""`openai-image:MODEL`: pictures by OpenAI, or by any server that speaks its protocol."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from importlib.util import find_spec
from typing import Any

from adamab.errors import ApiError, BudgetError, GeneratorError, ImageError, MissingExtraError
from adamab.providers.generators.base import Batch, Generator, Request, Settings
from adamab.providers.generators.chat_protocol import digest, seed_of
from adamab.providers.generators.image_options import checked_form, dialect_of, whole
from adamab.providers.generators.image_protocol import (
    Dialect,
    Made,
    Question,
    bound_of,
    picture_tokens,
    pictures_of,
    usage_of,
)
from adamab.providers.http import ApiClient, Call, connection
from adamab.providers.image_store import ImageStore
from adamab.providers.ledger import AHEAD
from adamab.providers.replies import Ask, MemoryReplies, Replies, Reply
from adamab.providers.usage import Usage, estimated_tokens
from adamab.task.messages import short
from adamab.task.prompts import Prompts

MORE_ASKS = 2  # further questions of a batch after answers with too few pictures
TIMEOUT = 300.0  # seconds: several pictures at the highest quality take minutes
_SIZE, _QUALITY = "1024x1024", "low"
_TURN = 100_000  # between the places of an answer and of the one that is asked for in its stead
_OTHER_SCENE = 128  # bytes by which the prompts of other batches may be longer
_PARAMETERS = (400, 413, 422)  # statuses that a smaller or plainer request may avoid


class OpenAIImageGenerator(Generator):
    """Asks for several pictures at once and puts them into the run's store.

    Too few pictures mean asking again for the rest, a bounded number of times. A refusal ends the batch.
    The pictures of an answer are stored, and the answer that names them is kept in `replies`, before the
    call is settled; an answer that is kept counts as long as all its pictures are there. `size` and
    `quality` given here win over those of a run; `none` leaves one to the server. `n` is how many pictures
    a request may ask for, and `response_format=none` leaves that parameter out.
    """

    modality = "image"

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        key_env: str | None = None,
        size: str | None = None,
        quality: str | None = None,
        n: str | int | None = None,
        response_format: str | None = None,
        seed: str | int = 0,
        prompts: Prompts | None = None,
        **limits: str | float | None,
    ) -> None:
        if not model.strip():
            raise GeneratorError("openai-image: no model; write openai-image:MODEL, such as gpt-image-1-mini")
        self._own_size, self._own_quality = checked_form("size", size), checked_form("quality", quality)
        limits["timeout"] = TIMEOUT if limits.get("timeout") is None else limits["timeout"]
        service, pace = connection("openai", {"base_url": base_url, "key_env": key_env, **limits})
        self.model = model.strip()
        self.api: ApiClient = ApiClient(service, self.model, pace)
        self.replies: Replies = MemoryReplies()
        self.images: ImageStore | None = None
        self.prompts, self.seed = prompts or Prompts(), whole("seed", seed, 0, 2**63)
        self.size, self.quality = self._own_size or _SIZE, self._own_quality or _QUALITY
        self._dialect = dialect_of(self.model, quality=quality, n=n, response_format=response_format)

    def __str__(self) -> str:
        return f"openai-image:{self.model}"

    def __repr__(self) -> str:
        return f"OpenAIImageGenerator({self.model!r})"

    @property
    def fingerprint(self) -> str:  # type: ignore[override]  # it can be assigned as well
        """Model, place if not OpenAI's own, size, quality and the template's digest."""
        service = self.api.service
        place = "" if service.needs_key else f"@{service.place}"
        template = hashlib.sha256(self.prompts.draw.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return f"{self}{place}:size={self.size}:quality={self.quality}:prompt={template}"

    def configure(self, settings: Settings) -> None:
        """Take a run's wording, seed, settings and store of pictures."""
        if settings.images is None:
            raise GeneratorError(f"{self} makes pictures and needs a task of pictures; set modality: image")
        self.prompts, self.seed, self.images = settings.prompts, settings.seed, settings.images
        self.size = self._own_size or settings.recipe.image_size
        self.quality = self._own_quality or settings.recipe.image_quality

    def check(self, class_names: Sequence[str]) -> None:
        """Refuse to start where the key is lacking, or what opens pictures."""
        if find_spec("PIL") is None:
            raise MissingExtraError("Pillow", "images")
        self.api.check()

    def calls_for(self, request: Request) -> list[tuple[Usage, Usage]]:
        """What to expect of each call of a batch in which nothing goes wrong, and the most it may use."""
        calls, missing = list[tuple[Usage, Usage]](), request.count
        while missing > 0:
            asked = self._dialect.asked(missing)
            question = self._question(request, len(calls))
            body = question.body(self._dialect, asked)
            size, quality = body.get("size", "auto"), body.get("quality", "auto")
            made = asked * picture_tokens(self.model, size, quality)
            expected = Usage(estimated_tokens(question.prompt), made, asked)
            calls.append((expected, bound_of(body, asked)))
            missing -= asked
        return calls

    def most_calls(self, request: Request) -> list[Usage]:
        """The most that each call of a batch may use, however few usable pictures come."""
        bounds = [bound for _, bound in self.calls_for(request)]
        if not bounds:
            return []
        # An answer that falls short may do so by one picture or by all, so any call may be as large.
        most = reduce(Usage.or_more, bounds) + Usage(_OTHER_SCENE)
        return [most] * (len(bounds) + MORE_ASKS)

    async def generate(self, request: Request) -> Batch:
        """New pictures of the class, as references of what the store holds."""
        self._store()  # nothing is bought that has no place
        found, number, fell_short = _Found(request), 0, 0
        while found.missing > 0 and fell_short <= MORE_ASKS:
            try:
                reply = await self._reply(request, found.missing, number)
            except BudgetError:
                if AHEAD.get() or not found.images:
                    raise
                return found.batch()  # the rest is out of reach, but these are paid for
            made = Made.read(reply)
            if reply.refused or made is None:
                return found.batch(refused=True)
            fell_short += found.add(made) < max(made.asked, 1)
            number += 1
        nothing = not found.images and request.count > 0
        return found.batch(closed=f"{self} gave nothing new in {number} answers" if nothing else None)

    async def _reply(self, request: Request, missing: int, number: int) -> Reply:
        question = self._question(request, number)
        asked = digest(self.fingerprint, question.prompt, missing)
        ask, kept = self._kept(Ask(request.spec.name, request.number, number, asked))
        if kept is not None:
            return kept
        try:
            return await self._asked(ask, question, missing)
        except ApiError as error:
            if not error.refused:
                raise
        declined = Reply("", refused=True)
        self.replies.put(ask, declined)  # so that a resumed run does not ask a second time
        return declined

    def _kept(self, ask: Ask) -> tuple[Ask, Reply | None]:
        """The answer, if it is kept with all its pictures, and the place for it.

        What a journal holds is never replaced, so an answer whose pictures are gone keeps its place, and
        the one that is asked for in its stead gets another.
        """
        for number in itertools.count(ask.number, _TURN):
            place = replace(ask, number=number)
            kept = self.replies.get(place)
            if kept is None or kept.refused or self._is_whole(kept):
                return place, kept
        raise AssertionError

    def _is_whole(self, reply: Reply) -> bool:
        made, store = Made.read(reply), self._store()
        return made is not None and all(store.has(reference) for reference in made.images)

    async def _asked(self, ask: Ask, question: Question, missing: int) -> Reply:
        """The answer, in whatever dialect the server turns out to speak."""
        others, failures, tried = list[Dialect](), list[ApiError](), list[dict[str, Any]]()
        while True:
            # First the one that another task may have learned in the meantime.
            forms = [(d, question.body(d, d.asked(missing))) for d in (self._dialect, *others)]
            dialect, body = next((form for form in forms if form[1] not in tried), (None, {}))
            if dialect is None:
                raise self._explained(failures[0], ask)
            tried.append(body)
            try:
                reply = await self._post(ask, body, dialect.asked(missing))
            except ApiError as error:
                learning = any(failure.unsupported for failure in failures)
                others += _instead(error, dialect, missing, learning=learning)
                failures.append(error)
            else:
                self._dialect = dialect
                return reply

    async def _post(self, ask: Ask, body: dict[str, Any], count: int) -> Reply:
        kept: list[Reply] = []

        def keep(answer: Any) -> None:
            kept.append(self._stored(answer, count, told="response_format" in body).reply())
            self.replies.put(ask, kept[-1])

        call = Call(
            path="/images/generations",
            body=body,
            bound=bound_of(body, count),
            purpose="generate",
            class_name=ask.class_name,
            # Without the turn: a service that knows the key gives lost pictures once more, for nothing.
            idempotency_key=digest(ask.class_name, ask.batch, ask.number % _TURN, ask.digest, body),
        )
        await self.api.post(call, usage=lambda answer: usage_of(answer, count), keep=keep)
        return kept[-1]

    def _stored(self, answer: Any, asked: int, *, told: bool) -> Made:
        """Put an answer's pictures into the store and say which they are; they are safe then."""
        pictures, only_urls = pictures_of(answer)
        if only_urls:
            remedy = "use a server that can" if told else "add ?response_format=b64_json to the generator"
            raise ApiError(
                f"{self} at {self.api.service.place} answers with addresses of pictures, which are not "
                f"fetched, instead of the pictures in base64; {remedy}"
            )
        images, rejected, store = list[str](), Counter[str](), self._store()
        for data in pictures:
            flaw = _flaw(data)
            if flaw is None and data is not None:
                images.append(store.put(data, share=True).reference)
            else:
                rejected[str(flaw)] += 1
        return Made(asked, tuple(images), rejected)

    def _question(self, request: Request, number: int) -> Question:
        name, batch = request.spec.name, request.number
        seed = seed_of(self.seed, name, batch, number)
        series = 1 + batch * (request.count + MORE_ASKS) + number  # as many as a batch can have, and no more
        prompt = self.prompts.draw_text(request.spec, series, seed=seed)
        return Question(self.model, prompt, self.size, self.quality)

    def _explained(self, error: ApiError, ask: Ask) -> ApiError:
        """The error with what to do about it, where that is in the user's hands."""
        remedy = f"see whether the model takes ?size={self.size}&quality={self.quality}, or give it others"
        if error.too_large:
            remedy = f"shorten the description of class {short(ask.class_name)}, or prompts.draw"
        return ApiError(
            f"{error}; {remedy}",
            status=error.status,
            too_large=error.too_large,
            unsupported=error.unsupported,
        )

    def _store(self) -> ImageStore:
        if self.images is None:
            raise GeneratorError(f"{self} has no place for its pictures yet; call configure first")
        return self.images


class _Found:
    """The new pictures of a batch so far."""

    def __init__(self, request: Request) -> None:
        self._known = {*request.given, *request.existing}
        self._count = request.count
        self.images: list[str] = []
        self.rejected: Counter[str] = Counter()

    @property
    def missing(self) -> int:
        return self._count - len(self.images)

    def add(self, made: Made) -> int:
        """Take in an answer; how many of its pictures are new."""
        before = len(self.images)
        self.rejected.update(made.rejected)
        for reference in made.images:
            if reference in self._known:
                self.rejected["repeat"] += 1
            elif self.missing > 0:  # a server may give more than it was asked for
                self._known.add(reference)
                self.images.append(reference)
        return len(self.images) - before

    def batch(self, *, closed: str | None = None, refused: bool = False) -> Batch:
        return Batch(tuple(self.images), closed=closed, refused=refused, rejected=dict(self.rejected))


def _flaw(data: bytes | None) -> str | None:
    """Why what an answer holds is no sample; None if it is a picture with something on it."""
    from adamab.task.image_decoding import decoded_bytes

    if data is None:
        return "unreadable"
    if not data:
        return "empty"
    try:
        of_one_colour = decoded_bytes(data, "a picture").getcolors(1) is not None
    except ImageError:
        return "unreadable"
    return "empty" if of_one_colour else None


def _instead(error: ApiError, dialect: Dialect, missing: int, *, learning: bool) -> list[Dialect]:
    """What else to try after an error; raises it where no other form of the request would help."""
    if error.refused or error.status not in _PARAMETERS:
        raise error
    if error.unsupported:
        return [] if learning else list(dialect.others())
    # A model that makes one picture at a time says so in words that no two servers share.
    return [replace(dialect, most=1)] if dialect.asked(missing) > 1 else []
