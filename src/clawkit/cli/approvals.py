"""`clawkit approvals`: pending requests, the allowlist, and the log of decisions.

Stores and the judge are imported on use, because most commands need only one of them."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, get_args

import click

from clawkit.approvals import entries
from clawkit.approvals.audit import read as read_log
from clawkit.approvals.presets import PRESETS
from clawkit.cli import shared_options as cli
from clawkit.config.paths import approvals_file, audit_file, home, waiting_file
from clawkit.core.approval import Extent
from clawkit.errors import ConflictError
from clawkit.text import human_time, one_line, printable

if TYPE_CHECKING:
    from clawkit.approvals.broker import PendingStore, StoredQuestion
    from clawkit.approvals.types import AllowlistEntry

_CHOICES = ("allow-once", "allow-always", "deny")
_SECURITY = click.Choice(["deny", "allowlist", "full"])
_ASK = click.Choice(["off", "on-miss", "always"])
_COLOURS = {"allow": "green", "ask": "yellow", "deny": "red"}
_WIDTH = 100
_EVERY = "*"


@click.command(context_settings={"allow_extra_args": True})
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
@cli.json_option
@cli.scope_options
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
    from clawkit.cli.approvals_check import check_lines, show
    from clawkit.command_check import Checker, to_json

    if more := click.get_current_context().args:
        whole = shlex.quote(one_line(" ".join((command or "", *more)), 60))
        raise click.UsageError(f"quote the command: clawkit approvals check {whole}")
    settings = cli.read_settings(options)
    cli.warn(map(str, settings.loaded.warnings))
    case: dict[str, Any] = {key: options[key] for key in ("cwd", "security", "ask", "place")}
    case |= {"command": command, "allowlist": list(allow) or None}
    case |= {"safeBins": list(safe_bins) or None}
    checker = Checker(settings.loaded, settings.scope, settings.workspace)
    cli.warn(checker.warnings)
    if jsonl:
        if any(value is not None for value in case.values()):
            raise click.UsageError("with --jsonl, commands and their options come from the input")
        if sys.stdin is None:
            raise click.UsageError("--jsonl needs standard input, which is closed")
        sys.exit(check_lines(checker, sys.stdin.buffer))
    if command is None or not command.strip():
        raise click.UsageError("name a command: clawkit approvals check 'git status'")
    if case["cwd"] is not None and not os.path.isdir(case["cwd"]):
        raise click.UsageError(f"--cwd: {case['cwd']!r} is not a directory")
    if problem := next(filter(None, map(entries.validate_pattern, allow)), ""):
        raise click.UsageError(f"--allow: {problem}")
    try:
        decision = checker.check(case)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if as_json:
        cli.print_json(to_json(decision))
    else:
        show(decision, command, checker.backend)
    sys.exit(0 if decision.verdict == "allow" else 3)


@click.command()
@cli.json_option
def pending(as_json: bool) -> None:
    """List the requests that are waiting for an answer."""
    now_ms = round(time.time() * 1000)
    found = _pending(now_ms)
    if as_json:
        cli.print_json([_row(each, now_ms) for each in found])
        return
    if not found:
        click.echo("No requests are pending.", err=True)
        return
    from clawkit.approvals.prompt import render

    for each in found:
        left = human_time(max(0, each.expires_ms - now_ms) / 1000)
        gone = "; the process that asked has exited" if each.orphaned else ""
        click.secho(f"{each.slug}  {left} left{gone}", bold=True)
        for row in render(each.question, width=(cli.columns() or _WIDTH) - 2).split("\n"):
            click.echo(f"  {row}")
        always = "|allow-always" if each.question.stored else ""
        click.echo(f"  Answer: clawkit approvals resolve {each.slug} allow-once{always}|deny")


@click.command()
@click.argument("approval", metavar="ID")
@click.argument("decision", type=click.Choice(_CHOICES))
@click.option(
    "--extent",
    type=click.Choice(get_args(Extent)),
    help="How much allow-always covers. Default: the narrowest that was offered.",
)
@click.option("--reason", default="", help="Reason, shown to the model.")
@cli.json_option
def resolve(approval: str, decision: str, extent: str | None, reason: str, as_json: bool) -> None:
    """Answer the request ID with allow-once, allow-always or deny.

    ID may be a prefix, as long as it is unambiguous.
    """
    import pwd

    from clawkit.approvals.broker import Broker

    cli.refuse_commands()
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
        cli.print_json({"id": done.id, "decision": decision, "extent": extent, "reason": reason})
        return
    shown = f" ({extent})" if extent else ""
    click.echo(f"{done.slug}: {decision}{shown}", err=True)
    if asked.orphaned and decision != "deny":
        click.echo("The process that asked has exited, so nothing will run.", err=True)


@click.command()
@cli.json_option
def get(as_json: bool) -> None:
    """Show the approvals file and its revision."""
    from clawkit.approvals.file import read_document

    path = approvals_file(os.environ)
    document = read_document(path)
    if as_json:
        cli.print_json({"path": path, "revision": document.revision, "document": document.shown})
        return
    if not document.exists:
        click.echo(f"{path} does not exist yet, so only the configuration applies.", err=True)
        return
    cli.print_json(document.shown)
    click.echo(f"{path}, revision {document.revision}", err=True)


@click.command("set")
@click.option("--file", "file", metavar="FILE", help="The new file; - for standard input.")
@click.option("--base", metavar="REVISION", help="Fail if the file is no longer at this revision.")
@cli.json_option
def set_(file: str | None, base: str | None, as_json: bool) -> None:
    """Replace the approvals file with another JSON file.

    An invalid file is refused. If the new file has no token, the current one is kept.

    \b
    clawkit approvals get > new.json; edit it; clawkit approvals set --file new.json
    """
    from clawkit.approvals.file import MAX_BYTES, replace

    cli.refuse_commands()
    if file is None:
        raise click.UsageError("name the file: clawkit approvals set --file new.json")
    try:
        text = cli.read_input(file, MAX_BYTES).decode()
    except ValueError:
        raise click.UsageError(f"cannot read {file!r}: it is not UTF-8") from None
    path = approvals_file(os.environ)
    document = replace(path, text, base)
    written = {"path": path, "revision": document.revision}
    cli.print_done(as_json, written, f"{path}: revision {document.revision}")


@click.command()
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True)
@cli.json_option
def log(limit: int, as_json: bool) -> None:
    """Show the most recent decisions about commands, newest last."""
    records = list(read_log(audit_file(os.environ), limit))
    if as_json:
        cli.print_json(records)
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


@click.command()
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=5_000,
    show_default=True,
    help="How many decisions to consider.",
)
@cli.json_option
@cli.config_option
def suggest(limit: int, as_json: bool, config_file: str | None) -> None:
    """Suggest allowlist entries that would have avoided approval requests."""
    from clawkit.approvals.allow_always import suggest as make
    from clawkit.command_check import Checker
    from clawkit.config.load import load
    from clawkit.core.context import Scope

    loaded = load(config_file)
    checker = Checker(loaded, Scope(agent=loaded.config.agents.default_id()))
    found = make(read_log(audit_file(os.environ), limit), checker.rules_for)
    if as_json:
        cli.print_json([each._asdict() for each in found])
        return
    if not found:
        click.echo("No command was approved often enough to suggest an entry.", err=True)
    for each in found:
        example = one_line(printable(each.example), 100)
        click.secho(f"{each.count} requests, such as: {example}", bold=True)
        click.echo(f"  {each.words}")
        if each.note:
            click.echo(f"  But: {each.note}.")


@click.command()
def watch() -> None:
    """Answer approval requests at this terminal.

    Shows the requests of all your clawkit processes that have no terminal, until Ctrl-C.
    """
    import asyncio

    cli.refuse_commands()
    if not cli.can_ask():
        raise click.UsageError("watch needs a terminal to read your answers")
    asyncio.run(_watch())


def _waiting() -> PendingStore:
    from clawkit.approvals.broker import PendingStore

    return PendingStore(waiting_file(os.environ))


def _pending(now_ms: int) -> Sequence[StoredQuestion]:
    # Without the file, nothing has been asked yet; opening the store would create it.
    return _waiting().pending(now_ms) if os.path.lexists(waiting_file(os.environ)) else []


def _row(stored: StoredQuestion, now_ms: int) -> dict[str, Any]:
    question = stored.question
    return {
        "id": stored.id,
        "slug": stored.slug,
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
        "createdAtMs": stored.created_ms,
        "expiresAtMs": stored.expires_ms,
        "expiresInMs": max(0, stored.expires_ms - now_ms),
        "orphaned": stored.orphaned,
    }


async def _watch() -> None:
    import asyncio
    import signal

    from clawkit.approvals.file import ensure_socket
    from clawkit.approvals.socket import serve, socket_path
    from clawkit.cli.terminal_approver import TerminalApprover

    path, token = ensure_socket(approvals_file(os.environ), socket_path(home(os.environ)))
    # Before the socket exists: a signal that arrives early must not leave it behind.
    done = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(each, done.set)
    try:
        server = await serve(path, token, TerminalApprover(for_others=True).ask)
    except ConflictError:
        raise ConflictError(
            f"{path}: another process already answers requests, probably another "
            "`clawkit approvals watch`; stop it first"
        ) from None
    try:
        click.echo(f"Waiting for requests at {path}. Press Ctrl-C to stop.", err=True)
        # Earlier requests can only be answered by `resolve`.
        if waiting := len(_pending(round(time.time() * 1000))):
            said = f"{cli.counted(waiting, 'earlier request')} pending: clawkit approvals pending"
            click.echo(said, err=True)
        await done.wait()
    finally:
        await server.close()


@click.command("list")
@cli.json_option
def list_(as_json: bool) -> None:
    """List the entries, and when each was last used."""
    from clawkit.approvals.file import read_document

    document = read_document(approvals_file(os.environ))
    if as_json:
        shown = (
            {"agent": item.agent, **entries.entry_to_json(item.entry), "lastUsedAtMs": item.used_ms}
            for item in document.items
        )
        cli.print_json(list(shown))
        return
    if not document.items:
        click.echo(
            "The allowlist is empty. Try: clawkit approvals allowlist add git --args git", err=True
        )
    now = time.time()
    for item in document.items:
        used = "never used"
        if item.used_ms is not None:
            used = f"used {human_time(max(0.0, now - item.used_ms / 1000))} ago"
        who = "" if item.agent == _EVERY else f"  (agent {_one(item.agent)})"
        what = entries.describe_entry(item.entry)
        click.echo(f"{_one(item.entry.id[:8]):8}  {what}{who}  ", nl=False)
        click.secho(f"[{used}]", dim=True)


@click.command()
@click.argument("pattern", required=False)
@click.option("--agent", default=_EVERY, show_default=True, help="Agent it is for; * for all.")
@click.option(
    "--args",
    "rule",
    metavar="PRESET|any|JSON",
    shell_complete=cli.completed_from(lambda: ("any", *PRESETS)),
    help="Allowed arguments: a preset such as git, a rule such as "
    '\'{"subcommand": ["status"]}\', or any. Default: all except those that run code or send '
    "data.",
)
@click.option("--preset", metavar="NAME", help="Like --args NAME, for all programs of the preset.")
@click.option(
    "--arg-pattern",
    metavar="REGEX",
    help="A regular expression that the arguments, joined by spaces, must match: '^status$'.",
)
@click.option(
    "--children",
    type=click.Choice(["any", "named"]),
    help="Which programs it may start itself: any, or only those its preset names. "
    "Default: as the preset says, else any.",
)
@click.option("--no-network", is_flag=True, help="Run it without network access.")
@click.option(
    "--host",
    "hosts",
    metavar="NAME",
    multiple=True,
    help="A host it may reach, instead of the whole network; it then runs in the sandbox.",
)
@click.option("--read", metavar="PATH", multiple=True, help="A hidden path it may read.")
@click.option(
    "--write", metavar="PATH", multiple=True, help="A path outside the workspace it may write to."
)
@cli.json_option
def add(
    pattern: str | None, agent: str, rule: str | None, preset: str | None, **options: Any
) -> None:
    """Let a program run on the host without asking, confined.

    PATTERN is a name such as git (which matches only calls by name, found in PATH), or a path such
    as /usr/bin/git, '/opt/tools/*' or '~/bin/**'.

    \b
    clawkit approvals allowlist add --preset git
    clawkit approvals allowlist add /usr/bin/make --args '{"subcommand": ["test", "lint"]}'
    clawkit approvals allowlist add aws --read ~/.aws
    """
    from clawkit.approvals.allowlist import PLAIN_GRANTS
    from clawkit.approvals.file import add_entry

    cli.refuse_commands()
    if preset is not None and rule is not None:
        raise click.UsageError("--preset and --args cannot be combined")
    if preset is not None:
        pattern, rule = pattern or _EVERY, preset
    if pattern is None:
        raise click.UsageError("name a program: clawkit approvals allowlist add git")
    if problem := entries.validate_pattern(pattern):
        raise click.UsageError(f"PATTERN: {problem}")
    args = None if rule is None else _read_rule(rule)
    regex, children = options["arg_pattern"], options["children"]
    if regex is not None and entries.search_regex(regex, "") is None:
        raise click.UsageError(
            f"--arg-pattern: {one_line(regex, 80)!r} is invalid: it must be a regular expression, "
            "not empty or too long, without look-around and back-references"
        )
    stated = {"pattern": pattern, "args": args, "children": children, "argPattern": regex}
    given = {key: value for key, value in stated.items() if value is not None}
    changes = [options[name] for name in ("no_network", "hosts", "read", "write")]
    if any(changes):
        # The grants the entry has by default, modified by the options.
        no_network, hosts, read, write = changes
        known = PRESETS.get(rule or "")
        base = PLAIN_GRANTS if known is None else known.grants
        given["grants"] = {
            "network": base.network and not no_network and not hosts,
            "sockets": base.sockets,
            "hosts": list(hosts),
            "read": [*base.read, *map(_absolute, read)],
            "write": [*base.write, *map(_absolute, write)],
        }
    try:
        entry = entries.read_entry(given)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    document, added = add_entry(approvals_file(os.environ), agent, entry)
    cli.warn(_entry_warnings(entry))
    done = {"added": added, "revision": document.revision, **entries.entry_to_json(entry)}
    word = "allowed" if added else "already allowed"
    cli.print_done(options["as_json"], done, f"{word}: {entries.describe_entry(entry)}")


def _absolute(path: str) -> str:
    return path if path.startswith("~") else os.path.abspath(path)


def _read_rule(text: str) -> object:
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise click.UsageError(f"--args is not JSON: {error}") from None
    if text != "any" and text not in PRESETS:
        hint = cli.suggest(text, ("any", *PRESETS)) or f"; use one of {', '.join(PRESETS)}, any"
        raise click.UsageError(f"unknown preset {one_line(text, 40)!r}{hint}")
    return text


def _entry_warnings(entry: AllowlistEntry) -> Iterator[str]:
    pattern = entry.pattern
    if entry.args == "any":
        yield f"{pattern} now runs with any arguments, including those that start other programs"
    given = entry.arg_pattern
    if given is not None and not (given.startswith("^") and given.endswith("$")):
        yield f"{given} matches anywhere in the arguments; use ^ and $ to match all of them"
    if entries.is_literal(pattern) and not os.path.isfile(path := os.path.expanduser(pattern)):
        yield f"{path} does not exist yet"
    if entry.grants is not None and entry.grants.hosts:
        yield f"{pattern} runs in the sandbox, because only the sandbox can restrict hosts"
    is_name = not entries.is_path_pattern(pattern) and not set(pattern) & set("*?[")
    if is_name and shutil.which(pattern) is None:
        yield f"{pattern} is not in PATH yet"


@click.command()
@click.argument("which", metavar="ID|PATTERN")
@click.option("--agent", help="Only entries for this agent.")
@cli.json_option
def remove(which: str, agent: str | None, as_json: bool) -> None:
    """Remove an entry by its id, a prefix of its id, or its pattern."""
    from clawkit.approvals.file import remove_entry

    cli.refuse_commands()
    document, item = remove_entry(approvals_file(os.environ), agent, which)
    removed = {"agent": item.agent, **entries.entry_to_json(item.entry)}
    done = {"revision": document.revision, "removed": removed}
    cli.print_done(as_json, done, f"removed: {entries.describe_entry(item.entry)}")


def _one(text: str) -> str:
    return one_line(printable(text), 40)
