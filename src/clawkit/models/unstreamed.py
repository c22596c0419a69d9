"""Turns an answer that came whole, from a service that does not stream, into events.

Each API's decoder then reads it as it reads all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from clawkit.models.base import Api, ServerEvent

_UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)


def events_of(api: Api, body: bytes) -> list[ServerEvent]:
    """The events that mean the same; none when the body is no answer of this API."""
    try:
        data = msgspec.json.decode(body)
        return [_event(item) for item in _items(api, data)]
    except _UNREADABLE:
        return []


def _items(api: Api, data: Any) -> list[dict[str, Any]]:
    if api == "google-generative-ai":
        # A list of what would have been events, or the one answer there is.
        chunks = data if isinstance(data, list) else [data]
        has_answer = any(isinstance(each, dict) and "candidates" in each for each in chunks)
        return chunks if has_answer and all(isinstance(each, dict) for each in chunks) else []
    if not isinstance(data, dict):
        return []
    if api == "openai-responses":
        return _response_events(data)
    if api == "anthropic-messages":
        return _message_events(data)
    return [data] if isinstance(data.get("choices"), list) and data["choices"] else []


def _response_events(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    items = data.get("output")
    if not isinstance(items, list) or data.get("error"):
        return []
    events: list[dict[str, Any]] = [
        {"type": "response.output_item.done", "output_index": index, "item": item}
        for index, item in enumerate(items)
    ]
    end = "incomplete" if data.get("status") == "incomplete" else "completed"
    return [*events, {"type": f"response.{end}", "response": data}]


def _message_events(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    blocks = data.get("content")
    if data.get("type") != "message" or not isinstance(blocks, list):
        return []
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {**data, "content": []}}]
    for index, block in enumerate(blocks):
        start = {"type": "content_block_start", "index": index, "content_block": block}
        events += [start, {"type": "content_block_stop", "index": index}]
    delta = {"stop_reason": data.get("stop_reason"), "stop_details": data.get("stop_details")}
    events.append({"type": "message_delta", "delta": delta, "usage": data.get("usage")})
    return [*events, {"type": "message_stop"}]


def _event(data: dict[str, Any]) -> ServerEvent:
    return ServerEvent("", msgspec.json.encode(data).decode())
