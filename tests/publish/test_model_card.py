"""The card says what is known, nothing else, and shows every name as it is."""

from __future__ import annotations

import html
import json
import re

import numpy as np
import pytest
import yaml
from huggingface_hub import ModelCard

from adamab.errors import RunError
from adamab.model import Classifier, Confidence, Head
from adamab.publish.model_card import Facts, escaped, facts_of, is_ours, model_card
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
    "recipe": {"name": "default", "dropout": 0.25, "folds": 5},
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
    told = {"embedder_spec": "st:/home/someone/models/mini", "fingerprint": "st:01", **more}
    return Classifier(classes=tuple(classes), heads=(head,), **told)


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
    card = model_card(classifier(confidence=confidence), facts)
    told = header(card)
    assert told["library_name"] == "adamab"
    assert told["pipeline_tag"] == "text-classification"
    assert "license" not in told
    (result,) = told["model-index"][0]["results"]
    assert told["model-index"][0]["name"] == "desk: #1 | `x`"
    assert result["metrics"][0]["value"] == 0.75
    assert "out-of-fold estimate on 12 given samples" in result["metrics"][0]["name"]
    assert "Out-of-fold accuracy **75.0 %** (95 % interval 50.0 % to 90.0 %) on 12 given samples" in card
    assert "12 given samples, 9 synthetic samples" in card
    assert "quality gate kept 3 more" in card
    assert "9 of 21 training samples are synthetic" in card
    assert "2 of the texts in training were longer" in card
    assert "options that differ from the preset: dropout=0.25" in card
    assert "4 paid calls, 100 tokens in and 50 out, 0.0125 USD" in card
    assert "2 held-out given samples" in card


def test_the_hubs_own_reader_takes_the_card():
    read = ModelCard(model_card(classifier(), Facts(SUMMARY), licence="apache-2.0"))
    assert read.data.license == "apache-2.0"
    assert read.data.model_name == "desk: #1 | `x`"
    assert read.data.eval_results[0].metric_value == 0.75


def test_names_are_shown_as_they_are_and_are_no_markup():
    card = model_card(classifier(), Facts(SUMMARY))
    assert rows(card) == [name.replace("\n", "\\n") for name in AWKWARD]
    assert not re.search(r"(?<!\\)<script", card)
    assert not re.search(r"(?<!\\)\[l", card)
    assert "# desk: #1 \\| \\`x\\`\n" in card
    assert escaped("see www.evil.example and http://x") == "see www\\.evil.example and http\\://x"


def test_nothing_of_this_machine_is_shown():
    card = model_card(classifier(), Facts(SUMMARY))
    assert "/home/" not in card
    assert "10.0.0.7" not in card
    assert 'embedder="SPEC"' in card  # others must say which one it is
    served = model_card(classifier(embedder_spec="openai:m", fingerprint="openai:m:256@10.0.0.5:8080/v1"))
    assert "embedder: openai:m, fingerprint openai:m:256\n" in served


@pytest.mark.parametrize(
    "name", ["a: b (c)", "login_problem", "50 % & more!", "R#", "{x} > y", "hi @ all", "#"]
)
def test_names_that_are_no_markup_are_hardly_escaped(name):
    assert escaped(name).replace("\\#", "#") == name


def test_classes_that_were_added_are_said_to_be(tmp_path):
    (tmp_path / "fit.json").write_text(json.dumps({**SUMMARY, "added": ["x | y", "never finished"]}))
    with Journal(tmp_path, writing=True) as journal:
        journal.note(SEGMENT, {"inputs": {"given": {"a: b": ["1", "2"]}}})
    later = Task.from_mapping({"a: b": ["one"], "x | y": ["two", "three", "four"]})
    assert "| x \\| y (added later, not trained yet) | unknown | 0 |" in model_card(
        classifier(), facts_of(tmp_path)
    )
    write_task(tmp_path, later)
    card = model_card(classifier(), facts_of(tmp_path))
    assert "| a: b | 2 | 9 |" in card
    assert "| x \\| y (added later, not trained yet) | 3 | 0 |" in card
    assert "These are of the fit; x \\| y was added later and not trained yet." in card
    assert "an estimate of the classes that were fitted: x \\| y was added later." in card
    assert "1 of 6 classes was added after the fit" in card
    assert "never finished" not in card
    metric = header(card)["model-index"][0]["results"][0]["metrics"][0]
    assert "on 12 given samples of the classes that were fitted" in metric["name"]
    assert "added" not in model_card(classifier(), Facts(SUMMARY))


def test_a_card_of_ours_is_known_by_its_header(tmp_path):
    card = tmp_path / "README.md"
    assert not is_ours(card)
    for text in (model_card(classifier()), "---\nlibrary_name: adamab\n---\n"):
        card.write_text(text, encoding="utf-8")
        assert is_ours(card)
    others = ("mine", "", "---\nlibrary_name: other\n---\nadamab", "---\n- adamab\n---\n", "---\na: [\n---\n")
    for text in (*others, "library_name: adamab\n---\n---\n", "# Mine\n---\nlibrary_name: adamab\n---\n"):
        card.write_text(text)
        assert not is_ours(card)
    card.write_bytes(b"\xff\xfe")
    assert not is_ours(card)


def test_a_card_of_a_model_alone_says_what_is_known():
    model = classifier(("no", "yes"), embedder_spec="local", metadata={"out_of_fold": ESTIMATE, "seed": 4})
    card = model_card(model)
    assert "an unknown number of given samples" in card
    assert "| no | unknown | unknown |" in card
    assert "**75.0 %**" in card
    assert "recipe: unknown" in card
    assert "## Costs" not in card
    assert 'embedder="SPEC"' not in card


def test_without_an_estimate_there_is_no_result():
    card = model_card(classifier(), Facts({**SUMMARY, "estimate": None}))
    assert "model-index" not in header(card)
    assert "No accuracy is known" in card
    assert "cannot answer `unknown`" in card


def test_images():
    card = model_card(classifier(metadata={"modality": "image"}), Facts(SUMMARY))
    assert header(card)["pipeline_tag"] == "image-classification"
    assert "An image has one class here" in card
    assert "photo.jpg" in card


@pytest.mark.parametrize(
    "damage",
    [
        {"estimate": {"accuracy": "high"}},
        {"synthetic_by_class": [1]},
        {"spent": {}},
        {"rejected": 3},
        {"task": "desk"},
        {"packages": None},
        {"generator": 4},
    ],
)
def test_a_damaged_summary_is_one_line(damage):
    with pytest.raises(RunError, match="is damaged or was edited"):
        model_card(classifier(), Facts({**SUMMARY, **damage}))
