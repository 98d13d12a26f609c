"""Pictures as a model can take them: upright, JPEG, PNG, GIF or WebP, bounded in pixels and bytes.

What is fine as it is goes through byte for byte (after it has been decoded once, so that a broken file is found
here). Anything else is turned upright, scaled down and encoded again. Only the first picture of an animation or of
a file with several pages is shown.

The size a header claims is judged before a pixel is decoded: a file of a few kilobytes must not cost gigabytes.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, cast

from holdfast.core.errors import ToolFailure
from holdfast.core.frozen import frozen

if TYPE_CHECKING:
    from PIL.Image import Image

LONGEST_SIDE: Final = 1568
OUTPUT_BYTES: Final = 3_500_000
"""Encoded in base64 this stays under the five megabytes that models take."""
FILE_BYTES: Final = 64 * 1024 * 1024
PIXEL_LIMIT: Final = 64_000_000
# Up to this much is decoded whatever the file (a screen of 5,120 x 2,880 fits); more only from a file that is not
# suspiciously small: photographs and screenshots stay far under this ratio, bombs reach a thousand and more.
FREE_BYTES: Final = 64 * 1024 * 1024
RATIO_LIMIT: Final = 200
TEXT_BYTES: Final = 1024 * 1024
_ONE_AT_A_TIME: Final = Lock()

ACCEPTED: Final = {"JPEG": "image/jpeg", "PNG": "image/png", "GIF": "image/gif", "WEBP": "image/webp"}
READABLE: Final = ("JPEG", "PNG", "GIF", "WEBP", "TIFF", "HEIF", "AVIF", "BMP", "MPO")


@frozen
class Picture:
    """A picture ready for a model, and what it was."""

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
        """Whether it was turned, scaled or encoded again."""
        return (self.width, self.height) != (self.original_width, self.original_height) or (
            ACCEPTED.get(self.format) != self.mime_type
        )


def prepared(content: bytes, path: str) -> Picture:
    """Return the picture in `content`; raise ToolFailure for one that is broken, too large or a bomb."""
    from PIL import Image, UnidentifiedImageError

    try:
        with _guarded(), Image.open(io.BytesIO(content), formats=READABLE) as image:
            _judge(image, len(content), path)
            return _prepared(image, content)
    except UnidentifiedImageError:
        raise broken(path, "it is no image that can be read") from None
    except Image.DecompressionBombError as problem:
        raise _too_large(path, str(problem)) from None
    except ToolFailure:
        raise
    except MemoryError:
        raise broken(path, "it needs too much memory") from None
    except Exception as problem:  # decoders of damaged files raise almost anything
        raise broken(path, str(problem) or type(problem).__name__) from None


def broken(path: str, why: str) -> ToolFailure:
    """Return the error for an image that cannot be shown."""
    return ToolFailure(
        f"{path} cannot be shown as an image: {why}",
        hint="The file may be damaged or cut off; check it with Bash `file`, or make it anew.",
        details={"path": path, "reason": "broken_image"},
    )


@contextmanager
def _guarded() -> Generator[None]:
    """Decode one picture at a time, without warnings on stderr and with little room for text hidden in a PNG.

    Both are settings of the whole process that others may rely on, so they are set back.
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


def _judge(image: Image, file_bytes: int, path: str) -> None:
    width, height = image.size
    needed = _memory(image)
    if needed > PIXEL_LIMIT * 4 or (needed > FREE_BYTES and needed > file_bytes * RATIO_LIMIT):
        raise _too_large(path, f"an image of {width:,} x {height:,} pixels in a file of {file_bytes:,} bytes")


def _too_large(path: str, why: str) -> ToolFailure:
    return ToolFailure(
        f"{path} is refused: {why}",
        hint=f"Scale it down first; at most {PIXEL_LIMIT // 1_000_000} megapixels are decoded, "
        "fewer from a file that is far too small for its picture.",
        details={"path": path, "reason": "image_too_large"},
    )


def _memory(image: Image) -> int:
    """Return how many bytes decoding takes: four a pixel.

    JPEG alone can be decoded at a half, a quarter or an eighth of its size, but when it is progressive its
    coefficients are held in full.
    """
    pixels = image.width * image.height
    if image.format not in ("JPEG", "MPO"):
        return pixels * 4
    scale = next((each for each in (8, 4, 2) if max(image.size) >= LONGEST_SIDE * each), 1)
    return pixels * 4 // scale**2 + (pixels * 6 if image.info.get("progressive") else 0)


def _prepared(image: Image, content: bytes) -> Picture:
    from PIL import ImageOps

    width, height = image.size
    kind = "JPEG" if image.format == "MPO" else image.format or ""
    animated = bool(getattr(image, "is_animated", False))
    image.draft("RGB", (LONGEST_SIDE, LONGEST_SIDE))
    image.load()
    upright = ImageOps.exif_transpose(image)
    turned = image.getexif().get(0x0112, 1) != 1
    fits = max(width, height) <= LONGEST_SIDE and len(content) <= OUTPUT_BYTES
    if kind in ACCEPTED and fits and not turned:
        return Picture(content, ACCEPTED[kind], width, height, kind, width, height, animated)
    plain = _plain(upright)
    plain.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    data, mime_type = _encoded(plain, kind)
    return Picture(data, mime_type, *plain.size, kind, width, height, animated)


def _plain(image: Image) -> Image:
    """Return the image in grey, RGB or RGBA, eight bits a channel: what every encoder takes and scaling needs."""
    if image.mode in ("L", "RGB", "RGBA"):
        return image
    if image.mode.startswith(("I", "F")):
        return _eight_bits(image)
    if image.mode in ("LA", "PA", "La", "RGBa") or "transparency" in image.info:
        return image.convert("RGBA")
    return image.convert("L" if image.mode == "1" else "RGB")


def _eight_bits(image: Image) -> Image:
    """Return an image of 16 or 32 bits with its values spread over 8; a plain conversion would clip them to white."""
    low, high = cast("tuple[float, float]", image.getextrema())
    scale = 255 / (high - low) if high > low else 0.0
    spread: Any = image.convert("F")
    transform: Callable[[Any], Any] = lambda value: value * scale - low * scale  # noqa: E731
    return spread.point(transform).convert("L")


def _encoded(image: Image, kind: str) -> tuple[bytes, str]:
    """Return the picture as PNG where lines and transparency matter, otherwise as JPEG; smaller until it fits."""
    if image.mode == "RGBA" or kind in ("PNG", "GIF", "BMP"):
        data = _saved(image, "PNG")
        if len(data) <= OUTPUT_BYTES:
            return data, "image/png"
    flat = _on_white(image) if image.mode == "RGBA" else image
    data = b""
    for quality in (85, 70, 50, 30):
        data = _saved(flat, "JPEG", quality=quality)
        if len(data) <= OUTPUT_BYTES:
            break
    return data, "image/jpeg"


def _saved(image: Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def _on_white(image: Image) -> Image:
    from PIL import Image

    page = Image.new("RGB", image.size, "white")
    page.paste(image, mask=image.getchannel("A"))
    return page
