"""`clawkit mcp list` and the other commands for servers whose tools clawkit uses."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from clawkit.cli import options as cli
from clawkit.cli.doctor_checks import Findings, ok, warn
from clawkit.config.load import Loaded, load
from clawkit.config.paths import mcp_dir
from clawkit.config.sections.plugins import McpServer
from clawkit.core.context import Scope, Sender
from clawkit.errors import ClawkitError, ConfigError, Issue
from clawkit.mcp.definitions import ToolListing, accept, read_listing, write_listing
from clawkit.mcp.mounts import Mounts
from clawkit.mcp.oauth import TokenStore
from clawkit.mcp.tools import allowed_servers, list_feature, mounted_tools
from clawkit.runtime import Toolkit
from clawkit.text import one_line, printable

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def _about_one(function: F) -> F:
    """The arguments of a command about one server."""
    server = click.argument("server", metavar="SERVER")
    return server(cli.json_option(cli.config_option(function)))


class _Home:
    """The servers of a configuration, and what is known of them."""

    def __init__(self, config_file: str | None) -> None:
        self.loaded: Loaded = load(config_file)
        mcp = self.loaded.config.mcp
        self.servers = mcp.servers if mcp else {}
        self.folder = mcp_dir(os.environ)

    def entry(self, name: str) -> McpServer:
        if name not in self.servers:
            hint = cli.suggest(name, self.servers)
            raise ConfigError([Issue(f"mcp.servers.{name}", f"no such server{hint}")])
        return self.servers[name]

    def listing(self, name: str) -> ToolListing | None:
        return read_listing(self.folder, name, self.entry(name))

    def run(self, work: Callable[[Mounts], Awaitable[T]]) -> T:
        """Do something with connections, which are closed afterwards."""

        async def connected() -> T:
            kit = Toolkit.open(self.loaded, owner=True)
            try:
                return await work(kit.run.services[Mounts])  # type: ignore[arg-type]
            finally:
                await kit.close()

        return asyncio.run(connected())

    def show(self, name: str) -> dict[str, Any]:
        entry, found = self.entry(name), self.listing(name)
        login = entry.url and TokenStore(self.folder).grant(entry.url)
        return {
            "server": name,
            "enabled": entry.enabled,
            "target": entry.url or " ".join((entry.command or "", *entry.args)),
            "transport": entry.transport or ("stdio" if entry.command else "streamable-http"),
            "version": found.version if found else None,
            "loggedIn": bool(login),
            "tools": [tool.name for tool in found.tools] if found else None,
            "waiting": [tool.name for tool in found.waiting] if found else [],
            "leftOut": found.left_out if found else {},
        }


def _state(row: dict[str, Any]) -> str:
    if not row["enabled"]:
        return "disabled"
    if row["tools"] is None:
        return "not listed yet"
    more = f", {len(row['waiting'])} waiting" if row["waiting"] else ""
    return cli.counted(len(row["tools"]), "tool") + more


@click.command("list")
@cli.json_option
@cli.config_option
def list_servers(as_json: bool, config_file: str | None) -> None:
    """List the configured MCP servers, and what is known of them. Starts none."""
    home = _Home(config_file)
    rows = [home.show(name) for name in home.servers]
    if as_json:
        cli.print_json({"servers": rows})
        return
    if not rows:
        click.echo("No MCP server is configured; see mcp.servers.")
    for row in rows:
        target = printable(one_line(row["target"], 60), "")
        click.echo(f"{click.style(printable(row['server']), bold=True)}: {_state(row)}, {target}")


@click.command()
@_about_one
def show(server: str, as_json: bool, config_file: str | None) -> None:
    """Show a server: its tools as it defines them, and those that wait to be accepted."""
    home = _Home(config_file)
    row, found = home.show(server), home.listing(server)
    if as_json:
        cli.print_json(row)
        return
    click.echo(f"{printable(row['server'])}: {_state(row)}, {printable(row['target'])}")
    for mark, tools in (("", found.tools), ("waiting: ", found.waiting)) if found else ():
        for tool in tools:
            about = one_line(tool.description or "", 100)
            click.echo(printable(f"  {mark}{one_line(tool.name, 60)}  {about}"))
    for name, why in row["leftOut"].items():
        click.echo(printable(f"  left out: {name}: {why}"))


@click.command()
@cli.json_option
@cli.config_option
def tools(as_json: bool, config_file: str | None) -> None:
    """List the tools of all servers, by the names under which they are offered."""
    home = _Home(config_file)
    found = mounted_tools(home.loaded.config, home.folder)
    rows = [{"tool": each.tool.name, "source": each.source, "description": each.tool.description}
            for each in found.tools]  # fmt: skip
    if as_json:
        cli.print_json({"tools": rows, "warnings": found.warnings})
        return
    for row in rows:
        click.echo(printable(f"{row['tool']}  {one_line(row['description'], 80)}"))
    cli.warn(found.warnings)


@click.command()
@click.argument("servers", nargs=-1, metavar="[SERVER]...")
@cli.json_option
@cli.config_option
def refresh(servers: tuple[str, ...], as_json: bool, config_file: str | None) -> None:
    """Connect to servers, by default to all, and list their tools again."""
    home = _Home(config_file)
    names = [name for name in servers or home.servers if home.entry(name).enabled or servers]
    failed = _refresh_all(home, names)
    rows = [home.show(name) for name in names]
    if as_json:
        cli.print_json({"servers": rows, "errors": failed})
    for row in () if as_json else rows:
        click.echo(f"{printable(row['server'])}: {failed.get(row['server']) or _state(row)}")
    if failed:
        raise click.exceptions.Exit(1)


def _refresh_all(home: _Home, names: list[str]) -> dict[str, str]:
    async def work(mounts: Mounts) -> dict[str, str]:
        done = await asyncio.gather(*map(mounts.refresh, names), return_exceptions=True)
        return {
            name: printable(str(each))
            for name, each in zip(names, done, strict=True)
            if isinstance(each, ClawkitError)
        }

    return home.run(work) if names else {}


@click.command("accept")
@_about_one
def accept_tools(server: str, as_json: bool, config_file: str | None) -> None:
    """Accept the new and changed tools of a server, after listing them again."""
    cli.refuse_commands("accept what an MCP server says")
    home = _Home(config_file)
    home.entry(server)
    found = home.run(lambda mounts: mounts.refresh(server))
    names = accept(found)
    write_listing(home.folder, server, found)
    shown = printable(", ".join(one_line(name, 60) for name in names), "")
    cli.print_done(as_json, {"accepted": names}, f"accepted: {shown or 'nothing was waiting'}")


@click.command()
@_about_one
@click.option("--no-browser", is_flag=True, help="Print the address without opening it.")
def login(server: str, no_browser: bool, as_json: bool, config_file: str | None) -> None:
    """Log in at a server with a browser."""
    cli.refuse_commands("log in for you")

    async def open_url(url: str) -> None:
        click.echo(f"Open this address to log in:\n{printable(url, '')}", err=True)
        if not no_browser:
            import webbrowser

            webbrowser.open(url)

    home = _Home(config_file)
    home.entry(server)

    async def work(mounts: Mounts) -> None:
        await mounts.login(server, open_url)
        await mounts.refresh(server)

    home.run(work)
    cli.print_done(as_json, {"loggedIn": server}, f"logged in at {server}")


@click.command()
@_about_one
def logout(server: str, as_json: bool, config_file: str | None) -> None:
    """Forget the token of a server."""
    home = _Home(config_file)
    store = TokenStore(home.folder)
    was_known = store.save(home.entry(server).url or "", None)
    said = f"forgot the token of {server}" if was_known else f"there is no token of {server}"
    cli.print_done(as_json, {"loggedOut": was_known}, said)


def _print_feature(server: str, feature: str, as_json: bool, config_file: str | None) -> None:
    home = _Home(config_file)
    home.entry(server)
    found = home.run(lambda mounts: list_feature(mounts, server, feature))
    rows = [json.loads(bytes(each)) for each in found]
    if as_json:
        cli.print_json({feature: rows})
        return
    for row in rows:
        name = row.get("uri") or row.get("uriTemplate") or row.get("name")
        click.echo(printable(f"{name}  {one_line(str(row.get('description') or ''), 80)}"))


@click.command()
@_about_one
def resources(server: str, as_json: bool, config_file: str | None) -> None:
    """List the resources of a server."""
    _print_feature(server, "resources", as_json, config_file)


@click.command()
@_about_one
def prompts(server: str, as_json: bool, config_file: str | None) -> None:
    """List the prompts of a server."""
    _print_feature(server, "prompts", as_json, config_file)


def check_servers(config_file: str | None) -> Findings:
    """For `clawkit doctor`: whether the servers that policy allows answer."""
    home = _Home(config_file)
    if not home.servers:
        return
    allowed = allowed_servers(home.loaded.config, Scope(sender=Sender(owner=True)))
    failed = _refresh_all(home, allowed)
    for name in home.servers:
        row = home.show(name)
        if name not in allowed:
            yield ok(f"{name}: not used: disabled, or policy denies all of its tools")
        elif name in failed:
            yield warn(failed[name], f"clawkit mcp refresh {name}")
        elif row["waiting"]:
            yield warn(f"{name}: {_state(row)} to be accepted", f"clawkit mcp accept {name}")
        else:
            yield ok(f"{name}: {_state(row)}")
