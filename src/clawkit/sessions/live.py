"""A conversation while it goes on, in the store."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Any

from clawkit.content import Message, Summary
from clawkit.errors import ToolError, ToolInputError
from clawkit.sessions.protocols import Session
from clawkit.sessions.store import SessionStore


class LiveSession:
    """A conversation in the store; nobody else works in it meanwhile."""

    def __init__(self, store: SessionStore, session: Session, *, is_new: bool = False) -> None:
        """Raises `ConflictError` when another process works in it."""
        self.store = store
        self._id = session.id
        self._is_empty = is_new
        self._numbers: dict[int, tuple[Message, int]] = {}
        """Identity of a message to its number; the message is held, so that it stays the one."""
        self._held = ExitStack()
        self._held.enter_context(store.hold(session.id))

    @classmethod
    def open(cls, store: SessionStore, agent: str, name: str | None, workspace: str) -> LiveSession:
        """The conversation of that name or id, else a new one; takes over the store."""
        try:
            session = store.find(name, agent) if name else None
            if session is None:
                created = store.create(agent, workspace=workspace, name=name)
                return cls(store, created, is_new=True)
            if session.agent != agent:
                raise ToolInputError(
                    f"the session {session.name!r} belongs to the agent {session.agent!r}, "
                    f"not to {agent!r}"
                )
            return cls(store, session)
        except BaseException:
            store.close()
            raise

    @property
    def session(self) -> Session:
        return self.store.get(self._id)

    def load(self) -> list[Message]:
        """What the conversation is made of by now."""
        entries = self.store.load(self._id)
        self._numbers = {id(each.message): (each.message, each.number) for each in entries}
        return [each.message for each in entries]

    def append(self, message: Message, *, is_redacted: bool = False) -> None:
        number = self.store.append(self._id, message, is_redacted=is_redacted)
        self._numbers[id(message)] = message, number
        self._is_empty = False

    def compact(self, summary: Summary, kept: Sequence[Message]) -> None:
        # What could not be stored has no number.
        known = {id(each): self._numbers[id(each)] for each in kept if id(each) in self._numbers}
        after = max((number for _, number in self._numbers.values()), default=0) + 1
        keep_from = min((number for _, number in known.values()), default=after)
        number = self.store.compact(self._id, summary, keep_from)
        self._numbers = {**known, id(summary): (summary, number)}

    def update(self, **changes: Any) -> None:
        self.store.update(self._id, **changes)
        self._is_empty = False

    def close(self) -> None:
        """Let go of it. One in which nothing was ever said or set is forgotten."""
        self._held.close()
        if self._is_empty:
            # Nothing is lost where that fails; by now somebody else may be in it.
            with suppress(ToolError):
                self.store.delete(self._id)
        self.store.close()
