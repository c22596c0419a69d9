"""Plugins in a run: their tools and hooks, and what happens to those that are broken."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.plugins.kit import DICE, add, home, open_kit, settings, trust, write

from clawkit import Toolkit
from clawkit.plugins.trust import read_problems


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


async def test_a_plugin_whose_file_was_renamed_says_how_to_enable_it_again(tmp_path: Path) -> None:
    path = write("dice", DICE)
    trust(path)
    path.rename(path.with_name("cubes.py"))
    async with open_kit(tmp_path, "dice") as kit:
        assert "roll" not in kit.run.tools
        again = "no longer exists; if it was moved, run `clawkit plugins enable dice`"
        assert kit.warnings[0].endswith(again)


HEAD = '''"""A plugin."""
import time
from clawkit.plugins import Plugin, PluginContext, Tool, tool

plugin = Plugin("{id}", tools=["made"])


class Model:
    @classmethod
    def model_json_schema(cls):
        return 1 / 0

    @classmethod
    def model_validate(cls, given):
        return 1 / 0


def make(name="made", schema=None):
    async def execute(params, ctx):
        return "made"
    return Tool(name, "Makes.", schema or {{"type": "object"}}, execute)

'''
# Per case: what a plugin does, and what is reported; nothing else may change.
BROKEN = {
    "raise ValueError('no')": "importing it failed: ValueError: no",
    "import nothing_like_it": "ModuleNotFoundError: No module named 'nothing_like_it'",
    "raise SystemExit(0)": "it tried to exit the program",
    "raise KeyboardInterrupt": "KeyboardInterrupt",
    "pass": "declares what it does not register: tool 'made'",
    "plugin.tool(make('other'))": "'other' is not declared: add it to tools",
    "plugin.hook('before_tool_call')": "'before_tool_call' is not declared: add it to hooks",
    "plugin.command('x')": "'x' is not declared: add it to commands",
    "plugin.service('search')": "'search' is not declared: add it to services",
    "plugin.prompt(lambda ctx: '')": "prompt=True",
    "plugin.tool(make(schema=Model))": "preparing it failed: ZeroDivisionError",
    "plugin.tool(make())\nplugin.config = Model": "preparing it failed: ZeroDivisionError",
    "plugin.hooks.append(make)": "preparing it failed: AttributeError",
    "plugin.registered_tools = 3": "preparing it failed: TypeError",
    "plugin.tool(make())\nplugin.factories = 3": "preparing it failed: TypeError",
    "plugin = 3": "its declarations at run time differ from its source",
    "import sys; plugin.manifest = 3": "differ from its source",
    "@plugin.tool\ndef made(x) -> str:\n    'Makes.'": "needs a type annotation",
    "@plugin.tool\ndef made() -> str:\n    pass": "a tool needs a docstring",
}


async def test_a_broken_plugin_is_left_out_and_nothing_else_is(tmp_path: Path) -> None:
    add(DICE)
    ids = []
    for number, body in enumerate(BROKEN):
        ids.append(f"broken{number}")
        add(HEAD.format(id=ids[-1]) + body)
    async with open_kit(tmp_path, *ids, "dice") as kit:
        assert not (await kit.call("roll")).is_error
        assert kit.plugins is not None
        for id_, (body, problem) in zip(ids, BROKEN.items(), strict=True):
            assert problem in kit.plugins.left_out[id_], body
        assert len(kit.warnings) == len(BROKEN)


# Per case: what a factory does, and what is reported.
FACTORIES = {
    "raise ValueError('no')": "making its tools failed: ValueError: no",
    "raise SystemExit": "it tried to exit the program",
    "return 'made'": "it made str, not a tool",
    "yield 3": "it made int, not a tool",
    "yield make()\n    raise ValueError('late')": "making its tools failed: ValueError: late",
    "return make(schema=Model)": "making its tools failed: ZeroDivisionError",
    "return 7": "'int' object is not iterable",
    "return [make('other'), make()]": "'other' is not declared",
    "time.sleep(0.3)\n    return make()": "making its tools took 0.",
    "time.sleep(30)": "making its tools takes longer than",
}


async def test_a_broken_factory_adds_no_tool_and_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clawkit.plugins.load.WARN_S", 0.2)
    monkeypatch.setattr("clawkit.plugins.load.LIMIT_S", 1.0)
    for number, (body, problem) in enumerate(FACTORIES.items()):
        id_ = f"factory{number}"
        source = f"\n@plugin.tool_factory\ndef tools(ctx: PluginContext):\n    {body}\n"
        add(HEAD.format(id=id_) + source)
        async with open_kit(tmp_path, id_) as kit:
            assert ("made" in kit.run.tools) == (body.endswith(("make()", "make()]")))
            assert not (await kit.call("ls")).is_error
        assert problem in read_problems(str(home()))[id_], body


async def test_a_slow_import_is_left_out_at_once_and_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clawkit.plugins.load.LIMIT_S", 0.3)
    add(HEAD.format(id="slow") + "time.sleep(60)\n")
    for denied in ("one", "other"):
        async with open_kit(tmp_path, "slow", deny=[denied]) as kit:
            assert "importing it takes longer than 0.3 s" in kit.warnings[0]


async def test_a_factory_gets_the_run_it_makes_tools_for(tmp_path: Path) -> None:
    add(
        HEAD.format(id="run")
        + """
@plugin.tool_factory
def tools(ctx: PluginContext):
    if ctx.agent == "main" and ctx.sender.owner and not ctx.sandboxed:
        return [make()]
    return None
"""
    )
    given = settings("run")
    owner = Toolkit.open(given, workspace=tmp_path, owner=True, sandboxed=False)
    other = Toolkit.open(given, workspace=tmp_path, owner=False, sandboxed=False)
    assert "made" in owner.run.tools
    assert "made" not in other.run.tools


async def test_names_that_are_taken_stay_with_their_owner(tmp_path: Path) -> None:
    add(DICE)
    second = DICE.replace('"dice"', '"dice2"').replace('tools=["roll"]', 'tools=["roll", "ls"]')
    add(second + '\n@plugin.tool\ndef ls() -> str:\n    """Mine."""\n')
    add(DICE.replace('"dice"', '"exec"'), "exec")
    async with open_kit(tmp_path, "dice", "dice2", "exec") as kit:
        assert kit.assembly.sources["roll"] == "plugin:dice"
        assert kit.assembly.sources["ls"] == "core"
        said = "\n".join(kit.warnings)
        assert "tool 'roll' from plugin:dice2 is already provided by plugin:dice" in said
        assert "tool 'ls' from plugin:dice2 would shadow a built-in tool" in said
        assert "plugin exec is left out: its id is the name of a built-in tool" in said


async def test_an_optional_tool_is_offered_only_if_a_list_asks_for_it(tmp_path: Path) -> None:
    add(DICE.replace("tools=", "optional_tools="))
    lists = {"roll": True, "dice": True, "group:plugins": True, "*": True, "ls": False}
    for entry, is_there in lists.items():
        config = {"tools": {"alsoAllow": [entry]}}
        async with open_kit(tmp_path, "dice", config=config) as kit:
            assert ("roll" in kit.run.tools) is is_there, entry


async def test_policy_and_rules_apply_to_the_tools_of_plugins(tmp_path: Path) -> None:
    add(DICE)
    denied = {"tools": {"deny": ["group:plugins"]}}
    ruled = {"tools": {"rules": [{"tool": "roll", "params": {"sides": "7"}, "effect": "deny"}]}}
    async with open_kit(tmp_path, "dice", config=denied) as kit:
        assert "roll" not in kit.run.tools
    async with open_kit(tmp_path, "dice", config=ruled) as kit:
        assert not (await kit.call("roll", {"sides": 6})).is_error
        assert (await kit.call("roll", {"sides": 7})).is_error


async def test_an_invalid_schema_leaves_out_one_tool(tmp_path: Path) -> None:
    source = HEAD.format(id="schema").replace('["made"]', '["made", "bad"]')
    bad = "plugin.tool(make())\nplugin.tool(make('bad', {'type': 'array'}))\n"
    add(source + bad)
    async with open_kit(tmp_path, "schema") as kit:
        assert "made" in kit.run.tools
        assert "bad" not in kit.run.tools
        assert "the parameters must be an object" in kit.warnings[0]


SETTINGS = '''"""Dice with settings."""
import {library}
from clawkit.plugins import Context, Plugin

class Settings({base}):
    sides: int = 6
    names: list[str] = []

plugin = Plugin("{id}", tools=["roll_{id}"], config=Settings)

@plugin.tool(name="roll_{id}")
def roll(ctx: Context) -> str:
    """Roll."""
    return f"1 of {{ctx.use(Settings).sides}}"
'''
# The settings, and what is wrong with them.
GIVEN: dict[str, tuple[dict[str, Any], str]] = {
    "default": ({}, ""),
    "good": ({"sides": 9}, ""),
    "type": ({"sides": "x"}, "config.sides: "),
    "inner": ({"names": ["a", 3]}, "config.names[1]: "),
    "unknown": ({"side": 9}, "config.side: "),
}


async def test_settings_are_checked_and_typed(tmp_path: Path) -> None:
    for base in ("msgspec.Struct", "pydantic.BaseModel, extra='forbid'"):
        library = base.partition(".")[0]
        for name, (config, problem) in GIVEN.items():
            id_ = f"{library}_{name}"
            add(SETTINGS.format(library=library, base=base, id=id_))
            async with open_kit(tmp_path, entries={id_: {"config": config}}) as kit:
                if problem:
                    assert f"plugins.entries.{id_}.{problem}" in kit.warnings[0]
                else:
                    said = (await kit.call(f"roll_{id_}")).as_text()
                    assert said == f"1 of {config.get('sides', 6)}"


async def test_a_plugin_without_settings_takes_none(tmp_path: Path) -> None:
    add(DICE)
    async with open_kit(tmp_path, entries={"dice": {"config": {"sides": 3}}}) as kit:
        assert "plugins.entries.dice.config: it has no settings" in kit.warnings[0]


async def test_a_plugin_that_blocks_the_event_loop_is_named(tmp_path: Path) -> None:
    add('''"""Blocks."""
import time
from clawkit.plugins import Plugin

plugin = Plugin("blocker", tools=["block"])

@plugin.tool
async def block() -> str:
    """Blocks the event loop."""
    wait()
    return "done"

def wait() -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and not seen():
        time.sleep(0.05)

def seen() -> bool:
    import os, pathlib
    path = pathlib.Path(os.environ["CLAWKIT_HOME"], "plugins-problems.json")
    return path.exists() and "blocker" in path.read_text()
''')
    async with open_kit(tmp_path, "blocker") as kit:
        assert (await kit.call("block")).as_text() == "done"
    assert "blocks the event loop" in read_problems(str(home()))["blocker"]


async def test_a_tool_that_exits_fails_alone(tmp_path: Path) -> None:
    for number, kind in enumerate(("def", "async def")):
        source = DICE.replace("    return f", "    raise SystemExit(3)\n    return f")
        source = source.replace("\ndef roll", f"\n{kind} roll").replace('"dice"', f'"exit{number}"')
        add(source)
        async with open_kit(tmp_path, f"exit{number}") as kit:
            assert "tried to exit the program" in (await kit.call("roll")).as_text()
            assert not (await kit.call("ls")).is_error


def test_no_plugins_add_nothing() -> None:
    code = """
import sys
from clawkit import Toolkit
Toolkit.open({}, workspace="/tmp")
found = [name for name in sys.modules if name.startswith(("clawkit.plugins", "clawkit.bundled."))]
assert not found, found
"""
    subprocess.run([sys.executable, "-c", code], check=True)


async def test_files_of_plugins_are_protected_from_the_file_tools(workspace: Path) -> None:
    path = workspace / "tools" / "dice.py"
    path.parent.mkdir()
    path.write_text(DICE)
    kit = open_kit(workspace, load={"paths": [str(path.parent)]})
    async with kit:
        result = await kit.call("write", {"path": "tools/dice.py", "content": "x"})
        assert result.is_error
    assert path.read_text() == DICE
