"""openai-completions: chunks of one choice, and `[DONE]` at the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from clawkit.content import Text, Thinking, ToolCall
from clawkit.testing.answers import encode, written
from clawkit_testkit.forms.openai_words import COMPLETIONS, openai_error
from clawkit_testkit.forms.protocol import ErrorForm, Event, Reply, Words, data_event

_FINISH = {"tool_calls": "tool_calls", "length": "length"}


class Completions:
    """The format of `/chat/completions`."""

    words = COMPLETIONS
    id_header = "x-request-id"

    def events(self, reply: Reply) -> Iterator[Event]:
        yield Event(b": keep-alive\n\n")
        yield _event(reply, {"role": "assistant", "content": "", "refusal": None})
        number = 0
        for part in reply.parts:
            match part:
                case Text(text=text):
                    field = "refusal" if reply.stop == "refusal" else "content"
                    for piece in reply.pieces(text):
                        yield _event(reply, {field: piece}, is_piece=True)
                case Thinking(text=text):
                    for piece in reply.pieces(text):
                        yield _event(reply, {"reasoning_content": piece}, is_piece=True)
                    if part.signature:
                        yield _event(reply, {"reasoning_details": [_details(part, number)]})
                case ToolCall():
                    yield from _call_events(reply, part, number)
                    number += 1
        yield _event(reply, {}, finish=_finish(reply))
        if reply.tells_usage:
            yield Event(data_event(_chunk(reply) | {"choices": [], "usage": _usage(reply)}))
        yield Event(b"data: [DONE]\n\n")

    def whole(self, reply: Reply) -> bytes:
        text = "".join(part.text for part in reply.parts if isinstance(part, Text))
        thought = "".join(part.text for part in reply.parts if isinstance(part, Thinking))
        calls = [part for part in reply.parts if isinstance(part, ToolCall)]
        refused = reply.stop == "refusal"
        message: dict[str, Any] = {
            "role": "assistant",
            "content": None if refused or not text else text,
            "refusal": text if refused and text else None,
            "annotations": [],
        }
        if thought:
            message["reasoning_content"] = thought
        if calls:
            message["tool_calls"] = [
                _call(reply, part, number) | {"function": _function(reply, part)}
                for number, part in enumerate(calls)
            ]
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": _finish(reply),
        }
        top = _chunk(reply) | {"object": "chat.completion", "choices": [choice]}
        return encode(top | {"usage": _usage(reply)})

    def error(self, words: Words, request_id: str, retry_after: float | str | None) -> bytes:
        return encode(openai_error(words))

    def error_event(self, words: Words, reply: Reply, form: ErrorForm) -> bytes:
        return data_event(openai_error(words))


def _chunk(reply: Reply) -> dict[str, Any]:
    return {
        "id": reply.id("chatcmpl-"),
        "object": "chat.completion.chunk",
        "created": reply.at_s,
        "model": reply.model,
        "service_tier": "default",
        "system_fingerprint": "fp_5cr1p7ed00",
    }


def _event(
    reply: Reply, delta: dict[str, Any], *, finish: str | None = None, is_piece: bool = False
) -> Event:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return Event(data_event(_chunk(reply) | {"choices": [choice], "usage": None}), is_piece)


def _call_events(reply: Reply, part: ToolCall, number: int) -> Iterator[Event]:
    if reply.has_objects:
        started = _call(reply, part, number) | {"function": _function(reply, part)}
        yield _event(reply, {"tool_calls": [{"index": number} | started]}, is_piece=True)
        return
    started = _call(reply, part, number) | {"function": {"name": part.name, "arguments": ""}}
    yield _event(reply, {"tool_calls": [{"index": number} | started]})
    for piece in reply.pieces(written(part.arguments)):
        more = {"index": number, "function": {"arguments": piece}}
        yield _event(reply, {"tool_calls": [more]}, is_piece=True)


def _call(reply: Reply, part: ToolCall, number: int) -> dict[str, Any]:
    made: dict[str, Any] = {"id": part.id or reply.id("call_", number), "type": "function"}
    if part.signature:
        # The field that relays to Google's API use for it.
        made["extra_content"] = {"google": {"thought_signature": part.signature}}
    return made


def _function(reply: Reply, part: ToolCall) -> dict[str, Any]:
    arguments = part.arguments if reply.has_objects else written(part.arguments)
    return {"name": part.name, "arguments": arguments}


def _details(part: Thinking, number: int) -> dict[str, Any]:
    if part.hidden:
        return {"type": "reasoning.encrypted", "data": part.signature, "index": number}
    return {"type": "reasoning.text", "signature": part.signature, "index": number}


def _finish(reply: Reply) -> str:
    if reply.stop == "refusal" and not reply.parts:
        return "content_filter"
    return _FINISH.get(reply.stop, "stop")


def _usage(reply: Reply) -> dict[str, Any]:
    usage = reply.usage
    return {
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": usage.output,
        "total_tokens": reply.prompt_tokens + usage.output,
        "prompt_tokens_details": {
            "cached_tokens": usage.cache_read,
            "cache_write_tokens": usage.cache_write,
            "audio_tokens": 0,
        },
        "completion_tokens_details": {
            "reasoning_tokens": reply.thinking_tokens,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
