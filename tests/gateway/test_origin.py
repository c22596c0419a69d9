"""Where a request comes from, and which browser pages are kept out."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from tests.tables import table

from clawkit.config.sections.gateway import TrustedProxy
from clawkit.gateway.origin import OriginPolicy, RequestOrigin, find_user, locate

POLICY = OriginPolicy(
    trusted_proxies=("10.0.0.0/8", "::1"),
    allowed_origins=("https://claw.example.org",),
    names=("box",),
)


def at(peer: str, host: str = "127.0.0.1:18789", **headers: str) -> RequestOrigin:
    given = {name.replace("_", "-"): [value] for name, value in headers.items()}
    return locate(POLICY, peer, {"host": [host], **given})


@table(
    ("host", "allowed"),
    [
        ("127.0.0.1:18789", True),
        ("localhost:18789", True),
        ("[::1]:18789", True),
        ("192.168.1.7:18789", True),
        ("box:18789", True),
        ("BOX", True),
        ("claw.example.org", True),
        ("evil.test:18789", False),
        ("localhost.evil.test", False),
        ("127.0.0.1.evil.test", False),
        ("", False),
        ("127.0.0.1:18789, evil.test", False),
        ("evil.test@127.0.0.1", False),
        ("127.0.0.1:99999999", False),
    ],
)
def test_a_name_that_was_bound_to_this_machine_is_refused(host: str, allowed: bool) -> None:
    assert (at("127.0.0.1", host).refused == "") is allowed


def test_a_repeated_host_is_refused() -> None:
    headers = {"host": ["127.0.0.1", "127.0.0.1"]}
    assert locate(POLICY, "127.0.0.1", headers).refused


@table(
    ("origin", "host", "good"),
    [
        ("http://127.0.0.1:18789", "127.0.0.1:18789", True),
        ("http://localhost:18789", "localhost:18789", True),
        ("http://[::1]:18789", "[::1]:18789", True),
        ("https://claw.example.org", "127.0.0.1:18789", True),
        ("http://localhost:18789", "127.0.0.1:18789", False),
        ("http://127.0.0.1:5173", "127.0.0.1:18789", False),
        ("http://evil.test", "127.0.0.1:18789", False),
        ("http://localhost.evil.test:18789", "localhost:18789", False),
        ("https://claw.example.org.evil.test", "127.0.0.1:18789", False),
        ("http://127.0.0.1:18789@evil.test", "127.0.0.1:18789", False),
        ("http://127.0.0.1:18789/path", "127.0.0.1:18789", False),
        ("file://", "127.0.0.1:18789", False),
        ("null", "127.0.0.1:18789", False),
        ("", "127.0.0.1:18789", False),
        ("http://127.0.0.1:notaport", "127.0.0.1:18789", False),
        ("chrome-extension://abc", "127.0.0.1:18789", False),
    ],
)
def test_a_page_must_come_from_the_gateway_or_be_allowed(
    origin: str, host: str, good: bool
) -> None:
    place = at("127.0.0.1", host, origin=origin)
    assert place.is_browser
    assert place.bad_origin is not good


def test_a_star_allows_no_page() -> None:
    policy = OriginPolicy(allowed_origins=("*",))
    headers = {"host": ["127.0.0.1"], "origin": ["http://evil.test"]}
    assert locate(policy, "127.0.0.1", headers).bad_origin


@table(
    ("peer", "headers", "expected"),
    [
        ("127.0.0.1", {}, RequestOrigin("127.0.0.1", True)),
        ("::ffff:127.0.0.1", {}, RequestOrigin("::ffff:127.0.0.1", True)),
        ("192.168.1.7", {}, RequestOrigin("192.168.1.7")),
        ("10.1.1.1", {}, RequestOrigin("10.1.1.1")),
        ("10.1.1.1", {"x_forwarded_for": "203.0.113.5"}, RequestOrigin("203.0.113.5")),
        ("10.1.1.1", {"x_forwarded_for": "1.2.3.4, 203.0.113.5"}, RequestOrigin("203.0.113.5")),
        ("10.1.1.1", {"x_forwarded_for": "203.0.113.5, 10.2.2.2"}, RequestOrigin("203.0.113.5")),
        ("10.1.1.1", {"x_forwarded_for": "127.0.0.1"}, RequestOrigin("127.0.0.1")),
        ("10.1.1.1", {"x_forwarded_for": "nonsense"}, RequestOrigin("10.1.1.1")),
        ("::1", {"x_forwarded_for": "203.0.113.5"}, RequestOrigin("203.0.113.5")),
        ("", {}, RequestOrigin("")),
    ],
)
def test_an_address_behind_proxies_is_found_and_never_local(
    peer: str, headers: dict[str, str], expected: RequestOrigin
) -> None:
    assert at(peer, **headers) == expected


@table(
    "header", ["forwarded", "x_forwarded_for", "x_forwarded_host", "x_real_ip", "tailscale_user"]
)
def test_forwarding_headers_of_others_are_refused(header: str) -> None:
    assert "gateway.trustedProxies" in at("127.0.0.1", **{header: "127.0.0.1"}).refused


LOGIN = TrustedProxy(
    user_header="X-User", required_headers=["x-verified"], allow_users=["ada", "bob"]
)
NAMED = {"x-user": ["ada"], "x-verified": ["1"]}


@table(
    ("peer", "headers", "changes", "user"),
    [
        ("10.0.0.1", {}, {}, "ada"),
        ("10.0.0.1", {"x-user": [" bob "]}, {}, "bob"),
        ("11.0.0.1", {}, {}, ""),
        ("", {}, {}, ""),
        ("10.0.0.1", {"x-user": ["eve"]}, {}, ""),
        ("10.0.0.1", {"x-user": ["ADA"]}, {}, ""),
        ("10.0.0.1", {"x-user": [""]}, {}, ""),
        ("10.0.0.1", {"x-user": ["ada", "eve"]}, {}, ""),
        ("10.0.0.1", {"x-user": []}, {}, ""),
        ("10.0.0.1", {"x-verified": []}, {}, ""),
        ("10.0.0.1", {"x-verified": [""]}, {}, ""),
        ("10.0.0.1", {"x-verified": ["1", "1"]}, {}, ""),
        ("10.0.0.1", {"x-user": ["eve"]}, {"allow_users": None}, "eve"),
        ("10.0.0.1", {"x-user": ["a\nb"]}, {"allow_users": None}, ""),
        ("10.0.0.1", {"x-user": ["a" * 201]}, {"allow_users": None}, ""),
        ("10.0.0.1", {}, {"allow_users": ()}, ""),
        ("10.0.0.1", {"x-verified": []}, {"required_headers": ()}, "ada"),
        ("::1", {}, {}, ""),
        ("::1", {}, {"allow_loopback": True}, "ada"),
        ("127.0.0.1", {}, {"allow_loopback": True}, ""),
    ],
)
def test_only_a_trusted_proxy_can_name_a_user(
    peer: str, headers: dict[str, list[str]], changes: dict[str, Any], user: str
) -> None:
    policy = replace(POLICY, login=replace(LOGIN, **changes))
    assert find_user(policy, peer, NAMED | headers) == user
    place = locate(policy, peer, {"host": ["localhost"], **NAMED, **headers})
    assert place.user == user
    assert find_user(POLICY, peer, NAMED | headers) == ""
