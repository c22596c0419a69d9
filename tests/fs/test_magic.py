"""What a file is, by its first bytes."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import py_compile
import sqlite3
import sys
import tarfile
import wave
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from clawkit.fs.magic import FileKind, ImageLimits, identify

TEXT = b"some text that is long enough to be worth packing\n" * 20


def a_tar(path: Path) -> None:
    with tarfile.open(path, "w") as tar:
        tar.add(__file__, arcname="x.py")


def a_zip(*names: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as packed:
            for name in names:
                packed.writestr(name, TEXT)

    return make


def a_database(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("create table t (x)")
    connection.commit()
    connection.close()


def a_sound(path: Path) -> None:
    with wave.open(str(path), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8_000)
        sound.writeframes(b"\1\2" * 100)


def a_module(path: Path) -> None:
    py_compile.compile(__file__, cfile=str(path), doraise=True)


def holding(data: bytes) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.write_bytes(data)

    return make


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (holding(gzip.compress(TEXT)), "gzip-compressed file"),
        (holding(bz2.compress(TEXT)), "bzip2-compressed file"),
        (holding(lzma.compress(TEXT)), "xz-compressed file"),
        (holding(pickle.dumps({"a": [1, 2]})), "Python pickle"),
        (a_tar, "tar archive"),
        (a_zip("a.txt"), "ZIP archive"),
        (a_zip(), "empty ZIP archive"),
        (a_zip("[Content_Types].xml", "word/document.xml"), "Word document"),
        (a_zip("xl/workbook.xml"), "Excel workbook"),
        (a_zip("META-INF/MANIFEST.MF"), "Java archive"),
        (a_database, "SQLite database"),
        (a_sound, "WAV sound"),
        (a_module, "Python bytecode"),
    ],
)
def test_files_of_real_programs_are_known(
    tmp_path: Path, make: Callable[[Path], None], name: str
) -> None:
    make(tmp_path / "f")
    assert identify((tmp_path / "f").read_bytes()) == FileKind(name)


def test_programs_of_this_machine_are_known() -> None:
    with Path(sys.executable).open("rb") as file:
        kind = identify(file.read(8_192))
    assert kind is not None
    assert "ELF program" in kind.name


def test_pictures_are_known_by_their_content(subtests: pytest.Subtests) -> None:
    for head, name in [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "PNG image"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF\0", "JPEG image"),
        (b"GIF89a\1\0\1\0\x80\0\0", "GIF image"),
        (b"RIFF\x24\0\0\0WEBPVP8 ", "WebP image"),
        (b"BM\x46\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0", "BMP image"),
        (b"II*\0\x08\0\0\0", "TIFF image"),
        (b"\0\0\1\0\1\0\x10\x10\0\0", "ICO image"),
    ]:
        with subtests.test(head=head):
            assert identify(head) == FileKind(name, "image")


def test_other_files_are_not_pictures(subtests: pytest.Subtests) -> None:
    for head, name in [
        (b"\0\0\0\x20ftypisom\0\0\2\0", "MP4 or QuickTime video"),
        (b"\0\0\0\x1cftypavif\0\0\0\0", "AVIF image"),
        (b"\x7fELF\2\1\1\0" + b"\0" * 8 + b"\1\0", "ELF object file"),
        (b"\x7fELF\2\2\1\0" + b"\0" * 8 + b"\0\2", "ELF program"),
        (b"MZ\x90\0\3\0\0\0", "Windows program"),
        (b"\0asm\1\0\0\0", "WebAssembly module"),
        (b"ID3\4\0\0\0", "MP3 sound"),
        (b"wOF2\0\1\0\0", "web font"),
        (b"RIFF\x24\0\0\0ACON", "RIFF media file"),
        (b"\x30\x82\4\0", "certificate or key (DER)"),
    ]:
        with subtests.test(head=head):
            assert identify(head) == FileKind(name, "binary")


def test_a_pdf_may_be_all_letters() -> None:
    assert identify(b"%PDF-1.4\n1 0 obj\n") == FileKind("PDF document", "document")


def test_words_that_look_like_magic_are_text(subtests: pytest.Subtests) -> None:
    for text in [
        b"",
        b"plain text",
        b"BM is a company",
        b"MZ were the initials of Mark Zbikowski",
        b"GIF89a is a format",
        b"RIFF: a chord",
        b"PACK your things",
        b"OTTO sat there",
        b"\n\r\r\nodd line ends",
        "MZ".encode("utf-16"),
        "Grüße".encode("utf-16-le"),
        b"%PDF is not it",
        "\ufeffPAR1".encode(),
    ]:
        with subtests.test(text=text):
            assert identify(text) is None


def test_any_data_can_be_examined() -> None:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        tar.add(__file__, arcname="x.py")
    data = whole.getvalue()
    assert all(identify(data[:size]) is None for size in range(257))


def test_pictures_have_their_own_limits() -> None:
    assert replace(ImageLimits(max_side=800), max_bytes=1) == ImageLimits(800, 1)
