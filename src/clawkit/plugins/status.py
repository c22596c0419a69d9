"""All plugins with their states and problems, for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from msgspec import Struct

from clawkit.config.search_services import SEARCH_SETTINGS
from clawkit.config.section import suggest
from clawkit.config.sections.plugins import Plugins
from clawkit.errors import Issue
from clawkit.plugins.discover import FoundPlugin, discover
from clawkit.plugins.load import PluginSet, load_plugins
from clawkit.plugins.roles import NONE, ROLES
from clawkit.plugins.trust import read_problems, why_off

State = Literal["on", "off", "left out"]


class PluginState(Struct, frozen=True):
    found: FoundPlugin
    state: State
    reason: str = ""  # why it is off or was left out
    problem: str = ""  # the last one while it ran


def survey(
    settings: Plugins, home: str, bundled: Mapping[str, str]
) -> tuple[list[PluginState], PluginSet]:
    """The states of all plugins, and the loaded ones. Loads enabled plugins."""
    loaded, problems = load_plugins(settings, home, bundled), read_problems(home)
    states = []
    for each in discover(settings, home, bundled):
        default = each.origin == "bundled" and each.manifest and each.manifest.enabled_by_default
        off = "" if each.problem else why_off(each.id, settings, by_default=bool(default))
        lost = each.problem or loaded.left_out.get(each.id, "")
        state: State = "off" if off else "left out" if lost else "on"
        problem = problems.get(each.id, "") if state == "on" else ""
        states.append(PluginState(each, state, off or lost, problem))
    return states, loaded


def find_issues(settings: Plugins, states: list[PluginState], loaded: PluginSet) -> Iterator[Issue]:
    """Problems in the settings of plugins."""
    known = {each.found.id: each.found.manifest for each in states if each.found.manifest}
    there = {each.found.id for each in states}
    for id_, why in loaded.left_out.items():
        hint = "" if id_ in there else suggest(id_, list(known), "Plugins")
        yield Issue(f"plugins.entries.{id_}", f"this plugin is left out: {why}", hint=hint)
    named = [(f"plugins.entries.{id_}", id_) for id_ in settings.entries]
    named += [(f"plugins.allow[{n}]", id_) for n, id_ in enumerate(settings.allow or ())]
    named += [(f"plugins.deny[{n}]", id_) for n, id_ in enumerate(settings.deny)]
    for path, id_ in named:
        if id_ not in {*known, *loaded.left_out, *SEARCH_SETTINGS}:
            yield Issue(path, "there is no such plugin", hint=suggest(id_, list(known), "Plugins"))
    for role, id_ in settings.slots.items():
        path = f"plugins.slots.{role}"
        able = [known_id for known_id, manifest in known.items() if role in manifest.services]
        if role not in ROLES:
            yield Issue(path, "there is no such role", hint=suggest(role, list(ROLES), "Roles"))
        elif id_ not in (NONE, *able):
            yield Issue(path, "this plugin does not fill the role", hint=suggest(id_, able, "Use"))
