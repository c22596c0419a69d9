"""Which calls are the same, and which results say the same."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from clawkit.content import Image, Text
from clawkit.core.result import Result
from clawkit.guard.equivalence import EDGE, call_key, is_poll, outcome_of, parse_params

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
    max_leaves=8,
)


def mark(text: str, tool: str = "probe") -> str:
    return outcome_of(tool, {}, Result.text(text)).mark


def key(params: object, tool: str = "read") -> str:
    return call_key(tool, parse_params(params))


@table(
    ("first", "second"),
    [
        ({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1}),
        ({"a": [1, {"x": 1, "y": 2}]}, '{"a": [1, {"y": 2, "x": 1}]}'),
        ({}, None),
        ({}, ""),
        ({"a": 1}, OrderedDict(a=1)),
        ({"a": 1}, MappingProxyType({"a": 1})),
        ({"a": (1, 2)}, {"a": [1, 2]}),
    ],
)
def test_the_same_call_is_recognised(first: object, second: object) -> None:
    assert key(first) == key(second)


def _other_calls_are_others(first: object, second: object) -> None:
    assert key(first) != key(second)


def test_other_calls_are_others(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        ({"a": 1}, {"a": 2}),
        ({"a": 1}, {"a": "1"}),
        ({"a": 1}, {"a": True}),
        ({"a": None}, {}),
        ({"a": "b"}, {"ab": ""}),
        ({"a": [1, [2]]}, {"a": [[1], 2]}),
        ({"a": ["b"]}, {"a": "b"}),
        ({"a": ["b", "c"]}, {"a": {"b": "c"}}),
        ({"a": [1, 2]}, {"a": [2, 1]}),
        ({"a": float("nan")}, {"a": float("inf")}),
        ({"a": 10**5000}, {"a": 10**5000 + 1}),
        ({"a": "\ud800"}, {"a": "\ud801"}),
        ("not json", "not json either"),
        ("not json", {}),
    ]
    for first, second in cases:
        with subtests.test(first=first, second=second):
            _other_calls_are_others(first, second)


def test_calls_of_two_tools_are_two() -> None:
    assert key({}, "read") != key({}, "write")
    assert key({}, "x" * 100_000) != key({}, "x" * 100_001)
    assert len(key({}, "x" * 100_000)) < 200


@given(JSON)
def test_parameters_as_text_are_the_same_call(value: object) -> None:
    params = {"value": value}
    assert key(json.dumps(params)) == key(json.loads(json.dumps(params)))


def cycle() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["self"] = [value] * 10
    return value


def deep() -> object:
    value: object = 1
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    "params",
    [
        pytest.param(cycle(), marks=pytest.mark.untraced),
        {"a": deep()},
        pytest.param({"a": [0] * 500_000}, marks=pytest.mark.untraced),
        {"a": object()},
        {"a": {1, 2}},
        {"a": b"bytes"},
        {1: 2, None: 3, "x": 4, (1, 2): 5},
        object(),
        7,
        "[" * 100_000,
        {"a": float("-inf")},
    ],
    ids=range(11),
)
def test_odd_parameters_have_a_key(params: object) -> None:
    assert key(params) == key(params)


@table(
    ("tool", "params", "polls"),
    [
        ("process", {"action": "poll"}, True),
        ("process", {"action": "log", "offset": 3}, True),
        ("process", {"action": "status"}, True),
        ("process", {"action": "kill"}, False),
        ("process", {"action": ["poll"]}, False),
        ("process", "poll", False),
        ("process", {}, False),
        ("exec", {"action": "poll"}, False),
        ("command_status", {}, True),
    ],
)
def test_polls_are_known(tool: str, params: object, polls: bool) -> None:
    assert is_poll(tool, params) is polls


def _what_differs_every_time_makes_no_difference(first: str, second: str) -> None:
    assert mark(first) == mark(second)


def test_what_differs_every_time_makes_no_difference(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        ("at 2026-10-09T12:00:01Z", "at 2026-10-10T01:59:59Z"),
        ("2026-10-09 12:00:01,123 INFO x", "2026-10-09 12:00:02,004 INFO x"),
        ("2026-10-09 12:00 +02:00", "2026-10-09 12:01 +02:00"),
        ("Fri Oct  9 12:34:56 UTC 2026", "Fri Oct  9 12:34:57 UTC 2026"),
        ("3 failed in 0.12s", "3 failed in 11.5s"),
        ("waited 5 seconds", "waited 12 seconds"),
        ("Still running after 2 min 5 s.", "Still running after 3 min 10 s."),
        ("built in 1m23s", "built in 2m04s"),
        ("up 1h02m03.5s", "up 2h12m13.1s"),
        ("up 1h5m", "up 2h15m"),
        ("took 15 ms, then 3µs", "took 9 ms, then 12µs"),
        ("ready (pid 123)", "ready (pid 98765)"),
        ('{"pid": 5, "ppid": 1}', '{"pid": 77, "ppid": 2}'),
        ('{"durationMs": 5, "elapsed": 1.5}', '{"durationMs": 123, "elapsed": 2}'),
        ('{"at": 1760000000000}', '{"at": 1760000012345}'),
        ("<Thing at 0x7f1234567890>", "<Thing at 0x7fabcdef1234>"),
        ("wrote /tmp/tmpab12cd_4/x", "wrote /tmp/tmpzz99yy88/x"),
        ("wrote /tmp/tmp.aB3dE6gH9j/x", "wrote /tmp/tmp.xB3dE6gH9j/x"),
        ("/tmp/pytest-of-me/pytest-12/test_a0", "/tmp/pytest-of-me/pytest-13/test_a0"),
    ]
    for first, second in cases:
        with subtests.test(first=first, second=second):
            _what_differs_every_time_makes_no_difference(first, second)


@table(
    ("first", "second"),
    [
        ("3 failed", "2 failed"),
        ("a.py:12:34: error", "a.py:12:35: error"),
        ("a.c:1:02:03", "a.c:1:02:04"),
        ("version 1.2.3", "version 1.2.4"),
        ("commit 4e60df3", "commit 8d670f2"),
        ("/tmp/work/a.py", "/tmp/work/b.py"),
        ("45% done", "46% done"),
        ("1712345678 bytes", "1712345679 bytes"),
        ("rapid 5", "rapid 6"),
        ("stupid 5", "stupid 6"),
        ("v5s", "v6s"),
    ],
)
def test_what_says_something_makes_a_difference(first: str, second: str) -> None:
    assert mark(first) != mark(second)


def test_a_long_text_is_compared_whole_and_its_ends_without_times() -> None:
    middle = "x" * EDGE
    assert mark(f"in 1s {middle * 2} in 2s") == mark(f"in 3s {middle * 2} in 4s")
    assert mark(f"{middle}a{middle}") != mark(f"{middle}b{middle}")


def test_images_are_compared_by_what_they_show() -> None:
    def shown(*blocks: Any) -> str:
        return outcome_of("read", {}, Result(blocks, {"path": "a"})).mark

    assert shown(Image("AAAA", "image/png")) == shown(Image("AAAA", "image/png"))
    assert shown(Image("AAAA", "image/png")) != shown(Image("AAAB", "image/png"))
    assert shown(Text("a"), Text("b")) != shown(Text("ab"))


def test_details_matter_only_where_there_is_nothing_to_read() -> None:
    assert mark("a") == outcome_of("probe", {}, Result.text("a", n=1)).mark
    silent = [outcome_of("probe", {}, Result((), {"n": n})).mark for n in (1, 1, 2)]
    assert silent[0] == silent[1] != silent[2]


def test_a_file_that_was_as_it_should_be_is_no_news() -> None:
    same = outcome_of("write", {}, Result.text("a is as it was", changed=False))
    other = outcome_of("write", {}, Result.text("b is as it was", changed=False))
    done = outcome_of("write", {}, Result.text("a is as it was", changed=True))
    assert same == other
    assert same.fruitless
    assert done.mark != same.mark
    assert not done.fruitless


def command(said: str = "", **details: Any) -> Result:
    return Result.text(said, **details)


@table(
    ("tool", "params", "first", "second"),
    [
        (
            "exec",
            {},
            command("sessionId calm-otter", status="running", pid=1, sessionId="a", tail="x"),
            command("sessionId wild-fox", status="running", pid=2, sessionId="b", tail="x"),
        ),
        (
            "exec",
            {},
            command("x", status="completed", exitCode=0, aggregated="x", durationMs=5, cpuMs=1),
            command("x\n", status="completed", exitCode=0, aggregated="x", durationMs=9, cpuMs=4),
        ),
        (
            "exec",
            {},
            command("id 1", status="approval-pending", command="rm x", approvalId="1", host="h"),
            command("id 2", status="approval-pending", command="rm x", approvalId="2", host="h"),
        ),
        (
            "process",
            {"action": "poll"},
            command("still running after 5 s", status="running", aggregated="", idleMs=5),
            command("poll again in 10 s", status="running", aggregated="", idleMs=99),
        ),
        (
            "process",
            {"action": "log"},
            command("[lines 1 to 2]", status="completed", output="a\nb", total=3, sessionId="a"),
            command("[lines 1 to 2 ]", status="completed", output="a\nb", total=3, sessionId="b"),
        ),
        (
            "message",
            {"action": "send"},
            command("sent as 1", ok=True, message={"id": 1, "text": "hi"}, messageId="1"),
            command("sent as 2", ok=True, message={"id": 2, "text": "hi"}, messageId="2"),
        ),
        (
            "sessions_send",
            {},
            command("run 1", status="ok", runId="1", reply="yes"),
            command("run 2", status="ok", runId="2", reply="yes"),
        ),
    ],
)
def test_results_that_say_the_same(
    tool: str, params: object, first: Result, second: Result
) -> None:
    assert outcome_of(tool, params, first) == outcome_of(tool, params, second)


@table(
    ("tool", "params", "first", "second"),
    [
        (
            "exec",
            {},
            command(status="running", tail="10 %"),
            command(status="running", tail="20 %"),
        ),
        (
            "exec",
            {},
            command("x", status="completed", exitCode=0),
            command("x", status="completed", exitCode=1),
        ),
        (
            "exec",
            {},
            command(status="completed", exitCode=0, aggregated="a"),
            command(status="completed", exitCode=0, aggregated="b"),
        ),
        (
            "exec",
            {},
            command(status="failed", aggregated="a", timedOut=False),
            command(status="failed", aggregated="a", timedOut=True),
        ),
        ("exec", {}, command("no such directory"), command("not allowed")),
        (
            "process",
            {"action": "poll"},
            command(status="running", aggregated=""),
            command(status="completed", exitCode=0, aggregated=""),
        ),
        ("process", {"action": "list"}, command("a", status="x"), command("b", status="x")),
        ("process", {"action": "poll"}, command("gone"), command("unknown")),
        (
            "message",
            {"action": "send"},
            command("sent", message={"text": "hi"}),
            command("sent", message={"text": "ho"}),
        ),
        ("message", {"action": "read"}, command("1", id=1), command("2", id=2)),
        ("message", {"action": "send"}, command("a"), command("b")),
    ],
)
def test_results_that_say_something_else(
    tool: str, params: object, first: Result, second: Result
) -> None:
    assert outcome_of(tool, params, first).mark != outcome_of(tool, params, second).mark


def failed(output: str, code: int = 1, **details: Any) -> str:
    result = command(output, status="completed", exitCode=code, aggregated=output, **details)
    return outcome_of("exec", {}, result).failure


def test_commands_that_fail_alike() -> None:
    assert failed("attempt 1 of 5: no route to host") == failed("attempt 4 of 5: no route to host")
    assert failed("Retry #2 (pid 5): refused") == failed("Retry #13 (pid 6): refused")
    assert failed("no route") != failed("no host")
    assert failed("no route", 1) != failed("no route", 2)


@table(
    "details",
    [
        {"output": "fine", "code": 0},
        {"output": " \n", "code": 1},
        {"output": "slow", "code": 1, "timedOut": True},
    ],
)
def test_results_that_are_not_such_failures(details: dict[str, Any]) -> None:
    assert failed(**details) == ""


def test_failed_calls_are_fruitless() -> None:
    error = outcome_of("probe", {}, Result.error("probe", "no"))
    refusal = outcome_of("exec", {}, Result.text("no", status="blocked"))
    broken = outcome_of("exec", {}, command("", status="failed", exitCode=None, aggregated=""))
    assert error.fruitless
    assert refusal.fruitless
    assert broken.fruitless
    assert not outcome_of("probe", {}, Result.text("yes")).fruitless
