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


# Magic numbers of printable characters could also start a text, so they count only with a NUL
# nearby.
_MAGICS: tuple[tuple[str, *tuple[bytes, ...]], ...] = (
    ("PNG image", b"\x89PNG\r\n\x1a\n"),
    ("JPEG image", b"\xff\xd8\xff"),
    ("GIF image", b"GIF87a", b"GIF89a"),
    ("TIFF image", b"II*\0", b"MM\0*"),
    ("ICO image", b"\0\0\1\0"),
    ("PDF document", b"%PDF-"),
    ("ZIP archive", b"PK\3\4"),
    ("empty ZIP archive", b"PK\5\6"),
    ("gzip-compressed file", b"\x1f\x8b"),
    ("bzip2-compressed file", b"BZh"),
    ("xz-compressed file", b"\xfd7zXZ\0"),
    ("Zstandard-compressed file", b"\x28\xb5\x2f\xfd"),
    ("7-Zip archive", b"7z\xbc\xaf\x27\x1c"),
    ("RAR archive", b"Rar!\x1a\x07"),
    ("ar archive or static library", b"!<arch>\n"),
    ("ELF program", b"\x7fELF"),
    ("Windows program", b"MZ"),
    ("Mach-O program", b"\xfe\xed\xfa\xce", b"\xce\xfa\xed\xfe"),
    ("Mach-O program", b"\xfe\xed\xfa\xcf", b"\xcf\xfa\xed\xfe"),
    ("Java class or universal Mach-O program", b"\xca\xfe\xba\xbe"),
    ("WebAssembly module", b"\0asm"),
    ("SQLite database", b"SQLite format 3\0"),
    ("old Office document", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"),
    ("NumPy array", b"\x93NUMPY"),
    ("Parquet data file", b"PAR1"),
    ("Python pickle", b"\x80\2", b"\x80\3", b"\x80\4\x95", b"\x80\5\x95"),
    ("MP3 sound", b"ID3", b"\xff\xfb"),
    ("Ogg media file", b"OggS"),
    ("FLAC sound", b"fLaC"),
    ("Matroska or WebM video", b"\x1a\x45\xdf\xa3"),
    ("TrueType font", b"\0\1\0\0\0"),
    ("OpenType font", b"OTTO"),
    ("font collection", b"ttcf"),
    ("web font", b"wOFF", b"wOF2"),
    ("Git pack", b"PACK"),
    ("packet capture", b"\xd4\xc3\xb2\xa1"),
    ("certificate or key (DER)", b"\x30\x82"),
    ("Apple property list", b"bplist00"),
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
_FIRST_BYTES = frozenset(magic[:1] for _, *magics in _MAGICS for magic in magics)


def identify(head: bytes) -> FileKind | None:
    """The type of a file that starts with these bytes; None for text and unknown types."""
    has_nul = b"\0" in head[:_WORD_LOOK]
    if not has_nul and head[:1] not in _FIRST_BYTES:
        return None
    fitting = (
        name
        for name, *magics in _MAGICS
        for magic in magics
        # A text may start with a magic that is a word.
        if head.startswith(magic)
        and (has_nul or magic == b"%PDF-" or magic.strip(b"\r\n").translate(None, _LETTERS))
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
