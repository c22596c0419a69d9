"""Small types that several sections use."""

from typing import Literal

from clawkit.config.section import Name, Positive, SecretInput, Section

Headers = dict[str, SecretInput]
People = list[str | int]
"""Senders or peers as their channel writes them: names, addresses, numeric ids."""
Thinking = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]


class ModelChoice(Section):
    """A model and what to use when it fails."""

    primary: Name | None = None
    """Model to use first, `provider/model` or an alias."""
    fallbacks: list[str] = []
    """Models to try in this order when the first one fails."""
    timeout_ms: Positive | None = None
    """Longest time for one request, in milliseconds."""


ModelInput = Name | ModelChoice
"""`provider/model`, an alias, or an object with fallbacks."""


class SsrfPolicy(Section):
    """Which addresses may be reached; private networks are closed unless opened here."""

    dangerously_allow_private_network: bool = False
    """Allow private, loopback and link-local addresses; default false."""
    allow_rfc2544_benchmark_range: bool = False
    """Allow 198.18.0.0/15, a range for benchmarks; default false."""
    allow_ipv6_unique_local_range: bool = False
    """Allow fc00::/7, private addresses of IPv6; default false."""
    allowed_hostnames: list[str] = []
    """Host names that may resolve to private addresses."""
    hostname_allowlist: list[str] = []
    """If not empty, only these hosts; `*.example.com` means its subdomains."""
    blocked_hostnames: list[str] = []
    """Host names that are always refused."""


class ScopeMatch(Section):
    """Which conversations a rule is about; everything given must fit."""

    channel: str | None = None
    """Channel id, for example `telegram`."""
    chat_type: Literal["direct", "dm", "group", "channel", "thread"] | None = None
    """Kind of conversation."""
    key_prefix: str | None = None
    """Start of the normalised session key."""
    raw_key_prefix: str | None = None
    """Start of the full session key."""


class ScopeRule(Section):
    """One rule of a scope; the first that fits decides."""

    action: Literal["allow", "deny"]
    """Whether a match allows or denies."""
    match: ScopeMatch = ScopeMatch()
    """Which conversations the rule is about; empty means all."""


class Scope(Section):
    """Where something is done and where not."""

    default: Literal["allow", "deny"] = "allow"
    """What holds when no rule fits; default allow."""
    rules: list[ScopeRule] = []
    """Rules in order; the first that fits decides."""
