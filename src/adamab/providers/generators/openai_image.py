"""`openai-image:MODEL`: images by OpenAI, or by any server that speaks its protocol."""

from __future__ import annotations

import base64
import hashlib
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from importlib.util import find_spec
from typing import Annotated, Any

from pydantic import BaseModel, Field, NonNegativeInt, ValidationError

from adamab.errors import ApiError, BudgetError, GeneratorError, ImageError, MissingExtraError, short
from adamab.providers.cache import Ask, Reply
from adamab.providers.generators.base import Batch, ImageGenerator, NewSamples, Request, Settings
from adamab.providers.generators.chat_protocol import ApiGenerator, digest, is_count, number_option, seed_of
from adamab.providers.http import BadAnswerError, Call
from adamab.providers.metering import AHEAD, Usage, estimated_tokens

MORE_ASKS = 2  # further questions of a batch after answers with too few images
TIMEOUT = 300.0  # seconds: several images at the highest quality take minutes
_SIZE, _QUALITY = "1024x1024", "low"
_TURN = 100_000  # between the places of an answer and of the one that is asked for in its stead
_OTHER_SCENE = 128  # bytes by which the prompts of other batches may be longer
_PARAMETERS = (400, 413, 422)  # statuses that a smaller or plainer request may avoid
_FORMS = {
    "size": (r"auto|none|[1-9][0-9]{1,4}x[1-9][0-9]{1,4}", "auto, none or such as 1024x1024"),
    "quality": (r"[a-z]{1,20}", "such as low, medium, high, auto or none"),
    "response_format": ("b64_json|none", "b64_json or none"),
}
MOST_IMAGES = 10  # that one request may ask for
_OMITTED = "none"  # as a size or a quality: left to the server
_QUALITIES = ("low", "medium", "high")
# Tokens of one image by quality. OpenAI documents those of gpt-image-1; those of gpt-image-1-mini follow
# from what it documents an image to cost, rounded up.
_TOKENS = {
    "1024x1024": (272, 1056, 4160),
    "1024x1536": (408, 1584, 6240),
    "1536x1024": (400, 1568, 6208),
}
_MINI_TOKENS = {
    "1024x1024": (688, 1438, 4563),
    "1024x1536": (813, 1938, 6563),
    "1536x1024": (813, 1938, 6563),
}
_KNOWN_TOKENS = {"gpt-image-1": _TOKENS, "gpt-image-1-mini": _MINI_TOKENS}
_UNKNOWN = 2  # times the tokens of those, for models of which nothing is known
_LARGEST = 1536 * 1024  # pixels of the sizes above
_AROUND = 64  # input tokens around a prompt, generously


@dataclass(frozen=True)
class Dialect:
    """What a server takes; learned from its errors, kept for the session."""

    response_format: bool = True  # OpenAI's new models refuse it and send images anyway; others need it
    quality: bool = True
    size: bool = True
    count: bool = True  # the parameter `n`
    most: int = MOST_IMAGES  # images per request

    @classmethod
    def of(cls, model: str) -> Dialect:
        """What is documented of a model; a server with names of its own may have it behind a prefix."""
        name = model.rpartition("/")[2]
        if name.startswith(("gpt-image", "chatgpt-image")):
            return cls(response_format=False)
        if name == "dall-e-3":
            return cls(quality=False, most=1)
        return cls(quality=name != "dall-e-2")

    def others(self) -> Iterator[Dialect]:
        """What to try after an error that does not say which parameter is unknown, most likely first."""
        neither: dict[str, Any] = {"quality": False, "size": False}
        only_one = {**neither, "count": False, "most": 1}
        for changes in ({}, {"quality": False}, {"size": False}, neither, only_one):
            yield replace(self, **changes)
            yield replace(self, response_format=not self.response_format, **changes)

    def image_count(self, missing: int) -> int:
        """How many images a request asks for."""
        return min(missing, self.most)


class StoredAnswer(BaseModel):
    """An answer as it is kept: references of the images that were stored, and why others were not."""

    images: tuple[Annotated[str, Field(pattern=r"^image:[0-9a-f]{64}$")], ...]
    asked: NonNegativeInt  # images requested
    rejected: dict[str, NonNegativeInt]

    @classmethod
    def read(cls, reply: Reply) -> StoredAnswer | None:
        """What `reply` holds; None where that is something else."""
        try:
            return cls.model_validate_json(reply.content, strict=True)
        except ValidationError:
            return None


class OpenAIImageGenerator(ApiGenerator, ImageGenerator):
    """Asks for several images at once and puts them into the run's store.

    Too few images mean asking again for the rest, a bounded number of times. A refusal ends the batch.
    The images of an answer are stored, and the answer that names them is kept in `replies`, before the
    call is settled; an answer that is kept counts as long as all its images are there.

    Args:
        model: The name of the model at its server.
        size: Such as 1024x1024, or `none` to leave it to the server; wins over the recipe's.
        quality: Such as low, or `none` to leave it to the server; wins over the recipe's.
        n: How many images a request may ask for.
        response_format: `none` leaves that parameter out.
        seed: Of the prompts' scenes, until a run sets its own.
        **options: Those of the connection: `base_url`, `key_env`, `rpm`, `timeout` and so on.
    """

    scheme = "openai-image"
    example = "gpt-image-1-mini"

    def __init__(
        self,
        model: str,
        *,
        size: str | None = None,
        quality: str | None = None,
        n: str | int | None = None,
        response_format: str | None = None,
        seed: str | int = 0,
        **options: str | float | None,
    ) -> None:
        for name, value in (("size", size), ("quality", quality), ("response_format", response_format)):
            form, known = _FORMS[name]
            if value is not None and not re.fullmatch(form, value):
                raise GeneratorError(f"openai-image: option {name}={short(value)}: give {known}")
        self._own_size, self._own_quality = size, quality
        options["timeout"] = TIMEOUT if options.get("timeout") is None else options["timeout"]
        super().__init__(model, options)
        self.seed = int(number_option("openai-image: option seed", seed, 0, whole=True))
        self.size, self.quality = self._own_size or _SIZE, self._own_quality or _QUALITY
        self._dialect = Dialect.of(self.model)
        if quality is not None:
            self._dialect = replace(self._dialect, quality=True)
        if n is not None:
            most = int(number_option("openai-image: option n", n, 1, MOST_IMAGES, whole=True))
            self._dialect = replace(self._dialect, most=most)
        if response_format is not None:
            self._dialect = replace(self._dialect, response_format=response_format != _OMITTED)

    @property
    def fingerprint(self) -> str:  # type: ignore[override]  # it can be assigned as well
        """Model, place if not OpenAI's own, size, quality and the template's digest."""
        template = hashlib.sha256(self.prompts.draw.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return f"{self}{self.api.service.at}:size={self.size}:quality={self.quality}:prompt={template}"

    def configure(self, settings: Settings) -> None:
        """Take a run's wording, seed, settings and store of images."""
        super().configure(settings)
        self.prompts, self.seed = settings.prompts, settings.seed
        self.size = self._own_size or settings.recipe.image_size
        self.quality = self._own_quality or settings.recipe.image_quality

    def check(self, class_names: Sequence[str]) -> None:
        """Refuse to start where the key is lacking, or what opens images."""
        if find_spec("PIL") is None:
            raise MissingExtraError("Pillow", "images")
        self.api.check()

    def calls_for(self, request: Request, answer: Sequence[str] = ()) -> list[tuple[Usage, Usage]]:
        """What to expect of each call of a batch in which nothing goes wrong, and the most it may use."""
        calls, missing = list[tuple[Usage, Usage]](), request.count
        while missing > 0:
            count = self._dialect.image_count(missing)
            body = self._body(self._prompt(request, len(calls)), self._dialect, count)
            size, quality = body.get("size", "auto"), body.get("quality", "auto")
            output = count * image_tokens(self.model, size, quality)
            expected = Usage(estimated_tokens(body["prompt"]), output, count)
            calls.append((expected, bound_of(body, count)))
            missing -= count
        return calls

    def most_calls(self, request: Request) -> list[Usage]:
        """The most that each call of a batch may use, however few usable images come."""
        bounds = [bound for _, bound in self.calls_for(request)]
        if not bounds:
            return []
        # An answer that falls short may do so by one image or by all, so any call may be as large.
        most = reduce(Usage.or_more, bounds) + Usage(_OTHER_SCENE)
        return [most] * (len(bounds) + MORE_ASKS)

    async def generate(self, request: Request) -> Batch:
        """New images of the class, as references of what the store holds."""
        _ = self.store  # nothing is bought that has no place
        new, number, fell_short = NewSamples(request), 0, 0
        while new.missing > 0 and fell_short <= MORE_ASKS:
            try:
                reply = await self._reply(request, new.missing, number)
            except BudgetError:
                if AHEAD.get() or not new.texts:
                    raise
                return new.batch()  # the rest is out of reach, but these are paid for
            answer = StoredAnswer.read(reply)
            if reply.refused or answer is None:
                return new.batch(refused=True)
            new.rejected.update(answer.rejected)
            fell_short += new.add(answer.images) < max(answer.asked, 1)
            number += 1
        nothing = not new.texts and request.count > 0
        return new.batch(closed=f"{self} gave nothing new in {number} answers" if nothing else None)

    async def _reply(self, request: Request, missing: int, number: int) -> Reply:
        prompt = self._prompt(request, number)
        question = digest(self.fingerprint, prompt, missing)
        ask, kept = self._kept(Ask(request.spec.name, request.number, number, question))
        if kept is not None:
            return kept
        return await self._reply_or_refusal(ask, self._learned_reply(ask, prompt, missing))

    def _kept(self, ask: Ask) -> tuple[Ask, Reply | None]:
        """The answer, if it is kept with all its images, and the place for it.

        What a journal holds is never replaced, so an answer whose images are gone keeps its place, and
        the one that is asked for in its stead gets another.
        """
        for number in itertools.count(ask.number, _TURN):
            place = replace(ask, number=number)
            kept = self.replies.get(place)
            if kept is None or kept.refused:
                return place, kept
            answer = StoredAnswer.read(kept)
            if answer is not None and all(map(self.store.has, answer.images)):
                return place, kept
        raise AssertionError

    async def _learned_reply(self, ask: Ask, prompt: str, missing: int) -> Reply:
        """The answer, in whatever dialect the server turns out to speak."""
        others, failures, tried = list[Dialect](), list[ApiError](), list[dict[str, Any]]()
        while True:
            # First the one that another task may have learned in the meantime.
            forms = [(d, self._body(prompt, d, d.image_count(missing))) for d in (self._dialect, *others)]
            dialect, body = next((form for form in forms if form[1] not in tried), (None, {}))
            if dialect is None:
                remedy = f"see whether the model takes ?size={self.size}&quality={self.quality}"
                if failures[0].too_large:
                    remedy = f"shorten the description of class {short(ask.class_name)}, or prompts.draw"
                raise ApiError(f"{failures[0]}; {remedy}", status=failures[0].status)
            tried.append(body)
            try:
                reply = await self._post(ask, body, dialect.image_count(missing))
            except ApiError as error:
                if error.refused or error.status not in _PARAMETERS:
                    raise
                if error.unsupported and not any(failure.unsupported for failure in failures):
                    others += dialect.others()
                elif not error.unsupported:
                    # A model that makes one image at a time says so in words that no two servers share.
                    others.append(replace(dialect, most=1))
                failures.append(error)
            else:
                self._dialect = dialect
                return reply

    async def _post(self, ask: Ask, body: dict[str, Any], count: int) -> Reply:
        kept: list[Reply] = []

        def keep(answer: Any) -> None:
            stored = self._stored(answer, count, in_base64="response_format" in body)
            kept.append(Reply(stored.model_dump_json()))
            self.replies.put(ask, kept[-1])

        call = Call(
            path="/images/generations",
            body=body,
            bound=bound_of(body, count),
            purpose="generate",
            class_name=ask.class_name,
            # Without the turn: a service that knows the key gives lost images once more, for nothing.
            idempotency_key=digest(ask.class_name, ask.batch, ask.number % _TURN, ask.digest, body),
        )
        await self.api.post(call, usage=lambda answer: usage_of(answer, count), keep=keep)
        return kept[-1]

    def _stored(self, answer: Any, asked: int, *, in_base64: bool) -> StoredAnswer:
        """Put an answer's images into the store and say which they are; they are safe then."""
        sent, only_urls = images_of(answer)
        if only_urls:
            remedy = "add ?response_format=b64_json to the generator"
            remedy = "use a server that can" if in_base64 else remedy
            raise ApiError(
                f"{self} at {self.api.service.place} answers with addresses of images, which are not "
                f"fetched, instead of the images in base64; {remedy}"
            )
        images, rejected = list[str](), Counter[str]()
        for data in sent:
            flaw = _flaw(data)
            if flaw is None and data is not None:
                images.append(self.store.put(data, share=True).reference)
            else:
                rejected[str(flaw)] += 1
        return StoredAnswer(images=tuple(images), asked=asked, rejected=dict(rejected))

    def _prompt(self, request: Request, number: int) -> str:
        name, batch = request.spec.name, request.number
        seed = seed_of(self.seed, name, batch, number)
        series = 1 + batch * (request.count + MORE_ASKS) + number  # as many as a batch can have, and no more
        return self.prompts.draw_text(request.spec, series, seed=seed)

    def _body(self, prompt: str, dialect: Dialect, count: int) -> dict[str, Any]:
        """The request for `count` images."""
        body: dict[str, Any] = {"model": self.model, "prompt": prompt}
        if dialect.count:
            body["n"] = count
        if dialect.size and self.size != _OMITTED:
            body["size"] = self.size
        if dialect.quality and self.quality != _OMITTED:
            body["quality"] = self.quality
        if dialect.response_format:
            body["response_format"] = "b64_json"
        return body


def bound_of(body: Mapping[str, Any], count: int) -> Usage:
    """The most that a request may use.

    A token of a byte-level tokenizer covers at least one byte, so the bytes are a strict upper bound. A
    size or a quality that is left to the server counts as the largest.

    Args:
        body: The JSON of the request.
        count: Images that it asks for.

    Returns:
        Tokens and images.
    """
    made = image_tokens(body["model"], body.get("size", "auto"), body.get("quality", "auto"))
    if body["model"] not in _KNOWN_TOKENS:
        made *= _UNKNOWN
    return Usage(len(body["prompt"].encode("utf-8", "surrogatepass")) + _AROUND, count * made, count)


def image_tokens(model: str, size: str, quality: str) -> int:
    """The tokens of one image, by what is known of OpenAI's models.

    Args:
        model: The name of the model.
        size: Such as 1024x1024; one that is not in the tables counts as the largest that is.
        quality: One of low, medium, high; any other counts as high.

    Returns:
        Output tokens.

    Example:
        >>> image_tokens("gpt-image-1", "1024x1024", "low"), image_tokens("gpt-image-1", "auto", "auto")
        (272, 6240)
    """
    known = _KNOWN_TOKENS.get(model, _TOKENS)
    column = _QUALITIES.index(quality) if quality in _QUALITIES else len(_QUALITIES) - 1
    if size in known:
        return known[size][column]
    width, _, height = size.partition("x")
    pixels = int(width) * int(height) if width.isdecimal() and height.isdecimal() else 0
    return math.ceil(max(row[column] for row in known.values()) * max(1.0, pixels / _LARGEST))


def usage_of(answer: Any, requested: int) -> Usage | None:
    """What the server counted.

    Args:
        answer: The JSON of the server.
        requested: Images of the request; those that did not come count as made, since some services may
            bill them.

    Returns:
        Tokens and images; None where the server does not say.
    """
    usage = answer.get("usage") if isinstance(answer, dict) else None
    if not isinstance(usage, dict):
        return None
    sent, made = usage.get("input_tokens"), usage.get("output_tokens")
    # No image is made of no tokens: a server that says so does not count them.
    if not (is_count(sent) and is_count(made) and made):
        return None
    return Usage(sent, made, max(requested, len(answer["data"])))


def images_of(answer: Any) -> tuple[list[bytes | None], bool]:
    """What an answer holds in place of each image, None where that is no base64; and whether all are URLs.

    Raises `BadAnswerError` if it is no answer of an image server.
    """
    if not isinstance(answer, dict) or not isinstance(answer.get("data"), list):
        raise BadAnswerError("an answer without images")
    images: list[bytes | None] = []
    urls = 0
    for entry in answer["data"]:
        values = entry if isinstance(entry, dict) else {}
        text = values.get("b64_json")
        if not isinstance(text, str):
            text = values.get("url")  # some servers put the image there, as a data URL
            urls += isinstance(text, str) and not text.startswith("data:")
        images.append(_bytes(text) if isinstance(text, str) else None)
    return images, 0 < urls == len(images)


def _bytes(text: str) -> bytes | None:
    letters = text.partition(",")[2] if text.startswith("data:") else text
    try:
        return base64.b64decode("".join(letters.split()), validate=True)
    except ValueError:
        return None


def _flaw(data: bytes | None) -> str | None:
    """Why what an answer holds is no sample; None if it is an image with something on it."""
    from adamab.task.images import decoded_bytes

    if data is None:
        return "unreadable"
    if not data:
        return "empty"
    try:
        of_one_colour = decoded_bytes(data, "an image").getcolors(1) is not None
    except ImageError:
        return "unreadable"
    return "empty" if of_one_colour else None
