"""What is said and done, as spans hold it: masked, bounded, in the form of the conventions."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from clawkit.config.sections.diagnostics import CaptureContent
from clawkit.content import Assistant, Image, Part, Text, Thinking, ToolCall, ToolResult, User
from clawkit.redact import Redactor
from clawkit.text import cut, one_line

MAX_TEXT = 4_000
"""Characters of one text."""
MAX_PARTS = 64
"""Texts, calls and results of one attribute; the last ones are kept."""
MAX_NAME = 200


class Content:
    """Writes messages for spans; what may not be shown is left out."""

    def __init__(self, capture: CaptureContent, redactor: Redactor) -> None:
        self.capture = capture
        self._redactor = redactor

    def input(self, messages: Iterable[User | ToolResult]) -> str:
        """What the model is told."""
        return _json([part for each in messages for part in self._told(each)][-MAX_PARTS:])

    def output(self, answer: Assistant) -> str:
        """What it answers."""
        parts = [self._part(each) for each in answer.content[-MAX_PARTS:]]
        return _json([{"role": "assistant", "parts": parts, "finish_reason": answer.stop}])

    def text(self, text: str) -> str:
        """Some text on its own. Masked before it is cut: half a secret has no shape."""
        return encodable(cut(self._redactor.strict(text), MAX_TEXT))

    def value(self, value: Any) -> str:
        """Parameters as JSON."""
        return encodable(cut(_json(self._redactor.data(value, strict=True)), MAX_TEXT))

    def _told(self, message: User | ToolResult) -> Iterable[dict[str, Any]]:
        if isinstance(message, User):
            yield {"role": "user", "parts": [self._block(each) for each in message.content]}
        else:
            part = {"type": "tool_call_response", "id": name(message.call_id)}
            if self.capture.tool_outputs:
                texts = (each.text for each in message.content if isinstance(each, Text))
                part["response"] = self.text("\n".join(texts))
            yield {"role": "tool", "parts": [part]}

    def _block(self, block: Text | Image) -> dict[str, Any]:
        if isinstance(block, Text):
            return {"type": "text", "content": self.text(block.text)}
        return {"type": "blob", "modality": "image", "mime_type": name(block.mime_type)}

    def _part(self, part: Part) -> dict[str, Any]:
        match part:
            case Text(text=text):
                return {"type": "text", "content": self.text(text)}
            case Thinking(text=text):
                return {"type": "reasoning", "content": self.text(text)}
            case ToolCall(id=call_id, name=tool, arguments=arguments):
                said = {"type": "tool_call", "id": name(call_id), "name": name(tool)}
                if self.capture.tool_inputs:
                    said["arguments"] = self.value(arguments)
                return said


def name(text: str) -> str:
    """A name from outside, as an attribute can have it."""
    return encodable(one_line(text, MAX_NAME))


def encodable(text: str) -> str:
    """Text without the half characters that no collector could read."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
