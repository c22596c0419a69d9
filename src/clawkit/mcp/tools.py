"""The tools of servers as tools of a run: from what was listed, without starting anything."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, NamedTuple

import msgspec

from clawkit.config.model import Config
from clawkit.config.sections.plugins import McpServer
from clawkit.core.context import Context, Scope
from clawkit.core.result import Result
from clawkit.core.tool import Effect, Registered, Tool
from clawkit.errors import ToolError
from clawkit.mcp import results
from clawkit.mcp.definitions import (
    ToolListing,
    clean_text,
    fingerprint,
    header_values,
    is_wanted,
    listing_file,
    prefix_of,
    read_listing,
    safe_names,
    shown_schema,
)
from clawkit.mcp.mounts import Mounts
from clawkit.mcp.protocol import ToolEntry
from clawkit.policy.pipeline import Subject, apply_policy
from clawkit.process.jsonrpc import ServerError
from clawkit.text import one_line

FEATURES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "resources": (
        "List the resources, or read one.",
        {"uri": {"type": "string", "description": "The resource to read; all are listed without."}},
    ),
    "prompts": (
        "List the prompts, or get one.",
        {
            "name": {"type": "string", "description": "The prompt to get; all are listed without."},
            "arguments": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    ),
}
"""Tools for what a server has besides tools."""


class MountedTools(NamedTuple):
    tools: tuple[Registered, ...] = ()
    warnings: tuple[str, ...] = ()


def mounted_tools(config: Config, folder: str) -> MountedTools:
    """The tools of all servers as they were listed last, and what there is to say about them."""
    tools: list[Registered] = []
    warnings: list[str] = []
    for name, entry in (config.mcp.servers if config.mcp else {}).items():
        if entry.enabled:
            stamp = _stamp(listing_file(folder, name, fingerprint(entry)))
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
    """The same objects as long as nothing has changed, so that an assembly is found again."""
    entry = msgspec.json.decode(encoded, type=McpServer)
    listing = read_listing(folder, name, entry)
    if listing is None:
        why = f"mcp.servers.{name}: its tools are not known before the first turn, or before"
        return MountedTools((), (f"{why} `clawkit mcp refresh {name}`",))
    return MountedTools(tuple(_tools(name, entry, listing)), tuple(_warnings(name, listing)))


def _warnings(name: str, listing: ToolListing) -> Iterator[str]:
    key = f"mcp.servers.{name}"
    if waiting := [one_line(tool.name, 60) for tool in listing.waiting]:
        names = ", ".join(waiting[:5]) + (", …" if len(waiting) > 5 else "")
        do = f"are not offered until you run `clawkit mcp accept {name}`"
        yield f"{key}: new or changed tools {do}: {names}"
    if left_out := listing.left_out:
        tool, why = next(iter(left_out.items()))
        more = f" and {len(left_out) - 1} more" if len(left_out) > 1 else ""
        yield f"{key}: the tool {tool!r} is left out: {why}{more}; see `clawkit mcp show {name}`"


def _tools(server: str, entry: McpServer, listing: ToolListing) -> Iterator[Registered]:
    defined = {tool.name: tool for tool in listing.tools if is_wanted(entry, tool.name)}
    features = [each for each in listing.features if each not in defined and is_wanted(entry, each)]
    names = safe_names(server, (*defined, *features))
    source = f"mcp:{server}"
    for remote, tool in defined.items():
        yield Registered(_make_tool(server, entry, tool, names[remote]), source)
    for feature in features:
        about, properties = FEATURES[feature]
        yield Registered(
            Tool(
                names[feature],
                f"(MCP server {server}) {about}",
                {"type": "object", "properties": properties, "additionalProperties": False},
                partial(_use_feature, server, feature),
                effects=partial(_effects, server, entry),
            ),
            source,
        )


def _make_tool(server: str, entry: McpServer, tool: ToolEntry, name: str) -> Tool:
    title = tool.title or (tool.annotations.title if tool.annotations else None) or tool.name

    async def execute(params: Any, ctx: Context) -> Result:
        arguments = {"name": tool.name, "arguments": params}
        headers = header_values(tool.input_schema, params) if entry.url else {}
        raw = await ctx.use(Mounts).call(server, "tools/call", arguments, ctx, headers)
        return _read(results.of_call, raw, server, tool.name)

    return Tool(
        name,
        f"(MCP server {server}) {clean_text(tool.description or '')}".strip(),
        shown_schema(tool.input_schema),
        execute,
        label=one_line(clean_text(title), 60),
        effects=partial(_effects, server, entry),
    )


def _effects(server: str, entry: McpServer, _params: object, ctx: Context) -> tuple[Effect, ...]:
    """Calls of one server run one after the other, unless it supports more. One that may change
    the workspace runs alone."""
    own = f"/{ctx.call_id}" if entry.supports_parallel_tool_calls else ""
    effects = (Effect("send", f"mcp:{server}{own}"),)
    writes = entry.command and (entry.sandbox.workspace_access == "rw" or not entry.sandbox.enabled)
    return (*effects, Effect("write")) if writes and not own else effects


async def _use_feature(server: str, feature: str, params: Any, ctx: Context) -> Result:
    mounts = ctx.use(Mounts)
    if feature == "prompts" and (name := params.get("name")):
        wanted = {"name": name, "arguments": params.get("arguments") or {}}
        raw = await mounts.call(server, "prompts/get", wanted, ctx)
        return _read(results.of_prompt, raw, server, name)
    if feature == "resources" and (uri := params.get("uri")):
        raw = await mounts.call(server, "resources/read", {"uri": uri}, ctx)
        return _read(results.of_resource, raw, server, uri)
    return results.of_list(await list_feature(mounts, server, feature), server, feature)


async def list_feature(mounts: Mounts, server: str, feature: str) -> list[msgspec.Raw]:
    found = await mounts.list(server, f"{feature}/list", feature)
    if feature == "resources":
        with suppress(ToolError):  # not every server has templates
            found += await mounts.list(server, "resources/templates/list", "resource_templates")
    return found


def _read(read: Any, raw: msgspec.Raw, server: str, of: str) -> Result:
    try:
        found: Result = read(raw, server, of)
    except ServerError as error:
        raise ToolError(f"the MCP server {server!r} failed: {error}") from None
    return found


def allowed_servers(config: Config, scope: Scope) -> list[str]:
    """The servers of which policy allows some tool. The others are never started."""
    servers = config.mcp.servers if config.mcp else {}
    names = [name for name, entry in servers.items() if entry.enabled]
    text = msgspec.json.encode(config).decode().lower()
    return [name for name in names if _allows(config, scope, name, text)]


def _allows(config: Config, scope: Scope, server: str, text: str) -> bool:
    """Whether policy allows a tool of a server whose tools are not known: one that no list names,
    or one that a list names."""
    prefix = prefix_of(server).lower()
    named = re.findall(rf'"({re.escape(prefix)}[a-z0-9_*-]+)"', text)
    subjects = [Subject(name.replace("*", "x"), f"mcp:{server}") for name in {f"{prefix}x", *named}]
    verdicts = apply_policy(config, scope, subjects).verdicts.values()
    return any(verdict.kept for verdict in verdicts)
