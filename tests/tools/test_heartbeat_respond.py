"""heartbeat_respond: outside a heartbeat, and as models are offered it. The rest is in
tests/gateway/test_heartbeats.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clawkit.cron.protocols import HeartbeatControl
from clawkit.gateway.heartbeats import Reply
from clawkit.services import Services
from clawkit.testing import check_tool, open_kit
from clawkit.tools.heartbeat_respond import TOOL

PLAIN = {"outcome": "done", "notify": False, "summary": "All is quiet."}


def test_models_can_be_offered_it() -> None:
    assert check_tool(TOOL) == []


async def test_outside_a_heartbeat_the_tool_is_refused_with_its_purpose(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        result = await kit.call("heartbeat_respond", PLAIN)
        assert result.is_error
        assert "it is for the heartbeats of a gateway" in result.as_text()


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({}, {}),
        ({"scratch": "né"}, {"scratchBytes": 3}),
        ({"scratch": ""}, {"scratchBytes": 0}),
        ({"scratch": "x" * 262_144}, {"scratchBytes": 262_144}),
        ({"notification_text": "Hi", "next_check": "20m"}, {}),
        ({"notificationText": "Hi", "nextCheck": "20m"}, {}),
    ],
)
async def test_the_result_repeats_what_was_accepted(
    tmp_path: Path, given: dict[str, Any], shown: dict[str, Any]
) -> None:
    reply = Reply()
    async with open_kit(tmp_path, in_heartbeat=True) as kit:
        assert isinstance(kit.run.services, Services)
        kit.run.services.fill(HeartbeatControl, lambda: reply)
        result = await kit.call("heartbeat_respond", {**PLAIN, **given})
        assert result.details == {"status": "accepted", **PLAIN, **shown, "endsTurn": True}
        assert reply.given is not None
        assert reply.given.notification_text == ("Hi" if len(given) == 2 else "")
        assert reply.delay_ms == (1_200_000 if len(given) == 2 else 0)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"summary": " \n"}, "summary must not be empty"),
        ({"nextCheck": "tomorrow"}, "nextCheck: invalid time 'tomorrow'"),
        ({"scratch": "x" * 262_145}, "262,144 bytes"),
        ({"priority": "urgent"}, "priority"),
        ({"outcome": ""}, "outcome"),
        ({"notify": "perhaps"}, "notify"),
        ({"next": "5m"}, "unknown parameter"),
    ],
)
async def test_wrong_parameters_are_named_and_nothing_is_accepted(
    tmp_path: Path, given: dict[str, Any], expected: str
) -> None:
    reply = Reply()
    async with open_kit(tmp_path, in_heartbeat=True) as kit:
        assert isinstance(kit.run.services, Services)
        kit.run.services.fill(HeartbeatControl, lambda: reply)
        result = await kit.call("heartbeat_respond", {**PLAIN, **given})
        assert result.is_error
        assert expected in result.as_text()
        assert reply.given is None
        again = await kit.call("heartbeat_respond", PLAIN)
        assert not again.is_error
        twice = await kit.call("heartbeat_respond", PLAIN)
        assert "accepts only one" in twice.as_text()
