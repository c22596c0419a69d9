"""Archives of skills, most of them hostile."""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.skills.writing import write_skill

from clawkit.config.sections.skills import SkillLimits
from clawkit.errors import ConflictError, ToolInputError
from clawkit.skills import install
from clawkit.skills.install import MAX_BYTES, MAX_FILES, place, unpacked

SKILL = b"---\nname: demo\ndescription: A demo\n---\nDo it.\n"
LIMITS = SkillLimits()


def make_zip(path: Path, entries: dict[str, bytes], **modes: int) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {"SKILL.md": SKILL, **entries}.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = modes.get("mode", 0o100644) << 16
            archive.writestr(info, data)
    return path


def make_tar(path: Path, **member: Any) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        first = tarfile.TarInfo("SKILL.md")
        first.size = len(SKILL)
        archive.addfile(first, io.BytesIO(SKILL))
        data = member.pop("data", b"")
        info = tarfile.TarInfo(member.pop("name", "x"))
        info.size = len(data)
        for key, value in member.items():
            setattr(info, key, value)
        archive.addfile(info, io.BytesIO(data))
    return path


def try_install(path: Path, root: Path) -> str:
    with unpacked(str(path), str(root), LIMITS) as (skill, _):
        return place(skill, str(root))


def refuse(path: Path, root: Path, why: str = ".") -> None:
    """It is refused, and nothing is left behind."""
    with pytest.raises(ToolInputError, match=why):
        try_install(path, root)
    assert list(root.iterdir()) == []


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "state" / "skills"


def folder_of(tmp_path: Path) -> Path:
    file = write_skill(tmp_path / "src", "demo")
    (file.parent / "scripts").mkdir()
    script = file.parent / "scripts" / "run.sh"
    script.write_bytes(b"#!/bin/sh\n")
    script.chmod(0o4755)
    (file.parent / ".git").mkdir()
    (file.parent / ".git" / "config").write_bytes(b"")
    return file.parent


def zip_of(tmp_path: Path, suffix: str = "zip") -> Path:
    path = tmp_path / f"demo.{suffix}"
    with zipfile.ZipFile(path, "w") as archive:
        source = folder_of(tmp_path)
        for name in ("SKILL.md", "scripts/run.sh"):
            archive.write(source / name, f"demo/{name}")
    return path


def tar_of(tmp_path: Path) -> Path:
    with tarfile.open(tmp_path / "demo.tar.gz", "w:gz") as archive:
        archive.add(folder_of(tmp_path), "./demo", filter=lambda i: None if ".git" in i.name else i)
    return tmp_path / "demo.tar.gz"


@pytest.mark.parametrize(
    "source", [folder_of, zip_of, tar_of, lambda path: zip_of(path, "skill")], ids=range(4)
)
def test_a_skill_is_installed_from_a_directory_and_from_archives(
    tmp_path: Path, root: Path, source: Callable[[Path], Path]
) -> None:
    target = Path(try_install(source(tmp_path), root))
    assert target == root / "demo"
    assert [each.name for each in root.iterdir()] == ["demo"]
    found = {str(each.relative_to(target)) for each in target.rglob("*") if each.is_file()}
    assert found == {"SKILL.md", "scripts/run.sh"}
    # Programs stay programs, without other rights.
    assert stat.S_IMODE((target / "scripts" / "run.sh").stat().st_mode) == 0o700
    assert stat.S_IMODE((target / "SKILL.md").stat().st_mode) == 0o600


def test_an_installed_skill_is_not_replaced(tmp_path: Path, root: Path) -> None:
    source = folder_of(tmp_path)
    target = Path(try_install(source, root))
    (target / "mine").write_bytes(b"")
    with pytest.raises(ConflictError, match="remove it first"):
        try_install(source, root)
    assert (target / "mine").exists()
    assert [each.name for each in root.iterdir()] == ["demo"]


NAMES = (
    *("../evil", "a/../../evil", "/etc/evil", "..\\evil.sh", "a\\b", "C:/evil", "a//b", "a/./b"),
    *("a\nb", "a\x07b", "a\u202eb", "", ".", "..", "a/..", "x" * 201, "a\0b"),
)


def test_names_that_could_lead_elsewhere_are_refused(tmp_path: Path, root: Path) -> None:
    for number, name in enumerate(NAMES):
        with pytest.raises(ValueError, match=r"plain path|leads outside"):
            install.check_name(name)
        if name and "\0" not in name:
            refuse(make_zip(tmp_path / f"{number}.zip", {name: b"x"}), root)
            refuse(make_tar(tmp_path / f"{number}.tar.gz", name=name, data=b"x"), root)
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFIFO, stat.S_IFSOCK])
def test_links_and_devices_in_a_zip_file_are_refused(tmp_path: Path, root: Path, kind: int) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("SKILL.md", SKILL)
        info = zipfile.ZipInfo("link")
        info.external_attr = (kind | 0o777) << 16
        archive.writestr(info, "/etc/passwd")
    refuse(path, root, "link or a device")


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE]
)
def test_links_and_devices_in_a_tar_file_are_refused(
    tmp_path: Path, root: Path, kind: bytes
) -> None:
    refuse(make_tar(tmp_path / "a.tar.gz", type=kind, linkname="/etc/passwd"), root, "link or a")


def test_links_and_pipes_in_a_directory_are_refused(tmp_path: Path, root: Path) -> None:
    source = folder_of(tmp_path)
    for make in (
        lambda path: path.symlink_to("/etc/passwd"),
        lambda path: path.symlink_to("/etc"),
        os.mkfifo,
    ):
        make(source / "link")
        refuse(source, root, "link or a device")
        (source / "link").unlink()


def test_a_file_twice_or_as_a_directory_is_refused(tmp_path: Path, root: Path) -> None:
    refuse(make_zip(tmp_path / "a.zip", {"a": b"", "A": b""}), root, "twice")
    refuse(make_zip(tmp_path / "b.zip", {"a": b"", "a/b": b""}), root)
    refuse(make_tar(tmp_path / "c.tar.gz", name="skill.MD", data=b"x"), root, "twice")


def test_bombs_are_refused_without_filling_the_memory(tmp_path: Path, root: Path) -> None:
    zeros = b"\0" * (MAX_BYTES + 1)
    many = {f"f{number}": b"" for number in range(MAX_FILES + 1)}
    paths = [make_zip(tmp_path / "large.zip", {"z": zeros}), make_zip(tmp_path / "many.zip", many)]
    for name, data in (("large.tar.gz", zeros), ("garbage.tar.gz", b"\1" * 100_000)):
        paths.append(tmp_path / name)
        paths[-1].write_bytes(gzip.compress(data, 1))
    paths.append(tmp_path / "big.zip")
    with paths[-1].open("wb") as file:
        file.truncate(install.MAX_ARCHIVE_BYTES + 1)
    del zeros
    tracemalloc.start()
    for path in paths:
        refuse(path, root)
    assert tracemalloc.get_traced_memory()[1] < 4 * MAX_BYTES
    tracemalloc.stop()


def test_what_takes_very_long_or_much_memory_to_read_is_refused(tmp_path: Path, root: Path) -> None:
    header = tarfile.TarInfo("pax")
    header.type, header.size = tarfile.XHDTYPE, 1024**2
    data = header.tobuf(tarfile.USTAR_FORMAT) + b"1" * header.size
    (tmp_path / "slow.tgz").write_bytes(gzip.compress(data))
    refuse(tmp_path / "slow.tgz", root, "an extended header that is too long")
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        with zipfile.ZipFile(tmp_path / "large.zip", "w", method) as archive:
            archive.writestr("SKILL.md", SKILL)
        refuse(tmp_path / "large.zip", root, "only stored and deflated files")


def test_broken_archives_are_refused(tmp_path: Path, root: Path) -> None:
    whole = make_zip(tmp_path / "whole.zip", {}).read_bytes()
    secret = bytearray(whole)
    secret[6] |= 1  # encrypted
    secret[whole.index(b"PK\1\2") + 8] |= 1
    for name, data in (
        ("a.zip", b"PK"),
        ("b.zip", whole[:-30]),
        ("c.zip", bytes(secret)),
        ("d.tar.gz", b"no"),
        ("e.tgz", gzip.compress(SKILL)[:-9]),
        ("f.rar", whole),
    ):
        (tmp_path / name).write_bytes(data)
        refuse(tmp_path / name, root, "cannot be unpacked")


def test_an_archive_must_have_one_valid_skill(tmp_path: Path, root: Path) -> None:
    two = {"a/SKILL.md": SKILL, "b/SKILL.md": SKILL.replace(b"demo", b"other")}
    for name, entries, why in (
        ("none", {"README.md": b"x"}, "must contain one SKILL.md, but contains 0"),
        ("two", two, "must contain one SKILL.md, but contains 2"),
        ("invalid", {"SKILL.md": b"---\nname: *x\n---\n"}, "is invalid: line 2: unsupported YAML"),
        ("unnamed", {"SKILL.md": SKILL.replace(b"demo", b"...")}, "has no letters"),
    ):
        path = tmp_path / f"{name}.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for entry, data in entries.items():
                archive.writestr(entry, data)
        refuse(path, root, why)


def test_nothing_is_left_behind_when_it_is_declined(tmp_path: Path, root: Path) -> None:
    with unpacked(str(folder_of(tmp_path)), str(root), LIMITS) as (_, files):
        assert {each.name: each.is_program for each in files} == {
            "SKILL.md": False,
            "scripts/run.sh": True,
        }
    assert list(root.iterdir()) == []
