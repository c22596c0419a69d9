"""Grok: an answer of xAI's model, which searches the web, or posts on X."""

from __future__ import annotations

import re

from clawkit.web.search.protocols import PostQuery, Query, SearchAnswer
from clawkit.web.search.wire import (
    ProviderSetup,
    Steps,
    as_text,
    listed,
    pick,
    post,
    read_citations,
    unreadable,
)

_MODEL = "grok-4.7"


def search(query: Query, setup: ProviderSetup) -> Steps:
    return _respond(setup, query.query, {"type": "web_search"})


def search_posts(query: PostQuery, setup: ProviderSetup) -> Steps:
    tool = {
        "type": "x_search",
        "allowed_x_handles": query.allowed_x_handles,
        "excluded_x_handles": query.excluded_x_handles,
        "from_date": query.from_date,
        "to_date": query.to_date,
        "enable_image_understanding": query.enable_image_understanding,
        "enable_video_understanding": query.enable_video_understanding,
    }
    return _respond(setup, query.query, {name: value for name, value in tool.items() if value})


def _respond(setup: ProviderSetup, text: str, tool: dict[str, object]) -> Steps:
    body = {
        "model": setup.options.get("model", _MODEL),
        "input": [{"role": "user", "content": text}],
        "tools": [tool],
        "max_turns": int(setup.options.get("maxTurns", "0")),
    }
    reply = yield post(setup, "/responses", body, setup.bearer)
    data = reply.data
    parts = [
        part
        for item in listed(data, "output")
        for part in listed(item, "content", optional=True)
        if part.get("type") == "output_text"
    ]
    if not (said := as_text([part.get("text") for part in parts])):
        raise unreadable("no answer")
    if setup.options.get("inlineCitations") == "false":
        said = re.sub(r" ?\[\[\d{1,4}\]\]\([^()\s]{1,2000}\)", "", said)
    noted = [note for part in parts for note in listed(part, "annotations", optional=True)]
    every = pick(data, "citations")
    return SearchAnswer(
        text=said,
        citations=read_citations([*noted, *(every if isinstance(every, list) else ())]),
    )
