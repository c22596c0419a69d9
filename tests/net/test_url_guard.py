"""Requests whose URLs others choose: the policy of addresses, and redirects."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.net.parts import Asked
from tests.web.internet import internet, respond

from clawkit.config.sections.shared import SsrfPolicy
from clawkit.net.addresses import ParsedUrl, classify, kind_of, parse_url
from clawkit.net.client import Client
from clawkit.net.route import NetError
from clawkit.net.url_guard import UrlGuard, get_following

PUBLIC = "93.184.215.14"


def guard(**policy: Any) -> UrlGuard:
    return UrlGuard(SsrfPolicy(**policy), "web.policy", plain=True)


def refused(url: str, **policy: Any) -> str:
    try:
        guard(**policy).route(url)
    except NetError as error:
        return str(error)
    return ""


def test_names_and_ports_are_refused_by_rule() -> None:
    local = "a local name; web.policy.allowedHostnames can allow it"
    for url in (
        *("http://localhost/", "http://LOCALHOST./", "http://a.localhost/", "http://x.local/"),
        *("http://localhost.localdomain/", "http://vault.internal:8200/", "https://a.b.internal/"),
    ):
        assert refused(url).endswith(local), url
        assert not refused(url, dangerously_allow_private_network=True)
        host = parse_url(url).host
        assert not refused(url, allowed_hostnames=[host.upper()])
        assert refused(url, allowed_hostnames=["other.internal"]).endswith(local)
    for port in (22, 25, 6000, 6667, 10080):
        assert "another protocol" in refused(f"http://example.com:{port}/")
    assert not refused("http://example.com:8080/")


def test_lists_name_hosts_and_patterns() -> None:
    listed = {"hostname_allowlist": ["*.example.com", "M\u00fcnchen.de", "10.0.0.1", "::1"]}
    for url, is_fine in (
        ("https://a.example.com/", True),
        ("https://a.b.example.com./", True),
        ("https://example.com/", False),
        ("https://notexample.com/", False),
        ("https://example.com.evil.org/", False),
        ("https://xn--mnchen-3ya.de/", True),
        ("http://012.1/", True),
        ("http://[0::1]/", True),
        ("http://10.0.0.2/", False),
    ):
        assert bool(refused(url, **listed)) != is_fine, url
        blocked = refused(url, blocked_hostnames=listed["hostname_allowlist"])
        assert ("blockedHostnames" in blocked) == is_fine, url
    route = guard(allowed_hostnames=["*.lan"]).route("http://nas.lan/")
    assert (route.loopback, route.private, route.plain) == (True, True, True)
    closed = guard().route("http://nas.lan/")
    assert (closed.loopback, closed.private, closed.networks) == (False, False, ())
    ranges = {"allow_rfc2544_benchmark_range": True, "allow_ipv6_unique_local_range": True}
    assert guard(**ranges).route("http://a/").networks == ("198.18.0.0/15", "fc00::/7")


def test_a_proxy_is_used_only_if_variables_are_given() -> None:
    env = {"HTTP_PROXY": "http://proxy.test:3128"}
    assert guard().route("http://a.test/").proxy is None
    proxied = UrlGuard(SsrfPolicy(), "web.policy", env=env).route("http://a.test/")
    assert proxied.proxy is not None


async def test_refusals_name_the_address_its_range_and_the_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = {
        "intra.test": [["10.1.2.3"]],
        "mixed.test": [[PUBLIC, "192.168.0.1"]],
        "fake.test": [["198.18.0.7"]],
        "meta.test": [["169.254.169.254"]],
    }
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("http://intra.test/", {}, "intra.test (10.1.2.3): a private address (10.0.0.0/8); web"),
        ("http://mixed.test/", {}, "mixed.test (192.168.0.1): a private address (192.168.0.0/16)"),
        ("http://fake.test/", {}, "or web.policy.allowRfc2544BenchmarkRange can allow it"),
        ("http://meta.test/", {"allowed_hostnames": ["*"]}, "the metadata service of a cloud"),
        ("http://metadata.google.internal/", {"allowed_hostnames": ["*"]}, "metadata service"),
        ("http://[fd00::1]/", {}, "(fc00::/7); web.policy.allowedHostnames or web.po"),
        ("http://127.0.0.1/", {}, "this machine (127.0.0.0/8); web.policy.allowedHost"),
        ("http://[2002:a00:1::]/", {}, "a reserved address (it contains 10.0.0.1)"),
        ("http://[64:ff9b:1::7f00:1]/", {}, "it contains 127.0.0.1"),
        ("http://[64:ff9b:1:a00::1]/", {"allowed_hostnames": ["*"]}, "outside 2000::/3"),
    ]
    client = Client()
    async with internet(monkeypatch, lambda _asked: respond("hello"), names) as net:
        for url, policy, words in cases:
            with pytest.raises(NetError) as caught:
                await fetch(client, url, guard(**policy))
            assert caught.value.kind == "refused"
            assert words in str(caught.value), url
        assert net.connected == []
        allowed = guard(allow_rfc2544_benchmark_range=True)
        assert await fetch(client, "http://fake.test/", allowed) == b"hello"
        assert net.connected == ["198.18.0.7"]
        await client.close()


async def fetch(client: Client, url: str, guarded: UrlGuard, **options: Any) -> bytes:
    given: dict[str, Any] = {"headers": {}, "max_redirects": 3, "timeout_s": 5.0, "idle_s": 5.0}
    async with get_following(client, guarded, url, **(given | options)) as arrival:
        return await arrival.response.read(1_000)


async def test_every_redirect_is_checked_like_the_first_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    targets = {
        "/loopback": "http://127.0.0.1/",
        "/mapped": "http://[::ffff:10.0.0.1]/",
        "/name": "http://intra.test/",
        "/local": "//router.local/",
        "/file": "file:///etc/passwd",
        "/data": "data:text/html,x",
        "/user": "http://a:b@example.com/",
        "/slash": "\\\\evil.test\\x",
        "/port": "http://example.com:25/",
        "/loop": "/loop",
        "/1": "/2",
        "/2": "/3",
        "/3": "/4",
        "/4": "/5",
        "/denied": "http://denied.test/",
    }

    def answer(asked: Asked) -> bytes:
        path = asked.line.split()[1]
        if path == "/refresh":
            return respond("stay", Refresh="0; url=http://127.0.0.1/", Set_Cookie="a=b")
        if path in targets:
            return respond(status=302, Location=targets[path])
        return respond("end")

    async def admit(target: ParsedUrl) -> str:
        return "which is refused" if "denied" in target.host else ""

    names = {"example.com": [[PUBLIC]], "intra.test": [["10.0.0.9"]], "denied.test": [[PUBLIC]]}
    client = Client()
    async with internet(monkeypatch, answer, names) as net:
        for path in targets:
            if path in ("/2", "/3", "/4"):
                continue
            # Also for what a redirect leads to, it names the host that was asked for.
            with pytest.raises(NetError, match=r"example\.com"):
                await fetch(
                    client,
                    f"http://example.com{path}",
                    guard(),
                    admit=admit,
                )
        assert set(net.connected) == {PUBLIC}
        assert await fetch(client, "http://example.com/2", guard()) == b"end"
        assert await fetch(client, "http://example.com/refresh", guard()) == b"stay"
        assert await fetch(client, "http://example.com/refresh", guard()) == b"stay"
        assert all("cookie" not in each.headers for each in net.server.asked)
        await client.close()


async def test_only_harmless_headers_get_to_another_origin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def answer(asked: Asked) -> bytes:
        there = {"/a": "http://b.test/b", "/b": "http://a.test/c"}
        location = there.get(asked.line.split()[1])
        return respond(status=307, Location=location) if location else respond("end")

    client = Client()
    headers = {"User-Agent": "me", "X-Team": "1", "Authorization": "Bearer CANARY"}
    names = {"a.test": [[PUBLIC]], "b.test": [[PUBLIC]]}
    async with internet(monkeypatch, answer, names) as net:
        assert await fetch(client, "http://a.test/a", guard(), headers=headers) == b"end"
        first, *others = net.server.asked
        assert first.headers["authorization"] == "Bearer CANARY"
        for each in others:  # also when it comes back
            assert each.headers["user-agent"] == "me"
            assert not {"authorization", "x-team"} & each.headers.keys()
        await client.close()


async def test_a_name_is_looked_up_once_and_the_checked_address_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Client()
    names = {"rebind.test": [[PUBLIC], ["169.254.169.254"]]}
    async with internet(monkeypatch, lambda _asked: respond("x"), names) as net:
        assert await fetch(client, "http://rebind.test/", guard()) == b"x"
        assert (net.connected, net.looked_up) == ([PUBLIC], ["rebind.test"])
        await client.close()


def spellings(address: IPv4Address) -> list[str]:
    a, b, c, d = address.packed
    number = int(address)
    mapped = IPv6Address(0xFFFF_0000_0000 + number)
    return [
        *(f"{number}", hex(number), f"0{number:o}", f"{a}.{number & 0xFFFFFF}"),
        *(f"{a}.{b}.{c * 256 + d}", f"0x{a:x}.0{b:o}.{c}.{d}", f"{a}.{b}.{c}.{d}."),
        *(f"[{mapped}]", f"[::ffff:{a}.{b}.{c}.{d}]", f"[{mapped.exploded}]"),
    ]


@given(st.ip_addresses(v=4))
def test_an_address_is_the_same_in_every_spelling(address: IPv4Address) -> None:
    for text in spellings(address):
        assert parse_url(f"http://{text}/").address == address, text


@given(st.ip_addresses())
def test_what_is_not_global_is_never_public(address: IPv4Address | IPv6Address) -> None:
    """Python's own table as the oracle, in one direction: ours refuses more."""
    kind, network = classify(address)
    if kind == "public":
        assert address.is_global or isinstance(address, IPv6Address)
        if isinstance(address, IPv6Address):
            inner = address.ipv4_mapped or address.sixtofour
            assert (ip_address(inner) if inner else address).is_global
    else:
        assert network
    if isinstance(address, IPv4Address):
        for prefix in ("::ffff:", "64:ff9b::", "64:ff9b:1::"):
            other = kind_of(IPv6Address(f"{prefix}{address}"))
            assert (other == "public") == (kind == "public")
