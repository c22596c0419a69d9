"""OpenAI's Responses API, and the services that imitate it. Nothing is left on the server."""

from __future__ import annotations

from typing import Any

from clawkit.content import Assistant, Image, Text, Thinking, ToolCall, ToolResult
from clawkit.models.base import Decoder, Request
from clawkit.models.wire.declared import call_as_text, result_as_text, text_of
from clawkit.models.wire.items import (
    IMAGE_FOLLOWS,
    RESULT_IMAGES,
    Piece,
    function_of,
    images_of,
    is_own,
)
from clawkit.models.wire.openai import OpenAiWire
from clawkit.models.wire.responses_read import PHASES, ResponsesDecoder
from clawkit.models.wire.shared import NO_IMAGE, data_url, decode, encode

_LEAST_TOKENS = 16
_ENCRYPTED = "reasoning.encrypted_content"


class ResponsesWire(OpenAiWire):
    """One conversation with one endpoint."""

    PATH = "/responses"
    FORM = "openai-responses"
    LIST = "input"
    TEXT = "input_text"

    def decoder(self) -> Decoder:
        return ResponsesDecoder(self._endpoint)

    def _says_system(self, request: Request) -> bool:
        return not self._endpoint.compat.supports_instructions and super()._says_system(request)

    def _system_item(self, system: str) -> bytes:
        return encode({"role": self._dialect.system_role, "content": system})

    def _fields(self, request: Request, limit: int | None) -> dict[str, Any]:
        dialect, endpoint = self._dialect, self._endpoint
        fields: dict[str, Any] = {"model": endpoint.ref.id}
        if endpoint.compat.supports_instructions and request.system.strip():
            fields["instructions"] = request.system
        if dialect.store:
            fields["store"] = False
        if limit is not None:
            fields["max_output_tokens"] = max(limit, _LEAST_TOKENS)
        if endpoint.num_ctx is not None:
            fields["options"] = {"num_ctx": endpoint.num_ctx}
        return {
            **fields,
            **dialect.cache_fields(request),
            **self._reasoning_fields(request),
        }

    def _reasoning_fields(self, request: Request) -> dict[str, Any]:
        dialect, endpoint = self._dialect, self._endpoint
        if not endpoint.facts.reasoning:
            return {}
        fields: dict[str, Any] = {"include": [_ENCRYPTED]}
        reasoning: dict[str, str] = {}
        word = dialect.effort(request.thinking)
        if dialect.takes_effort and word:
            reasoning["effort"] = word
        if dialect.is_on(request.thinking) and endpoint.is_native:
            reasoning["summary"] = "auto"
        return fields | ({"reasoning": reasoning} if reasoning else {})

    def _answer(self, message: Assistant) -> bytes:
        return b",".join(map(encode, self._assistant(message)))

    def _image(self, image: Image) -> dict[str, Any]:
        return {"type": "input_image", "image_url": data_url(image), "detail": "auto"}

    def _assistant(self, message: Assistant) -> list[dict[str, Any]]:
        own = is_own(message, self._endpoint)
        items: list[dict[str, Any]] = []
        thoughts: list[dict[str, Any]] = []
        for part in message.content:
            if isinstance(part, Thinking):
                thoughts += self._thought(part) if own else []
                continue
            item = self._call(part) if isinstance(part, ToolCall) else _said(part, own=own)
            if item:
                # A thought is sent with what came of it only: on its own it is refused.
                items += [*thoughts, item]
                thoughts = []
        return items

    def _thought(self, part: Thinking) -> list[dict[str, Any]]:
        compat = self._endpoint.compat
        if compat.requires_thinking_as_text:
            return [{"role": "assistant", "content": part.text}] if part.text.strip() else []
        if compat.strict_message_keys or not part.signature.startswith("{"):
            return []
        try:
            item = decode(part.signature)
        except ValueError:
            return []
        is_usable = item.get("encrypted_content") or not self._endpoint.is_native
        return [item] if item.get("type") == "reasoning" and is_usable else []

    def _call(self, call: ToolCall) -> dict[str, Any]:
        if not self._dialect.takes_tools:
            return {"role": "assistant", "content": call_as_text(call)}
        call_id = self._dialect.call_id(call.id)
        return {"type": "function_call", "call_id": call_id, **function_of(call)}

    def _result(self, result: ToolResult) -> Piece:
        if not self._dialect.takes_tools:
            text = result_as_text(result)
            return Piece("user", encode({"role": "user", "content": text}))
        images = images_of(result.content) if self._endpoint.facts.images else []
        output: object = text_of(result, IMAGE_FOLLOWS if images else NO_IMAGE)
        after = b""
        if images and self._endpoint.is_native:
            blocks = [each for each in result.content if isinstance(each, Image) or each.text]
            output = self._parts(blocks)
        elif images:
            parts = self._parts([Text(RESULT_IMAGES), *images])
            after = encode({"role": "user", "content": parts})
        call_id = self._dialect.call_id(result.call_id)
        item = {"type": "function_call_output", "call_id": call_id, "output": output}
        return Piece("result", encode(item), after)


def _said(part: Text, *, own: bool) -> dict[str, Any]:
    if not part.text.strip():
        return {}
    phase = {"phase": part.signature} if own and part.signature in PHASES else {}
    return {"role": "assistant", "content": part.text, **phase}
