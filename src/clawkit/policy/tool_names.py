"""Entries of allow and deny lists: names, aliases, groups, plugin ids and `*`.

Matching ignores case, supports only `*` as a wildcard, and covers the whole name. It never
backtracks: a pattern costs at most one search per piece.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from clawkit.core.catalog import CATALOG, GROUPS, canonical
from clawkit.core.tool import CALLER
from clawkit.errors import ConfigError, Issue
from clawkit.globs import Glob
from clawkit.text import nearest

_VARIABLE = r"\$\{[A-Z_][A-Z0-9_]*\}"
_POSSIBLE_NAME = r"[a-z0-9*][a-z0-9_*-]*"


def unset_variable(text: str) -> str:
    """Error text if `${NAME}` was left unexpanded. An error wherever the rule is used, because a
    rule without meaning protects nothing."""
    return f"{text!r} uses a variable that is not set" if re.search(_VARIABLE, text) else ""


class Universe(msgspec.Struct, frozen=True):
    """All names that entries can refer to: built-in tools, loaded tools, and their plugins."""

    names: frozenset[str]
    own: frozenset[str]  # available without plugins: built-in, or passed in by the caller
    plugins: Mapping[str, tuple[str, ...]]  # tools by lower-case plugin id or `mcp:<server>`

    @classmethod
    def of(cls, sources: Mapping[str, str]) -> Universe:
        """From tools by canonical name: `core`, `caller`, `plugin:<id>` or `mcp:<server>`."""
        plugins: dict[str, list[str]] = {}
        for name, source in sources.items():
            if source.startswith("plugin:"):
                plugins.setdefault(source.removeprefix("plugin:").lower(), []).append(name)
            elif source.startswith("mcp:"):
                plugins.setdefault(source.lower(), []).append(name)
        given = (name for name, source in sources.items() if source == CALLER)
        return cls(
            frozenset(CATALOG) | frozenset(sources),
            frozenset(CATALOG) | frozenset(given),
            {owner: tuple(names) for owner, names in plugins.items()},
        )


class Matcher:
    """A compiled list. `find` returns the entry that matches a name, as written."""

    __slots__ = ("_exact", "_globs", "entries", "foreign", "unmatched")

    def __init__(self, entries: Iterable[str], key: str, universe: Universe) -> None:
        self.entries: tuple[str, ...] = tuple(entry for entry in entries if entry.strip())
        self._exact: dict[str, str] = {}
        self._globs: list[tuple[Glob, str]] = []
        self.unmatched: list[str] = []  # entries that match no known tool
        self.foreign = bool(self.entries)
        """Whether all entries refer, or may refer, to plugin tools: none to one of our own."""
        for index, entry in enumerate(self.entries):
            if problem := unset_variable(entry):
                raise ConfigError([Issue(f"{key}[{index}]", problem)])
            name = canonical(entry)
            if "*" in name and not name.startswith("group:"):
                glob = Glob(name)
                self._globs.append((glob, entry))
                means_own = any(map(glob.match, universe.own))
                means_any = means_own or any(map(glob.match, universe.names))
            else:
                names = self._expand(name, universe)
                for each in names or (name,):
                    self._exact.setdefault(each, entry)
                means_any, means_own = bool(names), not universe.own.isdisjoint(names)
            if not means_any:
                self.unmatched.append(entry)
            # An impossible tool name is a mistake, not a missing plugin.
            nonsense = not means_any and not re.fullmatch(_POSSIBLE_NAME, name)
            self.foreign = self.foreign and not (means_own or nonsense)

    @staticmethod
    def _expand(name: str, universe: Universe) -> tuple[str, ...]:
        """Everything that a name refers to; a tool and a plugin with the same name both count."""
        found = [*GROUPS.get(name, ()), *universe.plugins.get(name, ())]
        if name in universe.names:
            found.append(name)
        if name in ("group:plugins", "bundle-mcp"):
            only_mcp = name == "bundle-mcp"
            found += [
                each
                for owner, names in universe.plugins.items()
                if owner.startswith("mcp:") or not only_mcp
                for each in names
            ]
        return tuple(found)

    def find(self, name: str) -> str | None:
        entry = self._exact.get(name)
        if entry is not None:
            return entry
        for glob, written in self._globs:
            if glob.match(name):
                return written
        return None

    def find_all(self, names: Iterable[str]) -> dict[str, str]:
        """All matching names, with the entry that matched."""
        exact = self._exact
        found = {name: exact[name] for name in names if name in exact}
        for glob, written in self._globs:
            found |= {name: written for name in names if name not in found and glob.match(name)}
        return found

    def opts_in(self, name: str, owner: str) -> bool:
        """Whether it asks for an optional tool: by name, plugin, `group:plugins` or `*`."""
        wanted = {name, owner, "group:plugins", "*"}
        return any(canonical(entry) in wanted for entry in self.entries)


def explain_unmatched(entry: str, universe: Universe) -> str:
    name = canonical(entry)
    known = tuple(GROUPS) if name.startswith("group:") else tuple(universe.names)
    close = [] if "*" in name else nearest(name, known, 1)
    return f"{entry!r} matches no tool" + (f"; did you mean {close[0]!r}?" if close else "")
