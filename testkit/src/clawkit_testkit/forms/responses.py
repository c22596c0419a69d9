"""openai-responses: items that are opened, filled and closed, then the complete answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from clawkit.content import Text, Thinking, ToolCall
from clawkit.testing.answers import encode, written
from clawkit_testkit.forms.openai_words import RESPONSES, openai_error
from clawkit_testkit.forms.protocol import ErrorForm, Event, Reply, Words, named_event


class Responses:
    """The format of `/responses`."""

    words = RESPONSES
    id_header = "x-request-id"

    def events(self, reply: Reply) -> Iterator[Event]:
        for number, (name, fields, is_piece) in enumerate(_events(reply)):
            value = {"type": name, "sequence_number": number} | fields
            yield Event(named_event(name, value), is_piece)

    def whole(self, reply: Reply) -> bytes:
        return encode(_response(reply, _end(reply), _items(reply)))

    def error(self, words: Words, request_id: str, retry_after: float | str | None) -> bytes:
        return encode(openai_error(words))

    def error_event(self, words: Words, reply: Reply, form: ErrorForm) -> bytes:
        # Clients ignore the sequence number, and the number of events so far is unknown here.
        error = openai_error(words)["error"]
        if form == "failed":
            failed = _response(reply, "failed", [])
            failed["error"] = {"code": words.code or words.type, "message": words.message}
            return _named("response.failed", response=failed)
        if form == "nested":
            return _named("error", error=error)
        return _named("error", code=words.code, message=words.message, param=words.param)


def _named(name: str, **fields: Any) -> bytes:
    return named_event(name, {"type": name, "sequence_number": 1_000_000} | fields)


_Unnumbered = tuple[str, dict[str, Any], bool]


def _events(reply: Reply) -> Iterator[_Unnumbered]:
    for name in ("response.created", "response.in_progress"):
        yield name, {"response": _response(reply, "in_progress", [])}, False
    items = _items(reply)
    for index, (part, item) in enumerate(zip(reply.parts, items, strict=True)):
        here = {"output_index": index}
        at = {"item_id": item["id"], **here}
        yield "response.output_item.added", here | {"item": _opened(item, reply)}, False
        match part:
            case Text(text=text):
                yield from _text_events(reply, text, item["content"][0], at)
            case Thinking(text=text):
                yield from _summary_events(reply, text, at)
            case ToolCall():
                yield from _call_events(reply, item, at)
        yield "response.output_item.done", here | {"item": item}, False
    end = _end(reply)
    yield f"response.{end}", {"response": _response(reply, end, items)}, False


def _text_events(
    reply: Reply, text: str, part: dict[str, Any], at: dict[str, Any]
) -> Iterator[_Unnumbered]:
    kind = part["type"]  # output_text or refusal
    at = at | {"content_index": 0}
    field = "refusal" if kind == "refusal" else "text"
    more: dict[str, Any] = {} if kind == "refusal" else {"logprobs": []}
    yield "response.content_part.added", at | {"part": part | {field: ""}}, False
    for piece in reply.pieces(text):
        yield f"response.{kind}.delta", at | {"delta": piece} | more, True
    yield f"response.{kind}.done", at | {field: text} | more, False
    yield "response.content_part.done", at | {"part": part}, False


def _summary_events(reply: Reply, text: str, at: dict[str, Any]) -> Iterator[_Unnumbered]:
    if not text:
        return
    at = at | {"summary_index": 0}
    name = "response.reasoning_summary"
    yield f"{name}_part.added", at | {"part": {"type": "summary_text", "text": ""}}, False
    for piece in reply.pieces(text):
        yield f"{name}_text.delta", at | {"delta": piece}, True
    yield f"{name}_text.done", at | {"text": text}, False
    yield f"{name}_part.done", at | {"part": {"type": "summary_text", "text": text}}, False


def _call_events(reply: Reply, item: dict[str, Any], at: dict[str, Any]) -> Iterator[_Unnumbered]:
    arguments = item["arguments"]
    name = "response.function_call_arguments"
    if not reply.has_objects:
        for piece in reply.pieces(arguments):
            yield f"{name}.delta", at | {"delta": piece}, True
    yield f"{name}.done", at | {"arguments": arguments}, reply.has_objects


def _items(reply: Reply) -> list[dict[str, Any]]:
    return [_item(reply, index) for index in range(len(reply.parts))]


def _item(reply: Reply, index: int) -> dict[str, Any]:
    part = reply.parts[index]
    is_last = index == len(reply.parts) - 1
    status = "incomplete" if reply.stop == "length" and is_last else "completed"
    match part:
        case Thinking(text=text):
            return {
                "id": reply.id("rs_", index),
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": text}] if text else [],
                "encrypted_content": reply.proof(part, index),
            }
        case ToolCall():
            return {
                "id": reply.id("fc_", index),
                "type": "function_call",
                "status": status,
                "arguments": part.arguments if reply.has_objects else written(part.arguments),
                "call_id": part.id or reply.id("call_", index),
                "name": part.name,
            }
        case Text(text=text):
            content: dict[str, Any] = {"type": "refusal", "refusal": text}
            if reply.stop != "refusal":
                content = {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
            message = {
                "id": reply.id("msg_", index),
                "type": "message",
                "status": status,
                "content": [content],
                "role": "assistant",
            }
            return message | ({"phase": part.signature} if part.signature else {})


def _opened(item: dict[str, Any], reply: Reply) -> dict[str, Any]:
    """The item at its start."""
    match item["type"]:
        case "reasoning":
            return item | {"summary": [], "encrypted_content": ""}
        case "function_call":
            arguments = item["arguments"] if reply.has_objects else ""
            return item | {"status": "in_progress", "arguments": arguments}
        case _:
            return item | {"status": "in_progress", "content": []}


def _end(reply: Reply) -> str:
    filtered = reply.stop == "refusal" and not reply.parts
    return "incomplete" if reply.stop == "length" or filtered else "completed"


def _response(reply: Reply, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
    reason = "max_output_tokens" if reply.stop == "length" else "content_filter"
    return {
        "id": reply.id("resp_"),
        "object": "response",
        "created_at": reply.at_s,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": {"reason": reason} if status == "incomplete" else None,
        "instructions": None,
        "max_output_tokens": None,
        "model": reply.model,
        "output": output,
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "service_tier": "default",
        "store": False,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": _usage(reply) if status in ("completed", "incomplete") else None,
        "metadata": {},
    }


def _usage(reply: Reply) -> dict[str, Any]:
    usage = reply.usage
    return {
        "input_tokens": reply.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read,
            "cache_write_tokens": usage.cache_write,
        },
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": reply.thinking_tokens},
        "total_tokens": reply.prompt_tokens + usage.output,
    }
