"""Loads and checks the enabled plugins, and contains their failures."""

from __future__ import annotations

import importlib
import importlib.machinery
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from types import ModuleType
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from clawkit.config.search_services import SEARCH_SETTINGS
from clawkit.config.sections.plugins import PluginEntry, Plugins
from clawkit.core.tool import Registered, Tool
from clawkit.errors import ClawkitError, ConfigError, Issue, PluginError, SchemaError
from clawkit.plugins import trust
from clawkit.plugins.api import Plugin, PluginContext
from clawkit.plugins.discover import discover, is_in_place, name_places
from clawkit.plugins.manifest import Manifest, read_manifest
from clawkit.plugins.roles import check_provider
from clawkit.plugins.settings import read_settings
from clawkit.plugins.snapshot import SnapshotModules, take_snapshot
from clawkit.plugins.watchdog import contained
from clawkit.text import one_line

WARN_S = 1.0
LIMIT_S = 5.0
"""Seconds that a plugin may take to import, and to make its tools."""
THREADS = frozenset(threading.enumerate())
"""Threads from before any plugin ran."""

log = logging.getLogger(__name__)


class ActivePlugin(Struct):
    """A plugin that is loaded, with its settings."""

    plugin: Plugin
    manifest: Manifest
    settings: Any
    entry: PluginEntry
    location: str
    home: str
    is_bundled: bool
    noted: set[str] = set()

    @property
    def id(self) -> str:
        return self.manifest.id

    def note(self, problem: str) -> None:
        """Report a problem that did not prevent loading."""
        if problem not in self.noted:
            self.noted.add(problem)
            log.warning("plugin %s: %s", self.id, problem)
            trust.note_problem(self.home, self.id, problem)

    def context(self, context: PluginContext) -> PluginContext:
        return replace(context, settings=self.settings, entry=self.entry)

    def run(self, label: str, work: Callable[[], Any]) -> Any:
        """Run code of the plugin, within its time limit. Raises `PluginError`."""
        return work() if self.is_bundled else limited(label, work, self.note)

    def attempt(self, label: str, work: Callable[[], Any]) -> Any:
        """Run code of the plugin; None if that fails, which is noted."""
        try:
            return self.run(label, work)
        except PluginError as error:
            return self.note(str(error))


def limited(label: str, work: Callable[[], Any], note: Callable[[str], None]) -> Any:
    """Run foreign code in a thread, which is abandoned after a time limit. Raises `PluginError`."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append((True, work()))
        except BaseException as error:  # noqa: BLE001  # a thread's root: passed to the waiter
            outcome.append((False, error))

    start = time.monotonic()
    thread = threading.Thread(target=run, name="clawkit-plugin", daemon=True)
    thread.start()
    thread.join(LIMIT_S)
    took = time.monotonic() - start
    if not outcome:
        raise PluginError(f"{label} takes longer than {LIMIT_S:g} s")
    if took >= WARN_S:
        note(f"{label} took {took:.1f} s")
    [(is_done, value)] = outcome
    if is_done:
        return value
    raise PluginError(f"{label} failed: {describe(value)}") from value


def describe(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return "it tried to exit the program"
    said = one_line(str(error), 200)
    if isinstance(error, ClawkitError):
        return said
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


class PluginSet:
    """The plugins that one configuration enables, and why others are left out."""

    def __init__(
        self,
        active: Iterable[ActivePlugin],
        left_out: Mapping[str, str],
        guards: Collection[str] = (),
    ) -> None:
        self.active = {each.id: each for each in active}
        self.left_out = left_out
        """Reasons why enabled plugins are not used, by id."""
        self.guards = {id_: why for id_, why in left_out.items() if id_ in guards}
        """The subset that would decide about calls."""
        self._tools = [
            _register(each, tool)
            for each in self.active.values()
            for tool in each.plugin.registered_tools
        ]

    @property
    def warnings(self) -> list[str]:
        return [f"plugin {id_} is left out: {why}" for id_, why in self.left_out.items()]

    def tools(self, context: PluginContext) -> list[Registered]:
        """The tools of all plugins in a run. A factory that fails adds none."""
        found = list(self._tools)
        for active in self.active.values():
            for make in active.plugin.factories:
                work = partial(_make_tools, make, active.context(context))
                for tool in active.attempt("making its tools", work) or ():
                    if tool.name in active.manifest.all_tools:
                        found.append(_register(active, tool))
                    else:
                        active.note(f"{tool.name!r} is not declared: add it to tools of Plugin(…)")
        return found

    def fills(self, role: str, slot: str = "") -> ActivePlugin | None:
        """The plugin that provides a role: the one in its slot, else the first."""
        return next(self._able(role, slot), None)

    def _able(self, role: str, slot: str) -> Iterator[ActivePlugin]:
        for each in self.active.values():
            if role in each.plugin.providers and slot in ("", each.id):
                yield each

    def model_makers(self, context: PluginContext, slot: str) -> dict[str, Callable[[str], Any]]:
        """The model factories of all plugins that provide models, or of the one in the slot."""
        return {each.id: partial(_make_model, each, context) for each in self._able("models", slot)}

    def prompt(self, context: PluginContext) -> str:
        """Prompt text from plugins."""
        texts = []
        for active in self.active.values():
            text: Any = active.manifest.prompt
            if (write := active.plugin.write_prompt) is not None:
                text = active.attempt("its prompt", partial(write, active.context(context)))
            texts.append(text[:4_000] if isinstance(text, str) else "")
        return "\n\n".join(filter(None, texts))

    @property
    def skills(self) -> list[str]:
        """The directories with skills of plugins."""
        return [
            os.path.join(each.location, folder)
            for each in self.active.values()
            for folder in each.manifest.skills
        ]

    @property
    def settings(self) -> dict[type, Any]:
        """The settings of plugins by their class, for `ctx.use`."""
        return {
            each.plugin.config: each.settings
            for each in self.active.values()
            if each.plugin.config is not None
        }


def _make_model(active: ActivePlugin, context: PluginContext, name: str) -> Any:
    try:
        provider = provide(active, "models", context)
        return active.run(f"its model {name!r}", lambda: provider.model(name))
    except PluginError as error:
        raise ConfigError([Issue("", f"plugin {active.id}: {error}")]) from error


def provide(active: ActivePlugin, role: str, context: PluginContext) -> Any:
    """The provider of a role. Raises `PluginError`."""
    work = partial(active.plugin.providers[role], active.context(context))
    if active.is_bundled:
        return work()
    return limited(f"its {role} service", lambda: check_provider(role, work()), active.note)


def _register(active: ActivePlugin, tool: Tool) -> Registered:
    optional = tool.name in active.manifest.optional_tools
    safe = tool if active.is_bundled else contained(tool, active)
    return Registered(safe, f"plugin:{active.id}", optional)


def _make_tools(make: Callable[[PluginContext], Any], context: PluginContext) -> list[Tool]:
    return _check_tools(make(context))


def _check_tools(produced: Any) -> list[Tool]:
    """Check the tools and generate their schemas here, because a pydantic model runs foreign code.
    Assembly reports invalid ones."""
    tools = [] if produced is None else [produced] if isinstance(produced, Tool) else list(produced)
    for tool in tools:
        if not isinstance(tool, Tool):
            raise PluginError(f"it made {type(tool).__name__}, not a tool")
        with suppress(SchemaError):
            _ = tool.schema
    return tools


def load_plugins(
    settings: Plugins, home: str, bundled: Mapping[str, str], only: str = ""
) -> PluginSet:
    """Load the plugins that a configuration enables, or one of them. Never fails: plugins that
    cannot be loaded are left out, with the reason. Equal settings give the same plugins."""
    try:
        records, lost = trust.read_records(home), ""
    except PluginError as error:
        records, lost = {}, str(error)
    return _load_all(msgspec.json.encode((settings, bundled, records)), home, only, lost)


@lru_cache(maxsize=16)
def _load_all(content: bytes, home: str, only: str, lost: str) -> PluginSet:
    given = tuple[Plugins, dict[str, str], dict[str, trust.Record]]
    settings, modules, records = msgspec.json.decode(content, type=given)
    active: list[ActivePlugin] = []
    left_out: dict[str, str] = {}
    for id_ in [only] if only else settings.entries:
        if trust.why_off(id_, settings, by_default=only != "" and id_ in modules):
            continue
        if id_ in SEARCH_SETTINGS and id_ not in records:
            continue
        try:
            active.append(_load(id_, settings, home, modules.get(id_, ""), records.get(id_)))
        except PluginError as error:
            left_out[id_] = lost or str(error)
            log.info("plugin %s is left out: %s", id_, left_out[id_])
    guards = [id_ for id_, each in records.items() if each.guards]
    return PluginSet(active, left_out, left_out if lost else guards)


def _load(
    id_: str, settings: Plugins, home: str, bundled: str, record: trust.Record | None
) -> ActivePlugin:
    entry = settings.entries.get(id_, PluginEntry())
    if why := trust.why_blocked(id_):
        raise PluginError(why)
    notes: list[str] = []
    if bundled:
        plugin: Plugin = importlib.import_module(bundled).plugin
        location = os.path.dirname(sys.modules[bundled].__file__ or "")
    else:
        if record is None and id_ not in (each.id for each in discover(settings, home, {})):
            places = name_places(settings, home)
            raise PluginError(f"there is no such plugin; searched: {places}")
        if record is None or not is_in_place(record, settings, home):
            raise PluginError(trust.why_untrusted(id_, record, "a place where no plugins are", ""))
        location = record.location
        if not os.path.lexists(location):
            again = trust.AGAIN.format(id_)
            raise PluginError(f"{location} no longer exists; if it was moved, {again}")
        plugin = _run_module(id_, record, notes.append)

    def prepare() -> tuple[list[str], Any]:
        # A plugin could change its registrations later, so read everything once here.
        missing, _ = plugin.missing(), [*plugin.factories]
        _check_tools(plugin.registered_tools)
        return missing, None if missing else read_settings(plugin.config, entry.config, id_)

    missing, given = prepare() if bundled else limited("preparing it", prepare, notes.append)
    if missing:
        raise PluginError(f"it declares what it does not register: {', '.join(missing)}")
    made = ActivePlugin(plugin, plugin.manifest, given, entry, location, home, bool(bundled))
    for each in notes:
        made.note(each)
    return made


_modules: dict[tuple[str, trust.Record], ModuleType | PluginError] = {}
"""The outcome of every import; none is retried in this process."""


def _run_module(id_: str, record: trust.Record, note: Callable[[str], None]) -> Plugin:
    """Check and import a plugin: exactly the checked bytes run."""
    snapshot = take_snapshot(record.location, record.main)
    if why := trust.why_untrusted(id_, record, snapshot.location, snapshot.sha256):
        raise PluginError(why)
    manifest = read_manifest(snapshot.source)
    if manifest.id != id_:
        raise PluginError(f"its id is now {manifest.id!r}; {trust.AGAIN.format(manifest.id)}")

    def run() -> ModuleType:
        if record.module:
            return _import_installed(record)
        package = f"_clawkit_plugin_{id_.replace('-', '_')}_{snapshot.sha256[:12]}"
        return SnapshotModules(snapshot, package).run()

    if (id_, record) not in _modules:
        try:
            _modules[id_, record] = limited("importing it", run, note)
        except PluginError as error:
            _modules[id_, record] = error
    if isinstance(module := _modules[id_, record], PluginError):
        raise module
    plugin = getattr(module, "plugin", None)
    if type(plugin) is not Plugin or plugin.manifest != manifest:
        raise PluginError("its declarations at run time differ from its source")
    return plugin


def _import_installed(record: trust.Record) -> ModuleType:
    """Import a module of an installed package, if it is the checked one."""
    top = record.module.partition(".")[0]
    spec = importlib.machinery.PathFinder.find_spec(top)
    for found in (spec, getattr(sys.modules.get(top), "__spec__", spec)):
        # A namespace package combines the directories of this name in all places.
        places = [*(getattr(found, "submodule_search_locations", None) or ())]
        places = places or [getattr(found, "origin", None) or "elsewhere"]
        if places != [record.location]:
            raise PluginError(f"Python would import {top} from {' and '.join(places)}")
    return importlib.import_module(record.module)
