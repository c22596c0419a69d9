"""`clawkit approvals allowlist`: the programs that run on the host without asking."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from clawkit.cli.main import Group
from clawkit.cli.options import json_option, print_json, refuse_commands, suggest, warn
from clawkit.config.paths import approvals_file
from clawkit.text import human_time, one_line, printable

if TYPE_CHECKING:
    from clawkit.approvals.types import Entry

_EVERY = "*"


@click.group(cls=Group)
def allowlist() -> None:
    """Manage the programs that run on the host without asking."""


@allowlist.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the entries, and when each was last used."""
    from clawkit.approvals.entries import describe_entry, entry_to_json
    from clawkit.approvals.file import read_document

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
            "The allowlist is empty. Try: clawkit approvals allowlist add git --args git", err=True
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
@click.argument("pattern", required=False)
@click.option(
    "--agent", default=_EVERY, show_default=True, help="Agent the entry is for; * for all."
)
@click.option(
    "--args",
    "rule",
    metavar="PRESET|any|JSON",
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
@json_option
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
    from clawkit.approvals.entries import (
        describe_entry,
        entry_to_json,
        read_entry,
        search_regex,
        validate_pattern,
    )
    from clawkit.approvals.file import add_entry
    from clawkit.approvals.presets import PRESETS

    refuse_commands()
    if preset is not None and rule is not None:
        raise click.UsageError("--preset and --args cannot be combined")
    if preset is not None:
        pattern, rule = pattern or _EVERY, preset
    if pattern is None:
        raise click.UsageError("name a program: clawkit approvals allowlist add git")
    if problem := validate_pattern(pattern):
        raise click.UsageError(f"PATTERN: {problem}")
    args = None if rule is None else _read_rule(rule)
    regex, children = options["arg_pattern"], options["children"]
    if regex is not None and search_regex(regex, "") is None:
        raise click.UsageError(
            f"--arg-pattern: {one_line(regex, 80)!r} is invalid: it must be a regular expression, "
            "not empty or too long, without look-around and back-references"
        )
    stated = {"args": args, "children": children, "argPattern": regex}
    given = {key: value for key, value in stated.items() if value is not None}
    given["pattern"] = pattern
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
        entry = read_entry(given)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    document, added = add_entry(approvals_file(os.environ), agent, entry)
    warn(_entry_warnings(entry))
    if options["as_json"]:
        print_json({"added": added, "revision": document.revision, **entry_to_json(entry)})
        return
    word = "allowed" if added else "already allowed"
    click.echo(f"{word}: {describe_entry(entry)}", err=True)


def _absolute(path: str) -> str:
    return path if path.startswith("~") else os.path.abspath(path)


def _read_rule(text: str) -> object:
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise click.UsageError(f"--args is not JSON: {error}") from None
    if text == "any":
        return text
    from clawkit.approvals.presets import PRESETS

    if text not in PRESETS:
        hint = suggest(text, ("any", *PRESETS)) or f"; use one of {', '.join(PRESETS)}, any"
        raise click.UsageError(f"unknown preset {one_line(text, 40)!r}{hint}")
    return text


def _entry_warnings(entry: Entry) -> Iterator[str]:
    from clawkit.approvals.entries import is_literal, is_path_pattern

    pattern = entry.pattern
    if entry.args == "any":
        yield f"{pattern} now runs with any arguments, including those that start other programs"
    given = entry.arg_pattern
    if given is not None and not (given.startswith("^") and given.endswith("$")):
        yield f"{given} matches anywhere in the arguments; use ^ and $ to match all of them"
    if is_literal(pattern) and not os.path.isfile(path := os.path.expanduser(pattern)):
        yield f"{path} does not exist yet"
    if entry.grants is not None and entry.grants.hosts:
        yield f"{pattern} runs in the sandbox, because only the sandbox can restrict hosts"
    if not is_path_pattern(pattern) and not set(pattern) & set("*?["):
        import shutil

        if shutil.which(pattern) is None:
            yield f"{pattern} is not in PATH yet"


@allowlist.command()
@click.argument("which", metavar="ID|PATTERN")
@click.option("--agent", help="Only entries for this agent.")
@json_option
def remove(which: str, agent: str | None, as_json: bool) -> None:
    """Remove an entry by its id, a prefix of its id, or its pattern."""
    from clawkit.approvals.entries import describe_entry, entry_to_json
    from clawkit.approvals.file import remove_entry

    refuse_commands()
    document, item = remove_entry(approvals_file(os.environ), agent, which)
    if as_json:
        removed = {"agent": item.agent, **entry_to_json(item.entry)}
        print_json({"revision": document.revision, "removed": removed})
    else:
        click.echo(f"removed: {describe_entry(item.entry)}", err=True)


def _one(text: str) -> str:
    return one_line(printable(text), 40)
