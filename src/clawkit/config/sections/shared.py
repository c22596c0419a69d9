"""Types that several sections use, and settings of HTTP requests."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from clawkit.config.section import Conflict, Name, Positive, SecretInput, Section

Headers = dict[str, SecretInput]
People = list[str | int]
"""Senders or peers in the notation of their channel: names, addresses, numeric ids."""
Thinking = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]
_HOST = r"[^\s/:@?#\[\]]+|\[?[0-9A-Fa-f:.*]*:[0-9A-Fa-f:.*]*:[0-9A-Fa-f:.*]*\]?"
"""A name or an address, without scheme, port and path; an address of IPv6 has colons."""


def relative_paths(raw: dict[str, Any], key: str) -> Iterator[Conflict]:
    """The conflicts of a list of paths."""
    for number, path in enumerate(raw.get(key) or ()):
        if not path.startswith(("/", "~/")):
            hint = "Write the whole path: what is in the current directory is not trusted"
            yield (key, number), f"{path!r} is not an absolute path", hint


class Switch(Section):
    enabled: bool = True  #: Turn it on or off.


QueueMode = Literal["steer", "followup", "collect", "interrupt"]


class Queue(Section):
    """Messages that arrive while the agent works."""

    mode: QueueMode = "steer"
    """Before the next answer, in separate turns, all in one turn, or by interrupting the turn."""
    by_channel: dict[str, QueueMode] = {}  #: Modes by channel.
    cap: Positive = 20  #: Maximum messages waiting in a session.


class ModelChoice(Section):
    """A model and its fallbacks."""

    primary: Name | None = None  #: Model to use first, `provider/model` or an alias.
    fallbacks: list[str] = []  #: Models to try, in this order, if the first one fails.
    timeout_ms: Positive | None = None  #: Timeout of one request, in milliseconds.


ModelInput = Name | ModelChoice
"""`provider/model`, an alias, or an object with fallbacks."""


class SsrfPolicy(Section):
    dangerously_allow_private_network: bool = False  #: Allow private and local addresses.
    allow_rfc2544_benchmark_range: bool = False  #: Allow 198.18.0.0/15, a range for benchmarks.
    allow_ipv6_unique_local_range: bool = False  #: Allow fc00::/7, private addresses of IPv6.
    allowed_hostnames: list[str] = []  #: Host names that may resolve to private addresses.
    hostname_allowlist: list[str] = []  #: Only these hosts, if any; `*.example.com` for subdomains.
    blocked_hostnames: list[str] = []  #: Host names that are always refused.

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        for key in ("allowedHostnames", "hostnameAllowlist", "blockedHostnames"):
            for number, host in enumerate(raw.get(key) or ()):
                # Anything else would match nothing, and so block nothing.
                if not re.fullmatch(_HOST, host.strip()):
                    hint = "Write only the name or address, such as example.com, *.example.com, ::1"
                    yield (key, number), f"invalid host {host!r}", hint


class ScopeMatch(Section):
    channel: str | None = None  #: Channel id, for example `telegram`.
    chat_type: Literal["direct", "dm", "group", "channel", "thread"] | None = None  #: Kind of chat.
    key_prefix: str | None = None  #: Start of the normalized session key.
    raw_key_prefix: str | None = None  #: Start of the full session key.


class ScopeRule(Section):
    action: Literal["allow", "deny"]  #: Whether a match allows or denies.
    match: ScopeMatch = ScopeMatch()  #: Which conversations the rule applies to; empty means all.


class ScopeSettings(Section):
    default: Literal["allow", "deny"] = "allow"  #: What applies when no rule matches.
    rules: list[ScopeRule] = []  #: Rules in order; the first match decides.


class RequestAuth(Section):
    NEEDED = {
        "token": ("mode", "authorization-bearer"),
        "headerName": ("mode", "header"),
        "value": ("mode", "header"),
    }

    mode: Literal["provider-default", "authorization-bearer", "header"] = "provider-default"
    """The provider's default, `Authorization: Bearer`, or a header of your choice."""
    token: SecretInput | None = None  #: Credential for `authorization-bearer`.
    header_name: str | None = None  #: Header for mode `header`.
    value: SecretInput | None = None  #: Credential for mode `header`.
    prefix: str | None = None  #: Text before the credential in mode `header`.


class TlsSettings(Section):
    ca: SecretInput | None = None  #: Certificates to trust instead of the system's.
    cert: SecretInput | None = None  #: Client certificate.
    key: SecretInput | None = None  #: Private key of the client certificate.
    passphrase: SecretInput | None = None  #: Passphrase of the private key.
    server_name: str | None = None  #: Name to expect in the certificate.
    insecure_skip_verify: bool = False  #: Accept any certificate; only for local tests.


class RequestProxy(Section):
    """The HTTP proxy of a provider."""

    NEEDED = {"url": ("mode", "explicit-proxy")}

    mode: Literal["env-proxy", "explicit-proxy"]  #: From HTTP_PROXY and HTTPS_PROXY, or `url`.
    url: str | None = None  #: Address of the proxy for mode `explicit-proxy`.
    tls: TlsSettings | None = None  #: TLS settings for the proxy itself.


class RequestSettings(Section):
    """Transport settings of a provider's requests."""

    headers: Headers = {}  #: Extra headers; values may be secret references.
    auth: RequestAuth | None = None  #: How the credential is sent.
    proxy: RequestProxy | None = None  #: HTTP proxy for these requests.
    tls: TlsSettings | None = None  #: TLS settings for direct connections.
    allow_private_network: bool | None = None
    """Allow private networks; unset allows only this machine, false not even that."""
