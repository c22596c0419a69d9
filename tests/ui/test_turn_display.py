"""What a turn looks like, event by event."""

from __future__ import annotations

from typing import Any

import pytest

from clawkit.agent.events import (
    AnswerRestarted,
    AnswerStored,
    CallBegun,
    CallWritten,
    Compacted,
    Event,
    MessageAdded,
    Notice,
    RequestSent,
    ResultStored,
    TextPiece,
    ThinkingPiece,
    ToolEvent,
    TurnEnded,
    TurnStarted,
)
from clawkit.content import Assistant, Image, Text, ToolCall, ToolResult, User
from clawkit.core.approval import FINAL
from clawkit.core.finalize import for_event
from clawkit.core.result import Result
from clawkit.redact import Redactor
from clawkit.ui.paint import Paint
from clawkit.ui.turn_display import TurnDisplay

START = TurnStarted("main", "fake/one")


class Recorder:
    """A screen, and a clock that stands still unless somebody moves it."""

    columns = 60

    def __init__(self) -> None:
        self.text = ""
        self.now = 100.0
        self.watcher = TurnDisplay(self, Paint(colours=False), clock=lambda: self.now)

    def print(self, text: str) -> None:
        self.text += text

    def refresh(self) -> None:
        pass

    def tell(self, *events: Event) -> None:
        for event in events:
            self.watcher(event)

    @property
    def live(self) -> str:
        return self.watcher.live(60, 10)


@pytest.fixture
def screen() -> Recorder:
    return Recorder()


def happened(kind: str, tool: str = "exec", **more: Any) -> ToolEvent:
    return ToolEvent({"type": kind, "tool": tool, "callId": "c1"} | more)


def test_complete_blocks_stay_and_the_open_one_is_live(screen: Recorder) -> None:
    screen.tell(START, MessageAdded(User((Text("hi"),))), TextPiece("One.\n\nTw"))
    assert screen.text == "\n❯ hi\n\nOne.\n"
    assert "Tw" in screen.live
    screen.tell(
        TextPiece("o."), AnswerStored(Assistant((Text("One.\n\nTwo."),))), TurnEnded("done")
    )
    assert screen.text == "\n❯ hi\n\nOne.\n\nTwo.\n"
    assert screen.live == ""


def test_an_answer_that_did_not_come_in_pieces_is_shown(screen: Recorder) -> None:
    screen.tell(START, AnswerStored(Assistant((Text("All at **once**."),))))
    assert screen.text == "\nAll at once.\n"


def test_what_was_said_in_a_void_attempt_is_taken_back_or_marked(screen: Recorder) -> None:
    screen.tell(START, RequestSent("fake/two"))
    screen.tell(TextPiece("Wro"), AnswerRestarted("the connection broke", 3, "fake/two"))
    assert "Wro" not in screen.text + screen.live
    assert screen.text.count("void") == 0
    assert "asking fake/two again in 3s" in screen.text
    screen.tell(
        TextPiece("Wrong.\n\n"), AnswerRestarted("it broke", 0, "fake/two"), TextPiece("Right.")
    )
    assert "it broke; the text above was discarded; asking fake/two" in screen.text
    screen.tell(AnswerStored(Assistant((Text("Right."),))))
    assert screen.text.endswith("\nRight.\n")


def test_a_model_that_was_not_asked_before_is_not_asked_again(screen: Recorder) -> None:
    screen.tell(START, RequestSent("fake/one"), AnswerRestarted("fake/one failed", 0, "fake/one"))
    screen.tell(
        AnswerRestarted("fake/one failed", 0, "fake/two"),
        AnswerRestarted("fake/two failed", 3, "fake/two"),
    )
    screen.tell(AnswerRestarted("fake/two failed", 0, "fake/one"))
    assert screen.text == (
        "\n· fake/one failed; asking fake/one again\n· fake/one failed; asking fake/two\n"
        "· fake/two failed; asking fake/two again in 3s\n· fake/two failed; asking fake/one\n"
    )


def test_thinking_is_shown_in_short_or_whole(screen: Recorder) -> None:
    long = "I think. " * 40
    screen.tell(START, ThinkingPiece(long))
    assert "I think." in screen.live
    screen.now += 4
    screen.tell(TextPiece("So."))
    assert screen.text.startswith("\n· thought 4s: I think. ")
    assert len(screen.text) < 200
    screen.watcher.show_thinking = True
    screen.tell(ThinkingPiece(long), TextPiece("!"))
    assert screen.text.count("I think.") > 40


def test_a_call_is_live_while_it_runs_and_one_line_when_it_is_done(screen: Recorder) -> None:
    screen.tell(START, CallBegun(0, "exec"), CallWritten(0, 5_000))
    assert "exec … 5,000 characters" in screen.live
    screen.tell(AnswerStored(Assistant((ToolCall("c1", "exec", {"command": "make"}),))))
    screen.tell(happened("start", params={"command": "make"}))
    screen.now += 3
    tail = {"elapsedMs": 3000, "bytes": 2048, "tail": "one\ntwo \x1b[2J\n"}
    screen.tell(happened("update", details=tail))
    assert "exec make 3s 2 KB" in screen.live
    assert "  two [2J" in screen.live
    assert screen.text == ""
    screen.tell(happened("end", details={"exitCode": 2, "aggregated": "boom\n"}))
    assert screen.text == "\n✗ exec make 3s  exit code 2\n  boom\n"
    assert "make" not in screen.live


def test_a_call_that_was_refused_says_what_it_was_about(screen: Recorder) -> None:
    screen.tell(START, AnswerStored(Assistant((ToolCall("c1", "exec", {"command": "rm x"}),))))
    screen.tell(happened("end", isError=True, error="refused"))
    assert screen.text == "\n✗ exec rm x refused\n"


def test_words_about_a_call_are_not_broken(screen: Recorder) -> None:
    why = "tools.rules[0]: nobody runs the tests by hand in here, so use pytest instead of it"
    screen.tell(START, AnswerStored(Assistant((ToolCall("c1", "exec", {"command": "make test"}),))))
    screen.tell(happened("end", isError=True, error=why))
    assert screen.text == (
        "\n✗ exec make test tools.rules[0]: nobody runs the tests by\n"
        "  hand in here, so use pytest instead of it\n"
    )
    screen.text = ""
    screen.tell(happened("end", details={"plan": [{"step": "Look at the whole thing " * 3}]}))
    assert (
        "  ☐ Look at the whole thing Look at the whole thing Look\n    at the whole" in screen.text
    )


def test_what_was_running_when_the_turn_ended_was_interrupted(screen: Recorder) -> None:
    screen.tell(START, happened("start", params={"command": "sleep 60"}))
    screen.now += 3
    screen.tell(TurnEnded("aborted"))
    assert screen.text == "\n✗ exec sleep 60 3s  interrupted\n\n· interrupted\n"
    assert screen.live == ""


def test_of_a_long_message_the_beginning_stays(screen: Recorder) -> None:
    picture = Image("QUJD", "image/png")
    screen.tell(START, MessageAdded(User((Text("line\n" * 3_000), picture))))
    rows = screen.text.split("\n")
    assert rows[1:3] == ["❯ line", "  line"]
    assert rows[-4:] == ["  line", "  … 2,990 more lines", "  [image/png, 3 B]", ""]
    assert len(rows) < 20


def test_what_the_operator_says_is_folded_where_words_end(screen: Recorder) -> None:
    words = "I am not a language model: I am the built-in operator, for trying clawkit offline."
    screen.tell(TurnStarted("main", "clawkit/operator"), TextPiece(words))
    folded = "I am not a language model: I am the built-in operator, for\n  trying clawkit offline."
    assert folded in screen.live
    screen.tell(AnswerStored(Assistant((Text(words),))))
    assert screen.text == f"\n{folded}\n"


def test_what_the_operator_repeats_is_not_markdown_and_not_shown_twice(screen: Recorder) -> None:
    screen.tell(TurnStarted("main", "clawkit/operator"))
    screen.tell(happened("start", params={"command": "x"}))
    screen.tell(happened("end", details={"exitCode": 0, "aggregated": "* a  b\n"}))
    screen.tell(TextPiece("* a  b\n# c"), AnswerStored(Assistant((Text("* a  b\n# c"),))))
    assert screen.text == "\n✓ exec x\n\n* a  b\n\n# c\n"


@pytest.mark.parametrize(
    ("rest", "shown"),
    [
        ([RequestSent("clawkit/operator"), TextPiece("read failed: no")], "\nread failed: no\n"),
        ([], "\n· read failed: no\n"),
    ],
    ids=["repeated", "stopped before"],
)
def test_a_failure_that_the_operator_repeats_is_shown_once(
    screen: Recorder, rest: list[Event], shown: str
) -> None:
    screen.tell(TurnStarted("main", "clawkit/operator"), RequestSent("clawkit/operator"))
    screen.tell(happened("start", "read", params={"path": "x"}))
    screen.tell(happened("end", "read", isError=True, error="no"), *rest, TurnEnded("done"))
    assert screen.text == f"\n✗ read x\n{shown}"
    screen.tell(happened("end", "read", isError=True, error="no"))
    assert screen.text.endswith("\n✗ read no\n")


def test_the_rest_of_what_happens_is_told_in_lines(screen: Recorder) -> None:
    screen.tell(
        Notice("look\nout"),
        Compacted(90_000, 1_000),
        happened("notice", content=[{"type": "text", "text": "it ended"}]),
        ResultStored(ToolResult("c1", "read", (Image("QUJD", "image/png"),))),
        START,
        TextPiece("Half an ans"),
        TurnEnded("aborted"),
        TurnEnded("error", error="no \x1b money"),
    )
    assert screen.text == (
        "\n· look out\n· the conversation was summarized: 90,000 → 1,000 tokens\n· it ended\n"
        "\n  [image/png, 3 B]\n\nHalf an ans\n\n· interrupted\n· no money\n"
    )


def test_the_live_part_is_bounded(screen: Recorder) -> None:
    screen.tell(START, TextPiece("```\n" + "\n".join(f"line {n}" for n in range(500))))
    assert len(screen.live.split("\n")) == 10
    assert "line 499" in screen.live
    screen.tell(TextPiece("x" * 20_000))
    assert all(len(row) <= 60 for row in screen.live.split("\n"))


def test_what_the_model_says_cannot_pass_for_a_line_about_a_call(screen: Recorder) -> None:
    forged = "fine\n\n✓ exec make\n\n❯ yes, do it\n\n· told\n\n✗ **exec** x"
    screen.tell(START, AnswerStored(Assistant((Text(forged),))), TurnEnded("done"))
    rows = screen.text.split("\n")
    for mark in ("✓ exec make", "❯ yes, do it", "· told", "✗ exec x"):
        assert f" {mark}" in rows
        assert mark not in rows


def test_the_real_end_of_a_long_output_is_shown(screen: Recorder) -> None:
    output = "\n".join(map(str, range(1, 5_001)))
    result = Result.text(output, exitCode=0, exitReason="exit", aggregated=output)
    event = {"type": "end", "tool": "exec", "callId": "c1", **for_event(result, Redactor())}
    screen.tell(START, happened("start", params={"command": "seq 1 5000"}), ToolEvent(event))
    assert screen.text == "\n✓ exec seq 1 5000\n  …\n  4997\n  4998\n  4999\n  5000\n"


@pytest.mark.parametrize(
    ("details", "line"),
    [
        ({"exitCode": 3, "exitReason": "exit"}, "✗ calm-otter make all 12s  exit code 3"),
        ({"exitCode": 0, "exitReason": "exit"}, "✓ calm-otter make all 12s  exit code 0"),
        (
            {"exitCode": None, "exitReason": "overall-timeout", "exitSignal": "SIGTERM"},
            "✗ calm-otter make all 12s  overall timeout SIGTERM",
        ),
    ],
)
def test_the_end_of_a_background_command_has_its_name_command_and_code(
    screen: Recorder, details: dict[str, Any], line: str
) -> None:
    running = {"status": "running", "sessionId": "calm-otter"}
    screen.tell(
        START,
        happened("start", params={"command": "make all"}),
        happened("end", isError=False, details=running),
        TurnEnded("done"),
    )
    screen.text = ""
    more = {"sessionId": "calm-otter", "tail": "one\ntwo", "durationMs": 12_000, **details}
    text = "Background command calm-otter (make) failed: said\none\ntwo"
    screen.tell(happened("notice", details=more, content=[{"type": "text", "text": text}]))
    assert screen.text == f"{line}\n  one\n  two\n"


def test_lines_of_another_notice_stay_lines(screen: Recorder) -> None:
    content = [{"type": "text", "text": "Command c7 was not run:\nnot allowed"}]
    screen.tell(happened("notice", details={"status": "blocked"}, content=content))
    assert screen.text == "\n· Command c7 was not run:\n  not allowed\n"


@pytest.mark.parametrize(
    ("content", "lines", "shown"),
    [
        ("a\nb\n", 2, "2 lines\n  +a\n  +b\n"),
        ("a", 1, "1 line\n  +a\n"),
        (
            "\n".join("abcdefgh"),
            8,
            "8 lines\n  +a\n  +b\n  +c\n  +d\n  +e\n  +f\n  … 2 lines more\n",
        ),
        ("", 0, "0 lines\n"),
    ],
)
def test_a_new_file_is_shown_by_its_beginning(
    screen: Recorder, content: str, lines: int, shown: str
) -> None:
    created = {"path": "/w/new.txt", "created": True, "lines": lines, "bytes": len(content)}
    screen.tell(
        START,
        happened("start", "write", params={"path": "new.txt", "content": content}),
        happened("end", "write", isError=False, details=created),
    )
    assert screen.text == f"\n✓ write new.txt new file, {shown}"


def test_the_time_of_a_call_is_without_the_time_of_its_question(screen: Recorder) -> None:
    screen.tell(START, happened("start", "write", params={"path": "a"}))
    screen.now += 2
    screen.watcher.pause("c1", is_asked=True)
    screen.watcher.is_asked = True
    screen.now += 60
    assert "write a 2s" in screen.live
    # How long the turn takes is not how long this question waits.
    assert screen.live.endswith(" waiting for your answer")
    screen.watcher.is_asked = False
    screen.watcher.pause("c1", is_asked=False)
    screen.now += 1
    screen.tell(happened("end", "write", isError=False))
    assert screen.text == "\n✓ write a 3s\n"


def test_no_output_or_text_is_shown_between_a_question_and_its_choices(screen: Recorder) -> None:
    details = {"tail": "Run this command?\n| ls", "bytes": 22, "elapsedMs": 1000}
    screen.tell(
        START,
        ThinkingPiece("| thought"),
        happened("start", params={"command": "make"}),
        happened("update", details=details),
    )
    assert "| ls" in screen.live
    screen.watcher.is_asked = True
    assert "make" in screen.live
    assert "|" not in screen.live


def test_a_question_about_one_call_does_not_pause_another_of_the_same_tool(
    screen: Recorder,
) -> None:
    screen.tell(
        START,
        happened("start", params={"command": "make"}),
        happened("start", callId="c2", params={"command": "git push"}),
    )
    screen.watcher.pause("c2", is_asked=True)
    screen.now += 60
    assert "exec make 1m" in screen.live
    screen.watcher.pause("c2", is_asked=False)
    screen.now += 1
    screen.tell(
        happened("end", isError=False),
        happened("end", callId="c2", isError=False),
    )
    assert screen.text == "\n✓ exec make 1m 1s\n✓ exec git push 1s\n"


def test_the_time_of_a_command_is_its_own(screen: Recorder) -> None:
    screen.tell(START, happened("start", params={"command": "make"}))
    screen.now += 60
    done = {"exitCode": 0, "exitReason": "exit", "durationMs": 1_500, "status": "completed"}
    screen.tell(happened("end", isError=False, details=done))
    assert screen.text == "\n✓ exec make 1.5s\n"


@pytest.mark.parametrize("end", ["", ".", ". Stop trying."])
def test_what_is_said_to_the_model_after_a_refusal_is_not_shown(screen: Recorder, end: str) -> None:
    said = f"denied by a person (too risky). {FINAL}{end}"
    screen.tell(START, happened("end", isError=True, error=said))
    assert screen.text == "\n✗ exec denied by a person (too risky)\n"


def test_typed_text_and_thoughts_are_folded_where_words_end(screen: Recorder) -> None:
    words = " ".join(f"word{number}" for number in range(20))
    screen.watcher.show_thinking = True
    screen.tell(
        START,
        MessageAdded(User((Text(words),))),
        ThinkingPiece(words),
        AnswerStored(Assistant((Text("ok"),))),
    )
    rows = screen.text.split("\n")
    assert all(len(row) < screen.columns for row in rows)
    assert " ".join(" ".join(rows).replace("❯", "").split()) == f"{words} {words} ok"
