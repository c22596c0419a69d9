"""Which URLs, addresses and proxies are allowed: pure decisions."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Literal, TypeAlias
from urllib.parse import quote, unquote_to_bytes

import msgspec

from clawkit.globs import Glob
from clawkit.net.route import NetError, Proxy

# `ipaddress` is slow to import, so only if there is an address to check.
if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

Address: TypeAlias = "IPv4Address | IPv6Address"
Kind = Literal[
    "public",
    "loopback",
    "private",
    "link-local",
    "metadata",  # gives the credentials of a cloud machine to any process on it
    "unspecified",
    "multicast",
    "documentation",
    "reserved",
]

MAX_URL = 32 * 1024
SETTING = "request.allowPrivateNetwork"
RANGE_SETTINGS = {
    "198.18.0.0/15": "allowRfc2544BenchmarkRange",
    "fc00::/7": "allowIpv6UniqueLocalRange",
}
"""Private networks that proxies use for all names, and the settings of a policy that allow them."""
DEFAULT_PORTS = {"http": 80, "https": 443}

_URL = r"(?ai)(https?)://([^/?#]*)([^?#]*)(\?[^#]*)?(?:#.*)?"
_AUTHORITY = r"(\[[^\[\]]*\]|[^:\[\]]+)(?::([0-9]{0,5}))?"
# Other parsers drop blanks and control characters, end the URL there, or treat `\` as `/`.
_TROUBLE = r"[\x00-\x20\x7f\\]"
# What browsers escape.
_IN_PATH = r"[^\x00-\x7f]+|[\"<>^`{}]"
_IN_QUERY = r"[^\x00-\x7f]+|[\"'<>]"
_DOT_PART = r"(?:\.|%2[eE]){1,2}"
_DOTS = rf"/{_DOT_PART}(?:/|\Z)"
_NAME = r"[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*"
_LIKE_NUMBER = r"0x[0-9a-f]*|[0-9]+"
_EXEMPT = r"(?:\[(.*)\]|([^:]*))(?::([0-9]{1,5}))?"
# IDNA 2003 and 2008 map these to different names, so they could lead to another host.
_AMBIGUOUS = "[ßẞς\u200c\u200d]"
_AMBIGUOUS_MARKS = r"[\u0000-\u002c\u002e\u002f\u003a-\u0040\u200c\u200d\ufffd]|^-|-$"

# First match wins. Not `is_private` etc.: their meaning differs between Python releases.
_KINDS: tuple[tuple[Kind, str], ...] = (
    ("metadata", "100.100.100.200 168.63.129.16 169.254.169.254 192.0.0.192"),
    ("metadata", "fd00:ec2::254 fd20:ce::254"),
    ("unspecified", "0.0.0.0/8 ::"),
    ("loopback", "127.0.0.0/8 ::1"),
    ("private", "10.0.0.0/8 100.64.0.0/10 172.16.0.0/12 192.168.0.0/16 198.18.0.0/15 fc00::/7"),
    ("link-local", "169.254.0.0/16 fe80::/10"),
    ("documentation", "192.0.2.0/24 198.51.100.0/24 203.0.113.0/24 2001:db8::/32 3fff::/20"),
    ("multicast", "224.0.0.0/4 ff00::/8"),
    ("reserved", "192.0.0.0/24 192.88.99.0/24 240.0.0.0/4 2001::/23"),
    ("public", "0.0.0.0/0 2000::/3"),
)
_NAT64 = (bytes.fromhex("0064ff9b") + bytes(8), bytes.fromhex("0064ff9b0001") + bytes(6))
"""The prefixes 64:ff9b::/96 and, of those for local use, 64:ff9b:1::/96."""
_METADATA_NAMES = frozenset({"metadata.google.internal", "metadata.goog", "instance-data"})


class ParsedUrl(msgspec.Struct, frozen=True):
    """A valid URL in normalized form."""

    scheme: str
    host: str
    """Lower case, ASCII, without brackets and trailing dot."""
    port: int
    path: str
    """With the query."""
    address: Address | None
    """The host, if it is an address."""

    @property
    def authority(self) -> str:
        """Host and port for the `Host` header."""
        return self.host_port.removesuffix(f":{DEFAULT_PORTS[self.scheme]}")

    @property
    def host_port(self) -> str:
        """Host and port, always both; for messages and for CONNECT."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """All of it, without the fragment."""
        return f"{self.scheme}://{self.authority}{self.path}"

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port


@lru_cache(maxsize=256)
def parse_url(url: str) -> ParsedUrl:
    """Parse an http or https URL. Raises `NetError` if it is invalid, or if other parsers could
    read it differently."""
    if len(url) > MAX_URL:
        raise _bad(f"it is longer than {MAX_URL} characters")
    if re.search(_TROUBLE, url):
        raise _bad("it contains a space, a backslash or a control character")
    match = re.fullmatch(_URL, url)
    if match is None:
        raise _bad("it does not start with http:// or https://")
    scheme, authority = match[1].lower(), match[2]
    if "@" in authority:
        raise _bad("it contains a user name or password; send these in a header")
    parts = re.fullmatch(_AUTHORITY, authority)
    if parts is None:
        raise _bad("its host or port is invalid")
    host, address = parse_host(parts[1])
    port = int(parts[2] or DEFAULT_PORTS[scheme])
    if not 0 < port < 65536:
        raise _bad(f"invalid port {port}")
    path = _remove_dots(_percent(match[3] or "/", _IN_PATH)) + _percent(match[4] or "", _IN_QUERY)
    return ParsedUrl(scheme, host, port, path, address)


def parse_host(text: str) -> tuple[str, Address | None]:
    """A normalized host and, if it is one in any notation, its address. Raises `NetError`."""
    if text.startswith("["):
        from ipaddress import IPv6Address

        try:
            inside = IPv6Address(text[1:-1])
        except ValueError:
            raise _bad("the text in brackets is not an IPv6 address") from None
        if inside.scope_id is not None:
            raise _bad("its IPv6 address has a zone")
        found = inside.ipv4_mapped or inside
        return str(found), found
    name = _ascii(text).lower().removesuffix(".")
    if len(name) > 253 or not re.fullmatch(_NAME, name):
        raise _bad("its host is not a name or an address")
    if "xn--" in name and not _is_idn(name):
        raise _bad("its host is not a valid international name")
    if re.fullmatch(_LIKE_NUMBER, name.rpartition(".")[2]):
        address = _ipv4(name)
        return str(address), address
    return name, None


def kind_of(address: Address) -> Kind:
    """The kind of an address, also of an IPv4 address inside an IPv6 address."""
    return classify(address)[0]


def classify(address: Address) -> tuple[Kind, str]:
    """The kind of an address, and what makes it so, for messages: usually its network."""
    from ipaddress import IPv6Address

    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return classify(address.ipv4_mapped)
        if inside := _tunnelled(address):
            # Traffic to these leaves the machine, so the embedded addresses must be public.
            hidden = next((each for each in inside if kind_of(each) != "public"), None)
            return ("public", "") if hidden is None else ("reserved", f"it contains {hidden}")
    for network, kind in _networks():
        if address in network:
            return kind, str(network).removesuffix("/32").removesuffix("/128")
    return "reserved", "outside 2000::/3"


@cache
def _networks() -> list[tuple[IPv4Network | IPv6Network, Kind]]:
    from ipaddress import ip_network

    return [(ip_network(text), kind) for kind, texts in _KINDS for text in texts.split()]


def _tunnelled(address: IPv6Address) -> tuple[IPv4Address, ...]:
    """The IPv4 addresses embedded in 6to4, Teredo and NAT64 addresses."""
    from ipaddress import IPv4Address

    if address.sixtofour is not None:
        return (address.sixtofour,)
    if address.teredo is not None:
        return address.teredo
    if address.packed.startswith(_NAT64):
        return (IPv4Address(address.packed[12:]),)
    return ()


def kind_of_name(host: str) -> Kind | None:
    """The kind of a host name whose meaning does not depend on DNS; otherwise None."""
    if host == "localhost" or host.endswith(".localhost"):
        return "loopback"
    return "metadata" if host in _METADATA_NAMES else None


def refusal(
    kind: Kind,
    *,
    encrypted: bool,
    loopback: bool,
    private: bool,
    network: str = "",
    policy: str = "",
) -> str:
    """Why connecting to an address of this kind is refused; empty if it is allowed.

    `policy` is the setting that decides on addresses which others choose, and `network` what
    `classify` found; both are for the message.
    """
    where = f" ({network})" if network else ""
    if kind == "public":
        return "" if encrypted else "plain http can be intercepted, use https"
    if kind not in ("loopback", "private"):
        return f"{_NEVER[kind]}{where}, which no setting allows"
    if loopback if kind == "loopback" else private:
        return ""
    if policy:
        what = "this machine" if kind == "loopback" else "a private address"
        further = f" or {policy}.{RANGE_SETTINGS[network]}" if network in RANGE_SETTINGS else ""
        return f"{what}{where}; {policy}.allowedHostnames{further} can allow it"
    if kind == "loopback":
        return f"this machine is not allowed by {SETTING}: false"
    return f"a private address, which only {SETTING}: true allows"


_NEVER: dict[Kind, str] = {
    "link-local": "a link-local address",
    "metadata": "the metadata service of a cloud",
    "unspecified": "an unspecified address",
    "multicast": "a multicast address",
    "documentation": "an address from the documentation ranges",
    "reserved": "a reserved address",
}


def is_listed(host: str, entries: Iterable[str]) -> bool:
    """Whether a normalized host matches an entry: a name, an address, or a pattern with `*`."""
    return any(Glob(_normalize(entry)).match(host) for entry in entries)


def _normalize(entry: str) -> str:
    """An entry in the spelling of a parsed host; anything but a host is unchanged."""
    entry = entry.strip().lower()
    wildcard, name = ("*.", entry[2:]) if entry.startswith("*.") else ("", entry)
    try:
        is_v6 = ":" in name and not name.startswith("[")
        return wildcard + parse_host(f"[{name}]" if is_v6 else name)[0]
    except NetError:
        return entry


def is_exempt(target: ParsedUrl, no_proxy: str) -> bool:
    """Whether NO_PROXY exempts a target from the proxy."""
    return any(_exempts(entry, target) for entry in re.split(r"[\s,]+", no_proxy.lower()) if entry)


def _exempts(entry: str, target: ParsedUrl) -> bool:
    if entry == "*":
        return True
    if "/" in entry:
        return _is_in(target.address, entry)
    match = re.fullmatch(_EXEMPT, entry)
    # Anything else is an IPv6 address without brackets.
    host, port = (match[1] or match[2], match[3]) if match else (entry, None)
    if port is not None and int(port) != target.port:
        return False
    if target.address is not None:
        return _is_in(target.address, host)
    domain = host.removeprefix("*").removeprefix(".").removesuffix(".")
    return domain != "" and (target.host == domain or target.host.endswith(f".{domain}"))


def _is_in(address: Address | None, network: str) -> bool:
    from ipaddress import ip_network

    try:
        return address is not None and address in ip_network(network, strict=False)
    except ValueError:
        return False


def _ascii(name: str) -> str:
    if name.isascii():
        return name
    try:
        # Check the length first: the codec is slow on long names.
        if len(name) <= 253 and not re.search(_AMBIGUOUS, name):
            return name.encode("idna").decode("ascii")
    except UnicodeError:
        pass
    raise _bad("its host is not a valid or unambiguous name; use its xn-- form")


def _is_idn(name: str) -> bool:
    """Whether browsers accept the labels of a name that start with `xn--`. A few that they accept
    are refused: those that mix writing directions."""
    import unicodedata

    labels = name.split(".")
    has_rtl = False
    for label in labels:
        if not label.startswith("xn--"):
            continue
        try:
            text = label[4:].encode("ascii").decode("punycode")
            is_same = f"xn--{text.encode('punycode').decode('ascii')}" == label
        except (UnicodeError, ValueError, OverflowError):
            return False
        folded = unicodedata.normalize("NFKC", text.casefold() if "ß" not in text else text)
        kinds = {unicodedata.bidirectional(each) for each in text}
        is_odd = re.search(_AMBIGUOUS_MARKS, text) or text.isascii() or text[2:4] == "--"
        marked = unicodedata.category(text[:1] or "a").startswith("M")
        if not is_same or is_odd or marked or not text.isprintable():
            return False
        if "ς" not in text and folded != text:
            return False
        if kinds & {"R", "AL", "AN"}:
            has_rtl = True
            if kinds - {"R", "AL", "NSM"} or unicodedata.bidirectional(text[0]) == "NSM":
                return False
    return not has_rtl or all(re.match("[a-z]|xn--", each) for each in labels)


def _ipv4(name: str) -> IPv4Address:
    """Parse an IPv4 address like the system's resolver, including short, octal and hex forms."""
    from ipaddress import IPv4Address
    from socket import inet_aton

    try:
        return IPv4Address(inet_aton(name))
    except OSError:
        raise _bad("its host looks like an IPv4 address but is not one") from None


def _percent(text: str, characters: str) -> str:
    try:
        return re.sub(characters, lambda found: quote(found[0]), text)
    except UnicodeEncodeError:
        raise _bad("it contains a lone surrogate") from None


def _remove_dots(path: str) -> str:
    """The path without `.` and `..`, which browsers resolve before they ask."""
    if not re.search(_DOTS, path):
        return path
    kept: list[str] = []
    for part in path[1:].split("/"):
        dots = len(part.lower().replace("%2e", ".")) if re.fullmatch(_DOT_PART, part) else 0
        if dots == 2 and kept:
            kept.pop()
        if not dots:
            kept.append(part)
    return "/" + "/".join([*kept, ""] if dots else kept)


def _bad(problem: str) -> NetError:
    # Without the URL itself, which may contain a key.
    return NetError("refused", f"invalid URL: {problem}")


_PROXY_URL = r"(?ai)(https?://)(?:([^/?#]*)@)?([^/?#@]*)/?"


def env_proxy(url: str, env: Mapping[str, str]) -> Proxy | None:
    """The proxy for a URL according to the environment; never one for this machine itself."""
    own = _variable(f"{url.partition(':')[0].lower()}_proxy", env)
    if not (value := own or _variable("all_proxy", env)):
        return None
    target = parse_url(url)
    kind = kind_of(target.address) if target.address is not None else kind_of_name(target.host)
    if kind == "loopback" or is_exempt(target, _variable("no_proxy", env)):
        return None
    return Proxy(value if "://" in value else f"http://{value}")


def _variable(name: str, env: Mapping[str, str]) -> str:
    if value := env.get(name, "").strip():
        return value
    # In a CGI script, HTTP_PROXY is the client's request header `Proxy` (httpoxy).
    if name == "http_proxy" and "REQUEST_METHOD" in env:
        return ""
    return env.get(name.upper(), "").strip()


@lru_cache(maxsize=16)
def parse_proxy(url: str) -> tuple[ParsedUrl, str]:
    """The address of a proxy, and the value of `Proxy-Authorization`, empty for none. Raises
    `NetError`."""
    match = re.fullmatch(_PROXY_URL, url)
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
