"""`clawkit approvals`: pending requests, the allowlist, and the log of decisions."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

import click

from clawkit.cli.allowlist import allowlist
from clawkit.cli.main import Group
from clawkit.cli.options import (
    Settings,
    can_ask,
    columns,
    config_option,
    counted,
    json_option,
    print_json,
    read_input,
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
    from clawkit.approvals.broker import PendingStore, Stored


_CHOICES = ("allow-once", "allow-always", "deny")
_SECURITY = click.Choice(["deny", "allowlist", "full"])
_ASK = click.Choice(["off", "on-miss", "always"])
_COLOURS = {"allow": "green", "ask": "yellow", "deny": "red"}
_WIDTH = 100


@click.group(cls=Group)
def approvals() -> None:
    """Answer approval requests, and manage the allowlist of commands that need none.

    \b
    clawkit approvals check 'git status | head'      would it run, and why
    clawkit approvals allowlist add git --args git   allow everyday git commands
    clawkit approvals pending                        requests waiting for an answer
    clawkit approvals resolve 3f2a allow-once        answer one
    clawkit approvals watch                          answer requests at this terminal
    """


@approvals.command(context_settings={"allow_extra_args": True})
@click.argument("command", required=False)
@click.option(
    "--allow",
    multiple=True,
    metavar="PATTERN",
    help="As if the allowlist had only this entry; repeatable.",
)
@click.option(
    "--safe-bin",
    "safe_bins",
    multiple=True,
    metavar="NAME",
    help="As if this were the only safe program; repeatable.",
)
@click.option("--security", type=_SECURITY, help="As if tools.exec.security had this value.")
@click.option("--ask", type=_ASK, help="As if tools.exec.ask had this value.")
@click.option(
    "--place",
    type=click.Choice(["auto", "sandbox", "host"]),
    help="Check it for the sandbox, for the host, or for where it would run (auto). Default: auto; "
    "host with --allow or --safe-bin.",
)
@click.option("--cwd", metavar="DIR", help="Directory of the command. Default: the workspace.")
@click.option(
    "--jsonl",
    is_flag=True,
    help="Read one case per line from standard input, such as "
    '{"command": "ls", "allowlist": ["ls"]}, and print one line for each.',
)
@json_option
@scope_options
def check(
    command: str | None,
    allow: tuple[str, ...],
    safe_bins: tuple[str, ...],
    jsonl: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Print whether a command would run, and where, without running it.

    Exit code 0 if it would run without asking, 3 if not. With --jsonl, 0, or 1 if a line is
    invalid.
    """
    from clawkit.approvals.entries import validate_pattern
    from clawkit.cli.approvals_check import Checker, check_lines, show, to_json

    if more := click.get_current_context().args:
        whole = shlex.quote(one_line(" ".join((command or "", *more)), 60))
        raise click.UsageError(f"quote the command: clawkit approvals check {whole}")
    settings = read_settings(options)
    warn(map(str, settings.loaded.warnings))
    case: dict[str, Any] = {key: options[key] for key in ("cwd", "security", "ask", "place")}
    case |= {"command": command, "allowlist": list(allow) or None}
    case |= {"safeBins": list(safe_bins) or None}
    checker = Checker(settings)
    if jsonl:
        if any(value is not None for value in case.values()):
            raise click.UsageError("with --jsonl, commands and their options come from the input")
        if sys.stdin is None:
            raise click.UsageError("--jsonl needs standard input, which is closed")
        sys.exit(check_lines(checker, sys.stdin.buffer))
    if command is None:
        raise click.UsageError("name a command: clawkit approvals check 'git status'")
    if case["cwd"] is not None and not os.path.isdir(case["cwd"]):
        raise click.UsageError(f"--cwd: {case['cwd']!r} is not a directory")
    if problem := next(filter(None, map(validate_pattern, allow)), ""):
        raise click.UsageError(f"--allow: {problem}")
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
    """List the requests that are waiting for an answer."""
    now_ms = round(time.time() * 1000)
    found = _pending(now_ms)
    if as_json:
        print_json([_row(each, now_ms) for each in found])
        return
    if not found:
        click.echo("No requests are pending.", err=True)
        return
    from clawkit.approvals.prompt import render

    for each in found:
        left = human_time(max(0, each.expires_ms - now_ms) / 1000)
        gone = "; the process that asked has exited" if each.orphaned else ""
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
    help="How much allow-always covers. Default: the narrowest that was offered.",
)
@click.option("--reason", default="", help="Reason, shown to the model.")
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
        click.echo("The process that asked has exited, so nothing will run.", err=True)


@approvals.command()
@json_option
def get(as_json: bool) -> None:
    """Show the approvals file and its revision."""
    from clawkit.approvals.file import read_document

    path = approvals_file(os.environ)
    document = read_document(path)
    if as_json:
        print_json({"path": path, "revision": document.revision, "document": document.shown})
        return
    if not document.exists:
        click.echo(f"{path} does not exist yet, so only the configuration applies.", err=True)
        return
    print_json(document.shown)
    click.echo(f"{path}, revision {document.revision}", err=True)


@approvals.command("set")
@click.option("--file", "file", metavar="FILE", help="The new file; - for standard input.")
@click.option("--base", metavar="REVISION", help="Fail if the file is no longer at this revision.")
@json_option
def set_(file: str | None, base: str | None, as_json: bool) -> None:
    """Replace the approvals file with another JSON file.

    An invalid file is refused. If the new file has no token, the current one is kept.

    \b
    clawkit approvals get > new.json; edit it; clawkit approvals set --file new.json
    """
    from clawkit.approvals.file import MAX_BYTES, replace

    refuse_commands()
    if file is None:
        raise click.UsageError("name the file: clawkit approvals set --file new.json")
    try:
        text = read_input(file, MAX_BYTES).decode()
    except ValueError:
        raise click.UsageError(f"cannot read {file!r}: it is not UTF-8") from None
    path = approvals_file(os.environ)
    document = replace(path, text, base)
    if as_json:
        print_json({"path": path, "revision": document.revision})
    else:
        click.echo(f"{path}: revision {document.revision}", err=True)


@approvals.command()
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True)
@json_option
def log(limit: int, as_json: bool) -> None:
    """Show the most recent decisions about commands, newest last."""
    from clawkit.approvals.audit import read

    records = list(read(audit_file(os.environ), limit))
    if as_json:
        print_json(records)
        return
    if not records:
        click.echo("No decisions recorded yet.", err=True)
    keys = ("at", "verdict", "actor", "command", "reason", "why", "extent")
    for record in records:
        texts = (one_line(printable(str(record.get(key, ""))), 200) for key in keys)
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
    """Suggest allowlist entries that would have avoided approval requests."""
    from clawkit.approvals.allow_always import suggest as make
    from clawkit.approvals.audit import read
    from clawkit.cli.approvals_check import Checker
    from clawkit.config.load import load
    from clawkit.core.context import Scope

    loaded = load(config_file)
    settings = Settings(loaded, Scope(agent=loaded.config.agents.default_id()), None)
    found = make(read(audit_file(os.environ), limit), Checker(settings).rules_for)
    if as_json:
        print_json([each._asdict() for each in found])
        return
    if not found:
        click.echo("No command was approved often enough to suggest an entry.", err=True)
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
        raise click.UsageError("watch needs a terminal to read your answers")
    asyncio.run(_watch())


approvals.add_command(allowlist)


def _waiting() -> PendingStore:
    from clawkit.approvals.broker import PendingStore

    return PendingStore(waiting_file(os.environ))


def _pending(now_ms: int) -> Sequence[Stored]:
    # Without the file, nothing has been asked yet; opening the store would create it.
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
    # Before the socket exists: a signal that arrives early must not leave it behind.
    done = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(each, done.set)
    try:
        server = await serve(path, token, TerminalApprover(bell=True).ask)
    except ConflictError:
        raise ConflictError(
            f"{path}: something else already answers requests, probably another "
            "`clawkit approvals watch`; stop it first"
        ) from None
    try:
        click.echo(f"Waiting for requests at {path}. Press Ctrl-C to stop.", err=True)
        # Earlier requests can only be answered by `resolve`.
        if waiting := len(_pending(round(time.time() * 1000))):
            said = f"{counted(waiting, 'earlier request')} pending: clawkit approvals pending"
            click.echo(said, err=True)
        await done.wait()
    finally:
        await server.close()
