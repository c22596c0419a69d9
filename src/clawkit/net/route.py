"""Settings of a connection, and its errors; which headers can be sent."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
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
    plain: bool = False
    """Whether public addresses may be connected to by plain http."""
    networks: tuple[str, ...] = ()
    """Private networks that are allowed as exceptions; see `RANGE_SETTINGS`."""
    policy: str = ""
    """The deciding setting, if others chose the address (see `UrlGuard`). Then one refused address
    of a name refuses the name, which may be an attack."""
    tls: Tls = _SYSTEM_TRUST
    proxy: Proxy | None = None


DIRECT = Route()
_OURS = frozenset(
    (
        *("connection", "content-length", "expect", "host", "keep-alive", "proxy-authorization"),
        *("proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"),
    )
)
"""Headers about the transport; a wrong one would allow request smuggling."""
_LISTS = frozenset({"anthropic-beta"})
"""Headers whose values are combined."""


def bad_name(name: str) -> str:
    """Why a header of this name cannot be sent; empty if it can."""
    if not re.fullmatch(r"[a-zA-Z0-9!#$%&'*+.^_`|~-]+", name):
        return f"invalid header name {name[:80]!a}"
    return f"the header {name} is set by clawkit itself" if name.lower() in _OURS else ""


def bad_value(value: str) -> str:
    """Why a text cannot be sent in a header; empty if it can. Never contains the text."""
    found = re.search(r"[^\t -~\x80-\xff]", value)
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
