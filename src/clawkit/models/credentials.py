"""The credentials of a provider, the order of their use, and their cooldowns."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Literal

import msgspec
from msgspec.structs import replace

from clawkit.config.model import Config
from clawkit.config.modelref import normalize_provider
from clawkit.config.secrets import resolve
from clawkit.config.section import SecretInput, SecretRef
from clawkit.config.sections.models import Provider
from clawkit.errors import ConfigError, SecretError
from clawkit.models.auth_profiles import Post, Profile, Profiles, Use, renew
from clawkit.models.known import PROVIDERS, fault, read_address
from clawkit.models.protocols import Endpoint, ErrorKind, ModelError
from clawkit.models.providers import Service, load_services, named_variable
from clawkit.redact.masking import is_secret_name, regex

Kind = Literal["oauth", "token", "api-key", "none"]

_RANK = {"oauth": 0, "token": 1, "api-key": 2}
_COOLDOWN_S = (30, 60, 300)
_BILLING_S, _BILLING_MOST_S = 600, 86_400
_FORGET_MS = 24 * 3600 * 1000
"""Older failures no longer count."""
_NOTE_EVERY_MS = 60_000
"""The use of a stored credential is saved at most this often."""
_KEEP_S = 300.0
"""How long a secret from a file or a command is cached."""
_OAUTH_BETA = "oauth-2025-04-20"
_OAUTH_START = "sk-ant-oat"

log = logging.getLogger(__name__)


class Credential(msgspec.Struct, frozen=True):
    """What a request is authenticated with. Its repr does not contain the secret."""

    id: str
    """`openai:default` for a stored one, `env:NAME`, or the path of the setting."""
    kind: Kind
    secret: str
    """Empty if none is needed, or if `Credentials.ready` has to fetch it first."""
    provider: str
    ref: SecretInput | None = None
    """Where to fetch the secret."""

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
        self._renewed: dict[str, Profile] = {}
        self._problems: dict[str, str] = {}
        """Provider -> why its setting gave no credential."""
        self._kept: dict[SecretInput, tuple[float, str]] = {}

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
        until = {each.id: self._use(each.id).blocked_until for each in found.values()}
        ordered = sorted(found.values(), key=lambda each: max(until[each.id], now))
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
            yield Credential(profile.id, profile.kind, secret, profile.provider, ref)
        for name in service.known.env if service.known else ():
            if secret := self._env.get(name, "").strip():
                yield Credential(f"env:{name}", "api-key", secret, service.id)
        yield from self._from_setting(service, service.settings.api_key, "apiKey")

    def _stored(self, provider: str) -> list[Profile]:
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
        try:
            profile = self._profiles.read().profiles.get(credential.id)
        except ConfigError as error:
            raise ModelError("auth", f"{credential.provider}: {error}") from error
        if profile is None or profile.provider != credential.provider:
            return credential
        profile = self._renewed.get(profile.id, profile)
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
        kept_until, secret = self._kept.get(ref, (0.0, ""))
        if self._clock() < kept_until:
            return secret
        from asyncio import to_thread

        try:
            secret = (await to_thread(resolve, ref, self._config, self._env)).strip()
        except SecretError as error:
            raise ModelError("auth", f"{credential.provider} ({credential.id}): {error}") from error
        self._kept[ref] = (self._clock() + _KEEP_S, secret)
        return secret

    def cooldown_s(self, credential: Credential) -> float:
        """Seconds until a rejected credential should be tried again; 0 for now."""
        return max(0, self._use(credential.id).blocked_until - self._now_ms()) / 1000

    def mark_used(self, credential: Credential) -> None:
        """Record success: earlier failures are forgotten."""
        before = self._use(credential.id)
        now = self._now_ms()
        has_failed = before.error_count or before.billing_errors or before.blocked_until
        if has_failed or now - before.last_used >= _NOTE_EVERY_MS:
            counts = before.failure_counts | {"billing": 0}
            self._note(credential, Use(last_used=now, failure_counts=counts))

    def mark_failed(self, credential: Credential, kind: ErrorKind) -> None:
        """Start a cooldown, longer each time. Kinds that are not the credential's fault are
        ignored."""
        if kind not in ("rate_limit", "auth", "billing"):
            return
        if kind == "auth" and credential.ref is not None:
            self._kept.pop(credential.ref, None)
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


def auth_headers(endpoint: Endpoint, settings: Provider, credential: Credential) -> dict[str, str]:
    """The headers for a credential. Raises ModelError if it cannot be sent."""
    secret = credential.secret
    if not secret:
        return {}
    if problem := bad_value(secret):
        where = f"the credential {credential.id} of {credential.provider}"
        raise ModelError("auth", f"{where} cannot be sent: {problem}; check its value")
    auth = settings.request.auth
    if auth and auth.mode == "header":
        name = auth.header_name or ""
        if problem := bad_name(name) or bad_value(auth.prefix or ""):
            raise ModelError("auth", f"request.auth of {credential.provider}: {problem}")
        return {name: f"{auth.prefix or ''}{secret}"}
    if auth and auth.mode == "authorization-bearer":
        return {"Authorization": f"Bearer {secret}"}
    is_anthropic = endpoint.api == "anthropic-messages"
    is_oauth = credential.kind == "oauth" or secret.startswith(_OAUTH_START)
    as_bearer = credential.kind in ("token", "oauth") or bool(settings.auth_header)
    if is_anthropic and not (as_bearer or is_oauth):
        return {"x-api-key": secret}
    if endpoint.api == "google-generative-ai" and not as_bearer:
        return {"x-goog-api-key": secret}
    beta = {"anthropic-beta": _OAUTH_BETA} if is_anthropic and is_oauth else {}
    return {"Authorization": f"Bearer {secret}"} | beta


_FRAMING = frozenset({"connection", "content-length", "host", "transfer-encoding"})
"""Headers that define the end of a request; a wrong one would allow request smuggling."""
_LISTS = frozenset({"anthropic-beta"})
"""Headers whose values are combined."""


def bad_name(name: str) -> str:
    """Why a name is invalid for a header; empty if it is valid."""
    if not regex(r"[a-zA-Z0-9!#$%&'*+.^_`|~-]+").fullmatch(name):
        return f"invalid header name {name[:80]!r}"
    return f"the header {name} cannot be configured" if name.lower() in _FRAMING else ""


def bad_value(value: str) -> str:
    """Why a text is invalid in a header; empty if it is valid. Never contains the text."""
    found = regex(r"[^\t -~\x80-\xff]").search(value)
    if found is None:
        return ""
    what = "a line break" if found[0] in "\r\n" else "a character that is invalid in headers"
    return f"it contains {what} at position {found.start() + 1}"


def join_headers(*sets: Mapping[str, str]) -> dict[str, str]:
    """Merge headers without regard to case: the last value wins, except that lists are combined."""
    found: dict[str, tuple[str, str]] = {}
    for headers in sets:
        for name, value in headers.items():
            lower = name.lower()
            if lower in _LISTS and lower in found:
                parts = [*found[lower][1].split(","), *value.split(",")]
                value = ",".join(dict.fromkeys(part.strip() for part in parts if part.strip()))
            found[lower] = (name, value)
    return dict(found.values())
