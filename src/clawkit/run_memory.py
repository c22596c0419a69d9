"""The memory of a run: its notes, and the sessions that it may see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clawkit.config.load import Loaded
from clawkit.core.context import Scope
from clawkit.memory.service import LocalMemory, open_memory
from clawkit.memory.settings import settings_of, sources_of
from clawkit.redact import Redactor
from clawkit.sessions.protocols import Sessions, session_key
from clawkit.sessions.transcripts import AgentTranscripts
from clawkit.sessions.visibility import Requester, Sight

if TYPE_CHECKING:
    from clawkit.services import Services


def open_run_memory(
    services: Services, loaded: Loaded, scope: Scope, workspace: str, redactor: Redactor
) -> LocalMemory:
    config = loaded.config
    has_sessions = "sessions" in sources_of(settings_of(config, scope.agent))
    return open_memory(
        loaded,
        scope.agent,
        workspace,
        transcripts=_transcripts(services, loaded, scope, redactor) if has_sessions else None,
        plugged=services.provide_role("embeddings") if config.plugins else None,
        learn=redactor.learn,
        redact=redactor.text,
    )


def _transcripts(
    services: Services, loaded: Loaded, scope: Scope, redactor: Redactor
) -> AgentTranscripts:
    store: Any = services[Sessions]
    key = session_key(scope.agent, scope.session)
    here = store.find(key, scope.agent)
    id_ = here.id if here else ""
    requester = Requester(id_, key, scope.agent, scope.sandboxed, scope.depth)
    return AgentTranscripts(store, requester, Sight.of(loaded.config, scope.agent), redactor.text)
