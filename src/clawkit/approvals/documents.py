"""What an approvals document says, or why it cannot be used."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from types import MappingProxyType
from typing import Any, NamedTuple, cast, get_args
from uuid import UUID

from msgspec.structs import replace

from clawkit.approvals.allow.entries import read_entry
from clawkit.approvals.base import Entry
from clawkit.config.json5 import (
    MAX_DEPTH,
    UNSAFE_KEYS,
    Json5Error,
    format_path,
    line_of,
    locate,
    parse,
)
from clawkit.config.sections.exec import Ask, Security
from clawkit.errors import BadDocumentError
from clawkit.text import human_size, nearest, one_line, printable

VERSION = 1
MAX_BYTES = 4 * 1024 * 1024
EVERY = "*"
"""Stands for all agents."""
USED_AT, USED_COMMAND, USED_PATH = "lastUsedAt", "lastUsedCommand", "lastResolvedPath"

_MAX_NAME = 64
_MAX_WORDS = 300
_LEGACY = {"default": "main"}
USE_KEYS: dict[str, tuple[type, ...]] = {
    USED_AT: (int, float),
    USED_COMMAND: (str,),
    USED_PATH: (str,),
    "commandText": (str,),
}
"""What an entry holds beside its rule."""
_WORDS: dict[str, tuple[str, ...]] = {
    "security": get_args(Security),
    "ask": get_args(Ask),
    "askFallback": get_args(Security),
}
_SKILLS = "autoAllowSkills"
_FIELDS = (*_WORDS, _SKILLS)
_ROOT_KEYS = ("version", "socket", "defaults", "agents")
_BUILT_IN: dict[str, Any] = dict(zip(_FIELDS, ("deny", "on-miss", "deny", False), strict=True))

Path = tuple[str | int, ...]


class DocPolicy(NamedTuple):
    """What a document asks for at least."""

    security: Security
    ask: Ask
    fallback: Security
    auto_allow_skills: bool
    left_out: frozenset[str] = frozenset()
    """The keys of a document that says nothing about them."""


_NO_FLOOR = DocPolicy("full", "off", "deny", False)
"""Of a document that is not there."""


class Item(NamedTuple):
    """An entry where it stands, and when it was last of use."""

    agent: str
    entry: Entry
    used_ms: int | None = None
    used_command: str = ""
    used_path: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """The approvals document; without `data` there is none, and it asks for nothing."""

    data: bytes | None = field(default=None, repr=False)
    items: tuple[Item, ...] = ()
    """All entries, those of an agent in the order that they are tried."""
    socket_path: str = ""
    token: str = field(default="", repr=False)
    _given: Mapping[str, Mapping[str, tuple[Any, str]]] = field(
        default_factory=lambda: MappingProxyType({}), repr=False
    )
    """By agent (empty for the defaults), then by field: the value and the path of its key."""
    _entries: Mapping[str, tuple[Entry, ...]] = field(
        default_factory=lambda: MappingProxyType({}), repr=False
    )

    @property
    def exists(self) -> bool:
        return self.data is not None

    @property
    def raw(self) -> dict[str, Any]:
        """A copy of everything in it, known or not."""
        return {} if self.data is None else cast("dict[str, Any]", json.loads(self.data))

    @property
    def shown(self) -> dict[str, Any]:
        """The same without the token."""
        raw = self.raw
        raw.get("socket", {}).pop("token", None)
        return raw

    @property
    def revision(self) -> str:
        return revision(self.data)

    def policy_for(self, agent: str) -> DocPolicy:
        """What holds for an agent: its own field, that of all agents, the defaults, the usual."""
        if not self.exists:
            return _NO_FLOOR
        levels = self._levels(agent)
        found = [_find(levels, name) for name in _FIELDS]
        left_out = [name for name, (_, key) in zip(_FIELDS, found, strict=True) if not key]
        policy = DocPolicy(*(value for value, _ in found))
        return policy._replace(left_out=frozenset(left_out))

    def entries_for(self, agent: str) -> tuple[Entry, ...]:
        """The entries of all agents, then the agent's own."""
        found = self._entries.get(canonical(agent))
        return self._entries.get(EVERY, ()) if found is None else found

    def _levels(self, agent: str) -> list[Mapping[str, tuple[Any, str]]]:
        """What is said about an agent, the most particular first."""
        given = self._given
        return [given[level] for level in (canonical(agent), EVERY, "") if level in given]


NO_DOCUMENT = Document()


def _find(levels: list[Mapping[str, tuple[Any, str]]], name: str) -> tuple[Any, str]:
    for level in levels:
        if name in level:
            return level[name]
    return _BUILT_IN[name], ""


def canonical(agent: str) -> str:
    """An agent's name as the document is searched for it; never the empty one of the defaults."""
    name = agent.strip().lower()
    return _LEGACY.get(name, name) or EVERY


def revision(data: bytes | None) -> str:
    """A word for exactly this content of the file, or for there being none."""
    return f"missing:{sha256(b'').hexdigest()}" if data is None else sha256(data).hexdigest()


def parse_document(name: str, data: bytes | None) -> Document:
    """The document that `data` holds; `name` is for the words of a `BadDocumentError`."""
    if data is None:
        return NO_DOCUMENT
    if len(data) > MAX_BYTES:
        message = f"is larger than {human_size(MAX_BYTES)}. Remove entries"
        raise BadDocumentError(name, message)
    try:
        return _parsed(data)
    except UnicodeDecodeError as error:
        message = f"byte {error.start + 1} is not UTF-8. Save the file as UTF-8"
        line = data.count(b"\n", 0, error.start) + 1
        raise BadDocumentError(name, message, line=line) from None
    except _WrongError as wrong:
        text = data.decode()
        node = locate(parse(text), wrong.path)
        line = line_of(text, node.start) if node else 0
        key = format_path(wrong.path)
        shown = printable(one_line(key, _MAX_WORDS), "")
        raise BadDocumentError(name, str(wrong), key=shown, line=line) from None
    except (ValueError, RecursionError) as error:
        raise _not_json(name, data.decode(), error) from None


class _WrongError(Exception):
    """A value that must not be where it is."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(message)
        self.path = path


# By content: a file is read for every command, and hardly ever another one.
@lru_cache(maxsize=4)
def _parsed(data: bytes) -> Document:
    text = data.decode()
    raw = json.loads(text, object_pairs_hook=_unique)
    # Neither numbers that are none nor half a character come out of this.
    json.dumps(raw, ensure_ascii=False, allow_nan=False).encode()
    _check_depth(raw)
    return _Reader(data).run(raw)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs) or not UNSAFE_KEYS.isdisjoint(found):
        raise ValueError("a key that is there twice, or not allowed")
    return found


def _check_depth(raw: object) -> None:
    level: list[Any] = [raw]
    for _ in range(MAX_DEPTH + 1):
        holders = [value for value in level if isinstance(value, dict | list)]
        if not holders:
            return
        level = [
            each
            for value in holders
            for each in (value.values() if isinstance(value, dict) else value)
        ]
    raise ValueError("nested too deeply")


def _not_json(name: str, text: str, error: Exception) -> BadDocumentError:
    """What is wrong with a text, in the words of the parser that knows the places."""
    try:
        parse(text)
    except Json5Error as fault:
        line, column, message = fault.line, fault.column, fault.message
    else:
        # Right in the configuration, with its comments, but not here.
        line, column = getattr(error, "lineno", 0), getattr(error, "colno", 0)
        message = f"is not plain JSON: {getattr(error, 'msg', error)}"
        if text.startswith("\ufeff"):
            message = "begins with a byte order mark. Save the file as UTF-8 without one"
    return BadDocumentError(name, message, line=line, column=column)


class _Reader:
    """One pass over the data of one document, of which every known part is checked."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.given: dict[str, dict[str, tuple[Any, str]]] = {}
        self.items: list[Item] = []

    def run(self, raw: object) -> Document:
        root = _object(raw, ())
        _check_keys(root, _ROOT_KEYS, ())
        version = root.get("version", VERSION)
        if type(version) is not int or version != VERSION:
            raise _WrongError(
                ("version",), f"must be {VERSION}, the only version that this clawkit knows"
            )
        socket = _object(root.get("socket", {}), ("socket",))
        self.read_fields("", root.get("defaults", {}), ("defaults",))
        self.read_agents(_object(root.get("agents", {}), ("agents",)))
        return Document(
            self.data,
            tuple(self.items),
            _text(socket, "path", ("socket",)),
            _text(socket, "token", ("socket",)),
            MappingProxyType(self.given),
            MappingProxyType(_by_agent(self.items)),
        )

    def read_agents(self, agents: dict[str, Any]) -> None:
        seen: dict[str, str] = {}
        # What the old name holds counts after what the new one does.
        for key in sorted(agents, key=lambda each: each.strip().lower() in _LEGACY):
            where: Path = ("agents", key)
            try:
                name = agent_name(key)
            except ValueError as error:
                raise _WrongError(where, str(error)) from None
            if (first := seen.setdefault(name, key)) != key:
                message = f"is the agent {first!r} again. Join the two: case does not matter"
                raise _WrongError(where, message)
            self.read_fields(canonical(name), agents[key], where)
            entries = agents[key].get("allowlist", [])
            if not isinstance(entries, list):
                raise _WrongError((*where, "allowlist"), f"must be a list, not {_kind(entries)}")
            for index, value in enumerate(entries):
                self.items.append(read_item(key, value, (*where, "allowlist", index)))

    def read_fields(self, agent: str, value: object, where: Path) -> None:
        fields = _object(value, where)
        _check_keys(fields, (*_FIELDS, *(["allowlist"] if agent else [])), where)
        into = self.given.setdefault(agent, {})
        for name in _FIELDS:
            if name in fields:
                found = fields[name]
                _check_field(name, found, (*where, name))
                into.setdefault(name, (found, format_path((*where, name))))


def agent_name(text: str) -> str:
    """A name that an agent can have, in lower case, or `*`. Raises ValueError."""
    name = text.strip().lower()
    shown = repr(one_line(text, 40))
    if not name or len(name) > _MAX_NAME or not name.isprintable():
        raise ValueError(f"{shown} is no name of an agent: 1 to {_MAX_NAME} printable characters")
    if name in UNSAFE_KEYS or name in (".", "..") or "/" in name or "\\" in name:
        raise ValueError(f"{shown} is no name of an agent: it must be neither a path nor reserved")
    return name


def read_item(key: str, value: object, where: Path) -> Item:
    """An entry of the agent written as `key`. Raises an error for `parse_document`."""
    if not isinstance(value, str | dict):
        message = f"must be a pattern or an object with one, not {_kind(value)}"
        raise _WrongError(where, message)
    fields = as_fields(value)
    for name, types in USE_KEYS.items():
        found = fields.get(name, types[0]())
        if not isinstance(found, types) or isinstance(found, bool):
            raise _WrongError((*where, name), f"must not be {_kind(found)}. Remove it")
    try:
        entry = read_entry({name: fields[name] for name in fields if name not in USE_KEYS})
    except ValueError as error:
        raise _WrongError(where, one_line(str(error), _MAX_WORDS)) from None
    used = int(fields[USED_AT]) if USED_AT in fields else None
    shown = fields.get(USED_COMMAND, ""), fields.get(USED_PATH, "")
    named = entry if entry.id else replace(entry, id=id_of(key, fields))
    return Item(canonical(key), named, used, *shown)


def as_fields(value: str | dict[str, Any]) -> dict[str, Any]:
    """An entry as an object."""
    return {"pattern": value} if isinstance(value, str) else value


def id_of(key: str, fields: Mapping[str, Any]) -> str:
    """An entry's id; one without gets one that stays the same as long as the entry does."""
    if fields.get("id"):
        return str(fields["id"])
    rule = {name: value for name, value in fields.items() if name not in USE_KEYS}
    rule.pop("id", None)
    content = json.dumps([canonical(key), rule], sort_keys=True)
    return str(UUID(bytes=sha256(content.encode()).digest()[:16]))


def _by_agent(items: Iterable[Item]) -> dict[str, tuple[Entry, ...]]:
    own: dict[str, list[Entry]] = {EVERY: []}
    for item in items:
        own.setdefault(item.agent, []).append(item.entry)
    every = own.pop(EVERY)
    return {EVERY: tuple(every)} | {name: (*every, *mine) for name, mine in own.items()}


def _check_keys(found: Mapping[str, Any], known: tuple[str, ...], where: Path) -> None:
    """Unknown keys are kept and mean nothing, unless somebody seems to have meant a known one."""
    for key in found:
        if key not in known and (meant := nearest(key.replace("_", ""), known, 1)):
            raise _WrongError((*where, key), f"is not known; did you mean {meant[0]!r}?")


def _check_field(name: str, value: object, where: Path) -> None:
    if name == _SKILLS:
        if not isinstance(value, bool):
            raise _WrongError(where, f"must be true or false, not {_kind(value)}")
    elif value not in (words := _WORDS[name]):
        shown = repr(one_line(value, 40)) if isinstance(value, str) else _kind(value)
        raise _WrongError(where, f"must be one of {', '.join(words)}, not {shown}")


def _object(value: object, where: Path) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _WrongError(where, f"must be an object, not {_kind(value)}")
    return value


def _text(found: Mapping[str, Any], name: str, where: Path) -> str:
    value = found.get(name, "")
    if not isinstance(value, str):
        raise _WrongError((*where, name), f"must be a text, not {_kind(value)}")
    if "\0" in value:
        raise _WrongError((*where, name), "must not hold the character NUL")
    return value


def _kind(value: object) -> str:
    kinds = {bool: "true or false", str: "a text", list: "a list", dict: "an object"}
    return "null" if value is None else kinds.get(type(value), "a number")


def iter_lists(raw: Mapping[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    """The allowlists of checked data, each with the key of its agent."""
    for key, body in raw.get("agents", {}).items():
        if "allowlist" in body:
            yield key, body["allowlist"]
