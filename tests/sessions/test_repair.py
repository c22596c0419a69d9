"""Conversations that every model API takes."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.scale import scaled
from tests.tables import table

from clawkit.content import (
    Assistant,
    Image,
    Message,
    Part,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    User,
)
from clawkit.sessions.repair import INTERRUPTED
from clawkit.sessions.repair import repair as repair_numbered

HI, MORE = User((Text("hi"),)), User((Text("and more"),))
BYE = Assistant((Text("bye"),))
EMPTY = Assistant((), stop="aborted")


def repair(messages: list[Message]) -> list[Message]:
    return [message for _, message in repair_numbered(messages)]


def asks(*ids: str, text: str = "", at_ms: int = 0) -> Assistant:
    said: tuple[Part, ...] = (Text(text),) if text else ()
    calls = tuple(ToolCall(id_, f"tool_{id_}") for id_ in ids)
    return Assistant(said + calls, stop="tool_calls", at_ms=at_ms)


def result(id_: str, text: str = "", tool: str | None = None) -> ToolResult:
    return ToolResult(id_, f"tool_{id_}" if tool is None else tool, (Text(text or f"did {id_}"),))


def lost(id_: str, tool: str | None = None, at_ms: int = 0) -> ToolResult:
    name = f"tool_{id_}" if tool is None else tool
    return ToolResult(id_, name, (Text(INTERRUPTED),), is_error=True, at_ms=at_ms)


def renamed(answer: Assistant, *ids: str) -> Assistant:
    calls = zip(ids, answer.calls, strict=True)
    return Assistant(tuple(ToolCall(id_, call.name) for id_, call in calls), stop="tool_calls")


@table(
    "messages",
    [
        [],
        [HI],
        [HI, BYE, MORE],
        [HI, asks("a", "b"), result("a"), result("b"), BYE],
        [Summary("before"), HI, asks("a"), result("a")],
        [HI, asks("a"), result("a"), asks("b"), result("b"), MORE, BYE],
        [User((Image("aGk=", "image/png"),)), BYE],
        [HI, Assistant((Thinking("hm", "sig"), Text("so"), ToolCall("a", "tool_a"))), result("a")],
    ],
)
def test_valid_messages_are_not_changed(messages: list[Message]) -> None:
    mended = repair(messages)
    assert mended == messages
    assert all(new is old for new, old in zip(mended, messages, strict=True))


def test_invalid_messages_are_repaired(subtests: pytest.Subtests) -> None:
    cases: Iterable[tuple[list[Message], list[Message]]] = [
        # Results in the order in which the calls ended.
        ([asks("a", "b"), result("b"), result("a")], [asks("a", "b"), result("a"), result("b")]),
        # Something was said while the calls ran.
        ([asks("a"), MORE, result("a"), HI], [asks("a"), result("a"), MORE, HI]),
        # Killed before a call, or all of them, had ended.
        ([HI, asks("a")], [HI, asks("a"), lost("a")]),
        (
            [asks("a", "b", at_ms=7), result("b")],
            [asks("a", "b", at_ms=7), lost("a", at_ms=7), result("b")],
        ),
        ([asks("a"), MORE, BYE], [asks("a"), lost("a"), MORE, BYE]),
        ([asks("a"), BYE, result("a")], [asks("a"), lost("a"), BYE]),
        # Nobody asked for it.
        ([HI, result("a"), BYE], [HI, BYE]),
        ([result("a"), asks("a")], [asks("a"), lost("a")]),
        ([asks("a"), result("a"), result("b"), BYE], [asks("a"), result("a"), BYE]),
        # Twice.
        ([asks("a"), result("a", "1"), result("a", "2")], [asks("a"), result("a", "1")]),
        # Ids that come again: in the next answer, in the same one, and in the form that would be
        # given to the second.
        (
            [asks("a"), result("a", "1"), asks("a"), result("a", "2")],
            [asks("a"), result("a", "1"), renamed(asks("a"), "a-2"), result("a-2", "2", "tool_a")],
        ),
        (
            [asks("a", "a"), result("a", "1"), result("a", "2")],
            [renamed(asks("a", "a"), "a", "a-2"), result("a", "1"), result("a-2", "2", "tool_a")],
        ),
        (
            [asks("a", "a"), result("a", "1")],
            [renamed(asks("a", "a"), "a", "a-2"), result("a", "1"), lost("a-2", "tool_a")],
        ),
        (
            [asks("a-2", "a", "a"), result("a"), result("a-2"), result("a", "2")],
            [
                renamed(asks("a-2", "a", "a"), "a-2", "a", "a-3"),
                result("a-2"),
                result("a"),
                result("a-3", "2", "tool_a"),
            ],
        ),
        (
            [asks("", ""), result("", "1")],
            [
                renamed(asks("", ""), "call", "call-2"),
                result("call", "1", "tool_"),
                lost("call-2", "tool_"),
            ],
        ),
        # A result that names another tool than its call.
        ([asks("a"), result("a", tool="rm")], [asks("a"), result("a")]),
        # Nothing was said.
        ([HI, EMPTY, MORE], [HI, MORE]),
        ([HI, Assistant((), stop="error", error="broke"), MORE, BYE], [HI, MORE, BYE]),
        ([HI, Assistant((Thinking("hm", "sig"), Text(" \n"))), MORE], [HI, MORE]),
        ([asks("a"), EMPTY, result("a"), BYE], [asks("a"), result("a"), BYE]),
        ([User(()), HI, User((Text(" "), Text("")))], [HI]),
        # Only the last summary counts, and nothing before it.
        (
            [HI, Summary("one"), BYE, Summary("two"), MORE, asks("a")],
            [Summary("two"), MORE, asks("a"), lost("a")],
        ),
        ([asks("a"), Summary("one"), result("a"), HI], [Summary("one"), HI]),
    ]
    for messages, mended in cases:
        with subtests.test(f"{messages!r:.80}"):
            assert repair(messages) == mended
            assert repair(mended) == mended


def test_each_message_is_known_by_where_it_came_from() -> None:
    messages: list[Message] = [HI, EMPTY, asks("a", "b"), result("b"), MORE]
    assert [at for at, _ in repair_numbered(messages)] == [0, 2, 2, 3, 4]


@pytest.mark.long
def test_thousands_of_calls_with_one_id_take_no_longer_than_others() -> None:
    count = scaled(50_000)
    many: list[Message] = [asks("call_0"), result("call_0")] * count
    mended = repair(many)
    ids = [each.calls[0].id for each in mended if isinstance(each, Assistant)]
    assert len(set(ids)) == len(ids) == count


IDS = st.sampled_from(["", "a", "a-2", "b", "call", "call-2"])
PARTS = st.one_of(
    st.builds(Text, st.sampled_from(["", " ", "x"])),
    st.builds(Thinking, st.sampled_from(["", "hm"])),
    st.builds(ToolCall, IDS, st.sampled_from(["read", "ls"])),
)
STOPS = st.sampled_from(["stop", "length", "tool_calls", "error", "aborted"])
MESSAGES: st.SearchStrategy[list[Message]] = st.lists(
    st.one_of(
        st.builds(User, st.lists(st.builds(Text, st.sampled_from(["", "u"]))).map(tuple)),
        st.builds(Assistant, st.lists(PARTS, max_size=5).map(tuple), STOPS),
        st.builds(ToolResult, IDS, st.sampled_from(["read", "rm"])),
        st.builds(Summary, st.just("s")),
    ),
    max_size=12,
)


@given(MESSAGES)
def test_whatever_is_given_the_result_is_consistent(messages: list[Message]) -> None:
    mended = repair(messages)
    waiting: list[ToolCall] = []
    ids: list[str] = []
    for at, each in enumerate(mended):
        if isinstance(each, ToolResult):
            call = waiting.pop(0)
            assert (each.call_id, each.tool) == (call.id, call.name)
            continue
        assert waiting == []
        if isinstance(each, Assistant):
            waiting = list(each.calls)
            ids += [call.id for call in waiting]
            assert waiting or each.text.strip()
        assert at == 0 or not isinstance(each, Summary)
    assert waiting == []
    assert len(set(ids)) == len(ids)
    assert "" not in ids
    assert repair(mended) == mended


@given(MESSAGES)
def test_repair_loses_no_text(messages: list[Message]) -> None:
    start = max((at for at, each in enumerate(messages) if isinstance(each, Summary)), default=0)

    def said(given: list[Message]) -> list[object]:
        return [
            [part for part in each.content if not isinstance(part, ToolCall)]
            for each in given
            if (isinstance(each, Assistant) and (each.calls or each.text.strip()))
            or (isinstance(each, User) and any(part.text for part in each.content))  # type: ignore[union-attr]
        ]

    assert said(repair(messages)) == said(messages[start:])
