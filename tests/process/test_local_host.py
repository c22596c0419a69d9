"""Commands on this machine: what is its own beside the contract."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.fs.tricks import small_disk
from tests.process.watching import (
    alive,
    children,
    halt,
    keepers,
    open_handles,
    own,
    state_of,
    until,
)

from clawkit.errors import ToolError, ToolInputError
from clawkit.process import spool as spools
from clawkit.process.local_host import LocalHost
from clawkit.process.protocols import Launch

pytestmark = pytest.mark.usefixtures("no_loose_ends")
Make = Callable[..., Launch]


@pytest.fixture
def spool_dir(tmp_path: Path) -> Path:
    return tmp_path / "spool"


async def test_the_local_host_is_called_gateway(host: LocalHost) -> None:
    assert host.name == "gateway"


async def test_no_process_is_started_before_the_first_command(host: LocalHost) -> None:
    assert not keepers(os.getpid())
    await host.close()


async def test_getting_ready_starts_the_keeper_and_no_command(
    host: LocalHost, launch: Make
) -> None:
    host.prepare()
    host.prepare()
    await until(lambda: len(keepers(os.getpid())) == 1)
    [keeper] = keepers(os.getpid())
    assert not children(keeper)
    running = await host.start(launch("exit 3"), own("ready"))
    assert (await running.wait()).code == 3
    assert keepers(os.getpid()) == [keeper]


async def test_every_command_has_its_own_variables(host: LocalHost, launch: Make) -> None:
    """Those that are the same as before are not sent again."""
    path = os.environ["PATH"]
    envs: tuple[dict[str, str], ...] = (
        {"A": "1"},
        {"A": "1"},
        {"B": "2"},
        {},
        {"A": "1", "B": "2"},
        {"A": "1"},
    )
    for number, given in enumerate(envs):
        launched = launch("/usr/bin/env", env={"PATH": path, **given})
        running = await host.start(launched, own(f"env{number}"))
        await running.wait()
        lines = running.output.tail(100_000).decode().splitlines()
        found = {line.partition("=")[0]: line.partition("=")[2] for line in lines}
        assert {key: found.get(key) for key in "AB"} == {key: given.get(key) for key in "AB"}
        assert found["CLAWKIT_COMMAND"] == own(f"env{number}")


async def test_one_keeper_is_enough(host: LocalHost, launch: Make) -> None:
    runs = [await host.start(launch("sleep 0.05"), own(f"c{number}")) for number in range(5)]
    assert len(keepers(os.getpid())) == 1
    for each in runs:
        await each.wait()
        assert each.pid not in children(os.getpid())
    await host.close()
    assert not keepers(os.getpid())


async def test_a_closed_host_can_be_used_again(host: LocalHost, launch: Make) -> None:
    for number in (3, 4):
        running = await host.start(launch(f"exit {number}"), own(f"c{number}"))
        assert (await running.wait()).code == number
        await host.close()


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "left open"])
def test_a_host_can_be_used_in_one_event_loop_after_the_other(
    tmp_path: Path, launch: Make, marker: str, is_closed: bool
) -> None:
    host = LocalHost(str(tmp_path / "spool"))

    async def use(number: int) -> int | None:
        await host.start(launch(f"sleep {marker}"), own(f"first-{number}"))
        running = await host.start(launch(f"exit {number}"), own(f"second-{number}"))
        code = (await running.wait()).code
        if is_closed:
            await host.close()
        return code

    assert [asyncio.run(use(number)) for number in (3, 4)] == [3, 4]
    asyncio.run(host.close())
    asyncio.run(until(lambda: not alive(marker)))
    asyncio.run(until(lambda: not keepers(os.getpid())))


async def test_commands_do_not_see_clawkits_bash_settings(
    host: LocalHost, launch: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "startup").write_text("echo LOADED")
    monkeypatch.setenv("BASH_ENV", str(tmp_path / "startup"))
    running = await host.start(launch("echo plain; echo ${BASH_ENV-unset}"), own("a"))
    await running.wait()
    assert await running.output.read(0, 100) == b"plain\nunset\n"


async def test_a_shell_in_a_directory_of_the_path_is_not_used(
    host: LocalHost, launch: Make, tmp_path: Path
) -> None:
    fake = tmp_path / "bash"
    fake.write_text("#!/bin/sh\necho FAKE\n")
    fake.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    running = await host.start(launch("echo $BASH", env=env), own("a"))
    await running.wait()
    assert await running.output.read(0, 100) == b"/bin/bash\n"


async def test_a_directory_may_have_any_name(host: LocalHost, launch: Make, tmp_path: Path) -> None:
    names = ("a b", "-x", "new\nline", "\udcff\udcfe", "ünï", "$(echo)", "'\"")
    for number, name in enumerate(names):
        place = tmp_path / name
        place.mkdir()
        (place / "here").touch()
        running = await host.start(launch("ls", cwd=str(place)), own(f"c{number}"))
        await running.wait()
        assert await running.output.read(0, 100) == b"here\n"


async def test_a_command_in_a_missing_directory_is_refused(
    host: LocalHost, launch: Make, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to("gone")
    with pytest.raises(ToolInputError, match="no such file"):
        await host.start(launch("true", cwd=str(tmp_path / "link")), own("a"))
    assert not list(tmp_path.glob("spool/*"))


async def test_a_command_stays_in_its_directory_when_a_link_is_replaced(
    host: LocalHost, launch: Make, tmp_path: Path
) -> None:
    await (await host.start(launch("true"), own("first"))).wait()
    place = tmp_path / "place"
    place.mkdir()
    (place / "first").touch()
    [keeper] = keepers(os.getpid())
    await halt(keeper)
    starting = asyncio.create_task(host.start(launch("ls", cwd=str(place)), own("a")))
    await asyncio.sleep(0.05)
    place.rename(tmp_path / "moved")
    place.mkdir()
    os.kill(keeper, signal.SIGCONT)
    running = await starting
    await running.wait()
    assert await running.output.read(0, 100) == b"first\n"


async def test_where_handles_run_out_commands_are_refused_and_nothing_is_lost(
    host: LocalHost, launch: Make
) -> None:
    await (await host.start(launch("true"), own("first"))).wait()
    before = open_handles()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    kinds: list[dict[str, Any]] = [{}, {"size": (80, 24)}, {"detach": True}]
    try:
        for room in range(7):
            for number, options in enumerate(kinds):
                resource.setrlimit(resource.RLIMIT_NOFILE, (before + room, limits[1]))
                try:
                    running = await host.start(
                        launch("true", open_input=True, **options), own(f"c{room}-{number}")
                    )
                except ToolError:
                    continue
                finally:
                    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
                await running.wait()
                running.close()
                running.output.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert open_handles() <= before  # threads of earlier tests may still be closing theirs
    assert len(keepers(os.getpid())) == 1


async def test_where_handles_run_out_there_is_no_keeper_either(
    host: LocalHost, launch: Make
) -> None:
    before = open_handles()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    for room in range(-1, 6):
        resource.setrlimit(resource.RLIMIT_NOFILE, (before + room, limits[1]))
        try:
            await host.start(launch("true"), own(f"c{room}"))
            break
        except ToolError:
            assert room < 5
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert open_handles() <= before + 1
        assert room < 0 or len(keepers(os.getpid())) <= 1
    running = await host.start(launch("exit 3"), own("last"))
    assert (await running.wait()).code == 3


async def test_output_beyond_the_spool_is_counted(tmp_path: Path, launch: Make) -> None:
    with small_disk(tmp_path / "disk", "512k") as disk:
        host = LocalHost(str(disk))
        running = await host.start(launch("head -c 3000000 /dev/zero; echo end"), own("a"))
        assert (await running.wait()).code == 0
        assert running.output.size + running.output.dropped == 3_000_004
        assert running.output.dropped > 2_000_000
        assert await running.output.read(0, 3) == b"\0\0\0"
        other = await host.start(launch("echo fine; exit 3"), own("b"))
        assert (await other.wait()).code == 3
        running.output.remove()
        await host.close()


async def test_the_amount_of_kept_output_is_limited(
    host: LocalHost, launch: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spools, "MAX_FILE", 1_000_000)
    running = await host.start(launch("head -c 3000000 /dev/zero; exit 3"), own("a"))
    assert (await running.wait()).code == 3
    assert (running.output.size, running.output.dropped) == (1_000_000, 2_000_000)
    running.output.remove()


async def test_much_output_leaves_the_event_loop_free(host: LocalHost, launch: Make) -> None:
    running = await host.start(launch("head -c 100000000 /dev/zero"), own("a"))
    turns = 0
    waiting = asyncio.create_task(running.wait())
    while not waiting.done():
        await asyncio.sleep(0)
        turns += 1
    assert running.output.size == 100_000_000
    assert turns > 300
    running.output.remove()


async def test_an_endless_flood_can_be_ended(host: LocalHost, launch: Make, marker: str) -> None:
    before = open_handles()
    running = await host.start(launch(f"yes {marker}; :"), own("a"))
    await until(lambda: running.output.size > 5_000_000)
    await running.end(0.3)
    assert (await running.wait()).reason == "signal"
    assert running.output.size == Path(running.output.path).stat().st_size
    assert not alive(marker)
    running.close()
    running.output.remove()
    await until(lambda: open_handles() <= before + 1)  # the keeper's socket


async def test_a_flood_of_what_was_left_running_does_not_keep_the_result_back(
    host: LocalHost, launch: Make, marker: str
) -> None:
    running = await host.start(launch(f"setsid -f yes {marker}; exit 4"), own("a"))
    assert (await running.wait()).code == 4
    await until(lambda: [each.name for each in running.left] == ["yes"])
    await running.end(0)
    assert not alive(marker)
    running.close()
    running.output.remove()


async def test_a_terminal_answers_what_a_program_asks(host: LocalHost, launch: Make) -> None:
    program = (
        "import os, sys, termios, tty\n"
        "tty.setraw(0)\n"
        "os.write(1, b'\\x1b[5;9H\\x1b[6n')\n"
        "said = b''\n"
        "while not said.endswith(b'R'): said += os.read(0, 100)\n"
        "os.write(1, b'<' + said[2:-1] + b'>')\n"
    )
    text = f'exec {sys.executable} -c "$PROGRAM"'
    env = {"PATH": os.environ["PATH"], "PROGRAM": program}
    running = await host.start(launch(text, env=env, size=(80, 24)), own("a"))
    assert (await running.wait()).code == 0
    assert b"<5;9>" in await running.output.read(0, 1000)


async def test_a_terminal_asked_without_end_does_not_block(host: LocalHost, launch: Make) -> None:
    text = r"for i in {1..20000}; do printf '\033[6n\033[c\033[5n'; done; exit 3"
    running = await host.start(launch(text, size=(80, 24)), own("a"))
    assert (await running.wait()).code == 3


async def test_a_terminal_is_not_given_to_a_command_that_was_cancelled_before(
    host: LocalHost, launch: Make
) -> None:
    await (await host.start(launch("true"), own("first"))).wait()
    [keeper] = keepers(os.getpid())
    await halt(keeper)
    text = "echo INTRUDER; sleep 60"
    early = asyncio.create_task(host.start(launch(text, size=(80, 24)), own("early")))
    await asyncio.sleep(0.05)
    early.cancel()
    await asyncio.wait({early})
    text = "sleep 0.1; echo mine > /dev/tty; exit 3"
    late = asyncio.create_task(host.start(launch(text, size=(80, 24)), own("late")))
    await asyncio.sleep(0.05)
    os.kill(keeper, signal.SIGCONT)
    running = await late
    assert (await running.wait()).code == 3
    assert await running.output.read(0, 100) == b"mine\r\n"


# Living on


async def test_the_end_of_a_detached_command_is_written_to_a_file(
    launch: Make, spool_dir: Path, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "gate")
    host = LocalHost(str(spool_dir))
    text = "echo begun; read < gate; echo over >&2; exit 6"
    running = await host.start(launch(text, detach=True), own("lasting"))
    log, end = (spool_dir / f"{own('lasting')}.{each}" for each in ("log", "exit"))
    assert running.output.path == str(log)
    [keeper] = keepers(os.getpid())
    await host.close()
    await until(lambda: log.read_bytes() == b"begun\n")
    assert state_of(running.pid)
    assert not end.exists()
    (tmp_path / "gate").write_text("\n")
    await until(end.exists)
    await until(lambda: not state_of(keeper), "the keeper has ended and was not left lying about")
    code, at = end.read_text().split()
    assert code == "6"
    assert float(at) > 1e9
    assert log.read_bytes() == b"begun\nover\n"
    for file in (log, end):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "open"])
async def test_a_detached_command_has_its_time(
    launch: Make, spool_dir: Path, marker: str, closed: bool
) -> None:
    host = LocalHost(str(spool_dir))
    text = f"(setsid sleep {marker} &); sleep {marker}; :"
    running = await host.start(launch(text, detach=True, timeout_s=0.4), own("timed"))
    [keeper] = keepers(os.getpid())
    if closed:
        await host.close()
    await until(lambda: (spool_dir / f"{own('timed')}.exit").exists())
    assert (spool_dir / f"{own('timed')}.exit").read_text().startswith("-15 ")
    await until(lambda: not alive(marker))
    if not closed:
        assert (await running.wait()).signal == "SIGTERM"
        await host.close()
    await until(lambda: not state_of(keeper))


async def test_a_detached_command_that_cannot_start_leaves_no_file(
    host: LocalHost, launch: Make, spool_dir: Path
) -> None:
    for text in ("\0", "x" * 3_000_000):
        with pytest.raises(ToolError):
            await host.start(launch(text, detach=True), own("failed"))
    assert list(spool_dir.iterdir()) == []


async def test_a_detached_command_does_not_write_through_a_link(
    host: LocalHost, launch: Make, spool_dir: Path, tmp_path: Path
) -> None:
    spool_dir.mkdir()
    (tmp_path / "precious").write_text("old")
    (spool_dir / f"{own('linked')}.log").symlink_to(tmp_path / "precious")
    with pytest.raises(ToolError):
        await host.start(launch("echo new", detach=True), own("linked"))
    assert (tmp_path / "precious").read_text() == "old"
    (spool_dir / "ended.exit").symlink_to(tmp_path / "precious")
    running = await host.start(launch("exit 3", detach=True), own("ended"))
    assert (await running.wait()).code == 3
    assert (tmp_path / "precious").read_text() == "old"
    running.output.close()


async def test_a_start_of_a_detached_command_that_is_cancelled_leaves_no_file(
    host: LocalHost, launch: Make, spool_dir: Path, marker: str
) -> None:
    await (await host.start(launch("true"), own("first"))).wait()
    [keeper] = keepers(os.getpid())
    await halt(keeper)
    starting = asyncio.create_task(host.start(launch(f"sleep {marker}", detach=True), own("gone")))
    await asyncio.sleep(0.05)
    starting.cancel()
    await asyncio.wait({starting})
    os.kill(keeper, signal.SIGCONT)
    await (await host.start(launch("sleep 0.2"), own("later"))).wait()
    await until(lambda: not alive(marker))
    await until(lambda: list(spool_dir.iterdir()) == [])


NO_THREADS = """
import asyncio, sys, threading
from clawkit.process.protocols import Launch
from clawkit.process.local_host import LocalHost

def refuse(self):
    raise RuntimeError("can't start new thread")

async def main():
    host, start = LocalHost(sys.argv[1]), threading.Thread.start
    threading.Thread.start = refuse
    env = {"PATH": "/usr/bin:/bin"}
    running = await host.start(Launch("seq 1 500000", "/", env), "much")
    exit_ = await running.wait()
    threading.Thread.start = start
    print(exit_.code, running.output.size, running.output.dropped)
    await host.close()

asyncio.run(main())
"""


def test_much_output_is_read_also_where_no_thread_is_to_be_had(tmp_path: Path) -> None:
    argv = (sys.executable, "-X", "dev", "-c", NO_THREADS, str(tmp_path / "out"))
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    size = sum(len(str(number)) + 1 for number in range(1, 500_001))
    assert done.stdout.split() == ["0", str(size), "0"]
    assert "Error" not in done.stderr
    assert (tmp_path / "out" / "much.log").stat().st_size == size
