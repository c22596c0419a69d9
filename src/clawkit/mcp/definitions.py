"""The tools that a server defines: checked, named, pinned by hash, and stored between runs.

Definitions are not trusted. One that clawkit cannot check is left out. The first listing is
accepted, because the owner configured the server; definitions that are new or changed after that
wait for `clawkit mcp accept`.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from clawkit.config.sections.plugins import McpServer, tool_prefix
from clawkit.core.tool import make_validator
from clawkit.errors import ClawkitError, SchemaError, ToolError
from clawkit.external import defuse
from clawkit.globs import Glob
from clawkit.mcp.protocol import ToolEntry
from clawkit.net.route import bad_name
from clawkit.process.jsonrpc import UNREADABLE
from clawkit.schema.choose import check_schema
from clawkit.store import private_dir, write_atomic
from clawkit.text import cut, one_line

MAX_TOOLS = 500
MAX_NAME = 64
MAX_REMOTE_NAME = 256
MAX_BYTES = 64 * 1024
"""Maximum bytes of one definition."""
MAX_TOTAL = 2 * 1024 * 1024
"""Maximum bytes of all definitions of a server, because they are read at every start."""
MAX_DESCRIPTION = 2_000
"""Maximum characters of a description for the model."""
MAX_FILE = 64 * 1024 * 1024
_HEADER = "x-mcp-header"
_DESCRIBING = ("description", "title")
_SAFE_INTEGER = 2**53


def _feature(name: str, description: str, /, **properties: Mapping[str, Any]) -> ToolEntry:
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return ToolEntry(name, schema, description=description)


FEATURES: Mapping[str, ToolEntry] = {
    "resources": _feature(
        "resources",
        "List the resources, or read one.",
        uri={"type": "string", "description": "The resource to read; lists all if omitted."},
    ),
    "prompts": _feature(
        "prompts",
        "List the prompts, or get one.",
        name={"type": "string", "description": "The prompt to get; lists all if omitted."},
        arguments={"type": "object", "additionalProperties": {"type": "string"}},
    ),
}
"""Tools for other features of a server. They are accepted like the tools that it defines, but by
name: their texts are clawkit's own, and may differ between versions."""
_FEATURE = "feature"
"""Their pin."""


class ToolListing(Struct, omit_defaults=True, rename="camel"):
    """The known facts about one server. Stored in a private file."""

    fingerprint: str
    """Fingerprint of the entry that it was listed with."""
    version: str = ""
    """The protocol version that it speaks."""
    tools: list[ToolEntry] = []
    waiting: list[ToolEntry] = []
    """New and changed definitions, until a person accepts them."""
    pins: dict[str, str] = {}
    """Hashes of the accepted definitions."""
    features: list[str] | None = None
    """Which of the tools are `FEATURES`; None in a listing of an earlier version."""
    left_out: dict[str, str] = {}
    """Tools that cannot be used, and why."""

    def pin(self, tool: ToolEntry) -> str:
        return _FEATURE if tool.name in (self.features or ()) else digest(tool)

    def renew_features(self) -> None:
        """Replace stored features by the current ones."""
        if self.features is None:
            known = [_outline(each) for each in FEATURES.values()]
            stored = (*self.tools, *self.waiting)
            self.features = [each.name for each in stored if _outline(each) in known]
            self.pins |= {each.name: self.pin(each) for each in self.tools}
        own = {name: tool for name, tool in FEATURES.items() if name in self.features}
        self.tools = [own.get(tool.name, tool) for tool in self.tools]
        self.waiting = [own.get(tool.name, tool) for tool in self.waiting]


def _outline(tool: ToolEntry) -> object:
    """A definition without the texts that clawkit chose for features."""
    schema = tool.input_schema
    return tool.name, tool.title, {**schema, "properties": sorted(schema.get("properties", ()))}


# Created before threads use them: msgspec may crash on concurrent first use.
_TOOL, _LISTING = msgspec.json.Decoder(ToolEntry), msgspec.json.Decoder(ToolListing)


def listing_file(folder: str, server: str, entry_print: str) -> str:
    """The file for an entry, by fingerprint: another configuration with a server of the same name
    must not discard what was accepted."""
    digest = hashlib.sha256(f"{server}\0{entry_print}".encode()).hexdigest()[:16]
    return os.path.join(folder, f"{tool_prefix(server)[:-2][:40]}-{digest}.json")


def read_listing(folder: str, server: str, entry: McpServer) -> ToolListing | None:
    """The last listing; None if there is none for this entry. An unreadable one counts as a listing
    without accepted tools, because after None everything is accepted."""
    try:
        with open(listing_file(folder, server, fingerprint(entry)), "rb") as file:
            found = _LISTING.decode(file.read(MAX_FILE))
    except FileNotFoundError:
        return None
    except (OSError, *UNREADABLE):
        return ToolListing(fingerprint(entry))
    found.renew_features()
    return found if found.fingerprint == fingerprint(entry) else None


def write_listing(folder: str, server: str, listing: ToolListing) -> None:
    private_dir(folder)
    file = listing_file(folder, server, listing.fingerprint)
    write_atomic(file, msgspec.json.encode(listing))


def fingerprint(entry: McpServer) -> str:
    """Differs for entries that lead to different servers. Contains no secrets."""
    what = [entry.command, entry.args, entry.url, entry.transport, entry.cwd, sorted(entry.env)]
    return digest(what)


def digest(value: object) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()


def update(
    old: ToolListing | None, new: ToolListing, tools: Sequence[Raw], features: Iterable[str] = ()
) -> None:
    """Add the definitions of a server, and those for its other features, to `new`, as accepted,
    waiting or unusable."""
    usable = {tool.name: tool for tool in _usable(tools, new.left_out)}
    new.pins = {} if old is None else dict(old.pins)
    new.features = [each for each in features if each not in usable]
    for name, tool in (usable | {each: FEATURES[each] for each in new.features}).items():
        pin = new.pin(tool)
        if old is None or new.pins.get(name) == pin:
            new.pins[name] = pin
            new.tools.append(tool)
        else:
            new.waiting.append(tool)


def _usable(definitions: Sequence[Raw], left_out: dict[str, str]) -> Iterator[ToolEntry]:
    seen: set[str] = set()
    left = MAX_TOTAL
    for number, raw in enumerate(definitions):
        name, size = f"#{number + 1}", len(memoryview(raw))
        left -= size
        if left < 0 or number >= MAX_TOOLS:
            why = "all definitions together are too large"
            left_out[name] = why if left < 0 else f"only the first {MAX_TOOLS} tools are used"
            return
        try:
            tool = _TOOL.decode(raw)
            tool.output_schema = None  # unused, and of unbounded depth
            name = one_line(tool.name, MAX_NAME)
            if tool.name in seen:
                raise ToolError("it is listed twice")
            seen.add(tool.name)
            _check(tool, size)
            yield tool
        except (ClawkitError, *UNREADABLE) as error:
            left_out[name] = one_line(str(error), 200)


def accept(listing: ToolListing) -> list[str]:
    """Accept all waiting definitions; returns their names."""
    names = [tool.name for tool in listing.waiting]
    listing.tools += listing.waiting
    listing.pins |= {tool.name: listing.pin(tool) for tool in listing.waiting}
    listing.waiting = []
    return names


def _check(tool: ToolEntry, size: int) -> None:
    """Raise an error for an unusable definition."""
    if not 0 < len(tool.name) <= MAX_REMOTE_NAME:
        raise ToolError(f"its name must have 1 to {MAX_REMOTE_NAME} characters")
    if size > MAX_BYTES:
        raise ToolError(f"its definition has {size:,} bytes; at most {MAX_BYTES:,} are allowed")
    if tool.input_schema.get("type", "object") != "object":
        raise SchemaError("its parameters must be an object")
    check_schema(tool.input_schema, "parameters")
    make_validator(tool.input_schema, "the schema of its parameters")
    for text in _fixed_texts(tool.input_schema):
        if defuse(text) != text:
            shown = one_line(text, 40)
            raise SchemaError(f"parameters: {shown!r} has hidden characters, or fakes a marker")
    param_headers(tool.input_schema)


def param_headers(schema: Mapping[str, Any]) -> dict[tuple[str, ...], str]:
    """The headers in which a request repeats parameters, by parameter path. Raises `SchemaError`
    for an invalid mark in the schema."""
    found: dict[tuple[str, ...], str] = {}
    for path, part in _marks(schema):
        if path is None:
            raise SchemaError(f"{_HEADER}: only a plain property can have a header")
        found[path] = name = str(part[_HEADER])
        if bad_name(name) or not name.isascii():
            raise SchemaError(f"{_HEADER}: {one_line(name, 40)!r} is not the name of a header")
        if part.get("type") not in ("string", "integer", "boolean"):
            raise SchemaError(f"{_HEADER}: {path[-1]!r} is not a string, an integer or a boolean")
    if len({name.lower() for name in found.values()}) < len(found):
        raise SchemaError(f"{_HEADER}: two parameters have the same header")
    return found


def _marks(node: Any, path: tuple[str, ...] | None = ()) -> Iterator[tuple[Any, Any]]:
    """All schemas with a mark, with the path of a plain property, or None for other places."""
    if isinstance(node, list):
        for each in node:
            yield from _marks(each, None)
    elif isinstance(node, Mapping):
        if _HEADER in node:
            yield path or None, node
        for key, value in node.items():
            if key == "properties" and isinstance(value, Mapping):
                for name, part in value.items():
                    yield from _marks(part, None if path is None else (*path, name))
            else:
                yield from _marks(value, None)


def header_values(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, str]:
    """The values that a request repeats in headers, by header name."""
    found: dict[str, str] = {}
    for path, name in param_headers(schema).items():
        value: Any = arguments
        for step in path:
            value = value.get(step) if isinstance(value, Mapping) else None
        if isinstance(value, float) and value.is_integer() and abs(value) < _SAFE_INTEGER:
            value = int(value)
        if isinstance(value, bool):
            value = str(value).lower()
        if value is not None:
            found[f"Mcp-Param-{name}"] = str(value)
    return found


def is_wanted(entry: McpServer, tool: str) -> bool:
    """Whether `toolFilter` includes a tool."""
    chosen = entry.tool_filter
    if any(Glob(each).match(tool) for each in chosen.exclude):
        return False
    return chosen.include is None or any(Glob(each).match(tool) for each in chosen.include)


def safe_names(server: str, tools: Iterable[str]) -> dict[str, str]:
    """The names under which the tools of a server are offered: `<server>__<tool>`, in ASCII
    letters. Ambiguous and long names get a part of their hash; of several equal names, one that
    needed no change keeps it."""
    plain = {tool: tool_prefix(server) + re.sub(r"[^A-Za-z0-9_-]", "-", tool) for tool in tools}
    count = Counter(name.lower() for name in plain.values())
    unchanged = Counter(name.lower() for tool, name in plain.items() if name.endswith(f"__{tool}"))
    names: dict[str, str] = {}
    for tool, name in plain.items():
        key, is_unchanged = name.lower(), name.endswith(f"__{tool}")
        is_alone = count[key] == 1 or (is_unchanged and unchanged[key] == 1)
        if not is_alone or len(name) > MAX_NAME:
            own = hashlib.sha256(f"{server}\0{tool}".encode("utf-8", "replace")).hexdigest()[:8]
            name = f"{name[: MAX_NAME - 9]}-{own}"
        names[tool] = name
    return names


def _fixed_texts(node: Any) -> Iterator[str]:
    """The names and values in a schema that must be shown unchanged."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, Mapping):
        for key, value in node.items():
            yield key
            if key not in _DESCRIBING or not isinstance(value, str):
                yield from _fixed_texts(value)
    elif isinstance(node, list):
        for each in node:
            yield from _fixed_texts(each)


def shown_schema(node: Any) -> Any:
    """The schema for the model: descriptions without hidden characters, of limited length."""
    if isinstance(node, Mapping):
        return {
            key: clean_text(value)
            if key in _DESCRIBING and isinstance(value, str)
            else shown_schema(value)
            for key, value in node.items()
        }
    return [shown_schema(each) for each in node] if isinstance(node, list) else node


def clean_text(text: str, max_chars: int = MAX_DESCRIPTION) -> str:
    """Text of a server without invisible characters. Cut before it is searched, because searching
    the largest possible text takes seconds."""
    return cut(defuse(text[: 2 * max_chars]), max_chars)
