"""Images as base64 and as files of a form."""

import base64
import struct
import tempfile
import zlib

import httpx
import pytest

from adamab.testing import PixelEmbedder


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Where the server keeps images while it classifies them."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def server(live, image_model, temporary):
    return live(image_model, PixelEmbedder(), body=2**20, items=4)


@pytest.fixture
def images(paint, tmp_path):
    return [path.read_bytes() for path in paint(tmp_path / "new", {"red": 1, "green": 1, "blue": 1}, seed=7)]


def encoded(images):
    return [{"data": base64.b64encode(image).decode()} for image in images]


def form(server, images, name="images", **fields):
    files = [(name, ("a.bin", image, "application/octet-stream")) for image in images]
    return httpx.post(f"{server.url}/v1/classify", files=files, data=fields, timeout=30)


def names(answer):
    assert answer.status_code == 200, answer.text
    return [result["class"] for result in answer.json()["results"]]


def left(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def test_both_ways_and_nothing_is_left(server, images, temporary):
    assert names(server.post(images=encoded(images))) == ["red", "green", "blue"]
    assert left(temporary) == []
    answer = form(server, images, top_k="2", unknown="0.99", priors='{"red": 0.2}')
    assert [len(result["top"]) for result in answer.json()["results"]] == [2, 2, 2]
    assert left(temporary) == []
    assert server.get("/v1/classes").json()["modality"] == "image"
    assert names(form(server, [images[2], images[0], images[2]])) == ["blue", "red", "blue"]
    assert "send images" in server.post(text="red").json()["error"]["message"]


def bomb():
    """A PNG that declares an image of ten gigabytes."""
    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"0" * 1000))


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda good: b"", "images.1"),
        (lambda good: b"hello", "is no "),
        (lambda good: good[: len(good) // 2], "cannot be decoded"),
        (lambda good: bomb(), "million pixels"),
        (lambda good: b"<svg xmlns='http://www.w3.org/2000/svg'/>", "is no "),
    ],
)
def test_what_is_no_image(server, images, temporary, make, words):
    broken = make(images[0])
    answers = [form(server, [images[0], broken])]
    if broken:
        answers.append(server.post(images=encoded([images[0], broken])))
    for answer in answers:
        good, bad = answer.json()["results"]
        assert good["class"]
        assert words in bad["error"]["message"]
        assert str(temporary) not in answer.text
    assert form(server, [broken]).status_code in (400, 422)
    assert left(temporary) == []
    assert server.log == []


def test_forms_that_are_refused(server, images):
    url = f"{server.url}/v1/classify"
    many = form(server, [images[0]] * 5)
    assert (many.status_code, many.json()["error"]["code"]) == (413, "too_many_items")
    far_too_many = form(server, [images[0]] * 50)
    assert far_too_many.status_code in (400, 413)
    assert form(server, images, name="files").status_code == 422
    for field in (
        {"colour": "1"},
        {"top_k": "two"},
        {"top_k": "NaN"},
        {"priors": "[" * 60_000},
        {"unknown": "2"},
    ):
        assert form(server, images, **field).status_code == 422
    for kind in ("multipart/form-data", "multipart/form-data; boundary=x", "multipart/form-data; boundary="):
        answer = httpx.post(url, content=b"nothing of the kind", headers={"content-type": kind})
        assert answer.status_code in (400, 422)
    large = form(server, [b"\x89PNG\r\n\x1a\n" + b"0" * 2**20])
    assert (large.status_code, large.json()["error"]["code"]) == (413, "body_too_large")
    assert server.log == []
