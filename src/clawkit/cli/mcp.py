"""`clawkit mcp serve`."""

from __future__ import annotations

from typing import Any

import click

from clawkit.cli import options as cli
from clawkit.core.approval import Approver
from clawkit.process.libc import hide_memory
from clawkit.runtime import Toolkit

DEFAULT_PORT = 8765


@click.command()
@click.option("--http", is_flag=True, help="Serve over HTTP instead of standard input and output.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), help="Port for --http. Default: 8765; 0 for any."
)
@cli.scope_options
def serve(http: bool, port: int | None, **options: Any) -> None:
    """Serve the tools in force to an MCP client, with policy and approvals.

    Over standard input and output, the server runs until its client disconnects. With --http, it
    listens on this machine only, at /mcp, and clients log in with the token that `clawkit gateway
    token` prints.

    \b
    clawkit mcp serve --workspace ~/project
    """
    if port is not None and not http:
        raise click.UsageError("--port requires --http")
    settings = cli.read_settings(options)
    cli.warn(map(str, settings.loaded.warnings))
    scope = settings.scope
    hide_memory()

    def open_kit(session: str, workspace: str, approver: Approver | None) -> Toolkit:
        return Toolkit.open(
            settings.loaded,
            workspace=workspace or settings.workspace,
            agent=scope.agent,
            session=session,
            model=scope.model,
            channel=scope.channel,
            account=scope.account,
            group=scope.group,
            space=options["space"],
            sender=scope.sender,
            sandboxed=options["sandboxed"],
            depth=scope.depth,
            approver=approver,
        )

    if not http:
        from clawkit.mcp_server.stdio import serve_stdio

        serve_stdio(open_kit)
        return
    from clawkit.mcp_server.standalone import serve_http

    def tell(address: str) -> None:
        click.echo(f"Serving MCP clients at {address}; stop with Ctrl-C.", err=True)

    serve_http(settings.loaded, open_kit, DEFAULT_PORT if port is None else port, tell)
