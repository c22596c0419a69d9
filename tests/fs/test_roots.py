"""Which root a path lies below, and where a change goes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fs.tricks import resolving_by_hand, without_privileges

from clawkit.errors import NotFoundError, ToolAuthorizationError, ToolInputError
from clawkit.fs import containment
from clawkit.fs.roots import (
    ChangeTarget,
    Roots,
    has_kept_path,
    make_folders,
    open_folder,
    place_of,
    remove_folders,
)


@pytest.fixture(params=["by the kernel", "by hand"], autouse=True)
def resolving(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "by hand":
        with resolving_by_hand():
            yield
    else:
        yield


@pytest.fixture
def tmp(tmp_path: Path) -> Path:
    tmp = tmp_path.resolve()
    for name in ("ws", "read", "write", "outside"):
        (tmp / name / "dir").mkdir(parents=True)
        (tmp / name / "f").write_text(name)
    return tmp


@pytest.fixture
def reach(tmp: Path) -> Roots:
    return Roots(str(tmp / "ws"), read_roots=[str(tmp / "read")], write_roots=["../write"])


def read(reach: Roots, path: str) -> str:
    fd = reach.open(path, os.O_RDONLY)
    with os.fdopen(fd) as file:
        return file.read()


def test_further_roots_are_read_by_absolute_paths_and_through_links(
    reach: Roots, tmp: Path
) -> None:
    for name in ("read", "write"):
        (tmp / "ws" / f"to-{name}").symlink_to(tmp / name)
        (tmp / "ws" / f"{name}-f").symlink_to(f"../{name}/f")
        for path in (f"{tmp}/{name}/f", f"to-{name}/f", f"{name}-f", f"{tmp}/{name}/dir/../f"):
            assert read(reach, path) == name
    (tmp / "read" / "back").symlink_to("../ws/f")
    assert read(reach, f"{tmp}/read/back") == "ws"
    assert reach.readable == (f"{tmp}/ws", f"{tmp}/write", f"{tmp}/read")


def test_a_link_out_of_a_further_root_is_refused(reach: Roots, tmp: Path) -> None:
    (tmp / "read" / "out").symlink_to("../outside")
    (tmp / "ws" / "through").symlink_to("../read/out/f")
    for path in (f"{tmp}/read/out/f", "through", f"{tmp}/read/../outside/f"):
        with pytest.raises(ToolAuthorizationError, match="outside the workspace") as caught:
            read(reach, path)
        assert str(tmp / "ws") in str(caught.value)


def test_roots_that_may_be_read_are_not_changed(reach: Roots, tmp: Path) -> None:
    (tmp / "ws" / "link").symlink_to("../read/f")
    (tmp / "ws" / "folder").symlink_to(tmp / "read" / "dir")
    for path in (f"{tmp}/read/f", f"{tmp}/read/new/deep", "link", "folder/new", "../read/f"):
        with pytest.raises(ToolAuthorizationError, match="read but not changed") as caught:
            reach.locate(path)
        assert caught.value.reason == "read-only"
    with pytest.raises(ToolAuthorizationError) as caught:
        reach.locate(f"{tmp}/read/../outside/f")
    assert caught.value.reason == "outside-workspace"


def test_a_change_goes_to_the_real_place(reach: Roots, tmp: Path) -> None:
    (tmp / "ws" / "abs").symlink_to(tmp / "ws" / "dir")
    (tmp / "ws" / "over").symlink_to("../write/dir")
    for path, root, folder, name in (
        ("f", "ws", ".", "f"),
        ("./dir/../f", "ws", ".", "f"),
        ("new", "ws", ".", "new"),
        ("a/b/new", "ws", "a/b", "new"),
        ("abs/new", "ws", "dir", "new"),
        ("abs/a/new", "ws", "dir/a", "new"),
        (f"{tmp}/write/f", "write", ".", "f"),
        ("over/new", "write", "dir", "new"),
        ("file:new%20one", "ws", ".", "new one"),
    ):
        target = reach.locate(path)
        assert target[:3] == (f"{tmp}/{root}", folder, name)
        assert target.place == os.path.normpath(f"{tmp}/{root}/{folder}/{name}")
        assert (target.info is not None) == os.path.lexists(target.place)


def test_a_link_itself_is_located_only_without_following(reach: Roots, tmp: Path) -> None:
    (tmp / "ws" / "link").symlink_to("dir/x")
    (tmp / "ws" / "out").symlink_to(tmp / "outside" / "f")
    (tmp / "ws" / "abs").symlink_to(tmp / "ws" / "dir")
    (tmp / "ws" / "dir" / "inner").symlink_to("../../outside/f")
    for path, place in (("link", "link"), ("out", "out"), ("abs/inner", "dir/inner")):
        target = reach.locate(path, follow=False)
        assert target.place == f"{tmp}/ws/{place}"
        assert target.info is not None
        with pytest.raises(ToolAuthorizationError):
            reach.locate(path)
    with pytest.raises(ToolAuthorizationError):
        reach.locate("../outside/f", follow=False)


@pytest.mark.parametrize(
    ("path", "error", "words"),
    [
        (".", ToolInputError, "names a directory"),
        ("dir/", ToolInputError, "names a directory"),
        ("new/.", ToolInputError, "names a directory"),
        ("file:dir/%2e%2e", ToolInputError, "names a directory"),
        ("{tmp}/ws/..", ToolInputError, "names a directory"),
        ("~", ToolInputError, "names a directory"),
        ("", ToolInputError, "the path is empty"),
        ("f/below", ToolInputError, "part of the path is not a directory"),
        ("x" * 300 + "/y", ToolInputError, "too long"),
        ("dangling", ToolAuthorizationError, "dangling symbolic link"),
        ("dangling/new", ToolAuthorizationError, "dangling symbolic link"),
        ("loop", ToolAuthorizationError, "outside the workspace"),
        ("loop/new", ToolAuthorizationError, "outside the workspace"),
        ("out", ToolAuthorizationError, "outside the workspace"),
        ("out/new", ToolAuthorizationError, "outside the workspace"),
        ("dir/out-new", ToolAuthorizationError, "outside the workspace"),
    ],
)
def test_a_path_that_cannot_be_changed_is_an_error_with_the_reason(
    tmp: Path,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    error: type[ToolInputError],
    words: str,
) -> None:
    monkeypatch.setenv("HOME", str(tmp / "ws"))
    (tmp / "ws" / "dangling").symlink_to("nowhere")
    (tmp / "ws" / "loop").symlink_to("loop")
    (tmp / "ws" / "out").symlink_to("../outside")
    (tmp / "ws" / "dir" / "out-new").symlink_to("../../outside/new")
    with pytest.raises(error, match=words):
        Roots(str(tmp / "ws")).locate(path.format(tmp=tmp))


def test_going_up_from_a_missing_directory_stays_inside(tmp: Path) -> None:
    reach = Roots(str(tmp / "ws"))
    if containment._has_openat2():
        with pytest.raises(NotFoundError, match="goes up from a missing directory"):
            reach.locate("missing/../new")
    else:
        # Nobody can tell by the name alone; it stays inside.
        assert reach.locate("missing/../new").place == f"{tmp}/ws/new"


def test_a_dangling_absolute_link_inside_is_missing_to_readers(reach: Roots, tmp: Path) -> None:
    (tmp / "ws" / "link").symlink_to(tmp / "ws" / "nowhere")
    with pytest.raises(NotFoundError):
        reach.open("link", os.O_RDONLY)
    with pytest.raises(ToolAuthorizationError, match="dangling symbolic link"):
        reach.locate("link")


def test_a_root_replaced_by_a_link_is_refused(tmp: Path) -> None:
    reach = Roots(str(tmp / "ws"), write_roots=[str(tmp)])
    assert read(reach, "f") == "ws"
    (tmp / "ws").rename(tmp / "away")
    (tmp / "ws").symlink_to("/etc")
    for path in ("passwd", f"{tmp}/ws/passwd"):
        with pytest.raises(ToolInputError):
            read(reach, path)
        with pytest.raises(ToolInputError):
            reach.locate(path)


def test_a_directory_above_a_root_may_not_become_a_link_either(tmp: Path) -> None:
    (tmp / "deep" / "ws").mkdir(parents=True)
    (tmp / "deep" / "ws" / "f").write_text("mine")
    reach = Roots(str(tmp / "deep" / "ws"))
    (tmp / "deep").rename(tmp / "away")
    (tmp / "evil" / "ws").mkdir(parents=True)
    (tmp / "evil" / "ws" / "f").write_text("theirs")
    (tmp / "deep").symlink_to("evil")
    with pytest.raises(ToolInputError, match="cannot be opened"):
        read(reach, "f")


def test_without_a_limit_any_file_can_be_changed(tmp: Path) -> None:
    reach = Roots(str(tmp / "ws"), held=False)
    (tmp / "ws" / "out").symlink_to(tmp / "outside")
    for path in ("../outside/f", "out/f", f"{tmp}/outside/dir/../f"):
        target = reach.locate(path)
        assert (target.root, target.place) == ("/", f"{tmp}/outside/f")
    assert reach.locate("out/new/deep").place == f"{tmp}/outside/new/deep"
    (tmp / "ws" / "loop").symlink_to("loop")
    with pytest.raises(ToolInputError, match="link that is not followed"):
        reach.locate("loop")


@pytest.mark.parametrize("held", [True, False])
def test_hidden_files_cannot_be_opened_by_any_name(tmp: Path, held: bool) -> None:
    reach = Roots(str(tmp / "ws"), held=held, hidden=[str(tmp / "ws" / "dir")])
    (tmp / "ws" / "dir" / "f").write_text("secret")
    (tmp / "ws" / "link").symlink_to("dir/f")
    before = len(os.listdir("/dev/fd"))
    for path in ("dir", "dir/f", "link", f"{tmp}/ws/dir/../dir/f", "dir/new", "dir/new/f"):
        with pytest.raises(ToolAuthorizationError, match="own secrets"):
            reach.locate(path)
        with pytest.raises(ToolInputError):
            reach.open(path, os.O_RDONLY)
        with pytest.raises((OSError, ToolInputError)):
            reach.open_near(path, os.O_RDONLY)
    assert len(os.listdir("/dev/fd")) <= before + 1  # that of the root
    assert read(reach, "f") == "ws"


def test_missing_directories_are_made_one_by_one_and_removed_again(tmp: Path, reach: Roots) -> None:
    target = reach.locate("dir/a/b/c/f")
    noted: list[str] = []
    assert make_folders(target, noted.append) == ["dir/a", "dir/a/b", "dir/a/b/c"]
    assert noted == ["dir/a", "dir/a/b", "dir/a/b/c"]
    assert make_folders(target) == []
    (tmp / "ws" / "dir" / "a" / "kept").touch()
    remove_folders(target.root, noted)
    assert sorted(os.listdir(tmp / "ws" / "dir" / "a")) == ["kept"]
    remove_folders(target.root, ["not/there", "f/x"])


def test_directories_are_not_left_behind_when_one_cannot_be_made(tmp: Path, reach: Roots) -> None:
    target = reach.locate("a/b/c/f")

    def interrupt(folder: str) -> None:
        if folder == "a/b/c":
            raise OSError("no")

    with pytest.raises(OSError, match="no"):
        make_folders(target, interrupt)
    assert not (tmp / "ws" / "a").exists()


def test_directories_are_not_made_in_a_read_only_one(tmp: Path, reach: Roots) -> None:
    (tmp / "ws" / "dir").chmod(0o555)
    with pytest.raises(PermissionError, match="read-only"):
        make_folders(reach.locate("dir/a/f"))


def test_directories_are_not_made_through_a_link_that_appears(tmp: Path, reach: Roots) -> None:
    for path, swapped in (("dir/a/b/f", "dir"), ("new/b/f", "new"), ("x/y/z", "x")):
        target = reach.locate(path)

        def swap(folder: str, name: str = swapped) -> None:
            place = tmp / "ws" / name
            if not place.is_symlink():
                if place.exists():
                    place.rename(tmp / f"away-{name}")
                place.symlink_to("../outside")

        before = sorted(os.listdir(tmp / "outside"))
        if path == "x/y/z":
            (tmp / "ws" / "x").symlink_to("../outside")
        with pytest.raises(ToolAuthorizationError):
            make_folders(target, swap)
        assert sorted(os.listdir(tmp / "outside")) == before


def test_a_folder_is_opened_only_where_it_was(tmp: Path, reach: Roots) -> None:
    target = reach.locate("dir/f")
    with open_folder(target) as fd:
        assert place_of(fd) == f"{tmp}/ws/dir"
    (tmp / "ws" / "dir").rename(tmp / "ws" / "away")
    with pytest.raises(FileNotFoundError), open_folder(target):
        pass
    (tmp / "ws" / "dir").symlink_to("away")
    with pytest.raises(ToolAuthorizationError), open_folder(target):
        pass
    with (
        pytest.raises(OSError, match="moved in the meantime"),
        open_folder(ChangeTarget(f"{tmp}/ws", ".", "x", f"{tmp}/other/x", None)),
    ):
        pass


def test_directories_that_may_not_be_listed_have_no_near_names(tmp: Path) -> None:
    (tmp / "ws" / "dir" / "name").touch()
    (tmp / "ws" / "dir").chmod(0o311)
    reach = Roots(str(tmp / "ws"))

    def look() -> str:
        with pytest.raises(NotFoundError) as caught:
            reach.open("dir/nane", os.O_PATH)
        return str(caught.value)

    assert without_privileges(look) == "'dir/nane' does not exist"
    assert "similar names: 'name'" in look()


def test_a_path_that_is_too_deep_is_refused(tmp: Path) -> None:
    reach = Roots(str(tmp / "ws"))
    parts = ["d" * 200] * 20 + ["e" * 60]
    fd = os.open(tmp / "ws", os.O_RDONLY)
    for part in parts:
        os.mkdir(part, dir_fd=fd)
        below = os.open(part, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    with pytest.raises(ToolInputError, match="too long"):
        reach.locate("/".join((*parts, "f")))


@pytest.mark.parametrize("later_s", [0, 60])
def test_a_file_keeps_its_path_until_it_is_moved_or_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later_s: float
) -> None:
    path = tmp_path / "file"
    path.touch()
    fd = os.open(path, os.O_RDONLY)
    try:
        info, now = os.fstat(fd), time.time()
        monkeypatch.setattr(time, "time", lambda: now + later_s)
        assert has_kept_path(fd, place_of(fd), info)
        path.rename(tmp_path / "other")
        # What happened long ago is not looked at again: `place_of` comes after it.
        assert has_kept_path(fd, str(path), info) is bool(later_s)
        (tmp_path / "other").unlink()
        assert not has_kept_path(fd, place_of(fd), info)
    finally:
        os.close(fd)
