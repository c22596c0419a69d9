"""`auth-profiles.json` in an agent's directory: credentials people signed in with, and their use.

Several processes may use it at once: it is changed under a lock, and everything in it that is not
understood here stays as it is. Tokens are renewed here too, by one process for all.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from types import MappingProxyType
from typing import Any, Literal, NamedTuple
from urllib.parse import urlencode, urlsplit

import msgspec

from clawkit.config.json5 import Json5Error, parse
from clawkit.config.modelref import normalize_provider
from clawkit.config.section import SecretInput, SecretRef
from clawkit.config.sources import ReadError, read_text
from clawkit.core.tasks import in_thread
from clawkit.errors import ClawkitError, ConfigError, Issue
from clawkit.models.known import is_loopback
from clawkit.models.protocols import ErrorKind, ModelError
from clawkit.store import private_dir, why_foreign, write_atomic

AUTH_PROFILES = "auth-profiles.json"
EARLY_MS = 60_000
"""A token that ends sooner is renewed before it is used."""
LOCK_WAIT_S = 2.0
LOCK_POLL_S = 0.01
_NOTE_WAIT_S = 0.2

ProfileKind = Literal["oauth", "token", "api-key"]
_KINDS: dict[str, tuple[ProfileKind, str, str]] = {
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
    kind: ProfileKind
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
        self.file = os.path.join(folder, AUTH_PROFILES)
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


Post = Callable[[str, Mapping[str, str], bytes], Awaitable[tuple[int, bytes]]]
"""Sends a body to an address and gives status and body of the answer."""

_REFRESH_WAIT_S = 30.0
_REFRESH_POLL_S = 0.02
_LIFE_S = 3600
_TOKEN_URLS = {
    "anthropic": "https://console.anthropic.com/v1/oauth/token",
    "openai": "https://auth.openai.com/oauth/token",
}
_TAKES_JSON = frozenset({"console.anthropic.com", "platform.claude.com"})


async def renew(profile: Profile, profiles: Profiles, post: Post | None, now_ms: int) -> Profile:
    """The profile with a token that can be used. Raises ModelError.

    Who comes second waits for the first and takes the token it got: most services accept the old
    one only once.
    """
    async with _refresh_lock(profiles, profile):
        latest = profiles.read().profiles.get(profile.id, profile)
        if is_fresh(latest, now_ms):
            return latest
        fresh = await _refresh(latest, post, now_ms)
        try:
            await in_thread(profiles.store_token, fresh)
        except (OSError, ConfigError) as error:
            log.warning("the new token of %s could not be stored: %s", profile.id, error)
        return fresh


@asynccontextmanager
async def _refresh_lock(profiles: Profiles, profile: Profile) -> Any:
    try:
        fd = open_lock(f"{profiles.file}.refresh.lock")
    except OSError as error:
        problem = f"{profiles.file} cannot be locked: {error.strerror}"
        raise ModelError("auth", f"{profile.provider}: {problem}") from error
    try:
        deadline = time.monotonic() + _REFRESH_WAIT_S
        while not try_lock(fd):
            if time.monotonic() > deadline:
                problem = "another process is renewing the sign-in and does not finish"
                raise ModelError("timeout", f"{profile.provider}: {problem}")
            await asyncio.sleep(_REFRESH_POLL_S)
        yield
    finally:
        os.close(fd)


async def _refresh(profile: Profile, post: Post | None, now_ms: int) -> Profile:
    url = profile.token_url or _TOKEN_URLS.get(profile.provider, "")
    if not profile.refresh or not url or post is None:
        raise _sign_in_error(profile, "auth", "the sign-in has expired")
    host = _host(url)
    if host is None:
        raise _sign_in_error(
            profile, "auth", "its token address is neither https nor on this machine"
        )
    fields = {"grant_type": "refresh_token", "refresh_token": profile.refresh}
    if profile.client_id:
        fields["client_id"] = profile.client_id
    as_json = host in _TAKES_JSON
    body = msgspec.json.encode(fields) if as_json else urlencode(fields).encode()
    kind = "application/json" if as_json else "application/x-www-form-urlencoded"
    headers = {"Content-Type": kind, "Accept": "application/json"}
    try:
        status, answer = await post(url, headers, body)
    except (ClawkitError, OSError, TimeoutError) as error:
        raise _sign_in_error(profile, "network", f"{host} did not answer", again=False) from error
    return _read_token(profile, status, answer, now_ms)


def _host(url: str) -> str | None:
    """The host that a token is sent to, if it may be."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    host = parts.hostname or ""
    safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
    return host if host and safe else None


def _read_token(profile: Profile, status: int, answer: bytes, now_ms: int) -> Profile:
    if status == 429 or status >= 500:
        kind: ErrorKind = "rate_limit" if status == 429 else "server"
        raise _sign_in_error(
            profile, kind, f"renewing the sign-in failed with status {status}", again=False
        )
    try:
        data = msgspec.json.decode(answer)
    except (msgspec.DecodeError, RecursionError):
        data = None
    token = data.get("access_token") if isinstance(data, dict) else None
    if not 200 <= status < 300 or not isinstance(token, str) or not token.strip():
        raise _sign_in_error(profile, "auth", f"the sign-in was not renewed (status {status})")
    refresh, life = data.get("refresh_token"), data.get("expires_in")
    usable = isinstance(life, int | float) and not isinstance(life, bool) and 0 < life < 10**9
    return profile._replace(
        secret=token.strip(),
        refresh=refresh if isinstance(refresh, str) and refresh else profile.refresh,
        expires_ms=now_ms + int((life if usable else _LIFE_S) * 1000),
    )


def _sign_in_error(
    profile: Profile, kind: ErrorKind, problem: str, *, again: bool = True
) -> ModelError:
    advice = f"; sign in to {profile.provider} again" if again else ""
    return ModelError(kind, f"{profile.provider} (profile {profile.id}): {problem}{advice}")
