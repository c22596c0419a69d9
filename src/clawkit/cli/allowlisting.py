"""`clawkit approvals allowlist`: what may run without a question."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from clawkit.cli.options import json_option, print_json, refuse_commands, warn
from clawkit.config.paths import approvals_file
from clawkit.text import human_time, nearest, one_line, printable

if TYPE_CHECKING:
    from clawkit.approvals.base import Entry

_EVERY = "*"


@click.group()
def allowlist() -> None:
    """Show and change what may run without a question."""


@allowlist.command("list")
@json_option
def list_(as_json: bool) -> None:
    """Show the entries, and when each was last of use."""
    from clawkit.approvals.allow.entries import describe_entry, entry_to_json
    from clawkit.approvals.document import read_document

    document = read_document(approvals_file(os.environ))
    if as_json:
        print_json(
            [
                {"agent": item.agent, **entry_to_json(item.entry), "lastUsedAtMs": item.used_ms}
                for item in document.items
            ]
        )
        return
    if not document.items:
        click.echo(
            "Nothing is listed. Try: clawkit approvals allowlist add git --args git", err=True
        )
    now = time.time()
    for item in document.items:
        used = "never used"
        if item.used_ms is not None:
            used = f"used {human_time(max(0.0, now - item.used_ms / 1000))} ago"
        who = "" if item.agent == _EVERY else f"  (agent {_one(item.agent)})"
        click.echo(f"{_one(item.entry.id[:8]):8}  {describe_entry(item.entry)}{who}  ", nl=False)
        click.secho(f"[{used}]", dim=True)


@allowlist.command()
@click.argument("pattern")
@click.option(
    "--agent", default=_EVERY, show_default=True, help="Agent the entry is for; * for all."
)
@click.option(
    "--args",
    "rule",
    metavar="PRESET|any|JSON",
    help="Which arguments: a preset such as git, or a rule such as "
    '\'{"subcommand": ["status"]}\'; any for no look at them at all. Default: all but those that '
    "make another program of it.",
)
@click.option(
    "--arg-pattern",
    metavar="REGEX",
    help="A pattern to be found in the arguments, joined with blanks: '^status$'.",
)
@click.option(
    "--children",
    type=click.Choice(["any", "named"]),
    help="What the program may start itself: anything, or only what its preset names. "
    "Default: any, but named with a preset.",
)
@json_option
def add(
    pattern: str,
    agent: str,
    rule: str | None,
    arg_pattern: str | None,
    children: str | None,
    as_json: bool,
) -> None:
    """Let a program run without a question.

    PATTERN is a name such as git (only when called by it and found in PATH), or a path such as
    /usr/bin/git, '/opt/tools/*' or '~/bin/**'.

    \b
    clawkit approvals allowlist add git --args git
    clawkit approvals allowlist add /usr/bin/make --args '{"subcommand": ["test", "lint"]}'
    """
    from clawkit.approvals.allow.entries import (
        describe_entry,
        entry_to_json,
        read_entry,
        validate_pattern,
    )
    from clawkit.approvals.document import add_entry

    refuse_commands()
    if problem := validate_pattern(pattern):
        raise click.UsageError(f"PATTERN: {problem}")
    given: dict[str, Any] = {"pattern": pattern}
    given |= {"args": _read_rule(rule)} if rule is not None else {}
    given |= {"argPattern": _read_pattern(arg_pattern)} if arg_pattern is not None else {}
    given |= {"children": children} if children is not None else {}
    try:
        entry = read_entry(given)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    document, added = add_entry(approvals_file(os.environ), agent, entry)
    warn(_doubts(entry))
    if as_json:
        print_json({"added": added, "revision": document.revision, **entry_to_json(entry)})
        return
    word = "allowed" if added else "was allowed already"
    click.echo(f"{word}: {describe_entry(entry)}", err=True)


def _read_rule(text: str) -> object:
    """What `--args` means. Raises `click.UsageError` for what nobody could have meant."""
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise click.UsageError(f"--args is not JSON: {error}") from None
    if text == "any":
        return text
    from clawkit.approvals.allow.presets import PRESETS

    if text not in PRESETS:
        close = nearest(text, ("any", *PRESETS), 1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(PRESETS)}, any"
        raise click.UsageError(f"--args: there is no preset {one_line(text, 40)!r}; {hint}")
    return text


def _read_pattern(text: str) -> str:
    from clawkit.approvals.allow.regex import search

    if search(text, "") is None:
        raise click.UsageError(
            f"--arg-pattern: {one_line(text, 80)!r} cannot be used: it is empty, too long, or no "
            "regular expression without look-around and back-references"
        )
    return text


def _doubts(entry: Entry) -> Iterator[str]:
    """Why an entry may not do what somebody wants of it."""
    from clawkit.approvals.allow.patterns import is_literal, names_place

    pattern = entry.pattern
    if entry.args == "any":
        yield f"{pattern} now runs with any arguments, also with those that make it start others"
    given = entry.arg_pattern
    if given is not None and not (given.startswith("^") and given.endswith("$")):
        yield f"{given} may be anywhere in the arguments; ^ and $ around it mean all of them"
    if is_literal(pattern):
        if not os.path.isfile(path := os.path.expanduser(pattern)):
            yield f"there is no program {path} at the moment"
    elif not names_place(pattern) and not set(pattern) & set("*?["):
        import shutil

        if shutil.which(pattern) is None:
            yield f"{pattern} is not in PATH at the moment"


@allowlist.command()
@click.argument("which", metavar="ID|PATTERN")
@click.option("--agent", help="Only entries for this agent.")
@json_option
def remove(which: str, agent: str | None, as_json: bool) -> None:
    """Take an entry away, by its id, the beginning of it, or its pattern."""
    from clawkit.approvals.allow.entries import describe_entry, entry_to_json
    from clawkit.approvals.document import remove_entry

    refuse_commands()
    document, item = remove_entry(approvals_file(os.environ), agent, which)
    if as_json:
        removed = {"agent": item.agent, **entry_to_json(item.entry)}
        print_json({"revision": document.revision, "removed": removed})
    else:
        click.echo(f"removed: {describe_entry(item.entry)}", err=True)


def _one(text: str) -> str:
    return one_line(printable(text), 40)
