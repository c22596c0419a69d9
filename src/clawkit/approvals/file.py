"""The approvals file, exec-approvals.json: safe reading, and changes under a lock."""

from __future__ import annotations

import errno
import json
import logging
import os
from base64 import urlsafe_b64encode
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import Any, cast, get_args
from uuid import UUID, uuid4

from msgspec import Struct, structs

from clawkit.approvals.types import AllowlistEntry
from clawkit.config import json5
from clawkit.config.sections.tools import Ask, Security
from clawkit.errors import BadDocumentError as BadDocumentError
from clawkit.errors import ConflictError, ToolInputError
from clawkit.store import locked, open_private, private_dir, require_private, write_atomic
from clawkit.text import human_size, nearest, one_line, printable

MAX_BYTES = 4 * 1024 * 1024
EVERY = "*"  # all agents
LOCK_WAIT_S = 5.0
USE_EVERY_MS = 60_000  # minimum interval between two records of the use of an entry

_VERSION = 1
_MIN_PREFIX, _TOKEN_BYTES, _MAX_NAME, _MAX_WORDS, _MAX_SHOWN, _LISTED = 4, 24, 64, 300, 500, 20
_LEGACY = {"default": "main"}
_JOINED = ("children", "content", "source", "extent")
_USED_AT, _USED_COMMAND, _USED_PATH = "lastUsedAt", "lastUsedCommand", "lastResolvedPath"
_USE_KEYS = (_USED_AT, _USED_COMMAND, _USED_PATH, "commandText")  # not part of the rule
_WORDS: dict[str, tuple[str, ...]] = {
    "security": get_args(Security),
    "ask": get_args(Ask),
    "askFallback": get_args(Security),
}
# Explicit in a new document, because a missing value means the strictest one (`_BUILT_IN`); these
# values add nothing to the configuration.
_DEFAULTS = {"security": "full", "ask": "off", "askFallback": "deny", "autoAllowSkills": False}
_BUILT_IN = {"security": "deny", "ask": "on-miss", "askFallback": "deny", "autoAllowSkills": False}
_KINDS = {bool: "true or false", str: "a string", list: "a list", dict: "an object"}

Path = tuple[str | int, ...]
log = logging.getLogger(__name__)


class DocPolicy(Struct, frozen=True):
    """The minimum strictness that a document asks for."""

    security: Security
    ask: Ask
    fallback: Security
    left_out: frozenset[str] = frozenset()
    allows_skills: bool = False
    """Whether programs that skills require count as allowlisted."""


class Item(Struct, frozen=True):
    """An entry, its agent, and its last use."""

    agent: str
    entry: AllowlistEntry
    used_ms: int | None = None
    used_command: str = ""
    used_path: str = ""


@dataclass(frozen=True, slots=True)
class ApprovalsDocument:
    """The approvals document. Without `data` there is no file, and it restricts nothing."""

    data: bytes | None = field(default=None, repr=False)
    items: tuple[Item, ...] = ()
    """All entries, for each agent in matching order."""
    socket_path: str = ""
    token: str = field(default="", repr=False)
    _explicit: Mapping[str, dict[str, Any]] = field(default_factory=dict, repr=False)
    """Explicit values by agent; the defaults have the empty name."""
    _entries: Mapping[str, tuple[AllowlistEntry, ...]] = field(default_factory=dict, repr=False)

    @property
    def exists(self) -> bool:
        return self.data is not None

    @property
    def raw(self) -> dict[str, Any]:
        """A copy of everything in it, including unknown keys."""
        return {} if self.data is None else cast("dict[str, Any]", json.loads(self.data))

    @property
    def shown(self) -> dict[str, Any]:
        """`raw` without the token."""
        raw = self.raw
        raw.get("socket", {}).pop("token", None)
        return raw

    @property
    def revision(self) -> str:
        return revision(self.data)

    def policy_for(self, agent: str) -> DocPolicy:
        """The agent's own values, then those of all agents, the defaults, the built-in ones."""
        if not self.exists:
            return DocPolicy("full", "off", "deny")
        levels = (_canonical(agent), EVERY, "")
        given = ChainMap(*(self._explicit[level] for level in levels if level in self._explicit))
        values: list[Any] = [given.get(name, usual) for name, usual in _BUILT_IN.items()]
        security, ask, fallback, allows_skills = values
        left_out = frozenset(_BUILT_IN.keys() - given.keys())
        return DocPolicy(security, ask, fallback, left_out, allows_skills)

    def entries_for(self, agent: str) -> tuple[AllowlistEntry, ...]:
        """All agents' entries, then its own; those that may leave the sandbox first."""
        return self._entries.get(_canonical(agent)) or self._entries.get(EVERY, ())


NO_DOCUMENT = ApprovalsDocument()


def revision(data: bytes | None) -> str:
    """Identifies the content of the file, or its absence."""
    return f"missing:{sha256(b'').hexdigest()}" if data is None else sha256(data).hexdigest()


def read_document(path: str) -> ApprovalsDocument:
    """The document at `path`, or an empty one if there is no file. Raises `BadDocumentError`."""
    return _parse(path, _read_bytes(path))


def edit(
    path: str, change: Callable[[dict[str, Any]], None], *, wait_s: float = LOCK_WAIT_S
) -> ApprovalsDocument:
    """Apply `change` to the data of the document, which is created if missing, under a lock.
    Nothing is written if it is invalid before or after the change. Raises `BadDocumentError`."""
    with _writing(path, wait_s) as data:
        before = _parse(path, data)
        raw = before.raw if before.exists else {"version": _VERSION, "defaults": dict(_DEFAULTS)}
        change(raw)
        return _store(path, raw, data)


def replace(path: str, new_text: str, base: str | None) -> ApprovalsDocument:
    """Replace the document with the revision `base`, or any if None, keeping a token that the text
    lacks. Raises `BadDocumentError` for invalid text, `ConflictError` for another revision."""
    name = f"the new {os.path.basename(path)}"
    raw = _parse(name, new_text.encode("utf-8", "surrogatepass")).raw
    with _writing(path, LOCK_WAIT_S) as data:
        if base is not None and revision(data) != base:
            raise ConflictError(
                f"{path} was not changed: another process has changed it in the meantime. "
                "Read it again and repeat the change"
            )
        try:
            old = _parse(path, data)
        except BadDocumentError:
            # A broken document may be replaced, to repair it.
            old = NO_DOCUMENT
        if old.token:
            raw["socket"] = {**old.raw["socket"], **raw.get("socket", {})}
        return _store(path, {"version": _VERSION, **raw}, data)


def add_entry(path: str, agent: str, entry: AllowlistEntry) -> tuple[ApprovalsDocument, bool]:
    """Add an entry for an agent, or for all (`*`), or update the one for the same calls; also
    returns whether that changed anything. Raises `ToolInputError` for an invalid agent name."""
    from clawkit.approvals.entries import entry_to_json

    name, added = _agent_name(agent), True

    def calls(entry: AllowlistEntry) -> tuple[object, ...]:
        access = entry.grants if entry.extent == "access" else None
        return entry.pattern, entry.arg_pattern, entry.args, entry.cwd, access

    def change(raw: dict[str, Any]) -> None:
        nonlocal added
        for entries, index, item in _iterate_entries(raw):
            if item.agent == _canonical(name) and calls(item.entry) == calls(entry):
                # Update an entry. One that a person wrote stays marked as theirs if the same calls
                # are later approved permanently in a prompt.
                source = entry if item.entry.source else item.entry
                whose = {"source": source.source, "extent": source.extent}
                children = entry.children or item.entry.children
                content = item.entry.content and entry.content
                grants = (
                    entry.grants
                    if entry.grants is not None and not entry.source
                    else item.entry.grants
                )
                more = {
                    "unconfined": item.entry.unconfined or entry.unconfined,
                    "grants": grants,
                    **whose,
                }
                new = structs.replace(item.entry, children=children, content=content, **more)
                added = new != item.entry
                if added:
                    fields, now = _as_fields(entries[index]), entry_to_json(new)
                    kept = {k: v for k, v in fields.items() if k not in _JOINED or k in now}
                    entries[index] = {**kept, **now}
                return
        agents = raw.setdefault("agents", {})
        key = next((each for each in agents if _agent_name(each) == name), name)
        listed = agents.setdefault(key, {}).setdefault("allowlist", [])
        listed.append(entry_to_json(structs.replace(entry, id=entry.id or str(uuid4()))))

    return edit(path, change), added


def remove_entry(path: str, agent: str | None, which: str) -> tuple[ApprovalsDocument, Item]:
    """Remove an entry by id, id prefix or pattern, from one agent or (None) from any. Raises
    `ToolInputError`, listing the candidates, unless exactly one entry matches."""
    removed: list[Item] = []

    def change(raw: dict[str, Any]) -> None:
        places = [
            place
            for place in _iterate_entries(raw)
            if agent is None or place[2].agent == _canonical(agent)
        ]
        wanted = _find_entry(which, [item for _, _, item in places])
        for entries, index, item in places:
            if item is wanted:
                del entries[index]
        removed.append(wanted)

    return edit(path, change), removed[0]


def _find_entry(which: str, items: list[Item]) -> Item:
    found = (
        [item for item in items if item.entry.id == which]
        or [item for item in items if item.entry.pattern == which]
        or [item for item in items if item.entry.id.startswith(which) and len(which) >= _MIN_PREFIX]
    )
    if len(found) == 1:
        return found[0]
    from clawkit.approvals.entries import describe_entry

    shown = repr(one_line(which, 80))
    start = (
        f"{shown} matches several entries" if found else f"no entry has the id or pattern {shown}"
    )
    start += ". Use one of these ids:" if items else ""
    listed = (found or items)[:_LISTED]
    lines = (f"  {item.entry.id}  {item.agent}  {describe_entry(item.entry)}" for item in listed)
    raise ToolInputError("\n".join([start, *lines]))


def note_use(path: str, ids: Mapping[str, tuple[str, str]], now_ms: int) -> None:
    """Record the last use of entries (by id: redacted command, resolved path), at most once a
    minute each. Failures are only logged."""

    def is_due(item: Item) -> bool:
        if item.entry.id not in ids:
            return False
        fresh = item.used_ms is not None and 0 <= now_ms - item.used_ms < USE_EVERY_MS
        return not fresh or item.used_path != _shown(ids[item.entry.id][1])

    def change(raw: dict[str, Any]) -> None:
        for entries, index, item in _iterate_entries(raw):
            if is_due(item):
                command, resolved = ids[item.entry.id]
                used = {_USED_AT: now_ms, _USED_PATH: _shown(resolved)}
                fields = {**_as_fields(entries[index]), **used}
                fields.pop(_USED_COMMAND, None)
                if not (item.entry.arg_pattern or "").startswith("sha256:"):
                    fields[_USED_COMMAND] = _shown(command)
                entries[index] = fields

    try:
        if any(is_due(item) for item in read_document(path).items):
            edit(path, change, wait_s=0)
    except BadDocumentError as error:
        log.warning("the use of approvals was not recorded: %s", error)


def _shown(text: str) -> str:
    return printable(one_line(text, _MAX_SHOWN), "")


def ensure_socket(path: str, sock_path: str) -> tuple[str, str]:
    """The approval socket's path and token; both are created if missing."""
    document = read_document(path)
    if not (document.socket_path and document.token):
        token = urlsafe_b64encode(os.urandom(_TOKEN_BYTES)).decode()

        def change(raw: dict[str, Any]) -> None:
            socket = raw.setdefault("socket", {})
            socket["path"] = socket.get("path") or sock_path
            socket["token"] = socket.get("token") or token

        document = edit(path, change)
    return document.socket_path, document.token


def _read_bytes(path: str) -> bytes | None:
    """The file's content, or None. Another user who can change it could allow any command."""
    folder, name = os.path.split(os.path.abspath(path))
    where = folder
    try:
        folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            require_private(folder, os.fstat(folder_fd))
            where = path
            fd = open_private(name, dir_fd=folder_fd)
        finally:
            os.close(folder_fd)
        with open(fd, "rb") as file:
            # One byte over the limit is enough to detect a file that is too large.
            return file.read(min(os.fstat(fd).st_size, MAX_BYTES) + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP or os.path.islink(where):
            message = "is a symbolic link, which is not followed. Replace it with the file itself"
        else:
            message = f"cannot be read: {error.strerror}"
        raise BadDocumentError(where, message) from None


@contextmanager
def _writing(path: str, wait_s: float) -> Iterator[bytes | None]:
    try:
        private_dir(os.path.dirname(os.path.abspath(path)))
        with locked(f"{path}.lock", wait_s=wait_s):
            yield _read_bytes(path)
    except TimeoutError:
        message = "was not changed: another process is changing it. Try again"
        raise BadDocumentError(path, message) from None
    except OSError as error:
        where = error.filename or path
        message = f"was not changed: {where}: {error.strerror}"
        raise BadDocumentError(path, message) from error


def _store(path: str, raw: dict[str, Any], old: bytes | None) -> ApprovalsDocument:
    try:
        raw = _parse("the result", _dump(raw)).raw
        for entries, index, item in _iterate_entries(raw):
            entries[index] = {"id": item.entry.id, **_as_fields(entries[index])}
        new = _dump(raw)
        document = _parse("the result", new)
    except (BadDocumentError, ValueError, TypeError, RecursionError) as error:
        raise BadDocumentError(path, f"was not changed: {error}") from None
    if new != old:
        write_atomic(path, new)
    return document


def _dump(raw: dict[str, Any]) -> bytes:
    text = json.dumps(raw, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    if not text.replace("\n", "").isprintable():
        # These characters occur only inside strings, where an escape is equivalent.
        shown = (each if each.isprintable() else json.dumps(each)[1:-1] for each in text)
        text = "".join("\n" if each == "\\n" else each for each in shown)
    return text.encode()


class _InvalidValueError(Exception):
    """An invalid value: its path and the message."""


def _parse(name: str, data: bytes | None) -> ApprovalsDocument:
    """The document in `data`; `name` is used in the messages of `BadDocumentError`."""
    if data is None:
        return NO_DOCUMENT
    if len(data) > MAX_BYTES:
        raise BadDocumentError(name, f"is larger than {human_size(MAX_BYTES)}. Remove entries")
    try:
        return _parse_data(data)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadDocumentError(name, f"byte {error.start + 1} is not UTF-8", line=line) from None
    except (_InvalidValueError, ValueError, RecursionError) as error:
        raise _explain(name, data.decode(), error) from None


def _explain(name: str, text: str, error: Exception) -> BadDocumentError:
    try:
        root = json5.parse(text)
    except json5.Json5Error as fault:
        return BadDocumentError(name, fault.message, line=fault.line, column=fault.column)
    if isinstance(error, _InvalidValueError):
        path, message = error.args
        node = json5.locate(root, path) or root
        key = printable(one_line(json5.format_path(path), _MAX_WORDS), "")
        return BadDocumentError(name, message, key=key, line=json5.line_of(text, node.start))
    # Valid JSON5, as in the configuration, but not JSON.
    message = f"is not plain JSON: {getattr(error, 'msg', error)}"
    line, column = getattr(error, "lineno", 1), getattr(error, "colno", 1)
    return BadDocumentError(name, message, line=line, column=column)


# Cached by content: the file is read for every command and rarely changes.
@lru_cache(maxsize=4)
def _parse_data(data: bytes) -> ApprovalsDocument:
    raw = json.loads(data.decode(), object_pairs_hook=_unique)
    # Rejects NaN, infinities and lone surrogates.
    json.dumps(raw, ensure_ascii=False, allow_nan=False).encode()
    if _depth(raw) > json5.MAX_DEPTH:
        raise ValueError("nested too deeply")
    root = _expect(dict, raw, ())
    _check_keys(root, ("version", "socket", "defaults", "agents"), ())
    version = root.get("version", _VERSION)
    if type(version) is not int or version != _VERSION:
        message = f"must be {_VERSION}, the only version that this clawkit supports"
        raise _InvalidValueError(("version",), message)
    socket = {"path": "", "token": "", **_expect(dict, root.get("socket", {}), ("socket",))}
    for name in ("path", "token"):
        if "\0" in _expect(str, socket[name], ("socket", name)):
            raise _InvalidValueError(("socket", name), "must not contain NUL")
    given = {"": _read_fields(root.get("defaults", {}), ("defaults",), ())}
    items = _read_agents(_expect(dict, root.get("agents", {}), ("agents",)), given)
    own: dict[str, list[AllowlistEntry]] = {EVERY: []}
    for item in items:
        own.setdefault(item.agent, []).append(item.entry)
    every, own[EVERY] = own[EVERY], []
    entries = {
        # The first match wins, so entries that may leave the sandbox come first.
        name: tuple(sorted((*every, *mine), key=lambda each: not each.unconfined))
        for name, mine in own.items()
    }
    return ApprovalsDocument(data, tuple(items), socket["path"], socket["token"], given, entries)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs) or not json5.UNSAFE_KEYS.isdisjoint(found):
        raise ValueError("a duplicate key, or one that is not allowed")
    return found


def _depth(value: object) -> int:
    if not isinstance(value, dict | list):
        return 0
    return 1 + max(map(_depth, value.values() if isinstance(value, dict) else value), default=0)


def _read_agents(agents: dict[str, Any], explicit: dict[str, dict[str, Any]]) -> list[Item]:
    """The entries of all agents; their other values are added to `explicit`."""
    seen: dict[str, str] = {}
    items: list[Item] = []
    # Values under the legacy name come after those under the current one.
    for key in sorted(agents, key=lambda each: each.strip().lower() in _LEGACY):
        where: Path = ("agents", key)
        try:
            name = _agent_name(key)
        except ToolInputError as error:
            raise _InvalidValueError(where, str(error)) from None
        if (first := seen.setdefault(name, key)) != key:
            message = f"is the agent {first!r} again (names are case-insensitive). Merge the two"
            raise _InvalidValueError(where, message)
        fields = _read_fields(agents[key], where, ("allowlist",))
        known = explicit.setdefault(_canonical(name), {})
        known.update(fields | known)
        where = (*where, "allowlist")
        for index, value in enumerate(_expect(list, agents[key].get("allowlist", []), where)):
            items.append(_read_item(key, value, (*where, index)))
    return items


def _read_fields(value: object, where: Path, more: tuple[str, ...]) -> dict[str, Any]:
    fields = _expect(dict, value, where)
    _check_keys(fields, (*_BUILT_IN, *more), where)
    found = {name: fields[name] for name in _BUILT_IN if name in fields}
    for name, each in found.items():
        if name not in _WORDS:
            _expect(bool, each, (*where, name))
        elif each not in (words := _WORDS[name]):
            shown = repr(one_line(each, 40)) if isinstance(each, str) else _kind_of(each)
            message = f"must be one of {', '.join(words)}, not {shown}"
            raise _InvalidValueError((*where, name), message)
    return found


def _read_item(key: str, value: object, where: Path) -> Item:
    if not isinstance(value, str | dict):
        message = f"must be a pattern or an object with one, not {_kind_of(value)}"
        raise _InvalidValueError(where, message)
    fields = _as_fields(value)
    for name in _USE_KEYS:
        types = (int, float) if name == _USED_AT else (str,)
        found = fields.get(name, types[0]())
        if not isinstance(found, types) or isinstance(found, bool):
            raise _InvalidValueError((*where, name), f"must not be {_kind_of(found)}. Remove it")
    from clawkit.approvals.entries import read_entry  # most documents have none

    rule = {name: each for name, each in fields.items() if name not in _USE_KEYS}
    try:
        entry = read_entry(rule)
    except ValueError as error:
        raise _InvalidValueError(where, one_line(str(error), _MAX_WORDS)) from None
    if not entry.id:
        # Derived from the content, so that it is stable as long as the entry is unchanged.
        rule.pop("id", None)
        content = json.dumps([_canonical(key), rule], sort_keys=True)
        digest = sha256(content.encode()).digest()
        entry = structs.replace(entry, id=str(UUID(bytes=digest[:16])))
    used = int(fields[_USED_AT]) if _USED_AT in fields else None
    shown = fields.get(_USED_COMMAND, ""), fields.get(_USED_PATH, "")
    return Item(_canonical(key), entry, used, *shown)


def _iterate_entries(raw: Mapping[str, Any]) -> Iterator[tuple[list[Any], int, Item]]:
    for key, body in raw.get("agents", {}).items():
        entries = body.get("allowlist", [])
        for index, value in enumerate(entries):
            yield entries, index, _read_item(key, value, ())


def _as_fields(value: str | dict[str, Any]) -> dict[str, Any]:
    return {"pattern": value} if isinstance(value, str) else value


def _canonical(agent: str) -> str:
    """The key for lookups by agent; never empty, because that is the key of the defaults."""
    name = agent.strip().lower()
    return _LEGACY.get(name, name) or EVERY


def _agent_name(text: str) -> str:
    """A valid agent name in lower case, or `*`. Raises ToolInputError."""
    name, why = text.strip().lower(), ""
    if not name or len(name) > _MAX_NAME or not name.isprintable():
        why = f"1 to {_MAX_NAME} printable characters"
    elif name in json5.UNSAFE_KEYS or name in (".", "..") or "/" in name or "\\" in name:
        why = "it must be neither a path nor reserved"
    if why:
        raise ToolInputError(f"{one_line(text, 40)!r} is not a valid agent name: {why}")
    return name


def _check_keys(fields: Mapping[str, Any], known: tuple[str, ...], where: Path) -> None:
    """Unknown keys are kept and ignored, unless they look like a misspelt known one."""
    for key in fields:
        if key not in known and (meant := nearest(key.replace("_", ""), known, 1)):
            raise _InvalidValueError((*where, key), f"unknown key; did you mean {meant[0]!r}?")


def _expect(kind: type, value: Any, where: Path) -> Any:
    if not isinstance(value, kind):
        raise _InvalidValueError(where, f"must be {_KINDS[kind]}, not {_kind_of(value)}")
    return value


def _kind_of(value: object) -> str:
    return "null" if value is None else _KINDS.get(type(value), "a number")
