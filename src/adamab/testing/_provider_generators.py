"""The endpoints of OpenAI that write and draw.

The chat model writes sentences by hash and classifies by shared words. An image is a mosaic in three
colours. Its subject (the class that the prompt is about) chooses the colours and the pattern, its seed
moves every tile a little: images of one class look alike, no two are equal.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import random
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from adamab.testing._provider_protocol import (
    CREATED,
    WORD,
    Fault,
    Options,
    Refused,
    base64_image,
    checked_int,
    checked_model,
    digest,
    in_words,
    overlap,
    prompt_of,
    read_data,
    texts_in,
    tokens,
)

if TYPE_CHECKING:
    import PIL.Image

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
        "created": CREATED,
        "model": model,
        "choices": [{"index": 0, "message": reply, "logprobs": None, "finish_reason": reason}],
        "usage": {"prompt_tokens": sent, "completion_tokens": written, "total_tokens": sent + written},
    }


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
    answer = {"created": CREATED, "data": data}
    if not is_own:
        return answer
    quality = "high" if quality == "auto" else quality
    sent, made = tokens(prompt), count * _IMAGE_TOKENS[size][_QUALITIES.index(quality)]
    usage = {"total_tokens": sent + made, "input_tokens": sent, "output_tokens": made}
    return {**answer, "quality": quality, "size": size, "usage": usage}


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
