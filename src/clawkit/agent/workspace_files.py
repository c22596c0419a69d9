"""Files that people write for agents: AGENTS.md and the like, from the workspace, bounded."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from typing import NamedTuple

from clawkit.text import cut

MAX_CHARS = 20_000
MAX_TOTAL_CHARS = 60_000
NAMES = (
    "AGENTS.md",
    "SOUL.md",
    "IDENTITY.md",
    "USER.md",
    "TOOLS.md",
    "MEMORY.md",
    "BOOTSTRAP.md",
)
# What a person who reads the file does not see must not be said to the model either. Characters
# that join others into emoji and syllables stay.
_INVISIBLE = (
    "[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b"
    "\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff9-\ufffb"
    "\U000e0000-\U000e0fff]"
)
# A line that another one overwrites on a screen is a line of its own.
_LINE_ENDS = "\r\n?|[\x0b\x0c\x85\u2028\u2029]"
_LEAST_CHARS = 200
"""A file of which less would be left is left out."""
STAND_IN = ("AGENTS.md", "CLAUDE.md")
"""Where the first is missing, the second is taken."""


class WorkspaceFile(NamedTuple):
    """A file as it goes into the prompt."""

    name: str
    text: str


def read_workspace_files(
    workspace: str,
    names: tuple[str, ...] = NAMES,
    *,
    max_chars: int = MAX_CHARS,
    max_total_chars: int = MAX_TOTAL_CHARS,
    redact: Callable[[str], str] = str,
) -> list[WorkspaceFile]:
    """Those that are there and say something, in order, cut to what they may take in all.

    `redact` takes out what no model may read.
    """
    found: list[WorkspaceFile] = []
    left = max_total_chars
    for name in names:
        text = _read(workspace, name, max_chars)
        if text is None and name == STAND_IN[0]:
            name = STAND_IN[1]
            text = _read(workspace, name, max_chars)
        if text and left >= min(len(text), _LEAST_CHARS):
            text = cut(redact(text), min(max_chars, left))
            left -= len(text)
            found.append(WorkspaceFile(name, text))
    return found


def _read(workspace: str, name: str, max_chars: int) -> str | None:
    """The text of a file in the workspace; a link is followed to another such file there."""
    root = os.path.realpath(workspace)
    path = os.path.realpath(os.path.join(root, name))
    # Not to any file: a repository could have the person's own `.env` sent as its AGENTS.md.
    if os.path.commonpath((root, path)) != root or not path.lower().endswith(".md"):
        return None
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode) or info.st_nlink > 1:
            return None
        # One character more than is shown, four bytes each at most, to know that there is more.
        data = os.read(fd, 4 * max_chars + 4)
    except OSError:
        return None
    finally:
        os.close(fd)
    text = data.decode("utf-8", "replace")
    text = re.sub(_LINE_ENDS, "\n", text)
    return re.sub(_INVISIBLE, "", text).strip()
