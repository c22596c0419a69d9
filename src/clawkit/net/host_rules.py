"""Which hosts a sandbox with the network policy `allowlist` may reach: pure decisions.

An entry is a host name, `*.` and a domain, or an address, each with an optional `:port`; without it
the entry matches the ports 80 and 443. `*.example.org` matches every name below example.org at any
depth, but not example.org itself. IPv6 addresses are written in brackets.

A wildcard entry also lets data out through DNS: the domain's name server sees every name that is
looked up. Names that are not allowed are never looked up.

`read_hello` finds the server name in the first bytes of a TLS connection. Checking it against the
allowed host has limits: the client may omit it; with an encrypted hello it is the outer name, and
the real one is hidden; the `Host` header inside is not visible, so a server of many sites can still
be asked for another one; and a connection that switches to TLS later (STARTTLS) is not inspected.
It ensures that honest clients and the allowlist mean the same host, and that domain fronting needs
the server's cooperation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

from clawkit.errors import ToolError
from clawkit.net.addresses import Address, Kind, kind_of, kind_of_name, parse_host
from clawkit.net.route import NetError

Rules: TypeAlias = "frozenset[tuple[str | Address, int]]"
"""Pairs of a name, `*.` and a domain, or an address, and a port. Made by `make_rules`."""

DEFAULT_PORTS = (80, 443)
_PACKAGES = {
    "pip, uv": ("pypi.org", "files.pythonhosted.org"),
    "npm, pnpm, yarn": ("registry.npmjs.org", "registry.yarnpkg.com", "repo.yarnpkg.com"),
    "node-gyp": ("nodejs.org",),
    "cargo": ("index.crates.io", "static.crates.io", "crates.io"),
    "go": ("proxy.golang.org", "sum.golang.org"),
    "apt, Debian": ("deb.debian.org", "security.debian.org"),
    "apt, Ubuntu": ("archive.ubuntu.com", "security.ubuntu.com", "ports.ubuntu.com"),
    "apt, mirrors of Ubuntu": ("*.archive.ubuntu.com",),
}
PRESET = "packages"
"""The name of `PACKAGES` in lists of hosts."""
PACKAGES = tuple(host for hosts in _PACKAGES.values() for host in hosts)
"""Hosts that package managers download from. Some also accept uploads, with credentials."""

_LABEL = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_NAME = rf"{_LABEL}(?:\.{_LABEL})*"
_ENTRY = r"(\*\.)?(\[[^\[\]]*\]|[^:\[\]]*)(?::([0-9]{1,5}))?"


class Host(NamedTuple):
    """A normalized host."""

    name: str
    """Lower case, ASCII, without trailing dot; an address without brackets."""
    address: Address | None
    """The host, if it is an address in any notation."""


class Verdict(NamedTuple):
    action: Literal["allow", "ask", "deny"]
    host: Host
    reason: str = ""
    """Why it is denied, or needs approval."""


def make_rules(allow: Iterable[str], allow_private: Iterable[str] = ()) -> Rules:
    """Parse entries. Raises `ToolError` for an invalid one, or one without effect.

    `allow_private` are addresses that are not public (private networks, this machine and the like),
    each with an optional port. It allows these addresses, and allowed names that resolve to them.
    """
    public = (_parse_entry(entry, is_private=False) for entry in allow)
    private = (_parse_entry(entry, is_private=True) for entry in allow_private)
    return frozenset().union(*public, *private)


def check_host(entry: str, *, is_private: bool = False) -> str:
    """The error in an entry; empty if it is valid, like `packages`."""
    try:
        if entry != PRESET or is_private:
            _parse_entry(entry, is_private=is_private)
    except ToolError as error:
        return str(error)
    return ""


def judge(host: str, port: int, rules: Rules) -> Verdict:
    """Whether a client may connect to a host, as it wrote it. An invalid host is denied."""
    try:
        found = read_host(host)
    except ValueError as error:
        # Escaped, because it is shown to people and models.
        return Verdict("deny", Host(ascii(host[:100]), None), str(error))
    if not 0 < port < 65536:
        return Verdict("deny", found, "ports are 1 to 65535")
    labels = found.name.split(".")
    keys = [found.name, *("*." + ".".join(labels[at:]) for at in range(1, len(labels)))]
    if not rules.isdisjoint((key, port) for key in ([found.address] if found.address else keys)):
        return Verdict("allow", found)
    kind = kind_of(found.address) if found.address else kind_of_name(found.name)
    if kind == "public":
        return Verdict("deny", found, "an address must be on the allowlist itself")
    if kind is not None:
        return Verdict("deny", found, _special(kind))
    return Verdict("ask", found, "this host and port are not on the allowlist")


def judge_addresses(resolved: Iterable[str], port: int, rules: Rules) -> tuple[list[Address], str]:
    """The addresses of an allowed name, or why it is refused. One address that is not public is
    enough: it may be an attack (DNS rebinding), and the next lookup may return that one first."""
    addresses: dict[Address, None] = {}
    for text in resolved:
        try:
            _, address = parse_host(f"[{text}]" if ":" in text else text)
        except NetError:
            address = None
        if address is None:
            return [], "the answer of its name server is invalid"
        kind = kind_of(address)
        if kind != "public" and (address, port) not in rules:
            return [], f"it has the address {address}, {_special(kind)}"
        addresses[address] = None
    return list(addresses), ""


def read_host(text: str) -> Host:
    """Normalize a host. Raises `ValueError` if it is neither a name nor an address."""
    if text.startswith("[") != text.endswith("]"):
        raise ValueError("the brackets of its address do not match")
    try:
        host = Host(*parse_host(f"[{text}]" if ":" in text and text[0] != "[" else text))
    except NetError as error:
        raise ValueError(str(error).partition(": ")[2]) from None
    if host.address is None and not re.fullmatch(_NAME, host.name):
        raise ValueError("host names consist of letters, digits, hyphens and dots")
    return host


def _parse_entry(entry: str, *, is_private: bool) -> set[tuple[str | Address, int]]:
    try:
        match = re.fullmatch(_ENTRY, entry)
        if match is None:
            raise ValueError("invalid syntax")
        name, address = read_host(match[2])
        is_public = address is None or kind_of(address) == "public"
        if is_public == is_private:
            raise ValueError(
                "addresses that are not public, and only those, belong in sandbox.allowPrivate"
            )
        if match[1] and (address is not None or "." not in name):
            raise ValueError("a wildcard needs a domain of at least two parts")
        ports = (int(match[3]),) if match[3] else DEFAULT_PORTS
        if not all(0 < port < 65536 for port in ports):
            raise ValueError("ports are 1 to 65535")
    except ValueError as error:
        raise ToolError(
            f"invalid host {entry!r}: {error}; write a host name, "
            "*.domain.name or an address, with :port for other ports than 80 and 443"
        ) from None
    return {(address or (match[1] or "") + name, port) for port in ports}


def _special(kind: Kind) -> str:
    return f"a {kind} address, which only an entry in sandbox.allowPrivate allows"


MAX_HELLO = 16 * 1024
"""Maximum size of a hello in bytes; those of browsers have about 2 KiB."""
_MAX_RECORDS = 64


class Hello(NamedTuple):
    state: Literal["incomplete", "other", "tls"]
    """`other` is anything but TLS."""
    name: str = ""
    """The server name as the client wrote it; empty if there is none."""


def read_hello(data: bytes) -> Hello:
    """Parse the first bytes of a client. Raises `ValueError` for TLS without a valid hello."""
    message, start = b"", 0
    for count in range(_MAX_RECORDS):
        kind, version, length = (data[start + at : start + at + size] for at, size in _RECORD)
        if kind not in (b"", b"\x16") or version not in (b"", b"\x03"):
            if count == 0:
                return Hello("other")
            raise ValueError("a TLS hello with other records in between")
        end = start + 5 + int.from_bytes(length, "big")
        message += data[start + 5 : end]
        if message[:1] not in (b"", b"\x01") or (len(length) == 2 and end == start + 5):
            raise ValueError("TLS that does not start with a hello")
        size = 4 + int.from_bytes(message[1:4], "big")
        if len(message) >= max(4, size):
            return Hello("tls", _server_name(message[4:size]))
        if len(data) >= MAX_HELLO:
            break
        if len(length) < 2 or end > len(data):
            return Hello("incomplete")
        start = end
    raise ValueError("a TLS hello that is too long")


_RECORD = ((0, 1), (1, 1), (3, 2))
"""Offset and size of the type, the major version and the length of a record."""


def _server_name(hello: bytes) -> str:
    rest = hello[34:]
    for width in (1, 2, 1):  # session, ciphers, compression
        _, rest = _take(rest, width)
    extensions, rest = _take(rest, 2) if rest else (b"", b"")
    name = b""
    while extensions:
        kind = extensions[:2]
        value, extensions = _take(extensions[2:], 2)
        if kind == b"\0\0":
            names, after = _take(value, 2)
            host, more = _take(names[1:], 2)
            if name or after or more or not host or names[0] != 0:
                raise ValueError("a TLS hello whose server name is ambiguous")
            name = host
    if rest:
        raise ValueError("a TLS hello with bytes after its end")
    return name.decode("latin-1")


def _take(data: bytes, width: int) -> tuple[bytes, bytes]:
    """A length-prefixed value, and the rest."""
    end = width + int.from_bytes(data[:width], "big")
    if len(data) < max(width, end):
        raise ValueError("a truncated TLS hello")
    return data[width:end], data[end:]
