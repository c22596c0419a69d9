"""All commands of a run: how many, whose, and for how long they are remembered."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import stat
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.process.watching import alive, keepers, open_handles, until

from clawkit.errors import NotFoundError, ToolAuthorizationError, ToolError, ToolInputError
from clawkit.process import records
from clawkit.process import supervisor as supervisors
from clawkit.process.command import NOTICE_S, Command
from clawkit.process.local_host import LocalHost
from clawkit.process.protocols import Commands, Launch
from clawkit.process.supervisor import MAX_FINISHED, Supervisor

pytestmark = pytest.mark.usefixtures("no_loose_ends")
Begin = Callable[..., Coroutine[Any, Any, Command]]
MUCH = "seq 1 30000"
"""More than is kept in memory."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "commands"


@pytest.fixture
async def make(no_loose_ends: None, folder: Path) -> AsyncIterator[Callable[..., Supervisor]]:
    made: list[Supervisor] = []

    def build(**options: Any) -> Supervisor:
        hosts = {"gateway": lambda: LocalHost(str(folder))}
        made.append(Supervisor(hosts, str(folder), **options))
        return made[-1]

    yield build
    for each in made:
        await each.close()


@pytest.fixture
def commands(make: Callable[..., Supervisor]) -> Supervisor:
    return make()


@pytest.fixture
def begin(commands: Supervisor, launch: Callable[..., Launch]) -> Begin:
    async def start(text: str, owner: str = "me", **options: Any) -> Command:
        background = options.pop("background", True)
        on_end = options.pop("on_end", None)
        given = launch(text, **options)
        return await commands.start("gateway", given, owner, background=background, on_end=on_end)

    return start


def kinds(folder: Path) -> list[str]:
    """What is in the folder, by kind."""
    return sorted(file.suffix for file in folder.glob("*"))


def ids(found: Any) -> list[str]:
    return [each.id for each in found]


async def test_the_supervisor_implements_the_commands_protocol(commands: Supervisor) -> None:
    assert isinstance(commands, Commands)
    assert list(commands.hosts) == ["gateway"]


async def test_an_unknown_host_is_an_error(
    commands: Supervisor, launch: Callable[..., Launch]
) -> None:
    with pytest.raises(ToolAuthorizationError, match="'moon'"):
        await commands.start("moon", launch("true"), "me", background=True)


# Who sees what


async def test_commands_in_the_background_are_listed_running_ones_first_then_the_newest(
    commands: Supervisor, begin: Begin
) -> None:
    started = [await begin(text) for text in ("sleep 60", "true", "sleep 60", "exit 3")]
    await begin("sleep 60", background=False)
    for each in (started[1], started[3]):
        await each.wait()
    assert ids(commands.all("me")) == ids(started[number] for number in (2, 0, 3, 1))
    for each in started:
        assert commands.get("me", f" {each.id}\n") is each


async def test_no_one_sees_what_is_anothers(commands: Supervisor, begin: Begin) -> None:
    mine = await begin("sleep 60")
    theirs = await begin("sleep 60", "them")
    assert ids(commands.all("me")) == [mine.id]
    assert list(commands.all("nobody")) == []
    with pytest.raises(NotFoundError, match=mine.id) as caught:
        commands.get("me", theirs.id)
    assert theirs.id not in str(caught.value).replace(repr(theirs.id), "")
    with pytest.raises(NotFoundError, match="there are none"):
        commands.get("nobody", mine.id)


async def test_a_call_that_waits_for_its_command_has_it_for_itself(
    commands: Supervisor, begin: Begin
) -> None:
    session = await begin("sleep 60", background=False)
    assert not commands.all("me")
    with pytest.raises(NotFoundError):
        commands.get("me", session.id)
    session.background = True
    assert commands.get("me", session.id) is session


@pytest.mark.parametrize("id_", ["", " ", "x" * 10_000, "../../etc/passwd", "a\0b", "\ud800"])
async def test_an_unknown_command_is_a_short_error(commands: Supervisor, id_: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        commands.get("me", id_)
    assert len(str(caught.value)) < 500


async def test_names_are_given_only_once(
    begin: Begin, commands: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "_FIRST", "calm")
    monkeypatch.setattr(records, "_SECOND", "otter")
    one_by_one = [await begin("sleep 60") for _ in range(3)]
    at_once = await asyncio.gather(*(begin("sleep 60") for _ in range(20)))
    started = [*one_by_one, *at_once]
    assert len(set(ids(started))) == 23
    assert len({each.key for each in started}) == 23
    assert sorted(ids(commands.all("me"))) == sorted(ids(started))


# How long they are remembered


async def test_the_number_of_remembered_commands_is_limited(
    commands: Supervisor, begin: Begin, folder: Path
) -> None:
    lasting = await begin("sleep 60")
    started = []
    for number in range(MAX_FINISHED + 10):
        started.append(await begin(MUCH if number < 3 else "true"))
        await started[-1].wait()
    assert ids(commands.all("me")) == ids([lasting, *reversed(started[10:])])
    with pytest.raises(NotFoundError):
        commands.get("me", started[0].id)
    assert not [file for file in folder.glob("*") if not file.name.startswith(lasting.key)]


@pytest.mark.parametrize(("asked", "kept"), [(0.0, 60), (90.0, 90), (1e9, 10_800)])
async def test_a_finished_command_is_remembered_for_a_while(
    make: Callable[..., Supervisor], launch: Callable[..., Launch], asked: float, kept: float
) -> None:
    commands = make(keep_s=asked)
    session = await commands.start("gateway", launch(MUCH), "me", background=True)
    await session.wait()
    path = Path(session.output.path)
    ended_at = session.ended_at
    session.ended_at = ended_at - kept + 50
    assert commands.get("me", session.id) is session
    session.ended_at = ended_at - kept - 5
    assert not commands.all("me")
    assert not path.exists()


async def test_a_running_command_is_remembered_for_as_long_as_it_runs(
    commands: Supervisor, begin: Begin
) -> None:
    session = await begin("sleep 60")
    session.started -= 1_000_000
    assert commands.get("me", session.id) is session


async def test_a_command_that_left_something_running_is_remembered(
    commands: Supervisor, begin: Begin, marker: str
) -> None:
    session = await begin(f"(setsid sleep {marker} >/dev/null &)", background=False)
    await session.wait()
    session.ended_at -= 1_000_000
    assert commands.get("me", session.id) is session
    await until(lambda: [each.name for each in session.left] == ["sleep"])
    await commands.forget(session)
    assert not alive(marker)
    assert not commands.all("me")


async def test_little_output_needs_no_file_once_nothing_is_left_running(
    commands: Supervisor, begin: Begin, folder: Path, marker: str
) -> None:
    session = await begin(f"echo short; (setsid sleep {marker} >/dev/null &)", background=True)
    await session.wait()
    await until(lambda: ".log" in kinds(folder))
    for pid in alive(marker):
        os.kill(pid, signal.SIGKILL)
    await until(lambda: not session.left)
    assert [each.id for each in commands.all("me")] == [session.id]
    assert kinds(folder) == []
    assert await session.output.read(0, 100) == b"short\n"


async def test_little_output_of_a_call_is_not_kept(
    commands: Supervisor, begin: Begin, folder: Path
) -> None:
    session = await begin("echo short", background=False)
    await session.wait()
    assert await session.output.read(0, 100) == b"short\n"
    assert not commands.all("me")
    assert not commands._sessions
    assert kinds(folder) == []


async def test_much_output_of_a_call_can_be_asked_for_later(
    commands: Supervisor, begin: Begin
) -> None:
    session = await begin(MUCH, background=False)
    await session.wait()
    found = commands.get("me", session.id)
    assert await found.output.read(0, 4) == b"1\n2\n"
    assert await found.output.read(found.output.size - 6, 100) == b"30000\n"
    assert Path(found.output.path).stat().st_size == found.output.size


# Forgetting


async def test_forgetting_a_command_ends_it_and_removes_its_files(
    commands: Supervisor, begin: Begin, folder: Path, marker: str
) -> None:
    told: list[Command] = []
    text = f"(setsid -f sleep {marker}); {MUCH}; sleep {marker}"
    session = await begin(text, on_end=told.append)
    await until(lambda: kinds(folder) == [".json", ".log"])
    await commands.forget(session)
    assert not alive(marker)
    assert kinds(folder) == []
    assert not commands.all("me")
    await commands.forget(session)
    await asyncio.sleep(NOTICE_S * 1.5)
    assert not told


@pytest.mark.parametrize("background", [True, False])
@pytest.mark.parametrize("text", ["sleep 60", "true", f"{MUCH}; sleep 60", MUCH])
async def test_any_command_can_be_forgotten(
    commands: Supervisor, begin: Begin, folder: Path, background: bool, text: str
) -> None:
    before = open_handles()
    session = await begin(text, background=background)
    if "sleep" not in text:
        await session.wait()
    await commands.forget(session)
    assert session.exit is not None
    assert not commands.all("me")
    assert kinds(folder) == []
    await until(lambda: open_handles() <= before + 2)  # the keeper's socket may be new


async def test_a_detached_command_is_forgotten_with_all_its_files(
    commands: Supervisor, begin: Begin, folder: Path, marker: str
) -> None:
    session = await begin(f"echo begun; sleep {marker}", detach=True)
    await session.wait_for_news(0, 60)
    await until(lambda: kinds(folder) == [".json", ".log"])
    await commands.forget(session)
    assert not alive(marker)
    assert kinds(folder) == []


# Room


async def test_commands_wait_for_room(
    make: Callable[..., Supervisor], launch: Callable[..., Launch]
) -> None:
    commands = make(max_running=2)
    count = most = 0
    two = asyncio.Event()

    async def run(number: int) -> int:
        nonlocal count, most
        given = launch(f"read; sleep 0.05; exit {number}", open_input=True)
        session = await commands.start("gateway", given, "me", background=False)
        count += 1
        most = max(most, count)
        if most == 2:
            two.set()
        await two.wait()
        await session.write(b"\n")
        exit_ = await session.wait()
        count -= 1
        assert exit_ is not None
        return exit_.code or 0

    codes = await asyncio.gather(*(run(number) for number in range(8)))
    assert codes == list(range(8))
    assert most == 2


async def test_no_command_starts_when_all_the_room_is_taken_in_the_background(
    make: Callable[..., Supervisor], launch: Callable[..., Launch]
) -> None:
    commands = make(max_running=2)

    async def start(text: str, background: bool) -> Command:
        return await commands.start("gateway", launch(text), "me", background=background)

    first = await start("sleep 60", True)
    second = await start("sleep 60", False)
    waiting = asyncio.create_task(start("true", False))
    await asyncio.wait({waiting}, timeout=0.1)
    assert not waiting.done()
    second.background = True
    with pytest.raises(ToolError, match="2 commands are already running") as caught:
        await waiting
    assert first.id in str(caught.value)
    for background in (True, False):
        with pytest.raises(ToolError, match="are already running"):
            await start("true", background)
    await first.end()
    third = await start("exit 3", False)
    exit_ = await third.wait()
    assert exit_ is not None
    assert exit_.code == 3


async def test_a_cancelled_wait_for_a_slot_takes_none(
    make: Callable[..., Supervisor], launch: Callable[..., Launch]
) -> None:
    commands = make(max_running=1)
    first = await commands.start("gateway", launch("sleep 60"), "me", background=False)
    starts = [commands.start("gateway", launch("exit 3"), "me", background=False) for _ in range(3)]
    waiting = [asyncio.create_task(each) for each in starts]
    await asyncio.sleep(0.01)
    for each in waiting[:2]:
        each.cancel()
    await first.end()
    last = await waiting[2]
    await last.wait()
    assert not commands._starting


async def test_a_start_that_fails_takes_no_room(
    make: Callable[..., Supervisor], launch: Callable[..., Launch], folder: Path
) -> None:
    commands = make(max_running=1)
    wrong: list[dict[str, Any]] = [{"cwd": "/no/such/place"}, {"text": "\0"}]
    for options in (*wrong, {"text": "\0", "detach": True}):
        given = launch("true")._replace(**options)
        with pytest.raises(ToolError):
            await commands.start("gateway", given, "me", background=True)
    session = await commands.start("gateway", launch("exit 3"), "me", background=True)
    exit_ = await session.wait()
    assert exit_ is not None
    assert exit_.code == 3
    assert ids(commands.all("me")) == [session.id]
    assert kinds(folder) == []


@pytest.mark.parametrize("detach", [False, True], ids=["kept", "detached"])
async def test_a_start_that_is_cancelled_leaves_nothing(
    commands: Supervisor, begin: Begin, folder: Path, marker: str, detach: bool
) -> None:
    for number in range(20):
        starting = asyncio.create_task(begin(f"sleep {marker}", detach=detach))
        await asyncio.sleep(number / 4_000)
        starting.cancel()
        await asyncio.wait({starting})
        if not starting.cancelled():
            await commands.forget(starting.result())
    await until(lambda: not alive(marker))
    session = await begin("true", background=False)
    await session.wait()
    assert not commands._sessions
    assert not commands._starting
    await until(lambda: kinds(folder) == [], f"files: {kinds(folder)}")


# What is written down


async def test_a_command_in_the_background_is_written_down_at_once_and_until_its_end(
    begin: Begin, folder: Path
) -> None:
    session = await begin("echo hello; read; exit 0", open_input=True)
    await until(lambda: kinds(folder) == [".json", ".log"])
    [record] = records.read_all(str(folder))
    assert (record.id, record.key, record.owner) == (session.id, session.key, "me")
    assert (record.pid, record.keeper, record.detached) == (session.pid, os.getpid(), False)
    assert record.text == session.launch.text
    assert record.runs
    await until(lambda: (folder / f"{session.key}.log").read_bytes() == b"hello\n")
    for file in folder.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    await session.write(b"\n")
    await session.wait()
    assert kinds(folder) == []
    assert await session.output.read(0, 100) == b"hello\n"
    assert not record.runs


async def test_a_call_that_takes_its_time_is_written_down_too(
    begin: Begin, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisors, "_PUBLISH_S", 0.1)
    session = await begin("read", background=False, open_input=True)
    assert kinds(folder) == []
    await until(lambda: ".json" in kinds(folder))
    assert [record.id for record in records.read_all(str(folder))] == [session.id]
    await session.write(b"\n")
    await session.wait()
    assert kinds(folder) == []


async def test_a_call_that_is_over_soon_is_not_written_down(
    begin: Begin, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisors, "_PUBLISH_S", 0.05)
    session = await begin("true", background=False)
    await session.wait()
    await asyncio.sleep(0.1)
    assert kinds(folder) == []


async def test_a_command_runs_even_if_its_record_cannot_be_written(
    begin: Begin, folder: Path
) -> None:
    folder.write_text("in the way")
    session = await begin("sleep 0.05; echo fine", memory=100)
    exit_ = await session.wait()
    assert exit_ is not None
    assert exit_.code == 0


async def test_old_files_of_other_processes_are_removed(
    make: Callable[..., Supervisor], launch: Callable[..., Launch], folder: Path
) -> None:
    folder.mkdir(mode=0o700)
    old, new = folder / "late-fox-abcdef1.log", folder / "early-fox-abcdef1.log"
    for file in (old, new):
        file.write_text("x")
    os.utime(old, (1, 1))
    session = await make().start("gateway", launch("true"), "me", background=False)
    await session.wait()
    assert [file.name for file in folder.iterdir()] == [new.name]


# Telling


async def test_the_end_of_a_command_is_reported_to_its_owner(begin: Begin) -> None:
    told: list[Command] = []
    first = await begin("exit 1", on_end=told.append)
    second = await begin("exit 2", background=False, on_end=told.append)
    third = await begin("sleep 60", on_end=told.append)
    await third.end()
    await second.wait()
    await until(lambda: told)
    await asyncio.sleep(NOTICE_S * 1.5)
    assert told == [first]


# The end of it all


async def test_closing_ends_all_and_leaves_only_what_was_much(
    make: Callable[..., Supervisor], launch: Callable[..., Launch], folder: Path, marker: str
) -> None:
    before = open_handles()
    told: list[Command] = []
    commands = make()

    async def start(text: str, **options: Any) -> Command:
        background = options.pop("background", True)
        given = launch(text, **options)
        return await commands.start(
            "gateway", given, "me", background=background, on_end=told.append
        )

    much = await start(MUCH)
    await much.wait()
    running = [
        await start(f"trap '' TERM; echo little; sleep {marker}; :"),
        await start(f"(setsid -f sleep {marker}); sleep {marker}", background=False),
        await start(f"sleep {marker}", size=(80, 24)),
        await start(f"setsid -f sleep {marker}"),
        await start(f"sleep {marker}", timeout_s=60, quiet_s=60),
    ]
    await running[3].wait()
    await until(lambda: len(alive(marker)) >= 6)
    await until(lambda: len(list(folder.glob("*.json"))) >= 3)
    told.clear()
    await commands.close()
    assert not alive(marker)
    assert all(each.exit is not None for each in running)
    assert [file.name for file in folder.iterdir()] == [f"{much.key}.log"]
    assert not commands.all("me")
    assert not keepers(os.getpid())
    assert open_handles() <= before
    await asyncio.sleep(NOTICE_S * 1.5)
    assert not told
    await commands.close()


async def test_closing_while_much_output_comes_loses_no_handles(
    make: Callable[..., Supervisor], launch: Callable[..., Launch]
) -> None:
    before = open_handles()
    commands = make()
    running = [
        await commands.start("gateway", launch("yes | cat"), "me", background=background)
        for background in (True, False, True)
    ]
    await until(lambda: all(each.output.size > 1_000_000 for each in running))
    await commands.close()
    await until(lambda: open_handles() <= before)


async def test_closing_while_commands_start_leaves_nothing(
    make: Callable[..., Supervisor], launch: Callable[..., Launch], marker: str
) -> None:
    commands = make()
    starts = [
        asyncio.create_task(
            commands.start("gateway", launch(f"sleep {marker}"), "me", background=bool(number % 2))
        )
        for number in range(10)
    ]
    await asyncio.sleep(0.05)
    await commands.close()
    await asyncio.wait(starts)
    for each in starts:
        error = each.exception()
        assert error is None or isinstance(error, ToolError)
    await commands.close()
    await until(lambda: not alive(marker))


async def test_a_detached_command_lives_on_and_is_found_again(
    make: Callable[..., Supervisor], launch: Callable[..., Launch], folder: Path, marker: str
) -> None:
    first = make()
    given = launch(f"echo begun; sleep {marker}; :", detach=True)
    session = await first.start("gateway", given, "me", background=True)
    await session.wait_for_news(0, 60)
    await until(lambda: kinds(folder) == [".json", ".log"])
    await first.close()
    assert session.pid in alive(marker)
    assert kinds(folder) == [".json", ".log"]
    found = make().get("me", session.id)
    assert (found.pid, found.exit) == (session.pid, None)
    assert await found.output.read(0, 100) == b"begun\n"
    await found.end()
    assert not alive(marker)


async def test_hundreds_of_commands_leave_nothing_behind(
    commands: Supervisor, begin: Begin, folder: Path
) -> None:
    async def run(number: int) -> None:
        options: list[dict[str, Any]] = [{}, {"size": (80, 24)}, {"open_input": True}]
        text = MUCH if number % 50 == 0 else "(sleep 0.01 &); echo x"
        session = await begin(text, background=number % 4 == 0, **options[number % 3])
        await session.wait()

    async def run_many(first: int, count: int) -> None:
        for start in range(first, first + count, 10):
            await asyncio.gather(*(run(number) for number in range(start, start + 10)))

    await run_many(1, 150)
    gc.collect()
    handles, threads = open_handles(), threading.active_count()
    await run_many(151, 150)
    gc.collect()
    # What a command left running may end after it; whoever looks next forgets the excess.
    await until(lambda: not any(each.left for each in commands._sessions.values()))
    commands.all("me")
    finished = [each for each in commands._sessions.values() if each.exit and not each.left]
    assert len(finished) <= MAX_FINISHED
    assert not any(each.is_published for each in finished)
    # Whatever still closes or removes something does so after the end that was waited for.
    await until(lambda: threading.active_count() <= max(threads, 12))
    await until(lambda: len(asyncio.all_tasks()) < 10)
    await until(lambda: len(list(folder.iterdir())) <= 10)
    await until(lambda: open_handles() <= handles + 10)


async def test_input_is_refused_after_the_end(begin: Begin) -> None:
    session = await begin("true", open_input=True)
    await session.wait()
    with pytest.raises(ToolInputError):
        await session.write(b"x")
