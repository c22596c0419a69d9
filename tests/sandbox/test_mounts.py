"""What bwrap mounts: where it is to be, and of what."""

from __future__ import annotations

import asyncio
import ctypes
import os
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox.local_ground import Box, open_sandbox
from tests.tables import table

from clawkit.errors import ToolError
from clawkit.process.landlock import Hold
from clawkit.process.protocols import Grants
from clawkit.sandbox.local import Mounted, find_misplaced, plan_mounts

HERE = "1 0 8:1 / / rw - ext4 x rw\n2 1 8:2 /sub /home rw - ext4 y rw\n"
PIN = Mounted("/home/ws/a b", 4, ("--bind", "/home/ws/a b", "/home/ws/a b"))
HIDDEN = Mounted("/home/.ssh", 1, ("--tmpfs", "/home/.ssh"))


@table(
    ("inside", "place"),
    [
        ("9 8 8:2 /sub/ws/a\\040b /home/ws/a\\040b rw - ext4 y rw\n", ""),
        ("9 8 8:2 /sub/.ssh /home/ws/a\\040b rw - ext4 y rw\n", "/home/ws/a b"),
        ("9 8 8:2 /sub/.ssh /home/.ssh rw - ext4 y rw\n", "/home/ws/a b"),
        ("", "/home/ws/a b"),
    ],
)
def test_a_mount_that_followed_a_link_is_found(inside: str, place: str) -> None:
    hidden = "5 1 0:9 / /home/.ssh rw - tmpfs tmpfs rw\n"
    assert find_misplaced([HIDDEN, PIN], hidden + inside, HERE) == place
    assert find_misplaced([HIDDEN], inside, HERE) == "/home/.ssh"


def test_directories_above_what_is_hidden_or_kept_cannot_be_renamed(tmp_path: Path) -> None:
    secret, kept = tmp_path / "a" / "b" / "key", tmp_path / "c" / "d" / ".envrc"
    for file in (secret, kept):
        file.parent.mkdir(parents=True)
        file.touch()
    (tmp_path / "link").symlink_to(tmp_path / "c")
    hold = Hold(
        write=(str(tmp_path),),
        hide=(str(secret),),
        keep=(str(kept), str(tmp_path / "link" / "d" / ".envrc")),
    )
    planned = {each.target: each.options[0] for each in plan_mounts(hold, tmp="/t", empty="/e")}
    below = {path: how for path, how in planned.items() if path.startswith(f"{tmp_path}/")}
    assert below == {
        f"{tmp_path}/a": "--bind",
        f"{tmp_path}/a/b": "--bind",
        str(secret): "--ro-bind",
        f"{tmp_path}/c": "--bind",
        f"{tmp_path}/c/d": "--bind",
        str(kept): "--ro-bind",
    }


@pytest.fixture
async def box(tmp_path: Path) -> Box:
    workspace, home = tmp_path / "ws", Path(os.environ["HOME"])
    (workspace / "lib" / ".git").mkdir(parents=True)
    (workspace / "lib" / ".git" / "config").write_text("[core]\n")
    (home / ".ssh").mkdir()
    (home / ".ssh" / "id").write_text("CANARY-7f3a")
    (home / ".netrc").write_text("CANARY-7f3a")
    return Box(open_sandbox("bwrap", workspace, tmp_path / "state", home), workspace)


async def test_names_with_other_line_ends_do_not_break_the_sandbox(box: Box) -> None:
    (box.workspace / "a\r9 8\x0b\x1c\x85\u2028" / ".git").mkdir(parents=True)
    exit_, output = await box.run("echo ok")
    assert (exit_.code, output) == (0, "ok\n")
    await box.sandbox.close()


async def test_a_directory_with_a_repository_in_it_is_not_exchanged_for_a_link(box: Box) -> None:
    ssh = os.path.join(os.environ["HOME"], ".ssh")
    exit_, _ = await box.run(f"mv lib lib2 && mkdir lib && ln -s {ssh} lib/.git")
    assert exit_.code != 0
    # Nor where something else did it: what is a link now is not mounted.
    os.rename(box.workspace / "lib", box.workspace / "lib2")
    os.mkdir(box.workspace / "lib")
    os.symlink(ssh, box.workspace / "lib" / ".git")
    _, said = await box.run(f"cat {ssh}/id", Grants(network=True))
    assert "CANARY" not in said
    await box.sandbox.close()


async def test_a_sandbox_with_redirected_mounts_is_not_used(box: Box) -> None:
    """A directory and a link are exchanged continuously while sandboxes are created."""
    ssh, place = os.path.join(os.environ["HOME"], ".ssh"), box.workspace / "lib"
    box.sandbox.confine()  # the repository is known from now on
    os.symlink(ssh, box.workspace / "link")
    is_over = False

    def exchange() -> None:
        libc, at = ctypes.CDLL(None, use_errno=True), -100
        one, other = os.fsencode(place / ".git"), os.fsencode(box.workspace / "link")
        while not is_over:
            libc.renameat2(at, one, at, other, 2)  # both at once

    flipping = asyncio.get_running_loop().run_in_executor(None, exchange)
    try:
        for number in range(12):
            grants = Grants(write=(), read=(f"/usr/share/{number}",))
            try:
                _, said = await box.run(f"cat {ssh}/id", grants)
            except ToolError as error:
                said = str(error)
            assert "CANARY" not in said
    finally:
        is_over = True
        await flipping
        await box.sandbox.close()


async def test_a_secret_that_is_replaced_is_hidden_from_the_next_command(box: Box) -> None:
    netrc = os.path.join(os.environ["HOME"], ".netrc")
    assert "CANARY" not in (await box.run(f"cat {netrc}"))[1]
    fresh = f"{netrc}.new"
    Path(fresh).write_text("CANARY-7f3a")
    os.rename(fresh, netrc)
    assert "CANARY" not in (await box.run(f"cat {netrc}"))[1]
    await box.sandbox.close()


async def test_settings_of_the_kernel_are_not_changed(box: Box) -> None:
    exit_, _ = await box.run("cat /proc/sys/vm/stat_interval > /proc/sys/vm/stat_interval")
    assert exit_.code != 0
    await box.sandbox.close()


async def test_a_hidden_directory_that_is_granted_can_be_changed(box: Box) -> None:
    ssh = os.path.join(os.environ["HOME"], ".ssh")
    exit_, said = await box.run(f"cat {ssh}/id && touch {ssh}/new", Grants(write=(ssh,)))
    assert (exit_.code, said) == (0, "CANARY-7f3a")
    assert os.path.exists(f"{ssh}/new")
    exit_, said = await box.run(f"cat {ssh}/id && touch {ssh}/more", Grants(read=(f"{ssh}/id",)))
    assert exit_.code != 0
    assert "CANARY" in said
    assert not os.path.exists(f"{ssh}/more")
    await box.sandbox.close()


async def test_a_sandbox_that_is_being_started_ends_when_clawkit_closes(box: Box) -> None:
    host: Any = box.sandbox.host()
    starting = asyncio.create_task(host.start_server(box.sandbox.confine()))
    await asyncio.sleep(0)
    await box.sandbox.close()
    assert not (await starting).is_open
