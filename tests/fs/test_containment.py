"""Opening files below a root: links, races and tricks."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.fs.tricks import (
    on,
    open_handles,
    swapping,
    with_failing_openat2,
    without_privileges,
)

from clawkit.errors import ToolAuthorizationError, ToolInputError
from clawkit.fs import containment
from clawkit.fs.containment import open_inside, open_root, relative_path

Opener = Callable[[int, str, int], int]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A root with a file and links of every kind, and a secret beside it."""
    root = tmp_path / "root"
    (root / "dir" / "deep").mkdir(parents=True)
    (root / "dir" / "f").write_text("inside")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "f").write_text("SECRET")
    (root / "to-file").symlink_to("dir/f")
    (root / "to-dir").symlink_to("dir")
    (root / "dir" / "up").symlink_to("../dir/f")
    (root / "out").symlink_to("../outside")
    (root / "out-file").symlink_to(tmp_path / "outside" / "f")
    (root / "absolute").symlink_to(root / "dir" / "f")
    (root / "loop").symlink_to("loop")
    (root / "magic").symlink_to("/proc/self/root")
    (root / "cwd").symlink_to("/proc/self/cwd")
    return root


@contextlib.contextmanager
def handle(root: Path) -> Iterator[int]:
    fd = os.open(root, os.O_PATH | os.O_DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


def content(fd: int) -> str:
    with os.fdopen(fd) as file:
        return file.read()


def read_inside(root: Path, path: str) -> str:
    with handle(root) as fd:
        return content(open_inside(fd, str(root), path, os.O_RDONLY))


def read_by(opener: Opener, root: Path, path: str) -> str:
    with handle(root) as fd:
        return content(opener(fd, path, os.O_RDONLY | os.O_CLOEXEC))


BOTH = pytest.mark.parametrize("opener", [containment._openat2, containment._open_by_hand])


@BOTH
@pytest.mark.parametrize("path", ["dir/f", "./dir/f", "dir//f", "dir/./f", "dir/deep/../f"])
def test_files_inside_the_root_open(tree: Path, opener: Opener, path: str) -> None:
    if opener is containment._open_by_hand and ".." in path:
        with pytest.raises(OSError, match="goes up"):
            read_by(opener, tree, path)
    else:
        assert read_by(opener, tree, path) == "inside"


@BOTH
@pytest.mark.parametrize(
    "path",
    [
        "..",
        "../outside/f",
        "dir/../../outside/f",
        "out/f",
        "out-file",
        "to-dir/../../outside/f",
        "loop",
        "magic/etc/passwd",
        "cwd",
        "absolute",
    ],
)
def test_paths_that_lead_outside_do_not_open(tree: Path, opener: Opener, path: str) -> None:
    with pytest.raises(OSError):  # noqa: PT011  # which error differs, none opens
        read_by(opener, tree, path)


@pytest.mark.parametrize("path", ["to-file", "to-dir/f", "dir/up"])
def test_links_that_stay_inside_are_followed_by_the_kernel_and_refused_by_hand(
    tree: Path, path: str
) -> None:
    assert read_by(containment._openat2, tree, path) == "inside"
    with pytest.raises(OSError):  # noqa: PT011
        read_by(containment._open_by_hand, tree, path)


@BOTH
@pytest.mark.parametrize("path", ["dir/f/", "dir/f/.", "dir/f/x"])
def test_a_file_is_not_a_directory(tree: Path, opener: Opener, path: str) -> None:
    with pytest.raises(NotADirectoryError):
        read_by(opener, tree, path)


@BOTH
def test_a_link_is_opened_itself_only_when_that_is_asked_for(tree: Path, opener: Opener) -> None:
    with handle(tree) as fd:
        for flags in (os.O_PATH, os.O_DIRECTORY, os.O_PATH | os.O_DIRECTORY, os.O_RDONLY):
            with pytest.raises(OSError):  # noqa: PT011
                os.close(opener(fd, "out-file", flags))
        found = opener(fd, "out-file", os.O_PATH | os.O_NOFOLLOW)
        assert stat.S_ISLNK(os.fstat(found).st_mode)
        os.close(found)


@BOTH
def test_directories_that_may_only_be_passed_through_are(tree: Path, opener: Opener) -> None:
    (tree / "dir").chmod(0o111)
    assert without_privileges(lambda: read_by(opener, tree, "dir/f")) == "inside"


@BOTH
def test_absolute_paths_are_refused_below_a_root(tree: Path, opener: Opener) -> None:
    with pytest.raises(OSError):  # noqa: PT011
        read_by(opener, tree, "/etc/passwd")


def test_the_root_itself_opens_by_hand_too(tree: Path) -> None:
    with handle(tree) as fd:
        for path in (".", "", "./"):
            found = containment._open_by_hand(fd, path, os.O_RDONLY | os.O_DIRECTORY)
            assert os.path.samestat(os.fstat(found), tree.stat())
            os.close(found)


@pytest.mark.parametrize("path", ["../outside/f", "out/f", "out-file", "loop", "magic/etc/passwd"])
def test_leaving_is_refused_in_plain_words(tree: Path, path: str) -> None:
    with pytest.raises(ToolAuthorizationError, match="is outside the workspace") as caught:
        read_inside(tree, path)
    assert caught.value.reason == "outside-workspace"


def test_other_errors_are_raised_unchanged(tree: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_inside(tree, "missing")
    with pytest.raises(NotADirectoryError):
        read_inside(tree, "dir/f/g")


@BOTH
def test_no_handle_is_left_open(tree: Path, opener: Opener) -> None:
    before = open_handles()
    for path in ("dir/f", "missing/x", "out/f", "dir/f/g", "..", "dir/deep/none", "to-dir/f"):
        for _ in range(20):
            with contextlib.suppress(OSError):
                read_by(opener, tree, path)
    assert open_handles() <= before  # threads of earlier tests may still be closing theirs


@BOTH
@pytest.mark.parametrize("path", ["dir/f", "dir/deep/../f"])
def test_no_race_ever_shows_what_is_outside(tree: Path, opener: Opener, path: str) -> None:
    seen = set()
    with swapping(tree), handle(tree) as fd:
        for _ in range(3_000):
            with contextlib.suppress(OSError):
                seen.add(content(opener(fd, path, os.O_RDONLY | os.O_CLOEXEC)))
    assert seen <= {"inside"}


def test_a_directory_moved_out_while_it_is_walked_shows_nothing_of_the_outside(
    tree: Path,
) -> None:
    stop = threading.Event()
    away = tree.parent / "outside" / "dir"

    def move() -> None:
        while not stop.is_set():
            (tree / "dir").rename(away)
            away.rename(tree / "dir")

    thread = threading.Thread(target=move)
    thread.start()
    seen = set()
    try:
        with handle(tree) as fd:
            for _ in range(3_000):
                with contextlib.suppress(OSError, ToolAuthorizationError):
                    path = "dir/deep/../../f"
                    seen.add(content(open_inside(fd, str(tree), path, os.O_RDONLY)))
    finally:
        stop.set()
        thread.join()
    assert "SECRET" not in seen


@pytest.fixture
def forgotten() -> Iterator[None]:
    """Forget what was detected about the kernel."""
    containment._has_openat2.cache_clear()
    yield
    containment._has_openat2.cache_clear()


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize("system", ["Linux", "Darwin"])
def test_a_root_is_opened_by_its_real_path_alone(
    tree: Path, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    monkeypatch.setattr(os, "uname", lambda: on(system))
    for place in ("/", str(tree.resolve()), str(tree.resolve() / "dir" / "deep")):
        fd = open_root(place)
        assert os.readlink(f"/proc/self/fd/{fd}") == place
        os.close(fd)
    for link in ("to-dir", "out", "to-dir/deep", "loop"):
        with pytest.raises(OSError) as caught:  # noqa: PT011
            open_root(f"{tree}/{link}")
        assert caught.value.errno == errno.ELOOP
    for wrong in ("dir/f", "missing"):
        with pytest.raises((NotADirectoryError, FileNotFoundError)):
            open_root(f"{tree}/{wrong}")


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize("error", [errno.ENOSYS, errno.EPERM])
def test_without_the_kernels_help_every_link_is_refused(tree: Path, error: int) -> None:
    def look() -> list[str]:
        found = [read_inside(tree, "dir/f")]
        for path in ("out/f", "to-file", "to-dir/f", "dir/../dir/f", "../outside/f"):
            with pytest.raises(ToolAuthorizationError):
                read_inside(tree, path)
        return found

    assert with_failing_openat2(error, look) == ["inside"]
    assert not containment._has_openat2()
    fd = os.open(tree, os.O_PATH)
    with pytest.raises(OSError, match="has no openat2"):
        containment.open_near(fd, "dir/f", os.O_RDONLY)
    os.close(fd)


@pytest.mark.usefixtures("forgotten")
def test_other_systems_do_without_it(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "uname", lambda: on("Darwin"))
    assert read_inside(tree, "dir/f") == "inside"
    with pytest.raises(ToolAuthorizationError):
        read_inside(tree, "to-file")


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize("system", ["Linux", "Darwin"])
def test_paths_through_open_file_descriptors_are_refused(
    tree: Path, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    monkeypatch.setattr(os, "uname", lambda: on(system))
    root = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    try:
        fd = containment.open_anywhere(str(tree / "to-file"), os.O_RDONLY)
        os.close(fd)
        for path in (f"/proc/self/fd/{root}{tree}/dir/f", "/proc/self/environ/../root/etc/passwd"):
            with pytest.raises(OSError, match=r"link|directory|files"):
                containment.open_anywhere(path, os.O_RDONLY)
    finally:
        os.close(root)


def test_a_path_that_keeps_changing_is_given_up(tree: Path) -> None:
    assert containment._has_openat2()
    with pytest.raises(ToolAuthorizationError):
        with_failing_openat2(errno.EAGAIN, lambda: read_inside(tree, "dir/f"))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a/b", "a/b"),
        ("../a", "../a"),
        ("{root}", "."),
        ("{root}/", "."),
        ("{root}/a", "a"),
        ("{root}//a/../b", "a/../b"),
        ("{root}/../x", "../x"),
        ("{link}", "."),
        ("{link}/a", "a"),
        ("/{root}/a", "a"),
        ("/proc/self/cwd/a", "a"),
        ("file://{root}/a%20b", "a b"),
        ("file:a", "a"),
        ("~/a", "a"),
        ("~", "."),
        ("~root/a", "./~root/a"),
        ("~nobody-here", "./~nobody-here"),
    ],
)
def test_paths_are_read_from_the_root(
    tree: Path, monkeypatch: pytest.MonkeyPatch, path: str, expected: str
) -> None:
    monkeypatch.setenv("HOME", str(tree))
    monkeypatch.chdir(tree)
    link = tree.parent / "root-link"
    link.symlink_to(tree)
    assert relative_path(path.format(root=tree, link=link), str(tree)) == expected


@pytest.mark.parametrize(
    "path", ["/", "/etc/passwd", "{root}x/a", "{root}/../outside-not", "~", "file:///etc/passwd"]
)
def test_absolute_paths_elsewhere_are_outside(
    tree: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setenv("HOME", "/")
    if "{root}/.." in path:
        with pytest.raises(ToolAuthorizationError):
            read_inside(tree, relative_path(path.format(root=tree), str(tree)))
    else:
        with pytest.raises(ToolAuthorizationError, match="is outside the workspace"):
            relative_path(path.format(root=tree), str(tree))


@pytest.mark.parametrize("path", ["", "a\0b", "x" * 5_000, "\ud800", "file://host/a", "file:%2fa"])
def test_an_invalid_path_is_an_input_error(tree: Path, path: str) -> None:
    with pytest.raises(ToolInputError) as caught:
        relative_path(path, str(tree))
    assert not isinstance(caught.value, ToolAuthorizationError)


def test_everything_is_below_the_root_of_all(tmp_path: Path) -> None:
    assert relative_path(f"{tmp_path}/a", "/") == f"{tmp_path}/a".lstrip("/")
    assert relative_path("/", "/") == "."


def test_a_path_on_another_file_system_is_not_near(tree: Path) -> None:
    with handle(tree) as root:
        assert content(containment.open_near(root, "dir/f", os.O_RDONLY)) == "inside"
        for path in ("out/f", "../outside/f", "absolute"):
            with pytest.raises(OSError, match="Invalid cross-device link"):
                containment.open_near(root, path, os.O_RDONLY)
    with handle(Path("/")) as root, pytest.raises(OSError, match="Invalid cross-device link"):
        containment.open_near(root, "proc/self/status", os.O_RDONLY)


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize("system", ["Linux", "Darwin"])
def test_waiting_for_changes_changes_nothing(
    tree: Path, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    monkeypatch.setattr(os, "uname", lambda: on(system))
    before = {each: each.lstat() for each in sorted(tree.rglob("*"))}
    for name in ("dir/f", "to-file", "dir", "missing", "missing/f", "to-dir/f"):
        containment.await_changes(str(tree / name))
    after = {each: each.lstat() for each in sorted(tree.rglob("*"))}
    assert [(each, info.st_ino, info.st_ctime_ns) for each, info in before.items()] == [
        (each, info.st_ino, info.st_ctime_ns) for each, info in after.items()
    ]
