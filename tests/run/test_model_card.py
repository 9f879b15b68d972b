"""The card says what is known, nothing else, and shows every name as it is."""

from __future__ import annotations

import html
import json
import re

import numpy as np
import pytest
import yaml
from huggingface_hub import ModelCard

from adamab.classifier import Classifier, Confidence, Head
from adamab.errors import RunError
from adamab.run.journal import SEGMENT, Journal
from adamab.run.model_card import Facts, escaped, facts_of, is_of_this_machine, model_card, without_place

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
    assert "set otherwise: dropout=0.25" in card
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
    assert "<script>" not in card
    assert not re.search(r"(?<!\\)\[l", card)
    assert "# desk\\: \\#1 \\| \\`x\\`\n" in card
    assert escaped("see www.evil.example and http://x") == "see www\\.evil.example and http\\://x"


def test_nothing_of_this_machine_is_shown():
    card = model_card(classifier(), Facts(SUMMARY))
    assert "/home/" not in card
    assert "10.0.0.7" not in card
    assert 'embedder="SPEC"' in card  # others must say which one it is
    assert without_place("npz:C:\\data\\v.npz") == "npz:v.npz"
    assert without_place("st:~/models/mini") == "st:mini"
    assert without_place("st:models/mini") == "st:models/mini"
    assert is_of_this_machine("")
    assert is_of_this_machine("openai:m?base_url=http://x/")
    assert not is_of_this_machine("openai:m?dimensions=256")


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


def test_pictures():
    card = model_card(classifier(metadata={"modality": "image"}), Facts(SUMMARY))
    assert header(card)["pipeline_tag"] == "image-classification"
    assert "A picture has one class here" in card
    assert "photo.jpg" in card


def test_many_classes_are_cut():
    card = model_card(classifier([f"c{number}" for number in range(1000)]))
    assert "and 800 more" in card
    assert len(card) < 20_000


def test_numbers_of_given_samples_come_from_the_last_segment(tmp_path):
    (tmp_path / "fit.json").write_text(json.dumps(SUMMARY))
    assert facts_of(tmp_path).given is None
    with Journal(tmp_path, writing=True) as journal:
        journal.note(SEGMENT, {"inputs": {"given": {"a: b": ["1"]}}})
        journal.note(SEGMENT, {"inputs": {"given": {"a: b": ["1", "2"], "x | y": ["3"]}}})
    facts = facts_of(tmp_path)
    assert facts.given == {"a: b": 2, "x | y": 1}
    assert "| a\\: b | 2 | 9 |" in model_card(classifier(), facts)
    assert facts_of(tmp_path / "elsewhere") == Facts()


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


def test_a_damaged_journal_is_one_line(tmp_path):
    (tmp_path / "fit.json").write_text(json.dumps(SUMMARY))
    with Journal(tmp_path, writing=True) as journal:
        journal.note(SEGMENT, {"inputs": {"given": 3}})
    with pytest.raises(RunError, match="its journal is damaged"):
        facts_of(tmp_path)
