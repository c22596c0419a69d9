"""`clawkit doctor`: reports problems and how to fix them, and fixes some with `--fix`."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import TYPE_CHECKING

import click

from clawkit.cli import shared_options as cli
from clawkit.config.paths import config_file as locate
from clawkit.config.paths import home
from clawkit.errors import ConfigError, EditError
from clawkit.text import printable

if TYPE_CHECKING:
    from clawkit.cli.doctor_checks import Finding

_COLOURS = {"ok": "green", "warn": "yellow", "error": "red"}


@click.command()
@click.option("--fix", is_flag=True, help="Fix what can be fixed safely, and show each change.")
@click.option("--dry-run", is_flag=True, help="Show what --fix would do, without doing it.")
@click.option("--allow-exec", is_flag=True, help="Also check secrets that a command provides.")
@cli.json_option
@cli.config_option
@cli.workspace_option
def doctor(
    fix: bool,
    dry_run: bool,
    allow_exec: bool,
    as_json: bool,
    config_file: str | None,
    workspace: str | None,
) -> None:
    """Check this installation, and report how to fix problems.

    With --fix, old spellings in the configuration are updated (comments stay, the previous file is
    kept as a backup), and files that other users could read become private.

    Exit codes: 0 no errors, 1 errors, 2 the configuration is invalid.
    """
    env = os.environ
    file = locate(env, config_file)
    if fix and not dry_run:
        cli.refuse_commands()
    fixes: dict[str, list[str]] = {"fixed": [], "notFixed": [], "diff": []}
    if fix or dry_run:
        _repair(file, env, fixes, dry_run=dry_run, quiet=as_json)
    findings, is_valid = _diagnose(
        file, config_file, env, workspace=workspace, allow_exec=allow_exec
    )
    levels = [each.level for _, each in findings]
    code = int("error" in levels) if is_valid else 2
    if as_json:
        listed = [{"section": name, **each._asdict()} for name, each in findings]
        cli.print_json({"ok": not code, "configValid": is_valid, "findings": listed, **fixes})
    else:
        section = ""
        for name, each in findings:
            if name != section:
                section = name
                click.secho(section, bold=True)
            level = click.style(f"{each.level:<5}", fg=_COLOURS[each.level])
            click.echo(f"  {level} {printable(each.what)}")
            if each.do:
                click.echo(f"        {click.style('→', fg='cyan')} {printable(each.do)}")
        errors, warnings = levels.count("error"), levels.count("warn")
        click.echo(f"{cli.counted(errors, 'error')}, {cli.counted(warnings, 'warning')}.")
    sys.exit(code or (1 if fixes["notFixed"] else 0))


def _diagnose(
    file: str,
    named: str | None,
    env: Mapping[str, str],
    *,
    workspace: str | None,
    allow_exec: bool,
) -> tuple[list[tuple[str, Finding]], bool]:
    """All findings, each with its section, and whether the configuration is valid. `named` is the
    file from the command line, if any; `file` is the one in use."""
    from clawkit.cli import doctor_checks as checks
    from clawkit.cli import doctor_services as services
    from clawkit.cli.agent import has_tui
    from clawkit.cli.gateway_status import check_gateway, check_remote
    from clawkit.config.load import load

    found: list[tuple[str, Finding]] = []

    def check(section: str, *findings: Iterable[Finding]) -> None:
        found.extend((section, each) for each in chain(*findings))

    check("platform", checks.check_platform())
    check("home", checks.check_home(env), checks.check_open_files(file, env))
    check("gateway", check_gateway())
    old_spellings = checks.check_old_spellings(file, env)
    try:
        loaded = load(named, env=env)
    except ConfigError as error:
        check("config", checks.config_errors(error), old_spellings)
        return found, False
    check("gateway", check_remote(loaded))
    check("config", checks.check_config(loaded, file), old_spellings)
    check("policy", checks.check_policy(loaded.config))
    check("secrets", checks.check_secrets(loaded, allow_exec=allow_exec))
    check("workspace", checks.check_workspaces(loaded.config, workspace))
    check("chat", checks.check_extra("tui", has_tui(), "the chat shows plain lines"))
    check("plugins", services.check_plugins(loaded.config))
    check("skills", services.check_skills(loaded, workspace))
    check("memory", services.check_memory(loaded, workspace))
    check("files", checks.check_files(loaded.config))
    check("commands", checks.check_commands(loaded.config))
    check("sandbox", services.check_sandbox(loaded, workspace))
    check("models", services.check_models(loaded))
    check("search", services.check_search(loaded))
    check("sessions", services.check_sessions(loaded, env))
    check("jobs", services.check_jobs(loaded, env))
    if loaded.config.mcp is not None:
        from clawkit.cli.mcp_servers import check_servers

        check("mcp", check_servers(named))
    return found, True


def _repair(
    file: str, env: Mapping[str, str], fixes: dict[str, list[str]], *, dry_run: bool, quiet: bool
) -> None:
    """Apply `--fix`, or with `dry_run` only report it; shows the diff before writing."""
    from clawkit.cli.config import print_diff
    from clawkit.cli.doctor_checks import is_own, open_mode, private_files
    from clawkit.config.file_edit import change, content
    from clawkit.config.migrate import apply_migrations, migrations

    def note(message: str, key: str = "fixed") -> None:
        fixes[key].append(message)
        if not quiet:
            word = "not done" if key == "notFixed" else "would do" if dry_run else "done"
            click.echo(printable(f"{word}: {message}"))

    def update(text: str) -> str:
        return apply_migrations(text, migrations(content(text)))

    place = [home(env)] if is_own(home(env)) else []
    for path in filter(open_mode, (*place, *private_files(file, env, with_store=True))):
        mode = 0o700 if os.path.isdir(path) else 0o600
        try:
            if not dry_run:
                os.chmod(path, mode & stat.S_IMODE(os.stat(path).st_mode))
            note(f"chmod {mode:o} {path}")
        except OSError as error:
            note(f"chmod {mode:o} {path}: {error.strerror}", "notFixed")
    try:
        done = change(file, update, dry_run=True, env=env) if os.path.lexists(file) else None
        if done and done.before != done.after:
            fixes["diff"] = done.diff
            if not quiet:
                print_diff(done)
            done = done if dry_run else change(file, update, env=env)
            kept = f"; the previous file is {done.backup}" if done.backup else ""
            note(f"update {file}{kept}")
    except ConfigError:
        pass  # reported by the findings
    except EditError as error:
        note(str(error), "notFixed")
    if not (fixes["fixed"] or fixes["notFixed"] or quiet):
        click.echo("Nothing to fix.")
