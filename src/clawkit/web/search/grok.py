"""Grok: an answer of xAI's model, which searches the web, or posts on X."""

from __future__ import annotations

import re

from msgspec.structs import asdict

from clawkit.web.search.exchange import Api, answer, listed, pick
from clawkit.web.search.protocols import PostQuery, Query, SearchAnswer

_MODEL = "grok-4.7"


async def ask_grok(query: Query, api: Api) -> SearchAnswer:
    return await _respond(api, query.query, {"type": "web_search"})


async def search_posts(query: PostQuery, api: Api) -> SearchAnswer:
    filters = {name: value for name, value in asdict(query).items() if value and name != "query"}
    return await _respond(api, query.query, {"type": "x_search", **filters})


async def _respond(api: Api, text: str, tool: dict[str, object]) -> SearchAnswer:
    body = {
        "model": api.options.get("model", _MODEL),
        "input": [{"role": "user", "content": text}],
        "tools": [tool],
        "max_turns": int(api.options.get("maxTurns", "0")),
    }
    data = (await api.post("/responses", body, api.bearer)).data
    parts = [
        part
        for item in listed(data, "output")
        for part in listed(item, "content", optional=True)
        if part.get("type") == "output_text"
    ]
    texts = [part["text"] for part in parts if isinstance(part.get("text"), str)]
    if api.options.get("inlineCitations") == "false":
        texts = [re.sub(r" ?\[\[\d{1,4}\]\]\([^()\s]{1,2000}\)", "", each) for each in texts]
    noted = [note for part in parts for note in listed(part, "annotations", optional=True)]
    every = pick(data, "citations")
    return answer(texts, [*noted, *(every if isinstance(every, list) else ())])
