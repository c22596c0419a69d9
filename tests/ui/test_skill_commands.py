"""Skills in the chat: /skill, /NAME, and those that call a tool."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.skills.writing import write_skill
from tests.ui.test_commands import Chat

from clawkit import Agent, Result, tool
from clawkit.content import Text, User
from clawkit.core.approval import Answer, Question
from clawkit.errors import ToolInputError
from clawkit.testing import ScriptedModel
from clawkit.ui import commands

CALLS: list[tuple[str, str, str]] = []


@tool
def deploy(command: str, commandName: str, skillName: str) -> Result:  # noqa: N803
    """Deploy something.

    Args:
        command: What to deploy.
        commandName: What was typed.
        skillName: The skill.
    """
    CALLS.append((command, commandName, skillName))
    return Result.text("deployed")


class Asked:
    def __init__(self) -> None:
        self.questions: list[Question] = []

    async def ask(self, request: Question) -> Answer:
        self.questions.append(request)
        return Answer("deny", "no")


async def test_skills_are_typed_like_commands(workspace: Path) -> None:
    root = workspace / "skills"
    write_skill(root, "weather")
    write_skill(root, "help")  # a command, which wins
    write_skill(root, "closed", "user-invocable: false")
    write_skill(root, "ship", "command-dispatch: tool", "command-tool: deploy")
    model = ScriptedModel(then="ok")
    CALLS.clear()
    async with Agent.open(
        {}, workspace=workspace, model=model, keep=False, tools=[deploy]
    ) as agent:
        chat = Chat(lambda _: agent)

        async def type_(line: str) -> str:
            """What is shown, or what the model gets."""
            chat.text = ""
            if chat.is_command(line):
                await commands.run(chat, line)
                return chat.text
            await agent.send(chat.blocks(line))
            message = model.requests[-1].messages[-1]
            assert isinstance(message, User)
            assert isinstance(message.content[0], Text)
            return message.content[0].text

        assert "/weather           How to weather" in await type_("/skill")
        assert "closed" not in await type_("/skill")
        assert "/compact" in await type_("/help")
        for line in ("/weather in Paris", "/skill weather in Paris", "/skill help in Paris"):
            said = await type_(line)
            assert said.startswith("Use the skill ")
            assert said.endswith("in Paris")
        assert await type_("//weather") == " /weather"
        assert await type_("//other") == "/other"
        for line in ("/ship it now", "/skill ship it now"):
            assert "deployed" in await type_(line)
        assert CALLS == [("it now", "ship", "ship")] * 2
        assert "Unknown command /closed" in await type_("/closed")
        with pytest.raises(ToolInputError, match="did you mean 'weather'"):
            await type_("/skill wether")
        words = dict(commands.words_after(chat, ""))
        assert words["weather"] == "How to weather"
        assert "closed" not in words
        assert dict(commands.words_after(chat, "skill")).keys() == {"weather", "ship"}


async def test_without_skills_the_list_says_so(workspace: Path) -> None:
    async with Agent.open({}, workspace=workspace, model=ScriptedModel(), keep=False) as agent:
        chat = Chat(lambda _: agent)
        await commands.run(chat, "/skill")
        assert chat.text == "There are no skills here.\n"
        with pytest.raises(ToolInputError, match="unknown skill 'x'"):
            await commands.run(chat, "/skill x")


async def test_typing_the_name_of_a_skill_does_not_approve_what_it_calls(workspace: Path) -> None:
    write_skill(workspace / "skills", "ship", "command-dispatch: tool", "command-tool: deploy")
    person = Asked()
    config = {"tools": {"rules": [{"tool": "deploy", "effect": "ask"}]}}
    CALLS.clear()
    async with Agent.open(
        config,
        workspace=workspace,
        model=ScriptedModel(),
        keep=False,
        tools=[deploy],
        approver=person,
        owner=True,
    ) as agent:
        chat = Chat(lambda _: agent)
        chat.has_keyboard = True
        await commands.run(chat, "/ship it")
    assert len(person.questions) == 1
    assert CALLS == []
