"""Stored sessions for the tests of the session tools."""

from __future__ import annotations

import json
from typing import Any

import apsw

from clawkit.config.load import loads
from clawkit.content import Assistant, Message, Text, Usage, User
from clawkit.core.call import CallRequest, Run, call
from clawkit.core.context import InForce, Scope
from clawkit.core.result import Result
from clawkit.redact import Redactor
from clawkit.sessions.protocols import Session, Sessions
from clawkit.sessions.store import SessionStore

SECRET = "hunter2-and-then-some"
WIDE = 1_000_000
"""Tokens of a model that takes whatever a tool may say at most."""


class Ground:
    """A store, and tools that are called as an agent calls them."""

    def __init__(self, path: str) -> None:
        self.store = SessionStore(path)

    def begin(self, name: str, *said: str, agent: str = "main", **columns: Any) -> Session:
        """A session with some messages, an answer after each."""
        made = self.store.create(
            agent, workspace="/", model="a/b", name=name, parent=columns.pop("parent", "")
        )
        for text in said:
            self.store.append(made.id, User((Text(text),), at_ms=1_000))
            answer = Assistant((Text(f"yes, {text}"),), usage=Usage(100, 20, 30, 0, 0.5))
            self.store.append(made.id, answer)
        return self.set(made, **columns)

    def set(self, session: Session, **columns: Any) -> Session:
        db = apsw.Connection(self.store.path)
        for column, value in columns.items():
            db.execute(f"UPDATE session SET {column} = ? WHERE id = ?", (value, session.id))
        db.close()
        return self.store.get(session.id)

    def say(self, session: Session, *messages: Message) -> None:
        for message in messages:
            self.store.append(session.id, message)

    async def call(
        self, module: Any, scope: Scope | None = None, config: str = "{}", **params: Any
    ) -> Result:
        scope = scope or Scope(session="main", context_window=WIDE)
        tool = module.make_tool(loads(config).config, scope)
        redactor = Redactor([SECRET])
        services: dict[type, object] = {
            Sessions: self.store,
            Redactor: redactor,
            InForce: InForce((), 0),
        }
        run = Run({tool.name: tool}, "/ws", scope, services=services, redactor=redactor)
        result = await call(run, CallRequest(tool.name, params))
        if not result.is_error and module.__name__.rpartition(".")[2].startswith("sessions_"):
            # What the model reads is what programs read.
            assert json.loads(result.as_text()) == dict(result.details)
        return result


def at(session: str, **more: Any) -> Scope:
    return Scope(session=session, **{"context_window": WIDE, **more})
