"""Parallel without a key: its public MCP server, asked anonymously."""

from __future__ import annotations

import re
from uuid import uuid4

from clawkit.version import __version__
from clawkit.web.search.exchange import Api, as_text, decode, listed, pick, results
from clawkit.web.search.protocols import Query, SearchAnswer, SearchError

_PROTOCOL = "2025-06-18"
_SESSION = uuid4().hex
"""Lets the service recognize searches of one process as related, and nothing else."""


async def ask_parallel_free(query: Query, api: Api) -> SearchAnswer:
    headers = {"Accept": "application/json, text/event-stream"}
    client = {"name": "clawkit", "version": __version__}
    hello = {"protocolVersion": _PROTOCOL, "capabilities": {}, "clientInfo": client}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    reply = await api.post("", message, headers)
    agreed = as_text(pick(reply.data, "result.protocolVersion"))
    headers["MCP-Protocol-Version"] = agreed if re.fullmatch(r"[\d-]{8,10}", agreed) else _PROTOCOL
    if session := reply.headers.get("mcp-session-id"):
        headers["Mcp-Session-Id"] = session
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    await api.post("", ready, headers)
    asked = {"objective": query.query, "search_queries": [query.query], "session_id": _SESSION}
    call = {"name": "web_search", "arguments": asked}
    message |= {"id": 2, "method": "tools/call", "params": call}
    result = (await api.post("", message, headers)).data.get("result")
    text = as_text([each.get("text") for each in listed(result, "content", optional=True)])
    if pick(result, "isError"):
        raise SearchError("provider_error", "reported an error", text)
    found = pick(result, "structuredContent") or decode(text)
    return results(listed(found, "results"), "excerpts", "publish_date")
