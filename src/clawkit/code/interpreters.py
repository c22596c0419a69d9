"""Persistent interpreters: one child per owner and language."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
from contextlib import suppress
from typing import get_args

import msgspec

from clawkit.code.protocols import Language, Ran
from clawkit.core.tasks import unbroken
from clawkit.errors import ToolError
from clawkit.process.command import Command
from clawkit.process.protocols import Commands, Exit, Launch, name_signal

IDLE_S = 1_800.0
"""Seconds that an unused child is kept."""
GRACE_S = 2.0
"""Seconds between the interrupt of a call and killing its child."""
_START_S = 60.0
_MAX_ANSWER = 16 * 1024 * 1024
"""Bytes that a child may send about one call. It is untrusted, and killed if it sends more."""
_CHUNK = 256 * 1024
_FIRST_LOOK_S, _LONGEST_LOOK_S = 0.002, 0.5
_PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "child.py")
_MISSING = {127: "python3", 120: "node"}
"""Missing programs, by the exit code of a child that did not answer."""


class _Reply(Ran, frozen=True, kw_only=True):
    id: int
    exit: int | None = None


_decode = msgspec.json.Decoder(_Reply).decode


class _Child:
    def __init__(self, command: Command, key: tuple[object, ...]) -> None:
        self.command = command
        self.key = key
        self.calls = 0
        self.fault = ""
        """Why it was killed, if it was."""
        self._at = 0
        self._stderr = bytearray()

    async def send(self, code: str) -> None:
        # Ignore anything that it sent since the last answer.
        self._at, self._stderr = self.command.output.size, bytearray()
        self.calls += 1
        line = json.dumps({"id": self.calls, "code": code}).encode() + b"\n"
        try:
            await self.command.write(line)
        except ToolError:
            await self._kill("it did not accept the code")

    async def answer(self, seconds: float) -> _Reply | None:
        """The answer to the last call; None on a timeout, or if it is gone."""
        loop, look_s = asyncio.get_running_loop(), _FIRST_LOOK_S
        end = loop.time() + seconds
        output = self.command.output
        while True:
            ended = self.command.exit is not None
            size = output.size
            if size > self._at:
                data = await output.read(self._at, min(size - self._at, _CHUNK))
                self._at += len(data)
                if (found := self._take(data)) is not None:
                    return found
                if len(self._stderr) > _MAX_ANSWER or output.dropped:
                    await self._kill("its answer was too large")
                    return None
                continue
            left = end - loop.time()
            if ended or left <= 0:
                return None
            # Long output is moved by a thread, which notifies only at intervals.
            await self.command.wait_for_news(size, min(left, look_s))
            look_s = min(2 * look_s, _LONGEST_LOOK_S)

    def _take(self, data: bytes) -> _Reply | None:
        *lines, rest = data.split(b"\n")
        for line in lines:
            whole, self._stderr = bytes(self._stderr + line), bytearray()
            with suppress(msgspec.DecodeError):
                found = _decode(whole)
                if found.id == self.calls:
                    return found
        self._stderr += rest
        return None

    async def _kill(self, fault: str) -> None:
        self.fault = fault
        with suppress(ToolError):
            await self.command.signal(signal.SIGKILL)
        await self.command.wait()


class _Slot:
    """One owner and language: the child, if there is one, and its lock and timer."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.turn = asyncio.Lock()
        self.child: _Child | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.fresh = ""

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class KeptInterpreters:
    """Implements `Interpreters`. The children are commands of a separate owner, so that they do not
    appear in lists of commands."""

    def __init__(self, commands: Commands, *, idle_s: float = IDLE_S) -> None:
        self._commands = commands
        self._idle_s = idle_s
        self._slots: dict[tuple[str, Language], _Slot] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(
        self,
        owner: str,
        language: Language,
        code: str,
        *,
        host: str,
        launch: Launch,
        timeout_s: float,
    ) -> Ran:
        slot = self._slot(owner, language)
        async with slot.turn:
            slot.stop_timer()
            try:
                child = await self._child(slot, owner, language, host, launch)
                return await self._run(slot, child, code, timeout_s)
            finally:
                if slot.child is not None:
                    slot.timer = slot.loop.call_later(self._idle_s, self._on_idle, slot)

    async def reset(self, owner: str, language: Language) -> bool:
        # Without the lock: the running code may be the reason for the reset.
        slot = self._slot(owner, language)
        child = slot.child
        if child is not None:
            await self._drop(slot, child)
        slot.fresh = ""
        return child is not None

    async def close(self) -> None:
        slots, self._slots = self._slots, {}
        for slot in slots.values():
            if slot.loop is asyncio.get_running_loop() and slot.child is not None:
                await self._drop(slot, slot.child)
        for task in self._tasks:
            task.cancel()

    def _slot(self, owner: str, language: Language) -> _Slot:
        if language not in get_args(Language):
            raise ToolError(f"unknown language {language!r}; use one of {get_args(Language)}")
        slot = self._slots.get((owner, language))
        if slot is None or slot.loop is not asyncio.get_running_loop():
            slot = self._slots[owner, language] = _Slot()
        return slot

    async def _child(
        self, slot: _Slot, owner: str, language: Language, host: str, launch: Launch
    ) -> _Child:
        place = host, launch.cwd, launch.programs, launch.hold
        child = slot.child
        if child is not None and child.command.exit is not None:
            slot.fresh = "the interpreter has exited since the last call"
            await self._drop(slot, child)
        elif child is not None and child.key != place:
            slot.fresh = "code now runs in another place or under other restrictions"
            await self._drop(slot, child)
        if slot.child is None:
            launch = launch._replace(
                text=f"exec python3 -I -u {shlex.quote(_PROGRAM)} {language}",
                typed=f"code_execution: {language}",
                open_input=True,
            )
            command = await self._commands.start(
                host, launch, f"code_execution:{owner}", background=True
            )
            child = _Child(command, place)
            answer: _Reply | None = None
            try:
                answer = await child.answer(_START_S)
            finally:
                if answer is None or answer.exit is not None:
                    await unbroken(self._forget(child))
            if answer is None or answer.exit is not None:
                raise ToolError(_why_not_started(language, command.exit))
            slot.child = child
        return slot.child

    async def _run(self, slot: _Slot, child: _Child, code: str, timeout_s: float) -> Ran:
        fresh, slot.fresh = slot.fresh, ""
        try:
            await child.send(code)
            answer = await child.answer(timeout_s)
        except asyncio.CancelledError:
            if await unbroken(self._interrupt(slot, child)) is None:
                slot.fresh = "the code of a cancelled call ignored the interrupt and was killed"
            raise
        timed_out = answer is None and child.command.exit is None and slot.child is child
        if timed_out:
            answer = await unbroken(self._interrupt(slot, child))
        lost = ""
        if slot.child is not child:
            lost = "it ignored the interrupt and was killed" if timed_out else "it was reset"
        elif answer is None or answer.exit is not None:
            lost = child.fault or _why_lost(answer, child.command.exit)
            await self._drop(slot, child)
        ran = answer or Ran()
        return msgspec.structs.replace(ran, timed_out=timed_out, lost=lost, fresh=fresh)

    async def _interrupt(self, slot: _Slot, child: _Child) -> _Reply | None:
        """Interrupt the code; if it does not answer in time, drop the child."""
        with suppress(ToolError):
            await child.command.signal(signal.SIGINT)
        answer = await child.answer(GRACE_S)
        if answer is None:
            await self._drop(slot, child)
        return answer

    async def _drop(self, slot: _Slot, child: _Child) -> None:
        slot.stop_timer()
        if slot.child is child:
            slot.child = None
        await self._forget(child)

    async def _forget(self, child: _Child) -> None:
        with suppress(ToolError):
            await child.command.signal(signal.SIGKILL)
        await self._commands.forget(child.command)

    def _on_idle(self, slot: _Slot) -> None:
        if slot.turn.locked() or slot.child is None:
            return
        slot.fresh = (
            f"its interpreter was stopped after {self._idle_s / 60:.3g} minutes without use"
        )
        task = slot.loop.create_task(self._drop(slot, slot.child))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _why_not_started(language: Language, exit_: Exit | None) -> str:
    if exit_ is not None and (program := _MISSING.get(exit_.code or 0)) is not None:
        return (
            f"{language} cannot run here: {program} is not in the PATH of commands. Install it, or "
            "add its directory to tools.exec.pathPrepend"
        )
    how = "it did not answer" if exit_ is None or exit_.code is None else f"exit code {exit_.code}"
    return f"the {language} interpreter could not be started: {how}"


def _why_lost(answer: _Reply | None, exit_: Exit | None) -> str:
    if exit_ is not None and exit_.reason == "out-of-memory":
        return "it was killed: out of memory"
    if exit_ is not None and exit_.reason == "process-limit":
        return "it was killed: too many processes"
    code = answer.exit if answer is not None else exit_.code if exit_ is not None else None
    if code is None:
        return "it has ended"
    if code >= 0:
        return f"it exited with code {code}"
    why = ", possibly out of memory" if code == -signal.SIGKILL else ""
    return f"it was killed by {name_signal(-code)}{why}"
