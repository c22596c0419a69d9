"""Paths as language servers write them."""

from __future__ import annotations

import os

_PREFIX = "file://"


def to_uri(path: str) -> str:
    from urllib.parse import quote_from_bytes

    return _PREFIX + quote_from_bytes(os.fsencode(path))


def to_path(uri: str) -> str:
    """The path that a URI names; empty when it does not name a file of this machine.

    Servers spell one path in several ways, so that paths are compared and not URIs.
    """
    from urllib.parse import unquote_to_bytes

    path = uri.removeprefix(_PREFIX).removeprefix("localhost")
    if path == uri or not path.startswith("/"):
        return ""
    return os.fsdecode(unquote_to_bytes(path))
