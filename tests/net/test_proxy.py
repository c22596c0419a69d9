"""Which proxy the environment names, and what its URL says."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import pytest

from clawkit.net.addresses import env_proxy, parse_proxy
from clawkit.net.route import NetError, Proxy, Route, Tls

WEB = "https://api.example/v1"


def test_the_environment_names_a_proxy(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        (WEB, {}, None),
        (WEB, {"https_proxy": "http://p:1"}, "http://p:1"),
        (WEB, {"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
        (WEB, {"https_proxy": "http://low:1", "HTTPS_PROXY": "http://up:1"}, "http://low:1"),
        (WEB, {"https_proxy": " ", "HTTPS_PROXY": "http://up:1"}, "http://up:1"),
        (WEB, {"http_proxy": "http://p:1"}, None),
        (WEB, {"ALL_PROXY": "http://p:1"}, "http://p:1"),
        (WEB, {"all_proxy": "http://p:1", "HTTPS_PROXY": "http://q:1"}, "http://q:1"),
        (WEB, {"https_proxy": "p:3128"}, "http://p:3128"),
        (WEB, {"https_proxy": "p:1", "no_proxy": "api.example"}, None),
        (WEB, {"https_proxy": "p:1", "NO_PROXY": "*"}, None),
        (WEB, {"https_proxy": "p:1", "no_proxy": "other", "NO_PROXY": "*"}, "http://p:1"),
        ("http://a.example/", {"HTTP_PROXY": "p:1"}, "http://p:1"),
        ("http://a.example/", {"HTTP_PROXY": "p:1", "REQUEST_METHOD": "GET"}, None),
        ("http://a.example/", {"http_proxy": "p:1", "REQUEST_METHOD": "GET"}, "http://p:1"),
        ("http://localhost:11434/", {"http_proxy": "p:1"}, None),
        ("http://127.0.0.2/", {"http_proxy": "p:1"}, None),
        ("http://[::1]/", {"ALL_PROXY": "p:1"}, None),
        ("http://10.0.0.1/", {"http_proxy": "p:1"}, "http://p:1"),
    ]
    for url, env, proxy in cases:
        with subtests.test(url=url, env=env, proxy=proxy):
            found = env_proxy(url, env)
            assert (found and found.url) == proxy


def test_a_proxy_has_a_place_and_credentials(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("http://proxy.example:3128", "proxy.example:3128", None),
        ("http://proxy.example/", "proxy.example:80", None),
        ("https://proxy.example", "proxy.example:443", None),
        ("http://[::1]:3128", "[::1]:3128", None),
        ("http://me:pass@proxy.example:1", "proxy.example:1", b"me:pass"),
        ("http://me@proxy.example:1", "proxy.example:1", b"me:"),
        ("http://m%40e:p%3Aa%2Fss@proxy.example:1", "proxy.example:1", b"m@e:p:a/ss"),
        ("http://a@b:c@proxy.example:1", "proxy.example:1", b"a@b:c"),
        ("http://ü:ß@proxy.example:1", "proxy.example:1", "ü:ß".encode()),
    ]
    for url, place, pair in cases:
        with subtests.test(url=url, place=place, pair=pair):
            target, credentials = parse_proxy(url)
            assert target.host_port == place
            if pair is None:
                assert credentials == ""
            else:
                scheme, _, encoded = credentials.partition(" ")
                assert (scheme, b64decode(encoded)) == ("Basic", pair)


def test_what_is_not_an_http_proxy_is_refused_without_showing_it(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        "socks5://me:secret@proxy.example:1080",
        "proxy.example:3128",
        "http://me:secret@/",
        "http://me:secret@proxy.example:99999",
        "http://me:secret@proxy example",
        "http://proxy.example/path",
        "http://proxy.example/?secret",
        "",
    ]
    for url in cases:
        with subtests.test(url=url):
            with pytest.raises(NetError, match="proxy's URL") as caught:
                parse_proxy(url)
            assert caught.value.kind == "refused"
            assert "secret" not in str(caught.value)


def test_no_secret_is_shown_when_a_route_is_printed() -> None:
    tls = Tls(ca="secret", cert="secret", key="secret", passphrase="secret", server_name="name")
    text = repr(Route(tls=tls, proxy=Proxy("http://me:secret@proxy", tls)))
    assert "secret" not in text
    assert "name" in text
