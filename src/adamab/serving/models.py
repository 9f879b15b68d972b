"""What clients send and get, as the OpenAPI document tells it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from adamab.classifier import Asked
from adamab.classifier.answers import UNKNOWN
from adamab.errors import TaskError
from adamab.serving.problems import invalid, unreadable
from adamab.task.messages import one_line, suggestion

if TYPE_CHECKING:
    from adamab.classifier import Answers

_DIGITS = 6  # of a probability
Share = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]
TopK = Annotated[int, Field(ge=1, le=2**31 - 1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Picture(_Strict):
    """A picture in a JSON document."""

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

    def asked(self) -> Asked:
        """The same for a classifier; raises `Refused` where two wishes contradict each other."""
        try:
            return Asked(self.top_k, self.priors, self.unknown, self.coverage)
        except TaskError as error:
            raise invalid(str(error)) from None


class Question(Wanted):
    """Texts or pictures to classify: exactly one of text, texts and images."""

    text: str | None = Field(default=None, description="One text.")
    texts: list[str] | None = Field(default=None, min_length=1, description="Many texts.")
    images: list[Picture] | None = Field(default=None, min_length=1, description="Pictures.")


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


class Answer(BaseModel):
    """One result an item, in the order of the question."""

    model: ModelName
    results: list[Result]
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


class Problem(BaseModel):
    """Why there is no result."""

    code: str
    message: str


class Problems(BaseModel):
    """The one shape of everything that is refused."""

    error: Problem


def parsed_question(body: bytes) -> Question:
    """A JSON document as a question; raises `Refused`."""
    try:
        return Question.model_validate_json(body)
    except ValidationError as error:
        raise _told(error) from None


def parsed_wishes(fields: dict[str, str]) -> Wanted:
    """The same of a form, whose values are JSON where they are no texts."""
    try:
        return Wanted.model_validate({name: _value(name, text) for name, text in fields.items()})
    except ValidationError as error:
        raise _told(error) from None


def _value(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise invalid(f"{one_line(name)[:40]}: is not written as a JSON number or object") from None


def _told(error: ValidationError) -> Exception:
    """The first thing that is wrong; values are not quoted, they may be private or long."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(one_line(part)[:40] for part in first["loc"])
    message = one_line(first["msg"])
    if first["type"] == "json_invalid":
        return unreadable(f"the body is not valid JSON ({message.removeprefix('Invalid JSON: ')})")
    if first["type"] == "model_type" and first["loc"][:1] == ("images",):
        message = 'write an object {"data": "…base64…"}'
    if first["type"] == "too_short":
        message = "is empty; send at least one"
    if first["type"] == "extra_forbidden":
        message = f"is no field of a question; {suggestion(where, Question.model_fields)}"
    return invalid(f"{where}: {message}" if where else message)


def rendered(
    model: dict[str, str], classes: Sequence[str], told: Answers, notes: Sequence[str] = ()
) -> bytes:
    """An `Answer` as JSON; written by hand, since it is made for every request."""
    shares = told.probabilities.astype(float).round(_DIGITS).tolist()
    results = []
    for number, (indices, row) in enumerate(zip(told.indices.tolist(), shares, strict=True)):
        top = [{"class": classes[i], "probability": share} for i, share in zip(indices, row, strict=True)]
        result: dict[str, Any] = {**top[0], "top": top}
        if told.unknown is not None:
            result["unknown"] = bool(told.unknown[number])
            if result["unknown"]:
                result["class"] = UNKNOWN
        if told.sets is not None:
            result["set"] = [classes[index] for index in told.sets[number]]
        results.append(result)
    answer = {"model": model, "results": results, **({"notes": list(notes)} if notes else {})}
    return json.dumps(answer, ensure_ascii=False, allow_nan=False).encode()


def request_schemas() -> dict[str, Any]:
    """What may be sent, for the OpenAPI document."""
    share = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
    form = {
        "type": "object",
        "required": ["images"],
        "additionalProperties": False,
        "properties": {
            "images": {"type": "array", "minItems": 1, "items": {"type": "string", "format": "binary"}},
            "top_k": {"type": "integer", "minimum": 1},
            "unknown": share,
            "coverage": share,
            "priors": {"type": "string", "description": "A JSON object of shares."},
        },
    }
    return {"application/json": {"schema": _inlined()}, "multipart/form-data": {"schema": form}}


def _inlined() -> dict[str, Any]:
    """The schema of `Question` without references, since it stands outside the document's components."""
    schema = Question.model_json_schema()
    picture = schema.pop("$defs")["Picture"]
    schema["properties"]["images"]["anyOf"][0]["items"] = picture
    schema["oneOf"] = [
        {"required": [name], "properties": {name: {"not": {"type": "null"}}}}
        for name in ("text", "texts", "images")
    ]
    return schema
