"""A classifier on disk: back as it was, or one line that says why not."""

import json
import os
import shutil
import struct
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adamab.errors import ModelFileError
from adamab.model import Classifier, Head, load, save, storage


def same(a, b):
    plain = ("classes", "embedder_spec", "fingerprint", "query_prompt", "metadata", "confidence")
    words = [None if m.vocabulary is None else m.vocabulary.to_json() for m in (a, b)]
    arrays = [[(h.view, h.activation, h.normalise, list(h.arrays)) for h in m.heads] for m in (a, b)]
    return (
        all(getattr(a, name) == getattr(b, name) for name in plain)
        and words[0] == words[1]
        and arrays[0] == arrays[1]
        and all(
            np.array_equal(x, y)
            for g, h in zip(a.heads, b.heads, strict=True)
            for x, y in zip(g.arrays.values(), h.arrays.values(), strict=True)
        )
    )


def refused(directory, message=""):
    with pytest.raises(ModelFileError, match=message) as caught:
        load(directory)
    assert "\n" not in str(caught.value)
    assert str(directory) in str(caught.value)
    assert len(str(caught.value)) < 600


def rewrite(directory, change):
    """Change the document as an attacker would, who can compute a digest too."""
    document = json.loads((directory / "model.json").read_text("utf-8"))
    change(document)
    said = {key: value for key, value in document.items() if key != "digest"}
    document["digest"] = sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
    (directory / "model.json").write_text(json.dumps(document), "utf-8")


def reweigh(directory, weights):
    (directory / "model.safetensors").write_bytes(weights)
    claim = {"sha256": sha256(weights).hexdigest(), "bytes": len(weights)}
    rewrite(directory, lambda document: document.update(weights=claim))


@pytest.fixture
def saved(model, tmp_path):
    save(model, tmp_path / "a" / "model")
    return tmp_path / "a" / "model"


def test_what_is_saved_comes_back(model, saved, views, texts):
    back = load(str(saved))
    assert same(back, model)
    np.testing.assert_array_equal(back.logits(views, texts), model.logits(views, texts))
    assert sorted(os.listdir(saved)) == ["model.json", "model.safetensors"]
    assert "配送" in (saved / "model.json").read_text("utf-8")


def test_a_linear_head_without_words_and_confidence_comes_back(tmp_path):
    weights = np.arange(6, dtype=np.float32).reshape(3, 2).T  # not contiguous
    model = Classifier(classes=("a", "b"), heads=(Head(view="pooled", linear=weights),))
    save(model, tmp_path)
    assert same(load(tmp_path), model)


class Killed(BaseException):
    pass


def test_a_kill_leaves_the_old_model_or_the_new(model, saved, monkeypatch):
    """Stop before each step that changes the disk, without any of Python's cleaning up."""
    new = replace(model, metadata={"new": True}, heads=(model.heads[1], *model.heads))
    calls = {name: getattr(os, name) for name in ("replace", "fsync")}
    outcomes = []
    for stop in range(20):
        directory = saved.parent / f"kill{stop}"
        shutil.copytree(saved, directory)
        count = iter(range(1000))

        def step(name, *args, last=stop, steps=count):
            if next(steps) == last:
                raise Killed
            return calls[name](*args)

        with monkeypatch.context() as patch:
            for name in calls:
                patch.setattr(os, name, lambda *args, name=name: step(name, *args))
            patch.setattr(Path, "unlink", lambda *args, **options: None)
            try:
                save(new, directory)
            except Killed:
                outcomes.append(same(load(directory), new))
            else:
                break
        assert same(load(directory), new if outcomes[-1] else model)
        save(model, directory)  # the next save is whole again and clears up
        assert same(load(directory), model)
        assert sorted(os.listdir(directory)) == ["model.json", "model.safetensors"]
    assert sorted(outcomes) == outcomes
    assert set(outcomes) == {False, True}
    assert len(outcomes) < 20


def test_a_directory_that_cannot_be_written_is_named(model, tmp_path):
    (tmp_path / "file").write_text("")
    for target in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / "a\0b"):
        with pytest.raises(ModelFileError, match="cannot be written"):
            save(model, target)
    (tmp_path / "model.json").mkdir()
    with pytest.raises(ModelFileError, match="cannot be written"):
        save(model, tmp_path)
    assert not list(tmp_path.glob("*.tmp"))


def test_too_much_is_neither_written_nor_read(model, saved, monkeypatch):
    monkeypatch.setitem(storage._LARGEST, "model.json", 100)
    refused(saved, "at most 100")
    with pytest.raises(ModelFileError, match="at most 100"):
        save(model, saved)


def test_a_sparse_giant_is_not_read(saved):
    with open(saved / "model.safetensors", "r+b") as handle:
        handle.truncate(2**41)
    rewrite(saved, lambda d: d["weights"].update(bytes=2**41))
    refused(saved, "at most")


def test_missing_and_odd_files_are_refused_and_a_pipe_does_not_block(saved):
    for place in (saved / "a\0b", saved / "model.json"):
        with pytest.raises(ModelFileError, match="cannot be read"):
            load(place)
    for name in ("model.safetensors", "model.json"):
        (saved / name).unlink()
        refused(saved, f"{name}: no such file")
        (saved / name).mkdir()
        refused(saved, name)
        (saved / name).rmdir()
    os.mkfifo(saved / "model.json")
    refused(saved, "not a regular file")


def test_weights_of_another_model_are_refused(model, saved, tmp_path):
    other = replace(model.heads[0], linear=model.heads[0].linear + 1)
    save(replace(model, heads=(other, *model.heads[1:])), tmp_path / "other")
    shutil.copy(tmp_path / "other" / "model.safetensors", saved)
    refused(saved, "model.safetensors: damaged, or not of the same model")


def test_an_edited_document_is_refused(saved):
    path = saved / "model.json"
    path.write_text(path.read_text("utf-8").replace("billing", "bullion"), "utf-8")
    refused(saved, "its digest does not fit")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "Expecting value"),
        (b"\xff\xfe{}", "utf-8"),
        (b"[]", "not a saved ADAMAB classifier"),
        (b'{"format": "adamab-classifier"}', "damaged"),
        (b'{"format": "adamab-classifier", "version": 3, "digest": 0, "a": NaN}', "not JSON compliant"),
        (b"[" * 10_000_000, "nested too deeply"),
        (b"9" * 10_000, "digits"),
    ],
)
def test_hostile_bytes_for_a_document(saved, content, message):
    (saved / "model.json").write_bytes(content)
    refused(saved, message)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda d: d.update(version=4, novelty=1),
            "saved in format '4' .*fit again or pip install -U adamab",
        ),
        (lambda d: d.update(version=True), "saved in format 'True'"),
        (lambda d: d.pop("classes"), "damaged"),
        (lambda d: d.update(classes=3), "damaged"),
        (lambda d: d.update(classes=["a", "b", "a"]), "twice"),
        (lambda d: d.update(classes=["a", "b", "\ud800"]), "half a character"),
        (lambda d: d.update(classes=["a", "b"]), "made for 3 classes, not 2"),
        (lambda d: d.update(embedder={"spec": 1, "fingerprint": ""}), "embedder_spec is of type int"),
        (lambda d: d["weights"].update(sha256="../" * 21 + "x"), "no valid sha256"),
        (lambda d: d["weights"].update(bytes=-1), "damaged"),
        (lambda d: d.update(heads=[]), "tensor '0.basis' is not expected|not expected"),
        (lambda d: d.update(heads=[1, 2, 3]), "damaged"),
        (lambda d: d["heads"][0].update(normalise=1), "normalise is neither true nor false"),
        (lambda d: d["heads"][0].update(activation="eval"), "activation 'eval' is unknown"),
        (lambda d: d["heads"][0].update(arrays=["linear"]), "not expected"),
        (lambda d: d["heads"][1]["arrays"].insert(2, "centre"), "tensor '1.centre' is missing"),
        (lambda d: d["heads"][0].update(arrays=[[], {}, None]), "not those of a head"),
        (lambda d: d["heads"][0].update(view="words"), "words' head is 7 wide"),
        (lambda d: d.update(vocabulary=None), "go together"),
        (lambda d: d.update(vocabulary={"terms": ["a"]}), "damaged"),
        (lambda d: d["vocabulary"]["terms"].__setitem__(0, "\ud800"), "half a character"),
        (lambda d: d.update(confidence=[]), "damaged"),
        (lambda d: d["confidence"].update(extra=1), "damaged"),
        (lambda d: d["confidence"].update(seen=[1.0, 1.0]), "'seen' is of 2 classes, not 3"),
        (lambda d: d["confidence"].update(temperature=[1.0]), "the temperature holds"),
        (lambda d: d["confidence"].update(n=10**15), "not a list of 1000 numbers"),
        (lambda d: d["confidence"]["surprise"].__setitem__(0, [[]]), "'surprise' holds"),
    ],
)
def test_hostile_documents(saved, change, message):
    rewrite(saved, change)
    refused(saved, message)


def test_an_infinite_number_is_refused(saved):
    path = saved / "model.json"
    path.write_text(path.read_text("utf-8").replace("0.75", "1e999"), "utf-8")
    refused(saved, "model.json: .*float")


def raw(header, data=b""):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


@pytest.mark.parametrize(
    "weights",
    [
        b"",
        b"\xff" * 8,
        struct.pack("<Q", 2**40) + b"{}",
        raw({"0.linear": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 4]}}, b"1234"),
        raw({"0.linear": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, b"1234"),
        raw({"0.linear": {"dtype": "PICKLE", "shape": [1], "data_offsets": [0, 4]}}, b"1234"),
        raw({"0.linear": {"dtype": "F32", "shape": [1], "data_offsets": [0, 2**60]}}, b"1234"),
        raw({"../../etc": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, b"1234"),
        struct.pack("<Q", 100_000) + b"[" * 100_000,
    ],
)
def test_hostile_weights(saved, weights):
    reweigh(saved, weights)
    refused(saved, "model.safetensors: ")


@pytest.mark.parametrize("shape", [[0, 2**62, 4], [0, 2**64 - 1], [0] * 100, []])
def test_hostile_shapes(saved, shape):
    """Only the linear part of one head, so that the shape is what is looked at."""
    rewrite(saved, lambda d: d.update(heads=[{**d["heads"][0], "arrays": ["linear"]}]))
    size = 0 if shape else 4
    header = {"0.linear": {"dtype": "F32", "shape": shape, "data_offsets": [0, size]}}
    reweigh(saved, raw(header, b"\0" * size))
    refused(saved, "model.safetensors: ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.update(extra=np.zeros(1, np.float32)), "tensor 'extra' is missing or not expected"),
        (lambda t: t.pop("0.linear"), "tensor '0.linear' is missing or not"),
        (lambda t: t.update({"0.linear": t["0.linear"].astype(np.float64)}), "type 'F64', not F32"),
        (lambda t: t.update({"0.linear": t["0.linear"][:, 1:]}), "tower.0 is 7 wide where 6|centre is"),
        (lambda t: t.update({"0.linear": t["0.linear"] * np.float32(np.inf)}), "not finite"),
        (lambda t: t.update({"0.centre": t["0.centre"][None]}), "centre has shape"),
    ],
)
def test_tensors_that_do_not_fit(saved, change, message):
    tensors = safetensors.numpy.load((saved / "model.safetensors").read_bytes())
    change(tensors)
    reweigh(saved, safetensors.numpy.save({k: np.ascontiguousarray(v) for k, v in tensors.items()}))
    refused(saved, f"model.safetensors: .*({message})")


SMALL = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
MUTATIONS = st.lists(
    st.tuples(
        st.sampled_from(["flip", "cut", "drop", "insert"]), st.floats(0, 1), st.binary(min_size=1, max_size=4)
    ),
    min_size=1,
    max_size=3,
)


def mutated(content, mutations):
    for kind, place, extra in mutations:
        at = int(place * max(0, len(content) - 1))
        rest = {
            "flip": bytes(b ^ (1 << extra[0] % 8) for b in content[at : at + 1]) + content[at + 1 :],
            "cut": b"",
            "drop": content[at + extra[0] :],
            "insert": extra + content[at:],
        }[kind]
        content = content[:at] + rest
    return content


def outcome(directory):
    try:
        return load(directory)
    except ModelFileError as exc:
        return str(exc)


def fresh(directory):
    """The files as they were saved; the first call keeps a copy. Saving each time would be slow."""
    original = directory.with_name("original")
    if not original.exists():
        shutil.copytree(directory, original)
    shutil.copytree(original, directory, dirs_exist_ok=True)


@SMALL
@given(name=st.sampled_from(["model.json", "model.safetensors"]), mutations=MUTATIONS)
def test_mutated_files_load_equal_or_are_refused(model, saved, name, mutations):
    fresh(saved)
    (saved / name).write_bytes(mutated((saved / name).read_bytes(), mutations))
    result = outcome(saved)
    assert "\n" not in result if isinstance(result, str) else same(result, model)


@SMALL
@given(mutations=MUTATIONS)
def test_mutated_weights_with_a_right_digest_never_crash(saved, mutations):
    fresh(saved)
    # Most of the file is numbers; what can go wrong is in the header.
    content = (saved / "model.safetensors").read_bytes()
    size = 8 + struct.unpack("<Q", content[:8])[0]
    reweigh(saved, mutated(content[:size], mutations) + content[size:])
    result = outcome(saved)
    assert isinstance(result, Classifier) or "\n" not in result


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def places(value):
    """Every (container, key) in a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, item in items for place in [(value, key), *places(item)]]


@SMALL
@given(where=st.integers(0, 10_000), value=JSON)
def test_any_value_at_any_place_never_crashes(saved, where, value):
    def change(document):
        everywhere = [place for place in places(document) if place[1] != "digest"]
        container, key = everywhere[where % len(everywhere)]
        container[key] = value

    fresh(saved)
    rewrite(saved, change)
    result = outcome(saved)
    assert isinstance(result, Classifier) or "\n" not in result
