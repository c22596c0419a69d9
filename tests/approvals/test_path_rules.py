"""Which files a command may use as the file tools do."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawkit.approvals.path_rules import PathRules


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("ws", "lib", "out", "state"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name, encoding="utf-8")
    (tmp_path / "ws" / "link").symlink_to(tmp_path / "out" / "file")
    (tmp_path / "ws" / "dangling").symlink_to(tmp_path / "out" / "new")
    (tmp_path / "elsewhere").symlink_to(tmp_path / "ws")
    return tmp_path


def make(root: Path, **options: object) -> PathRules:
    return PathRules(
        str(root / "elsewhere"),
        read_roots=["../lib"],
        write_roots=[str(root / "state")],
        own=[str(root / "state" / "own"), str(root / "elsewhere" / "own")],
        **options,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("path", "reads", "writes"),
    [
        ("ws/file", True, True),
        ("ws/new/deep", True, True),
        ("elsewhere/file", True, True),
        ("ws", True, True),
        ("ws/../ws/file", True, True),
        ("ws/../out/file", False, False),
        ("ws/link", False, False),
        ("ws/dangling", False, False),
        ("lib/file", True, False),
        ("state/file", True, True),
        ("out/file", False, False),
        ("ws2", False, False),
        ("state/own", False, True),
        ("ws/own", False, True),
    ],
)
def test_a_path_counts_by_where_it_leads(root: Path, path: str, reads: bool, writes: bool) -> None:
    places = make(root)
    assert (places.may_read(f"{root}/{path}"), places.may_write(f"{root}/{path}")) == (
        reads,
        writes,
    )


@pytest.mark.parametrize("path", ["", "file", "a\0b", "/a\0b", "~/x"])
def test_a_path_that_is_not_absolute_has_no_rights(root: Path, path: str) -> None:
    places = make(root)
    assert not places.may_read(path)
    assert not places.may_write(path)
    assert not places.is_own(path)


def test_protected_files_are_not_written(root: Path) -> None:
    places = make(root, why_protected=lambda path: "no" if path.endswith("/file") else "")
    assert not places.may_write(f"{root}/elsewhere/file")
    assert places.may_write(f"{root}/elsewhere/other")


def test_without_a_workspace_limit_all_but_own_files_is_open(root: Path) -> None:
    places = make(root, workspace_only=False)
    assert places.may_read("/etc/hostname")
    assert places.may_write("/etc/hostname")
    assert not places.may_read(f"{root}/state/own")


def test_own_files_are_recognised_by_every_path(root: Path) -> None:
    places = make(root)
    assert places.is_own(f"{root}/ws/own")
    assert places.is_own(f"{root}/elsewhere/own")
    assert places.is_own(f"{root}/elsewhere/../state/./own")
    assert not places.is_own(f"{root}/ws/file")


def test_parts_of_an_own_directory_can_be_open(root: Path) -> None:
    state = root / "state"
    places = PathRules(str(state / "ws"), own=[str(state)], own_open=[str(state / "logs")])
    assert places.is_own(str(state))
    assert places.is_own(f"{state}/exec-approvals.json")
    assert not places.is_own(f"{state}/ws/file")
    assert not places.is_own(f"{state}/logs/x")
    assert not places.is_own(f"{root}/out")
    assert places.holds_own(str(root))
    assert places.holds_own("/")
    assert places.holds_own(str(state))
    assert not places.holds_own(f"{state}/logs")
    assert not places.holds_own("relative")


def test_a_file_with_several_names_is_not_read_unless_that_is_allowed(root: Path) -> None:
    (root / "ws" / "twin").hardlink_to(root / "ws" / "file")
    rules, lax = make(root, hard_links=False), make(root)
    for name, reads in (("file", False), ("twin", False), ("new", True), ("", True)):
        assert rules.may_read(f"{root}/ws/{name}") is reads, name
        assert lax.may_read(f"{root}/ws/{name}"), name


def test_directories_that_are_shared_can_be_read_even_if_they_are_our_own(root: Path) -> None:
    shared: list[str] = []
    rules = PathRules(str(root / "ws"), own=[str(root / "state")], shared=shared)
    for place in ("out/file", "state/file"):
        assert not rules.may_read(str(root / place))
    assert rules.is_own(str(root / "state" / "file"))
    shared += [str(root / "out"), str(root / "state")]
    for place in ("out/file", "state/file"):
        assert rules.may_read(str(root / place))
        assert not rules.may_write(str(root / place))
