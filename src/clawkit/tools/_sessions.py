"""Shared by the session tools: the sessions that a run may see, and their messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import msgspec

from clawkit.config.model import Config
from clawkit.content import Assistant, Image, Summary, Text, ToolCall, ToolResult, User
from clawkit.core.context import Context, Scope
from clawkit.core.result import Result
from clawkit.core.tool import Effect, Tool
from clawkit.errors import ToolAuthorizationError
from clawkit.redact import Redactor
from clawkit.sessions.keys import resolve
from clawkit.sessions.protocols import (
    Session,
    Sessions,
    SessionState,
    StoredMessage,
    Visible,
    session_key,
)
from clawkit.sessions.visibility import (
    SANDBOX,
    SETTING,
    Requester,
    SessionTarget,
    Sight,
    all_visible,
    may_see,
)
from clawkit.text import one_line, result_cap, weigh, weight_cap

MAX_TEXT = 4_000
"""Maximum characters of one text block."""
CUT = "\n…(truncated)…"
ENVELOPE = 1_500
"""Characters reserved for the fields of a result other than rows or messages."""
MIN_ROOM = 500
DEFAULT_SIGHT = Sight()
NO_AGENT = "it needs an agent with a saved session: use `clawkit agent` without --no-session"


class VisibleSessions:
    def __init__(self, ctx: Context, sight: Sight) -> None:
        self.sight = sight
        self.live: SessionState | None = ctx.services.get(SessionState)  # type: ignore[assignment]
        self.store: Sessions | None = ctx.services.get(Sessions)  # type: ignore[assignment]
        self.current = self._find_here(ctx)
        scope = ctx.scope
        self.requester = Requester(
            self.current.id, self.current.key, self.current.agent, scope.sandboxed, scope.depth
        )

    def _find_here(self, ctx: Context) -> Session:
        """The session of the run; if it is not stored, built from the scope of the run."""
        if self.live is not None:
            live = self.live.session
            return msgspec.structs.replace(live, key=session_key(live.agent, live.key))
        key = session_key(ctx.agent, ctx.session)
        stored = self.store.find(key, ctx.agent) if self.store else None
        return stored or Session("", key, ctx.agent, workspace=ctx.workspace)

    def find(self, text: str, agent: str = "") -> Session:
        """Find a session. Raises if it does not exist, is ambiguous, or may not be seen. A name is
        looked up in the sessions of `agent`, by default the run's own."""
        here, main = self.current, self.sight.main
        agent = agent or here.agent
        return resolve(self.store, text, agent=agent, main=main, current=here, refuse=self._refuse)

    def check(self, session: Session) -> None:
        """Raises `ToolAuthorizationError` for a session that may not be seen."""
        if why := self._refuse(session):
            raise ToolAuthorizationError(
                f"the session {session.key!r} cannot be seen from here: {why}", reason="rule"
            )

    def _refuse(self, session: Session) -> str:
        lineage = self.store.lineage(session.id) if self.store and session.parent else ()
        target = SessionTarget(session.id, session.key, session.agent, lineage)
        return may_see(self.requester, target, self.sight)

    @cached_property
    def visible(self) -> Visible:
        """Everything that the run may see."""
        return all_visible(self.requester, self.sight, self.store.agents() if self.store else ())

    def limits(self) -> dict[str, Any]:
        """The restriction of visibility, for a result; empty if unrestricted."""
        clamped = self.sight.clamps(self.requester)
        if self.sight.mode == "all" and not clamped:
            return {}
        mode = self.sight.mode if not clamped or self.sight.mode == "self" else "tree"
        why = f"{SANDBOX} is 'spawned'" if clamped else f"{SETTING} is {mode!r}"
        warning = f"sessions that this one may not see are left out: {why}"
        return {"visibility": {"mode": mode, "restricted": True, "warning": warning}}


def with_sight(tool: Tool, config: Config, scope: Scope) -> Tool:
    execute: Any = tool.execute
    return replace(tool, execute=partial(execute, sight=Sight.of(config, scope.agent)))


def with_agent(tool: Tool, _config: Config, scope: Scope) -> Tool | str:
    """The tool, if the run belongs to an agent that can start sub-agents."""
    return tool if scope.delegates else NO_AGENT


def reads_sessions(_params: object, _ctx: Context) -> tuple[Effect, ...]:
    return (Effect("read", "sessions:*"),)


def room_for(ctx: Context, max_bytes: int) -> int:
    """Maximum total size of rows or messages, in units of `size_of`."""
    window = ctx.scope.context_window
    return max(MIN_ROOM, min(max_bytes, result_cap(window), weight_cap(window)) - ENVELOPE)


def size_of(value: object) -> int:
    """Size of a value in a result: the bytes of its JSON, or its weight if that is larger."""
    data = msgspec.json.encode(value)
    return max(len(data), weigh(data.decode())) + 1


def count_fitting(values: Iterable[object], room: int) -> int:
    """How many values fit, starting with the first, which always counts so that paging proceeds."""
    count = 0
    for value in values:
        room -= size_of(value)
        if room < 0 and count:
            break
        count += 1
    return count


def to_result(payload: Mapping[str, Any]) -> Result:
    """A result with the same compact JSON for programs and the model."""
    return Result((Text(msgspec.json.encode(payload).decode()),), payload)


class TranscriptText:
    """Formats messages without thinking, images, details and secrets, with long texts cut."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self.is_cut = False

    def show(self, entry: StoredMessage) -> dict[str, Any]:
        message = entry.message
        facts: dict[str, Any] = {"id": str(entry.number), "role": message.__struct_config__.tag}
        if message.at_ms:
            facts["timestamp"] = message.at_ms
        if isinstance(message, User) and message.source is not None:
            facts["source"] = message.source.kind  # not the user's own words
        if isinstance(message, ToolResult):
            facts |= {"toolName": one_line(message.tool, 80), "toolCallId": message.call_id}
            facts |= {"isError": True} if message.is_error else {}
        if isinstance(message, Assistant) and message.stop not in ("stop", "tool_calls"):
            facts["stopReason"] = message.stop
        parts = (Text(message.text),) if isinstance(message, Summary) else message.content
        facts["content"] = [shown for part in parts if (shown := self._show_part(part))]
        return facts

    def _show_part(self, part: object) -> dict[str, Any] | None:
        match part:
            case Text():
                return {"type": "text", "text": self.cut(part.text)}
            case Image():
                size = len(part.data) * 3 // 4
                kind = one_line(part.mime_type, 60)
                return {"type": "image", "mimeType": kind, "bytes": size, "omitted": True}
            case ToolCall():
                given = self._redactor.data(part.arguments)
                text = given if isinstance(given, str) else msgspec.json.encode(given).decode()
                arguments = given if len(text) <= MAX_TEXT else self.cut(text)
                facts = {"id": part.id, "name": part.name, "arguments": arguments}
                return {"type": "toolCall", **facts}
        return None

    def cut(self, text: str) -> str:
        # Redacted before it is cut: half a secret would not be recognized.
        text = self._redactor.text(text)
        if len(text) <= MAX_TEXT:
            return text
        self.is_cut = True
        return text[: MAX_TEXT - len(CUT)] + CUT
