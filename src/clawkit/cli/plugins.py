"""`clawkit plugins`: which plugins there are, what they add, and which may run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import click
import msgspec

from clawkit.bundled import BUNDLED, open_plugins
from clawkit.cli import shared_options as cli
from clawkit.cli.config import change_to_json, say_written
from clawkit.config import file_edit as edits
from clawkit.config.load import load
from clawkit.config.paths import abbreviate_home, home
from clawkit.config.paths import config_file as locate
from clawkit.config.sections.plugins import Plugins
from clawkit.errors import ConfigError, Issue, PluginError
from clawkit.plugins.discover import FoundPlugin, discover, home_folder, read_plugin
from clawkit.plugins.load import ActivePlugin, describe, load_plugins
from clawkit.plugins.settings import schema_of
from clawkit.plugins.status import PluginState, find_issues, survey
from clawkit.plugins.trust import read_records, why_off, write_record
from clawkit.text import one_line, printable

_ID = click.argument("plugin_id", metavar="ID")


def survey_config(settings: Plugins | None) -> tuple[list[PluginState], list[Issue]]:
    """All plugins, and errors in their settings."""
    given = settings or Plugins()
    states, loaded = survey(given, home(os.environ), BUNDLED)
    return states, list(find_issues(given, states, loaded))


@click.command("list")
@cli.json_option
@cli.config_option
def list_plugins(as_json: bool, config_file: str | None) -> None:
    """List plugins, and whether each is on or why not.

    A plugin that is on is loaded, so that problems show up here.
    """
    states, issues = survey_config(load(config_file).config.plugins)
    if as_json:
        cli.print_json(
            {"plugins": [*map(_to_json, states)], "issues": [i._asdict() for i in issues]}
        )
        return
    table = []
    for each in states:
        found, manifest = each.found, each.found.manifest
        version, about = (manifest.version, manifest.description) if manifest else ("", "")
        row = (found.id, version, each.state, found.origin, each.reason or each.problem or about)
        table.append([printable(one_line(cell, 200), "") for cell in row])
    cli.print_table(("ID", "VERSION", "STATE", "FROM", ""), table)
    cli.warn(map(str, issues))


def _to_json(state: PluginState) -> dict[str, Any]:
    row = msgspec.to_builtins(state)
    return {**row.pop("found"), **row}


@click.command()
@_ID
@cli.json_option
@cli.config_option
def info(plugin_id: str, as_json: bool, config_file: str | None) -> None:
    """Show what a plugin declares, its location and its settings."""
    settings = load(config_file).config.plugins or Plugins()
    states, loaded = survey(settings, home(os.environ), BUNDLED)
    found = _find(plugin_id, [each.found for each in states])
    state = next(each for each in states if each.found is found)
    active = loaded.active.get(plugin_id)
    kind = active.plugin.config if active else None
    schema = schema_of(kind, plugin_id)[0] if kind else None
    if as_json:
        cli.print_json({**_to_json(state), "settings": schema})
        return
    for line in _describe(found):
        cli.print_text(line)
    cli.print_text(f"state     {': '.join(filter(None, (state.state, state.reason)))}")
    if state.problem:
        cli.print_text(f"problem   {state.problem}")
    for name, part in (schema or {}).get("properties", {}).items():
        said = ", ".join(str(part[key]) for key in ("type", "description") if key in part)
        default = f"; default {part['default']}" if "default" in part else ""
        cli.print_text(f"setting   plugins.entries.{plugin_id}.config.{name}: {said}{default}")


def _find(id_: str, everything: list[FoundPlugin]) -> FoundPlugin:
    for each in everything:
        if each.id == id_:
            return each
    close = cli.suggest(id_, [each.id for each in everything])
    where = f"; plugins are files in {home_folder(home(os.environ))} or in plugins.load.paths"
    raise PluginError(f"unknown plugin {one_line(id_, 60)!r}{close or where}")


def _describe(plugin: FoundPlugin) -> Iterator[str]:
    manifest, location = plugin.manifest, f"location  {abbreviate_home(plugin.location)}"
    if manifest is None:
        yield from (f"{plugin.id} cannot be used: {plugin.problem}", location)
        return
    title = one_line(f"{manifest.name} {manifest.version}", 150)
    yield printable(f"{title}: {one_line(manifest.description, 300)}")
    yield from (location, f"sha256    {plugin.sha256}")
    for what, text in manifest.summary().items():
        yield f"{what:<9} {printable(one_line(text, 300))}"
    if manifest.has_settings:
        yield f"settings  plugins.entries.{plugin.id}.config"


@click.command()
@_ID
@cli.yes_option()
@cli.json_option
@cli.config_option
def enable(plugin_id: str, yes: bool, as_json: bool, config_file: str | None) -> None:
    """Enable a plugin, after showing what it declares.

    The hash of its files is recorded: if they change, it is left out until you enable it again.
    """
    cli.refuse_commands()
    settings = load(config_file).config.plugins or Plugins()
    found = _find(plugin_id, discover(settings, home(os.environ), BUNDLED))
    if found.problem:
        raise PluginError(f"{plugin_id} at {found.location}: {found.problem}")
    if found.origin != "bundled":
        about = [*_describe(found), "A plugin is a program: it runs with all of your rights."]
        if yes:
            click.echo("" if as_json else "\n".join(about), err=True, nl=not as_json)
        else:
            cli.confirm(f"Enable {plugin_id}?", "nothing was changed", about)
    done = _switch(config_file, plugin_id, on=True)
    if found.origin != "bundled":
        write_record(home(os.environ), plugin_id, found.record)
    after = load(config_file).config.plugins or Plugins()
    still = why_off(plugin_id, after)
    lost = load_plugins(after, home(os.environ), BUNDLED).left_out.get(plugin_id, "")
    said = {**change_to_json(done), "id": plugin_id, "sha256": found.sha256, "off": still or lost}
    wrote = f" {say_written(done)}" if done.written else ""
    cli.print_done(as_json, said, f"Enabled {plugin_id}.{wrote}")
    if still:
        cli.warn([f"{plugin_id} stays off: {still}"])
    elif lost:
        cli.warn([f"{plugin_id} cannot be used yet: {lost}"])


@click.command()
@_ID
@cli.json_option
@cli.config_option
def disable(plugin_id: str, as_json: bool, config_file: str | None) -> None:
    """Disable a plugin."""
    cli.refuse_commands()
    settings = load(config_file).config.plugins or Plugins()
    if plugin_id not in settings.entries:
        _find(plugin_id, discover(settings, home(os.environ), BUNDLED))
    done = _switch(config_file, plugin_id, on=False)
    write_record(home(os.environ), plugin_id, None)
    said = {**change_to_json(done), "id": plugin_id}
    cli.print_done(as_json, said, f"Disabled {plugin_id}. {say_written(done)}")


def _switch(config_file: str | None, id_: str, *, on: bool) -> edits.ConfigChange:
    path = ("plugins", "entries", id_, "enabled")
    file = locate(os.environ, config_file)
    done = edits.change(file, lambda text: edits.set_setting(text, path, on), paths=[path])
    if done.issues:
        raise ConfigError(done.issues)
    return done


def list_commands() -> Iterator[tuple[str, str]]:
    """The commands of enabled plugins with their short help. Runs no plugin code."""
    with suppress(ConfigError, PluginError):
        settings = load().config.plugins or Plugins()
        for id_, record in read_records(home(os.environ)).items():
            found = read_plugin(record.location, "home", record.module, record.main)
            if found.manifest and found.record == record and not why_off(id_, settings):
                for name in found.manifest.commands:
                    yield name, f"Of the plugin {id_}."


def find_command(name: str) -> click.Command | None:
    """The command of an enabled plugin; None if none has it."""
    with suppress(ConfigError):
        plugins = open_plugins(load().config)
        for active in plugins.active.values() if plugins else ():
            if (run := active.plugin.commands.get(name)) is not None:
                return run if isinstance(run, click.Command) else _as_command(name, run, active)
        if plugins and not click.get_current_context().resilient_parsing:
            cli.warn(plugins.warnings)  # the command may belong to a plugin that was left out
    return None


def _as_command(name: str, run: Callable[[list[str]], Any], active: ActivePlugin) -> click.Command:
    def call(args: tuple[str, ...]) -> Any:
        try:
            return run(list(args))
        except Exception as error:  # the plugin's own code
            raise PluginError(f"{name} of plugin {active.id} failed: {describe(error)}") from error

    words = click.Argument(["args"], nargs=-1, type=click.UNPROCESSED)
    context = {"ignore_unknown_options": True, "help_option_names": []}
    return click.Command(name, params=[words], callback=call, context_settings=context)
