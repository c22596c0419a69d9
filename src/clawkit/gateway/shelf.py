"""The stored sessions as clients see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from clawkit.agent.model_selection import ModelSelection
from clawkit.config.modelref import OPERATOR
from clawkit.errors import ClawkitError
from clawkit.gateway import wire
from clawkit.gateway.protocol import encode, now_ms
from clawkit.sessions.protocols import Filter, Session, Visible

if TYPE_CHECKING:
    from clawkit.gateway.server import Gateway
    from clawkit.models.protocols import Model


MAX_BYTES = 6 * 1024**2
"""Of the messages in one answer."""
_AT_ONCE = 50
_CUT = "\n[… cut]"


class ShelvedMessages(Struct, frozen=True):
    """Some messages of a session, oldest first."""

    messages: list[dict[str, Any]]
    total: int
    next_offset: int | None


NO_MESSAGES = ShelvedMessages([], 0, None)
NO_SUMMARY: dict[str, Any] = {"path": "", "count": 0, "recent": []}


class Shelf:
    """Finds and lists the sessions of all agents."""

    def __init__(self, gateway: Gateway, model: Model | None = None) -> None:
        self._gateway = gateway
        self._model = model
        self._models: dict[str, tuple[str, int, bool]] = {}

    def forget(self) -> None:
        """The configuration has changed."""
        self._models.clear()

    def default_model(self, agent: str) -> tuple[str, int, bool]:
        """The model of an agent, its context window, and whether it reasons."""
        if agent not in self._models:
            try:
                model = self._model or ModelSelection(self._gateway.loaded, agent).model()
                found = str(model.ref), model.facts.window, model.facts.reasoning
            except ClawkitError:
                found = "", 0, False
            self._models[agent] = found
        return self._models[agent]

    def has_model(self, agent: str) -> bool:
        return self.default_model(agent)[0] not in ("", str(OPERATOR))

    def defaults(self, agent: str) -> dict[str, Any]:
        ref, window, reasoning = self.default_model(agent)
        provider, name = wire.split_model(ref)
        levels = wire.levels(reasoning)
        return {
            "modelProvider": provider,
            "model": name,
            "contextTokens": window,
            "thinkingLevels": levels,
            "thinkingOptions": [each["id"] for each in levels],
            "thinkingDefault": self.thinking(agent),
        }

    def thinking(self, agent: str) -> str:
        agents = self._gateway.loaded.config.agents
        return agents.get(agent).thinking_default or agents.defaults.thinking_default or "off"

    def row(self, session: Session) -> dict[str, Any]:
        model, window, _ = self.default_model(session.agent)
        parent = self.find(session.parent) if session.parent else None
        return wire.session_row(
            session,
            parent=parent.key if parent else "",
            main=self._gateway.loaded.config.session.main_key,
            runs=self._gateway.live.active(session.key),
            model=model,
            window=window,
        )

    def find(self, key: str) -> Session | None:
        return self._gateway.store.find(key)

    def _visible(self, agents: Sequence[str] | None) -> Visible:
        """All sessions of some agents, by default of all: clients are people, not tools."""
        return Visible("", agents=tuple(self._gateway.store.agents() if agents is None else agents))

    def list(
        self, wanted: Filter, limit: int, offset: int = 0, agents: Sequence[str] | None = None
    ) -> list[Session]:
        return self._gateway.store.listing(self._visible(agents), wanted, limit, offset)

    def count(self, wanted: Filter, agents: Sequence[str] | None = None) -> int:
        return self._gateway.store.count(self._visible(agents), wanted)

    def messages(
        self,
        session: Session,
        limit: int,
        offset: int = 0,
        max_bytes: int = MAX_BYTES,
        max_chars: int | None = None,
    ) -> ShelvedMessages:
        """The latest messages that fit, without those that `offset` skips."""
        left, shown, total = min(max_bytes, MAX_BYTES), list[dict[str, Any]](), 0
        # A few at a time: messages can be long.
        for start in range(offset, offset + limit, _AT_ONCE):
            some = min(_AT_ONCE, offset + limit - start)
            found = self._gateway.store.page(session.id, some, start, tools=True)
            total = found.total
            for entry in reversed(found.entries):
                message = wire.message(session.id, entry)
                if max_chars is not None:
                    message["content"] = _cut(message["content"], max_chars)
                left -= len(encode(message))
                if left < 0 and shown:
                    return ShelvedMessages(shown[::-1], total, offset + len(shown))
                shown.append(message)
            if len(found.entries) < some:
                break
        end = offset + len(shown)
        return ShelvedMessages(shown[::-1], total, end if end < total else None)

    def since(
        self, session: Session, number: int, limit: int, max_bytes: int, max_chars: int | None
    ) -> Sequence[dict[str, Any]] | None:
        """The messages after a number; None if they do not fit, or it has no such message."""
        page = self.messages(session, limit, 0, max_bytes, max_chars)
        newer = [each for each in page.messages if each["__openclaw"]["seq"] > number]
        is_known = len(newer) < len(page.messages) or page.next_offset is None
        last = page.messages[-1]["__openclaw"]["seq"] if page.messages else 0
        return newer if is_known and number <= last else None

    def summary(self, agent: str = "", limit: int = 5) -> dict[str, Any]:
        """How many sessions there are, and the last ones."""
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
