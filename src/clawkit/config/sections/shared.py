"""Types that several sections use, and how providers are reached over HTTP."""

from collections.abc import Iterable
from typing import Any, Literal

from clawkit.config.section import Conflict, Name, Positive, SecretInput, Section

Headers = dict[str, SecretInput]
People = list[str | int]
"""Senders or peers as their channel writes them: names, addresses, numeric ids."""
Thinking = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]


class ModelChoice(Section):
    """A model and what to use when it fails."""

    primary: Name | None = None  #: Model to use first, `provider/model` or an alias.
    fallbacks: list[str] = []  #: Models to try in this order when the first one fails.
    timeout_ms: Positive | None = None  #: Longest time for one request, in milliseconds.


ModelInput = Name | ModelChoice
"""`provider/model`, an alias, or an object with fallbacks."""


class SsrfPolicy(Section):
    """Which addresses may be reached; private networks are closed unless opened here."""

    dangerously_allow_private_network: bool = False
    """Allow private, loopback and link-local addresses."""
    allow_rfc2544_benchmark_range: bool = False  #: Allow 198.18.0.0/15, a range for benchmarks.
    allow_ipv6_unique_local_range: bool = False  #: Allow fc00::/7, private addresses of IPv6.
    allowed_hostnames: list[str] = []  #: Host names that may resolve to private addresses.
    hostname_allowlist: list[str] = []  #: Only these hosts, if any; `*.example.com` for subdomains.
    blocked_hostnames: list[str] = []  #: Host names that are always refused.


class ScopeMatch(Section):
    """Which conversations a rule is about; everything given must fit."""

    channel: str | None = None  #: Channel id, for example `telegram`.
    chat_type: Literal["direct", "dm", "group", "channel", "thread"] | None = None
    """Kind of conversation."""
    key_prefix: str | None = None  #: Start of the normalised session key.
    raw_key_prefix: str | None = None  #: Start of the full session key.


class ScopeRule(Section):
    """One rule of a scope; the first that fits decides."""

    action: Literal["allow", "deny"]  #: Whether a match allows or denies.
    match: ScopeMatch = ScopeMatch()  #: Which conversations the rule is about; empty means all.


class Scope(Section):
    """Where something is done and where not."""

    default: Literal["allow", "deny"] = "allow"  #: What holds when no rule fits.
    rules: list[ScopeRule] = []  #: Rules in order; the first that fits decides.


class RequestAuth(Section):
    """How the credential is sent."""

    mode: Literal["provider-default", "authorization-bearer", "header"] = "provider-default"
    """The provider's own way, `Authorization: Bearer`, or a header of your choice."""
    token: SecretInput | None = None  #: Credential for `authorization-bearer`.
    header_name: str | None = None  #: Header for mode `header`.
    value: SecretInput | None = None  #: Credential for mode `header`.
    prefix: str | None = None  #: Text before the credential in mode `header`.

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        mode = raw.get("mode")
        needed = {"authorization-bearer": ("token",), "header": ("headerName", "value")}
        for key in needed.get(str(mode), ()):
            if raw.get(key) is None:
                yield key, f"missing although mode is {mode!r}", f"Set {key} or change mode"


class Tls(Section):
    """TLS settings of one connection; certificates are given as PEM text or secrets."""

    ca: SecretInput | None = None  #: Certificates to trust instead of the system's.
    cert: SecretInput | None = None  #: Client certificate.
    key: SecretInput | None = None  #: Private key of the client certificate.
    passphrase: SecretInput | None = None  #: Passphrase of the private key.
    server_name: str | None = None  #: Name to expect in the certificate.
    insecure_skip_verify: bool = False  #: Accept any certificate; only for local tests.


class RequestProxy(Section):
    """The HTTP proxy of a provider."""

    mode: Literal["env-proxy", "explicit-proxy"]  #: From HTTP_PROXY and HTTPS_PROXY, or `url`.
    url: str | None = None  #: Address of the proxy for mode `explicit-proxy`.
    tls: Tls | None = None  #: TLS settings towards the proxy.

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        if raw["mode"] == "explicit-proxy" and not raw.get("url"):
            yield "url", "missing although mode is 'explicit-proxy'", "Set url or change mode"


class Request(Section):
    """Transport settings of a provider's requests."""

    headers: Headers = {}  #: Extra headers; values may be secret references.
    auth: RequestAuth | None = None
    proxy: RequestProxy | None = None  #: HTTP proxy for these requests.
    tls: Tls | None = None  #: TLS settings for direct connections.
    allow_private_network: bool | None = None
    """Allow addresses in private networks; unset allows this machine only, false not even that."""
