"""Messages as they are stored."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scale import FULL
from tests.tables import table

from clawkit.content import (
    Assistant,
    Image,
    Message,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    User,
)
from clawkit.redact import Redactor
from clawkit.sessions.encode import (
    MAX_DETAILS,
    MAX_STRING,
    MAX_TEXT,
    MAX_TOKENS,
    bound_details,
    decode,
    encode,
)

SECRET = "hunter2-and-then-some"
REDACTOR = Redactor([SECRET])


def stored(message: Message, *, redacted: bool = True) -> Any:
    return decode(encode(message, REDACTOR.text if redacted else None))


def deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


@table(
    "message",
    [
        User((Text("hi\0\x1b[2K\u202e 😀"), Image("aGk=", "image/png")), 5),
        Summary("before", 9, 1),
        Assistant(
            (
                Thinking("hm", "sig"),
                Thinking(signature="enc", hidden=True),
                Text("so", "final"),
                ToolCall("1", "write", {"path": "a", "n": [1, 2.5, None, True, 2**70]}, "s"),
                ToolCall("2", "exec", '{"broken'),
            ),
            "tool_calls",
            "a/b",
            "anthropic-messages",
            Usage(1, 2, 3, 4, 0.5),
            "",
            7,
        ),
        ToolResult("1", "write", (Text("ok"),), True, {"a": {"b": ["c"]}}, 8),
    ],
)
def test_a_message_is_decoded_unchanged(message: Message) -> None:
    assert stored(message) == message
    assert stored(message, redacted=False) == message


@table(
    "message",
    [
        User((Text(f"use {SECRET}"),)),
        Summary(f"they said {SECRET}"),
        Assistant((Text(SECRET), Thinking(SECRET)), error=f"401 for {SECRET}"),
        Assistant((ToolCall("1", "exec", {"command": f"echo {SECRET}", SECRET: [SECRET]}),)),
        Assistant((ToolCall("1", "exec", f'{{"command": "{SECRET}'),)),
        ToolResult("1", "exec", (Text(SECRET),), details={"aggregated": f"x {SECRET}"}),
    ],
)
def test_no_secret_is_stored(message: Message) -> None:
    assert SECRET.encode() not in encode(message, REDACTOR.text)
    assert SECRET.encode() in encode(message)


def test_ids_and_signatures_are_stored_word_for_word() -> None:
    call = ToolCall(SECRET, "exec", {}, SECRET)
    assert stored(Assistant((call, Thinking("hm", SECRET)))).content == (
        call,
        Thinking("hm", SECRET),
    )
    assert stored(ToolResult(SECRET, "exec")).call_id == SECRET


def test_a_signature_goes_with_the_words_it_was_about() -> None:
    (thought,) = stored(Assistant((Thinking(f"the key is {SECRET}", "sig"),))).content
    assert thought.signature == ""
    assert SECRET not in thought.text
    huge = Thinking("", "x" * (MAX_TEXT + 1), hidden=True)
    assert stored(Assistant((huge, Text("so")))).content == (Text("so"),)


@pytest.mark.parametrize("size", [MAX_TEXT + 1, MAX_TEXT + 9_000, 50_000_000])
def test_too_much_text_is_cut_with_a_notice(size: int) -> None:
    (block,) = stored(ToolResult("1", "exec", (Text("x" * size),))).content
    head, _, notice = block.text.partition("\n")
    assert len(head) <= MAX_TEXT
    assert notice == f"[… {size - len(head):,} more characters were not stored]"
    assert len(head) > MAX_TEXT - 9_000


def test_all_text_of_a_message_counts_together() -> None:
    message = ToolResult("1", "exec", tuple(Text("x" * 400_000) for _ in range(5)))
    assert len(encode(message)) < MAX_TEXT + 1_000
    call = ToolCall("1", "write", {"content": "x" * 3_000_000, "path": "a"})
    kept = stored(Assistant((call, Text("done"))))
    assert "more characters were not stored" in kept.calls[0].arguments["content"]
    assert len(encode(kept)) < MAX_TEXT + 1_000


@pytest.mark.long
def test_a_cut_through_a_secret_leaves_none_of_it(subtests: pytest.Subtests) -> None:
    cases: Iterable[int] = range(0, 60, 1 if FULL else 14)
    for before in cases:
        with subtests.test(f"{before!r:.80}"):
            for end in (MAX_TEXT, MAX_TEXT + 8_192):
                text = "a " * ((end - before) // 2) + SECRET + " b" * 10_000
                (block,) = stored(User((Text(text),))).content
                assert SECRET[:8] not in block.text


def test_whatever_a_message_holds_it_can_be_read_again(subtests: pytest.Subtests) -> None:
    cases: Iterable[Message] = [
        User((Text("a\ud800b"), Image("\ud800", "\udcff"))),
        Summary("\udcff"),
        Assistant(
            (
                Text("\ud800"),
                Thinking("\ud800", "\ud800"),
                ToolCall("\ud800", "\ud800", {}, "\ud800"),
            ),
            model="\ud800",
            api="\ud800",
            error="\ud800",
        ),
        Assistant((ToolCall("1", "x", {"a\ud800": ["\ud800", float("nan"), math.inf]}),)),
        Assistant((ToolCall("1", "x", {"a": 10**9999, "b": {1, 2}, "c": b"x"}),)),
        Assistant((ToolCall("1", "x", deep(100_000)),)),
        Assistant((ToolCall("1", "x", {"a": [0] * 1_000_000}),)),
        Assistant((ToolCall("1", "x", {str(n): 0 for n in range(50_000)}),)),
        ToolResult("\ud800", "\ud800", (Text("\ud800"),), details={"\ud800": "\ud800"}),
        ToolResult("1", "x", details=deep(100_000)),
        Assistant(usage=Usage(10**30, -5, 2**63, 0, math.nan)),
        Assistant(usage=Usage(cost=math.inf)),
    ]
    for number, message in enumerate(cases):
        with subtests.test(f"case {number}"):
            once = stored(message)
            assert stored(once) == once
            assert type(once) is type(message)


def test_halves_of_a_character_that_belong_together_become_one() -> None:
    assert stored(User((Text("\ud83d\ude00 \ud800"),))).content[0].text == "😀 \ufffd"


def test_usage_can_always_be_added_up() -> None:
    usage = stored(Assistant(usage=Usage(10**30, -5, 7, 0, math.nan))).usage
    assert usage == Usage(MAX_TOKENS, 0, 7, 0, 0.0)


@table(
    "details",
    [
        {},
        {"a": 1},
        {"text": "x" * MAX_STRING},
        {str(n): "x" * 100 for n in range(70)},
        {"items": list(range(1_000))},
    ],
)
def test_small_details_are_kept(details: dict[str, Any]) -> None:
    assert bound_details(details) == details


@table(
    ("details", "kept"),
    [
        ({"a": 1, "text": "x" * (MAX_STRING + 1)}, {"a", "text"}),
        ({"a": 1, "many": {str(n): "x" * 500 for n in range(20)}, "b": 2}, {"a", "b"}),
        ({"sessions": [{"x": "y" * 100}] * 500, "b": 2}, {"sessions", "b"}),
        ({"deep": {"text": "x" * 10**7}, "b": 2}, {"deep", "b"}),
    ],
)
def test_large_details_are_reduced(details: dict[str, Any], kept: set[str]) -> None:
    reduced = bound_details(details)
    assert reduced.pop("persistedDetailsTruncated") is True
    assert reduced.pop("originalDetailKeys") == list(details)
    assert reduced.keys() == kept
    assert isinstance(reduced.get("sessions", [0] * 10), list)
    assert len(reduced.get("sessions", [0] * 10)) == 10


def test_keys_alone_can_be_too_much() -> None:
    reduced = bound_details({f"{n}" * 100: "x" * 100 for n in range(10_000, 10_500)})
    assert len(reduced["originalDetailKeys"]) == 50
    assert all(len(key) <= 40 for key in reduced["originalDetailKeys"])


LONG = st.builds(str.__mul__, st.text(max_size=5), st.sampled_from([1, 500]))
JSON = st.recursive(
    st.none() | st.integers() | st.floats() | LONG,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=10,
)


@settings(max_examples=30)
@given(st.dictionaries(LONG, JSON, max_size=8))
def test_stored_details_are_never_larger_than_that(details: dict[str, Any]) -> None:
    bounded = bound_details(details, REDACTOR.text)
    assert len(msgspec.json.encode(bounded)) <= MAX_DETAILS
    assert stored(ToolResult("1", "x", details=details)).details == msgspec.json.decode(
        msgspec.json.encode(bounded)
    )


@table(
    "body",
    [b"", b"{}", b'{"type":"user"}', b'{"type":"x"}', b'{"type":"summary","text":1}', b"\xff"],
)
def test_data_that_is_not_a_message_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # whatever it says
        decode(body)
