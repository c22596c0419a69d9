"""Shared by the memory tools: who may use them, timeouts, and failures."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, TypeVar

from clawkit.config.model import Config
from clawkit.core.context import Context, Scope
from clawkit.core.result import Result
from clawkit.core.tool import Effect, Tool, file_resource
from clawkit.errors import ToolError

T = TypeVar("T")
TIMEOUT_S = 30.0
SESSIONS = "sessions/"
"""Prefix of the paths of sessions."""
PRIVATE = "notes are private: the memory tools are only for direct chats with the owner"
ACTION = "run `clawkit memory status`; meanwhile, read notes with memory_get or read"


def offer(tool: Tool, config: Config, scope: Scope) -> Tool | str:
    """The tool, or the reason why this run does not have it."""
    return why_not(config, scope) or tool


def why_not(config: Config, scope: Scope) -> str:
    """Why a run has no memory; empty if it has one."""
    if not is_enabled(config, scope.agent):
        return "memory is turned off for this agent (memory.search.enabled is false)"
    if not is_private(scope):
        return PRIVATE
    if scope.sandboxed and config.agents.sandbox_of(scope.agent).access() == "none":
        return "the sandbox does not show the workspace (sandbox.workspaceAccess is 'none')"
    return ""


def is_enabled(config: Config, agent: str) -> bool:
    """Whether an agent has memory. The most specific setting wins."""
    own, general = config.agents.get(agent), config.memory
    given = (
        own.memory.search if own.memory else None,
        own.memory_search,
        config.agents.defaults.memory_search,
        general.search if general else None,
    )
    said = (getattr(each, "enabled", None) for each in given)
    return next((each for each in said if isinstance(each, bool)), True)


def is_private(scope: Scope) -> bool:
    """Whether only the owner reads the answers: notes are private to the owner."""
    return scope.sender.owner and not scope.group


def cites(config: Config, scope: Scope) -> bool:
    """Whether passages and answers name their source. A sub-agent is not a chat with a person."""
    mode = config.memory.citations if config.memory else "auto"
    return mode == "on" or (mode == "auto" and not scope.depth)


async def within_time(work: Awaitable[T], timeout_s: float = TIMEOUT_S) -> T:
    """Raises `ToolError` if the index or the embedding provider takes too long."""
    import asyncio  # not needed to describe a tool

    try:
        async with asyncio.timeout(timeout_s):
            return await work
    except TimeoutError:
        raise ToolError(f"no result within {timeout_s:g} s") from None


def as_quoted(path: str, text: str) -> str:
    """The text of a note as it is, or the text of a session marked as external, because it quotes
    people, pages and output."""
    if not path.startswith(SESSIONS):
        return text
    from clawkit.external import wrap_external

    return wrap_external(text, path)


def unavailable(error: ToolError, **more: Any) -> Result:
    return Result.json(
        {
            "status": "unavailable",
            "disabled": True,
            "error": str(error),
            "warning": "memory cannot be searched now; do not conclude that nothing is known",
            "action": ACTION,
            **more,
        }
    )


def reads_notes(_params: object, ctx: Context) -> tuple[Effect, ...]:
    """Notes may be anywhere in the workspace, so wait for calls that may write one."""
    return (Effect("read", file_resource(ctx.workspace, ".")),)
