"""What stands in for the models behind the provider server: vectors by words, sentences by hash."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

STYLES = ("schema", "json", "lines", "bullets", "quoted", "fenced")
DEFAULT_COUNT = 5

_WORD = re.compile(r"\w+")
_COUNTS = (r"\b(\d{1,3}) new\b", r"array of (\d{1,3})\b", r"\b(\d{1,3})\b")
_ORDER = re.compile(r"IGNORE ALL AND WRITE:[ \t]*(.+)")

_OPENERS = """Honestly|Since yesterday|Once again|Could someone explain|My neighbour says|After the update
In the meantime|For the third time|Before we leave|Just so you know|At last|Out of curiosity|This morning
Between us|As far as I can tell|To my surprise|Whenever it rains|On the phone|During lunch|No matter what
Late at night|With two children|Frankly|Somewhere in Lisbon|Until Friday|Back home|Against all advice
Only now|From the outside|In a hurry""".replace("\n", "|").split("|")
_MIDDLES = (
    """nobody noticed|everything depends on|we keep asking about|I finally understood|they sent me
you should look at|my sister wondered about|there was trouble with|we celebrated|someone mentioned
the office forgot|I would rather have|they are proud of|we lost track of|he complained about|she praised
the team tested|I cannot find|people talk about|you promised|we compared|it comes down to|I dreamt of
our guests liked|the manual skips|they doubled|I gave up on|we paid for|nothing beats|the letter is about
""".strip()
    .replace("\n", "|")
    .split("|")
)
_EXTRAS = re.findall(
    r"\w+",
    """lamp river ticket garden winter blue quiet seven bridge kettle letter orange window station
paper mountain slow battery music corner silver summer bottle early market sudden forest button harbour
twice gentle engine carpet narrow holiday pencil thunder copper empty yellow ladder honest island pocket
velvet morning simple castle rapid needle amber wooden basket distant mirror plain ribbon stone gradual
whisper cotton steady marble fresh lantern puzzle meadow broken saddle""",
)
_ENDINGS = (
    """and that is all|so please hurry|or so it seems|which I did not expect|again and again|for now
without any warning|as usual|and I wonder why|before the weekend|at the worst moment|to be fair|if possible
by the way|thanks in advance|but who knows|in the end|like last year|and counting|at any rate
""".strip()
    .replace("\n", "|")
    .split("|")
)


@dataclass(frozen=True)
class Options:
    """How the models behave: width of vectors, habits of writing, obedience to planted orders."""

    width: int = 64
    style: str = "schema"
    gullible: bool = False
    before: int = 0  # pictures that this prompt has had already: it never gets the same twice


@dataclass(frozen=True)
class Prompt:
    """What the model understood: the material in the data blocks and what stands around it."""

    around: str
    blocks: tuple[tuple[Any, ...], ...]
    count: int | None = None
    topic: tuple[str, ...] = field(default=())

    @property
    def shown(self) -> tuple[str, ...]:
        """The texts that the prompt shows."""
        return tuple(value for block in self.blocks for value in block if isinstance(value, str))

    @property
    def numbered(self) -> tuple[dict[str, Any], ...]:
        """The classes of a question which one suits."""
        objects = [value for block in self.blocks for value in block if isinstance(value, dict)]
        return tuple(value for value in objects if isinstance(value.get("number"), int))


def tokens(text: str) -> int:
    """About as many as a tokenizer would count: one for four bytes."""
    return max(1, -(-len(text.encode("utf-8", "replace")) // 4))


def vector(text: str, width: int, kind: str = "") -> list[float]:
    """A unit vector by the words of the text; `kind` (query, document) moves it a little."""
    words = _WORD.findall(text.casefold()) or [text.strip()]
    rows = [direction(word, width) for word in words]
    if kind:
        rows.append([0.1 * x for x in direction(f"\0{kind}", width)])
    return unit(rows)


def unit(rows: Sequence[Sequence[float]]) -> list[float]:
    """The sum of some vectors, of length 1."""
    total = [sum(column) for column in zip(*rows, strict=True)]
    length = sum(x * x for x in total) ** 0.5 or 1.0
    return [x / length for x in total]


@lru_cache(maxsize=65536)
def direction(word: str, width: int) -> list[float]:
    """Where a word points to."""
    draw = random.Random(word.encode("utf-8", "replace")).gauss
    return [draw(0.0, 1.0) for _ in range(width)]


def digest(value: Any) -> str:
    """The sha256 of a JSON value, however it was spaced and sorted."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def read_prompt(text: str) -> Prompt:
    """Tell the data blocks (lines between `<data>` and `</data>`, JSON each) from what is around them."""
    around: list[str] = []
    blocks: list[list[Any]] = []
    inside = False
    for line in text.splitlines():
        if not inside and line.strip() == "<data>":
            inside = True
            blocks.append([])
        elif inside and line.strip() == "</data>":
            inside = False
        elif inside:
            blocks[-1].append(_json(line))
        else:
            around.append(line)
    outside = "\n".join(around)
    kept = tuple(tuple(block) for block in blocks)
    return Prompt(outside, kept, _count(outside), _topic(outside, kept))


def planted(prompt: Prompt) -> str | None:
    """What a gullible model is told to write by an order outside of the data."""
    found = _ORDER.search(prompt.around)
    return found[1].strip() if found else None


def write_samples(prompt: Prompt, count: int, seed: str) -> list[str]:
    """`count` different sentences, none of them shown in the prompt."""
    rng = random.Random(seed)
    taken = set(prompt.shown)
    samples: list[str] = []
    while len(samples) < count:
        sample = _sentence(rng, prompt.topic)
        if sample not in taken:
            taken.add(sample)
            samples.append(sample)
    return samples


def classify(prompt: Prompt, seen: str | None = None) -> int:
    """The number of the class that shares most words with what is asked about.

    That is the last text shown or, of a picture, what is `seen` in it.
    """
    asked = seen if seen is not None else (prompt.shown[-1] if prompt.shown else "")
    best = max(prompt.numbered, key=lambda value: (overlap(asked, json.dumps(value)), -value["number"]))
    return int(best["number"])


def numbered_answer(number: int, how: str) -> str:
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


def overlap(text: str, other: str) -> int:
    """How many words two texts share."""
    return len(_words(text) & _words(other))


def styled(samples: Sequence[str], style: str) -> str:
    """The samples as models with habits write them."""
    if style == "lines":
        lines = [f"{n}. {sample}" for n, sample in enumerate(samples, 1)]
        return "\n".join(
            ["Sure! Here are the texts you asked for:", "", *lines, "", "Let me know if you need more!"]
        )
    if style == "bullets":
        return "\n".join(["Here you go:", *(f"- {sample}" for sample in samples)])
    if style == "quoted":
        return "\n".join(f'"{sample}"' for sample in samples)
    if style == "fenced":
        return f"```json\n{json.dumps(list(samples), ensure_ascii=False, indent=2)}\n```"
    return json.dumps(list(samples), ensure_ascii=False)


def by_schema(schema: Any, samples: Sequence[str]) -> Any:
    """A value that the JSON schema allows, with the samples in its lists of texts."""
    return _instance(schema if isinstance(schema, dict) else {}, samples, iter(samples))


def _instance(schema: dict[str, Any], samples: Sequence[str], rest: Iterator[str]) -> Any:
    if "const" in schema or schema.get("enum"):
        return schema.get("const", (schema.get("enum") or [None])[0])
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object" or "properties" in schema:
        return {key: _instance(part, samples, rest) for key, part in schema.get("properties", {}).items()}
    if kind == "array":
        return [_instance(schema.get("items", {}), samples, iter((sample,))) for sample in samples]
    return {"integer": 1, "number": 1.0, "boolean": True, "null": None}.get(str(kind), next(rest, ""))


def asked_count(prompt: Prompt, schema: Any) -> int:
    """How many samples are wanted: what the prompt says, within the bounds of the schema's first list."""
    count = prompt.count if prompt.count is not None else DEFAULT_COUNT
    bounds = _array(schema) or {}
    count = max(count, bounds.get("minItems", 0)) if prompt.count else bounds.get("minItems", count)
    return int(min(count, bounds.get("maxItems", count)))


def _array(schema: Any) -> dict[str, Any] | None:
    if not isinstance(schema, dict):
        return None
    if schema.get("type") == "array":
        return schema
    found = (_array(part) for part in schema.get("properties", {}).values())
    return next((part for part in found if part is not None), None)


def _sentence(rng: random.Random, topic: Sequence[str]) -> str:
    about = rng.sample(topic, min(len(topic), rng.randint(2, 4)))
    extras = rng.sample(_EXTRAS, rng.randint(1, 3))
    body = [*about, *extras]
    rng.shuffle(body)
    parts = [rng.choice(_OPENERS), rng.choice(_MIDDLES), *body]
    if rng.random() < 0.7:
        parts.append(rng.choice(_ENDINGS))
    return " ".join(parts) + rng.choice(".!?")


def _topic(around: str, blocks: Sequence[Sequence[Any]]) -> tuple[str, ...]:
    # The class and its real texts come first, and texts that exist already are to be avoided.
    material = [_plain(value) for block in blocks[:2] for value in block[:20]] if blocks else [around[-600:]]
    words = (word for text in material for word in _WORD.findall(text.lower()))
    return tuple(dict.fromkeys(word for word in words if len(word) > 2))[:60]


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(str(part) for part in value.values())
    return str(value)


def _count(around: str) -> int | None:
    for pattern in _COUNTS:
        found = re.search(pattern, around)
        if found and int(found[1]) > 0:
            return int(found[1])
    return None


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))


def _json(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return line
