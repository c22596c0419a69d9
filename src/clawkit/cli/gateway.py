"""`clawkit gateway`: run the gateway, and talk to a running one."""

from __future__ import annotations

import importlib.util
import logging
import shlex
from collections.abc import Sequence
from contextlib import suppress
from functools import wraps
from secrets import token_hex
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import click
import msgspec

from clawkit.cli import shared_options as cli
from clawkit.cli.gateway_answers import HealthAnswer, HelloAnswer, LoginCode, WaitingDevices
from clawkit.cli.gateway_status import (
    describe_state,
    explain_config,
    explain_reach,
    explain_silence,
    explain_waiting,
    how_started,
    say_local,
)
from clawkit.config.load import load
from clawkit.errors import ClawkitError, ConfigError, ToolError, ToolInputError
from clawkit.text import human_time, nearest, one_line, printable

if TYPE_CHECKING:
    from clawkit.core.approval import Approver
    from clawkit.gateway.client import Link, Target
    from clawkit.gateway.methods.chats import HostedChat
    from clawkit.gateway.process_record import StartedBy

_NEEDED = ("starlette", "uvicorn", "websockets", "cryptography")
_TIMEOUT = cli.timeout_option("Seconds to wait for an answer.", 86_400)


class GivenGateway(NamedTuple):
    """The gateway selected by the options of a command."""

    config_file: str | None
    url: str | None
    token: str | None
    timeout_s: float

    def find(self) -> Target:
        from clawkit.gateway.client import find_target

        loaded = load(self.config_file)
        try:
            return find_target(loaded, self.url, self.token)
        except ToolInputError as error:
            if self.url is None:
                raise
            raise click.UsageError(f"--url: {error}") from None

    def connect(self) -> Link:
        from clawkit.gateway.client import connect

        return connect(self.find(), timeout_s=self.timeout_s)

    def call(self, method: str, kind: Any) -> Any:
        """Call a method; returns its unchanged answer after validating it as `kind`."""
        from clawkit.gateway.client import read_as

        with self.connect() as link:
            found = link.call(method, {}, self.timeout_s)
        read_as(kind, found)
        return found


def _using(command: Any) -> Any:
    """Add the options that select a gateway, passed as the first argument."""

    @wraps(command)
    def run(url: Any, token: Any, timeout_s: Any, config_file: Any, **more: Any) -> None:
        cli.refuse_commands("use the gateway")
        command(GivenGateway(config_file, url, token, timeout_s), **more)

    token = click.option(
        "--token", help="What to log in with. Default: as configured; nothing with --url."
    )
    url = click.option("--url", help="Address of another gateway, ws:// or wss://.")
    return url(token(_TIMEOUT(cli.config_option(run))))


def check_installed() -> None:
    """Raises `ToolInputError` if the libraries of the gateway are missing."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        from clawkit.installation import how_to_add

        how = how_to_add("gateway")
        raise ToolError(f"the gateway needs {', '.join(missing)}; install with: {how}")


@click.command()
@click.option("--port", type=click.IntRange(0, 65_535), help="Port; 0 takes a free one.")
@click.option(
    "--started-by", type=click.Choice(("run", "start", "service")), default="run", hidden=True
)
@cli.config_option
def run(port: int | None, started_by: StartedBy, config_file: str | None) -> None:
    """Run the gateway until Ctrl-C or SIGTERM.

    It listens on this machine only, unless gateway.bind is set, and on other addresses only with
    authentication.
    """
    cli.refuse_commands("run a gateway")
    check_installed()
    from clawkit.gateway import serve

    loaded = load(config_file)
    cli.warn(map(str, loaded.warnings))
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)

    def say(host: str, at: int, fingerprint: str) -> None:
        place, s = f"[{host}]:{at}" if ":" in host else f"{host}:{at}", "s" if fingerprint else ""
        click.echo(f"clawkit gateway: ws{s}://{place}, http{s}://{place}", err=True)
        for line in explain_reach(host, at, fingerprint):
            click.echo(line, err=True)
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


@click.command()
@click.argument("method")
@click.option("--params", default="{}", metavar="JSON", help="Parameters, a JSON object.")
@click.option("--json", is_flag=True, expose_value=False, help="Always on.")
@_using
def call(options: GivenGateway, method: str, params: str) -> None:
    """Call a method and print its answer as JSON.

    \b
    clawkit gateway call sessions.list --params '{"limit": 5}'
    """
    try:
        wanted = msgspec.json.decode(params, type=dict[str, Any])
    except ValueError as error:
        what = f"--params must be a JSON object, such as '{{\"limit\": 5}}': {error}"
        raise click.UsageError(what) from None
    with options.connect() as link:
        try:
            cli.print_json(link.call(method, wanted, options.timeout_s))
        except ToolError as error:
            if not str(error).startswith("unknown method"):
                raise
            raise ClawkitError(f"{error}{_suggest(method, link.methods)}") from None


def _suggest(method: str, known: Sequence[str]) -> str:
    """Similar methods, else those of the same group, else all groups."""
    if hint := cli.suggest(method, known):
        return hint
    groups = {each.partition(".")[0] for each in known if "." in each}
    close = nearest(method.partition(".")[0], groups, 1)
    own = [each for each in known if each.partition(".")[0] in close]
    return f"; the gateway has {', '.join(sorted(own or (f'{each}.*' for each in groups)))}"


@click.command()
@cli.json_option
@_using
def health(options: GivenGateway, as_json: bool) -> None:
    """Check the health of the running gateway."""
    found = options.call("health", HealthAnswer)
    if as_json:
        cli.print_json(found)
        return
    agents = ", ".join(
        f"{each['agentId']} ({cli.counted(each['sessions']['count'], 'session')})"
        for each in found["agents"]
    )
    _say(f"ok, answered in {found['durationMs']} ms; agents: {agents}")
    _say(*explain_config(found.get("config", {})))


def _say(*lines: str) -> None:
    for line in lines:
        click.echo(printable(line))


@click.command()
@cli.json_option
@_using
def status(options: GivenGateway, as_json: bool) -> None:
    """Show whether a gateway is running, and who is connected. The exit code is 1 if none is."""
    from clawkit.gateway.client import CallError, read_as
    from clawkit.gateway.process_record import GatewayState, look

    state, shown, waiting = look(), {}, []
    try:
        target = options.find()
        shown = {"url": target.url}
        state = state if target.is_own else GatewayState(0, None)
        with options.connect() as link:
            hello = link.hello
            read_as(HelloAnswer, hello)
            with suppress(CallError):  # requires rights that this client may lack
                listed = link.call("device.pair.list", {}, options.timeout_s)
                waiting = read_as(WaitingDevices, listed)["pending"]
    except ConfigError as error:
        if as_json:
            about = {**describe_state(state), "running": state.is_ready, "error": str(error)}
            cli.print_json(about)
        elif (record := state.record) is not None and record.config_problem:
            _say(f"{record.url}: running, {how_started(record)}")
            _say("It still uses the last valid configuration.")
        raise
    except ToolError as error:
        why = "\n".join(filter(None, (str(error), explain_silence(state))))
        if not as_json:
            raise ToolError(why) from None
        cli.print_json({**describe_state(state), "running": False, "error": why, **shown})
        raise click.exceptions.Exit(1) from None
    snapshot, version = hello["snapshot"], hello["server"]["version"]
    config = snapshot["health"].get("config", {})
    if as_json:
        about = {**describe_state(state), "running": True, **shown, "version": version}
        about |= {key: snapshot[key] for key in ("uptimeMs", "presence")}
        about |= {"configState": config, "auth": hello["auth"]["method"]}
        cli.print_json(about | {"pendingDevices": len(waiting)})
        return
    uptime = human_time(snapshot["uptimeMs"] / 1000)
    _say(f"{target.url}: clawkit {version}, running for {uptime}")
    if state.is_ready and (ready := state.record) is not None:
        _say(how_started(ready), *explain_reach(ready.host, ready.port, ready.fingerprint))
    _say(*explain_config(config))
    _say(*explain_waiting(waiting, f" --url {shlex.quote(options.url)}" if options.url else ""))
    keys = ("host", "mode", "version", "platform")
    rows = [[str(each.get(key, "")) for key in keys] for each in snapshot["presence"]]
    head = ("CONNECTED", "KIND", "VERSION", "PLATFORM")
    cli.print_table(head, [[printable(one_line(cell, 60), "") for cell in row] for row in rows])


@click.command()
@cli.json_option
@_using
def url(options: GivenGateway, as_json: bool) -> None:
    """Print an address that opens the control page and logs in once, within ten minutes."""
    made, parts = options.call("device.pair.loginCode", LoginCode), urlsplit(options.find().url)
    scheme = {"ws": "http", "wss": "https"}[parts.scheme]
    # A new URL each time, so that a former program on this port cannot have a page in the browser's
    # cache for it. The part after # is not sent to servers, so it is not logged.
    address = f"{scheme}://{parts.netloc}{made['path']}?{token_hex(4)}#code={made['code']}"
    if as_json:
        cli.print_json({"url": address, "expiresAtMs": made["expiresAtMs"]})
    else:
        click.echo(printable(address))


@click.command()
@cli.json_option
@cli.config_option
def token(as_json: bool, config_file: str | None) -> None:
    """Print the token that clients log in with, and generate it if none is configured."""
    cli.refuse_commands("read the token of the gateway")
    check_installed()
    say_local(config_file)
    from clawkit.gateway.daemon import check_home
    from clawkit.gateway.server import read_secret

    check_home()
    mode, secret = read_secret(load(config_file))
    if mode not in ("token", "trusted-proxy"):
        raise ToolError(f"gateway.auth.mode is {mode!r}, so there is no token")
    if as_json:
        cli.print_json({"token": secret})
    else:
        click.echo(secret)
