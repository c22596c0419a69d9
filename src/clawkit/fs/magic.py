"""Identify the type of a file by its first bytes. Names are ignored: they can be anything."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Family = Literal["image", "document", "binary"]


class FileKind(Struct, frozen=True):
    """The type of a file that is not plain text."""

    name: str
    """For people, without an article: `PNG image`."""
    family: Family = "binary"


class ImageLimits(Struct, frozen=True):
    """Maximum size of an image for a model."""

    max_side: int = 1_200
    """Pixels."""
    max_bytes: int = 5 * 1024 * 1024


# Those of only printable characters could also start a text: they count only with a NUL nearby.
_MAGICS: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "PNG image"),
    (b"\xff\xd8\xff", "JPEG image"),
    (b"GIF87a", "GIF image"),
    (b"GIF89a", "GIF image"),
    (b"II*\0", "TIFF image"),
    (b"MM\0*", "TIFF image"),
    (b"\0\0\1\0", "ICO image"),
    (b"%PDF-", "PDF document"),
    (b"PK\3\4", "ZIP archive"),
    (b"PK\5\6", "empty ZIP archive"),
    (b"\x1f\x8b", "gzip-compressed file"),
    (b"BZh", "bzip2-compressed file"),
    (b"\xfd7zXZ\0", "xz-compressed file"),
    (b"\x28\xb5\x2f\xfd", "Zstandard-compressed file"),
    (b"7z\xbc\xaf\x27\x1c", "7-Zip archive"),
    (b"Rar!\x1a\x07", "RAR archive"),
    (b"!<arch>\n", "ar archive or static library"),
    (b"\x7fELF", "ELF program"),
    (b"MZ", "Windows program"),
    (b"\xfe\xed\xfa\xce", "Mach-O program"),
    (b"\xfe\xed\xfa\xcf", "Mach-O program"),
    (b"\xce\xfa\xed\xfe", "Mach-O program"),
    (b"\xcf\xfa\xed\xfe", "Mach-O program"),
    (b"\xca\xfe\xba\xbe", "Java class or universal Mach-O program"),
    (b"\0asm", "WebAssembly module"),
    (b"SQLite format 3\0", "SQLite database"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "old Office document"),
    (b"\x93NUMPY", "NumPy array"),
    (b"PAR1", "Parquet data file"),
    (b"\x80\2", "Python pickle"),
    (b"\x80\3", "Python pickle"),
    (b"\x80\4\x95", "Python pickle"),
    (b"\x80\5\x95", "Python pickle"),
    (b"ID3", "MP3 sound"),
    (b"\xff\xfb", "MP3 sound"),
    (b"OggS", "Ogg media file"),
    (b"fLaC", "FLAC sound"),
    (b"\x1a\x45\xdf\xa3", "Matroska or WebM video"),
    (b"\0\1\0\0\0", "TrueType font"),
    (b"OTTO", "OpenType font"),
    (b"ttcf", "font collection"),
    (b"wOFF", "web font"),
    (b"wOF2", "web font"),
    (b"PACK", "Git pack"),
    (b"\xd4\xc3\xb2\xa1", "packet capture"),
    (b"\x30\x82", "certificate or key (DER)"),
    (b"bplist00", "Apple property list"),
)
_LETTERS = bytes(range(32, 127))
_WORD_LOOK = 512
_IMAGES = frozenset({"PNG", "JPEG", "GIF", "TIFF", "ICO", "WebP", "BMP"})
_RIFF = {b"WEBP": "WebP image", b"WAVE": "WAV sound", b"AVI ": "AVI video"}
_FTYP = {b"avif": "AVIF image", b"avis": "AVIF image", b"heic": "HEIC image", b"mif1": "HEIC image"}
_BMP_HEADERS = frozenset({12, 40, 52, 56, 64, 108, 124})
# By the name of a file near the start of the archive.
_ZIPS = (
    (b"word/", "Word document"),
    (b"xl/", "Excel workbook"),
    (b"ppt/", "PowerPoint presentation"),
    (b"mimetypeapplication/epub+zip", "EPUB book"),
    (b"mimetypeapplication/vnd.oasis.opendocument", "OpenDocument file"),
    (b"AndroidManifest.xml", "Android package"),
    (b"META-INF/", "Java archive"),
)
_PYC_FLAGS = frozenset(bytes((flag, 0, 0, 0)) for flag in (0, 1, 3))
_ELFS = {1: "ELF object file", 2: "ELF program", 3: "ELF program or shared library", 4: "core dump"}


_WORDS = frozenset(
    magic for magic, _ in _MAGICS if not magic.strip(b"\r\n").translate(None, _LETTERS)
)
_BY_FIRST_BYTE: dict[bytes, list[tuple[bytes, str]]] = {}
for _row in _MAGICS:
    _BY_FIRST_BYTE.setdefault(_row[0][:1], []).append(_row)


def identify(head: bytes) -> FileKind | None:
    """The type of a file that starts with these bytes; None for text and unknown types."""
    has_nul = b"\0" in head[:_WORD_LOOK]
    fitting = (
        name
        for magic, name in _BY_FIRST_BYTE.get(head[:1], ())
        if head.startswith(magic) and (has_nul or magic not in _WORDS or magic == b"%PDF-")
    )
    name = next(fitting, "")
    if has_nul:
        name = _look_closer(head, name)
    if not name:
        return None
    first, _, last = name.partition(" ")
    if first in _IMAGES and last == "image":
        return FileKind(name, "image")
    return FileKind(name, "document" if first == "PDF" else "binary")


def _look_closer(head: bytes, name: str) -> str:
    """Types that need more than the first bytes."""
    if name == "ZIP archive":
        return next((said for part, said in _ZIPS if part in head[:4_096]), name)
    if name == "ELF program":
        order: Literal["little", "big"] = "big" if head[5:6] == b"\2" else "little"
        return _ELFS.get(int.from_bytes(head[16:18], order), name)
    if name:
        return name
    if head.startswith(b"RIFF"):
        return _RIFF.get(head[8:12], "RIFF media file")
    if head[4:8] == b"ftyp":
        return _FTYP.get(head[8:12], "MP4 or QuickTime video")
    if head.startswith(b"BM") and int.from_bytes(head[14:18], "little") in _BMP_HEADERS:
        return "BMP image"
    if head[257:262] == b"ustar":
        return "tar archive"
    return "Python bytecode" if head[2:4] == b"\r\n" and head[4:8] in _PYC_FLAGS else ""
