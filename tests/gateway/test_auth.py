"""Who may connect: the decision as a function of its inputs, case by case."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.gateway.conftest import Device, hello_params
from tests.tables import table

from clawkit.gateway.auth import (
    Admit,
    Attempt,
    AuthPolicy,
    Decision,
    Grant,
    KnownDevice,
    Mode,
    Pair,
    Refuse,
    decide,
    hash_token,
    same,
)
from clawkit.gateway.origin import RequestOrigin
from clawkit.gateway.protocol import Connect

SECRET, READ, WRITE, ADMIN = "s3cret", "operator.read", "operator.write", "operator.admin"
NOW = 1_700_000_000_000
LOCAL, FAR = RequestOrigin("127.0.0.1", True), RequestOrigin("203.0.113.5")
DEVICE = Device()


def known(
    *scopes: str, role: str = "operator", token: str = "dt", platform: str = "linux"
) -> KnownDevice:
    hashed = hash_token(token) if token else ""
    return KnownDevice(platform, "", {role: Grant(scopes, hashed)})


def judge(
    auth: dict[str, Any],
    *,
    mode: Mode = "token",
    place: RequestOrigin = LOCAL,
    scopes: tuple[str, ...] = (READ,),
    client: tuple[str, str] = ("cli", "cli"),
    device: bool = False,
    known_as: KnownDevice | None = None,
    auto: bool = True,
    near: bool = False,
    code: bool = False,
    **more: Any,
) -> Decision:
    params = hello_params(list(scopes), client=client, auth=auth, **more)
    if device:
        params["device"] = DEVICE.claim(params, "n", NOW)
    connect = msgspec.convert(params, Connect)
    policy = AuthPolicy(mode, "" if mode == "none" else SECRET, auto, OWN["token"])
    return decide(policy, Attempt(connect, place, "n", NOW, known_as, near, code))


def shown(decision: Decision) -> Any:
    """A decision in one word or code."""
    if isinstance(decision, Admit):
        how = "approved" if decision.approve else "admitted"
        return how, decision.method, decision.scopes
    if isinstance(decision, Pair):
        return "pair", decision.reason
    assert decision.error.details is not None
    return decision.error.details["code"]


OWN = {"token": "what only commands of this home can read"}
T, P, DT = {"token": SECRET}, {"password": SECRET}, {"deviceToken": "dt"}
CODE = {"bootstrapToken": "c"}
OK_READ = ("admitted", "token", (READ,))
CASES: list[tuple[str, dict[str, Any], dict[str, Any], Any]] = [
    # Without a device: the secret in either field, scopes only for trusted programs nearby.
    ("token", T, {}, OK_READ),
    ("token as password", P, {}, OK_READ),
    ("both, one right", {"token": "no", "password": SECRET}, {}, OK_READ),
    ("password mode", T, {"mode": "password"}, ("admitted", "password", (READ,))),
    ("backend", T, {"client": ("gateway-client", "backend")}, OK_READ),
    ("probe", T, {"client": ("cli", "probe")}, ("admitted", "token", ())),
    ("ui", T, {"client": ("openclaw-tui", "ui")}, ("admitted", "token", ())),
    ("remote cli", T, {"place": FAR}, ("admitted", "token", ())),
    (
        "page on this machine",
        T,
        {"place": RequestOrigin("127.0.0.1", True, is_browser=True)},
        ("admitted", "token", ()),
    ),
    ("wrong token", {"token": "no"}, {}, "AUTH_TOKEN_MISMATCH"),
    ("almost", {"token": SECRET + " "}, {}, "AUTH_TOKEN_MISMATCH"),
    ("wrong password", {"password": "no"}, {"mode": "password"}, "AUTH_PASSWORD_MISMATCH"),
    ("nothing", {}, {}, "DEVICE_IDENTITY_REQUIRED"),
    ("null", {"token": None}, {}, "DEVICE_IDENTITY_REQUIRED"),
    ("empty", {"token": ""}, {}, "DEVICE_IDENTITY_REQUIRED"),
    ("device token without a device", DT, {}, "DEVICE_IDENTITY_REQUIRED"),
    ("node without a device", T, {"role": "node", "scopes": ()}, "DEVICE_IDENTITY_REQUIRED"),
    # A one-time code approves a device, wherever it is, as an operator.
    ("code", CODE, {"device": True, "code": True}, ("approved", "bootstrap-token", (READ,))),
    (
        "code from afar, without automatic approval",
        CODE,
        {"device": True, "code": True, "place": FAR, "auto": False},
        ("approved", "bootstrap-token", (READ,)),
    ),
    ("code of a stranger", CODE, {"device": True}, "AUTH_BOOTSTRAP_TOKEN_INVALID"),
    ("code without a device", CODE, {"code": True}, "DEVICE_IDENTITY_REQUIRED"),
    (
        "code for a node",
        CODE,
        {"device": True, "code": True, "role": "node", "scopes": ()},
        "AUTH_BOOTSTRAP_TOKEN_INVALID",
    ),
    (
        "code beside a wrong token",
        {**CODE, "token": "no"},
        {"device": True},
        "AUTH_BOOTSTRAP_TOKEN_INVALID",
    ),
    # The commands of this home, in every mode and behind every proxy; no page, no node.
    ("own", OWN, {}, OK_READ),
    ("own, password mode", OWN, {"mode": "password"}, OK_READ),
    ("own, none", OWN, {"mode": "none"}, OK_READ),
    ("own, behind a proxy", OWN, {"place": FAR}, OK_READ),
    ("own, as a password", {"password": OWN["token"]}, {}, "AUTH_TOKEN_MISMATCH"),
    ("own, almost", {"token": OWN["token"] + "x"}, {}, "AUTH_TOKEN_MISMATCH"),
    (
        "own, page",
        OWN,
        {"place": RequestOrigin("::1", True, is_browser=True)},
        "AUTH_TOKEN_MISMATCH",
    ),
    ("own, node", OWN, {"role": "node", "scopes": ()}, "AUTH_TOKEN_MISMATCH"),
    ("own, device", OWN, {"device": True}, "AUTH_TOKEN_MISMATCH"),
    # Mode none: a device, or a backend on this machine.
    ("none, cli", {}, {"mode": "none"}, "DEVICE_IDENTITY_REQUIRED"),
    (
        "none, backend",
        {},
        {"mode": "none", "client": ("gateway-client", "backend")},
        ("admitted", "none", (READ,)),
    ),
    (
        "none, remote backend",
        {},
        {"mode": "none", "client": ("gateway-client", "backend"), "place": FAR},
        "DEVICE_IDENTITY_REQUIRED",
    ),
    ("none, device", {}, {"mode": "none", "device": True}, ("approved", "none", (READ,))),
    (
        "none, remote device",
        {},
        {"mode": "none", "device": True, "place": FAR},
        ("pair", "not-paired"),
    ),
    # New devices: approved on this machine, a person decides about others.
    ("new, local", T, {"device": True}, ("approved", "token", (READ,))),
    ("new, local, not automatic", T, {"device": True, "auto": False}, ("pair", "not-paired")),
    ("new, remote", T, {"device": True, "place": FAR}, ("pair", "not-paired")),
    (
        "new node in a trusted network",
        T,
        {"device": True, "place": FAR, "near": True, "role": "node", "scopes": ()},
        ("approved", "token", ()),
    ),
    (
        "new operator in a trusted network",
        T,
        {"device": True, "place": FAR, "near": True},
        ("pair", "not-paired"),
    ),
    ("no secret", {}, {"device": True}, "AUTH_TOKEN_MISSING"),
    ("no password", {}, {"device": True, "mode": "password"}, "AUTH_PASSWORD_MISSING"),
    ("wrong, new device", {"token": "no"}, {"device": True}, "AUTH_TOKEN_MISMATCH"),
    # Paired devices.
    ("paired", T, {"device": True, "known_as": known(READ), "place": FAR}, OK_READ),
    (
        "write covers read",
        T,
        {"device": True, "known_as": known(WRITE), "place": FAR},
        OK_READ,
    ),
    (
        "more scopes, remote",
        T,
        {"device": True, "known_as": known(READ), "place": FAR, "scopes": (ADMIN,)},
        ("pair", "scope-upgrade"),
    ),
    (
        "more scopes, local",
        T,
        {"device": True, "known_as": known(READ), "scopes": (ADMIN,)},
        ("approved", "token", (ADMIN,)),
    ),
    (
        "another role",
        T,
        {"device": True, "known_as": known(role="node"), "place": FAR},
        ("pair", "role-upgrade"),
    ),
    (
        "another platform",
        T,
        {"device": True, "known_as": known(READ, platform="windows"), "place": FAR},
        ("pair", "metadata-upgrade"),
    ),
    # Device tokens speak for what was approved, and for nothing else.
    (
        "device token",
        DT,
        {"device": True, "known_as": known(READ), "place": FAR},
        ("admitted", "device-token", (READ,)),
    ),
    (
        "device token as token",
        {"token": "dt"},
        {"device": True, "known_as": known(READ), "place": FAR},
        ("admitted", "device-token", (READ,)),
    ),
    (
        "device token, more scopes",
        DT,
        {"device": True, "known_as": known(READ), "scopes": (ADMIN,)},
        "AUTH_SCOPE_MISMATCH",
    ),
    (
        "wrong device token",
        {"deviceToken": "x"},
        {"device": True, "known_as": known(READ)},
        "AUTH_DEVICE_TOKEN_MISMATCH",
    ),
    (
        "revoked device token",
        DT,
        {"device": True, "known_as": known(READ, token="")},
        "AUTH_DEVICE_TOKEN_MISMATCH",
    ),
    (
        "empty hash",
        {"deviceToken": ""},
        {"device": True, "known_as": known(READ, token="")},
        "AUTH_TOKEN_MISSING",
    ),
    (
        "token of another role",
        DT,
        {"device": True, "known_as": known(role="node")},
        "AUTH_DEVICE_TOKEN_MISMATCH",
    ),
    ("device token of a stranger", DT, {"device": True}, "AUTH_DEVICE_TOKEN_MISMATCH"),
    (
        "device token, another platform, local",
        DT,
        {"device": True, "known_as": known(READ, platform="windows")},
        ("pair", "metadata-upgrade"),
    ),
    # Where it comes from.
    (
        "foreign page",
        T,
        {"place": RequestOrigin("127.0.0.1", True, True, bad_origin=True)},
        "CONTROL_UI_ORIGIN_NOT_ALLOWED",
    ),
    # Protocol versions.
    ("old", T, {"minProtocol": 1, "maxProtocol": 3}, "PROTOCOL_MISMATCH"),
    ("new", T, {"minProtocol": 5, "maxProtocol": 9}, "PROTOCOL_MISMATCH"),
    ("range", T, {"minProtocol": 3, "maxProtocol": 4}, OK_READ),
    ("backwards", T, {"minProtocol": 4, "maxProtocol": 3}, "PROTOCOL_MISMATCH"),
]


@pytest.mark.parametrize(
    ("auth", "given", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_decide_allows_or_refuses_connections(
    auth: dict[str, Any], given: dict[str, Any], expected: Any
) -> None:
    assert shown(judge(auth, **given)) == expected


def test_an_old_node_may_speak_the_version_before() -> None:
    old: dict[str, Any] = {
        "minProtocol": 3,
        "maxProtocol": 3,
        "role": "node",
        "scopes": (),
        "device": True,
    }
    assert isinstance(judge(T, client=("node-host", "node"), **old), Admit)
    assert shown(judge(T, client=("node-host", "cli"), **old)) == "PROTOCOL_MISMATCH"


def test_a_mismatch_of_versions_closes_with_its_own_code() -> None:
    decision = judge(T, minProtocol=1, maxProtocol=1)
    assert isinstance(decision, Refuse)
    assert decision.close == 1002
    assert decision.error.message == "protocol mismatch"


def test_only_a_wrong_secret_counts_as_a_guess() -> None:
    guesses = [judge({"token": "no"}), judge({"deviceToken": "x"}, device=True)]
    others = [judge({}), judge({}, device=True), judge(T, minProtocol=9, maxProtocol=9)]
    assert [each.is_guess for each in guesses if isinstance(each, Refuse)] == [True, True]
    assert [each.is_guess for each in others if isinstance(each, Refuse)] == [False] * 3


def test_unknown_scopes_and_roles_are_refused() -> None:
    for given in ({"scopes": ("operator.root",)}, {"role": "worker"}):
        decision = judge(T, **given)
        assert isinstance(decision, Refuse)


@table(
    ("one", "other", "equal"),
    [
        ("a", "a", True),
        ("a", "b", False),
        ("", "", False),
        ("a", "", False),
        ("é", "é", True),
        ("\ud800", "\ud800", True),
    ],
)
def test_an_empty_secret_equals_nothing(one: str, other: str, equal: bool) -> None:
    assert same(one, other) is equal


USER = msgspec.structs.replace(FAR, user="ada")


@table(
    ("place", "auth", "device", "expected"),
    [
        (USER, {}, False, Admit("operator", (), "trusted-proxy")),
        (USER, {}, True, Pair("operator", "not-paired")),
        (USER, {"token": "wrong"}, True, Pair("operator", "not-paired")),
        (FAR, {}, True, "AUTH_TRUSTED_PROXY_REJECTED"),
        (FAR, {}, False, "AUTH_TRUSTED_PROXY_REJECTED"),
        (FAR, {"token": SECRET}, False, "AUTH_TRUSTED_PROXY_REJECTED"),
        (FAR, {"token": SECRET}, True, "AUTH_TRUSTED_PROXY_REJECTED"),
        (FAR, {"deviceToken": "dt"}, True, "AUTH_TRUSTED_PROXY_REJECTED"),
        (LOCAL, {"token": SECRET}, False, Admit("operator", (READ,), "token")),
        (LOCAL, {"token": "wrong"}, False, "AUTH_TOKEN_MISMATCH"),
        (LOCAL, {}, True, "AUTH_TOKEN_MISSING"),
    ],
)
def test_a_proxy_names_the_user_and_this_machine_has_a_token(
    place: RequestOrigin, auth: dict[str, Any], device: bool, expected: Decision | str
) -> None:
    found = judge(auth, mode="trusted-proxy", place=place, device=device)
    if isinstance(found, Refuse):
        assert found.error.details is not None
        assert found.error.details["code"] == expected
    else:
        assert found == expected


def test_a_user_of_a_proxy_has_what_its_device_was_approved_for() -> None:
    found = judge({}, mode="trusted-proxy", place=USER, device=True, known_as=known(READ))
    assert found == Admit("operator", (READ,), "trusted-proxy")
    wider = judge(
        {}, mode="trusted-proxy", place=USER, device=True, known_as=known(READ), scopes=(ADMIN,)
    )
    assert wider == Pair("operator", "scope-upgrade")


def test_a_foreign_page_is_refused_for_every_user() -> None:
    place = msgspec.structs.replace(USER, bad_origin=True, is_browser=True)
    assert isinstance(judge({}, mode="trusted-proxy", place=place, device=True), Refuse)
