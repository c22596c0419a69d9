"""`clawkit mcp list` and the other commands for servers whose tools clawkit uses."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import wraps
from typing import Any, TypeVar

import click
import msgspec

from clawkit.cli import shared_options as cli
from clawkit.cli.doctor_checks import Findings, ok, warn
from clawkit.config.load import load
from clawkit.config.paths import mcp_dir
from clawkit.config.sections.plugins import McpServer
from clawkit.core.context import Scope, Sender
from clawkit.errors import ClawkitError, ConfigError, Issue, ToolError
from clawkit.mcp.definitions import ToolListing, accept, read_listing, write_listing
from clawkit.mcp.mounts import Mounts
from clawkit.mcp.oauth import TokenStore
from clawkit.mcp.tools import allowed_servers, list_feature, mounted_tools
from clawkit.runtime import Toolkit
from clawkit.text import one_line, printable

T = TypeVar("T")


class _Home:
    """The servers of a configuration, and their stored listings."""

    def __init__(self, config_file: str | None, *, as_json: bool = False) -> None:
        self.loaded, self.as_json = load(config_file), as_json
        mcp = self.loaded.config.mcp
        self.servers = mcp.servers if mcp else {}
        self.folder = mcp_dir(os.environ)

    def entry(self, name: str) -> McpServer:
        if name not in self.servers:
            hint = cli.suggest(name, self.servers) or "; `clawkit mcp list` lists them"
            raise ConfigError([Issue(f"mcp.servers.{name}", f"unknown server{hint}")])
        return self.servers[name]

    def listing(self, name: str) -> ToolListing | None:
        return read_listing(self.folder, name, self.entry(name))

    def allowed(self) -> list[str]:
        """The enabled servers with at least one tool that policy allows."""
        return allowed_servers(self.loaded.config, Scope(sender=Sender(owner=True)))

    def run(self, work: Callable[[Mounts], Awaitable[T]]) -> T:
        """Run work with connections, which are closed afterwards."""

        async def connected() -> T:
            kit = Toolkit.open(self.loaded, owner=True)
            try:
                return await work(kit.run.services[Mounts])  # type: ignore[arg-type]
            finally:
                await kit.close()

        return asyncio.run(connected())

    def refresh(self, names: list[str]) -> dict[str, str]:
        """List the tools of servers again; returns the reasons of failures."""

        async def work(mounts: Mounts) -> list[Any]:
            return await asyncio.gather(*map(mounts.refresh, names), return_exceptions=True)

        done = zip(names, self.run(work) if names else (), strict=True)
        return {name: printable(str(each)) for name, each in done if isinstance(each, ClawkitError)}

    def row(self, name: str) -> dict[str, Any]:
        entry, found = self.entry(name), self.listing(name)
        login = entry.url in TokenStore(self.folder).read()
        return {
            "server": name,
            "enabled": entry.enabled,
            "target": entry.url or " ".join((entry.command or "", *entry.args)),
            "transport": entry.transport or ("stdio" if entry.command else "streamable-http"),
            "version": found.version if found else None,
            "loggedIn": login,
            "tools": [tool.name for tool in found.tools] if found else None,
            "waiting": [tool.name for tool in found.waiting] if found else [],
            "leftOut": found.left_out if found else {},
        }

    def say(self, data: Any, lines: Iterable[str]) -> None:
        if self.as_json:
            cli.print_json(data)
        for line in () if self.as_json else lines:
            click.echo(line)

    def say_if_empty(self) -> None:
        if not self.servers and not self.as_json:
            click.echo("No MCP servers are configured; add one to mcp.servers.", err=True)


def _state(row: dict[str, Any]) -> str:
    if not row["enabled"]:
        return "disabled"
    if row["tools"] is None:
        return "not listed yet"
    more = f", {len(row['waiting'])} waiting" if row["waiting"] else ""
    return cli.counted(len(row["tools"]), "tool") + more


def _command(name: str) -> Callable[[Callable[..., None]], click.Command]:
    """A command with the servers of a configuration. A server argument is validated before the
    call."""

    def make(function: Callable[..., None]) -> click.Command:
        @wraps(function)
        def run(config_file: str | None, as_json: bool, **given: Any) -> None:
            home = _Home(config_file, as_json=as_json)
            if "server" in given:
                home.entry(given["server"])
            function(home, **given)

        return click.command(name)(cli.json_option(cli.config_option(run)))

    return make


_one = click.argument("server", metavar="SERVER")


@_command("list")
def list_servers(home: _Home) -> None:
    """List the configured MCP servers and their state, without starting any."""
    rows = [home.row(name) for name in home.servers]
    lines = [
        f"{click.style(printable(row['server']), bold=True)}: {_state(row)}, "
        f"{printable(one_line(row['target'], 60), '')}"
        for row in rows
    ]
    home.say({"servers": rows}, lines)
    home.say_if_empty()


@_command("show")
@_one
def show(home: _Home, server: str) -> None:
    """Show a server: its tools as it defines them, including those waiting to be accepted."""
    row, found = home.row(server), home.listing(server) or ToolListing("")
    lines = [f"{printable(row['server'])}: {_state(row)}, {printable(row['target'])}"]
    for tool in found.tools:
        about = one_line(tool.description or "", 100)
        lines.append(printable(f"  {one_line(tool.name, 60)}  {about}"))
    lines += [f"  {line}" for line in _define(found)]
    lines += [printable(f"  left out: {name}: {why}") for name, why in row["leftOut"].items()]
    definitions = msgspec.to_builtins([*found.tools, *found.waiting])
    home.say({**row, "definitions": definitions}, lines)
    if row["tools"] is None and not home.as_json:
        cli.warn([f"its tools are not known yet: run `clawkit mcp refresh {server}`"])


def _define(listing: ToolListing) -> Iterator[str]:
    """The full definitions for a person to accept, without truncation."""
    for tool in listing.waiting:
        yield printable(f"waiting: {tool.name}", "")
        for line in (tool.description or "").splitlines():
            yield f"  {printable(line, '')}"
        more = {"parameters": tool.input_schema, "title": tool.title, "hints": tool.annotations}
        for name, value in more.items():
            if value:
                yield f"  {name}: {printable(msgspec.json.encode(value).decode(), '')}"


@_command("tools")
def tools(home: _Home) -> None:
    """List the tools of all servers, by the names under which they are offered."""
    found = mounted_tools(home.loaded.config, home.folder)
    rows = [{"tool": each.tool.name, "source": each.source, "description": each.tool.description}
            for each in found.tools]  # fmt: skip
    lines = [printable(f"{row['tool']}  {one_line(row['description'], 80)}") for row in rows]
    home.say({"tools": rows, "warnings": found.warnings}, lines)
    home.say_if_empty()
    if not home.as_json:
        cli.warn(found.warnings)


@_command("refresh")
@click.argument("servers", nargs=-1, metavar="[SERVER]...")
def refresh(home: _Home, servers: tuple[str, ...]) -> None:
    """Connect to servers, by default to all that policy allows, and list their tools again."""
    for name in servers:
        home.entry(name)
    names = [*servers] or home.allowed()
    failed = home.refresh(names)
    rows = [home.row(name) for name in names]
    said = (
        f"{printable(row['server'])}: {failed.get(row['server']) or _state(row)}" for row in rows
    )
    home.say({"servers": rows, "errors": failed}, said)
    home.say_if_empty()
    if failed:
        raise click.exceptions.Exit(1)


@_command("accept")
@_one
@cli.yes_option()
def accept_tools(home: _Home, server: str, yes: bool) -> None:
    """Accept the new and changed tools of a server, after showing them.

    The server is not queried again: you accept exactly what is shown.
    """
    cli.refuse_commands("accept tools of an MCP server")
    found = home.listing(server)
    if found is None:
        raise ToolError(f"{server} was not listed yet: run `clawkit mcp refresh {server}`")
    if found.waiting and not yes:
        cli.confirm(f"Accept the tools of {server}?", "nothing was accepted", _define(found))
    names = accept(found)
    write_listing(home.folder, server, found)
    shown = printable(", ".join(one_line(name, 60) for name in names), "")
    said = f"accepted: {shown or 'nothing was waiting'}"
    cli.print_done(home.as_json, {"accepted": names}, said)


@_command("login")
@_one
@click.option("--no-browser", is_flag=True, help="Print the address without opening it.")
def login(home: _Home, server: str, no_browser: bool) -> None:
    """Log in to a server with a browser."""
    cli.refuse_commands("log in for you")

    async def open_url(url: str) -> None:
        click.echo(f"Open this address to log in:\n{printable(url, '')}", err=True)
        if not no_browser:
            import webbrowser

            webbrowser.open(url)

    async def work(mounts: Mounts) -> None:
        await mounts.login(server, open_url)
        await mounts.refresh(server)

    home.run(work)
    cli.print_done(home.as_json, {"loggedIn": server}, f"logged in to {server}")


@_command("logout")
@_one
def logout(home: _Home, server: str) -> None:
    """Delete the stored token of a server."""
    was_known = TokenStore(home.folder).save(home.entry(server).url or "", None)
    said = f"forgot the token of {server}" if was_known else f"no token of {server} is stored"
    cli.print_done(home.as_json, {"loggedOut": was_known}, said)


def _list_feature(feature: str) -> click.Command:
    def run(home: _Home, server: str) -> None:
        found = home.run(lambda mounts: list_feature(mounts, server, feature))
        rows = [json.loads(bytes(each)) for each in found]
        lines = [
            printable(
                f"{row.get('uri') or row.get('uriTemplate') or row.get('name')}  "
                f"{one_line(str(row.get('description') or ''), 80)}",
                "",
            )
            for row in rows
        ]
        home.say({feature: rows}, lines)
        if not rows and not home.as_json:
            click.echo(f"{printable(server)} has no {feature}.", err=True)

    run.__doc__ = f"List the {feature} of a server."
    return _command(feature)(_one(run))


resources, prompts = _list_feature("resources"), _list_feature("prompts")


def check_servers(config_file: str | None) -> Findings:
    """Checks for `clawkit doctor` whether allowed servers answer."""
    home = _Home(config_file)
    if not home.servers:
        return
    allowed = home.allowed()
    failed = home.refresh(allowed)
    for name in home.servers:
        row = home.row(name)
        if name not in allowed:
            yield ok(f"{name}: not used: disabled, or policy denies all of its tools")
        elif name in failed:
            yield warn(failed[name], f"clawkit mcp refresh {name}")
        elif row["waiting"]:
            yield warn(f"{name}: {_state(row)} to be accepted", f"clawkit mcp accept {name}")
        else:
            yield ok(f"{name}: {_state(row)}")
