"""The built-in model that needs no network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clawkit.agent.loop import Conversation, specs_of
from clawkit.content import Assistant, Source, Text, ToolCall, ToolResult, User
from clawkit.models.operator import HELP, Operator, read_line
from clawkit.models.protocols import Request
from clawkit.testing import ScriptedApprover, open_kit


def test_lines_mean_calls(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("!git status", "exec", {"command": "git status"}),
        ("run make test", "exec", {"command": "make test"}),
        ('/tool ls {"path": "src"}', "ls", {"path": "src"}),
        ("/tool ls", "ls", {}),
        ("read README.md", "read", {"path": "README.md"}),
        ("Read 'a b.txt'", "read", {"path": "a b.txt"}),
        ("list", "ls", {}),
        ("ls src", "ls", {"path": "src"}),
        ("find *.py src", "find", {"pattern": "*.py", "path": "src"}),
        ("search TODO", "grep", {"pattern": "TODO"}),
        ("grep it's", "grep", {"pattern": "it's"}),
        ("write a.txt hello you", "write", {"path": "a.txt", "content": "hello you\n"}),
        ("status", "session_status", {}),
    ]
    for line, name, arguments in cases:
        with subtests.test(line=line, name=name, arguments=arguments):
            assert read_line(line) == (name, arguments)


def test_what_is_not_understood_is_explained(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("!", "after `!`"),
        ("/tool", "/tool NAME"),
        ("/tool ls {", "not JSON"),
        ("/tool ls []", "must be an object"),
        ("read", "read FILE"),
        ("write a.txt", "write FILE TEXT"),
        ("clawkit onboard", "Type `clawkit onboard` in a shell; Ctrl-D ends this chat."),
        ("please help me", "not a language model"),
    ]
    for line, said in cases:
        words = said.replace("[", r"\[")
        with subtests.test(line=line), pytest.raises(ValueError, match=words):
            read_line(line)


async def talk(tmp_path: Path, said: str, *answers: str, **config: Any) -> Conversation:
    approver = ScriptedApprover(*answers)
    async with open_kit(tmp_path, config={"tools": config}, approver=approver) as kit:
        conversation = Conversation(kit.run, Operator(), "", specs_of(kit.run))
        await conversation.turn(said)
    return conversation


async def test_a_file_is_written_and_a_command_run_after_an_approval(tmp_path: Path) -> None:
    said = "write hello.txt hi there\n!cat hello.txt | rev"
    talked = await talk(tmp_path, said, "allow")
    assert (tmp_path / "hello.txt").read_text() == "hi there\n"
    last = talked.history[-1]
    assert isinstance(last, Assistant)
    assert "ereht ih" in last.text


async def test_of_long_output_the_end_is_repeated(tmp_path: Path) -> None:
    last = (await talk(tmp_path, "!seq 1 5000", "allow")).history[-1]
    assert isinstance(last, Assistant)
    assert last.text.startswith("[… ")
    assert last.text.endswith("\n4999\n5000")


async def test_what_policy_removed_is_told_in_its_words(tmp_path: Path) -> None:
    talked = await talk(tmp_path, "!ls", deny=["exec"])
    result = next(m for m in talked.history if isinstance(m, ToolResult))
    assert result.is_error
    last = talked.history[-1]
    assert isinstance(last, Assistant)
    assert "exec failed" in last.text


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("read nope", "read failed: 'nope' does not exist"),
        ("/tool raed {}", "raed failed: unknown tool 'raed'; did you mean 'read'?"),
        (
            "read no\nread nope",
            "read failed: 'no' does not exist\n\nread failed: 'nope' does not exist",
        ),
    ],
)
async def test_a_failure_is_told_once_and_in_words(tmp_path: Path, said: str, answer: str) -> None:
    talked = await talk(tmp_path, said)
    assert [each.text for each in talked.history if isinstance(each, Assistant)] == ["", answer]


async def test_anything_else_gets_the_help(tmp_path: Path) -> None:
    talked = await talk(tmp_path, "what is the meaning of life?")
    last = talked.history[-1]
    assert isinstance(last, Assistant)
    assert last.text == HELP


async def test_a_job_is_carried_out_also_if_messages_of_sessions_follow_it() -> None:
    due = User((Text("!date"),), 0, Source("cron", ("run",), ("Scheduled job: clock",)))
    mail = User((Text("!rm -rf /"),), 0, Source("session", ("1",), ("another session",)))
    answers = [each async for each in Operator().stream(Request("", (due, mail)))]
    assert isinstance(answers[-1], Assistant)
    [called] = answers[-1].content
    assert isinstance(called, ToolCall)
    assert called.arguments == {"command": "date"}
