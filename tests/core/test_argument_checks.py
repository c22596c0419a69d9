"""Arguments of the library: an error names the argument and what is expected."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from clawkit import Agent, CallRequest, Result, Sender, Text, Toolkit, tool
from clawkit.core.argument_checks import check_limits
from clawkit.core.hooks import Hooks
from clawkit.errors import SchemaError, ToolInputError
from clawkit.testing import ScriptedModel, open_kit

NAN = float("nan")


@tool
async def good(a: int = 1) -> int:
    """Do."""
    return a


WRONG_TYPES: list[tuple[dict[str, Any], str]] = [
    ({"config": 3}, "config: expected a file name, a mapping or a loaded configuration, not 3"),
    ({"tools": good}, "tools: expected a list, not <Tool good>; write [<Tool good>]"),
    ({"tools": None}, "tools: expected a list, not None"),
    ({"allow": "read"}, "allow: expected a list, not 'read'; write ['read']"),
    ({"sender": "ada"}, "sender: expected a clawkit.Sender, not 'ada'"),
    ({"hooks": [print]}, "hooks: expected clawkit.Hooks, not ["),
    ({"approver": print}, "approver: expected an object with `ask`, not <built-in"),
    ({"agent": 3}, "agent: expected an id, not 3"),
    ({"workspace": 3}, "workspace: expected a directory, not 3"),
    ({"cwd": 3}, "cwd: expected a directory, not 3"),
    ({"depth": "1"}, "depth: expected a whole number, not '1'"),
    ({"owner": "no"}, "owner: expected True or False, not 'no'"),
    ({"sandboxed": 0}, "sandboxed: expected True or False, not 0"),
    ({"channel": 3}, "channel: expected a text, not 3"),
    ({"group": 3}, "group: expected a text, not 3"),
]
WRONG_TYPES_OF_AGENTS: list[tuple[dict[str, Any], str]] = [
    ({"model": 3}, "model: expected 'provider/model', or an object with ref, api, facts, stream"),
    ({"model": ScriptedModel}, "model: expected 'provider/model', or an object"),
    ({"fallbacks": "a/b"}, "fallbacks: expected a list, not 'a/b'; write ['a/b']"),
    ({"session": 3}, "session: expected a name or an id, not 3"),
    ({"instructions": None}, "instructions: expected a text, not None"),
    ({"max_turns": "3"}, "max_turns: expected a number, not '3'"),
    ({"max_turns": True}, "max_turns: expected a number, not True"),
    ({"tell": "x"}, "tell: expected a function, not 'x'"),
    ({"deliver": "x"}, "deliver: expected a function, not 'x'"),
]
WRONG_VALUES: list[tuple[dict[str, Any], str]] = [
    ({"thinking": "much"}, "unknown thinking level 'much'; use one of off, minimal, low,"),
    ({"mode": "tiny"}, "unknown mode 'tiny'; use one of full, minimal, none"),
    ({"max_turns": 0}, "max_turns: must be 1 or more, not 0"),
    ({"max_cost": NAN}, "max_cost: must be 0 or more, not nan"),
]


@pytest.mark.parametrize(("wrong", "said"), WRONG_TYPES)
def test_a_toolkit_names_the_argument_of_a_wrong_type(
    workspace: Path, wrong: dict[str, Any], said: str
) -> None:
    with pytest.raises(TypeError, match="^" + re.escape(said)):
        Toolkit.open(**{"config": {}, "workspace": workspace, **wrong})
    with pytest.raises(TypeError, match=r"^on_event: expected a function"):
        Toolkit.open({}, workspace=workspace, on_event=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(("wrong", "said"), WRONG_TYPES + WRONG_TYPES_OF_AGENTS)
def test_an_agent_names_the_argument_of_a_wrong_type(
    workspace: Path, wrong: dict[str, Any], said: str
) -> None:
    with pytest.raises(TypeError, match="^" + re.escape(said)):
        Agent.open(**{"config": {}, "model": ScriptedModel(), "workspace": workspace, **wrong})


@pytest.mark.parametrize(("wrong", "said"), WRONG_VALUES)
def test_an_agent_lists_the_valid_values_of_an_argument(
    workspace: Path, wrong: dict[str, Any], said: str
) -> None:
    with pytest.raises(ToolInputError, match="^" + re.escape(said)):
        Agent.open({}, model=ScriptedModel(), workspace=workspace, **wrong)


def test_valid_arguments_are_accepted(workspace: Path) -> None:
    check_limits(max_turns=(1, 1), max_cost=(0.0, 0), other=(None, 1))
    agent = Agent.open(
        {},
        workspace=workspace,
        model=ScriptedModel(),
        tools=(each for each in [good]),
        sender=Sender(id="1"),
        hooks=Hooks(),
        thinking="max",
        tell=print,
        keep=False,
    )
    assert "good" in [each.name for each in agent.kit.tools]


async def test_an_unknown_thinking_level_is_not_stored(workspace: Path) -> None:
    model = ScriptedModel()
    async with Agent.open({}, workspace=workspace, model=model, session="s") as agent:
        with pytest.raises(ToolInputError, match="unknown thinking level 'much'; use one of off"):
            agent.use_thinking("much")  # type: ignore[arg-type]
        assert agent.session is not None
        assert agent.session.thinking == ""


@pytest.mark.parametrize("wrong", [3, None, b"x", ["x"], [{"type": "text"}], Text("x")])
async def test_a_message_is_text_or_a_list_of_blocks(workspace: Path, wrong: Any) -> None:
    said = "^the message: expected a text, or a list of Text and Image blocks, not "
    async with Agent.open({}, workspace=workspace, model=ScriptedModel("x"), keep=False) as agent:
        for send in (agent.run, agent.send):
            with pytest.raises(TypeError, match=said):
                await send(wrong)
        with pytest.raises(TypeError, match=said):
            agent.post(wrong)
        assert await agent.run([Text("x")]) == "x"


async def test_a_number_is_not_a_file_to_attach(workspace: Path) -> None:
    """It would be one of our own open files, and closed after reading."""
    with (workspace / "a.png").open("wb") as file:
        async with Agent.open({}, workspace=workspace, model=ScriptedModel(), keep=False) as agent:
            with pytest.raises(TypeError):
                await agent.attach(file.fileno())  # type: ignore[arg-type]
        file.write(b"still open")


# Tools and hooks


def test_only_a_function_is_a_tool() -> None:
    for wrong in ("name", 3, object(), Sender):
        with pytest.raises(TypeError, match=r"is not a function; options have names: @tool\(name"):
            tool(wrong)  # type: ignore[call-overload]


def test_a_generator_is_not_a_tool() -> None:
    def lines() -> Any:
        """Read."""
        yield 1

    async def more() -> Any:
        """Read."""
        yield 1

    for wrong in (lines, more):
        with pytest.raises(SchemaError, match="a tool returns its result, it cannot yield"):
            tool(wrong)


async def test_a_method_is_a_tool_once_there_is_an_object(workspace: Path) -> None:
    class Shop:
        def stock(self, tea: str) -> str:
            """Say how much is left."""
            return f"12 of {tea}"

    with pytest.raises(SchemaError, match=r"^stock: .*pass `tool\(obj\.stock\)`$"):
        tool(Shop.stock)
    async with open_kit(workspace, tool(Shop().stock)) as kit:
        assert (await kit.call("stock", {"tea": "Assam"})).as_text() == "12 of Assam"


def test_effects_of_another_type_are_refused() -> None:
    with pytest.raises(SchemaError, match=r"^good: effects: 'r' is not an Effect$"):
        tool(effects="read")(good_function)  # type: ignore[arg-type]


async def good_function() -> None:
    """Do."""


good_function.__name__ = "good"


def test_a_hook_that_is_not_a_function_is_refused() -> None:
    for add in (Hooks().before, Hooks().after):
        with pytest.raises(TypeError, match=r"^a hook is a function, not 'x'$"):
            add("x")  # type: ignore[arg-type]


async def test_a_call_names_the_argument_of_a_wrong_type(workspace: Path) -> None:
    wrong: Any = [("read", {})]
    three: Any = 3
    said = "calls: expected clawkit.CallRequest(tool, params), not ('read', {})"
    async with open_kit(workspace) as kit:
        with pytest.raises(TypeError, match="^" + re.escape(said)):
            await kit.call_all(wrong)
        with pytest.raises(TypeError, match=r"^calls: expected a list, not 3"):
            await kit.call_all(three)
        with pytest.raises(TypeError, match=r"^tool: expected the name of a tool, not 3"):
            await kit.call(three)
        calls = (CallRequest("ls", {}) for _ in range(2))
        assert [each.is_error for each in await kit.call_all(calls)] == [False, False]
    with pytest.raises(TypeError, match=r"^text: expected a text, not 3"):
        Result.text(three)


async def test_settings_of_a_conversation_name_the_argument_of_a_wrong_type(
    workspace: Path,
) -> None:
    wrong: Any = "always"
    async with Agent.open({}, workspace=workspace, model=ScriptedModel(), keep=False) as agent:
        with pytest.raises(TypeError, match=r"^changes: expected a mapping of settings, not 'alw"):
            agent.use_exec(wrong)
