"""The registry of tools, with their origins."""

from __future__ import annotations

from msgspec import Struct

from clawkit.core.catalog import ALIASES, CATALOG, canonical
from clawkit.core.tool import Tool
from clawkit.errors import RegistryError

CORE = "core"
CALLER = "caller"


class Registered(Struct, frozen=True):
    """A tool and its origin: `core`, `caller`, `plugin:<id>` or `mcp:<server>`."""

    tool: Tool
    source: str
    optional: bool = False
    """Offered only if an allow list names it, its plugin, `group:plugins` or `*`."""


class Registry(dict[str, Registered]):
    """Tools by canonical name. The first owner keeps a name; names and aliases of built-in tools
    belong to the core."""

    def add(self, given: Registered) -> None:
        """Register a tool. Raises `RegistryError` if the name is taken or reserved."""
        tool, source = given.tool, given.source
        key, owner = canonical(tool.name), canonical(source.partition(":")[2])
        what = f"tool {tool.name!r} from {source}"
        if owner in CATALOG:
            raise RegistryError(
                f"{source} has the id of a built-in tool, so none of its tools are offered"
            )
        if source != CORE and key == "bundle-mcp":
            raise RegistryError(f"{what} has a reserved name; give it another one")
        if source != CORE and key in CATALOG:
            is_alias = tool.name.strip().lower() in ALIASES
            shadowed = f"an old name of {key!r}" if is_alias else "a built-in tool"
            raise RegistryError(f"{what} would shadow {shadowed}; give it another name")
        if holder := self.get(key):
            raise RegistryError(
                f"{what} is already provided by {holder.source}; give it another name"
            )
        self[key] = given
