"""A request as it goes out: checked, and what is left of it after a redirect."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from urllib.parse import urljoin

from clawkit.net.addresses import Target, parse_proxy, parse_url
from clawkit.net.http1 import Line
from clawkit.net.route import NetError, Route

_METHOD = re.compile(r"[A-Z]{3,20}", re.ASCII)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
# They say how a message is carried, which is not for the caller to decide.
_OURS = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
# All that another origin gets to see; everything else may be a credential.
_HARMLESS = frozenset(
    {
        "accept",
        "accept-encoding",
        "accept-language",
        "cache-control",
        "content-type",
        "range",
        "user-agent",
    }
)
_HAVE_BODY = frozenset({"PATCH", "POST", "PUT"})


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request to one target."""

    method: str
    target: Target = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)

    @classmethod
    def of(cls, method: str, url: str, headers: Mapping[str, str], body: bytes) -> HttpRequest:
        """Raises `NetError` for what cannot be sent as it is."""
        if not _METHOD.fullmatch(method) or method in ("CONNECT", "TRACE"):
            raise NetError("refused", "clawkit does not send requests with this method")
        return cls(method, parse_url(url), headers, body)

    def path(self, route: Route) -> str:
        """What the request line names: through a proxy without a tunnel, the whole URL."""
        if route.proxy is None or self.target.scheme == "https":
            return self.target.path
        return f"http://{self.target.authority}{self.target.path}"

    def lines(self, route: Route) -> list[Line]:
        """All headers, as they are sent. Raises `NetError` for those that must not be."""
        lines = [(b"Host", self.target.authority.encode("ascii"))]
        seen = set()
        for name, value in self.headers.items():
            key, sent = _name(name)
            if key in seen:
                raise _bad(name, "is given twice")
            seen.add(key)
            lines.append((sent, _value(name, value)))
        if "accept-encoding" not in seen:
            lines.append((b"Accept-Encoding", b"identity"))
        if self.body or self.method in _HAVE_BODY:
            lines.append((b"Content-Length", b"%d" % len(self.body)))
        if route.proxy is not None and self.target.scheme == "http":
            _, credentials = parse_proxy(route.proxy.url)
            if credentials:
                lines.append((b"Proxy-Authorization", credentials.encode("ascii")))
        return lines

    def redirected(self, status: int, location: str) -> HttpRequest:
        """The request for where a redirect points to, without credentials on another origin."""
        try:
            target = parse_url(urljoin(self.url, location))
        except (NetError, ValueError):
            problem = f"{self.target.place} redirects to a URL that clawkit does not use"
            raise NetError("refused", problem) from None
        if self.target.scheme == "https" and target.scheme == "http":
            problem = f"{self.target.place} redirects from https to plain http on {target.host}"
            raise NetError("refused", problem)
        request = replace(self, target=target)
        if target.origin != self.target.origin:
            request = request._with_headers(lambda name: name in _HARMLESS)
        is_form = status in (301, 302) and self.method == "POST"
        if is_form or (status == 303 and self.method not in ("GET", "HEAD")):
            request = replace(request, method="GET", body=b"")
            request = request._with_headers(lambda name: not name.startswith("content-"))
        return request

    @property
    def url(self) -> str:
        return f"{self.target.scheme}://{self.target.authority}{self.target.path}"

    def _with_headers(self, keep: Callable[[str], bool]) -> HttpRequest:
        headers = {name: value for name, value in self.headers.items() if keep(name.lower())}
        return replace(self, headers=headers)


@lru_cache(maxsize=256)
def _name(name: str) -> tuple[str, bytes]:
    """A header's name to compare by, and as it is sent."""
    if not _HEADER_NAME.fullmatch(name):
        raise NetError("refused", "a header has a name that cannot be sent")
    if name.lower() in _OURS:
        raise _bad(name, "is set by clawkit itself")
    return name.lower(), name.encode("ascii")


def _value(name: str, value: str) -> bytes:
    if not (value.isascii() and value.isprintable()):
        if _CONTROL.search(value):
            raise _bad(name, "has a line break or another control character in its value")
        if max(value) > "\xff":
            raise _bad(name, "has characters in its value that HTTP cannot carry")
    return value.strip(" \t").encode("latin-1")


def _bad(name: str, problem: str) -> NetError:
    # Never the value: it may be a credential.
    return NetError("refused", f"the header {name} {problem}")
