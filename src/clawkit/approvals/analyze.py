"""What a command does: every program it could start, and the command rebuilt from that."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache

from clawkit.approvals.base import Analysis
from clawkit.approvals.programs import Finder, settle
from clawkit.approvals.rebuild import Meaning
from clawkit.approvals.shell.nodes import Doubt
from clawkit.approvals.shell.parse import parse
from clawkit.approvals.simple import Around, Shared
from clawkit.approvals.walk import Walk
from clawkit.text import one_line

# With one of these, a shell does something before the command, or reads it differently.
_STEERING = frozenset(
    ("BASH_ENV", "BASH_COMPAT", "BASHOPTS", "GLOBIGNORE", "LOCPATH", "POSIXLY_CORRECT", "SHELLOPTS")
)
_PLAIN_LOCALE = re.compile(r"(?:C|POSIX|.*\.(?:utf-?8)(?:@\w*)?)?", re.IGNORECASE)
"""Where every byte of a letter beyond ASCII is beyond ASCII too."""


def analyze(
    command: str, *, cwd: str, env: Mapping[str, str], assigned: Collection[str] = ()
) -> Analysis:
    """Find every program that a command could start. Raises nothing about the command: what is
    not understood is the `doubt`, with everything that was understood before it.

    `env` is the whole environment that the command will have; `assigned` are the variables in it
    that the call has set.
    """
    shared = Shared(env, Finder(env), dict.fromkeys(assigned))
    try:
        _check(env)
        walk = Walk(command, shared)
        around = Around(settle(_plain(cwd)) or None, "empty", _meaning(env))
        walk.script(parse(command), around)
        rebuilt = walk.rebuilt.finish()
        _check_letters(f"{command}{rebuilt}", env)
    except Doubt as doubt:
        # It is kept; what it was raised from need not be.
        plain = Doubt(doubt.reason, doubt.at, doubt.code)
        return Analysis(command, tuple(shared.segments), doubt=plain)
    return Analysis(command, tuple(shared.segments), rebuilt)


def _check(env: Mapping[str, str]) -> None:
    # Without one, and in entries that are not absolute, the shell looks where nobody else does.
    if not _is_absolute(env.get("PATH", "")):
        raise Doubt("PATH has a directory that is not absolute, or none at all", 0, "environment")
    if _STEERING.isdisjoint(env) and "BASH_FUNC_" not in " ".join(env):
        return
    for name in env:
        if name in _STEERING or name.startswith("BASH_FUNC_"):
            why = f"the environment has {one_line(name, 40)}, which steers the shell"
            raise Doubt(why, 0, "environment")


@lru_cache(maxsize=16)
def _is_absolute(path: str) -> bool:
    return all(folder.startswith("/") for folder in path.split(":"))


def _check_letters(text: str, env: Mapping[str, str]) -> None:
    if text.isascii():
        return
    locale = env.get("LC_ALL") or env.get("LC_CTYPE") or env.get("LANG") or ""
    if not _PLAIN_LOCALE.fullmatch(locale):
        why = f"letters beyond ASCII may be read differently in the locale {one_line(locale, 40)}"
        raise Doubt(why, 0, "locale")


def _meaning(env: Mapping[str, str]) -> Meaning:
    return Meaning({}, _plain(env.get("HOME", "")))


def _plain(path: str) -> str:
    """A path that can be used; empty for any other."""
    return path if path.startswith("/") and "\0" not in path else ""
