"""The approvals document on disk: read safely, changed by one process at a time."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import stat
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any
from uuid import uuid4

from msgspec import structs

from clawkit.approvals.allow.entries import describe_entry, entry_to_json
from clawkit.approvals.base import Entry
from clawkit.approvals.documents import (
    EVERY,
    MAX_BYTES,
    NO_DOCUMENT,
    USED_AT,
    USED_COMMAND,
    USED_PATH,
    VERSION,
    DocPolicy,
    Document,
    Item,
    agent_name,
    as_fields,
    canonical,
    id_of,
    iter_lists,
    parse_document,
    read_item,
    revision,
)
from clawkit.errors import BadDocumentError, ConflictError, ToolInputError
from clawkit.store import private_dir, write_atomic
from clawkit.text import one_line, printable

__all__ = [
    "EVERY",
    "NO_DOCUMENT",
    "BadDocumentError",
    "DocPolicy",
    "Document",
    "Item",
    "add_entry",
    "edit",
    "ensure_socket",
    "note_use",
    "read_document",
    "remove_entry",
    "replace",
    "revision",
]

LOCK_WAIT_S = 5.0
LOCK_POLL_S = 0.01
USE_EVERY_MS = 60_000
"""How often the use of an entry is written down at most."""

_MIN_PREFIX = 4
_MAX_SHOWN = 500
_LISTED = 20
_TOKEN_BYTES = 24
_JOINED = ("children", "content", "source", "extent")
# Explicit, because whatever a document leaves out is refused; as it is, it adds nothing to the
# settings of the configuration.
_DEFAULTS = {"security": "full", "ask": "off", "askFallback": "deny", "autoAllowSkills": False}

log = logging.getLogger(__name__)


def read_document(path: str) -> Document:
    """The document at `path`, an empty one when there is none. Raises `BadDocumentError`."""
    return parse_document(path, _read_bytes(path))


def edit(
    path: str, change: Callable[[dict[str, Any]], None], *, wait_s: float = LOCK_WAIT_S
) -> Document:
    """Have `change` alter the data of the document, which is made if there is none.

    One process at a time; others are waited for, `wait_s` at most. A document that cannot be used
    is left alone, as it is when the result could not be. Raises `BadDocumentError`.
    """
    with _writing(path, wait_s) as data:
        before = parse_document(path, data)
        raw = before.raw if before.exists else {"version": VERSION, "defaults": dict(_DEFAULTS)}
        change(raw)
        return _store(path, raw, data)


def replace(path: str, new_text: str, base: str | None) -> Document:
    """Put another document in the place of the one whose revision is `base`; None for any.

    A text without a token keeps that of before. Raises `BadDocumentError` for one that cannot be
    used and `ConflictError` when the file is another one by now.
    """
    name = f"the new {os.path.basename(path)}"
    raw = parse_document(name, new_text.encode("utf-8", "surrogatepass")).raw
    with _writing(path, LOCK_WAIT_S) as data:
        if base is not None and revision(data) != base:
            raise ConflictError(
                f"{path} was not changed: somebody else has changed it meanwhile. "
                "Read it again and repeat the change"
            )
        try:
            old = parse_document(path, data)
        except BadDocumentError:
            # This is how a broken one is mended.
            old = Document()
        if old.token:
            raw["socket"] = {**old.raw["socket"], **raw.get("socket", {})}
        return _store(path, {"version": VERSION, **raw}, data)


def add_entry(path: str, agent: str, entry: Entry) -> tuple[Document, bool]:
    """Allow something to an agent, or to all (`*`); says whether that was new.

    An entry for the same calls is brought up to date instead. Raises ToolInputError for what is
    no name of an agent, and as `edit` does.
    """
    try:
        name = agent_name(agent)
    except ValueError as error:
        raise ToolInputError(str(error)) from None
    added = True

    def change(raw: dict[str, Any]) -> None:
        nonlocal added
        for key, entries in iter_lists(raw):
            for index, value in enumerate(entries):
                old = read_item(key, value, ())
                if old.agent == canonical(name) and _calls(old.entry) == _calls(entry):
                    new = _joined(old.entry, entry)
                    added = new != old.entry
                    entries[index] = _updated(as_fields(value), new) if added else value
                    return
        body = _body(raw, name)
        body.setdefault("allowlist", []).append(
            entry_to_json(structs.replace(entry, id=entry.id or str(uuid4())))
        )

    return edit(path, change), added


def remove_entry(path: str, agent: str | None, which: str) -> tuple[Document, Item]:
    """Remove the entry with an id, the beginning of one, or a pattern; None looks in all agents.

    Raises ToolInputError, with what there is, when it is not exactly one.
    """
    removed: list[Item] = []

    def change(raw: dict[str, Any]) -> None:
        places = [
            (entries, index, read_item(key, value, ()))
            for key, entries in iter_lists(raw)
            for index, value in enumerate(entries)
            if agent is None or canonical(key) == canonical(agent)
        ]
        wanted = _meant(which, [item for _, _, item in places])
        for entries, index, item in places:
            if item is wanted:
                del entries[index]
        removed.append(wanted)

    return edit(path, change), removed[0]


def note_use(path: str, ids: Mapping[str, tuple[str, str]], now_ms: int) -> None:
    """Write down when entries were of use: by id, the command (masked) and the path it led to.

    Not more than once a minute for each, and never in the way: what cannot be written is not.
    """

    def is_due(item: Item) -> bool:
        if item.entry.id not in ids:
            return False
        fresh = item.used_ms is not None and 0 <= now_ms - item.used_ms < USE_EVERY_MS
        return not fresh or item.used_path != _shown(ids[item.entry.id][1])

    def change(raw: dict[str, Any]) -> None:
        for key, entries in iter_lists(raw):
            for index, value in enumerate(entries):
                item = read_item(key, value, ())
                if is_due(item):
                    command, resolved = ids[item.entry.id]
                    fields = {**as_fields(value), USED_AT: now_ms, USED_PATH: _shown(resolved)}
                    fields.pop(USED_COMMAND, None)
                    if not (item.entry.arg_pattern or "").startswith("sha256:"):
                        fields[USED_COMMAND] = _shown(command)
                    entries[index] = fields

    try:
        if any(is_due(item) for item in read_document(path).items):
            edit(path, change, wait_s=0)
    except BadDocumentError as error:
        log.warning("the use of approvals was not written down: %s", error)


def ensure_socket(path: str, sock_path: str) -> tuple[str, str]:
    """Where approvals are answered, and the token that it takes; both are made when missing."""
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
    """What is in the file, None without one. Opened once, so that what was checked is read."""
    folder, name = _split(path if path.startswith("/") else os.path.abspath(path))
    try:
        folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(folder, error) from None
    try:
        _check_owner(folder, os.fstat(folder_fd))
        # Neither waits for the other end of a pipe nor follows a link.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(name, flags, dir_fd=folder_fd)
        try:
            return _read_checked(path, fd)
        finally:
            os.close(fd)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(path, error) from None
    finally:
        os.close(folder_fd)


@lru_cache(maxsize=16)
def _split(path: str) -> tuple[str, str]:
    return os.path.split(os.path.normpath(path))


def _read_checked(path: str, fd: int) -> bytes:
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode):
        raise BadDocumentError(path, "is not a regular file. Remove it")
    _check_owner(path, info)
    parts: list[bytes] = []
    # One byte more than it may have is enough to see that it has too many.
    left = MAX_BYTES + 1
    while left and (part := os.read(fd, left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _check_owner(path: str, info: os.stat_result) -> None:
    """Whoever else can change it could allow themselves everything."""
    if info.st_uid not in (0, os.geteuid()):
        raise BadDocumentError(path, "belongs to another user. Make it your own with chown")
    if info.st_mode & 0o022:
        raise BadDocumentError(path, "can be written by others. Run `chmod go-w` on it")


def _unreadable(path: str, error: OSError) -> BadDocumentError:
    if error.errno == errno.ELOOP or os.path.islink(path):
        message = "is a symbolic link, which is not followed. Put the real one in its place"
        return BadDocumentError(path, message)
    return BadDocumentError(path, f"cannot be read: {error.strerror}")


@contextmanager
def _writing(path: str, wait_s: float) -> Iterator[bytes | None]:
    """What is in the file, for the only process that may change it until this ends."""
    try:
        private_dir(os.path.dirname(os.path.abspath(path)))
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(f"{path}.lock", flags, 0o600)
        try:
            _lock(path, fd, wait_s)
            yield _read_bytes(path)
        finally:
            os.close(fd)
    except OSError as error:
        where = error.filename or path
        message = f"was not changed: {where}: {error.strerror}"
        raise BadDocumentError(path, message) from error


def _lock(path: str, fd: int, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                message = "was not changed: another process is changing it. Try again"
                raise BadDocumentError(path, message) from None
            time.sleep(LOCK_POLL_S)
        else:
            return


def _store(path: str, raw: dict[str, Any], old: bytes | None) -> Document:
    """Write data that makes a document; every entry gets an id."""
    try:
        raw = parse_document("the result", _dump(raw)).raw
        for key, entries in iter_lists(raw):
            fields = [as_fields(value) for value in entries]
            entries[:] = [{"id": id_of(key, each), **each} for each in fields]
        new = _dump(raw)
        document = parse_document("the result", new)
    except (BadDocumentError, ValueError, TypeError, RecursionError) as error:
        raise BadDocumentError(path, f"was not changed: {error}") from None
    if new != old:
        write_atomic(path, new)
    return document


def _dump(raw: dict[str, Any]) -> bytes:
    """Data as a text in which nothing is invisible."""
    text = json.dumps(raw, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    if not text.replace("\n", "").isprintable():
        # Only strings can hold such characters, and there an escape means the same.
        shown = (each if each.isprintable() else json.dumps(each)[1:-1] for each in text)
        text = "".join("\n" if each == "\\n" else each for each in shown)
    return text.encode()


def _body(raw: dict[str, Any], name: str) -> dict[str, Any]:
    """Where the data of an agent is, made when missing."""
    agents: dict[str, Any] = raw.setdefault("agents", {})
    body: dict[str, Any] = agents.setdefault(
        next((key for key in agents if agent_name(key) == name), name), {}
    )
    return body


def _calls(entry: Entry) -> tuple[object, ...]:
    return entry.pattern, entry.arg_pattern, entry.args, entry.cwd


def _joined(old: Entry, new: Entry) -> Entry:
    """An entry with what is said anew about the same calls.

    What a person wrote stays theirs when somebody answers a question with always.
    """
    source = new if old.source else old
    whose = {"source": source.source, "extent": source.extent}
    children, content = new.children or old.children, old.content and new.content
    return structs.replace(old, children=children, content=content, **whose)


def _updated(fields: dict[str, Any], entry: Entry) -> dict[str, Any]:
    """The data of an entry with what `_joined` may have changed; everything else stays."""
    now = entry_to_json(entry)
    kept = {key: value for key, value in fields.items() if key not in _JOINED or key in now}
    return {**kept, **now}


def _meant(which: str, items: list[Item]) -> Item:
    """The one item that a person means."""
    long_enough = len(which) >= _MIN_PREFIX
    ways: tuple[Callable[[Item], bool], ...] = (
        lambda item: item.entry.id == which,
        lambda item: item.entry.pattern == which,
        lambda item: long_enough and item.entry.id.startswith(which),
    )
    found: list[Item] = []
    for way in ways:
        found = found or [item for item in items if way(item)]
    if len(found) == 1:
        return found[0]
    shown = repr(one_line(which, 80))
    start = f"{shown} could be any of these" if found else f"no entry has the id or pattern {shown}"
    lines = [
        f"  {item.entry.id}  {item.agent}  {describe_entry(item.entry)}"
        for item in (found or items)[:_LISTED]
    ]
    raise ToolInputError("\n".join([f"{start}. Say which by its id:" if lines else start, *lines]))


def _shown(text: str) -> str:
    """Text for the document: on one line, short, nothing invisible."""
    return printable(one_line(text, _MAX_SHOWN), "")
