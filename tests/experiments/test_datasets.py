"""Loaders and splits, on tiny files in the original formats and, where they are, on the original files."""

import csv
import json
from functools import cache

import numpy as np
import pytest

from adamab.errors import TaskError
from adamab.providers.async_bridge import run_sync
from adamab.run.gate import Holdout
from adamab.task import ClassSpec, Sample, bare, normalised_text
from experiments.datasets.base import (
    IMAGE_SETS,
    NAMES,
    SCORED_ONCE,
    DataSet,
    Material,
    data_directory,
    described_classes,
    load_data_set,
)
from experiments.datasets.image_sets import load_feature_set
from experiments.datasets.text_sets import (
    HEADER,
    LABELS,
    load_hwu64,
    load_multiwd,
    load_trec,
)

TREC = [spec.name for spec in described_classes("trec")]


def apart(draw):
    """The folded texts of each part, after a check that no scored text can be trained on."""
    parts = {
        "given": {normalised_text(sample.text) for sample in draw.task.samples},
        "pool": {normalised_text(text) for texts in draw.pool.values() for text in texts},
        "recorded": {normalised_text(text) for texts in draw.recorded.values() for text in texts},
        "test": {normalised_text(sample.text) for sample in draw.test},
    }
    assert len(parts["test"]) == len(draw.test) > 0
    assert not parts["test"] & (parts["given"] | parts["pool"] | parts["recorded"])
    assert not parts["given"] & (parts["pool"] | parts["recorded"])
    held_back = Holdout(sample.text for sample in draw.test)
    assert len(held_back) == len(draw.test)  # no near copies among them either
    assert not [text for name in ("given", "pool", "recorded") for text in parts[name] if text in held_back]
    return parts


def texts_of(draw):
    return set().union(*apart(draw).values())


# TREC


def trec_lines(later=12):
    first = [f"{TREC[n % 30]} question {n} ?" for n in range(1000)]
    after = [f"{name} later {name} {n} ?" for name in TREC for n in range(later)]
    return first, after


def put_trec(data, first, after, testing):
    folder = data / "trec"
    folder.mkdir(parents=True)
    (folder / "train_5500.label").write_bytes("".join(f"{x}\n" for x in first + after).encode("latin-1"))
    (folder / "TREC_10.label").write_bytes("".join(f"{x}\n" for x in testing).encode("latin-1"))
    return folder


def put_recording(folder, seen, written):
    rows = [{"label": name, "description": "x", "examples": texts} for name, texts in seen.items()]
    (folder / "classes.json").write_text(json.dumps(rows))
    lines = [json.dumps({"label": name, "text": t}) for name, texts in written.items() for t in texts]
    (folder / "synthetic.jsonl").write_text("\n".join(lines) + "\n")


@pytest.fixture
def trec(tmp_path):
    first, after = trec_lines()
    first[3] = f"{TREC[3]} a stray\xf0byte and a caf\xe9 ?"
    first[33] = f"{TREC[3]} QUESTION   63 ?"  # repeats first[63]
    first[4], after[0] = f"{TREC[4]} two labels ?", f"{TREC[0]} Two  Labels ?"
    after[13] = f"{TREC[1]} Question 31 ?"  # is in the first thousand
    after[14] = f"{TREC[1]} asked in both files ?"
    after[25] = after[26]
    after += ["NUM:temp of no class ?"]
    testing = [f"{TREC[1]} asked in both files ?", f"{TREC[2]} tested ?", "NUM:temp measured ?"]
    testing += [f"{TREC[0]} later {TREC[5]} 0 ?"]  # has another label in the training file
    folder = put_trec(tmp_path, first, after, testing)
    seen = {name: [f"question {n + 30 * k} ?" for k in range(10, 15)] for n, name in enumerate(TREC)}
    put_recording(folder, seen, {name: [f"written {name} {k}" for k in range(4)] for name in TREC})
    return load_trec(tmp_path, expected=None)


def test_trec_scores_the_first_thousand_and_the_test_file_without_repeats(trec):
    test = {sample.text: sample.class_name for sample in trec.draw(0).test}
    assert len(test) == 1000 - 2 + 2  # less a repeat and a text of two labels, plus two tested questions
    assert test["a stray byte and a café ?"] == TREC[3]
    assert test["tested ?"] == TREC[2]
    assert {"QUESTION   63 ?", "question 63 ?"} & set(test) == {"QUESTION   63 ?"}
    assert not {normalised_text(text) for text in test} & {"two labels ?", f"later {TREC[5].lower()} 0 ?"}


def test_trec_draws_from_later_lines_that_are_not_tested(trec):
    draw = trec.draw(0)
    parts = apart(draw)
    drawn = parts["given"] | parts["pool"]
    assert all(text.startswith("later") for text in drawn)
    assert not {"question 31 ?", "asked in both files ?", "two labels ?", "of no class ?"} & drawn
    assert len(draw.task.samples) == 150
    assert len(draw.pool[TREC[10]]) == 12 - 4 - 5  # two fifths are for development
    assert len(draw.pool[TREC[1]]) == 10 - 4 - 5


def test_trec_development_part_is_used_for_nothing_else(trec):
    development = apart(trec.draw(0, part="development"))["test"]
    assert all(text.startswith("later") for text in development)
    assert development == apart(trec.draw(1, part="development", generator="recorded"))["test"]
    for seed in range(3):
        assert not development & texts_of(trec.draw(seed))
    assert trec.draw(0).task.samples != trec.draw(0, part="development").task.samples


def test_a_recorded_generator_comes_with_the_examples_it_saw(trec):
    draw, other = trec.draw(0, generator="recorded"), trec.draw(1, generator="recorded")
    seen = {f"question {n} ?" for n in range(300, 450)}
    assert apart(draw)["given"] == apart(other)["given"] == seen
    assert draw.recorded != other.recorded
    assert {k: set(v) for k, v in draw.recorded.items()} == {k: set(v) for k, v in other.recorded.items()}
    assert apart(draw)["test"] == apart(trec.draw(0))["test"] - seen
    assert trec.draw(0).recorded == {}


def test_fewer_given_examples_are_a_subset_and_the_others_are_still_not_scored(trec):
    few, more = (apart(trec.draw(2, generator="recorded", given=n)) for n in (2, 5))
    assert few["given"] < more["given"]
    assert len(few["given"]) == 60
    assert few["test"] == more["test"]
    with pytest.raises(TaskError, match="saw 5 examples per class, not 6"):
        trec.draw(0, generator="recorded", given=6)


def test_the_papers_split_of_trec_is_within_the_first_thousand(trec):
    draw = trec.draw(0, split="paper")
    parts = apart(draw)
    assert len(parts["given"]) == 150
    assert len(parts["test"]) == 998 - 150
    assert not any(text.startswith("later") for text in parts["given"] | parts["test"])
    assert apart(trec.draw(0, split="paper", generator="recorded"))["given"] == {
        f"question {n} ?" for n in range(300, 450)
    }
    with pytest.raises(TaskError, match="no development part"):
        trec.draw(0, split="paper", part="development")


def test_a_recording_that_is_missing_or_does_not_belong_to_the_files_is_refused(tmp_path):
    folder = put_trec(tmp_path, *trec_lines(), [f"{TREC[0]} tested ?"])
    with pytest.raises(TaskError, match="use generator 'pool'"):
        load_trec(tmp_path, expected=None).draw(0, generator="recorded")
    seen = {name: [f"question {n} ?"] for n, name in enumerate(TREC)}
    put_recording(folder, seen | {TREC[7]: ["question 8 ?"]}, {TREC[0]: ["new"]})
    with pytest.raises(TaskError, match=r"classes\.json: example 1 of class 'ENTY:color' is no training"):
        load_trec(tmp_path, expected=None)
    put_recording(folder, {TREC[0]: []}, {TREC[0]: ["new"]})
    with pytest.raises(TaskError, match="has no examples"):
        load_trec(tmp_path, expected=None)
    (folder / "classes.json").write_text("{")
    with pytest.raises(TaskError, match=r"classes\.json: not a list"):
        load_trec(tmp_path, expected=None)


def test_recorded_copies_of_test_and_development_questions_are_left_out(tmp_path):
    first, after = trec_lines()
    folder = put_trec(tmp_path, first, after, [f"{TREC[0]} tested ?"])
    seen = {name: [f"question {n} ?"] for n, name in enumerate(TREC)}
    developed = load_trec(tmp_path, expected=None).draw(0, part="development").test[0]
    near = [f"{developed.text.rstrip(' ?')}!", "Tested", "question, 40?"]
    put_recording(folder, seen, {TREC[0]: [*near, "new"], **{name: ["another"] for name in TREC[1:2]}})
    for part in ("test", "development"):
        draw = load_trec(tmp_path, expected=None).draw(0, generator="recorded", given=1, part=part)
        apart(draw)
        assert draw.recorded[TREC[0]] == ("new",)
        assert draw.recorded[TREC[1]] == ("another",)


def test_near_copies_of_tested_questions_are_drawn_from_nowhere(tmp_path):
    first, after = trec_lines()
    long = "which of the many rivers of the world is the longest ?"
    first[0], first[30] = f"{TREC[0]} {long}", f"{TREC[0]} What's new ?"
    first[60] = f"{TREC[0]} whats new"  # a near copy among the tested ones
    copies = ["WHICH of the many rivers of the world is the longest", f"Tell me , {long}", "Whats new ?!"]
    after += [f"{TREC[0]} {copy}" for copy in copies]
    after += [f"{TREC[1]} twice in the later lines ?", f"{TREC[1]} Twice , in the later lines"]
    after += [f"{name} the label of this is not certain ?" for name in TREC[2:4]]
    put_trec(tmp_path, first, after, [f"{TREC[0]} tested ?"])
    data = load_trec(tmp_path, expected=None)
    test, development = data.draw(0), data.draw(0, part="development")
    assert len(test.test) == 1000 - 1 + 1
    everything = [*texts_of(test), *texts_of(development)]
    assert not [text for text in everything if "label of this" in text]
    trained = {bare(t) for d in (test, development) for p in ("given", "pool") for t in apart(d)[p]}
    trained |= {bare(sample.text) for sample in development.test}
    assert len(trained) == 30 * 12 + 1
    assert sum("twiceinthelater" in text for text in trained) == 1


class Leaky(DataSet):
    """A set whose loader lets a scored text through."""

    name = title = "leaky"
    specs = (ClassSpec("a"), ClassSpec("b"))

    def __init__(self, copy):
        self.copy = copy

    def material(self, generator, split):
        test = (Sample("Where is the parcel that I sent last week?", "a"), Sample("other", "b"))
        return Material({"a": ("one", "two", self.copy), "b": ("three",)}, test)


@pytest.mark.parametrize(
    "copy",
    [
        "where is the par-cel, that I sent last week",
        "Hello! Where is the parcel that I sent last week? Thanks",
    ],
)
def test_a_scored_text_that_could_be_trained_on_is_refused(copy):
    with pytest.raises(TaskError, match=r"leaky: 1 scored texts are in the (pool|given examples)"):
        Leaky(copy).draw(0, given=1)
    assert Leaky("where is the parcel").draw(0, given=1).test


def test_a_malformed_or_missing_trec_file_is_one_line(tmp_path):
    with pytest.raises(TaskError, match=r"train_5500\.label: no such file"):
        load_trec(tmp_path)
    first, after = trec_lines()
    folder = put_trec(tmp_path, first, after, ["no label here"])
    with pytest.raises(TaskError, match=r"TREC_10\.label:1: not 'COARSE:fine question'"):
        load_trec(tmp_path)
    (folder / "TREC_10.label").write_text(f"{TREC[0]} tested ?\n")
    with pytest.raises(TaskError, match=r"1,360 training questions instead of 5,452, 1 test questions"):
        load_trec(tmp_path)
    first[:6] = ["NUM:temp how hot ?"] * 6
    (folder / "train_5500.label").write_text("\n".join(first + after))
    with pytest.raises(TaskError, match="'NUM:temp' is of the classes"):
        load_trec(tmp_path, expected=None)


# MultiWD


def put_multiwd(data, training, testing, header=("text", *LABELS)):
    folder = data / "multiwd"
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("train", training), ("test", testing)):
        with (folder / f"{name}_data.csv").open("w", newline="", encoding="utf-8") as handle:
            writer = csv.writer(handle)
            writer.writerow(header)
            for text, *labels in rows:
                writer.writerow([text, *(int(label in labels) for label in LABELS)])
    return folder


@pytest.fixture
def multiwd(tmp_path):
    training = [(f"made up\npost {n} {name}", name) for name in LABELS for n in range(20)]
    training[0] = ("I can‚Äôt, she said ‚Äúno‚Äù √© Ö", "Spiritual")
    training += [("many", "Social", "Physical"), ("none",), ("0", "Social"), ("tested post", "Social")]
    training += [("twice", "Social"), ("TWICE", "Physical"), ("also twice", "Social"), ("also twice",)]
    testing = [(f"other {n} {name}", name) for name in LABELS for n in range(8)]
    testing += [("tested post", "Social"), ("many more", "Social", "Physical"), ("no label",)]
    put_multiwd(tmp_path, training, testing)
    seen = {name: [f"Made up post {n} {name}" for n in range(5, 10)] for name in LABELS}
    put_recording(tmp_path / "multiwd", seen, {name: [f"written {name}"] for name in LABELS})
    return load_multiwd(tmp_path, expected=None)


def test_multiwd_keeps_posts_with_one_label_that_is_certain(multiwd):
    draw = multiwd.draw(0)
    parts = apart(draw)
    development = apart(multiwd.draw(0, part="development"))["test"]
    trained = parts["given"] | parts["pool"] | development
    assert len(trained) == 120
    assert len(development) == 6 * 8
    assert len(draw.test) == 49
    assert "tested post" in parts["test"]
    assert not {"0", "none", "many", "twice", "also twice"} & trained
    assert normalised_text("I can’t, she said “no” é Ö") in trained


def test_messages_about_multiwd_name_the_line_and_quote_nothing(tmp_path):
    good = [("secret words", "Social")] * 2
    path = put_multiwd(tmp_path, good, good) / "test_data.csv"
    intact = path.read_bytes()
    for changed, words in (
        (intact.replace(b"0,1,0,0\r\n", b"0,yes,0,0\r\n", 1), r"test_data\.csv:2: column Social"),
        (intact + b"secret,1\r\n", r"test_data\.csv:4: 2 fields"),
        (intact + b'"  ",1,0,0,0,0,0\r\n', r"test_data\.csv:4: the post is empty"),
        (intact.replace(b"Vocational", b"Vocal"), r"test_data\.csv:1: the columns"),
    ):
        path.write_bytes(changed)
        with pytest.raises(TaskError, match=words) as raised:
            load_multiwd(tmp_path)
        assert "secret" not in str(raised.value)


# Forbidden Question Set


def put_forbidden(data):
    folder = data / "forbidden_question"
    folder.mkdir(parents=True, exist_ok=True)
    specs = described_classes("forbidden")
    rows = [[c, spec.name, n, f"made up {c} of {n}"] for c, spec in enumerate(specs) for n in range(30)]
    with (folder / "forbidden_question_set.csv").open("w", newline="", encoding="utf-8") as handle:
        csv.writer(handle).writerows([HEADER, *rows])


@pytest.fixture
def forbidden(tmp_path):
    put_forbidden(tmp_path)
    return load_data_set("forbidden", tmp_path)


def test_half_of_each_policy_is_tested_and_half_drawn_from(forbidden):
    draws = [forbidden.draw(seed) for seed in (0, 1)]
    assert apart(draws[0])["test"] == apart(draws[1])["test"]
    assert len(draws[0].test) == 13 * 15
    assert set(forbidden.pool_sizes(5).values()) == {10}
    assert apart(draws[0])["given"] != apart(draws[1])["given"]
    paper = forbidden.draw(3, split="paper")  # which tests all that is not given
    assert (len(paper.task.samples), len(paper.test)) == (65, 325)
    assert min(forbidden.pool_sizes(split="paper").values()) == 0
    apart(paper)


# HWU64


def put_hwu64(data, **parts):
    folder = data / "hwu64"
    folder.mkdir(parents=True)
    for name, texts in parts.items():
        rows = [json.dumps({"text": text, "label": label}) + "\n" for label, text in texts]
        (folder / f"{name}.jsonl").write_text("".join(rows))


HWU64 = [spec.name for spec in described_classes("hwu64")]


def test_hwu64_keeps_a_text_of_several_files_for_the_test(tmp_path):
    put_hwu64(
        tmp_path,
        train=[(n, f"train {n} {k}") for n in HWU64 for k in range(6)] + [(HWU64[0], x) for x in "aab"],
        valid=[(HWU64[0], "A"), (HWU64[0], "B"), (HWU64[0], "b"), (HWU64[1], "clash")],
        test=[(HWU64[0], "a"), (HWU64[1], "c"), (HWU64[2], "clash")],
    )
    data = load_hwu64(tmp_path, expected=None)
    assert [s.text for s in data.draw(0).test] == ["a", "c"]
    assert [s.text for s in data.draw(0, part="development").test] == ["B"]
    assert set(data.pool_sizes(5).values()) == {1}
    assert len(data.draw(0, given=9).task.samples) == 64 * 6  # what there is
    with pytest.raises(TaskError, match="387 train rows instead of 8,954, 4 valid rows"):
        load_hwu64(tmp_path)
    with pytest.raises(TaskError, match="the paper does not use this set"):
        data.draw(0, split="paper")


def test_hwu64_keeps_a_part_for_the_analysis_that_is_in_no_draw(tmp_path):
    many = {"alarm_set": 100, "play_music": 80, "play_radio": 79, "qa_maths": 100}
    put_hwu64(
        tmp_path,
        train=[(n, f"train {n} {k}") for n in HWU64 for k in range(many.get(n, 6))],
        valid=[(HWU64[0], "valid")],
        test=[(HWU64[0], "test")],
    )
    data = load_hwu64(tmp_path, expected=None)
    assert {name: len(texts) for name, texts in data.analysis.items()} == {"alarm_set": 40, "play_music": 40}
    kept = {normalised_text(text) for texts in data.analysis.values() for text in texts}
    for part in ("test", "development"):
        assert not kept & texts_of(data.draw(3, part=part))
    assert {name: data.pool_sizes(5)[name] for name in many} == {
        "alarm_set": 55, "play_music": 35, "play_radio": 74, "qa_maths": 95,
    }  # fmt: skip
    assert not load_data_set("demo", None).analysis


# The built-in set


def test_demo_parts_depend_on_the_generator():
    data = load_data_set("demo", None)
    pool, recorded = data.draw(0), data.draw(0, generator="recorded")
    assert (len(pool.test), min(data.pool_sizes().values())) == (12 * 25, 15)
    assert (len(recorded.test), min(data.pool_sizes(generator="recorded").values())) == (12 * 40, 30)
    assert apart(pool)["test"] < apart(recorded)["test"]
    development = data.draw(0, part="development")
    assert len(development.test) == 12 * 8
    assert not texts_of(development) & apart(pool)["test"]
    for wrong in ({"part": "development", "generator": "recorded"}, {"split": "paper"}):
        with pytest.raises(TaskError, match="use"):
            data.draw(0, **wrong)


# Image sets


@pytest.fixture
def sample_images(tmp_path):
    chance = np.random.default_rng(0)
    x = chance.normal(size=(40, 8)).astype(np.float16)
    x[0] = x[30]  # a copy of a test image
    split, labels = np.array(["trainval"] * 24 + ["test"] * 16), np.array(["Siamese", "pug"])
    (tmp_path / "oxford_pets").mkdir()
    path = tmp_path / "oxford_pets" / "mobilenetv2.npz"
    np.savez(path, X=x, y=np.arange(40) % 2, split=split, labels=labels)
    return tmp_path


def test_images_are_drawn_by_name_without_copies_of_test_images(sample_images):
    data = load_feature_set("pets", sample_images, expected=None)
    assert [spec.description for spec in data.specs] == [
        "a photo that shows a cat of the Siamese breed",
        "a photo that shows a dog of the pug breed",
    ]
    draw, development = data.draw(0, given=3), data.draw(0, given=3, part="development")
    assert {s.text for s in draw.test} == {f"pets {n}" for n in range(24, 40)}
    trained = apart(draw)["given"] | apart(draw)["pool"]
    assert trained | apart(development)["test"] == {f"pets {n}" for n in range(1, 24)}
    assert data.pool_sizes(3) == {"Siamese": 11 - 4 - 3, "pug": 12 - 4 - 3}
    paper = data.draw(0, given=3, split="paper")
    assert len(paper.test) == 16 - 6
    apart(paper)


def test_features_embed_every_image_but_no_class(sample_images):
    embedder = load_feature_set("pets", sample_images, expected=None).embedder()
    assert embedder.has(["pets 39", "Siamese"]).tolist() == [True, False]
    with np.load(sample_images / "oxford_pets" / "mobilenetv2.npz") as file:
        expected = file["X"][[39, 1]].astype(np.float32)
    assert np.array_equal(run_sync(embedder.embed(["pets 39", "pets 1"])).views["pooled"], expected)


def test_other_vectors_make_another_digest(sample_images):
    before = load_feature_set("pets", sample_images, expected=None)
    path = sample_images / "oxford_pets" / "mobilenetv2.npz"
    with np.load(path) as file:
        arrays = dict(file)
    arrays["X"][5] *= 2
    np.savez(path, **arrays)
    after = load_feature_set("pets", sample_images, expected=None)
    assert before.draw(0).test == after.draw(0).test
    assert before.draw(0).digest != after.draw(0).digest
    assert before.embedder().fingerprint != after.embedder().fingerprint
    with pytest.raises(TaskError, match="2 classes instead of 37"):
        load_data_set("pets", sample_images)


# All of them


@pytest.mark.parametrize(
    ("options", "words"),
    [({"part": "tests"}, "unknown part 'tests'; did you mean 'test'"), ({"given": -1}, "negative")],
)
def test_what_cannot_be_drawn_is_one_line(options, words):
    with pytest.raises(TaskError, match=words):
        load_data_set("demo", None).draw(0, **options)


# The original files: seed 0 of every combination, so that no split changes silently.
# (set, given a class, generator, part, split): (given, pool or recorded, least of a class, scored, digest)
ORIGINAL = {
    ("trec", 5, "pool", "test", "readme"): (150, 2312, 1, 1380, "16ee4da42e425af5"),
    ("trec", 5, "pool", "development", "readme"): (150, 2312, 1, 1623, "bffb12d0b5e8b703"),
    ("trec", 5, "pool", "test", "paper"): (150, 2462, 6, 796, "5662550d3264af0b"),
    ("trec", 5, "recorded", "test", "readme"): (150, 882, 26, 1230, "cbac4bf785e6904d"),
    ("trec", 5, "recorded", "development", "readme"): (150, 882, 26, 1623, "5e070d2bc094c3a9"),
    ("trec", 5, "recorded", "test", "paper"): (150, 882, 26, 796, "ca0fbb69c9238bbf"),
    ("multiwd", 5, "pool", "test", "readme"): (30, 586, 21, 257, "e89be8b3870a50ae"),
    ("multiwd", 5, "pool", "development", "readme"): (30, 586, 21, 405, "3dd9c4372e493411"),
    ("multiwd", 5, "pool", "test", "paper"): (30, 616, 26, 227, "2d6060c3f8fceb72"),
    ("multiwd", 5, "recorded", "test", "readme"): (30, 240, 40, 257, "1368eace53efcd56"),
    ("multiwd", 5, "recorded", "development", "readme"): (30, 240, 40, 393, "55da89fef66e5f16"),
    ("forbidden", 5, "pool", "test", "readme"): (65, 130, 10, 195, "cc43c1dd53bb612b"),
    ("forbidden", 5, "pool", "development", "readme"): (65, 52, 4, 78, "a5ef7c1d2f38e85d"),
    ("forbidden", 5, "pool", "test", "paper"): (65, 0, 0, 325, "ba4853af23869ba0"),
    ("hwu64", 5, "pool", "test", "readme"): (320, 7624, 28, 1075, "34d7fc276c89d21e"),
    ("hwu64", 5, "pool", "development", "readme"): (320, 7624, 28, 1005, "c2de984ec41c0792"),
    ("demo", 5, "pool", "test", "readme"): (60, 180, 15, 300, "375dce8c90931466"),
    ("demo", 5, "pool", "development", "readme"): (60, 84, 7, 96, "d7ad7d0a03d93ed9"),
    ("demo", 5, "recorded", "test", "readme"): (60, 360, 30, 480, "40799b2e4b846822"),
    ("pets", 3, "pool", "test", "readme"): (111, 2087, 51, 3669, "117ace57b509b0ca"),
    ("pets", 3, "pool", "development", "readme"): (111, 2087, 51, 1458, "98f25987a5c9bbbe"),
    ("pets", 3, "pool", "test", "paper"): (111, 2198, 54, 3558, "e50465fda757eb56"),
    ("flowers102", 2, "pool", "test", "readme"): (204, 1011, 7, 6149, "089081b2de9fdee8"),
    ("flowers102", 2, "pool", "development", "readme"): (204, 1011, 7, 793, "54b423cf786fb1a8"),
    ("flowers102", 2, "pool", "test", "paper"): (204, 1215, 9, 5945, "14d0658324fc18a3"),
    ("cub200", 2, "pool", "test", "readme"): (400, 3200, 16, 5794, "77da9d0c3327c642"),
    ("cub200", 2, "pool", "development", "readme"): (400, 3200, 16, 2390, "b6539867d6fc8b5f"),
    ("cub200", 2, "pool", "test", "paper"): (400, 3600, 18, 5394, "428d703096d92866"),
}


@pytest.fixture(scope="module")
def original():
    try:
        directory = data_directory()
    except TaskError as missing:
        pytest.skip(f"the original files are not here: {missing}")
    return cache(lambda name: load_data_set(name, directory))


@pytest.mark.parametrize("case", ORIGINAL, ids=lambda case: "-".join(map(str, case)))
def test_original_files_give_these_parts(original, case):
    name, given, generator, part, split = case
    draw = original(name).draw(0, given=given, generator=generator, part=part, split=split)
    apart(draw)
    sizes = [len(texts) for texts in (draw.recorded if generator == "recorded" else draw.pool).values()]
    counts = (len(draw.task.samples), sum(sizes), min(sizes), len(draw.test))
    assert (*counts, draw.digest[:16]) == ORIGINAL[case]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in (*IMAGE_SETS, *SCORED_ONCE)])
def test_development_and_test_parts_of_the_original_files_share_nothing(original, name):
    data = original(name)
    tested = apart(data.draw(0))["test"]
    development = [data.draw(seed, part="development") for seed in (0, 1)]
    assert not any(texts_of(draw) & tested for draw in development)
    assert len({data.draw(seed).digest for seed in range(3)} | {draw.digest for draw in development}) == 5
