"""The facts for `clawkit gateway status` from the home directory, without asking the gateway."""

from __future__ import annotations

import ipaddress
import json
import os
import shlex
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from clawkit.cli.gateway_logs import log_file
from clawkit.cli.shared_options import counted
from clawkit.config.gateway_address import is_loopback
from clawkit.config.load import load
from clawkit.config.paths import home
from clawkit.errors import ClawkitError, ConfigError
from clawkit.gateway.client import Target
from clawkit.text import one_line

if TYPE_CHECKING:
    from clawkit.cli.doctor_checks import Findings
    from clawkit.config.load import Loaded
    from clawkit.gateway.process_record import GatewayState, RunningGateway

_ALL_ADDRESSES = ("0.0.0.0", "::")  # noqa: S104
_TAILNET = ipaddress.ip_network("100.64.0.0/10")
_TO_ENCRYPT = (
    "To encrypt it: clawkit config set gateway.tls.enabled true && clawkit gateway restart"
)
_TO_LOG_IN = (
    'clawkit config set gateway.remote.token "…"; on its machine, this prints it: clawkit gateway '
    "token"
)
_PROBE_S = 5.0
_STARTED_BY = {
    "run": "in the foreground (clawkit gateway run)",
    "start": "in the background (clawkit gateway start)",
    "service": "as a service (clawkit gateway install)",
}


def describe(record: RunningGateway) -> dict[str, Any]:
    """A gateway record as JSON data."""
    return {
        "pid": record.pid,
        "url": record.url,
        **({"fingerprint": record.fingerprint} if record.fingerprint else {}),
        "since": record.since,
        "version": record.version,
        "startedBy": record.started_by,
        "config": record.config,
        "configProblem": record.config_problem,
        "restartNeeded": list(record.restart_needed),
        "home": home(os.environ),
        "log": log_file(),
    }


def describe_state(state: GatewayState) -> dict[str, Any]:
    """The state of the home as JSON data; empty if there is none."""
    if state.stale is not None:
        return {"stale": describe(state.stale)}
    if state.record is not None:
        return describe(state.record)
    return {"pid": state.pid} if state.pid else {}


def how_started(record: RunningGateway) -> str:
    """`process 7, since …, in the background (clawkit gateway start)`."""
    return f"process {record.pid}, since {record.since}, {_STARTED_BY[record.started_by]}"


def explain_config(state: dict[str, Any]) -> Iterator[str]:
    """Which configuration is not in force, according to the health of a gateway."""
    for each in state.get("issues", ()):
        where = f"{each['path']}: " if each["path"] else ""
        yield (
            "The configuration file is invalid, so the gateway uses what it read before: "
            f"{where}{each['message']}"
        )
    if paths := state.get("restartNeeded"):
        yield f"Restart it to apply {', '.join(paths)}: clawkit gateway restart"


def explain_reach(host: str, port: int, fingerprint: str) -> Iterator[str]:
    """How other machines reach a gateway, and whether the connection is encrypted."""
    if not is_loopback(host):
        far = _own_address(host) if host in _ALL_ADDRESSES else host
        url = Target(far, port, is_tls=bool(fingerprint)).url
        yield f"It listens on {_name_reach(host, fingerprint)}. For other machines: {url}"
    if fingerprint:
        yield f"Certificate (SHA-256): {fingerprint}"
    elif _is_readable(host, fingerprint):
        yield f"Others in the network can read the traffic. {_TO_ENCRYPT}"


def _name_reach(host: str, fingerprint: str) -> str:
    where = "all addresses of this machine" if host in _ALL_ADDRESSES else host
    return f"{where}, unencrypted" if _is_readable(host, fingerprint) else where


def _is_readable(host: str, fingerprint: str) -> bool:
    """Whether others could read traffic to a gateway. Tailscale encrypts it anyway."""
    if fingerprint or is_loopback(host):
        return False
    try:
        return ipaddress.ip_address(host) not in _TAILNET
    except ValueError:
        return True


def _own_address(host: str) -> str:
    """The address that other machines can most likely use, else the host name."""
    family, other = (
        (socket.AF_INET6, "2001:db8::1") if ":" in host else (socket.AF_INET, "192.0.2.1")
    )
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((other, 9))  # sends nothing
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostname()


def explain_waiting(pending: Sequence[dict[str, Any]], options: str) -> Iterator[str]:
    """Which devices wait for approval, and how to approve them. `options` select the gateway."""
    if pending:
        yield f"{counted(len(pending), 'device')} waiting for approval. If you know it, type:"
    for each in pending:
        # On a separate line: the device's name is untrusted and must not be pasted into a shell.
        name = one_line(str(each.get("displayName") or each.get("clientId") or ""), 40)
        scopes = ", ".join(each.get("scopes", ()))
        yield f"  {name!r} at {each.get('remoteIp', '')}, as {each['role']}: {scopes}"
        given = shlex.quote(json.dumps({"requestId": each["requestId"]}))
        yield f"    clawkit gateway call device.pair.approve{options} --params {given}"


def explain_silence(state: GatewayState) -> str:
    """What the home reveals about a gateway that does not answer; empty if nothing."""
    if (stale := state.stale) is not None:
        return (
            f"The last one was killed or has crashed, and left a stale lock: {how_started(stale)}. "
            "The next start removes it"
        )
    if state.record is not None:
        return (
            f"It holds the lock, but does not answer: {how_started(state.record)}. See: clawkit "
            "gateway logs; end it with: clawkit gateway stop --force"
        )
    if state.pid:
        return (
            f"Process {state.pid} holds the lock: it is starting or stopping, or it is `clawkit "
            "cron serve`"
        )
    return ""


def say_local(config_file: str | None = None) -> None:
    """Note that a command is about this machine, if the configuration names a remote gateway."""
    with suppress(ConfigError):  # reported elsewhere, and a gateway can still be stopped
        settings = load(config_file).config.gateway
        if settings is not None and settings.mode == "remote":
            click.echo(
                "clawkit: gateway.mode is 'remote'; this is about a gateway on this machine",
                err=True,
            )


def check_remote(loaded: Loaded) -> Findings:
    """Whether the gateway of `gateway.remote` answers and admits this device."""
    from clawkit.cli.doctor_checks import fault, ok
    from clawkit.gateway.client import CallError, connect, find_target

    settings = loaded.config.gateway
    if settings is None or settings.mode != "remote":
        return
    if not settings.remote.url:
        to_set = "clawkit config set gateway.remote.url wss://HOST:PORT"
        yield fault("gateway.mode is 'remote', but gateway.remote.url is not set", to_set)
        return
    try:
        target = find_target(loaded)
        connect(target, timeout_s=_PROBE_S).close()
        yield ok(f"the remote gateway {target.url} answers, and this device can log in")
    except CallError as error:
        yield fault(f"the remote gateway refuses the login: {error}", _TO_LOG_IN)
    except ClawkitError as error:
        yield fault(
            str(error), "Start it there, or use this machine: clawkit config unset gateway.mode"
        )


def check_gateway() -> Findings:
    """Changes that the running gateway has not applied; nothing if none is running."""
    from clawkit.cli.doctor_checks import fault, ok, warn
    from clawkit.gateway.process_record import look

    state = look()
    if not state.is_ready or state.record is None:
        return
    record = state.record
    if record.config_problem:
        problem = f"uses the last valid configuration: {record.config_problem}"
        yield fault(f"the gateway (process {record.pid}) {problem}", "Fix the file")
    if paths := ", ".join(record.restart_needed):
        what = f"the gateway (process {record.pid}) does not use the changed {paths}"
        yield warn(what, "Run: clawkit gateway restart")
    if _is_readable(record.host, record.fingerprint):
        reach = _name_reach(record.host, record.fingerprint)
        yield warn(f"the gateway (process {record.pid}) listens on {reach}", _TO_ENCRYPT)
    if not (record.config_problem or paths):
        yield ok(f"running, process {record.pid}, {record.url}")
