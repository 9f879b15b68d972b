"""The card says what is known, nothing else, and shows every name as it is."""

import html
import json
import re

import numpy as np
import pytest
import yaml
from huggingface_hub import ModelCard

from adamab.errors import RunError
from adamab.model import Classifier, Confidence, Head
from adamab.publish.model_card import (
    Facts,
    facts_of,
    is_of_this_machine,
    is_ours,
    model_card,
    public_fingerprint,
    without_place,
)
from adamab.run.directory import write_task
from adamab.run.run_log import SEGMENT, Journal
from adamab.task.spec import Task

AWKWARD = ("a: b", "x | y", "new\nline", "`code` *b* _i_", "<script>alert(1)</script>", "[l](http://x.y)")
ESTIMATE = {"accuracy": 0.75, "low": 0.5, "high": 0.9, "n": 12}
SUMMARY = {
    "format": "adamab-run",
    "adamab": "0.1.0",
    "packages": {"numpy": "2.0"},
    "task": {"name": "desk: #1 | `x`", "modality": "text"},
    "generator": "openai:writer?base_url=http://10.0.0.7/v1",
    "policy": "adamab",
    "budget": "9 samples",
    "seed": 3,
    "rounds": 2,
    "recipe": {"name": "default", "dropout": 0.25, "batch": 5},
    "given": 12,
    "synthetic": 9,
    "synthetic_by_class": {"a: b": 9},
    "rejected": {"a: b": {"near duplicate": 2, "repeat": 1}},
    "estimate": ESTIMATE,
    "spent": {"usd": 0.0125, "calls": 4, "input_tokens": 100, "output_tokens": 50},
    "overlong": 2,
    "seconds": 3.21,
}


def classifier(classes=AWKWARD, **more):
    head = Head(view="pooled", linear=np.ones((len(classes), 3), np.float32))
    known = {"embedder_spec": "st:/home/someone/models/mini", "fingerprint": "st:01", **more}
    return Classifier(classes=tuple(classes), heads=(head,), **known)


def header(card):
    return yaml.safe_load(card.split("---\n")[1])


def rows(card):
    """The names in the table of classes, as a reader of Markdown sees them."""
    lines = [line for line in card.splitlines() if re.match(r"\| .* \| (\d+|unknown) \| ", line)]
    cells = [re.split(r"(?<!\\)\|", line)[1].strip() for line in lines]
    return [html.unescape(re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", cell)) for cell in cells]


def test_a_full_card():
    facts = Facts(SUMMARY, dict.fromkeys(AWKWARD, 2))
    confidence = Confidence(seen=(1.0,) * 6, n=2, strangeness=(-2.0, -1.0), surprise=(0.1, 0.2))
    card = model_card(classifier(confidence=confidence), facts, licence="apache-2.0")
    read = ModelCard(card)  # the Hub's own reader
    assert read.data.license == "apache-2.0"
    assert read.data.library_name == "adamab"
    assert read.data.pipeline_tag == "text-classification"
    assert read.data.model_name == "desk: #1 | `x`"
    assert read.data.eval_results[0].metric_value == 0.75
    for words in (
        "**75.0 %** (95 % interval 50.0 % to 90.0 %) on 12 given samples",
        "12 given samples, 9 synthetic samples",
        "gate kept 3 more",
        "9 of 21 training samples are synthetic",
        "2 of the texts in training were longer",
        "dropout=0.25",
        "4 paid calls, 100 tokens in and 50 out, 0.0125 USD",
        "2 held-out given samples",
    ):
        assert words in card
    assert "license" not in header(model_card(classifier(), facts))


def test_names_are_shown_as_they_are_and_nothing_of_this_machine_is():
    card = model_card(classifier(), Facts(SUMMARY))
    assert rows(card) == [name.replace("\n", "\\n") for name in AWKWARD]
    assert not re.search(r"(?<!\\)<script", card)
    assert not re.search(r"(?<!\\)\[l", card)
    assert "# desk: #1 \\| \\`x\\`\n" in card
    assert "/home/" not in card
    assert "10.0.0.7" not in card
    assert 'embedder="SPEC"' in card  # others must say which one it is
    served = model_card(classifier(embedder_spec="openai:m", fingerprint="openai:m:256@10.0.0.5:8080/v1"))
    assert "embedder: openai:m, fingerprint openai:m:256\n" in served


def test_classes_that_were_added_are_marked(tmp_path):
    (tmp_path / "fit.json").write_text(json.dumps({**SUMMARY, "added": ["x | y", "never finished"]}))
    with Journal(tmp_path, writing=True) as journal:
        journal.note(SEGMENT, {"inputs": {"given": {"a: b": ["1", "2"]}}})
    row = "| x \\| y (added later, not trained yet) |"
    assert f"{row} unknown | 0 |" in model_card(classifier(), facts_of(tmp_path))
    write_task(tmp_path, Task.from_mapping({"a: b": ["one"], "x | y": ["two", "three", "four"]}))
    card = model_card(classifier(), facts_of(tmp_path))
    assert "| a: b | 2 | 9 |" in card
    assert f"{row} 3 | 0 |" in card
    assert "1 of 6 classes was added after the fit" in card
    assert "never finished" not in card
    metric = header(card)["model-index"][0]["results"][0]["metrics"][0]
    assert "on 12 given samples of the classes that were fitted" in metric["name"]
    assert "added" not in model_card(classifier(), Facts(SUMMARY))


def test_a_card_of_ours_is_known_by_its_header(tmp_path):
    card = tmp_path / "README.md"
    assert not is_ours(card)
    card.write_text(model_card(classifier()), encoding="utf-8")
    assert is_ours(card)
    others = ("mine", "", "---\nlibrary_name: other\n---\nadamab", "---\n- adamab\n---\n", "---\na: [\n---\n")
    for text in (*others, "library_name: adamab\n---\n---\n", "# Mine\n---\nlibrary_name: adamab\n---\n"):
        card.write_text(text)
        assert not is_ours(card)
    card.write_bytes(b"\xff\xfe")
    assert not is_ours(card)


def test_what_is_not_known_is_not_made_up():
    metadata = {"out_of_fold": ESTIMATE, "modality": "image"}
    card = model_card(classifier(("no", "yes"), embedder_spec="local", metadata=metadata))
    assert header(card)["pipeline_tag"] == "image-classification"
    assert "photo.jpg" in card
    assert "an unknown number of given samples" in card
    assert "| no | unknown | unknown |" in card
    assert "**75.0 %**" in card
    assert "recipe: unknown" in card
    assert "## Costs" not in card
    assert 'embedder="SPEC"' not in card
    card = model_card(classifier(), Facts({**SUMMARY, "estimate": None}))
    assert "model-index" not in header(card)
    assert "No accuracy is known" in card
    assert "cannot answer `unknown`" in card


@pytest.mark.parametrize(
    "damage",
    [
        {"estimate": {"accuracy": "high"}},
        {"synthetic_by_class": [1]},
        {"given": "<b>"},
        {"spent": {}},
        {"rejected": 3},
        {"packages": None},
        {"generator": 4},
    ],
)
def test_a_damaged_summary_is_one_line(damage):
    with pytest.raises(RunError, match="is damaged or was edited"):
        model_card(classifier(), Facts({**SUMMARY, **damage}))


@pytest.mark.parametrize(
    ("spec", "public"),
    [
        ("openai:m?base_url=http://u:pw@10.0.0.5:8080/v1&key_env=ACME_KEY", "openai:m"),
        ("openai:m?base_url=http://h/v1?x=1&Key=SECRET_NAME", "openai"),  # no valid option
        ("openai:/srv/acme/models/llama?dimensions=8", "openai:llama?dimensions=8"),
        ("npz:clients/acme/v.npz", "npz:v.npz"),
        ("npz:C:\\data\\v.npz", "npz:v.npz"),
        ("onnx:../acme/net.onnx?size=224&output=pool", "onnx:net.onnx?size=224&output=pool"),
        ("pool:acme/images/", "pool:images"),
        ("st:file:///home/me/x", "st:x"),
        ("st:secret-project/models/mini", "st:mini"),
        ("clip:\\\\server\\share\\mini", "clip:mini"),
        ("timm:resnet50?checkpoint=acme/w.safetensors", "timm:resnet50"),
        ("mine:http://10.0.0.5:8080", "mine"),
        ("mine:10.0.0.5:8080", "mine"),
        ("mine:m?endpoint=10.0.0.5&api_key=x&max_tokens=9", "mine:m?max_tokens=9"),
    ],
)
def test_servers_variables_and_folders_are_left_out_of_names(spec, public):
    assert without_place(spec) == public
    assert is_of_this_machine(spec)


@pytest.mark.parametrize(
    "spec",
    ["local?long_texts=average", "st:BAAI/bge-small", "openai:m?dimensions=256", "openai:@cf/baai/bge-m3"],
)
def test_names_that_others_can_use_stay(spec):
    assert without_place(spec) == spec
    assert not is_of_this_machine(spec)


def test_a_folder_that_is_here_is_no_id_of_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert without_place("st:acme/mini") == "st:acme/mini"
    (tmp_path / "acme" / "mini").mkdir(parents=True)
    assert without_place("st:acme/mini") == "st:mini"
    monkeypatch.chdir(tmp_path / "acme")
    assert is_of_this_machine("st:mini")


@pytest.mark.parametrize(
    ("fingerprint", "public"),
    [
        ("openai:m:256@127.0.0.1:8490/v1", "openai:m:256"),
        ("openai:@cf/m@u:pw@10.0.0.5/v1", "openai:@cf/m"),
        ("mine:m@https://acme/v1", "mine:m"),
        ("npz:/home/me/mini", "npz:mini"),
        ("npz:clients/acme/mini", "npz:mini"),
        ("st:sha256:01ab:cut:v1", "st:sha256:01ab:cut:v1"),
        ("st:org/name@0a0a0a0a0a:cut:v1", "st:org/name@0a0a0a0a0a:cut:v1"),
        ("npz:org/mini", "npz:org/mini"),
        ("", ""),
    ],
)
def test_fingerprints_lose_their_server(fingerprint, public):
    assert public_fingerprint(fingerprint) == public
