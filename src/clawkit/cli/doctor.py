"""`clawkit doctor`: what is missing or wrong, what to type, and with `--fix` doing it."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import click

from clawkit.cli.options import config_option, counted, json_option, print_json, refuse_commands
from clawkit.config.paths import config_file as usual_file
from clawkit.config.paths import expand, home
from clawkit.errors import ConfigError, EditError
from clawkit.text import printable

if TYPE_CHECKING:
    from clawkit.cli.doctor_checks import Finding
    from clawkit.config.file_edit import Change

_MARKS = {"ok": ("ok", "green"), "warn": ("warn", "yellow"), "error": ("error", "red")}


class Diagnosis(NamedTuple):
    """Everything that was found, and whether the configuration can be used at all."""

    findings: tuple[Finding, ...]
    config_valid: bool

    @property
    def exit_code(self) -> int:
        """0 when nothing is wrong, 1 when something is, 2 when it is the configuration."""
        if not self.config_valid:
            return 2
        return 1 if any(each.level == "error" for each in self.findings) else 0


def diagnose(
    file: str, named: str | None, env: Mapping[str, str], *, allow_exec: bool
) -> Diagnosis:
    """Check everything. `named` is the file that was named, if any; `file` the one in use."""
    from clawkit.cli import doctor_checks as checks
    from clawkit.cli.doctor_models import check_models, check_sessions
    from clawkit.cli.doctor_sandbox import check_sandbox
    from clawkit.config.load import load

    findings = [*checks.check_platform(), *checks.check_home(env)]
    findings += checks.check_open_files(file, env)
    try:
        loaded = load(named, env=env)
    except ConfigError as error:
        findings += checks.config_errors(error)
        findings += checks.check_old_spellings(file, env)
        return Diagnosis(tuple(findings), False)
    findings += checks.check_config(loaded, file)
    findings += checks.check_old_spellings(file, env)
    findings += checks.check_policy(loaded.config)
    findings += checks.check_secrets(loaded, allow_exec=allow_exec)
    findings += checks.check_workspaces(loaded.config)
    findings += checks.check_chat()
    findings += checks.check_files(loaded.config)
    findings += checks.check_commands(loaded.config)
    findings += check_sandbox(loaded)
    findings += check_models(loaded)
    findings += check_sessions(loaded, file, env)
    return Diagnosis(tuple(findings), True)


@click.command()
@click.option("--fix", is_flag=True, help="Fix what can be fixed safely, after showing it.")
@click.option("--dry-run", is_flag=True, help="Show what --fix would do, without doing it.")
@click.option(
    "--allow-exec", is_flag=True, help="Also check secrets that need a command to be run."
)
@json_option
@config_option
def doctor(
    fix: bool, dry_run: bool, allow_exec: bool, as_json: bool, config_file: str | None
) -> None:
    """Check this installation, and say what to type to fix it.

    With --fix, old spellings in the configuration are updated (comments stay, the previous file is
    kept as a backup), and files that other users could read become private.

    Exit codes: 0 no errors, 1 errors, 2 the configuration is invalid.
    """
    env = os.environ
    file = usual_file(env) if config_file is None else expand(config_file, env)
    repair = _Repair(file, env, dry_run=dry_run, quiet=as_json)
    if fix and not dry_run:
        refuse_commands()
    if fix or dry_run:
        repair.run()
    diagnosis = diagnose(file, config_file, env, allow_exec=allow_exec)
    if as_json:
        _print_json(diagnosis, repair)
    else:
        _print(diagnosis)
    sys.exit(diagnosis.exit_code or (1 if repair.failed else 0))


class _Repair:
    """What `--fix` does, or with `dry_run` would do."""

    def __init__(self, file: str, env: Mapping[str, str], *, dry_run: bool, quiet: bool) -> None:
        self.file = file
        self.env = env
        self.dry_run = dry_run
        self.quiet = quiet
        self.done: list[str] = []
        self.failed: list[str] = []
        self.diff: list[str] = []

    def run(self) -> None:
        for path, mode in self._open_to_others():
            self._close(path, mode)
        self._update()
        if not (self.done or self.failed or self.quiet):
            click.echo("Nothing to fix.")

    def _say(self, text: str) -> None:
        if not self.quiet:
            click.echo(printable(text))

    def _succeeded(self, what: str) -> None:
        self.done.append(what)
        self._say(f"would do: {what}" if self.dry_run else f"done: {what}")

    def _failed(self, what: str) -> None:
        self.failed.append(what)
        self._say(f"not done: {what}")

    def _open_to_others(self) -> Iterator[tuple[str, int]]:
        from clawkit.cli.doctor_checks import open_files, open_store

        place = home(self.env)
        if os.path.isdir(place):
            info = os.stat(place)
            if info.st_uid == os.geteuid() and info.st_mode & 0o077:
                yield place, 0o700
        for name, _ in open_files(self.file, self.env):
            yield name, 0o600
        if store := open_store(self.file, self.env):
            yield store, 0o600

    def _close(self, path: str, mode: int) -> None:
        try:
            if not self.dry_run:
                os.chmod(path, mode & stat.S_IMODE(os.stat(path).st_mode))
        except OSError as error:
            self._failed(f"chmod {mode:o} {path}: {error.strerror}")
        else:
            self._succeeded(f"chmod {mode:o} {path}")

    def _update(self) -> None:
        """Bring old spellings up to date; the diff is shown before anything is written."""
        if not os.path.lexists(self.file):
            return
        try:
            preview = self._change(dry_run=True)
            if preview.before == preview.after:
                return
            self.diff = preview.diff
            if not self.quiet:
                from clawkit.cli.config import print_diff

                print_diff(preview)
            result = preview if self.dry_run else self._change(dry_run=False)
        except ConfigError:
            return  # the findings say what is wrong with the file
        except EditError as error:
            self._failed(str(error))
            return
        kept = f"; the previous file is {result.backup}" if result.backup else ""
        self._succeeded(f"bring {self.file} up to date{kept}")

    def _change(self, *, dry_run: bool) -> Change:
        from clawkit.config.file_edit import change, content
        from clawkit.config.migrate import apply_migrations, migrations

        def edit(text: str) -> str:
            return apply_migrations(text, migrations(content(text)))

        return change(self.file, edit, dry_run=dry_run, env=self.env)


def _print(diagnosis: Diagnosis) -> None:
    section = ""
    for each in diagnosis.findings:
        if each.section != section:
            section = each.section
            click.secho(section, bold=True)
        word, colour = _MARKS[each.level]
        click.echo(f"  {click.style(f'{word:<5}', fg=colour)} {printable(each.what)}")
        if each.do:
            click.echo(f"        {click.style('→', fg='cyan')} {printable(each.do)}")
    errors = sum(each.level == "error" for each in diagnosis.findings)
    warnings = sum(each.level == "warn" for each in diagnosis.findings)
    click.echo(f"{counted(errors, 'error')}, {counted(warnings, 'warning')}.")


def _print_json(diagnosis: Diagnosis, repair: _Repair) -> None:
    print_json(
        {
            "ok": diagnosis.exit_code == 0,
            "configValid": diagnosis.config_valid,
            "findings": [each._asdict() for each in diagnosis.findings],
            "fixed": repair.done,
            "notFixed": repair.failed,
            "diff": repair.diff,
        }
    )
