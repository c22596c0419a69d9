"""Many stored sessions: listing them, and searching their messages."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
import time
from typing import Any

import apsw
import msgspec

from bench.figure import Figure
from clawkit.content import Assistant, Text, User
from clawkit.core.call import CallRequest, Run, call
from clawkit.core.context import Scope
from clawkit.core.tool import Tool
from clawkit.redact import Redactor
from clawkit.sessions.protocols import Sessions, Visible
from clawkit.sessions.store import SessionStore
from clawkit.tools import sessions_history, sessions_list, sessions_search

SESSIONS, MESSAGES = 10_000, 100
ROUNDS = 15
_WORDS = re.findall(
    r"\w+",
    "the agent reads a file and then runs tests which fail because of an import that moved to "
    "another module so it edits both files checks types again and reports what changed in which "
    "order with numbers for review before anything is merged into main",
)


def measure() -> list[Figure]:
    return asyncio.run(_measure())


async def _measure() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="clawkit-bench-") as place:
        store = SessionStore(os.path.join(place, "home", "sessions.sqlite"), Redactor().text)
        try:
            _fill(store)
            start = time.perf_counter()
            store.search("warm", Visible("agent:main:main"), 10, index_s=600)
            indexed_s = time.perf_counter() - start
            return await _figures(store, indexed_s)
        finally:
            store.close()


async def _figures(store: SessionStore, indexed_s: float) -> list[Figure]:
    services: dict[type, object] = {Sessions: store, Redactor: Redactor()}
    tools: dict[str, Tool] = {
        each.TOOL.name: each.TOOL for each in (sessions_list, sessions_history, sessions_search)
    }
    main = Run(tools, "/", Scope(session="main", context_window=1_000_000), services=services)
    other = Run(tools, "/", Scope(session="s7", context_window=1_000_000), services=services)

    async def fastest(run: Run, tool: str, **params: Any) -> float:
        times = []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            result = await call(run, CallRequest(tool, params))
            times.append((time.perf_counter() - start) * 1e3)
            assert not result.is_error, result.as_text()
        return min(times)

    listed = max(
        await fastest(main, "sessions_list"),
        await fastest(main, "sessions_list", kinds=["cron"]),
        await fastest(main, "sessions_list", search="nowhere"),
        await fastest(other, "sessions_list"),
    )
    found = max(
        await fastest(main, "sessions_search", query="needle4711"),
        await fastest(main, "sessions_search", query="tests file", limit=25),
        await fastest(main, "sessions_search", query='"import that moved" types'),
        await fastest(other, "sessions_search", query="tests file"),
    )
    count = f"{SESSIONS:,} sessions"
    note = f"{count} of {MESSAGES} messages; indexed in {indexed_s:.0f} s"
    return [
        Figure("sessions_list, slowest of 4", listed, "ms", 30, count),
        Figure("sessions_search, slowest of 4", found, "ms", 50, note),
    ]


def _fill(store: SessionStore) -> None:
    """Inserted directly into the tables; one by one would take minutes."""
    store.create("main", workspace="/ws", model="a/b", name="main")
    db = apsw.Connection(store.path)
    encode = msgspec.json.Encoder().encode
    db.execute("PRAGMA synchronous = OFF; BEGIN")
    for row in range(2, SESSIONS + 1):
        name = f"s{row}" if row % 7 else f"telegram:group:-{row}"
        parent = f"id{row // 2:06}" if row % 3 == 0 else ""
        given = (row, f"id{row:06}", f"agent:main:{name}", name, f"about {row}", parent, row, row)
        db.execute(
            "INSERT INTO session (row, id, key, agent, name, title, workspace, model, thinking,"
            " parent, created_ms, updated_ms, last)"
            " VALUES (?, ?, ?, 'main', ?, ?, x'', 'a/b', '', ?, ?, ?, ?)",
            (*given, MESSAGES),
        )
        for number in range(1, MESSAGES + 1):
            at = row * 31 + number * 7
            words = [_WORDS[(at + n * n) % len(_WORDS)] for n in range(30)]
            if row % 4_711 == 0 and number == 50:
                words.append("needle4711")
            content = (Text(" ".join(words)),)
            message = User(content) if number % 2 else Assistant(content)
            db.execute("INSERT INTO message VALUES (?, ?)", ((row << 32) + number, encode(message)))
    db.execute("COMMIT")
    db.close()
