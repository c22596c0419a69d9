"""Unpacks a skill from a directory or an archive, and installs it."""

from __future__ import annotations

import gzip
import os
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import IO, NamedTuple, Self

from clawkit.config.sections.skills import SkillLimits
from clawkit.errors import ConflictError, ToolInputError
from clawkit.skills.discovery import SkillRoot, read_all, scan
from clawkit.skills.skill import Skill
from clawkit.store import private_dir
from clawkit.text import human_size, printable

MAX_ARCHIVE_BYTES = 20 * 1024 * 1024
MAX_BYTES = 50 * 1024 * 1024
MAX_FILES = 2_000
_MANY = f"it has more than {MAX_FILES} files"
_LARGE = f"it is larger than {human_size(MAX_BYTES)}"
_ZIP_ENTRY = b"PK\1\2"
_ZIP_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Other methods unpack without a limit: half a kilobyte into hundreds of megabytes."""
MAX_TAR_EXTENSION = 8 * 1024
_CHUNK = 64 * 1024
_SKIPPED = (".git", "__pycache__")
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_BROKEN = (
    *(EOFError, LookupError, NotImplementedError, OSError, OverflowError, RuntimeError),
    *(ValueError, tarfile.TarError, zipfile.BadZipFile, zlib.error),
)
Member = tuple[str, int, IO[bytes] | None]
"""The path of a file in its archive, its mode, and its content; None if it is not a file."""


class UnpackedFile(NamedTuple):
    name: str
    size: int
    is_program: bool


@contextmanager
def unpacked(
    path: str, root: str, limits: SkillLimits
) -> Iterator[tuple[Skill, list[UnpackedFile]]]:
    """Unpack a skill into a temporary private directory in `root`; yields the skill and its files.
    Raises `ToolInputError` if it is not a skill, or may be malicious."""
    private_dir(root)
    folder = tempfile.mkdtemp(prefix=".install-", dir=root)
    try:
        try:
            files = _write(_members(path), folder)
        except _BROKEN as error:
            what, why = getattr(error, "filename", None), getattr(error, "strerror", None)
            said = f"{what or path} cannot be unpacked: {why or error}"
            raise ToolInputError(printable(said)) from None
        skills, broken = read_all(scan([SkillRoot(folder, "managed")], limits), limits, ())
        if broken:
            raise ToolInputError(f"the skill in {path} is invalid: {broken[0].problem}")
        if len(skills) != 1:
            raise ToolInputError(f"{path} must contain one SKILL.md, but contains {len(skills)}")
        yield skills[0], files
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def place(skill: Skill, root: str) -> str:
    """Move an unpacked skill to its place in `root`; returns the place. Raises `ConflictError`."""
    if not skill.command:
        raise ToolInputError(
            f"the name {skill.name!r} has no letters a-z or digits for a directory"
        )
    target = os.path.join(root, skill.command)
    if os.path.lexists(target):
        raise ConflictError(f"{target} already exists; remove it first to replace it")
    os.rename(skill.folder, target)
    return target


def check_name(name: str) -> str:
    """The path of a file in an archive. Raises ValueError if it could lead elsewhere."""
    parts = name.split("/")
    if not name.isprintable() or "\\" in name or ":" in name:
        raise ValueError(f"{name!r} is not a plain path")
    if {"", ".", ".."}.intersection(parts) or max(map(len, map(os.fsencode, parts))) > 200:
        raise ValueError(f"{name[:200]!r} leads outside, or is too long")
    return name


def _write(members: Iterator[Member], folder: str) -> list[UnpackedFile]:
    files: dict[str, UnpackedFile] = {}
    left = MAX_BYTES
    for name, mode, content in members:
        if content is None or stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            what = "a link or a device; only files and directories are allowed"
            raise ValueError(f"{name!r} is {what}")
        name = check_name(name.removeprefix("./"))
        target = os.path.join(folder, name)
        if len(files) >= MAX_FILES:
            raise ValueError(_MANY)
        if files.get(key := name.casefold()):
            raise ValueError(f"{name!r} occurs twice")
        os.makedirs(os.path.dirname(target), 0o700, exist_ok=True)
        is_program, size = bool(mode & 0o100), 0
        with open(os.open(target, _CREATE, 0o700 if is_program else 0o600), "wb") as file:
            while data := content.read(_CHUNK):
                size, left = size + len(data), left - len(data)
                if left < 0:
                    raise ValueError(_LARGE)
                file.write(data)
        files[key] = UnpackedFile(name, size, is_program)
    return list(files.values())


def _members(path: str) -> Iterator[Member]:
    if os.path.isdir(path):
        return _walk(path)
    is_zip = path.endswith((".zip", ".skill"))
    if not is_zip and not path.endswith((".tar.gz", ".tgz")):
        raise ValueError("it must be a directory, or a .zip, .skill, .tar.gz or .tgz file")
    with open(os.open(path, _READ), "rb") as file:
        data = file.read(MAX_ARCHIVE_BYTES + 1)
    if len(data) > MAX_ARCHIVE_BYTES:
        raise ValueError(f"it is larger than {human_size(MAX_ARCHIVE_BYTES)}")
    return _unzip(data) if is_zip else _untar(data)


def _walk(path: str) -> Iterator[Member]:
    for here, folders, names, fd in os.fwalk(path):
        folders[:] = sorted(set(folders) - set(_SKIPPED))
        for name in (*folders, *sorted(names)):
            mode = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
            inside = os.path.relpath(os.path.join(here, name), path)
            if stat.S_ISREG(mode):
                with open(os.open(name, _READ | os.O_NOFOLLOW, dir_fd=fd), "rb") as file:
                    yield inside, mode, file
            elif not stat.S_ISDIR(mode):
                yield inside, mode, None


def _unzip(data: bytes) -> Iterator[Member]:
    if data.count(_ZIP_ENTRY) > MAX_FILES:  # all are read at once
        raise ValueError(_MANY)
    with zipfile.ZipFile(BytesIO(data)) as archive:
        for each in archive.infolist():
            if not each.is_dir():
                if each.compress_type not in _ZIP_METHODS:
                    raise ValueError("only stored and deflated files are supported in a .zip")
                with archive.open(each) as file:
                    yield each.orig_filename, each.external_attr >> 16, file


class _TarHeader(tarfile.TarInfo):
    """A header; refuses one that extends another with so much text that reading it takes very
    long."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        made = super().frombuf(buf, encoding, errors)
        if made.type not in tarfile.SUPPORTED_TYPES and made.size > MAX_TAR_EXTENSION:
            raise ValueError("it has an extended header that is too long")
        return made


def _untar(data: bytes) -> Iterator[Member]:
    with gzip.open(BytesIO(data)) as packed:
        plain = packed.read(MAX_BYTES + 1)
    if len(plain) > MAX_BYTES:
        raise ValueError(_LARGE)
    with tarfile.open(fileobj=BytesIO(plain), mode="r:", tarinfo=_TarHeader) as archive:
        for each in archive:
            if not each.isdir():
                file = archive.extractfile(each) if each.isreg() else None
                yield each.name, stat.S_IMODE(each.mode), file
