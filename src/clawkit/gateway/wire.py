"""Sessions and messages in the form of the protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from clawkit.config.sections.shared import Thinking as Level
from clawkit.content import Assistant, Block, Message, Text, Thinking, ToolResult, User
from clawkit.gateway.protocol import now_ms
from clawkit.sessions.protocols import Session, StoredMessage

_STOPS = {"tool_calls": "toolUse"}
LEVELS: tuple[str, ...] = get_args(Level)
NO_LEVELS = ("off",)
PREVIEW_CHARS = 240


def levels(reasoning: bool) -> list[dict[str, str]]:
    return [{"id": each, "label": each} for each in (LEVELS if reasoning else NO_LEVELS)]


def split_model(ref: str) -> tuple[str, str]:
    """Provider and id of a model."""
    provider, _, name = ref.partition("/")
    return provider, name


def session_row(
    session: Session, *, parent: str, main: str, runs: Sequence[str], model: str, window: int
) -> dict[str, Any]:
    """One row of a list of sessions. `model` and `window` are those of the agent, for a session
    that has no model of its own; `parent` is the key of the session that started it."""
    provider, name = split_model(session.model_override or session.model or model)
    kind = "group" if ":group:" in session.key or ":channel:" in session.key else "direct"
    row: dict[str, Any] = {"key": session.key, "kind": kind, "agentId": session.agent}
    row |= {"sessionId": session.id, "isMain": session.name == main, "snapshotAt": now_ms()}
    row |= {"updatedAt": session.updated_ms, "createdAt": session.created_ms}
    row |= {"status": "running" if runs else "done", "hasActiveRun": bool(runs)}
    row |= {"activeRunIds": list(runs), "modelProvider": provider, "model": name}
    row |= {"contextTokens": window, "totalTokens": session.context_tokens}
    row |= {"inputTokens": session.usage.input, "outputTokens": session.usage.output}
    row |= {"estimatedCostUsd": session.usage.cost}
    row |= {"archived": session.archived_ms > 0, "pinned": False, "unread": False}
    optional = {
        "label": session.label,
        "displayName": session.label or session.title,
        "thinkingLevel": session.thinking,
        "spawnedBy": parent,
    }
    return row | {key: value for key, value in optional.items() if value}


def session_entry(session: Session) -> dict[str, Any]:
    """What methods that change a session return about it."""
    entry: dict[str, Any] = {
        "sessionId": session.id,
        "lifecycleRevision": session.id,
        "updatedAt": session.updated_ms,
        "createdAt": session.created_ms,
        "sessionRoot": session.workspace,
    }
    optional = {
        "label": session.label,
        "thinkingLevel": session.thinking,
        "modelOverride": session.model_override,
        "parentSessionKey": session.parent,
    }
    return entry | {key: value for key, value in optional.items() if value}


def message(session: str, entry: StoredMessage, run: str = "") -> dict[str, Any]:
    """A stored message."""
    about: dict[str, Any] = {"id": message_id(session, entry.number), "seq": entry.number}
    if run:
        about["runId"] = run
    return _body(entry.message) | {"__openclaw": about}


def session_event(row: dict[str, Any], **what: Any) -> dict[str, Any]:
    """What clients are told about a change of the session of that row."""
    about = {"sessionKey": row["key"], "ts": now_ms(), "session": row}
    return {**about, **row, **what}


def message_event(row: dict[str, Any], message: dict[str, Any]) -> dict[str, Any]:
    """What clients are told about a new message in the session of that row."""
    about = message["__openclaw"]
    payload: dict[str, Any] = {"sessionKey": row["key"], "message": message, "session": row}
    payload |= {"messageId": about["id"], "messageSeq": about["seq"], "ancestorSessions": []}
    keys = ("sessionId", "agentId", "hasActiveRun", "activeRunIds", "status", "updatedAt")
    payload |= {key: row[key] for key in keys}
    return payload | ({"runId": about["runId"]} if "runId" in about else {})


def message_id(session: str, number: int) -> str:
    return f"{session}-{number}"


def message_number(session: str, id_: str | None) -> int | None:
    """The number of a message of the session; 0 for no message, None if it is of another one."""
    if id_ is None:
        return 0
    of, _, number = id_.rpartition("-")
    is_number = number.isascii() and number.isdigit() and len(number) < 16
    return int(number) if is_number and of == session else None


def _body(said: Message) -> dict[str, Any]:
    if isinstance(said, User):
        words = [part.text for part in said.content if isinstance(part, Text)]
        is_plain = len(words) == len(said.content)
        content: Any = "\n".join(words) if is_plain else blocks(said.content)
        body = {"role": "user", "content": content, "timestamp": said.at_ms}
        return body | ({"idempotencyKey": f"{said.ids[0]}:user"} if said.ids else {})
    if isinstance(said, ToolResult):
        return {
            "role": "toolResult",
            "toolCallId": said.call_id,
            "toolName": said.tool,
            "content": blocks(said.content),
            "details": said.details,
            "isError": said.is_error,
            "timestamp": said.at_ms,
        }
    if isinstance(said, Assistant):
        return _answer(said)
    return {"role": "system", "content": said.text, "timestamp": said.at_ms}


def _answer(said: Assistant) -> dict[str, Any]:
    provider, model = split_model(said.model)
    usage = said.usage
    tokens = {"input": usage.input, "output": usage.output, "totalTokens": usage.context}
    tokens |= {"cacheRead": usage.cache_read, "cacheWrite": usage.cache_write}
    content = [_part(part) for part in said.content if not _is_hidden(part)]
    body: dict[str, Any] = {"role": "assistant", "content": content, "api": said.api}
    body |= {"provider": provider, "model": model, "timestamp": said.at_ms}
    body |= {"usage": {**tokens, "cost": {"total": usage.cost}}}
    body |= {"stopReason": _STOPS.get(said.stop, said.stop)}
    return body | ({"errorMessage": said.error} if said.error else {})


def _is_hidden(part: object) -> bool:
    return isinstance(part, Thinking) and not part.text


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
    """A message in a few words; None for those without any."""
    said = entry.message
    if isinstance(said, User | Assistant):
        words = " ".join(part.text for part in said.content if isinstance(part, Text)).strip()
        if words:
            role = "user" if isinstance(said, User) else "assistant"
            return {"role": role, "text": words[:max_chars]}
    return None
