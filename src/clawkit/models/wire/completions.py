"""OpenAI's Chat Completions API, and all the services that imitate it."""

from __future__ import annotations

from typing import Any

from clawkit.content import Assistant, Image, Summary, Text, Thinking, ToolResult, User
from clawkit.models.base import Decoder, Request
from clawkit.models.wire.completions_read import CompletionsDecoder
from clawkit.models.wire.declared import call_as_text, result_as_text, text_of
from clawkit.models.wire.items import (
    IMAGE_FOLLOWS,
    RESULT_IMAGES,
    Piece,
    blocks_of,
    function_of,
    images_of,
    is_own,
    name_of,
)
from clawkit.models.wire.openai import OpenAiWire
from clawkit.models.wire.shared import NO_IMAGE, data_url, decode, encode

_MARK = {"cache_control": {"type": "ephemeral"}}
_FIELDS = frozenset({"reasoning_content", "reasoning", "reasoning_text"})


class CompletionsWire(OpenAiWire):
    """One conversation with one endpoint."""

    PATH = "/chat/completions"
    FORM = "openai"
    LIST = "messages"
    TEXT = "text"

    def decoder(self) -> Decoder:
        return CompletionsDecoder(self._endpoint)

    def _system_item(self, system: str) -> bytes:
        content: object = system
        if self._dialect.cache_marks:
            content = [{"type": "text", "text": system, **_MARK}]
        return encode({"role": self._dialect.system_role, "content": content})

    def _marked(self, request: Request, pieces: list[Piece]) -> list[Piece]:
        """The pieces with a cache mark at the last text of the user."""
        if not self._dialect.cache_marks:
            return pieces
        for at in range(len(pieces) - 1, -1, -1):
            message = request.messages[at]
            if pieces[at].kind == "user" and isinstance(message, User | Summary):
                parts = self._parts(blocks_of(message))
                texts = [part for part in parts if part["type"] == "text"]
                if texts:
                    texts[-1].update(_MARK)
                    marked = Piece("user", encode({"role": "user", "content": parts}))
                    return [*pieces[:at], marked, *pieces[at + 1 :]]
        return pieces

    def _fields(self, request: Request, limit: int | None) -> dict[str, Any]:
        dialect, endpoint = self._dialect, self._endpoint
        fields: dict[str, Any] = {"model": endpoint.ref.id}
        if dialect.usage:
            fields["stream_options"] = {"include_usage": True}
        if dialect.store:
            fields["store"] = False
        if limit is not None:
            fields[dialect.max_tokens_field] = limit
        if endpoint.num_ctx is not None:
            fields["options"] = {"num_ctx": endpoint.num_ctx}
        return {
            **fields,
            **dialect.cache_fields(request),
            **dialect.thinking_fields(request.thinking),
        }

    def _answer(self, message: Assistant) -> bytes:
        item = self._assistant(message)
        return encode(item) if item else b""

    def _image(self, image: Image) -> dict[str, Any]:
        return {"type": "image_url", "image_url": {"url": data_url(image)}}

    def _assistant(self, message: Assistant) -> dict[str, Any]:
        """Nothing for a message that says nothing: one without text or calls."""
        dialect, compat = self._dialect, self._endpoint.compat
        thoughts = [part for part in message.content if isinstance(part, Thinking)]
        thoughts = thoughts if is_own(message, self._endpoint) else []
        text = message.text
        if compat.requires_thinking_as_text:
            text = "\n\n".join(filter(None, (*(part.text for part in thoughts), text)))
        calls = message.calls
        if not dialect.takes_tools:
            text = "\n".join(filter(None, (text, *map(call_as_text, calls))))
            calls = ()
        if not text.strip() and not calls:
            return {}
        empty = "" if compat.requires_string_content else None
        item: dict[str, Any] = {"role": "assistant", "content": text or empty}
        if calls:
            item["tool_calls"] = [
                {"id": dialect.call_id(call.id), "type": "function", "function": function_of(call)}
                for call in calls
            ]
        if dialect.keeps_thinking:
            item |= _thinking_fields(thoughts)
        if dialect.needs_thinking and calls:
            item.setdefault("reasoning_content", "")
        return item

    def _result(self, result: ToolResult) -> Piece:
        if not self._dialect.takes_tools:
            text = result_as_text(result)
            return Piece("user", encode({"role": "user", "content": text}))
        images = images_of(result.content) if self._endpoint.facts.images else []
        item: dict[str, Any] = {
            "role": "tool",
            "tool_call_id": self._dialect.call_id(result.call_id),
            "content": text_of(result, IMAGE_FOLLOWS if images else NO_IMAGE),
        }
        if self._endpoint.compat.requires_tool_result_name:
            item["name"] = name_of(result.tool)
        after = b""
        if images:
            parts = self._parts([Text(RESULT_IMAGES), *images])
            after = encode({"role": "user", "content": parts})
        return Piece("result", encode(item), after)


def _thinking_fields(thoughts: list[Thinking]) -> dict[str, Any]:
    """Thinking in the field that it came in."""
    for thought in thoughts:
        if details := _details(thought.signature):
            return {"reasoning_details": details}
    text = "\n".join(part.text for part in thoughts if part.text)
    field = next((part.signature for part in thoughts if part.signature in _FIELDS), "")
    return {field or "reasoning_content": text} if text else {}


def _details(signature: str) -> list[Any]:
    if not signature.startswith("["):
        return []
    try:
        found = decode(signature)
    except ValueError:
        return []
    return found if isinstance(found, list) else []
