"""Which commands only look, so that several of one message can run at the same time.

This decides about order, never about permission. What is not plainly harmless runs alone.
"""

from __future__ import annotations

import re

_PLAIN = re.compile(r"[A-Za-z0-9_./:=@%+,\-~ ]+")
"""Words without quotes, variables, globs, redirections or anything else with a meaning."""
_BETWEEN = re.compile(r"&&|\|\|?|;")
_READERS = frozenset(
    (
        *("sleep", "true", "false", "echo", "pwd", "test", "seq", "whoami", "id", "uname"),
        *("ls", "cat", "head", "tail", "wc", "stat", "du", "df", "basename", "dirname"),
        *("realpath", "readlink", "cmp", "diff", "md5sum", "sha1sum", "sha256sum", "which"),
        *("nproc", "uptime", "ps", "free", "grep", "egrep", "fgrep", "cut", "tr"),
    )
)
"""Programs that change nothing, whatever their options are."""


def only_reads(command: str) -> bool:
    """Whether a command is a chain of plain words, each one of a program that only looks."""
    steps = _BETWEEN.split(command.strip())
    return all(
        (words := step.split()) and words[0] in _READERS and _PLAIN.fullmatch(step)
        for step in steps
    )
