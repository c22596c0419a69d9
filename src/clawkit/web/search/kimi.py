"""Kimi: an answer of Moonshot's model, which searches on its own server when it is told to."""

from __future__ import annotations

from clawkit.web.search.exchange import Api, answer, as_text, listed, pick
from clawkit.web.search.protocols import Query, SearchAnswer, SearchError

_MODEL = "kimi-k2.6"
_NAME = "$web_search"
_ROUNDS = 4


async def ask_kimi(query: Query, api: Api) -> SearchAnswer:
    messages: list[dict[str, object]] = [{"role": "user", "content": query.query}]
    sources: list[object] = []
    for number in range(_ROUNDS):
        body = {
            "model": api.options.get("model", _MODEL),
            "messages": messages,
            "tools": [{"type": "builtin_function", "function": {"name": _NAME}}],
            # Thinking would have to be sent back with each call.
            "thinking": {"type": "disabled"},
        }
        data = (await api.post("/chat/completions", body, api.bearer)).data
        message = pick(data, "choices.0.message")
        sources += listed(data, "search_results", optional=True)
        calls = listed(message, "tool_calls", optional=True)
        calls = [call for call in calls if pick(call, "function.name") == _NAME]
        if not calls:
            found = answer(pick(message, "content"), sources)
            if not number:
                raise SearchError("not_grounded", "answered without searching")
            return found
        messages.append({"role": "assistant", "content": "", "tool_calls": calls})
        # The server searches itself, once it gets its own arguments back.
        for call in calls:
            said = as_text(pick(call, "function.arguments"))
            about = {"role": "tool", "tool_call_id": call.get("id"), "name": _NAME}
            messages.append({**about, "content": said})
    raise SearchError("provider_error", f"did not answer within {_ROUNDS} searches")
