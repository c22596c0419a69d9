"""Plugins in a run: their tools and hooks, and what happens to those that are broken."""

from __future__ import annotations

from pathlib import Path

from tests.plugins.kit import DICE, add, open_kit, trust, write


async def test_a_plugin_of_ten_lines_adds_a_tool(tmp_path: Path) -> None:
    add(DICE)
    async with open_kit(tmp_path, "dice") as kit:
        result = await kit.call("roll", {"sides": 4})
        assert result.as_text() == "4 of 4"
        assert kit.assembly.sources["roll"] == "plugin:dice"
        assert not kit.warnings


async def test_a_hook_before_a_call_may_refuse_it(tmp_path: Path) -> None:
    add('''"""Refuses."""
from clawkit.plugins import Call, Deny, Plugin

plugin = Plugin("guard", hooks=["before_tool_call"])


@plugin.hook("before_tool_call", tools="ls")
async def refuse(call: Call) -> Deny | None:
    return Deny("not today") if call.params.get("path") else None
''')
    async with open_kit(tmp_path, "guard") as kit:
        assert not (await kit.call("ls")).is_error
        assert "not today" in (await kit.call("ls", {"path": "."})).as_text()


async def test_a_plugin_that_no_one_enabled_is_not_run(tmp_path: Path) -> None:
    write("dice", f"{DICE}\nraise SystemExit\n")
    async with open_kit(tmp_path, "dice") as kit:
        assert "roll" not in kit.run.tools
        assert "clawkit plugins enable dice" in kit.warnings[0]


async def test_a_changed_plugin_is_not_run(tmp_path: Path) -> None:
    path = write("dice", DICE)
    trust(path)
    path.write_text(DICE.replace("1.0", "1.1"))
    async with open_kit(tmp_path, "dice") as kit:
        assert "roll" not in kit.run.tools
        assert "have changed" in kit.warnings[0]
