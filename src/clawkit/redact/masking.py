"""What is shown instead of a secret, and what already is no secret."""

from __future__ import annotations

import re
from functools import cache

MASK = "***"

# Values that stand for a secret without being one: $NAME, ${NAME}, $(command, ${{ name }}, {name},
# {{ name }}, %s, %(name)s, %NAME%, dots, and what masking itself leaves behind.
_STAND_IN = (
    r"\$(?:[A-Za-z_]\w*|\{[A-Za-z_][\w.]*\}?|\([\w./ -]*\)?|\{\{[\w. ]*\}{0,2}|[0-9@*#?!$])"
    r"[,;.)\]}]?|(?:\$\{[A-Za-z_]\w*\}){2,8}"
    r"|\{[\w.:!\[\]]*\}[,;.)\]]?|\{\{[^{}]{0,80}(?:\}\})?|\{(?:[A-Za-z]+:)?|\[|%\(?\w*\)?[sdrq]"
    r"|%\w+%|\.{2,}|\*+"
    r"|(?:\*\*\*|.{6}….{4})(?:[&,;)\]}].*)?"
    r"|(?i:null|none|nil|true|false|undefined)[,;.)\]}]*"
)


@cache
def regex(pattern: str) -> re.Pattern[str]:
    """A compiled expression, compiled when it is first needed."""
    return re.compile(pattern)


def mask(value: str) -> str:
    """A secret as it may be shown. Long ones keep their ends, so that they can be told apart."""
    return MASK if len(value) < 18 else f"{value[:6]}…{value[-4:]}"


def is_stand_in(value: str) -> bool:
    """Whether a value is a reference, a placeholder or a mask rather than a secret."""
    return regex(_STAND_IN).fullmatch(value) is not None


def conceal(value: str) -> str:
    """A secret of unknown shape as it may be shown: not at all."""
    return value if not value or is_stand_in(value) else MASK


def mask_group(found: re.Match[str]) -> str:
    """For `re.sub`: the match with its last group concealed."""
    group = found.lastindex or 0
    start, end = found.span(group)
    before, after = found.string[found.start() : start], found.string[end : found.end()]
    return f"{before}{conceal(found[group])}{after}"
