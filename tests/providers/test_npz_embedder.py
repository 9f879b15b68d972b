"""Vectors computed elsewhere."""

import numpy as np
import pytest

from adamab.errors import EmbedderError
from adamab.providers.embedders.stored import NpzEmbedder, read_npz
from adamab.testing import check_embedder

IDS = np.array(["a", "b", "c", "d"])
POOLED = np.arange(8, dtype=np.float64).reshape(4, 2)


def save(path, **arrays):
    np.savez(path, **{name.replace("__", "/"): array for name, array in arrays.items()})
    return path


@pytest.fixture
def file(tmp_path):
    wide = np.ones((4, 5), np.float16)
    return save(tmp_path / "v.npz", ids=IDS, view__wide=wide, view__pooled=POOLED, labels=np.arange(4))


async def test_looks_ids_up(file):
    embedder = NpzEmbedder(file)
    assert embedder.views == ("pooled", "wide")
    answer = await embedder.embed(["c", "a", "c"], kind="class")
    np.testing.assert_array_equal(answer.views["pooled"], POOLED[[2, 0, 2]].astype(np.float32))
    assert answer.views["wide"].dtype == np.float32
    assert not answer.overlong.any()
    assert embedder.has(["a", "x"]).tolist() == [True, False]
    assert not embedder.cacheable
    check_embedder(embedder, texts=list(IDS))


async def test_missing_ids_are_named(file):
    with pytest.raises(EmbedderError, match=r"no vector for 4 of 5 ids: 'w', 'x', 'y' \.\.\.;"):
        await NpzEmbedder(file).embed(["a", "w", "x", "y", "z" * 100])
    with pytest.raises(EmbedderError, match=r"for 1 of 1 ids: 'zzz.*…';"):
        await NpzEmbedder(file).embed(["z" * 100])


def test_fingerprint_is_the_model_or_the_shape(tmp_path, file):
    assert NpzEmbedder(file).fingerprint == "npz:pooled=2,wide=5"
    named = save(tmp_path / "m.npz", ids=IDS, view__pooled=POOLED, model=np.array("voyage-3"))
    assert NpzEmbedder(named).fingerprint == "npz:voyage-3"
    assert read_npz(named).model == "voyage-3"


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"view__pooled": POOLED}, "no array 'ids'"),
        ({"ids": IDS}, "no array named view/NAME"),
        ({"ids": IDS, "views__pooled": POOLED}, "no array named view/NAME"),
        ({"ids": np.arange(4), "view__pooled": POOLED}, "1-D array of strings"),
        ({"ids": IDS[:, None], "view__pooled": POOLED}, "1-D array of strings"),
        ({"ids": np.array(["a", "b", "b", "c"]), "view__pooled": POOLED}, "id 'b' stands there twice"),
        ({"ids": IDS, "view__pooled": POOLED[:3]}, "3 rows for 4 ids"),
        ({"ids": IDS, "view__pooled": POOLED[0]}, "a float matrix is needed"),
        ({"ids": IDS, "view__pooled": POOLED.astype(int)}, "a float matrix is needed"),
        ({"ids": IDS, "view__pooled": POOLED * np.nan}, "NaN or infinite"),
        ({"ids": IDS, "view__pooled": POOLED * 1e300}, "NaN or infinite"),
        ({"ids": IDS, "view__pooled": POOLED, "model": np.array(3)}, "'model' must be one string"),
        ({"ids": IDS.astype(object), "view__pooled": POOLED}, "holds Python objects"),
    ],
)
def test_wrong_contents_are_refused(tmp_path, arrays, message):
    path = save(tmp_path / "bad.npz", **arrays)
    with pytest.raises(EmbedderError, match=message) as caught:
        read_npz(path)
    assert "\n" not in str(caught.value)
    assert "bad.npz" in str(caught.value)


def test_damaged_files_are_refused(tmp_path, file):
    whole = file.read_bytes()
    cases = {
        "cut": (whole[: len(whole) // 2], "cut short"),
        "text": (b"hello", "not an npz file"),
        "flipped": (
            whole.replace(b"\x00\x00\x00\x00\x00\x00\xf0?", b"\x00\x00\x00\x00\x00\x00\xf1?"),
            "cut short",
        ),
    }
    for name, (content, message) in cases.items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(EmbedderError, match=message):
            read_npz(path)
    with pytest.raises(EmbedderError, match="no such file"):
        read_npz(tmp_path / "missing.npz")
