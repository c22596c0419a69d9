"""All commands of a run: how many, whose, for how long they are remembered."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from clawkit.core.bounded import in_thread
from clawkit.errors import NotFoundError, ToolAuthorizationError, ToolError
from clawkit.process import records
from clawkit.process.base import Command, ExecHost, Launch
from clawkit.process.found import Detached, detached
from clawkit.process.session import Session
from clawkit.process.slugs import new_slug

MAX_FINISHED = 50
_MIN_KEEP_S, _MAX_KEEP_S = 60.0, 10_800.0
_PUBLISH_S = 1.0
"""A command that runs longer is written down, so that others can see it."""
_ROOM_S = 0.25
OnEnd = Callable[[Command], None]


class Supervisor:
    """Owns every command, whatever becomes of the call that started it."""

    def __init__(
        self,
        hosts: Mapping[str, Callable[[], ExecHost]],
        folder: str,
        *,
        max_running: int = 64,
        keep_s: float = 1_800.0,
    ) -> None:
        """`folder` has what is written down about commands, and their output when it is much."""
        self._make_host = hosts
        self._hosts: dict[str, ExecHost] = {}
        self._folder = folder
        self._max_running = max_running
        self._keep_s = min(max(keep_s, _MIN_KEEP_S), _MAX_KEEP_S)
        self._sessions: dict[str, Session] = {}
        self._starting = 0
        self._reserved: set[str] = set()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._token = os.urandom(3).hex()
        self._count = 0
        self._publishing: dict[str, asyncio.TimerHandle] = {}
        self._published: set[str] = set()
        self._adopted: dict[str, Detached] = {}
        self._has_swept = False
        self._is_closed = False

    @property
    def hosts(self) -> Sequence[str]:
        """Where commands can run."""
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
        on_end: OnEnd | None = None,
    ) -> Session:
        await self._wait_for_room()
        self._starting += 1
        id_ = ""
        try:
            if not self._has_swept:
                self._has_swept = True
                await in_thread(records.sweep, self._folder, self._keep_s)
            id_ = new_slug(self._sessions.keys() | self._reserved)
            self._reserved.add(id_)
            self._count += 1
            key = f"{id_}-{self._token}{self._count:x}"
            running = await self._host(host).start(launch, key)
            if self._is_closed:
                await running.end(0)
                await self._hosts[host].close()
                raise ToolError("clawkit is closing; nothing is started any more")
            session = Session(
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
            self._starting -= 1
            self._reserved.discard(id_)
        self._publish_later(session)
        return session

    def all(self, owner: str) -> Sequence[Command]:
        self._prune()
        mine = [each for each in self._sessions.values() if each.owner == owner]
        shown: list[Command] = [each for each in mine if each.background]
        shown += self._adopt(owner)
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
        hint = f"; there are {', '.join(names[:10])}" if names else "; none is there"
        raise NotFoundError(f"there is no command {id_[:80]!r}{hint}", alike=names)

    def _adopt(self, owner: str) -> list[Detached]:
        """Commands of earlier clawkits that were to live on."""
        ours = {each.key for each in self._sessions.values()}
        found = {each.key: each for each in detached(self._folder, owner) if each.key not in ours}
        for key in [key for key in self._adopted if key not in found]:
            self._adopted.pop(key).close()
        for key, each in found.items():
            self._adopted.setdefault(key, each)
        return [self._adopted[key] for key in found]

    async def forget(self, command: Command) -> None:
        if isinstance(command, Detached):
            if command.exit is None or command.left:
                await command.end()
            command.forget()
            return
        session = self._sessions.pop(command.id, None)
        if session is not None:
            session.announce = False
            if session.exit is None or session.left:
                await session.end()
            self._drop(session)

    async def close(self) -> None:
        """End all commands but those that were to live on, and let go of everything."""
        self._is_closed = True
        for session in self._sessions.values():
            session.announce = False
        for host in self._hosts.values():
            await host.close()
        for each in self._adopted.values():
            each.close()
        self._adopted = {}
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            if session.loop is not asyncio.get_running_loop():
                continue
            if not session.launch.detach:
                await session.wait()
            self._unpublish(session)
            if not session.launch.detach:
                session.running.output.settle()
            session.close()

    def _host(self, name: str) -> ExecHost:
        if self._is_closed:
            raise ToolError("clawkit is closing; nothing is started any more")
        if name not in self._hosts:
            if name not in self._make_host:
                raise ToolAuthorizationError(f"no commands can run on the {name!r} host here")
            self._hosts[name] = self._make_host[name]()
        return self._hosts[name]

    async def _wait_for_room(self) -> None:
        """Room comes when a command ends; those in the background may never."""
        while True:
            running = [each for each in self._sessions.values() if each.exit is None or each.left]
            if len(running) + self._starting < self._max_running:
                return
            if self._starting == 0 and all(each.background for each in running):
                names = ", ".join(each.id for each in running[:5])
                raise ToolError(
                    f"{len(running)} commands run already ({names}, …); end some with process "
                    "kill, or raise tools.exec.maxRunning"
                )
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                # One that goes to the background tells nobody.
                await asyncio.wait({turn}, timeout=_ROOM_S)
            finally:
                self._waiting.remove(turn)

    def _on_done(self, session: Session) -> None:
        if turn := next((each for each in self._waiting if not each.done()), None):
            turn.set_result(None)
        output = session.running.output
        if session.launch.detach and session.exit is not None and session.exit.reason == "lost":
            # The keeper is gone, not the command: from now on it is known by its note.
            self._sessions.pop(session.id, None)
            session.close()
            return
        if session.left:
            if session.key not in self._published:
                self._publish(session)
        else:
            self._unpublish(session)
            if not session.launch.detach:
                output.settle()
        if not session.background:
            # Much output can be asked for later on; for the rest the call's result is all.
            if output.path or session.left:
                session.background = True
            else:
                if self._sessions.get(session.id) is session:
                    del self._sessions[session.id]
                session.close()
        self._prune()

    def _prune(self) -> None:
        """Forget commands that ended long ago, and the oldest when there are many."""
        done = [each for each in self._sessions.values() if each.exit is not None]
        done = [each for each in done if not each.left]
        for session in done:
            self._unpublish(session)
        done.sort(key=lambda each: each.ended_at)
        oldest = time.time() - self._keep_s
        excess = max(0, len(done) - MAX_FINISHED)
        for number, session in enumerate(done):
            if number < excess or session.ended_at < oldest:
                del self._sessions[session.id]
                self._drop(session)

    def _drop(self, session: Session) -> None:
        """Remove all that is kept of a command."""
        self._unpublish(session)
        session.tell()
        session.close()
        session.running.output.remove()
        records.remove(self._folder, session.key, "json", "exit")
        self._published.discard(session.key)

    def _publish_later(self, session: Session) -> None:
        loop = asyncio.get_running_loop()
        delay = 0.0 if session.background else _PUBLISH_S
        self._publishing[session.key] = loop.call_later(delay, self._publish, session)

    def _publish(self, session: Session) -> None:
        """Write down a command that runs; people can then see it, and what it says."""
        record = records.Record(
            key=session.key,
            id=session.id,
            owner=session.owner,
            text=session.launch.shown,
            cwd=session.launch.cwd,
            pid=session.pid,
            since=session.running.since,
            started=session.started,
            detached=session.launch.detach,
            terminal=session.launch.size,
            keeper=os.getpid(),
        )
        with suppress(OSError):
            records.write(self._folder, record)
            self._published.add(session.key)
        if session.exit is None:
            session.running.output.to_file()

    def _unpublish(self, session: Session) -> None:
        if (timer := self._publishing.pop(session.key, None)) is not None:
            timer.cancel()
        if session.key in self._published and not session.launch.detach:
            self._published.discard(session.key)
            records.remove(self._folder, session.key, "json")
