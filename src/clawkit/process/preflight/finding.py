"""What a look at a script tells, and how far it goes."""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_CHARS = 524_288
"""What a script may have to be looked at."""
PIECE_CHARS = 60
"""How much of a script a finding repeats."""

SHELL_SHEBANG = re.compile(
    r"\ufeff?#![ \t]*+(?:/\S{0,80}/)?(?:env[ \t]+(?:-\S{1,10}[ \t]+)?)?(?:ba|da|z|k|a)?sh(?=\s|$)"
)


class Finding(NamedTuple):
    """A piece of a script that its language does not have."""

    line: int
    text: str
    """The piece, cut short."""
    what: str
    """What it is, such as `a shell variable`."""
    fix: str
    """What to write instead: a sentence."""
