"""Finds plugins and their declarations, without running any of their code."""

from __future__ import annotations

import importlib.util
import os
import site
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from clawkit.config.paths import expand
from clawkit.config.sections.plugins import Plugins
from clawkit.errors import PluginError
from clawkit.plugins.manifest import Manifest, read_manifest
from clawkit.plugins.snapshot import MAIN, take_snapshot
from clawkit.plugins.trust import Record, why_blocked
from clawkit.text import one_line

GROUP = "clawkit.plugins"
Origin = Literal["bundled", "path", "home", "installed"]
"""Where a plugin comes from. Of several with the same id, the first in this order wins."""


class FoundPlugin(Struct, frozen=True):
    id: str  # the name of its file if it has no readable manifest
    origin: Origin
    location: str
    manifest: Manifest | None = None
    sha256: str = ""
    module: str = ""  # of an installed or bundled plugin
    main: str = ""  # the file of the module in its package
    problem: str = ""

    @property
    def record(self) -> Record:
        """The record to store when the owner enables it."""
        guards = self.manifest is not None and "before_tool_call" in self.manifest.hooks
        return Record(self.location, self.sha256, self.module, self.main, guards)


def discover(settings: Plugins, home: str, bundled: Mapping[str, str]) -> list[FoundPlugin]:
    """All plugins, in the order of their precedence. `bundled` are modules by id."""
    found = [_read_bundled(id_, module) for id_, module in bundled.items()]
    places: list[tuple[str, Origin]] = [(path, "path") for path in load_paths(settings)]
    if os.path.isdir(own := home_folder(home)):
        places.append((own, "home"))
    for place, origin in places:
        found += [read_plugin(each, origin) for each in _plugins_at(place)]
    return settle(found + list(_installed()))


def settle(plugins: Sequence[FoundPlugin]) -> list[FoundPlugin]:
    """Sort by precedence; a plugin that may not use its id gets a problem."""
    ranked = sorted(plugins, key=lambda each: get_args(Origin).index(each.origin))
    first: dict[str, FoundPlugin] = {}
    settled = []
    for each in ranked:
        holder = first.setdefault(each.id, each)
        if holder is not each and not each.problem:
            each = replace(each, problem=f"overridden by a plugin with this id: {holder.location}")
        settled.append(replace(each, problem=each.problem or why_blocked(each.id)))
    return settled


def load_paths(settings: Plugins) -> list[str]:
    return [expand(path, os.environ) for path in settings.load.paths]


def home_folder(home: str) -> str:
    return os.path.join(home, "plugins")


def name_places(settings: Plugins, home: str) -> str:
    return ", ".join((*load_paths(settings), home_folder(home), "the installed packages"))


def is_in_place(record: Record, settings: Plugins, home: str) -> bool:
    """Whether an enabled plugin is still in a searched location."""
    above = os.path.dirname(record.location)
    if record.module:
        return above in site_folders()
    places = (*load_paths(settings), home_folder(home))
    return above in places or record.location in places


def _plugins_at(root: str) -> Iterator[str]:
    """A file, a directory with `plugin.py`, or a directory of both."""
    if not os.path.isdir(root) or os.path.lexists(os.path.join(root, MAIN)):
        yield root
        return
    for name in sorted(os.listdir(root)):
        path = os.path.join(root, name)
        is_file = name.endswith(".py") and not name.startswith((".", "_"))
        if is_file or os.path.lexists(os.path.join(path, MAIN)):
            yield path


def read_plugin(location: str, origin: Origin, module: str = "", main: str = "") -> FoundPlugin:
    """A plugin with its manifest and hash, or with its problem."""
    name = os.path.basename(location).removesuffix(".py")
    made = FoundPlugin(one_line(name, 64), origin, location, module=module, main=main)
    try:
        snapshot = take_snapshot(location, main)
        manifest = read_manifest(snapshot.source)
        if manifest.skills and snapshot.main == os.path.basename(location):
            raise PluginError("only a plugin that is a directory can have skills")
    except PluginError as error:
        return replace(made, problem=str(error))
    return replace(made, id=manifest.id, manifest=manifest, sha256=snapshot.sha256)


def _read_bundled(id_: str, module: str) -> FoundPlugin:
    spec = importlib.util.find_spec(module)
    location = (spec and spec.origin) or ""
    found = read_plugin(location, "bundled", module)
    return found if found.id == id_ else replace(found, id=id_, problem="it is not installed")


def site_folders() -> list[str]:
    """The directories of installed packages: never the current directory or those in PYTHONPATH."""
    own = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    return [path for path in (*site.getsitepackages(), *own) if os.path.isdir(path)]


def _installed() -> Iterator[FoundPlugin]:
    from importlib.metadata import distributions

    for distribution in distributions(path=site_folders()):
        for entry in distribution.entry_points:
            if entry.group == GROUP:
                root = os.path.abspath(str(distribution.locate_file("")))
                yield _read_installed(root, entry.name, entry.value.partition(":")[0].strip())


def _read_installed(root: str, name: str, module: str) -> FoundPlugin:
    top, _, below = module.partition(".")
    if not all(part.isidentifier() for part in module.split(".")):
        return FoundPlugin(
            one_line(name, 64), "installed", root, problem="its entry point is invalid"
        )
    inner = below.replace(".", "/")
    folder = os.path.join(root, top)
    if not below and os.path.isfile(f"{folder}.py"):
        return read_plugin(f"{folder}.py", "installed", module)
    for main in (f"{inner}.py", f"{inner}/__init__.py".lstrip("/")):
        if os.path.isfile(os.path.join(folder, main)):
            return read_plugin(folder, "installed", module, main)
    why = "its module is not in its distribution; if it is installed in editable mode, add its "
    why += "directory to plugins.load.paths"
    return FoundPlugin(one_line(name, 64), "installed", folder, problem=why)
