"""Answers in the cache that runs share, and in two places at once."""

import sqlite3
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adamab.providers.cache import (
    Ask,
    CachedReplies,
    CacheFile,
    ChainedReplies,
    MemoryReplies,
    Reply,
    VectorCache,
)
from adamab.providers.embedders.base import Embedded

ASK = Ask("refund", 0, 0, "d" * 64)
REPLY = Reply('{"texts": ["Grüße 🦜"]}')


@pytest.fixture
def file(tmp_path):
    return CacheFile(tmp_path / "vectors.sqlite", timeout=5.0)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(st.text(), st.booleans(), st.booleans())
def test_any_answer(file, content, refused, cut):
    reply = Reply(content, refused, cut)
    CachedReplies(file).put(ASK, reply)
    assert CachedReplies(file).get(ASK) == reply


@pytest.mark.parametrize(
    "other",
    [{"class_name": "x"}, {"batch": 1}, {"number": 1}, {"digest": "e" * 64}],
    ids=lambda o: next(iter(o)),
)
def test_every_part_of_the_question_counts(file, other):
    CachedReplies(file).put(ASK, REPLY)
    assert CachedReplies(file).get(replace(ASK, **other)) is None  # type: ignore[arg-type]


def test_the_users_cache_has_answers_beside_vectors():
    cache = VectorCache()
    vectors = Embedded({"pooled": np.ones((1, 2), np.float32)}, np.zeros(1, np.bool_))
    cache.put("model", "query", ["text"], vectors)
    assert (CachedReplies().get(ASK), CachedReplies().stored().rows) == (None, 0)
    CachedReplies().put(replace(ASK, class_name="\ud83d"), Reply("a \ud83d b"))  # half a character
    assert CachedReplies().get(replace(ASK, class_name="\ud83d")) == Reply("a ? b")
    assert (CachedReplies(cache).stored().rows, CachedReplies(cache).stored().bytes) == (1, 5)
    assert (0, "pooled") in cache.get("model", "query", ["text"], ["pooled"])
    cache.purge()
    assert CachedReplies().stored().rows == 0


@pytest.mark.parametrize(
    "change", ["content = content || 'x'", "refused = 1", "cut = 1", "crc = crc + 1", "content = x'00ff'"]
)
def test_a_damaged_row_counts_as_missing(file, change):
    CachedReplies(file).put(ASK, REPLY)
    with sqlite3.connect(file.path) as db:
        db.execute(f"UPDATE replies SET {change}")
    db.close()
    assert CachedReplies(file).get(ASK) is None


def test_where_nothing_can_be_stored_it_warns_once_and_goes_on(tmp_path):
    replies = CachedReplies(CacheFile(tmp_path))  # a directory
    assert replies.get(ASK) is None
    with pytest.warns(RuntimeWarning, match="can be stored"):
        replies.put(ASK, REPLY)
    replies.put(ASK, REPLY)  # a second warning would be an error here


def test_two_places():
    first, second = MemoryReplies(), MemoryReplies()
    chained = ChainedReplies(first, second)
    assert chained.get(ASK) is None
    chained.put(ASK, REPLY)
    assert first.get(ASK) == second.get(ASK) == chained.get(ASK) == REPLY
    other = replace(ASK, batch=1)
    second.put(other, REPLY)
    assert chained.get(other) == REPLY
    assert first.get(other) == REPLY  # a run's journal has all that the run used
