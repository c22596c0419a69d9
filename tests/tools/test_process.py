"""process: what became of commands in the background, and how to steer them."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.tables import table

from clawkit.core.call import CallRequest, Run, call
from clawkit.core.context import Context, Scope
from clawkit.core.result import Result
from clawkit.core.tool import Effect, collide
from clawkit.process.local_host import LocalHost
from clawkit.process.protocols import Commands, Launch
from clawkit.process.supervisor import Supervisor
from clawkit.runtime import Toolkit
from clawkit.testing import Events, check_tool, open_kit
from clawkit.tools.process import ACTIONS, TOOL, Params

FULL: dict[str, Any] = {"tools": {"exec": {"mode": "full", "loginPath": False}}}
REPL = "PYTHON_BASIC_REPL=1 INPUTRC=/dev/null python3 -q -i"


@pytest.fixture
async def kit(workspace: Path) -> AsyncIterator[Toolkit]:
    async with open_kit(workspace, config=FULL) as opened:
        yield opened


async def start(kit: Toolkit, command: str, **params: Any) -> str:
    """The session id of a command in the background."""
    result = await kit.call("exec", {"command": command, "background": True, **params})
    assert result.details["status"] == "running", result.as_text()
    return str(result.details["sessionId"])


async def process(kit: Toolkit, action: str, id_: str = "", **params: Any) -> Result:
    named = {"sessionId": id_} if id_ else {}
    return await kit.call("process", {"action": action, **named, **params})


async def poll_until(kit: Toolkit, id_: str, words: str) -> str:
    """The output of polls until it contains the words."""
    told = ""
    async with asyncio.timeout(60):
        while words not in told:
            result = await process(kit, "poll", id_, timeout=5_000)
            assert "aggregated" in result.details, result.as_text()
            told += result.details["aggregated"]
            assert result.details["status"] == "running" or words in told, result.as_text()
    return told


async def poll_to_end(kit: Toolkit, id_: str) -> Result:
    """The poll that reports the end; its `aggregated` has the output of all of them."""
    told = ""
    async with asyncio.timeout(60):
        while True:
            result = await process(kit, "poll", id_, timeout=5_000)
            assert "aggregated" in result.details, result.as_text()
            told += result.details["aggregated"]
            if result.details["status"] != "running":
                return Result(result.content, {**result.details, "aggregated": told})


def complaint(result: Result) -> str:
    """What an error says; the call must have failed by the caller's mistake."""
    assert result.is_error
    assert result.details["code"] in (400, 404)
    return str(result.details["error"])


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


@pytest.fixture
async def commands(tmp_path: Path) -> AsyncIterator[Supervisor]:
    folder = str(tmp_path / "commands")
    supervisor = Supervisor({"gateway": lambda: LocalHost(folder)}, folder)
    yield supervisor
    await supervisor.close()


async def ask(commands: Commands, scope: Scope, action: str, **params: Any) -> Result:
    """A call of one of several runs that share their commands."""
    run = Run({"process": TOOL}, "/", scope, services={Commands: commands})
    return await call(run, CallRequest("process", {"action": action, **params}))


def plain(text: str) -> Launch:
    return Launch(text, "/", {"PATH": os.environ["PATH"]}, open_input=True)


ECHO = """
import os, sys, tty
if os.isatty(0):
    tty.setraw(0)
os.write(1, sys.argv[1].encode().decode("unicode_escape").encode() + b"ready\\r\\n")
while data := os.read(0, 4000):
    os.write(1, b"<" + data.hex(" ").encode() + b">\\r\\n")
os.write(1, b"over\\r\\n")
"""


async def start_echo(kit: Toolkit, first: str = "", *, pty: bool) -> str:
    """A program that queries its terminal and prints every byte that it receives."""
    Path(kit.workspace, "echo.py").write_text(ECHO, encoding="utf-8")
    id_ = await start(kit, f"exec {sys.executable} echo.py '{first}'", pty=pty)
    await poll_until(kit, id_, "ready")
    return id_


async def test_messages_about_poll_describe_what_it_waits_for(kit: Toolkit) -> None:
    """It returns at new output, and does not claim to have waited for the end."""
    started = await kit.call("exec", {"command": "echo one; exec sleep 300", "background": True})
    assert "`process poll` shows new output and how it ended" in started.as_text()
    assert "waits for its end" not in started.as_text()
    id_ = str(started.details["sessionId"])
    polled = await process(kit, "poll", id_, timeout=30_000)
    assert polled.details["status"] == "running"
    assert polled.as_text().startswith("one\n\nCommand still running after ")
    assert polled.as_text().endswith("; poll again for more output.")
    await process(kit, "kill", id_)


def test_the_tool_is_in_order() -> None:
    assert check_tool(TOOL) == []
    assert TOOL.schema["required"] == ["action"]


def test_other_names_of_actions_are_not_offered() -> None:
    assert TOOL.offered["properties"]["action"]["enum"] == list(ACTIONS)
    assert {"status", "input", "signal"}.isdisjoint(ACTIONS)


@table("action", ACTIONS)
def test_the_description_explains_each_action(action: str) -> None:
    assert f" {action}: " in TOOL.description


def test_calls_about_different_commands_do_not_wait_for_each_other(tmp_path: Path) -> None:
    ctx = Context("1", Scope(), str(tmp_path))

    def effects(action: str, id_: str = "") -> list[Effect]:
        return list(TOOL.effects(Params(action, session_id=id_), ctx))

    assert effects("poll", " a ") == [Effect("write", "command:a")]
    assert not collide(effects("poll", "a"), effects("poll", "b"))
    assert collide(effects("poll", "a"), effects("poll", "a"))
    assert collide(effects("kill", "a"), effects("log", "a"))
    assert not collide(effects("log", "a"), effects("status", "a"))
    assert collide(effects("kill", "a"), effects("list"))
    assert not collide(effects("list"), effects("log", "a"))


async def test_an_empty_list_is_reported(kit: Toolkit) -> None:
    result = await process(kit, "list")
    assert result.as_text() == "No commands in the background."
    assert result.details == {"status": "completed", "sessions": []}


async def test_the_list_tells_running_and_finished_commands(kit: Toolkit, workspace: Path) -> None:
    failed = await start(kit, "echo nothing works; exit 3")
    await poll_to_end(kit, failed)
    running = await start(kit, "echo ready; cat")
    await poll_until(kit, running, "ready")
    result = await process(kit, "list")
    first, second = result.as_text().splitlines()
    assert re.fullmatch(rf"{running}  running +\d+(\.\d)?s :: echo ready; cat", first)
    end = r"completed +\d+(\.\d)?s \[exit 3\] :: echo nothing works; exit 3"
    assert re.fullmatch(f"{failed}  {end}", second)
    mine, other = result.details["sessions"]
    assert mine.pop("pid") > 1
    assert 0 <= mine.pop("idleMs") <= mine.pop("runtimeMs")
    assert mine["startedAt"] <= mine.pop("lastOutputAt") <= time.time() * 1000
    assert mine == {
        "sessionId": running,
        "status": "running",
        "startedAt": mine["startedAt"],
        "cwd": str(workspace),
        "command": "echo ready; cat",
        "name": "echo ready;",
        "tail": "ready",
        "truncated": False,
        "stdinWritable": True,
        "waitingForInput": False,
    }
    assert other["endedAt"] - other["startedAt"] in range(other["runtimeMs"] - 2, 20_000)
    assert {"pid", "idleMs", "stdinWritable"}.isdisjoint(other)
    assert (other["exitCode"], other["exitSignal"], other["exitReason"]) == (3, None, "exit")
    assert (other["status"], other["timedOut"]) == ("completed", False)


async def test_the_list_marks_special_commands(kit: Toolkit) -> None:
    shown = await start(kit, "cat", pty=True)
    detached = await start(kit, "sleep 60", detach=True)
    left = await start(kit, "sleep 60 >/dev/null 2>&1 & echo started")
    await poll_to_end(kit, left)
    ended = await start(kit, "sleep 60")
    await process(kit, "kill", ended, signal="KILL")
    lines = (await process(kit, "list")).as_text().splitlines()
    marks = {line.split()[0]: re.findall(r"\[(.*?)\]", line) for line in lines}
    assert marks == {
        shown: ["terminal"],
        detached: ["detached"],
        left: ["left running"],
        ended: ["signal"],
    }
    await process(kit, "kill", detached)


async def test_a_command_that_may_wait_for_input_is_reported(
    kit: Toolkit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clawkit.process.command.INPUT_WAIT_S", 0.05)
    asking = await start(kit, "printf 'Name? '; read name; echo hello $name")
    busy = await start(kit, "sleep 60", detach=True)
    await poll_until(kit, asking, "Name? ")
    result = await process(kit, "poll", asking, timeout=200)
    assert "it may be waiting for input; use submit or send-keys" in result.as_text()
    assert result.details["waitingForInput"] is True
    assert result.details["idleMs"] >= 50
    lines = (await process(kit, "list")).as_text().splitlines()
    assert {line.split()[0] for line in lines if "[input-wait]" in line} == {asking}
    assert (await process(kit, "status", busy)).details["waitingForInput"] is False
    await process(kit, "kill", busy)
    await process(kit, "submit", asking, data="Ada")
    assert (await poll_to_end(kit, asking)).details["aggregated"] == "hello Ada\n"


async def test_a_long_or_hostile_command_is_one_short_line(kit: Toolkit) -> None:
    id_ = await start(kit, f"cat # {'x' * 500} \u202e\x1b[31m\n# the end")
    (line,) = (await process(kit, "list")).as_text().splitlines()
    label = line.partition(" :: ")[2]
    assert len(label) == 120
    assert label.startswith("cat # xxx")
    assert label.endswith(r"\u{1b}[31m\u{a}# the end")
    assert line.isprintable()
    assert id_ in line


async def test_a_cut_list_states_how_many_are_missing(commands: Supervisor) -> None:
    for _ in range(12):
        await commands.start("gateway", plain(f"exit # {'x' * 200}"), "main", background=True)
    result = await ask(commands, Scope(context_window=2_000), "list")
    text, _, note = result.as_text().partition("\n\n")
    shown = len(text.splitlines())
    assert 1 <= shown < 12
    assert len(result.details["sessions"]) == shown
    assert note == f"[{12 - shown} more do not fit; clear or remove some of these]"


async def test_commands_of_others_are_unknown(commands: Supervisor) -> None:
    owners = {"main": Scope(), "other": Scope(agent="other")}
    owners |= {"main/sub": Scope(session="sub", depth=1)}
    ids = {
        owner: (await commands.start("gateway", plain("cat"), owner, background=True)).id
        for owner in owners
    }
    for owner, scope in owners.items():
        listed = (await ask(commands, scope, "list")).details["sessions"]
        assert [each["sessionId"] for each in listed] == [ids[owner]]
        for stranger in set(ids) - {owner}:
            foreign = ids[stranger]
            for action in ("poll", "log", "kill", "remove", "submit", "status"):
                result = await ask(commands, scope, action, sessionId=foreign)
                assert f"unknown command '{foreign}'" in complaint(result)
                assert result.details["code"] == 404
    assert all(commands.get(owner, id_).exit is None for owner, id_ in ids.items())


async def test_a_command_in_the_foreground_cannot_be_steered(commands: Supervisor) -> None:
    running = await commands.start("gateway", plain("cat"), "main", background=False)
    result = await ask(commands, Scope(), "kill", sessionId=running.id)
    assert complaint(result) == f"unknown command '{running.id}'; there are none"


@pytest.mark.parametrize("action", [each for each in ACTIONS if each != "list"])
async def test_every_action_but_list_needs_an_existing_command(kit: Toolkit, action: str) -> None:
    assert complaint(await process(kit, action)).startswith("sessionId: missing; use action list")
    assert "unknown command 'calm-nobody'" in complaint(await process(kit, action, "calm-nobody"))


@pytest.mark.parametrize("name", ["sessionId", "session_id", "processId", "process_id", "id"])
async def test_the_command_has_the_names_models_use(kit: Toolkit, name: str) -> None:
    id_ = await start(kit, "cat")
    result = await kit.call("process", {"action": "poll", name: f" {id_} "})
    assert result.details["sessionId"] == id_


@pytest.mark.parametrize(
    ("action", "param", "value", "takers"),
    [
        ("poll", "keys", ["Enter"], "send-keys"),
        ("poll", "offset", 3, "log"),
        ("status", "timeout", 50, "poll"),
        ("log", "data", "x", "write and submit"),
        ("log", "timeout", 50, "poll"),
        ("write", "text", "x", "paste"),
        ("submit", "eof", True, "write"),
        ("paste", "hex", ["0a"], "send-keys"),
        ("send-keys", "screen", True, "log"),
        ("kill", "rows", 40, "resize"),
        ("resize", "signal", "TERM", "kill"),
        ("clear", "literal", "x", "send-keys"),
        ("remove", "limit", 5, "log"),
    ],
)
async def test_a_parameter_without_effect_is_named(
    kit: Toolkit, action: str, param: str, value: Any, takers: str
) -> None:
    id_ = await start(kit, "cat")
    said = complaint(await process(kit, action, id_, **{param: value}))
    assert said == f"{param}: has no effect on {action}, only on {takers}; leave it out"
    assert (await process(kit, "status", id_)).details["status"] == "running"


async def test_the_list_is_about_all_commands(kit: Toolkit) -> None:
    said = complaint(await process(kit, "list", "calm-otter"))
    assert said.startswith("sessionId: has no effect on list")


async def test_empty_values_count_as_missing(kit: Toolkit) -> None:
    id_ = await start(kit, "cat")
    empty: dict[str, Any] = {"data": "", "text": "", "literal": "", "keys": [], "hex": []}
    empty |= {"eof": False, "screen": False, "bracketed": True, "timeout": 0, "signal": ""}
    empty |= {"offset": None, "limit": None, "columns": None, "rows": None}
    assert (await process(kit, "poll", id_, **empty)).details["status"] == "running"
    assert (await process(kit, "list", **(empty | {"signal": None}))).details[
        "status"
    ] == "completed"


@pytest.mark.parametrize(
    ("action", "hint"),
    [("pol", "did you mean poll?"), ("frobnicate", f"known: {', '.join(ACTIONS)}"), ("", "known:")],
)
async def test_an_unknown_action_is_an_error_that_lists_the_known_ones(
    kit: Toolkit, action: str, hint: str
) -> None:
    said = complaint(await process(kit, action, "x"))
    assert said.startswith(f"action: unknown action {action!r}; ")
    assert hint in said


async def test_other_names_of_actions_are_understood(kit: Toolkit) -> None:
    id_ = await start(kit, "cat")
    sent = await kit.call("process", {"action": "input", "processId": id_, "input": "hi\n"})
    assert sent.details["bytes"] == 3
    await poll_until(kit, id_, "hi\n")
    assert complaint(await process(kit, "signal", id_)).startswith("signal: missing")
    killed = await process(kit, "signal", id_, signal="SIGTERM")
    assert killed.details["exitSignal"] == "SIGTERM"


@pytest.mark.parametrize("effect", ["deny", "ask"])
async def test_a_rule_about_an_action_is_not_passed_by_another_name_of_it(
    workspace: Path, effect: str
) -> None:
    rule = {"tool": "process", "action": "kill", "effect": effect}
    tools = {**FULL["tools"], "rules": [rule]}
    async with open_kit(workspace, config={"tools": tools}) as kit:
        id_ = await start(kit, "cat")
        assert (await process(kit, "kill", id_)).details["status"] == "blocked"
        assert (await process(kit, "signal", id_, signal="KILL")).is_error
        assert (await process(kit, "poll", id_)).details["status"] == "running"


async def test_a_poll_returns_only_new_output(kit: Toolkit) -> None:
    id_ = await start(kit, "echo one; cat")
    assert await poll_until(kit, id_, "one\n") == "one\n"
    await process(kit, "write", id_, data="two\n")
    result = await process(kit, "poll", id_, timeout=30_000)
    text, _, status = result.as_text().partition("\n\n")
    assert text == "two"
    assert re.fullmatch(
        r"Command still running after \d+(\.\d)?s; poll again for more output\.", status
    )
    details = dict(result.details)
    assert details.pop("idleMs") >= 0
    assert details.pop("lastOutputAt") > 0
    assert details == {
        "status": "running",
        "sessionId": id_,
        "name": "echo one;",
        "aggregated": "two\n",
        "stdinWritable": True,
        "waitingForInput": False,
        "retryInMs": 5_000,
        "outputBytes": 8,
    } | {key: details[key] for key in ("spillPath", "spillBytes") if key in details}
    assert (await process(kit, "poll", id_)).details["aggregated"] == ""


async def test_a_poll_waits_for_output(kit: Toolkit, workspace: Path) -> None:
    os.mkfifo(workspace / "gate")
    id_ = await start(kit, "read line < gate; echo $line; cat")
    waiting = asyncio.create_task(process(kit, "poll", id_, timeout="30000"))
    await asyncio.to_thread((workspace / "gate").write_text, "through\n", encoding="utf-8")
    result = await waiting
    assert (result.details["aggregated"], result.details["status"]) == ("through\n", "running")


async def test_a_poll_includes_output_that_follows_immediately(
    kit: Toolkit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clawkit.tools.process.GATHER_S", 15.0)
    id_ = await start(kit, "echo one; sleep 0.3; echo two")
    result = await process(kit, "poll", id_, timeout=20_000)
    assert result.as_text() == "one\ntwo\n\nCommand exited with code 0"


async def test_a_poll_waits_for_the_end(kit: Toolkit, workspace: Path) -> None:
    os.mkfifo(workspace / "gate")
    id_ = await start(kit, "read line < gate; exit 4")
    waiting = asyncio.create_task(process(kit, "poll", id_, timeout=30_000))
    await asyncio.to_thread((workspace / "gate").write_text, "go\n", encoding="utf-8")
    result = await waiting
    assert result.as_text() == "(no new output)\n\nCommand exited with code 4"
    assert not result.is_error


async def test_no_poll_waits_longer_than_it_may(
    kit: Toolkit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clawkit.tools.process.MAX_WAIT_MS", 100)
    id_ = await start(kit, "cat")
    async with asyncio.timeout(60):
        for timeout in (10**12, "1e9", -5):
            result = await process(kit, "poll", id_, timeout=timeout)
            assert (result.details["status"], result.details["aggregated"]) == ("running", "")


async def test_polls_of_two_commands_wait_side_by_side(kit: Toolkit, workspace: Path) -> None:
    os.mkfifo(workspace / "gate")
    first = await start(kit, "read line < gate; echo first")
    second = await start(kit, "sleep 0.3; echo go > gate; echo second")
    calls = [
        CallRequest("process", {"action": "poll", "sessionId": id_, "timeout": 20_000})
        for id_ in (first, second)
    ]
    told = [each.details["aggregated"] for each in await kit.call_all(calls)]
    assert told == ["first\n", "second\n"]


async def test_cursor_movements_do_not_count_as_output(kit: Toolkit) -> None:
    id_ = await start(kit, r"printf '\033[2J\303'; sleep 0.5; printf '\251t\303\251\n'; cat")
    result = await process(kit, "poll", id_, timeout=20_000)
    assert result.details["aggregated"] == "été\n"


async def test_an_incomplete_character_is_shown_at_the_end(kit: Toolkit) -> None:
    id_ = await start(kit, r"printf 'caf\303'")
    assert (await poll_to_end(kit, id_)).details["aggregated"] == "caf\ufffd"


async def test_polls_without_output_advise_to_wait_longer(kit: Toolkit) -> None:
    id_ = await start(kit, "cat")
    polls = [await process(kit, "poll", id_) for _ in range(5)]
    assert [each.details["retryInMs"] for each in polls] == [5_000, 10_000, 30_000, 60_000, 60_000]
    assert "(no new output)" in polls[1].as_text()
    assert polls[1].as_text().endswith("; poll again in 10 s, or set timeout to wait for output.")
    await process(kit, "submit", id_, data="x")
    await poll_until(kit, id_, "x")
    assert (await process(kit, "poll", id_)).details["retryInMs"] == 5_000


async def test_a_status_leaves_new_output_new(kit: Toolkit) -> None:
    id_ = await start(kit, "echo one; exit 2")
    async with asyncio.timeout(60):
        while (await process(kit, "list")).details["sessions"][0]["status"] == "running":
            await asyncio.sleep(0.01)
    for _ in range(2):
        result = await process(kit, "status", id_)
        assert result.details["aggregated"] == "one\n"
        assert result.details["exitCode"] == 2
    assert (await process(kit, "poll", id_)).details["aggregated"] == "one\n"
    assert (await process(kit, "status", id_)).details["aggregated"] == ""


async def test_a_poll_shows_the_end_of_long_output_and_log_the_rest(kit: Toolkit) -> None:
    id_ = await start(kit, "seq 20000")
    async with asyncio.timeout(60):
        while (await process(kit, "status", id_)).details["status"] == "running":
            await asyncio.sleep(0.01)
    result = await process(kit, "poll", id_)
    told = result.details["aggregated"]
    assert 8_000 < len(told) <= 10_000
    assert told.endswith("\n19999\n20000\n")
    skipped = result.details["skippedBytes"]
    assert skipped == result.details["outputBytes"] - len(told)
    assert re.match(r"\[9\d(\.\d)? KB before this left out; log shows", result.as_text())
    page = await process(kit, "log", id_, offset=0, limit=3)
    assert page.details["output"] == "1\n2\n3"


async def test_news_fit_a_model_with_little_room(commands: Supervisor) -> None:
    scope = Scope(context_window=4_000)
    echo = plain("printf '漢%.0s' {1..9000}; echo")
    running = await commands.start("gateway", echo, "main", background=True)
    await running.wait()
    for action in ("poll", "log"):
        result = await ask(commands, scope, action, sessionId=running.id)
        told = result.details["aggregated" if action == "poll" else "output"]
        assert "漢" * 100 in told
        assert told.rstrip("\n") in result.as_text()
        assert "characters left out" not in result.as_text()


async def test_an_exit_reported_by_a_poll_is_not_reported_again(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The poll that tells the output tells the end, too.
    monkeypatch.setattr("clawkit.tools.process.GATHER_S", 15.0)
    os.mkfifo(workspace / "gate")
    events = Events()
    async with open_kit(workspace, config=FULL, on_event=events) as kit:
        polled = await start(kit, "read line < gate; echo polled; exit 1")
        waiting = asyncio.create_task(poll_to_end(kit, polled))
        await asyncio.to_thread((workspace / "gate").write_text, "go\n", encoding="utf-8")
        await waiting
        signalled = await start(kit, "sleep 60")
        await process(kit, "kill", signalled, signal="KILL")
        silent = await start(kit, "echo silent; exit 1")
        async with asyncio.timeout(60):
            while not events.of("notice"):
                await asyncio.sleep(0.01)
    assert [each["details"]["sessionId"] for each in events.of("notice")] == [silent]


@pytest.mark.parametrize(
    ("command", "options", "reason", "words"),
    [
        ("kill -9 $$", {}, "signal", "Command was killed by SIGKILL"),
        ("sleep 60", {"timeout": 0.2}, "overall-timeout", "Command timed out after 0.2 s"),
        ("no-such-program", {}, "not-found", "Command not found (exit code 127)"),
    ],
)
async def test_a_command_that_gave_no_answer_has_failed(
    kit: Toolkit, command: str, options: dict[str, Any], reason: str, words: str
) -> None:
    id_ = await start(kit, command, **options)
    result = await poll_to_end(kit, id_)
    assert result.is_error
    assert (result.details["status"], result.details["exitReason"]) == ("failed", reason)
    assert words in result.as_text()
    (listed,) = (await process(kit, "list")).details["sessions"]
    assert listed["timedOut"] is (reason == "overall-timeout")
    # To look at it is no failure.
    assert not (await process(kit, "log", id_)).is_error


async def test_the_log_shows_the_last_lines_or_those_asked_for(kit: Toolkit) -> None:
    id_ = await start(kit, "seq 1000")
    await poll_to_end(kit, id_)
    last = await process(kit, "log", id_)
    lines = last.details["output"].split("\n")
    assert lines == [str(number) for number in range(801, 1001)]
    note = "[lines 801 to 1,000 of 1,000; earlier lines: offset=600 limit=200]"
    assert last.as_text() == "\n".join((*lines, "", note))
    assert dict(last.details) == {
        "status": "completed",
        "sessionId": id_,
        "output": last.details["output"],
        "total": 3_893,
        "totalLines": 1_000,
        "offset": 800,
        "lines": 200,
        "truncated": False,
        "nextOffset": None,
        "exitCode": 0,
        "exitSignal": None,
        "exitReason": "exit",
    }
    some = await process(kit, "log", id_, offset="10", limit=3)
    assert some.as_text() == "11\n12\n13\n\n[lines 11 to 13 of 1,000; continue with offset=13]"
    assert some.details["nextOffset"] == 13
    rest = await process(kit, "log", id_, offset=998)
    assert rest.as_text() == "999\n1000\n\n[lines 999 to 1,000 of 1,000]"
    tail = await process(kit, "log", id_, limit=2)
    assert tail.details["output"] == "999\n1000"
    beyond = await process(kit, "log", id_, offset=1_000)
    assert beyond.as_text() == ("[nothing at this offset: there are 1,000 lines, counted from 0]")


async def test_the_pages_of_a_log_together_are_the_output(commands: Supervisor) -> None:
    numbers = await commands.start("gateway", plain("seq 3000"), "main", background=True)
    await numbers.wait()
    found: list[str] = []
    offset: int | None = 0
    while offset is not None:
        page = await ask(
            commands, Scope(context_window=4_000), "log", sessionId=numbers.id, offset=offset
        )
        assert page.details["output"] in page.as_text()
        found += page.details["output"].split("\n")
        offset = page.details["nextOffset"]
    assert found == [str(number) for number in range(1, 3_001)]


async def test_a_log_states_what_was_not_kept(
    kit: Toolkit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clawkit.process.spool.MAX_FILE", 300_000)
    id_ = await start(kit, "seq 100000")
    dropped = (await poll_to_end(kit, id_)).details["droppedBytes"]
    assert dropped == 288_895
    page = await process(kit, "log", id_, limit=1)
    assert page.as_text().endswith("]\n[another 282.1 KB of output was not saved]")


async def test_an_empty_log_is_reported(kit: Toolkit) -> None:
    id_ = await start(kit, "read line")
    assert (await process(kit, "log", id_)).as_text() == "(no output yet)"
    await process(kit, "write", id_, eof=True)
    await poll_to_end(kit, id_)
    assert (await process(kit, "log", id_)).as_text() == "(no output)"


async def test_the_screen_is_what_a_person_would_see(kit: Toolkit) -> None:
    drawing = r"printf '\033]0;Menu\007\033[2J\033[3;5HTop\033[5;1Hlast'; cat"
    id_ = await start(kit, drawing, pty=True, columns=40, rows=8)
    await poll_until(kit, id_, "last")
    result = await process(kit, "log", id_, screen=True)
    lines = ["", "", "    Top", "", "last", "", "", ""]
    note = "[screen of 40 x 8, cursor in column 5 of row 5, title 'Menu']"
    assert result.as_text() == "\n".join((*lines[:5], "", note))
    assert dict(result.details) == {
        "status": "running",
        "sessionId": id_,
        "screen": lines,
        "cursor": {"column": 5, "row": 5},
        "title": "Menu",
        "columns": 40,
        "rows": 8,
    }


async def test_a_screen_needs_a_terminal_and_no_lines(kit: Toolkit) -> None:
    id_ = await start(kit, "cat")
    said = complaint(await process(kit, "log", id_, screen=True))
    assert said == f"screen: {id_} has no terminal; leave screen out, or start it with pty"
    said = complaint(await process(kit, "log", id_, screen=True, limit=5))
    assert said == "screen: cannot be combined with offset or limit"


async def test_written_data_is_read_until_the_end_of_input(kit: Toolkit) -> None:
    id_ = await start(kit, "cat; echo over")
    sent = await process(kit, "write", id_, data="pass wörd\n")
    assert sent.as_text() == f"Sent 11 bytes to {id_}; use poll to see its output."
    assert dict(sent.details) == {"status": "running", "sessionId": id_, "bytes": 11}
    await poll_until(kit, id_, "pass wörd\n")
    ended = await process(kit, "write", id_, data="x", eof=True)
    assert ended.as_text().startswith(f"Sent 1 byte and the end of input to {id_};")
    result = await poll_to_end(kit, id_)
    assert result.details["aggregated"] == "xover\n"
    assert result.details["stdinWritable"] is False


async def test_the_input_is_written_to_no_more_after_its_end(kit: Toolkit) -> None:
    id_ = await start(kit, "cat; sleep 60")
    assert (
        (await process(kit, "write", id_, eof=True))
        .as_text()
        .startswith(f"Sent the end of input to {id_};")
    )
    for action, params in (
        ("write", {"data": "x"}),
        ("submit", {}),
        ("send-keys", {"keys": ["x"]}),
        ("paste", {"text": "x"}),
    ):
        said = complaint(await process(kit, action, id_, **params))
        assert said == f"{id_} cannot be written to: its input is closed"


async def test_an_exited_command_takes_no_input(kit: Toolkit) -> None:
    id_ = await start(kit, "true")
    await poll_to_end(kit, id_)
    said = complaint(await process(kit, "write", id_, data="x"))
    assert said == f"{id_} has ended, so nothing can be sent to it; see its log"


async def test_writing_to_a_command_without_input_explains_how_to_start_it(kit: Toolkit) -> None:
    yielded = await kit.call("exec", {"command": "sleep 60", "yieldMs": 10})
    said = complaint(await process(kit, "submit", yielded.details["sessionId"]))
    assert said.endswith("it was started without background or pty, so its input is empty")
    detached = await start(kit, "sleep 60", detach=True)
    said = complaint(await process(kit, "submit", detached))
    assert said.endswith("it was started with detach, so its input is empty")
    await process(kit, "kill", detached)


@pytest.mark.parametrize("pty", [False, True])
async def test_a_line_is_ended_as_the_program_expects(kit: Toolkit, pty: bool) -> None:
    id_ = await start_echo(kit, pty=pty)
    await process(kit, "submit", id_, data="hi")
    await poll_until(kit, id_, "<68 69 0d>" if pty else "<68 69 0a>")
    await process(kit, "submit", id_)
    await poll_until(kit, id_, "<0d>" if pty else "<0a>")
    await process(kit, "send-keys", id_, literal="ho", keys=["Enter"])
    await poll_until(kit, id_, "<68 6f 0d>" if pty else "<68 6f 0a>")


async def test_text_bytes_and_keys_are_sent_in_this_order(kit: Toolkit) -> None:
    id_ = await start_echo(kit, pty=True)
    sent = await process(kit, "send-keys", id_, keys=["C-c", "F1"], hex="0x0a ff", literal="é")
    assert sent.details["bytes"] == 8
    await poll_until(kit, id_, "<c3 a9 0a ff 03 1b 4f 50>")


@pytest.mark.parametrize(("mode", "up"), [("", "1b 5b 41"), (r"\\x1b[?1h", "1b 4f 41")])
async def test_arrows_are_sent_as_the_program_asked_for(kit: Toolkit, mode: str, up: str) -> None:
    id_ = await start_echo(kit, mode.replace("\\\\", "\\"), pty=True)
    await process(kit, "send-keys", id_, keys="Up")
    await poll_until(kit, id_, f"<{up}>")


async def test_without_a_terminal_only_keys_that_are_bytes_are_sent(kit: Toolkit) -> None:
    id_ = await start_echo(kit, pty=False)
    for key in ("Up", "F5", "C-Left", "PageUp"):
        said = complaint(await process(kit, "send-keys", id_, keys=["a", key]))
        assert said.startswith(f"keys[1]: {id_} has no terminal, which this key needs; start it")
    await process(kit, "send-keys", id_, keys=["a", "Tab", "M-x"])
    await poll_until(kit, id_, "<61 09 1b 78>")


@pytest.mark.parametrize(
    ("key", "instead"),
    [("C-c", "signal INT"), ("C-d", "write with eof"), ("C-z", "signal STOP")],
)
async def test_keys_that_need_a_terminal_get_a_warning(
    kit: Toolkit, key: str, instead: str
) -> None:
    id_ = await start_echo(kit, pty=False)
    sent = await process(kit, "send-keys", id_, keys=[key])
    (warning,) = sent.details["warnings"]
    assert warning.startswith(key)
    assert instead in warning
    assert sent.as_text().endswith(f"\nWarning: {warning}")


async def test_suspicious_keys_get_a_warning(kit: Toolkit) -> None:
    id_ = await start_echo(kit, pty=True)
    sent = await process(kit, "send-keys", id_, hex=["41", "zz"], keys=["Entr"])
    assert len(sent.details["warnings"]) == 2
    assert "did you mean enter?" in sent.as_text()
    await poll_until(kit, id_, "<41 45 6e 74 72>")


@pytest.mark.parametrize(
    ("first", "bracketed", "expected"),
    [
        ("", True, "<61 0d 62>"),
        (r"\x1b[?2004h", False, "<61 0d 62>"),
        (r"\x1b[?2004h", True, "<1b 5b 32 30 30 7e 61 0d 62 1b 5b 32 30 31 7e>"),
    ],
)
async def test_pasted_text_is_marked_for_programs_that_asked(
    kit: Toolkit, first: str, bracketed: bool, expected: str
) -> None:
    id_ = await start_echo(kit, first, pty=True)
    await process(kit, "paste", id_, text="a\nb", bracketed=bracketed)
    await poll_until(kit, id_, expected)


async def test_text_pasted_without_a_terminal_is_sent_as_it_is(kit: Toolkit) -> None:
    id_ = await start_echo(kit, pty=False)
    await process(kit, "paste", id_, text="a\nb")
    await poll_until(kit, id_, "<61 0a 62>")


CANNOT_BE_SENT: list[tuple[str, dict[str, Any], str]] = [
    ("write", {}, "data: missing; give the text to write, or eof"),
    ("write", {"data": "\ud800"}, "data: has a lone surrogate"),
    ("write", {"data": "x" * (1024 * 1024 + 1)}, "data: is 1 MB; the limit is 1 MB at once"),
    ("submit", {"data": "a\udfff"}, "a lone surrogate (half a character) at position 1"),
    ("send-keys", {}, "keys: missing; give keys, or hex, or literal"),
    ("send-keys", {"hex": ["zz"]}, "hex[0] 'zz' is not a byte"),
    ("send-keys", {"keys": ["a", ""]}, "keys[1] is empty"),
    ("send-keys", {"literal": "\ud800"}, "literal: has a lone surrogate"),
    ("paste", {}, "text: empty; there is nothing to paste"),
]


@pytest.mark.parametrize("pty", [False, True])
async def test_invalid_data_is_an_input_error(
    kit: Toolkit, pty: bool, subtests: pytest.Subtests
) -> None:
    for action, params, words in CANNOT_BE_SENT:
        with subtests.test(action=action, words=words):
            id_ = await start_echo(kit, pty=pty)
            assert words in complaint(await process(kit, action, id_, **params))
            await process(kit, "write", id_, data="z")
            assert await poll_until(kit, id_, ">") == "<7a>\n"


async def test_the_end_of_input_ends_a_half_line_in_a_terminal(kit: Toolkit) -> None:
    id_ = await start(kit, "stty -echo; echo ready; cat; echo over", pty=True)
    await poll_until(kit, id_, "ready")
    await process(kit, "write", id_, data="half", eof=True)
    assert (await poll_to_end(kit, id_)).details["aggregated"] == "halfover\n"


async def test_an_interpreter_in_a_terminal_can_be_driven(kit: Toolkit) -> None:
    id_ = await start(kit, REPL, pty=True, columns=80, rows=24)
    await poll_until(kit, id_, ">>> ")
    await process(kit, "submit", id_, data="6 * 7")
    await poll_until(kit, id_, "42\n>>> ")
    await process(
        kit, "send-keys", id_, keys=["1", "1", " ", "+", " ", "2", "BSpace", "3", "Enter"]
    )
    await poll_until(kit, id_, "14\n>>> ")
    await process(kit, "paste", id_, text="x = 5")
    await process(kit, "submit", id_)
    await process(kit, "submit", id_, data="print(x * 1000)")
    await poll_until(kit, id_, "5000\n>>> ")
    screen = (await process(kit, "log", id_, screen=True)).details
    shown = [line for line in screen["screen"] if line]
    assert shown[:2] == [">>> 6 * 7", "42"]
    assert shown[-2:] == ["5000", ">>>"]
    assert screen["cursor"]["column"] == 5
    await process(kit, "write", id_, eof=True)
    assert (await poll_to_end(kit, id_)).details["exitCode"] == 0


async def test_a_command_is_ended_with_all_it_started(kit: Toolkit) -> None:
    id_ = await start(kit, "sleep 60 & echo $! $$; trap '' TERM; wait; sleep 60")
    pids = [int(word) for word in (await poll_until(kit, id_, "\n")).split()]
    result = await process(kit, "kill", id_)
    assert result.as_text() == "Command was stopped on request"
    details = dict(result.details)
    assert (details.pop("status"), details.pop("sessionId")) == ("completed", id_)
    assert details["exitReason"] == "manual-cancel"
    assert not any(map(is_alive, pids))


@pytest.mark.parametrize(
    "name", ["USR1", "SIGUSR1", "sigusr1", " usr1 ", int(signal.SIGUSR1), "10"]
)
async def test_a_signal_is_sent_by_name_or_number(
    kit: Toolkit, name: str | int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clawkit.tools.process._FATAL_WAIT_S", 60.0)
    catch = "import signal; signal.signal(signal.SIGUSR1, lambda *_: print('caught') or exit(7))"
    wait = "print('ready', flush=True); [signal.pause() for _ in iter(int, 1)]"
    id_ = await start(kit, f'exec {sys.executable} -c "{catch}; {wait}"')
    await poll_until(kit, id_, "ready")
    result = await process(kit, "kill", id_, signal=name)
    assert result.as_text() == f"Sent SIGUSR1 to {id_}. Command exited with code 7"
    assert (result.details["status"], result.details["exitCode"]) == ("completed", 7)
    assert (await process(kit, "poll", id_)).details["aggregated"] == "caught\n"


async def test_a_command_that_survives_a_signal_is_reported(
    kit: Toolkit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clawkit.tools.process._FATAL_WAIT_S", 60.0)
    id_ = await start(kit, "sleep 60")
    result = await process(kit, "kill", id_, signal="WINCH")
    assert result.as_text() == f"Sent SIGWINCH to {id_}; it is still running."
    assert dict(result.details) == {"status": "running", "sessionId": id_}
    assert (await process(kit, "kill", id_, signal="STOP")).details["status"] == "running"
    ended = await process(kit, "kill", id_, signal="KILL")
    assert ended.as_text() == f"Sent SIGKILL to {id_}. Command was killed by SIGKILL"
    assert ended.details["exitSignal"] == "SIGKILL"
    assert not ended.is_error


@pytest.mark.parametrize(
    ("given", "hint"),
    [("TREM", "did you mean TERM?"), (0, "its number, 1 to 64"), (65, "its number, 1 to 64")]
    + [(each, "unknown signal") for each in ("-9", "9.5", "rm -rf /", "٣", "9" * 5000, "SIG")],
)
async def test_unknown_signals_are_not_sent(kit: Toolkit, given: str | int, hint: str) -> None:
    id_ = await start(kit, "sleep 60")
    assert hint in complaint(await process(kit, "kill", id_, signal=given))
    assert (await process(kit, "status", id_)).details["status"] == "running"


async def test_leftover_processes_can_be_stopped(kit: Toolkit) -> None:
    id_ = await start(kit, "sleep 60 >/dev/null 2>&1 & echo $!")
    result = await poll_to_end(kit, id_)
    pid = int(result.details["aggregated"])
    # A shell that is about to become another program still has its own name.
    name = rf"(sleep|bash) \(pid {pid}\)"
    assert re.search(rf"Command exited with code 0\n\[Left running: {name}\.", result.as_text())
    said = complaint(await process(kit, "clear", id_))
    assert said == f"{id_} left something running; kill stops it, remove stops and removes it"
    killed = await process(kit, "kill", id_)
    assert re.fullmatch(f"Stopped what {id_} had left running: {name}", killed.as_text())
    assert killed.details["status"] == "completed"
    assert not is_alive(pid)
    again = await process(kit, "kill", id_)
    assert again.as_text() == f"{id_} has already ended; none of its processes is left"
    assert (again.details["status"], again.details["exitCode"]) == ("completed", 0)


async def test_leftover_processes_can_be_sent_a_signal(kit: Toolkit) -> None:
    id_ = await start(kit, "sleep 60 >/dev/null 2>&1 & echo $!")
    pid = int((await poll_to_end(kit, id_)).details["aggregated"])
    result = await process(kit, "kill", id_, signal="TERM")
    said = rf"Sent SIGTERM to what {id_} left running: (sleep|bash) \(pid {pid}\)"
    assert re.fullmatch(said, result.as_text())
    async with asyncio.timeout(60):
        while is_alive(pid):
            await asyncio.sleep(0.01)


async def test_only_exited_commands_are_cleared(kit: Toolkit) -> None:
    id_ = await start(kit, "cat")
    said = complaint(await process(kit, "clear", id_))
    assert said == f"{id_} is still running; kill stops it, remove stops and removes it"
    await process(kit, "write", id_, eof=True)
    await poll_to_end(kit, id_)
    result = await process(kit, "clear", id_)
    assert result.as_text() == f"Removed {id_} and its output."
    assert dict(result.details) == {"status": "completed", "sessionId": id_}
    assert (await process(kit, "poll", id_)).details["code"] == 404


async def test_removing_a_running_command_stops_it(kit: Toolkit) -> None:
    id_ = await start(kit, "echo $$; exec sleep 60")
    pid = int(await poll_until(kit, id_, "\n"))
    result = await process(kit, "remove", id_)
    assert result.as_text() == (
        f"Removed {id_} and its output. It was running and has been stopped."
    )
    assert not is_alive(pid)
    assert (await process(kit, "list")).details["sessions"] == []


async def test_a_terminal_is_given_another_size(kit: Toolkit) -> None:
    watching = "trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done"
    id_ = await start(kit, watching, pty=True, columns=80, rows=24)
    await poll_until(kit, id_, "ready")
    result = await process(kit, "resize", id_, columns=100)
    assert result.as_text() == f"The terminal of {id_} now has 100 columns and 24 rows."
    assert (result.details["columns"], result.details["rows"]) == (100, 24)
    await poll_until(kit, id_, "24 100\n")
    await process(kit, "resize", id_, rows=50)
    await poll_until(kit, id_, "50 100\n")
    assert complaint(await process(kit, "resize", id_)).startswith("columns: missing")
    for wrong in ({"columns": 10}, {"rows": 1_000}):
        assert (await process(kit, "resize", id_, **wrong)).details["code"] == 400
    await process(kit, "kill", id_)
    assert complaint(await process(kit, "resize", id_, rows=30)).endswith(
        "so it no longer has a terminal"
    )


async def test_resizing_needs_a_terminal(kit: Toolkit) -> None:
    id_ = await start(kit, "cat")
    said = complaint(await process(kit, "resize", id_, rows=30))
    assert said == f"{id_} has no terminal; start it with pty to have one"
