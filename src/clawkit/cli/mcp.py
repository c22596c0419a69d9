"""`clawkit mcp`: serve the tools to MCP clients, and add the server to their configuration."""

from __future__ import annotations

import os
from typing import Any

import click

from clawkit.cli import shared_options as cli
from clawkit.cli.mcp_serve import run_server
from clawkit.mcp_server.install import CLIENTS, make_entry, plan, snippet


@click.command()
@click.option("--http", is_flag=True, help="Serve over HTTP instead of standard input and output.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), help="Port for --http. Default: 8765; 0 for any."
)
@cli.scope_options
def serve(**options: Any) -> None:
    """Serve the tools in force to an MCP client, with policy and approvals.

    Over standard input and output, the server runs until its client disconnects. With --http, it
    listens on this machine only, at /mcp, and clients log in with the token that `clawkit gateway
    token` prints.

    \b
    clawkit mcp serve --workspace ~/project
    """
    if options["port"] is not None and not options["http"]:
        raise click.UsageError("--port requires --http")
    run_server(options)


@click.command()
@click.option(
    "--client",
    required=True,
    type=click.Choice(list(CLIENTS)),
    help="The client to set up.",
)
@click.option("--workspace", metavar="DIR", help="Workspace. Default: where the client starts it.")
@click.option(
    "--name", default="clawkit", show_default=True, help="Name of the server in its configuration."
)
@click.option("--remove", is_flag=True, help="Remove the server.")
@click.option("--print", "only_print", is_flag=True, help="Print the entry, and change nothing.")
@cli.yes_option()
def install(
    client: str, workspace: str | None, name: str, remove: bool, only_print: bool, yes: bool
) -> None:
    """Add clawkit to the configuration of an MCP client, after showing the change.

    \b
    clawkit mcp install --client claude-code
    clawkit mcp install --client cursor --workspace ~/project
    """
    if remove and (only_print or workspace is not None):
        raise click.UsageError("--remove takes neither --print nor --workspace")
    if workspace is not None and not os.path.isdir(os.path.expanduser(workspace)):
        raise click.UsageError(f"--workspace: {workspace!r} is not a directory")
    chosen, env = CLIENTS[client], os.environ
    entry = None
    if not remove:
        entry = make_entry(chosen, workspace and os.path.expanduser(workspace), env)
    if only_print and entry is not None:
        text = snippet(chosen, name, entry)
        click.echo(f"For {chosen.file(env)}:", err=True)
        click.echo(text, nl=False)
        return
    cli.refuse_commands("change the configuration of other programs")
    change = plan(chosen, name, entry, env)
    shown = change.diff()
    if not shown:
        why = f"has no server {name!r}" if remove else "has this entry already"
        click.echo(f"{change.file} {why}; nothing was changed.", err=True)
        return
    for line in shown:
        click.echo(line)
    if not yes:
        cli.confirm(f"Change the configuration of {chosen.title}?", "nothing was changed")
    change.write()
    click.echo(f"Changed {change.file}. Restart {chosen.title} for it to take effect.", err=True)
