"""URLs as browsers read them: what clawkit accepts has the same host, port and path there."""

from __future__ import annotations

import random
from ipaddress import IPv6Address, ip_address

import ada_url
from tests.scale import scaled

from clawkit.net.addresses import parse_url
from clawkit.net.route import NetError

SCHEMES = [
    "http://",
    "https://",
    "HTTP://",
    "http:",
    "http:/",
    "http:///",
    "https:\\\\",
    "//",
    "ftp://",
    "http:\t//",
    " http://",
    "hTtPs://",
]
HOSTS = [
    "example.com",
    "EXAMPLE.com",
    "a.b.c",
    "127.0.0.1",
    "127.1",
    "0x7f.1",
    "2130706433",
    "0177.0.0.1",
    "1.2.3",
    "1.2.3.4.5",
    "256.1.1.1",
    "0x",
    "09",
    "1.09",
    "[::1]",
    "[::ffff:1.2.3.4]",
    "[1:2:3:4:5:6:7:8]",
    "[::1%25eth0]",
    "[fe80::1%eth0]",
    "[v1.x]",
    "xn--mnchen-3ya.de",
    "xn--a",
    "xn--",
    "xn--zzzzz",
    "xn--80ak6aa92e.com",
    "m\u00fcnchen.de",
    "stra\u00dfe.de",
    "\u2460\u2461",
    "\u3002a",
    "a\u3002b",
    "\uff41.com",
    "a_b.com",
    "-a.com",
    "a-.com",
    "a--b.com",
    "ab--c.de",
    "%61.com",
    "a%2ecom",
    "a..b",
    "a.",
    ".a",
    "a..",
    "",
    "*",
    "a+b",
    "a,b",
    "a!b",
    "1e3",
    "0x1g",
    "1.2.3.0x",
    "foo.0",
    "foo.0x4",
    "\u00ad",
    "a\u00adb.com",
    "\u200b.com",
    "\U0001f600.com",
    "xn--e28h.com",
    "\u212a.com",
    "\u0130.com",
    "faß.de",
    "\u03c2.gr",
    "\u0660.com",
    "a" * 63 + ".com",
    "a" * 64 + ".com",
    ("a." * 126) + "a",
    "٠.٠.٠.١",
    "1.1.1.1.",
    "0.0.0.0x0",
    "4294967296",
    "0x100000000",
    "00000000001.1",
]
PORTS = [
    "",
    "",
    ":80",
    ":443",
    ":0",
    ":8080",
    ":65535",
    ":65536",
    ":99999999",
    ":",
    ":080",
    ":8a",
    ":-1",
    ": 80",
    ":٨",
]
USER = ["", "", "", "user@", "user:pw@", "@", ":@", "a@b@", "%40@"]
PATHS = [
    "",
    "/",
    "/a",
    "/a/../b",
    "/..",
    "/../",
    "/./",
    "/a/.",
    "/a/..",
    "/%2e",
    "/%2E%2e/x",
    "/a/%2e%2e",
    "/.%2e/",
    "//",
    "//a",
    "/a//../b",
    "/\\a",
    "\\a",
    "/a b",
    "/%",
    "/%zz",
    "/\u00e9",
    "/{a}",
    "/a|b",
    "/a^b",
    "/`",
    '/"',
    "/<>",
    "/'",
    "/a;b",
    "/a:b@c",
    "/~",
    "/a\tb",
    "/[x]",
    "/...",
    "/..a",
    "/.a/..",
    "/ü/../x",
]
QUERY = [
    "",
    "",
    "?",
    "?a=b",
    "?\u00e9",
    "?'",
    '?"',
    "?<>",
    "?a b",
    "?/../",
    "?#",
    "?{}",
    "?`",
    "?^|",
    "?\\",
    "?a?b",
]
FRAG = ["", "", "#", "#x", "#@evil", "# y", "#\\"]
LETTERS = "abcxn-01._\u00fc\u00df\u0131\u0307\u4e2d\u05d0\u0628\u200d\u0300\ufb01\U0001f468"


def make_host(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.13:
        sizes = [rng.choice([256, 70_000, 2**32]) for _ in range(rng.randint(1, 4))]
        return ".".join(rng.choice(["%d", "0x%x", "0%o"]) % rng.randrange(size) for size in sizes)
    if kind < 0.26:
        name = "".join(rng.choice(LETTERS) for _ in range(rng.randint(1, 9)))
        return f"xn--{name}" if rng.random() < 0.4 else name
    if kind < 0.5:
        between = rng.choice([".", "", "-", "\u3002", "%2e"])
        return f"{rng.choice(HOSTS)}{between}{rng.choice(HOSTS)}"
    return rng.choice(HOSTS)


def make_url(rng: random.Random) -> str:
    scheme = rng.choice(SCHEMES[:2] if rng.random() < 0.85 else SCHEMES)
    user = rng.choice(USER if rng.random() < 0.2 else [""])
    rest = "".join(map(rng.choice, (PORTS, PATHS, QUERY, FRAG)))
    return f"{scheme}{user}{make_host(rng)}{rest}"


def read_by_browser(url: str) -> tuple[str, str, int, str]:
    found = ada_url.URL(url)
    host = found.hostname.strip("[]").removesuffix(".")
    try:
        address = ip_address(host)
        if isinstance(address, IPv6Address):
            host = str(address.ipv4_mapped or address)
    except ValueError:
        pass
    port = int(found.port or {"http:": 80, "https:": 443}[found.protocol])
    return found.protocol, host, port, (found.pathname + found.search).removesuffix("?")


def test_nothing_is_accepted_that_browsers_refuse_or_read_differently() -> None:
    rng = random.Random(2026)
    accepted = 0
    for _ in range(scaled(30_000)):
        url = make_url(rng)
        try:
            mine = parse_url(url)
        except NetError:
            continue
        accepted += 1
        read = (f"{mine.scheme}:", mine.host, mine.port, mine.path.removesuffix("?"))
        assert read == read_by_browser(url), url
        # Parsing what was parsed changes nothing.
        assert parse_url(mine.url) == mine
    assert accepted > 200


def test_international_names_that_exist_are_accepted() -> None:
    for name in (
        *("xn--mnchen-3ya.de", "xn--strae-oqa.de", "xn--mgbh0fb.xn--kgbechtv", "xn--i-7iq.ws"),
        *("xn--e1afmkfd.xn--p1ai", "xn--fiqs8s", "xn--zckzah", "xn--n3h.net", "xn--4gbrim.com"),
    ):
        assert parse_url(f"https://{name}/").host == name
    assert parse_url("https://b\u00fccher.example/").host == "xn--bcher-kva.example"
