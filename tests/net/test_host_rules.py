"""Which hosts the sandbox's proxy reaches."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawkit.errors import ToolError
from clawkit.net.host_rules import PACKAGES, judge, judge_addresses, make_rules, read_host

RULES = make_rules(
    [
        "example.org",
        "*.example.net",
        "deep.example.com:8443",
        "git.example.org:22",
        "bücher.example",
        "9.9.9.9",
        "[2620:fe::fe]:853",
    ],
    ["127.0.0.1:8080", "[::1]:8080", "10.1.2.3"],
)


@pytest.fixture(autouse=True)
def _own_home() -> None:
    """Nothing here looks at a home."""


def test_a_host_is_judged_by_name_and_port(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("example.org", 443, "allow"),
        ("example.org", 80, "allow"),
        ("EXAMPLE.Org", 443, "allow"),
        ("example.org.", 443, "allow"),
        ("example.org", 22, "ask"),
        ("example.org", 8080, "ask"),
        ("www.example.org", 443, "ask"),
        ("example.org.evil.test", 443, "ask"),
        ("notexample.org", 443, "ask"),
        ("org", 443, "ask"),
        ("a.example.net", 443, "allow"),
        ("a.b.example.net", 80, "allow"),
        ("example.net", 443, "ask"),  # the apex is not below itself
        ("xexample.net", 443, "ask"),
        ("a.example.net", 8443, "ask"),
        ("deep.example.com", 8443, "allow"),
        ("deep.example.com", 443, "ask"),  # an entry with a port is for that port alone
        ("git.example.org", 22, "allow"),
        ("git.example.org", 443, "ask"),
        ("bücher.example", 443, "allow"),
        ("BÜCHER.example", 443, "allow"),
        ("xn--bcher-kva.example", 443, "allow"),
        ("bu\u0308cher.example", 443, "allow"),  # the same letters in two pieces
        ("b\u00fccher\u3002example", 443, "allow"),  # a full stop of another script
        ("buсher.example", 443, "ask"),  # Cyrillic
        ("9.9.9.9", 443, "allow"),
        ("9.9.9.10", 443, "deny"),
        ("9.9.9.9", 22, "deny"),
        ("[2620:fe::fe]", 853, "allow"),
        ("2620:fe::fe", 853, "allow"),
        ("2620:fe:0:0::00fe", 853, "allow"),
        ("2620:fe::fe", 443, "deny"),
        ("127.0.0.1", 8080, "allow"),
        ("127.1", 8080, "allow"),  # the same address
        ("::1", 8080, "allow"),
        ("127.0.0.1", 80, "deny"),
        ("127.0.0.2", 8080, "deny"),
        ("10.1.2.3", 443, "allow"),
        ("10.1.2.4", 443, "deny"),
        ("localhost", 8080, "deny"),
        ("a.localhost", 80, "deny"),
        ("metadata.google.internal", 80, "deny"),
        ("example.org", 0, "deny"),
        ("example.org", 65_536, "deny"),
        ("example.org", -1, "deny"),
    ]
    for host, port, action in cases:
        with subtests.test(host=host, port=port, action=action):
            verdict = judge(host, port, RULES)
            assert verdict.action == action
            assert (verdict.reason == "") == (action == "allow")


def test_what_is_not_a_host_name_is_denied_and_safe_to_show(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        "",
        ".",
        "..",
        ".example.org",
        "example..org",
        "example.org..",
        "user@example.org",
        "user:secret@example.org",
        "example.org@evil.test",
        "example.org:443",
        "example%2eorg",
        "example.org%00.evil.test",
        "example.org\x00",
        "example.org\n",
        "\texample.org",
        "exa mple.org",
        "example.org/",
        "example.org\\",
        "example.org#",
        "example.org?",
        "_dmarc.example.net",
        "a_b.example.net",
        "-a.example.net",
        "a-.example.net",
        "*.example.net",
        "*",
        "a" * 64 + ".example.net",
        ".".join(["a" * 60] * 5) + ".example.net",
        "a" * 100_000,
        "ß.example.net",  # two standards take it for two names
        "[example.org]",
        "[example.org",
        "example.org]",
        "\udc80.example.net",
    ]
    for host in cases:
        with subtests.test(host=host):
            verdict = judge(host, 443, RULES)
            assert verdict.action == "deny"
            assert verdict.host.name.isprintable()
            assert verdict.host.name.isascii()
            assert len(verdict.host.name) < 1_500


SPELLINGS = [
    # of 127.0.0.1
    "127.0.0.1",
    "127.0.0.1.",
    "127.1",
    "127.0.1",
    "2130706433",
    "0x7f000001",
    "0X7F.1",
    "0x7f.0.0.1",
    "0177.0.0.1",
    "0177.0.0.01",
    "017700000001",
    "00000177.1",
    "127.0.0.0x1",
    "１２７.0.0.1",
    "127。0。0。1",
    "①②⑦.0.0.1",
    "::1",
    "[::1]",
    "0:0:0:0:0:0:0:1",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "::ffff:0:127.0.0.1",
    "[::127.0.0.1]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b:1::7f00:1]",
    "[2002:7f00:1::]",
    "[2001:0:7f00:1::]",
    "[::1%lo]",
    "[fe80::1%eth0]",
    "[fe80::1%25eth0]",
    "fe80::1%1",
    # other places that are not public
    "0.0.0.0",
    "0",
    "0x0",
    "[::]",
    "10.0.0.1",
    "012.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "3232235777",
    "100.64.0.1",
    "169.254.0.1",
    "169.254.169.254",
    "0xa9fea9fe",
    "2852039166",
    "[::ffff:a9fe:a9fe]",
    "[64:ff9b::a9fe:a9fe]",
    "[2002:a9fe:a9fe::]",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "[fd00:ec2::254]",
    "[fc00::1]",
    "[fec0::1]",
    "[ff02::1]",
    "224.0.0.1",
    "255.255.255.255",
    "240.0.0.1",
    "192.0.2.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "[2001:db8::1]",
    # no address, but read as one by some
    "256.1.1.1",
    "1.2.3.4.5",
    "127.0.0.1.2130706433",
    "0x",
    "08.8.8.8",
    "127.0.0.0x",
    "4294967296",
    "1.16777216",
    "127.0..1",
    "[127.0.0.1]",
    "[1.2.3]",
    "127.0.0.1:80",
    # public, but on no list
    "8.8.8.8",
    "134744072",
    "[2606:4700::1111]",
    "[::ffff:8.8.8.8]",
]


def test_no_spelling_of_an_address_is_a_name_or_a_question(subtests: pytest.Subtests) -> None:
    """Not even where every name is allowed that could be meant."""
    cases: list[Any] = [80, 443]
    for host in SPELLINGS:
        for port in cases:
            with subtests.test(port=port, host=host):
                rules = make_rules(["*.0.example", "example.org", "*.example.net"])
                assert judge(host, port, rules).action == "deny"


@given(st.integers(0, 2**32 - 1), st.sampled_from(["d", "x", "o"]), st.integers(1, 4))
def test_an_address_is_the_same_in_every_base_and_length(value: int, base: str, parts: int) -> None:
    octets = [value >> shift & 255 for shift in (24, 16, 8, 0)]
    last = value & (256 ** (5 - parts) - 1)
    numbers = [*octets[: parts - 1], last]
    form = {"d": "{}", "x": "0x{:x}", "o": "0{:o}"}[base]
    host = read_host(".".join(form.format(number) for number in numbers))
    assert host.address is not None
    assert int(host.address) == value


@given(st.text(max_size=80), st.integers(0, 70_000))
def test_any_text_gets_a_verdict_that_can_be_shown(host: str, port: int) -> None:
    verdict = judge(host, port, RULES)
    assert verdict.host.name.isascii()
    assert verdict.host.name.isprintable()
    if verdict.action == "allow" and verdict.host.address is None:
        assert verdict.host.name == judge(verdict.host.name, port, RULES).host.name


def test_one_address_that_is_not_public_spoils_a_name(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        (["9.9.9.9"], ""),
        (["9.9.9.9", "2620:fe::fe", "9.9.9.9"], ""),
        ([], ""),
        (["10.0.0.1"], "private"),
        (["9.9.9.9", "127.0.0.1"], "loopback"),
        (["127.0.0.1", "9.9.9.9"], "loopback"),
        (["9.9.9.9", "::ffff:127.0.0.1"], "loopback"),
        (["9.9.9.9", "64:ff9b::7f00:1"], "reserved"),
        (["9.9.9.9", "169.254.169.254"], "metadata"),
        (["9.9.9.9", "fe80::1%eth0"], "is invalid"),
        (["9.9.9.9", "0.0.0.0"], "unspecified"),
        (["9.9.9.9", "not an address"], "is invalid"),
        (["9.9.9.9", "localhost"], "is invalid"),
        (["9.9.9.9", ""], "is invalid"),
        (["10.1.2.3"], ""),
        (["10.1.2.3", "10.1.2.4"], "private"),
        (["9.9.9.9", "10.1.2.3"], ""),
    ]
    for found, reason in cases:
        with subtests.test(found=found, reason=reason):
            addresses, why = judge_addresses(found, 443, RULES)
            assert reason in why
            assert (why == "") == (reason == "")
            assert len(addresses) == (0 if reason else len(set(found)))


def test_an_exception_for_a_private_address_is_for_its_port() -> None:
    assert judge_addresses(["127.0.0.1", "::1"], 8080, RULES)[1] == ""
    assert judge_addresses(["127.0.0.1"], 8081, RULES)[1] != ""


def test_an_entry_without_an_effect_is_an_error_that_names_it(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        "",
        "*",
        "*.",
        "*.org",
        "**.example.org",
        "a.*.example.org",
        "*.9.9.9.9",
        "http://example.org",
        "example.org/path",
        "user@example.org",
        "example.org:0",
        "example.org:65536",
        "example.org:",
        "example.org:http",
        "2620:fe::fe",
        "127.0.0.1",
        "10.0.0.0/8",
        "192.168.1.1",
        "169.254.169.254:80",
        "a_b.example.org",
        "exa mple.org",
    ]
    for entry in cases:
        with subtests.test(entry=entry):
            with pytest.raises(ToolError, match="invalid host") as caught:
                make_rules([entry])
            assert repr(entry) in str(caught.value)


def test_private_exceptions_are_addresses_that_are_not_public(subtests: pytest.Subtests) -> None:
    cases: list[Any] = ["9.9.9.9", "example.org", "localhost", "10.0.0.0/8", "*.10.1.1.1"]
    for entry in cases:
        words = r"sandbox.allowPrivate|not a name|wildcard"
        with subtests.test(entry=entry), pytest.raises(ToolError, match=words):
            make_rules([], [entry])


def test_the_preset_for_packages_allows_downloads(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("pypi.org", "allow"),
        ("de.archive.ubuntu.com", "allow"),
        ("upload.pypi.org", "ask"),
        ("github.com", "ask"),
    ]
    for host, action in cases:
        with subtests.test(host=host, action=action):
            assert judge(host, 443, make_rules(PACKAGES)).action == action
