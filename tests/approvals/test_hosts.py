"""Where a command runs."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from typing import Any, get_args

import pytest
from tests.tables import table

from clawkit.approvals.effective_policy import ExecTarget, HostName, resolve_host
from clawkit.config.sections.tools import Host
from clawkit.errors import ToolAuthorizationError, ToolInputError

HOSTS: tuple[Host, ...] = get_args(Host)
NAMES: tuple[HostName, ...] = get_args(HostName)
BOTH = frozenset({"sandbox", "gateway"})
S, E = "sandboxed", "elevated"
FLAGS: tuple[tuple[str, ...], ...] = ((), (S,), (E,), (S, E))


def resolve(
    configured: Host = "auto",
    requested: str | None = None,
    *flags: str,
    available: Collection[str] = BOTH,
    node: str | None = None,
) -> ExecTarget:
    return resolve_host(
        configured,
        requested,
        sandboxed=S in flags,
        elevated=E in flags,
        available=available,
        node=node,
    )


def outcome(*given: Any, **options: Any) -> str:
    """Where it runs, with `!` when it leaves the sandbox; or `refused` or `wrong`."""
    try:
        target = resolve(*given, **options)
    except ToolAuthorizationError:
        return "refused"
    except ToolInputError:
        return "wrong"
    return f"{target.wanted}{'!' if target.leaves else ''}"


# For each configured host and state of the session: what becomes of no request, and of a request
# for the sandbox, the gateway and a node.
WITH_SANDBOX: dict[tuple[str, ...], str] = {
    ("auto",): "auto sandbox refused refused",
    ("auto", S): "sandbox sandbox refused refused",
    ("auto", E): "host! wrong host! refused",
    ("auto", S, E): "host! wrong host! refused",
    ("sandbox",): "sandbox sandbox refused refused",
    ("sandbox", S): "sandbox sandbox refused refused",
    ("sandbox", E): "host! wrong host! refused",
    ("sandbox", S, E): "host! wrong host! refused",
    ("gateway",): "host refused host refused",
    ("gateway", S): "host refused host refused",
    ("gateway", E): "host refused host refused",
    ("gateway", S, E): "host refused host refused",
    ("node",): "refused refused refused refused",
    ("node", S): "refused refused refused refused",
    ("node", E): "refused refused refused refused",
    ("node", S, E): "refused refused refused refused",
}
WITHOUT: dict[tuple[str, ...], str] = {
    ("auto",): "host refused host refused",
    ("auto", S): "refused refused refused refused",
    ("auto", E): "host refused host refused",
    ("auto", S, E): "host! wrong host! refused",
    ("sandbox",): "refused refused refused refused",
    ("sandbox", S): "refused refused refused refused",
    ("sandbox", E): "host! wrong host! refused",
    ("sandbox", S, E): "host! wrong host! refused",
    ("gateway",): "host refused host refused",
    ("gateway", S): "host refused host refused",
    ("gateway", E): "host refused host refused",
    ("gateway", S, E): "host refused host refused",
    ("node",): "refused refused refused refused",
}


@pytest.mark.parametrize(
    ("table", "available"),
    [(WITH_SANDBOX, BOTH), (WITHOUT, {"gateway"})],
    ids=["with a sandbox", "without"],
)
def test_a_call_chooses_the_host_only_if_configured(
    table: dict[tuple[str, ...], str], available: Collection[str]
) -> None:
    for (configured, *flags), expected in table.items():
        found = [
            outcome(configured, requested, *flags, available=available)
            for requested in (None, *NAMES)
        ]
        assert " ".join(found) == expected, (configured, *flags)


def test_the_most_likely_host_is_named() -> None:
    assert resolve().host == "sandbox"
    assert resolve("auto", "sandbox").host == "sandbox"
    assert resolve("gateway").host == "gateway"
    assert resolve("auto", None, E).host == "gateway"


def test_auto_means_the_same_as_no_host() -> None:
    for configured, flags in itertools.product(HOSTS, FLAGS):
        assert outcome(configured, "auto", *flags) == outcome(configured, None, *flags)


def test_no_one_leaves_a_sandbox_without_elevated() -> None:
    for configured, requested, sandbox in itertools.product(
        ("auto", "sandbox"), (None, "auto", *NAMES), (BOTH, ("gateway",), ("sandbox",), ())
    ):
        found = outcome(configured, requested, S, available=sandbox)
        assert found in ("sandbox", "refused")


def test_a_host_that_is_missing_is_not_replaced_by_another() -> None:
    for configured, requested, flags in itertools.product(HOSTS[1:], (None, *NAMES), FLAGS):
        found = resolve_or_none(configured, requested, *flags)
        if found is not None:
            others = BOTH - {found.host}
            assert outcome(configured, requested, *flags, available=others) == "refused"
            assert outcome(configured, requested, *flags, available=()) == "refused"
            assert resolve(configured, requested, *flags, available=[found.host]) == found


def resolve_or_none(*given: Any) -> ExecTarget | None:
    try:
        return resolve(*given)
    except ToolInputError:
        return None


def test_a_node_is_never_replaced_even_where_there_seems_to_be_one() -> None:
    for configured, requested in (("node", None), ("node", "node"), ("auto", "node")):
        assert outcome(configured, requested, available=NAMES) == "refused"
        assert outcome(configured, requested, available=NAMES, node="kitchen") == "refused"


@table(
    ("given", "available", "message"),
    [
        (("sandbox",), (), "'sandbox': there is no sandbox here. No other host .* is 'sandbox'"),
        (
            ("node", "node"),
            (),
            "'node': commands of agents cannot run on nodes. No other host .* is 'node'",
        ),
        (
            ("auto", "node"),
            BOTH,
            "commands of agents cannot run on nodes; tools.exec.host is 'auto'",
        ),
        (("auto",), (), "'gateway': this machine does not run commands"),
        (("auto", "sandbox"), {"gateway"}, "there is no sandbox here; tools.exec.host is 'auto'"),
        (("gateway", "node"), BOTH, "'node' is refused: .* is 'gateway', .* only 'gateway'"),
        (("node", "gateway"), BOTH, "'gateway' is refused: .* is 'node', .* only 'node'"),
        (("sandbox", "node", S, E), BOTH, "is 'sandbox', which allows only 'gateway'"),
        # Who wants to leave the sandbox is told how to ask for it.
        (("auto", "gateway"), BOTH, "commands run in the sandbox here. .* elevated: true to ask"),
        (("auto", "gateway", S), BOTH, "commands run in the sandbox here. .* elevated: true"),
        (("sandbox", "gateway"), BOTH, "commands run in the sandbox here. .* elevated: true"),
        (("auto", "node", S), BOTH, "commands run in the sandbox here. .* elevated: true"),
    ],
)
def test_a_refusal_states_the_reason_and_what_would_help(
    given: tuple[Any, ...], available: Collection[str], message: str
) -> None:
    with pytest.raises(ToolAuthorizationError, match=message) as caught:
        resolve(*given, available=available)
    assert caught.value.reason == "host"


@table(
    "requested",
    ["", " ", "Gateway", "gateway ", "gate", "docker", "node\0", "ｎode", "x" * 100_000],
)
def test_an_unknown_host_is_an_error_that_lists_the_known_ones(requested: str) -> None:
    for configured in HOSTS:
        with pytest.raises(ToolInputError, match="auto, sandbox, gateway, node") as caught:
            resolve(configured, requested, S, E, available={requested, *NAMES})
        assert not isinstance(caught.value, ToolAuthorizationError)
        assert len(str(caught.value)) < 200
        assert str(caught.value).isprintable()


def test_a_node_can_only_be_named_with_the_host_node() -> None:
    for given in (("auto",), ("auto", "sandbox"), ("auto", None, S), ("gateway", None)):
        for name in ("kitchen", " "):
            assert outcome(*given, node=name) == "wrong"
        assert outcome(*given, node="") == outcome(*given, node=None)
    with pytest.raises(ToolInputError, match="would run on the host 'gateway', not on a node"):
        resolve("auto", None, available=(), node="kitchen")


def test_sandbox_and_elevated_together_are_a_contradiction() -> None:
    with pytest.raises(ToolInputError, match="'sandbox' and elevated contradict"):
        resolve("auto", "sandbox", E)
