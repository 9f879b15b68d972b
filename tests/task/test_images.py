"""Whatever the bytes are: pixels in RGB, or one line that names the file."""

import io
import random
import struct
import subprocess
import sys
import zlib

import numpy as np
import pytest

from adamab.errors import ImageError
from adamab.task.image_folders import image_at
from adamab.task.images import LARGEST_FILE, decoded, decoded_bytes, ending_of, header

PIL = pytest.importorskip("PIL", reason="the extra images is not installed")
from PIL import Image as Pillow  # noqa: E402
from PIL import features  # noqa: E402

RED, WHITE = (255, 0, 0), (255, 255, 255)
FORMATS = {"JPEG": ".jpg", "PNG": ".png", "WEBP": ".webp", "GIF": ".gif", "BMP": ".bmp", "TIFF": ".tif"}
FORMATS |= {"PPM": ".ppm"} | ({"AVIF": ".avif"} if features.check("avif") else {})


def encoded(sample_image, kind="PNG", **options):
    stream = io.BytesIO()
    sample_image.save(stream, kind, **options)
    return stream.getvalue()


def corners(width=40, height=20):
    """Red at the top left, else blue: tells every turn and flip apart."""
    sample_image = Pillow.new("RGB", (width, height), (0, 0, 255))
    sample_image.paste(RED, (0, 0, width // 4, height // 2))
    return sample_image


def noise(width=48, height=40):
    values = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Pillow.fromarray(values)


def refusal(data, name="a.jpg"):
    with pytest.raises(ImageError) as caught:
        decoded_bytes(data, name)
    message = str(caught.value)
    assert message.startswith(f"{name}: ")
    assert "\n" not in message
    assert "; " in message
    assert len(message) < 250
    return message


def near(pixel, expected, by=6):
    return all(abs(a - b) <= by for a, b in zip(pixel, expected, strict=True))


def png_chunks(*chunks):
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + body


def png_header(width, height, bits=8, colour=2):
    return b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)


def tiled_tiff(side):
    """16 × 16 pixels of grey in one deflated tile that says it has another side."""
    body = zlib.compress(b"\x5a" * 256)
    tags = {256: 16, 257: 16, 258: 8, 259: 8, 262: 1, 277: 1, 322: side, 323: side, 324: 8, 325: len(body)}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    return (
        b"II*\0"
        + struct.pack("<I", 8 + len(body))
        + body
        + struct.pack("<H", len(tags))
        + entries
        + b"\0" * 4
    )


class TestFormats:
    @pytest.mark.parametrize("kind", FORMATS)
    def test_every_format_under_any_ending(self, kind, tmp_path):
        path = tmp_path / "wrong.jpg"
        path.write_bytes(encoded(corners(), kind))
        for source in (path, image_at(path)):
            sample_image = decoded(source)
            assert (sample_image.mode, sample_image.size) == ("RGB", (40, 20))
            assert near(sample_image.getpixel((2, 2)), RED, 40)
        assert ending_of(path.read_bytes()) == FORMATS[kind]

    @pytest.mark.parametrize("kind", ["EPS", "ICO", "TGA", "PCX", "PDF"])
    def test_no_other_format_is_opened(self, kind):
        data = encoded(corners(32, 32), kind)
        assert "is no image in JPEG" in refusal(data)
        with pytest.raises(ImageError, match="is no image"):
            ending_of(data)

    @pytest.mark.parametrize("data", [b"hello, world", b"<svg></svg>", b"<html>", b"\0" * 100, b"x"])
    def test_what_is_no_image(self, data):
        assert "is no image" in refusal(data)


class TestModes:
    @pytest.mark.parametrize(("mode", "value", "expected"), [
        ("1", 1, WHITE),
        ("L", 90, (90, 90, 90)),
        ("LA", (90, 255), (90, 90, 90)),
        ("LA", (90, 0), WHITE),
        ("RGBA", (255, 0, 0, 0), WHITE),
        ("RGBA", (255, 0, 0, 51), (255, 204, 204)),
        ("P", 0, (0, 0, 0)),
        ("I;16", 32896, (128, 128, 128)),
        ("I;16", 65535, WHITE),
        ("I;16", 700, (3, 3, 3)),
    ])  # fmt: skip
    def test_of_a_png(self, mode, value, expected):
        sample_image = decoded_bytes(encoded(Pillow.new(mode, (3, 2), value)), "a.png")
        assert sample_image.mode == "RGB"
        assert sample_image.getpixel((1, 1)) == expected

    def test_palette_with_transparency(self):
        palette = Pillow.new("P", (4, 1))
        palette.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255])
        palette.putdata([0, 1, 2, 0])
        one = decoded_bytes(encoded(palette, transparency=0), "a")
        assert [one.getpixel((x, 0)) for x in range(3)] == [WHITE, (0, 255, 0), (0, 0, 255)]
        several = decoded_bytes(encoded(palette, transparency=b"\xff\x00\x33"), "a")
        assert [several.getpixel((x, 0)) for x in range(3)] == [RED, WHITE, (204, 204, 255)]
        gif = decoded_bytes(encoded(palette, "GIF", transparency=0), "a")
        assert gif.getpixel((0, 0)) == WHITE

    @pytest.mark.parametrize(("mode", "values", "expected"), [
        ("F", [0.0, 0.5, 1.0], [0, 128, 255]),
        ("F", [-3.0, 0.0, 3.0], [0, 128, 255]),
        ("F", [float("nan"), float("inf"), 0.0], [0, 255, 0]),
        ("F", [7.0, 7.0, 7.0], [128, 128, 128]),
        ("I", [0, 32768, 65535], [0, 128, 255]),
        ("I", [0, 10**6, 2 * 10**6], [0, 128, 255]),
        ("I", [-5, 0, 5], [0, 128, 255]),
    ])  # fmt: skip
    def test_more_than_eight_bits_in_a_tiff(self, mode, values, expected):
        sample_image = Pillow.new(mode, (3, 1))
        sample_image.putdata(values)
        result = decoded_bytes(encoded(sample_image, "TIFF"), "a")
        assert near([result.getpixel((x, 0))[0] for x in range(3)], expected, 1)


class TestFrames:
    @pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF", "MPO"])
    def test_the_first_one(self, kind):
        frames = [Pillow.new("RGB", (16, 16), colour) for colour in (RED, (0, 255, 0))]
        data = encoded(frames[0], kind, save_all=True, append_images=frames[1:])
        assert near(decoded_bytes(data, "a").getpixel((8, 8)), RED)
        assert ending_of(data) in {".gif", ".webp", ".png", ".tif", ".jpg"}

    @pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
    @pytest.mark.parametrize("orientation", range(1, 9))
    def test_upright(self, kind, orientation):
        exif = Pillow.Exif()
        exif[0x0112] = orientation
        sample_image = decoded_bytes(encoded(corners(), kind, exif=exif), "a")
        assert sample_image.size == ((40, 20) if orientation < 5 else (20, 40))
        right, bottom = sample_image.width - 3, sample_image.height - 3
        places = {"top left": (2, 2), "top right": (right, 2), "bottom right": (right, bottom)}
        places["bottom left"] = (2, bottom)
        red = [where for where, pixel in places.items() if near(sample_image.getpixel(pixel), RED, 40)]
        assert red == [list(places)[(orientation - 1) % 4]]  # as the EXIF standard lists them

    def test_a_damaged_note_on_the_orientation_is_no_reason_to_refuse(self):
        data = encoded(corners(), "JPEG", exif=b"Exif\0\0II*\0\x08\0\0\0\xff\xff garbage")
        assert decoded_bytes(data, "a").size == (40, 20)


class TestSizes:
    @pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF"])
    def test_least_side(self, kind):
        data = encoded(corners(1200, 900), kind)
        small = decoded_bytes(data, "a", least_side=50)
        assert 50 <= min(small.size) <= 225
        assert abs(small.width / small.height - 4 / 3) < 0.03
        assert near(small.getpixel((2, 2)), RED, 10)
        assert decoded_bytes(data, "a", least_side=900).size == (1200, 900)
        assert decoded_bytes(data, "a", least_side=5000).size == (1200, 900)
        assert decoded_bytes(data, "a").size == (1200, 900)


class TestBombs:
    @pytest.mark.parametrize("side", [10_001, 13_000, 60_000])  # below, between and above Pillow's own bounds
    def test_the_header_is_enough(self, side):
        header = png_chunks(png_header(side, side), (b"IDAT", zlib.compress(b"")), (b"IEND", b""))
        bmp = bytearray(encoded(corners(), "BMP"))
        bmp[18:26] = struct.pack("<ii", side, side)
        gif = bytearray(encoded(corners(), "GIF"))
        gif[6:10] = struct.pack("<HH", side, side)
        jpeg = bytearray(encoded(corners(), "JPEG"))
        frame = jpeg.index(b"\xff\xc0")
        jpeg[frame + 5 : frame + 9] = struct.pack(">HH", side, side)
        for data in (header, bmp, gif, jpeg, b"P6 %d %d 255\n" % (side, side)):
            assert "more than 89 million pixels" in refusal(bytes(data))

    def test_webp_and_tiff(self):
        side = 16_000
        canvas = b"VP8X" + struct.pack("<I", 10) + b"\0" * 4 + (struct.pack("<I", side - 1)[:3]) * 2
        still = encoded(corners(), "WEBP")[12:]
        webp = b"RIFF" + struct.pack("<I", 4 + len(canvas) + len(still)) + b"WEBP" + canvas + still
        refusal(webp)
        tiff = bytearray(encoded(corners(), "TIFF"))
        tiff = tiff.replace(struct.pack("<HHII", 256, 4, 1, 40), struct.pack("<HHII", 256, 4, 1, 10**9))
        tiff = tiff.replace(struct.pack("<HHIHH", 256, 3, 1, 40, 0), struct.pack("<HHII", 256, 4, 1, 10**9))
        assert "more than 89 million pixels" in refusal(bytes(tiff))

    def test_a_huge_tile_of_a_small_tiff(self):
        assert decoded_bytes(tiled_tiff(16), "a").getpixel((3, 3)) == (90, 90, 90)
        for side in (2**14, 2**16, 2**31):
            assert "more than 89 million pixels" in refusal(tiled_tiff(side))

    def test_a_text_that_inflates(self):
        text = b"note\0\0" + zlib.compress(b"\0" * 2**24)
        refusal(
            png_chunks(png_header(1, 1), (b"zTXt", text), (b"IDAT", zlib.compress(b"\0" * 4)), (b"IEND", b""))
        )

    def test_a_file_that_is_too_long(self, tmp_path):
        path = tmp_path / "long.png"
        with path.open("wb") as stream:
            stream.truncate(LARGEST_FILE + 1)
        with pytest.raises(ImageError, match=r"long\.png: has 200 MB, more than 200"):
            decoded(path)


class TestDamage:
    @pytest.mark.parametrize("kind", FORMATS)
    def test_truncated(self, kind):
        data = encoded(noise(), kind)
        for share in (0.3, 0.6, 0.9):
            refusal(data[: int(len(data) * share)])

    def test_no_pixels(self):
        refusal(png_chunks(png_header(0, 5), (b"IEND", b"")))
        refusal(b"P6 0 5 255\n")
        refusal(png_chunks((b"IEND", b"")))

    @pytest.mark.parametrize("kind", [*FORMATS, "MPO"])
    def test_flipped_bytes(self, kind, capfd):
        """Nothing but an image or our error: no warning (pytest makes them errors), no noise."""
        chance = random.Random(kind)
        options = {"save_all": True, "append_images": [noise()]} if kind in {"GIF", "WEBP", "MPO"} else {}
        whole = encoded(noise(), kind, **options)
        outcomes = set()
        for _ in range(25):
            data = bytearray(whole)
            for _ in range(chance.choice((1, 3, 20))):
                data[chance.randrange(chance.choice((64, len(data))))] = chance.randrange(256)
            outcomes.add(outcome(bytes(data[: chance.choice((len(data), chance.randrange(len(data)))) or 1])))
        assert outcomes <= {"RGB", "ImageError"}
        assert "ImageError" in outcomes
        assert capfd.readouterr() == ("", "")


def outcome(data):
    try:
        return decoded_bytes(data, "a.jpg", least_side=8).mode
    except ImageError as error:
        message = str(error)
    assert message.startswith("a.jpg: ")
    assert "\n" not in message
    return "ImageError"


class TestHeader:
    @pytest.mark.parametrize("kind", FORMATS)
    def test_without_the_pixels(self, kind, tmp_path):
        path = tmp_path / "a"
        path.write_bytes(encoded(corners(), kind))
        assert header(path) == header(image_at(path)) == (40, 20, kind)


class TestSurroundings:
    def test_nothing_but_pixels_is_kept(self):
        data = encoded(corners(), "JPEG", comment=b"secret", icc_profile=b"profile", dpi=(72, 72))
        assert decoded_bytes(data, "a").info == {}

    def test_without_pillow(self):
        code = (
            "import sys; sys.modules['PIL'] = None; import adamab.task.images as d\n"
            "try: d.decoded_bytes(b'GIF89a', 'a')\nexcept ImportError as error: print(error)"
        )
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert run.stdout == "Pillow is not installed; run: pip install 'adamab[images]'\n"
