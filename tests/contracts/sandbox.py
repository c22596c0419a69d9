"""What every Sandbox does, whatever confines its commands.

A test module for a backend derives from `SandboxContract` and says by the fixture `ground` how its
sandboxes are made. What commands and files do in detail is in the suites of `ExecHost` and
`FileSystem`; here it is that they are about the same place, and what is around them.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.process.watching import alive, children, new_marker, until

from clawkit.config.sections.sandbox import Access
from clawkit.errors import (
    NotFoundError,
    ProtectedError,
    ToolAuthorizationError,
    ToolError,
    ToolInputError,
)
from clawkit.fs.protocols import Change, FileSystem, read_all
from clawkit.process.protocols import Exit, Launch, Running
from clawkit.sandbox.protocols import Mount, Sandbox, prune

_numbers = itertools.count(1)
DESCRIBED = {
    *("backend", "scope", "workspace", "workspaceAccess", "workdir", "mounts", "network", "gaps")
}


class Ground:
    """A workspace, and sandboxes of it."""

    def __init__(self, place: Path) -> None:
        self.workspace = place / "ws"
        self.workspace.mkdir()
        (self.workspace / "a.txt").write_text("alpha\n")
        (place / "outside").write_text("SECRET")
        self._others = set(children(os.getpid()))

    def open(self, access: Access, scope: str = "agent:main") -> Sandbox:
        raise NotImplementedError

    def confine(self, sandbox: Sandbox, launch: Launch) -> Launch:
        """The command as this backend takes it."""
        return launch

    def lose(self, sandbox: Sandbox) -> None:
        """Take the place of the commands away, as a crash would."""
        for pid in children(os.getpid()).keys() - self._others:
            os.kill(pid, signal.SIGKILL)


class Hand:
    """Works in a sandbox, by commands and by files."""

    def __init__(self, ground: Ground, sandbox: Sandbox) -> None:
        self._ground = ground
        self.sandbox = sandbox
        self.files: FileSystem = sandbox.files()

    async def start(self, text: str, **options: Any) -> Running:
        env = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "GIVEN": "it's $x"}
        launch = Launch(text, self.sandbox.workdir, env)._replace(**options)
        id_ = f"test-{os.getpid():x}-{next(_numbers):x}"
        return await self.sandbox.host().start(self._ground.confine(self.sandbox, launch), id_)

    async def run(self, text: str, **options: Any) -> tuple[Exit, str]:
        running = await self.start(text, **options)
        exit_ = await running.wait()
        return exit_, (await running.output.read(0, 1 << 20)).decode()

    async def read(self, path: str) -> bytes:
        async with self.files.open(path) as file:
            return await read_all(file, 1 << 20)

    def find(self, source: Path) -> Mount:
        """Where something of this machine is inside."""
        return next(each for each in self.sandbox.mounts if each.source == str(source))


class SandboxContract:
    """The suite."""

    @pytest.fixture
    async def make(self, ground: Ground) -> AsyncIterator[Any]:
        opened: list[Sandbox] = []

        async def make(access: Access, scope: str = "agent:main") -> Hand:
            opened.append(ground.open(access, scope))
            await opened[-1].prepare()
            return Hand(ground, opened[-1])

        yield make
        for each in opened:
            await each.close()

    @pytest.fixture
    async def hand(self, make: Any) -> Hand:
        hand: Hand = await make("rw")
        return hand

    # What it is

    async def test_it_keeps_the_protocol_and_describes_itself(
        self, hand: Hand, ground: Ground
    ) -> None:
        assert isinstance(hand.sandbox, Sandbox)
        said = json.loads(json.dumps(hand.sandbox.describe()))
        assert said.keys() >= DESCRIBED
        assert said["backend"] == hand.sandbox.backend
        assert said["workspace"] == str(ground.workspace)
        assert said["workdir"] == hand.sandbox.workdir == hand.find(ground.workspace).target
        assert said["mounts"] == [each._asdict() for each in hand.sandbox.mounts]

    # Commands

    async def test_commands_end_with_their_codes_and_output(self, hand: Hand) -> None:
        assert (await hand.run("echo out; echo err >&2; exit 3"))[1] == "out\nerr\n"
        for text, expected in (("true", ("exit", 0)), ("exit 255", ("exit", 255))):
            exit_, _ = await hand.run(text)
            assert (exit_.reason, exit_.code) == expected
        exit_, _ = await hand.run("kill -9 $$")
        assert (exit_.reason, exit_.signal) == ("signal", "SIGKILL")

    async def test_commands_run_where_and_with_what_they_are_told(
        self, hand: Hand, ground: Ground
    ) -> None:
        (ground.workspace / "sub").mkdir()
        _, said = await hand.run('pwd; printf "%s" "$GIVEN"')
        assert said == f"{hand.sandbox.workdir}\nit's $x"
        for cwd in (f"{hand.sandbox.workdir}/sub", str(ground.workspace / "sub")):
            _, said = await hand.run("pwd", cwd=cwd)
            assert said == f"{hand.sandbox.workdir}/sub\n"
        with pytest.raises(ToolError):
            await hand.run("true", cwd=f"{hand.sandbox.workdir}/missing")

    async def test_input_and_terminals_work(self, hand: Hand) -> None:
        assert (await hand.run("cat"))[1] == ""
        running = await hand.start("read line; echo got $line; cat", open_input=True)
        await running.write(b"one\n")
        await until(lambda: b"got one" in running.output.tail(100))
        await running.write(b"two", eof=True)
        assert (await running.wait()).code == 0
        assert running.output.tail(100) == b"got one\ntwo"
        _, said = await hand.run("test -t 0 && test -t 1 && stty size", size=(90, 30))
        assert said.split() == ["30", "90"]

    async def test_a_command_in_the_background_can_be_ended_with_all_it_started(
        self, hand: Hand
    ) -> None:
        marker = new_marker()
        running = await hand.start(f"setsid sleep {marker} & echo up; sleep {marker}")
        await until(lambda: b"up" in running.output.tail(100) and len(alive(marker)) >= 2)
        assert (await hand.run("echo beside"))[1] == "beside\n"
        await running.end(0)
        assert (await running.wait()).reason == "signal"
        await until(lambda: not alive(marker))

    # Files

    async def test_commands_and_file_tools_see_the_same_files(
        self, hand: Hand, ground: Ground
    ) -> None:
        _, said = await hand.run("cat a.txt; mkdir d; echo command > d/made; rm a.txt")
        assert said == "alpha\n"
        assert (ground.workspace / "d/made").read_text() == "command\n"
        for path in ("d/made", f"{hand.sandbox.workdir}/d/made", f"{ground.workspace}/d/made"):
            assert await hand.read(path) == b"command\n"
        with pytest.raises(NotFoundError):
            await hand.read("a.txt")
        (done,) = await hand.files.change([Change(f"{hand.sandbox.workdir}/d/new", b"bridge")])
        assert done.place == str(ground.workspace / "d/new")
        assert (await hand.run("cat d/new; ls d"))[1] == "bridgemade\nnew\n"
        assert [each.name for each in (await hand.files.list("d")).entries] == ["made", "new"]

    async def test_errors_of_files_are_those_of_local_files(
        self, hand: Hand, ground: Ground
    ) -> None:
        (ground.workspace / "out").symlink_to(ground.workspace.parent / "outside")
        await hand.run("ln -s /etc/passwd evil; ln -s missing dangling; true")
        inside = hand.sandbox.workdir
        for path in ("missing", f"{inside}/missing", "dangling"):
            with pytest.raises(NotFoundError):
                await hand.read(path)
        for path in ("../outside", f"{inside}/../outside", "out", "/etc/passwd", "/proc/self/mem"):
            for work in (hand.read(path), hand.files.change([Change(path, b"PWNED")])):
                with pytest.raises(ToolInputError) as caught:
                    await work
                assert not isinstance(caught.value, NotFoundError)
            with pytest.raises(ToolAuthorizationError):
                await hand.read(path)
        with pytest.raises(ToolInputError):
            await hand.read("evil")
        with pytest.raises(ToolInputError):
            await hand.read(inside)
        with pytest.raises(ProtectedError):
            await hand.files.change([Change(f"{inside}/.git/hooks/pre-commit", b"#!")])
        assert (ground.workspace.parent / "outside").read_text() == "SECRET"

    async def test_protected_files_stay_as_they_are(self, hand: Hand, ground: Ground) -> None:
        hooks = ground.workspace / ".git/hooks"
        hooks.mkdir(parents=True)
        (ground.workspace / ".git/config").write_text("[core]\n")
        await hand.run("true")
        await hand.run("echo evil >> .git/config; echo evil > .git/hooks/pre-commit; true")
        assert (ground.workspace / ".git/config").read_text() == "[core]\n"
        assert os.listdir(hooks) == []

    # The workspace

    async def test_a_read_only_workspace_can_be_read_and_stays_as_it_is(
        self, make: Any, ground: Ground
    ) -> None:
        hand: Hand = await make("ro")
        mount = hand.find(ground.workspace)
        assert not mount.writable
        _, said = await hand.run(f"cat {mount.target}/a.txt")
        assert said == "alpha\n"
        await hand.run(f"echo evil > {mount.target}/a.txt; rm -f {mount.target}/a.txt; true")
        await hand.run("echo own > own")
        assert (ground.workspace / "a.txt").read_text() == "alpha\n"
        assert os.listdir(ground.workspace) == ["a.txt"]
        assert await hand.read("own") == b"own\n"
        for path in (f"{ground.workspace}/a.txt", f"{mount.target}/a.txt"):
            assert await hand.read(path) == b"alpha\n"
            with pytest.raises(ToolInputError):
                await hand.files.change([Change(path, b"PWNED")])
        assert (ground.workspace / "a.txt").read_text() == "alpha\n"

    async def test_without_access_there_is_only_a_private_directory(
        self, make: Any, ground: Ground
    ) -> None:
        hand: Hand = await make("none")
        assert str(ground.workspace) not in [each.source for each in hand.sandbox.mounts]
        assert (await hand.run("ls -A; echo own > own"))[1] == ""
        assert await hand.read("own") == b"own\n"
        with pytest.raises(ToolAuthorizationError):
            await hand.read(f"{ground.workspace}/a.txt")
        await hand.files.change([Change("more", b"more")])
        assert (await hand.run("cat more own"))[1] == "moreown\n"
        assert os.listdir(ground.workspace) == ["a.txt"]

    # What exists

    async def test_sandboxes_are_listed_and_removed(self, make: Any) -> None:
        old: Hand = await make("none", "agent:old")
        await old.run("echo kept > kept")
        (name,) = [each.name for each in await old.sandbox.list()]
        await old.sandbox.close()
        hand: Hand = await make("rw")
        found = {each.name: each for each in await hand.sandbox.list()}
        assert len(found) == 2
        assert not found[name].running
        with pytest.raises(ToolError):
            await hand.sandbox.remove("../x")
        with pytest.raises(ToolError, match="unknown sandbox"):
            await hand.sandbox.remove("missing")
        await hand.sandbox.remove(name)
        assert name not in [each.name for each in await hand.sandbox.list()]

    async def test_only_what_is_unused_is_pruned(self, make: Any) -> None:
        old: Hand = await make("none", "agent:old")
        await old.run("true")
        (name,) = [each.name for each in await old.sandbox.list()]
        await old.sandbox.close()
        hand: Hand = await make("rw")
        running = await hand.start("read line", open_input=True)
        assert await prune(hand.sandbox, idle_s=0, age_s=0) == []
        assert await prune(hand.sandbox, idle_s=1e6, age_s=1e6) == []
        assert list(await prune(hand.sandbox, idle_s=1e-6, age_s=0)) == [name]
        await running.write(b"\n", eof=True)
        assert (await running.wait()).code == 0
        assert len(await hand.sandbox.list()) == 1

    # The end

    async def test_closing_leaves_no_process_and_can_be_repeated(self, hand: Hand) -> None:
        marker = new_marker()
        running = await hand.start(f"setsid sleep {marker} & sleep {marker}")
        await until(lambda: len(alive(marker)) >= 2)
        await hand.sandbox.close()
        await until(lambda: not alive(marker))
        await running.wait()
        await hand.sandbox.close()

    async def test_after_a_loss_commands_run_again(self, hand: Hand, ground: Ground) -> None:
        marker = new_marker()
        running = await hand.start(f"echo kept > kept; sleep {marker}")
        await until(lambda: alive(marker))
        ground.lose(hand.sandbox)
        assert (await running.wait()).reason in ("lost", "signal")
        await until(lambda: not alive(marker))
        exit_, said = await hand.run("cat kept; echo again")
        assert (exit_.code, said) == (0, "kept\nagain\n")
        assert await hand.read("kept") == b"kept\n"
