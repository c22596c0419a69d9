"""Takes up a changed configuration file while the gateway runs."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from clawkit.config.load import Loaded, load
from clawkit.config.no_effect import NO_EFFECT
from clawkit.config.paths import config_file, home
from clawkit.core.tasks import in_thread
from clawkit.errors import ConfigError, Issue, SecretError
from clawkit.gateway.config_text import changed_paths, hash_text
from clawkit.gateway.protocol import now_ms
from clawkit.gateway.record import note_config
from clawkit.services import known_secrets

if TYPE_CHECKING:
    from clawkit.gateway.server import Gateway

Kind = Literal["hot", "restart", "none"]
HOT = (
    *("$schema", "agents", "approvals", "auth", "bindings", "channels", "commands", "diagnostics"),
    *("env", "messages", "models", "secrets", "session", "tools"),
)
"""Settings that apply from the next message to a session on."""
RESTART = ("gateway", "logging", "session.store")
"""Settings that are read once, when the gateway starts."""
_KINDS: dict[str, Kind] = {**dict.fromkeys(HOT, "hot"), **dict.fromkeys(RESTART, "restart")}
POLL_S = 0.5
SETTLE_S = 0.2
"""How long a file must stay the same before it is read: editors write in several steps."""
log = logging.getLogger(__name__)


def kind_of(path: str) -> Kind:
    """What a change of a setting needs. The longest entry counts; what is not listed needs a
    restart."""
    parts = path.split(".")
    if any(_covers(each.split("."), parts) for each in NO_EFFECT):
        return "none"
    found = [each for each in _KINDS if _covers(each.split("."), parts)]
    return _KINDS[max(found, key=len)] if found else "restart"


def _covers(pattern: Sequence[str], parts: Sequence[str]) -> bool:
    pairs = zip(pattern, parts, strict=False)
    return len(pattern) <= len(parts) and all(want in ("*", part) for want, part in pairs)


def combine(new: Loaded, started: Loaded) -> Loaded:
    """The new configuration, with the settings of the start that need a restart."""
    config: Any = new.config
    for path in RESTART:
        config = _keep(config, started.config, path.split("."))
    return msgspec.structs.replace(new, config=config)


def _keep(new: Any, old: Any, names: Sequence[str]) -> Any:
    kept, rest = getattr(old, names[0]), names[1:]
    value = _keep(getattr(new, names[0]), kept, rest) if rest else kept
    return msgspec.structs.replace(new, **{names[0]: value})


class ConfigWatch:
    """The configuration file of a gateway: what of it is in force, and why not all of it is."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._started = gateway.loaded
        self.mode = gateway.settings.reload.mode
        self.issues: Sequence[Issue] = ()
        """Why the file is not in force."""
        self.waiting: list[str] = []
        """The changed settings that need a restart."""
        self._text = gateway.loaded.text
        self._seen = self._stamp()

    @property
    def file(self) -> str:
        """The configuration file; a name such as `<mapping>` if the gateway was not given one."""
        return self._gateway.loaded.file or config_file(os.environ)

    def describe(self) -> dict[str, Any]:
        """For clients."""
        issues = [{"path": each.path, "message": each.message} for each in self.issues]
        return {"valid": not issues, "issues": issues, "restartNeeded": self.waiting}

    def _stamp(self) -> list[tuple[int, ...]]:
        """Changes whenever one of the files does, also when it is replaced."""
        broken = [each.file for each in self.issues if each.file]
        files = {self.file, *self._gateway.loaded.files, *broken, f"{home(os.environ)}/.env"}
        return [_stat(each) for each in sorted(files)]

    def needing_restart(self, changed: Iterable[str]) -> list[str]:
        """Those of the changed settings that are not in force before a restart."""
        fixed = ("hot", "restart") if self.mode == "restart" else ("restart",)
        return [path for path in changed if kind_of(path) in fixed]

    async def watch(self) -> None:
        """Take up every change, until cancelled."""
        if self.mode == "off" or self.file.startswith("<"):
            return
        while True:
            await asyncio.sleep(POLL_S)
            if (now := self._stamp()) != self._seen:
                await asyncio.sleep(SETTLE_S)
                if self._stamp() == now != self._seen:  # and no request has taken it up
                    await self.reload()
                    if self.mode == "restart" and self.waiting:
                        self._gateway.request_restart("the configuration has changed")

    async def reload(self) -> None:
        """Read the file. What can change while the gateway runs does; a file that is invalid
        changes nothing."""
        gateway = self._gateway
        self._seen = self._stamp()
        before = self.issues, self.waiting
        try:
            found, changed = await in_thread(self._read)
        except (ConfigError, SecretError) as error:
            unread = (Issue("gateway.auth", str(error)),)
            self.issues = error.issues if isinstance(error, ConfigError) else unread
            log.error("the changed configuration is invalid and not used: %s", error)
        else:
            self._take(found, changed)
            await gateway.live.sweep(0.0)
        self._seen = self._stamp()
        if (self.issues, self.waiting) != before or not self.issues:
            self._tell()

    def _read(self) -> tuple[Loaded, list[str]]:
        """The file, and what in it differs from the start; its secrets are known from then on."""
        gateway = self._gateway
        found = load(gateway.loaded.file)
        gateway.check(found)
        gateway.redactor.learn(known_secrets(found))
        return found, list(changed_paths(self._started.raw, found.raw))

    def _take(self, found: Loaded, changed: list[str]) -> None:
        gateway, self._text = self._gateway, found.text
        self.issues, self.waiting = (), self.needing_restart(changed)
        if self.mode != "restart":
            gateway.loaded = combine(found, self._started)
            gateway.shelf.forget()
        log.info("the configuration was read again")
        for path in self.waiting:
            log.warning("the change of %s needs a restart: clawkit gateway restart", path)

    def _tell(self) -> None:
        gateway, shown = self._gateway, self.describe()
        problem = str(ConfigError(self.issues)) if self.issues else ""
        note_config(problem, self.waiting, gateway.loaded.files)
        # As long as the file is invalid, this is the hash of the last one that was not.
        about = {"path": self.file, "hash": hash_text(gateway.key, self._text), "ts": now_ms()}
        gateway.hub.broadcast("config.changed", about | shown)


def _stat(path: str) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
