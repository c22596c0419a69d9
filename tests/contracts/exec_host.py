"""What every ExecHost does, wherever its commands run.

A test module for an implementation derives from `ExecHostContract` and says by the fixture `ground`
where commands run and how to look at them without the host. The tests of a class share a host, and
so an event loop: opening one takes longer than most tests. Those about its end open their own.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest
import pytest_asyncio
from tests.process.started import make
from tests.process.watching import name_of, new_marker, until

from clawkit.errors import ToolError, ToolInputError
from clawkit.process import landlock, process_table, records
from clawkit.process.protocols import ExecHost, Exit, Launch, Running
from clawkit.process.records import CommandRecord
from clawkit.process.spool import Spool

_numbers = itertools.count(1)
GRACE_S = 0.3
ENDLESS = "while :; do sleep 0.02; done"


class Ground(Protocol):
    """A machine for commands, and its processes as one sees them without the host."""

    @property
    def cwd(self) -> str:
        """A directory that commands can write to."""

    @property
    def env(self) -> Mapping[str, str]:
        """What commands need to find programs."""

    def open(self) -> ExecHost: ...

    def alive(self, marker: str) -> Sequence[int]:
        """The processes that live and have a marker among their arguments."""

    def kill(self, pid: int) -> None: ...

    @property
    def shares_pids(self) -> bool:
        """Whether processes have the same numbers there as here."""


class Hand:
    """Starts commands and says what they wrote."""

    def __init__(self, host: ExecHost, ground: Ground) -> None:
        self.host = host
        self._ground = ground

    async def start(self, text: str, **options: Any) -> Running:
        launch = Launch(text, self._ground.cwd, self._ground.env)._replace(**options)
        return await self.host.start(launch, f"test-{os.getpid():x}-{next(_numbers):x}")

    async def run(self, text: str, **options: Any) -> tuple[Exit, bytes]:
        """How a command ended, and all it wrote."""
        running = await self.start(text, **options)
        exit_ = await running.wait()
        return exit_, await read(running.output)


async def read(output: Spool) -> bytes:
    """Everything, by pieces."""
    found = bytearray()
    while piece := await output.read(len(found), 1 << 20):
        found += piece
    return bytes(found)


async def wrote(running: Running, pattern: bytes) -> bytes:
    """Wait until a command has written something; all it wrote so far."""
    await until(lambda: re.search(pattern, running.output.tail(100_000)), f"output {pattern!r}")
    return await read(running.output)


def record_of(running: Running) -> CommandRecord:
    """What is known elsewhere of a command, but for its tag."""
    pid, since = running.server
    return make(
        pid=running.pid, since=running.since or since, mark=running.mark, server=(pid, since)
    )


def empty(folder: str) -> None:
    """Remove what earlier tests left in a directory of this machine."""
    for entry in os.scandir(folder):
        shutil.rmtree(entry) if entry.is_dir(follow_symlinks=False) else os.unlink(entry)


def peak_memory() -> int:
    """The most bytes this process had in memory since it was last asked to forget that."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


class ExecHostContract:
    """The suite."""

    cursor = b"<2\\;6>"
    """Where the cursor is after two lines, for a host whose terminal draws its screen."""
    names_programs = True
    """Whether the host can keep a command to named programs, where the kernel can."""
    rounds = 10
    """How often a race is run. All hosts start and end commands by the same spawn server."""

    @pytest_asyncio.fixture(scope="class", loop_scope="module")
    @classmethod
    async def host(cls, ground: Ground) -> AsyncIterator[ExecHost]:
        host = ground.open()
        yield host
        await host.close()

    @pytest.fixture
    def hand(self, host: ExecHost, ground: Ground) -> Hand:
        empty(ground.cwd)
        return Hand(host, ground)

    @pytest.fixture
    def marker(self, ground: Ground) -> Iterator[str]:
        """Seconds to sleep that nobody else sleeps; nobody does so any more after the test."""
        marker = new_marker()
        yield marker
        for pid in ground.alive(marker):
            ground.kill(pid)

    # How commands end

    async def test_the_ways_to_end_are_told_apart(
        self, hand: Hand, subtests: pytest.Subtests
    ) -> None:
        cases: list[tuple[str, tuple[str, int | None, str]]] = [
            ("true", ("exit", 0, "")),
            ("exit 3", ("exit", 3, "")),
            ("exit 255", ("exit", 255, "")),
            ("false || exit 1", ("exit", 1, "")),
            ("kill -TERM $$", ("signal", None, "SIGTERM")),
            ("kill -KILL $$", ("signal", None, "SIGKILL")),
            ("kill -SEGV $$", ("signal", None, "SIGSEGV")),
            ("kill -40 $$", ("signal", None, "SIG40")),
            ("no-such-program-here", ("not-found", 127, "")),
            ("/no/such/program", ("not-found", 127, "")),
            ("/etc/passwd", ("not-executable", 126, "")),
            ("/", ("not-executable", 126, "")),
            ("if", ("exit", 2, "")),
            ("", ("exit", 0, "")),
        ]
        for text, ended in cases:
            with subtests.test(text):
                exit_, _ = await hand.run(text)
                assert (exit_.reason, exit_.code, exit_.signal) == ended
                assert exit_.seconds > 0

    async def test_what_a_command_used_is_told(self, hand: Hand) -> None:
        exit_, said = await hand.run("x=$(head -c 40000000 /dev/zero | tr '\\0' x); echo ${#x}")
        assert said == b"40000000\n"
        assert exit_.cpu_s > 0
        assert 40_000_000 < exit_.memory < 1_000_000_000

    async def test_the_end_can_be_waited_for_often_and_in_vain(self, hand: Hand) -> None:
        running = await hand.start("read; exit 4", open_input=True)
        waiting = [asyncio.create_task(running.wait()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting.pop().cancel()
        await running.write(b"\n")
        exits = await asyncio.gather(running.wait(), *waiting)
        assert {exit_.code for exit_ in exits} == {4}
        assert await running.wait() == exits[0]

    # What commands find

    async def test_a_command_runs_in_its_directory(self, hand: Hand, ground: Ground) -> None:
        exit_, said = await hand.run("pwd; cd -P . && pwd; mkdir -p 'a b'")
        assert said.decode().splitlines() == [ground.cwd, ground.cwd]
        _, said = await hand.run("pwd", cwd=f"{ground.cwd}/a b")
        assert said.decode() == f"{ground.cwd}/a b\n"
        assert exit_.code == 0

    async def test_a_command_cannot_start_where_there_is_no_directory(
        self, hand: Hand, ground: Ground, subtests: pytest.Subtests
    ) -> None:
        await hand.run("touch file")
        for name in ("missing", "file", "bad\0name", "x" * 5000):
            with subtests.test(name[:10]), pytest.raises(ToolInputError, match="directory"):
                await hand.start("true", cwd=f"{ground.cwd}/{name}")

    async def test_the_environment_is_what_was_given_and_the_tag(
        self, hand: Hand, ground: Ground, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CLAWKIT_TEST_SECRET", "hidden")
        given = {**ground.env, "EMPTY": "", "LINES_": "a\nb", "UTF": "ü☃", "RAW": "\udcff"}
        _, said = await hand.run("cat /proc/$$/environ; :", env=given)
        found = dict(each.split(b"=", 1) for each in said.split(b"\0") if each)
        assert found.pop(b"CLAWKIT_COMMAND").startswith(b"test-")
        assert found == {os.fsencode(name): os.fsencode(value) for name, value in given.items()}

    async def test_commands_inherit_no_handles(self, hand: Hand) -> None:
        others = [
            await hand.start("sleep 60", open_input=True),
            await hand.start("sleep 60", size=(80, 24)),
        ]
        _, said = await hand.run("ls -l /proc/$$/fd; :")
        numbers = set(re.findall(rb" (\d+) -> ", said))
        assert numbers == {b"0", b"1", b"2"}
        for each in others:
            await each.end(0)

    async def test_no_signal_is_blocked_or_ignored(
        self, ground: Ground, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        old = signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        hand = Hand(ground.open(), ground)
        try:
            _, said = await hand.run("grep -E '^Sig(Blk|Ign)' /proc/$$/status")
        finally:
            signal.signal(signal.SIGUSR2, old)
            await hand.host.close()
        blocked, ignored = (int(each, 16) for each in said.split()[1::2])
        # The C library keeps two of them for itself.
        assert (blocked, ignored & ~0x1_8000_0000) == (0, 0)

    async def test_the_user_has_no_profile(self, hand: Hand, ground: Ground) -> None:
        for name in (".bashrc", ".bash_profile", ".profile"):
            await hand.run(f"echo 'echo LOADED' > {name}")
        env = {**ground.env, "HOME": ground.cwd}
        _, said = await hand.run("echo plain", env=env)
        assert said == b"plain\n"

    async def test_what_cannot_be_given_to_a_program_is_refused(
        self, hand: Hand, subtests: pytest.Subtests
    ) -> None:
        cases: dict[str, dict[str, Any]] = {
            "nul": {"text": "echo \0"},
            "long": {"text": "echo " + "x" * 3_000_000},
            "env-nul": {"env": {"NAME": "a\0b"}},
            "env-name": {"env": {"NA=ME": "value"}},
            "env-long": {"env": {"NAME": "x" * 3_000_000}},
            "env-surrogate": {"env": {"NAME": "\ud800"}},
            "surrogate": {"text": "echo \ud800"},
        }
        for name, options in cases.items():
            with subtests.test(name):
                with pytest.raises(ToolError):
                    await hand.start(**{"text": "true", **options})
                exit_, said = await hand.run("echo fine")
                assert (exit_.code, said) == (0, b"fine\n")

    # Output

    async def test_both_streams_come_in_the_order_they_were_written(self, hand: Hand) -> None:
        _, said = await hand.run("for i in {1..300}; do echo out$i; echo err$i >&2; done")
        expected = [word for i in range(1, 301) for word in (f"out{i}", f"err{i}")]
        assert said.decode().split() == expected

    async def test_a_program_can_open_its_output_by_name(self, hand: Hand) -> None:
        _, said = await hand.run(
            "echo a > /dev/stderr; echo b > /dev/stdout; echo c | tee /dev/fd/1"
        )
        assert said == b"a\nb\nc\nc\n"

    async def test_output_is_complete_wherever_it_is_kept(
        self, hand: Hand, subtests: pytest.Subtests
    ) -> None:
        expected = b"".join(b"%d\n" % number for number in range(1, 500_001))
        for memory in (0, 100, 100_000, 1_000_000, 50_000_000):
            with subtests.test(memory=memory):
                exit_, said = await hand.run("seq 1 500000", memory=memory)
                assert exit_.code == 0
                assert said == expected

    async def test_much_output_is_complete_and_any_part_of_it_can_be_read(self, hand: Hand) -> None:
        running = await hand.start("seq -w 1 600000")
        await running.wait()
        output = running.output
        assert (output.size, output.dropped) == (4_200_000, 0)
        assert await output.read(7 * 577_777, 14) == b"577778\n577779\n"
        assert await output.read(output.size - 4, 100) == b"000\n"
        assert await output.read(output.size, 100) == await output.read(output.size + 9, 5) == b""
        assert output.tail(7) == b"600000\n"
        assert await read(output) == b"".join(b"%06d\n" % number for number in range(1, 600_001))

    async def test_one_line_of_fifty_megabytes(self, hand: Hand) -> None:
        running = await hand.start("head -c 52428800 /dev/zero | tr '\\0' x; echo; echo end")
        assert (await running.wait()).code == 0
        assert running.output.size == 52_428_800 + 5
        assert running.output.tail(7) == b"xx\nend\n"
        assert await running.output.read(52_428_790, 10) == b"x" * 10

    async def test_bytes_are_left_as_they_are(self, hand: Hand) -> None:
        _, said = await hand.run(r"printf '\xff\xfe\x00\x80a\r\n\xe2\x82 \xf0\x9f\x98\x80\x1b[0m'")
        assert said == b"\xff\xfe\x00\x80a\r\n\xe2\x82 \xf0\x9f\x98\x80\x1b[0m"

    async def test_little_output_has_no_file_and_much_has_one_for_its_owner_alone(
        self, hand: Hand
    ) -> None:
        running = await hand.start("seq 1 100", memory=1000)
        await running.wait()
        assert running.output.path == ""
        running = await hand.start("seq 1 50000", memory=1000)
        await running.wait()
        file = Path(running.output.path)
        assert file.read_bytes() == await read(running.output)
        assert file.stat().st_mode & 0o777 == 0o600
        assert file.parent.stat().st_mode & 0o077 == 0

    async def test_output_can_be_read_while_it_comes(self, hand: Hand) -> None:
        running = await hand.start("echo one; read; echo two", open_input=True)
        assert await wrote(running, b"one") == b"one\n"
        assert running.output.tail(2) == b"e\n"
        await running.write(b"\n")
        await running.wait()
        assert await read(running.output) == b"one\ntwo\n"

    async def test_much_output_needs_little_memory(self, hand: Hand) -> None:
        await hand.run("true")
        Path("/proc/self/clear_refs").write_text("5")
        before = peak_memory()
        running = await hand.start("head -c 67108864 /dev/zero")
        await running.wait()
        assert running.output.size == 67_108_864
        assert peak_memory() - before < 16_000_000

    async def test_fifty_commands_at_once_lose_nothing(self, hand: Hand) -> None:
        text = "for i in {1..200}; do echo %d-$i; done; exit %d"
        done = await asyncio.gather(*(hand.run(text % (each, each)) for each in range(50)))
        for each, (exit_, said) in enumerate(done):
            assert exit_.code == each
            assert said.decode().split() == [f"{each}-{i}" for i in range(1, 201)]

    # Input

    async def test_input_is_empty_unless_asked_for(self, hand: Hand) -> None:
        running = await hand.start("cat; echo end")
        assert not running.can_write
        with pytest.raises(ToolInputError):
            await running.write(b"x")
        await running.wait()
        assert await read(running.output) == b"end\n"

    async def test_a_command_is_written_to_until_the_end_of_its_input(self, hand: Hand) -> None:
        running = await hand.start("cat; echo end", open_input=True)
        await running.write("héllo\n".encode())
        assert await wrote(running, b"\n") == "héllo\n".encode()
        await running.write(b"\xff\x00", eof=True)
        await running.wait()
        assert await read(running.output) == "héllo\n".encode() + b"\xff\x00end\n"
        assert not running.can_write
        with pytest.raises(ToolInputError):
            await running.write(b"more")

    async def test_nothing_is_written_after_the_end_of_the_input(self, hand: Hand) -> None:
        running = await hand.start("cat >/dev/null; read -t 60 < /dev/zero", open_input=True)
        await running.write(b"", eof=True)
        assert not running.can_write
        with pytest.raises(ToolInputError):
            await running.write(b"more")
        await running.end(0)

    async def test_much_input_arrives_whole(self, hand: Hand) -> None:
        running = await hand.start("cat", open_input=True)
        data = bytes(range(256)) * 20_000
        await running.write(data, eof=True)
        await running.wait()
        assert await read(running.output) == data

    async def test_two_writes_at_once_arrive_whole_one_after_the_other(self, hand: Hand) -> None:
        running = await hand.start("sleep 0.2; tr -s ab", open_input=True)
        await asyncio.gather(running.write(b"a" * 400_000), running.write(b"b" * 400_000))
        await running.write(b"", eof=True)
        await running.wait()
        assert await read(running.output) in (b"ab", b"ba")

    async def test_a_write_that_no_one_reads_is_refused(
        self, hand: Hand, marker: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # For hosts that write on this machine; another one only takes its own time.
        monkeypatch.setattr("clawkit.process.local_host._WRITE_S", 0.3)
        running = await hand.start(f"sleep {marker}", open_input=True)
        with pytest.raises(ToolInputError, match="does not read"):
            await running.write(b"x" * 1_000_000)
        await running.end(0)

    async def test_a_write_to_closed_input_is_refused(self, hand: Hand) -> None:
        running = await hand.start(f"exec <&-; echo closed; {ENDLESS}", open_input=True)
        await wrote(running, b"closed")
        with pytest.raises(ToolInputError, match="closed"):
            await running.write(b"x")
        await running.end(0)

    async def test_a_write_ends_when_the_command_does(self, hand: Hand) -> None:
        running = await hand.start("sleep 0.2", open_input=True)
        with pytest.raises(ToolInputError, match="closed"):
            await running.write(b"x" * 1_000_000)

    # Ending commands

    async def test_a_command_can_be_ended(self, hand: Hand, ground: Ground, marker: str) -> None:
        running = await hand.start(f"sleep {marker}")
        await running.end(60)
        exit_ = await running.wait()
        assert (exit_.reason, exit_.signal) == ("signal", "SIGTERM")
        assert not ground.alive(marker)
        await running.end(GRACE_S)

    async def test_a_command_may_end_in_its_own_way(self, hand: Hand) -> None:
        running = await hand.start(f"trap 'echo bye; exit 5' TERM; echo ready; {ENDLESS}")
        await wrote(running, b"ready")
        await running.end(60)
        exit_ = await running.wait()
        assert (exit_.reason, exit_.code) == ("exit", 5)
        assert b"bye\n" in await read(running.output)

    async def test_a_command_that_does_not_want_to_end_is_made_to(
        self, hand: Hand, ground: Ground, marker: str
    ) -> None:
        running = await hand.start(f"trap '' TERM HUP INT; echo ready {marker}; {ENDLESS}")
        await wrote(running, b"ready")
        await running.end(GRACE_S)
        exit_ = await running.wait()
        assert (exit_.reason, exit_.signal) == ("signal", "SIGKILL")
        assert not ground.alive(marker)

    @pytest.mark.parametrize("size", [None, (80, 24)], ids=["pipes", "terminal"])
    async def test_all_that_a_command_started_ends_with_it(
        self, hand: Hand, ground: Ground, marker: str, size: tuple[int, int] | None
    ) -> None:
        text = f"""
            sleep {marker} &
            (trap '' TERM; sleep {marker}; sleep {marker}) &
            setsid sleep {marker} &
            (setsid bash -c 'sleep {marker} & sleep {marker}; :' &)
            setsid setsid -f sleep {marker}
            setsid -f env -i $(type -p sleep) {marker}
            nohup sleep {marker} >/dev/null 2>&1 &
            sleep {marker} & kill -STOP $!
            (setsid bash -c 'kill -STOP $$; sleep {marker}' &)
            set -m; sleep {marker} & set +m
            sleep 0.1
            echo ready; wait
        """
        running = await hand.start(text, size=size)
        await wrote(running, b"ready")
        await until(lambda: len(ground.alive(marker)) > 9)
        await running.end(GRACE_S)
        assert not ground.alive(marker)
        assert not running.left

    async def test_what_a_command_starts_at_once_ends_with_it(
        self, hand: Hand, ground: Ground, marker: str
    ) -> None:
        text = f"(setsid sleep {marker} &); sleep {marker}; :"
        for _ in range(self.rounds):
            running = await hand.start(text)
            await until(lambda: len(ground.alive(marker)) >= 3)
            await running.end(0)
            assert not ground.alive(marker)

    async def test_a_stopped_command_can_be_ended(
        self, hand: Hand, ground: Ground, marker: str
    ) -> None:
        running = await hand.start(f"sleep {marker}")
        await running.signal(signal.SIGSTOP)
        await running.end(60)
        assert (await running.wait()).signal == "SIGTERM"
        assert not ground.alive(marker)

    async def test_other_commands_go_on(self, hand: Hand, ground: Ground, marker: str) -> None:
        other = await hand.start(f"(setsid sleep {marker} &); sleep {marker}")
        await until(lambda: len(ground.alive(marker)) >= 2)
        running = await hand.start("(setsid sleep 60 &); sleep 60")
        await running.end(GRACE_S)
        await until(lambda: len(ground.alive(marker)) >= 2)
        await other.end(0)
        assert not ground.alive(marker)

    async def test_what_a_command_left_running_is_told_and_can_be_ended(
        self, hand: Hand, ground: Ground, marker: str
    ) -> None:
        async def check(before: str) -> None:
            text = f"read; setsid -f {before}$(type -p sleep) {marker}; echo done; exit 6"
            running = await hand.start(text, open_input=True)
            assert not running.left
            await running.write(b"\n")
            exit_ = await running.wait()
            assert (exit_.reason, exit_.code) == ("exit", 6)
            assert await read(running.output) == b"done\n"
            if ground.shares_pids:
                await until(lambda: [each.name for each in running.left] == ["sleep"])
            await until(lambda: [each.pid for each in running.left] == list(ground.alive(marker)))
            assert len(running.left) == 1
            await running.end(GRACE_S)
            assert not ground.alive(marker)
            assert not running.left

        await check("")
        await check("env -i ")  # without a tag

    async def test_another_process_finds_a_command_and_ends_all_it_started_and_nothing_else(
        self, hand: Hand, ground: Ground, marker: str
    ) -> None:
        # Neither the session, nor the parents, nor a tag lead to one of the two that sleep.
        text = f"(env -i setsid sleep {marker} &); sleep {marker} & echo ready; wait"
        running, other = [await hand.start(text) for _ in range(2)]
        # What forks and executes has the same arguments meanwhile, and another name.
        names = ["bash"] * 2 + ["sleep"] * 4
        await until(lambda: sorted(map(name_of, ground.alive(marker))) == names)
        record = record_of(running)
        assert record.runs
        (outcome,) = await asyncio.to_thread(records.end, [record], grace_s=GRACE_S)
        assert outcome.left == ()
        assert sorted(each.name for each in outcome.reached) == ["bash", "sleep", "sleep"]
        assert (await running.wait()).signal == "SIGTERM"
        assert not running.left
        assert len(ground.alive(marker)) == 3
        assert record_of(other).runs
        # A process with another start time is another one, even if it has the same pid.
        reused = msgspec.structs.replace(record_of(other), since=record.since - 1)
        assert not reused.runs
        await other.end(0)

    async def test_another_process_finds_what_a_command_left_running(
        self, hand: Hand, ground: Ground, marker: str
    ) -> None:
        running = await hand.start(f"setsid -f env -i $(type -p sleep) {marker}")
        await running.wait()
        await until(lambda: running.left)
        record = record_of(running)
        found = records.living(record, process_table.table())
        assert list(found) == list(ground.alive(marker))
        pid, since = record.server
        unseen = msgspec.structs.replace(record, server=(pid, since + 1))
        assert records.living(unseen, process_table.table()) == {}
        gone = msgspec.structs.replace(record, pid=0, since=since)
        assert list(records.living(gone, process_table.table())) == list(found)
        (outcome,) = await asyncio.to_thread(records.end, [record], grace_s=GRACE_S)
        assert [each.pid for each in outcome.reached] == list(found)
        await until(lambda: not running.left)

    async def test_what_is_left_running_may_go_on_writing(
        self, hand: Hand, ground: Ground, marker: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # For hosts that read on this machine; another one only takes its own time.
        monkeypatch.setattr("clawkit.process.local_host._DRAIN_MAX_S", 0.4)
        text = f"(setsid bash -c 'while sleep 0.05; do echo {marker}; done' &); echo done"
        running = await hand.start(text)
        assert (await running.wait()).code == 0
        size = running.output.size
        assert running.left
        await until(lambda: running.output.size > size)
        await running.end(0)
        assert not ground.alive(marker)

    async def test_what_is_left_running_is_no_longer_told_when_it_has_ended(
        self, hand: Hand
    ) -> None:
        await hand.run("rm -f fifo; mkfifo fifo")
        running = await hand.start("(exec setsid bash -c 'read < fifo; :' >/dev/null &); exit 0")
        await running.wait()
        await until(lambda: running.left)
        await hand.run("echo > fifo")
        await until(lambda: not running.left)
        await running.end(0)

    async def test_a_command_without_output_runs_on(self, hand: Hand) -> None:
        running = await hand.start("exec >&- 2>&-; read; exit 5", open_input=True)
        waiting = asyncio.create_task(running.wait())
        await asyncio.wait({waiting}, timeout=0.4)
        assert not waiting.done()
        await running.write(b"\n")
        assert (await waiting).code == 5

    async def test_signals_reach_the_command_and_what_it_started(
        self, hand: Hand, marker: str
    ) -> None:
        text = f"""
            trap 'echo outer' USR1
            bash -c 'trap "echo inner; exit 0" USR1; echo ready; {ENDLESS}' {marker} &
            child=$!
            while kill -0 $child; do wait $child; done 2>/dev/null
        """
        running = await hand.start(text)
        await wrote(running, b"ready")
        await running.signal(signal.SIGUSR1)
        await running.wait()
        assert set((await read(running.output)).split()) >= {b"outer", b"inner"}
        await running.signal(signal.SIGUSR1)

    async def test_a_signal_that_does_not_exist_does_no_harm(self, hand: Hand) -> None:
        running = await hand.start("read; exit 3", open_input=True)
        for number in (0, 999, -1, 2**40):
            with suppress(ToolInputError):
                await running.signal(number)
        await running.write(b"\n")
        assert (await running.wait()).code == 3

    async def test_closing_the_host_ends_everything(self, ground: Ground, marker: str) -> None:
        hand = Hand(ground.open(), ground)
        commands = [
            await hand.start(f"(setsid -f sleep {marker}); sleep {marker}"),
            await hand.start(f"sleep {marker}", size=(80, 24)),
            await hand.start(f"trap '' TERM; echo ready {marker}; {ENDLESS}", open_input=True),
            await hand.start(f"setsid -f env -i $(type -p sleep) {marker}"),
        ]
        await wrote(commands[2], b"ready")
        await commands[3].wait()
        await until(lambda: len(ground.alive(marker)) >= 5)
        await hand.host.close()
        assert not ground.alive(marker)
        exits = [await each.wait() for each in commands]
        assert [exit_.reason for exit_ in exits] == ["signal", "signal", "signal", "exit"]
        await hand.host.close()

    async def test_a_start_that_is_cancelled_leaves_nothing(
        self, hand: Hand, ground: Ground, marker: str
    ) -> None:
        await hand.run("true")
        for turns in range(12):
            size = (80, 24) if turns % 2 else None
            starting = asyncio.create_task(hand.start(f"sleep {marker}", size=size))
            for _ in range(turns // 2):
                await asyncio.sleep(0)
            starting.cancel()
            await asyncio.wait({starting})
            if not starting.cancelled():
                await starting.result().end(0)
        await hand.run("true")
        await until(lambda: not ground.alive(marker))

    # Terminals

    async def test_a_command_has_a_terminal_when_it_asks_for_one(self, hand: Hand) -> None:
        text = "test -t 0 && test -t 1 && test -t 2 && stty size && echo ok > /dev/tty"
        running = await hand.start(text, size=(123, 45))
        assert (await running.wait()).code == 0
        assert await read(running.output) == b"45 123\r\nok\r\n"
        assert running.terminal is not None
        assert running.terminal.size == (123, 45)
        _, said = await hand.run("test -t 0 || test -t 1 || test -t 2 || echo none; : > /dev/tty")
        assert b"none" in said
        assert b"No such device" in said

    async def test_the_terminal_belongs_to_the_command(self, hand: Hand, ground: Ground) -> None:
        running = await hand.start("echo mine > /dev/tty; tty; ps -o tty= -p $$", size=(80, 24))
        assert (await running.wait()).code == 0
        mine, *names = (await read(running.output)).split()
        assert mine == b"mine"
        if ground.shares_pids:  # elsewhere it has no name
            assert names[0] == b"/dev/" + names[1]

    async def test_a_program_sees_that_its_terminal_changes(self, hand: Hand) -> None:
        running = await hand.start(f"trap 'stty size' WINCH; echo ready; {ENDLESS}", size=(80, 24))
        await wrote(running, b"ready")
        running.resize(100, 40)
        await wrote(running, b"40 100\r\n")
        assert running.terminal is not None
        assert running.terminal.size == (100, 40)
        await running.end(0)
        with pytest.raises(ToolInputError):
            running.resize(80, 24)

    async def test_what_is_not_a_size_is_refused(self, hand: Hand) -> None:
        running = await hand.start("sleep 60", size=(80, 24))
        for columns, rows in ((70_000, 24), (80, 70_000), (-1, 24)):
            with pytest.raises(ToolInputError):
                running.resize(columns, rows)
            with pytest.raises(ToolInputError):
                await hand.start("true", size=(columns, rows))
        await running.end(0)

    async def test_without_a_terminal_nothing_can_be_resized(self, hand: Hand) -> None:
        running = await hand.start("sleep 60")
        assert running.terminal is None
        with pytest.raises(ToolInputError):
            running.resize(80, 24)
        await running.end(0)

    async def test_the_terminal_says_where_the_cursor_is(self, hand: Hand) -> None:
        # As programs do that ask: keys first, for one that reads lines is not answered.
        keys = "stty -icanon -echo"
        ask = r"""printf 'ab\n12345\033[6n'; read -rsdR place; printf ' <%q>\n' "${place#*[}" """
        text = f"{keys}; {ask}"
        exit_, said = await hand.run(text, size=(80, 24))
        assert exit_.code == 0
        assert self.cursor in said

    async def test_the_input_of_a_terminal_has_an_end(
        self, hand: Hand, subtests: pytest.Subtests
    ) -> None:
        for data in (b"line\n", b"", b"abc"):
            with subtests.test(data=data):
                running = await hand.start("stty -echo; echo ready; cat; echo over", size=(80, 24))
                await wrote(running, b"ready")
                await running.write(data, eof=True)
                said = await wrote(running, b"over\r\n")
                assert said == b"ready\r\n" + data.replace(b"\n", b"\r\n") + b"over\r\n"
                await running.wait()
                assert not running.can_write

    async def test_control_c_interrupts(self, hand: Hand) -> None:
        text = f"trap 'echo caught; exit 9' INT; echo ready; {ENDLESS}"
        running = await hand.start(text, size=(80, 24))
        await wrote(running, b"ready")
        await running.write(b"\x03")
        assert (await running.wait()).code == 9
        assert b"caught" in await read(running.output)

    async def test_much_output_of_a_terminal_is_complete(self, hand: Hand) -> None:
        _, said = await hand.run("stty -opost; seq 1 100000", size=(80, 24))
        assert said == b"".join(b"%d\n" % number for number in range(1, 100_001))

    async def test_a_flood_in_a_terminal_can_be_ended(
        self, hand: Hand, ground: Ground, marker: str
    ) -> None:
        running = await hand.start(f"yes {marker}; :", size=(80, 24))
        await until(lambda: running.output.size > 300_000)
        await running.end(GRACE_S)
        assert (await running.wait()).reason == "signal"
        assert not ground.alive(marker)

    async def test_a_terminal_ends_with_its_command(
        self, hand: Hand, ground: Ground, marker: str
    ) -> None:
        await hand.run("mkfifo deaf")
        text = f"bash -c 'trap \"\" HUP; echo > deaf; sleep {marker}' & read < deaf; echo done"
        running = await hand.start(text, size=(80, 24))
        assert (await running.wait()).code == 0
        assert b"done" in await read(running.output)
        assert running.left
        await running.end(GRACE_S)
        assert not ground.alive(marker)

    # Living on

    async def test_a_detached_command_lives_on(self, ground: Ground, marker: str) -> None:
        hand = Hand(ground.open(), ground)
        running = await hand.start(f"echo on; sleep {marker}; :", detach=True)
        assert not running.can_write
        other = await hand.start(f"sleep {marker}1")
        # The shell, and what it has started by then.
        await until(lambda: len({*ground.alive(marker)} - {*ground.alive(f"{marker}1")}) >= 2)
        await hand.host.close()
        assert not ground.alive(f"{marker}1")
        pids = ground.alive(marker)
        assert running.pid in pids
        for pid in pids:
            ground.kill(pid)
        await until(lambda: not ground.alive(marker))
        assert (await other.wait()).reason == "signal"

    async def test_a_detached_command_is_like_others_while_its_host_is_there(
        self, hand: Hand, ground: Ground, marker: str
    ) -> None:
        exit_, said = await hand.run("cat; echo out; echo err >&2; exit 3", detach=True)
        assert (exit_.reason, exit_.code, said) == ("exit", 3, b"out\nerr\n")
        running = await hand.start(f"(setsid -f sleep {marker}); sleep {marker}", detach=True)
        await until(lambda: len(ground.alive(marker)) >= 2)
        await running.end(GRACE_S)
        assert not ground.alive(marker)

    # Being kept to the programs that were named

    @pytest_asyncio.fixture(loop_scope="module")
    async def ls(self, hand: Hand) -> str:
        """The path of a program, on a host that can keep commands to it."""
        if not self.names_programs or not landlock.available():
            pytest.skip("this host cannot keep a command to some programs")
        _, said = await hand.run("type -p ls")
        return said.decode().strip()

    async def test_only_what_was_named_can_be_started(
        self, hand: Hand, ls: str, subtests: pytest.Subtests
    ) -> None:
        cases: list[dict[str, Any]] = [{}, {"open_input": True}, {"size": (80, 24)}]
        for number, options in enumerate((*cases, {"detach": True})):
            text = f"echo shell > made; ls made; touch new{number}; echo $?; ls new{number}"
            with subtests.test(**options):
                exit_, said = await hand.run(text, programs=(ls,), **options)
                assert said.startswith(b"made")
                assert b"touch: Permission denied" in said
                assert b"126" in said
                assert exit_.code == 2
                exit_, _ = await hand.run(text, **options)
                assert exit_.code == 0

    async def test_a_refused_program_is_told_apart_from_a_missing_one(
        self, hand: Hand, ls: str
    ) -> None:
        exit_, _ = await hand.run("touch new", programs=(ls,))
        assert (exit_.reason, exit_.code, exit_.status) == ("not-executable", 126, "failed")
        exit_, _ = await hand.run("no-such-program-here", programs=(ls,))
        assert (exit_.reason, exit_.code) == ("not-found", 127)

    async def test_nothing_named_leaves_the_shell(self, hand: Hand, ls: str) -> None:
        exit_, said = await hand.run("for i in a b; do printf %s $i; done; ls", programs=())
        assert said.startswith(b"ab")
        assert exit_.code == 126

    async def test_commands_side_by_side_are_each_kept_to_their_own(
        self, hand: Hand, ls: str
    ) -> None:
        _, said = await hand.run("type -p sleep; type -p touch")
        sleep, touch = said.decode().split()
        lists = [(ls,), (sleep,), (touch,), None] * 10
        texts = [f"ls >/dev/null; echo $?; touch t{n}; echo $?" for n in range(len(lists))]
        done = await asyncio.gather(
            *(hand.run(text, programs=each) for text, each in zip(texts, lists, strict=True))
        )
        codes = [[word for word in said.split() if word in (b"0", b"126")] for _, said in done]
        first = [[b"0", b"126"], [b"126", b"126"], [b"126", b"0"], [b"0", b"0"]]
        assert codes == first * 10

    async def test_a_kept_command_ends_with_all_it_started(
        self, hand: Hand, ground: Ground, marker: str, ls: str
    ) -> None:
        _, said = await hand.run("type -p sleep; type -p setsid; type -p bash")
        programs = tuple(said.decode().split())
        text = f"sleep {marker} & (setsid bash -c 'sleep {marker}; :' &); echo ready; wait"
        running = await hand.start(text, programs=programs)
        await until(lambda: len(ground.alive(marker)) >= 4)
        await running.end(GRACE_S)
        assert not ground.alive(marker)
        assert not running.left
        running = await hand.start(f"setsid -f sleep {marker}; exit 6", programs=programs)
        assert (await running.wait()).code == 6
        if ground.shares_pids:
            await until(lambda: [each.name for each in running.left] == ["sleep"])
        assert len(running.left) == 1
        await running.end(0)
        assert not ground.alive(marker)

    async def test_a_program_that_is_not_named_by_its_whole_path_is_refused(
        self, hand: Hand, ls: str
    ) -> None:
        for name in ("ls", "./ls", ""):
            with pytest.raises(ToolInputError, match="absolute path"):
                await hand.start("ls", programs=(ls, name))
