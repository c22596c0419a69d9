"""The bundled plugins, and the lookup of active plugins by role.

Modules are imported on use: a run without plugins loads only this table.
"""

from __future__ import annotations

import importlib
import os
from functools import partial
from typing import TYPE_CHECKING, Any

from clawkit.config.model import Config
from clawkit.config.paths import home
from clawkit.core.context import Scope
from clawkit.core.tool import Registered

if TYPE_CHECKING:
    from clawkit.agent.model_selection import ModelSelection
    from clawkit.config.load import Loaded
    from clawkit.models.failover import Clock
    from clawkit.plugins.api import PluginContext
    from clawkit.plugins.load import PluginSet

BUNDLED = {
    "llm-task": "clawkit.bundled.llm_task",
    "lobster": "clawkit.bundled.lobster.plugin",
    "lsp": "clawkit.bundled.lsp",
    "pdf": "clawkit.bundled.pdf",
    "telemetry": "clawkit.bundled.telemetry",
}
"""Modules by plugin id."""
BY_DEFAULT = {"diagnostics": "lsp", "documents": "pdf", "telemetry": "telemetry"}
"""The plugin that provides a role unless the configuration says otherwise."""


def open_plugins(config: Config) -> PluginSet | None:
    """The plugins that a configuration enables. If there are none, imports nothing."""
    settings = config.plugins
    if settings is None or not any(each.enabled for each in settings.entries.values()):
        return None
    from clawkit.plugins.load import load_plugins

    return load_plugins(settings, home(os.environ), BUNDLED)


def plugin_tools(config: Config, scope: Scope, workspace: str) -> list[Registered]:
    """The tools that plugins add to a run."""
    plugins = open_plugins(config)
    if plugins is None:
        return []
    from clawkit.plugins.api import PluginContext

    return plugins.tools(PluginContext("", scope, workspace, config=config))


def search_services(loaded: Loaded) -> tuple[str, ...]:
    """The search services that can be used: that of a plugin, and those that have a key."""
    from clawkit.web.search.table import ready_providers

    ready = ready_providers(loaded.config, loaded.env)
    settings, plugins = loaded.config.plugins, open_plugins(loaded.config)
    slot = settings.slots.get("search", "") if settings else ""
    active = plugins.fills("search", slot) if plugins else None
    return (active.id, *ready) if active else ready


def select_models(loaded: Loaded, agent: str, *, clock: Clock | None = None) -> ModelSelection:
    """The models of an agent, with those of plugins."""
    from clawkit.agent.model_selection import ModelSelection

    selection = ModelSelection(loaded, agent, clock=clock)
    if (plugins := open_plugins(loaded.config)) is not None and loaded.config.plugins:
        from clawkit.bundled.provider_guards import SafeModel
        from clawkit.plugins.api import PluginContext

        context = PluginContext("", Scope(agent=agent), config=loaded.config)
        slot = loaded.config.plugins.slots.get("models", "")
        for id_, make in plugins.model_makers(context, slot).items():
            selection.plug(id_, partial(SafeModel, make))
    return selection


def provide(role: str, context: PluginContext) -> Any:
    """The provider of a role in a run; None if no plugin fills it."""
    settings = context.config.plugins
    default = BY_DEFAULT.get(role, "")
    if settings is None and not default:
        return None
    if settings is None:
        plugin = importlib.import_module(BUNDLED[default]).plugin
        return plugin.providers[role](context)
    from clawkit.errors import PluginError
    from clawkit.plugins.load import load_plugins
    from clawkit.plugins.load import provide as make
    from clawkit.plugins.roles import NONE

    slot = settings.slots.get(role, "")
    where = home(os.environ)
    active = load_plugins(settings, where, BUNDLED).fills(role, slot) if slot != NONE else None
    if active is None and default and slot in ("", default):
        active = load_plugins(settings, where, BUNDLED, default).fills(role)
    if active is None:
        return None
    from clawkit.bundled.provider_guards import GUARDS

    try:
        made = make(active, role, context)
    except PluginError as error:
        active.note(str(error))
        return None
    return made if active.is_bundled or role not in GUARDS else GUARDS[role](made, active.note)
