"""HTTP proxies: which one the environment names, and what their URLs say."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import unquote_to_bytes

from clawkit.net.addresses import Target, is_exempt, kind_of, kind_of_name, parse_url
from clawkit.net.base import NetError, Proxy

_PROXY = re.compile(r"(https?://)(?:([^/?#]*)@)?([^/?#@]*)/?", re.IGNORECASE | re.ASCII)


def env_proxy(url: str, env: Mapping[str, str]) -> Proxy | None:
    """The proxy that the environment names for a URL. This machine is reached without one."""
    target = parse_url(url)
    kind = kind_of(target.address) if target.address is not None else kind_of_name(target.host)
    if kind == "loopback" or is_exempt(target, _variable("no_proxy", env)):
        return None
    value = _variable(f"{target.scheme}_proxy", env) or _variable("all_proxy", env)
    if not value:
        return None
    return Proxy(value if "://" in value else f"http://{value}")


def _variable(name: str, env: Mapping[str, str]) -> str:
    if value := env.get(name, "").strip():
        return value
    # A web server hands the request header `Proxy` to its scripts under this name.
    if name == "http_proxy" and "REQUEST_METHOD" in env:
        return ""
    return env.get(name.upper(), "").strip()


@lru_cache(maxsize=16)
def parse_proxy(url: str) -> tuple[Target, str]:
    """Where a proxy is, and the value of its `Proxy-Authorization` header, empty for none."""
    match = _PROXY.fullmatch(url)
    if match is None:
        raise NetError(
            "refused", "the proxy's URL is not http://[user:password@]host[:port], or https"
        )
    try:
        target = parse_url(match[1] + match[3])
    except NetError as error:
        problem = str(error).partition(": ")[2]
        raise NetError("refused", f"clawkit does not use this proxy's URL: {problem}") from None
    if match[2] is None:
        return target, ""
    user, _, password = match[2].encode("utf-8", "replace").partition(b":")
    pair = unquote_to_bytes(user) + b":" + unquote_to_bytes(password)
    return target, f"Basic {b64encode(pair).decode()}"
