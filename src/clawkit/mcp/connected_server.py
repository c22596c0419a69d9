"""One connected server, in either era of the protocol: its lists, calls, and questions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from clawkit.core.approval import Ask
from clawkit.core.context import Context
from clawkit.errors import ToolAuthorizationError
from clawkit.mcp import protocol
from clawkit.mcp.definitions import clean_text
from clawkit.mcp.protocol import LEGACY, MODERN, UNSUPPORTED_VERSION
from clawkit.mcp.transports import McpPeer
from clawkit.process.jsonrpc import MAX_BODY, NOT_OFFERED, UNREADABLE, ServerError
from clawkit.text import one_line
from clawkit.version import __version__

S = TypeVar("S", bound=Struct)
MAX_PAGES = 100
MAX_LISTED = 20_000
MAX_ROUNDS = 8
"""Maximum requests for input during one call, and maximum questions to a person."""
MAX_VALUES = 1_000
"""Maximum characters of a proposal to a person: more would go unread."""
PROBE_S = 5.0
UPDATE_S = 0.25
_OLDER = ("2025-03-26", "2024-11-05")
"""Versions that are equivalent for a client without batches."""
_CLIENT = {"name": "clawkit", "version": __version__}
_CAPABILITIES: dict[str, object] = {"roots": {}, "elicitation": {"form": {}}}
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""Methods whose target is repeated in a header."""


class _ServerFacts(Struct, rename="camel"):
    """The answer to `server/discover` or `initialize`, or the versions in an error."""

    capabilities: dict[str, Any] = {}
    protocol_version: str = ""
    supported_versions: list[str] = []
    supported: list[str] = []


class _Page(Struct, rename="camel"):
    tools: list[Raw] = []
    resources: list[Raw] = []
    resource_templates: list[Raw] = []
    prompts: list[Raw] = []
    next_cursor: str | None = None


class _Input(Struct):
    method: str
    params: Raw = Raw(b"{}")


class _Outcome(Struct, rename="camel"):
    result_type: str = "complete"
    input_requests: dict[str, _Input] = {}
    request_state: str | None = None


class _Progress(Struct, rename="camel"):
    progress_token: str | int = ""
    progress: float = 0
    total: float | None = None
    message: str = ""


class _Elicitation(Struct, rename="camel"):
    message: str = ""
    mode: str = "form"
    requested_schema: dict[str, Any] = {}


class CallExchange:
    """One call on behalf of a person: its progress, and questions of the server."""

    def __init__(self, server: str, ctx: Context | None, deadline: asyncio.Timeout) -> None:
        self._server, self._ctx, self._deadline = server, ctx, deadline
        self._last_update = 0.0
        self._asked = self._asking = 0
        """Number of questions so far, and of open ones."""
        self._left_s = 0.0
        self._telling: set[asyncio.Task[None]] = set()

    def tell(self, progress: _Progress) -> None:
        now = time.monotonic()
        if self._ctx is None or now - self._last_update < UPDATE_S:
            return
        self._last_update = now
        of = f" of {progress.total:g}" if progress.total else ""
        said = one_line(clean_text(progress.message, 800), 200, whole_words=True)
        words = f"{progress.progress:g}{of} {said}"
        task = asyncio.ensure_future(self._ctx.update(words.strip()))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def elicit(self, elicitation: _Elicitation) -> dict[str, object]:
        """The person's answer. They can accept a proposal, but not enter values."""
        proposed = propose(elicitation.requested_schema) if elicitation.mode == "form" else None
        values = ", ".join(f"{name!r}: {value!r}" for name, value in (proposed or {}).items())
        is_shown = proposed is not None and len(values) <= MAX_VALUES
        if self._ctx is None or not is_shown or self._asked >= MAX_ROUNDS:
            return {"action": "decline"}
        self._asked += 1
        # The meaning of yes comes first, because the server's text may contain anything.
        description = f"Yes sends: {values or 'no values'}\n{clean_text(elicitation.message)}"
        title = f"the MCP server {self._server!r} asks for information"
        try:
            with self._without_deadline():
                await self._ctx.ask(Ask(title, description, f"mcp:{self._server}"))
        except ToolAuthorizationError:
            return {"action": "decline"}
        return {"action": "accept", "content": proposed}

    @contextmanager
    def _without_deadline(self) -> Iterator[None]:
        """Suspend the call's timeout: questions have their own."""
        now = asyncio.get_running_loop().time
        if not self._asking:
            self._left_s = (self._deadline.when() or now()) - now()
            with suppress(RuntimeError):  # the call is over
                self._deadline.reschedule(None)
        self._asking += 1
        try:
            yield
        finally:
            self._asking -= 1
            if not self._asking:
                with suppress(RuntimeError):
                    self._deadline.reschedule(now() + self._left_s)


def propose(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The values that a person can accept without entering any: defaults, and yes to a question.
    None if more is required."""
    fields = schema.get("properties")
    required = schema.get("required")
    needed = list(map(str, required)) if isinstance(required, list) else []
    found: dict[str, Any] = {}
    for name, field in fields.items() if isinstance(fields, Mapping) else ():
        if isinstance(field, Mapping) and "default" in field:
            found[name] = field["default"]
        elif isinstance(field, Mapping) and field.get("type") == "boolean" and name in needed:
            found[name] = True
    return found if all(name in found for name in needed) else None


class McpSession:
    """A connection to one server. Its methods raise `ServerError`."""

    def __init__(self, server: str, workspace: str, on_change: Callable[[], None]) -> None:
        """`on_change` is called when the list of tools has changed."""
        self.version = ""
        self.capabilities: Mapping[str, Any] = {}
        self._server, self._workspace, self._on_change = server, workspace, on_change
        self._exchanges: dict[str, CallExchange] = {}
        """The running calls, by progress token."""
        self._last_token = 0

    async def open(self, peer: McpPeer, last_version: str = "", probe_s: float = PROBE_S) -> None:
        """Negotiate a version; `last_version` is the one used before."""
        self._peer = peer
        is_old, probe_s = last_version in (*LEGACY, *_OLDER), min(probe_s, PROBE_S)
        found = None if is_old else await self._discover(probe_s)
        try:
            found = found or await self._initialize()
        except ServerError as error:
            # It may have missed the probe's deadline because it starts slowly.
            if error.code >= 0 or (found := await self._discover(probe_s)) is None:
                raise
        self.capabilities = found.capabilities

    async def _initialize(self) -> _ServerFacts:
        opening = {
            "protocolVersion": LEGACY[0],
            "capabilities": _CAPABILITIES,
            "clientInfo": _CLIENT,
        }
        found = read_answer(await self._peer.request("initialize", opening, {}), _ServerFacts)
        if found.protocol_version not in (*LEGACY, *_OLDER):
            version = one_line(found.protocol_version, 40)
            raise ServerError(f"it uses the unknown protocol version {version!r}")
        self.version = self._peer.version = found.protocol_version
        await self._peer.notify("notifications/initialized", {})
        return found

    async def _discover(self, probe_s: float) -> _ServerFacts | None:
        """The facts of a server of the new era; None for the older era."""
        self.version = self._peer.version = MODERN
        supported: Sequence[str] = LEGACY
        try:
            async with asyncio.timeout(probe_s):
                found = read_answer(await self.ask("server/discover", {}), _ServerFacts)
            supported = found.supported_versions or LEGACY
        except TimeoutError:
            pass
        except ServerError as error:
            is_answer = error.code < 0 or 400 <= error.code < 500
            if error.code == UNSUPPORTED_VERSION:
                with suppress(msgspec.ValidationError):
                    supported = msgspec.convert(error.data, _ServerFacts).supported or LEGACY
                if MODERN in supported:
                    return read_answer(await self.ask("server/discover", {}), _ServerFacts)
            elif error.code in protocol.MODERN_CODES or not is_answer or self._peer.ended:
                raise
        if MODERN in supported:
            return found
        if not any(each in supported for each in LEGACY):
            raise ServerError("it supports no protocol version that clawkit knows")
        self.version = self._peer.version = ""
        return None

    @property
    def is_modern(self) -> bool:
        return self.version == MODERN

    async def list(self, method: str, field: str) -> list[Raw]:
        """All entries of a list of the server, page by page."""
        found: list[Raw] = []
        params: dict[str, object] = {}
        left = MAX_BODY
        for _ in range(MAX_PAGES):
            answer = await self.ask(method, params)
            left -= len(memoryview(answer))
            if left < 0:
                raise ServerError("it lists too much")
            page = read_answer(answer, _Page)
            found += getattr(page, field)
            if not page.next_cursor or len(found) > MAX_LISTED:
                break
            params = {"cursor": page.next_cursor}
        return found

    async def listen(self) -> bool:
        """Receive messages between requests, until the stream ends; false if there is no stream."""
        if not self.is_modern:
            return await self._peer.listen()
        tools = self.capabilities.get("tools")
        if not isinstance(tools, dict) or not tools.get("listChanged"):
            return False
        await self.ask("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        return True

    async def call(
        self,
        method: str,
        params: Mapping[str, object],
        exchange: CallExchange,
        headers: Mapping[str, str],
    ) -> Raw:
        """Make a request that may take long and ask for more input."""
        self._last_token += 1
        token = f"clawkit-{self._last_token}"
        self._exchanges[token] = exchange
        more: dict[str, object] = {}
        try:
            for _ in range(MAX_ROUNDS):
                result = await self.ask(method, {**params, **more}, headers, token)
                outcome = read_answer(result, _Outcome)
                if outcome.result_type != "input_required":
                    return result
                answers: dict[str, object] = {}
                for key, asked in outcome.input_requests.items():
                    answer = self._answer(asked.method, asked.params, exchange)
                    answers[key] = await answer if asyncio.iscoroutine(answer) else answer
                    if answer is NOT_OFFERED:
                        what = one_line(asked.method, 60)
                        raise ServerError(f"it requested {what!r}, which clawkit does not support")
                more = {"inputResponses": answers}
                if outcome.request_state is not None:
                    more["requestState"] = outcome.request_state
        finally:
            del self._exchanges[token]
        raise ServerError(f"it asked for more input {MAX_ROUNDS} times")

    async def ask(
        self,
        method: str,
        params: Mapping[str, object],
        headers: Mapping[str, str] | None = None,
        token: str = "",
    ) -> Raw:
        meta: dict[str, object] = {"progressToken": token} if token else {}
        extra: dict[str, str] = {}
        if self.is_modern:
            meta[protocol.META_VERSION] = self.version
            meta[protocol.META_CLIENT] = _CLIENT
            meta[protocol.META_CAPABILITIES] = _CAPABILITIES
            extra = {protocol.METHOD_HEADER: method, **(headers or {})}
            if (field := _NAMED.get(method)) and isinstance(name := params.get(field), str):
                extra[protocol.NAME_HEADER] = name
            extra = {name: protocol.header_value(value) for name, value in extra.items()}
        body = {**params, protocol.META: meta} if meta else params
        return await self._peer.request(method, body, extra)

    def on_request(self, method: str, params: Raw) -> object:
        """Answer a request on behalf of the latest call, because in this era it does not name its
        call."""
        if self.is_modern:
            return NOT_OFFERED
        return self._answer(method, params, next(reversed(self._exchanges.values()), None))

    def _answer(self, method: str, params: Raw, exchange: CallExchange | None) -> object:
        if method == "ping":
            return {}
        if method == "roots/list":
            folder = Path(self._workspace)
            return {"roots": [{"uri": folder.as_uri(), "name": folder.name or "/"}]}
        if method == "elicitation/create" and exchange is not None:
            return exchange.elicit(read_answer(params, _Elicitation))
        return {"action": "decline"} if method == "elicitation/create" else NOT_OFFERED

    def on_notice(self, method: str, params: Raw) -> None:
        if method == "notifications/tools/list_changed":
            self._on_change()
        elif method == "notifications/progress":
            progress = read_answer(params, _Progress)
            if exchange := self._exchanges.get(str(progress.progress_token)):
                exchange.tell(progress)

    async def close(self) -> None:
        await self._peer.close()


def read_answer(data: Raw, kind: type[S]) -> S:
    """Decode an answer. Raises `ServerError` if it is invalid."""
    try:
        return msgspec.json.decode(data, type=kind)
    except UNREADABLE:
        raise ServerError("it sent an invalid answer") from None
