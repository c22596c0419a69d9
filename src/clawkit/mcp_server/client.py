"""One client of the server: its tools, and its running requests."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Struct, field

from clawkit.core.approval import Approver
from clawkit.core.call import CallRequest, Run
from clawkit.core.catalog import canonical
from clawkit.core.paths import is_below
from clawkit.core.result import Result
from clawkit.errors import ClawkitError
from clawkit.mcp import protocol as mcp
from clawkit.mcp_server.describe import describe, show_result
from clawkit.mcp_server.served_call import ClientApprover, Send, ServedCall, SuspendedCalls
from clawkit.runtime import Toolkit
from clawkit.text import one_line
from clawkit.version import __version__

MAX_RUNNING = 64
ROOTS_S = 5.0
"""Seconds that a client may take to list its roots."""
QUIET_S = 60.0
"""After this time without calls, a new turn of the client's agent is assumed."""
METHODS = {
    True: frozenset(("server/discover", "tools/list", "tools/call")),
    False: frozenset(("ping", "tools/list", "tools/call")),
}
"""Methods that clients may call, from 2026-07-28 on and before."""
CACHED: dict[str, Any] = {"ttlMs": 300_000, "cacheScope": "private"}

OpenKit = Callable[[str, str, Approver | None], Toolkit]
"""Opens the tools of a client, for its session, a workspace (empty for the default) and an
approver. Raises `ConfigError`."""
SERVER = {"name": "clawkit", "title": "clawkit", "version": __version__}
INSTRUCTIONS = (
    "Tools for the files and commands of one workspace; relative paths start there. Calls may need "
    "a person's approval: a refusal is final, so do not try the same in another way."
)
CAPABILITIES: dict[str, Any] = {"tools": {}}
log = logging.getLogger(__name__)


class ClientAbilities(Struct):
    """The relevant capabilities of a client."""

    elicitation: dict[str, Any] | None = None
    roots: dict[str, Any] | None = None

    @property
    def can_ask(self) -> bool:
        """Whether it shows forms; older clients declare that by an empty object."""
        return self.elicitation is not None and (not self.elicitation or "form" in self.elicitation)


class ClientName(Struct):
    name: str = ""


class CallMeta(Struct, rename={"token": "progressToken"}):
    token: mcp.Id | None = None


class CallParams(Struct, rename="camel"):
    """The parameters of `tools/call` and `tools/list`."""

    name: str = ""
    cursor: str | None = None
    arguments: dict[str, Any] | None = None
    meta: CallMeta = field(default_factory=CallMeta, name="_meta")
    input_responses: dict[str, msgspec.Raw] | None = None
    request_state: str | None = None

    def digest(self) -> bytes:
        """Equal for equal calls."""
        body = msgspec.json.encode([self.name, self.arguments], order="deterministic")
        return hashlib.sha256(body).digest()


class _Cancelled(Struct, rename="camel"):
    request_id: mcp.Id


class _Root(Struct):
    uri: str


class _Roots(Struct):
    roots: list[_Root] = field(default_factory=list)


class ServedClient:
    """A client: one session, or all its requests if its protocol has no sessions."""

    def __init__(
        self,
        open_kit: OpenKit,
        session: str,
        name: str,
        can: ClientAbilities,
        *,
        is_modern: bool,
    ) -> None:
        self.running: dict[object, asyncio.Task[bytes]] = {}
        """By request id, if the ids come from one client."""
        self.used_at = asyncio.get_running_loop().time()
        self._open_kit, self._session = open_kit, session
        self._has_roots = can.roots is not None and not is_modern
        self._is_rooted = not self._has_roots
        """Whether the workspace follows the client's current roots."""
        by = one_line(name, 80) or "the MCP client"
        self._approver = ClientApprover(by) if can.can_ask else None
        self._is_modern = is_modern
        self._kit: Toolkit | None = None
        self._usual: Toolkit | None = None
        """The first toolkit; roots can only narrow its workspace."""
        self._workspace = ""
        self._ending: set[asyncio.Task[None]] = set()
        self._opening = asyncio.Lock()
        self._suspended = SuspendedCalls()
        self._pending_requests: dict[mcp.Id, asyncio.Future[msgspec.Raw]] = {}
        self._last_id = 0

    @property
    def is_busy(self) -> bool:
        return bool(self.running) or not self._suspended.is_empty

    def kit(self) -> Toolkit:
        """The tools. Raises `ConfigError`."""
        if self._kit is None:
            self._kit = self._open_kit(self._session, self._workspace, self._approver)
            self._usual = self._usual or self._kit
        return self._kit

    def renew(self) -> None:
        """Reopen the tools at the next request, with the then current settings."""
        self._retire()
        self._usual, self._workspace, self._is_rooted = None, "", not self._has_roots

    def _retire(self) -> None:
        """Let running calls end, then close their toolkit."""
        if (kit := self._kit) is None:
            return
        self._kit, users = None, [*self.running.values(), *self._suspended.tasks()]

        async def end() -> None:
            if users:
                await asyncio.wait(users)
            await kit.close()

        task = asyncio.ensure_future(end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def start(
        self, message: mcp.RpcMessage, send: Send, *, shared: bool = False
    ) -> asyncio.Task[bytes]:
        """Start answering a request; `send` gets messages before the answer. With `shared`, several
        programs send requests, possibly with equal ids. Raises `McpError`."""
        id_, method = message.id, str(message.method)
        if method not in METHODS[self._is_modern]:
            raise mcp.McpError(mcp.METHOD_NOT_FOUND, f"unknown method {one_line(method, 80)!r}")
        key: object = object() if shared else id_
        if not isinstance(id_, int | str) or key in self.running:
            raise mcp.McpError(mcp.INVALID_REQUEST, f"the request id {id_!r} is already in use")
        if len(self.running) >= MAX_RUNNING:
            raise mcp.McpError(mcp.INTERNAL_ERROR, f"{MAX_RUNNING} requests are already running")
        now = asyncio.get_running_loop().time()
        if now - self.used_at > QUIET_S and self._kit is not None and self._kit.guard is not None:
            self._kit.guard.begin()
        self.used_at = now
        task = asyncio.ensure_future(self._answer(id_, method, message.params, send))
        self.running[key] = task
        task.add_done_callback(lambda _task: self.running.pop(key))
        return task

    async def _answer(self, id_: mcp.Id, method: str, params: msgspec.Raw, send: Send) -> bytes:
        try:
            result = await self._perform(method, params, send)
            if self._is_modern:
                meta = {**result.get("_meta", {}), mcp.META_SERVER: SERVER}
                result = {"resultType": "complete", **result, "_meta": meta}
            return mcp.answer(id_, result)
        except mcp.McpError as error:
            return mcp.failure(id_, error)
        except ClawkitError as error:
            return mcp.failure(id_, mcp.McpError(mcp.INTERNAL_ERROR, str(error)))
        except Exception:  # the root of a task
            log.exception("a request failed: %s", one_line(method, 80))
            return mcp.failure(id_, mcp.McpError(mcp.INTERNAL_ERROR, "internal error"))

    async def _perform(self, method: str, params: msgspec.Raw, send: Send) -> dict[str, Any]:
        if method == "tools/call":
            return await self._call_tool(mcp.read(params, CallParams), send)
        if method == "tools/list":
            if mcp.read(params, CallParams).cursor is not None:
                raise mcp.McpError(mcp.INVALID_PARAMS, "unknown cursor")
            kit = self.kit()
            if len(self.running) == 1:  # the toolkit of other calls must not change
                await kit.update()
            shown = {"tools": [describe(tool) for tool in kit.tools]}
            return shown | (CACHED if self._is_modern else {})
        if method == "server/discover":
            about = {"capabilities": CAPABILITIES, "instructions": INSTRUCTIONS}
            return {"supportedVersions": mcp.VERSIONS, **about, **CACHED}
        return {}  # ping

    def take(self, message: mcp.RpcMessage) -> None:
        """Act on a notification or an answer; one that is invalid or unknown is ignored."""
        if isinstance(message.method, msgspec.UnsetType):
            self._take_answer(message)
        elif message.method == "notifications/roots/list_changed":
            self._is_rooted = not self._has_roots
        elif message.method == "notifications/cancelled":
            with suppress(mcp.McpError):
                given = mcp.read(message.params, _Cancelled)
                if (task := self.running.get(given.request_id)) is not None:
                    task.cancel()

    async def close(self) -> None:
        """Stop all work for this client."""
        for task in self.running.values():
            task.cancel()
        self._suspended.stop()
        if ending := [*self.running.values(), *self._suspended.tasks()]:
            await asyncio.wait(ending)
        self._retire()
        await asyncio.gather(*self._ending)

    async def _call_tool(self, params: CallParams, send: Send) -> dict[str, Any]:
        """The result of a call, or the questions that must be answered first."""
        if params.request_state is not None and self._is_modern:
            served = self._suspended.take(params.request_state, params.digest())
            served.resume(send, params.meta.token, params.input_responses or {})
        else:
            run, request = await self._prepare(send), CallRequest(params.name, params.arguments)
            ask, can_ask = None if self._is_modern else self.ask, self._approver is not None
            served = ServedCall(run, request, send, params.meta.token, ask, can_ask=can_ask)
            if ask is not None or not can_ask:
                return _finish(run, request, await served.perform())
            served.start()
        try:
            result = await served.advance()
        except asyncio.CancelledError:
            served.task.cancel()
            await asyncio.wait([served.task])
            raise
        if result is not None:
            return _finish(served.run, served.request, result)
        asked = {name: form for name, (form, _future) in served.questions.items()}
        state = self._suspended.put(served, params.digest())
        return {"resultType": "input_required", "inputRequests": asked, "requestState": state}

    async def _prepare(self, send: Send) -> Run:
        """Open the toolkit for calls, in the workspace that the client's roots allow."""
        async with self._opening:
            if not self._is_rooted:
                await self._follow_roots(send)
            return self.kit().run

    async def _follow_roots(self, send: Send) -> None:
        """Request the client's roots, and limit the workspace to one of them."""
        self._is_rooted = True
        try:
            async with asyncio.timeout(ROOTS_S):
                answer = await self.ask(send, "roots/list", {})
            uris = [root.uri for root in mcp.read(answer, _Roots).roots]
        except (TimeoutError, mcp.McpError):
            return
        usual = self._usual or self.kit()
        services: Any = usual.run.services
        chosen = choose_workspace(usual.host_workspace, uris, services.protection().explain)
        if chosen != self._workspace:
            self._workspace = chosen
            self._retire()

    async def ask(self, send: Send, method: str, params: object) -> msgspec.Raw:
        """Send a request to the client, and return the result. Raises `McpError`."""
        self._last_id = number = self._last_id + 1
        future: asyncio.Future[msgspec.Raw] = asyncio.get_running_loop().create_future()
        self._pending_requests[number] = future
        try:
            send(mcp.request(number, method, params))
            return await future
        except asyncio.CancelledError:
            send(mcp.notification("notifications/cancelled", {"requestId": number}))
            raise
        finally:
            del self._pending_requests[number]

    def _take_answer(self, message: mcp.RpcMessage) -> None:
        future = self._pending_requests.get(message.id) if isinstance(message.id, int) else None
        if future is None or future.done():
            return
        if isinstance(message.error, mcp.Failure):
            words = one_line(message.error.message, 200)
            future.set_exception(mcp.McpError(message.error.code, words))
        elif isinstance(message.result, msgspec.Raw):
            future.set_result(message.result)


def _finish(run: Run, request: CallRequest, result: Result) -> dict[str, Any]:
    if canonical(request.tool) not in run.tools:
        said = result.details.get("error") or result.as_text()
        raise mcp.McpError(mcp.INVALID_PARAMS, str(said))
    return show_result(result)


def choose_workspace(usual: str, roots: list[str], why_protected: Callable[[str], str]) -> str:
    """The first root of a client that lies below the default workspace; empty to keep that. A root
    never widens access, nor, like a workspace inside a protected directory, allows changes without
    approval."""
    place = os.path.realpath(usual)
    folders = [os.path.realpath(path) for path in map(_path_of, roots) if path]
    if any(is_below(place, folder) for folder in folders):
        return ""
    inside = (each for each in folders if is_below(each, place) and os.path.isdir(each))
    return next((each for each in inside if not why_protected(each)), "")


def _path_of(uri: str) -> str:
    """The path of a `file:` URI on this machine; empty for anything else."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return ""
    is_here = parts.scheme == "file" and parts.netloc in ("", "localhost")
    path = unquote(parts.path) if is_here else ""
    return path if path.startswith("/") and "\0" not in path else ""
