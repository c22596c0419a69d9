"""`clawkit chat` in a real terminal, and from a pipe."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.asking import PROGRAM, SLOW
from tests.ui.screen import PROMPT, READY, Screen

from clawkit.content import Assistant, Text, Thinking, ToolCall
from clawkit.sessions.protocols import locate_store
from clawkit.sessions.store import SessionStore
from clawkit.testing import Gate, ScriptedServer, calls
from clawkit.web.search.table import PROVIDERS
from clawkit_testkit import fault

HINT = "arrow keys and Enter"
Open = Callable[..., Screen]


@pytest.fixture
def chat(workspace: Path) -> Iterator[Open]:
    opened: list[Screen] = []

    def run(*args: str, **options: Any) -> Screen:
        opened.append(Screen("chat", *args, cwd=workspace, **options))
        return opened[-1]

    yield run
    for each in opened:
        each.close()


@pytest.fixture
def config(tmp_path: Path) -> Callable[..., str]:
    """The path of a configuration whose model is a scripted server, and whose commands run on the
    host, so that they ask."""

    def write(server: ScriptedServer, **more: Any) -> str:
        models: list[Any] = [{"id": "one", "input": ["text", "image"]}, {"id": "two"}]
        provider = server.provider_config("anthropic-messages", models)
        file = tmp_path / "clawkit.json5"
        settings = {
            "models": {"providers": {"fake": provider}},
            "agents": {"defaults": {"model": "fake/one"}},
            "tools": {"exec": {"host": "gateway"}},
            **more,
        }
        file.write_text(json.dumps(settings), encoding="utf-8")
        return str(file)

    return write


def call(name: str, **arguments: Any) -> Assistant:
    return Assistant((ToolCall("", name, arguments),), "tool_calls")


# The operator, which needs no model


async def test_a_message_is_answered_and_the_terminal_is_left_as_it_was(chat: Open) -> None:
    screen = chat()
    # Typed before there is anything that could answer.
    screen.type("list\r")
    await screen.until('"a.txt"')
    assert READY in screen.text
    assert "clawkit onboard" in screen.text
    await screen.say("/cost")
    await screen.until("tokens sent")
    screen.type("\x04")
    assert await screen.end() == 0
    assert screen.is_as_before()
    assert "To continue later: clawkit chat --session" in screen.text.splitlines()[-1]
    assert b"\x1b[?1049h" not in screen.raw
    assert b"\x1b[6n" not in screen.raw
    # tmux keeps in its scrollback what is erased from the top left corner on.
    assert not re.search(rb"(?<!\x1b\[C)\x1b\[J", screen.raw)
    file = Path(os.environ["CLAWKIT_HOME"]) / "history"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    again = chat(NO_COLOR="1")
    await again.until(READY)
    again.type("\x1b[A")
    await again.until(f"{PROMPT} /cost")
    again.type("\x15/quit\r")
    assert await again.end() == 0
    assert not re.search(rb"\x1b\[[0-9;]*3[0-7]", again.raw)


async def test_without_a_command_the_chat_opens(workspace: Path) -> None:
    screen = Screen(cwd=workspace)
    try:
        await screen.until(READY)
        screen.type("\x04")
        assert await screen.end() == 0
    finally:
        screen.close()


async def test_warnings_at_the_start_are_shown_above_the_line(
    chat: Open, tmp_path: Path, workspace: Path
) -> None:
    file = tmp_path / "typo.json5"
    file.write_text('{tools: {deny: ["group:runtme"]}}', encoding="utf-8")
    screen = chat("--config", str(file), HOME=str(workspace), size=(60, 40))
    await screen.until(READY)
    assert "warning: tools.deny" in screen.text
    # In one piece, without words that the edge of the screen cuts.
    assert "warning: the workspace is your home" in screen.text
    assert "or add --workspace DIR" in " ".join(screen.text.split())


async def test_the_sandbox_is_named_above_and_below(chat: Open) -> None:
    screen = chat()
    await screen.until("sandbox: ", 2)
    assert ", no network" in screen.text
    await screen.say("/exec host=gateway")
    await screen.until("no sandbox: commands need approval")


async def test_the_prompt_in_the_readme_is_the_one_that_is_shown(
    chat: Open, workspace: Path
) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
    start = readme.index("Run this command?")
    expected = readme[start : readme.index("```", start)].replace("/home/ada/shop", str(workspace))
    screen = chat("--model", "clawkit/operator", size=(300, 50))
    await screen.until(READY)
    await screen.say('/tool exec {"command": "git push", "elevated": true}')
    await screen.until(HINT)
    shown = screen.text[screen.text.index("Run this") :].splitlines()
    indented = [shown[0], *(line for line in shown if line.startswith(("  ", "> n")))]
    assert indented[: expected.count("\n")] == expected.splitlines()


@pytest.mark.usefixtures("on_host")
async def test_questions_are_answered_with_keys(chat: Open, workspace: Path) -> None:
    screen = chat("!touch made")
    await screen.until(HINT)
    assert "| touch made" in screen.text
    screen.type("y")
    await screen.until("Allowed once.")
    await screen.until("(no output)")
    assert (workspace / "made").exists()
    await screen.until_gone("allow once")
    await screen.say("run touch other")
    await screen.until(HINT)
    # Neither what is pasted nor what is typed on is an answer.
    screen.type("yes please")
    await screen.until(f"{PROMPT} yes please")
    screen.type("\x1b[200~, y\x1b[201~")
    await screen.until(f"{PROMPT} yes please, y")
    screen.type("\x15\t")
    await screen.until(HINT)
    screen.type("\x1b[200~y\x1b[201~")
    await screen.until(f"{PROMPT} y")
    screen.type("\x15\t\x1b[B")
    await screen.until("> r  deny")
    screen.type("\x1b[A\r")
    await screen.until("Denied.")
    await screen.until_gone("working")
    await screen.say("run touch third")
    await screen.until(HINT)
    screen.type("r")
    await screen.until("Why not?")
    screen.type("not today\r")
    await screen.until("Denied.", 2)
    await screen.until("exec failed: denied by a person (not today)")
    assert screen.text.count("not today") == 1
    assert not (workspace / "other").exists()
    assert not (workspace / "third").exists()
    await screen.say("run touch fourth")
    await screen.until(HINT)
    done = subprocess.run(
        [*PROGRAM, "chat"],
        input="/approve allow\n",
        capture_output=True,
        text=True,
        cwd=workspace,
    )
    assert "allow-once" in done.stdout
    await screen.until("No longer pending")
    await screen.until("(no output)", 2)
    assert (workspace / "fourth").exists()
    await screen.until_gone("> n  deny")


async def test_a_question_does_not_take_the_keys_of_a_line_that_is_being_typed(
    chat: Open, workspace: Path, config: Callable[..., str]
) -> None:
    async with ScriptedServer() as server:
        gate = server.gate(call("exec", command="touch made"))
        server.add("Good.")
        screen = chat("go", "--config", config(server))
        await server.wait_for(1)
        screen.type("yes, ")
        await screen.until(f"{PROMPT} yes,")
        gate.release()
        await screen.until("Tab to answer")
        screen.type("and")
        await screen.until(f"{PROMPT} yes, and")
        screen.type("\t")
        await screen.until(HINT)
        screen.type("y")
        await screen.until("Good.")
        line = f"{PROMPT} yes, and"
        await screen.wait(lambda: line in screen.live, "the line that was being typed")
    assert (workspace / "made").exists()


# Commands


async def test_commands_are_completed_and_carried_out(chat: Open) -> None:
    screen = chat()
    await screen.until(READY)
    screen.type("/pol")
    await screen.until("why a tool is in force or not")
    screen.type("\t")
    await screen.until(f"{PROMPT} /policy")
    screen.type(" exe")
    await screen.until("code_execution")
    screen.type("\t")
    await screen.until(f"{PROMPT} /policy exec")
    screen.type("\r")
    await screen.until("exec (core): in force")
    await screen.say("/modle")
    await screen.until("Did you mean /model?")
    screen.type("look at @src/m")
    await screen.until(" main.py")
    screen.type("\t")
    await screen.until("@src/main.py")


async def test_models_and_conversations_are_switched(
    chat: Open, config: Callable[..., str]
) -> None:
    answers = ("The **answer** is 42.", "Hello there.", "Still 42.")
    async with ScriptedServer(*answers) as server:
        screen = chat("--session", "first", "--config", config(server))
        await screen.until(READY)
        await screen.say("what is it?")
        await screen.until("The answer is 42.")
        await screen.say("!echo by hand | tr a-z A-Z")
        await screen.until("BY HAND")
        assert server.count == 1
        await screen.say("/model fake/two")
        await screen.until("Now using fake/two")
        await screen.say("/new second")
        await screen.until("session second")
        await screen.say("hi")
        await screen.until("Hello there.")
        await screen.say("/resume first")
        await screen.until("The answer is 42.", 2)
        await screen.say("sure?")
        await screen.until("Still 42.")
        said = str(server.requests[-1].body["messages"])
        assert "what is it?" in said
        assert "Hello there." not in said
        assert [each.model for each in server.requests] == ["one", "two", "two"]


# Sub-agents


async def test_sub_agents_are_seen_at_work_and_their_results_are_read_at_once(
    chat: Open, config: Callable[..., str]
) -> None:
    gates = {"slow": Gate("slow result"), "stuck": Gate("never")}
    parent = [
        calls(*(("sessions_spawn", {"task": each, "label": each}) for each in gates)),
        "They are at work.",
        "I have read it.",
        "One was stopped.",
    ]

    def answer(request: Any) -> Any:
        if "You are a sub-agent" not in str(request.body["system"]):
            return parent.pop(0)
        return gates["slow" if "'slow'" in str(request.body["messages"]) else "stuck"]

    async with ScriptedServer(then=answer) as server:
        screen = chat("go", "--config", config(server))
        await screen.until("They are at work.")
        await screen.until("slow: thinking")
        await screen.until("stuck: thinking")
        gates["slow"].release()
        await screen.until("Sub-agent 'slow': completed")
        await screen.until("I have read it.")
        assert "not from the user" not in screen.text
        await screen.say("/subagents")
        await screen.until("running     stuck: thinking")
        await screen.say("/stop stuck")
        await screen.until("Stopped 1 sub-agent.")
        await screen.until("One was stopped.")
        await screen.say("/stop")
        await screen.until("No sub-agents are running.")


def test_a_piped_chat_waits_for_its_sub_agents(workspace: Path) -> None:
    done = subprocess.run(
        [*PROGRAM, "chat"],
        input='/tool sessions_spawn {"task": "list src", "label": "looking"}\n',
        capture_output=True,
        text=True,
        cwd=workspace,
    )
    assert done.returncode == 0
    assert "Sub-agent 'looking': completed" in done.stderr
    assert '"main.py"' in done.stdout


# Working and typing at the same time


async def test_an_answer_is_shown_whole_once_and_laid_out(
    chat: Open, config: Callable[..., str]
) -> None:
    words = [f"word{number}" for number in range(120)]
    answer = (
        f"# The title\n\n{' '.join(words)}\n\n- one\n- two\n\n```python\nprint('x')\n```\n\n"
        "| a | b |\n|---|---|\n| c | d |\n\n[red]no markup[/red] "
        "\x1b[31mnor this\x1b[0m \u202ebidi\n\nend."
    )
    said = Assistant((Thinking("Let me see. It is easy."), Text(answer)))
    async with ScriptedServer(said, piece_chars=7) as server:
        screen = chat("go", "--config", config(server))
        await screen.until("end.")
        await screen.until_gone("working")
        text = screen.text
        assert [word for word in words if text.split().count(word) != 1] == []
        assert text.count("The title") == 1
        assert "# The title" not in text
        assert "thought: Let me see. It is easy." in text
        assert " • one" in text
        assert "```" not in text
        assert "[red]no markup[/red] \\u{1b}[31mnor this" in text
        assert "\\u{202e}bidi" in text
        assert b"\x1b[31mnor" not in screen.raw


async def test_what_is_typed_meanwhile_is_read_before_the_next_answer(
    chat: Open, config: Callable[..., str]
) -> None:
    async with ScriptedServer() as server:
        gate = server.gate(call("ls"))
        server.add("Blue it is.", "And later.")
        screen = chat("make it red", "--config", config(server))
        await server.wait_for(1)
        await screen.say("no, blue")
        await screen.until("queued: no, blue")
        await screen.say("never mind")
        await screen.until("queued: never mind")
        screen.type("\x1b[A")
        await screen.until(f"{PROMPT} never mind")
        screen.type("\x15/later and then")
        await screen.until(f"{PROMPT} /later and then")
        screen.type("\r")
        await screen.until("queued: and then")
        gate.release()
        await screen.until("And later.")
        first, second, third = ([str(m) for m in r.body["messages"]] for r in server.requests)
        assert "blue" not in "".join(first)
        assert "no, blue" in second[-1]
        assert "and then" not in "".join(second)
        assert "and then" in third[-1]
        assert "never mind" not in "".join(third)
        await screen.until_gone("queued:")


async def test_lines_that_arrive_together_are_read_in_their_order(
    chat: Open, config: Callable[..., str]
) -> None:
    async with ScriptedServer() as server:
        server.add("First.", "Then.", "At last.")
        screen = chat("--config", config(server))
        await screen.until(READY)
        screen.type("alpha\rbeta\r/later gamma\r")
        await screen.until("At last.")
        last = "".join(str(m) for m in server.requests[-1].body["messages"])
        assert last.index("alpha") < last.index("beta") < last.index("gamma")


async def test_a_message_is_interrupted_by_a_key_that_arrives_with_it(
    chat: Open, config: Callable[..., str]
) -> None:
    async with ScriptedServer() as server:
        server.add("Beta it is.")
        screen = chat("--config", config(server))
        await screen.until(READY)
        screen.type("alpha\r\x03")
        await screen.until("interrupted")
        await screen.say("beta")
        await screen.until("Beta it is.")
        assert len(server.requests) == 1
        assert "never awaited" not in screen.text


async def test_the_configured_mode_decides_how_messages_typed_during_a_turn_are_queued(
    chat: Open, config: Callable[..., str]
) -> None:
    async with ScriptedServer() as server:
        gate = server.gate("never said")
        held = server.gate("Blue it is.")
        server.add("And fast.")
        queue = {"mode": "interrupt", "cap": 1}
        screen = chat("make it red", "--config", config(server, messages={"queue": queue}))
        await server.wait_for(1)
        await screen.say("no, blue")
        await server.wait_for(2)
        await screen.say("/later and fast")
        await screen.until("queued: and fast")
        await screen.say("/later and good")
        await screen.until("messages are already waiting in this session (messages.queue.cap)")
        await screen.until(f"{PROMPT} and good")
        screen.type("\x15")
        held.release()
        await screen.until("And fast.")
        assert "never said" not in screen.text
        await screen.until_gone("queued:")
        gate.release()


async def test_messages_of_other_sessions_are_shown_as_such(
    chat: Open, config: Callable[..., str], workspace: Path
) -> None:
    store = SessionStore(locate_store(None, os.environ))
    store.create("main", workspace=str(workspace), name="other")
    store.close()
    asked = call("sessions_send", sessionKey="other", message="which one?", timeoutSeconds=0)
    answers = {"ask it": asked, "which one?": "The blue one.", "The blue one.": "REPLY_SKIP"}

    def answer(request: Any) -> Any:
        last = str(request.body["messages"][-1])
        return next((each for text, each in answers.items() if text in last), "Sent.")

    async with ScriptedServer(then=answer) as server:
        screen = chat("ask it", "--session", "main", "--config", config(server))
        await screen.until("Sent.")
        # The answer begins a turn by itself.
        await screen.until("Message from agent:main:other: The blue one.")
        await screen.until("REPLY_SKIP")
        assert "not from the user" not in screen.text
        await screen.until_gone("queued:")
        screen.type("\x04")
        assert await screen.end() == 0


async def test_a_command_that_starts_the_chat_asks_and_one_that_is_typed_does_not(
    chat: Open, config: Callable[..., str], workspace: Path
) -> None:
    """Arguments of the program may have been written by somebody else."""
    async with ScriptedServer() as server:
        screen = chat("!touch given", "--config", config(server))
        await screen.until(HINT)
        screen.type("\r")
        await screen.until_gone(HINT)
        await screen.say("!touch typed; echo d''one")
        await screen.until("done")
    assert not (workspace / "given").exists()
    assert (workspace / "typed").exists()


@pytest.mark.usefixtures("on_host")
async def test_a_typed_command_shows_its_own_output_and_nothing_meant_for_a_model(
    chat: Open,
) -> None:
    """This holds for the offline model as well: typed commands need no approval."""
    screen = chat()
    await screen.until(READY)
    await screen.say("!seq 1 5000; (exit 3)")
    await screen.until("\n4998\n4999\n5000\n\n")
    await screen.until("exit code 3")
    await screen.say('/tool exec {"command": "sleep 0.5; exit 4", "background": true}')
    await screen.until("exit code 4")
    for words in ("Ask for less", "exited with code", "sessionId", "process poll"):
        assert words not in screen.text


@pytest.mark.parametrize("key", ["\x1b", "\x03"])
async def test_a_turn_can_be_interrupted(chat: Open, config: Callable[..., str], key: str) -> None:
    async with ScriptedServer() as server:
        server.gate("A long answer that nobody waits for.", after=2)
        server.add("Here I am.")
        screen = chat("go", "--config", config(server))
        await server.wait_for(1)
        await screen.until("A long")
        await screen.say("wait")
        await screen.until("1 waiting")
        screen.type(key)
        await screen.until("interrupted")
        await screen.until_gone("working")
        # What was not read comes back into the line.
        await screen.until(f"{PROMPT} wait")
        await screen.until_gone("1 waiting")
        screen.type("\r")
        await screen.until("Here I am.")
        await screen.until_gone("working")  # until then, Ctrl-C would interrupt the turn
        assert screen.text.count("A long") == 1
        screen.type("\x03")
        await screen.until("to end the chat")
        screen.type("\x03")
        assert await screen.end() == 0


async def test_an_interrupted_call_is_shown(chat: Open, config: Callable[..., str]) -> None:
    exec_ = {"security": "full", "ask": "off"}
    async with ScriptedServer(call("exec", command="sleep 60")) as server:
        screen = chat("go", "--config", config(server, tools={"exec": exec_}))
        await screen.until("exec sleep 60")
        screen.type("\x1b")
        await screen.until("✗ exec sleep 60")
        await screen.until("· interrupted")
        await screen.until_gone("working")
        # Blanks before a command are part of nothing.
        await screen.say("  !sleep 61")
        await screen.until("exec sleep 61")
        screen.type("\x1b")
        await screen.until("✗ exec sleep 61")
        await screen.until("· interrupted", 2)
        assert server.count == 1


async def test_changes_plans_and_void_attempts_are_shown(
    chat: Open, config: Callable[..., str]
) -> None:
    edit = call("edit", path="a.txt", oldText="alpha", newText="omega")
    plan = call("update_plan", plan=[{"step": "Look", "status": "completed"}, {"step": "Act"}])
    cut = fault.cut(4, "Wrong beginning.\n\nAnd more of it.")
    async with ScriptedServer(edit, plan, call("read", path="gone.txt"), cut, "Done.") as server:
        screen = chat("go", "--config", config(server, tools={"updatePlan": True}))
        await screen.until("Done.")
        text = screen.text
        assert "✓ edit a.txt" in text
        assert "-alpha" in text
        assert "+omega" in text
        assert "☑ Look" in text
        assert "☐ Act" in text
        assert "✗ read gone.txt" in text
        assert "the text above was discarded" in text.replace("\n  ", " ")
        await screen.say("/plan")
        await screen.until("☑ Look", 2)


# Ending


async def test_a_signal_ends_it_cleanly(chat: Open, config: Callable[..., str]) -> None:
    async with ScriptedServer() as server:
        server.gate("Never.")
        screen = chat("go", "--config", config(server))
        await server.wait_for(1)
        screen.signal(signal.SIGTERM)
        assert await screen.end() == 128 + signal.SIGTERM
        assert screen.is_as_before()


@pytest.mark.parametrize("unbuffered", ["", "1"])
async def test_the_chat_ends_when_its_terminal_is_closed(chat: Open, unbuffered: str) -> None:
    screen = chat(PYTHONUNBUFFERED=unbuffered)
    await screen.until(READY)
    assert await screen.hang_up() in (0, 128 + signal.SIGHUP)


async def test_commands_that_end_with_the_chat_are_listed(
    chat: Open, config: Callable[..., str]
) -> None:
    exec_ = {"security": "full", "ask": "off"}
    async with ScriptedServer(call("exec", command="sleep 60", background=True), "Ok.") as server:
        screen = chat("go", "--config", config(server, tools={"exec": exec_}))
        await screen.until("Ok.")
        assert "running in the background as" in screen.text
        screen.type("\x04")
        assert await screen.end() == 0
        assert screen.is_as_before()
        assert "clawkit: stopping " in screen.text


async def test_an_invalid_configuration_is_reported_on_a_restored_terminal(
    chat: Open, tmp_path: Path
) -> None:
    file = tmp_path / "bad.json5"
    file.write_text("{tools: 3}", encoding="utf-8")
    screen = chat("--config", str(file))
    assert await screen.end() == 2
    # The path before it may be so long that the line is folded anywhere.
    assert "expected an object" in screen.text.replace("\n", "")
    assert screen.has_cursor


# Without a terminal, or with a simple one


def pipe(workspace: Path, lines: str, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, "chat", *args],
        input=lines,
        capture_output=True,
        text=True,
        cwd=workspace,
    )


def test_from_a_pipe_every_line_is_a_message(workspace: Path) -> None:
    done = pipe(workspace, "list\n/cost\n/nonsense\n/policy exce\n/thinking low\n\nread \\\na.txt")
    assert done.returncode == 0
    assert done.stdout.startswith('"a.txt"\n"src/"\n$0.0000: ')
    assert "Unknown command /nonsense." in done.stdout
    assert "did you mean 'exec'" in done.stderr
    assert "· ls" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    again = pipe(workspace, "/resume\n/quit\nlist\n", "--continue")
    assert "turns: list" in again.stdout
    assert '"a.txt"' not in again.stdout


@pytest.mark.parametrize("word", ["exit", "quit", " Exit "])
def test_words_that_quit_other_programs_quit_the_chat(workspace: Path, word: str) -> None:
    done = pipe(workspace, f"{word}\nlist\n")
    assert (done.returncode, done.stdout) == (0, "")
    assert "· ls" not in done.stderr
    talked = pipe(workspace, f"{word} now\nlist\n")
    assert talked.stdout.endswith('"a.txt"\n"src/"\n')


def test_standard_streams_may_be_closed(workspace: Path) -> None:
    (workspace / "list.sh").write_text('exec 0<&- 1>&-; exec "$@"\n')
    for args in (["chat", "list"], ["approvals", "check", "ls"], ["chat", "/plan"]):
        line = ["sh", "list.sh", *SLOW, *args]
        done = subprocess.run(line, cwd=workspace, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        assert "unexpected" not in done.stderr


@pytest.mark.parametrize("term", ["dumb", "xterm-256color"])
async def test_exit_ends_the_chat_in_any_terminal(chat: Open, term: str) -> None:
    screen = chat(TERM=term)
    await screen.until("/help shows")
    screen.type("exit\r")
    assert await screen.end() == 0
    assert screen.is_as_before()
    assert "language model: I am" not in screen.text


async def test_the_exit_code_is_that_of_the_last_turn(
    workspace: Path, config: Callable[..., str]
) -> None:
    async with ScriptedServer("Fine.", fault.status(401)) as server:
        options = ("--config", config(server), "hello")
        done = await asyncio.to_thread(pipe, workspace, "again\n", *options)
    assert done.stdout == "Fine.\n"
    assert done.returncode == 1
    assert "fake/one" in done.stderr


@pytest.mark.usefixtures("on_host")
async def test_a_simple_terminal_has_lines_and_questions(chat: Open, workspace: Path) -> None:
    screen = chat(TERM="dumb")
    await screen.until("\n>")
    screen.type("!touch made\n")
    await screen.until("means no):")
    screen.type("y\n")
    await screen.until("(no output)")
    assert (workspace / "made").exists()
    screen.type("list\n")
    await screen.until("· ls")
    screen.type("!sleep 60\n")
    await screen.until("means no):", 2)
    screen.type("y\n")
    await screen.until("· exec sleep 60")
    # Only from then on is Ctrl-C no part of an answer.
    await screen.until("Allowed once.", 2)
    screen.type("\x03")
    await screen.until("interrupted")
    screen.type("\x04")
    assert await screen.end() == 1
    assert "To continue later: clawkit chat --session " in screen.text
    assert screen.is_as_before()
    assert b"\x1b" not in screen.raw


SEARCH = '/tool web_search {"query": "x"}'
NO_SERVICE = "no search service is configured"


@pytest.fixture
def no_search_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in {name for row in PROVIDERS.values() for name in row.env}:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("no_search_keys")
@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
async def test_a_search_that_is_typed_does_not_choose_a_service(chat: Open, term: str) -> None:
    """Nothing is sent or saved before the person agrees, and the question is asked only once."""
    screen = chat(TERM=term)
    asks, no = ("means no):", "n\n") if term == "dumb" else (HINT, "n")
    await screen.until("\n>" if term == "dumb" else READY)
    for number in range(2):
        screen.type(f"{SEARCH}\n" if term == "dumb" else f"{SEARCH}\r")
        for name in ("Parallel (free)", "Firecrawl", "DuckDuckGo")[: 0 if number else None]:
            await screen.until(f"search the web with {name} from now on")
            await screen.until(asks)
            await asyncio.sleep(0.7)  # keys do not count before the question can be read
            screen.type(no)
        await screen.until(NO_SERVICE, 1 + number)
    assert "clawkit configure" in screen.text
    screen.type("/quit\n" if term == "dumb" else "/quit\r")
    await screen.end()
    assert not (Path(os.environ["CLAWKIT_HOME"]) / "clawkit.json5").exists()


@pytest.mark.usefixtures("no_search_keys")
def test_a_search_in_a_pipe_says_how_to_choose_a_service(workspace: Path) -> None:
    done = pipe(workspace, f"{SEARCH}\n")
    assert NO_SERVICE in done.stdout
    assert "clawkit configure search" in done.stdout
    assert not (Path(os.environ["CLAWKIT_HOME"]) / "clawkit.json5").exists()
