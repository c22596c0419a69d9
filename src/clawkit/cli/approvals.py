"""`clawkit approvals`: what waits for an answer, what is allowed, and why."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_args

import click

from clawkit.cli.allowlisting import allowlist
from clawkit.cli.options import (
    Settings,
    config_option,
    is_terminal,
    json_option,
    print_json,
    read_settings,
    refuse_commands,
    scope_options,
    warn,
)
from clawkit.config.load import load
from clawkit.config.paths import approvals_file, audit_file, waiting_file
from clawkit.core.approval import Extent
from clawkit.core.context import Scope
from clawkit.text import human_time, one_line, printable

if TYPE_CHECKING:
    from clawkit.approvals.waiting import Stored, Waiting

_CHOICES = ("allow-once", "allow-always", "deny")
_COLOURS = {"allow": "green", "ask": "yellow", "deny": "red"}
_WIDTH = 100


@click.group()
@click.pass_context
def approvals(context: click.Context) -> None:
    """Answer questions about commands, and say which commands need none.

    \b
    clawkit approvals check 'git status | head'      would it run, and why
    clawkit approvals allowlist add git --args git   let git run, but nothing git could start
    clawkit approvals pending                        what waits for an answer
    clawkit approvals resolve 3f2a allow-once        answer it
    clawkit approvals watch                          answer all that comes, at this terminal
    """
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        context.color = False


@approvals.command()
@click.argument("command", required=False)
@click.option(
    "--allow",
    multiple=True,
    metavar="PATTERN",
    help="As if this were listed, and nothing else; can be given several times.",
)
@click.option(
    "--safe-bin",
    "safe_bins",
    multiple=True,
    metavar="NAME",
    help="As if this were a safe program, and no other; can be given several times.",
)
@click.option("--security", type=click.Choice(["deny", "allowlist", "full"]), help="As if set.")
@click.option("--ask", type=click.Choice(["off", "on-miss", "always"]), help="As if set.")
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
    cwd: str | None,
    jsonl: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Say what would become of a command, without running it.

    Exit code 0 when it would run unasked, 3 when not. With --jsonl 0, or 1 when a line made no
    sense.
    """
    from clawkit.cli.checking import Checker, check_lines, show, to_json

    settings = read_settings(options)
    warn(map(str, settings.loaded.warnings))
    if jsonl:
        if command is not None or allow or safe_bins or security or ask or cwd:
            raise click.UsageError("--jsonl takes all of that from standard input")
        if sys.stdin is None:
            raise click.UsageError("--jsonl needs standard input, which is closed")
        sys.exit(check_lines(Checker(settings), sys.stdin.buffer))
    if command is None:
        raise click.UsageError("say which command: clawkit approvals check 'git status'")
    _check_options(allow, cwd)
    case: dict[str, Any] = {"command": command, "cwd": cwd, "security": security, "ask": ask}
    case |= {"allowlist": list(allow)} if allow else {}
    case |= {"safeBins": list(safe_bins)} if safe_bins else {}
    try:
        decision = Checker(settings).check(case)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if as_json:
        print_json(to_json(decision))
    else:
        show(decision, command)
    sys.exit(0 if decision.verdict == "allow" else 3)


def _check_options(allow: tuple[str, ...], cwd: str | None) -> None:
    from clawkit.approvals.allow.entries import validate_pattern

    if cwd is not None and not os.path.isdir(cwd):
        raise click.UsageError(f"--cwd: {cwd!r} is not a directory")
    for pattern in allow:
        if problem := validate_pattern(pattern):
            raise click.UsageError(f"--allow: {problem}")


@approvals.command()
@json_option
def pending(as_json: bool) -> None:
    """Show the questions that wait for an answer."""
    now_ms = round(time.time() * 1000)
    # Nobody has asked anything yet when there is no store.
    found = _waiting().pending(now_ms) if os.path.lexists(waiting_file(os.environ)) else []
    if as_json:
        print_json([_row(each, now_ms) for each in found])
        return
    if not found:
        click.echo("Nothing waits for an answer.", err=True)
    for each in found:
        _show_pending(each, now_ms)


def _show_pending(each: Stored, now_ms: int) -> None:
    from clawkit.approvals.display import render

    left = human_time(max(0, each.expires_ms - now_ms) / 1000)
    gone = "; whoever asked is gone" if each.orphaned else ""
    click.secho(f"{each.slug}  {left} left{gone}", bold=True)
    for row in render(each.question, width=_width() - 2).split("\n"):
        click.echo(f"  {row}")
    always = "|allow-always" if each.question.lasting else ""
    click.echo(f"  Answer: clawkit approvals resolve {each.slug} allow-once{always}|deny")


def _width() -> int:
    """Columns of the terminal; what is no terminal has enough."""
    return (is_terminal(sys.stdout) and os.get_terminal_size(1).columns) or _WIDTH


@approvals.command()
@click.argument("approval", metavar="ID")
@click.argument("decision", type=click.Choice(_CHOICES))
@click.option(
    "--extent",
    type=click.Choice(get_args(Extent)),
    help="How much allow-always covers. Default: the least that was offered.",
)
@click.option("--reason", default="", help="Why; the model is told.")
@json_option
def resolve(approval: str, decision: str, extent: str | None, reason: str, as_json: bool) -> None:
    """Answer the question ID with allow-once, allow-always or deny.

    ID may be the beginning of one, as long as no other begins so.
    """
    from clawkit.approvals.broker import Broker

    refuse_commands()
    if extent is not None and decision != "allow-always":
        raise click.UsageError("--extent goes only with allow-always")
    waiting = _waiting()
    asked = waiting.get(approval)
    if decision == "allow-always" and extent is None and asked.question.lasting:
        extent = asked.question.lasting[0].extent
    done = Broker(waiting).resolve(
        asked.id,
        decision,
        extent=extent,
        reason=reason,
        actor=f"{_user()} at the command line",
        authorized=True,
    )
    if as_json:
        print_json({"id": done.id, "decision": decision, "extent": extent, "reason": reason})
        return
    shown = f" ({extent})" if extent else ""
    click.echo(f"{done.slug}: {decision}{shown}", err=True)
    if asked.orphaned and decision != "deny":
        click.echo("But whoever asked is gone: nothing runs by this.", err=True)


@approvals.command()
@json_option
def get(as_json: bool) -> None:
    """Show the approvals document and its revision."""
    from clawkit.approvals.document import read_document

    path = approvals_file(os.environ)
    document = read_document(path)
    if as_json:
        print_json({"path": path, "revision": document.revision, "document": document.shown})
        return
    if not document.exists:
        click.echo(f"There is no document yet ({path}); the configuration alone decides.", err=True)
        return
    print_json(document.shown)
    click.echo(f"{path}, revision {document.revision}", err=True)


@approvals.command("set")
@click.option("--file", "file", metavar="FILE", help="The new document; - for standard input.")
@click.option("--base", metavar="REVISION", help="Refuse when the document is another by now.")
@json_option
def set_(file: str | None, base: str | None, as_json: bool) -> None:
    """Replace the approvals document by a JSON file.

    One that makes no sense is refused; without a token it keeps the one there is.

    \b
    clawkit approvals get > new.json; edit it; clawkit approvals set --file new.json
    """
    from clawkit.approvals.document import replace

    refuse_commands()
    if file is None:
        raise click.UsageError("say where it is: clawkit approvals set --file new.json")
    path = approvals_file(os.environ)
    document = replace(path, _read_file(file), base)
    if as_json:
        print_json({"path": path, "revision": document.revision})
    else:
        click.echo(f"{path}: revision {document.revision}", err=True)


def _read_file(file: str) -> str:
    from clawkit.approvals.documents import MAX_BYTES

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
        click.echo("No command has been decided about yet.", err=True)
    for each in records:
        _show_record(each)


def _show_record(record: Mapping[str, Any]) -> None:
    texts = {
        key: one_line(printable(str(record.get(key, ""))), 200)
        for key in ("at", "verdict", "actor", "command", "reason", "why", "extent")
    }
    when = f"{texts['at'][:19].replace('T', ' ')} UTC"
    verdict = texts["verdict"]
    click.echo(f"{when}  ", nl=False)
    click.secho(f"{verdict:5}", fg=_COLOURS.get(verdict), nl=False)
    click.echo(f"  {texts['command']}")
    always = f", always ({texts['extent']})" if texts["extent"] else ""
    click.secho(f"    {texts['actor']}{always}: {texts['why'] or texts['reason']}", dim=True)


@approvals.command()
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=5_000,
    show_default=True,
    help="How many decisions to look back.",
)
@json_option
@config_option
def suggest(limit: int, as_json: bool, config_file: str | None) -> None:
    """Propose rules that would have saved questions."""
    from clawkit.approvals.allow.presets import PRESETS
    from clawkit.approvals.audit import read
    from clawkit.approvals.suggest import suggest as make
    from clawkit.cli.checking import Checker

    loaded = load(config_file)
    settings = Settings(loaded, Scope(agent=loaded.config.agents.default_id()), None)
    allowed = Checker(settings).would_allow
    found = make(read(audit_file(os.environ), limit), allowed, presets=PRESETS)
    if as_json:
        print_json([each._asdict() for each in found])
        return
    if not found:
        click.echo("Nothing was allowed often enough to propose a rule.", err=True)
    for each in found:
        example = one_line(printable(each.example), 100)
        click.secho(f"{each.count} questions, such as: {example}", bold=True)
        click.echo(f"  {each.words}")
        if each.note:
            click.echo(f"  But: {each.note}.")


@approvals.command()
def watch() -> None:
    """Answer questions here as they come.

    Those of every clawkit of yours that has no terminal of its own, until Ctrl-C.
    """
    from clawkit.cli.watching import watch_questions

    refuse_commands()
    if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
        raise click.UsageError("answers are typed: run it at a terminal")
    watch_questions()


approvals.add_command(allowlist)


def _waiting() -> Waiting:
    from clawkit.approvals.waiting import Waiting

    return Waiting(waiting_file(os.environ))


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


def _user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
