"""The stored sessions as clients see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clawkit.agent.model_selection import ModelSelection
from clawkit.config.modelref import OPERATOR
from clawkit.errors import ClawkitError
from clawkit.gateway import wire
from clawkit.gateway.protocol import now_ms
from clawkit.sessions.protocols import Filter, Session, Visible

if TYPE_CHECKING:
    from clawkit.gateway.server import Gateway
    from clawkit.models.protocols import Model


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
        return wire.session_row(
            session,
            main=self._gateway.loaded.config.session.main_key,
            runs=self._gateway.live.active(session.key),
            model=model,
            window=window,
        )

    def find(self, key: str) -> Session | None:
        return self._gateway.store.find(key)

    def visible(self) -> Visible:
        """All sessions of all agents: clients are people, not tools."""
        return Visible("", agents=tuple(self._gateway.store.agents()))

    def list(self, wanted: Filter, limit: int, offset: int = 0) -> list[Session]:
        return self._gateway.store.listing(self.visible(), wanted, limit, offset)

    def count(self, wanted: Filter) -> int:
        return self._gateway.store.count(self.visible(), wanted)

    def summary(self, agent: str = "", limit: int = 5) -> dict[str, Any]:
        """How many sessions there are, and the last ones."""
        wanted, now = Filter(agent=agent), now_ms()
        recent = [
            {"key": each.key, "updatedAt": each.updated_ms, "age": now - each.updated_ms}
            for each in self.list(wanted, limit)
        ]
        return {"path": self._gateway.store.path, "count": self.count(wanted), "recent": recent}
