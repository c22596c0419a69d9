"""Kimi: an answer of Moonshot's model, which searches on its own server when it is told to."""

from __future__ import annotations

from clawkit.web.search.protocols import Query, SearchAnswer, SearchError
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

_MODEL = "kimi-k2.6"
_NAME = "$web_search"
_ROUNDS = 4


def search(query: Query, setup: ProviderSetup) -> Steps:
    messages: list[dict[str, object]] = [{"role": "user", "content": query.query}]
    sources: list[object] = []
    for number in range(_ROUNDS):
        body = {
            "model": setup.options.get("model", _MODEL),
            "messages": messages,
            "tools": [{"type": "builtin_function", "function": {"name": _NAME}}],
            # Thinking would have to be sent back with each call.
            "thinking": {"type": "disabled"},
        }
        reply = yield post(setup, "/chat/completions", body, setup.bearer)
        message = pick(reply.data, "choices.0.message")
        sources += listed(reply.data, "search_results", optional=True)
        calls = listed(message, "tool_calls", optional=True)
        calls = [call for call in calls if pick(call, "function.name") == _NAME]
        if not calls:
            if not (text := as_text(pick(message, "content"))):
                raise unreadable("no answer")
            if not number:
                raise SearchError("not_grounded", "answered without searching")
            return SearchAnswer(text=text, citations=read_citations(sources))
        messages.append({"role": "assistant", "content": "", "tool_calls": calls})
        # The server searches itself, once it gets its own arguments back.
        messages += [
            {
                "role": "tool",
                "tool_call_id": call.get("id"),
                "name": _NAME,
                "content": as_text(pick(call, "function.arguments")),
            }
            for call in calls
        ]
    raise SearchError("provider_error", f"did not answer within {_ROUNDS} searches")
