"""What the provider server answers as OpenAI, Azure, Anthropic, Voyage, Cohere, Jina and TEI.

Texts are embedded, ranked and classified by the words that they share, images by their colours. The chat
model writes sentences by hash. An image that it draws is a mosaic in three colours. Its subject (the class
that the prompt is about) chooses the colours and the pattern, its seed moves every tile a little: images of
one class look alike, no two are equal.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from adamab.providers.metering import estimated_tokens as tokens
from adamab.testing._provider_protocol import (
    WORD,
    Fault,
    Options,
    Refused,
    base64_image,
    checked_int,
    checked_model,
    digest,
    in_words,
    mean_colour,
    overlap,
    prompt_of,
    read_data,
    texts_in,
)

if TYPE_CHECKING:
    import PIL.Image

_WIDEST = 4096
_OPENAI = "model input encoding_format dimensions user"
_VOYAGE = "model input input_type truncation output_dimension output_dtype encoding_format"
_VOYAGE_IMAGES = "model inputs input_type truncation output_encoding output_dimension"
_COHERE = "model texts images inputs input_type embedding_types truncate output_dimension max_tokens priority"
_COHERE_TYPES = ("search_document", "search_query", "classification", "clustering", "image")
_JINA = "model input task dimensions normalized embedding_type truncate late_chunking"
_TEI_INPUTS, _TEI_TOKENS = 32, 8192
_MESSAGES = (
    "model max_tokens messages temperature top_p top_k system tools tool_choice metadata stop_sequences"
)
_RERANK = "model query documents top_k top_n return_documents truncation max_tokens_per_doc priority"

_MOST_INPUTS, _INPUT_TOKENS, _BATCH_TOKENS, _RERANK_TOKENS = 1000, 32_000, 320_000, 600_000
_PIXELS_PER_TOKEN = 560
_LEAST_PIXELS, _MOST_PIXELS = 50_000, 2_000_000  # that an image is billed as
_OWN = 0.5  # how much of an image's vector is its own, beside what it shares with those of its colour
_CHUNK, _DOCUMENTS_PER_SEARCH = 500, 100
_RERANKED_IMAGE = 768  # tokens
STYLES = ("schema", "lines", "bullets", "fenced")
_CHAT = "model messages response_format max_tokens max_completion_tokens temperature top_p seed stop user"
_REFUSAL = "I'm sorry, but I can't assist with that request."
_DEFAULT_COUNT = 5
_COUNTS = (r"\b(\d{1,3}) new\b", r"array of (\d{1,3})\b", r"\b(\d{1,3})\b")
_OPENERS = """Honestly|Since yesterday|Once again|Could someone explain|My neighbour says|After the update
In the meantime|For the third time|Before we leave|Just so you know|At last|Out of curiosity|This morning
Between us|As far as I can tell|To my surprise|Whenever it rains|On the phone|During lunch|No matter what
Late at night|With two children|Frankly|Somewhere in Lisbon|Until Friday|Back home|Against all advice
Only now|From the outside|In a hurry""".replace("\n", "|").split("|")
_MIDDLES = """nobody noticed|everything depends on|we keep asking about|I finally understood|they sent me
you should look at|my sister wondered about|there was trouble with|we celebrated|someone mentioned
the office forgot|I would rather have|they are proud of|we lost track of|he complained about|she praised
the team tested|I cannot find|people talk about|you promised|we compared|it comes down to|I dreamt of
our guests liked|the manual skips|they doubled|I gave up on|we paid for|nothing beats
the letter is about""".replace("\n", "|").split("|")
_EXTRAS = """lamp river ticket garden winter blue quiet seven bridge kettle letter orange window station
paper mountain slow battery music corner silver summer bottle early market sudden forest button harbour
twice gentle engine carpet narrow holiday pencil thunder copper empty yellow ladder honest island pocket
velvet morning simple castle rapid needle amber wooden basket distant mirror plain ribbon stone gradual
whisper cotton steady marble fresh lantern puzzle meadow broken saddle""".replace("\n", " ").split(" ")
_ENDINGS = """and that is all|so please hurry|or so it seems|which I did not expect|again and again|for now
without any warning|as usual|and I wonder why|before the weekend|at the worst moment|to be fair|if possible
by the way|thanks in advance|but who knows|in the end|like last year|and counting
at any rate""".replace("\n", "|").split("|")
_MOST_IMAGES = 10
_IMAGES = "model prompt n size quality output_compression background moderation response_format style user"
# Tokens of one image: size -> low, medium, high.
_IMAGE_TOKENS = {
    "1024x1024": (272, 1056, 4160),
    "1024x1536": (408, 1584, 6240),
    "1536x1024": (400, 1568, 6208),
}
_QUALITIES = ("low", "medium", "high")
_TILES = 8  # in either direction
_SMALLER = 16  # an image of 1024x1024 has 64 by 64 pixels
_SPREAD = 24  # how far a tile's colour may be from its class's


def openai_embeddings(body: dict[str, Any], options: Options, fault: Fault) -> dict[str, Any]:
    """POST /v1/embeddings."""
    checked_model(body, _OPENAI)
    texts = _texts(body, "input", 2048)
    if "" in texts:
        raise Refused(400, "'$.input' is invalid: an input cannot be an empty string.")
    sizes = [tokens(text) for text in texts]
    _check_tokens(max(sizes), 8192)
    _check_tokens(sum(sizes), 300_000)
    width = checked_int(body, "dimensions", _WIDEST, options.width)
    rows = [vector(text, width) for text in texts]
    return _embeddings(rows, body, {"prompt_tokens": sum(sizes), "total_tokens": sum(sizes)}, fault)


def voyage_embeddings(body: dict[str, Any], options: Options, fault: Fault) -> dict[str, Any]:
    """POST /voyage/v1/embeddings."""
    checked_model(body, _VOYAGE)
    texts = _texts(body, "input", _MOST_INPUTS)
    kind = _voyage_kind(body)
    total = sum(map(tokens, texts))
    _check_tokens(total, _BATCH_TOKENS)
    width = checked_int(body, "output_dimension", _WIDEST, options.width)
    return _embeddings([vector(text, width, kind) for text in texts], body, {"total_tokens": total}, fault)


def voyage_multimodal(body: dict[str, Any], options: Options, fault: Fault) -> dict[str, Any]:
    """POST /voyage/v1/multimodalembeddings: texts and images in one space."""
    checked_model(body, _VOYAGE_IMAGES)
    kind = _voyage_kind(body)
    try:
        parts = [entry["content"][0] for entry in body["inputs"]]  # one text or one image each
        items = [p["text"] if "text" in p else base64_image(p[p["type"]], data_url=True) for p in parts]
    except (LookupError, TypeError):
        message = "Argument 'inputs' is invalid: objects with a list 'content' are needed."
        raise Refused(400, message) from None
    if not 0 < len(items) <= _MOST_INPUTS:
        raise Refused(400, f"The batch size limit is {_MOST_INPUTS}. Your batch size is {len(items)}.")
    sizes = [tokens(item) for item in items if isinstance(item, str)]
    if not body.get("truncation", True):
        _check_tokens(max(sizes, default=0), _INPUT_TOKENS)
    text_tokens = sum(min(size, _INPUT_TOKENS) for size in sizes)
    images = [item.width * item.height for item in items if not isinstance(item, str)]
    pixels = sum(min(max(size, _LEAST_PIXELS), _MOST_PIXELS) for size in images)
    total = text_tokens + -(-pixels // _PIXELS_PER_TOKEN)
    _check_tokens(total, _BATCH_TOKENS)
    width = checked_int(body, "output_dimension", _WIDEST, options.width)
    rows = [
        vector(item[: 4 * _INPUT_TOKENS], width, kind)
        if isinstance(item, str)
        else _image_vector(item, width, kind)
        for item in items
    ]
    usage = {"text_tokens": text_tokens, "image_pixels": pixels, "total_tokens": total}
    return _embeddings(rows, body, usage, fault)


def cohere_embed(body: dict[str, Any], options: Options, fault: Fault) -> dict[str, Any]:
    """POST /cohere/v2/embed."""
    checked_model(body, _COHERE)
    texts = _texts(body, "texts", 96)
    kind = body.get("input_type")
    if kind not in _COHERE_TYPES:
        known = ", ".join(_COHERE_TYPES)
        raise Refused(400, f"invalid request: valid input_type must be provided, one of {known}")
    width = checked_int(body, "output_dimension", _WIDEST, options.width)
    rows = _with_faults([vector(text, width, kind) for text in texts], fault)
    billed = {"input_tokens": sum(map(tokens, texts))}
    return {"embeddings": {"float": rows}, "texts": texts, "meta": {"billed_units": billed}}


def cohere_rerank(body: dict[str, Any], options: Options, fault: Fault) -> dict[str, Any]:
    """POST /cohere/v2/rerank."""
    checked_model(body, _RERANK)
    query, documents = _query(body), _texts(body, "documents", 10_000)
    chunks = sum(-(-(tokens(query) + tokens(document)) // _CHUNK) for document in documents)
    billed = {"search_units": -(-chunks // _DOCUMENTS_PER_SEARCH)}
    return {"results": _results(query, documents, fault), "meta": {"billed_units": billed}}


def voyage_rerank(body: dict[str, Any], options: Options, fault: Fault) -> dict[str, Any]:
    """POST /voyage/v1/rerank."""
    checked_model(body, _RERANK)
    query, documents = _query(body), _texts(body, "documents", 1000)
    total = tokens(query) * len(documents) + sum(map(tokens, documents))
    _check_tokens(total, _RERANK_TOKENS)
    return {"data": _results(query, documents, fault), "usage": {"total_tokens": total}}


def jina_rerank(body: dict[str, Any], options: Options, fault: Fault) -> dict[str, Any]:
    """POST /jina/v1/rerank: the query may be an image where the model's name ends in -m0."""
    model = checked_model(body, _RERANK)
    query = body.get("query")
    if isinstance(query, dict):
        if not model.endswith("-m0"):
            raise Refused(422, "This model takes no images; use jina-reranker-m0.")
        text, size = in_words(base64_image(query.get("image"))), _RERANKED_IMAGE
    else:
        text = _query(body)
        size = tokens(text)
    listed = [part["text"] if isinstance(part, dict) else part for part in body.get("documents", ())]
    documents = _texts({"documents": listed}, "documents", 2048)
    total = size * len(documents) + sum(map(tokens, documents))
    return {"results": _results(text, documents, fault), "usage": {"total_tokens": total}}


def jina_embeddings(body: dict[str, Any], options: Options, fault: Fault) -> dict[str, Any]:
    """POST /jina/v1/embeddings: models of the second generation know no task."""
    model = checked_model(body, _JINA)
    kind = body.get("task", "")
    if kind and "-v2" in model:
        raise Refused(422, f"{model} does not support the parameter task")
    texts = _texts(body, "input", 512)
    total = sum(map(tokens, texts))
    if not body.get("truncate"):
        _check_tokens(max(map(tokens, texts)), 8192)
    width = checked_int(body, "dimensions", _WIDEST, options.width)
    body = {**body, "encoding_format": body.get("embedding_type")}
    usage = {"total_tokens": total, "prompt_tokens": total}
    return _embeddings([vector(text, width, kind) for text in texts], body, usage, fault)


def tei_embed(body: dict[str, Any], options: Options, fault: Fault) -> list[list[Any]]:
    """POST /tei/embed: vectors and nothing else, at most 32."""
    unknown = sorted(body.keys() - {"inputs", "truncate", "normalize", "dimensions", "prompt_name"})
    if unknown:
        raise Refused(422, f"unknown field {unknown[0]}")
    texts = _texts(body, "inputs", 10_000)
    if len(texts) > _TEI_INPUTS:
        raise Refused(422, f"batch size {len(texts)} > maximum allowed batch size {_TEI_INPUTS}")
    longest = max(map(tokens, texts))
    if longest >= _TEI_TOKENS and not body.get("truncate"):
        raise Refused(413, f"`inputs` must have less than {_TEI_TOKENS} tokens. Given: {longest}")
    width = checked_int(body, "dimensions", _WIDEST, options.width)
    return _with_faults([vector(text, width) for text in texts], fault)


def vector(text: str, width: int, kind: str = "") -> list[float]:
    """A unit vector by the words of the text; `kind` (query, document) moves it a little."""
    words = WORD.findall(text.casefold()) or [text.strip()]
    total = np.sum([_direction(word, width) for word in words], axis=0)
    if kind:
        total += 0.1 * _direction(f"\0{kind}", width)
    return _unit(total)


def _image_vector(image: PIL.Image.Image, width: int, kind: str) -> list[float]:
    """By the mean colour, and by the pixels: near to others of its colour, but not the same."""
    axes = [_direction(f"\0{name}", width) for name in ("red", "green", "blue")]
    alike = np.array(_unit((np.array(mean_colour(image)) - 128) @ np.array(axes)))
    total = alike + _OWN * np.array(_unit(_direction(hashlib.blake2s(image.tobytes()).hexdigest(), width)))
    if kind:
        total += 0.1 * np.array(_unit(_direction(f"\0{kind}", width)))
    return _unit(total)


def _unit(row: NDArray[np.float64]) -> list[float]:
    return list((row / (np.linalg.norm(row) or 1.0)).tolist())


@lru_cache(maxsize=65536)
def _direction(word: str, width: int) -> NDArray[np.float64]:
    draw = random.Random(word.encode("utf-8", "replace")).gauss
    return np.array([draw(0.0, 1.0) for _ in range(width)])


def _texts(body: dict[str, Any], key: str, limit: int) -> list[str]:
    given = body.get(key)
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise Refused(400, f"'$.{key}' is invalid: a list of texts is needed.")
    if len(texts) > limit:
        message = f"Invalid '{key}': array too long. At most {limit} are allowed, not {len(texts)}."
        raise Refused(400, message, code="array_above_max_length")
    return texts


def _voyage_kind(body: dict[str, Any]) -> str:
    kind = body.get("input_type")
    if kind not in (None, "query", "document"):
        raise Refused(400, f"Value '{kind}' provided for argument 'input_type' is not supported.")
    return kind or ""


def _check_tokens(count: int, most: int) -> None:
    if count > most:
        raise Refused(400, f"The maximum context length is {most} tokens, however you requested {count}.")


def _query(body: dict[str, Any]) -> str:
    query = body.get("query")
    if not isinstance(query, str) or not query:
        raise Refused(400, "invalid request: query must be a text that is not empty")
    return query


def _embeddings(
    rows: list[list[Any]], body: dict[str, Any], usage: dict[str, int], fault: Fault
) -> dict[str, Any]:
    """The answer of OpenAI and Voyage."""
    vectors: list[Any] = _with_faults(rows, fault)
    if "base64" in (body.get("encoding_format"), body.get("output_encoding")):
        vectors = [base64.b64encode(np.array(row, "<f4").tobytes()).decode() for row in vectors]
    data = [{"object": "embedding", "index": n, "embedding": row} for n, row in enumerate(vectors)]
    if fault.kind == "shuffled":
        data.reverse()
    return {"object": "list", "data": data, "model": body["model"], "usage": usage}


def _results(query: str, documents: Sequence[str], fault: Fault) -> list[dict[str, Any]]:
    """The best first, as the services sort them; of equals the first."""
    scores = [overlap(query, document) / (1 + overlap(query, query)) for document in documents]
    order = sorted(range(len(scores)), key=lambda index: -scores[index])
    rows = _with_faults([[index, scores[index]] for index in order], fault)
    if fault.kind == "wrong_index":
        rows[-1][0] = rows[0][0]
    return [{"index": row[0], "relevance_score": row[-1]} for row in rows]


def _with_faults(rows: list[list[Any]], fault: Fault) -> list[list[Any]]:
    """Vectors, or pairs of an index and a score, as the fault leaves them."""
    if fault.kind == "empty":
        return []
    if fault.kind == "few_vectors":
        return rows[:-1]
    if fault.kind == "many_vectors":
        return [*rows, rows[-1]]
    if fault.kind == "wrong_width":
        kept = rows[:-1] if fault.how == "last" else []
        return [*kept, *(row[: len(row) // 2] for row in rows[len(kept) :])]
    if fault.kind == "nan":
        rows[-1][len(rows[-1]) // 2] = None if fault.how == "null" else math.nan
    return rows


def openai_chat(body: dict[str, Any], options: Options, fault: Fault) -> dict[str, Any]:
    """POST /v1/chat/completions."""
    model = checked_model(body, _CHAT)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(map(texts_in, messages)):
        raise Refused(400, "Missing required parameter: 'messages'.")
    if body.get("max_tokens") is not None and model.startswith(("o1", "o3", "o4", "gpt-5")):
        message = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
        raise Refused(400, message, code="unsupported_parameter")
    parts = [part for message in messages for part in message["content"] if "image_url" in part]
    images = [base64_image(part["image_url"]["url"], data_url=True) for part in parts]
    content: str | None = _content(body, images, options, fault)
    refusal, reason = None, "stop"
    if fault.kind == "refusal":
        content, refusal = (None, _REFUSAL) if fault.how == "" else (_REFUSAL, None)
        if fault.how == "filter":
            content, reason = "", "content_filter"
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    if content and limit and tokens(content) > limit:
        content, reason = content.encode("utf-8", "replace")[: 4 * limit].decode("utf-8", "ignore"), "length"
    sent = 3 + sum(4 + sum(map(tokens, texts_in(message))) for message in messages)
    sent += sum(map(_image_tokens, images))
    written = tokens(content or refusal or "")
    reply = {"role": "assistant", "content": content, "refusal": refusal}
    return {
        "id": f"chatcmpl-{digest(body)[:24]}",
        "object": "chat.completion",
        "model": model,
        "choices": [{"index": 0, "message": reply, "finish_reason": reason}],
        "usage": {"prompt_tokens": sent, "completion_tokens": written, "total_tokens": sent + written},
    }


def anthropic_messages(body: dict[str, Any], options: Options, fault: Fault) -> dict[str, Any]:
    """POST /anthropic/v1/messages: with a tool that has to be used, its input is what is written."""
    model = checked_model(body, _MESSAGES)
    if body.get("max_tokens") is None:
        raise Refused(400, "max_tokens: Field required")
    if not 0 <= body.get("temperature", 1) <= 1:
        raise Refused(400, "temperature: range: 0..1")
    tool = (body.get("tools") or [{}])[0].get("name")
    if tool and body.get("tool_choice") != {"type": "tool", "name": tool}:
        raise Refused(400, "tool_choice: a tool that has to be used is needed here")
    as_openai = {key: value for key, value in body.items() if key in ("model", "messages", "max_tokens")}
    as_openai["messages"] = [
        {**message, "content": [_image_part(part) for part in message["content"]]}
        if isinstance(message["content"], list)
        else message
        for message in body.get("messages", ())
    ]
    answer = openai_chat(as_openai | ({"response_format": {}} if tool else {}), options, fault)
    (choice,), usage = answer["choices"], answer["usage"]
    content, reason = choice["message"]["content"] or "", choice["finish_reason"]
    blocks: list[dict[str, Any]] = [{"type": "text", "text": content}] if content else []
    stop = {"length": "max_tokens", "content_filter": "refusal"}.get(reason, "end_turn")
    if choice["message"]["refusal"]:
        blocks, stop = [], "refusal"
    elif tool and stop == "end_turn" and content.startswith("{"):
        blocks = [{"type": "tool_use", "id": "toolu_1", "name": tool, "input": json.loads(content)}]
        stop = "tool_use"
    return {
        "id": f"msg_{digest(body)[:24]}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": blocks,
        "stop_reason": stop,
        "usage": {"input_tokens": usage["prompt_tokens"], "output_tokens": usage["completion_tokens"]},
    }


def _image_part(part: dict[str, Any]) -> dict[str, Any]:
    if part.get("type") != "image":
        return part
    source = part["source"]
    return {"image_url": {"url": f"data:{source['media_type']};base64,{source['data']}"}}


def _image_tokens(image: PIL.Image.Image) -> int:
    """As many as gpt-4o-mini counts: for an image, and for each of its tiles."""
    scale = min(768 / min(image.size), 2048 / max(image.size), 1.0)
    wide, high = (-(-int(scale * side) // 512) or 1 for side in image.size)
    return 2833 + 5667 * wide * high


def _content(body: dict[str, Any], images: Sequence[PIL.Image.Image], options: Options, fault: Fault) -> str:
    if fault.kind == "empty" and fault.how == "content":
        return ""
    around, blocks = read_data(prompt_of(body))
    values = [value for block in blocks for value in block]
    shown = [value for value in values if isinstance(value, str)]
    classes = [value for value in values if isinstance(value, dict) and isinstance(value.get("number"), int)]
    if classes:  # a question which one suits the last text, or the image
        sample = in_words(images[-1]) if images else shown[-1]
        best = max(classes, key=lambda value: (overlap(sample, json.dumps(value)), -value["number"]))
        number = int(best["number"])
        return _numbered_answer(number, fault.how or "chatter") if fault.kind == "answer" else str(number)
    numbers = [int(match[1]) for pattern in _COUNTS if (match := re.search(pattern, around))]
    count = next((number for number in numbers if number > 0), _DEFAULT_COUNT)
    samples = _write_samples(_topic(around, blocks), shown, count, f"{digest(body)}:0")
    if fault.kind == "empty":
        samples = [" " * (n % 2) for n in range(count)]
    if fault.kind == "duplicates":
        source = shown if fault.how == "given" and shown else samples[:1]
        samples = [source[n % len(source)] for n in range(count)]
    if options.style == "schema" and "response_format" in body:
        return json.dumps({"texts": samples}, ensure_ascii=False)
    return _styled(samples, options.style)


def _topic(around: str, blocks: Sequence[Sequence[Any]]) -> list[str]:
    # The class and its real texts come first, and texts that exist already are to be avoided.
    material = [value for block in blocks[:2] for value in block[:20]] if blocks else [around[-600:]]
    texts = [" ".join(map(str, v.values())) if isinstance(v, dict) else str(v) for v in material]
    words = (word for text in texts for word in WORD.findall(text.lower()) if len(word) > 2)
    return list(dict.fromkeys(words))[:60]


def _write_samples(topic: Sequence[str], shown: Sequence[str], count: int, seed: str) -> list[str]:
    """`count` different sentences, none of them shown in the prompt."""
    rng = random.Random(seed)
    samples: list[str] = []
    while len(samples) < count:
        about = rng.sample(topic, min(len(topic), rng.randint(2, 4)))
        body = [*about, *rng.sample(_EXTRAS, rng.randint(1, 3))]
        rng.shuffle(body)
        parts = [rng.choice(_OPENERS), rng.choice(_MIDDLES), *body]
        if rng.random() < 0.7:
            parts.append(rng.choice(_ENDINGS))
        sample = " ".join(parts) + rng.choice(".!?")
        if sample not in (*shown, *samples):
            samples.append(sample)
    return samples


def _numbered_answer(number: int, how: str) -> str:
    """The number of a class as models with habits write it, or none at all."""
    return {
        "chatter": f"Sure! The best fit is class {number}. Let me know if you have more of the 3 or 4 texts.",
        "json": json.dumps({"class": number}),
        "fenced": f"```json\n{json.dumps({'class': number, 'reason': 'words in common'})}\n```",
        "think": f"<think>It could be 1 or 2, but hardly 7.</think>\n\n{number}",
        "none": "-1",
        "garbage": "It depends on what you mean by that.",
        "two": f"It is either {number} or {number + 1}.",
    }.get(how, str(number))


def _styled(samples: Sequence[str], style: str) -> str:
    """The samples as models with habits write them."""
    if style == "lines":
        lines = [f"{n}. {sample}" for n, sample in enumerate(samples, 1)]
        return "\n".join(["Sure! Here are the texts you asked for:", "", *lines])
    if style == "bullets":
        return "\n".join(["Here you go:", *(f"- {sample}" for sample in samples)])
    listed = json.dumps(samples, ensure_ascii=False)
    return f"```json\n{listed}\n```" if style == "fenced" else listed


def openai_images(body: dict[str, Any], options: Options, fault: Fault) -> dict[str, Any]:
    """POST /v1/images/generations. `gpt-image` models answer in base64, others where the request says so."""
    model = checked_model(body, _IMAGES)
    prompt = body.get("prompt")
    if not isinstance(prompt, str) or not prompt.strip():
        raise Refused(400, "Missing required parameter: 'prompt'.")
    count = checked_int(body, "n", 1 if model == "dall-e-3" else _MOST_IMAGES, 1)
    is_own = "gpt-image" in model
    size, quality = body.get("size") or "auto", body.get("quality") or "auto"
    if is_own and body.get("response_format") is not None:
        raise Refused(400, "Unknown parameter: 'response_format'.", code="unknown_parameter")
    for value, known in ((size, [*_IMAGE_TOKENS, "auto"]), (quality, [*_QUALITIES, "auto"])):
        if is_own and value not in known:
            message = f"Invalid value: '{value}'. Supported values are: {', '.join(known)}."
            raise Refused(400, message, code="invalid_value")
    if fault.kind == "refusal":
        message = "Your request was rejected by the safety system. safety_violations=[violence]."
        raise Refused(400, message, code="moderation_blocked")
    size = "1024x1024" if size == "auto" else size
    as_url = fault.kind == "image_url" or not (is_own or body.get("response_format") == "b64_json")
    seeds = [f"{digest(body)}:{0 if fault.kind == 'duplicates' else number}" for number in range(count)]
    sides = [int(side) for side in size.split("x")]
    if as_url:
        data = [{"url": f"https://images.invalid/{digest([prompt, own])}.png"} for own in seeds]
    else:
        broken = {"empty": b"", "no_image": b"<html><body>a page where an image belongs</body></html>"}
        images = [
            broken[fault.kind] if fault.kind in broken else draw_image(prompt, own, sides) for own in seeds
        ]
        data = [{"b64_json": base64.b64encode(image).decode()} for image in images]
    if not is_own:
        return {"data": data}
    quality = "high" if quality == "auto" else quality
    sent, made = tokens(prompt), count * _IMAGE_TOKENS[size][_QUALITIES.index(quality)]
    usage = {"total_tokens": sent + made, "input_tokens": sent, "output_tokens": made}
    return {"data": data, "quality": quality, "size": size, "usage": usage}


def draw_image(prompt: str, seed: object, size: Sequence[int]) -> bytes:
    """The PNG that a prompt gets; another one for each seed."""
    from PIL import Image

    _, blocks = read_data(prompt)
    first_line = next((line.strip() for line in prompt.splitlines() if line.strip()), "")
    subject = json.dumps(blocks[0], sort_keys=True) if blocks and blocks[0] else first_line
    draw = random.Random(hashlib.sha256(subject.encode("utf-8", "replace")).digest())
    palette = [[draw.randrange(_SPREAD, 256 - _SPREAD) for _ in range(3)] for _ in range(3)]
    pattern = [draw.randrange(3) for _ in range(_TILES * _TILES)]
    vary = random.Random(f"{seed}:{prompt}".encode("utf-8", "replace"))
    tiles = bytes(part + vary.randint(-_SPREAD, _SPREAD - 1) for n in pattern for part in palette[n])
    image = Image.frombytes("RGB", (_TILES, _TILES), tiles)
    sides = [max(2 * _TILES, side // _SMALLER) for side in size]
    stream = io.BytesIO()
    image.resize((sides[0], sides[1]), Image.Resampling.NEAREST).save(stream, "PNG")
    return stream.getvalue()


Route = Callable[[Any, Options, Fault], Any]
ROUTES: dict[str, Route] = {
    "/v1/embeddings": openai_embeddings,
    "/v1/chat/completions": openai_chat,
    "/v1/images/generations": openai_images,
    "/anthropic/v1/messages": anthropic_messages,
    "/voyage/v1/embeddings": voyage_embeddings,
    "/voyage/v1/multimodalembeddings": voyage_multimodal,
    "/voyage/v1/rerank": voyage_rerank,
    "/cohere/v2/embed": cohere_embed,
    "/cohere/v2/rerank": cohere_rerank,
    "/jina/v1/embeddings": jina_embeddings,
    "/jina/v1/rerank": jina_rerank,
    "/tei/embed": tei_embed,
}
_DEPLOYMENT = re.compile(r"/azure/openai/deployments/([^/?]+)(/[a-z/]+)(?:\?api-version=[0-9]{4}-[0-9a-z-]+)")


def route_of(path: str, headers: Mapping[str, str]) -> Route:
    """What answers at a path; raises `Refused` where nothing does."""
    if path in ROUTES:
        if path.startswith("/anthropic/") and "anthropic-version" not in headers:
            raise Refused(400, "anthropic-version: header is required")
        return ROUTES[path]
    deployed = _DEPLOYMENT.fullmatch(path)
    route = ROUTES.get(f"/v1{deployed[2]}") if deployed else None
    if deployed is None or route is None:
        raise Refused(404, f"Invalid URL ({path})")
    if deployed[1].startswith("no-such"):
        missing = "The API deployment for this resource does not exist."
        raise Refused(404, missing, code="DeploymentNotFound")
    # An older model under the name that its owner has given it.
    return lambda body, options, fault: route({**body, "model": "deployed"}, options, fault)
