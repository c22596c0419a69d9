"""Variables that commands inherit from clawkit, and variables that a call must not set, because
they change what a harmless command does. The latter are compared case-insensitively."""

from __future__ import annotations

import re

from clawkit.word_tables import read_words

_TABLE = read_words(__file__, "env_blocklist.txt")
PROXIES = frozenset(_TABLE["proxies"])
HARMLESS = frozenset(_TABLE.pop("harmless"))
"""Passed on to commands, like `PROXIES` in upper or lower case."""
PAGERS = frozenset(_TABLE.pop("pagers"))
"""A call may set these to disable the pager."""
_TABLE["sends connections elsewhere"] += _TABLE.pop("proxies")
_REASONS = {name: what for what, names in _TABLE.items() for name in names}
REFUSED = {name: what for name, what in _REASONS.items() if not name.endswith("*")}
"""Not accepted from a call, with the reason."""
REFUSED_PREFIXES = {name[:-1]: what for name, what in _REASONS.items() if name.endswith("*")}
REFUSED_PATTERNS = {
    r"\w+_(?:ASKPASS|EDITOR|PAGER)": "makes another program run",
    r"BUNDLE_\w+__\w+": "changes where packages come from",
    r"CARGO_TARGET_\w+_(?:LINKER|RUNNER|RUSTFLAGS)": "makes another program run",
    r"ERL_OTP[0-9]+_FLAGS": "loads code into an interpreter",
    r"GST_PLUGIN_\w+": "loads libraries, or says where they are",
}
"""Matched against whole names."""


def why_refused(name: str) -> str:
    """Why a call must not set a variable; empty if it may."""
    name = name.upper()
    return (
        REFUSED.get(name)
        or next((what for start, what in REFUSED_PREFIXES.items() if name.startswith(start)), "")
        or next((what for form, what in REFUSED_PATTERNS.items() if re.fullmatch(form, name)), "")
    )
