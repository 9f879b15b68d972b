"""Pictures through Voyage's multimodal endpoint, against a server that speaks it and has its faults."""

from __future__ import annotations

import asyncio
import base64
import copy
import gc
import hashlib
import io
import json
import tracemalloc
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adamab.errors import ApiError, BudgetError, CacheError, EmbedderError, ImageError
from adamab.providers.budget import Budget
from adamab.providers.cache import CachedEmbedder, VectorCache
from adamab.providers.embedders import sent_pictures
from adamab.providers.embedders.base import Item
from adamab.providers.embedders.voyage import VoyageEmbedder
from adamab.providers.ledger import Ledger
from adamab.providers.prices import Price
from adamab.providers.registry import resolve_embedder
from adamab.task.images import Image, digest_of
from adamab.testing import Fault, ProviderServer, check_embedder
from adamab.testing.provider_pictures import picture

PIL = pytest.importorskip("PIL.Image", reason="Pillow is not installed (adamab[images])")
MODEL = "voyage-multimodal-3"
PATH = "/multimodalembeddings"
KEY = "pa-verysecretverysecret-9876"


@pytest.fixture
def server() -> Iterator[ProviderServer]:
    with ProviderServer(width=16) as running:
        yield running


def make(server: ProviderServer, **options: Any) -> VoyageEmbedder:
    given = {"batch": "4", "first_wait": "0.001", "longest_wait": "0.002", **options}
    written = "&".join(f"{option}={value}" for option, value in given.items())
    embedder = resolve_embedder(f"voyage:{MODEL}?base_url={server.url}/voyage/v1&{written}")
    assert isinstance(embedder, VoyageEmbedder)
    return embedder


def stored(path: Path, data: bytes) -> Image:
    path.write_bytes(data)
    return Image(digest_of(data), path)


def saved(path: Path, pixels: Any, kind: str, **options: Any) -> Image:
    stream = io.BytesIO()
    pixels.save(stream, kind, **options)
    return stored(path, stream.getvalue())


def noise(width: int, height: int, seed: int = 0) -> Any:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return PIL.fromarray(pixels)


@pytest.fixture
def images(tmp_path: Path) -> list[Image]:
    """Pictures of two classes, small PNGs."""
    names = ["cat"] * 6 + ["dog"] * 5
    return [stored(tmp_path / f"{name}{n}.png", picture(name, n, (256, 256))) for n, name in enumerate(names)]


def sent(server: ProviderServer) -> list[tuple[str, bytes]]:
    """Media type and bytes of each picture that was received, in order."""
    urls = [
        piece["image_base64"]
        for seen in server.seen
        for entry in seen.body["inputs"]
        for piece in entry["content"]
        if "image_base64" in piece
    ]
    parts = [url.partition(";base64,") for url in urls]
    return [(head, base64.b64decode(data, validate=True)) for head, _, data in parts]


def opened(data: bytes) -> Any:
    found = PIL.open(io.BytesIO(data))
    found.load()
    return found


def sizes(server: ProviderServer) -> list[int]:
    return [len(seen.body["inputs"]) for seen in server.seen]


def paid(embedder: VoyageEmbedder, budget: str | None = None) -> Ledger:
    embedder.api.ledger, embedder.api.price = Ledger(Budget.parse(budget)), Price(Decimal(1))
    return embedder.api.ledger


async def pooled(embedder: VoyageEmbedder, items: Sequence[Item], **more: Any) -> np.ndarray[Any, Any]:
    return (await embedder.embed(items, **more)).views["pooled"]


# What is asked


def test_the_models_name_decides() -> None:
    for model in (MODEL, "voyage-multimodal-3.5"):
        embedder = resolve_embedder(f"voyage:{model}")
        assert isinstance(embedder, VoyageEmbedder)
        assert (embedder.modalities, embedder.fingerprint) == ({"text", "image"}, f"voyage:{model}")
    assert resolve_embedder("voyage:voyage-3.5").modalities == {"text"}
    assert resolve_embedder(f"voyage:{MODEL}?dimensions=256").fingerprint == f"voyage:{MODEL}:256"


def test_conformance(server: ProviderServer, images: list[Image]) -> None:
    check_embedder(make(server), images=images)
    assert {seen.path for seen in server.seen} == {f"/voyage/v1{PATH}"}


async def test_text_models_still_take_no_pictures(server: ProviderServer, images: list[Image]) -> None:
    embedder = resolve_embedder(f"voyage:voyage-3.5?base_url={server.url}/voyage/v1")
    with pytest.raises(EmbedderError, match=r"voyage:voyage-3\.5 embeds no images"):
        await embedder.embed(images)
    assert server.count() == 0


def test_what_texts_are_asked_with_stays_as_it_was() -> None:
    """A run that is taken up by a later version is billed once only if its keys are the same."""
    embedder = VoyageEmbedder("voyage-3.5")
    (pack,) = embedder._packs(["a", "täglich"])
    call = embedder._call(pack, "query")
    assert json.dumps(call.body, ensure_ascii=False) == (
        '{"model": "voyage-3.5", "input": ["a", "täglich"], "input_type": "query", "truncation": false, '
        '"encoding_format": "base64"}'
    )
    asked = json.dumps(["voyage:voyage-3.5", call.body], sort_keys=True)
    assert call.idempotency_key == hashlib.sha256(asked.encode()).hexdigest()


async def test_pictures_are_packed_and_order_is_kept(server: ProviderServer, images: list[Image]) -> None:
    alone = [await pooled(make(server), [image]) for image in images]
    server.reset()
    server.jitter = 0.02  # answers come back in another order than they were asked for
    found = await pooled(make(server), [*images, images[0]])
    np.testing.assert_array_equal(found, np.concatenate([*alone, alone[0]]))
    assert sorted(sizes(server), reverse=True) == [4, 4, 3]
    assert (server.billed(PATH), server.pictures(PATH)) == (3, 11)
    assert found[0] @ found[1] > 0.6 > found[0] @ found[-2], "the server looks at the colours"


async def test_a_picture_is_a_document_and_the_wording_of_a_class_a_query(
    server: ProviderServer, images: list[Image]
) -> None:
    embedder = make(server)
    await embedder.embed(images[:1])
    await embedder.embed(["a cat"], kind="class")
    first, second = (seen.body for seen in server.seen)
    assert (first["input_type"], second["input_type"]) == ("document", "query")
    assert (first["model"], first["truncation"], first["output_encoding"]) == (MODEL, False, "base64")
    assert first["inputs"][0]["content"][0]["type"] == "image_base64"
    assert second["inputs"] == [{"content": [{"type": "text", "text": "a cat"}]}]


async def test_texts_and_pictures_may_be_mixed(server: ProviderServer, images: list[Image]) -> None:
    embedder = make(server)
    found = await pooled(embedder, [images[0], "a cat", "", images[1]])
    apart = [await pooled(embedder, [item]) for item in (images[0], "a cat", "", images[1])]
    np.testing.assert_array_equal(found, np.concatenate(apart))
    assert server.seen[0].body["inputs"][2] == {"content": [{"type": "text", "text": "."}]}


async def test_a_text_that_is_too_long_is_cut_and_flagged(server: ProviderServer) -> None:
    answer = await make(server).embed(["short", "word " * 40_000])
    assert answer.overlong.tolist() == [False, True]


async def test_dimensions(server: ProviderServer, images: list[Image]) -> None:
    server.idempotent = False
    assert (await pooled(make(server, dimensions=4), images)).shape == (11, 4)
    server.add_fault(Fault("wrong_width", times=None))
    with pytest.raises(ApiError, match="another width than 4"):
        await make(server, dimensions=4).embed(images)
    server.clear_faults()
    with pytest.raises(EmbedderError, match="leave out dimensions=9999"):
        await make(server, dimensions=9999).embed(images[:1])


# What is sent of a picture


async def test_lossless_pictures_arrive_pixel_by_pixel(server: ProviderServer, tmp_path: Path) -> None:
    pixels = noise(40, 30)
    kinds = {"PNG": ".png", "BMP": ".bmp", "TIFF": ".tif"}
    found = [saved(tmp_path / f"a{ending}", pixels, kind) for kind, ending in kinds.items()]
    found.append(saved(tmp_path / "a.gif", pixels.quantize(), "GIF"))
    await make(server).embed(found)
    arrived = sent(server)
    assert [head for head, _ in arrived] == ["data:image/png"] * 4
    for _, data in arrived[:3]:
        np.testing.assert_array_equal(np.array(opened(data)), np.array(pixels))
    assert opened(arrived[3][1]).mode == "RGB"


async def test_lossy_pictures_arrive_as_jpeg_with_hardly_a_change(
    server: ProviderServer, tmp_path: Path
) -> None:
    pixels = PIL.effect_mandelbrot((200, 120), (-2, -1.5, 1, 1.5), 60).convert("RGB")
    found = [saved(tmp_path / "a.jpg", pixels, "JPEG"), saved(tmp_path / "a.webp", pixels, "WEBP")]
    found.append(saved(tmp_path / "cmyk.jpg", pixels.convert("CMYK"), "JPEG"))
    found.append(saved(tmp_path / "named.png", pixels.convert("L"), "JPEG"))
    await make(server).embed(found)
    for (head, data), image in zip(sent(server), found, strict=True):
        assert head == "data:image/jpeg"
        with PIL.open(image.path) as original:
            before = np.array(original.convert("RGB"), float)
        assert np.abs(np.array(opened(data), float) - before).mean() < 2


async def test_only_pixels_leave_the_machine(server: ProviderServer, tmp_path: Path) -> None:
    from PIL import PngImagePlugin

    exif = PIL.Exif()
    exif[0x010F] = "SECRETMAKER"
    exif.get_ifd(0x8825)[29] = "SECRETGPS"
    notes = PngImagePlugin.PngInfo()
    notes.add_text("Author", "SECRETAUTHOR")
    notes.add_itxt("XML:com.adobe.xmp", "<x>SECRETXMP</x>")
    pixels, profile = noise(40, 30), b"SECRETPROFILE" * 20
    found = [
        saved(tmp_path / "a.jpg", pixels, "JPEG", exif=exif, comment=b"SECRETCOMMENT", icc_profile=profile),
        saved(tmp_path / "b.png", pixels, "PNG", exif=exif, pnginfo=notes, icc_profile=profile),
        saved(tmp_path / "c.webp", pixels, "WEBP", exif=exif, xmp=b"SECRETXMP", icc_profile=profile),
        saved(tmp_path / "d.gif", pixels.quantize(), "GIF", comment=b"SECRETCOMMENT"),
    ]
    tail = found[0].path.read_bytes() + b"SECRETTRAILER"
    found[0] = stored(found[0].path, tail)
    assert all(b"SECRET" in image.path.read_bytes() for image in found)
    await make(server).embed(found)
    arrived = sent(server)
    assert len(arrived) == 4
    for _, data in arrived:
        assert b"SECRET" not in data
        assert not opened(data).getexif()
        assert not {"icc_profile", "comment", "xmp", "exif"} & set(opened(data).info)
    assert str(tmp_path) not in repr([seen.body for seen in server.seen]), "nor where the file lies"


@pytest.mark.parametrize("size", [(40, 20), (2000, 1500)])
async def test_turned_pictures_arrive_upright(
    server: ProviderServer, tmp_path: Path, size: tuple[int, int]
) -> None:
    pixels = PIL.new("RGB", size, "red")
    pixels.paste("blue", (0, 0, size[0] // 2, size[1]))  # the left half
    exif = PIL.Exif()
    exif[0x0112] = 6  # to be turned to the right: the left half becomes the upper one
    await make(server).embed([saved(tmp_path / "a.jpg", pixels, "JPEG", exif=exif)])
    found = opened(sent(server)[0][1])
    assert found.height > found.width
    assert found.getpixel((found.width // 2, 2))[2] > 200
    assert found.getpixel((found.width // 2, found.height - 3))[0] > 200


async def test_large_pictures_are_shrunk_before_they_are_sent(server: ProviderServer, tmp_path: Path) -> None:
    plain = PIL.new("RGB", (6000, 3000), "green")  # more than the service takes
    found = [
        saved(tmp_path / "a.jpg", plain, "JPEG"),
        saved(tmp_path / "b.png", plain, "PNG"),
        saved(tmp_path / "thin.png", PIL.new("RGB", (4_000_000, 1)), "PNG"),
    ]
    answer = await make(server).embed(found)
    assert not answer.overlong.any(), "the service would have done the same"
    shapes = sorted(opened(data).size for _, data in sent(server))
    assert shapes == [(2000, 1000), (2000, 1000), (65_500, 1)]
    assert {head for head, _ in sent(server)} == {"data:image/jpeg"}


# How much a request takes, and what it may cost


def test_packs_by_number_tokens_and_bytes(tmp_path: Path) -> None:
    def packs(count: int, width: int, height: int, kind: str, **options: Any) -> list[int]:
        image = saved(tmp_path / f"a.{kind}", PIL.new("RGB", (width, height)), kind)
        return [len(pack.rows) for pack in VoyageEmbedder(MODEL, **options)._packs([image] * count)]

    assert packs(1100, 10, 10, "PNG") == [1000, 100]
    assert packs(9, 10, 10, "PNG", batch=4) == [4, 4, 1]
    assert packs(40, 10, 10, "PNG", base_url="http://localhost:1/v1") == [32, 8]
    assert packs(7, 500, 500, "PNG") == [2, 2, 2, 1], "1 MB each as base64, 2 MB a request"
    assert packs(7, 500, 500, "JPEG") == [6, 1]
    assert packs(2, 3000, 2000, "JPEG") == [1, 1], "one at least"
    embedder = VoyageEmbedder(MODEL)
    image = saved(tmp_path / "b.jpg", PIL.new("RGB", (10, 10)), "JPEG")
    texts = ["x" * 90_000] * 10  # of 30 001 tokens each
    packs_of = [len(pack.rows) for pack in embedder._packs([*texts, *[image] * 300])]
    assert packs_of == [10 + 222, 78], "90 tokens for a picture, 320 000 a request"


async def test_the_bound_holds_for_what_is_billed(
    server: ProviderServer, tmp_path: Path, images: list[Image]
) -> None:
    large = saved(tmp_path / "large.png", noise(900, 700), "PNG")
    items: list[Item] = [*images, large, "a text"]
    planned = make(server).requests_for(items)
    embedder = make(server)
    ledger = paid(embedder)
    await embedder.embed(items)
    assert len(planned) == server.count()
    expected, most = (sum(usage[part].input_tokens for usage in planned) for part in (0, 1))
    spent = ledger.spent().input_tokens
    assert abs(spent - expected) <= len(items)
    assert expected < most
    assert spent <= most
    assert expected == 11 * 90 + 1125 + 2  # 50 000 pixels at least, 560 a token


def test_planning_reads_headers_only(
    server: ProviderServer, images: list[Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sent_pictures, "decoded", lambda *args, **more: pytest.fail("decoded a picture"))
    assert len(make(server).requests_for(images)) == 3
    assert server.count() == 0


@pytest.mark.slow
async def test_only_requests_under_way_hold_pictures(tmp_path: Path) -> None:
    """The peak is that of a few requests, however many there are."""
    found = [saved(tmp_path / f"{n}.png", noise(200, 200, n), "PNG") for n in range(36)]
    peaks = []
    with ProviderServer(width=16, keep=1) as server:
        for count in (4, 12, 36):  # the first pays for what is made once
            parts = make(server, batch=2, concurrency=2).parts(found[:count], kind="query", views=["pooled"])
            tracemalloc.start()
            async for _ in parts:
                gc.collect()  # httpx leaves each request in a ring
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    assert peaks[2] < 1.5 * peaks[1]


# Faults


@pytest.mark.parametrize(
    "fault",
    [
        Fault("status", times=3),
        Fault("status", retry_after=0.01),
        Fault("status", status=500),
        Fault("hang"),
        Fault("reset"),
        Fault("truncate"),
        Fault("garbage"),
        Fault("few_vectors"),
        Fault("many_vectors"),
        Fault("empty"),
        Fault("wrong_width", how="last"),
        Fault("nan"),
        Fault("nan", how="null"),
        Fault("shuffled", times=None),
        Fault("no_usage", times=None),
    ],
    ids=lambda fault: f"{fault.kind}{fault.how}{fault.status or ''}",
)
async def test_faults_that_pass_change_nothing(
    server: ProviderServer, images: list[Image], fault: Fault
) -> None:
    server.idempotent = False
    reference = await pooled(make(server), images)
    server.add_fault(fault)
    embedder = make(server, timeout=0.5 if fault.kind == "hang" else 10)
    ledger = paid(embedder)
    np.testing.assert_array_equal(await pooled(embedder, images), reference)
    assert ledger.spent().calls == server.count() - 3
    assert ledger.spent().unsettled == 0
    if fault.kind == "no_usage":
        most = sum(most.input_tokens for _, most in make(server).requests_for(images))
        assert ledger.spent().nano_usd == 1000 * most, "settled at the bound"


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Fault("few_vectors", times=None), "3 vectors for 4 pictures"),
        (Fault("many_vectors", times=None), "5 vectors for 4 pictures"),
        (Fault("empty", times=None), "0 vectors for 4 pictures"),
        (Fault("wrong_width", times=None, how="last"), "vectors that are not numbers of one width"),
        (Fault("wrong_width", times=None), "vectors of another width than 16"),
        (Fault("nan", times=None), "a vector that is not finite"),
        (Fault("garbage", times=None), "an answer that is no JSON"),
        (Fault("truncate", times=None), "an answer that is no JSON"),
        (Fault("reset", times=None), "the connection broke"),
    ],
    ids=str,
)
async def test_faults_that_stay_are_one_line(
    server: ProviderServer, images: list[Image], fault: Fault, message: str
) -> None:
    embedder = make(server)
    await embedder.embed(["the width is known now"])
    server.add_fault(fault)
    with pytest.raises(
        ApiError, match=rf"voyage: no .*answer after \d attempts \(last: {message}\); "
    ) as caught:
        await embedder.embed(images[:4])
    assert "\n" not in str(caught.value)


async def test_the_key_is_in_no_message(images: list[Image], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOYAGE_API_KEY", KEY)
    with ProviderServer(key="another") as server:
        with pytest.raises(ApiError, match="the key in VOYAGE_API_KEY was refused") as caught:
            await make(server).embed(images)
        assert server.seen[0].has_key
    for part in (KEY, KEY[:8], KEY[-4:]):
        assert part not in f"{caught.value!s} {caught.value!r} {make(server)!s} {make(server).api!r}"
    monkeypatch.delenv("VOYAGE_API_KEY")
    with pytest.raises(ApiError, match="no key; set VOYAGE_API_KEY"):
        await VoyageEmbedder(MODEL).embed(images)


# Pictures that are no good


@pytest.mark.parametrize("limit", [{"items": 1}, {"bytes": 1500}, {"items": 3, "status": 400}])
async def test_what_is_too_large_is_split(
    server: ProviderServer, images: list[Image], limit: dict[str, int]
) -> None:
    reference = await pooled(make(server), images)
    server.add_fault(Fault("too_large", times=None, **limit))  # type: ignore[arg-type]
    answer = await make(server).embed(images)
    np.testing.assert_array_equal(answer.views["pooled"], reference)
    assert not answer.overlong.any()


async def test_a_picture_that_is_too_large_by_itself_is_shrunk_and_flagged(
    server: ProviderServer, tmp_path: Path, images: list[Image]
) -> None:
    large = saved(tmp_path / "large.png", noise(600, 400), "PNG")
    server.add_fault(Fault("too_large", times=None, bytes=60_000))
    answer = await make(server).embed([images[0], large, images[1]])
    assert answer.overlong.tolist() == [False, True, False]
    shrunk = [opened(data).size for _, data in sent(server) if opened(data).format == "JPEG"]
    assert shrunk == [(300, 200), (150, 100)]


async def test_a_picture_that_stays_too_large_is_named(
    server: ProviderServer, tmp_path: Path, images: list[Image]
) -> None:
    large = saved(tmp_path / "large.png", noise(600, 400), "PNG")
    server.add_fault(Fault("too_large", times=None, contains="image/jpeg"))
    server.add_fault(Fault("too_large", times=None, bytes=100_000))
    with pytest.raises(
        EmbedderError, match=r"large\.png: is refused as too large even at 75x50 pixels"
    ) as caught:
        await make(server).embed([images[0], large])
    assert str(caught.value).startswith(f"voyage:{MODEL}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault("refusal_status", times=None), "declines on grounds of content (400)"),
        (Fault("status", status=400, times=None), "refuses the request to model"),
        (Fault("status", status=422, times=None), "refuses the request to model"),
    ],
    ids=["content", "unreadable", "unprocessable"],
)
async def test_a_picture_that_is_refused_is_named_and_the_others_are_kept(
    server: ProviderServer, tmp_path: Path, images: list[Image], fault: Fault, words: str
) -> None:
    bad = sent_pictures.sent_picture(images[5], 10**6).data_url()[-60:]
    server.add_fault(Fault(fault.kind, status=fault.status, times=None, contains=bad))
    cached = CachedEmbedder(make(server, concurrency=1), VectorCache(tmp_path / "v.sqlite", strict=True))
    with pytest.raises(EmbedderError) as caught:
        await cached.embed(images)
    assert f"{images[5].path}: voyage: {words}" in str(caught.value)
    assert str(caught.value).endswith("replace it or leave it out")
    assert "\n" not in str(caught.value)
    (entry,) = cached.cache.entries()
    assert entry.rows == server.pictures(PATH) == 5, "those before it"


async def test_wrong_parameters_are_not_blamed_on_a_picture(
    server: ProviderServer, images: list[Image]
) -> None:
    server.add_fault(Fault("no_schema"))
    embedder = make(server)
    embedder.model = "no-such-model"
    with pytest.raises(ApiError, match="no model 'voyage-multimodal-3' at") as caught:
        await embedder.embed(images)
    assert images[0].path.name not in str(caught.value)


async def test_broken_files_are_named(server: ProviderServer, tmp_path: Path, images: list[Image]) -> None:
    whole = images[0].path.read_bytes()
    broken = {
        "text.png": b"this is no picture",
        "head.png": whole[:20],
        "cut.png": whole[: len(whole) // 2],
        "empty.png": b"",
    }
    for name, data in broken.items():
        server.reset()
        with pytest.raises(ImageError, match=name) as caught:
            await make(server).embed([images[1], stored(tmp_path / name, data)])
        assert "\n" not in str(caught.value)
        assert server.count() == 0, "and nothing is paid for a request that cannot be made"
    with pytest.raises(ImageError, match=r"gone\.png: no such file"):
        await make(server).embed([Image("0" * 64, tmp_path / "gone.png")])


# Money


async def test_an_answer_that_got_lost_is_not_billed_twice(
    server: ProviderServer, images: list[Image]
) -> None:
    server.add_fault(Fault("reset"))
    await make(server).embed(images[:4])
    assert (server.count(), server.billed()) == (2, 1)
    await make(server).embed(images[:4])  # as after a crash
    assert (server.count(), server.billed(), server.pictures()) == (3, 1, 4)


async def test_the_budget_stops_in_time(server: ProviderServer, tmp_path: Path, images: list[Image]) -> None:
    inner = make(server, batch=1)
    cached = CachedEmbedder(inner, VectorCache(tmp_path / "v.sqlite"))
    paid(inner, "7 calls")
    with pytest.raises(BudgetError, match="7 calls"):
        await cached.embed(images)
    assert server.count() == 7
    (entry,) = cached.cache.entries()
    assert entry.rows == 7, "and what it bought is kept"
    answer = await CachedEmbedder(make(server, batch=1), cached.cache).embed(images)
    assert len(answer.views["pooled"]) == 11
    assert (server.pictures(), server.repeated()) == (11, 0)


async def test_nothing_is_paid_for_what_cannot_be_stored(
    server: ProviderServer, tmp_path: Path, images: list[Image]
) -> None:
    with pytest.raises(CacheError):
        await CachedEmbedder(make(server), VectorCache(tmp_path, strict=True)).embed(images)
    assert server.count() == 0


class Died(BaseException):
    """A process that ends here writes nothing more."""


class DyingLedger(Ledger):
    """Its process ends just before its second call is settled."""

    calls = 0

    def settle(self, *args: Any) -> None:
        self.calls += 1
        if self.calls == 2:
            raise Died
        super().settle(*args)


async def test_what_is_bought_is_stored_before_it_is_settled(
    server: ProviderServer, tmp_path: Path, images: list[Image]
) -> None:
    server.idempotent = False  # whatever is asked for again is billed again
    inner = make(server, concurrency=1)
    inner.api.ledger = DyingLedger(path=tmp_path / "ledger.sqlite")
    cache = VectorCache(tmp_path / "v.sqlite", strict=True)
    with pytest.raises(Died):
        await CachedEmbedder(inner, cache).embed(images)
    assert cache.entries()[0].rows == 8
    answer = await CachedEmbedder(make(server), cache).embed(images)
    np.testing.assert_array_equal(answer.views["pooled"], await pooled(make(server, batch=11), images))
    assert server.pictures() == 11 + 11


async def test_a_cancelled_task_gives_up_what_is_on_its_way(
    server: ProviderServer, images: list[Image]
) -> None:
    server.add_fault(Fault("hang", times=None))
    embedder = make(server)
    ledger = paid(embedder)
    task = asyncio.create_task(embedder.embed(images))
    while server.count() < 3:
        await asyncio.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (ledger.spent().calls, ledger.spent().unsettled) == (3, 0)


async def test_copies_embed_alike(server: ProviderServer, images: list[Image]) -> None:
    embedder = make(server)
    np.testing.assert_array_equal(
        await pooled(embedder, images), await pooled(copy.deepcopy(embedder), images)
    )
