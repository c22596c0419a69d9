"""Where a command runs."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from typing import Any, get_args

import pytest

from clawkit.approvals.hosts import HostName, resolve_host
from clawkit.config.sections.exec import Host
from clawkit.errors import ToolAuthorizationError, ToolInputError

HOSTS: tuple[Host, ...] = get_args(Host)
NAMES: tuple[HostName, ...] = get_args(HostName)
EVERYWHERE = frozenset(NAMES)


def resolve(
    configured: Host = "auto",
    requested: str | None = None,
    *flags: str,
    available: Collection[str] = EVERYWHERE,
    node: str | None = None,
) -> HostName:
    return resolve_host(
        configured,
        requested,
        sandboxed="sandboxed" in flags,
        elevated="elevated" in flags,
        available=available,
        node=node,
    )


def outcome(*given: Any, **options: Any) -> str:
    """The host, or `refused` or `wrong`."""
    try:
        return resolve(*given, **options)
    except ToolAuthorizationError:
        return "refused"
    except ToolInputError:
        return "wrong"


S, E = "sandboxed", "elevated"
# For each configured host and state of the session: what becomes of each request.
TABLE: dict[tuple[str, ...], dict[str | None, str]] = {
    ("auto",): {None: "gateway", "sandbox": "refused", "gateway": "gateway", "node": "node"},
    ("auto", E): {None: "gateway", "sandbox": "refused", "gateway": "gateway", "node": "node"},
    ("auto", S): {None: "sandbox", "sandbox": "sandbox", "gateway": "refused", "node": "refused"},
    ("auto", S, E): {None: "gateway", "sandbox": "wrong", "gateway": "gateway", "node": "node"},
    ("sandbox",): {None: "sandbox", "sandbox": "sandbox", "gateway": "refused", "node": "refused"},
    ("sandbox", E): {None: "sandbox", "sandbox": "sandbox", "gateway": "refused"},
    ("sandbox", S): {None: "sandbox", "sandbox": "sandbox", "gateway": "refused"},
    ("sandbox", S, E): {
        None: "gateway",
        "sandbox": "wrong",
        "gateway": "gateway",
        "node": "refused",
    },
    ("gateway",): {None: "gateway", "sandbox": "refused", "gateway": "gateway", "node": "refused"},
    ("gateway", S): {None: "gateway", "sandbox": "refused", "gateway": "gateway"},
    ("gateway", S, E): {None: "gateway", "sandbox": "refused", "gateway": "gateway"},
    ("node",): {None: "node", "sandbox": "refused", "gateway": "refused", "node": "node"},
    ("node", S): {None: "node", "sandbox": "refused", "gateway": "refused", "node": "node"},
    ("node", S, E): {None: "node", "sandbox": "refused", "gateway": "refused", "node": "node"},
}
CASES = [
    (configured, requested, flags, expected)
    for (configured, *flags), answers in TABLE.items()
    for requested, expected in answers.items()
]


@pytest.mark.parametrize(("configured", "requested", "flags", "expected"), CASES)
def test_a_call_chooses_only_where_the_configuration_lets_it(
    configured: Host, requested: str | None, flags: list[str], expected: str
) -> None:
    assert outcome(configured, requested, *flags) == expected


@pytest.mark.parametrize("configured", HOSTS)
@pytest.mark.parametrize("flags", [(), (S,), (E,), (S, E)])
def test_asking_for_auto_is_like_asking_for_nothing(
    configured: Host, flags: tuple[str, ...]
) -> None:
    assert outcome(configured, "auto", *flags) == outcome(configured, None, *flags)


def test_nobody_leaves_a_sandbox_without_elevated() -> None:
    for configured, requested in itertools.product(("auto", "sandbox"), (None, "auto", *NAMES)):
        assert outcome(configured, requested, S) in ("sandbox", "refused")


@pytest.mark.parametrize(("configured", "requested", "flags", "expected"), CASES)
def test_a_host_that_is_missing_is_not_replaced_by_another(
    configured: Host, requested: str | None, flags: list[str], expected: str
) -> None:
    if expected in NAMES:
        others = EVERYWHERE - {expected}
        assert outcome(configured, requested, *flags, available=others) == "refused"
        assert outcome(configured, requested, *flags, available=()) == "refused"
        assert outcome(configured, requested, *flags, available=[expected]) == expected


@pytest.mark.parametrize(
    ("configured", "requested", "message"),
    [
        ("sandbox", None, "'sandbox': no sandbox is running here. No other host .* is 'sandbox'"),
        (
            "node",
            "node",
            "'node': no node is connected. No other host .* tools.exec.host is 'node'",
        ),
        ("auto", "node", "no node is connected"),
        ("auto", None, "'gateway': this machine itself runs no commands here"),
    ],
)
def test_what_is_missing_is_named(configured: Host, requested: str | None, message: str) -> None:
    with pytest.raises(ToolAuthorizationError, match=message) as caught:
        resolve(configured, requested, available=())
    assert caught.value.reason == "host"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("gateway", "node"), "'node' is refused: tools.exec.host is 'gateway', .* only 'gateway'"),
        (("node", "gateway"), "'gateway' is refused: tools.exec.host is 'node', .* only 'node'"),
        (("auto", "gateway", S), "is 'auto' and the session is sandboxed, .* only 'sandbox'"),
        (("auto", "sandbox"), "no sandbox is running here; .* 'auto', .* 'gateway' or 'node'"),
        (("sandbox", "node", S, E), "tools.exec.host is 'sandbox', which allows only 'gateway'"),
    ],
)
def test_a_refusal_names_the_setting_and_what_it_allows(
    given: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(ToolAuthorizationError, match=message) as caught:
        resolve(*given)
    assert caught.value.reason == "host"


@pytest.mark.parametrize(
    "requested",
    ["", " ", "Gateway", "gateway ", "gate", "docker", "node\0", "ｎode", "x" * 100_000],
)
@pytest.mark.parametrize("configured", HOSTS)
def test_what_is_no_host_is_told_with_those_there_are(configured: Host, requested: str) -> None:
    with pytest.raises(ToolInputError, match="auto, sandbox, gateway, node") as caught:
        resolve(configured, requested, S, E, available={requested, *NAMES})
    assert not isinstance(caught.value, ToolAuthorizationError)
    assert len(str(caught.value)) < 200
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("node",), "node"),
        (("auto", "node"), "node"),
        (("auto",), "wrong"),
        (("auto", "gateway"), "wrong"),
        (("auto", None, S), "wrong"),
        (("auto", "node", S), "refused"),
        (("gateway", None), "wrong"),
    ],
)
def test_a_node_goes_only_with_the_host_node(given: tuple[Any, ...], expected: str) -> None:
    assert outcome(*given, node="kitchen") == expected
    assert outcome(*given, node=" ") == expected
    assert outcome(*given, node="") == outcome(*given, node=None)


def test_a_node_that_does_not_fit_is_told_before_what_is_missing() -> None:
    with pytest.raises(ToolInputError, match="would run on the host 'gateway', not on a node"):
        resolve("auto", None, available=(), node="kitchen")


def test_sandbox_and_elevated_together_are_a_contradiction() -> None:
    with pytest.raises(ToolInputError, match="'sandbox' and elevated contradict"):
        resolve("auto", "sandbox", S, E)
