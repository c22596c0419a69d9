"""The named set of tools, with where each came from and what was turned away."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from clawkit.core.catalog import ALIASES, CATALOG, canonical
from clawkit.core.tool import Tool
from clawkit.errors import RegistryError

CORE = "core"
CALLER = "caller"


class Registered(NamedTuple):
    """A tool and its origin: `core`, `caller`, `plugin:<id>` or `mcp:<server>`."""

    tool: Tool
    source: str
    optional: bool = False
    """Offered only when an allow list names it, its plugin, `group:plugins` or `*`."""


class Registry:
    """First come, first served; names of built-in tools and their aliases belong to the core."""

    def __init__(self) -> None:
        self._tools: dict[str, Registered] = {}
        self.conflicts: list[str] = []
        """Why tools were turned away by `add_all`, one sentence each."""

    def __contains__(self, name: str) -> bool:
        return canonical(name) in self._tools

    def __iter__(self) -> Iterator[Registered]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def get(self, name: str) -> Registered | None:
        return self._tools.get(canonical(name))

    def add(self, tool: Tool, source: str, *, optional: bool = False) -> None:
        """Register one tool; raises `RegistryError` when the name is taken or reserved."""
        key = canonical(tool.name)
        if source != CORE:
            _refuse_reserved(tool.name, key, source)
        holder = self._tools.get(key)
        if holder is not None:
            raise RegistryError(
                f"tool {tool.name!r} from {source} is already provided by {holder.source}; "
                "give it another name"
            )
        self._tools[key] = Registered(tool, source, optional)

    def add_all(self, tools: Iterable[Tool], source: str, *, optional: bool = False) -> None:
        """Register what can be; what cannot is noted in `conflicts` and left out."""
        owner = source.partition(":")[2]
        if owner and canonical(owner) in CATALOG:
            self.conflicts.append(
                f"{source} has the id of a built-in tool, so none of its tools are offered"
            )
            return
        for tool in tools:
            try:
                self.add(tool, source, optional=optional)
            except RegistryError as error:
                self.conflicts.append(str(error))


def _refuse_reserved(name: str, key: str, source: str) -> None:
    if key == "bundle-mcp":
        raise RegistryError(
            f"tool {name!r} from {source} has a name that is reserved for all servers"
        )
    if key not in CATALOG:
        return
    what = f"an old name of {key!r}" if name.strip().lower() in ALIASES else "a built-in tool"
    raise RegistryError(
        f"tool {name!r} from {source} would stand in front of {what}; give it another name"
    )
