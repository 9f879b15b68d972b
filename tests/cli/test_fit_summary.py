"""What `fit` says at its end, on the data it is given."""

from pathlib import Path

import pytest

from adamab.cli.summaries import likeness_warning, print_summary
from adamab.providers.metering import Spend
from adamab.run.directory import spending

NOTHING = {"given": None, "synthetic": None}


def summary_of(**changes):
    plain = {
        "task": {"name": "toy", "sha256": "0"},
        "embedder": {"spec": "local", "fingerprint": "local"},
        "generator": "openai:chat",
        "policy": "adamab",
        "classes": 2,
        "given": 6,
        "repeats": 0,
        "synthetic": 10,
        "synthetic_by_class": {"refund": 8, "praise": 2},
        "rounds": 2,
        "views": ["pooled", "words"],
        "estimate": None,
        "closed": {},
        "ended": None,
        "rejected": {},
        "refused": {},
        "diversity": {"refund": NOTHING, "praise": NOTHING},
        "spent": spending({}),
        "unused_batches": 0,
        "overlong": 0,
        "seconds": 1.25,
    }
    return {**plain, **changes}


@pytest.fixture
def said(capsys):
    def of(**changes):
        capsys.readouterr()
        print_summary(Path("run"), summary_of(**changes))
        written = capsys.readouterr()
        return written.out, written.err

    return of


def test_spending_in_all_by_purpose_and_by_class(said):
    spent = spending(
        {
            ("embed", None): Spend(3, 2_000_000, 1000, 0),
            ("generate", "refund"): Spend(2, 8_000_000, 2000, 400),
            ("generate", "praise"): Spend(1, 12_000_000, 1500, 300),
        }
    )
    out, _ = said(spent=spent)
    assert "spent: 6 calls, 4,500 tokens in and 700 out, 0.022 usd\n" in out
    assert "by purpose: embed 3 calls, 0.002 usd; generate 3 calls, 0.02 usd" in out
    rows = [line.split() for line in out.splitlines() if " usd " in f"{line} " and "calls" not in line]
    assert rows == [
        ["praise", "1", "1,800", "0.012", "usd", "2", "0.006", "usd"],
        ["refund", "2", "2,400", "0.008", "usd", "8", "0.001", "usd"],
    ]


def test_calls_without_a_price_are_not_called_free(said):
    unpriced = {("embed", None): Spend(1, 0, 10, 0), ("generate", "refund"): Spend(1, 0, 10, 1)}
    out, _ = said(spent=spending(unpriced))
    assert "usd" not in out
    some = {("embed", None): Spend(1, 5000, 10, 0), ("generate", "refund"): Spend(1, 0, 10, 1)}
    assert "0.000005 usd (generate without a price)" in said(spent=spending(some))[0]


def test_classes_whose_samples_repeat_each_other_are_warned_of(said):
    figures = {f"class{n}": {"given": 0.6, "synthetic": 0.2} for n in range(5)}
    figures |= {"fine": {"given": 0.6, "synthetic": 0.4}, "single": {"given": None, "synthetic": 0.1}}
    out, err = said(diversity=figures)
    assert "class0, class1, class2 and 2 more are much more alike than the given ones" in err
    assert "alike" not in out
    assert "fine" not in err
    assert likeness_warning(summary_of(diversity=figures, generator="noise")) == ""
    assert likeness_warning(summary_of(diversity={"a": {"given": 0.0, "synthetic": 0.0}})) == ""


def test_no_name_breaks_a_line(said):
    calls = {("generate", "a\nb\x1b[2J"): Spend(1, 1000, 10, 1)}
    out, err = said(spent=spending(calls), refused={"a\nb\x1b[2J": 1})
    assert "\x1b" not in out + err
    assert not any(line.startswith("b") for line in out.splitlines())


def test_samples_that_were_bought_before(said):
    out, _ = said(reused={"refund": 6}, set_aside={"spam": 4, "ham": 1}, budget="15 samples")
    assert "bought before and reused: 6 synthetic samples (refund 6)\n" in out
    assert "out of training, for want of their class: 5 synthetic samples (spam 4, ham 1)\n" in out
    assert "short of the budget" not in out
