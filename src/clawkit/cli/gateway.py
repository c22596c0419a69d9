"""`clawkit gateway`: run the gateway, and talk to a running one."""

from __future__ import annotations

import importlib.util
import logging
from secrets import token_hex
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click
import msgspec

from clawkit.cli.gateway_status import (
    describe_state,
    explain_config,
    explain_silence,
    how_started,
)
from clawkit.cli.options import (
    config_option,
    json_option,
    print_json,
    print_table,
    refuse_commands,
    warn,
)
from clawkit.config.load import load
from clawkit.errors import ConfigError, ToolError, ToolInputError
from clawkit.text import human_time, one_line, printable

if TYPE_CHECKING:
    from clawkit.core.approval import Approver
    from clawkit.gateway.client import Target
    from clawkit.gateway.methods.chats import HostedChat
    from clawkit.gateway.record import GatewayState, StartedBy

_NEEDED = ("starlette", "uvicorn", "websockets", "cryptography")
_TIMEOUT = click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0.1, 86_400),
    default=30.0,
    show_default=True,
    help="Seconds to wait for an answer.",
)


def _url_options(command: Any) -> Any:
    token = click.option("--token", help="Its token. Default: the configured one.")
    url = click.option("--url", help="Address of another gateway, ws:// or wss://.")
    return url(token(_TIMEOUT(command)))


def check_installed() -> None:
    """Raises `ToolInputError` if the libraries of the gateway are missing."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ToolInputError(
            f"the gateway needs {', '.join(missing)}; install with: pip install 'clawkit[gateway]'"
        )


def _locate(
    config_file: str | None, url: str | None, token: str | None
) -> tuple[Target, GatewayState]:
    """The gateway to call, and what the home says about it: nothing if it is another one."""
    from clawkit.gateway.client import find_target
    from clawkit.gateway.record import GatewayState, look

    target = find_target(load(config_file), url, token)
    return target, look() if target.is_own else GatewayState(0, None)


@click.command()
@click.option("--port", type=click.IntRange(0, 65_535), help="Port; 0 takes a free one.")
@click.option(
    "--started-by", type=click.Choice(("run", "start", "service")), default="run", hidden=True
)
@config_option
def run(port: int | None, started_by: StartedBy, config_file: str | None) -> None:
    """Run the gateway until Ctrl-C or SIGTERM.

    It listens on this machine only, unless gateway.bind says otherwise, and never beyond it without
    authentication.
    """
    refuse_commands("run a gateway")
    check_installed()
    from clawkit.gateway import serve

    loaded = load(config_file)
    warn(map(str, loaded.warnings))
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)

    def say(host: str, at: int, fingerprint: str) -> None:
        place, s = f"[{host}]:{at}" if ":" in host else f"{host}:{at}", "s" if fingerprint else ""
        click.echo(f"clawkit gateway: ws{s}://{place}, http{s}://{place}", err=True)
        if fingerprint:
            click.echo(f"Certificate (SHA-256): {fingerprint}", err=True)
        click.echo("Control page: clawkit gateway url. Token: clawkit gateway token.", err=True)

    serve.run(loaded, port, say, started_by, LazyRooms())
    click.echo("clawkit gateway: stopped", err=True)


class LazyRooms:
    """Imports the commands of the chat when the first chat is opened."""

    def wrap(self, approver: Approver) -> Approver:
        from clawkit.ui.session import TypedCallApprover

        return TypedCallApprover(approver)

    def open(self, *given: Any, **options: Any) -> HostedChat:
        from clawkit.cli.chat_host import ChatRoom

        return ChatRoom(*given, **options)


def _call(
    config_file: str | None, url: str | None, token: str | None, timeout_s: float, *request: Any
) -> Any:
    from clawkit.gateway.client import connect

    target, _ = _locate(config_file, url, token)
    with connect(target, timeout_s=timeout_s) as link:
        method, params = request
        return link.call(method, params, timeout_s)


@click.command()
@click.argument("method")
@click.option("--params", default="{}", metavar="JSON", help="Parameters, a JSON object.")
@click.option("--json", is_flag=True, expose_value=False, help="Always on.")
@_url_options
@config_option
def call(
    method: str,
    params: str,
    url: str | None,
    token: str | None,
    timeout_s: float,
    config_file: str | None,
) -> None:
    """Call a method and print its answer as JSON.

    \b
    clawkit gateway call sessions.list --params '{"limit": 5}'
    """
    refuse_commands("use the gateway")
    try:
        given = msgspec.json.decode(params, type=dict[str, Any])
    except ValueError as error:
        raise click.UsageError(f"--params: {error}") from None
    print_json(_call(config_file, url, token, timeout_s, method, given))


@click.command()
@json_option
@_url_options
@config_option
def health(
    as_json: bool, url: str | None, token: str | None, timeout_s: float, config_file: str | None
) -> None:
    """Ask the running gateway for its health."""
    refuse_commands("use the gateway")
    found = _call(config_file, url, token, timeout_s, "health", {})
    if as_json:
        print_json(found)
        return
    agents = ", ".join(
        f"{each['agentId']} ({each['sessions']['count']} sessions)" for each in found["agents"]
    )
    click.echo(printable(f"ok, answered in {found['durationMs']} ms; agents: {agents}"))
    for line in explain_config(found.get("config", {})):
        click.echo(printable(line))


@click.command()
@json_option
@_url_options
@config_option
def status(
    as_json: bool, url: str | None, token: str | None, timeout_s: float, config_file: str | None
) -> None:
    """Show whether a gateway is running, and who is connected. The exit code is 1 if none is."""
    refuse_commands("use the gateway")
    from clawkit.gateway.client import connect
    from clawkit.gateway.record import look

    state, target = look(), None
    try:
        target, state = _locate(config_file, url, token)
        with connect(target, timeout_s=timeout_s) as link:
            hello = link.hello
    except ConfigError:
        if (record := state.record) is not None and record.config_problem:
            click.echo(printable(f"{record.url}: running, {how_started(record)}"))
            click.echo("It uses what it read before the configuration file became invalid.")
        raise
    except ToolError as error:
        why = "\n".join(filter(None, (str(error), explain_silence(state))))
        if not as_json:
            raise ToolError(why) from None
        shown = {**describe_state(state), "running": False, "error": why}
        print_json(shown | ({"url": target.url} if target else {}))
        raise click.exceptions.Exit(1) from None
    snapshot, server = hello["snapshot"], hello["server"]
    if as_json:
        shown = {
            **describe_state(state),
            "running": True,
            "url": target.url,
            "version": server["version"],
        }
        shown |= {key: snapshot[key] for key in ("uptimeMs", "presence")}
        shown["configState"] = snapshot["health"].get("config", {})
        print_json(shown | {"auth": hello["auth"]["method"]})
        return
    uptime = human_time(snapshot["uptimeMs"] / 1000)
    click.echo(printable(f"{target.url}: clawkit {server['version']}, running for {uptime}"))
    if state.is_ready and state.record is not None:
        click.echo(printable(how_started(state.record)))
    for line in explain_config(snapshot["health"].get("config", {})):
        click.echo(printable(line))
    keys = ("host", "mode", "version", "platform", "reason")
    rows = [[str(each.get(key, "")) for key in keys] for each in snapshot["presence"]]
    head = ("NAME", "MODE", "VERSION", "PLATFORM", "REASON")
    print_table(head, [[printable(one_line(cell, 60), "") for cell in row] for row in rows])


@click.command()
@json_option
@_url_options
@config_option
def url(
    as_json: bool, url: str | None, token: str | None, timeout_s: float, config_file: str | None
) -> None:
    """Print an address that opens the control page logged in: once, within ten minutes."""
    refuse_commands("use the gateway")
    target, _ = _locate(config_file, url, token)
    made = _call(config_file, url, token, timeout_s, "device.pair.loginCode", {})
    parts = urlsplit(target.url)
    scheme = {"ws": "http", "wss": "https"}[parts.scheme]
    # A new address each time: no one who used this port before can have put a page of theirs into
    # the browser's cache for it. What follows the # is not sent to servers, so it is in no log.
    address = f"{scheme}://{parts.netloc}{made['path']}?{token_hex(4)}#code={made['code']}"
    if as_json:
        print_json({"url": address, "expiresAtMs": made["expiresAtMs"]})
    else:
        click.echo(printable(address))


@click.command()
@json_option
@config_option
def token(as_json: bool, config_file: str | None) -> None:
    """Print the token that clients log in with; it is generated if none is configured."""
    refuse_commands("read the token of the gateway")
    check_installed()
    from clawkit.gateway.server import read_secret

    mode, secret = read_secret(load(config_file), generate=True)
    if mode not in ("token", "trusted-proxy"):
        raise ToolInputError(f"gateway.auth.mode is {mode!r}, so there is no token")
    if as_json:
        print_json({"token": secret})
    else:
        click.echo(secret)
