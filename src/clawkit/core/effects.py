"""What a call may do, and to what: calls of one message that cannot collide run side by side."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Literal, NamedTuple

from clawkit.core.paths import real_path

Kind = Literal["read", "write", "exec", "network", "send"]


class Effect(NamedTuple):
    """One thing a call may do, to `file:/absolute/path`, another `scheme:name`, or `*`."""

    kind: Kind
    resource: str = "*"


ANYTHING: tuple[Effect, ...] = (Effect("write"),)
"""For tools that say nothing about themselves: they run alone."""


def file_resource(workspace: str, path: str) -> str:
    """One name per file, however it was spelled: links followed, `..` and doubled slashes gone."""
    return "file:" + real_path(os.path.join(workspace, os.path.expanduser(path)))


def collide(first: Iterable[Effect], second: Iterable[Effect]) -> bool:
    """Whether the order of two calls could matter. Reads never collide with reads."""
    others = tuple(second)
    return any(
        (mine.kind != "read" or other.kind != "read") and _overlap(mine.resource, other.resource)
        for mine in first
        for other in others
    )


def _overlap(first: str, second: str) -> bool:
    if first == second or "*" in (first, second):
        return True
    if not (first.startswith("file:") and second.startswith("file:")):
        return False
    shorter, longer = sorted((first.rstrip("/"), second.rstrip("/")), key=len)
    return longer.startswith(shorter + "/")
