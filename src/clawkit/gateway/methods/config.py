"""Methods about the configuration: reading, describing and changing it."""

from __future__ import annotations

import base64
import hmac
import os
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
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
from clawkit.config.paths import config_file
from clawkit.config.schema import Path, explain, find, json_schema
from clawkit.config.section import Shape, describe, layout_of
from clawkit.config.sources import MAX_FILE_BYTES
from clawkit.core.tasks import in_thread, unbroken
from clawkit.errors import ConfigError, EditError
from clawkit.gateway.config_text import changed_paths, hide, hide_values, restore, restore_text
from clawkit.gateway.methods.method import Method
from clawkit.gateway.protocol import Closed, GatewayError, NoParams, Short, invalid, now_ms
from clawkit.gateway.scopes import ADMIN, READ
from clawkit.services import known_secrets
from clawkit.version import __version__

if TYPE_CHECKING:
    from clawkit.gateway.connection import GatewayConnection
    from clawkit.gateway.server import Gateway

_AGAIN = "config changed since last load; re-run config.get and retry"
_NO_HASH = "config base hash required; re-run config.get and retry"
RESTART = ("gateway", "session.store", "logging")
"""Settings that are read once, when the gateway starts."""


class Lookup(Closed, frozen=True):
    path: Short


class Write(Closed, frozen=True):
    raw: Annotated[str, Meta(max_length=MAX_FILE_BYTES)]
    base_hash: Short | None = None
    dry_run: bool = False
    """Only report what would change."""
    replace_paths: Annotated[list[Short], Meta(max_length=1_000)] = msgspec.field(
        default_factory=list
    )


class Apply(Write, frozen=True):
    session_key: Short | None = None
    note: str | None = None
    restart_delay_ms: int | None = None
    delivery_context: Any = None


def _file(gateway: Gateway) -> str:
    """The configuration file; a name such as `<mapping>` if the gateway was not given one."""
    return gateway.loaded.file or config_file(os.environ)


def _read(gateway: Gateway, file: str) -> str | None:
    if file.startswith("<"):
        return gateway.loaded.text
    try:
        with open(file, encoding="utf-8-sig", newline="") as stream:
            return stream.read()
    except FileNotFoundError:
        return None


def _hash(gateway: Gateway, text: str | None) -> str:
    """Identifies a text without giving away what is in it."""
    digest = hmac.digest(gateway.key, b"config\0" + (text or "").encode(), "sha256")
    return f"hmac-sha256:v1:{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


async def _get(caller: GatewayConnection, _params: NoParams, _id: str) -> Any:
    gateway = caller.gateway
    file = _file(gateway)
    text = _read(gateway, file)
    issues, warnings, parsed = [], [], {}
    included: list[str] = []
    try:
        found = loads(text or "{}", file=file)
        gateway.redactor.learn(known_secrets(found))
        parsed, warnings = found.raw, [_issue(each) for each in found.warnings]
        included = [each for each in found.files if each != file]
    except ConfigError as error:
        issues = [_issue(each) for each in error.issues]
    shown, hash_ = hide_values(parsed), _hash(gateway, text)
    hashes = {"hash": hash_, "configRevisionHash": hash_}
    hashes["appliedConfigHash"] = _hash(gateway, gateway.loaded.text or None)
    return {
        "path": file,
        "exists": text is not None,
        "raw": hide(text, gateway.redactor) if text is not None and not issues else None,
        **dict.fromkeys(("parsed", "sourceConfig", "resolved", "config"), shown),
        "runtimeConfig": hide_values(gateway.loaded.raw),
        **hashes,
        "valid": not issues,
        "issues": issues,
        "warnings": warnings,
        "legacyIssues": [],
        "includedPaths": included,
    }


def _issue(issue: Any) -> dict[str, str]:
    return {"path": issue.path, "message": issue.message}


async def _schema(_caller: GatewayConnection, _params: NoParams, _id: str) -> Any:
    schema, idle = await in_thread(json_schema), {"help": "Has no effect yet.", "noEffect": True}
    hints, at = dict.fromkeys(NO_EFFECT, idle), datetime.now(UTC).isoformat(timespec="seconds")
    return {"schema": schema, "uiHints": hints, "version": __version__, "generatedAt": at}


async def _lookup(_caller: GatewayConnection, params: Lookup, _id: str) -> Any:
    try:
        path = parse_path(params.path)
    except PathError:
        raise invalid("config schema path not found") from None
    found = find(path)
    if found.shape is None or not path:
        raise invalid("config schema path not found")
    text = format_path(found.path)
    return {
        "path": text,
        "schema": _describe(found.shape, found.path),
        "reloadKind": _reload_kind(text),
        "hint": {"help": explain(found.path)[1]},
        "hintPath": text,
        "children": list(_children(found.shape, found.path)),
    }


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
        text = format_path((*path, key))
        yield {
            "key": key,
            "path": text,
            "required": False,
            "hasChildren": bool(inner.sections or inner.values or inner.items),
            "reloadKind": _reload_kind(text),
            "hint": {"help": explain((*path, key))[1]},
            "hintPath": text,
        }


def _reload_kind(path: str) -> str:
    is_fixed = any(path == each or path.startswith(f"{each}.") for each in RESTART)
    return "restart" if is_fixed else "hot"


async def _set(caller: GatewayConnection, params: Write, _id: str) -> Any:
    def edit(text: str) -> str:
        return restore_text(params.raw, text, caller.gateway.redactor)

    return await unbroken(_write(caller, params, edit, (), "config-set"))


async def _patch(caller: GatewayConnection, params: Apply, _id: str) -> Any:
    patch = _parse(params.raw)
    if not isinstance(patch, dict):
        raise invalid("config.patch raw must be an object")

    def edit(text: str) -> str:
        restored = restore(patch, content(text))
        return patch_settings(text, restored, replace=bool(params.replace_paths))

    paths = list(patched_paths(patch))
    return await unbroken(_write(caller, params, edit, paths, "config-patch"))


def _parse(raw: str) -> Any:
    try:
        return content(raw)
    except Json5Error as error:
        raise invalid(f"SyntaxError: JSON5: {error}") from None


async def _write(
    caller: GatewayConnection,
    params: Write,
    edit: Callable[[str], str],
    paths: Iterable[Path],
    kind: str,
) -> Any:
    """Write the file and take it up. Must not be stopped in between when the client leaves."""
    gateway = caller.gateway
    file = _file(gateway)
    if file.startswith("<"):
        raise GatewayError("UNAVAILABLE", "the configuration does not come from a file")
    _parse(params.raw)

    def checked(text: str) -> str:
        """The edit; the file is locked, so that the hash cannot become stale."""
        exists = os.path.exists(file)
        if exists and params.base_hash is None:
            raise invalid(_NO_HASH)
        if params.base_hash is not None and params.base_hash != _hash(gateway, text or None):
            raise invalid(_AGAIN)
        after = edit(text)
        _validate(after, file)
        return after

    try:
        how: dict[str, Any] = {"paths": paths, "allow_shrink": True, "dry_run": params.dry_run}
        done = await in_thread(change, file, checked, **how)
    except (EditError, ConfigError) as error:
        raise invalid(str(error)) from None
    if params.dry_run:
        return _preview(gateway, done)
    if gateway.loaded.file is None:
        gateway.loaded = msgspec.structs.replace(gateway.loaded, file=file)
    await gateway.reload()
    changed = list(changed_paths(content(done.before or ""), content(done.after)))
    hash_ = _hash(gateway, done.after)
    if done.written:
        gateway.hub.broadcast("config.changed", {"path": file, "hash": hash_, "ts": now_ms()})
    restart = any(_reload_kind(each) == "restart" for each in changed)
    sentinel = {"kind": kind, "status": "ok", "ts": now_ms(), "stats": {"requiresRestart": restart}}
    return {
        "ok": True,
        "path": file,
        "hash": hash_,
        "config": hide_values(gateway.loaded.raw),
        "changedPaths": changed,
        "sentinel": {"persisted": False, "payload": sentinel},
    }


def _preview(gateway: Gateway, done: ConfigChange) -> dict[str, Any]:
    """What a change would do, without secrets."""
    changed = list(changed_paths(content(done.before or ""), content(done.after)))
    restart = any(_reload_kind(each) == "restart" for each in changed)
    shown = {"changedPaths": changed, "diff": list(map(gateway.redactor.strict, done.diff))}
    return {"ok": True, "path": done.file, "dryRun": True, "requiresRestart": restart, **shown}


def _validate(text: str, file: str) -> None:
    try:
        loads(text, file=file, every_error=True)
    except ConfigError as error:
        first = error.issues[0]
        message = f"invalid config: {first.path or '<root>'}: {first.message}"
        raise invalid(message, {"issues": [_issue(each) for each in error.issues]}) from None


METHODS = (
    Method("config.get", READ, NoParams, _get),
    Method("config.schema", READ, NoParams, _schema),
    Method("config.schema.lookup", READ, Lookup, _lookup),
    Method("config.set", ADMIN, Write, _set),
    Method("config.patch", ADMIN, Apply, _patch, limited=True),
    Method("config.apply", ADMIN, Apply, _set, limited=True),
)
