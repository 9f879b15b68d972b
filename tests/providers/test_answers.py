"""Chat answers as models write them, the samples in them, and answers that decline."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adamab.providers.generators.answers import is_refusal, read_answer, without_thoughts
from adamab.task.words import normalised_text


def read(content, count=5):
    return list(read_answer(content, count).texts)


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ('{"texts": ["a b", "c"]}', ["a b", "c"]),
        ('Sure! Here they are:\n```\n["a", "b"]\n```\nLet me know if you want [more]!', ["a", "b"]),
        ('Here you go:\n\n{"texts": ["a", "b"]}\n\nEnjoy!', ["a", "b"]),
        ('[{"text": "a", "label": "x"}, {"text": "b"}]', ["a", "b"]),
        ('{"1": "a", "2": "b"}', ["a", "b"]),
        ('{"data": {"texts": ["a"]}, "count": 1}', ["a"]),
        ('{"text": "a"}\n{"text": "b"}\n', ["a", "b"]),
        ('{"texts": ["two\\nlines", "raw\nbreak"]}', ["two\nlines", "raw\nbreak"]),
        ('{"texts": [" a ", "", 3, null, "  "]}', ["a"]),
        ("[]", []),
        ('{"texts": ["<data>", "text_03", "my text is gone"]}', ["my text is gone"]),
        ('["a\\u0000b", "\\ud83d c"]', ["ab", "c"]),
        ('["1. a", "2. b"]', ["a", "b"]),
        ('["1. Mai war es", "money", "back"]', ["1. Mai war es", "money", "back"]),
        ('["a", "b",]', ["a", "b"]),
        ("['a', 'b', \"can't\"]", ["a", "b", "can't"]),
        ('["He said "hi" there", "b"]', ['He said "hi" there', "b"]),
    ],
)
def test_json(content, texts):
    assert read(content) == texts
    assert read_answer(content, 5).listed


@pytest.mark.parametrize(
    "content",
    [
        '{"texts": ["alpha", "beta", "gam',
        '```json\n{"texts": ["alpha", "beta", "ga',
        '[{"text": "alpha"}, {"text": "beta"}, {"text": "ga',
        "1. alpha\n2. beta\n3. ga",
        "alpha\nbeta\nga",
    ],
)
def test_half_a_sample_at_the_end_of_an_answer_that_was_cut_is_left_out(content):
    assert read_answer(content, 5, cut=True).texts == ("alpha", "beta")
    assert read_answer('{"texts": ["alpha", "beta"]} and then', 5, cut=True).texts == ("alpha", "beta")


@pytest.mark.parametrize(
    "content",
    [
        "1. money back\n2. refund me",
        "1) money back\n2) refund me",
        "[1] money back\n[2] refund me",
        "1 - money back\n2 - refund me",
        "**1.** money back\n**2.** refund me",
        "Text 1: money back\nText 2: refund me",
        "- money back\n- refund me",
        "• money back\n•refund me",
        "- [ ] money back\n- [x] refund me",
        '1. "money back"\n2. "refund me"',
        "- **money back**\n- **refund me**",
        '"money back",\n"refund me"',
        "“money back”\n„refund me“",
        "```\nmoney back\nrefund me\n```",
        "---\nmoney back\n---\nrefund me\n---",
        "Here are 2 texts:\n\n1. money back\n2. refund me\n\nLet me know if you need more!",
        "<think>\n1. no\n2. [never]\n</think>\n1. money back\n2. refund me",
        "the user wants two\n</think>\nmoney back\nrefund me",
    ],
)
def test_lines(content):
    assert read(content) == ["money back", "refund me"]
    assert without_thoughts("<think>never done") == ""
    assert without_thoughts(f"{content} <think>b</think>").endswith("</think>")


@pytest.mark.parametrize(
    "lines",
    [
        ["24 hours is too long", "3 times I called", "2 stars"],
        ["1.5 stars at best", "2.5 km from here"],
        ["3. Oktober war zu spät"],
        ["-5 degrees in the room", "#love it"],
        ['"A" or "B"?', "it's 'fine'"],
        ["Sure, I would buy it again", "no way"],
        ["Here's my order number: 5", "what now"],
        ['it says {"code": "500"} always', "it says [1] and []"],
    ],
)
def test_what_merely_looks_like_a_mark_is_content(lines):
    answer = read_answer("\n".join(lines), 5)
    assert (list(answer.texts), answer.listed) == (lines, False)
    assert read("\n".join(f"{n}. {line}" for n, line in enumerate(lines, 1))) == lines


@pytest.mark.parametrize("content", ['["a", "b", "c"]', "1. a\n2. b\n3. c", "a\nb\nc"])
def test_never_more_than_asked(content):
    assert [len(read(content, count)) for count in (-1, 0, 1, 2, 3, 9)] == [0, 0, 1, 2, 3, 3]


WRITTEN = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)


@given(
    st.lists(WRITTEN.map(str.strip).filter(normalised_text), min_size=1), st.sampled_from(["{}", "[]", "```"])
)
@example(["</think>"], "{}")
@example(["```", "[", "}"], "```")
def test_any_texts_come_back_from_json(texts, shape):
    texts = [*texts, *["plain"] * (len(texts) + 1)]  # where most are numbered or quoted, that is taken off
    content = json.dumps({"texts": texts} if shape == "{}" else texts, ensure_ascii=False)
    assert read(f"```json\n{content}\n```" if shape == "```" else content, 99) == texts


MARKS = st.sampled_from([*"[]{}\"'\\,:-*•#`\n123.() “”<>", "```", "</think>", "<think>", '{"texts": ["'])


@given(st.lists(MARKS | st.text(max_size=5), max_size=40).map("".join) | st.text(), st.integers(-1, 5))
@example("[" * 5000, 5)
@example('{"a":' * 3000, 5)
@example("[" * 900 + '"x"' + "]" * 900, 5)
@example("\n" * 50000, 5)
@example("[1" * 5000, 5)
def test_no_answer_is_too_strange(content, count):
    answer = read_answer(content, count)
    assert len(answer.texts) <= max(count, 0)
    assert all(normalised_text(text) and text == text.strip() and "\0" not in text for text in answer.texts)
    assert is_refusal(content) in (True, False)


REFUSALS = """\
I'm sorry, but I can't assist with that.
Sorry, but I cannot help with this request as it involves hate speech.
I can't help you.
I'm unable to assist with this request.
Unfortunately, I cannot comply with this request.
I won't write such texts.
I cannot generate harmful or offensive content.
As an AI language model, I cannot write that.
"I'm sorry, but I can't assist with that."
**I cannot assist with that.**
"""
GENUINE = """\
I'm sorry but I can't log in
I can't help but love it
I can't help my customers because your app is down
I can't help you if you never answer my mails
I cannot write a review on your site
I can't create content on your platform anymore
The chatbot said: I'm sorry, but I can't assist with that.
Where is my refund?
"""


@pytest.mark.parametrize("text", REFUSALS.splitlines())
def test_a_model_that_declines(text):
    assert is_refusal(text)
    assert is_refusal(f"{text}\n\nIf there is anything else, let me know.")


@pytest.mark.parametrize("text", GENUINE.splitlines())
def test_a_person_who_complains(text):
    assert not is_refusal(text)
