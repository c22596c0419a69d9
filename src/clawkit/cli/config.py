"""`clawkit config`: read, change and check the configuration file."""

from __future__ import annotations

import copy
import json
import os
import shlex
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import click
import msgspec

from clawkit.bundled import open_plugins
from clawkit.cli import shared_options as cli
from clawkit.config import file_edit as edits
from clawkit.config import lookup as settings
from clawkit.config.json5 import Json5Error, PathError, format_path, parse, parse_path
from clawkit.config.load import load, loads
from clawkit.config.masking import masked
from clawkit.config.no_effect import find as no_effect
from clawkit.config.paths import config_file as locate
from clawkit.config.paths import include_roots
from clawkit.config.section import Section, Shape, layout_of
from clawkit.config.sources import ConfigFile, ConfigTree, read_config
from clawkit.errors import ConfigError, EditError, Issue
from clawkit.text import printable

if TYPE_CHECKING:
    from clawkit.plugins.load import PluginSet

MAX_PATCH_FILE = 8 * 1024 * 1024
MAX_PATCH_STDIN = 1024 * 1024
_WITH_POLICY = (("agents",), ("channels",), ("tools",))
"""Sections with lists of tools."""


def _settings_at(path: str) -> list[str]:
    try:
        shape = settings.find(parse_path(path) if path else ()).shape
    except PathError:
        return []
    names = layout_of(shape.sections[0]).shapes if shape and shape.sections else ()
    return [f"{path}.{name}" if path else name for name in names]


def _complete_path(_context: click.Context, _parameter: click.Parameter, typed: str) -> list[str]:
    found = [each for each in _settings_at(typed.rpartition(".")[0]) if each.startswith(typed)]
    # A shell ends a single completion with a space, which nothing can follow.
    return (_settings_at(found[0]) or found) if len(found) == 1 else found


_PATH = click.argument("path", metavar="PATH", shell_complete=_complete_path)
_REPLACE = click.option("--replace", is_flag=True, help="Allow the change to remove settings.")


@click.command()
@click.argument("path", metavar="[PATH]", default="", shell_complete=_complete_path)
@cli.json_option
@cli.config_option
def get(path: str, as_json: bool, config_file: str | None) -> None:
    """Print a setting as it is in the file, or all of them without PATH.

    Secrets are masked. If the setting is not in the file, the exit code is 1; --json then prints
    {"path": …, "set": false, "default": …}.
    """
    content = _content(config_file)
    if not path:
        cli.print_json(masked(content))
        return
    steps = _parse_path(path)
    # Mask the whole file first: the name of an enclosing key may be what makes a value a secret.
    shown = settings.value_at(masked(content), settings.spelled(steps, content))
    if isinstance(shown, str) and not as_json:
        cli.print_text(shown)
    elif shown is not None:
        cli.print_json(shown)
    else:
        _report_unset(path, settings.find(steps), as_json)
        sys.exit(1)


def _report_unset(path: str, setting: settings.FoundSetting, as_json: bool) -> None:
    if setting.shape is None:
        click.echo(f"clawkit: unknown setting {path!r}. {setting.hint}", err=True)
        return
    default, about = settings.explain(setting.path)
    default = {} if isinstance(default, Section) else msgspec.to_builtins(default)
    unset = f". {about or 'It has no default.'}"
    applies = unset if default is None else f"; the default is {json.dumps(default)}"
    if as_json:
        cli.print_json({"path": format_path(setting.path), "set": False, "default": default})
    else:
        click.echo(f"clawkit: {path!r} is not set{applies}", err=True)


@click.command("set")
@_PATH
@click.argument("value", metavar="VALUE")
@click.option("--strict-json", is_flag=True, help="Accept only JSON, with text in quotes.")
@click.option("--merge", is_flag=True, help="Merge an object into the existing one.")
@_REPLACE
@cli.change_options
def set_(path: str, value: str, strict_json: bool, merge: bool, replace: bool, **how: Any) -> None:
    """Set a setting. VALUE is JSON5; anything else is taken as text.

    Comments in the file are kept, and the previous file is saved as a backup.

    \b
    clawkit config set tools.exec.ask always
    clawkit config set tools.deny '["exec"]'
    clawkit config set models.providers '{local: {baseUrl: "http://localhost:1234/v1"}}' --merge
    """
    if merge and replace:
        raise click.UsageError("--merge and --replace cannot be combined")
    steps = _parse_path(path)
    new = _parse_value(value, settings.find(steps).shape or settings.ANYTHING, strict_json)
    edit = partial(edits.set_setting, path=steps, value=new, merge=merge, replace=replace)
    make_change(edit, [steps], allow_shrink=replace, **how)


@click.command()
@_PATH
@click.option("--force", is_flag=True, help="Allow a change that removes most of the file.")
@cli.change_options
def unset(path: str, force: bool, **how: Any) -> None:
    """Remove a setting, so that its default applies again."""
    steps = _parse_path(path)
    known = settings.find(steps)
    if known.shape is None and settings.value_at(_content(how["config_file"]), steps) is None:
        raise EditError(f"unknown setting {path!r}. {known.hint}")
    make_change(lambda text: edits.unset_setting(text, steps), [steps], allow_shrink=force, **how)


@click.command()
@click.argument("source", metavar="[-]", required=False)
@click.option("--file", "patch_file", metavar="FILE", help="Read the patch from FILE.")
@_REPLACE
@cli.change_options
def patch(source: str | None, patch_file: str | None, replace: bool, **how: Any) -> None:
    """Change many settings at once: all of them or none.

    The patch is a JSON5 object, read from standard input (`-`) or from --file. Objects are merged,
    lists and values replaced, and null removes a setting.

    \b
    echo '{tools: {exec: {ask: "always", host: null}}}' | clawkit config patch -
    """
    if source not in (None, "-"):
        raise click.UsageError("pass the patch on standard input (-) or with --file")
    if source and patch_file:
        raise click.UsageError("give either - or --file, not both")
    if not patch_file and (sys.stdin is None or (source is None and sys.stdin.isatty())):
        raise click.UsageError("give --file FILE, or - to type the patch and end it with Ctrl-D")
    limit = MAX_PATCH_FILE if patch_file else MAX_PATCH_STDIN
    data = cli.read_input(patch_file or "-", limit)
    if len(data) > limit:
        raise click.UsageError(f"the patch is larger than {limit // 1024 // 1024} MiB")
    try:
        given = parse(data.decode("utf-8-sig")).value
    except UnicodeDecodeError as error:
        raise click.UsageError(f"the patch is not UTF-8 text: byte {error.start}") from None
    except Json5Error as error:
        where = f"line {error.line}, column {error.column}"
        raise click.UsageError(f"the patch is not JSON5: {where}: {error.message}") from None
    if not isinstance(given, dict):
        raise click.UsageError("the patch must be an object")
    edit = partial(edits.patch_settings, patch=given, replace=replace)
    paths = [path for path, _ in edits.leaves(given)]
    make_change(edit, paths, allow_shrink=replace, **how)


@click.command()
@cli.config_option
def schema(config_file: str | None) -> None:
    """Print the JSON Schema of the configuration, for editors, with the settings of plugins."""
    whole = settings.json_schema()
    try:
        plugins = open_plugins(load(config_file).config)
    except ConfigError:
        plugins = None
    cli.print_json(_with_plugins(whole, plugins) if plugins else whole)


def _with_plugins(document: dict[str, Any], plugins: PluginSet) -> dict[str, Any]:
    from clawkit.plugins.settings import schema_of

    document = copy.deepcopy(document)
    entries = document["$defs"]["Plugins"]["properties"]["entries"]
    for id_, active in plugins.active.items():
        if active.plugin.config is not None:
            own, parts = schema_of(active.plugin.config, id_)
            entry = copy.deepcopy(document["$defs"]["PluginEntry"])
            entry["properties"]["config"] = own
            entries.setdefault("properties", {})[id_] = entry
            document["$defs"] |= parts
    return document


@click.command(context_settings={"allow_extra_args": True})
@cli.json_option
@cli.config_option
def validate(as_json: bool, config_file: str | None) -> None:
    """Check the configuration. Prints all errors; exit code 2 if there are any."""
    if words := click.get_current_context().args:
        raise click.UsageError(f"to check another file: --config {shlex.quote(words[0])}")
    file = locate(os.environ, config_file)
    issues: list[Issue] = []
    warnings: list[Issue] = []
    files: tuple[str, ...] = ()
    try:
        loaded = load(config_file)
        unused = [Issue(section, message, file) for section, message in no_effect(loaded.config)]
        from clawkit.cli.doctor_checks import policy_issues
        from clawkit.cli.memory import embedding_issues
        from clawkit.cli.models import unknown_models

        warnings, files = [*loaded.warnings, *unused, *unknown_models(loaded)], loaded.files
        warnings += [*embedding_issues(loaded), *policy_issues(loaded.config)]
        if loaded.config.plugins is not None:
            from clawkit.cli.plugins import survey_config
            from clawkit.web.search.table import find_issues as search_issues

            warnings += [*survey_config(loaded.config.plugins)[1], *search_issues(loaded.config)]
        if loaded.config.skills is not None:
            from clawkit.cli.skills import find_issues

            warnings += find_issues(loaded)
    except ConfigError as error:
        issues = list(error.issues)
    if as_json:
        cli.print_json(
            {
                "ok": not issues,
                "file": file,
                "exists": os.path.lexists(file),
                "files": files,
                "issues": [each._asdict() for each in issues],
                "warnings": [each._asdict() for each in warnings],
            }
        )
    else:
        for issue in issues:
            click.echo(f"{click.style('error:', fg='red')} {printable(str(issue))}", err=True)
        if not issues:
            included = f", with {len(files) - 1} included" if len(files) > 1 else ""
            verdict = f": valid{included}" if files else " does not exist; the defaults apply"
            click.echo(f"{file}{verdict}")
        cli.warn(map(str, warnings))
    sys.exit(2 if issues else 0)


@click.command("file")
@cli.json_option
@cli.config_option
def file_(as_json: bool, config_file: str | None) -> None:
    """Print the path of the file in use."""
    cli.print_location(as_json, "file", locate(os.environ, config_file), "`clawkit config set`")


def _content(config_file: str | None) -> Any:
    file = locate(os.environ, config_file)
    if not os.path.lexists(file):
        return load(config_file).raw
    try:
        tree = ConfigTree(ConfigFile(file, read_config(file)), include_roots(os.environ))
    except Json5Error as error:
        raise ConfigError([error.issue(file)]) from error
    cli.warn(map(str, tree.issues))
    return tree.value


def _parse_path(text: str) -> settings.Path:
    try:
        text.encode()
        return parse_path(text)
    except UnicodeEncodeError:
        raise click.UsageError("PATH is not valid text in this terminal's encoding") from None
    except PathError as error:
        raise click.UsageError(str(error)) from None


def _parse_value(text: str, shape: Shape, strict_json: bool) -> Any:
    """VALUE as data. Messages must not contain it: it may be a secret."""
    if strict_json:
        try:
            msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            raise click.UsageError("VALUE is not JSON; quote text as '\"text\"'") from None
    try:
        value = parse(text).value
    except Json5Error as error:
        takes_text = shape.text or shape.anything
        if strict_json or (text.lstrip().startswith(("{", "[")) and not takes_text):
            where = f"line {error.line}, column {error.column}"
            raise click.UsageError(f"VALUE is not JSON5: {where}: {error.message}") from None
        return text
    if strict_json or shape.anything or not shape.text:
        return value
    if isinstance(value, bool):
        return value if shape.boolean else text
    if isinstance(value, int | float):
        return value if shape.number or shape.whole else text
    return value


def make_change(
    edit: Callable[[str], str],
    paths: list[settings.Path],
    *,
    dry_run: bool,
    as_json: bool,
    config_file: str | None,
    allow_shrink: bool = False,
) -> None:
    """Edit the file and print what changed; `paths` are the settings to be changed."""
    if not dry_run:
        cli.refuse_commands()
    file = locate(os.environ, config_file)
    done = edits.change(file, edit, paths=paths, allow_shrink=allow_shrink, dry_run=dry_run)
    warnings = list(done.warnings)
    if not done.issues and any("model" in str(step).lower() for path in paths for step in path):
        from clawkit.cli.models import unknown_models

        warnings += unknown_models(loads(done.after, file=done.file))
    if not done.issues and any(path[:1] == ("plugins",) for path in paths):
        from clawkit.cli.plugins import survey_config

        warnings += survey_config(loads(done.after, file=done.file).config.plugins)[1]
    if not done.issues and any(path[:1] in _WITH_POLICY for path in paths):
        from clawkit.cli.doctor_checks import policy_issues

        warnings += policy_issues(loads(done.after, file=done.file).config)
    if as_json:
        issues = [each._asdict() for each in done.issues]
        said = [each._asdict() for each in warnings]
        cli.print_json({**change_to_json(done), "issues": issues, "warnings": said})
        return
    print_diff(done)
    would = dry_run and done.before != done.after
    draft = f"This would change {done.file}; nothing was written."
    click.echo(draft if would else say_written(done), err=True)
    cli.warn(f"still invalid: {issue}" for issue in map(str, done.issues))
    cli.warn(map(str, warnings))


def change_to_json(done: edits.ConfigChange) -> dict[str, Any]:
    return {
        "file": done.file,
        "changed": done.before != done.after,
        "written": done.written,
        "backup": done.backup,
        "diff": done.diff,
    }


def say_written(done: edits.ConfigChange) -> str:
    if not done.written:
        return f"{done.file} already has these settings; nothing was changed."
    kept = f"; the previous file is {done.backup}" if done.backup else ""
    return f"Wrote {done.file}{kept}"


def print_diff(done: edits.ConfigChange) -> None:
    colours = {"-": "red", "+": "green", "@": "cyan"}
    for line in done.diff:
        head = line.startswith(("--- ", "+++ "))
        click.secho(line, fg=None if head else colours.get(line[0]), bold=head or None)
