"""The keeper ends what clawkit started, whatever becomes of clawkit and of itself."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.process.started import BOMBS
from tests.process.watching import alive, children, keepers, open_handles, own, state_of, until

from clawkit.errors import ToolError
from clawkit.process.local_host import LocalHost
from clawkit.process.process_table import count_tasks
from clawkit.process.protocols import Launch, Running
from clawkit.process.spawn_server import MORE_TASKS

pytestmark = pytest.mark.usefixtures("no_loose_ends")
Make = Callable[..., Launch]
CLAWKIT = """
import asyncio, json, os, sys, time
from clawkit.process.protocols import Launch
from clawkit.process.local_host import LocalHost

async def main():
    asked = json.loads(sys.stdin.readline())
    host = LocalHost(asked["folder"])
    for number, launch in enumerate(asked["launches"]):
        await host.start(Launch(**launch), f"parent-{os.getpid()}-{number}")
    fork = 0
    if asked["forks"]:
        fork = os.fork()
        if not fork:
            time.sleep(600)
    print(fork, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


class Clawkit:
    """A program of its own that runs commands."""

    def __init__(self, folder: Path, launches: list[Launch], *, forks: bool = False) -> None:
        self._process = subprocess.Popen(
            (sys.executable, "-c", CLAWKIT),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        asked = {
            "folder": str(folder),
            "launches": [dict(each._asdict(), env=dict(each.env)) for each in launches],
            "forks": forks,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        self._process.stdin.flush()
        self.fork = int(self._process.stdout.readline())
        """A copy of it that has everything open that it has."""
        self.pid = self._process.pid
        [self.keeper] = keepers(self.pid)

    def end(self, number: int = signal.SIGKILL) -> None:
        os.kill(self.pid, number)
        self._process.wait()
        for file in (self._process.stdin, self._process.stdout):
            if file is not None:
                file.close()


@pytest.fixture
async def clawkit(tmp_path: Path) -> AsyncIterator[Callable[..., Clawkit]]:
    started: list[Clawkit] = []

    def start(*launches: Launch, forks: bool = False) -> Clawkit:
        started.append(Clawkit(tmp_path / "spool", list(launches), forks=forks))
        return started[-1]

    yield start
    for each in started:
        if state_of(each.pid):
            each.end()
        for pid in (each.fork, each.keeper):
            if pid and state_of(pid):
                os.kill(pid, signal.SIGKILL)


STUBBORN = "trap '' TERM HUP INT; sleep {0}; :"
DAEMON = "(setsid bash -c 'sleep {0}; :' &); sleep {0}; :"
NAMELESS = "setsid -f env -i $(type -p sleep) {0}; sleep {0}; :"
"""Nothing tells who started the first of them."""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_nothing_outlives_clawkit(
    clawkit: Callable[..., Clawkit], launch: Make, marker: str, number: int
) -> None:
    texts = [each.format(marker) for each in ("sleep {0}", STUBBORN, DAEMON, NAMELESS)]
    parent = clawkit(
        *(launch(text) for text in texts),
        launch(texts[1], size=(80, 24)),
        launch(texts[2], open_input=True),
    )
    await until(lambda: len(alive(marker)) >= 13)
    parent.end(number)
    await until(lambda: not alive(marker))
    await until(lambda: not state_of(parent.keeper))


async def test_nothing_outlives_clawkit_though_a_copy_of_it_lives(
    clawkit: Callable[..., Clawkit], launch: Make, marker: str
) -> None:
    parent = clawkit(launch(DAEMON.format(marker)), forks=True)
    await until(lambda: len(alive(marker)) >= 4)
    parent.end()
    await until(lambda: not alive(marker))
    await until(lambda: not state_of(parent.keeper))
    assert state_of(parent.fork)


async def test_only_what_was_detached_outlives_clawkit(
    clawkit: Callable[..., Clawkit], launch: Make, marker: str, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    lasting = f"echo begun; read < gate; echo over; (exit 7) # {marker}-kept"
    parent = clawkit(
        launch(lasting, detach=True), launch(f"sleep {marker}"), launch(NAMELESS.format(marker))
    )
    await until(lambda: len(alive(marker)) >= 4)
    parent.end()
    await until(lambda: alive(marker) == alive(f"{marker}-kept"))
    assert len(alive(marker)) == 1
    assert state_of(parent.keeper)
    gate.write_text("\n")
    await until(lambda: not state_of(parent.keeper))
    [log] = (tmp_path / "spool").glob("*.log")
    assert log.read_text() == "begun\nover\n"
    assert log.with_suffix(".exit").read_text().startswith("7 ")


async def test_the_timeout_of_a_detached_command_applies_after_clawkit_has_ended(
    clawkit: Callable[..., Clawkit], launch: Make, marker: str, tmp_path: Path
) -> None:
    parent = clawkit(launch(DAEMON.format(marker), detach=True, timeout_s=0.5))
    parent.end()
    await until(lambda: not alive(marker))
    await until(lambda: not state_of(parent.keeper))
    [end] = (tmp_path / "spool").glob("*.exit")
    assert end.read_text().startswith("-15 ")


async def test_clawkit_in_a_command_of_clawkit_ends_with_it(
    host: LocalHost, launch: Make, marker: str, tmp_path: Path
) -> None:
    (tmp_path / "inner.py").write_text(CLAWKIT)
    inner = launch(DAEMON.format(marker))
    asked = {
        "folder": str(tmp_path / "inner"),
        "launches": [dict(inner._asdict(), env=dict(inner.env))],
        "forks": False,
    }
    outer = await host.start(launch(f"{sys.executable} inner.py", open_input=True), own("outer"))
    await outer.write(json.dumps(asked).encode() + b"\n")
    await until(lambda: len(alive(marker)) >= 4)
    await outer.end(0)
    await until(lambda: not alive(marker))


async def test_a_keeper_that_was_killed_is_replaced(
    host: LocalHost, launch: Make, marker: str
) -> None:
    texts = [each.format(marker) for each in ("sleep {0}", STUBBORN, DAEMON)]
    commands = [await host.start(launch(text), own(f"k{text}")) for text in texts]
    commands.append(await host.start(launch(texts[0], size=(80, 24)), own("terminal")))
    await until(lambda: len(alive(marker)) >= 7)
    [keeper] = keepers(os.getpid())
    os.kill(keeper, signal.SIGKILL)
    for each in commands:
        exit_ = await each.wait()
        assert (exit_.reason, exit_.code, exit_.status) == ("lost", None, "failed")
        assert not each.left
        await each.end(1)
        await each.signal(signal.SIGTERM)
    await until(lambda: not alive(marker))
    again = await host.start(launch("echo again; exit 3"), own("again"))
    assert (await again.wait()).code == 3
    await until(lambda: state_of(keeper) == "")
    [other] = keepers(os.getpid())
    assert other != keeper


async def test_a_command_that_kills_the_keeper_gains_nothing(
    host: LocalHost, launch: Make, marker: str
) -> None:
    other = await host.start(launch(DAEMON.format(marker)), own("other"))
    await until(lambda: len(alive(marker)) >= 4)
    text = f"read; kill -KILL $PPID; sleep {marker}; :"
    running = await host.start(launch(text, open_input=True), own("killer"))
    await running.write(b"\n")
    assert {(await each.wait()).reason for each in (running, other)} == {"lost"}
    await until(lambda: not alive(marker))
    again = await host.start(launch("exit 3"), own("again"))
    assert (await again.wait()).code == 3


async def test_a_start_right_after_the_keeper_was_killed_works_or_fails_in_good_order(
    host: LocalHost, launch: Make
) -> None:
    await (await host.start(launch("true"), own("first"))).wait()
    os.kill(keepers(os.getpid())[0], signal.SIGKILL)
    with suppress(ToolError):
        running = await host.start(launch("exit 2"), own("second"))
        assert (await running.wait()).code == 2
    running = await host.start(launch("exit 3"), own("third"))
    assert (await running.wait()).code == 3


async def test_a_command_runs_only_once_when_its_keeper_is_killed(
    host: LocalHost, launch: Make, tmp_path: Path
) -> None:
    for number in range(15):
        await (await host.start(launch("true"), own(f"ready-{number}"))).wait()
        await until(lambda: len(keepers(os.getpid())) == 1)  # the last one may not be gone yet
        [keeper] = keepers(os.getpid())
        text = f"echo >> ran-{number}; sleep 0.02; echo >> through-{number}"
        starting = asyncio.create_task(host.start(launch(text), own(f"once-{number}")))
        await asyncio.sleep(number / 5_000)
        os.kill(keeper, signal.SIGKILL)
        with suppress(ToolError):
            await (await starting).wait()
        # On a busy machine the command may have ended before: then the next one would still go to
        # a keeper that is about to be gone.
        await until(lambda: state_of(keeper) in ("", "Z"))  # noqa: B023
    ran = sorted(tmp_path.glob("ran-*"))
    assert [file.name for file in ran if len(file.read_text()) > 1] == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE])
async def test_the_keeper_goes_on_whatever_its_group_is_told(
    host: LocalHost, launch: Make, number: int
) -> None:
    running = await host.start(launch("read; exit 5", open_input=True), own("a"))
    [keeper] = keepers(os.getpid())
    os.killpg(keeper, number)
    await running.write(b"\n")
    assert (await running.wait()).code == 5
    assert keepers(os.getpid()) == [keeper]


async def test_a_keeper_that_is_asked_to_end_ends_everything(
    host: LocalHost, launch: Make, marker: str
) -> None:
    texts = [each.format(marker) for each in ("sleep {0}", STUBBORN, DAEMON, NAMELESS)]
    commands = [await host.start(launch(text), own(f"k{text}")) for text in texts]
    await until(lambda: len(alive(marker)) >= 8)
    [keeper] = keepers(os.getpid())
    os.killpg(keeper, signal.SIGTERM)
    reasons = {(await each.wait()).reason for each in commands}
    assert reasons <= {"signal", "lost"}
    await until(lambda: not alive(marker))
    await until(lambda: state_of(keeper) in ("", "Z"))
    again = await host.start(launch("exit 3"), own("again"))
    assert (await again.wait()).code == 3


async def test_commands_that_start_while_the_keeper_ends_are_not_lost(
    host: LocalHost, launch: Make, marker: str
) -> None:
    stubborn = await host.start(launch(f"{STUBBORN.format(marker)}"), own("stubborn"))
    await until(lambda: len(alive(marker)) >= 2)
    witness = await host.start(launch("sleep 60"), own("witness"))
    [keeper] = keepers(os.getpid())
    os.kill(keeper, signal.SIGTERM)
    await witness.wait()  # the keeper has begun to end
    late = await host.start(launch("read; exit 3", open_input=True), own("late"))
    assert (await stubborn.wait()).reason == "signal"
    await until(lambda: state_of(keeper) in ("", "Z"))
    await late.write(b"\n")
    assert (await late.wait()).code == 3


async def test_a_keeper_that_was_killed_does_not_take_along_what_is_to_live_on(
    host: LocalHost, launch: Make, marker: str
) -> None:
    running = await host.start(launch(f"sleep {marker}", detach=True), own("lasting"))
    other = await host.start(launch(f"sleep {marker}9"), own("other"))
    os.kill(keepers(os.getpid())[0], signal.SIGKILL)
    assert (await running.wait()).reason == (await other.wait()).reason == "lost"
    await until(lambda: not alive(f"{marker}9"))
    assert alive(marker) == [running.pid]


OWN_HANDLES = 9
"""What the keeper has open when it has nothing to do."""
BOMB = (
    "f() {{ if (($1 > 6)); then exec sleep {0}; fi; f $(($1 + 1)) | f $(($1 + 1)) & wait; }}; f 0"
)
"""Ends by itself at a few hundred, should nobody end it."""


@BOMBS
@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        f"setsid -w bash -c '{BOMB}'",
        f"setsid -f bash -c '{BOMB}'; sleep {{0}}; :",
        "for i in {{1..150}}; do sleep {0} & done; wait",
        "for i in {{1..150}}; do setsid -f sleep {0}; done; sleep {0}; :",
    ],
    ids=["bomb", "session", "daemon", "many", "daemons"],
)
async def test_a_command_that_starts_processes_without_end_is_ended(
    tmp_path: Path, launch: Make, marker: str, text: str
) -> None:
    host = LocalHost(str(tmp_path / "spool"), max_processes=60)
    other = await host.start(launch("read; exit 2", open_input=True), own("other"))
    running = await host.start(launch(text.format(marker)), own("bomb"))
    exit_ = await running.wait()
    assert (exit_.reason, exit_.status) == ("process-limit", "failed")
    assert int(re.findall(r"\d+", exit_.note)[0]) > 60
    await running.end(0)
    assert not alive(marker)
    await other.write(b"\n")
    assert (await other.wait()).code == 2
    await host.close()


async def test_the_kernel_limits_the_tasks_of_a_command(
    host: LocalHost, launch: Make, tmp_path: Path
) -> None:
    """Also if a bomb is faster than the server. The kernel exempts root, so this test runs none."""
    said, before = tmp_path / "said", count_tasks()
    text = f"read; (ulimit -Su; ulimit -Hu) > {said}"

    async def limits(running: Running) -> list[int]:
        await running.write(b"\n")
        assert (await running.wait()).code == 0
        return list(map(int, said.read_text().split()))

    soft, hard = await limits(await host.start(launch(text, open_input=True), own("limited")))
    assert soft == hard
    assert 0 < hard <= before + 2 * MORE_TASKS

    # A lower limit of the user's own stays.
    given = resource.getrlimit(resource.RLIMIT_NPROC)
    lower = before + MORE_TASKS // 2
    resource.setrlimit(resource.RLIMIT_NPROC, (lower, given[1]))
    other = LocalHost(str(tmp_path / "other"))
    try:
        running = await other.start(launch(text, open_input=True), own("lower"))
    finally:
        resource.setrlimit(resource.RLIMIT_NPROC, given)
    assert await limits(running) == [lower, lower]
    await other.close()


@BOMBS
async def test_processes_count_even_if_others_end_meanwhile(
    tmp_path: Path, launch: Make, marker: str
) -> None:
    """For ten processes that the command starts, twenty threads of this process have ended."""
    host = LocalHost(str(tmp_path / "spool"), max_processes=60)
    events = [threading.Event() for _ in range(200)]
    threads = [(event, threading.Thread(target=event.wait)) for event in events]
    for _, thread in threads:
        thread.start()
    text = f"while read; do sleep {marker} & done; wait"
    running = await host.start(launch(text, open_input=True), own("slow"))
    ended = asyncio.create_task(running.wait())
    for number in range(0, 200, 20):
        for event, thread in threads[number : number + 20]:
            event.set()
            thread.join()
        with suppress(ToolError):
            await running.write(b"\n" * 10)
        expected = number // 2 + 10
        await until(lambda: ended.done() or len(alive(marker)) > expected)  # noqa: B023
    assert (await ended).reason == "process-limit"
    await until(lambda: not alive(marker))
    await host.close()


async def test_without_tasks_for_threads_a_lost_server_still_ends_its_commands(
    host: LocalHost, launch: Make, marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    running = await host.start(launch(f"sleep {marker}"), own("calm"))
    await until(lambda: alive(marker))
    [keeper] = keepers(os.getpid())
    monkeypatch.setattr(threading.Thread, "start", start)
    os.kill(keeper, signal.SIGKILL)
    async with asyncio.timeout(20):
        assert (await running.wait()).reason == "lost"
    assert not alive(marker)


@BOMBS
async def test_nameless_processes_without_end_are_ended(
    tmp_path: Path, launch: Make, marker: str
) -> None:
    host = LocalHost(str(tmp_path / "spool"), max_processes=60)
    spawn = f"setsid -f env -i $(type -p sleep) {marker}"
    running = await host.start(
        launch(f"for i in {{1..150}}; do {spawn}; done; echo all"), own("bomb")
    )
    await running.wait()
    await until(lambda: len(alive(marker)) < 60)
    await host.close()
    assert not alive(marker)


async def test_as_many_processes_as_are_allowed_may_run(
    tmp_path: Path, launch: Make, marker: str
) -> None:
    host = LocalHost(str(tmp_path / "spool"), max_processes=60)
    text = f"for i in {{1..55}}; do sleep {marker} & done; read; exit 4"
    running = await host.start(launch(text, open_input=True), own("many"))
    await until(lambda: len(alive(marker)) >= 56)
    await asyncio.sleep(0.3)
    await running.write(b"\n")
    assert (await running.wait()).code == 4
    await host.close()
    assert not alive(marker)


@BOMBS
async def test_a_bomb_whose_first_process_has_ended_is_ended(
    tmp_path: Path, launch: Make, marker: str
) -> None:
    host = LocalHost(str(tmp_path / "spool"), max_processes=60)
    text = f"(for i in {{1..200}}; do sleep {marker} & done; wait) & exit 0"
    running = await host.start(launch(text), own("bomb"))
    await running.wait()
    await until(lambda: not alive(marker))
    await host.close()


async def test_the_keeper_has_no_dead_children_and_no_handles_left(
    host: LocalHost, launch: Make
) -> None:
    async def run(number: int, text: str, **options: object) -> None:
        running = await host.start(launch(text, **options), own(f"c{number}"))
        if number % 10 == 0:
            await running.end(0)
        await running.wait()
        running.close()
        running.output.close()

    async def fail(number: int) -> None:
        with pytest.raises(ToolError):
            await host.start(launch("\0", detach=number % 20 == 0), own(f"f{number}"))

    await run(1, "true")
    [keeper] = keepers(os.getpid())
    await until(lambda: len(links_of(keeper)) == OWN_HANDLES)
    ours = open_handles()
    for first in range(2, 202, 20):
        kinds: list[dict[str, object]] = [{}, {"size": (80, 24)}, {"open_input": True}]
        kinds.append({"detach": True})
        await asyncio.gather(
            *(
                run(number, "(sleep 0.01 &); (exit 3); echo $?", **kinds[number % 4])
                for number in range(first, first + 20)
            ),
            fail(first),
        )
    await until(lambda: not children(keeper))
    await until(lambda: len(links_of(keeper)) == OWN_HANDLES)
    await until(lambda: open_handles() <= ours)


def links_of(keeper: int) -> list[str]:
    """What the keeper has open."""
    found = []
    try:
        for name in os.listdir(f"/proc/{keeper}/fd"):
            with suppress(FileNotFoundError):
                found.append(os.readlink(f"/proc/{keeper}/fd/{name}"))
    except PermissionError:
        pytest.skip("nobody without privileges can look into the keeper")
    return found


async def test_the_keeper_has_nothing_open_but_its_own(host: LocalHost, launch: Make) -> None:
    with open(os.devnull, "rb") as file:
        os.set_inheritable(file.fileno(), True)
        await (await host.start(launch("true"), own("a"))).wait()
        [keeper] = keepers(os.getpid())
        await until(lambda: len(links_of(keeper)) == OWN_HANDLES)
        links = links_of(keeper)
    # How soon it goes when memory runs out is its own; its commands do not get the handle.
    [_] = [link for link in links if link == f"/proc/{keeper}/oom_score_adj"]
    others = (link for link in links if not link.startswith("/proc/"))
    kinds = {re.sub(r"\W.*", "", link.removeprefix("/dev/")) for link in others}
    assert kinds <= {"null", "socket", "pipe", "anon_inode"}
