"""From a request's body to rows and wishes: a JSON document, or a form with pictures."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastapi import Request
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from adamab.errors import TaskError
from adamab.serving.models import Question, parsed_question, parsed_wishes
from adamab.serving.pictures import Row, from_base64
from adamab.serving.problems import Refused, invalid, unreadable
from adamab.task.messages import checked

if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from typing import Any

    from adamab.classifier import Asked
    from adamab.serving.limits import Limits
    from adamab.serving.pictures import PictureFiles
    from adamab.task.spec import Modality

_LONG = 64 * 1024  # bytes; a longer body is parsed outside the event loop
_MOST_FIELDS = 16  # of a form, beside the pictures
_LONGEST_FIELD = 64 * 1024  # characters
_PICTURES = "images"


@dataclass(frozen=True)
class Read:
    """What a request asks."""

    rows: list[Row]
    asked: Asked


def other_kind(wanted: Modality) -> Refused:
    """For what the model does not classify."""
    return invalid(f"the model classifies {wanted}s; send {'images' if wanted == 'image' else 'texts'}")


async def read_question(
    request: Request, body: bytes, wanted: Modality, limits: Limits, files: PictureFiles
) -> Read:
    """Raises `Refused`; the rows' pictures are files, for the caller to remove.

    Where the model classifies texts, no picture is looked at.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json":
        return await _of_json(body, wanted, limits, files)
    if kind == "multipart/form-data":
        return await _of_form(request, body, wanted, limits, files)
    raise Refused(415, "unknown_type", "send application/json or multipart/form-data as the Content-Type")


async def _of_json(body: bytes, wanted: Modality, limits: Limits, files: PictureFiles) -> Read:
    if len(body) <= _LONG:
        question, rows = _parsed(body, limits)
    else:
        question, rows = await asyncio.to_thread(_parsed, body, limits)
    asked = question.asked()
    if question.images is None:
        return Read(rows, asked)
    if wanted == "text":
        raise other_kind(wanted)
    pictures = await asyncio.to_thread(from_base64, [picture.data for picture in question.images])
    return Read(await files.stored(pictures), asked)


def _parsed(body: bytes, limits: Limits) -> tuple[Question, list[Row]]:
    question = parsed_question(body)
    given = [n for n in ("text", "texts", _PICTURES) if getattr(question, n) is not None]
    if len(given) != 1:
        raise invalid("send exactly one of text, texts and images")
    if question.text is not None:
        return question, [_row(question.text, "text", limits)]
    items = question.texts or question.images or []
    _check_count(len(items), limits)
    return question, [_row(text, f"texts.{n}", limits) for n, text in enumerate(question.texts or ())]


def _row(text: str, where: str, limits: Limits) -> Row:
    if len(text) > limits.characters:
        raise Refused(
            413, "text_too_long", f"{where}: has more than {limits.characters} characters; send a part of it"
        )
    try:
        return Row(checked(text, where, "the text"))
    except TaskError:
        problem = "holds a NUL or half a character" if text.strip() else "is empty"
        raise invalid(f"{where}: {problem}") from None  # the text itself is not quoted


def _check_count(count: int, limits: Limits) -> None:
    if count > limits.items:
        raise Refused(
            413, "too_many_items", f"{count} items in one request; send {limits.items} at most, or several"
        )


async def _of_form(
    request: Request, body: bytes, wanted: Modality, limits: Limits, files: PictureFiles
) -> Read:
    fields, pictures = await _form(request, body, limits)
    if wanted == "text":
        raise invalid("the model classifies texts, which are sent as JSON; send no form")
    if not pictures:
        raise invalid("the form has no file named images; texts are sent as JSON")
    asked = parsed_wishes(fields).asked()
    return Read(await files.stored(pictures), asked)


async def _form(request: Request, body: bytes, limits: Limits) -> tuple[dict[str, str], list[bytes]]:
    async def again() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    fields: dict[str, str] = {}
    pictures: list[bytes] = []
    try:
        form = Request(request.scope, again).form(
            max_files=limits.items + 1, max_fields=_MOST_FIELDS, max_part_size=_LONGEST_FIELD
        )
        async with form as parts:
            for name, value in parts.multi_items():
                if isinstance(value, UploadFile):
                    _check_field(name == _PICTURES)
                    pictures.append(await value.read())
                else:
                    _check_field(name != _PICTURES and name not in fields)
                    fields[name] = value
    except HTTPException as error:
        raise unreadable(f"the form cannot be read ({error.detail})") from None
    _check_count(len(pictures), limits)
    return fields, pictures


def _check_field(known: bool) -> None:
    if not known:
        raise invalid("pictures are files named images; every other field is there once")
