"""The servers of one run: started on use, restarted after a failure, and stopped when idle."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shlex
import stat
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from msgspec import Raw

from clawkit.config.model import Config
from clawkit.config.section import SecretInput
from clawkit.config.sections.plugins import Mcp, McpServer
from clawkit.core.context import Context
from clawkit.core.paths import is_below, ways_of
from clawkit.core.tasks import in_thread
from clawkit.errors import ClawkitError, ToolError, ToolInputError
from clawkit.external import defuse
from clawkit.mcp import definitions
from clawkit.mcp.connected_server import CallExchange, McpSession
from clawkit.mcp.definitions import FEATURES, ToolListing, read_listing, write_listing
from clawkit.mcp.oauth import OAuth, OpenUrl, TokenStore
from clawkit.mcp.transports import HttpPeer, McpPeer, SsePeer, StdioPeer
from clawkit.net.client import Client
from clawkit.process.environ import DEFAULT_PATH
from clawkit.process.jsonrpc import ServerError
from clawkit.process.landlock import Hold
from clawkit.process.protocols import ExecHost, Launch
from clawkit.text import one_line

FIRST_WAIT_S = 10.0
"""Seconds that a turn waits for servers that were never listed."""
MAX_BACKOFF_S = 60.0
SETTLE_S = 1.0
"""Seconds between the last notice of a change and the next listing."""
LISTEN_AGAIN_S = 5.0
LOG_BYTES = 4_096
_SHELL = re.compile(r"^\S*bash: line \d+: (exec: )?")
"""Prefix of errors of the shell that starts a program."""
T = TypeVar("T")
log = logging.getLogger(__name__)


class ProgramSetup(NamedTuple):
    """The working directory and confinement of a program."""

    host: ExecHost
    hold: Hold | None
    env: Mapping[str, str]
    cwd: str
    """Empty for `folder`."""
    folder: str
    """A private directory, which also gets the end of its error output."""
    close: Callable[[], Awaitable[None]] | None = None


class MountContext(NamedTuple):
    """The dependencies of a run's servers."""

    folder: str
    """Directory of stored listings."""
    workspace: str
    set_up_program: Callable[[str, McpServer], Awaitable[ProgramSetup]]
    """Raises `ToolError` if the program cannot be confined."""
    reveal: Callable[[SecretInput], str]
    """The value of a secret. Raises `SecretError`."""
    learn: Callable[[list[str]], object]
    """Called with all tokens, to redact them."""
    redact: Callable[[str], str]
    """Removes secrets from what a server says about its failure."""


class _Mount:
    """One server, connected or not."""

    def __init__(self, name: str, entry: McpServer) -> None:
        self.name, self.entry = name, entry
        self.lock = asyncio.Lock()
        self.session: McpSession | None = None
        self.setup: ProgramSetup | None = None
        self.log = ""
        self.users = 0
        self.failures = 0
        self.retry_at = 0.0
        self.error = ""
        """Why it cannot be used."""
        self.login: OAuth | None = None
        self.timer: asyncio.TimerHandle | None = None
        """Stops it when it is idle."""
        self.listing: asyncio.Task[Any] | None = None

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()

    def note_failure(self, why: str) -> None:
        self.failures += 1
        self.error = why
        wait_s = 0.0 if self.failures == 1 else min(2.0**self.failures, MAX_BACKOFF_S)
        self.retry_at = time.monotonic() + wait_s


class Mounts:
    """The configured servers. Bound to one event loop."""

    def __init__(self, config: Config, context: MountContext) -> None:
        self._context = context
        self._slots: dict[str, _Mount] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self.configure(config)
        self._client = Client()
        self._tokens = TokenStore(context.folder, context.learn)
        self._is_closed = False

    def configure(self, config: Config) -> None:
        """Apply other settings. Connections to changed servers are closed."""
        settings = config.mcp or Mcp()
        self._idle_s = settings.session_idle_ttl_ms / 1000
        wanted = {name: entry for name, entry in settings.servers.items() if entry.enabled}
        for name, slot in list(self._slots.items()):
            if wanted.get(name) != slot.entry:
                self._leave_later(self._slots.pop(name))
        for name, entry in wanted.items():
            self._slots.setdefault(name, _Mount(name, entry))

    @property
    def errors(self) -> dict[str, str]:
        """The servers that failed, and why."""
        return {name: slot.error for name, slot in self._slots.items() if slot.error}

    async def call(
        self,
        server: str,
        method: str,
        params: Mapping[str, object],
        read: Callable[[Raw], T],
        ctx: Context | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> T:
        """Make a request, and read the answer. Raises `ToolError`."""

        async def ask(session: McpSession, deadline: asyncio.Timeout) -> T:
            exchange = CallExchange(server, ctx, deadline)
            return read(await session.call(method, params, exchange, headers or {}))

        return await self._use(self._slot(server), ask)

    async def list(self, server: str, method: str, field: str) -> list[Raw]:
        """Everything in a list of a server. Raises `ToolError`."""
        return await self._use(
            self._slot(server), lambda session, _deadline: session.list(method, field)
        )

    async def refresh(self, server: str) -> ToolListing:
        """List the tools of a server, and store that. Raises `ToolError`."""
        slot, folder = self._slot(server), self._context.folder
        old = read_listing(folder, server, slot.entry)

        async def ask(session: McpSession, _deadline: object) -> tuple[str, dict[str, list[Raw]]]:
            kinds = [each for each in ("tools", *FEATURES) if each in session.capabilities]
            found = {each: await session.list(f"{each}/list", each) for each in kinds}
            return session.version, found

        version, found = await self._use(slot, ask, slot.entry.connection_timeout_ms)
        new = ToolListing(definitions.fingerprint(slot.entry), version)
        tools, features = found.pop("tools", []), [each for each in found if found[each]]
        # Checking schemas takes time.
        await in_thread(definitions.update, old, new, tools, features)
        if new != old:
            await in_thread(write_listing, folder, server, new)
        return new

    async def login(self, server: str, open_url: OpenUrl) -> None:
        """Let the person log in to a server. Raises `ToolError`."""
        slot = self._slot(server)
        if slot.entry.url is None:
            raise ToolError(f"the MCP server {server!r} is a local program, which needs no login")
        await self._login(slot).login(open_url)
        slot.failures, slot.retry_at, slot.error = 0, 0.0, ""

    async def ready(self, servers: Collection[str], wait_s: float = FIRST_WAIT_S) -> None:
        """List servers that were never listed. Waits at most `wait_s`; slower ones are ready for
        the next turn. Does not raise: see `errors`."""
        waiting: set[asyncio.Task[Any]] = set()
        for name in servers:
            slot = self._slot(name)
            is_new = read_listing(self._context.folder, name, slot.entry) is None
            is_idle = slot.listing is None or slot.listing.done()
            if is_new and is_idle and time.monotonic() >= slot.retry_at:
                slot.listing = self._spawn(slot, self.refresh(name))
                if not slot.failures:
                    waiting.add(slot.listing)
        if waiting:
            await asyncio.wait(waiting, timeout=wait_s)

    async def close(self) -> None:
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*map(self._leave, self._slots.values()), return_exceptions=True)
        await self._client.close()

    def _slot(self, server: str) -> _Mount:
        if server not in self._slots:
            raise ToolError(f"no MCP server {server!r} is configured and enabled")
        return self._slots[server]

    async def _use(
        self,
        slot: _Mount,
        work: Callable[[McpSession, asyncio.Timeout], Awaitable[T]],
        limit_ms: int = 0,
    ) -> T:
        """Use a connection, opened if needed."""
        what = f"the MCP server {slot.name!r}"
        slot.users += 1
        slot.stop_timer()
        try:
            for attempt in (1, 2):
                session = await self._connected(slot)
                try:
                    limit_s = (limit_ms or slot.entry.request_timeout_ms) / 1000
                    async with asyncio.timeout(limit_s) as deadline:
                        result = await work(session, deadline)
                except ServerError as error:
                    # An expired session has done nothing yet, so retry with a new one.
                    if error.code == 404 and session is not slot.session and attempt == 1:
                        continue
                    said = self._context.redact(defuse(str(error)))
                    words = f"{said}{self._last_words(slot)}"
                    raise ToolError(f"{what} failed: {words}") from None
                except TimeoutError:
                    raise ToolError(f"{what} did not answer in time") from None
                slot.failures, slot.error = 0, ""
                return result
            raise ToolError(f"{what} ended the session")
        finally:
            slot.users -= 1
            if not slot.users and slot.session is not None:
                loop = asyncio.get_running_loop()
                slot.timer = loop.call_later(self._idle_s, self._leave_later, slot)

    async def _connected(self, slot: _Mount) -> McpSession:
        async with slot.lock:
            if slot.session is not None:
                return slot.session
            wait_s = slot.retry_at - time.monotonic()
            if self._is_closed:
                raise ToolError("clawkit is shutting down; no server can be started")
            if wait_s > 0:
                why = f"the MCP server {slot.name!r} failed {slot.failures} times: {slot.error}"
                raise ToolError(f"{why}; retry in {wait_s:.0f} s")
            await self._leave(slot)
            try:
                async with asyncio.timeout(slot.entry.connection_timeout_ms / 1000):
                    slot.session = await self._open(slot)
            except (ClawkitError, TimeoutError) as error:
                why = "it did not answer in time" if isinstance(error, TimeoutError) else str(error)
                said = self._context.redact(defuse(why))
                slot.note_failure(f"{said}{self._last_words(slot)}{self._hint(slot)}")
                await self._leave(slot)
                what = f"the MCP server {slot.name!r} cannot be used"
                raise ToolError(f"{what}: {slot.error}") from None
            except BaseException:
                await self._leave(slot)
                raise
            self._spawn(slot, self._listen(slot, slot.session))
            self._note_change(slot)  # its tools may have changed
            return slot.session

    async def _listen(self, slot: _Mount, session: McpSession) -> None:
        with suppress(ClawkitError):  # optional for servers
            while slot.session is session:
                if not await session.listen():
                    break
                await asyncio.sleep(LISTEN_AGAIN_S)

    async def _open(self, slot: _Mount) -> McpSession:
        def on_end() -> None:
            if slot.session is session:
                slot.session = None
                slot.note_failure("it ended the connection")
                self._spawn(slot, session.close())

        entry = slot.entry
        session = McpSession(slot.name, self._context.workspace, lambda: self._note_change(slot))
        peer: McpPeer
        if entry.command is not None:
            peer = StdioPeer(await self._start(slot), session, on_end)
        else:
            kind = SsePeer if entry.transport == "sse" else HttpPeer
            peer = kind(entry, session, on_end, self._login(slot))
        known = read_listing(self._context.folder, slot.name, entry)
        version = known.version if known else ""
        try:
            if isinstance(peer, SsePeer):
                await peer.open()
            await session.open(peer, version, entry.connection_timeout_ms / 2000)
        except BaseException:
            await peer.close()
            raise
        return session

    def _login(self, slot: _Mount) -> OAuth:
        if slot.login is None:
            reveal = self._context.reveal
            slot.login = OAuth(slot.name, slot.entry, self._client, self._tokens, reveal)
        return slot.login

    async def _start(self, slot: _Mount) -> Any:
        entry, reveal = slot.entry, self._context.reveal
        slot.setup = setup = await self._context.set_up_program(slot.name, entry)
        id_ = f"mcp-{os.urandom(8).hex()}"
        slot.log = os.path.join(setup.folder, f"{id_}.log")
        # The agent can write to the workspace, and must not thereby control which program a name
        # starts.
        path = _path_outside(setup.env["PATH"], self._context.workspace)
        given = {name: reveal(value) for name, value in entry.env.items()}
        env = {**setup.env, "PATH": path, **given}
        # Only the end of its error output is kept.
        argv = shlex.join((entry.command or "", *entry.args))
        text = f"exec -- {argv} 2> >(exec tail -c {LOG_BYTES} > {shlex.quote(slot.log)})"
        cwd, typed = setup.cwd or setup.folder, entry.command or ""
        launch = Launch(text, cwd, env, piped=True, hold=setup.hold, typed=typed)
        return await setup.host.start(launch, id_)

    def _last_words(self, slot: _Mount) -> str:
        """The last line of a finished program's error output. The program may have replaced the
        file, for example by a link to one that it must not read."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with suppress(OSError):
            if slot.log and slot.session is None:
                with os.fdopen(os.open(slot.log, flags), "rb") as file:
                    info = os.fstat(file.fileno())
                    if stat.S_ISREG(info.st_mode) and info.st_nlink == 1:
                        lines = file.read(LOG_BYTES).decode("utf-8", "replace").strip().splitlines()
                        last = _SHELL.sub("", lines[-1]) if lines else ""
                        # Before it is cut: half of a secret is not recognized.
                        shown = one_line(defuse(self._context.redact(last)), 300)
                        return f" ({shown})" if last else ""
        return ""

    def _hint(self, slot: _Mount) -> str:
        """A hint if its arguments name a file in the workspace, where it does not start."""
        entry, top = slot.entry, self._context.workspace
        for word in () if entry.cwd else entry.args:
            if not os.path.isabs(word) and os.path.lexists(os.path.join(top, word)):
                where = f"{one_line(word, 60)!r} is in the workspace, where it does not start"
                return f"; {where}: set mcp.servers.{slot.name}.cwd to '.', or use the whole path"
        return ""

    async def _leave(self, slot: _Mount) -> None:
        """Close the connection, and stop the program."""
        session, slot.session = slot.session, None
        # Before the first await: another call may open new ones.
        setup, slot.setup = slot.setup, None
        slot.stop_timer()
        if session is not None:
            await session.close()
        with suppress(OSError):
            os.unlink(slot.log)
        if setup is not None and setup.close is not None:
            await setup.close()

    def _leave_later(self, slot: _Mount) -> None:
        self._spawn(slot, self._leave(slot))

    def _note_change(self, slot: _Mount) -> None:
        """Schedule a new listing, one for several notices."""

        async def list_again() -> None:
            await asyncio.sleep(SETTLE_S)
            await self.refresh(slot.name)

        if slot.listing is None or slot.listing.done():
            slot.listing = self._spawn(slot, list_again())

    def _spawn(self, slot: _Mount, work: Any) -> asyncio.Task[Any]:
        async def run() -> None:
            try:
                await work
            except (ClawkitError, OSError) as error:
                slot.error = slot.error or str(error)
                log.info("MCP server %s: %s", slot.name, error)

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _path_outside(path: str, workspace: str) -> str:
    """A PATH without directories in the workspace, reached by links in it, or not resolvable."""
    top = os.path.realpath(workspace)

    def is_outside(folder: str) -> bool:
        try:
            return os.path.isabs(folder) and not any(is_below(way, top) for way in ways_of(folder))
        except ToolInputError:  # a loop of links
            return False

    # An empty PATH means the working directory.
    return ":".join(filter(is_outside, path.split(":"))) or DEFAULT_PATH
