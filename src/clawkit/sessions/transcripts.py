"""The past sessions of an agent as plain text, for its memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from clawkit.content import Assistant, Message, Text, User
from clawkit.errors import NotFoundError
from clawkit.sessions.protocols import Filter
from clawkit.sessions.store import SessionStore
from clawkit.sessions.visibility import Requester, SessionTarget, Sight, all_visible, may_see

MAX_SESSIONS = 10_000
MAX_CHARS = 2_000_000
"""Maximum characters of one session; the latest are kept."""


class AgentTranscripts:
    """Messages of people and of the agent. Results of tools are left out: they are untrusted
    text."""

    def __init__(
        self,
        store: SessionStore,
        requester: Requester,
        sight: Sight,
        redact: Callable[[str], str] = str,
    ) -> None:
        self._store = store
        self._requester = requester
        self._sight = sight
        self._redact = redact

    def stamps(self) -> Mapping[str, str]:
        found = self._store.recent(self._requester.agent, limit=MAX_SESSIONS)
        return {each.id: f"{each.updated_ms}.{each.turns}.{each.version}" for each in found}

    def read(self, id_: str) -> str:
        try:
            messages = [each.message for each in self._store.history(id_)]
        except NotFoundError:
            return ""
        kept: list[str] = []
        room = MAX_CHARS
        for message in reversed(messages):
            line = _told(message)
            room -= len(line)
            if room < 0:
                break
            if line:
                kept.append(line)
        return self._redact("\n\n".join(reversed(kept)))

    def may_see(self, id_: str) -> bool:
        found = self._store.find(id_)
        if found is None or found.id != id_:
            return False
        lineage = self._store.lineage(id_) if found.parent else ()
        target = SessionTarget(found.id, found.key, found.agent, lineage)
        return not may_see(self._requester, target, self._sight)

    def visible(self) -> Collection[str] | None:
        agent = self._requester.agent
        seen = all_visible(self._requester, self._sight, (agent,))
        if agent in seen.agents:
            return None
        found = self._store.listing(seen, Filter(archived=None), MAX_SESSIONS)
        return [each.id for each in found]


def _told(message: Message) -> str:
    if not isinstance(message, User | Assistant):
        return ""
    who = "agent"
    if isinstance(message, User):
        who = "person" if message.source is None else message.source.kind
    text = "\n".join(each.text for each in message.content if isinstance(each, Text)).strip()
    return f"{who}: {text}" if text else ""
