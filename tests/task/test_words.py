"""The words of a text and the vocabulary of the lexical view."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adamab.errors import ModelFileError
from adamab.task.lexical import terms
from adamab.task.words import Vocabulary, bare, normalised_text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  Refund\u00a0\n ME ", "refund me"),
        ("\uff32efund", "refund"),  # full width
        ("STRASSE", "strasse"),
        ("straße", "strasse"),
        ("cafe\u0301", "caf\u00e9"),
        ("re\u200bfund\ufeff", "refund"),
        ("\u200fשבת\u200e", "שבת"),
        ("\u200b\u2060 ", ""),
    ],
)
def test_folded_unifies_what_looks_the_same(text, expected):
    assert normalised_text(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("What's  new ?", "whatsnew"), ("«Ça va» !", "çava"), ("?!", "?!"), ("a-b_c", "abc"), ("", "")],
)
def test_bare_drops_white_space_and_punctuation_but_never_everything(text, expected):
    assert bare(text) == expected


@given(st.text())
def test_folded_ignores_case_and_outer_space_of_any_text(text):
    assert normalised_text(f" {text}\n") == normalised_text(text)
    assert normalised_text(text) == " ".join(normalised_text(text).split())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("Who am I?", ["who", "am", "who am", "i", "am i", "?"]),
        ("snake_case", ["snake", "case", "snake case"]),
        ("yes? no", ["yes", "?", "no"]),
        ("Café NAÏVE", ["cafe", "naive", "cafe naive"]),
        ("cafe\u0301", ["cafe"]),
        ("Ёлка", ["елка"]),
        ("Ελλάδα", ["ελλαδα"]),
        ("हिन्दी में", ["हिन्दी", "में", "हिन्दी में"]),  # vowel signs are letters here
        ("한국어 좋아", ["한국어", "좋아", "한국어 좋아"]),  # written with spaces
        ("退款吗", ["退款", "款吗", "退款吗"]),
        ("退", ["退"]),
        ("退款\uff0c好", ["退款", "好"]),
        ("ｶﾞｽ", ["ガス"]),
        ("ひらカナ", ["ひら", "らカ", "カナ", "ひらカ", "らカナ"]),
        ("ไทย", ["ไท", "ทย", "ไทย"]),
        ("iPhone手机坏", ["iphone", "手机", "机坏", "手机坏"]),
        ("why\uff1f", ["why", "?"]),
        ("لماذا؟", ["لماذا", "?"]),
        ("\u200fשבת בית", ["שבת", "בית", "שבת בית"]),
        ("no ❤\ufe0f 👩\u200d💻", ["no", "❤", "👩", "💻"]),
        ("re\u00adfund", ["refund"]),
        ("๒ วัน", ["๒", "วั", "ัน", "วัน"]),
    ],
)
def test_terms(text, expected):
    assert terms(text) == expected


@pytest.mark.parametrize("run", ["ລາວ", "ខ្មែរ", "မြန်မာ", "日本語", "𠮷野家"])
def test_every_script_without_spaces_gives_pairs_and_triples(run):
    pairs = [run[i : i + 2] for i in range(len(run) - 1)]
    triples = [run[i : i + 3] for i in range(len(run) - 2)]
    assert terms(run) == pairs + triples


def test_fit_learns_sorted_terms_and_smooth_idf():
    words = Vocabulary.learn(["b a", "a"])
    assert words.terms == ("a", "b", "b a")
    rare = math.log(3 / 2) + 1
    np.testing.assert_allclose(words.idf, [1.0, rare, rare])


def test_rows_are_damped_counts_times_idf_of_length_one():
    words = Vocabulary(("a", "b"), np.array([1.0, 2.0]))
    row = words.transform(["a, a; b"])
    expected = np.array([1 + math.log(2), 2.0])
    np.testing.assert_allclose(row.toarray()[0], expected / np.linalg.norm(expected), rtol=1e-6)
    assert row.dtype == np.float32
    assert row.format == "csr"


def test_unknown_texts_are_rows_of_zeros():
    words = Vocabulary.learn(["money back", "love it"])
    rows = words.transform(["", "love", "zzz"])
    np.testing.assert_allclose(rows.toarray().sum(axis=1) > 0, [False, True, False])
    assert words.transform([]).shape == (0, 6)
    assert Vocabulary.learn([]).transform(["a"]).shape == (1, 0)


def test_json_round_trip():
    words = Vocabulary.learn(["Geld zurück", "退款", "love it?"])
    again = Vocabulary.from_json(json.loads(json.dumps(words.to_json())))
    assert again.terms == words.terms
    np.testing.assert_array_equal(again.idf, words.idf)


@pytest.mark.parametrize("idf", [{}, [float("nan")], [0], [True], ["1"], [10**400], []])
def test_a_damaged_vocabulary_is_refused(idf):
    for data in (
        {"terms": ["a"], "idf": idf},
        {"terms": [1], "idf": [1.0]},
        {"terms": ["a", "a"], "idf": [1, 1]},
    ):
        with pytest.raises(ModelFileError, match="the vocabulary is damaged"):
            Vocabulary.from_json(data)


@given(st.text(st.characters(max_codepoint=127)))
def test_ascii_texts_are_split_as_others_are(text):
    assert terms(text) == terms(text + " 。")
