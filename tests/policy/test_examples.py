"""What the policy makes of the example configurations people know."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from clawkit.agent.assemble import assemble
from clawkit.config.load import load
from clawkit.config.modelref import ModelRef
from clawkit.core.context import Scope, Sender

EXAMPLES = Path(__file__).parent.parent / "config" / "examples"
SUPPORT = Scope(
    agent="support", model=ModelRef("google-antigravity", "x"), sender=Sender(owner=True)
)
# Why `exec` is removed for the support agent on that model; None where it is kept.
EXPECTED: dict[str, tuple[int, str, str | None] | None] = {
    "agent-profile": (1, "agents.support.tools.profile", "messaging"),
    "agent-provider-allow": (
        6,
        "agents.support.tools.byProvider.google-antigravity.allow",
        None,
    ),
    "coding-profile-without-runtime": (3, "tools.deny", "group:runtime"),
    "deny-browser": None,
    "deny-file-changes": None,
    "messaging-profile-with-channels": (1, "tools.profile", "messaging"),
    "only-files-and-browser": (3, "tools.allow", None),
    "provider-and-model-policy": (2, "tools.byProvider.google-antigravity.profile", "minimal"),
    "provider-model-allow": None,
    "provider-profile": (2, "tools.byProvider.google-antigravity.profile", "minimal"),
    "whole-tools-section": None,
}


def _exec_for_the_support_agent(name: str) -> None:
    config = load(str(EXAMPLES / f"{name}.json5")).config
    cause = assemble(config, SUPPORT).decision.verdicts["exec"].removed_by
    assert (cause and (cause.number, cause.key, cause.entry)) == EXPECTED[name]


def test_exec_for_the_support_agent(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = EXPECTED
    for name in cases:
        with subtests.test(name=name):
            _exec_for_the_support_agent(name)


def test_a_model_specific_allow_list_applies_to_that_model_only() -> None:
    config = load(str(EXAMPLES / "provider-model-allow.json5")).config
    scope = Scope(model=ModelRef("openai", "gpt-5.2"), sender=Sender(owner=True))
    verdicts = assemble(config, scope).decision.verdicts
    kept = {name for name, verdict in verdicts.items() if verdict.allowed}
    files = {"read", "write", "edit", "apply_patch", "grep", "find", "ls"}
    assert kept == files | {"sessions_list"}
    cause = verdicts["exec"].removed_by
    assert cause is not None
    assert (cause.number, cause.key) == (4, "tools.byProvider.openai/gpt-5.2.allow")
