"""Converts sessions and messages to the format of the protocol, and reads stored ones for
clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

from msgspec import Struct

from clawkit.bundled import select_models
from clawkit.config.modelref import OPERATOR
from clawkit.config.sections.shared import Thinking as Level
from clawkit.content import Assistant, Block, Message, Text, Thinking, ToolResult, Usage, User
from clawkit.errors import ClawkitError
from clawkit.gateway.protocol import encode, now_ms
from clawkit.models.protocols import Model
from clawkit.sessions.protocols import Filter, Session, StoredMessage, Visible

if TYPE_CHECKING:
    from clawkit.gateway.server import Gateway

MAX_BYTES = 6 * 1024**2
"""Maximum bytes of the messages in one answer."""
_AT_ONCE = 50
_CUT = "\n[… cut]"
_STOPS = {"tool_calls": "toolUse"}
PREVIEW_CHARS = 240


def levels(reasoning: bool) -> list[dict[str, str]]:
    return [{"id": each, "label": each} for each in (get_args(Level) if reasoning else ("off",))]


def split_model(ref: str) -> tuple[str, str]:
    """Provider and id of a model."""
    provider, _, name = ref.partition("/")
    return provider, name


def message(session: str, entry: StoredMessage, run: str = "") -> dict[str, Any]:
    """A stored message."""
    body, run_id = _body(entry.message), {"runId": run} if run else {}
    about = {"id": message_id(session, entry.number), "seq": entry.number, **run_id}
    about |= {key: body[key] for key in ("idempotencyKey",) if key in body}
    return body | {"__openclaw": about}


def session_event(row: dict[str, Any], **what: Any) -> dict[str, Any]:
    """The event for a change of the session in a row."""
    about = {"sessionKey": row["key"], "ts": now_ms(), "session": row}
    return {**about, **row, **what}


def message_event(row: dict[str, Any], message: dict[str, Any]) -> dict[str, Any]:
    """The event for a new message in the session of a row."""
    about = message["__openclaw"]
    payload: dict[str, Any] = {"sessionKey": row["key"], "message": message, "session": row}
    payload |= {"messageId": about["id"], "messageSeq": about["seq"], "ancestorSessions": []}
    keys = ("sessionId", "agentId", "hasActiveRun", "activeRunIds", "status", "updatedAt")
    payload |= {key: row[key] for key in keys}
    return payload | ({"runId": about["runId"]} if "runId" in about else {})


def message_id(session: str, number: int) -> str:
    return f"{session}-{number}"


def message_number(session: str, id_: str | None) -> int | None:
    """The number of a message of the session; 0 for no message, None for a message of another
    one."""
    if id_ is None:
        return 0
    of, _, number = id_.rpartition("-")
    is_number = number.isascii() and number.isdigit() and len(number) < 16
    return int(number) if is_number and of == session else None


def _body(message: Message) -> dict[str, Any]:
    if isinstance(message, User):
        words = [part.text for part in message.content if isinstance(part, Text)]
        is_plain = len(words) == len(message.content)
        content: Any = "\n".join(words) if is_plain else blocks(message.content)
        body = {"role": "user", "content": content, "timestamp": message.at_ms}
        return body | ({"idempotencyKey": f"{message.ids[0]}:user"} if message.ids else {})
    if isinstance(message, ToolResult):
        return {
            "role": "toolResult",
            "toolCallId": message.call_id,
            "toolName": message.tool,
            "content": blocks(message.content),
            "details": message.details,
            "isError": message.is_error,
            "timestamp": message.at_ms,
        }
    if isinstance(message, Assistant):
        return _answer(message)
    return {"role": "system", "content": message.text, "timestamp": message.at_ms}


def _answer(message: Assistant) -> dict[str, Any]:
    provider, model = split_model(message.model)
    content = [
        _part(each) for each in message.content if not isinstance(each, Thinking) or each.text
    ]
    body: dict[str, Any] = {"role": "assistant", "content": content, "api": message.api}
    body |= {"provider": provider, "model": model, "timestamp": message.at_ms}
    body |= {"usage": {**tokens(message.usage), "cost": {"total": message.usage.cost}}}
    body |= {"stopReason": _STOPS.get(message.stop, message.stop)}
    return body | ({"errorMessage": message.error} if message.error else {})


def tokens(usage: Usage) -> dict[str, int]:
    found = {"input": usage.input, "output": usage.output, "totalTokens": usage.context}
    return found | {"cacheRead": usage.cache_read, "cacheWrite": usage.cache_write}


def _part(part: Any) -> dict[str, Any]:
    if isinstance(part, Text):
        return part.to_json()
    if isinstance(part, Thinking):
        return {"type": "thinking", "thinking": part.text}
    return {"type": "toolCall", "id": part.id, "name": part.name, "arguments": part.arguments}


def blocks(content: Sequence[Block]) -> list[dict[str, Any]]:
    return [block.to_json() for block in content]


def text_message(text: str, at_ms: int) -> dict[str, Any]:
    """An answer that consists of text."""
    content = [{"type": "text", "text": text}]
    return {"role": "assistant", "content": content, "timestamp": at_ms}


def preview(entry: StoredMessage, max_chars: int) -> dict[str, str] | None:
    """A message in a few words; None if it has no text."""
    said = entry.message
    if isinstance(said, User | Assistant):
        words = " ".join(part.text for part in said.content if isinstance(part, Text)).strip()
        if words:
            role = "user" if isinstance(said, User) else "assistant"
            return {"role": role, "text": words[:max_chars]}
    return None


class ShelvedMessages(Struct, frozen=True):
    """Some messages of a session, oldest first."""

    messages: list[dict[str, Any]]
    total: int
    next_offset: int | None


NO_SUMMARY: dict[str, Any] = {"path": "", "count": 0, "recent": []}


class SessionList:
    """Finds and lists the sessions of all agents."""

    def __init__(self, gateway: Gateway, model: Model | None = None) -> None:
        self._gateway = gateway
        self._model = model
        self._models: dict[str, tuple[str, int, bool]] = {}

    def forget(self) -> None:
        """Clear caches after a configuration change."""
        self._models.clear()

    def default_model(self, agent: str) -> tuple[str, int, bool]:
        """The model of an agent, its context window, and whether it reasons."""
        if agent not in self._models:
            try:
                model = self._model or select_models(self._gateway.loaded, agent).model()
                found = str(model.ref), model.facts.window, model.facts.reasoning
            except ClawkitError:
                found = "", 0, False
            self._models[agent] = found
        return self._models[agent]

    def has_model(self, agent: str) -> bool:
        return self.default_model(agent)[0] not in ("", str(OPERATOR))

    def defaults(self, agent: str) -> dict[str, Any]:
        ref, window, reasoning = self.default_model(agent)
        provider, name = split_model(ref)
        offered = levels(reasoning)
        return {
            "modelProvider": provider,
            "model": name,
            "contextTokens": window,
            "thinkingLevels": offered,
            "thinkingOptions": [each["id"] for each in offered],
            "thinkingDefault": self.thinking(agent),
        }

    def thinking(self, agent: str) -> str:
        agents = self._gateway.loaded.config.agents
        return agents.get(agent).thinking_default or agents.defaults.thinking_default or "off"

    def row(self, session: Session) -> dict[str, Any]:
        """One row of a list of sessions. A session without its own model shows the agent's model
        and window."""
        gateway, (model, window, _) = self._gateway, self.default_model(session.agent)
        runs, main = gateway.live.active(session.key), gateway.loaded.config.session.main_key
        parent = gateway.store.find(session.parent) if session.parent else None
        provider, name = split_model(session.model_override or session.model or model)
        kind = "group" if ":group:" in session.key or ":channel:" in session.key else "direct"
        row: dict[str, Any] = {"key": session.key, "kind": kind, "agentId": session.agent}
        row |= {"sessionId": session.id, "isMain": session.name == main, "snapshotAt": now_ms()}
        row |= {"updatedAt": session.updated_ms, "lastInteractionAt": session.updated_ms}
        row |= {"status": "running" if runs else "done", "hasActiveRun": bool(runs)}
        row |= {"activeRunIds": runs, "modelProvider": provider, "model": name}
        row |= {"contextTokens": window, "totalTokens": session.context_tokens}
        row |= {"inputTokens": session.usage.input, "outputTokens": session.usage.output}
        row |= {"estimatedCostUsd": session.usage.cost, "createdAt": session.created_ms}
        row |= {"archived": session.archived_ms > 0, "pinned": False, "unread": False}
        optional = {
            "label": session.label,
            "displayName": session.label or session.title,
            "thinkingLevel": session.thinking,
            "spawnedBy": parent.key if parent else "",
        }
        return row | {key: value for key, value in optional.items() if value}

    def _visible(self, agents: Sequence[str] | None) -> Visible:
        """All sessions of some agents, by default of all: visibility rules do not apply to
        clients."""
        return Visible("", agents=tuple(self._gateway.store.agents() if agents is None else agents))

    def list(
        self, wanted: Filter, limit: int, offset: int = 0, agents: Sequence[str] | None = None
    ) -> list[Session]:
        return self._gateway.store.listing(self._visible(agents), wanted, limit, offset)

    def count(self, wanted: Filter, agents: Sequence[str] | None = None) -> int:
        return self._gateway.store.count(self._visible(agents), wanted)

    def messages(
        self,
        session: Session | None,
        limit: int,
        offset: int = 0,
        max_bytes: int = MAX_BYTES,
        max_chars: int | None = None,
    ) -> ShelvedMessages:
        """The latest messages that fit, without those that `offset` skips."""
        if session is None:
            return ShelvedMessages([], 0, None)
        left, shown, total = min(max_bytes, MAX_BYTES), list[dict[str, Any]](), 0
        # A few at a time, because messages can be long.
        for start in range(offset, offset + limit, _AT_ONCE):
            some = min(_AT_ONCE, offset + limit - start)
            found = self._gateway.store.page(session.id, some, start, tools=True)
            total = found.total
            for entry in reversed(found.entries):
                told = message(session.id, entry)
                if max_chars is not None:
                    told["content"] = _cut(told["content"], max_chars)
                left -= len(encode(told))
                if left < 0 and shown:
                    return ShelvedMessages(shown[::-1], total, offset + len(shown))
                shown.append(told)
            if len(found.entries) < some:
                break
        end = offset + len(shown)
        return ShelvedMessages(shown[::-1], total, end if end < total else None)

    def since(
        self, session: Session, number: int, limit: int, max_bytes: int, max_chars: int | None
    ) -> Sequence[dict[str, Any]] | None:
        """The messages after a number; None if they do not fit, or there is no such message."""
        page = self.messages(session, limit, 0, max_bytes, max_chars)
        newer = [each for each in page.messages if each["__openclaw"]["seq"] > number]
        is_known = len(newer) < len(page.messages) or page.next_offset is None
        last = page.messages[-1]["__openclaw"]["seq"] if page.messages else 0
        return newer if is_known and number <= last else None

    def summary(self, agent: str = "", limit: int = 5) -> dict[str, Any]:
        """The number of sessions, and the last ones."""
        wanted, now = Filter(agent=agent), now_ms()
        recent = [
            {"key": each.key, "updatedAt": each.updated_ms, "age": now - each.updated_ms}
            for each in self.list(wanted, limit)
        ]
        return {"path": self._gateway.store.path, "count": self.count(wanted), "recent": recent}


def _cut(content: Any, most: int) -> Any:
    if isinstance(content, str):
        return content if len(content) <= most else content[:most] + _CUT
    return [
        each | {"text": _cut(each["text"], most)} if "text" in each else each for each in content
    ]
