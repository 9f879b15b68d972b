"""From a request's body to rows and wishes: a JSON document, or a form with images.

The models are what clients send and get, as the OpenAPI document says it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import json
import secrets
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from adamab.errors import ImageError, TaskError, one_line, suggestion
from adamab.model import PredictOptions
from adamab.model.classifier import UNKNOWN
from adamab.serving.requests import JSON, Limits, Refused, invalid, unreadable
from adamab.task.images import Image, decoded_bytes, digest_of, ending_of
from adamab.task.words import checked

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from adamab.model import Answers
    from adamab.task.spec import Modality

_DIGITS = 6  # of a probability
_LONG = 64 * 1024  # bytes; a longer body is parsed outside the event loop
_MOST_FIELDS = 16  # of a form, beside the images
_LONGEST_FIELD = 64 * 1024  # characters
_AT_ONCE = 2  # images that are decoded at a time: a large one takes hundreds of megabytes
_LEAST_SIDE = 64  # a JPEG of any size is looked at in little time
_IMAGES = "images"
Share = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]
TopK = Annotated[int, Field(ge=1, le=2**31 - 1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class EncodedImage(_Strict):
    """An image in a JSON document."""

    data: str = Field(min_length=1, description="The file's bytes in base64.")


class Wanted(_Strict):
    """What is asked beside the most probable class."""

    top_k: TopK = Field(default=1, description="So many classes an item, the best first; at most all.")
    unknown: Share | None = Field(
        default=None, description="Answer unknown where an item is stranger than this share of known ones."
    )
    coverage: Share | None = Field(
        default=None, description="Add a set of classes that holds the right one with this probability."
    )
    priors: dict[str, Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]] | None = Field(
        default=None, description="Shares of classes where the model is used; others share the rest."
    )

    def options(self) -> PredictOptions:
        """The same for a classifier; raises `Refused` where two wishes contradict each other."""
        try:
            return PredictOptions(self.top_k, self.priors, self.unknown, self.coverage)
        except TaskError as error:
            raise invalid(str(error)) from None


class Question(Wanted):
    """Texts or images to classify: exactly one of text, texts and images."""

    text: str | None = Field(default=None, description="One text.")
    texts: list[str] | None = Field(default=None, min_length=1, description="Many texts.")
    images: list[EncodedImage] | None = Field(default=None, min_length=1, description="Images.")


class Likely(BaseModel):
    """A class and its probability."""

    model_config = ConfigDict(populate_by_name=True)
    class_name: str = Field(alias="class")
    probability: float


class Result(Likely):
    """The answer for one item; `unknown` and `set` are there if they were asked for."""

    top: list[Likely] = Field(description="top_k classes, the most probable first.")
    unknown: bool | None = Field(default=None, description="Whether the item is strange to the model.")
    set: list[str] | None = Field(default=None, description="Classes of which one is right.")


class ModelName(BaseModel):
    """Which model answered."""

    run: str = Field(description="The name of the run's directory.")
    digest: str = Field(description="Of the model's files: it changes with every reload of another model.")


class Problem(BaseModel):
    """Why there is no result."""

    code: str
    message: str


class Problems(BaseModel):
    """The one shape of everything that is refused."""

    error: Problem = Field(description="Why there is no result; in a list it stands in the place of one.")


class Answer(BaseModel):
    """One result an item, in the order of the question."""

    model: ModelName
    results: list[Result | Problems]
    notes: list[str] | None = Field(
        default=None, description="What could not be done as asked; there only if there is something to say."
    )


class ClassName(BaseModel):
    """A class."""

    name: str


class Classes(BaseModel):
    """What the server's model tells apart."""

    model: ModelName
    modality: str = Field(description="text or image.")
    embedder: str
    classes: list[ClassName]


class Health(BaseModel):
    """Whether the server lives."""

    status: str = Field(
        description="ready; reloading: it answers then as well; waiting: the run's first fit has not ended."
    )
    model: ModelName | None = Field(description="None while there is none to answer with.")
    uptime_seconds: float


def request_schemas() -> dict[str, Any]:
    """What may be sent, for the OpenAPI document."""
    share = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
    form = {
        "type": "object",
        "required": [_IMAGES],
        "additionalProperties": False,
        "properties": {
            _IMAGES: {"type": "array", "minItems": 1, "items": {"type": "string", "format": "binary"}},
            "top_k": {"type": "integer", "minimum": 1},
            "unknown": share,
            "coverage": share,
            "priors": {"type": "string", "description": "A JSON object of shares."},
        },
    }
    document = Question.model_json_schema()
    # Without references, since it stands outside the document's components.
    document["properties"][_IMAGES]["anyOf"][0]["items"] = document.pop("$defs")[EncodedImage.__name__]
    document["oneOf"] = [
        {"required": [name], "properties": {name: {"not": {"type": "null"}}}}
        for name in ("text", "texts", _IMAGES)
    ]
    return {JSON: {"schema": document}, "multipart/form-data": {"schema": form}}


def answer_json(
    model: dict[str, str],
    classes: Sequence[str],
    answers: Answers,
    problems: Sequence[Refused | None],
    notes: Sequence[str] = (),
) -> bytes:
    """An `Answer` as JSON; written by hand, since it is made for every request.

    Args:
        model: What identifies the model.
        classes: The names of its classes.
        answers: One for each item without a problem.
        problems: Of each item, why it has no answer.
        notes: What could not be done as asked.
    """
    shares = answers.probabilities.astype(float).round(_DIGITS).tolist()
    results = []
    for number, (indices, row) in enumerate(zip(answers.indices.tolist(), shares, strict=True)):
        top = [{"class": classes[i], "probability": share} for i, share in zip(indices, row, strict=True)]
        result: dict[str, Any] = {**top[0], "top": top}
        if answers.unknown is not None:
            result["unknown"] = bool(answers.unknown[number])
            if result["unknown"]:
                result["class"] = UNKNOWN
        if answers.sets is not None:
            result["set"] = [classes[index] for index in answers.sets[number]]
        results.append(result)
    answered = iter(results)
    items = [next(answered) if problem is None else problem.content for problem in problems]
    answer = {"model": model, "results": items, **({"notes": list(notes)} if notes else {})}
    return json.dumps(answer, ensure_ascii=False, allow_nan=False).encode()


@dataclass(frozen=True, slots=True)
class Row:
    """A text or an image of a request, or what is wrong with it."""

    text: str
    image: Image | None = None
    id: str | None = None
    problem: Refused | None = None


class ReceivedImages:
    """A folder for received images while they are classified, since embedders read files."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="adamab-serve-", ignore_cleanup_errors=True)
        self._turns = asyncio.Semaphore(_AT_ONCE)

    def remove(self) -> None:
        """With all that is left in it."""
        self._folder.cleanup()

    async def store(self, images: Sequence[bytes | Refused]) -> list[Row]:
        """Rows of images, with what is wrong with those that cannot be decoded."""
        rows: list[Row] = []
        try:
            for number, data in enumerate(images):
                async with self._turns:
                    rows.append(await asyncio.to_thread(self._store, data, number))
        except BaseException:
            self.discard(rows)
            raise
        return rows

    def discard(self, rows: Sequence[Row]) -> None:
        """Remove the rows' files."""
        for row in rows:
            if row.image is not None:
                with contextlib.suppress(OSError):
                    row.image.path.unlink()

    def _store(self, data: bytes | Refused, number: int) -> Row:
        if isinstance(data, Refused):
            return Row("", problem=data)
        try:
            decoded_bytes(data, f"images.{number}", least_side=_LEAST_SIDE)
        except ImageError as error:
            return Row("", problem=invalid(str(error)))
        # The same image may be in two requests, and the first to be answered removes its own file only.
        path = Path(self._folder.name) / f"{secrets.token_hex(8)}{ending_of(data)}"
        path.write_bytes(data)
        image = Image(digest_of(data), path)
        return Row(image.reference, image)


def other_kind(wanted: Modality) -> Refused:
    """For what the model does not classify."""
    return invalid(f"the model classifies {wanted}s; send {'images' if wanted == 'image' else 'texts'}")


async def read_question(
    request: Request, body: bytes, wanted: Modality, limits: Limits, received: ReceivedImages
) -> tuple[list[Row], PredictOptions]:
    """Raises `Refused`, also where no row is without a problem; images are files, for the caller to remove.

    Where the model classifies texts, no image is looked at.
    """
    kind = content_type(request)
    if kind == "multipart/form-data":
        fields, images = await _read_form(request, body, limits)
        if wanted == "text":
            raise invalid("the model classifies texts, which are sent as JSON; send no form")
        if not images:
            raise invalid("the form has no file named images; texts are sent as JSON")
        options = _parse_fields(fields).options()
        return _some_good(await received.store(images)), options
    if kind != JSON:
        raise Refused(415, "unknown_type", "send application/json or multipart/form-data as the Content-Type")
    if len(body) <= _LONG:
        question, rows = _parse_json(body, limits)
    else:
        question, rows = await asyncio.to_thread(_parse_json, body, limits)
    options = question.options()
    if question.images is None:
        return _some_good(rows), options
    if wanted == "text":
        raise other_kind(wanted)
    decoded = await asyncio.to_thread(_decode_base64, question.images)
    return _some_good(await received.store(decoded)), options


def _some_good(rows: list[Row]) -> list[Row]:
    """The rows; where each has a problem, the first is that of the request."""
    if all(row.problem is not None for row in rows):
        raise next(row.problem for row in rows if row.problem is not None)
    return rows


def content_type(request: Request) -> str:
    """The Content-Type without its parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _parse_json(body: bytes, limits: Limits) -> tuple[Question, list[Row]]:
    try:
        question = Question.model_validate_json(body)
    except ValidationError as error:
        raise _first_problem(error) from None
    if sum(value is not None for value in (question.text, question.texts, question.images)) != 1:
        raise invalid("send exactly one of text, texts and images")
    if question.text is not None:
        return question, [_row(question.text, "text", limits)]
    _check_count(len(question.texts or question.images or ()), limits)
    return question, [_row(text, f"texts.{n}", limits) for n, text in enumerate(question.texts or ())]


def _row(text: str, where: str, limits: Limits) -> Row:
    if len(text) > limits.characters:
        message = f"{where}: has more than {limits.characters} characters; send a part of it"
        return Row("", problem=Refused(413, "text_too_long", message))
    try:
        return Row(checked(text, where, "the text"))
    except TaskError:
        problem = "holds a NUL or half a character" if text.strip() else "is empty"
        return Row("", problem=invalid(f"{where}: {problem}"))  # the text itself is not quoted


def _check_count(count: int, limits: Limits) -> None:
    if count > limits.items:
        raise Refused(
            413, "too_many_items", f"{count} items in one request; send {limits.items} at most, or several"
        )


def _decode_base64(images: Sequence[EncodedImage]) -> list[bytes | Refused]:
    contents: list[bytes | Refused] = []
    for number, image in enumerate(images):
        try:
            contents.append(base64.b64decode(image.data, validate=True))
        except (binascii.Error, ValueError):
            message = f"images.{number}.data: is not base64; leave out line breaks and prefixes"
            contents.append(invalid(message))
    return contents


async def _read_form(request: Request, body: bytes, limits: Limits) -> tuple[dict[str, str], list[bytes]]:
    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    fields: dict[str, str] = {}
    images: list[bytes] = []
    try:
        form = Request(request.scope, receive).form(
            max_files=limits.items + 1, max_fields=_MOST_FIELDS, max_part_size=_LONGEST_FIELD
        )
        async with form as parts:
            for name, value in parts.multi_items():
                is_file = isinstance(value, UploadFile)
                if is_file != (name == _IMAGES) or name in fields:
                    raise invalid("send images as files named images; every other field is there once")
                if isinstance(value, UploadFile):
                    images.append(await value.read())
                else:
                    fields[name] = value
    except HTTPException as error:
        raise unreadable(f"the form cannot be read ({error.detail})") from None
    _check_count(len(images), limits)
    return fields, images


def _parse_fields(fields: dict[str, str]) -> Wanted:
    """Of a form, whose values are JSON."""
    values = {}
    for name, text in fields.items():
        try:
            values[name] = json.loads(text)
        except (ValueError, RecursionError):
            raise invalid(f"{one_line(name)[:40]}: is not written as a JSON number or object") from None
    try:
        return Wanted.model_validate(values)
    except ValidationError as error:
        raise _first_problem(error) from None


def _first_problem(error: ValidationError) -> Refused:
    """The first thing that is wrong; values are not quoted, they may be private or long."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(one_line(part)[:40] for part in first["loc"])
    message = one_line(first["msg"])
    if first["type"] == "json_invalid":
        return unreadable(f"the body is not valid JSON ({message.removeprefix('Invalid JSON: ')})")
    if first["type"] == "extra_forbidden":
        message = f"is no field of a question; {suggestion(where, Question.model_fields)}"
    return invalid(f"{where}: {message}" if where else message)
