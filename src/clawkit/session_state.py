"""The state of a running agent's conversation, as seen by tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawkit.config.modelref import OPERATOR
from clawkit.errors import ToolAuthorizationError, ToolInputError
from clawkit.sessions.protocols import Session

if TYPE_CHECKING:
    from clawkit.agent_session import Agent


class AgentSessionState:
    """What tools may read and change of the conversation of an agent."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    @property
    def session(self) -> Session:
        scope, usage = self._agent.kit.run.scope, self._agent.conversation.usage
        return self._agent.session or Session("", scope.session, scope.agent, usage=usage)

    @property
    def model(self) -> str:
        return str(self._agent.conversation.model.ref)

    @property
    def auth(self) -> str:
        return self._agent.models.auth(self._agent.conversation.model.ref)

    @property
    def context_tokens(self) -> int:
        return self._agent.conversation.context_tokens

    @property
    def context_window(self) -> int:
        return self._agent.conversation.model.facts.window

    @property
    def queued(self) -> int:
        return self._agent.turns.queued

    def resolve_model(self, text: str) -> str:
        if not self._agent.kit.run.scope.sender.owner:
            raise ToolAuthorizationError(
                "only the owner may change the model of a conversation", reason="owner-only"
            )
        if text.strip().lower() == "default":
            return ""
        models = self._agent.models
        ref = models.find(text)
        # An unusable model could not switch back by itself.
        if ref != OPERATOR and not models.catalog.credentials.has(ref.provider):
            raise ToolInputError(f"{ref} cannot be used: there is no credential for it")
        return str(ref)

    def set_model(self, model: str) -> None:
        self._agent.use_model(model)
