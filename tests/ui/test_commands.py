"""What begins with a slash."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as Picture

from clawkit.agent_session import Agent
from clawkit.content import Image, Message, Summary
from clawkit.core.approval import Answer, Question
from clawkit.core.result import Result
from clawkit.errors import ClawkitError, ToolAuthorizationError
from clawkit.models.protocols import Facts
from clawkit.process import process_table
from clawkit.testing import ScriptedModel, call
from clawkit.ui import commands
from clawkit.ui.paint import PaintedRow
from clawkit.ui.session import ChatSession, TypedCallApprover, _typed_by_person


class Opener:
    """Opens what it was told to open."""

    def __init__(self, open_agent: Callable[[str | None], Agent]) -> None:
        self._open = open_agent

    def open(self, tell: Any, approver: Any, **changes: Any) -> Agent:
        return self._open(changes.get("session"))

    def ending(self, agent: Agent) -> None:
        pass


class Chat(ChatSession):
    """Remembers what was shown."""

    def __init__(self, open_agent: Callable[[str | None], Agent]) -> None:
        super().__init__(Opener(open_agent), lambda _: None, None)
        self.text = ""
        self.events: list[Mapping[str, Any]] = []
        self.shown: list[Image] = []
        self.history: Sequence[Message] = ()

    def hear_results(self) -> None:
        self.text += "results\n"

    def rows(self, rows: Sequence[PaintedRow]) -> None:
        self.text += "".join(f"{row.text}\n" for row in rows)

    def show_call(self, event: Mapping[str, Any]) -> None:
        self.events.append(event)

    def show_result(self, result: Result) -> None:
        self.say(result.as_text())

    def show_image(self, image: Image) -> None:
        self.shown.append(image)

    def show_history(self, messages: Sequence[Message]) -> None:
        self.history = messages


class Nobody:
    async def ask(self, request: Question) -> Answer:
        return Answer("deny", "no")


Made = tuple[Chat, Callable[[str], Any]]


@pytest.fixture
async def made(workspace: Path) -> AsyncIterator[Made]:
    """A conversation, and a way to type in it."""
    model = ScriptedModel(then="Yes.", ref="fake/one", facts=Facts(images=True))

    def open_agent(session: str | None) -> Agent:
        return Agent.open(
            {"tools": {"updatePlan": True, "deny": ["grep"]}},
            workspace=workspace,
            session=session,
            model=model,
            owner=True,
            approver=Nobody(),
        )

    names = iter(["first"])
    chat = Chat(lambda session: open_agent(next(names, session)))

    async def type_(line: str) -> str:
        chat.text = ""
        if chat.is_command(line):
            await commands.run(chat, line)
        else:
            await chat.agent.send(chat.blocks(line))
        return chat.text

    yield chat, type_
    await chat.agent.close()


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("/help", "/compact [WHAT MATTERS]"),
        ("/?", "/compact [WHAT MATTERS]"),
        ("/tools", "grep               tools.deny denies it with 'grep'"),
        ("/policy grep", "grep (core): removed\n  step "),
        ("/policy", "no step restricts it"),
        ("/status", "context    "),
        ("/cost", "$0.0000: 0 tokens sent, 0 received."),
        ("/prompt", "model fake/one"),
        ("/plan", "There is no plan."),
        ("/subagents", "This session has started no sub-agents."),
        ("/stop", "No sub-agents are running."),
        ("/approve", "There are no pending approvals."),
        ("/thinking", "Thinking: off"),
        ("/thinking high", "Thinking: high (fake/one may ignore it)"),
        ("/fast", "Fast: off"),
        ("/fast on", "Fast: on, but fake/one has no faster variant"),
        ("/fast off", "Fast: off"),
        ("/status", "fast       off"),
        ("/elevated ask", "Elevated: ask"),
        ("/exec", "exec: host=auto security=allowlist ask=on-miss"),
        ("/exec ask=always", "exec: host=auto security=allowlist ask=always"),
        ("/exec mode=full", "exec: host=auto security=full ask=off"),
        ("/exec security=deny,host=gateway", "exec: host=gateway security=deny ask=on-miss"),
        ("/model", " clawkit/operator"),
        ("/model all", "no key"),
        ("/compact", "There is nothing to summarize yet."),
        ("/resume", "> "),
        ("/resume first", "You are already in this conversation."),
        ("/image", "Type /image PATH. Images attached to your next message: none."),
        ("/later", "Type /later TEXT"),
        ("/modle", "Unknown command /modle. Did you mean /model?"),
        ("/mo", "Unknown command /mo. Did you mean /model?"),
        ("/co", "Unknown command /co. Did you mean /cost or /compact?"),
        ("/", "Unknown command /. /help lists them all."),
        ("/zzzzzz", "Unknown command /zzzzzz. /help lists them all."),
        ("!", "Type a command after `!`"),
        ("!echo hi there", "hi there\n"),
        ('/tool read {"path": "a.txt"}', "alpha\nbeta\n"),
        ("/tool", "Type `/tool NAME {json}`"),
    ],
)
async def test_a_command_reports_what_it_did(made: Made, line: str, shown: str) -> None:
    assert shown in await made[1](line)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("/thinking hihg", "did you mean 'high'? /thinking show and"),
        ("/thinking zzzzzzzz", "xhigh, max. /thinking show and"),
        ("/thinking shwo", "did you mean 'show'?"),
        ("/thinking huge", "max. /thinking show and /thinking hide show or hide it"),
        ("/fast 3", "use one of on, off"),
        ("/elevated maybe", "elevated mode 'maybe'"),
        ("/exec speed=fast", "use one of security, ask, host, mode. Type it like /exec ask=always"),
        ("/exec ask", "unknown setting 'ask'"),
        ("/exec ask=never", "use one of off, on-miss, always"),
        ("/model nowhere/none", "nowhere"),
        ("/policy exce", "did you mean 'exec'"),
        ("/resume nowhere", "there is no session 'nowhere'. /resume lists them"),
        ("/new first", "continue it with /resume"),
        ("/approve abcd allow", "abcd"),
        ("/approve abcd maybe", "type /approve ID allow"),
        ("/approve allow", "0 approvals are pending"),
        ("/image gone.png", "No such file"),
    ],
)
async def test_invalid_commands_are_refused(made: Made, line: str, words: str) -> None:
    with pytest.raises(ClawkitError) as caught:
        await made[1](line)
    assert words in str(caught.value)


async def test_the_list_of_commands_has_two_columns(made: Made) -> None:
    rows = (await made[1]("/help")).rstrip("\n").split("\n")
    starts = {
        row.index(each.help)
        for row in rows
        for each in commands.COMMANDS.values()
        if each.help in row
    }
    assert len(rows) > len(commands.COMMANDS)
    assert len(starts) == 1
    assert all(row[start - 1] == " " for row in rows for start in starts)


async def test_a_short_conversation_is_not_summarized(made: Made) -> None:
    talk, type_ = made
    await type_("hello")
    before = list(talk.agent.conversation.history)
    said = await type_("/compact")
    assert "nothing to summarize yet: only about 5 tokens are old enough" in said
    assert talk.agent.conversation.history == before
    await type_("/new")
    await type_("many words " * 1_000)
    assert "Summarizing" in await type_("/compact")
    assert isinstance(talk.agent.conversation.history[0], Summary)
    assert "nothing to summarize yet" in await type_("/compact")


async def test_queued_messages_and_a_model_without_a_key_are_described(workspace: Path) -> None:
    provider = {
        "baseUrl": "http://127.0.0.1:9/v1",
        "api": "openai-completions",
        "models": [{"id": "m"}],
    }
    config = {"models": {"providers": {"near": provider}}}
    agent = Agent.open(config, workspace=workspace, model="near/m", owner=True)
    chat = Chat(lambda _: agent)
    with agent.turns.lane.paused():
        one, two = (agent.post(text) for text in ("one", "two"))
        await commands.run(chat, "/status")
        two.cancel()
        await asyncio.sleep(0)
        await commands.run(chat, "/status")
        one.cancel()
    await agent.close()
    assert "model      near/m, no credential needed\n" in chat.text
    assert "waiting    2 messages\n" in chat.text
    assert "waiting    1 message\n" in chat.text


async def test_fast_is_said_to_be_on_where_there_is_a_faster_variant(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk, type_ = made
    monkeypatch.setenv("MINIMAX_API_KEY", "sk-not-a-real-key")
    talk.agent.conversation.model = talk.agent.models.model("minimax/MiniMax-M2.7")
    assert await type_("/fast on") == "Fast: on\n"
    assert await type_("/fast") == "Fast: on\n"
    await type_("/new")
    assert await type_("/fast") == "Fast: on, but fake/one has no faster variant\n"
    assert "fast       on, but fake/one" in await type_("/status")


async def test_settings_of_commands_add_up_and_can_be_taken_back(made: Made) -> None:
    _, type_ = made
    await type_("/exec security=full")
    assert "security=full ask=always" in await type_("/exec ask=always")
    assert "security=full ask=always" in await type_("/exec")
    assert "security=allowlist ask=on-miss" in await type_("/exec default")


async def test_conversations_are_switched(made: Made) -> None:
    talk, type_ = made
    await type_("remember this")
    first = talk.agent
    assert "session second" in await type_("/new second")
    assert talk.agent is not first
    assert talk.history == []
    listed = await type_("/resume")
    assert "first" in listed
    assert "remember this" in listed
    assert "session first" in await type_("/resume first")
    assert len(talk.history) == 2


async def test_a_picture_goes_with_the_next_message(made: Made, workspace: Path) -> None:
    talk, type_ = made
    Picture.new("RGB", (4, 4)).save(workspace / "a.png")
    await type_("/image 'a.png'")
    assert [image.mime_type for image in talk.shown] == ["image/png"]
    assert "attached to your next message: 1." in await type_("/image")
    text, picture = talk.blocks("look \udcff")
    assert isinstance(picture, Image)
    assert getattr(text, "text", "") == "look ?"
    assert len(talk.blocks("again")) == 1


async def test_a_model_that_sees_nothing_is_sent_no_picture(made: Made) -> None:
    talk, type_ = made
    await type_("/model clawkit/operator")
    assert "does not accept images" in await type_("/image a.png")
    assert not talk.is_command("!ls")
    assert not talk.is_command("/tool ls")
    assert talk.is_command("/help")


@pytest.mark.parametrize(
    ("line", "is_command"),
    [
        ("/help", True),
        ("/usr/bin/env is what?", False),
        ("//help is a command", False),
        ("!ls", True),
        ("/tool ls", True),
        ("hello /help", False),
    ],
)
async def test_messages_are_distinguished_from_commands(
    made: Made, line: str, is_command: bool
) -> None:
    assert made[0].is_command(line) == is_command


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("   /help", "/help"),
        ("\t !ls", "!ls"),
        ("  /usr/bin is what?", "  /usr/bin is what?"),
        ("  //help", "  //help"),
        ("  /* some\n   code */", "  /* some\n   code */"),
        ("  words", "  words"),
        ("/compact this\nand that", "/compact this\nand that"),
    ],
)
async def test_blanks_before_a_command_do_not_make_a_message_of_it(
    made: Made, line: str, meant: str
) -> None:
    assert made[0].read(line) == (meant, False)


async def test_the_plan_is_shown(made: Made) -> None:
    talk, type_ = made
    await type_('/tool update_plan {"plan": [{"step": "Look"}]}')
    await type_("/plan")
    assert talk.events[-1]["details"] == {"plan": [{"step": "Look", "status": "pending"}]}


async def test_thinking_can_be_shown(made: Made) -> None:
    talk, type_ = made
    await type_("/thinking show")
    assert talk.show_thinking is True
    await type_("/thinking hide")
    assert talk.show_thinking is False


async def test_every_command_has_words_that_it_understands(made: Made) -> None:
    talk, type_ = made
    assert {name for name, _ in commands.words_after(talk, "")} >= {"model", "policy", "resume"}
    for name in ("thinking", "fast", "elevated", "policy", "exec"):
        for word, _ in commands.words_after(talk, name):
            await type_(f"/{name} {word}")
    assert [word for word, _ in commands.words_after(talk, "tool")]
    assert [word for word, _ in commands.words_after(talk, "model")]
    assert list(commands.words_after(talk, "resume")) == []
    assert list(commands.words_after(talk, "quit")) == []


@pytest.mark.parametrize(
    "line",
    [
        "/model clawkit/operator",
        "/model default",
        "/thinking high",
        "/exec ask=off",
        "/elevated on",
    ],
)
async def test_commands_of_an_agent_change_no_settings_of_a_person(
    made: Made, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    talk, type_ = made
    monkeypatch.setattr(process_table, "is_inside_command", lambda: True)
    before = talk.agent.session
    with pytest.raises(ToolAuthorizationError, match="a person must type this"):
        await type_(line)
    assert talk.agent.session == before
    assert "Thinking: off" in await type_("/thinking")


class Asked:
    """Answers with no, and remembers the questions."""

    def __init__(self) -> None:
        self.questions: list[Question] = []

    async def ask(self, request: Question) -> Answer:
        self.questions.append(request)
        return Answer("deny", "not now")


RULE = {"tools": {"rules": [{"tool": "write", "effect": "ask"}]}}


@pytest.mark.parametrize(
    ("line", "config", "shown"),
    [
        ("!touch made", {"tools": {"exec": {"ask": "always"}}}, ""),
        ('/tool write {"path": "made", "content": "x"}', RULE, "created"),
    ],
)
async def test_typed_commands_need_no_approval(
    workspace: Path, line: str, config: Any, shown: str
) -> None:
    person = Asked()
    agent = Agent.open(
        config,
        workspace=workspace,
        model=ScriptedModel(call("write", {"path": "other", "content": ""}), then="Yes."),
        owner=True,
        approver=TypedCallApprover(person),
        keep=False,
    )
    async with agent:
        talk = Chat(lambda _: agent)
        talk.has_keyboard = True
        await commands.run(talk, line)
        assert (workspace / "made").exists()
        assert person.questions == []
        assert shown in talk.text
        if config is RULE:  # the model is asked about, all the same
            await talk.agent.send(talk.blocks("go"))
            assert [each.tool for each in person.questions] == ["write"]
            assert not (workspace / "other").exists()


async def test_a_command_of_an_agent_does_not_count_as_typed_by_a_person(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clawkit.process.process_table.is_inside_command", lambda: True)
    person = Asked()
    async with Agent.open(
        RULE,
        workspace=workspace,
        model=ScriptedModel(),
        owner=True,
        approver=TypedCallApprover(person),
        keep=False,
    ) as agent:
        talk = Chat(lambda _: agent)
        talk.has_keyboard = True
        await commands.run(talk, '/tool write {"path": "made", "content": "x"}')
    assert len(person.questions) == 1
    assert not (workspace / "made").exists()
    # A no is told once, in the line of the call.
    assert talk.text == ""
    assert [each["type"] for each in talk.events] == ["end"]


@pytest.mark.parametrize(
    ("line", "how"),
    [
        ("!touch made", "given"),
        ("!touch made", "piped"),
        ('/tool exec {"command": "touch made", "elevated": true}', "typed"),
        ('/tool exec {"command": "touch made", "access": {"hosts": ["example.com"]}}', "typed"),
        ('/tool exec {"command": "touch made", "background": true, "detach": true}', "typed"),
    ],
)
async def test_commands_not_typed_or_leaving_the_sandbox_need_approval(
    workspace: Path, line: str, how: str
) -> None:
    person = Asked()
    async with Agent.open(
        {"tools": {"exec": {"ask": "always"}}},
        workspace=workspace,
        model=ScriptedModel(),
        owner=True,
        approver=TypedCallApprover(person),
        keep=False,
    ) as agent:
        talk = Chat(lambda _: agent)
        talk.cli_message = line if how == "given" else ""
        talk.has_keyboard = how != "piped"
        await commands.run(talk, line)
    assert len(person.questions) == 1
    assert not (workspace / "made").exists()


async def test_other_subjects_and_what_outlives_a_typed_call_are_asked_about() -> None:
    person = Asked()
    approver = TypedCallApprover(person)
    others = [
        Question("exec", {}, who, asked_by=who)
        for who in ("sandbox.network", "the tool x", "mcp:x")
    ]
    late: list[asyncio.Task[Answer]] = []
    gone = asyncio.Event()

    async def ask_later() -> Answer:
        await gone.wait()
        return await approver.ask(Question("exec", {}, "later"))

    with _typed_by_person("exec"):
        assert (await approver.ask(Question("exec", {}, "typed"))).verdict == "allow"
        assert (await approver.ask(Question("write", {}, "other"))).verdict == "deny"
        assert [(await approver.ask(each)).verdict for each in others] == ["deny"] * 3
        late.append(asyncio.ensure_future(ask_later()))
    gone.set()
    assert (await late[0]).verdict == "deny"
    assert [each.title for each in person.questions] == [
        *("other", "sandbox.network", "the tool x", "mcp:x", "later")
    ]


async def test_a_typed_search_does_not_choose_the_service(workspace: Path) -> None:
    person = Asked()
    async with Agent.open(
        {},
        workspace=workspace,
        model=ScriptedModel(),
        owner=True,
        approver=TypedCallApprover(person),
        keep=False,
    ) as agent:
        talk = Chat(lambda _: agent)
        talk.has_keyboard = True
        await commands.run(talk, '/tool web_search {"query": "tea"}')
    assert [each.asked_by for each in person.questions] == ["tools.web.search.provider"] * 3
    assert "and refused" in str(talk.events)
