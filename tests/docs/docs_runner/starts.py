"""What pages take for granted: files that earlier pages made, or that readers have of their own.

A page names them in `<!-- starts from: … -->`; each is made once and copied into the page's folder.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

CLASSES = ("refund", "login_problem", "feature_request")
MESSAGES = [
    ("1", "please send my money back"),
    ("2", "the code never arrives"),
    ("3", "a darker page at night"),
]
LABELLED = [
    ("I paid twice and want the second payment back", "refund"),
    ("please return my money for the parcel", "refund"),
    ("the reset link does not work", "login_problem"),
    ("my account is locked again", "login_problem"),
    ("could you add a calendar", "feature_request"),
    ("please let us export the list", "feature_request"),
]
STRANGE = ["how do I bake sourdough bread", "the weather in Lisbon is fine", "who won the match", "la la la"]
RECORDED = {
    "refund": [
        "the second licence should not have been charged",
        "give me back what the broken device cost",
        "I returned the shoes and still wait for the money",
        "my card was billed although the order failed",
        "the hotel was closed, so pay us back",
    ],
    "login_problem": [
        "the page does not take my new password",
        "no mail with the code reaches me",
        "I am thrown out after every sign-in",
        "the app asks for a code that I do not have",
        "somebody changed the address of my account",
    ],
    "feature_request": [
        "a button to undo the last change would be great",
        "can the app read the text aloud",
        "we miss a way to share a folder",
        "please support our language",
        "it should remember how I sorted the table",
    ],
}


class Starts:
    """Makes each start once, below one folder."""

    def __init__(self, place):
        self._place = place

    def folder(self, name):
        """The folder to copy; an unknown name is an error of the page."""
        folder = self._place / name
        if not folder.exists():
            folder.mkdir()
            MAKERS[name](folder)
        return folder


def adamab(*arguments):
    """A command in this process, which has torch loaded already."""
    from adamab.cli.app import app

    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output


def triage(folder):
    """`triage/task.yaml`, as `adamab init` writes it."""
    adamab("init", folder / "triage")


def quickstart(folder):
    """The first run of the quick start: `triage/task.yaml` and `triage/run`."""
    triage(folder)
    adamab("fit", folder / "triage" / "task.yaml", "--run", folder / "triage" / "run")


def messages(folder):
    """Texts to classify, texts with labels, texts of no class, and recorded samples."""
    _csv(folder / "messages.csv", ("id", "text"), MESSAGES)
    _csv(folder / "labelled.csv", ("text", "label"), LABELLED)
    (folder / "messages.txt").write_text("please send my money back\ncan you pay me in dark mode\n")
    (folder / "other.txt").write_text("".join(f"{text}\n" for text in STRANGE))
    rows = [{"label": name, "text": RECORDED[name][number]} for number in range(5) for name in CLASSES]
    (folder / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def pets(folder):
    """Drawn images under the names of four breeds, and a small network that tells them apart."""
    for number, name in enumerate(("Siamese", "Sphynx", "beagle", "pug")):
        new = (65, 81, 92) if name == "Siamese" else (21, 31, 41)
        for part, taken in (("given", (100, 101, 102)), ("more", (7,)), ("new", new)):
            for sample_image in taken:
                _image(
                    folder / "pets" / part / name / f"{name}_{sample_image}.jpg",
                    kind=number,
                    seed=sample_image,
                )
    _network(folder / "mobilenetv2.onnx", "mobilenetv20_features_pool0_fwd")


def tiny_clip(folder):
    """`models/tiny-clip`: a random CLIP in the real format."""
    import torch
    import transformers

    torch.manual_seed(0)
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    tokens = [*letters, *(f"{one}</w>" for one in letters), "<|startoftext|>", "<|endoftext|>"]
    ids = {token: number for number, token in enumerate(tokens)}
    tower = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    marks = {"bos_token_id": ids["<|startoftext|>"], "eos_token_id": ids["<|endoftext|>"]}
    config = transformers.CLIPConfig(
        text_config=tower | marks | {"vocab_size": 600, "max_position_embeddings": 77},
        vision_config=tower | {"patch_size": 8, "image_size": 32},
        projection_dim=10,
    )
    place = folder / "models" / "tiny-clip"
    transformers.CLIPModel(config).save_pretrained(place)
    transformers.CLIPTokenizer(vocab=ids, merges=[], model_max_length=77).save_pretrained(place)
    processor = transformers.CLIPImageProcessorPil(
        size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}
    )
    processor.save_pretrained(place)


def clip_cache(folder):
    """The Hugging Face cache, with that random CLIP in it under a published name."""
    tiny_clip(folder / "made")
    repository, commit = folder / "huggingface" / "models--openai--clip-vit-base-patch32", "0123456789" * 4
    reference = repository / "refs" / "refs" / "pr" / "15"
    reference.parent.mkdir(parents=True)
    reference.write_text(commit)
    (repository / "snapshots").mkdir()
    (folder / "made" / "models" / "tiny-clip").rename(repository / "snapshots" / commit)


MAKERS: dict[str, Callable[[Path], None]] = {
    "triage": triage,
    "quickstart": quickstart,
    "messages": messages,
    "pets": pets,
    "tiny-clip": tiny_clip,
    "clip-cache": clip_cache,
}


def _csv(place, head, rows):
    with place.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([head, *rows])


def _image(place, *, kind, seed):
    """Spots in places and colours that a kind has in common, and more that are the image's own."""
    from PIL import Image

    side, shared, own = 64, np.random.default_rng(kind), np.random.default_rng((kind, seed))
    rows, columns = np.mgrid[0:side, 0:side]
    pixels = np.full((side, side, 3), 128.0)
    for rng, spots, strength in ((shared, 8, 140), (own, 8, 90)):
        for _ in range(spots):
            y, x, radius = rng.uniform(0, side), rng.uniform(0, side), rng.uniform(4, 12)
            spot = np.exp(-((rows - y) ** 2 + (columns - x) ** 2) / (2 * radius**2))
            pixels += spot[..., None] * rng.uniform(-strength, strength, 3)
    place.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(place, quality=90)


def _network(place, output):
    """Colours in an 8 x 8 grid: enough to tell drawn images apart, and it runs in no time."""
    import onnx

    node = onnx.helper.make_node
    nodes = [
        node("AveragePool", ["pixels"], ["grid"], kernel_shape=[28, 28], strides=[28, 28]),
        node("Flatten", ["grid"], [output]),
        node("Identity", [output], ["scores"]),
    ]
    kind = onnx.TensorProto.FLOAT
    given = [onnx.helper.make_tensor_value_info("pixels", kind, ["n", 3, 224, 224])]
    made = [onnx.helper.make_tensor_value_info("scores", kind, None)]
    graph = onnx.helper.make_graph(nodes, "network", given, made)
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), place)
