"""Pictures and PDFs that the tests make themselves."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Sequence
from typing import Any

from PIL import Image

_FONT = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>"
_ONE_PAGE = (b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[3 0 R]/Count 1>>")


def save(image: Image.Image, name: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, name, **options)
    return buffer.getvalue()


def opened(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data))
    image.load()
    return image


def pixel(image: Image.Image, x: int, y: int) -> tuple[int, ...]:
    value = image.getpixel((x, y))
    return value if isinstance(value, tuple) else (int(value or 0),)


def photo(width: int, height: int) -> Image.Image:
    """Smooth noise of many colours, which does not compress well without loss."""
    small = (max(1, width // 4), max(1, height // 4))
    return Image.merge(
        "RGB", [Image.effect_noise(small, 90).resize((width, height)) for _ in range(3)]
    )


def png_of_zeros(width: int, height: int) -> bytes:
    """A real black PNG, made without ever holding its pixels."""
    squeeze = zlib.compressobj(9)
    row = bytes(1 + (width + 7) // 8)
    body = b"".join(squeeze.compress(row) for _ in range(height)) + squeeze.flush()
    return png(width, height, body)


def png(width: int, height: int, body: bytes) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in ((b"IHDR", header), (b"IDAT", body), (b"IEND", b""))
    )


def pdf(objects: Sequence[bytes], trailer: bytes = b"") -> bytes:
    """A PDF of these objects, numbered from 1; the first is the catalog."""
    out = b"%PDF-1.7\n"
    places = []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    head = b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    end = b"trailer\n<</Size %d/Root 1 0 R%s>>\nstartxref\n%d\n%%%%EOF\n"
    return out + head + table + end % (len(objects) + 1, trailer, len(out))


def stream(body: bytes, extra: bytes = b"") -> bytes:
    return b"<</Length %d%s>>stream\n%s\nendstream" % (len(body), extra, body)


def text_pdf(*pages: str, box: bytes = b"0 0 612 792", trailer: bytes = b"") -> bytes:
    """One page per text, its lines below each other."""
    objects = [b"<</Type/Catalog/Pages 2 0 R>>", b"", _FONT]
    kids = []
    for text in pages:
        lines = (line.encode("cp1252") for line in text.split("\n"))
        shown = b" 0 -20 Td ".join(b"(%s) Tj" % line for line in lines)
        content = len(objects) + 1
        objects.append(stream(b"BT /F1 12 Tf 20 700 Td %s ET" % shown))
        objects.append(
            b"<</Type/Page/Parent 2 0 R/MediaBox[%s]/Contents %d 0 R"
            b"/Resources<</Font<</F1 3 0 R>>>>>>" % (box, content)
        )
        kids.append(b"%d 0 R" % (content + 1))
    objects[1] = b"<</Type/Pages/Kids[%s]/Count %d>>" % (b" ".join(kids), len(kids))
    return pdf(objects, trailer)


def drawing_pdf(content: bytes, *resources: bytes, box: bytes = b"0 0 612 792") -> bytes:
    """One page with this content; the resources are objects from number 5, named /X5 and so on."""
    names = b"".join(b"/X%d %d 0 R" % (n, n) for n in range(5, 5 + len(resources)))
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[%s]/Contents 4 0 R/Resources<</XObject<<%s>>>>>>"
    return pdf([*_ONE_PAGE, page % (box, names), stream(content), *resources])


def bomb_pdf() -> bytes:
    """A few kilobytes whose page is two gigabytes of blanks."""
    squeeze = zlib.compressobj(9)
    block = squeeze.compress(b" " * (1 << 20)) + squeeze.flush(zlib.Z_FULL_FLUSH)
    # A block that was flushed can be repeated. Only the first has the header of the whole.
    body = block + block[2:] * 2047 + b"\x03\x00"
    content = stream(zlib.compress(body, 9), b"/Filter[/FlateDecode/FlateDecode]")
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 4 0 R>>"
    return pdf([*_ONE_PAGE, page, content])
