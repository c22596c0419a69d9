"""Hooks of plugins around a conversation and its commands."""

from __future__ import annotations

import json
from pathlib import Path

from tests.plugins.kit import DICE, add, home, open_kit, settings

from clawkit import Agent, Text, Toolkit
from clawkit.content import ToolResult
from clawkit.plugins.load import _load_all
from clawkit.plugins.trust import read_problems
from clawkit.testing import ScriptedModel, call

DIARY = '''"""Writes down what happens."""
import json
import os
from clawkit.plugins import ChatMessage, Plugin, PluginContext, ToolResult

plugin = Plugin(
    "diary",
    hooks=["session_start", "session_end", "message_received", "message_sending",
           "tool_result_persist", "resolve_exec_env"],
    prompt=True,
)


def write(*words: str) -> None:
    with open(os.path.join(os.environ["CLAWKIT_HOME"], "diary"), "a") as file:
        file.write(json.dumps(words) + "\\n")


@plugin.hook("session_start")
async def start(ctx: PluginContext) -> None:
    write("start", ctx.agent)


@plugin.hook("session_end")
def end(ctx: PluginContext) -> None:
    write("end", ctx.agent)


@plugin.hook("message_received")
def receive(message: ChatMessage, ctx: PluginContext) -> None:
    write("received", message.text)


@plugin.hook("message_sending")
def send(message: ChatMessage, ctx: PluginContext) -> str:
    return message.text.upper()


@plugin.hook("tool_result_persist")
def persist(result: ToolResult, ctx: PluginContext) -> ToolResult:
    import msgspec
    from clawkit import Text
    return msgspec.structs.replace(result, call_id="x", content=(Text("kept short"),))


@plugin.hook("resolve_exec_env")
def env(ctx: PluginContext) -> dict:
    return {"DIARY": "here"}


@plugin.prompt
def guide(ctx: PluginContext) -> str:
    return f"Write a diary for {ctx.agent}."
'''


def diary() -> list[list[str]]:
    lines = (home() / "diary").read_text().splitlines()
    return [json.loads(line) for line in lines]


async def test_a_plugin_hears_a_session_from_start_to_end(workspace: Path) -> None:
    add(DIARY)
    model = ScriptedModel(call("ls"), "Done.")
    async with Agent.open(settings("diary"), workspace=workspace, model=model, keep=False) as agent:
        assert (await agent.send("What is here?")).text == "DONE."
        assert "Write a diary for main." in model.requests[0].system
        [result] = [each for each in model.requests[1].messages if isinstance(each, ToolResult)]
        assert result.content == (Text("kept short"),)
        assert result.call_id != "x"
    assert diary() == [["start", "main"], ["received", "What is here?"], ["end", "main"]]


async def test_a_plugin_adds_to_the_environment_of_commands(workspace: Path) -> None:
    add(DIARY)
    async with open_kit(workspace, "diary", config={"tools": {"exec": {"mode": "full"}}}) as kit:
        result = await kit.call("exec", {"command": "echo $DIARY"})
        assert "here" in result.as_text()


REFUSED = {
    "return {'LD_PRELOAD': '/x.so'}": "LD_PRELOAD",
    "return 'text'": "Expected `object`",
    "raise ValueError('sorry')": "ValueError: sorry",
    "raise SystemExit(3)": "tried to exit",
    "import time; time.sleep(0.5)": "took longer",
}


async def test_a_failing_hook_changes_nothing_and_is_reported(workspace: Path) -> None:
    for number, (body, problem) in enumerate(REFUSED.items()):
        id_ = f"env{number}"
        add(f'''"""Adds a variable."""
from clawkit.plugins import Plugin

plugin = Plugin("{id_}", hooks=["resolve_exec_env"])

@plugin.hook("resolve_exec_env")
def env(ctx):
    {body}
''')
        limit = {"hooks": {"timeoutMs": 100 if "sleep" in body else 60_000}}
        more = {"tools": {"exec": {"mode": "full"}}}
        async with open_kit(workspace, entries={id_: limit}, config=more) as kit:
            result = await kit.call("exec", {"command": "echo fine"})
            assert result.as_text().strip() == "fine"
        assert problem in read_problems(str(home()))[id_], body


BEFORE = {
    "return 7": "blocked because the hook check of plugin before0 failed",
    "raise SystemExit": "blocked because the hook check of plugin before1 failed",
    "import time; time.sleep(0.5)": "the hook check of plugin before2 took too long",
}


async def test_a_failing_hook_before_a_call_blocks_it(workspace: Path) -> None:
    for number, (body, problem) in enumerate(BEFORE.items()):
        id_ = f"before{number}"
        add(f'''"""Checks calls."""
from clawkit.plugins import Plugin

plugin = Plugin("{id_}", hooks=["before_tool_call"])

@plugin.hook("before_tool_call")
def check(call):
    {body}
''')
        async with open_kit(workspace, entries={id_: {"hooks": {"timeoutMs": 100}}}) as kit:
            assert problem in (await kit.call("ls")).as_text()


GUARD = """
from clawkit.plugins import Plugin

plugin = Plugin("guard", hooks=["before_tool_call"])

@plugin.hook("before_tool_call", tools="exec")
def check(call):
    pass
"""


async def test_without_a_plugin_that_decides_about_calls_there_are_none(workspace: Path) -> None:
    add(DICE)
    add(GUARD, "guard")
    async with open_kit(workspace, "guard") as kit:
        assert not (await kit.call("ls")).is_error
    file = home() / "plugins" / "guard.py"
    for change in (GUARD.replace("before_tool", "after_tool"), f"{GUARD}# more", "", None):
        file.write_text(change) if change is not None else file.unlink()
        _load_all.cache_clear()  # as in a new process
        async with open_kit(workspace, "guard") as kit:
            said = await kit.call("ls")
            assert said.is_error
            assert "plugin guard decides about calls, but is left out" in said.as_text()
            async with Toolkit.open(
                settings("dice"), workspace=workspace, hooks=kit.run.hooks
            ) as other:
                assert not (await other.call("ls")).is_error
    (home() / "plugins-enabled.json").write_text("?")
    async with open_kit(workspace, "guard") as kit:
        assert "enable your plugins again" in (await kit.call("ls")).as_text()
    async with open_kit(workspace, entries={"guard": {"enabled": False}}) as kit:
        assert not (await kit.call("ls")).is_error


async def test_a_hook_after_a_call_may_replace_its_result_and_never_breaks_it(
    workspace: Path,
) -> None:
    add('''"""Looks at results."""
from clawkit.plugins import Call, Plugin, Result

plugin = Plugin("after", hooks=["after_tool_call"])

@plugin.hook("after_tool_call", tools=["ls"])
def look(call: Call, result: Result) -> Result:
    if call.params.get("path"):
        raise SystemExit
    return Result.text("nothing to see")
''')
    async with open_kit(workspace, "after") as kit:
        assert (await kit.call("ls")).as_text() == "nothing to see"
        assert not (await kit.call("ls", {"path": "."})).is_error
    assert "tried to exit" in read_problems(str(home()))["after"]


async def test_a_hook_for_something_that_is_not_a_tool_is_refused(workspace: Path) -> None:
    for id_, more in (("group", "tools='group:fs'"), ("high", "priority='high'")):
        add(f'''"""Hooks in vain."""
from clawkit.plugins import Plugin

plugin = Plugin("{id_}", hooks=["before_tool_call"])

@plugin.hook("before_tool_call", {more})
def check(call):
    pass
''')
        async with open_kit(workspace, id_) as kit:
            assert "takes tool names, and a number" in kit.warnings[0]
            assert "a number as priority; or disable it" in (await kit.call("ls")).as_text()


async def test_hooks_of_sub_agents_are_not_added_twice(workspace: Path) -> None:
    add(
        DIARY.replace('_env"],', '_env", "before_tool_call"],')
        + """

@plugin.hook("before_tool_call")
def before(call):
    write("call", call.tool)
"""
    )
    kit = open_kit(workspace, "diary")
    changed = settings(entries={"diary": {"hooks": {"timeoutMs": 9_000}}})
    for given in (settings("diary"), changed):
        again = Toolkit.open(given, workspace=workspace, hooks=kit.run.hooks)
        await again.call("ls")
        await again.close()
    await kit.close()
    assert diary() == [["call", "ls"]] * 2
