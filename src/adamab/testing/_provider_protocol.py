"""What the protocols of the provider server share: faults on demand, checks of requests, error answers."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import random
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import PIL.Image

KINDS = (
    *("status", "slow", "hang", "reset", "truncate", "garbage"),
    *("few_vectors", "many_vectors", "wrong_width", "nan", "shuffled", "wrong_index"),
    *("answer", "duplicates", "empty", "no_image", "image_url", "refusal", "refusal_status"),
    *("no_usage", "overcharge", "too_large", "no_schema"),
)
# Status -> code and message of OpenAI's error.
_STATUSES: dict[int, tuple[str | None, str]] = {
    401: ("invalid_api_key", "Incorrect API key provided."),
    404: ("model_not_found", "The model does not exist, or not for you."),
    429: ("rate_limit_exceeded", "Rate limit reached for requests. Please try again later."),
}
# Status -> type of Anthropic's error.
_ANTHROPIC = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
# Kind -> status, code and message.
_REFUSALS: dict[str, tuple[int, str | None, str]] = {
    "refusal_status": (400, "content_policy_violation", "Rejected as a result of our safety system."),
    "no_schema": (400, None, "'response_format' of this type is not supported with this model."),
    "too_large": (413, None, "This is too large: reduce your input, or lower max_tokens."),
}
_QUOTED = 1000  # characters of a request that an error repeats
_Raw = bytes  # a field of Fault has that name
WORD = re.compile(r"\w+")
_DATA_URL = re.compile(r"data:image/(png|jpeg|webp|gif);base64,")
_COLOURS = ("red", "green", "blue", "yellow", "grey", "white", "black")
SPOILED = {"few_vectors", "many_vectors", "wrong_width", "nan", "wrong_index", "no_image", "image_url"}
_TEXT_FIELDS = ("path", "contains", "how")  # of a fault


@dataclass(frozen=True)
class Fault:
    """What goes wrong, in which requests and how often.

    A request matches when its path contains `path`, its body `contains` and, for `too_large` and
    `no_schema`, when it has what is refused. The first `after` matching requests pass, the next
    `times` fail (None: all of them), each with `probability` if one is given. `how` picks a variant.

    Kinds, and what happens to the request:
        status: answered with `status` (429), and a Retry-After of `retry_after` if given
        slow: answered `seconds` later than others
        hang: never answered, or left hanging after the share `sent` of the body; for `seconds` if given
        reset: connection reset after the share `sent` (0.5) of the body; 0 resets before the first byte
        truncate: the body ends after the share `sent` (0.5), cleanly; how='length' announces all of it
        garbage: 200 with a page that is not JSON; a proxy's, so not billed
        few_vectors: one vector, or one score of a document, less than requested
        many_vectors: one vector, or one score, more than requested
        wrong_width: vectors of half the width; how='last': the last one only
        nan: a NaN in the last vector or as the last score; how='null': a null
        shuffled: vectors in another order, each with its right index (no real fault; OpenAI and Voyage)
        wrong_index: the last score carries the index of the first document
        answer: a class number in how='json', 'fenced', 'think'; or how='none', 'two', 'garbage'
        duplicates: all samples are the same; how='given': they are the texts that the prompt shows
        empty: all samples are empty; how='content': the whole answer; of embeddings and scores: none
        no_image: bytes that are no image
        image_url: addresses instead of images
        refusal: message.refusal; how='text': in the content; how='filter': content_filter; of images: 400
        refusal_status: 400, a violation of the content policy
        no_usage: an answer without usage numbers
        overcharge: usage numbers `factor` (10) times too large
        too_large: 413 (or `status`) above `items` inputs or `bytes` bytes; 400 above `tokens` of output
        no_schema: 400 where a request has a response_format, or a tool
    """

    kind: str
    path: str = ""
    times: int | None = 1
    after: int = 0
    probability: float = 1.0
    contains: str = ""
    status: int | None = None
    retry_after: float | str | None = None
    seconds: float | None = None
    sent: float | None = None
    how: str = ""
    items: int | None = None
    bytes: int | None = None
    tokens: int | None = None
    factor: float = 10.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind and self.kind not in KINDS:
            raise ValueError(f"unknown fault {self.kind!r}; known: {', '.join(KINDS)}")
        if not 0 <= (self.sent or 0) < 1:
            raise ValueError(f"sent is {self.sent}; it is a share of the body, at least 0 and below 1")

    @classmethod
    def parse(cls, text: str) -> Fault:
        """A fault as written on the command line: `KIND[:key=value,...]`; `times=null` means always.

        Example:
            >>> Fault.parse("status:status=500,times=null") == Fault("status", status=500, times=None)
            True
        """
        kind, _, rest = text.partition(":")
        pairs = [part.partition("=") for part in rest.split(",") if part]
        values: dict[str, Any] = {
            key: value if key in _TEXT_FIELDS else json.loads(value) for key, _, value in pairs
        }
        return cls(kind, **values)

    def matches(self, path: str, body: Any, raw: _Raw) -> bool:
        """Whether the request is one that this fault is about."""
        if self.path not in path or self.contains not in json.dumps(body, ensure_ascii=False):
            return False
        request = body if isinstance(body, dict) else {}
        if self.kind == "no_schema":
            return "response_format" in request or "tools" in request
        limits = (self.items, self.bytes, self.tokens)
        if self.kind != "too_large" or limits == (None, None, None):
            return True
        inputs = next(
            (request[key] for key in ("input", "texts", "inputs", "documents") if key in request), ""
        )
        output = request.get("max_completion_tokens") or request.get("max_tokens") or 0
        sizes = (len(inputs) if isinstance(inputs, list) else 1, len(raw), output)
        return any(most is not None and size > most for size, most in zip(sizes, limits, strict=True))

    def is_due(self, number: int) -> bool:
        """Whether it befalls the request that is the `number`-th to match, counted from 0."""
        number -= self.after
        if number < 0 or (self.times is not None and number >= self.times):
            return False
        return random.Random(f"{self.seed}:{number}").random() < self.probability

    def refusal(self) -> Refused | None:
        """The error that the fault answers with, if it does."""
        if self.kind in _REFUSALS:
            status, code, message = _REFUSALS[self.kind]
            return Refused(self.status or (400 if self.tokens else status), message, code=code)
        if self.kind != "status":
            return None
        status = self.status or 429
        code, message = _STATUSES.get(status, (None, "The request failed."))
        if self.how == "quota":
            code, message = "insufficient_quota", "You exceeded your current quota."
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        error_type = "server_error" if status >= 500 else "invalid_request_error"
        return Refused(status, message, type=error_type, code=code, headers=headers)


NO_FAULT = Fault("")


@dataclass(frozen=True)
class Answer:
    """A status and a JSON body, or bytes that are none."""

    status: int
    payload: Any
    headers: dict[str, str] = field(default_factory=dict)


class Refused(Exception):  # noqa: N818  # an answer, not an error of ours
    """A request that the provider turns down; becomes an `Answer` of its protocol."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str = "invalid_request_error",
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.error = {"type": type, "code": code}
        self.headers = headers or {}

    def answer(self, path: str, body: Any) -> Answer:
        """In the shape of the path's provider; as real ones do, it quotes the request."""
        message = str(self)
        if self.status in (400, 413, 422) and (quoted := prompt_of(body)[:_QUOTED].strip()):
            message += f" Your request says: {quoted!r}"
        said = {"message": message, **self.error}
        kind = _ANTHROPIC.get(self.status, "api_error")
        payloads = {
            "cohere": {"message": message},
            "v1": {"error": said},
            "azure": {"error": said | {"code": self.error["code"] or str(self.status)}},
            "anthropic": {"type": "error", "error": {"type": kind, "message": message}},
            "tei": {"error": message, "error_type": "Validation"},
        }
        return Answer(self.status, payloads.get(path.split("/")[1], {"detail": message}), self.headers)


@dataclass(frozen=True)
class Options:
    """How the models behave: width of vectors, how the chat model writes."""

    width: int = 64
    style: str = "schema"


def checked_model(body: dict[str, Any], fields: str) -> str:
    """The model of a request that has these fields only; not one whose name begins with `no-such`."""
    unknown = sorted(body.keys() - set(fields.split()))
    if unknown:
        raise Refused(400, f"Unrecognized request argument supplied: {unknown[0]}")
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise Refused(400, "you must provide a model parameter")
    if model.startswith("no-such"):
        missing = f"The model `{model}` does not exist or you do not have access to it."
        raise Refused(404, missing, code="model_not_found")
    return model


def checked_int(body: dict[str, Any], key: str, most: int, default: int) -> int:
    """A whole number from 1 to `most`, or the default where the field is not there."""
    value = default if body.get(key) is None else body[key]
    if not isinstance(value, int) or not 0 < value <= most:
        raise Refused(400, f"Invalid value for '{key}'. Must be an integer from 1 to {most}.")
    return value


def prompt_of(body: Any) -> str:
    """The texts of all messages, of the inputs, or of a query and its documents."""
    if not isinstance(body, dict):
        return ""
    fields = ("input", "texts", "prompt", "query", "documents", "messages", "inputs")
    return "\n".join(text for key in fields for text in texts_in(body.get(key)))


def texts_in(content: Any) -> list[str]:
    """The texts of a message or a document, which may come as one or in parts."""
    if isinstance(content, str):
        return [content]
    if isinstance(content, dict):
        return texts_in(content.get("text")) + texts_in(content.get("content"))
    return [text for part in content for text in texts_in(part)] if isinstance(content, list) else []


def overlap(text: str, other: str) -> int:
    """How many words two texts share."""
    return len(set(WORD.findall(text.casefold())) & set(WORD.findall(other.casefold())))


def digest(value: Any) -> str:
    """The sha256 of a JSON value, however it was spaced and sorted."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def read_data(prompt: str) -> tuple[str, list[list[Any]]]:
    """What stands around the data blocks of a prompt, and the blocks.

    A block is the lines between `<data>` and `</data>`, JSON each.
    """
    around: list[str] = []
    blocks: list[list[Any]] = []
    inside = False
    for line in prompt.splitlines():
        if line.strip() == ("</data>" if inside else "<data>"):
            inside = not inside
            blocks += [[]] if inside else []
        elif inside:
            try:
                blocks[-1].append(json.loads(line))
            except ValueError:
                blocks[-1].append(line)
        else:
            around.append(line)
    return "\n".join(around), blocks


def base64_image(letters: Any, *, data_url: bool = False) -> PIL.Image.Image:
    """An image in base64, bare or (with `data_url` only) as a data URL, in RGB; raises `Refused`."""
    from PIL import Image

    text = letters if isinstance(letters, str) else ""
    head = _DATA_URL.match(text)
    if data_url and head is None:
        message = "This server fetches no images; send a data URL of image/png, jpeg, webp or gif."
        raise Refused(400, message, code="invalid_image_url")
    try:
        data = base64.b64decode(text[head.end() if head else 0 :], validate=True)
        with Image.open(io.BytesIO(data), formats=("PNG", "JPEG", "GIF", "WEBP")) as image:
            return image.convert("RGB")
    except (OSError, SyntaxError, ValueError):
        raise Refused(400, "An image could not be decoded.", code="invalid_image_format") from None


def mean_colour(image: PIL.Image.Image) -> list[float]:
    """The mean of red, green and blue."""
    from PIL import ImageStat

    return ImageStat.Stat(image).mean


def in_words(image: PIL.Image.Image) -> str:
    """What a model sees in an image: the name of its colour."""
    from PIL import ImageColor

    def distance(name: str) -> float:
        return math.dist(ImageColor.getrgb(name), mean_colour(image))

    return min(_COLOURS, key=distance)
