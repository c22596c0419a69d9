"""Implements `clawkit mcp serve` without click, which takes a sixth of its start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import asdict

from clawkit.cli.console import echo, origin_of, warn
from clawkit.config.load import load
from clawkit.core.approval import Approver
from clawkit.process.libc import hide_memory
from clawkit.runtime import Toolkit

DEFAULT_PORT = 8765
_DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(("config_file", "workspace", "agent", "model", "sandboxed", "port")),
    **dict.fromkeys(("channel", "account", "group", "space", "sender"), ""),
    "roles": (),
    "owner": True,
    "depth": 0,
    "http": False,
}
_SIMPLE = {"--workspace": "workspace", "--config": "config_file", "--agent": "agent"}


def read_simple(args: Sequence[str]) -> dict[str, Any] | None:
    """The options, if only unchecked ones are used, as clients normally do."""
    pairs = dict(zip(args[::2], args[1::2], strict=False))
    if len(pairs) * 2 != len(args) or any(value[:1] in ("", "-") for value in pairs.values()):
        return None
    if not pairs.keys() <= _SIMPLE.keys():
        return None
    return {**_DEFAULTS, **{_SIMPLE[name]: value for name, value in pairs.items()}}


def run_server(options: dict[str, Any]) -> None:
    """Serve according to the options until the client disconnects. Raises `ConfigError`."""
    loaded, origin = load(options["config_file"]), origin_of(options)
    warn(map(str, loaded.warnings))
    hide_memory()

    def open_kit(session: str, workspace: str, approver: Approver | None) -> Toolkit:
        return Toolkit.open(
            loaded,
            workspace=workspace or options["workspace"],
            session=session,
            **{name: options[name] for name in ("agent", "model", "sandboxed", "depth")},
            **asdict(origin),
            approver=approver,
        )

    if not options["http"]:
        from clawkit.mcp_server.stdio import serve_stdio

        serve_stdio(open_kit)
        return
    from clawkit.gateway.mcp_standalone import serve_http

    def tell(address: str) -> None:
        echo(f"Serving MCP clients at {address}; stop with Ctrl-C.", err=True)

    port = DEFAULT_PORT if options["port"] is None else options["port"]
    serve_http(loaded, open_kit, port, tell)
