"""A spawn server inside a sandbox is the equal of its commands: what it says is not trusted."""

from __future__ import annotations

import array
import asyncio
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.process.watching import until

from clawkit.errors import ToolError
from clawkit.process import process_table
from clawkit.process.protocols import LOST
from clawkit.process.spawn_client import (
    ServerLostError,
    ServerProcess,
    SpawnClient,
    SpawnedChild,
    start_server,
)
from clawkit.process.spawn_server import Unframer, frame, pack


class Hostile:
    """The other end of the socket, and whether it was killed."""

    def __init__(self, pid: int = 0) -> None:
        """`pid` is its process."""
        ours, self.socket = socket.socketpair()
        self.was_killed = False
        self._unframer = Unframer()
        self.keeping = SpawnClient(ServerProcess(ours, self._kill, self._wait, find=lambda: pid))

    def _kill(self) -> None:
        self.was_killed = True

    def _wait(self, seconds: float) -> None:
        raise subprocess.TimeoutExpired("server", seconds)

    async def start(self, id_: str = "a-command") -> asyncio.Task[SpawnedChild]:
        """Ask it for a command, and take the request."""
        null = os.open(os.devnull, os.O_RDWR)
        child = SpawnedChild(self.keeping, id_)
        run = self.keeping.run(child, ["/bin/true"], {}, (null, null), limit=10, cwd="/")
        task = asyncio.create_task(run)
        await asyncio.sleep(0)
        os.close(null)
        self.socket.setblocking(False)
        loop = asyncio.get_running_loop()
        assert list(self._unframer.feed(await loop.sock_recv(self.socket, 1 << 16)))
        return task

    async def send(self, data: bytes, *fds: int) -> None:
        if fds:
            beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
            self.socket.sendmsg([data], beside)
        else:
            self.socket.setblocking(False)
            await asyncio.get_running_loop().sock_sendall(self.socket, data)
        await asyncio.sleep(0.05)


@pytest.fixture
async def server() -> AsyncIterator[Hostile]:
    made = Hostile()
    yield made
    made.socket.close()
    await made.keeping.close()


def facts(*left: Any, **changed: Any) -> bytes:
    found = {"code": 0, "cpu_s": 0.1, "memory": 0, "oom": 0, "wanted_network": 0} | changed
    return pack("a-command", "exit", *found.values(), *left)


INVALID = {
    "no text": frame(b"a-command\0pid\xff"),
    "nothing": frame(b""),
    "a huge message": struct.pack("<I", 1 << 31),
    "too short": pack("a-command"),
    "facts that are none": pack("a-command", "exit"),
    "too few facts": pack("a-command", "exit", 7),
    "a code of words": facts(code="zero"),
    "a code without end": facts(code="9" * 100_000),
    "endless time": facts(cpu_s=float("inf")),
    "no time": facts(cpu_s=float("nan")),
    "endless memory": facts(memory=float("inf")),
    "words for yes": facts(oom="True"),
    "what is left has no number": facts("sleep", "1"),
    "what is left has no name": facts(1),
    "gone with words": pack("a-command", "gone", "many"),
    "a process of words": pack("a-command", "pid", "1", {}),
    "an endless process": pack("a-command", "pid", 1e400, 1),
    "a process without a start": pack("a-command", "pid", 1),
    "a crowd of words": pack("a-command", "crowd", "many"),
}


@pytest.mark.parametrize("data", INVALID.values(), ids=INVALID.keys())
async def test_a_server_that_sends_invalid_messages_is_killed(server: Hostile, data: bytes) -> None:
    task = await server.start()
    await server.send(pack("a-command", "pid", 1, 1) + data)
    child = await task
    assert await asyncio.wait_for(child.ended, 10) == LOST
    assert server.was_killed
    assert not server.keeping.is_open


async def test_its_numbers_of_processes_are_not_trusted(server: Hostile) -> None:
    task = await server.start()
    await server.send(pack("a-command", "pid", os.getpid(), 1))
    child = await task
    assert (child.pid, child.since) == (0, 0)
    await server.send(facts(*[os.getpid(), "\x1b[2Jevil" * 12] * 2_000, code=10**9))
    assert (await child.ended).code == 255
    assert len(child.left_behind) == 1_000
    assert len(child.left_behind[0].name) == 64
    assert "\x1b" not in child.left_behind[0].name
    # Ending the command asks the server: nothing on this machine is signalled.
    await server.send(pack("a-command", "gone", 1))
    assert await server.keeping.end(child, 0) == (1,)


async def test_of_the_processes_that_it_names_only_its_own_children_are_trusted() -> None:
    child, other = [
        subprocess.Popen(["/bin/sh", "-c", "sleep 300 & wait"], start_new_session=True)
        for _ in range(2)
    ]
    try:
        await until(lambda: process_table.children_of(child.pid))
        (pid,) = process_table.children_of(child.pid)
        found = process_table.look(pid)
        assert found is not None
        server = Hostile(child.pid)
        claims = [
            (pid, found.started),
            (pid, found.started + 1),
            (os.getpid(), 0),
            (other.pid, 1),
            (-1, 10**100),
        ]
        for number, claim in enumerate(claims):
            task = await server.start(f"command-{number}")
            await server.send(pack(f"command-{number}", "pid", *claim))
            seen = await task
            right = (pid, found.started) if not number else (0, 0)
            assert (seen.pid, seen.since) == right
            assert seen.server[0] == child.pid
        server.socket.close()
        await server.keeping.close()
    finally:
        for each in (child, other):
            os.killpg(each.pid, signal.SIGKILL)
            each.wait()


async def test_commands_that_were_not_asked_for_are_ignored(server: Hostile) -> None:
    task = await server.start()
    await server.send(pack("another", "pid", 1, 1) + facts().replace(b"a-command", b"b-command"))
    assert not task.done()
    await server.send(pack("a-command", "pid", 1, 1))
    await task
    assert server.keeping.is_open


@pytest.mark.parametrize("kind", ["error", "nowhere"])
async def test_its_words_are_cut_and_show_no_control_characters(server: Hostile, kind: str) -> None:
    task = await server.start()
    await server.send(pack("a-command", kind, 13, "\x1b]0;x\x07" + "y" * 9_000))
    with pytest.raises(ToolError) as caught:
        await task
    assert len(str(caught.value)) < 400
    assert "\x1b" not in str(caught.value)


async def test_handles_that_it_sends_are_closed(server: Hostile, tmp_path: Path) -> None:
    def is_open(path: Path) -> bool:
        links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
        return str(path) in [os.readlink(link) for link in links if os.path.lexists(link)]

    made = tmp_path / "handle"
    made.write_bytes(b"")
    fd = os.open(made, os.O_RDONLY)
    await server.send(pack("x", "y"), *[fd] * 5)
    os.close(fd)
    assert not is_open(made)
    fd = os.open(made, os.O_RDONLY)
    await server.send(pack("", "proxy", 80), fd)
    os.close(fd)
    assert not is_open(made)
    assert server.was_killed


async def test_a_server_that_goes_away_loses_its_commands(server: Hostile) -> None:
    task = await server.start()
    server.socket.close()
    with pytest.raises(ToolError, match="was killed"):
        await task
    another = SpawnedChild(server.keeping, "another")
    with pytest.raises(ServerLostError):
        await server.keeping.run(another, ["/bin/true"], {}, (), limit=10, cwd="/")


async def test_a_lost_server_is_waited_for() -> None:
    server = start_server((sys.executable, "-c", "import time; time.sleep(600)"))
    waited: list[float] = []

    def wait(seconds: float) -> None:
        server.wait(seconds)
        waited.append(seconds)

    client = SpawnClient(server._replace(wait=wait))
    server.kill()
    await until(lambda: waited, "it is reaped")
    assert not client.is_open
