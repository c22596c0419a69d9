"""Turns as plain text, and as JSON lines."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from clawkit.agent.events import (
    AnswerRestarted,
    AnswerStored,
    Event,
    MessageAdded,
    Notice,
    TextPiece,
    ToolEvent,
    TurnEnded,
    TurnStarted,
)
from clawkit.cli.turn_output import JsonOutput, PlainOutput
from clawkit.content import Assistant, Source, Text, User
from clawkit.text import quote


class Screen(io.StringIO):
    """A terminal as far as programs can tell."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        (["· exec rm -r /"], " · exec rm -r /"),
        (["Look:\n· exec\n·\n"], "Look:\n · exec\n ·\n"),
        (["Look:\n", "· ex", "ec"], "Look:\n · exec"),
        (["Look:", "\n", "·", " exec"], "Look:\n · exec"),
        (["a · b", "· c\n  · d"], "a · b· c\n  · d"),
    ],
)
def test_no_line_of_an_answer_looks_like_one_about_a_call(
    pieces: list[str], shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Screen()
    monkeypatch.setattr("sys.stdout", screen)
    watcher = PlainOutput()
    for piece in pieces:
        watcher(TextPiece(piece))
    assert screen.getvalue() == shown


def test_after_a_remark_in_the_middle_of_an_answer_a_line_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = Screen()
    monkeypatch.setattr("sys.stdout", screen)
    watcher = PlainOutput()
    for event in (TextPiece("One"), Notice("a remark"), TextPiece("· exec")):
        watcher(event)
    assert screen.getvalue() == "One\n · exec"


def test_text_in_a_pipe_is_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    PlainOutput()(AnswerStored(Assistant((Text("· one\n· two"),))))
    assert capsys.readouterr().out == "· one\n· two\n"


@pytest.mark.parametrize(
    ("next_one", "wait_s", "said"),
    [
        ("aa/x", 0, "· aa/x failed (HTTP 503); asking aa/x again\n"),
        ("aa/x", 2, "· aa/x failed (HTTP 503); asking aa/x again in 2s\n"),
        ("aa/xy", 0, "· aa/x failed (HTTP 503); asking aa/xy\n"),
        ("bb/z", 0, "· aa/x failed (HTTP 503); asking bb/z\n"),
    ],
)
def test_only_the_model_that_failed_is_asked_again(
    next_one: str, wait_s: float, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    PlainOutput()(AnswerRestarted("aa/x failed (HTTP 503)", wait_s, next_one, "server"))
    assert capsys.readouterr().err == said


def test_only_text_that_was_shown_is_reported_as_discarded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for screen, said in ((None, "; asking"), (Screen(), "; the text above was discarded; asking")):
        if screen is not None:
            monkeypatch.setattr("sys.stdout", screen)
        watcher = PlainOutput()
        watcher(TextPiece("Hel"))
        watcher(AnswerRestarted("aa/x failed", 0, "aa/x", "server"))
        assert capsys.readouterr().err == f"· aa/x failed{said} aa/x again\n"


@pytest.mark.parametrize("before", [[], [TextPiece("Hel")], [TurnEnded("error", error="no")]])
def test_the_last_line_of_json_is_the_end_once(
    before: list[Event], capsys: pytest.CaptureFixture[str]
) -> None:
    watcher = JsonOutput()
    for event in before:
        watcher(event)
    watcher.give_up("error", "no")
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["type"] for each in told].count("turn_end") == 1
    assert (told[-1]["type"], told[-1]["how"], told[-1]["error"]) == ("turn_end", "error", "no")


FAILED = ToolEvent({"type": "end", "tool": "read", "callId": "c1", "isError": True, "error": "no"})
REPEATED = AnswerStored(Assistant((Text("read failed: no"),)))


@pytest.mark.parametrize(
    ("details", "said"),
    [
        ({"exitCode": 3, "exitReason": "exit"}, "· process: exit code 3\n"),
        (
            {"exitReason": "manual-cancel", "exitSignal": "SIGTERM"},
            "· process: manual cancel SIGTERM\n",
        ),
        ({"exitCode": 0, "exitReason": "exit"}, ""),
    ],
)
def test_a_call_about_a_command_that_failed_has_not_failed_itself(
    details: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    event = {"type": "end", "tool": "process", "callId": "c1", "isError": False}
    PlainOutput()(ToolEvent({**event, "details": details}))
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("model", "events", "said"),
    [
        ("aa/x", [FAILED], "· read failed: no\n"),
        ("clawkit/operator", [FAILED, REPEATED], ""),
        ("clawkit/operator", [FAILED, REPEATED, TurnEnded("done")], ""),
        ("clawkit/operator", [FAILED, TurnEnded("aborted")], "· read failed: no\n"),
        ("clawkit/operator", [TurnEnded("done"), FAILED], "· read failed: no\n"),
    ],
    ids=["a model", "repeated", "repeated at the end", "not repeated", "typed by the person"],
)
def test_a_failure_repeated_by_the_offline_model_is_shown_once(
    model: str, events: list[Event], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    watcher = PlainOutput()
    for event in (TurnStarted("main", model), *events):
        watcher(event)
    assert capsys.readouterr().err == said


def test_news_about_a_call_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    watcher = PlainOutput()
    about = {"type": "notice", "tool": "exec"}
    text = {"type": "text", "text": "It was\napproved."}
    for event in (
        {"type": "start", "tool": "exec", "callId": "1", "params": {"command": "make"}},
        {**about, "callId": "1", "details": {"exitReason": "exit", "exitCode": 0}},
        {**about, "callId": "1", "details": {"exitReason": "overall-timeout"}},
        {**about, "callId": "2", "details": {"exitReason": "exit", "exitCode": 1}},
        {**about, "callId": "1", "content": [text]},
        {**about, "callId": "1"},
    ):
        watcher(ToolEvent(event))
    assert capsys.readouterr().err.splitlines() == [
        "· exec make",
        "· exec make: exit code 0",
        "· exec make: overall timeout",
        "· exec: exit code 1",
        "· It was approved.",
        "· exec",
    ]


def test_the_report_of_a_job_is_shown_as_it_was_written(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = "[This message is from clawkit.]\n\n" + quote("red\n\n  green")
    report = Source("cron", titles=("Job x: red green",))
    PlainOutput()(MessageAdded(User((Text(words),), 0, report)))
    due = Source("cron", ("run",), ("Scheduled job: x",))
    PlainOutput()(MessageAdded(User((Text(words),), 0, due)))
    assert capsys.readouterr().err == "· Job x:\nred\n\n  green\n· Scheduled job: x\n"
