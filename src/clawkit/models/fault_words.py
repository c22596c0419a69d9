"""Reads what a service says when it refuses: JSON in any of many forms, a web page, plain text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from clawkit.redact.masking import regex

MAX_READ = 64 * 1024
"""Bytes of a body that are looked at; what a service has to say is at its beginning."""
_MAX_WORDS = 4_000
_MAX_DEPTH = 8
_MAX_ITEMS = 16

_TEXT_KEYS = ("message", "msg", "status_msg", "error_description", "description", "title")
_NESTED_KEYS = (
    *("error", "errors", "detail", "details", "metadata", "raw", "base_resp", "violations"),
    *("response", "incomplete_details", "cause", "innererror", "fault"),
)
_CODE_KEYS = (
    *("type", "code", "status", "reason", "error_type", "error_code", "errorCode", "status_code"),
    *("__type", "quotaId"),
)
_WAIT_KEYS = ("retryDelay", "retry_after", "retry_after_seconds", "resets_in_seconds")


@dataclass(slots=True)
class Said:
    """What a body says. Not yet fit to be shown: it may hold anything, secrets too."""

    texts: list[str] = field(default_factory=list)
    codes: list[str] = field(default_factory=list)
    """Names and numbers of errors, in lower case."""
    status: int = 0
    """The HTTP status that the body itself names; 0 for none."""
    waits: list[Any] = field(default_factory=list)
    """How long to wait, as it was written."""
    is_page: bool = False
    is_binary: bool = False
    is_json: bool = False

    @property
    def words(self) -> str:
        """The service's own words; a word that was cut in two is left out."""
        words = ": ".join(dict.fromkeys(self.texts))
        if len(words) <= _MAX_WORDS:
            return words
        return words[:_MAX_WORDS].rpartition(" ")[0]

    @property
    def search(self) -> str:
        """Words and codes, in lower case, to look for phrases in."""
        return f"{self.words} {' '.join(self.codes)}".lower().replace("’", "'")


def read_said(body: bytes) -> Said:
    """What a body says; never raises."""
    said = Said()
    text = body[:MAX_READ].decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    if text.startswith("<"):
        said.is_page = True
        title = regex(r"(?is)<title[^>]{0,200}>([^<]{1,400})").search(text)
        if title:
            said.texts.append(" ".join(title[1].split()))
    elif text.count("\0") + text.count("�") > max(2, len(text) // 20):
        said.is_binary = True
    elif not _read_json(text, said):
        said.texts.append(text)
    return said


def _read_json(text: str, said: Said) -> bool:
    if text.startswith(("data:", "event:", ":")):
        line = regex(r"(?m)^data:[ \t]*([\[{].*)$").search(text)
        text = line[1] if line else ""
    value = _decoded(text)
    if value is None:
        return False
    said.is_json = True
    _collect(value, said, _MAX_DEPTH)
    return True


def _decoded(text: str) -> Any:
    """The object or list that a text holds, else None."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def _collect(value: Any, said: Said, depth: int) -> None:
    if depth == 0 or len(said.texts) >= _MAX_ITEMS:
        return
    if isinstance(value, list):
        for item in value[:_MAX_ITEMS]:
            _collect(item, said, depth - 1)
    elif isinstance(value, str):
        inner = _decoded(value)
        if inner is not None:
            _collect(inner, said, depth - 1)
        elif value.strip():
            said.texts.append(value)
    elif isinstance(value, Mapping):
        _each(value, _TEXT_KEYS, lambda item: _collect(_if_str(item), said, depth - 1))
        _each(value, _CODE_KEYS, lambda item: _add_code(item, said))
        _each(value, _WAIT_KEYS, said.waits.append)
        _each(value, _NESTED_KEYS, lambda item: _collect(item, said, depth - 1))


def _each(value: Mapping[str, Any], keys: tuple[str, ...], use: Callable[[Any], None]) -> None:
    for key in keys:
        if (item := value.get(key)) is not None:
            use(item)


def _if_str(item: Any) -> str | None:
    return item if isinstance(item, str) else None


def _add_code(item: Any, said: Said) -> None:
    if isinstance(item, bool) or not isinstance(item, int | str):
        return
    code = str(item)[:80].strip().lower()
    if len(said.codes) < _MAX_ITEMS:
        said.codes.append(code)
    if not said.status and len(code) == 3 and code.isascii() and code.isdigit():
        said.status = int(code) if code[0] in "45" else 0
