"""New tokens for old: what OAuth calls a refresh, done by one process for all."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec

from clawkit.core.bounded import in_thread
from clawkit.errors import ClawkitError, ConfigError
from clawkit.models.base import ErrorKind, ModelError
from clawkit.models.known import is_loopback
from clawkit.models.profiles import Profile, Profiles, is_fresh, open_lock, try_lock

Post = Callable[[str, Mapping[str, str], bytes], Awaitable[tuple[int, bytes]]]
"""Sends a body to an address and gives status and body of the answer."""

_LOCK_WAIT_S = 30.0
_LOCK_POLL_S = 0.02
_LIFE_S = 3600
_TOKEN_URLS = {
    "anthropic": "https://console.anthropic.com/v1/oauth/token",
    "openai": "https://auth.openai.com/oauth/token",
}
_TAKES_JSON = frozenset({"console.anthropic.com", "platform.claude.com"})

log = logging.getLogger(__name__)


async def renew(profile: Profile, profiles: Profiles, post: Post | None, now_ms: int) -> Profile:
    """The profile with a token that can be used. Raises ModelError.

    Who comes second waits for the first and takes the token it got: most services accept the old
    one only once.
    """
    async with _locked(profiles, profile):
        latest = profiles.read().profiles.get(profile.id, profile)
        if is_fresh(latest, now_ms):
            return latest
        fresh = await _ask(latest, post, now_ms)
        try:
            await in_thread(profiles.store_token, fresh)
        except (OSError, ConfigError) as error:
            log.warning("the new token of %s could not be stored: %s", profile.id, error)
        return fresh


@asynccontextmanager
async def _locked(profiles: Profiles, profile: Profile) -> Any:
    try:
        fd = open_lock(f"{profiles.file}.refresh.lock")
    except OSError as error:
        problem = f"{profiles.file} cannot be locked: {error.strerror}"
        raise ModelError("auth", f"{profile.provider}: {problem}") from error
    try:
        deadline = time.monotonic() + _LOCK_WAIT_S
        while not try_lock(fd):
            if time.monotonic() > deadline:
                problem = "another process is renewing the sign-in and does not finish"
                raise ModelError("timeout", f"{profile.provider}: {problem}")
            await asyncio.sleep(_LOCK_POLL_S)
        yield
    finally:
        os.close(fd)


async def _ask(profile: Profile, post: Post | None, now_ms: int) -> Profile:
    url = profile.token_url or _TOKEN_URLS.get(profile.provider, "")
    if not profile.refresh or not url or post is None:
        raise _fault(profile, "auth", "the sign-in has expired")
    host = _host(url)
    if host is None:
        raise _fault(profile, "auth", "its token address is neither https nor on this machine")
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
        raise _fault(profile, "network", f"{host} did not answer", again=False) from error
    return _read(profile, status, answer, now_ms)


def _host(url: str) -> str | None:
    """The host that a token is sent to, if it may be."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    host = parts.hostname or ""
    safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
    return host if host and safe else None


def _read(profile: Profile, status: int, answer: bytes, now_ms: int) -> Profile:
    if status == 429 or status >= 500:
        kind: ErrorKind = "rate_limit" if status == 429 else "server"
        raise _fault(
            profile, kind, f"renewing the sign-in failed with status {status}", again=False
        )
    try:
        data = msgspec.json.decode(answer)
    except (msgspec.DecodeError, RecursionError):
        data = None
    token = data.get("access_token") if isinstance(data, dict) else None
    if not 200 <= status < 300 or not isinstance(token, str) or not token.strip():
        raise _fault(profile, "auth", f"the sign-in was not renewed (status {status})")
    refresh, life = data.get("refresh_token"), data.get("expires_in")
    usable = isinstance(life, int | float) and not isinstance(life, bool) and 0 < life < 10**9
    return profile._replace(
        secret=token.strip(),
        refresh=refresh if isinstance(refresh, str) and refresh else profile.refresh,
        expires_ms=now_ms + int((life if usable else _LIFE_S) * 1000),
    )


def _fault(profile: Profile, kind: ErrorKind, problem: str, *, again: bool = True) -> ModelError:
    advice = f"; sign in to {profile.provider} again" if again else ""
    return ModelError(kind, f"{profile.provider} (profile {profile.id}): {problem}{advice}")
