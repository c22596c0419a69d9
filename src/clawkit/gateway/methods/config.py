"""Methods about the configuration: reading, describing and changing it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from clawkit.config.file_edit import (
    ConfigChange,
    Judgement,
    change,
    content,
    leaves,
    patch_settings,
)
from clawkit.config.json5 import Json5Error, PathError, format_path, parse_path
from clawkit.config.load import Loaded, loads
from clawkit.config.lookup import Path, explain, find, json_schema
from clawkit.config.masking import masked
from clawkit.config.no_effect import NO_EFFECT
from clawkit.config.section import Shape, describe, layout_of
from clawkit.config.sources import MAX_FILE_BYTES, ReadError, read_text
from clawkit.core.tasks import in_thread, unbroken
from clawkit.errors import ConfigError, EditError, SecretError
from clawkit.gateway.config_text import MARKER, hash_text, hide, merge_lists, restore, restore_text
from clawkit.gateway.methods.method import Method, Run
from clawkit.gateway.protocol import Closed, GatewayError, NoParams, Short, invalid, now_ms
from clawkit.gateway.reload import changed_paths, kind_of
from clawkit.gateway.scopes import ADMIN, READ
from clawkit.installation import find_installation
from clawkit.models.providers import known_secrets
from clawkit.version import __version__

if TYPE_CHECKING:
    from clawkit.gateway.connection import GatewayConnection
    from clawkit.gateway.server import Gateway

_AGAIN = "config changed since last load; re-run config.get and retry"
_NO_HASH = "config base hash required; re-run config.get and retry"
MAX_NOTE = 2_000
Guard = Callable[[Any, Any], None]
"""Called with the settings before and after a change; raises `GatewayError` to refuse it."""


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


def read_config(gateway: Gateway) -> dict[str, Any]:
    """The file without its secrets, and which settings are not in force. Takes long for a large
    file."""
    file, state = gateway.watch.file, gateway.watch.describe()
    text: str | None = None
    found: Loaded | None = None
    issues = state["issues"]
    try:
        if file.startswith("<"):
            text = gateway.loaded.text
        elif os.path.lexists(file):
            text = read_text(file)
        found = loads(text or "{}", file=file)
        gateway.redactor.learn(known_secrets(found))
    except ReadError as error:
        issues = [{"path": "", "message": str(error)}]
    except ConfigError as error:
        issues = [_issue(each) for each in error.issues]
    shown, hash_ = masked(found.raw if found else {}, mask=MARKER), hash_text(gateway.key, text)
    return {
        "path": file,
        "exists": text is not None,
        "raw": hide(text, gateway.redactor) if text is not None and found else None,
        **dict.fromkeys(("parsed", "sourceConfig", "resolved", "config"), shown),
        "runtimeConfig": masked(gateway.loaded.raw, mask=MARKER),
        **dict.fromkeys(("hash", "configRevisionHash"), hash_),
        "appliedConfigHash": hash_text(gateway.key, gateway.loaded.text),
        "valid": not issues,
        "issues": issues,
        "restartNeeded": state["restartNeeded"],
        "warnings": [_issue(each) for each in found.warnings] if found else [],
        "legacyIssues": [],
        "includedPaths": [each for each in found.files if each != file] if found else [],
    }


def _issue(issue: Any) -> dict[str, str]:
    return {"path": issue.path, "message": issue.message}


async def _schema(_caller: GatewayConnection, _params: NoParams, _id: str) -> Any:
    schema, idle = await in_thread(json_schema), {"help": "Has no effect yet.", "noEffect": True}
    hints, at = dict.fromkeys(NO_EFFECT, idle), datetime.now(UTC).isoformat(timespec="seconds")
    return {"schema": schema, "uiHints": hints, "version": __version__, "generatedAt": at}


async def _lookup(_caller: GatewayConnection, params: Lookup, _id: str) -> Any:
    return look_up(params.path)


def look_up(requested: str) -> dict[str, Any]:
    """The answer to config.schema.lookup. Raises `GatewayError`."""
    try:
        path = parse_path(requested)
    except PathError:
        raise invalid("config schema path not found") from None
    found = find(path)
    if found.shape is None or not path:
        raise invalid("config schema path not found")
    default, about = explain(found.path)
    schema: dict[str, Any] = {"description": about, "accepts": describe(found.shape)}
    if isinstance(default, str | int | float | bool):
        schema["default"] = default
    if found.shape.words:
        schema["enum"] = list(found.shape.words)
    children = list(_children(found.shape, found.path))
    return {**_about(found.path), "schema": schema, "children": children}


def _about(path: Path) -> dict[str, Any]:
    text = format_path(path)
    kind, about = kind_of(path), explain(path)[1]
    return {"path": text, "reloadKind": kind, "hint": {"help": about}, "hintPath": text}


def _children(shape: Shape, path: Path) -> Iterable[dict[str, Any]]:
    shapes = layout_of(shape.sections[0]).shapes if shape.sections else {}
    for key, inner in shapes.items():
        has_children = bool(inner.sections or inner.values or inner.items)
        child = {"key": key, "required": False, "hasChildren": has_children}
        yield child | _about((*path, key))


def _writer(kind: str) -> Run:
    async def write(caller: GatewayConnection, params: Write, _id: str) -> Any:
        return await unbroken(write_config(caller.gateway, params, kind))

    return write


def _edit(gateway: Gateway, params: Write, patch: Any, text: str) -> str:
    """The edited file for a request. Holds the file's lock, so that the hash cannot become
    stale."""
    if os.path.exists(gateway.watch.file) and params.base_hash is None:
        raise invalid(_NO_HASH)
    if params.base_hash is not None and params.base_hash != hash_text(gateway.key, text):
        raise invalid(_AGAIN)
    if not isinstance(params, ConfigPatch):
        return restore_text(params.raw, text, gateway.redactor)
    old = content(text)
    merged = merge_lists(patch, old, frozenset(params.replace_paths))
    return patch_settings(text, restore(merged, old), replace=True)


def _write(gateway: Gateway, params: Write, guard: Guard | None) -> tuple[ConfigChange, Loaded]:
    """Change the file; also returns its new content. Takes long for a large file."""
    file, found = gateway.watch.file, list[Loaded]()
    try:
        patch = content(params.raw)
    except Json5Error as error:
        raise invalid(f"SyntaxError: JSON5: {error}") from None
    is_patch = isinstance(params, ConfigPatch)
    if is_patch and not isinstance(patch, dict):
        raise invalid("config.patch raw must be an object")

    def judge(before: str | None, after: str) -> Judgement:
        if guard is not None:
            guard(content(before or ""), content(after))
        try:
            found.append(loads(after, file=file, every_error=True))
            gateway.check(found[0])
        except ConfigError as error:
            first = error.issues[0]
            message = f"invalid config: {first.path or '<root>'}: {first.message}"
            raise invalid(message, {"issues": [_issue(each) for each in error.issues]}) from None
        return (), ()

    try:
        done = change(
            file,
            lambda text: _edit(gateway, params, patch, text),
            paths=[path for path, _ in leaves(patch)] if is_patch else (),
            allow_shrink=True,
            dry_run=params.dry_run,
            judge=judge,
        )
    except (EditError, ConfigError, SecretError) as error:
        raise invalid(str(error)) from None
    return done, found[0]


async def write_config(
    gateway: Gateway,
    params: Write,
    kind: str,
    guard: Guard | None = None,
    *,
    may_restart: bool = True,
) -> dict[str, Any]:
    """Write the file, apply it, and restart if a change requires it. Must not be cancelled when the
    client leaves. Raises `GatewayError`."""
    watch = gateway.watch
    if watch.file.startswith("<"):
        raise GatewayError("UNAVAILABLE", "the configuration does not come from a file")
    session = _session(gateway, params) if isinstance(params, Apply) else ""

    def work() -> tuple[bool, list[Path], dict[str, Any]]:
        """Returns whether it was written, the settings that need a restart, and the answer."""
        before = watch.last_valid
        done, new = _write(gateway, params, guard)
        changed = set(changed_paths(before.config, new.config))
        needed = [path for path in watch.needing_restart(new) if path in changed]
        paths = [*map(format_path, changed_paths(before.raw, new.raw))]
        answer = {"ok": True, "path": watch.file, "changedPaths": paths}
        if params.dry_run:
            diff = [gateway.redactor.strict(line) for line in done.diff]
            return False, needed, answer | {"dryRun": True, "diff": diff}
        hash_, shown = hash_text(gateway.key, done.after), masked(new.raw, mask=MARKER)
        return done.written, needed, answer | {"hash": hash_, "config": shown}

    answer: dict[str, Any]
    is_written, needed, answer = await in_thread(work)
    restarts = bool(needed) and may_restart and watch.mode in ("hybrid", "restart")
    if params.dry_run:
        answer["requiresRestart"] = bool(needed)
        if restarts and isinstance(params, Apply) and gateway.on_restart:
            answer["restartsInMs"] = params.restart_delay_ms
        return answer
    if is_written:
        await watch.reload()
    is_kept = False
    if restarts and isinstance(params, Apply):
        why = f"{kind.replace('-', '.')} changed {', '.join(map(format_path, needed[:5]))}"
        delay_s, note = params.restart_delay_ms / 1000, params.note or ""
        answer["restart"] = gateway.request_restart(why, delay_s, session, note)
        is_kept = bool(answer["restart"]["ok"] and session)
    stats = {"requiresRestart": bool(needed)}
    payload = {"kind": kind, "status": "ok", "ts": now_ms(), "stats": stats}
    return answer | {"sentinel": {"persisted": is_kept, "payload": payload}}


def _session(gateway: Gateway, params: Apply) -> str:
    """The session to notify of a restart; empty for none. Raises `GatewayError`."""
    if params.delivery_context:
        raise invalid("deliveryContext: channels are not supported; name a session in sessionKey")
    if params.note and params.session_key is None:
        raise invalid("note: set sessionKey to the session for the note")
    return gateway.live.resolve_key(params.session_key) if params.session_key is not None else ""


def _describe_update(_gateway: Gateway) -> dict[str, Any]:
    """How clawkit was installed. Does not check for updates."""
    found = find_installation()
    schedule = {"channel": "stable", "autoEnabled": False, "install": {"kind": found.installer}}
    about = {"sentinel": None, "updateAvailable": None, "effectiveChannel": "stable"}
    return about | {"schedule": schedule, "version": __version__, "command": found.command}


def explain_update(_gateway: Gateway) -> dict[str, Any]:
    """Returns only the command that a person has to type."""
    command = find_installation().command
    how = f"run: {command} && clawkit gateway restart" if command else "use your installer"
    reason = f"clawkit does not update itself; on its machine, {how}"
    return {"ok": False, "result": {"reason": reason}, "handoff": {"status": "manual"}}


def _threaded(work: Callable[[Gateway], dict[str, Any]]) -> Run:
    @wraps(work)
    async def run(caller: GatewayConnection, _params: NoParams, _id: str) -> Any:
        return await in_thread(work, caller.gateway)

    return run


METHODS = (
    Method("update.status", ADMIN, NoParams, _threaded(_describe_update)),
    Method("update.run", ADMIN, NoParams, _threaded(explain_update), limited=True),
    Method("config.get", READ, NoParams, _threaded(read_config)),
    Method("config.schema", READ, NoParams, _schema),
    Method("config.schema.lookup", READ, Lookup, _lookup),
    Method("config.set", ADMIN, Write, _writer("config-set")),
    Method("config.patch", ADMIN, ConfigPatch, _writer("config-patch"), limited=True),
    Method("config.apply", ADMIN, Apply, _writer("config-apply"), limited=True),
)
