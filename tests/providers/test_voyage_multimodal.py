"""Images through Voyage's multimodal endpoint, against a server that speaks it and has its faults."""

import base64
import io
from decimal import Decimal

import numpy as np
import pytest

from adamab.errors import EmbedderError, ImageError
from adamab.providers.cache import CachedEmbedder, VectorCache
from adamab.providers.embedders import api as sent_images
from adamab.providers.embedders.api import VoyageEmbedder
from adamab.providers.metering import Budget, Ledger, Price
from adamab.providers.registry import resolve_embedder
from adamab.task.images import Image, digest_of
from adamab.testing import Fault, check_embedder
from adamab.testing._provider_endpoints import draw_image as sample_image

PIL = pytest.importorskip("PIL.Image", reason="Pillow is not installed (adamab[images])")
MODEL = "voyage-multimodal-3"
PATH = "/multimodalembeddings"


def make(server, **options):
    given = {"batch": "4", "first_wait": "0.001", "longest_wait": "0.002", **options}
    written = "&".join(f"{option}={value}" for option, value in given.items())
    embedder = resolve_embedder(f"voyage:{MODEL}?base_url={server.url}/voyage/v1&{written}")
    assert isinstance(embedder, VoyageEmbedder)
    return embedder


def stored(path, data):
    path.write_bytes(data)
    return Image(digest_of(data), path)


def saved(path, pixels, kind, **options):
    stream = io.BytesIO()
    pixels.save(stream, kind, **options)
    return stored(path, stream.getvalue())


def noise(width, height, seed=0):
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return PIL.fromarray(pixels)


@pytest.fixture
def images(tmp_path):
    """Images of two classes, small PNGs."""
    names = ["cat"] * 6 + ["dog"] * 5
    return [
        stored(tmp_path / f"{name}{n}.png", sample_image(name, n, (256, 256))) for n, name in enumerate(names)
    ]


def sent(server):
    """Media type and bytes of each image that was received, in order."""
    urls = [
        piece["image_base64"]
        for seen in server.seen
        for entry in seen.body["inputs"]
        for piece in entry["content"]
        if "image_base64" in piece
    ]
    parts = [url.partition(";base64,") for url in urls]
    return [(head, base64.b64decode(data, validate=True)) for head, _, data in parts]


def opened(data):
    image = PIL.open(io.BytesIO(data))
    image.load()
    return image


def sizes(server):
    return [len(seen.body["inputs"]) for seen in server.seen]


def paid(embedder, budget=None):
    embedder.api.ledger, embedder.api.price = Ledger(Budget.parse(budget)), Price(Decimal(1))
    return embedder.api.ledger


async def pooled(embedder, items, **more):
    return (await embedder.embed(items, **more)).views["pooled"]


# What is asked


async def test_the_models_name_decides(images):
    for model in (MODEL, "voyage-multimodal-3.5"):
        embedder = resolve_embedder(f"voyage:{model}")
        assert isinstance(embedder, VoyageEmbedder)
        assert (embedder.modalities, embedder.fingerprint) == ({"text", "image"}, f"voyage:{model}")
    with pytest.raises(EmbedderError, match=r"voyage:voyage-3\.5 embeds no images"):
        await resolve_embedder("voyage:voyage-3.5").embed(images)
    assert resolve_embedder(f"voyage:{MODEL}?dimensions=256").fingerprint == f"voyage:{MODEL}:256"


def test_conformance(server, images):
    check_embedder(make(server), images=images)
    assert {seen.path for seen in server.seen} == {f"/voyage/v1{PATH}"}


async def test_images_are_packed_and_order_is_kept(server, images):
    alone = [await pooled(make(server), [image]) for image in images]
    server.reset()
    server.jitter = 0.02  # answers come back in another order than they were asked for
    vectors = await pooled(make(server), [*images, images[0], ""])
    np.testing.assert_array_equal(vectors[:-1], np.concatenate([*alone, alone[0]]))
    assert sorted(sizes(server), reverse=True) == [4, 4, 4]
    assert (server.billed(PATH), server.images(PATH)) == (3, 11)
    sent_inputs = [entry for seen in server.seen for entry in seen.body["inputs"]]
    assert {"content": [{"type": "text", "text": "."}]} in sent_inputs, "nothing is empty"


async def test_a_image_is_a_document_and_the_wording_of_a_class_a_query(server, images):
    embedder = make(server)
    await embedder.embed(images[:1])
    await embedder.embed(["a cat"], kind="class")
    first, second = (seen.body for seen in server.seen)
    assert (first["input_type"], second["input_type"]) == ("document", "query")
    assert (first["model"], first["truncation"], first["output_encoding"]) == (MODEL, False, "base64")
    assert first["inputs"][0]["content"][0]["type"] == "image_base64"
    assert second["inputs"] == [{"content": [{"type": "text", "text": "a cat"}]}]


# What is sent of an image


async def test_lossless_images_arrive_pixel_by_pixel(server, tmp_path):
    pixels = noise(40, 30)
    kinds = {"PNG": ".png", "BMP": ".bmp", "TIFF": ".tif"}
    files = [saved(tmp_path / f"a{ending}", pixels, kind) for kind, ending in kinds.items()]
    files.append(saved(tmp_path / "a.gif", pixels.quantize(), "GIF"))
    files.append(saved(tmp_path / "named.png", pixels, "JPEG", quality=95))
    await make(server, batch=5).embed(files)
    arrived = sent(server)
    assert [head for head, _ in arrived[:4]] == ["data:image/png"] * 4
    assert arrived[4][0] == "data:image/jpeg", "what was lossy before"
    lossy = np.array(opened(files[4].path.read_bytes()), float)
    assert np.abs(np.array(opened(arrived[4][1]), float) - lossy).mean() < 4  # noise, the worst case
    for _, data in arrived[:3]:
        np.testing.assert_array_equal(np.array(opened(data)), np.array(pixels))
    assert opened(arrived[3][1]).mode == "RGB"


async def test_only_pixels_leave_the_machine(server, tmp_path):
    from PIL import PngImagePlugin

    exif = PIL.Exif()
    exif[0x010F] = "SECRETMAKER"
    exif.get_ifd(0x8825)[29] = "SECRETGPS"
    notes = PngImagePlugin.PngInfo()
    notes.add_text("Author", "SECRETAUTHOR")
    notes.add_itxt("XML:com.adobe.xmp", "<x>SECRETXMP</x>")
    pixels, profile = noise(40, 30), b"SECRETPROFILE" * 20
    files = [
        saved(tmp_path / "a.jpg", pixels, "JPEG", exif=exif, comment=b"SECRETCOMMENT", icc_profile=profile),
        saved(tmp_path / "b.png", pixels, "PNG", exif=exif, pnginfo=notes, icc_profile=profile),
        saved(tmp_path / "c.webp", pixels, "WEBP", exif=exif, xmp=b"SECRETXMP", icc_profile=profile),
        saved(tmp_path / "d.gif", pixels.quantize(), "GIF", comment=b"SECRETCOMMENT"),
    ]
    tail = files[0].path.read_bytes() + b"SECRETTRAILER"
    files[0] = stored(files[0].path, tail)
    assert all(b"SECRET" in image.path.read_bytes() for image in files)
    await make(server).embed(files)
    arrived = sent(server)
    assert len(arrived) == 4
    for _, data in arrived:
        assert b"SECRET" not in data
        assert not opened(data).getexif()
        assert not {"icc_profile", "comment", "xmp", "exif"} & set(opened(data).info)
    assert str(tmp_path) not in repr([seen.body for seen in server.seen]), "nor where the file lies"


async def test_large_images_are_shrunk_before_they_are_sent(server, tmp_path):
    plain = PIL.new("RGB", (6000, 3000), "green")  # more than the service takes
    files = [
        saved(tmp_path / "a.jpg", plain, "JPEG"),
        saved(tmp_path / "b.png", plain, "PNG"),
        saved(tmp_path / "thin.png", PIL.new("RGB", (4_000_000, 1)), "PNG"),
    ]
    answer = await make(server).embed(files)
    assert not answer.overlong.any(), "the service would have done the same"
    shapes = sorted(opened(data).size for _, data in sent(server))
    assert shapes == [(2000, 1000), (2000, 1000), (65_500, 1)]
    assert {head for head, _ in sent(server)} == {"data:image/jpeg"}


# How much a request takes, and what it may cost


async def test_the_bound_holds_for_what_is_billed(server, tmp_path, images):
    large = saved(tmp_path / "large.png", noise(900, 700), "PNG")
    items = [*images, large, "a text"]
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


# Images that the service refuses


async def test_a_image_that_is_too_large_by_itself_is_shrunk_and_flagged(server, tmp_path, images):
    large = saved(tmp_path / "large.png", noise(600, 400), "PNG")
    server.add_fault(Fault("too_large", times=None, bytes=60_000))
    answer = await make(server).embed([images[0], large, images[1]])
    assert answer.overlong.tolist() == [False, True, False]
    shrunk = [opened(data).size for _, data in sent(server) if opened(data).format == "JPEG"]
    assert shrunk == [(300, 200), (150, 100)]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault("refusal_status", times=None), "declines on grounds of content (400)"),
        (Fault("status", status=400, times=None), "refuses the request to model"),
        (Fault("status", status=422, times=None), "refuses the request to model"),
    ],
    ids=["content", "unreadable", "unprocessable"],
)
async def test_a_image_that_is_refused_is_named_and_the_others_are_kept(
    server, tmp_path, images, fault, words
):
    bad = sent_images.sent_image(images[5], 10**6).data_url()[-60:]
    server.add_fault(Fault(fault.kind, status=fault.status, times=None, contains=bad))
    cached = CachedEmbedder(make(server, concurrency=1), VectorCache(tmp_path / "v.sqlite", strict=True))
    with pytest.raises(EmbedderError) as caught:
        await cached.embed(images)
    assert f"{images[5].path}: voyage: {words}" in str(caught.value)
    assert str(caught.value).endswith("replace it or leave it out")
    assert "\n" not in str(caught.value)
    (entry,) = cached.cache.entries()
    assert entry.rows == server.images(PATH) == 5, "those before it"


async def test_broken_files_are_named(server, tmp_path, images):
    whole = images[0].path.read_bytes()
    broken = {
        "text.png": b"this is no image",
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
