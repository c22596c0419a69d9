"""A program that decodes one image, or some pages of a document, and exits.

It is standalone, without access to clawkit. The data may exploit a bug in a library, so the program
limits its memory, time and files before it reads the first byte.

Standard input is a line of JSON, with `op`, its parameters and the `size` of the data, then the
data. Standard output is a line of JSON, then the texts and images, with their `sizes` in that line.
A line with `reason` explains a failure, one with `missing` names a library that is not installed.
"""

from __future__ import annotations

import io
import json
import os
import re
import resource
import sys
import warnings
from collections.abc import Callable
from contextlib import closing
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile

MAX_MEMORY = 1536 * 1024 * 1024
MAX_CPU_S = 20
MAX_PIXELS = 25_000_000
MAX_PAGES = 50
MAX_PAGE_CHARS = 200_000
MAX_PAGE_PICTURES = 5
PAGE_SIDE = 1_200
PAGE_BYTES = 4 * 1024 * 1024

FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF", "ICO")
# Most programs show only the first image of a multi-picture JPEG.
_MIME_TYPES = {"ICO": "image/x-icon", "MPO": "image/jpeg"} | {
    name: f"image/{name.lower()}" for name in FORMATS if name != "ICO"
}
# Types that model APIs accept.
_TAKEN = ("image/png", "image/jpeg", "image/gif", "image/webp")
# The plugins of the formats, and modules that they import only for some files.
_PILLOW = (
    *(f"PIL.{name}ImagePlugin" for name in ("Png", "Jpeg", "Gif", "WebP", "Bmp", "Tiff", "Ico")),
    *("PIL.MpoImagePlugin", "PIL.PpmImagePlugin", "PIL.ImageCms", "PIL.ImageColor", "PIL.ImageOps"),
    *("copy", "encodings.latin_1"),
)
_PDFIUM = ("pypdfium2", *_PILLOW, "encodings.utf_16_le")

_SIDES = (1_800, 1_600, 1_400, 1_200, 1_000, 800, 600, 400, 200)
_QUALITIES = (85, 75, 65, 55, 45, 35)
_FEW_COLOURS = 1_024
_SAMPLE_SIDE = 512
_ORIENTATION = 0x0112
# Pillow's transpositions that turn an image upright, by EXIF orientation.
_TURNS: dict[int, Any] = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}
_WRONG_PASSWORD = 4

Answer = tuple[dict[str, Any], list[bytes]]


class RefusedDataError(Exception):
    """The data is refused. The message is for the caller of the tool."""


def main() -> None:
    limit_self()
    sys.path += sys.argv[1:]
    request = json.loads(sys.stdin.buffer.readline())
    data = sys.stdin.buffer.read(request.pop("size"))
    what, op = _OPS[request.pop("op")]
    parts: list[bytes] = []
    try:
        head, parts = op(data, **request)
    except RefusedDataError as error:
        head = {"reason": str(error)}
    except ImportError as error:
        head = {"missing": error.name or str(error)}
    except MemoryError:
        head = {"reason": f"{what} cannot be decoded: it takes too much memory"}
    except Exception as error:  # noqa: BLE001  # the root of the process; libraries raise anything
        head = {"reason": f"{what} cannot be decoded: {error or type(error).__name__}"}
    line = json.dumps({"sizes": [*map(len, parts)], **head}).encode()
    sys.stdout.buffer.write(b"".join((line, b"\n", *parts)))
    sys.stdout.buffer.flush()
    # Skip the cleanup of the libraries, which could still fail.
    os._exit(0)


def limit_self() -> None:
    """Limit memory and CPU time; deny writing files, core dumps and further processes."""
    _limit(resource.RLIMIT_AS, MAX_MEMORY)
    # The soft limit sends SIGXCPU, which shows the reason, the hard limit SIGKILL.
    _limit(resource.RLIMIT_CPU, MAX_CPU_S, MAX_CPU_S + 1)
    _limit(resource.RLIMIT_FSIZE, 0)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_NPROC, 0)


def shut(*modules: str) -> None:
    """Import modules, then deny opening files and sockets."""
    for module in modules:
        import_module(module)
    _limit(resource.RLIMIT_NOFILE, 3)


def _limit(resource_id: int, soft: int, hard: int | None = None) -> None:
    most = resource.getrlimit(resource_id)[1]
    most = sys.maxsize if most == resource.RLIM_INFINITY else most
    resource.setrlimit(resource_id, (min(soft, most), min(soft if hard is None else hard, most)))


def fit_picture(data: bytes, max_side: int, max_bytes: int) -> Answer:
    """Scale and convert an image; empty data if the original is fine."""
    shut(*_PILLOW)
    image = _open(data)
    width, height = image.size
    mime_type = _MIME_TYPES[image.format or ""]
    fits = max(width, height) <= max_side and len(data) <= max_bytes and mime_type in _TAKEN
    if not fits:
        # A JPEG can be decoded directly at a half, a quarter or an eighth of its size.
        image.draft(None, _scaled(image.size, max_side))
    image.load()
    turn = image.getexif().get(_ORIENTATION, 1)
    original = (height, width) if turn in (5, 6, 7, 8) else (width, height)
    # Programs render CMYK differently, so it is converted.
    if fits and turn not in _TURNS and image.mode != "CMYK":
        return {"picture": _describe(original, mime_type, original, mime_type)}, [b""]
    plain = _plain(image)
    lossless = mime_type != "image/jpeg" and _has_few_colours(plain)
    upright = _shrunk(plain, max_side)
    if turn in _TURNS:
        upright = upright.transpose(_TURNS[turn])
    fitted, shown_type, size = _encode(upright, max_bytes, lossless)
    return {"picture": _describe(size, shown_type, original, mime_type)}, [fitted]


def _open(data: bytes) -> ImageFile:
    """Read the header of an image; only an ICO is decoded here."""
    from PIL import Image, UnidentifiedImageError

    Image.MAX_IMAGE_PIXELS = MAX_PIXELS
    warnings.simplefilter("error", Image.DecompressionBombWarning)
    try:
        return Image.open(io.BytesIO(data), formats=FORMATS)
    except UnidentifiedImageError:
        known = f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
        raise RefusedDataError(
            f"the image cannot be decoded: it is broken, or not {known}"
        ) from None
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        found = re.search(r"(\d+) pixels", str(error))
        count = f"{int(found[1]):,}" if found else "too many"
        raise RefusedDataError(
            f"the image has {count} pixels, more than the limit of {MAX_PIXELS:,}; make it "
            "smaller first"
        ) from None


def read_pages(data: bytes, first: int, last: int) -> Answer:
    """The text of pages, counted from 1, or images of pages without text."""
    shut(*_PDFIUM)
    pdfium: Any = import_module("pypdfium2")
    try:
        document = pdfium.PdfDocument(data)
    except pdfium.PdfiumError as error:
        if error.err_code == _WRONG_PASSWORD:
            raise RefusedDataError("the PDF is encrypted: opening it needs a password") from None
        raise RefusedDataError("the PDF cannot be decoded: it is broken, or not a PDF") from None
    total = len(document)
    if first > total:
        raise RefusedDataError(
            f"the PDF has no page {first}: it has {total} page{'s' * (total != 1)}"
        )
    pages: list[dict[str, Any]] = []
    parts: list[bytes] = []
    pictures = MAX_PAGE_PICTURES
    for number in range(first, min(last, total, first + MAX_PAGES - 1) + 1):
        text, picture = _read_page(pdfium, document, number, pictures > 0)
        parts.append(text.encode("utf-8", "replace"))
        page: dict[str, Any] = {"number": number, "text": ""}
        if picture is not None:
            pictures -= 1
            fitted, mime_type, size = _encode(picture, PAGE_BYTES, _has_few_colours(picture))
            page["picture"] = _describe(size, mime_type, size, "application/pdf")
            parts.append(fitted)
        pages.append(page)
    return {"total": total, "pages": pages}, parts


def _read_page(pdfium: Any, document: Any, number: int, may_draw: bool) -> tuple[str, Image | None]:
    raw = pdfium.raw
    try:
        with closing(document[number - 1]) as page:
            text = _tidy(page.get_textpage().get_text_bounded())
            drawn = raw.FPDFPage_CountObjects(page) or raw.FPDFPage_GetAnnotCount(page)
            if text.strip() or not drawn or not may_draw:
                return text, None
            return text, page.render(scale=PAGE_SIDE / max(page.get_size())).to_pil()
    except pdfium.PdfiumError as error:
        return f"[this page cannot be decoded: {error}]", None


def _tidy(text: str) -> str:
    # pdfium returns \x02 for a hyphen at the end of a line.
    text = text.replace("\r\n", "\n").replace("\x02", "-\n").replace("\0", "")
    if len(text) <= MAX_PAGE_CHARS:
        return text
    notice = "\n[… the rest of this page is left out …]"
    return text[: MAX_PAGE_CHARS - len(notice)] + notice


def _describe(
    size: tuple[int, int], mime_type: str, original: tuple[int, int], original_type: str
) -> dict[str, Any]:
    """The fields of `clawkit.media.protocols.Picture`; the data is sent separately."""
    return {
        "data": "",
        "mime_type": mime_type,
        "width": size[0],
        "height": size[1],
        "original": original,
        "original_type": original_type,
    }


def _has_few_colours(image: Image) -> bool:
    """Whether it looks like a screenshot or a drawing, for which JPEG is unsuitable."""
    from PIL.Image import Resampling

    width, height = image.size
    sample = (min(width, _SAMPLE_SIDE), min(height, _SAMPLE_SIDE))
    return image.resize(sample, Resampling.NEAREST).getcolors(_FEW_COLOURS) is not None


def _plain(image: Image) -> Image:
    """Convert to 8 bits of gray or RGB, with alpha only if something is transparent."""
    if image.mode.startswith(("I", "F")):
        # The white point of 16 bits or more is unknown, so use the brightest value.
        image = image.convert("F")
        low, high = cast("tuple[float, float]", image.getextrema())
        scale = 255 / (high - low) if high > low else 0.0
        return image.point(lambda value: value * scale - low * scale).convert("L")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        if image.getchannel("A").getextrema() != (255, 255):
            return image
    return image.convert("L" if image.mode in ("1", "L") else "RGB")


def _scaled(size: tuple[int, int], side: int) -> tuple[int, int]:
    """A size in proportion, with `side` as the longer side."""
    longer = max(size)
    return max(1, round(size[0] * side / longer)), max(1, round(size[1] * side / longer))


def _shrunk(image: Image, side: int) -> Image:
    from PIL.Image import Resampling

    if max(image.size) <= side:
        return image
    return image.resize(_scaled(image.size, side), Resampling.LANCZOS, reducing_gap=3.0)


def _encode(image: Image, max_bytes: int, lossless: bool) -> tuple[bytes, str, tuple[int, int]]:
    """The best encoding with at most `max_bytes`, with its type and size."""
    # Metadata such as comments and locations are not for the model.
    image.info.clear()
    longest = max(image.size)
    for side in (longest, *(side for side in _SIDES if side < longest)):
        image = _shrunk(image, side)
        if lossless or image.mode == "RGBA":
            data = _save(image, "PNG")
            if len(data) <= max_bytes:
                return data, "image/png", image.size
        opaque = _on_white(image)
        for quality in _QUALITIES:
            data = _save(opaque, "JPEG", quality=quality)
            if len(data) <= max_bytes:
                return data, "image/jpeg", image.size
    raise RefusedDataError(f"the image cannot be reduced to {max_bytes:,} bytes")


def _on_white(image: Image) -> Image:
    from PIL.Image import alpha_composite, new

    if image.mode != "RGBA":
        return image
    white = new("RGBA", image.size, (255, 255, 255, 255))
    return alpha_composite(white, image).convert("RGB")


def _save(image: Image, name: str, **options: int) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, name, **options)
    return buffer.getvalue()


_OPS: dict[str, tuple[str, Callable[..., Answer]]] = {
    "picture": ("the image", fit_picture),
    "pages": ("the PDF", read_pages),
}

if __name__ == "__main__":
    main()
