"""Applies a changed configuration file while the gateway runs."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from msgspec.structs import replace

from clawkit.config.json5 import format_path
from clawkit.config.load import Loaded, load
from clawkit.config.lookup import Path, in_force
from clawkit.config.no_effect import NO_EFFECT
from clawkit.config.paths import config_file, home
from clawkit.config.section import Section, layout_of
from clawkit.core.tasks import in_thread
from clawkit.errors import ConfigError, Issue, SecretError
from clawkit.gateway.config_text import hash_text
from clawkit.gateway.process_record import note_config, sign_file
from clawkit.gateway.protocol import now_ms
from clawkit.models.providers import known_secrets

if TYPE_CHECKING:
    from clawkit.gateway.server import Gateway

Kind = Literal["hot", "restart", "none"]
_SETTINGS: dict[Kind, tuple[str, ...]] = {
    "hot": (
        *("$schema", "agents", "approvals", "auth", "bindings", "channels", "commands"),
        *("cron", "diagnostics", "env", "hooks", "mcp", "memory", "messages", "models"),
        *("plugins", "secrets", "session", "skills", "tools"),
    ),
    "restart": ("gateway", "logging", "session.store"),
    "none": NO_EFFECT,
}
KINDS = {name: kind for kind, names in _SETTINGS.items() for name in names}
"""The effect of changes to these settings and those below them: from the next message to a session
on, after a restart (`combine` keeps the old values), or none."""
POLL_S = 0.5
SETTLE_S = 0.2
"""Seconds that a file must stay unchanged before it is read, because editors write in several
steps."""
log = logging.getLogger(__name__)


def kind_of(path: Path) -> Kind:
    """The kind of a setting by its longest matching entry; unlisted settings need a restart."""
    found = [each for each in KINDS if covers(each.split("."), path)]
    return KINDS[max(found, key=lambda each: each.count("."))] if found else "restart"


def covers(pattern: Sequence[str], path: Path) -> bool:
    """Whether a path matches a pattern or is below it; `*` matches any one key."""
    pairs = zip(pattern, map(str, path), strict=False)
    return len(pattern) <= len(path) and all(want in ("*", part) for want, part in pairs)


def combine(new: Loaded, started: Loaded) -> Loaded:
    """The new configuration, with the old values of settings that need a restart."""
    old = started.config
    session = replace(new.config.session, store=old.session.store)
    kept = replace(new.config, gateway=old.gateway, logging=old.logging, session=session)
    return replace(new, config=kept)


def changed_paths(old: Any, new: Any, path: Path = ()) -> Iterator[Path]:
    """The settings that differ between two texts (as written) or between two configurations
    (regardless of spelling, including defaults)."""
    keys: Any
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        keys = {**old, **new}
    elif isinstance(old, Section) and type(old) is type(new):
        keys = layout_of(type(old)).fields
    else:
        yield path
        return
    for key in keys:
        yield from changed_paths(in_force(old, (key,)), in_force(new, (key,)), (*path, key))


class ConfigWatch:
    """The configuration file of a gateway: which settings are in force, and why others are not."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._started = gateway.loaded
        self.mode = gateway.settings.reload.mode
        self.issues: Sequence[Issue] = ()
        """Why the file is not in force."""
        self.waiting: list[str] = []
        """The changed settings that need a restart."""
        self.last_valid = gateway.loaded
        """The file when it was last valid."""
        self._last_stamp = self._stamp()
        self._reading = asyncio.Lock()
        """Keeps reads and their application in order."""

    @property
    def file(self) -> str:
        """The configuration file; a name such as `<mapping>` if there is none."""
        return self._gateway.loaded.file or config_file(os.environ)

    def describe(self) -> dict[str, Any]:
        """The state of the configuration, for clients."""
        issues = [{"path": each.path, "message": each.message} for each in self.issues]
        return {"valid": not issues, "issues": issues, "restartNeeded": self.waiting}

    def _stamp(self) -> dict[str, list[int]]:
        """Differs whenever one of the files was changed or replaced."""
        broken = [each.file for each in self.issues if each.file]
        files = {self.file, *self._gateway.loaded.files, *broken, f"{home(os.environ)}/.env"}
        return {each: sign_file(each) for each in files}

    def needing_restart(self, new: Loaded) -> list[Path]:
        """The settings of a new configuration that are not in force before a restart."""
        fixed = ("hot", "restart") if self.mode == "restart" else ("restart",)
        changed = changed_paths(self._started.config, new.config)
        return [path for path in changed if kind_of(path) in fixed]

    async def watch(self) -> None:
        """Apply every change, until cancelled."""
        if self.mode == "off" or self.file.startswith("<"):
            return
        while True:
            await asyncio.sleep(POLL_S)
            if (now := self._stamp()) != self._last_stamp:
                await asyncio.sleep(SETTLE_S)
                if self._stamp() == now != self._last_stamp:  # and no request has applied it
                    await self.reload()
                    if self.mode == "restart" and self.waiting:
                        self._gateway.request_restart("the configuration has changed")

    async def reload(self) -> None:
        """Read the file and apply all settings that can change at run time; an invalid file changes
        nothing."""
        async with self._reading:
            seen, before = self._stamp(), (self.issues, self.waiting)
            try:
                self._take(*await in_thread(self._read))
                await self._gateway.live.sweep(0.0)
                self._gateway.job_runner.look()
            except (ConfigError, SecretError) as error:
                unread = (Issue("gateway.auth", str(error)),)
                self.issues = error.issues if isinstance(error, ConfigError) else unread
                log.error("the changed configuration is invalid and not used: %s", error)
            # Changes after the read must still be detected.
            self._last_stamp = {name: seen.get(name, at) for name, at in self._stamp().items()}
            if (self.issues, self.waiting) != before or not self.issues:
                self._tell()

    def _read(self) -> tuple[Loaded, list[Path]]:
        """The file, and the settings that need a restart; registers its secrets."""
        gateway = self._gateway
        found = load(gateway.loaded.file)
        gateway.check(found)
        gateway.redactor.learn(known_secrets(found))
        return found, self.needing_restart(found)

    def _take(self, loaded: Loaded, waiting: list[Path]) -> None:
        gateway, self.last_valid = self._gateway, loaded
        self.issues, self.waiting = (), [*map(format_path, waiting)]
        if self.mode != "restart":
            gateway.take(combine(loaded, self._started))
        log.info("the configuration was reloaded")
        for path in self.waiting:
            log.warning("the change of %s needs a restart: clawkit gateway restart", path)

    def _tell(self) -> None:
        gateway, shown = self._gateway, self.describe()
        problem = str(ConfigError(self.issues)) if self.issues else ""
        note_config(problem, self.waiting, gateway.loaded.files)
        # While the file is invalid, this is the hash of the last valid one.
        digest = hash_text(gateway.key, self.last_valid.text)
        about = {"path": self.file, "hash": digest, "ts": now_ms()}
        gateway.hub.broadcast("config.changed", about | shown)
