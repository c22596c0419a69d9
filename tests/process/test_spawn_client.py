"""clawkit's side of the keeper."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.process.watching import alive, halt, keepers, open_handles, own, state_of, until

from clawkit.errors import ToolError
from clawkit.process import spawn_client as keeps
from clawkit.process.protocols import LOST
from clawkit.process.spawn_client import SpawnClient, SpawnedChild

pytestmark = pytest.mark.usefixtures("no_loose_ends")
BASH = "/bin/bash"


@pytest.fixture
async def keeping(no_loose_ends: None) -> AsyncIterator[SpawnClient]:
    keeping = SpawnClient()
    yield keeping
    await keeping.close()


@pytest.fixture
def fds(tmp_path: Path) -> Iterator[Sequence[int]]:
    """A directory, no input, and no output."""
    handles = [os.open(tmp_path, os.O_RDONLY), os.open(os.devnull, os.O_RDWR)]
    yield [*handles, handles[1]]
    for each in handles:
        os.close(each)


async def run(
    keeping: SpawnClient, fds: Sequence[int], id_: str, text: str, **options: Any
) -> SpawnedChild:
    env = options.pop("env", {"PATH": os.environ["PATH"]})
    argv = (BASH, "-c", text)
    id_ = own(id_)
    child = SpawnedChild(keeping, id_, options.pop("detached", ""))
    variables = {**env, "CLAWKIT_COMMAND": id_}
    return await keeping.run(child, argv, variables, fds, limit=1000, **options)


async def test_a_program_is_started_and_its_end_is_reported(
    keeping: SpawnClient, fds: Sequence[int]
) -> None:
    child = await run(keeping, fds, "a", "exit 3")
    assert child.pid > 1
    exit_ = await child.ended
    assert (exit_.code, exit_.reason, child.left_behind) == (3, "exit", ())
    assert await child.gone == ()


async def test_a_program_that_cannot_be_started_is_an_error(
    keeping: SpawnClient, fds: Sequence[int]
) -> None:
    with pytest.raises(ToolError, match="no such file"):
        await keeping.run(SpawnedChild(keeping, "a"), ("/no/such/shell",), {}, fds, limit=10)
    with pytest.raises(ToolError, match="permission denied"):
        await keeping.run(SpawnedChild(keeping, "b"), ("/etc/passwd",), {}, fds, limit=10)
    assert (await (await run(keeping, fds, "c", "exit 4")).ended).code == 4


async def test_the_handles_stay_the_callers(keeping: SpawnClient, fds: Sequence[int]) -> None:
    await run(keeping, fds, "a", "true")
    for fd in fds:
        os.fstat(fd)


async def test_messages_wait_until_the_keeper_has_room(
    keeping: SpawnClient, fds: Sequence[int]
) -> None:
    await run(keeping, fds, "first", "true")
    [keeper] = keepers(os.getpid())
    before = open_handles()
    await halt(keeper)
    env = {f"V{number}": "x" * 100_000 for number in range(10)}
    starting = [
        asyncio.create_task(run(keeping, fds, f"c{code}", f"exit {code}", env=env))
        for code in range(10)
    ]
    await until(lambda: open_handles() > before)
    assert not any(task.done() for task in starting)
    os.kill(keeper, signal.SIGCONT)
    started = await asyncio.gather(*starting)
    assert [(await child.ended).code for child in started] == list(range(10))
    assert open_handles() <= before  # threads of earlier tests may still be closing theirs


async def test_messages_that_wait_are_dropped_when_the_keeper_is_gone(
    keeping: SpawnClient, fds: Sequence[int]
) -> None:
    await run(keeping, fds, "first", "true")
    [keeper] = keepers(os.getpid())
    before = open_handles()
    await halt(keeper)
    env = {f"V{number}": "x" * 100_000 for number in range(10)}
    starting = [
        asyncio.create_task(run(keeping, fds, f"c{code}", "true", env=env)) for code in range(10)
    ]
    await asyncio.sleep(0.05)
    os.kill(keeper, signal.SIGKILL)
    failed = await asyncio.gather(*starting, return_exceptions=True)
    assert all(isinstance(each, ToolError) for each in failed)
    assert not keeping.is_open
    assert open_handles() < before
    with pytest.raises(ToolError, match="try again"):
        await run(keeping, fds, "later", "true")


async def test_a_keeper_that_was_killed_leaves_nothing(
    keeping: SpawnClient, fds: Sequence[int], marker: str
) -> None:
    texts = [f"sleep {marker}", f"(setsid sleep {marker} &); sleep {marker}; :"]
    commands = [await run(keeping, fds, f"c{text}", text) for text in texts]
    await until(lambda: len(alive(marker)) >= 4)
    [keeper] = keepers(os.getpid())
    os.kill(keeper, signal.SIGKILL)
    for child in commands:
        assert await child.ended == LOST
        assert await child.gone == ()
    await until(lambda: not alive(marker))
    assert not keeping.is_open
    await until(lambda: state_of(keeper) == "")


async def test_ending_what_the_keeper_took_along_is_not_an_error(
    keeping: SpawnClient, fds: Sequence[int], marker: str
) -> None:
    child = await run(keeping, fds, "a", f"sleep {marker}")
    ending = asyncio.create_task(keeping.end(child, 60))
    os.kill(keepers(os.getpid())[0], signal.SIGKILL)
    await ending
    assert await keeping.end(child, 0) == ()
    await until(lambda: not alive(marker))


async def test_cancelling_one_wait_for_an_end_does_not_affect_others(
    keeping: SpawnClient, fds: Sequence[int], marker: str
) -> None:
    child = await run(keeping, fds, "a", f"trap '' TERM; sleep {marker}; :")
    await until(lambda: len(alive(marker)) >= 2)
    impatient = asyncio.create_task(keeping.end(child, 0.2))
    await asyncio.sleep(0.01)
    impatient.cancel()
    assert await keeping.end(child, 60) == ()
    assert (await child.ended).signal == "SIGKILL"


async def test_the_end_of_leftover_processes_is_reported(
    keeping: SpawnClient, fds: Sequence[int], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "gate")
    child = await run(keeping, fds, "a", "(exec setsid bash -c 'read < gate; :' &); exit 2")
    assert (await child.ended).code == 2
    assert len(child.left_behind) == 1
    assert not child.gone.done()
    (tmp_path / "gate").write_text("\n")
    assert await child.gone == ()


async def test_an_unknown_signal_is_ignored(keeping: SpawnClient, fds: Sequence[int]) -> None:
    child = await run(keeping, fds, "a", "sleep 0.2; exit 3")
    for number in (0, -1, 999):
        await keeping.signal(child, number)
    assert (await child.ended).code == 3


async def test_closing_waits_for_the_end_of_everything(
    fds: Sequence[int], no_loose_ends: None, marker: str
) -> None:
    before = open_handles()
    keeping = SpawnClient()
    child = await run(
        keeping, fds, "a", f"trap '' TERM; setsid -f sleep {marker}; sleep {marker}; :"
    )
    await until(lambda: len(alive(marker)) >= 3)
    [keeper] = keepers(os.getpid())
    await keeping.close()
    assert not alive(marker)
    assert (await child.ended).signal == "SIGKILL"
    assert state_of(keeper) == ""
    assert open_handles() <= before  # threads of earlier tests may still be closing theirs
    await keeping.close()


async def test_a_keeper_without_commands_is_closed(no_loose_ends: None) -> None:
    keeping = SpawnClient()
    await keeping.close()
    assert not keeping.is_open


async def test_a_start_that_is_cancelled_at_any_moment_leaves_nothing(
    keeping: SpawnClient, fds: Sequence[int], marker: str
) -> None:
    for number in range(40):
        starting = asyncio.create_task(run(keeping, fds, f"c{number}", f"sleep {marker}"))
        await asyncio.sleep(number / 10_000)
        starting.cancel()
        await asyncio.wait({starting})
        if not starting.cancelled():
            await keeping.end(starting.result(), 0)
    await (await run(keeping, fds, "last", "true")).ended
    await until(lambda: not alive(marker))
    await until(lambda: not keeping._children)


async def test_the_environment_of_clawkit_is_hidden_from_the_keeper(
    fds: Sequence[int], no_loose_ends: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_TOKEN", "hidden-value")
    keeping = SpawnClient()
    await run(keeping, fds, "a", "true")
    [keeper] = keepers(os.getpid())
    with suppress(PermissionError):  # without privileges it cannot even be looked at
        assert Path(f"/proc/{keeper}/environ").read_bytes() == b""
    assert b"hidden-value" not in Path(f"/proc/{keeper}/cmdline").read_bytes()
    await keeping.close()


async def test_a_start_that_is_cancelled_and_fails_later_is_nobodys_concern(
    keeping: SpawnClient, fds: Sequence[int]
) -> None:
    await run(keeping, fds, "first", "true")
    [keeper] = keepers(os.getpid())
    for id_, argv in (("a", ("/no/such/shell",)), ("b", (BASH, "-c", "\0"))):
        await halt(keeper)
        starting = asyncio.create_task(
            keeping.run(SpawnedChild(keeping, id_), argv, {}, fds, limit=10)
        )
        await asyncio.sleep(0.01)
        starting.cancel()
        await asyncio.wait({starting})
        os.kill(keeper, signal.SIGCONT)
        assert starting.cancelled()
        await (await run(keeping, fds, f"{id_}-after", "true")).ended
    await until(lambda: not keeping._children)


async def test_a_start_that_is_cancelled_when_the_keeper_dies_is_nobodys_concern(
    keeping: SpawnClient, fds: Sequence[int]
) -> None:
    await run(keeping, fds, "first", "true")
    [keeper] = keepers(os.getpid())
    await halt(keeper)
    starting = asyncio.create_task(run(keeping, fds, "a", "true"))
    await asyncio.sleep(0.01)
    starting.cancel()
    os.kill(keeper, signal.SIGKILL)
    await asyncio.wait({starting})
    assert starting.cancelled()
    await until(lambda: not keeping.is_open)


@pytest.mark.parametrize("asked", ["run", "end", "close"])
async def test_a_keeper_that_does_not_answer_is_given_up(
    keeping: SpawnClient,
    fds: Sequence[int],
    marker: str,
    monkeypatch: pytest.MonkeyPatch,
    asked: str,
) -> None:
    child = await run(keeping, fds, "a", f"(setsid sleep {marker} &); sleep {marker}; :")
    await until(lambda: len(alive(marker)) >= 3)
    [keeper] = keepers(os.getpid())
    monkeypatch.setattr(keeps, "_PATIENCE_S", 0.3)
    await halt(keeper)
    if asked == "run":
        with pytest.raises(ToolError):
            await run(keeping, fds, "b", "true")
    elif asked == "end":
        await keeping.end(child, 0)
    else:
        await keeping.close()
    assert await child.ended == LOST
    assert not keeping.is_open
    await until(lambda: not alive(marker))
    await until(lambda: not state_of(keeper))
