"""The tools of servers as tools of a run, from stored listings, without starting a server."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, NamedTuple

import msgspec

from clawkit.config.model import Config
from clawkit.config.sections.plugins import McpServer, tool_prefix
from clawkit.core.context import Context, Scope
from clawkit.core.result import Result
from clawkit.core.tool import Effect, Registered, Tool
from clawkit.errors import ToolError
from clawkit.mcp import definitions, results
from clawkit.mcp.mounts import Mounts
from clawkit.mcp.protocol import ToolEntry
from clawkit.policy.pipeline import Subject, apply_policy
from clawkit.text import one_line


class MountedTools(NamedTuple):
    tools: tuple[Registered, ...] = ()
    warnings: tuple[str, ...] = ()


def mounted_tools(config: Config, folder: str) -> MountedTools:
    """The tools of all servers as last listed, and remarks about them."""
    tools: list[Registered] = []
    warnings: list[str] = []
    for name, entry in (config.mcp.servers if config.mcp else {}).items():
        if entry.enabled:
            stamp = _stamp(definitions.listing_file(folder, name, definitions.fingerprint(entry)))
            found = _of_server(name, msgspec.json.encode(entry), stamp, folder)
            tools += found.tools
            warnings += found.warnings
    return MountedTools(tuple(tools), tuple(warnings))


def _stamp(file: str) -> tuple[int, int]:
    try:
        info = os.stat(file)
    except OSError:
        return 0, 0
    return info.st_ino, info.st_mtime_ns


@lru_cache(maxsize=64)
def _of_server(name: str, encoded: bytes, _stamp: tuple[int, int], folder: str) -> MountedTools:
    """Returns the same objects while nothing has changed, so that assemblies are cached."""
    entry = msgspec.json.decode(encoded, type=McpServer)
    listing = definitions.read_listing(folder, name, entry)
    if listing is None:
        why = f"mcp.servers.{name}: its tools are not known before the first turn, or before"
        return MountedTools((), (f"{why} `clawkit mcp refresh {name}`",))
    return MountedTools(tuple(_tools(name, entry, listing)), tuple(_warnings(name, listing)))


def _warnings(name: str, listing: definitions.ToolListing) -> Iterator[str]:
    key = f"mcp.servers.{name}"
    if waiting := [one_line(tool.name, 60) for tool in listing.waiting]:
        names = ", ".join(waiting[:5]) + (", …" if len(waiting) > 5 else "")
        do = f"are not offered until you run `clawkit mcp accept {name}`"
        yield f"{key}: new or changed tools {do}: {names}"
    if left_out := listing.left_out:
        tool, why = next(iter(left_out.items()))
        more = f" and {len(left_out) - 1} more" if len(left_out) > 1 else ""
        yield f"{key}: the tool {tool!r} is left out: {why}{more}; see `clawkit mcp show {name}`"


def _tools(server: str, entry: McpServer, listing: definitions.ToolListing) -> Iterator[Registered]:
    defined = {tool.name: tool for tool in listing.tools if definitions.is_wanted(entry, tool.name)}
    for remote, name in definitions.safe_names(server, defined).items():
        tool = defined[remote]
        title = tool.title or (tool.annotations and tool.annotations.title) or ""
        run = _use_feature if remote in (listing.features or ()) else _call_tool
        made = Tool(
            name,
            f"(MCP server {server}) {definitions.clean_text(tool.description or '')}".strip(),
            definitions.shown_schema(tool.input_schema),
            partial(run, server, tool),
            label=one_line(definitions.clean_text(title or remote), 60),
            effects=partial(_effects, server, entry),
        )
        yield Registered(made, f"mcp:{server}")


async def _call_tool(server: str, tool: ToolEntry, params: Any, ctx: Context) -> Result:
    read = partial(results.of_request, server=server, kind="tool", of=tool.name)
    arguments = {"name": tool.name, "arguments": params}
    headers = definitions.header_values(tool.input_schema, params)
    return await ctx.use(Mounts).call(server, "tools/call", arguments, read, ctx, headers)


def _effects(server: str, entry: McpServer, _params: object, ctx: Context) -> tuple[Effect, ...]:
    """Calls of one server run one after the other, unless it supports more. One that may change
    the workspace runs alone."""
    own = f"/{ctx.call_id}" if entry.supports_parallel_tool_calls else ""
    effects = (Effect("send", f"mcp:{server}{own}"),)
    writes = entry.command and (entry.sandbox.workspace_access == "rw" or not entry.sandbox.enabled)
    return (*effects, Effect("write")) if writes and not own else effects


async def _use_feature(server: str, tool: ToolEntry, params: Any, ctx: Context) -> Result:
    mounts, is_prompt = ctx.use(Mounts), tool.name == "prompts"
    if not (of := params.get("name" if is_prompt else "uri")):
        return results.of_list(await list_feature(mounts, server, tool.name), server, tool.name)
    method, kind = ("prompts/get", "prompt") if is_prompt else ("resources/read", "uri")
    read = partial(results.of_request, server=server, kind=kind, of=of)
    wanted = {"arguments": {}, **params} if is_prompt else params
    return await mounts.call(server, method, wanted, read, ctx)


async def list_feature(mounts: Mounts, server: str, feature: str) -> list[msgspec.Raw]:
    found = await mounts.list(server, f"{feature}/list", feature)
    if feature == "resources":
        with suppress(ToolError):  # templates are optional
            found += await mounts.list(server, "resources/templates/list", "resource_templates")
    return found


def allowed_servers(config: Config, scope: Scope) -> list[str]:
    """The servers with at least one tool that policy allows. Others are never started."""
    servers = config.mcp.servers if config.mcp else {}
    text = msgspec.json.encode(config).decode().lower()
    allowed: list[str] = []
    for server in (name for name, entry in servers.items() if entry.enabled):
        # Its tools are unknown, so try a hypothetical one and those named in lists.
        prefix = tool_prefix(server).lower()
        named = re.findall(rf'"({re.escape(prefix)}[a-z0-9_*-]+)"', text)
        tools = {f"{prefix}x", *(name.replace("*", "x") for name in named)}
        subjects = [Subject(name, f"mcp:{server}") for name in tools]
        verdicts = apply_policy(config, scope, subjects).verdicts.values()
        if any(verdict.allowed for verdict in verdicts):
            allowed.append(server)
    return allowed
