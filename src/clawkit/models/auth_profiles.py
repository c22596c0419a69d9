"""`auth-profiles.json` in an agent's directory: stored credentials, and statistics of their use.

Several processes may use the file: it is changed under a lock, and unknown content is kept. OAuth
tokens are also renewed here, by one process for all.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Annotated, Any, Literal
from urllib.parse import urlencode, urlsplit

import msgspec

from clawkit.config.modelref import normalize_provider
from clawkit.config.section import SecretInput, SecretRef
from clawkit.core.tasks import in_thread
from clawkit.errors import ClawkitError, ConfigError
from clawkit.models.known import fault, is_loopback
from clawkit.models.protocols import ErrorKind, ModelError
from clawkit.models.providers import AUTH_PROFILES as AUTH_PROFILES
from clawkit.models.providers import read_private
from clawkit.store import locked, private_dir, write_atomic

EARLY_MS = 60_000
"""A token that expires sooner than this is renewed before use."""
LOCK_WAIT_S = 2.0
_NOTE_WAIT_S = 0.2
_REFRESH_WAIT_S = 30.0
_REFRESH_POLL_S = 0.02
_LIFE_S = 3600
_TOKEN_URLS = {
    "anthropic": "https://console.anthropic.com/v1/oauth/token",
    "openai": "https://auth.openai.com/oauth/token",
}
_TAKES_JSON = frozenset({"console.anthropic.com", "platform.claude.com"})

Post = Callable[[str, Mapping[str, str], bytes], Awaitable[tuple[int, bytes]]]
"""Posts a body to a URL; returns status and body of the response."""
ProfileKind = Literal["oauth", "token", "api-key"]
_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]

log = logging.getLogger(__name__)


class Profile(msgspec.Struct, frozen=True, rename="camel"):
    """One stored credential. Its repr contains no secret."""

    id: str = ""
    """Its key in the file."""
    provider: str = ""
    type: str = ""
    """Decides which of the following fields are used."""
    key: str = ""
    key_ref: SecretRef | None = None
    token: str = ""
    token_ref: SecretRef | None = None
    access: str = ""
    refresh: str = ""
    """The OAuth refresh token."""
    expires: Annotated[float, msgspec.Meta(ge=0, lt=2**53)] = 0
    """Milliseconds since 1970; 0 if it does not expire."""
    client_id: str = ""
    token_url: str = ""

    def __repr__(self) -> str:
        return f"<{self.kind} profile {self.id!r} of {self.provider}>"

    @property
    def kind(self) -> ProfileKind:
        """The kind; an unknown type is `api-key`, without a secret."""
        kinds: dict[str, ProfileKind] = {"oauth": "oauth", "token": "token"}
        return kinds.get(self.type, "api-key")

    @property
    def secret(self) -> SecretInput:
        if self.kind == "oauth":
            return self.access.strip()
        if self.kind == "token":
            return self.token.strip() or self.token_ref or ""
        is_key = self.type.replace("-", "_") == "api_key"
        return (self.key.strip() or self.key_ref or "") if is_key else ""

    @property
    def is_complete(self) -> bool:
        return bool(self.provider and (self.secret or (self.kind == "oauth" and self.refresh)))

    def is_fresh(self, now_ms: int) -> bool:
        """Whether its token can be used without renewing it."""
        return bool(self.secret) and (not self.expires or self.expires - now_ms >= EARLY_MS)


class Use(msgspec.Struct, frozen=True, rename="camel"):
    """Stored statistics of one credential; times are milliseconds since 1970."""

    last_used: _Count = 0
    error_count: _Count = 0
    """Consecutive failures."""
    failure_counts: dict[str, _Count] = {}
    """Failures by kind. Only `billing` is used here."""
    last_failure_at: _Count = 0
    cooldown_until: _Count = 0
    disabled_until: _Count = 0

    @property
    def billing_errors(self) -> int:
        return self.failure_counts.get("billing", 0)

    @property
    def blocked_until(self) -> int:
        return max(self.cooldown_until, self.disabled_until)


class Stored(msgspec.Struct, frozen=True):
    """The parsed content of the file."""

    profiles: dict[str, Profile] = {}
    use: dict[str, Use] = {}


class Profiles:
    """The file of one agent. Reading raises ConfigError if it cannot be used."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.file = os.path.join(folder, AUTH_PROFILES)
        self._seen: tuple[int, ...] | None = None
        self._stored = Stored()

    def read(self) -> Stored:
        """The current content of the file; empty if there is none."""
        try:
            info = os.stat(self.file)
        except FileNotFoundError:
            self._seen, self._stored = None, Stored()
            return self._stored
        except OSError as error:
            raise fault(f"cannot be read: {error.strerror}", file=self.file) from error
        seen = (info.st_ino, info.st_mtime_ns, info.st_size, info.st_mode, info.st_uid)
        if seen != self._seen:
            self._stored = _understand(self._raw())
            self._seen = seen
        return self._stored

    def _raw(self) -> dict[str, Any]:
        tree = read_private(self.file)
        value = tree.value if tree else {"version": 1, "profiles": {}}
        if not isinstance(value, dict):
            raise fault("must contain an object", file=self.file)
        return value

    def change(self, edit: Callable[[dict[str, Any]], None], wait_s: float = LOCK_WAIT_S) -> None:
        """Change the data with `edit`, one process at a time. Raises OSError and ConfigError."""
        private_dir(self.folder)
        with locked(f"{self.file}.lock", wait_s=wait_s):
            raw = self._raw()
            edit(raw)
            text = msgspec.json.format(msgspec.json.encode(raw), indent=2)
            write_atomic(self.file, text + b"\n")

    def note_use(self, name: str, use: Use) -> None:
        """Save the statistics of a profile. Raises OSError and ConfigError.

        It blocks the event loop, so it waits only briefly for the lock.
        """

        def edit(raw: dict[str, Any]) -> None:
            stats = raw["usageStats"] = _dict(raw.get("usageStats"))
            stats[name] = _dict(stats.get(name)) | msgspec.to_builtins(use)

        self.change(edit, _NOTE_WAIT_S)

    def store_token(self, profile: Profile) -> None:
        """Store a new token, if the profile still exists."""

        def edit(raw: dict[str, Any]) -> None:
            entry = _dict(raw.get("profiles")).get(profile.id)
            if isinstance(entry, dict):
                entry["access"] = profile.access
                entry["refresh"] = profile.refresh
                entry["expires"] = profile.expires

        self.change(edit)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _understand(raw: Mapping[str, Any]) -> Stored:
    """Parse the file's content; incomplete profiles are left out with a warning."""
    stored = Stored({}, {})
    for name, given in _dict(raw.get("profiles")).items():
        fields = _fitting(given, Profile)
        provider = normalize_provider(fields.get("provider") or name.partition(":")[0])
        profile = Profile(**fields | {"id": name, "provider": provider})
        if profile.is_complete:
            stored.profiles[name] = profile
        else:
            log.warning("auth profile %r cannot be used: it is incomplete", name[:80])
    for name, given in _dict(raw.get("usageStats")).items():
        stored.use[name] = Use(**_fitting(given, Use))
    return stored


def _fitting(given: object, kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The valid fields of a stored entry; others are ignored."""
    stored, found = _dict(given), {}
    for field in msgspec.structs.fields(kind):
        value = stored.get(field.encode_name)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if value is not None:
            with suppress(msgspec.ValidationError):
                found[field.name] = msgspec.convert(value, field.type)
    return found


async def renew(profile: Profile, profiles: Profiles, post: Post | None, now_ms: int) -> Profile:
    """The profile with a usable token, renewed if necessary. Raises ModelError.

    Only one process renews at a time, and the others use its token, because most providers accept
    a refresh token only once.
    """
    deadline = time.monotonic() + _REFRESH_WAIT_S
    while True:
        try:
            with locked(f"{profiles.file}.refresh.lock", wait_s=0):
                return await _renew_alone(profile, profiles, post, now_ms)
        except TimeoutError:
            if time.monotonic() > deadline:
                problem = "another process has been renewing the sign-in for too long"
                raise _sign_in_error(profile, "timeout", problem) from None
        except OSError as error:
            problem = f"{profiles.file} cannot be locked: {error.strerror}"
            raise ModelError("auth", f"{profile.provider}: {problem}") from error
        await asyncio.sleep(_REFRESH_POLL_S)


async def _renew_alone(
    profile: Profile, profiles: Profiles, post: Post | None, now_ms: int
) -> Profile:
    latest = profiles.read().profiles.get(profile.id, profile)
    if latest.is_fresh(now_ms):
        return latest
    fresh = await _refresh(latest, post, now_ms)
    try:
        await in_thread(profiles.store_token, fresh)
    except (OSError, ConfigError) as error:
        log.warning("the new token of %s could not be stored: %s", profile.id, error)
    return fresh


async def _refresh(profile: Profile, post: Post | None, now_ms: int) -> Profile:
    url = profile.token_url or _TOKEN_URLS.get(profile.provider, "")
    if not profile.refresh or not url or post is None:
        raise _sign_in_error(profile, "auth", "the sign-in has expired")
    try:
        scheme, host = urlsplit(url).scheme, urlsplit(url).hostname or ""
    except ValueError:
        scheme = host = ""
    if not host or not (scheme == "https" or (scheme == "http" and is_loopback(host))):
        problem = "its token address is neither https nor on this machine"
        raise _sign_in_error(profile, "auth", problem)
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
        raise _sign_in_error(profile, "network", f"{host} did not answer") from error
    return _read_token(profile, status, answer, now_ms)


def _read_token(profile: Profile, status: int, answer: bytes, now_ms: int) -> Profile:
    if status == 429 or status >= 500:
        problem = f"renewing the sign-in failed with status {status}"
        raise _sign_in_error(profile, "rate_limit" if status == 429 else "server", problem)
    try:
        data = _dict(msgspec.json.decode(answer))
    except (msgspec.DecodeError, RecursionError):
        data = {}
    token = data.get("access_token")
    if not 200 <= status < 300 or not isinstance(token, str) or not token.strip():
        raise _sign_in_error(profile, "auth", f"the sign-in was not renewed (status {status})")
    refresh, life = data.get("refresh_token"), data.get("expires_in")
    if not isinstance(life, int | float) or isinstance(life, bool) or not 0 < life < 10**9:
        life = _LIFE_S
    return msgspec.structs.replace(
        profile,
        access=token.strip(),
        refresh=refresh if isinstance(refresh, str) and refresh else profile.refresh,
        expires=now_ms + int(life * 1000),
    )


def _sign_in_error(profile: Profile, kind: ErrorKind, problem: str) -> ModelError:
    advice = f"; sign in to {profile.provider} again" if kind == "auth" else ""
    return ModelError(kind, f"{profile.provider} (profile {profile.id}): {problem}{advice}")
