"""Which commands can run in the home of a remote gateway. Pure, and cheap to import."""

from __future__ import annotations

from collections.abc import Sequence

_ALL: tuple[str, ...] = ()
COMMANDS: dict[str, tuple[str, ...]] = {
    "sessions": ("list", "show", "search", "tree", "export", "send", "rename", "delete", "path"),
    "approvals": ("pending", "resolve", "get", "log", "suggest", "allowlist"),
    "heartbeat": ("status", "run", "pause", "resume"),
    "ps": _ALL,
    "logs": _ALL,
    "kill": _ALL,
}
"""Commands and their allowed sub-commands; others read local files or prompt at the terminal."""
_HERE = ("--config", "--here", "-o", "--output", "-f", "--follow", "--screen")
"""Options that refer to the local directory, files or terminal."""


def why_not_here(argv: Sequence[str]) -> str:
    """Why a command line cannot run in the home of the gateway; empty if it can."""
    name, rest = argv[0], argv[1:]
    if name not in COMMANDS:
        return f"{name!r} does not go through a gateway"
    if COMMANDS[name] and (not rest or rest[0] not in COMMANDS[name]):
        return f"{' '.join(argv[:2])!r} does not go through a gateway"
    for word in rest:  # including those after `--`, which may be the value of an option
        option = word.partition("=")[0]
        is_short = len(word) > 2 and word[0] == "-" != word[1] and word[:2] in _HERE
        # Long options may be abbreviated.
        is_long = option[:2] == "--" != option and any(each.startswith(option) for each in _HERE)
        if option in _HERE or is_short or is_long:
            return f"{option} does not go through a gateway"
    return ""
