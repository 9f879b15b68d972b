"""The tasks of the golden cases: small, seeded, and made of nothing but this file and the demo's data."""

import hashlib
import itertools
import json
from pathlib import Path

import numpy as np

# Classes as TREC has them; a class's texts are every opening with every ending.
QUESTIONS = {
    "abbreviation": (
        "an abbreviation or what it stands for",
        ["What does {} stand for?", "What is the full form of {}?", "Which words are shortened to {}?"],
        ["NASA", "HTML", "the letters WHO", "ISBN", "the acronym LASER"],
    ),
    "description": (
        "a definition, a reason or a manner",
        ["Why does {} happen?", "What is the meaning of {}?", "How does one explain {}?"],
        ["a rainbow", "rust on iron", "the tide", "an eclipse of the moon", "thunder in winter"],
    ),
    "entity": (
        "a thing, an animal, a colour or a product",
        ["What animal is known for {}?", "Which product is sold with {}?", "What colour goes with {}?"],
        ["long ears", "a red label", "night vision", "the city flag", "sweet milk"],
    ),
    "human": (
        "a person or a group of people",
        ["Who invented {}?", "Which person wrote about {}?", "What team won {}?"],
        ["the telephone", "the first novel", "the cup of 1966", "the paper clip", "the long race"],
    ),
    "location": (
        "a place, a city or a country",
        ["Where is {}?", "Which country has {}?", "In what city stands {}?"],
        ["the tallest tower", "the oldest bridge", "the Black Forest", "the deepest lake", "the long wall"],
    ),
    "number": (
        "a count, a date, a distance or a price",
        ["How many people visit {}?", "When was {} built?", "How much does {} cost?"],
        ["the old museum", "a litre of milk", "the harbour", "the night train", "a ticket to the zoo"],
    ),
}
GIVEN = (4, 3, 2, 5, 1, 4)  # texts of each class in turn; with others the loop has something to decide
ADDED = ("count", "how many or how much", ["How many eggs?", "How much milk?", "How many ships sail?"])
MORE, NEW = 7, 3  # texts of a class that a generator has, and that are tested on


def write_trec(folder):
    """task.yaml, one_shot.yaml, more.jsonl, new.jsonl and vectors.npz, with three views."""
    texts = {}
    for number, (name, (_, openings, endings)) in enumerate(QUESTIONS.items()):
        every = [opening.format(ending) for opening, ending in itertools.product(openings, endings)]
        order = np.random.default_rng(number).permutation(len(every))
        texts[name] = [every[place] for place in order]
    descriptions = {name: description for name, (description, _, _) in QUESTIONS.items()}
    write_task(folder, "trec-shaped", descriptions, texts)
    name, description, examples = ADDED
    descriptions, texts = {**descriptions, name: description}, {**texts, name: examples}
    write_vectors(folder, descriptions, texts, views=("pooled", "layers", "max"))


def write_demo(folder):
    """The same files of the demo's classes and messages, with recorded samples as the generator's."""
    import adamab

    data = next(Path(adamab.__file__).parent.rglob("messages.jsonl")).parent
    described = json.loads((data / "classes.json").read_text(encoding="utf-8"))
    descriptions = {row["label"]: row["description"] for row in described}
    given, recorded = (_by_label(data / f"{name}.jsonl") for name in ("messages", "synthetic"))
    texts = {name: given[name][:4] + recorded[name][:7] + given[name][4:8] for name in descriptions}
    write_task(folder, "demo", descriptions, texts)
    write_vectors(folder, descriptions, texts, views=("pooled",))


def write_features(folder):
    """The same files of image features: vectors under ids, no words to look at."""
    rng = np.random.default_rng(7)
    names = ["abyssinian", "beagle", "chihuahua", "persian", "samoyed"]
    descriptions = {name: f"an image of a {name}" for name in names}
    ids = {name: [f"{name}-{number:02d}.jpg" for number in range(14)] for name in names}
    centres = rng.standard_normal((len(names), 24))
    keys = [key for members in ids.values() for key in members]
    rows = np.repeat(centres, 14, axis=0) + 1.4 * rng.standard_normal((len(keys), 24))
    worded = centres + 1.5 * rng.standard_normal(centres.shape)
    write_task(folder, "features", descriptions, ids)
    every = np.concatenate([rows, worded])
    every /= np.linalg.norm(every, axis=1, keepdims=True)
    wordings = [f"{name}: {description}" for name, description in descriptions.items()]
    save(folder / "vectors.npz", [*keys, *wordings], {"pooled": every})


def write_task(folder, name, descriptions, texts):
    """The last texts of a class are new ones, those before them the generator's, the first ones given."""
    folder.mkdir()
    counts = dict(zip(descriptions, itertools.cycle(GIVEN), strict=False))
    for file, most in (("task", 99), ("one_shot", 1)):
        classes = [
            {"name": label, "description": text, "examples": texts[label][: min(most, counts[label])]}
            for label, text in descriptions.items()
        ]
        (folder / f"{file}.yaml").write_text(json.dumps({"name": name, "classes": classes}), encoding="utf-8")
    for file, part in (("more", slice(-MORE - NEW, -NEW)), ("new", slice(-NEW, None))):
        rows = [{"text": text, "label": label} for label in descriptions for text in texts[label][part]]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{file}.jsonl").write_text(lines, encoding="utf-8")


def write_vectors(folder, descriptions, texts, views):
    keys = [text for members in texts.values() for text in members]
    keys += [f"{name}: {description}" for name, description in descriptions.items()]
    save(folder / "vectors.npz", keys, {view: hashed(keys, view) for view in views})


def hashed(texts, view="pooled", width=32):
    """A cheap embedding: the scaled sum of one pseudo-random vector for each word, and two for the text."""
    words = [[*text.casefold().split(), *[text] * 2] for text in texts]
    rows = np.stack([sum(_word(word, view, width) for word in members) for members in words])
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def save(path, keys, views):
    arrays = {f"view/{view}": rows.astype(np.float32) for view, rows in views.items()}
    np.savez(path, ids=np.array(keys), model=np.array("golden"), **arrays)


def _word(word, view, width):
    seed = hashlib.sha256(f"{view} {word}".encode()).digest()
    return np.random.default_rng(int.from_bytes(seed[:8], "little")).standard_normal(width)


def _by_label(path):
    texts = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        texts.setdefault(row["label"], []).append(row["text"])
    return texts
