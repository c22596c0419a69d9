"""Shared by the parameters of tools: descriptions, aliases, effects on files."""

from __future__ import annotations

from typing import Any, Protocol

from msgspec import Meta

from clawkit.core.context import Context
from clawkit.core.tool import Effect, file_resource

FILE_ALIASES = dict.fromkeys(("file_path", "file", "filename", "filepath"), "path")
"""Other names that models use for `path`."""


class WithPath(Protocol):
    @property
    def path(self) -> str: ...


def doc(description: str, **limits: Any) -> Meta:
    """The description of a parameter, and constraints on its value."""
    return Meta(description=description, **limits)


def reads_path(params: WithPath, ctx: Context) -> tuple[Effect, ...]:
    return (Effect("read", file_resource(ctx.workspace, params.path)),)


def writes_path(params: WithPath, ctx: Context) -> tuple[Effect, ...]:
    return (Effect("write", file_resource(ctx.workspace, params.path)),)
