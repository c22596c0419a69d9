"""The named set of tools, with where each came from."""

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
    """Offered only when an allow list names it, its plugin, `group:plugins` or `*`."""


class Registry(dict[str, Registered]):
    """By canonical name. The first owner of a name keeps it; names of built-in tools and their
    aliases belong to the core."""

    def add(self, given: Registered) -> None:
        """Register one tool. Raises `RegistryError` when the name is taken or reserved."""
        tool, source = given.tool, given.source
        key, owner = canonical(tool.name), canonical(source.partition(":")[2])
        what = f"tool {tool.name!r} from {source}"
        if owner in CATALOG:
            raise RegistryError(
                f"{source} has the id of a built-in tool, so none of its tools are offered"
            )
        if source != CORE and key == "bundle-mcp":
            raise RegistryError(f"{what} has a name that is reserved for all servers")
        if source != CORE and key in CATALOG:
            is_alias = tool.name.strip().lower() in ALIASES
            shadowed = f"an old name of {key!r}" if is_alias else "a built-in tool"
            raise RegistryError(f"{what} would shadow {shadowed}; give it another name")
        if holder := self.get(key):
            raise RegistryError(
                f"{what} is already provided by {holder.source}; give it another name"
            )
        self[key] = given
