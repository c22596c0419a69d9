"""The last step of every call: redacts secrets, limits sizes, and replaces malformed content."""

from __future__ import annotations

import binascii
from collections.abc import Mapping, Sequence
from typing import Any

from clawkit.call_summary import ENDING, has_failed
from clawkit.content import Block, Image, Text
from clawkit.core.result import Result, error_message, to_text
from clawkit.redact import Redactor
from clawkit.text import cut, cut_start, fit, one_line, result_cap, weigh, weight_cap

EVENT_TEXT = 8_000
EVENT_DETAIL = 2_000
EVENT_ERROR = 400
OUTPUT = "aggregated"
"""The detail with the output of a command; its end matters most."""
_SCALARS = (bool, int, float, type(None))


def finalize(result: Result, *, redactor: Redactor, context_window: int | None) -> Result:
    """The result for the model; the same object if nothing had to change."""
    details = redactor.data(result.details)
    blocks = [_checked(block, redactor) for block in result.content]
    if details is not result.details:
        blocks = _redact_repeated_details(blocks, result, details)
    blocks = _fitted(blocks, context_window)
    same = all(new is old for new, old in zip(blocks, result.content, strict=True))
    if same and details is result.details:
        return result
    return Result(tuple(blocks), details)


def for_event(result: Result, redactor: Redactor, *, brief: bool = False) -> dict[str, Any]:
    """The result for listeners: shortened, without images, strictly redacted. If `brief`, only
    whether and why the call or its command failed."""
    event: dict[str, Any] = {} if brief else _shown(result, redactor)
    if brief and not result.is_error and has_failed({"details": result.details}):
        ended = {key: result.details.get(key) for key in ENDING}
        event["details"] = redactor.data(ended, strict=True)
    event["isError"] = result.is_error
    if event["isError"]:
        message = redactor.strict(error_message(result.details) or result.as_text())
        event["error"] = one_line(message.strip().partition("\n")[0], EVENT_ERROR)
    return event


def _shown(result: Result, redactor: Redactor) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    for block in result.content:
        if isinstance(block, Text):
            content.append(Text(cut(redactor.strict(block.text), EVENT_TEXT)).to_json())
        else:
            size = len(block.data) * 3 // 4 - block.data[-2:].count("=")
            kind = one_line(block.mime_type, 60)
            content.append({"type": "image", "mimeType": kind, "bytes": size, "omitted": True})
    return {"content": content, "details": _bounded(redactor.data(result.details, strict=True))}


def params_for_event(params: Mapping[str, Any], redactor: Redactor) -> Any:
    """A call's parameters for listeners: a copy, shortened and strictly redacted."""
    return _bounded(redactor.data(params, strict=True))


def _checked(block: Block, redactor: Redactor) -> Block:
    if isinstance(block, Image):
        reason = ""
        if not block.mime_type.lower().startswith("image/"):
            reason = f"its type is {one_line(block.mime_type, 60)!r}, which is not an image"
        elif not block.data:
            reason = "it has no data"
        else:
            try:
                binascii.a2b_base64(block.data, strict_mode=True)
            except ValueError:
                reason = "its data is not base64"
        return Text(f"[an image was left out: {reason}]") if reason else block
    text = redactor.text(block.text)
    if not text.isascii():
        # File names can contain bytes that cannot be encoded.
        encodable = text.encode("utf-8", "replace").decode()
        text = text if encodable == text else encodable
    return block if text is block.text else Text(text)


def _redact_repeated_details(blocks: Sequence[Block], result: Result, details: Any) -> list[Block]:
    """Mask in blocks that repeat the details as JSON what was masked in the details."""
    try:
        repeated = to_text(result.details)
    except TypeError:
        # Details that are not JSON cannot have been repeated as JSON.
        return list(blocks)
    return [
        Text(to_text(details)) if isinstance(old, Text) and old.text == repeated else new
        for new, old in zip(blocks, result.content, strict=True)
    ]


def _fitted(blocks: list[Block], context_window: int | None) -> list[Block]:
    max_chars, max_weight = result_cap(context_window), weight_cap(context_window)
    texts = [block.text for block in blocks if isinstance(block, Text)]
    if sum(map(len, texts)) <= max_chars and sum(map(weigh, texts)) <= max_weight:
        return blocks
    chars = iter(_shares(list(map(len, texts)), max_chars))
    weights = iter(_shares(list(map(weigh, texts)), max_weight))
    return [
        Text(fit(block.text, next(chars), next(weights))) if isinstance(block, Text) else block
        for block in blocks
    ]


def _shares(sizes: Sequence[int], total: int) -> list[int]:
    """Divide a budget by size; a quarter is divided evenly, so that small parts survive."""
    even = total // (4 * len(sizes))
    floors = [min(size, even) for size in sizes]
    left = max(0, min(sum(sizes), total) - sum(floors))
    wanted = sum(sizes) - sum(floors)
    return [
        floor + (size - floor) * left // max(1, wanted)
        for floor, size in zip(floors, sizes, strict=True)
    ]


def _bounded(value: Any) -> Any:
    """A JSON value with long strings cut. Its depth is already bounded by redaction."""
    if isinstance(value, str):
        return cut(value, EVENT_DETAIL)
    if isinstance(value, (list, tuple)):
        return [_bounded(item) for item in value]
    # Whether something is a Mapping is slow to find out.
    if not isinstance(value, _SCALARS) and isinstance(value, (dict, Mapping)):
        return {
            key: cut_start(item, EVENT_DETAIL)
            if key == OUTPUT and isinstance(item, str)
            else _bounded(item)
            for key, item in value.items()
        }
    return value
