"""`clawkit doctor`: what is missing or wrong, what to type, and with `--fix` doing it."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
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

_COLOURS = {"ok": "green", "warn": "yellow", "error": "red"}


class Diagnosis(NamedTuple):
    """Everything that was found, and whether the configuration can be used at all."""

    findings: Sequence[tuple[str, Finding]]
    """Each with the section it belongs to."""
    config_valid: bool

    def count(self, level: str) -> int:
        return sum(each.level == level for _, each in self.findings)

    @property
    def exit_code(self) -> int:
        """0 when nothing is wrong, 1 when something is, 2 when it is the configuration."""
        return int(self.count("error") > 0) if self.config_valid else 2


def diagnose(
    file: str, named: str | None, env: Mapping[str, str], *, allow_exec: bool
) -> Diagnosis:
    """Check everything. `named` is the file that was named, if any; `file` the one in use."""
    from clawkit.cli import doctor_checks as checks
    from clawkit.cli import doctor_services as services
    from clawkit.config.load import load

    found: list[tuple[str, Finding]] = []

    def check(section: str, *findings: Iterable[Finding]) -> None:
        found.extend((section, each) for each in chain(*findings))

    check("platform", checks.check_platform())
    check("home", checks.check_home(env), checks.check_open_files(file, env))
    old_spellings = checks.check_old_spellings(file, env)
    try:
        loaded = load(named, env=env)
    except ConfigError as error:
        check("config", checks.config_errors(error), old_spellings)
        return Diagnosis(found, False)
    check("config", checks.check_config(loaded, file), old_spellings)
    check("policy", checks.check_policy(loaded.config))
    check("secrets", checks.check_secrets(loaded, allow_exec=allow_exec))
    check("workspace", checks.check_workspaces(loaded.config))
    check("chat", checks.check_chat())
    check("files", checks.check_files(loaded.config))
    check("commands", checks.check_commands(loaded.config))
    check("sandbox", services.check_sandbox(loaded))
    check("models", services.check_models(loaded))
    check("sessions", services.check_sessions(loaded, file, env))
    return Diagnosis(found, True)


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
        findings = [{"section": name, **each._asdict()} for name, each in diagnosis.findings]
        print_json(
            {
                "ok": diagnosis.exit_code == 0,
                "configValid": diagnosis.config_valid,
                "findings": findings,
                "fixed": repair.done,
                "notFixed": repair.failed,
                "diff": repair.diff,
            }
        )
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
            what = f"chmod {mode:o} {path}"
            try:
                if not self.dry_run:
                    os.chmod(path, mode & stat.S_IMODE(os.stat(path).st_mode))
            except OSError as error:
                self._note(f"{what}: {error.strerror}", failed=True)
            else:
                self._note(what)
        self._update()
        if not (self.done or self.failed or self.quiet):
            click.echo("Nothing to fix.")

    def _note(self, what: str, *, failed: bool = False) -> None:
        (self.failed if failed else self.done).append(what)
        if not self.quiet:
            word = "not done" if failed else "would do" if self.dry_run else "done"
            click.echo(printable(f"{word}: {what}"))

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
            self._note(str(error), failed=True)
            return
        kept = f"; the previous file is {result.backup}" if result.backup else ""
        self._note(f"bring {self.file} up to date{kept}")

    def _change(self, *, dry_run: bool) -> Change:
        from clawkit.config.file_edit import change, content
        from clawkit.config.migrate import apply_migrations, migrations

        def edit(text: str) -> str:
            return apply_migrations(text, migrations(content(text)))

        return change(self.file, edit, dry_run=dry_run, env=self.env)


def _print(diagnosis: Diagnosis) -> None:
    shown = ""
    for section, each in diagnosis.findings:
        if section != shown:
            shown = section
            click.secho(section, bold=True)
        level = click.style(f"{each.level:<5}", fg=_COLOURS[each.level])
        click.echo(f"  {level} {printable(each.what)}")
        if each.do:
            click.echo(f"        {click.style('→', fg='cyan')} {printable(each.do)}")
    errors, warnings = diagnosis.count("error"), diagnosis.count("warn")
    click.echo(f"{counted(errors, 'error')}, {counted(warnings, 'warning')}.")
