"""Pictures at the provider server over real sockets: made, embedded, spoiled and billed."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest

from adamab.testing import Fault, ProviderServer
from adamab.testing.provider_pictures import mean_colour, picture, png, size_of

PATH, MULTIMODAL = "/v1/images/generations", "/voyage/v1/multimodalembeddings"
PROMPT = 'Take a photograph of this:\n<data>\n{"name": "Bengal"}\n</data>'
OTHER = PROMPT.replace("Bengal", "Sphynx")


@pytest.fixture
def server() -> Iterator[ProviderServer]:
    with ProviderServer(width=16) as running:
        yield running


def post(server: ProviderServer, path: str, body: Any, **headers: str) -> httpx.Response:
    with httpx.Client(timeout=10, verify=False) as client:  # loading certificates takes longer than all else
        return client.post(server.url + path, json=body, headers=headers)


def ask(server: ProviderServer, prompt: str = PROMPT, key: str = "", **more: Any) -> httpx.Response:
    headers = {"Idempotency-Key": key} if key else {}
    return post(server, PATH, {"model": "gpt-image-1-mini", "prompt": prompt, **more}, **headers)


def made(response: httpx.Response) -> list[bytes]:
    return [base64.b64decode(entry["b64_json"], validate=True) for entry in response.json()["data"]]


def code(response: httpx.Response) -> tuple[int, str | None, str | None]:
    error = response.json()["error"]
    return response.status_code, error["code"], error["param"]


def url_of(data: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def image(data: bytes) -> dict[str, Any]:
    return {"content": [{"type": "image_base64", "image_base64": url_of(data)}]}


def text(words: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}]}


def embed(server: ProviderServer, *inputs: Any, key: str = "", **more: Any) -> httpx.Response:
    headers = {"Idempotency-Key": key} if key else {}
    return post(
        server, MULTIMODAL, {"model": "voyage-multimodal-3", "inputs": list(inputs), **more}, **headers
    )


def vectors(response: httpx.Response) -> np.ndarray[Any, Any]:
    return np.array([entry["embedding"] for entry in response.json()["data"]])


# Pictures made


def test_pictures_are_real_different_and_of_the_shape_asked_for(server: ProviderServer) -> None:
    from PIL import Image

    found = made(ask(server, n=3, size="1536x1024")) + made(ask(server, n=2, size="1024x1536"))
    shapes = []
    for data in found:
        with Image.open(io.BytesIO(data)) as opened:
            opened.load()
            shapes.append((opened.format, opened.mode, opened.size))
            assert size_of(data) == opened.size
    assert shapes == [("PNG", "RGB", (96, 64))] * 3 + [("PNG", "RGB", (64, 96))] * 2
    assert len(set(found)) == 5


def test_a_prompt_gets_other_pictures_each_time_but_the_same_on_every_server(server: ProviderServer) -> None:
    first, second = made(ask(server, n=2)), made(ask(server, n=2))
    assert len({*first, *second}) == 4
    with ProviderServer(faults=[Fault("status")]) as other:
        assert ask(other, OTHER).status_code == 429
        assert made(ask(other, n=4)) == first + second


def test_pictures_of_one_class_look_alike(server: ProviderServer) -> None:
    def colours(prompt: str) -> np.ndarray[Any, Any]:
        return np.array([mean_colour(data) for data in made(ask(server, prompt, n=5))], float)

    mine, others, varied = colours(PROMPT), colours(OTHER), colours(PROMPT + "\nFrom above.")
    assert np.ptp(mine, axis=0).max() < 20
    assert np.abs(mine.mean(0) - varied.mean(0)).max() < 20
    assert np.abs(mine.mean(0) - others.mean(0)).max() > 20


@pytest.mark.parametrize(
    ("size", "quality", "output"),
    [
        ("1024x1024", "low", 272),
        ("1024x1024", "medium", 1056),
        ("1024x1024", "high", 4160),
        ("1024x1536", "low", 408),
        ("1536x1024", "low", 400),
        ("1536x1024", "high", 6208),
        ("auto", "auto", 4160),
    ],
)
def test_usage_is_by_size_and_quality(server: ProviderServer, size: str, quality: str, output: int) -> None:
    answer = ask(server, "abcdefgh", n=2, size=size, quality=quality).json()
    assert answer["usage"] == {
        "total_tokens": 2 + 2 * output,
        "input_tokens": 2,
        "output_tokens": 2 * output,
        "input_tokens_details": {"text_tokens": 2, "image_tokens": 0},
    }
    assert (answer["size"], answer["output_format"]) == ("1024x1024" if size == "auto" else size, "png")


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"size": "10x10"}, ("invalid_value", "size")),
        ({"quality": "hd"}, ("invalid_value", "quality")),
        ({"n": 0}, ("integer_below_min_value", "n")),
        ({"n": 11}, ("integer_above_max_value", "n")),
        ({"n": "2"}, ("invalid_type", "n")),
        ({"response_format": "b64_json"}, ("unknown_parameter", "response_format")),
        ({"moderation": "none"}, ("invalid_value", "moderation")),
        ({"output_format": "gif"}, ("invalid_value", "output_format")),
        ({"prompt": ""}, ("missing_required_parameter", "prompt")),
        ({"prompt": "x" * 32_001}, ("string_above_max_length", "prompt")),
        ({"stream": True}, ("unsupported_value", "stream")),
        ({"model": "dall-e-3", "n": 2}, ("integer_above_max_value", "n")),
        ({"model": "dall-e-2", "size": "1536x1024"}, ("invalid_value", "size")),
        ({"model": "sdxl", "size": "large"}, ("invalid_value", "size")),
        ({"model": "sdxl", "response_format": "png"}, ("invalid_value", "response_format")),
    ],
    ids=lambda value: "-".join(map(str, value))[:40],
)
def test_malformed_requests_are_refused_as_openai_words_it(
    server: ProviderServer, more: dict[str, Any], expected: tuple[str, str]
) -> None:
    assert code(ask(server, **more)) == (400, *expected)
    assert (server.billed(), server.pictures()) == (0, 0)


def test_unknown_models_and_fields(server: ProviderServer) -> None:
    assert code(ask(server, model="no-such-model"))[:2] == (404, "model_not_found")
    assert ask(server, seed=4).json()["error"]["message"].startswith("Unknown parameter: 'seed'.")


def test_older_models_and_other_servers_send_addresses_unless_told(server: ProviderServer) -> None:
    for model in ("dall-e-2", "sdxl"):
        (entry,) = ask(server, model=model, size="512x512").json()["data"]
        assert entry["url"].startswith("https://images.invalid/")
        answer = ask(server, model=model, size="512x512", response_format="b64_json")
        assert size_of(made(answer)[0]) == (32, 32)
        assert "usage" not in answer.json()


def test_a_key_is_needed_where_one_is_set() -> None:
    with ProviderServer(key="sk-right") as server:
        assert ask(server).status_code == 401
        answer = post(server, PATH, {"model": "m", "prompt": "x"}, Authorization="Bearer sk-right")
        assert answer.status_code == 200
        assert server.pictures() == 1


# Faults


def test_the_safety_system_declines_in_two_ways(server: ProviderServer) -> None:
    for kind, expected in (("refusal", "moderation_blocked"), ("refusal_status", "content_policy_violation")):
        server.add_fault(Fault(kind))
        error = ask(server).json()["error"]
        assert (error["code"], error["type"]) == (expected, "image_generation_user_error")
    assert server.billed() == 0


def test_pictures_that_are_none(server: ProviderServer) -> None:
    server.add_fault(Fault("no_picture"))
    assert size_of(made(ask(server))[0]) is None
    server.add_fault(Fault("no_picture", how="base64"))
    with pytest.raises(ValueError, match="base64"):
        made(ask(server))
    server.add_fault(Fault("cut_picture", sent=0.9))
    (cut,) = made(ask(server))
    assert cut.startswith(b"\x89PNG")
    assert size_of(cut) is None
    server.add_fault(Fault("picture_url", times=1))
    assert list(ask(server).json()["data"][0]) == ["url"]
    server.add_fault(Fault("empty"))
    assert made(ask(server, n=2)) == [b"", b""]
    server.add_fault(Fault("empty", how="content"))
    assert ask(server).json()["data"] == []
    assert size_of(made(ask(server))[0]) == (64, 64)


def test_numbers_that_are_wrong(server: ProviderServer) -> None:
    server.add_fault(Fault("few_pictures"))
    assert len(made(ask(server, n=3))) == 2
    server.add_fault(Fault("duplicates", times=2))
    assert len({*made(ask(server, n=3)), *made(ask(server, n=3))}) == 1
    server.add_fault(Fault("no_usage"))
    assert "usage" not in ask(server).json()
    server.add_fault(Fault("overcharge", factor=3))
    usage = ask(server, "abcd", quality="low").json()["usage"]
    assert (usage["output_tokens"], usage["input_tokens_details"]["text_tokens"]) == (816, 3)


@pytest.mark.parametrize("path", [PATH, MULTIMODAL])
def test_faults_of_the_line_meet_pictures_too(server: ProviderServer, path: str) -> None:
    def send(timeout: float = 10) -> httpx.Response:
        body = {"model": "m", "prompt": PROMPT} if path == PATH else {"model": "m", "inputs": [text("a")]}
        return httpx.post(server.url + path, json=body, timeout=timeout)

    for fault, status in (
        (Fault("status", retry_after=2), 429),
        (Fault("status"), 429),
        (Fault("status", status=500), 500),
    ):
        server.add_fault(fault)
        answer = send()
        assert answer.status_code == status
        assert answer.headers.get("Retry-After") == ("2" if fault.retry_after else None)
    server.add_fault(Fault("hang"))
    with pytest.raises(httpx.ReadTimeout):
        send(0.1)
    assert server.billed() == 0
    server.add_fault(Fault("reset"))
    with pytest.raises(httpx.TransportError):
        send()
    server.add_fault(Fault("truncate"))
    with pytest.raises(json.JSONDecodeError):
        send().json()
    server.add_fault(Fault("slow", seconds=0.01))
    assert send().status_code == 200
    assert server.billed() == 3, "answers that did not arrive are billed"


# Billing


def test_pictures_are_counted_once_a_key(server: ProviderServer) -> None:
    first = ask(server, key="a", n=3)
    assert ask(server, key="a", n=3).content == first.content
    assert ask(server, key="b", n=2).status_code == 200
    assert (server.count(PATH), server.billed(PATH), server.pictures(PATH)) == (3, 2, 5)
    counts = {"received": 3, "billed": 2, "repeated": 0, "pictures": 5}
    assert httpx.get(server.url + "/_seen").json() == {PATH: counts}
    assert server.seen[0].body["prompt"] == PROMPT
    server.reset()
    assert server.pictures() == 0


@pytest.mark.parametrize("kind", ["no_picture", "cut_picture", "few_pictures", "picture_url", "truncate"])
def test_a_key_whose_pictures_came_broken_gets_good_ones_without_another_bill(
    server: ProviderServer, kind: str
) -> None:
    server.add_fault(Fault(kind))
    ask(server, key="a", n=2)
    good = made(ask(server, key="a", n=2))
    assert good == [picture(PROMPT, n, (1024, 1024)) for n in (0, 1)], "those that it was billed for"
    assert server.billed() == 1


def test_two_at_once_with_one_key_get_the_same_pictures() -> None:
    with ProviderServer(latency=0.05) as server, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: ask(server, key="a").content, range(8)))
        assert len(set(answers)) == 1
        assert (server.billed(), server.pictures()) == (1, 1)


# Pictures embedded


def test_texts_and_pictures_get_vectors_of_their_own(server: ProviderServer) -> None:
    data = [picture(prompt, n, (1024, 1024)) for prompt in (PROMPT, OTHER) for n in (0, 1)]
    answer = embed(server, *map(image, data), text("a bengal"), input_type="document")
    assert (answer.json()["object"], answer.json()["model"]) == ("list", "voyage-multimodal-3")
    found = vectors(answer)
    assert found.shape == (5, 16)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1)
    assert 0.95 > found[0] @ found[1] > 0.6 > found[0] @ found[2]
    again = vectors(embed(server, image(data[1]), input_type="document"))
    np.testing.assert_array_equal(again[0], found[1])
    assert 0.8 < vectors(embed(server, image(data[1]), input_type="query"))[0] @ found[1] < 1
    assert server.pictures(MULTIMODAL) == 6


def test_what_pillow_writes_is_looked_at_alike(server: ProviderServer) -> None:
    from PIL import Image

    rng = np.random.default_rng(0)
    pixels = (rng.integers(0, 40, (40, 30, 3)) + np.arange(30)[:, None] * 4).astype(np.uint8)
    for options in ({}, {"compress_level": 1}, {"optimize": True}):
        stream = io.BytesIO()
        Image.fromarray(pixels).save(stream, "PNG", **options)
        found = mean_colour(stream.getvalue())
        assert found is not None
        assert np.abs(np.array(found) - pixels.mean((0, 1))).max() < 1


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
def test_sizes_are_read_from_headers(kind: str) -> None:
    from PIL import Image

    for options in [{}, {"lossless": True}, {"exif": Image.Exif()}] if kind == "WEBP" else [{}]:
        stream = io.BytesIO()
        Image.new("RGB", (70, 41), "red").save(stream, kind, **options)
        assert size_of(stream.getvalue()) == (70, 41)
        assert kind == "GIF" or kind == "WEBP" or size_of(stream.getvalue()[:-5]) is None


def test_voyage_counts_pixels_and_tokens(server: ProviderServer) -> None:
    small, large = png(bytes(30), 5, 2), png(bytes(3 * 800 * 700), 800, 700)
    usage = embed(server, image(small), image(large), text("abcdefgh")).json()["usage"]
    pixels = 50_000 + 560_000
    assert usage == {"text_tokens": 2, "image_pixels": pixels, "total_tokens": 2 + -(-pixels // 560)}
    packed = embed(server, text("a"), output_encoding="base64", output_dimension=4).json()["data"][0]
    numbers = np.frombuffer(base64.b64decode(packed["embedding"]), "<f4")
    np.testing.assert_allclose(numbers, vectors(embed(server, text("a"), output_dimension=4))[0], atol=1e-6)


@pytest.mark.parametrize(
    ("inputs", "more", "words"),
    [
        ([], {}, "'inputs' is invalid"),
        ([{"content": []}], {}, "'inputs' is invalid"),
        ([{"content": [{"type": "text"}]}], {}, "'type' and the field"),
        ([{"content": [{"type": "image_url", "image_url": "http://a/b.png"}]}], {}, "fetches no pictures"),
        ([{"content": [{"type": "image_base64", "image_base64": "iVBOR"}]}], {}, "no data URL"),
        ([{"content": [{"type": "image_base64", "image_base64": url_of(b"x")}]}], {}, "not be decoded"),
        (
            [{"content": [{"type": "image_base64", "image_base64": "data:image/png;base64,&"}]}],
            {},
            "not valid base64",
        ),
        ([text("a")], {"input_type": "class"}, "'class'"),
        ([text("a")], {"output_encoding": "hex"}, "'hex'"),
        ([text("a")], {"encoding_format": "base64"}, "'encoding_format' is not supported"),
        ([text("a")] * 1001, {}, "batch size limit is 1000"),
        ([text("word " * 30_000)], {"truncation": False}, "too long"),
        ([text("word " * 20_000)] * 13, {}, "320000"),
        ([image(png(b"", 0, 0)[:16] + b"\0\0\x40\0\0\0\x40\0" + png(b"", 0, 0)[24:])], {}, "16000000 pixels"),
    ],
)
def test_voyage_refuses_what_it_does_not_take(
    server: ProviderServer, inputs: list[Any], more: dict[str, Any], words: str
) -> None:
    refused = embed(server, *inputs, **more)
    assert refused.status_code == 400
    assert words in refused.json()["detail"]
    assert server.billed() == 0


def test_a_long_text_is_cut_if_that_is_wanted(server: ProviderServer) -> None:
    assert embed(server, text("word " * 30_000)).json()["usage"]["text_tokens"] == 32_000


@pytest.mark.parametrize("kind", ["few_vectors", "many_vectors", "empty", "wrong_width", "nan", "shuffled"])
def test_faults_of_vectors_apply(server: ProviderServer, kind: str) -> None:
    whole = embed(server, text("a"), text("b")).json()["data"]
    server.add_fault(Fault(kind))
    assert embed(server, text("a"), text("b"), key="k").text != json.dumps(whole)
    spoiled = server.seen[-1].fault
    assert spoiled == kind
    if kind != "shuffled":
        assert embed(server, text("a"), text("b"), key="k").json()["data"] == whole


def test_too_large_counts_inputs(server: ProviderServer) -> None:
    server.add_fault(Fault("too_large", items=1, times=None))
    assert embed(server, text("a"), text("b")).status_code == 413
    assert embed(server, text("a")).status_code == 200


def test_a_server_that_runs_for_long_keeps_no_pictures() -> None:
    data = picture(PROMPT, 0, (1024, 1024))
    with ProviderServer() as whole, ProviderServer(keep=10) as lasting:
        for server in (whole, lasting):
            assert embed(server, image(data), text("a")).status_code == 200
        assert whole.seen[0].body["inputs"][0] == image(data)
        kept = lasting.seen[0].body["inputs"]
        assert kept[0]["content"][0]["image_base64"].startswith("sha256:")
        assert kept[1] == text("a")
        assert lasting.pictures() == 1


def test_none_of_this_needs_pillow() -> None:
    script = (
        "import adamab.testing.__main__, sys; from adamab.testing.provider_pictures import picture; "
        "picture('a', 0, (1024, 1024)); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {"PIL", "numpy", "httpx"} & set(done.stdout.split())
