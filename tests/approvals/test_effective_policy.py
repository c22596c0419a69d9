"""Of the settings, the document and the call the strictest counts."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any, get_args

import pytest
from msgspec import structs
from tests.tables import table

from clawkit.approvals.effective_policy import combine, most_asking, strictest
from clawkit.approvals.file import DocPolicy
from clawkit.config.sections.tools import Ask, Exec, Security

NO_FLOOR = DocPolicy("full", "off", "deny")
SECURITIES: tuple[Security, ...] = get_args(Security)
ASKS: tuple[Ask, ...] = get_args(Ask)
STRICT = {"deny": 0, "allowlist": 1, "full": 2}
ASKING = {"off": 0, "on-miss": 1, "always": 2}


def _nobody_can_loosen_security(one: Security, two: Security, three: Security) -> None:
    policy = combine(Exec(security=one), structs.replace(NO_FLOOR, security=two), security=three)
    assert STRICT[policy.security] == min(STRICT[one], STRICT[two], STRICT[three])


def test_security_cannot_be_loosened(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = list(product(SECURITIES, repeat=3))
    for one, two, three in cases:
        with subtests.test(one=one, two=two, three=three):
            _nobody_can_loosen_security(one, two, three)


def _nobody_can_ask_less(one: Ask, two: Ask, three: Ask) -> None:
    policy = combine(Exec(ask=one), structs.replace(NO_FLOOR, ask=two), ask=three)
    assert ASKING[policy.ask] == max(ASKING[one], ASKING[two], ASKING[three])


def test_ask_cannot_be_loosened(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = list(product(ASKS, repeat=3))
    for one, two, three in cases:
        with subtests.test(one=one, two=two, three=three):
            _nobody_can_ask_less(one, two, three)


@table("wrong", ["", "Full", "everything", None])
def test_an_unknown_level_is_an_error(wrong: Any) -> None:
    if wrong is None:
        assert (strictest("full", wrong), most_asking("off", wrong)) == ("full", "off")
        return
    with pytest.raises(ValueError, match="not in"):
        strictest("full", wrong)
    with pytest.raises(ValueError, match="not in"):
        most_asking("off", wrong)


@table(
    ("settings", "document", "call", "sources"),
    [
        (
            Exec(),
            NO_FLOOR,
            {},
            (
                "tools.exec.security is 'allowlist' by default",
                "tools.exec.ask is 'on-miss' by default",
            ),
        ),
        (Exec(mode="full"), NO_FLOOR, {}, ("tools.exec.mode is 'full'",)),
        (
            Exec(security="full", ask="off"),
            NO_FLOOR,
            {},
            ("tools.exec.security is 'full'", "tools.exec.ask is 'off'"),
        ),
        (
            Exec(mode="full"),
            structs.replace(NO_FLOOR, security="deny"),
            {},
            ("tools.exec.mode is 'full'", "security is 'deny' in d.json"),
        ),
        (
            Exec(mode="full"),
            structs.replace(NO_FLOOR, security="allowlist", ask="always"),
            {},
            ("security is 'allowlist' in d.json", "ask is 'always' in d.json"),
        ),
        (
            Exec(mode="full"),
            NO_FLOOR,
            {"security": "deny", "ask": "always"},
            ("this call requested security 'deny'", "this call requested ask 'always'"),
        ),
        (Exec(mode="full"), NO_FLOOR, {"security": "full"}, ("tools.exec.mode is 'full'",)),
        (
            Exec(mode="full"),
            DocPolicy("deny", "on-miss", "deny", frozenset(("security",))),
            {},
            (
                "security is 'deny', because security is left out, in d.json",
                "ask is 'on-miss' in d.json",
            ),
        ),
    ],
)
def test_the_source_of_the_policy_is_reported(
    settings: Exec, document: DocPolicy, call: Any, sources: tuple[str, ...]
) -> None:
    assert combine(settings, document, where="d.json", **call).sources == sources


@table(
    ("settings", "document", "call", "to_loosen"),
    [
        (
            Exec(mode="deny"),
            NO_FLOOR,
            None,
            "clawkit config set 'agents.list[0].tools.exec'.mode ask",
        ),
        (
            Exec(security="deny"),
            NO_FLOOR,
            None,
            "clawkit config set 'agents.list[0].tools.exec'.security allowlist",
        ),
        (Exec(security="deny"), structs.replace(NO_FLOOR, security="deny"), None, ""),
        (Exec(), structs.replace(NO_FLOOR, security="deny"), None, ""),
        (Exec(security="deny"), NO_FLOOR, "deny", ""),
        (Exec(), NO_FLOOR, None, ""),
    ],
)
def test_refusals_name_the_command_that_helps(
    settings: Exec, document: DocPolicy, call: Security | None, to_loosen: str
) -> None:
    policy = combine(settings, document, security=call, key="agents.list[0].tools.exec")
    assert policy.to_loosen == to_loosen


def test_what_only_the_document_knows_is_taken_from_it() -> None:
    policy = combine(Exec(), DocPolicy("full", "off", "full"))
    assert policy.fallback == "full"
