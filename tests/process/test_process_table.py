"""Processes, and who started whom."""

from __future__ import annotations

import gc
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from tests.process.started import until as until_so
from tests.process.watching import children, own, state_of, until
from tests.tables import table

from clawkit.process import process_table
from clawkit.process.process_table import Process

CALL_ONESELF = """
import ctypes, sys
ctypes.CDLL(None).prctl(15, bytes.fromhex(sys.argv[1]), 0, 0, 0)
print("ready", flush=True)
sys.stdin.read()
"""
Start = Callable[..., "subprocess.Popen[bytes]"]
TAG = own("calm-otter")
"""Nobody else's: whatever bears it is ended by others who go by it."""


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts programs that end with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def run(*argv: str, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        program = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PATH": os.environ["PATH"], **(env or {})},
            start_new_session=True,
        )
        started.append(program)
        # It is there a little before what it was started with can be seen.
        until_so(lambda: environ_of(program.pid) or state_of(program.pid) == "Z")
        return program

    yield run
    for each in started:
        with suppress(ProcessLookupError):
            os.killpg(each.pid, signal.SIGKILL)
        with each:
            pass


def environ_of(pid: int) -> bytes:
    """Empty for one that is dead, too."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except ProcessLookupError:
        return b""


def line_of(program: subprocess.Popen[bytes]) -> str:
    assert program.stdout is not None
    return program.stdout.readline().decode().strip()


def made(*rows: Sequence[int], gone: Sequence[int] = ()) -> dict[int, Process]:
    """A table out of rows of pid, parent, group and session."""
    return {row[0]: Process(row[0], row[1], row[2], row[3], 1, "x", row[0] in gone) for row in rows}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (b"plain", "plain"),
        (b") R 1 1", ") R 1 1"),
        (b"a) Z 1 1 1 (b", "a) Z 1 1 1 (b"),
        (b"((((", "(((("),
        (b"))))", "))))"),
        (b"line\nend) S 1", "line\nend) S 1"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b" ", " "),
    ],
)
def test_a_process_can_have_any_name(start: Start, name: bytes, told: str) -> None:
    program = start(sys.executable, "-I", "-S", "-c", CALL_ONESELF, name.hex())
    assert line_of(program) == "ready"
    found = process_table.look(program.pid)
    assert found is not None
    assert found.name == told
    ids = found.pid, found.parent, found.group, found.session
    assert ids == (program.pid, os.getpid(), program.pid, program.pid)
    assert found.started > 0
    assert not found.exited
    listed = process_table.table()[program.pid]
    assert (listed.name, listed.started) == (found.name, found.started)


def test_a_program_file_can_have_any_name(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "x) Z 1 1 1"
    file.write_bytes(Path("/bin/cat").read_bytes())
    file.chmod(0o700)
    program = start(str(file))
    found = process_table.look(program.pid)
    assert found is not None
    assert (found.name, found.parent, found.exited) == (file.name, os.getpid(), False)


def test_look_returns_none_for_missing_processes(start: Start) -> None:
    program = start("true")
    program.communicate()
    assert process_table.look(program.pid) is None
    assert process_table.look(2**30) is None


async def test_a_dead_process_is_gone_though_its_number_is_taken(start: Start) -> None:
    program = start("true")
    await until(lambda: state_of(program.pid) == "Z")
    found = process_table.look(program.pid)
    assert found is not None
    assert found.exited
    assert process_table.members(program.pid, "none", 0, process_table.table(), ()) == set()


def test_children_are_found_without_looking_at_all(start: Start) -> None:
    program = start("bash", "-c", "sleep 60 & sleep 60 & echo ready; wait")
    line_of(program)
    assert set(process_table.children_of(program.pid)) == set(children(program.pid))
    assert len(process_table.children_of(program.pid)) == 2
    assert process_table.children_of(2**30) == []


TABLE = made(
    (1, 0, 1, 1),
    (10, 1, 10, 10),
    (11, 10, 10, 10),
    (12, 11, 12, 10),
    (20, 1, 20, 20),
    (21, 20, 10, 20),
)


@table(
    ("roots", "found"),
    [
        ([10], {10, 11, 12}),
        ([11], {11, 12}),
        ([12, 20], {12, 20, 21}),
        ([], set()),
        ([99], set()),
        ([1], {1, 10, 11, 12, 20, 21}),
    ],
)
def test_a_family_is_everything_below(roots: list[int], found: set[int]) -> None:
    assert process_table.family(roots, TABLE) == found


def test_a_family_that_goes_round_in_circles_has_an_end() -> None:
    # Two looks at a system that changes between them can show this.
    assert process_table.family([5], made((5, 6, 5, 5), (6, 5, 5, 5))) == {5, 6}


@table(
    ("rows", "gone", "found"),
    [
        ([(10, 1, 10, 10)], [], {10}),
        ([(10, 1, 10, 10), (11, 10, 10, 10)], [], {10, 11}),
        # It lost its parent, but not its session, or not its group.
        ([(10, 1, 10, 10), (11, 1, 11, 10)], [], {10, 11}),
        ([(10, 1, 10, 10), (11, 1, 10, 99)], [], {10, 11}),
        # It has a session of its own, but still its parent.
        ([(10, 1, 10, 10), (11, 10, 11, 11), (12, 11, 12, 12)], [], {10, 11, 12}),
        # The one that led has ended.
        ([(11, 1, 10, 10), (12, 11, 12, 12)], [], {11, 12}),
        ([(10, 1, 10, 10), (11, 10, 10, 10)], [10], {11}),
        ([(10, 1, 10, 10)], [10], set()),
        # Somebody else.
        ([(10, 1, 10, 10), (20, 1, 20, 20), (21, 20, 20, 20)], [], {10}),
    ],
)
def test_the_members_of_a_command(
    rows: list[tuple[int, int, int, int]], gone: list[int], found: set[int]
) -> None:
    assert process_table.members(10, "no-such-tag", 0, made(*rows, gone=gone), ()) == found


def test_members_are_known_by_their_tag_when_nothing_else_tells(start: Start) -> None:
    tagged = start("bash", "-c", "sleep 60 & echo ready; wait", env={process_table.TAG: TAG})
    other = start(
        "sleep", "60", env={process_table.TAG: f"{TAG}2", "X": f"{process_table.TAG}={TAG}"}
    )
    line_of(tagged)
    (child,) = process_table.children_of(tagged.pid)
    # While it becomes another program, it has no environment.
    until_so(lambda: children(tagged.pid).get(child) == "sleep" and environ_of(child))
    processes = process_table.table()
    everything = list(processes)
    family = {tagged.pid, child}
    assert process_table.members(2**30, TAG, 0, processes, everything) == family
    assert process_table.members(2**30, TAG, 0, processes, [other.pid]) == set()
    assert process_table.members(2**30, TAG[:-1], 0, processes, everything) == set()
    assert process_table.is_tagged(other.pid, f"{TAG}2")
    assert not process_table.is_tagged(2**30, TAG)


def test_members_are_known_by_their_mark(start: Start) -> None:
    marks = [process_table.new_mark(()) for _ in range(2)]
    with process_table.limiting({process_table.MARK: marks[0]}):
        first = start("bash", "-c", "setsid sleep 60 & echo ready; wait")
    with process_table.limiting({process_table.MARK: marks[1]}):
        second = start("sleep", "60")
    other = start("sleep", "60")
    line_of(first)
    for program, mark in ((first, marks[0]), (second, marks[1])):
        process_table.fix_limits(program.pid, {process_table.MARK: mark})
    processes = process_table.table()
    everything = list(processes)
    family = {first.pid, *process_table.children_of(first.pid)}
    assert len(family) == 2
    assert process_table.members(2**30, "none", marks[0], processes, everything) == family
    assert process_table.members(2**30, "none", marks[1], processes, everything) == {second.pid}
    assert (
        process_table.members(2**30, "none", marks[0], processes, [second.pid, other.pid]) == set()
    )


def test_a_process_without_its_mark_is_recognized_by_its_tag(start: Start) -> None:
    program = start("sleep", "60", env={process_table.TAG: TAG})
    mark, processes = process_table.new_mark(()), process_table.table()
    assert mark > 0
    assert process_table.members(2**30, TAG, mark, processes, [program.pid]) == {program.pid}


def test_marks_differ_and_leave_no_trace(start: Start) -> None:
    before = resource.getrlimit(resource.RLIMIT_MSGQUEUE)
    taken: set[int] = set()
    for _ in range(1000):
        mark = process_table.new_mark(taken)
        assert 0 < mark < before[0]
        assert mark not in taken
        taken.add(mark)
    with pytest.raises(ZeroDivisionError), process_table.limiting({process_table.MARK: mark}):
        raise ZeroDivisionError
    with process_table.limiting({process_table.MARK: 0}):
        assert resource.getrlimit(resource.RLIMIT_MSGQUEUE) == before
    assert resource.getrlimit(resource.RLIMIT_MSGQUEUE) == before


def test_a_number_that_passed_to_another_process_has_no_members(start: Start) -> None:
    program = start("sleep", "60")
    processes = process_table.table()
    started = processes[program.pid].started
    assert process_table.members(program.pid, "", 0, processes, (), started=started) == {
        program.pid
    }
    assert process_table.members(program.pid, "", 0, processes, (), started=started + 1) == set()


def test_a_signal_does_not_reach_who_has_the_number_now(start: Start) -> None:
    program = start("sleep", "60")
    now = process_table.table()
    earlier = process_table.table()
    earlier[program.pid].started -= 1
    process_table.send(signal.SIGKILL, [program.pid], earlier)
    with pytest.raises(subprocess.TimeoutExpired):
        program.wait(0.1)
    process_table.send(signal.SIGTERM, [program.pid], now)
    assert program.wait() == -signal.SIGTERM


def test_signals_to_missing_processes_are_ignored(start: Start) -> None:
    program, other = start("true"), start("sleep", "60")
    processes = {**process_table.table(), **made((2**30, 1, 1, 1))}
    program.communicate()
    gc.collect()
    handles = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        process_table.send(signal.SIGTERM, [program.pid, 2**30], processes)
    assert len(os.listdir("/proc/self/fd")) <= handles
    process_table.send(signal.SIGTERM, [2**30, other.pid], processes)
    assert other.wait() == -signal.SIGTERM


@pytest.mark.parametrize("force", [False, True], ids=["asked", "made"])
def test_whole_groups_and_single_processes_are_stopped(start: Start, force: bool) -> None:
    text = "sleep 60 & setsid sleep 60 & echo $!; kill -STOP $!; wait; wait"
    program = start("bash", "-c", text)
    loner = int(line_of(program))
    bystander = start("sleep", "60")
    processes = process_table.table()
    pids = process_table.members(program.pid, "", 0, processes, ())
    assert {program.pid, loner} <= pids
    assert len(pids) == 3
    process_table.stop(program.pid, pids, processes, force=force)
    assert program.wait() == -(signal.SIGKILL if force else signal.SIGTERM)
    assert bystander.poll() is None


def test_stopping_no_processes_does_nothing(start: Start) -> None:
    bystander = start("sleep", "60")
    process_table.stop(0, (), process_table.table(), force=True)
    process_table.stop(2**30, (), process_table.table(), force=True)
    assert bystander.poll() is None


def test_a_suspended_process_receives_the_signal_to_terminate(start: Start) -> None:
    program = start("bash", "-c", "trap 'echo bye; exit 3' TERM; echo ready; kill -STOP $$; read")
    line_of(program)
    until_so(lambda: state_of(program.pid) == "T")
    processes = process_table.table()
    process_table.stop(program.pid, {program.pid}, processes, force=False)
    assert line_of(program) == "bye"
    assert program.wait() == 3


@pytest.mark.parametrize(
    ("names", "is_inside"),
    [
        (["python", "bash", "clawkit-spawn", "init"], True),
        (["python", "bash", "init"], False),
        (["python", "clawkit-spawn"], True),  # as the first process of a sandbox
        ([], True),  # nothing can be seen, not even this process
    ],
)
def test_is_inside_command_looks_at_the_parent_processes(
    monkeypatch: pytest.MonkeyPatch, names: list[str], is_inside: bool
) -> None:
    pids = [os.getpid(), *range(100, 100 + len(names) - 2), 1]
    table = {
        pid: Process(pid, parent, 0, 0, 0, name, False)
        for pid, parent, name in zip(pids, [*pids[1:], 0], names, strict=False)
    }
    monkeypatch.setattr(process_table, "look", table.get)
    assert process_table.is_inside_command() is is_inside
