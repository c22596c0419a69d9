"""Ending commands of another clawkit, and looking after those that live on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.process.started import KEY, TOGETHER, Start, log_of, make, members, starting, until
from tests.process.watching import own
from tests.process.watching import until as meanwhile
from tests.tables import table

from clawkit.errors import NotFoundError, ToolError, ToolInputError
from clawkit.process import process_table, records
from clawkit.process.command import Command
from clawkit.process.local_host import LocalHost
from clawkit.process.protocols import GRACE_S, Exit, Launch, LeftoverProcess
from clawkit.process.records import CommandRecord
from clawkit.process.supervisor import Supervisor

NOISE = "for i in 1 2 3; do sleep 300 & done; echo ready; wait"
STUBBORN = f"trap '' TERM; {NOISE}"

pytestmark = TOGETHER


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "commands"


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    with starting(folder) as start:
        yield start


def alive(key: str = KEY) -> list[str]:
    """The names of all that bear a tag, wherever they are."""
    table = process_table.table()
    tagged = [each for each in table.values() if process_table.is_tagged(each.pid, key)]
    return sorted(each.name for each in tagged if not each.exited)


def names(processes: tuple[LeftoverProcess, ...]) -> list[str]:
    return sorted(each.name for each in processes)


@pytest.mark.parametrize(
    ("text", "ended"),
    [
        ("echo ready; exec sleep 300", ["sleep"]),
        (NOISE, ["bash", "sleep", "sleep", "sleep"]),
        ("setsid sleep 300 & echo ready; wait", ["bash", "sleep"]),
        ("(setsid sleep 300 &); echo ready; exec sleep 301", ["sleep", "sleep"]),
        ("set -m; sleep 300 & echo ready; wait", ["bash", "sleep"]),
        ("env -i /bin/sleep 300 & echo ready; wait", ["bash", "sleep"]),
        ("(kill -STOP $BASHPID) & echo ready; kill -STOP $$", ["bash", "bash"]),
    ],
)
def test_ending_a_command_ends_all_it_started(start: Start, text: str, ended: list[str]) -> None:
    record = start(text)
    until(lambda: members(record) == ended)
    (outcome,) = records.end([record])
    assert names(outcome.reached) == ended
    assert outcome.left == ()
    assert outcome.problem == ""
    assert alive() == []
    assert not record.runs


def test_what_does_not_end_when_asked_is_killed(start: Start) -> None:
    record = start(STUBBORN)
    until(lambda: members(record) == ["bash", "sleep", "sleep", "sleep"])
    told: list[tuple[list[str], bool]] = []

    def tell(left: Any, is_asked: bool) -> None:
        told.append((names(tuple(left)), is_asked))

    (outcome,) = records.end([record], grace_s=0.3, progress=tell)
    assert names(outcome.reached) == ["bash", "sleep", "sleep", "sleep"]
    assert alive() == []
    assert told[0] == (["bash", "sleep", "sleep", "sleep"], True)
    assert told[-1][1] is False


def test_what_can_end_by_itself_is_given_the_time(start: Start, folder: Path) -> None:
    text = "trap 'echo cleaned up; exit' TERM; echo ready; sleep 300 & wait"
    records.end([start(text)], grace_s=60)
    assert log_of(folder).read_text(encoding="utf-8") == "ready\ncleaned up\n"


def test_without_grace_nothing_is_asked(start: Start, folder: Path) -> None:
    text = "trap 'echo cleaned up; exit' TERM; echo ready; sleep 300 & wait"
    records.end([start(text)], grace_s=0)
    assert log_of(folder).read_text(encoding="utf-8") == "ready\n"


def test_a_member_without_tag_is_known_from_the_time_when_the_first_was_there(start: Start) -> None:
    # The shell ends when asked, and leaves one that bears no tag and ignores it.
    record = start("(trap '' TERM; exec env -i /bin/sleep 300) & echo ready; wait")
    until(lambda: members(record) == ["bash", "sleep"])
    (outcome,) = records.end([record], grace_s=0.3)
    assert names(outcome.reached) == ["bash", "sleep"]
    assert outcome.left == ()


def test_what_a_command_left_behind_is_found_by_its_tag(start: Start, folder: Path) -> None:
    record = start("(setsid sleep 300 &); echo ready")
    until(lambda: not record.runs and alive() == ["sleep"])
    (outcome,) = records.end([record])
    assert names(outcome.reached) == ["sleep"]
    assert alive() == []


def test_a_session_whose_first_process_is_gone_may_be_someone_else_s(start: Start) -> None:
    record = start("env -i /bin/sleep 300 & echo ready")

    def strays() -> list[tuple[int, str]]:
        members = (each for each in process_table.table().values() if each.session == record.pid)
        return [(each.pid, each.name) for each in members if not each.exited]

    # A process that becomes another program has no tag for a moment.
    until(lambda: [name for _, name in strays()] == ["sleep"])
    until(lambda: not record.runs and not alive())
    os.waitpid(record.pid, 0)
    (outcome,) = records.end([record], grace_s=0)
    assert outcome.reached == outcome.left == ()
    ((pid, name),) = strays()
    assert name == "sleep"
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("later", "fields"), [(1, {}), (-1, {}), (0, {"place": "another machine"})], ids=str
)
def test_a_process_that_is_not_the_recorded_one_gets_no_signal(
    start: Start, later: int, fields: dict[str, Any]
) -> None:
    real = start("trap 'exit 9' TERM; echo ready; read < <(sleep 300)")
    forged = make(pid=real.pid, since=real.since + later, key=own("brave-fox"), **fields)
    assert records.living(forged, process_table.table()) == {}
    assert records.send(forged, signal.SIGTERM) == records.StopOutcome(forged, ())
    assert records.end([forged], grace_s=0) == [records.StopOutcome(forged, ())]
    assert real.runs


@table(("pid", "since"), [(1, 1), (0, 1), (-1, 1), (1, 0), (2, 0)])
def test_the_first_process_of_the_system_and_groups_are_never_signalled(
    pid: int, since: int
) -> None:
    first = process_table.look(1)
    since = first.started if first is not None and since else 0
    record = make(pid=pid, since=since)
    assert records.living(record, process_table.table()) == {}
    assert records.end([record], grace_s=0)[0].reached == ()


def test_several_commands_end_at_once(start: Start) -> None:
    records_ = [start(STUBBORN, key=f"{KEY}{number}") for number in range(3)]
    calls: list[int] = []
    outcomes = records.end(records_, grace_s=0.3, progress=lambda left, _: calls.append(len(left)))
    assert [len(each.reached) for each in outcomes] == [4, 4, 4]
    assert calls[0] == 12
    assert not any(record.runs for record in records_)


def test_ending_nothing_is_not_work() -> None:
    assert records.end([]) == []


def test_one_that_has_ended_is_told_as_that(start: Start) -> None:
    record = start("exit 3")
    until(lambda: not record.runs)
    assert records.end([record]) == [records.StopOutcome(record, ())]


def test_a_signal_goes_to_all_and_nothing_else_happens(start: Start, folder: Path) -> None:
    trap = "trap 'echo got it' USR1"
    record = start(
        f"{trap}; ({trap}; echo ready; while :; do sleep 0.05; done) & while :; do wait; done"
    )
    outcome = records.send(record, signal.SIGUSR1)
    assert "bash" in names(outcome.reached)
    until(lambda: log_of(folder).read_bytes().count(b"got it") == 2)
    assert record.runs


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize(
    "call", ["end([record], grace_s=0.1)[0]", f"send(record, {signal.SIGTERM:d})"]
)
def test_what_may_not_be_signalled_is_told(start: Start, call: str) -> None:
    record = start("echo ready; exec sleep 300")
    script = (
        "import os, sys; sys.path[:] = eval(sys.argv[1])\n"
        "from clawkit.process import records; from clawkit.process.records import CommandRecord\n"
        "record = CommandRecord(*eval(sys.argv[2])); record.runs; os.setuid(65534)\n"
        f"outcome = records.{call}; print(outcome.reached, outcome.left, outcome.problem)"
    )
    fields = [getattr(record, name) for name in record.__struct_fields__]
    done = subprocess.run(
        [sys.executable, "-c", script, repr(sys.path), repr(fields)], capture_output=True, text=True
    )
    assert done.stdout.startswith(
        f"() (LeftoverProcess(pid={record.pid}, name='sleep', is_stuck=False),) "
    ), done.stderr
    assert "not permitted" in done.stdout
    assert record.runs


def test_a_command_cannot_end_itself(start: Start, folder: Path) -> None:
    script = folder / "inside.py"
    script.write_text(
        "from clawkit.process import records\n"
        f"record = next(records.read_all({str(folder)!r}))\n"
        "print([each.problem for each in (records.send(record, 15), *records.end([record]))])\n",
        encoding="utf-8",
    )
    path = os.pathsep.join(each for each in sys.path if each)
    go = folder / "go"
    wait = f"until [ -e {go} ]; do sleep 0.05; done"
    look = f"PYTHONPATH={path} {sys.executable} {script}"
    record = start(f"{wait}; {look}; echo rea''dy; exec sleep 300")
    go.touch()
    until(lambda: b"ready" in log_of(folder).read_bytes())
    shown = log_of(folder).read_text(encoding="utf-8")
    assert shown.count("stop it from outside") == 2, shown
    assert record.runs


@pytest.mark.parametrize(
    ("said", "exit_"),
    [
        ("0 1005.5", Exit("exit", 0, seconds=5.5)),
        ("3 1005.5", Exit("exit", 3, seconds=5.5)),
        ("126 1001", Exit("not-executable", 126, seconds=1.0)),
        ("127 1001", Exit("not-found", 127, seconds=1.0)),
        ("-9 1001", Exit("signal", None, "SIGKILL", 1.0)),
        ("-120 1001", Exit("signal", None, "SIG120", 1.0)),
        ("-9 1001 timeout", Exit("overall-timeout", None, "SIGKILL", 1.0)),
        # It heard that it was to end, and ended by itself.
        ("3 1001 timeout", Exit("overall-timeout", 3, seconds=1.0)),
        ("0 10", Exit("exit", 0)),
        ("damaged", Exit("lost", note="the end of the command was not observed")),
    ],
)
def test_how_a_command_ended(tmp_path: Path, said: str, exit_: Exit) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / f"{KEY}.exit").write_text(said, encoding="utf-8")
    assert records.exit_of(str(tmp_path), make(pid=2**31 - 1, started=1_000.0)) == exit_


def say_end(folder: Path, said: str) -> None:
    (folder / f"{KEY}.exit").write_text(said, encoding="utf-8")


def found(folder: Path, owner: str = "main") -> list[Command]:
    """What another clawkit finds."""
    return list(Supervisor({}, str(folder)).all(owner))


def only(folder: Path) -> Command:
    (command,) = found(folder)
    return command


async def test_a_detached_command_is_a_command(start: Start, folder: Path) -> None:
    record = start("echo ready; exec sleep 300", detached=True)
    command = only(folder)
    assert (command.id, command.owner, command.pid) == ("calm-otter", "main", record.pid)
    assert command.name == "echo ready;"
    assert command.launch == Launch(record.text, str(folder), {}, detach=True)
    assert command.exit is None
    assert command.background
    assert not command.can_write
    assert not command.waits_for_input
    assert command.terminal is None
    assert command.left == ()
    assert (command.polled, command.empty_polls, command.announce) == (0, 0, False)
    assert command.runtime_s >= 0
    assert command.output.tail(100) == b"ready\n"
    assert await command.output.read(1, 3) == b"ead"
    assert command.output.path == str(log_of(folder))
    assert await command.wait(0) is None
    with pytest.raises(ToolInputError, match="input is closed"):
        await command.write(b"x")
    with pytest.raises(ToolInputError, match="no terminal"):
        command.resize(80, 24)


async def test_only_what_was_detached_by_the_same_owner_is_found(
    start: Start, folder: Path
) -> None:
    start("exec sleep 300", key=own("one"), detached=True)
    start("exec sleep 300", key=own("two"), detached=False)
    start("exec sleep 300", key=own("three"), detached=True, owner="main/sub")
    start("exec sleep 300", key=own("four"), detached=True, place="another machine")
    assert [each.key for each in found(folder)] == [own("one")]
    assert [each.key for each in found(folder, "main/sub")] == [own("three")]
    assert found(folder, "other") == []


async def test_idleness_counts_from_the_last_output(start: Start, folder: Path) -> None:
    start("echo ready; exec sleep 300", detached=True, started=5_000.0)
    at = 1_000_000.0
    os.utime(log_of(folder), (at, at))
    now = only(folder).idle_s + at
    log_of(folder).unlink()
    assert now - 5_000.0 <= only(folder).idle_s < now - 5_000.0 + 60


async def test_news_are_waited_for(start: Start, folder: Path) -> None:
    go = folder / "go"
    start(
        f"echo ready; until [ -e {go} ]; do sleep 0.05; done; echo more; exec sleep 300",
        detached=True,
    )
    command = only(folder)
    seen = command.output.size
    await command.wait_for_news(seen, 0.01)
    assert command.output.size == seen
    news = asyncio.create_task(command.wait_for_news(seen, 60))
    go.touch()
    await news
    assert command.output.tail(5) == b"more\n"
    command.close()


async def test_its_end_is_waited_for(start: Start, folder: Path) -> None:
    record = start("echo ready; read < <(sleep 300)", detached=True)
    command = only(folder)
    ending = asyncio.create_task(command.wait())
    news = asyncio.create_task(command.wait_for_news(10_000, 60))
    say_end(folder, f"4 {record.started + 2.5}")
    os.kill(record.pid, signal.SIGKILL)
    exit_ = await ending
    await news
    assert exit_ is not None
    assert (exit_.reason, exit_.code, round(exit_.seconds, 3)) == ("exit", 4, 2.5)
    assert command.runtime_s == exit_.seconds


async def test_an_end_that_no_one_saw_is_lost_until_it_is_told(start: Start, folder: Path) -> None:
    record = start("exit 0", detached=True)
    until(lambda: not record.runs)
    commands = Supervisor({}, str(folder))
    (command,) = commands.all("main")
    exit_ = await command.wait()
    assert exit_ is not None
    assert exit_.reason == "lost"
    say_end(folder, f"0 {record.started}")
    assert commands.get("main", command.id) is command
    assert command.exit == Exit("exit", 0)


async def test_an_end_that_is_written_a_moment_later_is_awaited(start: Start, folder: Path) -> None:
    record = start("exit 0", detached=True)
    until(lambda: not record.runs)
    ending = asyncio.create_task(only(folder).wait())
    await asyncio.sleep(0)
    say_end(folder, f"7 {record.started}")
    assert await ending == Exit("exit", 7)


async def test_ending_a_detached_command(start: Start, folder: Path) -> None:
    record = start("(setsid sleep 300 &); echo ready; read < <(sleep 300)", detached=True)
    command = only(folder)
    say_end(folder, f"-15 {record.started + 1}")
    await command.end()
    assert alive() == []
    assert command.exit is not None
    assert (command.exit.reason, command.exit.signal) == ("manual-cancel", "SIGTERM")


async def test_what_a_detached_command_left_is_told_and_can_be_ended(
    start: Start, folder: Path
) -> None:
    record = start("(setsid sleep 300 &); echo ready", detached=True)
    until(lambda: not record.runs and alive() == ["sleep"])
    say_end(folder, f"0 {record.started}")
    command = only(folder)
    assert [each.name for each in command.left] == ["sleep"]
    await command.end()
    assert command.left == ()
    assert command.exit == Exit("exit", 0)


async def test_a_signal_reaches_a_detached_command(start: Start, folder: Path) -> None:
    start("trap 'echo got it' USR1; echo ready; while :; do sleep 0.05; done", detached=True)
    command = only(folder)
    await command.signal(signal.SIGUSR1)
    until(lambda: b"got it" in command.output.tail(100))
    assert command.exit is None


async def test_forgetting_removes_its_files_and_no_others(start: Start, folder: Path) -> None:
    record = start("echo ready", detached=True)
    until(lambda: not record.runs)
    say_end(folder, f"0 {record.started}")
    (folder / "calm-otter-ab2.log").touch()
    commands = Supervisor({}, str(folder))
    (command,) = commands.all("main")
    assert command.output.size == 6
    await commands.forget(command)
    assert os.listdir(folder) == ["calm-otter-ab2.log"]
    assert found(folder) == []
    with pytest.raises(NotFoundError):
        commands.get("main", command.id)


@pytest.mark.parametrize(
    "put", [lambda path: None, os.mkfifo, lambda path: path.symlink_to("/etc/passwd")]
)
async def test_output_that_is_not_there_is_empty(start: Start, folder: Path, put: Any) -> None:
    start("exec sleep 300", detached=True)
    log_of(folder).unlink()
    put(log_of(folder))
    output = only(folder).output
    assert (output.size, output.path, output.tail(10)) == (0, "", b"")


async def test_a_command_that_cannot_be_ended_is_an_error() -> None:
    left = (LeftoverProcess(7, "sudo"),)
    with pytest.raises(ToolError, match=r"sudo \(pid 7\) could not be ended: not permitted"):
        records._check(records.StopOutcome(make(), (), left, "not permitted"), "ended")


async def test_a_command_of_an_earlier_clawkit_is_found_and_ended(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(GRACE_S, "manual-cancel", 60.0)
    commands = Supervisor({"gateway": lambda: LocalHost(str(folder))}, str(folder))
    launch = Launch(
        "trap 'exit 5' TERM; echo ready; sleep 300 & wait", "/", dict(os.environ), detach=True
    )
    await commands.start("gateway", launch, "main", background=True)
    until(lambda: any(b"ready" in each.read_bytes() for each in folder.glob("*.log")))
    await meanwhile(lambda: list(records.read_all(str(folder))))
    await commands.close()
    later = Supervisor({}, str(folder))
    (running,) = later.all("main")
    # Listing for another owner leaves it alone.
    assert later.all("other") == []
    assert running.output.size > 0
    assert await running.wait(0) is None
    await running.end()
    exit_ = await running.wait(0)
    assert exit_ is not None
    assert (exit_.reason, exit_.code) == ("manual-cancel", 5)


async def test_records_of_a_supervisor_can_be_read(folder: Path) -> None:
    commands = Supervisor({"gateway": lambda: LocalHost(str(folder))}, str(folder))
    launch = Launch("exec sleep 300", "/", dict(os.environ), size=(100, 40))
    session = await commands.start("gateway", launch, "main", background=True)
    await meanwhile(lambda: list(records.read_all(str(folder))))
    try:
        (record,) = records.read_all(str(folder))
        expected = CommandRecord(
            key=session.key,
            id=session.id,
            owner="main",
            text="exec sleep 300",
            cwd="/",
            pid=session.pid,
            since=record.since,
            started=session.started,
            detached=False,
            terminal=(100, 40),
            keeper=os.getpid(),
            mark=session.running.mark,
            server=session.running.server,
        )
        assert record == expected
        server = process_table.look(record.server[0])
        assert server is not None
        assert (server.name, server.started) == ("clawkit-spawn", record.server[1])
        assert record.runs
    finally:
        await commands.close()
    assert list(records.read_all(str(folder))) == []
