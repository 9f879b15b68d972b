"""Chat answers as models write them, and the samples in them."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adamab.providers.generators.answers import read_answer, without_thoughts
from adamab.task.words import folded


def read(content: str, count: int = 5) -> list[str]:
    return list(read_answer(content, count).texts)


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ('{"texts": ["a b", "c"]}', ["a b", "c"]),
        ('["a b", "c"]', ["a b", "c"]),
        ('```json\n{"texts": ["a", "b"]}\n```', ["a", "b"]),
        ('Sure! Here they are:\n```\n["a", "b"]\n```\nLet me know if you want [more]!', ["a", "b"]),
        ('Here you go: ["a", "b"]', ["a", "b"]),
        ('Here you go:\n\n{"texts": ["a", "b"]}\n\nEnjoy!', ["a", "b"]),
        ('[{"text": "a"}, {"text": "b"}]', ["a", "b"]),
        ('[{"label": "a very long label", "text": "short"}]', ["short"]),
        ('[{"title": "x", "words": "the longest one"}]', ["the longest one"]),
        ('{"1": "a", "2": "b"}', ["a", "b"]),
        ('[{"1": "a"}, {"2": "b"}]', ["a", "b"]),
        ('{"text_1": "a", "text_2": "b"}', ["a", "b"]),
        ('{"texts": {"1": "a", "2": "b"}}', ["a", "b"]),
        ('{"data": {"texts": ["a"]}, "count": 1}', ["a"]),
        ('{"text": "a", "label": "b"}', ["a"]),
        ('{"text": "a"}\n{"text": "b"}\n', ["a", "b"]),
        ('"[\\"a\\", \\"b\\"]"', ["a", "b"]),
        ('{"texts": ["two\\nlines", "raw\nbreak"]}', ["two\nlines", "raw\nbreak"]),
        ('{"texts": [" a ", "", 3, null, "  "]}', ["a"]),
        ('{"texts": []}', []),
        ('Sure:\n{"texts": []}', []),
        ("[]", []),
        ('["a\\u0000b", "\\ud83d c"]', ["ab", "c"]),
        ('["1. a", "2. b"]', ["a", "b"]),
        ('["\\"a\\"", "“b”"]', ["a", "b"]),
        ('["1. Mai war es", "money"]', ["1. Mai war es", "money"]),
        ('["3. Oktober", "4. Oktober"]', ["3. Oktober", "4. Oktober"]),
        ('["\\"a\\" he said", "b"]', ['"a" he said', "b"]),
        ("['a', 'b', \"can't\"]", ["a", "b", "can't"]),
    ],
)
def test_json(content: str, texts: list[str]) -> None:
    assert read(content) == texts
    assert read_answer(content, 5).listed


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ('{"texts": ["alpha", "beta", "gam', ["alpha", "beta"]),
        ('["alpha", "beta", ', ["alpha", "beta"]),
        ('["alpha", "beta"', ["alpha", "beta"]),
        ('```json\n{"texts": ["alpha", "beta", "ga', ["alpha", "beta"]),
        ('{"texts": ["say \\"hi\\"", "b\\u00e9b\\u00e9", "c', ['say "hi"', "bébé"]),
        ('[{"text": "a"}, {"text": "b"}, {"te', ["a", "b"]),
        ('{"texts": [', []),
        ('{"texts": ["a"], "note": "cut he', ["a"]),
        ('["a", "b",]', ["a", "b"]),
        ('["He said "hi" there", "b", "c"]', ["b", "c"]),
        ('[\n"a b"\n"c d"\n]', ["a b", "c d"]),
        ('["bad \\escape", "b', ["bad \\escape"]),
    ],
)
def test_json_that_is_cut_off_or_broken(content: str, texts: list[str]) -> None:
    assert read(content) == texts


@pytest.mark.parametrize(
    "content",
    [
        "1. money back\n2. refund me",
        "1) money back\n2) refund me",
        "(1) money back\n(2) refund me",
        "[1] money back\n[2] refund me",
        "1: money back\n2: refund me",
        "1 - money back\n2 - refund me",
        "1.money back\n2.refund me",
        "0. money back\n1. refund me",
        "6. money back\n7. refund me",
        "1. money back\n1. refund me",
        "**1.** money back\n**2.** refund me",
        "**1. money back**\n**2. refund me**",
        "### 1. money back\n### 2. refund me",
        "Text 1: money back\nText 2: refund me",
        "Example 1. money back\n\nExample 2. refund me",
        "- money back\n- refund me",
        "* money back\n* refund me",
        "+ money back\n+ refund me",
        "• money back\n•refund me",
        "– money back\n– refund me",
        "- [ ] money back\n- [x] refund me",
        "- 1. money back\n- 2. refund me",
        "1. - money back\n2. - refund me",
        '1. "money back"\n2. "refund me"',
        "- **money back**\n- **refund me**",
        '"money back"\n"refund me"',
        '"money back",\n"refund me"',
        "“money back”\n„refund me“",
        "«money back»\n»refund me«",
        "‘money back’\n'refund me'",
        "「money back」\n`refund me`",
        "money back\n\n\nrefund me\n",
        "money back\r\nrefund me",
        "```\nmoney back\nrefund me\n```",
        "# Refunds\n\nmoney back\nrefund me",
        "**Texts:**\n\n- money back\n- refund me",
        "---\nmoney back\n---\nrefund me\n---",
        "Sure!\nmoney back\nrefund me",
        "Here are 2 texts:\nmoney back\nrefund me",
        "Certainly! Here are two new texts\n\nmoney back\nrefund me",
        "Hier sind zwei Beispiele:\nmoney back\nrefund me",
        "Voici deux exemples :\n1. money back\n2. refund me",
        "Here are 2 texts:\n\n1. money back\n2. refund me\n\nLet me know if you need more!",
        "money back\nrefund me\n\nLet me know if you want more samples.",
        "money back\nrefund me\nI hope these examples help!",
        "Of course.\nThese are the texts:\n* money back\n* refund me\n\nEach text is different.",
        "<think>\n1. no\n2. [never]\n</think>\n1. money back\n2. refund me",
        "the user wants two\n</think>\nmoney back\nrefund me",
    ],
)
def test_lines(content: str) -> None:
    assert read(content) == ["money back", "refund me"]


@pytest.mark.parametrize(
    "lines",
    [
        ["24 hours is too long", "3 times I called", "2 stars"],
        ["24 hours is too long"],
        ["1.5 stars at best", "2.5 km from here"],
        ["3. Oktober war zu spät"],
        ["Wann kommt es?", "1. Mai war der Termin", "Ich warte"],
        ["10: 30 was late", "it took until 12: too long"],
        ["-5 degrees in the room", "+1 to that"],
        ["#love it", "#hate it"],
        ['"A" or "B"?', "it's 'fine'"],
        ['"unbalanced', "quote”"],
        ["😍😍", "👍"],
        ["Sure, I would buy it again", "no way"],
        ["Here's my order number: 5", "what now"],
        ["I want my money", "Let me know if it was sent"],
        ["I hope you never change", "I hope you do"],
        ['it says {"code": "500"} always', "it says [1] and []"],
        ["see [this] and {that}", "or (that)"],
        ["我要退款", "还我钱"],
        ["1", "2", "3"],
    ],
)
def test_what_merely_looks_like_a_mark_is_content(lines: list[str]) -> None:
    assert read("\n".join(lines)) == lines
    numbered = "\n".join(f"{n}. {line}" for n, line in enumerate(lines, 1))
    assert read(numbered) == lines


def test_quotes_inside_of_quotes() -> None:
    assert read('"He said "hi" to me"\n\'I can\'t log in\'') == ['He said "hi" to me', "I can't log in"]
    assert read('"say \\"please\\""\n"b"') == ['say "please"', "b"]


def test_marked_samples_of_several_lines() -> None:
    content = "Here:\n1. Dear Sir,\nmoney back.\n2. Hello,\nbye\n\nThat is all."
    assert read(content) == ["Dear Sir,\nmoney back.", "Hello,\nbye"]


def test_a_lone_dash_makes_no_list() -> None:
    assert read("a\n- b\nc\nd") == ["a", "b", "c", "d"]


def test_prose_is_one_sample_and_no_list() -> None:
    answer = read_answer("I cannot find my parcel.", 5)
    assert (answer.texts, answer.listed) == (("I cannot find my parcel.",), False)
    assert read_answer("", 5).texts == ()
    assert not read_answer("a\nb", 5).listed


@pytest.mark.parametrize("content", ['["a", "b", "c"]', "1. a\n2. b\n3. c", "a\nb\nc"])
def test_never_more_than_asked(content: str) -> None:
    assert [len(read(content, count)) for count in (-1, 0, 1, 2, 3, 9)] == [0, 0, 1, 2, 3, 3]


@pytest.mark.parametrize(
    ("content", "bare"),
    [
        ("<think>hm</think>a", "a"),
        ("\n<Thinking>\nhm\n</Thinking>\na", "\na"),
        ("<think>never done", ""),
        ("hm\n</think>\na", "\na"),
        ("a <think>b</think>", "a <think>b</think>"),
    ],
)
def test_thoughts_are_no_samples(content: str, bare: str) -> None:
    assert without_thoughts(content) == bare


WRITTEN = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)


@given(
    st.lists(WRITTEN.map(str.strip).filter(folded), min_size=1), st.sampled_from(["object", "array", "fence"])
)
@example(["</think>"], "object")
@example(["```", "[", "}"], "fence")
def test_any_texts_come_back_from_json(texts: list[str], shape: str) -> None:
    texts = [*texts, "plain"]  # where all are numbered or quoted, that is taken off
    content = json.dumps(texts if shape != "object" else {"texts": texts}, ensure_ascii=False)
    if shape == "fence":
        content = f"```json\n{content}\n```"
    assert read(content, 99) == texts


MARKS = st.sampled_from(
    [*"[]{}\"'\\,:-*•#`\n123.() “”<>", "```", "</think>", "<think>", '{"texts": [', "Here:"]
)


@given(st.lists(MARKS | st.text(max_size=5), max_size=40).map("".join) | st.text(), st.integers(-1, 5))
@example("[" * 5000, 5)
@example('{"a":' * 3000, 5)
@example("[" * 900 + '"x"' + "]" * 900, 5)
@example("1" * 5000, 5)
@example("\n" * 50000, 5)
@example('"\\' * 20000, 5)
@example("[1" * 5000, 5)
def test_no_answer_is_too_strange(content: str, count: int) -> None:
    answer = read_answer(content, count)
    assert len(answer.texts) <= max(count, 0)
    assert all(folded(text) and text == text.strip() and "\0" not in text for text in answer.texts)


@pytest.mark.parametrize("echo", ["<data>", "</data>", "texts", "text1", "Text 2", "text_03"])
def test_the_prompts_own_marks_are_no_samples(echo: str) -> None:
    assert read_answer(json.dumps({"texts": [echo, "my text is gone"]}), 5).texts == ("my text is gone",)


def test_a_farewell_below_a_list_is_not_part_of_its_last_item() -> None:
    answer = "Sure! Here are some:\n1. First one\nin two lines\n2. Second one\nLet me know if you need more!"
    assert read_answer(answer, 5).texts == ("First one\nin two lines", "Second one")
