"""Prepare images for a model: upright, in JPEG, PNG, GIF or WebP, limited in pixels and bytes.

A file that meets all this is passed on unchanged, after it was decoded once to detect damage. Any other is turned
upright, scaled down and encoded again. Of an animation or a file with several pages, only the first image is used.

The cost of decoding is estimated from the header before a pixel is decoded: a file of a few kilobytes must not cost
gigabytes. Scaling works in bands, so that only the decoded and the scaled image are in memory, no second full-size one.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, cast

from surehand.core.errors import ToolFailure
from surehand.core.frozen import frozen

if TYPE_CHECKING:
    from PIL.Image import Image

LONGEST_SIDE: Final = 1568
OUTPUT_BYTES: Final = 3_500_000
"""In base64 this is just under the 5 MB that models accept."""
FILE_BYTES: Final = 64 * 1024 * 1024
MEMORY_BYTES: Final = 256 * 1024 * 1024
PAINTED_PIXELS: Final = 800_000_000
"""Limit of decoding work; see `_count_painted`."""
# An image whose pixels take this many times the size of its file is suspicious, and gets less memory and time:
# photographs and screenshots stay far below this ratio, decompression bombs reach a thousand and more.
RATIO_LIMIT: Final = 200
SMALL_FILE_BYTES: Final = 32 * 1024 * 1024
SMALL_FILE_PIXELS: Final = 200_000_000
DECODED_ANYWAY: Final = 1920 * 1080
"""Up to this many pixels, a suspicious file in one of the formats of `_DECODER_BYTES` gets the full memory limit: their
decoders take several times the size of the image, so that a plain screenshot would exceed the smaller one."""
TEXT_BYTES: Final = 1024 * 1024
_ONE_AT_A_TIME: Final = Lock()

ACCEPTED: Final = {"JPEG": "image/jpeg", "PNG": "image/png", "GIF": "image/gif", "WEBP": "image/webp"}
READABLE: Final = ("JPEG", "PNG", "GIF", "WEBP", "TIFF", "HEIF", "AVIF", "BMP")

_PIXEL_BYTES: Final = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16L": 2, "I;16B": 2}
"""Bytes of a decoded pixel by image mode; 4 for all others."""
_DECODER_BYTES: Final = {"WEBP": 12, "AVIF": 10, "HEIF": 12}
"""Further bytes a pixel that the decoder takes: these hold the whole image themselves, some of them twice."""
_WORK_BYTES: Final = 4 * 1024 * 1024
"""Memory for a band while it is scaled, and for the encoder."""
_BAND_PIXELS: Final = 250_000
_TURNS: Final[dict[Any, Any]] = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}
"""EXIF orientation → the `PIL.Image.Transpose` value that undoes it, as a number because PIL is imported late."""
_ORIENTATION: Final = 0x0112
_SCANNED: Final = ("JPEG", "MPO")
_SCAN: Final = b"\xff\xda"


@frozen
class Picture:
    """An image ready for a model, and the format and size of the original."""

    data: bytes
    mime_type: str
    width: int
    height: int
    format: str
    original_width: int
    original_height: int
    animated: bool = False

    @property
    def converted(self) -> bool:
        """Whether the size or the format differs from the original's."""
        return (self.width, self.height) != (self.original_width, self.original_height) or (
            ACCEPTED.get(self.format) != self.mime_type
        )


def prepare_picture(content: bytes, path: str) -> Picture:
    """Decode `content` and make it fit for a model; raise ToolFailure if it is damaged, too large or a bomb."""
    from PIL import Image, UnidentifiedImageError

    try:
        with _guard_decoding(), Image.open(io.BytesIO(content), formats=READABLE) as image:
            return _prepare_image(image, content, path)
    except UnidentifiedImageError:
        raise broken(path, "it is not a readable image") from None
    except Image.DecompressionBombError as problem:
        raise _too_large(path, str(problem)) from None
    except ToolFailure:
        raise
    except MemoryError:
        raise broken(path, "it needs too much memory") from None
    except Exception as problem:  # decoders raise almost anything on damaged files
        raise broken(path, str(problem) or type(problem).__name__) from None


def broken(path: str, why: str) -> ToolFailure:
    """Return the error for an image that cannot be shown."""
    return ToolFailure(
        f"{path} cannot be shown as an image: {why}",
        hint="The file may be damaged or truncated; check it with Bash `file`, or create it again.",
        details={"path": path, "reason": "broken_image"},
    )


@contextmanager
def _guard_decoding() -> Generator[None]:
    """Decode one image at a time, without warnings on stderr and with a low limit for compressed text in a PNG.

    Both settings are global to the process, so they are restored afterwards.
    """
    from importlib import import_module

    from PIL import Image, PngImagePlugin

    with _ONE_AT_A_TIME, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if "HEIF" not in Image.OPEN:
            Image.preinit()
            import_module("pi_heif").register_heif_opener(thumbnails=False)
        before = PngImagePlugin.MAX_TEXT_MEMORY
        PngImagePlugin.MAX_TEXT_MEMORY = TEXT_BYTES
        try:
            yield
        finally:
            PngImagePlugin.MAX_TEXT_MEMORY = before


def _judge(image: Image, content: bytes, path: str, full: tuple[int, int]) -> None:
    """Refuse an image that takes too much memory or time; called after `draft`, which sets the size to decode at."""
    pixels = full[0] * full[1]
    memory, painted = MEMORY_BYTES, PAINTED_PIXELS
    if pixels * 4 > len(content) * RATIO_LIMIT:
        anyway = image.format in _DECODER_BYTES and pixels <= DECODED_ANYWAY
        memory, painted = MEMORY_BYTES if anyway else SMALL_FILE_BYTES, SMALL_FILE_PIXELS
    if _memory(image, content, pixels) > memory or _count_painted(image, content, pixels) > painted:
        size = f"{full[0]:,} x {full[1]:,} pixels"
        raise _too_large(path, f"an image of {size} in a file of {len(content):,} bytes")


def _too_large(path: str, why: str) -> ToolFailure:
    return ToolFailure(
        f"{path} is refused: {why}",
        hint=f"Scale it down first, for example with Bash `convert`; at most {MEMORY_BYTES >> 20} MiB are spent on a "
        f"picture, {SMALL_FILE_BYTES >> 20} MiB where the file is far too small for it.",
        details={"path": path, "reason": "image_too_large"},
    )


def _count_painted(image: Image, content: bytes, pixels: int) -> int:
    """Return the work of decoding, in pixels painted. A JPEG paints all of them in each scan, of maybe a few bytes.

    In other formats a pixel counts eight times: each is decoded and scaled by itself.
    """
    if image.format not in _SCANNED:
        return pixels * 8
    return pixels * (content.count(_SCAN) if _in_scans(image, content) else 1)


def _memory(image: Image, content: bytes, full_pixels: int) -> int:
    """Estimate the memory (bytes) for decoding and scaling an image; `full_pixels` is its size before `draft`."""
    width, height = _fitting(image.size)
    small = width * height * 4 + _WORK_BYTES
    stored = _PIXEL_BYTES.get(image.mode, 4)
    decoder = stored if image.format == "TIFF" else _DECODER_BYTES.get(image.format or "", 0)
    coefficients = full_pixels * 2 * len(image.getbands()) if _in_scans(image, content) else 0
    return image.width * image.height * (stored + decoder) + coefficients + small


def _in_scans(image: Image, content: bytes) -> bool:
    """Whether a JPEG has several scans: its decoder then keeps the coefficients of the whole image, at full size."""
    if image.format not in _SCANNED:
        return False
    at = 2
    while content[at : at + 2] not in (_SCAN, b""):
        at += 2 + int.from_bytes(content[at + 2 : at + 4])
    return bool(image.info.get("progressive")) or content[at + 4 : at + 5] < bytes([len(image.getbands())])


def _prepare_image(image: Image, content: bytes, path: str) -> Picture:
    width, height = image.size
    kind = "JPEG" if image.format == "MPO" else image.format or ""
    image.draft("RGB", _fitting(image.size))  # a JPEG can be decoded at a half, a quarter or an eighth of its size
    _judge(image, content, path, (width, height))
    animated = bool(getattr(image, "is_animated", False))
    image.load()
    turn = _TURNS.get(image.getexif().get(_ORIENTATION, 1))
    fits = max(width, height) <= LONGEST_SIDE and len(content) <= OUTPUT_BYTES
    if kind in ACCEPTED and fits and turn is None:
        return Picture(content, ACCEPTED[kind], width, height, kind, width, height, animated)
    plain = _scale_down(image)
    upright = plain if turn is None else plain.transpose(turn)
    data, mime_type = _encode_image(upright, kind)
    return Picture(data, mime_type, *upright.size, kind, width, height, animated)


def _fitting(size: tuple[int, int]) -> tuple[int, int]:
    """Scale a size down to fit LONGEST_SIDE, keeping its aspect ratio."""
    scale = min(1.0, LONGEST_SIDE / max(size))
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


def _scale_down(image: Image) -> Image:
    """Scale an image to fit and convert it to a plain mode, in bands: no second full-size image is in memory."""
    from PIL.Image import new

    size, (width, height) = _fitting(image.size), image.size
    plain = _plain_mode(image)
    if size == image.size:
        return plain(image)
    scale = height / size[1]
    margin = int(scale * 3) + 2  # rows that the filter reads beyond a band
    step = max(1, int(_BAND_PIXELS / width / scale))
    small: Image | None = None
    for top in range(0, size[1], step):
        count = min(step, size[1] - top)
        first, last = top * scale, min(float(height), (top + count) * scale)
        start, stop = max(0, int(first) - margin), min(height, int(last) + margin)
        band: Any = plain(image.crop((0, start, width, stop)))
        band = band.resize((size[0], count), box=(0, first - start, width, last - start), reducing_gap=2.0)
        small = small or new(band.mode, size)
        small.paste(band, (0, top))
    assert small is not None
    return small


def _plain_mode(image: Image) -> Callable[[Image], Image]:
    """Return a function that converts (a part of) the image to 8-bit grey, RGB or RGBA, for scaling and encoders."""
    if image.mode in ("L", "RGB", "RGBA"):
        return lambda part: part
    if image.mode.startswith(("I", "F")):
        return _eight_bits(image)
    if image.mode in ("LA", "PA", "La", "RGBa") or "transparency" in image.info:
        return lambda part: part.convert("RGBA")
    mode = "L" if image.mode == "1" else "RGB"
    return lambda part: part.convert(mode)


def _eight_bits(image: Image) -> Callable[[Image], Image]:
    """Return a function that maps the value range of a 16- or 32-bit image to 8 bits; `convert` would clip to white."""
    low, high = cast("tuple[float, float]", image.getextrema())
    scale = 255 / (high - low) if high > low else 0.0
    spread: Callable[[Any], Any] = lambda value: value * scale - low * scale  # noqa: E731
    return lambda part: cast("Any", part.convert("F")).point(spread).convert("L")


def _encode_image(image: Image, kind: str) -> tuple[bytes, str]:
    """Encode as PNG if lines or transparency matter and it fits, otherwise as JPEG, in lower quality until it fits."""
    if image.mode == "RGBA" or kind in ("PNG", "GIF", "BMP"):
        data = _save_image(image, "PNG")
        if len(data) <= OUTPUT_BYTES:
            return data, "image/png"
    flat = _on_white(image) if image.mode == "RGBA" else image
    data = b""
    for quality in (85, 70, 50, 30):
        data = _save_image(flat, "JPEG", quality=quality)
        if len(data) <= OUTPUT_BYTES:
            break
    return data, "image/jpeg"


def _save_image(image: Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def _on_white(image: Image) -> Image:
    from PIL import Image

    page = Image.new("RGB", image.size, "white")
    page.paste(image, mask=image.getchannel("A"))
    return page
