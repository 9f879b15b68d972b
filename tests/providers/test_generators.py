"""Recorded samples and noise."""

import json
from dataclasses import replace

import numpy as np
import pytest

from adamab.errors import GeneratorError
from adamab.providers.generators.base import Batch, GivenVectors, Request
from adamab.providers.generators.recorded import PoolGenerator, ReplayGenerator
from adamab.providers.generators.variations import NoiseGenerator
from adamab.task.spec import ClassSpec
from adamab.testing import check_generator

REFUND = Request(ClassSpec("refund"), 0, 2, given=("I want  MY money",), existing=())


def write(path, *rows):
    path.write_text("".join(json.dumps({"label": c, "text": t}) + "\n" for c, t in rows), "utf-8")
    return path


@pytest.fixture
def recording(tmp_path):
    texts = ["one", "i want my money", "two", "Two ", "three"]
    return write(tmp_path / "r.jsonl", ("praise", "love it"), *(("refund", text) for text in texts))


async def test_file_order_without_replacement(recording):
    generator = ReplayGenerator(recording)
    first = await generator.generate(REFUND)
    assert (first.texts, first.closed) == (("one", "two"), None)
    assert len(first) == 2
    second = await generator.generate(REFUND)
    assert (second.texts, second.closed) == (("three",), "recording exhausted")
    assert (await generator.generate(REFUND)).closed == "recording exhausted"
    resumed = await ReplayGenerator(recording).generate(replace(REFUND, existing=("one", "TWO")))
    assert (resumed.texts, resumed.closed) == (("three",), "recording exhausted")


async def test_unknown_classes_are_closed(recording):
    other = replace(REFUND, spec=ClassSpec("other"))
    assert (await PoolGenerator(recording).generate(other)).closed == "pool has no samples of this class"


async def test_shuffling_is_seeded_by_class(tmp_path):
    texts = [("a", f"text {n}") for n in range(20)]
    file, more = write(tmp_path / "1.jsonl", *texts), write(tmp_path / "2.jsonl", ("b", "x"), *texts)
    ask = Request(ClassSpec("a"), 0, 20, (), ())
    plain = (await ReplayGenerator(file).generate(ask)).texts
    one = (await ReplayGenerator(file, seed=1).generate(ask)).texts
    assert one == (await ReplayGenerator(more, seed=1).generate(ask)).texts
    assert one != plain
    assert sorted(one) == sorted(plain)
    assert one != (await ReplayGenerator(file, seed=2).generate(ask)).texts


def test_recordings_conform_and_tell_themselves_apart(recording):
    for make in (ReplayGenerator, PoolGenerator):
        check_generator(lambda make=make: make(recording), REFUND)
        check_generator(lambda make=make: make(recording, seed=3), REFUND)
    made = ReplayGenerator(recording), ReplayGenerator(recording, seed=0), PoolGenerator(recording)
    marks = {generator.fingerprint for generator in made}
    assert len(marks) == 3
    assert str(PoolGenerator(recording)) == f"pool:{recording}"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "holds no rows"),
        ('{"label": "a"}\n', ":1: .*text"),
        ('{"label": "a", "text": "b"}\n[1]\n', ":2: "),
        ('{"label": "a", "text": 3}\n', ":1: "),
    ],
)
def test_bad_recordings_are_one_line(tmp_path, content, message):
    file = tmp_path / "r.jsonl"
    file.write_text(content)
    with pytest.raises(GeneratorError, match=message) as caught:
        ReplayGenerator(file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("label", "meant"),
    [
        ("refnd", "refund"),
        ("refunds", "refund"),
        ("refnud", "refund"),
        ("REFUND", "refund"),
        ("lost-card", "lost_card"),
        ("lots_card", "lost_card"),
    ],
)
def test_a_misspelt_class_is_refused(tmp_path, label, meant):
    file = write(tmp_path / "r.jsonl", ("refund", "a"), ("else", "b"), (label, "c"), (label, "d"))
    with pytest.raises(GeneratorError) as caught:
        ReplayGenerator(file).check(["praise", "refund", "lost_card"])
    assert str(caught.value) == f"{file}:3: unknown class {label!r}; did you mean {meant!r}?"


def test_a_recording_may_serve_several_tasks(tmp_path):
    known = ["class_1", "type_a", "card_arrival", "sms", "level10"]
    others = ["class_2", "class_10", "type_b", "card_linking", "sim", "level11", "refund"]
    file = write(tmp_path / "r.jsonl", *((name, f"text {name}") for name in [*others, *known]))
    ReplayGenerator(file).check(known)
    with pytest.raises(GeneratorError, match="unknown class 'class_2'; known: praise, refund_it"):
        ReplayGenerator(file).check(["praise", "refund_it"])


async def test_a_recording_follows_the_classes_of_a_run(tmp_path):
    file = write(tmp_path / "r.jsonl", ("refund", "a"), ("login", "b"), ("praise", "c"), ("other", "d"))
    recording = ReplayGenerator(file)
    recording.follow({"refund": "account", "login": "account", "praise": "praise", "news": "news"})
    with pytest.warns(UserWarning, match="samples of 'praise' are left out"):
        recording.check(["account", "news"])
    recording.follow(dict.fromkeys(["refund", "login", "praise", "other"], "gone"))
    with pytest.warns(UserWarning, match=r"samples of 'refund', 'login', 'praise', … are left out"):
        recording.check(["news"])
    recording.follow({"refund": "account", "login": "account"})
    account = replace(REFUND, spec=ClassSpec("account"), existing=("a",))
    assert await recording.generate(account) == Batch(("b",), closed="recording exhausted")


def vectors(counts, width=32, spread=0.1):
    rng = np.random.default_rng(0)
    classes = np.repeat(np.arange(len(counts)), counts)
    centres = rng.standard_normal((len(counts), width))
    x = centres[classes] + spread * rng.standard_normal((len(classes), width))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return GivenVectors(x.astype(np.float32), classes)


@pytest.mark.parametrize("counts", [[5, 5, 5], [1, 1, 1], [40, 40], [1, 6], [1]])
async def test_noise_stays_near_its_class(counts):
    given = vectors(counts)
    ask = replace(REFUND, count=50, vectors=given)
    check_generator(lambda: NoiseGenerator(), ask, calls=3)
    drawn = (await NoiseGenerator().generate(ask)).vectors
    assert drawn is not None
    assert drawn.shape == (50, 32)
    np.testing.assert_allclose(np.linalg.norm(drawn, axis=1), 1.0, rtol=1e-5)
    means = np.stack([given.vectors[given.class_index == c].mean(0) for c in range(len(counts))])
    nearest = np.argmin(((drawn[:, None] - means[None]) ** 2).sum(-1), axis=1)
    assert (nearest == 0).mean() > 0.95
    assert len(np.unique(drawn, axis=0)) == 50


async def test_noise_has_the_covariance_within_classes():
    rng = np.random.default_rng(1)
    scale = np.array([1.0, 0.2, 0.2, 0.2])
    x = (np.array([100.0, 0, 0, 0]) + rng.standard_normal((400, 4)) * scale[[1, 0, 2, 3]]).astype(np.float32)
    given = GivenVectors(x, np.arange(400) % 2)
    drawn = (await NoiseGenerator().generate(replace(REFUND, count=4000, vectors=given))).vectors
    assert drawn is not None
    spread = drawn.std(axis=0)
    assert spread[1] == pytest.approx(1.0, rel=0.15)
    assert spread[2] == pytest.approx(0.25, rel=0.4)


async def test_noise_differs_by_batch_class_and_seed():
    ask = replace(REFUND, vectors=vectors([3, 3]))
    generator = NoiseGenerator()
    batches = [
        await generator.generate(ask),
        await generator.generate(replace(ask, number=1)),
        await generator.generate(replace(ask, class_index=1)),
        await NoiseGenerator(seed=1).generate(ask),
    ]
    assert len({batch.vectors.tobytes() for batch in batches if batch.vectors is not None}) == 4


async def test_noise_without_material():
    batch = await NoiseGenerator().generate(replace(REFUND, class_index=2, vectors=vectors([2, 2])))
    assert batch.closed == "noise needs a given sample of this class"
    with pytest.raises(GeneratorError, match="makes vectors, not texts"):
        await NoiseGenerator().generate(REFUND)
    with pytest.raises(GeneratorError, match="seed is -1"):
        NoiseGenerator(seed=-1)
    zero = GivenVectors(np.zeros((2, 3), np.float32), np.zeros(2, np.int64))
    drawn = (await NoiseGenerator().generate(replace(REFUND, vectors=zero))).vectors
    np.testing.assert_array_equal(drawn, np.zeros((2, 3)))
