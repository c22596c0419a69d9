"""Parallel without a key: its public MCP server, asked anonymously."""

from __future__ import annotations

from uuid import uuid4

import msgspec

from clawkit.version import __version__
from clawkit.web.search.protocols import Query, SearchAnswer, SearchError
from clawkit.web.search.wire import (
    HttpRequest,
    ProviderSetup,
    Steps,
    as_text,
    listed,
    pick,
    post,
    read_hits,
    unreadable,
)

_PROTOCOL = "2025-06-18"
_SESSION = uuid4().hex
"""Lets the service recognize searches of one process as related, and nothing else."""


def search(query: Query, setup: ProviderSetup) -> Steps:
    client = {"name": "clawkit", "version": __version__}
    hello = {"protocolVersion": _PROTOCOL, "capabilities": {}, "clientInfo": client}
    reply = yield _message(setup, {"id": 1, "method": "initialize", "params": hello})
    agreed = as_text(pick(reply.data, "result.protocolVersion")) or _PROTOCOL
    headers = {"MCP-Protocol-Version": agreed}
    if session := reply.headers.get("mcp-session-id"):
        headers["Mcp-Session-Id"] = session
    yield _message(setup, {"method": "notifications/initialized"}, headers)
    asked = {"objective": query.query, "search_queries": [query.query], "session_id": _SESSION}
    call = {"name": "web_search", "arguments": asked}
    reply = yield _message(setup, {"id": 2, "method": "tools/call", "params": call}, headers)
    result = reply.data.get("result")
    text = as_text([pick(each, "text") for each in listed(result, "content", optional=True)])
    if pick(result, "isError"):
        raise SearchError("provider_error", "reported an error", text)
    found = pick(result, "structuredContent") or _decode(text)
    return SearchAnswer(read_hits(listed(found, "results"), "excerpts", "publish_date"))


def _message(
    setup: ProviderSetup, message: dict[str, object], headers: dict[str, str] | None = None
) -> HttpRequest:
    accept = {"Accept": "application/json, text/event-stream"}
    return post(setup, "", {"jsonrpc": "2.0", **message}, {**accept, **(headers or {})})


def _decode(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        raise unreadable("text that is not JSON") from None
