"""The credentials of a provider: the stored ones, the order of their use, and their cooldowns.

`auth-profiles.json` in an agent's directory has stored credentials, and statistics of their use.
Several processes may use the file: it is changed under a lock, and unknown content is kept. OAuth
tokens are renewed here as well, by one process for all.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Annotated, Any, Literal
from urllib.parse import urlencode, urlsplit

import msgspec
from msgspec.structs import replace

from clawkit.config.model import Config
from clawkit.config.modelref import normalize_provider
from clawkit.config.section import SecretInput, SecretRef
from clawkit.core.tasks import in_thread
from clawkit.errors import ClawkitError, ConfigError, SecretError
from clawkit.models.errors import PER_CREDENTIAL
from clawkit.models.known import PROVIDERS, fault, is_loopback, read_address
from clawkit.models.protocols import ErrorKind, ModelError
from clawkit.models.providers import (
    AUTH_PROFILES,
    Service,
    dict_of,
    load_services,
    named_variable,
    read_private,
)
from clawkit.redact.masking import is_secret_name
from clawkit.store import locked, locked_async, private_dir, write_atomic

EARLY_MS = 60_000
"""A token with less time left than this is renewed before use."""
LOCK_WAIT_S = 2.0
_NOTE_WAIT_S = 0.2
_REFRESH_WAIT_S = 30.0
_LIFE_S = 3600
_TOKEN_URLS = {
    "anthropic": "https://console.anthropic.com/v1/oauth/token",
    "openai": "https://auth.openai.com/oauth/token",
}
_TAKES_JSON = frozenset({"console.anthropic.com", "platform.claude.com"})

Post = Callable[[str, Mapping[str, str], bytes], Awaitable[tuple[int, bytes]]]
"""Posts a body to a URL; returns status and body of the response."""
_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
Kind = Literal["oauth", "token", "api-key", "none"]

_RANK = {"oauth": 0, "token": 1, "api-key": 2}
_COOLDOWN_S = (30, 60, 300)
_BILLING_S, _BILLING_MOST_S = 600, 86_400
_FORGET_MS = 24 * 3600 * 1000
"""Older failures no longer count."""
_NOTE_EVERY_MS = 60_000
"""Minimum interval between saves of a credential's use."""
_KEEP_S = 300.0
"""How long a secret from a file or a command is cached."""

log = logging.getLogger(__name__)


class StoredCredential(msgspec.Struct, frozen=True, rename="camel"):
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
    expires: Annotated[float, msgspec.Meta(ge=0, lt=2**53)] = 0
    """Milliseconds since 1970; 0 if it does not expire."""
    client_id: str = ""
    token_url: str = ""

    def __repr__(self) -> str:
        return f"<{self.kind} profile {self.id!r} of {self.provider}>"

    @property
    def kind(self) -> Kind:
        """An unknown type is `api-key`, without a secret."""
        return "oauth" if self.type == "oauth" else "token" if self.type == "token" else "api-key"

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


class StoredProfiles(msgspec.Struct, frozen=True):
    profiles: dict[str, StoredCredential] = {}
    use: dict[str, Use] = {}


class Profiles:
    """The file of one agent. Reading raises ConfigError if it cannot be used."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.file = os.path.join(folder, AUTH_PROFILES)
        self._seen: tuple[int, ...] | None = None
        self._stored = StoredProfiles()

    def read(self) -> StoredProfiles:
        """The current content of the file; empty if there is none."""
        try:
            info = os.stat(self.file)
        except FileNotFoundError:
            self._seen, self._stored = None, StoredProfiles()
            return self._stored
        except OSError as error:
            raise fault(f"cannot be read: {error.strerror}", file=self.file) from error
        seen = (info.st_ino, info.st_mtime_ns, info.st_size, info.st_mode, info.st_uid)
        if seen != self._seen:
            raw = self._raw()
            stored = StoredProfiles({}, {})
            for name, given in dict_of(raw.get("profiles")).items():
                fields = _fitting(given, StoredCredential)
                provider = normalize_provider(fields.get("provider") or name.partition(":")[0])
                profile = StoredCredential(**fields | {"id": name, "provider": provider})
                if profile.is_complete:
                    stored.profiles[name] = profile
                else:
                    log.warning("auth profile %r cannot be used: it is incomplete", name[:80])
            for name, given in dict_of(raw.get("usageStats")).items():
                stored.use[name] = Use(**_fitting(given, Use))
            self._stored = stored
            self._seen = seen
        return self._stored

    def _raw(self) -> dict[str, Any]:
        tree = read_private(self.file)
        value = tree.value if tree else {"version": 1, "profiles": {}}
        if not isinstance(value, dict):
            raise fault("must contain an object", file=self.file)
        return value

    @contextmanager
    def changing(self, wait_s: float = LOCK_WAIT_S) -> Iterator[dict[str, Any]]:
        """The data, to be changed in place by one process at a time, and written at the end. Raises
        OSError and ConfigError, as do the methods that use it."""
        private_dir(self.folder)
        with locked(f"{self.file}.lock", wait_s=wait_s):
            raw = self._raw()
            yield raw
            text = msgspec.json.format(msgspec.json.encode(raw), indent=2)
            write_atomic(self.file, text + b"\n")

    def note_use(self, name: str, use: Use) -> None:
        """Save the statistics of a profile. Waits only briefly for the lock, because it blocks the
        event loop."""
        with self.changing(_NOTE_WAIT_S) as raw:
            stats = raw["usageStats"] = dict_of(raw.get("usageStats"))
            stats[name] = dict_of(stats.get(name)) | msgspec.to_builtins(use)

    def store_token(self, profile: StoredCredential) -> None:
        """Store a new token, if the profile still exists."""
        with self.changing() as raw:
            entry = dict_of(raw.get("profiles")).get(profile.id)
            if isinstance(entry, dict):
                entry |= {"access": profile.access, "refresh": profile.refresh}
                entry["expires"] = profile.expires


def _fitting(entry: object, kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The valid fields of a stored entry; others are ignored."""
    stored, found = dict_of(entry), {}
    for field in msgspec.structs.fields(kind):
        value = stored.get(field.encode_name)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if value is not None:
            with suppress(msgspec.ValidationError):
                found[field.name] = msgspec.convert(value, field.type)
    return found


async def renew(
    profile: StoredCredential, profiles: Profiles, post: Post | None, now_ms: int
) -> StoredCredential:
    """The profile with a usable token, renewed if necessary. Raises ModelError.

    Only one process renews at a time, and the others use its token, because most providers accept
    a refresh token only once.
    """
    try:
        async with locked_async(f"{profiles.file}.refresh.lock", wait_s=_REFRESH_WAIT_S):
            latest = profiles.read().profiles.get(profile.id, profile)
            if latest.is_fresh(now_ms):
                return latest
            fresh = await _refresh(latest, post, now_ms)
            try:
                await in_thread(profiles.store_token, fresh)
            except (OSError, ConfigError) as error:
                log.warning("the new token of %s could not be stored: %s", profile.id, error)
            return fresh
    except TimeoutError:
        problem = "another process has been renewing the sign-in for too long"
        raise _sign_in_error(profile, "timeout", problem) from None
    except OSError as error:
        problem = f"{profiles.file} cannot be locked: {error.strerror}"
        raise ModelError("auth", f"{profile.provider}: {problem}") from error


async def _refresh(profile: StoredCredential, post: Post | None, now_ms: int) -> StoredCredential:
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
    if status == 429 or status >= 500:
        problem = f"renewing the sign-in failed with status {status}"
        raise _sign_in_error(profile, "rate_limit" if status == 429 else "server", problem)
    try:
        data = dict_of(msgspec.json.decode(answer))
    except (msgspec.DecodeError, RecursionError):
        data = {}
    token = data.get("access_token")
    if not 200 <= status < 300 or not isinstance(token, str) or not token.strip():
        raise _sign_in_error(profile, "auth", f"the sign-in was not renewed (status {status})")
    refresh, life = data.get("refresh_token"), data.get("expires_in")
    if not isinstance(life, int | float) or isinstance(life, bool) or not 0 < life < 10**9:
        life = _LIFE_S
    return replace(
        profile,
        access=token.strip(),
        refresh=refresh if isinstance(refresh, str) and refresh else profile.refresh,
        expires=now_ms + int(life * 1000),
    )


def _sign_in_error(profile: StoredCredential, kind: ErrorKind, problem: str) -> ModelError:
    advice = f"; sign in to {profile.provider} again" if kind == "auth" else ""
    return ModelError(kind, f"{profile.provider} (profile {profile.id}): {problem}{advice}")


class Credential(msgspec.Struct, frozen=True):
    """The credential of a request. Its repr does not contain the secret."""

    id: str
    """`openai:default` for a stored one, `env:NAME`, or the path of the setting."""
    kind: Kind
    secret: str
    """Empty if none is needed, or if `Credentials.ready` has to fetch it first."""
    provider: str
    ref: SecretInput | None = None
    """Where to fetch the secret."""
    profile: StoredCredential | None = None

    def __repr__(self) -> str:
        return f"<{self.kind} credential {self.id!r} of {self.provider}>"


class Credentials:
    """The credentials of one agent, best first; remembers which were rejected."""

    def __init__(
        self,
        config: Config,
        env: Mapping[str, str],
        agent_dir: str,
        *,
        services: Mapping[str, Service] | None = None,
        post: Post | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`post` is used to renew OAuth tokens; without it, they expire."""
        self._config = config
        self._env = env
        self._services = load_services(config, env, agent_dir) if services is None else services
        self._profiles = Profiles(agent_dir)
        self._clock = clock
        self.post = post
        self.learn: Callable[[list[str]], None] = lambda _secrets: None
        """Called with every secret before it is used, so that it can be redacted."""
        self._uses: dict[str, Use] = {}
        """Statistics that are not in the file, or could not be saved there."""
        self._renewed: dict[str, StoredCredential] = {}
        self._problems: dict[str, str] = {}
        """Provider -> why its setting has no usable credential."""
        self._resolved_secrets: dict[SecretInput, tuple[float, str]] = {}
        self._only = ""

    def only(self, profile: str) -> Credentials:
        """These credentials, restricted to one."""
        made = copy.copy(self)
        made._only = profile
        return made

    def for_provider(self, provider: str) -> list[Credential]:
        """All credentials of a provider, in the order to try them.

        Those in cooldown come last. It does not block: secrets from files and commands are fetched
        by `ready`. Raises ConfigError.
        """
        service = self._service(provider)
        if service.settings.auth == "aws-sdk":
            problem = "AWS credentials are not supported yet"
            raise fault(problem, service.at("auth"), "Use api-key")
        found: dict[str, Credential] = {}
        for credential in self._all(service):
            found.setdefault(credential.secret or credential.id, credential)
        now = self._now_ms()
        ordered = sorted(
            found.values(), key=lambda each: max(self._use(each.id).blocked_until, now)
        )
        if self._only:
            return [each for each in ordered if each.id == self._only]
        if not ordered and self._needs_none(service):
            return [Credential("none", "none", "", service.id)]
        return ordered

    def has(self, provider: str) -> bool:
        """Whether there is a credential, valid or not."""
        try:
            return bool(self.for_provider(provider))
        except ConfigError:
            return False

    def missing(self, provider: str) -> ModelError:
        """The error for a provider without credentials."""
        service = self._service(provider)
        problem, text = self._problems.get(service.id), service.settings.api_key
        if self._only:
            problem = f"it has no profile {self._only!r}"
        if not problem:
            name = named_variable(text, self._env) if isinstance(text, str) else None
            names = [name] if name else service.known.env if service.known else ()
            problem = f"set {' or '.join([*names, service.at('apiKey')])}"
            if (service.settings.base_url or "").lower().startswith("http://"):
                private = service.at("request", "allowPrivateNetwork")
                problem += f", or {private} to true for a server in your network that needs no key"
        return ModelError("auth", f"no credential for {service.id}: {problem}")

    def _service(self, provider: str) -> Service:
        name = normalize_provider(provider)
        known = PROVIDERS.get(name)
        return self._services.get(name) or Service(name, known, key=f"models.providers.{name}")

    def _all(self, service: Service) -> Iterator[Credential]:
        auth = service.settings.request.auth
        if auth and auth.mode != "provider-default":
            key = "token" if auth.mode == "authorization-bearer" else "value"
            yield from self._from_setting(service, getattr(auth, key), f"request.auth.{key}")
            return
        for profile in self._stored(service.id):
            secret, ref = profile.secret, None
            if isinstance(secret, SecretRef):
                secret, ref = "", secret
            elif profile.kind == "oauth" and not profile.is_fresh(self._now_ms()):
                secret = ""
            yield Credential(profile.id, profile.kind, secret, profile.provider, ref, profile)
        for name in service.known.env if service.known else ():
            if secret := self._env.get(name, "").strip():
                yield Credential(f"env:{name}", "api-key", secret, service.id)
        yield from self._from_setting(service, service.settings.api_key, "apiKey")

    def _stored(self, provider: str) -> list[StoredCredential]:
        """Stored credentials in the configured order, else by kind and last use."""
        mine = {
            name: self._renewed.get(name, profile)
            for name, profile in self._profiles.read().profiles.items()
            if profile.provider == provider
        }
        for name, order in self._config.auth.order.items():
            if normalize_provider(name) == provider:
                return [mine[each] for each in order if each in mine]
        return sorted(
            mine.values(), key=lambda each: (_RANK[each.kind], self._use(each.id).last_used)
        )

    def _from_setting(
        self, service: Service, value: SecretInput | None, key: str
    ) -> Iterator[Credential]:
        if not value:
            return
        kind: Kind = "token" if service.settings.auth in ("token", "oauth") else "api-key"
        if isinstance(value, str) and (name := named_variable(value, self._env)):
            value = SecretRef(source="env", id=name)
            if not self._env.get(name):
                return
        if isinstance(value, SecretRef) and value.source != "env":
            yield Credential(service.at(key), kind, "", service.id, value)
            return
        from clawkit.config.secrets import resolve

        try:
            secret = resolve(value, self._config, self._env).strip()
        except SecretError as error:
            self._problems[service.id] = f"{service.at(key)}: {error}"
            return
        self._problems.pop(service.id, None)
        yield Credential(service.at(key), kind, secret, service.id)

    def _needs_none(self, service: Service) -> bool:
        """Whether no credential is needed: for local servers, or with one in the headers."""
        settings = service.settings
        if any(map(is_secret_name, [*settings.headers, *settings.request.headers])):
            return True
        if not settings.base_url:
            return service.known is not None and service.known.is_local
        try:
            at_home = read_address(settings.base_url, service.at("baseUrl")).is_loopback
        except ConfigError:
            return False
        return at_home or settings.request.allow_private_network is True

    async def ready(self, credential: Credential) -> Credential:
        """The credential with its secret, renewed if necessary. Raises ModelError."""
        found = await self._ready(credential)
        self.learn([found.secret])
        return found

    async def _ready(self, credential: Credential) -> Credential:
        if credential.ref is not None:
            return replace(credential, secret=await self._fetch(credential, credential.ref))
        if credential.profile is None:
            return credential
        profile = self._renewed.get(credential.id, credential.profile)
        now = self._now_ms()
        if profile.kind == "oauth" and not profile.is_fresh(now):
            profile = await renew(profile, self._profiles, self.post, now)
            self._renewed[profile.id] = profile
            self.learn([profile.refresh])
        elif profile.kind == "token" and 0 < profile.expires <= now:
            problem = f"{profile.provider} (profile {profile.id}): the token has expired"
            raise ModelError("auth", f"{problem}; sign in again")
        return replace(credential, secret=str(profile.secret))

    async def _fetch(self, credential: Credential, ref: SecretInput) -> str:
        kept_until, secret = self._resolved_secrets.get(ref, (0.0, ""))
        if self._clock() < kept_until:
            return secret
        from clawkit.config.secrets import resolve

        try:
            secret = (await asyncio.to_thread(resolve, ref, self._config, self._env)).strip()
        except SecretError as error:
            raise ModelError("auth", f"{credential.provider} ({credential.id}): {error}") from error
        self._resolved_secrets[ref] = (self._clock() + _KEEP_S, secret)
        return secret

    def cooldown_s(self, credential: Credential) -> float:
        """Seconds until a rejected credential should be retried; 0 for immediately."""
        return max(0, self._use(credential.id).blocked_until - self._now_ms()) / 1000

    def mark_used(self, credential: Credential) -> None:
        """Record success and clear earlier failures."""
        before = self._use(credential.id)
        now = self._now_ms()
        has_failed = before.error_count or before.billing_errors or before.blocked_until
        if has_failed or now - before.last_used >= _NOTE_EVERY_MS:
            counts = before.failure_counts | {"billing": 0}
            self._note(credential, Use(last_used=now, failure_counts=counts))

    def mark_failed(self, credential: Credential, kind: ErrorKind) -> None:
        """Start a cooldown, longer each time. Kinds that are not the credential's fault are
        ignored."""
        if kind not in PER_CREDENTIAL:
            return
        if kind == "auth" and credential.ref is not None:
            self._resolved_secrets.pop(credential.ref, None)
        now = self._now_ms()
        use = self._use(credential.id)
        if use.blocked_until > now:
            return  # concurrent requests count once
        if now - use.last_failure_at > _FORGET_MS:
            use = replace(use, error_count=0, failure_counts=use.failure_counts | {"billing": 0})
        use = replace(use, error_count=use.error_count + 1, last_failure_at=now)
        if kind == "billing":
            rest_s = min(_BILLING_S * 2 ** min(use.billing_errors, 16), _BILLING_MOST_S)
            counts = use.failure_counts | {"billing": use.billing_errors + 1}
            use = replace(use, failure_counts=counts, disabled_until=now + rest_s * 1000)
        else:
            rest_s = _COOLDOWN_S[min(use.error_count, len(_COOLDOWN_S)) - 1]
            use = replace(use, cooldown_until=now + rest_s * 1000)
        self._note(credential, use)

    def _note(self, credential: Credential, use: Use) -> None:
        self._uses[credential.id] = use
        try:
            if credential.id not in self._profiles.read().profiles:
                return
            self._profiles.note_use(credential.id, use)
        except (OSError, ConfigError) as error:
            log.warning("could not save the use of %s: %s", credential.id, error)
        else:
            del self._uses[credential.id]

    def _use(self, name: str) -> Use:
        try:
            return self._uses.get(name) or self._profiles.read().use.get(name, Use())
        except ConfigError:
            return Use()

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)
