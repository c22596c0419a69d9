"""Methods about the configuration: reading, describing and changing it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from clawkit.config.file_edit import (
    ConfigChange,
    change,
    content,
    patch_settings,
    patched_paths,
)
from clawkit.config.json5 import Json5Error, PathError, format_path, parse_path
from clawkit.config.load import loads
from clawkit.config.no_effect import NO_EFFECT
from clawkit.config.schema import Path, explain, find, json_schema
from clawkit.config.section import Shape, describe, layout_of
from clawkit.config.sources import MAX_FILE_BYTES
from clawkit.core.tasks import in_thread, unbroken
from clawkit.errors import ConfigError, EditError
from clawkit.gateway.config_text import (
    changed_paths,
    hash_text,
    hide,
    hide_values,
    merge_lists,
    restore,
    restore_text,
)
from clawkit.gateway.methods.method import Method, Run
from clawkit.gateway.protocol import Closed, GatewayError, NoParams, Short, invalid, now_ms
from clawkit.gateway.reload import kind_of
from clawkit.gateway.scopes import ADMIN, READ
from clawkit.services import known_secrets
from clawkit.version import __version__

if TYPE_CHECKING:
    from clawkit.gateway.connection import GatewayConnection
    from clawkit.gateway.server import Gateway

_AGAIN = "config changed since last load; re-run config.get and retry"
_NO_HASH = "config base hash required; re-run config.get and retry"
RESTARTING_MODES = ("hybrid", "restart")
MAX_NOTE = 2_000
Guard = Callable[[Any, Any], None]
"""Is given the settings before and after a change, and raises `GatewayError` to refuse it."""


class Lookup(Closed, frozen=True):
    path: Short


class Write(Closed, frozen=True):
    raw: Annotated[str, Meta(max_length=MAX_FILE_BYTES)]
    base_hash: Short | None = None
    dry_run: bool = False
    """Only report what would change."""


class Apply(Write, frozen=True):
    session_key: Short | None = None
    note: Annotated[str, Meta(max_length=MAX_NOTE)] | None = None
    restart_delay_ms: Annotated[int, Meta(ge=0, le=3_600_000)] = 2_000
    delivery_context: Any = None


class ConfigPatch(Apply, frozen=True):
    replace_paths: Annotated[list[Short], Meta(max_length=1_000)] = msgspec.field(
        default_factory=list
    )


def _read(gateway: Gateway) -> str | None:
    file = gateway.watch.file
    if file.startswith("<"):
        return gateway.loaded.text
    try:
        with open(file, encoding="utf-8-sig", newline="") as stream:
            return stream.read()
    except FileNotFoundError:
        return None


def read_config(gateway: Gateway) -> dict[str, Any]:
    """The answer to config.get. A large file takes long, so it must run in a thread."""
    text, file = _read(gateway), gateway.watch.file
    issues, warnings, parsed = [], [], {}
    included: list[str] = []
    try:
        found = loads(text or "{}", file=file)
        gateway.redactor.learn(known_secrets(found))
        parsed, warnings = found.raw, [_issue(each) for each in found.warnings]
        included = [each for each in found.files if each != file]
    except ConfigError as error:
        issues = [_issue(each) for each in error.issues]
    shown, hash_ = hide_values(parsed), hash_text(gateway.key, text)
    hashes = {"hash": hash_, "configRevisionHash": hash_}
    hashes["appliedConfigHash"] = hash_text(gateway.key, gateway.loaded.text)
    state = gateway.watch.describe()
    issues = issues or state["issues"]
    return {
        "path": file,
        "exists": text is not None,
        "raw": hide(text, gateway.redactor) if text is not None and parsed else None,
        **dict.fromkeys(("parsed", "sourceConfig", "resolved", "config"), shown),
        "runtimeConfig": hide_values(gateway.loaded.raw),
        **hashes,
        "valid": not issues,
        "issues": issues,
        "restartNeeded": state["restartNeeded"],
        "warnings": warnings,
        "legacyIssues": [],
        "includedPaths": included,
    }


async def _get(caller: GatewayConnection, _params: NoParams, _id: str) -> Any:
    return await in_thread(read_config, caller.gateway)


def _issue(issue: Any) -> dict[str, str]:
    return {"path": issue.path, "message": issue.message}


async def _schema(_caller: GatewayConnection, _params: NoParams, _id: str) -> Any:
    schema, idle = await in_thread(json_schema), {"help": "Has no effect yet.", "noEffect": True}
    hints, at = dict.fromkeys(NO_EFFECT, idle), datetime.now(UTC).isoformat(timespec="seconds")
    return {"schema": schema, "uiHints": hints, "version": __version__, "generatedAt": at}


async def _lookup(_caller: GatewayConnection, params: Lookup, _id: str) -> Any:
    return look_up(params.path)


def look_up(given: str) -> dict[str, Any]:
    """The answer to config.schema.lookup. Raises `GatewayError`."""
    try:
        path = parse_path(given)
    except PathError:
        raise invalid("config schema path not found") from None
    found = find(path)
    if found.shape is None or not path:
        raise invalid("config schema path not found")
    about = _about(found.path)
    schema = _describe(found.shape, found.path)
    return {**about, "schema": schema, "children": list(_children(found.shape, found.path))}


def _about(path: Path) -> dict[str, Any]:
    text = format_path(path)
    kind, about = kind_of(text), explain(path)[1]
    return {"path": text, "reloadKind": kind, "hint": {"help": about}, "hintPath": text}


def _describe(shape: Shape, path: Path) -> dict[str, Any]:
    default, about = explain(path)
    shown: dict[str, Any] = {"description": about, "accepts": describe(shape)}
    if isinstance(default, str | int | float | bool):
        shown["default"] = default
    if shape.words:
        shown["enum"] = list(shape.words)
    return shown


def _children(shape: Shape, path: Path) -> Iterable[dict[str, Any]]:
    if not shape.sections:
        return
    for key, inner in layout_of(shape.sections[0]).shapes.items():
        has_children = bool(inner.sections or inner.values or inner.items)
        child = {"key": key, "required": False, "hasChildren": has_children}
        yield child | _about((*path, key))


def _writer(kind: str) -> Run:
    async def write(caller: GatewayConnection, params: Write, _id: str) -> Any:
        return await unbroken(write_config(caller.gateway, params, kind))

    return write


def _parse(raw: str) -> Any:
    try:
        return content(raw)
    except Json5Error as error:
        raise invalid(f"SyntaxError: JSON5: {error}") from None


def _editor(gateway: Gateway, params: Write) -> tuple[Callable[[str], str], list[Path]]:
    """The edit that a request asks for, and the settings that it names."""
    if not isinstance(params, ConfigPatch):
        return lambda text: restore_text(params.raw, text, gateway.redactor), []
    patch, replace = _parse(params.raw), params.replace_paths
    if not isinstance(patch, dict):
        raise invalid("config.patch raw must be an object")

    def edit(text: str) -> str:
        old = content(text)
        merged = merge_lists(patch, old, frozenset(replace))
        return patch_settings(text, restore(merged, old), replace=True)

    return edit, list(patched_paths(patch))


async def write_config(
    gateway: Gateway,
    params: Write,
    kind: str,
    guard: Guard | None = None,
    *,
    may_restart: bool = True,
) -> dict[str, Any]:
    """Write the file, take it up, and restart if what has changed needs it. Must not be stopped in
    between when the client leaves. Raises `GatewayError`."""
    file, key = gateway.watch.file, gateway.key
    if file.startswith("<"):
        raise GatewayError("UNAVAILABLE", "the configuration does not come from a file")
    session = _session(gateway, params) if isinstance(params, Apply) else ""

    def checked(edit: Callable[[str], str], text: str) -> str:
        """The edit; the file is locked, so that the hash cannot become stale."""
        if os.path.exists(file) and params.base_hash is None:
            raise invalid(_NO_HASH)
        if params.base_hash is not None and params.base_hash != hash_text(key, text):
            raise invalid(_AGAIN)
        after = edit(text)
        if guard is not None:
            guard(content(text), _parse(after))
        _validate(gateway, after)
        return after

    def work() -> tuple[ConfigChange, list[str], dict[str, Any]]:
        """All that takes long for a large file: the change, its paths, and what is shown of it."""
        _parse(params.raw)
        edit, paths = _editor(gateway, params)
        how: dict[str, Any] = {"paths": paths, "allow_shrink": True, "dry_run": params.dry_run}
        done = change(file, partial(checked, edit), **how)
        after = content(done.after)
        changed = list(changed_paths(content(done.before or ""), after))
        shown = {"diff": _diff(gateway, done)} if params.dry_run else {"config": hide_values(after)}
        return done, changed, shown

    done: ConfigChange
    shown: dict[str, Any]
    try:
        done, changed, shown = await in_thread(work)
    except (EditError, ConfigError) as error:
        raise invalid(str(error)) from None
    if params.dry_run:
        return _preview(gateway, params, done.file, changed) | shown
    if done.written:
        await gateway.watch.reload()
    # Not if it was only set back to what is in force.
    needed = gateway.watch.needing_restart(changed) if gateway.watch.waiting else []
    answer = {
        "ok": True,
        "path": file,
        "hash": hash_text(key, done.after),
        "changedPaths": changed,
        **shown,
    }
    restart: dict[str, Any] = {"ok": False}
    if needed and may_restart and isinstance(params, Apply) and _restarts(gateway):
        why = f"{kind.replace('-', '.')} changed {', '.join(needed[:5])}"
        delay_s, note = params.restart_delay_ms / 1000, params.note or ""
        restart = answer["restart"] = gateway.request_restart(why, delay_s, session, note)
    stats = {"requiresRestart": bool(needed)}
    payload = {"kind": kind, "status": "ok", "ts": now_ms(), "stats": stats}
    is_kept = bool(restart["ok"] and session)
    return answer | {"sentinel": {"persisted": is_kept, "payload": payload}}


def _restarts(gateway: Gateway) -> bool:
    """Whether changes that need a restart get one."""
    return gateway.watch.mode in RESTARTING_MODES


def _diff(gateway: Gateway, done: ConfigChange) -> list[str]:
    return [gateway.redactor.strict(line) for line in done.diff]


def _preview(gateway: Gateway, params: Write, file: str, changed: list[str]) -> dict[str, Any]:
    """What a change would do."""
    restart = bool(gateway.watch.needing_restart(changed))
    answer = {"ok": True, "path": file, "dryRun": True, "requiresRestart": restart}
    if restart and isinstance(params, Apply) and _restarts(gateway) and gateway.on_restart:
        answer["restartsInMs"] = params.restart_delay_ms
    return answer | {"changedPaths": changed}


def _session(gateway: Gateway, params: Apply) -> str:
    """The session that is told about a restart; empty for none. Raises `GatewayError`."""
    if params.delivery_context:
        raise invalid("deliveryContext: channels are not supported; name a session in sessionKey")
    if params.note and params.session_key is None:
        raise invalid("note: name the session that it is for in sessionKey")
    return gateway.live.resolve_key(params.session_key) if params.session_key is not None else ""


def _validate(gateway: Gateway, text: str) -> None:
    try:
        gateway.check(loads(text, file=gateway.watch.file, every_error=True))
    except ConfigError as error:
        first = error.issues[0]
        message = f"invalid config: {first.path or '<root>'}: {first.message}"
        raise invalid(message, {"issues": [_issue(each) for each in error.issues]}) from None


METHODS = (
    Method("config.get", READ, NoParams, _get),
    Method("config.schema", READ, NoParams, _schema),
    Method("config.schema.lookup", READ, Lookup, _lookup),
    Method("config.set", ADMIN, Write, _writer("config-set")),
    Method("config.patch", ADMIN, ConfigPatch, _writer("config-patch"), limited=True),
    Method("config.apply", ADMIN, Apply, _writer("config-apply"), limited=True),
)
