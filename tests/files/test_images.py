"""Pictures: upright, in a format models take, bounded; broken ones and bombs refused."""

from __future__ import annotations

import base64
import io
import resource
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageChops
from tests.pictures import HEIC_TURNED

from surehand.core.errors import ToolFailure
from surehand.files.images import LONGEST_SIDE, OUTPUT_BYTES, Picture, prepare_picture
from surehand.files.sniff import sniff


def encoded(
    kind: str, size: tuple[int, int] = (40, 20), mode: str = "RGB", color: object = "red", **options: object
) -> bytes:
    buffer = io.BytesIO()
    Image.new(mode, size, color).save(buffer, kind, **options)  # type: ignore[arg-type]
    return buffer.getvalue()


def shown(content: bytes) -> tuple[Picture, Image.Image]:
    picture = prepare_picture(content, "/x")
    image = Image.open(io.BytesIO(picture.data))
    image.load()
    assert (image.width, image.height) == (picture.width, picture.height)
    assert sniff(picture.data).mime == picture.mime_type
    return picture, image


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "WEBP"])
def test_what_a_model_takes_goes_through_byte_for_byte(kind: str) -> None:
    content = encoded(kind)
    picture, _ = shown(content)
    assert picture.data == content
    assert not picture.converted


@pytest.mark.parametrize("kind", ["TIFF", "AVIF", "BMP"])
def test_other_formats_become_jpeg_or_png(kind: str) -> None:
    picture, image = shown(encoded(kind))
    assert picture.mime_type in ("image/jpeg", "image/png")
    assert picture.format == kind
    assert picture.converted
    red, green, blue = image.convert("RGB").getpixel((5, 5))  # type: ignore[misc]
    assert red > 200
    assert green < 60
    assert blue < 60


def halves(kind: str, orientation: int) -> bytes:
    image = Image.new("RGB", (64, 32), "red")
    image.paste("blue", (32, 0, 64, 32))
    exif = Image.Exif()
    exif[0x0112] = orientation
    buffer = io.BytesIO()
    image.save(buffer, kind, exif=exif)
    return buffer.getvalue()


# Where the red half (left in the stored pixels) must be seen.
RED: dict[int, tuple[int, int, int, int]] = {
    1: (64, 32, 8, 16), 2: (64, 32, 56, 16), 3: (64, 32, 56, 16), 4: (64, 32, 8, 16),
    5: (32, 64, 16, 8), 6: (32, 64, 16, 8), 7: (32, 64, 16, 56), 8: (32, 64, 16, 56),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_orientation_a_camera_noted_is_applied(kind: str, orientation: int) -> None:
    picture, image = shown(halves(kind, orientation))
    width, height, x, y = RED[orientation]
    assert (picture.width, picture.height) == (width, height)
    red, _, blue = image.convert("RGB").getpixel((x, y))  # type: ignore[misc]
    assert red > 180 > 80 > blue
    assert image.getexif().get(0x0112, 1) == 1


# The same two halves, made once with an encoder that is no dependency of ours; the second with orientation 6.
HEIC = (
    "AAAAHGZ0eXBoZWljAAAAAG1pZjFoZWljbWlhZgAAAX1tZXRhAAAAAAAAACFoZGxyAAAAAAAAAABwaWN0AAAAAAAAAAAAAAAAAAAAACJpbG9j"
    "AAAAAERAAAEAAQAAAAABoQABAAAAAAAAAIcAAAAjaWluZgAAAAAAAQAAABVpbmZlAgAAAAABAABodmMxAAAAAA5waXRtAAAAAAABAAAA/Wlw"
    "cnAAAADdaXBjbwAAAHZodmNDAQNwAAAAkAAAAAAAHvAA/P34+AAADwNgAAEAGEABDAH//wNwAAADAJAAAAMAAAMAHroCQGEAAQAqQgEBA3AA"
    "AAMAkAAAAwAAAwAeoCCBBZbq5Ka5uAhoMCAAAAMDIAAAAwAhYgABAAZEAcFzwIkAAAATY29scm5jbHgAAQANAAaAAAAAFGlzcGUAAAAAAAAA"
    "QAAAAEAAAAAoY2xhcAAAAEAAAAABAAAAIAAAAAEAAAAAAAAAAv///+AAAAACAAAAEHBpeGkAAAAAAwgICAAAABhpcG1hAAAAAAAAAAEAAQWB"
    "AgMFhAAAAI9tZGF0AAAAgygBrwngPfMi///yPzf//LDOy/vFxFe//8dbw7/Ulg//5BV6YSgwK4fJZOV/OjuvTe0nzRSLF6VXROUsfyV5YE0d"
    "z5ScPKu0k7mrR5Zm03rO8lbypFTqxOw5etvY1hyVJ2YWxFMxWkiECHU6E8t7/aXrC6g/pw39+aqK+UFz2Mj7hoeO"
)


@pytest.mark.parametrize(("content", "size"), [(HEIC, (64, 32)), (HEIC_TURNED, (32, 64))])
def test_heic_is_decoded_and_upright(content: str, size: tuple[int, int]) -> None:
    picture, image = shown(base64.b64decode(content))
    assert (picture.width, picture.height) == size
    assert picture.mime_type == "image/jpeg"
    first, last = image.getpixel((4, 4)), image.getpixel((size[0] - 5, size[1] - 5))
    assert first == pytest.approx((254, 0, 0), abs=9)
    assert last == pytest.approx((0, 0, 254), abs=9)


def test_large_images_are_scaled_down_and_keep_their_shape() -> None:
    picture, _ = shown(encoded("PNG", (4000, 1000)))
    assert (picture.width, picture.height) == (LONGEST_SIDE, LONGEST_SIDE // 4)
    assert (picture.original_width, picture.original_height) == (4000, 1000)
    assert picture.mime_type == "image/png"
    photo, _ = shown(encoded("JPEG", (3000, 4000)))
    assert photo.height == LONGEST_SIDE
    assert photo.mime_type == "image/jpeg"


def test_noise_is_bounded_in_bytes() -> None:
    noise = Image.effect_noise((1200, 1200), 200).convert("RGB")
    buffer = io.BytesIO()
    noise.save(buffer, "PNG")
    assert len(buffer.getvalue()) > 1_000_000
    picture, _ = shown(buffer.getvalue())
    assert len(picture.data) <= OUTPUT_BYTES


@pytest.mark.parametrize(
    ("mode", "color"),
    [
        ("1", 1),
        ("L", 90),
        ("LA", (90, 128)),
        ("P", 3),
        ("RGBA", (1, 2, 3, 99)),
        ("CMYK", (1, 2, 3, 4)),
        ("I;16", 900),
        ("F", 0.5),
    ],
)
def test_every_mode_of_pixel_can_be_shown(mode: str, color: object) -> None:
    shown(encoded("TIFF", mode=mode, color=color))
    shown(encoded("TIFF", (3000, 10), mode=mode, color=color))


def test_transparency_survives_scaling() -> None:
    _, image = shown(encoded("PNG", (3000, 30), "RGBA", (10, 20, 30, 40)))
    assert image.getpixel((5, 5)) == pytest.approx((10, 20, 30, 40), abs=4)


def test_the_first_picture_of_an_animation_is_shown() -> None:
    frames = [Image.new("RGB", (10, 10), color) for color in ("red", "blue")]
    buffer = io.BytesIO()
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:])
    picture, _ = shown(buffer.getvalue())
    assert picture.animated


def test_sixteen_bit_grey_is_not_clipped_to_white() -> None:
    image = Image.new("I;16", (2000, 20), 1000)
    image.paste(60_000, (0, 0, 1000, 20))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    _, seen = shown(buffer.getvalue())
    assert seen.convert("L").getpixel((10, 5)) != seen.convert("L").getpixel((1500, 5))


def png(width: int, height: int, data: bytes) -> bytes:
    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def zeros(count: int) -> bytes:
    packer = zlib.compressobj(9)
    parts = [packer.compress(bytes(1 << 20)) for _ in range(count >> 20)]
    return b"".join(parts) + packer.compress(bytes(count % (1 << 20))) + packer.flush()


@pytest.mark.parametrize(("width", "height"), [(10_000, 10_000), (50_000, 50_000), (6_000, 6_000), (1, 100_000_000)])
def test_a_bomb_is_refused_before_a_pixel_is_decoded(width: int, height: int) -> None:
    content = png(width, height, zeros(3_000_000))
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    with pytest.raises(ToolFailure, match="pixels"):
        prepare_picture(content, "/x.png")
    assert time.monotonic() - started < 60  # what hangs, hangs without end
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024


@pytest.mark.parametrize("side", [12_000, 65_535])
def test_a_frame_larger_than_its_screen_is_judged_by_its_own_size(side: int) -> None:
    screen = b"GIF89a" + struct.pack("<HH", 10, 10) + b"\x80\0\0" + b"\0\0\0\xff\xff\xff"
    frame = b"," + struct.pack("<HHHH", 0, 0, side, side) + b"\0" + b"\x02\x02D\x01\0;"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ToolFailure, match="refused"):
        prepare_picture(screen + frame, "/x.gif")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024


def test_the_settings_of_the_library_stay_as_they_were(recwarn: pytest.WarningsRecorder) -> None:
    from PIL import PngImagePlugin

    before = (Image.MAX_IMAGE_PIXELS, PngImagePlugin.MAX_TEXT_MEMORY)
    with pytest.raises(ToolFailure):
        prepare_picture(png(10_000, 10_000, b""), "/x.png")
    prepare_picture(encoded("PNG"), "/x.png")
    assert before == (Image.MAX_IMAGE_PIXELS, PngImagePlugin.MAX_TEXT_MEMORY)
    assert not recwarn.list


def test_a_bomb_in_a_text_chunk_is_refused() -> None:
    body = b"key\0\0" + zeros(50_000_000)
    chunk = struct.pack(">I", len(body)) + b"zTXt" + body + struct.pack(">I", zlib.crc32(b"zTXt" + body))
    content = encoded("PNG")
    content = content[:33] + chunk + content[33:]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ToolFailure):
        prepare_picture(content, "/x.png")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
def test_a_broken_image_is_a_clear_error(kind: str) -> None:
    content = encoded(kind, (300, 200))
    for damaged in (content[: len(content) // 2], content[:20], content[:12] + bytes(500), b""):
        with pytest.raises(ToolFailure, match=r"/x\.img cannot be shown as an image") as caught:
            prepare_picture(damaged, "/x.img")
        assert caught.value.hint


def gradient(mode: str, size: tuple[int, int]) -> Image.Image:
    """Return a picture that no row filter of PNG leaves alone, with edges that a shifted band would move."""
    plain: Any = Image.linear_gradient("L")
    ramp, turned = plain.resize(size), plain.rotate(90).resize(size)
    image = Image.merge("RGBA", (ramp, turned, ImageChops.difference(ramp, turned), turned))
    for x in range(0, size[0], 97):
        image.paste((200, 30, 90, 255), (x, x % size[1], x + 40, x % size[1] + 30))
    return image.quantize(200) if mode == "P" else image.convert(mode)


@pytest.mark.parametrize("mode", ["L", "LA", "P", "RGB", "RGBA"])
@pytest.mark.parametrize("size", [(3000, 1700), (1700, 3000), (1600, 40), (40, 1601)])
def test_a_large_png_scaled_in_bands_is_the_picture_it_is(mode: str, size: tuple[int, int]) -> None:
    buffer = io.BytesIO()
    gradient(mode, size).save(buffer, "PNG")
    picture, image = shown(buffer.getvalue())
    assert max(picture.width, picture.height) == LONGEST_SIDE
    whole: Any = Image.open(io.BytesIO(buffer.getvalue())).convert("RGBA")
    whole = whole.resize(image.size, Image.Resampling.BICUBIC, reducing_gap=2.0)
    different: Any = ImageChops.difference(on_white(image.convert("RGBA")), on_white(whole))
    assert max(high for _, high in different.getextrema()) <= 10


def on_white(image: Image.Image) -> Image.Image:
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)


def test_a_png_too_large_for_its_file_is_refused_with_a_hint() -> None:
    with pytest.raises(ToolFailure, match="4,800 x 4,800 pixels") as caught:
        prepare_picture(encoded("PNG", (4800, 4800), "RGBA", 0), "/x.png")
    assert "Scale it down first" in caught.value.hint


@pytest.mark.parametrize("orientation", [3, 6])
def test_a_large_png_is_turned_upright_wherever_its_orientation_is_noted(orientation: int) -> None:
    image = Image.new("RGB", (3200, 1600), "red")
    image.paste("blue", (1600, 0, 3200, 1600))
    exif = Image.Exif()
    exif[0x0112] = orientation
    buffer = io.BytesIO()
    image.save(buffer, "PNG", exif=exif)
    content = buffer.getvalue()
    start = content.index(b"eXIf") - 4
    stop = start + 12 + int.from_bytes(content[start : start + 4])
    late = content[:start] + content[stop:-12] + content[start:stop] + content[-12:]
    for each in (content, late):
        _, seen = shown(each)
        assert seen.size == ((784, 1568) if orientation == 6 else (1568, 784))
        blue = seen.convert("RGB").getpixel((5, seen.height - 5))
        assert blue == (0, 0, 255)


def test_a_large_png_that_is_damaged_is_a_clear_error() -> None:
    content = encoded("PNG", (2000, 2000))
    data = content.index(b"IDAT")
    for damaged in (content[: len(content) // 2], content[: data + 9] + b"\x55" + content[data + 10 :]):
        with pytest.raises(ToolFailure, match=r"/x\.png cannot be shown"):
            prepare_picture(damaged, "/x.png")


def test_a_jpeg_of_endless_scans_is_refused() -> None:
    buffer = io.BytesIO()
    gradient("RGB", (3000, 3000)).save(buffer, "JPEG", progressive=True, quality=95)
    content = buffer.getvalue()
    scan = content[content.rindex(b"\xff\xda") : -2]
    assert prepare_picture(content, "/x.jpg").width == LONGEST_SIDE
    with pytest.raises(ToolFailure, match="refused"):
        prepare_picture(content[:-2] + scan * 100 + content[-2:], "/x.jpg")


def test_a_long_jpeg_is_decoded_at_the_size_it_is_shown_in() -> None:
    picture, _ = shown(encoded("JPEG", (30_000, 1000)))
    assert (picture.width, picture.height) == (LONGEST_SIDE, 52)


MEASURED = """
import io, resource, sys
from PIL import Image
from surehand.core.errors import ToolFailure
from surehand.files.images import prepare_picture

path, kind = sys.argv[1:]
small = io.BytesIO()
Image.new("RGB", (1600, 50)).save(small, kind)
prepare_picture(small.getvalue(), "small")
content = open(path, "rb").read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    prepare_picture(content, path)
except ToolFailure:
    pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize(
    ("kind", "mode", "size"),
    [
        ("PNG", "RGBA", (4800, 4800)),
        ("PNG", "RGB", (20_000, 1000)),
        ("PNG", "I;16", (3000, 3000)),
        ("GIF", "P", (4400, 4400)),
        ("TIFF", "RGB", (2000, 2000)),
        ("TIFF", "1", (3400, 3400)),
        ("JPEG", "RGB", (12_000, 12_000)),
        ("JPEG", "RGB", (30_000, 1000)),
        ("WEBP", "RGB", (4000, 4000)),
        ("AVIF", "RGB", (1920, 1080)),
    ],
)
def test_a_picture_far_larger_than_its_file_costs_little_memory(
    tmp_path: Path, kind: str, mode: str, size: tuple[int, int]
) -> None:
    path = tmp_path / "bomb"
    path.write_bytes(encoded(kind, size, mode, 0, **({"compression": "tiff_lzw"} if mode == "RGB" else {})))
    done = subprocess.run([sys.executable, "-c", MEASURED, str(path), kind], capture_output=True, text=True, check=True)
    assert int(done.stdout) <= 32 * 1024


def test_what_only_begins_like_an_image_is_said_to_be_none() -> None:
    for content in (b"\x89PNG\r\n\x1a\nbroken", b"\xff\xd8\xff\xe0 broken", b"GIF89a", b"II*\0broken"):
        with pytest.raises(ToolFailure, match=r"not a readable image|truncated|not enough|broken|Truncated"):
            prepare_picture(content, "/x.png")
