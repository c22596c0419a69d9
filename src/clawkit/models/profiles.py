"""`auth-profiles.json` in an agent's directory: credentials people signed in with, and their use.

Several processes may use it at once: it is changed under a lock, and everything in it that is not
understood here stays as it is.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import msgspec

from clawkit.config.include import ReadError, read_text
from clawkit.config.json5 import Json5Error, parse
from clawkit.config.modelref import normalize_provider
from clawkit.config.section import SecretInput, SecretRef
from clawkit.errors import ConfigError, Issue
from clawkit.store import private_dir, why_foreign, write_atomic

NAME = "auth-profiles.json"
EARLY_MS = 60_000
"""A token that ends sooner is renewed before it is used."""
LOCK_WAIT_S = 2.0
LOCK_POLL_S = 0.01
_NOTE_WAIT_S = 0.2

Kind = Literal["oauth", "token", "api-key"]
_KINDS: dict[str, tuple[Kind, str, str]] = {
    "oauth": ("oauth", "access", ""),
    "token": ("token", "token", "tokenRef"),
    "api_key": ("api-key", "key", "keyRef"),
    "api-key": ("api-key", "key", "keyRef"),
}

log = logging.getLogger(__name__)


class Profile(NamedTuple):
    """One stored credential. Its representation shows no secret."""

    id: str
    provider: str
    kind: Kind
    secret: SecretInput
    refresh: str = ""
    """What a new token is asked for with; OAuth only."""
    expires_ms: int = 0
    """When it ends, in milliseconds since 1970; 0 when it does not."""
    client_id: str = ""
    token_url: str = ""

    def __repr__(self) -> str:
        return f"<{self.kind} profile {self.id!r} of {self.provider}>"


class Use(NamedTuple):
    """How it went with one credential; times are milliseconds since 1970."""

    last_used: int = 0
    errors: int = 0
    """Refusals in a row."""
    billing_errors: int = 0
    failed_at: int = 0
    cooldown_until: int = 0
    disabled_until: int = 0

    @property
    def blocked_until(self) -> int:
        return max(self.cooldown_until, self.disabled_until)


class Stored(NamedTuple):
    """What the file holds."""

    profiles: Mapping[str, Profile] = MappingProxyType({})
    use: Mapping[str, Use] = MappingProxyType({})


class Profiles:
    """The file of one agent. Reading raises ConfigError when it cannot be used."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.file = os.path.join(folder, NAME)
        self._seen: tuple[int, ...] | None = None
        self._stored = Stored()

    def read(self) -> Stored:
        """What the file holds now; nothing when there is none."""
        try:
            info = os.stat(self.file)
        except FileNotFoundError:
            self._seen, self._stored = None, Stored()
            return self._stored
        except OSError as error:
            raise self._fault(f"cannot be read: {error.strerror}") from error
        if problem := why_foreign(info):
            raise self._fault(problem, "Make it your own, and run `chmod 600` on it")
        seen = (info.st_ino, info.st_mtime_ns, info.st_size)
        if seen != self._seen:
            self._stored = _understand(self._raw())
            self._seen = seen
        return self._stored

    def _raw(self) -> dict[str, Any]:
        try:
            value = parse(read_text(self.file)).value
        except ReadError as error:
            raise self._fault(str(error)) from error
        except Json5Error as error:
            problem = f"{error.message} (column {error.column})"
            raise ConfigError([Issue("", problem, self.file, error.line)]) from None
        if not isinstance(value, dict):
            raise self._fault("must hold an object")
        return value

    def _fault(self, problem: str, hint: str = "") -> ConfigError:
        return ConfigError([Issue("", problem, self.file, hint=hint)])

    def change(self, edit: Callable[[dict[str, Any]], None], wait_s: float = LOCK_WAIT_S) -> None:
        """Has `edit` alter the data, one process at a time. Raises OSError and ConfigError."""
        private_dir(self.folder)
        with self._locked(wait_s):
            raw = self._raw() if os.path.lexists(self.file) else {"version": 1, "profiles": {}}
            edit(raw)
            text = msgspec.json.format(msgspec.json.encode(raw), indent=2)
            write_atomic(self.file, text + b"\n")

    @contextmanager
    def _locked(self, wait_s: float) -> Iterator[None]:
        fd = open_lock(f"{self.file}.lock")
        try:
            deadline = time.monotonic() + wait_s
            while not try_lock(fd):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{self.file}: another process is changing it")
                time.sleep(LOCK_POLL_S)
            yield
        finally:
            os.close(fd)

    def note_use(self, name: str, use: Use) -> None:
        """Writes down how it went with a profile. Raises OSError and ConfigError.

        Everything waits for it meanwhile: it gives up soon.
        """

        def edit(raw: dict[str, Any]) -> None:
            stats = raw.get("usageStats")
            stats = raw["usageStats"] = stats if isinstance(stats, dict) else {}
            before = stats.get(name)
            kept = dict(before) if isinstance(before, dict) else {}
            counts = kept.get("failureCounts")
            counts = dict(counts) if isinstance(counts, dict) else {}
            stats[name] = kept | {
                "lastUsed": use.last_used,
                "errorCount": use.errors,
                "failureCounts": counts | {"billing": use.billing_errors},
                "lastFailureAt": use.failed_at,
                "cooldownUntil": use.cooldown_until,
                "disabledUntil": use.disabled_until,
            }

        self.change(edit, _NOTE_WAIT_S)

    def store_token(self, profile: Profile) -> None:
        """Puts a new token into the file, if the profile is still there."""

        def edit(raw: dict[str, Any]) -> None:
            found = raw.get("profiles")
            entry = found.get(profile.id) if isinstance(found, dict) else None
            if isinstance(entry, dict):
                entry |= {
                    "access": profile.secret,
                    "refresh": profile.refresh,
                    "expires": profile.expires_ms,
                }

        self.change(edit)


def is_fresh(profile: Profile, now_ms: int) -> bool:
    """Whether its token can be used as it is."""
    lasts = not profile.expires_ms or profile.expires_ms - now_ms >= EARLY_MS
    return lasts and bool(profile.secret)


def open_lock(path: str) -> int:
    """A descriptor to lock; the lock ends when it is closed, whatever ends the process."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.open(path, flags, 0o600)


def try_lock(fd: int) -> bool:
    """Whether this descriptor has the lock now."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _understand(raw: Mapping[str, Any]) -> Stored:
    """What can be used of it; a profile that cannot is left out, with a word in the log."""
    profiles: dict[str, Profile] = {}
    given = raw.get("profiles")
    for name, entry in (given if isinstance(given, dict) else {}).items():
        profile = _profile(name, entry) if isinstance(entry, dict) else None
        if profile is None:
            log.warning("auth profile %r cannot be used: it is incomplete", name[:80])
        else:
            profiles[name] = profile
    stats = raw.get("usageStats")
    use = {
        name: _use(entry)
        for name, entry in (stats if isinstance(stats, dict) else {}).items()
        if isinstance(entry, dict)
    }
    return Stored(profiles, use)


def _profile(name: str, entry: Mapping[str, Any]) -> Profile | None:
    kind, key, ref_key = _KINDS.get(_text(entry, "type"), ("api-key", "", ""))
    provider = normalize_provider(_text(entry, "provider") or name.partition(":")[0])
    secret: SecretInput = _text(entry, key).strip()
    if not secret and ref_key and isinstance(entry.get(ref_key), dict):
        try:
            secret = msgspec.convert(entry[ref_key], SecretRef)
        except msgspec.ValidationError:
            return None
    refresh = _text(entry, "refresh")
    if not provider or not (secret or (kind == "oauth" and refresh)):
        return None
    return Profile(
        id=name,
        provider=provider,
        kind=kind,
        secret=secret,
        refresh=refresh,
        expires_ms=_number(entry, "expires"),
        client_id=_text(entry, "clientId"),
        token_url=_text(entry, "tokenUrl"),
    )


def _use(entry: Mapping[str, Any]) -> Use:
    counts = entry.get("failureCounts")
    return Use(
        last_used=_number(entry, "lastUsed"),
        errors=_number(entry, "errorCount"),
        billing_errors=_number(counts if isinstance(counts, dict) else {}, "billing"),
        failed_at=_number(entry, "lastFailureAt"),
        cooldown_until=_number(entry, "cooldownUntil"),
        disabled_until=_number(entry, "disabledUntil"),
    )


def _text(entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key)
    return value if isinstance(value, str) else ""


def _number(entry: Mapping[str, Any], key: str) -> int:
    """A count or a time; 0 for anything that cannot be one."""
    value = entry.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 <= value < 2**53 else 0
