"""Arguments that make another program of one that is trusted."""

from __future__ import annotations

import re
from functools import lru_cache

from clawkit.approvals.allow.dangers.sheet import Call, Sheet, find_flag, find_pattern
from clawkit.approvals.allow.dangers.table import SHEETS
from clawkit.approvals.base import Program, Rules
from clawkit.approvals.operands import base_name
from clawkit.text import one_line, printable

_VERSION = re.compile(r"(?:[-.]?\d[\d.]*)?(?:-dbg|-static)?(?:\.(?:basic|tiny|nox|gtk3|js|exe))?\Z")
_TRIPLE = re.compile(r"[a-z0-9_]+-(?:[a-z0-9_]+-)?linux-[a-z0-9]+-", re.ASCII)
_LONGEST = 64
_LONGEST_REASON = 400


def find_danger(program: Program, rules: Rules) -> str:
    """Why the arguments of a trusted program need a person's look all the same; empty when they do
    not.

    For a program that is trusted without a rule for its arguments: what starts others, loads code,
    or reads and writes where one would not expect it. Files may be written where the file tools
    could. Everyday use passes.
    """
    if program.wrapper:
        return ""
    arguments = program.argv[1:]
    patterns = tuple(arg.text for arg in arguments if arg.glob)
    call = Call(program, tuple(arg.text for arg in arguments), rules, patterns)
    seen: list[Sheet] = []
    for path in (program.name, program.resolved, program.real):
        sheet = _sheet(base_name(path))
        if sheet is None or any(sheet is each for each in seen):
            continue
        seen.append(sheet)
        why = find_pattern(program) or find_flag(sheet, call.arguments)
        if not why and sheet.check is not None:
            why = sheet.check(call)
        if why:
            return f"{_shown(base_name(path), 40)}: {_shown(why, _LONGEST_REASON)}"
    return ""


def _shown(text: str, max_chars: int) -> str:
    return one_line(printable(text, keep=""), max_chars)


@lru_cache(maxsize=1024)
def _known(name: str) -> Sheet | None:
    if (found := SHEETS.get(name)) is not None:
        return found
    if name.startswith("git-"):
        return SHEETS["git"]
    return SHEETS.get(_VERSION.sub("", _TRIPLE.sub("", name)))


def _sheet(name: str) -> Sheet | None:
    """What to look for with a program of that name, whatever its version."""
    return _known(name) if len(name) <= _LONGEST else None
