"""Files that are changed in one act, or not at all."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import socket
import stat
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fs.tricks import (
    fail,
    just_before,
    on_the_poorest_file_system,
    open_handles,
    small_disk,
    without_hard_links,
    without_nameless_files,
    without_privileges,
    without_trading_names,
)
from tests.lacking import lack
from tests.scale import scaled

from clawkit.errors import (
    ConflictError,
    ProtectedError,
    ToolAuthorizationError,
    ToolError,
    ToolInputError,
)
from clawkit.fs.protected_files import Protection
from clawkit.fs.protocols import ABSENT, Change, Changed
from clawkit.fs.roots import Roots, version_of
from clawkit.fs.transaction import Committer

is_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs the superuser")
NOBODY = 65534


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    ws = tmp_path.resolve() / "tmp" / "ws"
    (ws / "dir").mkdir(parents=True)
    (ws / "a.txt").write_text("alpha")
    (ws / "dir" / "f").write_text("inside")
    return ws


def committer(ws: Path, *, held: bool = True, ask: bool = True, links: bool = False) -> Committer:
    return Committer(
        Roots(str(ws), held=held),
        protection=Protection(own=(str(ws / "state"),)),
        ask=ask,
        hard_links=links,
        journals=str(ws.parent.parent / "journals"),
    )


def commit(
    ws: Path, *changes: Change, allowed: frozenset[str] = frozenset()
) -> tuple[Changed, ...]:
    return committer(ws).commit(changes, allowed)


def snapshot(ws: Path) -> dict[str, bytes | None]:
    """Everything in the workspace and beside it."""
    return {
        str(path.relative_to(ws.parent)): path.read_bytes() if path.is_file() else None
        for path in ws.parent.rglob("*")
    }


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


MORE = (Change("x/y", b"1"), Change("z", b"2"))
EITHER = pytest.mark.parametrize("more", [(), MORE], ids=["alone", "with others"])
Kernel = Callable[[Callable[[], object]], object]
ALL_KERNELS = pytest.mark.parametrize(
    "kernel",
    [
        lambda work: work(),
        without_nameless_files,
        without_hard_links,
        without_trading_names,
        on_the_poorest_file_system,
    ],
    ids=["all", "no nameless files", "no hard links", "no trading", "poorest"],
)


@EITHER
@ALL_KERNELS
def test_files_are_written_replaced_and_deleted_on_every_kind_of_file_system(
    ws: Path, more: tuple[Change, ...], kernel: Kernel
) -> None:
    def work() -> None:
        commit(ws, Change("new/file", b"new", ABSENT), *more)
        commit(ws, Change("new/file", b"newer"), *more)
        commit(ws, Change("a.txt", None), *more)
        commit(ws, Change("dir/f", b"changed", version_of((ws / "dir/f").stat())), *more)

    kernel(work)
    others: dict[str, bytes | None] = {"ws/x": None, "ws/x/y": b"1", "ws/z": b"2"}
    assert snapshot(ws) == {
        "ws": None,
        "ws/new": None,
        "ws/new/file": b"newer",
        "ws/dir": None,
        "ws/dir/f": b"changed",
        **(others if more else {}),
    }
    assert os.listdir(ws.parent.parent / "journals") == [] if more else True


@EITHER
@ALL_KERNELS
def test_new_files_have_the_mode_that_the_mask_leaves(
    ws: Path, more: tuple[Change, ...], kernel: Kernel
) -> None:
    old = os.umask(0o027)
    try:
        kernel(lambda: commit(ws, Change("new/file", b"", ABSENT), *more))
    finally:
        os.umask(old)
    assert mode(ws / "new") == 0o750
    assert mode(ws / "new" / "file") == 0o640


@EITHER
@ALL_KERNELS
def test_a_file_that_was_created_meanwhile_is_not_overwritten(
    ws: Path, more: tuple[Change, ...], kernel: Kernel
) -> None:
    def appear() -> None:
        (ws / "b").mkdir()
        (ws / "b" / "new").write_text("theirs")

    def work() -> None:
        with just_before("os.mkdir", "b", appear), pytest.raises(ConflictError):
            commit(ws, *more, Change("b/new", b"mine"))

    before = snapshot(ws)
    kernel(work)
    assert snapshot(ws) == {**before, "ws/b": None, "ws/b/new": b"theirs"}


@EITHER
@pytest.mark.parametrize("data", [b"mine", None])
@pytest.mark.parametrize("how", ["in place", "replaced", "deleted", "time set back", "a link"])
def test_a_file_that_was_changed_meanwhile_is_left_as_it_is(
    ws: Path, more: tuple[Change, ...], data: bytes | None, how: str
) -> None:
    place = ws / "a.txt"
    info = place.stat()

    def interfere() -> None:
        if how in ("deleted", "replaced", "a link"):
            place.unlink()
        if how in ("in place", "replaced"):
            place.write_text("theirs!")
        if how == "time set back":
            place.write_text("ALPHA")
            os.utime(place, ns=(info.st_atime_ns, info.st_mtime_ns))
        if how == "a link":
            place.symlink_to("dir/f")
        after.update(snapshot(ws))

    after: dict[str, bytes | None] = {}
    # The directory of the new file is made after the old one was judged.
    changes = (Change("q/new", b""), Change("a.txt", data), *more)
    with just_before("os.mkdir", "q", interfere), pytest.raises(ConflictError):
        commit(ws, *changes)
    assert snapshot(ws) == after
    if data is not None:
        after.clear()
        place.unlink(missing_ok=True)
        place.write_text("alpha")
        os.utime(place, ns=(info.st_atime_ns, info.st_mtime_ns))
        info = place.stat()
        with just_before("open", ".", interfere), pytest.raises(ConflictError):
            commit(ws, Change("a.txt", data))
        assert snapshot(ws) == after


@EITHER
def test_a_replaced_file_keeps_its_attributes(ws: Path, more: tuple[Change, ...]) -> None:
    place = ws / "tool"
    place.write_text("old")
    place.chmod(0o6751)
    os.setxattr(place, "user.note", b"mine")
    commit(ws, Change("tool", b"new"), *more)
    assert place.read_bytes() == b"new"
    assert mode(place) == 0o751
    assert os.getxattr(place, "user.note") == b"mine"


@is_root
@EITHER
def test_the_owner_is_kept(ws: Path, more: tuple[Change, ...]) -> None:
    os.chown(ws / "a.txt", 1234, 4321)
    commit(ws, Change("a.txt", b"new"), *more)
    info = (ws / "a.txt").stat()
    assert (info.st_uid, info.st_gid) == (1234, 4321)
    commit(ws, Change("b.txt", b"moved", ABSENT, like="a.txt"), Change("a.txt", None))
    info = (ws / "b.txt").stat()
    assert (info.st_uid, info.st_gid) == (1234, 4321)


@is_root
@EITHER
def test_rights_of_a_program_do_not_go_over_to_new_content(
    ws: Path, more: tuple[Change, ...]
) -> None:
    capability = bytes.fromhex("0100000200040000000000000000000000000000")
    try:
        os.setxattr(ws / "a.txt", "security.capability", capability)
    except OSError:
        lack("no capabilities can be given here")
    commit(ws, Change("a.txt", b"new"), *more)
    assert "security.capability" not in os.listxattr(ws / "a.txt")


def acl(*entries: tuple[int, int, int]) -> bytes:
    """An access list as the kernel stores it."""
    rows = (
        tag.to_bytes(2, "little") + perm.to_bytes(2, "little") + who.to_bytes(4, "little")
        for tag, perm, who in entries
    )
    return (2).to_bytes(4, "little") + b"".join(rows)


@EITHER
def test_the_access_list_is_kept(ws: Path, more: tuple[Change, ...]) -> None:
    anyone = 0xFFFFFFFF
    rights = acl((1, 6, anyone), (2, 6, NOBODY), (4, 0, anyone), (16, 6, anyone), (32, 0, anyone))
    try:
        os.setxattr(ws / "a.txt", "system.posix_acl_access", rights)
    except OSError:
        pytest.skip("this file system has no access lists")
    commit(ws, Change("a.txt", b"new"), *more)
    assert os.getxattr(ws / "a.txt", "system.posix_acl_access") == rights


@EITHER
def test_a_file_whose_access_list_cannot_be_kept_is_not_replaced(
    ws: Path, more: tuple[Change, ...]
) -> None:
    """It could be open to more people than before."""
    anyone = 0xFFFFFFFF
    rights = acl((1, 6, anyone), (2, 6, NOBODY), (4, 0, anyone), (16, 6, anyone), (32, 0, anyone))
    try:
        os.setxattr(ws / "a.txt", "system.posix_acl_access", rights)
    except OSError:
        pytest.skip("this file system has no access lists")
    before = snapshot(ws)
    with (
        just_before("os.setxattr", "system.posix_acl_access", fail(errno.ENOTSUP)),
        pytest.raises(ToolInputError, match="nothing was changed"),
    ):
        commit(ws, *more, Change("a.txt", b"new"))
    assert snapshot(ws) == before


def test_other_attributes_are_kept_as_far_as_they_can_be(ws: Path) -> None:
    for name in ("user.one", "user.two"):
        os.setxattr(ws / "a.txt", name, b"mine")
    with just_before("os.setxattr", "user.one", fail(errno.ENOSPC)):
        commit(ws, Change("a.txt", b"new"))
    assert os.listxattr(ws / "a.txt") == ["user.two"]
    with just_before("os.listxattr", "", fail(errno.ENOTSUP)):
        commit(ws, Change("a.txt", b"newer"))
    assert (ws / "a.txt").read_bytes() == b"newer"


@is_root
@EITHER
def test_another_users_file_is_not_taken_over(ws: Path, more: tuple[Change, ...]) -> None:
    os.chown(ws / "a.txt", NOBODY, NOBODY)
    (ws / "a.txt").chmod(0o666)
    before = snapshot(ws)

    def work() -> None:
        with pytest.raises(ToolInputError, match="the owner could not be preserved"):
            commit(ws, *more, Change("a.txt", b"new"))

    without_privileges(work)
    assert snapshot(ws) == before


@EITHER
def test_a_move_takes_the_mode_along(ws: Path, more: tuple[Change, ...]) -> None:
    (ws / "a.txt").chmod(0o4755)
    (ws / "link").symlink_to("a.txt")
    commit(ws, Change("b", b"", like="a.txt"), Change("c", b"", like="link"), *more)
    commit(ws, Change("d", b"", like="missing"), Change("e", b"", like="dir"), *more)
    assert [mode(ws / name) for name in "bcde"] == [0o755, 0o755, 0o644, 0o644]
    with pytest.raises(ToolAuthorizationError):
        commit(ws, Change("g", b"", like="../outside"), *more)
    assert not (ws / "g").exists()


@EITHER
@pytest.mark.parametrize("change", [Change("ro", b"x"), Change("ro", None), Change("f/ro", b"x")])
def test_read_only_files_are_not_changed_even_by_the_superuser(
    ws: Path, more: tuple[Change, ...], change: Change
) -> None:
    (ws / "ro").write_text("fixed")
    (ws / "ro").chmod(0o444)
    (ws / "f").mkdir()
    (ws / "f" / "ro").write_text("fixed")
    (ws / "f").chmod(0o555)
    before = snapshot(ws)
    with pytest.raises(ToolInputError, match="read-only"):
        commit(ws, *more, change)
    assert snapshot(ws) == before


@EITHER
@pytest.mark.parametrize("path", ["ro/new", "ro/sub/new", "ro/sub/deep/new"])
def test_nothing_is_made_in_a_read_only_directory(
    ws: Path, more: tuple[Change, ...], path: str
) -> None:
    (ws / "ro").mkdir(mode=0o555)
    before = snapshot(ws)
    with pytest.raises(ToolInputError, match="is in a read-only directory; nothing was"):
        commit(ws, *more, Change(path, b"x"))
    assert snapshot(ws) == before


@EITHER
def test_nothing_is_deleted_in_a_read_only_directory(ws: Path, more: tuple[Change, ...]) -> None:
    (ws / "dir").chmod(0o555)
    with pytest.raises(ToolInputError, match="read-only"):
        commit(ws, *more, Change("dir/f", None))
    assert (ws / "dir" / "f").exists()


@EITHER
def test_errors_of_the_kernel_are_reported(ws: Path, more: tuple[Change, ...]) -> None:
    (ws / "dir").chmod(0o500)
    os.chown(ws / "dir", 1234, 1234)
    (ws / "dir").chmod(0o755)
    before = snapshot(ws)

    def work() -> None:
        with pytest.raises(ToolInputError, match="permission denied; nothing was changed"):
            commit(ws, *more, Change("dir/new", b"x"))

    without_privileges(work)
    assert snapshot(ws) == before


@EITHER
def test_only_regular_files_are_changed(
    ws: Path, more: tuple[Change, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(ws / "pipe")
    server = socket.socket(socket.AF_UNIX)
    monkeypatch.chdir(ws)
    server.bind("socket")
    server.close()
    before = snapshot(ws)
    for path in ("pipe", "socket", "dir"):
        for data in (b"x", None):
            with pytest.raises(ToolInputError, match="not a"):
                commit(ws, *more, Change(path, data))
    with pytest.raises(ToolInputError, match="not a regular file"):
        committer(Path("/dev")).commit([Change("null", b"x")], frozenset())
    assert snapshot(ws) == before


@EITHER
def test_a_file_with_a_second_name_is_only_deleted(
    ws: Path, more: tuple[Change, ...], tmp_path: Path
) -> None:
    (tmp_path / "outside").write_text("SECRET")
    os.link(tmp_path / "outside", ws / "hard")
    with pytest.raises(ToolAuthorizationError, match="hard links") as caught:
        commit(ws, *more, Change("hard", b"x"))
    assert caught.value.reason == "hard-link"
    commit(ws, *more, Change("hard", None))
    assert not (ws / "hard").exists()
    for one in (committer(ws, links=True), committer(ws, held=False)):
        os.link(tmp_path / "outside", ws / "hard")
        one.commit([*more, Change("hard", b"mine")], frozenset())
        assert (ws / "hard").read_text() == "mine"
        (ws / "hard").unlink()
    assert (tmp_path / "outside").read_text() == "SECRET"


def test_a_link_is_deleted_with_the_version_of_what_it_leads_to(ws: Path) -> None:
    (ws / "link").symlink_to("a.txt")
    version = version_of((ws / "a.txt").stat())
    (ws / "a.txt").write_text("changed")
    with pytest.raises(ConflictError):
        commit(ws, Change("link", None, version))
    with pytest.raises(ConflictError):
        commit(ws, Change("link", None, ABSENT))
    commit(ws, Change("link", None, version_of((ws / "a.txt").stat())))
    assert sorted(os.listdir(ws)) == ["a.txt", "dir"]


@EITHER
def test_protected_files_are_asked_about_or_refused(ws: Path, more: tuple[Change, ...]) -> None:
    hooks = (Change(".git/hooks/x", b""), Change("state/y", b""))
    places = {f"{ws}/.git/hooks/x", f"{ws}/state/y"}
    before = snapshot(ws)
    with pytest.raises(ProtectedError, match=r"\(and 1 more\) is protected: git takes") as caught:
        commit(ws, *more, *hooks)
    assert caught.value.places == places
    with pytest.raises(ProtectedError) as caught:
        commit(ws, *more, *hooks, allowed=frozenset({f"{ws}/.git/hooks/x"}))
    assert caught.value.places == {f"{ws}/state/y"}
    with pytest.raises(ToolAuthorizationError, match=r"tools\.fs\.protected refuses") as refused:
        committer(ws, ask=False).commit([*more, *hooks], frozenset())
    assert not isinstance(refused.value, ProtectedError)
    assert refused.value.reason == "protected"
    assert snapshot(ws) == before
    commit(ws, *more, *hooks, allowed=frozenset(places))
    assert (ws / ".git/hooks/x").exists()


def test_protected_files_are_not_reached_through_links(ws: Path) -> None:
    (ws / ".git" / "hooks").mkdir(parents=True)
    (ws / "innocent").symlink_to(".git/hooks")
    (ws / "config.txt").symlink_to(".git/config")
    (ws / ".git" / "config").write_text("")
    for path in ("innocent/pre-commit", "config.txt"):
        with pytest.raises(ProtectedError):
            commit(ws, Change(path, b"x"))


def test_a_repository_made_in_one_batch_is_protected(ws: Path) -> None:
    parts = ("HEAD", "objects/x", "refs/y", "config")
    for spelled in (str, str.lower, str.upper):
        with pytest.raises(ProtectedError):
            commit(ws, *(Change(f"bare/{spelled(part)}", b"") for part in parts))
    assert not (ws / "bare").exists()


def fill(disk: Path, leave: int) -> Path:
    """Take up a disk except for so many bytes."""
    filler = disk / "filler"
    size = 0
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                size += file.write(b"\0" * 4096)
        except OSError:
            file.truncate(size // 4096 * 4096 - leave)
    return filler


@is_root
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("path", ["old-{}", "new-{}", "deep/er-{}/new"])
def test_a_full_disk_leaves_everything_as_it_was(tmp_path: Path, count: int, path: str) -> None:
    with small_disk(tmp_path / "disk") as disk:
        ws = disk / "ws"
        ws.mkdir()
        for number in range(count):
            (ws / f"old-{number}").write_bytes(b"old")
        fill(disk, 40 * 1024)
        before = {each: each.read_bytes() for each in disk.rglob("*") if each.is_file()}
        folders = [each for each in disk.rglob("*") if each.is_dir()]
        handles = open_handles()
        one = Committer(
            Roots(str(ws)),
            protection=Protection(),
            ask=True,
            hard_links=False,
            journals=str(tmp_path / "journals"),
        )
        changes = [Change(path.format(number), b"x" * 30_000) for number in range(count)]
        if count == 1:
            changes = [Change(path.format(0), b"x" * 100_000)]
        with pytest.raises(
            ToolError, match="no space left on device; nothing was changed"
        ) as caught:
            one.commit(changes, frozenset())
        assert not isinstance(caught.value, ToolInputError)
        assert {each: each.read_bytes() for each in disk.rglob("*") if each.is_file()} == before
        assert [each for each in disk.rglob("*") if each.is_dir()] == folders
        assert open_handles() <= handles + 1  # the root's, which is kept


@is_root
def test_a_disk_with_no_room_for_the_journal_changes_nothing(ws: Path, tmp_path: Path) -> None:
    before = snapshot(ws)
    with small_disk(tmp_path / "disk") as disk:
        (disk / "journals").mkdir(mode=0o700)
        fill(disk, 4096)
        one = Committer(
            Roots(str(ws)),
            protection=Protection(),
            ask=True,
            hard_links=False,
            journals=str(disk / "journals"),
        )
        changes = [Change(f"new/{'x' * 200}-{number}", b"") for number in range(50)]
        with pytest.raises(ToolError, match="no space left on device"):
            one.commit(changes, frozenset())
        assert os.listdir(disk / "journals") == []
    assert snapshot(ws) == before


@EITHER
def test_a_file_too_large_for_the_user_is_not_written(ws: Path, more: tuple[Change, ...]) -> None:
    before = snapshot(ws)
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, old[1]))
    try:
        with pytest.raises(ToolInputError, match="file too large; nothing was changed"):
            commit(ws, *more, Change("a.txt", b"x" * 200_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    assert snapshot(ws) == before


@EITHER
@pytest.mark.parametrize(
    ("event", "name", "error", "words"),
    [
        ("open", "a.txt", errno.EACCES, "permission denied"),
        ("os.mkdir", "made", errno.EROFS, "cannot be changed: read-only file system"),
        ("os.mkdir", "deep", errno.EDQUOT, "cannot be changed: disk quota exceeded"),
    ],
)
def test_system_errors_are_reported_and_nothing_is_left_behind(
    ws: Path, more: tuple[Change, ...], event: str, name: str, error: int, words: str
) -> None:
    before = snapshot(ws)
    handles = open_handles()
    path = "made/deep/f" if event == "os.mkdir" else "a.txt"
    with (
        just_before(event, name, fail(error)),
        pytest.raises(ToolError, match=f"{words}; nothing was changed"),
    ):
        commit(ws, *more, Change(path, b"x"))
    assert snapshot(ws) == before
    assert open_handles() <= handles


def test_a_failure_while_content_is_made_leaves_nothing(ws: Path) -> None:
    before = snapshot(ws)
    for changes, name in (
        ((Change("a.txt", b"x"),), "."),
        ((*MORE, Change("a.txt", b"x")), ".tmp"),
    ):
        with (
            just_before("open", name, fail(errno.EIO)),
            pytest.raises(ToolError, match="input/output error"),
        ):
            commit(ws, *changes)
        assert snapshot(ws) == before


def test_content_that_can_get_no_name_is_written_again_under_one(ws: Path) -> None:
    (ws / "a.txt").chmod(0o640)
    os.setxattr(ws / "a.txt", "user.note", b"mine")

    def work() -> None:
        commit(ws, Change("a.txt", b"new"))
        commit(ws, Change("b.txt", b"new"))

    without_hard_links(work)
    assert sorted(os.listdir(ws)) == ["a.txt", "b.txt", "dir"]
    assert (ws / "a.txt").read_bytes() == (ws / "b.txt").read_bytes() == b"new"
    assert (mode(ws / "a.txt"), mode(ws / "b.txt")) == (0o640, 0o644)
    assert os.getxattr(ws / "a.txt", "user.note") == b"mine"


def test_readers_never_see_half_of_a_file(ws: Path) -> None:
    contents = [bytes([letter]) * 500_000 for letter in b"ab"]
    (ws / "a.txt").write_bytes(contents[0])
    stop = threading.Event()
    seen: set[bytes] = set()

    def look() -> None:
        while not stop.is_set():
            for name in ("a.txt", "b.txt"):
                try:
                    seen.add((ws / name).read_bytes())
                except FileNotFoundError:
                    assert name == "b.txt"

    thread = threading.Thread(target=look)
    thread.start()
    try:
        for number in range(30):
            commit(ws, Change("a.txt", contents[number % 2]))
            commit(ws, Change("b.txt", contents[number % 2], ABSENT))
            commit(ws, Change("b.txt", None))
            commit(ws, Change("a.txt", contents[0]), Change("b.txt", contents[1]))
            commit(ws, Change("a.txt", contents[1]), Change("b.txt", None))
    finally:
        stop.set()
        thread.join()
    assert seen <= set(contents)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_many_more_files_than_can_be_open_change_at_once(ws: Path) -> None:
    count = scaled(10_000)
    before = open_handles()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before + 40, hard))
    try:
        done = commit(ws, *(Change(f"many/{n % 100}/{n}", b"%d" % n) for n in range(count)))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(done) == count
    assert all(each.info is not None for each in done)
    assert (ws / "many/42/942").read_bytes() == b"942"
    assert sum(len(files) for _, _, files in os.walk(ws / "many")) == count
    assert open_handles() <= before
    shutil.rmtree(ws / "many")


def test_no_program_is_left_running(ws: Path) -> None:
    commit(ws, *MORE)
    with pytest.raises(ToolInputError):
        commit(ws, *MORE, Change("dir", b""))
    with pytest.raises(ConflictError):
        commit(ws, Change("new", b""), Change("a.txt", b"", "1-2-3-4-5"))
    found = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert str(ws.parent.parent / "journals") not in found.stdout


def test_the_place_for_journals_may_be_unusable(ws: Path) -> None:
    before = snapshot(ws)
    journals = ws.parent.parent / "journals"
    journals.mkdir()
    journals.chmod(0o777)
    with pytest.raises(ToolInputError, match="can be written by others") as caught:
        commit(ws, *MORE)
    assert str(journals) in str(caught.value)
    assert snapshot(ws) == before
    commit(ws, Change("alone", b"needs none"))
