"""gateway: outside a gateway, and as models are offered it. The rest is in tests/gateway."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawkit.testing import check_tool, open_kit
from clawkit.tools.gateway import TOOL


def test_models_can_be_offered_it() -> None:
    assert check_tool(TOOL) == []


@pytest.mark.parametrize(
    ("action", "more"),
    [("config.get", {}), ("config.patch", {"raw": "{}"}), ("restart", {}), ("update.run", {})],
)
async def test_without_a_gateway_the_error_names_the_command_to_use(
    tmp_path: Path, action: str, more: dict[str, str]
) -> None:
    async with open_kit(tmp_path) as kit:
        result = await kit.call("gateway", {"action": action, **more})
        assert result.is_error
        assert "it is for sessions of a gateway" in result.as_text()


async def test_only_the_owner_has_the_gateway_tool(tmp_path: Path) -> None:
    async with open_kit(tmp_path, owner=False) as kit:
        assert "gateway" not in kit.run.tools
