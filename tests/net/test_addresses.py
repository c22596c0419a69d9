"""Which URLs are used, and which addresses are connected to."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import pytest

from clawkit.net.addresses import (
    is_exempt,
    kind_of,
    kind_of_name,
    parse_url,
    refusal,
)
from clawkit.net.route import NetError


def test_an_address_is_of_one_kind_however_it_is_wrapped(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("8.8.8.8", "public"),
        ("1.1.1.1", "public"),
        ("99.255.255.255", "public"),
        ("100.128.0.0", "public"),
        ("172.15.255.255", "public"),
        ("172.32.0.0", "public"),
        ("192.167.255.255", "public"),
        ("198.17.255.255", "public"),
        ("198.20.0.0", "public"),
        ("223.255.255.255", "public"),
        ("2606:4700:4700::1111", "public"),
        ("2a00:1450::1", "public"),
        ("127.0.0.1", "loopback"),
        ("127.255.255.254", "loopback"),
        ("::1", "loopback"),
        ("10.0.0.1", "private"),
        ("172.16.0.1", "private"),
        ("172.31.255.255", "private"),
        ("192.168.1.1", "private"),
        ("100.64.0.1", "private"),
        ("100.127.255.255", "private"),
        ("198.18.0.1", "private"),
        ("198.19.255.255", "private"),
        ("fc00::1", "private"),
        ("fdff::1", "private"),
        ("169.254.1.1", "link-local"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("febf::1", "link-local"),
        ("169.254.169.254", "metadata"),
        ("100.100.100.200", "metadata"),
        ("192.0.0.192", "metadata"),
        ("168.63.129.16", "metadata"),
        ("fd00:ec2::254", "metadata"),
        ("fd20:ce::254", "metadata"),
        ("0.0.0.0", "unspecified"),
        ("0.1.2.3", "unspecified"),
        ("::", "unspecified"),
        ("224.0.0.1", "multicast"),
        ("239.255.255.255", "multicast"),
        ("ff02::1", "multicast"),
        ("192.0.2.1", "documentation"),
        ("198.51.100.1", "documentation"),
        ("203.0.113.1", "documentation"),
        ("2001:db8::1", "documentation"),
        ("3fff::1", "documentation"),
        ("240.0.0.1", "reserved"),
        ("255.255.255.255", "reserved"),
        ("192.0.0.1", "reserved"),
        ("192.88.99.1", "reserved"),
        ("2001:2::1", "reserved"),
        ("2001:10::1", "reserved"),
        ("100::1", "reserved"),
        ("fec0::1", "reserved"),
        ("4000::1", "reserved"),
        ("64:ff9b:1::1", "reserved"),
        # The forms in which IPv6 carries IPv4.
        ("::ffff:127.0.0.1", "loopback"),
        ("::ffff:10.0.0.1", "private"),
        ("::ffff:169.254.169.254", "metadata"),
        ("::ffff:8.8.8.8", "public"),
        ("::127.0.0.1", "reserved"),
        ("2002:808:808::1", "public"),
        ("2002:7f00:1::1", "reserved"),
        ("2002:a9fe:a9fe::1", "reserved"),
        ("64:ff9b::8.8.8.8", "public"),
        ("64:ff9b::127.0.0.1", "reserved"),
        ("64:ff9b::169.254.169.254", "reserved"),
        # Teredo: a server and, with its bits turned over, a client.
        ("2001:0:808:808::f7f7:f7f7", "public"),
        ("2001:0:7f00:1::f7f7:f7f7", "reserved"),
        ("2001:0:808:808::80ff:fffe", "reserved"),
    ]
    for text, kind in cases:
        with subtests.test(text=text, kind=kind):
            assert kind_of(ip_address(text)) == kind


def test_only_what_the_route_allows_is_connected_to(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("public", True, False, False, ""),
        ("public", False, True, True, "use https"),
        ("loopback", False, True, False, ""),
        ("loopback", True, False, True, "request.allowPrivateNetwork: false"),
        ("private", False, False, True, ""),
        ("private", True, True, False, "request.allowPrivateNetwork: true"),
        ("link-local", True, True, True, "no setting"),
        ("metadata", True, True, True, "no setting"),
        ("unspecified", True, True, True, "no setting"),
        ("multicast", True, True, True, "no setting"),
        ("documentation", True, True, True, "no setting"),
        ("reserved", True, True, True, "no setting"),
    ]
    for kind, encrypted, loopback, private, why in cases:
        with subtests.test(
            kind=kind, encrypted=encrypted, loopback=loopback, private=private, why=why
        ):
            found = refusal(kind, encrypted=encrypted, loopback=loopback, private=private)
            assert why in found
            assert bool(found) == bool(why)


def test_some_names_mean_the_same_everywhere(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("localhost", "loopback"),
        ("a.b.localhost", "loopback"),
        ("notlocalhost", None),
        ("localhost.example", None),
        ("metadata.google.internal", "metadata"),
        ("example.com", None),
    ]
    for host, kind in cases:
        with subtests.test(host=host, kind=kind):
            assert kind_of_name(host) == kind


def test_a_url_has_one_spelling(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("https://example.com", "https", "example.com", 443, "/"),
        ("HTTPS://EXAMPLE.com/A", "https", "example.com", 443, "/A"),
        ("http://example.com:8080/v1?x=1#part", "http", "example.com", 8080, "/v1?x=1"),
        ("https://example.com?x=1", "https", "example.com", 443, "/?x=1"),
        ("https://example.com#part", "https", "example.com", 443, "/"),
        ("https://example.com:/a", "https", "example.com", 443, "/a"),
        ("https://example.com:00443/", "https", "example.com", 443, "/"),
        ("https://example.com./", "https", "example.com", 443, "/"),
        ("https://my_host-1/", "https", "my_host-1", 443, "/"),
        ("https://host/a@b:c", "https", "host", 443, "/a@b:c"),
        ("https://host/å?ü", "https", "host", 443, "/%C3%A5?%C3%BC"),
        ("https://bücher.example/", "https", "xn--bcher-kva.example", 443, "/"),
        ("https://EXAMPLE。com/", "https", "example.com", 443, "/"),
        # One address, many spellings.
        ("http://127.0.0.1/", "http", "127.0.0.1", 80, "/"),
        ("http://127.0.0.1./", "http", "127.0.0.1", 80, "/"),
        ("http://127.1/", "http", "127.0.0.1", 80, "/"),
        ("http://127.0.1/", "http", "127.0.0.1", 80, "/"),
        ("http://2130706433/", "http", "127.0.0.1", 80, "/"),
        ("http://017700000001/", "http", "127.0.0.1", 80, "/"),
        ("http://0x7f000001/", "http", "127.0.0.1", 80, "/"),
        ("http://0x7F.1/", "http", "127.0.0.1", 80, "/"),
        ("http://0177.0.0.01/", "http", "127.0.0.1", 80, "/"),
        ("http://１２７.０.０.１/", "http", "127.0.0.1", 80, "/"),
        ("http://127。0。0。1/", "http", "127.0.0.1", 80, "/"),
        ("http://0/", "http", "0.0.0.0", 80, "/"),
        ("http://0xa9fea9fe/", "http", "169.254.169.254", 80, "/"),
        ("http://[::1]:8080/", "http", "::1", 8080, "/"),
        ("http://[0:0:0:0:0:0:0:1]/", "http", "::1", 80, "/"),
        ("http://[::ffff:127.0.0.1]/", "http", "127.0.0.1", 80, "/"),
        ("http://[2002:7F00::1]/", "http", "2002:7f00::1", 80, "/"),
    ]
    for url, scheme, host, port, path in cases:
        with subtests.test(url=url, scheme=scheme, host=host, port=port, path=path):
            target = parse_url(url)
            assert (target.scheme, target.host, target.port, target.path) == (
                scheme,
                host,
                port,
                path,
            )
            assert (target.address is not None) == (":" in host or host.replace(".", "").isdigit())


def test_what_can_be_read_in_two_ways_is_refused(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        "",
        "example.com",
        "//example.com/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "http:/example.com",
        "http:example.com",
        "httpſ://example.com/",
        "https://",
        "https:///path",
        "https://:443/",
        "https://user@example.com/",
        "https://user:secret@example.com/",
        "https://example.com@evil.example/",
        "https://example.com\\@evil.example/",
        "https://evil.example\\.example.com/",
        " https://example.com/",
        "https://example.com/a b",
        "https://example.com/\r\nHost: evil.example",
        "https://exam\tple.com/",
        "https://example.com/\x00",
        "https://example.com/\x7f",
        "https://example.com:0/",
        "https://example.com:65536/",
        "https://example.com:99999/",
        "https://example.com:123456/",
        "https://example.com:-1/",
        "https://example.com:+80/",
        "https://example.com:0x50/",
        "https://example.com:８０/",
        "https://example.com:80:80/",
        "https://a..b/",
        "https://.example.com/",
        "https://example.com../",
        "https://./",
        "https://%31%32%37.0.0.1/",
        "https://exa%6dple.com/",
        "https://exa mple.com/",
        "https://exa*mple.com/",
        "https://" + "a" * 64 + ".com/",
        "https://" + "a." * 127 + "com/",
        "https://" + "ü" * 300 + "/",
        "https://ü" + "a" * 70 + "/",
        "https://℀.com/",
        "https://straße.example/",
        "https://x\u200dy.example/",
        "https://\ud800.example/",
        "https://example.com/\ud800",
        "https://example.com/?\udfff",
        "https://[::1/",
        "https://::1/",
        "https://[::1]x/",
        "https://[]/",
        "https://[127.0.0.1]/",
        "https://[fe80::1%eth0]/",
        "https://[fe80::1%25eth0]/",
        "https://[:::1]/",
        "https://1.2.3.4.5/",
        "https://1.2.3.4.5.6/",
        "https://256.0.0.1/",
        "https://1.256.1/",
        "https://127.0.0.256/",
        "https://127.65536.1/",
        "https://4294967296/",
        "https://0x100000000/",
        "https://08.0.0.1/",
        "https://1_0.0.0.1/",
        "https://-1.0.0.1/",
        "https://example.1/",
        "https://0xg.0x1/",
        "http://0x/",
        "https://example.com/" + "a" * 33_000,
    ]
    for url in cases:
        with subtests.test(url=url):
            with pytest.raises(NetError) as caught:
                parse_url(url)
            assert caught.value.kind == "refused"
            assert "secret" not in str(caught.value)
            assert str(caught.value).startswith("invalid URL: ")


def test_the_port_is_left_out_of_the_host_header_when_it_is_the_usual_one(
    subtests: pytest.Subtests,
) -> None:
    cases: list[Any] = [
        ("https://a.example/", "a.example", "a.example:443"),
        ("http://a.example:80/", "a.example", "a.example:80"),
        ("http://a.example:443/", "a.example:443", "a.example:443"),
        ("https://[::1]/", "[::1]", "[::1]:443"),
        ("http://[::1]:81/", "[::1]:81", "[::1]:81"),
    ]
    for url, authority, place in cases:
        with subtests.test(url=url, authority=authority, place=place):
            assert (parse_url(url).authority, parse_url(url).host_port) == (authority, place)


def test_no_proxy_names_who_is_reached_directly(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("https://a.example/", "", False),
        ("https://a.example/", " , ,", False),
        ("https://a.example/", "*", True),
        ("https://a.example/", "b.example *", True),
        ("https://a.example/", "a.example", True),
        ("https://A.example/", "a.EXAMPLE", True),
        ("https://x.a.example/", "a.example", True),
        ("https://xa.example/", "a.example", False),
        ("https://x.a.example/", ".a.example", True),
        ("https://a.example/", ".a.example", True),
        ("https://x.a.example/", "*.a.example", True),
        ("https://a.example/", "a.example.", True),
        ("https://a.example/", ".", False),
        ("https://a.example/", "b.example, a.example", True),
        ("https://a.example/", "a.example:443", True),
        ("https://a.example/", "a.example:80", False),
        ("http://a.example:8080/", "a.example:8080", True),
        ("http://10.1.2.3/", "10.0.0.0/8", True),
        ("http://11.1.2.3/", "10.0.0.0/8", False),
        ("http://10.1.2.3/", "10.1.2.3", True),
        ("http://0xa.1.2.3/", "10.1.2.3", True),
        ("http://10.1.2.3:81/", "10.1.2.3:80", False),
        ("http://10.1.2.3/", "2.3", False),
        ("http://10.1.2.3/", "10.0.0.0/99", False),
        ("http://a.example/", "10.0.0.0/8", False),
        ("http://[fd00::1]/", "fd00::/8", True),
        ("http://[fd00::1]/", "fd00::1", True),
        ("http://[fd00::1]:81/", "[fd00::1]:81", True),
        ("http://[fd00::1]/", "10.0.0.0/8", False),
    ]
    for url, no_proxy, exempt in cases:
        with subtests.test(url=url, no_proxy=no_proxy, exempt=exempt):
            assert is_exempt(parse_url(url), no_proxy) is exempt
