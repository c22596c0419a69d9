"""Validates the address of a remote gateway. Imports almost nothing."""

from typing import NamedTuple

_LOOPBACK = ("localhost", "::1")


class GatewayAddress(NamedTuple):
    host: str
    port: int
    path: str
    is_tls: bool


def is_loopback(host: str) -> bool:
    """Whether a host is certainly this machine, regardless of the resolver."""
    if host in _LOOPBACK:
        return True
    parts = host.split(".")
    return len(parts) == 4 and parts[0] == "127" and all(each.isdigit() for each in parts)


def read_address(url: str) -> GatewayAddress:
    """Parse an address. Raises ValueError, including for unencrypted connections to other
    machines."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname
    except ValueError as error:
        raise ValueError(f"invalid gateway address: {error}") from None
    is_tls = parts.scheme == "wss"
    if parts.scheme not in ("ws", "wss") or not host or "@" in parts.netloc:
        raise ValueError("the address of a gateway must be ws://HOST:PORT or wss://HOST:PORT")
    if not is_tls and not is_loopback(host):
        raise ValueError(
            f"ws://{parts.netloc} is not encrypted: use wss://, or forward its port with: ssh -N "
            f"-L 18789:127.0.0.1:{port or 18789} {host}, and use ws://127.0.0.1:18789"
        )
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not path.isascii() or not path.isprintable() or " " in path:
        raise ValueError("the path of a gateway's address must be plain text")
    return GatewayAddress(host, port or (443 if is_tls else 18789), path, is_tls)
