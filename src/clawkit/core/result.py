"""The result of a call."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clawkit.content import Block, Image, Text
from clawkit.core.argument_checks import check_type
from clawkit.errors import ClawkitError, ToolAuthorizationError, ToolError

MAX_DETAILS = 100_000
_PLAIN = frozenset((str, int, float, bool, type(None)))

FAILED = frozenset(
    (
        *("error", "failed", "failure", "invalid", "timeout", "timed_out", "unavailable"),
        *("approval-unavailable", "blocked", "denied", "forbidden", "disabled"),
        *("aborted", "cancelled", "canceled", "killed"),
    )
)
"""Values of `details["status"]` that mean failure."""


@dataclass(frozen=True, slots=True)
class Result:
    """Blocks for the model, and details (a JSON object) for programs.

    `is_error` depends on the details `status`, `ok`, `success`, `error`, `timedOut` and `exitCode`.
    """

    content: tuple[Block, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def text(cls, text: str, **details: Any) -> Result:
        """A result with one text for the model, and details for programs."""
        check_type("text", text, str, "a text")
        return cls((Text(text),), details)

    @classmethod
    def json(cls, payload: Mapping[str, Any]) -> Result:
        """A result with an object both as text and as details. Raises TypeError if it is not
        JSON."""
        return cls((Text(to_text(payload)),), payload)

    @classmethod
    def error(cls, tool: str, message: str, **details: Any) -> Result:
        """The result of a failed call. Tools raise `ToolError` instead."""
        return cls.json({"status": "error", "tool": tool, "error": message, **details})

    @classmethod
    def blocked(cls, tool: str, reason: str, denied: str, code: int = 403, **more: Any) -> Result:
        """The result of a refused call; `denied` is the kind of refusal, for programs."""
        details = {"tool": tool, "deniedReason": denied, "reason": reason, "code": code, **more}
        return cls.text(reason, status="blocked", **details)

    @classmethod
    def of(cls, value: object, tool: str) -> Result:
        """Convert a tool's return value.

        Accepts a result, text, blocks, `{"content": [blocks], "details": {…}}`, None, or any other
        JSON value, which becomes text. Raises TypeError for anything else.
        """
        if isinstance(value, str):
            return cls.text(value)
        if value is None:
            return cls.json({"status": "ok", "tool": tool})
        if isinstance(value, (Text, Image)):
            return cls((value,))
        try:
            if isinstance(value, Result):
                return _checked(value)
            if isinstance(value, Mapping):
                return _from_shape(value) or cls.json(value)
            if blocks := _to_blocks(value):
                return cls(blocks)
            return cls((Text(to_text(value)),), {"value": value})
        except TypeError as error:
            raise TypeError(f"the tool {tool!r} returned an invalid result: {error}") from None

    @property
    def is_error(self) -> bool:
        """Whether the call failed, according to the details. The first clear sign wins."""
        details = self.details
        if not details:
            return False
        ok, success = details.get("ok"), details.get("success")
        if ok is False or success is False:
            return True
        status = str(details.get("status", "")).strip().lower()
        if status in FAILED and ok is not True and success is not True:
            return True
        if details.get("timedOut") is True or details.get("error"):
            return True
        code = details.get("exitCode")
        return status != "completed" and isinstance(code, (int, float)) and code != 0

    def as_text(self) -> str:
        """The text blocks, joined by newlines."""
        return "\n".join(block.text for block in self.content if isinstance(block, Text))

    def to_json(self) -> dict[str, Any]:
        """`{"content": […], "details": {…}}`, as printed and sent."""
        content = [block.to_json() for block in self.content]
        return {"content": content, "details": dict(self.details)}


def error_message(details: Mapping[str, Any]) -> str:
    """Why a call failed, in words: `message` where `error` is a code or an object; empty if the
    details do not say."""
    error = details.get("error")
    said = error.get("message") if isinstance(error, dict) else error and details.get("message")
    return next((each for each in (said, error) if each and isinstance(each, str)), "")


def to_text(value: object) -> str:
    """A JSON value as text for the model. Raises TypeError if it is not JSON."""
    plain = dict(value) if isinstance(value, Mapping) else value
    try:
        return json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"a value of type {type(value).__name__} is not JSON ({error})") from None


def _checked(result: Result) -> Result:
    for block in result.content:
        if not isinstance(block, (Text, Image)):
            raise TypeError(f"its content has a {type(block).__name__}, not a block")
    if not isinstance(result.details, (dict, Mapping)):
        raise TypeError(f"its details are a {type(result.details).__name__}, not an object")
    _bound(result.details)
    return result


def _bound(details: Mapping[str, Any]) -> None:
    """Refuse circular or endless details before anything walks them."""
    level: list[Any] = [details]
    nodes = 0
    while level:
        others = (node for node in level if type(node) not in _PLAIN)
        inner = [node for node in others if isinstance(node, (dict, list, tuple, Mapping))]
        nodes += sum(map(len, inner))
        if nodes > MAX_DETAILS:
            raise TypeError(f"its details are circular or have more than {MAX_DETAILS} values")
        level = []
        for node in inner:
            level += node if isinstance(node, (list, tuple)) else node.values()


def _from_shape(value: Mapping[str, Any]) -> Result | None:
    """The result that a mapping describes, its other keys added to the details; None for plain
    data."""
    blocks = _to_blocks(value.get("content"))
    if blocks is None:
        return None
    details = value.get("details")
    if details is not None and not isinstance(details, Mapping):
        raise TypeError(f"its details are a {type(details).__name__}, not an object")
    beside = {key: item for key, item in value.items() if key not in ("content", "details")}
    details = {**beside, **(details or {})}
    to_text(details)
    return Result(blocks, details)


def _to_blocks(content: object) -> tuple[Block, ...] | None:
    if not isinstance(content, Sequence) or isinstance(content, (str, bytes)):
        return None
    blocks: list[Block] = []
    for item in content:
        match item:
            case Text() | Image():
                blocks.append(item)
            case {"type": "text", "text": str(text)}:
                blocks.append(Text(text))
            case {"type": "image", "data": str(data), "mimeType": str(mime_type)}:
                blocks.append(Image(data, mime_type))
            case _:
                return None
    return tuple(blocks)


log = logging.getLogger(__name__)


def failure(tool: str, error: Exception) -> Result:
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, ToolAuthorizationError):
        return Result.blocked(tool, str(error), error.reason, error.status)
    if isinstance(error, ClawkitError):
        code = error.status if isinstance(error, ToolError) else 500
        return Result.error(tool, str(error), code=code)
    log.debug("%s failed", tool, exc_info=error)
    try:
        words = str(error)
    except Exception:  # noqa: BLE001  # a foreign class, whose __str__ failed
        words = ""
    return Result.error(tool, f"{type(error).__name__}: {words or 'no message'}", code=500)
