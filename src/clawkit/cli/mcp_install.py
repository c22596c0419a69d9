"""`clawkit mcp install`."""

from __future__ import annotations

import os

import click

from clawkit.cli import options as cli
from clawkit.mcp_server.install import CLIENTS, make_entry, plan, snippet


@click.command()
@click.option(
    "--client",
    required=True,
    type=click.Choice(list(CLIENTS)),
    help="The program that shall use the tools.",
)
@click.option("--workspace", metavar="DIR", help="Workspace. Default: where the client starts it.")
@click.option("--name", default="clawkit", show_default=True, help="Name of the server there.")
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
        click.echo(f"For {chosen.file(env)}:", err=True)
        click.echo(snippet(chosen, name, entry), nl=False)
        return
    cli.refuse_commands("change the configuration of other programs")
    change = plan(chosen, name, entry, env)
    shown = change.diff()
    if not shown:
        click.echo(f"{change.file} needs no change.", err=True)
        return
    for line in shown:
        click.echo(line)
    if not yes:
        cli.confirm(f"Change the configuration of {chosen.title}?", "nothing was changed")
    change.write()
    click.echo(f"Changed {change.file}. Restart {chosen.title} to use it.", err=True)
