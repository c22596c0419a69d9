"""`clawkit approvals`: what waits for an answer, what is allowed, and why."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

import click

from clawkit.cli.allowlist import allowlist
from clawkit.cli.options import (
    Settings,
    can_ask,
    columns,
    config_option,
    json_option,
    print_json,
    read_settings,
    refuse_commands,
    scope_options,
    warn,
)
from clawkit.config.paths import approvals_file, audit_file, home, waiting_file
from clawkit.core.approval import Extent
from clawkit.errors import ConflictError
from clawkit.text import human_time, one_line, printable

if TYPE_CHECKING:
    from clawkit.approvals.pending_store import PendingStore, Stored


_CHOICES = ("allow-once", "allow-always", "deny")
_COLOURS = {"allow": "green", "ask": "yellow", "deny": "red"}
_WIDTH = 100


@click.group()
@click.pass_context
def approvals(context: click.Context) -> None:
    """Answer approval requests, and decide which commands need none.

    \b
    clawkit approvals check 'git status | head'      would it run, and why
    clawkit approvals allowlist add git --args git   allow everyday git commands
    clawkit approvals pending                        requests waiting for an answer
    clawkit approvals resolve 3f2a allow-once        answer it
    clawkit approvals watch                          answer requests at this terminal
    """
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        context.color = False


@approvals.command()
@click.argument("command", required=False)
@click.option(
    "--allow",
    multiple=True,
    metavar="PATTERN",
    help="As if only this were on the allowlist; can be given several times.",
)
@click.option(
    "--safe-bin",
    "safe_bins",
    multiple=True,
    metavar="NAME",
    help="As if only this were a safe program; can be given several times.",
)
@click.option("--security", type=click.Choice(["deny", "allowlist", "full"]), help="As if set.")
@click.option("--ask", type=click.Choice(["off", "on-miss", "always"]), help="As if set.")
@click.option(
    "--place",
    type=click.Choice(["auto", "sandbox", "host"]),
    help="Judge it for the sandbox, for the host, or for where it would run (auto). Default: auto, "
    "and host with --allow or --safe-bin.",
)
@click.option("--cwd", metavar="DIR", help="Where the command would run. Default: the workspace.")
@click.option(
    "--jsonl",
    is_flag=True,
    help="Read one case per line from standard input, such as "
    '{"command": "ls", "allowlist": ["ls"]}, and answer each with a line.',
)
@json_option
@scope_options
def check(
    command: str | None,
    allow: tuple[str, ...],
    safe_bins: tuple[str, ...],
    security: str | None,
    ask: str | None,
    place: str | None,
    cwd: str | None,
    jsonl: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Say whether a command would run, and where, without running it.

    Exit code 0 if it would run without asking, 3 if not. With --jsonl 0, or 1 if a line is invalid.
    """
    from clawkit.approvals.entries import validate_pattern
    from clawkit.cli.approvals_check import Checker, check_lines, show, to_json

    settings = read_settings(options)
    warn(map(str, settings.loaded.warnings))
    if jsonl:
        if command is not None or allow or safe_bins or security or ask or place or cwd:
            raise click.UsageError("--jsonl takes all of that from standard input")
        if sys.stdin is None:
            raise click.UsageError("--jsonl needs standard input, which is closed")
        sys.exit(check_lines(Checker(settings), sys.stdin.buffer))
    if command is None:
        raise click.UsageError("name a command: clawkit approvals check 'git status'")
    if cwd is not None and not os.path.isdir(cwd):
        raise click.UsageError(f"--cwd: {cwd!r} is not a directory")
    if problem := next(filter(None, map(validate_pattern, allow)), ""):
        raise click.UsageError(f"--allow: {problem}")
    case: dict[str, Any] = {"command": command, "cwd": cwd, "security": security, "ask": ask}
    case |= {"place": place, "allowlist": list(allow) or None, "safeBins": list(safe_bins) or None}
    checker = Checker(settings)
    try:
        decision = checker.check(case)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if as_json:
        print_json(to_json(decision))
    else:
        show(decision, command, checker.backend)
    sys.exit(0 if decision.verdict == "allow" else 3)


@approvals.command()
@json_option
def pending(as_json: bool) -> None:
    """List the requests that wait for an answer."""
    now_ms = round(time.time() * 1000)
    found = _pending(now_ms)
    if as_json:
        print_json([_row(each, now_ms) for each in found])
        return
    if not found:
        click.echo("No request is pending.", err=True)
        return
    from clawkit.approvals.prompt import render

    for each in found:
        left = human_time(max(0, each.expires_ms - now_ms) / 1000)
        gone = "; the process that asked is gone" if each.orphaned else ""
        click.secho(f"{each.slug}  {left} left{gone}", bold=True)
        for row in render(each.question, width=(columns() or _WIDTH) - 2).split("\n"):
            click.echo(f"  {row}")
        always = "|allow-always" if each.question.stored else ""
        click.echo(f"  Answer: clawkit approvals resolve {each.slug} allow-once{always}|deny")


@approvals.command()
@click.argument("approval", metavar="ID")
@click.argument("decision", type=click.Choice(_CHOICES))
@click.option(
    "--extent",
    type=click.Choice(get_args(Extent)),
    help="How much allow-always covers. Default: the least that was offered.",
)
@click.option("--reason", default="", help="Why; the model sees it.")
@json_option
def resolve(approval: str, decision: str, extent: str | None, reason: str, as_json: bool) -> None:
    """Answer the request ID with allow-once, allow-always or deny.

    ID may be a prefix, as long as it is unambiguous.
    """
    import pwd

    from clawkit.approvals.broker import Broker

    refuse_commands()
    if extent is not None and decision != "allow-always":
        raise click.UsageError("--extent requires allow-always")
    waiting = _waiting()
    asked = waiting.get(approval)
    if decision == "allow-always" and extent is None and asked.question.stored:
        extent = asked.question.stored[0].extent
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    done = Broker(waiting).resolve(
        asked.id,
        decision,
        extent=extent,
        reason=reason,
        actor=f"{user} at the command line",
        authorized=True,
    )
    if as_json:
        print_json({"id": done.id, "decision": decision, "extent": extent, "reason": reason})
        return
    shown = f" ({extent})" if extent else ""
    click.echo(f"{done.slug}: {decision}{shown}", err=True)
    if asked.orphaned and decision != "deny":
        click.echo("But the process that asked is gone, so nothing runs.", err=True)


@approvals.command()
@json_option
def get(as_json: bool) -> None:
    """Show the approvals document and its revision."""
    from clawkit.approvals.file import read_document

    path = approvals_file(os.environ)
    document = read_document(path)
    if as_json:
        print_json({"path": path, "revision": document.revision, "document": document.shown})
        return
    if not document.exists:
        click.echo(f"{path} does not exist yet; only the configuration applies.", err=True)
        return
    print_json(document.shown)
    click.echo(f"{path}, revision {document.revision}", err=True)


@approvals.command("set")
@click.option("--file", "file", metavar="FILE", help="The new document; - for standard input.")
@click.option("--base", metavar="REVISION", help="Refuse if the document has changed since.")
@json_option
def set_(file: str | None, base: str | None, as_json: bool) -> None:
    """Replace the approvals document with a JSON file.

    An invalid document is refused; without a token the current one is kept.

    \b
    clawkit approvals get > new.json; edit it; clawkit approvals set --file new.json
    """
    from clawkit.approvals.file import replace

    refuse_commands()
    if file is None:
        raise click.UsageError("name the file: clawkit approvals set --file new.json")
    path = approvals_file(os.environ)
    document = replace(path, _read_file(file), base)
    if as_json:
        print_json({"path": path, "revision": document.revision})
    else:
        click.echo(f"{path}: revision {document.revision}", err=True)


def _read_file(file: str) -> str:
    from clawkit.approvals.file import MAX_BYTES

    try:
        if file == "-":
            data = sys.stdin.buffer.read(MAX_BYTES + 1) if sys.stdin is not None else b""
        else:
            with open(file, "rb") as source:
                data = source.read(MAX_BYTES + 1)
        return data.decode()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise click.UsageError(f"cannot read {file!r}: {why}") from None


@approvals.command()
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True)
@json_option
def log(limit: int, as_json: bool) -> None:
    """Show the last decisions about commands, newest last."""
    from clawkit.approvals.audit import read

    records = list(read(audit_file(os.environ), limit))
    if as_json:
        print_json(records)
        return
    if not records:
        click.echo("No decisions recorded yet.", err=True)
    keys = ("at", "verdict", "actor", "command", "reason", "why", "extent")
    for each in records:
        texts = (one_line(printable(str(each.get(key, ""))), 200) for key in keys)
        at, verdict, actor, command, reason, why, extent = texts
        shown = click.style(f"{verdict:5}", fg=_COLOURS.get(verdict))
        click.echo(f"{at[:19].replace('T', ' ')} UTC  {shown}  {command}")
        always = f", always ({extent})" if extent else ""
        click.secho(f"    {actor}{always}: {why or reason}", dim=True)


@approvals.command()
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=5_000,
    show_default=True,
    help="How many decisions to consider.",
)
@json_option
@config_option
def suggest(limit: int, as_json: bool, config_file: str | None) -> None:
    """Suggest rules that would have avoided approval requests."""
    from clawkit.approvals.allow_always import suggest as make
    from clawkit.approvals.audit import read
    from clawkit.approvals.presets import PRESETS
    from clawkit.cli.approvals_check import Checker
    from clawkit.config.load import load
    from clawkit.core.context import Scope

    loaded = load(config_file)
    settings = Settings(loaded, Scope(agent=loaded.config.agents.default_id()), None)
    allowed = Checker(settings).would_allow
    found = make(read(audit_file(os.environ), limit), allowed, presets=PRESETS)
    if as_json:
        print_json([each._asdict() for each in found])
        return
    if not found:
        click.echo("Nothing was approved often enough to suggest a rule.", err=True)
    for each in found:
        example = one_line(printable(each.example), 100)
        click.secho(f"{each.count} requests, such as: {example}", bold=True)
        click.echo(f"  {each.words}")
        if each.note:
            click.echo(f"  But: {each.note}.")


@approvals.command()
def watch() -> None:
    """Answer approval requests at this terminal.

    Shows the requests of all your clawkit processes that have no terminal, until Ctrl-C.
    """
    import asyncio

    refuse_commands()
    if not can_ask():
        raise click.UsageError("watch needs a terminal to read your answers from")
    asyncio.run(_watch())


approvals.add_command(allowlist)


def _waiting() -> PendingStore:
    from clawkit.approvals.pending_store import PendingStore

    return PendingStore(waiting_file(os.environ))


def _pending(now_ms: int) -> Sequence[Stored]:
    # Without a store there has been no request yet.
    return _waiting().pending(now_ms) if os.path.lexists(waiting_file(os.environ)) else []


def _row(each: Stored, now_ms: int) -> dict[str, Any]:
    question = each.question
    return {
        "id": each.id,
        "slug": each.slug,
        "tool": question.tool,
        "title": question.title,
        "command": question.command,
        "cwd": question.cwd,
        "host": question.host,
        "place": question.place,
        "modes": list(question.modes),
        "agent": question.agent,
        "session": question.session,
        "reason": question.description,
        "notes": list(question.notes),
        "always": [{"extent": one.extent, "rule": one.words} for one in question.lasting],
        "createdAtMs": each.created_ms,
        "expiresAtMs": each.expires_ms,
        "expiresInMs": max(0, each.expires_ms - now_ms),
        "orphaned": each.orphaned,
    }


async def _watch() -> None:
    import asyncio
    import signal

    from clawkit.approvals.file import ensure_socket
    from clawkit.approvals.socket import serve, socket_path
    from clawkit.cli.terminal import TerminalApprover

    path, token = ensure_socket(approvals_file(os.environ), socket_path(home(os.environ)))
    # Before anything else: what comes to an end early leaves no socket behind.
    done = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(each, done.set)
    try:
        server = await serve(path, token, TerminalApprover(bell=True).ask)
    except ConflictError:
        raise ConflictError(
            f"{path}: requests are already answered elsewhere, probably by another "
            "`clawkit approvals watch`; stop that one first"
        ) from None
    try:
        click.echo(f"Waiting for requests at {path}. Press Ctrl-C to stop.", err=True)
        # Requests from before can only be answered by `resolve`.
        if waiting := len(_pending(round(time.time() * 1000))):
            said = "1 request is" if waiting == 1 else f"{waiting} requests are"
            click.echo(f"{said} pending already: clawkit approvals pending", err=True)
        await done.wait()
    finally:
        await server.close()
