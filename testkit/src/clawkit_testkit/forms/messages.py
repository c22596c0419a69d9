"""anthropic-messages: blocks that are opened, filled and closed, with pings in between."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from clawkit.content import Part, Text, Thinking, ToolCall
from clawkit.testing.answers import encode, written
from clawkit_testkit.fault import Kind
from clawkit_testkit.forms.protocol import ErrorForm, Event, Reply, Words, named_event

_STOP = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "refusal": "refusal",
}
_INVALID = "invalid_request_error"
_KEY = "invalid x-api-key"
_CREDIT = (
    "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing "
    "to upgrade or purchase credits."
)
_RATE = (
    "This request would exceed your organization's rate limit of 50 requests per minute. Please "
    "reduce the rate of requests; see the response headers for current usage."
)
_WORDS: Mapping[Kind, Words] = {
    "invalid": Words(400, _INVALID, "messages: at least one message is required"),
    "bad_key": Words(401, "authentication_error", _KEY),
    "auth": Words(401, "authentication_error", _KEY),
    "billing": Words(402, "billing_error", "There is an issue with your payment information."),
    "quota": Words(400, _INVALID, _CREDIT),
    "forbidden": Words(
        403, "permission_error", "Your API key does not have permission to use this resource."
    ),
    "not_found": Words(404, "not_found_error", "model: scripted-model"),
    "too_large": Words(413, "request_too_large", "Request exceeds the maximum size"),
    "rate_limit": Words(429, "rate_limit_error", _RATE),
    "server": Words(500, "api_error", "Internal server error"),
    "unavailable": Words(503, "api_error", "Service temporarily unavailable"),
    "overloaded": Words(529, "overloaded_error", "Overloaded"),
    "overflow": Words(400, _INVALID, "prompt is too long: 208310 tokens > 200000 maximum"),
}


class Messages:
    """The format of `/v1/messages`."""

    words = _WORDS
    id_header = "request-id"

    def events(self, reply: Reply) -> Iterator[Event]:
        opened = _message(reply) | {"content": [], "stop_reason": None, "usage": _usage(reply, 1)}
        yield _event("message_start", message=opened)
        if not reply.parts:
            yield _event("ping")
        for index, part in enumerate(reply.parts):
            yield _event("content_block_start", index=index, content_block=_opened(reply, index))
            if index == 0:
                yield _event("ping")
            for delta in _deltas(reply, part, index):
                is_piece = "signature" not in delta and delta.get("partial_json") != ""
                yield _event("content_block_delta", is_piece, index=index, delta=delta)
            yield _event("content_block_stop", index=index)
        delta = {"stop_reason": _STOP.get(reply.stop, "end_turn"), "stop_sequence": None}
        yield _event("message_delta", delta=delta, usage=_usage(reply, reply.usage.output))
        yield _event("message_stop")

    def whole(self, reply: Reply) -> bytes:
        return encode(_message(reply))

    def error(self, words: Words, request_id: str, retry_after: float | str | None) -> bytes:
        error = {"type": words.type, "message": words.message}
        return encode({"type": "error", "error": error, "request_id": request_id})

    def error_event(self, words: Words, reply: Reply, form: ErrorForm) -> bytes:
        error = {"details": None, "type": words.type, "message": words.message}
        return _event("error", error=error, request_id=reply.id("req_")).data


def _event(event_name: str, is_piece: bool = False, /, **fields: Any) -> Event:
    return Event(named_event(event_name, {"type": event_name} | fields), is_piece)


def _message(reply: Reply) -> dict[str, Any]:
    return {
        "id": reply.id("msg_01"),
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": [_block(reply, index) for index in range(len(reply.parts))],
        "stop_reason": _STOP.get(reply.stop, "end_turn"),
        "stop_sequence": None,
        "usage": _usage(reply, reply.usage.output),
    }


def _block(reply: Reply, index: int) -> dict[str, Any]:
    part = reply.parts[index]
    match part:
        case Text(text=text):
            return {"type": "text", "text": text}
        case Thinking(hidden=True):
            return {"type": "redacted_thinking", "data": reply.proof(part, index)}
        case Thinking(text=text):
            return {"type": "thinking", "thinking": text, "signature": reply.proof(part, index)}
        case ToolCall(name=name, arguments=arguments):
            call_id = part.id or reply.id("toolu_01", index)
            return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def _opened(reply: Reply, index: int) -> dict[str, Any]:
    """The block at its start."""
    block = _block(reply, index)
    match block["type"]:
        case "text":
            return block | {"text": ""}
        case "thinking":
            return block | {"thinking": "", "signature": ""}
        case "tool_use":
            return block if reply.has_objects else block | {"input": {}}
        case _:
            return block


def _deltas(reply: Reply, part: Part, index: int) -> Iterator[dict[str, Any]]:
    match part:
        case Text(text=text):
            for piece in reply.pieces(text):
                yield {"type": "text_delta", "text": piece}
        case Thinking(text=text, hidden=False):
            for piece in reply.pieces(text):
                yield {"type": "thinking_delta", "thinking": piece}
            yield {"type": "signature_delta", "signature": reply.proof(part, index)}
        case ToolCall(arguments=arguments):
            if reply.has_objects:
                return
            yield {"type": "input_json_delta", "partial_json": ""}
            if arguments != {}:
                for piece in reply.pieces(written(arguments)):
                    yield {"type": "input_json_delta", "partial_json": piece}
        case _:
            pass


def _usage(reply: Reply, output: int) -> dict[str, Any]:
    return {
        "input_tokens": reply.usage.input,
        "cache_creation_input_tokens": reply.usage.cache_write,
        "cache_read_input_tokens": reply.usage.cache_read,
        "output_tokens": output,
        "service_tier": "standard",
    }
