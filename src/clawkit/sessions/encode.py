"""Encoding of stored messages: redacted, bounded in size, and always decodable."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

import msgspec

from clawkit.content import (
    Assistant,
    Block,
    Image,
    Message,
    Part,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    User,
)
from clawkit.core.catalog import canonical

Redact = Callable[[str], str]

MAX_TEXT = 1024**2  # characters of one message, and bytes of a signature
MAX_DETAILS = 8_192  # bytes
MAX_STRING, MAX_ITEMS = 2_000, 10
MAX_TOKENS = 2**40
_MAX_DEPTH, _MAX_VALUES, _MAX_BITS = 64, 20_000, 1_024
_MARGIN = 8_192  # characters redacted beyond a cut: longer than any secret that spans it
_MAX_KEYS, _MAX_KEY = 50, 40
_NOT_KEPT = "[left out: contents of attachments are not stored]"
_TOO_DEEP, _TOO_MANY = "[left out: nested too deeply]", "[left out: too many values]"
_encode = msgspec.json.Encoder().encode


def decode(body: bytes) -> Message:
    """Decode a stored message. Raises ValueError if it is invalid."""
    return _decoder().decode(body)


@cache
def _decoder() -> msgspec.json.Decoder[Message]:
    """Created on first use: building it costs as much as decoding a few dozen messages."""
    return msgspec.json.Decoder(Message)


def encode(message: Message, redact: Redact | None = None) -> bytes:
    """Without `redact`, secrets must already have been removed."""
    if redact is None and isinstance(message, ToolResult):
        with suppress(TypeError, ValueError, OverflowError, RecursionError):
            small = _encode(message)
            # A short message: nothing in it can exceed a limit.
            if len(small) <= MAX_STRING and small.count(b"[") + small.count(b"{") <= _MAX_DEPTH:
                return small
    packing = _Packing(redact)
    changes: dict[str, Any]
    match message:
        case User():
            ids = tuple(map(sound, message.ids))
            changes = {"content": packing.blocks(message.content), "ids": ids}
            if source := message.source:
                titles = tuple(map(packing.text, source.titles))
                changes["source"] = msgspec.structs.replace(source, titles=titles)
        case ToolResult():
            changes = {
                "call_id": sound(message.call_id),
                "tool": sound(message.tool),
                "content": packing.blocks(message.content),
                "details": bound_details(message.details, redact),
            }
        case Summary():
            changes = {"text": packing.text(message.text)}
        case Assistant():
            changes = {
                "content": tuple(filter(None, map(packing.part, message.content))),
                "model": sound(message.model),
                "api": sound(message.api),
                "usage": bound_usage(message.usage),
                "error": packing.text(message.error),
            }
    return _encode(msgspec.structs.replace(message, **changes))


def sound(text: str) -> str:
    """The text with lone surrogates replaced, so that it can be encoded as UTF-8."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def bound_usage(usage: Usage) -> Usage:
    """Usage with every value in a valid range, whatever the provider reported."""
    counts = usage.input, usage.output, usage.cache_read, usage.cache_write
    if min(counts) >= 0 and max(counts) <= MAX_TOKENS and 0 <= usage.cost < MAX_TOKENS:
        return usage
    sent, received, read, written = (min(max(each, 0), MAX_TOKENS) for each in counts)
    cost = usage.cost if 0 <= usage.cost < MAX_TOKENS else 0.0
    return Usage(sent, received, read, written, cost)


def bound_details(details: Mapping[str, Any], redact: Redact | None = None) -> dict[str, Any]:
    """Details of bounded size. If anything was dropped, `persistedDetailsTruncated` is true and
    `originalDetailKeys` lists the original keys."""
    if not details:
        return {}
    packing = _Packing(redact, max_string=MAX_STRING)
    plain = packing.mapping(details)
    if not packing.is_cut and len(_encode(plain)) <= MAX_DETAILS:
        return plain
    shown = [key[:_MAX_KEY] for key in list(plain)[:_MAX_KEYS]]
    about = {"persistedDetailsTruncated": True, "originalDetailKeys": shown}
    left = MAX_DETAILS - len(_encode(about))
    kept: dict[str, Any] = {}
    for key, value in plain.items():
        few = value[:MAX_ITEMS] if isinstance(value, list) else value
        size = len(_encode({key: few}))
        if size <= left:
            kept[key] = few
            left -= size
    return kept | about


def encode_value(value: Any, redact: Redact | None = None) -> bytes:
    """A JSON value without secrets, of bounded size and depth."""
    return _encode(_Packing(redact).mapping({"value": value})["value"])


def _without_files(call: ToolCall) -> dict[str, Any] | str:
    """The arguments of a call without the contents of files attached to a sub-agent's task."""
    given = call.arguments
    if canonical(call.name) != "sessions_spawn":
        return given
    if isinstance(given, str):
        return _NOT_KEPT if "attachments" in given.lower() else given
    return {key: _NOT_KEPT if "attachments" in key.lower() else given[key] for key in given}


class _Packing:
    """Bounds one message, with a budget of characters and values for all of it."""

    def __init__(self, redact: Redact | None, max_string: int = MAX_TEXT) -> None:
        self._redact = redact
        self._max_string = max_string
        self._left = MAX_TEXT
        self._values = _MAX_VALUES
        self.is_cut = False

    def text(self, text: str) -> str:
        room = min(self._left, self._max_string)
        if len(text) <= room:
            self._left -= len(text)
            return sound(self._redact(text) if self._redact else text)
        self.is_cut = True
        self._left -= room
        looked_at = text[: room + _MARGIN]
        kept = self._redact(looked_at) if self._redact else looked_at
        if len(looked_at) < len(text):
            # A secret that continues past the end of the redacted part may not be recognized.
            kept = kept[: max(0, len(kept) - _MARGIN)]
        kept = sound(kept[:room])
        return f"{kept}\n[… {len(text) - len(kept):,} more characters were not stored]"

    def blocks(self, content: tuple[Block, ...]) -> tuple[Block, ...]:
        return tuple(
            Text(self.text(block.text))
            if isinstance(block, Text)
            else Image(sound(block.data), sound(block.mime_type))
            for block in content
        )

    def part(self, part: Part) -> Part | None:
        signature = sound(part.signature) if len(part.signature) <= MAX_TEXT else ""
        if isinstance(part, Text):
            text = self.text(part.text)
            return Text(text, signature if text == part.text else "")
        if isinstance(part, ToolCall):
            given = _without_files(part)
            arguments = self.text(given) if isinstance(given, str) else self.mapping(given)
            return ToolCall(sound(part.id), sound(part.name), arguments, signature)
        text = self.text(part.text)
        # A signature covers the exact text, and hidden thinking is useless without one.
        signature = signature if text == part.text else ""
        return None if part.hidden and not signature else Thinking(text, signature, part.hidden)

    def mapping(self, values: Mapping[str, Any]) -> dict[str, Any]:
        plain = self._plain(values, 0)
        return plain if isinstance(plain, dict) else {"leftOut": plain}

    def _plain(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else None
        if isinstance(value, int):
            return value if value.bit_length() <= _MAX_BITS else self._leave_out(_TOO_MANY)
        if not isinstance(value, (dict, list, tuple, Mapping)):
            return self.text(str(value))
        if depth >= _MAX_DEPTH:
            return self._leave_out(_TOO_DEEP)
        self._values -= len(value)
        if self._values < 0:
            return self._leave_out(_TOO_MANY)
        if isinstance(value, (list, tuple)):
            return [self._plain(item, depth + 1) for item in value]
        return {self.text(str(key)): self._plain(item, depth + 1) for key, item in value.items()}

    def _leave_out(self, why: str) -> str:
        self.is_cut = True
        return why
