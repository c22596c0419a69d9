from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawkit.content import Image, Text
from clawkit.core.result import Result, error_message

PNG = Image("aGk=", "image/png")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def test_text_with_details() -> None:
    result = Result.text("hello", path="a.txt")
    assert result == Result((Text("hello"),), {"path": "a.txt"})


def test_an_object_becomes_indented_json_and_details() -> None:
    result = Result.json({"name": "字", "n": 1})
    assert result.as_text() == '{\n  "name": "字",\n  "n": 1\n}'
    assert result.details == {"name": "字", "n": 1}


def test_an_error_says_which_tool_failed_and_why() -> None:
    result = Result.error("read", "no such file", code=404)
    assert result.details == {
        "status": "error",
        "tool": "read",
        "error": "no such file",
        "code": 404,
    }
    assert json.loads(result.as_text()) == result.details
    assert result.is_error


def test_the_message_of_an_error_is_readable() -> None:
    cases: Iterable[tuple[dict[str, Any], str]] = [
        ({"error": "no such file"}, "no such file"),
        ({"error": "rate_limited", "message": "too many requests"}, "too many requests"),
        ({"error": "rate_limited", "message": ""}, "rate_limited"),
        ({"error": "rate_limited", "message": 5}, "rate_limited"),
        ({"error": {"code": 5, "message": "boom"}}, "boom"),
        ({"error": {"code": 5}, "message": "another subject"}, ""),
        ({"error": "", "message": "sent"}, ""),
        ({"message": "sent"}, ""),
        ({}, ""),
    ]
    assert [error_message(details) for details, _ in cases] == [words for _, words in cases]


def test_a_result_is_written_as_content_and_details() -> None:
    result = Result((Text("a"), PNG, Text("b")), MappingProxyType({"n": 1}))
    assert result.to_json() == {
        "content": [
            {"type": "text", "text": "a"},
            {"type": "image", "data": "aGk=", "mimeType": "image/png"},
            {"type": "text", "text": "b"},
        ],
        "details": {"n": 1},
    }
    assert result.as_text() == "a\nb"


def test_the_details_decide_whether_a_call_failed(subtests: pytest.Subtests) -> None:
    cases: Iterable[tuple[dict[str, Any], bool]] = [
        ({}, False),
        ({"status": "ok"}, False),
        ({"ok": False}, True),
        ({"success": False, "status": "completed"}, True),
        ({"ok": True, "success": False}, True),
        *[
            ({"status": status}, True)
            for status in (
                *("error", "failed", "failure", "timeout", "timed_out", "blocked", "denied"),
                *("forbidden", "unavailable", "approval-unavailable", "disabled", "aborted"),
                *("cancelled", "canceled", "killed", "invalid"),
            )
        ],
        ({"status": " Failed "}, True),
        ({"status": "failed", "ok": True}, False),
        ({"status": "failed", "success": True}, False),
        ({"status": "failed", "ok": 1}, True),
        ({"status": "failed", "ok": True, "timedOut": True}, True),
        ({"timedOut": True}, True),
        ({"timedOut": "no"}, False),
        ({"error": "boom", "status": "completed"}, True),
        ({"error": ""}, False),
        ({"error": None}, False),
        ({"status": "completed", "exitCode": 1}, False),
        ({"status": "running", "exitCode": 1}, True),
        ({"exitCode": 0}, False),
        ({"exitCode": 137}, True),
        ({"exitCode": None}, False),
        ({"exitCode": "1"}, False),
        ({"status": 5}, False),
    ]
    for details, failed in cases:
        with subtests.test(f"{details!r:.80}"):
            assert Result((), details).is_error is failed


def test_return_values_become_results(subtests: pytest.Subtests) -> None:
    cases: Iterable[tuple[object, Result]] = [
        (Result.text("a"), Result.text("a")),
        ("plain", Result.text("plain")),
        ("", Result.text("")),
        (None, Result.json({"status": "ok", "tool": "demo"})),
        (Text("a"), Result((Text("a"),))),
        (PNG, Result((PNG,))),
        ([Text("a"), PNG], Result((Text("a"), PNG))),
        ((PNG,), Result((PNG,))),
        ([{"type": "text", "text": "a"}], Result((Text("a"),))),
        ({"n": 1}, Result.json({"n": 1})),
        (MappingProxyType({"n": 1}), Result.json({"n": 1})),
        ({}, Result.json({})),
        ([1, "a"], Result((Text('[\n  1,\n  "a"\n]'),), {"value": [1, "a"]})),
        ([], Result((Text("[]"),), {"value": []})),
        (True, Result((Text("true"),), {"value": True})),
        (4.5, Result((Text("4.5"),), {"value": 4.5})),
        ({"content": []}, Result()),
        ({"content": [Text("a"), PNG]}, Result((Text("a"), PNG))),
        (
            {
                "content": [
                    {"type": "text", "text": "a"},
                    {"type": "image", "data": "aGk=", "mimeType": "image/png"},
                ],
                "details": {"n": 1},
            },
            Result((Text("a"), PNG), {"n": 1}),
        ),
        (
            {"content": [Text("a")], "details": None, "isError": True},
            Result((Text("a"),), {"isError": True}),
        ),
        ({"content": "a file's text"}, Result.json({"content": "a file's text"})),
        ({"content": [1, 2]}, Result.json({"content": [1, 2]})),
        ({"content": [{"type": "text"}]}, Result.json({"content": [{"type": "text"}]})),
        ({"content": None}, Result.json({"content": None})),
    ]
    for value, result in cases:
        with subtests.test(f"{value!r:.80}"):
            assert Result.of(value, "demo") == result


def test_a_result_is_returned_unchanged() -> None:
    result = Result.text("a")
    assert Result.of(result, "demo") is result


def test_values_that_are_not_json_are_refused_by_type_name(subtests: pytest.Subtests) -> None:
    cases: Iterable[tuple[object, str]] = [
        ({1, 2}, "set"),
        (b"bytes", "bytes"),
        (object(), "object"),
        ({"when": {1}}, "set"),
        ([Text("a"), "b"], "Text"),
        ({"content": [Text("a")], "details": [1]}, "list"),
        ({"content": [Text("a")], "details": {"x": {1}}}, "set"),
        (math.nan, "float"),
        ({("a", "b"): 1}, "tuple"),
        (Result(("text",)), "str"),  # type: ignore[arg-type]
        (Result((), ["a"]), "list"),  # type: ignore[arg-type]
    ]
    for value, named in cases:
        words = f"'demo' returned an invalid result: .*{named}"
        with subtests.test(f"{value!r:.80}"), pytest.raises(TypeError, match=words):
            Result.of(value, "demo")


def test_cyclic_and_very_deep_values_are_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    deep: Any = 1
    for _ in range(200_000):
        deep = [deep]
    for value in (loop, deep):
        with pytest.raises(TypeError, match="value of type list is not JSON"):
            Result.of(value, "demo")


def test_endless_details_are_refused() -> None:
    loop: dict[str, Any] = {}
    loop["again"] = loop
    for details in (loop, {"many": [0] * 100_001}):
        with pytest.raises(TypeError, match="are circular or have more than"):
            Result.of(Result((), details), "demo")


@given(JSON)
def test_every_json_value_becomes_a_result_that_can_be_printed(value: Any) -> None:
    result = Result.of(value, "demo")
    assert json.loads(json.dumps(result.to_json())) == result.to_json()
    if value is not None:
        assert json.loads(result.as_text()) == value


def test_a_result_is_changed_as_a_dataclass() -> None:
    """After-hooks that mask results do so; one that raised would leave the result as it is."""
    masked = replace(Result.text("private", code=7), content=(Text("[hidden]"),))
    assert (masked.as_text(), masked.details) == ("[hidden]", {"code": 7})


def test_error_message_finds_the_message_in_all_forms() -> None:
    for details, said in (
        ({"error": "no such file"}, "no such file"),
        ({"error": "missing_key", "message": "set a key"}, "set a key"),
        ({"error": {"type": "x", "message": "in words"}}, "in words"),
        ({"error": {"type": "x"}}, ""),
        ({"error": 7}, ""),
        ({}, ""),
    ):
        assert error_message(details) == said
