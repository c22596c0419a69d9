"""`clawkit gateway start`, `stop`, `restart`, `install` and `uninstall`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from clawkit.cli import shared_options as cli
from clawkit.cli.gateway import check_installed
from clawkit.cli.gateway_logs import log_file
from clawkit.cli.gateway_status import describe, explain_reach, say_local
from clawkit.config.load import load
from clawkit.config.paths import abbreviate_home, home
from clawkit.config.paths import config_file as usual_config
from clawkit.errors import ConflictError, ToolError
from clawkit.text import printable

if TYPE_CHECKING:
    from clawkit.gateway.process_record import GatewayState, RunningGateway
    from clawkit.gateway.service_file import ServiceFile

_MAX_FILE = 64 * 1024
_CONTROL_S = 90.0
_PORT = click.option(
    "--port", type=click.IntRange(0, 65_535), help="Port; 0 takes a free one. Default: configured."
)


def _say_started(record: RunningGateway, action: str, as_json: bool) -> None:
    rows = [f"clawkit gateway: {action}, process {record.pid}, {record.url}"]
    rows += explain_reach(record.host, record.port, record.fingerprint)
    rows.append(f"Log: {abbreviate_home(log_file())}")
    cli.print_done(as_json, {action: True, **describe(record)}, "\n".join(rows))


@click.command()
@_PORT
@cli.timeout_option("Seconds to wait until it is ready.")
@cli.json_option
@cli.config_option
def start(port: int | None, timeout_s: float, as_json: bool, config_file: str | None) -> None:
    """Start the gateway in the background, and wait until it is ready.

    It keeps running when the terminal is closed. Its log is logs/gateway.jsonl in clawkit's home.
    """
    cli.refuse_commands("start a gateway")
    check_installed()
    say_local(config_file)
    from clawkit.gateway import daemon

    cli.warn(map(str, load(config_file).warnings))
    _say_started(daemon.start(config_file, port, timeout_s), "started", as_json)


@click.command()
@cli.timeout_option("Seconds to wait until it has stopped.")
@click.option("--force", is_flag=True, help="Kill it if it has not stopped by then.")
@cli.json_option
def stop(timeout_s: float, force: bool, as_json: bool) -> None:
    """Stop the gateway of this home gracefully, however it was started."""
    cli.refuse_commands("stop the gateway")
    say_local()
    from clawkit.gateway import daemon
    from clawkit.gateway.process_record import look

    state = look()
    if not state.pid:
        daemon.clean_up()
        stale = state.stale
        how = f" (process {stale.pid} was killed or has crashed)" if stale is not None else ""
        raise ToolError(f"no gateway is running for {home(os.environ)}{how}")
    is_killed = daemon.stop(state.pid, timeout_s, force=force)
    done = {"stopped": True, "pid": state.pid, "killed": is_killed}
    how = "killed" if is_killed else "stopped"
    cli.print_done(as_json, done, f"clawkit gateway: {how}, process {state.pid}")


@click.command()
@_PORT
@cli.timeout_option("Seconds to wait until the old one has stopped, and the new one is ready.")
@cli.json_option
@cli.config_option
def restart(port: int | None, timeout_s: float, as_json: bool, config_file: str | None) -> None:
    """Stop the gateway gracefully and start it again with the same options.

    If none is running, it is started. An invalid configuration leaves the running one alone.
    """
    cli.refuse_commands("restart the gateway")
    check_installed()
    say_local(config_file)
    from clawkit.gateway import daemon
    from clawkit.gateway.process_record import look
    from clawkit.gateway.service_file import make_service_file

    state = look()
    before = state.record if state.pid else None
    if before is not None:
        if before.config != usual_config(os.environ):  # the file may have been removed
            config_file = config_file or before.config
        if port is None:  # keep an automatically chosen port, because clients know it
            port = before.port if before.asked_port == 0 else before.asked_port
    cli.warn(map(str, load(config_file).warnings))
    if before is not None and before.started_by == "service":
        _control([make_service_file(os.environ).restart])
        record = daemon.await_ready(state.pid, timeout_s)
    else:
        if state.pid:
            _refuse_foreground(state)
            daemon.stop(state.pid, timeout_s)
        record = daemon.start(config_file, port, timeout_s)
    _say_started(record, "restarted" if state.pid else "started", as_json)


def _refuse_foreground(state: GatewayState) -> None:
    if state.record is None:
        raise ConflictError(
            f"the gateway (process {state.pid}) is starting or stopping; try again in a moment"
        )
    if state.record.started_by == "run":
        raise ConflictError(
            f"process {state.pid} runs in the foreground (clawkit gateway run); press Ctrl-C there "
            "and run it again, or move it to the background with: clawkit gateway stop && clawkit "
            "gateway start"
        )


def _control(commands: Sequence[Sequence[str]]) -> None:
    """Run commands of the service manager. Raises `ToolError` that says what to type."""
    for at, argv in enumerate(commands):
        try:
            done = subprocess.run(
                argv,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_CONTROL_S,
                check=False,
                stdin=subprocess.DEVNULL,
            )
            why = (done.stderr.strip() or f"exit code {done.returncode}") if done.returncode else ""
        except FileNotFoundError:
            why = "it is not installed"
        except subprocess.TimeoutExpired:
            why = f"it did not end within {_CONTROL_S:g} seconds"
        if why:
            left = " && ".join(" ".join(each) for each in commands[at:])
            raise ToolError(f"{argv[0]} failed: {why}\nFix that, and type: {left}")


def _read_ours(path: str) -> str | None:
    """The service file, if it exists. Raises `ToolInputError` if clawkit did not write it."""
    from clawkit.gateway.service_file import MARK

    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(_MAX_FILE)
    except FileNotFoundError:
        return None
    if MARK not in text:
        raise ToolError(f"{path} was not written by clawkit; move it away first")
    return text


@click.command()
@_PORT
@cli.yes_option()
@click.option("--no-start", is_flag=True, help="Only write the file.")
@cli.json_option
@cli.config_option
def install(
    port: int | None, yes: bool, no_start: bool, as_json: bool, config_file: str | None
) -> None:
    """Install a service that starts the gateway when you log in.

    Shows the file, a systemd user unit or a launchd agent, and asks before writing it. The file
    contains no secrets: the service reads them from the configuration and from .env in clawkit's
    home.
    """
    cli.refuse_commands("install a service")
    check_installed()
    from clawkit.gateway.service_file import make_service_file
    from clawkit.store import write_atomic

    cli.warn(map(str, load(config_file).warnings))
    made = make_service_file(os.environ, config_file, port)
    existing = _read_ours(made.path)
    click.echo(printable(f"{made.path}:\n\n{made.text}"), err=True)
    if existing != made.text:
        if not yes:
            verb = "Replace" if existing is not None else "Write"
            cli.confirm(f"{verb} this file?", "nothing was written")
        os.makedirs(os.path.dirname(made.path), exist_ok=True)
        write_atomic(made.path, made.text.encode(), mode=0o644)
    is_started = False if no_start else _enable(made)
    _say_installed(made, is_started, no_start, as_json)


def _enable(service: ServiceFile) -> bool:
    """Enable the service; start it unless a gateway is running. Returns whether it was started."""
    from clawkit.gateway.process_record import look

    is_free = not look().pid
    try:
        _control([*service.enable, service.start] if is_free else service.enable)
    except ToolError as error:
        raise ToolError(f"{service.path} was written, but {error}") from None
    return is_free


def _say_installed(service: ServiceFile, is_started: bool, no_start: bool, as_json: bool) -> None:
    start = [service.start] if not is_started else []
    todo = [" ".join(each) for each in ((*service.enable, *start) if no_start else start)]
    said = (
        "A gateway is already running for this home. To replace it with the service, type: "
        f"clawkit gateway stop && {' && '.join(todo)}"
    )
    if is_started:
        said = "It is running; see: clawkit gateway status"
    elif no_start:
        said = f"To enable and start it, type: {' && '.join(todo)}"
    if service.kind == "systemd" and not _lingers():
        said += "\nIt stops when you log out. To start it at boot and keep it, type: "
        said += "loginctl enable-linger"
    shown = {"installed": service.path, "service": service.name, "started": is_started}
    cli.print_done(as_json, {**shown, "commands": todo}, f"Wrote {service.path}.\n{said}")


def _lingers() -> bool:
    import pwd

    with suppress(KeyError):
        name = pwd.getpwuid(os.getuid()).pw_name
        return os.path.exists(os.path.join("/var/lib/systemd/linger", name))
    return False


@click.command()
@cli.yes_option()
@cli.json_option
def uninstall(yes: bool, as_json: bool) -> None:
    """Stop the service and remove its file. Sessions, settings and the log are kept."""
    cli.refuse_commands("remove a service")
    from clawkit.gateway.service_file import make_service_file

    made = make_service_file(os.environ)
    if _read_ours(made.path) is None:
        raise ToolError(
            f"no service is installed for {home(os.environ)}: there is no {made.path}; to stop a "
            "gateway, type: clawkit gateway stop"
        )
    steps = [*(" ".join(each) for each in made.disable), f"rm {made.path}"]
    click.echo(printable("This runs:\n  " + "\n  ".join(steps)), err=True)
    if not yes:
        cli.confirm("Remove the service?", "nothing was removed")
    problem = ""
    try:
        _control(made.disable)
    except ToolError as error:
        problem = str(error).partition("\n")[0]
    os.unlink(made.path)
    with suppress(ToolError):
        _control(made.forget)
    if problem and not as_json:
        cli.warn([f"{problem}; if the gateway is still running, type: clawkit gateway stop"])
    done = {"removed": made.path, "warning": problem or None}
    cli.print_done(as_json, done, f"Removed {made.path}.")
