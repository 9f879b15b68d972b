import numpy as np
import pytest

from adamab.run import gate as quality
from adamab.run.gate import CONTAINED_FROM, Diversity, Gate, Holdout, diversity, mean_distance
from adamab.task.recipe import Recipe
from adamab.task.words import normalised_text

REFUSAL = "I'm sorry, but I can't help with that request."


def gate(holdout=None, **options):
    return Gate(Recipe(**options), holdout=holdout)


def at(*degrees):
    """Unit vectors in a plane: the cosine of two is that of the angle between them."""
    angles = np.deg2rad(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


# Texts


def test_each_text_is_rejected_for_its_first_fault():
    batch = [
        "",
        " \u200b\n",
        "a\0b",
        "\ud83d",
        REFUSAL,
        "Keep this out!",
        "Known one",
        "fresh",
        "FRESH ",
        "new",
    ]
    passed, rejected = gate(Holdout(["keep this OUT"])).texts(batch, {normalised_text("known ONE")})
    assert passed == ["fresh", "new"]
    assert rejected == [
        ("", "empty"),
        (" \u200b\n", "empty"),
        ("a\0b", "unreadable"),
        ("\ud83d", "unreadable"),
        (REFUSAL, "refusal"),
        ("Keep this out!", "held out"),
        ("Known one", "repeat"),
        ("FRESH ", "repeat"),
    ]


def test_refusals_enter_a_class_that_is_about_them():
    given = ["the assistant agreed", REFUSAL]
    other = "I'm sorry, but I can't assist with that."
    assert gate().texts([other], (), given=given) == ([other], [])
    assert gate().texts([other], (), given=given[:1]) == ([], [(other, "refusal")])


# Vectors


def test_lengths_do_not_matter_and_zeros_pass():
    candidates = np.array([[3e-20, 0], [0, 5e20], [0, 0], [0, 0]], dtype=np.float32)
    present = np.array([[0, 0], [7e20, 0]], dtype=np.float32)
    assert gate().vectors(candidates, present).tolist() == [False, True, True, True]


@pytest.mark.parametrize("block", [1, 7, 8192])
def test_blocks_change_nothing(monkeypatch, block):
    rng = np.random.default_rng(1)
    present, candidates = rng.normal(size=(40, 3)), rng.normal(size=(30, 3))
    monkeypatch.setattr(quality, "_BLOCK", block)
    mask = gate(near_duplicate=0.9).vectors(candidates.astype(np.float32), present.astype(np.float32))
    assert mask.tolist() == greedy(candidates, present, 0.9)
    assert 0 < mask.sum() < len(mask)


def greedy(candidates, present, threshold):
    """The definition, one pair at a time."""
    kept, passed = list(present), []
    for x in candidates:
        passed.append(all(x @ y < threshold * np.linalg.norm(x) * np.linalg.norm(y) for y in kept))
        kept += [x] * passed[-1]
    return passed


def test_nothing_present_and_nothing_new():
    assert gate().vectors(at(0, 0, 90), np.zeros((0, 0), np.float32)).tolist() == [True, False, True]
    assert gate().vectors(np.zeros((0, 2), np.float32), at(0)).tolist() == []


# The model


@pytest.mark.parametrize(
    ("k", "expected"),
    [(None, [True] * 5), (1, [True, False, False, True, False]), (2, [True, True, False, True, False])],
)
def test_the_class_is_among_the_most_probable(k, expected):
    scores = np.array([[3, 2, 1], [2, 3, 1], [1, 2, 3], [2, 2, 1], [np.nan, 0, 0]], dtype=np.float32)
    assert gate(max_label_rank=k).consistent(scores, 0).tolist() == expected


# The default threshold on real embeddings


@pytest.fixture(scope="module")
def embed():
    pytest.importorskip("onnxruntime", reason="the extra 'local' is not installed")
    from adamab.providers.async_bridge import run_sync
    from adamab.providers.embedders.local import LocalEmbedder

    embedder = LocalEmbedder()
    return lambda texts: run_sync(embedder.embed(texts, views=("pooled",))).views["pooled"]


@pytest.mark.slow
def test_the_default_rejects_light_edits_and_keeps_what_differs(embed):
    present = "Our school was quoted per classroom. You've invoiced per pupil."
    edits = ["Hello, our" + present[3:], present.replace("You've", "You have")]
    others = [
        "We were quoted per pupil and invoiced per teacher.",
        "turn up the lights",
        "turn down the lights",
    ]
    mask = gate().vectors(embed([*edits, *others]), embed([present]))
    assert mask.tolist() == [False, False, True, True, True]


LONG = "My parcel was left in the rain behind the shed again"


@pytest.mark.parametrize(
    "text",
    [
        "Where is my parcel?",
        "where is my parcel",
        " WHERE  is\u00a0my parcel !",
        "“Where” is — my par-cel…",
    ],
)
def test_case_space_and_punctuation_hide_nothing(text):
    assert text in Holdout(["Where is my parcel?"])


def test_other_texts_are_free():
    holdout = Holdout(["Where is my parcel?", LONG])
    for text in ("Where is my invoice?", "where", "", LONG[:-6], "My parcel was left in the sun"):
        assert text not in holdout


def test_a_long_held_out_text_is_found_inside_a_sample():
    holdout = Holdout([LONG, LONG + " and again", "is the office open"])
    assert f"Hello, {LONG.upper()}. Thanks!" in holdout
    assert f"Well: {LONG} and again!" in holdout
    assert LONG.replace("rain", "sun") not in holdout
    # A short one may be part of another by chance.
    assert "is the office open" in holdout
    assert "is the office open on the day before the holidays" not in holdout


def test_containment_starts_at_its_limit():
    just, below = "a" * CONTAINED_FROM, "b" * (CONTAINED_FROM - 1)
    holdout = Holdout([just, below])
    assert f"c{just}c" in holdout
    assert f"c{below}c" not in holdout


def test_scripts_and_signs_keep_their_differences():
    assert "कि" not in Holdout(["का"])  # they differ in a vowel, which is a mark
    assert "退款吗" in Holdout(["退款吗？"])
    assert "?!" in Holdout(["?!"])
    assert "..." not in Holdout(["?!"])
    assert "👍" not in Holdout(["👎"])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", "First one\n\nSecond, one\n"),
        ("a.csv", 'id,text\n1,First one\n2,"Second, one"\n'),
        ("a.tsv", "text\tlabel\nFirst one\tx\nSecond, one\ty\n"),
        ("a.jsonl", '{"text": "First one", "label": "x"}\n{"text": "Second, one"}\n'),
    ],
)
def test_formats_are_those_of_predict_and_give_one_digest(tmp_path, name, content):
    (tmp_path / name).write_text(content, encoding="utf-8")
    holdout = Holdout.read(tmp_path / name)
    assert len(holdout) == 2
    assert "second one" in holdout
    assert holdout.digest == Holdout(["SECOND ONE", "first one.", "First one"]).digest
    assert holdout.digest != Holdout(["first one"]).digest


def pairwise(vectors):
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    distances = 1 - units @ units.T
    return distances[np.triu_indices(len(units), 1)].mean()


def test_it_is_the_mean_over_all_pairs():
    rng = np.random.default_rng(0)
    pooled = (rng.normal(size=(60, 7)) * rng.uniform(0.1, 9, size=(60, 1)) + 0.3).astype(np.float32)
    class_index, given = rng.integers(3, size=60), rng.random(60) < 0.4
    by_class = diversity(pooled, class_index, given, 3)
    for c in range(3):
        own = class_index == c
        assert by_class[c].given == pytest.approx(pairwise(pooled[own & given]), abs=1e-6)
        assert by_class[c].synthetic == pytest.approx(pairwise(pooled[own & ~given]), abs=1e-6)


def test_below_two_samples_there_is_none():
    pooled = np.eye(3, dtype=np.float32)
    by_class = diversity(pooled, np.array([0, 0, 1]), np.array([True, False, True]), 3)
    assert by_class == [Diversity(None, None)] * 3


def test_zeros_count_as_no_sample():
    rows = np.array([[1, 0], [0, 0], [0, 1]], dtype=np.float32)
    assert mean_distance(rows) == pytest.approx(1)
    assert mean_distance(rows[:2]) is None


def test_huge_and_tiny_vectors_have_directions_too():
    rows = np.array([[1e30, 0], [0, 1e-30]], dtype=np.float32)
    assert mean_distance(rows) == pytest.approx(1)
