"""All commands of a run: ids, limits, the list, and records for other processes."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from clawkit.core.tasks import in_thread
from clawkit.errors import NotFoundError, ToolAuthorizationError, ToolError
from clawkit.process import records
from clawkit.process.command import Command
from clawkit.process.protocols import ExecHost, Launch
from clawkit.process.records import DetachedRunning, new_slug

MAX_FINISHED = 50
_MIN_KEEP_S, _MAX_KEEP_S = 60.0, 10_800.0
_PUBLISH_S = 1.0
"""A command that runs longer gets a record on disk, so that other processes can see it."""
_ROOM_S = 0.02


class Supervisor:
    """Owns every command, independent of the call that started it."""

    def __init__(
        self,
        hosts: Mapping[str, Callable[[], ExecHost]],
        folder: str,
        *,
        max_running: int = 64,
        keep_s: float = 1_800.0,
    ) -> None:
        """`folder` is for the records of commands, and for long output."""
        self._make_host = hosts
        self._hosts: dict[str, ExecHost] = {}
        self._folder = folder
        self._max_running = max_running
        self._keep_s = min(max(keep_s, _MIN_KEEP_S), _MAX_KEEP_S)
        self._sessions: dict[str, Command] = {}
        self._starting: set[str] = set()
        self._token = os.urandom(3).hex()
        self._count = 0
        self._adopted: dict[str, Command] = {}
        self._has_swept = False
        self._is_closed = False

    @property
    def hosts(self) -> Sequence[str]:
        return tuple(self._make_host)

    def prepare(self, host: str) -> None:
        self._host(host).prepare()

    async def start(
        self,
        host: str,
        launch: Launch,
        owner: str,
        *,
        background: bool,
        on_end: Callable[[Command], None] | None = None,
    ) -> Command:
        await self._wait_for_room()
        id_ = new_slug(self._sessions.keys() | self._starting)
        self._starting.add(id_)
        try:
            if not self._has_swept:
                self._has_swept = True
                await in_thread(records.sweep, self._folder, self._keep_s)
            self._count += 1
            key = f"{id_}-{self._token}{self._count:x}"
            running = await self._host(host).start(launch, key)
            if self._is_closed:
                await running.end(0)
                await self._hosts[host].close()
                raise ToolError("clawkit is shutting down; no new commands can start")
            session = Command(
                id_,
                key,
                owner,
                launch,
                running,
                background=background,
                on_done=self._on_done,
                on_end=on_end,
            )
            self._sessions[id_] = session
        finally:
            self._starting.discard(id_)
        session.after(0.0 if background else _PUBLISH_S, lambda: self._publish(session))
        return session

    def all(self, owner: str) -> Sequence[Command]:
        self._prune()
        mine = [each for each in self._sessions.values() if each.owner == owner]
        shown = [*(each for each in mine if each.background), *self._adopt(owner)]
        return sorted(shown, key=lambda each: (each.exit is not None, -each.started))

    def get(self, owner: str, id_: str) -> Command:
        self._prune()
        wanted = id_.strip()
        found = self._sessions.get(wanted)
        if found is not None and found.owner == owner and found.background:
            return found
        known = self.all(owner)
        for each in known:
            if each.id == wanted:
                return each
        names = [each.id for each in known]
        hint = f"; known: {', '.join(names[:10])}" if names else "; there are none"
        raise NotFoundError(f"unknown command {id_[:80]!r}{hint}", alike=names)

    def _adopt(self, owner: str) -> list[Command]:
        """Detached commands of earlier runs: running ones, and ended ones that have a record."""
        ours = {each.key for each in self._sessions.values()}
        found = {
            record.key: record
            for record in records.read_all(self._folder)
            if record.detached
            and record.is_here
            and (record.owner == owner or record.key in self._adopted)
        }
        adopted, self._adopted = self._adopted, {}
        for key in found.keys() - ours:
            command = adopted.get(key)
            if command is None or command.loop is not asyncio.get_running_loop():
                record = found[key]
                command = Command(
                    record.id,
                    record.key,
                    record.owner,
                    Launch(record.text, record.cwd, {}, detach=True),
                    DetachedRunning(self._folder, record),
                    background=True,
                    started=record.started,
                )
                command.announce, command.is_published = False, True
                command.exit = records.exit_of(self._folder, record)
            if command.exit is not None and command.exit.reason == "lost":
                # The exit file is written a moment after the process is gone.
                command.exit = records.exit_of(self._folder, found[key])
            self._adopted[key] = command
        for key, command in adopted.items():
            if self._adopted.get(key) is not command:
                command.close()
        return [each for each in self._adopted.values() if each.owner == owner]

    async def forget(self, command: Command) -> None:
        self._adopted.pop(command.key, None)
        if self._sessions.get(command.id) is command:
            del self._sessions[command.id]
        command.announce = False
        if command.exit is None or command.left:
            await command.end()
        self._drop(command)

    async def close(self) -> None:
        """Stop all commands that are not detached, and release everything."""
        self._is_closed = True
        for session in self._sessions.values():
            session.announce = False
        for host in self._hosts.values():
            await host.close()
        sessions = (*self._sessions.values(), *self._adopted.values())
        self._sessions, self._adopted = {}, {}
        for session in sessions:
            if session.loop is not asyncio.get_running_loop():
                continue
            if not session.launch.detach:
                await session.wait()
                self._unpublish(session)
            elif session.exit is None and not session.is_published:
                self._publish(session)
            session.close()

    def _host(self, name: str) -> ExecHost:
        if self._is_closed:
            raise ToolError("clawkit is shutting down; no new commands can start")
        if name not in self._hosts:
            if name not in self._make_host:
                raise ToolAuthorizationError(f"no commands can run on the {name!r} host here")
            self._hosts[name] = self._make_host[name]()
        return self._hosts[name]

    async def _wait_for_room(self) -> None:
        while True:
            running = [each for each in self._sessions.values() if each.exit is None or each.left]
            if len(running) + len(self._starting) < self._max_running:
                return
            # Commands in the background may never end.
            if not self._starting and all(each.background for each in running):
                names = ", ".join(each.id for each in running[:5])
                raise ToolError(
                    f"{len(running)} commands are already running ({names}, …); stop one with "
                    "`process kill`, or raise tools.exec.maxRunning"
                )
            await asyncio.sleep(_ROOM_S)

    def _on_done(self, session: Command) -> None:
        if session.launch.detach and session.exit is not None and session.exit.reason == "lost":
            # The spawn server is gone, but not the command: its record takes over.
            self._sessions.pop(session.id, None)
            session.close()
            return
        if session.left:
            if not session.is_published:
                self._publish(session)
        else:
            self._unpublish(session)
        if session.output.path or session.left:
            # `process` can still show this; otherwise the result of the call was everything.
            session.background = True
        elif not session.background:
            if self._sessions.get(session.id) is session:
                del self._sessions[session.id]
            session.close()
        self._prune()

    def _prune(self) -> None:
        """Forget commands that ended long ago, and the oldest if there are many."""
        done = [each for each in self._sessions.values() if each.exit is not None and not each.left]
        for session in done:
            self._unpublish(session)
        done.sort(key=lambda each: each.ended_at)
        oldest = time.time() - self._keep_s
        excess = max(0, len(done) - MAX_FINISHED)
        for number, session in enumerate(done):
            if number < excess or session.ended_at < oldest:
                del self._sessions[session.id]
                self._drop(session)

    def _drop(self, session: Command) -> None:
        session.report_end()
        session.close()
        session.output.remove()
        records.remove(self._folder, session.key, "json", "log", "exit")

    def _publish(self, session: Command) -> None:
        """Write the record of a command, if its processes can be seen from here, and its output to
        a file, for other processes."""
        running = session.running
        record = records.CommandRecord(
            key=session.key,
            id=session.id,
            owner=session.owner,
            text=session.launch.shown,
            cwd=session.launch.cwd,
            pid=session.pid,
            since=running.since or running.server[1],
            started=session.started,
            detached=session.launch.detach,
            terminal=session.launch.size,
            keeper=os.getpid(),
            mark=running.mark,
            server=running.server,
        )
        with suppress(OSError):
            if session.pid or running.server[0]:
                records.write(self._folder, record)
                session.is_published = True
        if session.exit is None:
            session.output.to_file()

    def _unpublish(self, session: Command) -> None:
        """Remove the record of a command that has ended, and the file unless the output is long."""
        if session.launch.detach:
            return
        if session.is_published:
            session.is_published = False
            records.remove(self._folder, session.key, "json")
        session.output.settle()
