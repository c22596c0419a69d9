"""Servers are kept warm, started again within reason, and gone when they should be."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.lsp.parts import FAKE, ROOT, Desk, fake, messages

from clawkit.config.sections.tools import Lsp, LspServer
from clawkit.lsp.client import CHANGED, ServerSession
from clawkit.lsp.protocols import Edited, Problems
from clawkit.lsp.servers import LanguageServer, Programs, ServerCatalog
from clawkit.process.jsonrpc import ServerError
from clawkit.process.landlock import available

Make = Callable[..., Desk]


def mark_of(tmp_path: Path) -> str:
    return f"mark-{tmp_path}"


def marked(mode: str, tmp_path: Path) -> LspServer:
    return fake(mode, mark_of(tmp_path))


def servers(tmp_path: Path) -> list[int]:
    """The servers of a test that run."""
    found: list[int] = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                arguments = file.read().split(b"\0")
        except OSError:
            continue
        if mark_of(tmp_path).encode() in arguments:
            found.append(int(name))
    return found


def is_running(pid: int) -> bool:
    """Whether it runs; a dead one may wait for the machine's first process to bury it."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_a_server_is_started_by_the_first_edit_and_kept(desk: Make, tmp_path: Path) -> None:
    made = desk(fake=marked("pull", tmp_path))
    await made.write("a.txt", "bad\n")
    assert servers(tmp_path) == []
    await made.write("a.fake", "bad\n")
    started = servers(tmp_path)
    assert len(started) == 1
    await made.write("b.fake", "bad\n")
    assert servers(tmp_path) == started


@pytest.mark.parametrize("mode", ["pull", "silent", "deaf", "family"])
async def test_close_leaves_nothing_behind(desk: Make, tmp_path: Path, mode: str) -> None:
    gc.collect()
    before = set(os.listdir("/proc/self/fd"))
    made = desk(fake=marked(mode, tmp_path), timeout_ms=300)
    await made.write("a.fake", "bad\n")
    while len(servers(tmp_path)) != 1:  # it may have taken longer to start
        await asyncio.sleep(0.01)
    await made.service.close()
    assert servers(tmp_path) == []
    assert set(os.listdir("/proc/self/fd")) <= before
    assert asyncio.all_tasks() == {asyncio.current_task()}
    gc.collect()  # warnings about what was not closed are errors
    assert await made.write("a.fake", "bad bad\n") == Problems()
    assert servers(tmp_path) == []


async def test_programs_that_a_server_started_go_with_it(desk: Make, tmp_path: Path) -> None:
    made = desk(fake=marked("family", tmp_path))
    await made.write("a.fake", "bad\n")
    (server,) = servers(tmp_path)
    with open(f"/proc/{server}/task/{server}/children") as file:
        (child,) = map(int, file.read().split())
    await made.service.close()
    while is_running(child):
        await asyncio.sleep(0.01)


async def test_a_crashing_server_is_started_again_three_times(desk: Make) -> None:
    made = desk(fake=fake("crash"))
    for number in range(8):
        assert await made.write("a.fake", "bad\n" * (number + 1)) == Problems()
    (starts,) = made.cache.glob("*/starts")
    assert starts.read_text().count("started") == 4


async def test_a_crash_is_forgiven(desk: Make) -> None:
    made = desk(fake=fake("crash"))
    assert await made.write("a.fake", "bad\n") == Problems()
    assert await made.write("b.fake", "good\n") == Problems(servers=("fake",))


async def test_a_crash_while_no_one_looks_is_noticed(desk: Make, tmp_path: Path) -> None:
    made = desk(fake=marked("pull", tmp_path))
    await made.write("a.fake", "good\n")
    (first,) = servers(tmp_path)
    os.kill(first, 9)
    while is_running(first):
        await asyncio.sleep(0.01)
    assert messages(await made.write("a.fake", "bad\n")) == ["this is bad"]
    assert servers(tmp_path) != [first]


async def test_servers_that_no_one_uses_are_ended(desk: Make, tmp_path: Path) -> None:
    made = desk(fake=marked("pull", tmp_path), idle_s=0.05)
    await made.write("a.fake", "good\n")
    while servers(tmp_path):
        await asyncio.sleep(0.01)
    assert messages(await made.write("a.fake", "bad\n")) == ["this is bad"]


async def test_there_are_eight_servers_at_most(desk: Make, tmp_path: Path) -> None:
    command = marked("pull", tmp_path).command
    made = desk(fake=LspServer(command=command, files=["*.fake"], root_markers=["project"]))
    for number in range(10):
        made.edit(f"{number}/project", "")
        assert messages(await made.write(f"{number}/a.fake", "bad\n")) == ["this is bad"]
    while len(servers(tmp_path)) > 8:
        await asyncio.sleep(0.01)
    assert len(servers(tmp_path)) == 8


async def test_the_nearest_marker_is_the_project(desk: Make, tmp_path: Path) -> None:
    command = marked("pull", tmp_path).command
    made = desk(fake=LspServer(command=command, files=["*.fake"], root_markers=["project"]))
    (tmp_path / "project").touch()
    made.edit("deep/project", "")
    for name in ("a.fake", "other/a.fake", "deep/a.fake", "deep/er/a.fake"):
        await made.write(name, "bad\n")
    roots = sorted(os.readlink(f"/proc/{pid}/cwd") for pid in servers(tmp_path))
    assert roots == [str(made.ws), str(made.ws / "deep")]


async def test_a_workspace_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "ws").symlink_to("real")
    made = Desk(tmp_path, fake=fake("pull"))
    place = str(tmp_path / "real" / "a.fake")
    problems = await made.service.check([Edited(place, None, "bad\n")])
    await made.service.close()
    assert [each.place for each in problems.found] == [place]


async def test_many_open_files_are_not_kept(desk: Make) -> None:
    made = desk(fake=fake("pull"))
    for number in range(60):
        await made.write(f"{number}.fake", "good\n")
    problems = await made.write("0.fake", "good\nbad\n")
    assert [each.line for each in problems.found] == [2]


async def test_a_server_that_loads_a_project_is_waited_for(desk: Make, tmp_path: Path) -> None:
    made = desk()
    gate = made.ws / "gate"
    server = LanguageServer(
        "fake", (sys.executable, FAKE, "loading", str(gate)), ("*",), tells_ready=True
    )
    programs = Programs([str(made.ws)], dict(os.environ))
    settings = Lsp(servers={"fake": fake("loading", gate)})
    known = ServerCatalog(settings, programs, str(made.cache), can_hold=available())
    launch = known.launch(server, str(made.ws), [str(made.ws)])
    ended: list[ServerSession] = []
    session = ServerSession(server, str(made.ws), launch, patience_s=30, on_end=ended.append)
    work = asyncio.create_task(session.compare([made.edit("a.fake", "bad\n")]))
    done, _ = await asyncio.wait({work}, timeout=0.2)
    assert not done
    gate.touch()
    problems = await work
    assert problems is not None
    assert [each.message for each in problems] == ["this is bad"]
    session.note({f"/{number}": CHANGED for number in range(10_000)})  # too much to tell
    assert ended == [session]
    with pytest.raises(ServerError):
        await session.compare([made.edit("a.fake", "bad bad\n")])
    await session.close()


def test_another_event_loop_gets_servers_of_its_own(tmp_path: Path) -> None:
    made = Desk(tmp_path, fake=marked("pull", tmp_path))
    assert messages(asyncio.run(made.write("a.fake", "bad\n"))) == ["this is bad"]
    (first,) = servers(tmp_path)
    assert messages(asyncio.run(made.write("b.fake", "bad\n"))) == ["this is bad"]
    (second,) = servers(tmp_path)
    assert first != second
    asyncio.run(made.service.close())
    assert servers(tmp_path) == []


def test_a_program_that_never_closes_ends_and_its_servers_with_it(tmp_path: Path) -> None:
    program = f"""
import asyncio
from clawkit.config.sections.tools import Lsp, LspServer
from clawkit.lsp.protocols import Edited
from clawkit.lsp.service import LanguageServers

command = [{sys.executable!r}, {FAKE!r}, "pull", {mark_of(tmp_path)!r}]
server = LspServer(command=command, files=["*"])
settings = Lsp(timeout_ms=30_000, servers={{"fake": server}})
service = LanguageServers({str(tmp_path)!r}, [], settings, cache_dir={str(tmp_path / "cache")!r})
print(asyncio.run(service.check([Edited({str(tmp_path / "a")!r}, "", "bad")])).servers)
"""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout == "('fake',)\n"
    assert done.stderr == ""
    while servers(tmp_path):
        pass
