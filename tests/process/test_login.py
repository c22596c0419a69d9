"""PATH as login shells set it, asked of the shells of this machine."""

from __future__ import annotations

import asyncio
import os
import select
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.lacking import needs

from clawkit.process import environ as environ_module
from clawkit.process.environ import (
    DEFAULT_PATH,
    MAX_PROFILE_BYTES,
    login_path,
    path_from,
    usable_shell,
)

PROFILES = {
    "bash": (".bash_profile", "PATH=/from/profile:$PATH"),
    "sh": (".profile", "PATH=/from/profile:$PATH"),
    "dash": (".profile", "PATH=/from/profile:$PATH"),
    "ksh": (".profile", "PATH=/from/profile:$PATH"),
    "mksh": (".profile", "PATH=/from/profile:$PATH"),
    "zsh": (".zprofile", "PATH=/from/profile:$PATH"),
    "tcsh": (".login", "setenv PATH /from/profile:$PATH"),
    "fish": (".config/fish/config.fish", "set -gx PATH /from/profile $PATH"),
}
SHELLS = [name for name in PROFILES if shutil.which(name)]
LONG_S = 600.0
"""More than a test may take: nothing that waits for it passes."""


def write_profile(home: Path, shell: str, before: str = "", after: str = "") -> dict[str, str]:
    name, line = PROFILES[shell]
    (home / name).parent.mkdir(parents=True, exist_ok=True)
    (home / name).write_text(f"{before}\n{line}\n{after}\n")
    return {"HOME": str(home)}


def program(shell: str) -> str:
    found = shutil.which(shell)
    assert found is not None
    return found


@pytest.fixture
def alive(tmp_path: Path) -> Iterator[int]:
    """A handle that is at its end while nobody holds `held` open."""
    os.mkfifo(tmp_path / "held")
    handle = os.open(tmp_path / "held", os.O_RDONLY | os.O_NONBLOCK)
    yield handle
    os.close(handle)


def assert_gone(handle: int) -> None:
    """What was killed may take a moment to be gone."""
    with suppress(BlockingIOError):
        assert os.read(handle, 1) == b""
        return
    assert select.select([handle], [], [], 60)[0], "something still runs"
    assert os.read(handle, 1) == b""


@pytest.mark.parametrize("shell", SHELLS)
async def test_the_profile_of_a_shell_is_read(tmp_path: Path, shell: str) -> None:
    environ = write_profile(tmp_path, shell)
    path = await path_from(program(shell), environ, limit_s=LONG_S)
    assert path.split(":")[0] == "/from/profile"
    assert "/usr/bin" in path.split(":")


@pytest.mark.parametrize("shell", SHELLS)
async def test_output_of_profiles_is_ignored(tmp_path: Path, shell: str) -> None:
    noise = 'echo "CLAWKIT_0=/noise:/bin"; echo PATH=/noise; printf "no line end"'
    environ = write_profile(tmp_path, shell, before=noise, after=noise)
    path = await path_from(program(shell), environ, limit_s=LONG_S)
    assert path.startswith("/from/profile:/")
    assert "noise" not in path


async def test_only_absolute_directories_are_returned(tmp_path: Path) -> None:
    environ = write_profile(tmp_path, "sh", after="PATH='/a b:.::bin:/ö:/c\n/d:$HOME/e:/f'")
    assert await path_from(program("sh"), environ, limit_s=LONG_S) == "/a b:/ö:/f"


async def test_a_profile_finds_little_in_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROM_CLAWKIT", "1")
    (tmp_path / "inc").write_text("PATH=/from/env")
    environ = write_profile(
        tmp_path, "sh", after='PATH="/has/$FROM_CLAWKIT$OTHER:$HOME:/term/$TERM:/lang/$LANG:$(pwd)"'
    )
    environ |= {"OTHER": "1", "ENV": str(tmp_path / "inc"), "LANG": "C", "PATH": "/own"}
    told = await path_from(program("sh"), environ, limit_s=LONG_S)
    assert told == f"/has/:{tmp_path}:/term/dumb:/lang/C:{tmp_path}"


@pytest.mark.parametrize(
    "line",
    [
        "exit 0",
        "exit 3",
        "kill -9 $$",
        "exec /bin/true",
        "exec >/dev/null",
        f"head -c {MAX_PROFILE_BYTES * 3} /dev/zero",
        "PATH=",
        "PATH=relative:.",
    ],
)
async def test_a_profile_that_keeps_the_shell_from_telling(tmp_path: Path, line: str) -> None:
    environ = write_profile(tmp_path, "sh", after=line)
    assert await path_from(program("sh"), environ, limit_s=LONG_S) == ""


async def test_a_profile_that_asks_finds_its_input_empty(tmp_path: Path) -> None:
    environ = write_profile(tmp_path, "sh", before="read answer; cat")
    assert (await path_from(program("sh"), environ, limit_s=LONG_S)).startswith("/from/profile")


async def test_a_shell_that_hangs_is_ended_with_all_it_started(tmp_path: Path, alive: int) -> None:
    environ = write_profile(tmp_path, "sh", before=f"exec 9>{tmp_path}/held; sleep 1000 & wait")
    assert await path_from(program("sh"), environ, limit_s=0.5) == ""
    assert_gone(alive)


async def test_a_program_in_the_background_does_not_delay_the_answer(
    tmp_path: Path, alive: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on, as after any login: it may be in the middle of something."""
    monkeypatch.setattr(environ_module, "_END_S", 60.0)  # for the shell, which is done
    before = f"exec 9>{tmp_path}/held; sleep 1000 & echo $! > {tmp_path}/pid"
    environ = write_profile(tmp_path, "sh", before=before)
    told = await path_from(program("sh"), environ, limit_s=LONG_S)
    assert told.startswith("/from/profile:")
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert_gone(alive)


async def test_a_shell_that_takes_too_long_can_clean_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = os.killpg

    def ask_and_be_patient(pid: int, number: int) -> None:
        monkeypatch.setattr(environ_module, "_END_S", 60.0)
        ask(pid, number)

    monkeypatch.setattr("clawkit.process.environ.os.killpg", ask_and_be_patient)
    before = (
        f"trap 'rm {tmp_path}/lock; exit' TERM; touch {tmp_path}/lock; while :; do sleep 0.05; done"
    )
    environ = write_profile(tmp_path, "sh", before=before)
    assert await path_from(program("sh"), environ, limit_s=0.5) == ""
    assert not (tmp_path / "lock").exists()


async def test_a_program_that_left_the_session_does_not_delay_the_answer(tmp_path: Path) -> None:
    for name in ("left", "end"):
        os.mkfifo(tmp_path / name)
    environ = write_profile(
        tmp_path,
        "sh",
        before=f"cd {tmp_path}; setsid sh -c 'echo yes > left; exec cat end' & read answer < left",
    )
    assert (await path_from(program("sh"), environ, limit_s=LONG_S)).startswith("/from/profile:")
    with open(tmp_path / "end", "w"):
        pass  # it was waiting for this, and ends


async def test_a_caller_that_gives_up_leaves_nothing_behind(tmp_path: Path, alive: int) -> None:
    os.mkfifo(tmp_path / "started")
    environ = write_profile(
        tmp_path, "sh", before=f"exec 9>{tmp_path}/held; echo > {tmp_path}/started; sleep 1000"
    )
    asking = asyncio.create_task(path_from(program("sh"), environ, limit_s=LONG_S))
    await asyncio.to_thread((tmp_path / "started").read_text)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert_gone(alive)


@pytest.mark.parametrize("content", ["#!/no/such/interpreter\n", "", "\x7fELF nonsense"])
async def test_a_shell_that_cannot_be_started_tells_nothing(tmp_path: Path, content: str) -> None:
    shell = tmp_path / "shell"
    shell.write_text(content)
    shell.chmod(0o755)
    assert await path_from(str(shell), {"HOME": str(tmp_path)}) == ""


async def test_without_a_home_directory_there_is_still_an_answer(tmp_path: Path) -> None:
    told = await path_from(program("sh"), {"HOME": str(tmp_path / "none")}, limit_s=LONG_S)
    assert set(told.split(":")) & set(DEFAULT_PATH.split(":"))


@needs(shutil.which("dash"), "dash")
async def test_the_c_shell_is_told_by_its_name_that_this_is_a_login(tmp_path: Path) -> None:
    (tmp_path / "tcsh").symlink_to(program("dash"))
    environ = write_profile(tmp_path, "dash", before=f"cat /proc/$$/cmdline > {tmp_path}/called")
    told = await path_from(str(tmp_path / "tcsh"), environ, limit_s=LONG_S)
    assert told.startswith("/from/profile:")
    assert (tmp_path / "called").read_bytes().startswith(b"-tcsh\0-c\0exec ")


def test_the_first_usable_shell_is_taken(tmp_path: Path) -> None:
    for name, mode in {"ok": 0o755, "not-executable": 0o644, "nologin": 0o755}.items():
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(mode)
    (tmp_path / "folder").mkdir()
    ok = str(tmp_path / "ok")
    unusable = [
        "",
        "sh",
        "./sh",
        "/bin/false",
        "/usr/sbin/nologin",
        "/no/such/shell",
        f"{ok}\0",
        *(str(tmp_path / name) for name in ("not-executable", "nologin", "folder")),
    ]
    for shell in unusable:
        assert usable_shell(shell) == ""
        assert usable_shell(shell, ok) == ok
    assert usable_shell(ok, "/bin/sh") == ok
    assert usable_shell() == ""


async def test_the_users_own_shell_is_asked(tmp_path: Path) -> None:
    for shell in ("bash", "sh", "zsh"):
        write_profile(tmp_path, shell)
    told = await login_path({"HOME": str(tmp_path), "SHELL": program("sh")}, limit_s=LONG_S)
    assert told.startswith("/from/profile:")
