"""Headers of requests to models: which are allowed, and how several sets are joined."""

from __future__ import annotations

import string
from collections.abc import Mapping

_IN_NAMES = frozenset(string.ascii_letters + string.digits + "!#$%&'*+-.^_`|~")
_FRAMING = frozenset({"connection", "content-length", "host", "transfer-encoding"})
"""Headers that say where a request ends; a wrong one makes it another request."""
_LISTS = frozenset({"anthropic-beta"})
"""Headers whose values add up."""


def bad_name(name: str) -> str:
    """Why a header cannot have this name; empty when it can."""
    if not name or not _IN_NAMES.issuperset(name):
        return f"{name[:80]!r} cannot be the name of a header"
    return f"the header {name} is set by the connection" if name.lower() in _FRAMING else ""


def bad_value(value: str) -> str:
    """Why a text cannot be sent in a header; empty when it can. Never shows the text."""
    for position, char in enumerate(value, 1):
        if not (" " <= char <= "~" or char == "\t" or "\x80" <= char <= "\xff"):
            what = "a line break" if char in "\r\n" else "a character that headers cannot have"
            return f"it holds {what} at position {position}"
    return ""


def join_headers(*sets: Mapping[str, str]) -> dict[str, str]:
    """All of them; of two with one name, in any case, the later one, lists excepted."""
    found: dict[str, tuple[str, str]] = {}
    for headers in sets:
        for name, value in headers.items():
            lower = name.lower()
            if lower in _LISTS and lower in found:
                parts = [*found[lower][1].split(","), *value.split(",")]
                value = ",".join(dict.fromkeys(part.strip() for part in parts if part.strip()))
            found[lower] = (name, value)
    return dict(found.values())
