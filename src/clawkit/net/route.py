"""Settings of a connection, and its errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

import msgspec

from clawkit.errors import ClawkitError

NetErrorKind = Literal[
    "refused",  # clawkit refuses to connect there, or to send that
    "dns",  # the name has no address
    "connect",  # no answer from the address or the resolver, or the proxy refuses
    "absent",  # nothing listens at an address of this machine
    "tls",  # the TLS handshake or the certificate check failed
    "timeout",
    "protocol",  # the answer is not valid HTTP
    "closed",  # the connection was closed before the answer was complete
]
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The IP addresses of a host name and port, best first. Raises `OSError` if there are none."""


class NetError(ClawkitError):
    """A request failed. The message is one line, without credentials and without the URL's path."""

    exit_code = 1

    def __init__(self, kind: NetErrorKind, message: str) -> None:
        self.kind: NetErrorKind = kind
        super().__init__(message)


class Timeouts(msgspec.Struct, frozen=True):
    """How long the parts of a request may take, in seconds."""

    timeout_s: float
    """The whole request, including the body of the answer."""
    connect_s: float
    idle_s: float | None
    """Maximum silence, before the answer and between two pieces of its body."""
    until: float
    """Deadline of the whole request, in the loop's time."""


class Tls(msgspec.Struct, frozen=True):
    """Trusted certificates, and our own. Certificates and keys are PEM text."""

    ca: str = ""
    """Certificates to trust instead of the system's."""
    cert: str = ""
    key: str = ""
    """Key of `cert`; empty if `cert` contains it."""
    passphrase: str = ""
    server_name: str = ""
    """Name to request and to verify, if it is not the host."""
    insecure: bool = False
    """Accept any certificate."""

    def __repr__(self) -> str:
        return f"Tls(server_name={self.server_name!r}, insecure={self.insecure})"


_SYSTEM_TRUST = Tls()


class Proxy(msgspec.Struct, frozen=True):
    """An HTTP proxy: `http://user:password@host:port`, or `https`."""

    url: str
    tls: Tls = _SYSTEM_TRUST

    def __repr__(self) -> str:
        return f"Proxy(tls={self.tls})"


class Route(msgspec.Struct, frozen=True):
    """How to reach a service: allowed addresses, TLS and proxy."""

    loopback: bool = True
    """Whether this machine may be connected to."""
    private: bool = False
    """Whether private networks may be connected to."""
    tls: Tls = _SYSTEM_TRUST
    proxy: Proxy | None = None


DIRECT = Route()
