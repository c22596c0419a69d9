"""Answers in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clawkit.content import Assistant, Text, Thinking, ToolCall, Usage
from clawkit_testkit import fault
from clawkit_testkit.script import ScriptError, read_script

READ = ToolCall("", "read", {"path": "a.txt"})


def read(tmp_path: Path, text: str) -> list[Any]:
    path = tmp_path / "script.json"
    path.write_text(text, encoding="utf-8")
    return read_script(str(path))


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ("[]", []),
        ('[{"text": "Hi."}]', [Assistant((Text("Hi."),))]),
        ('[{"repeat": 2, "text": "Hi."}]', [Assistant((Text("Hi."),))] * 2),
        ("[{}]", [Assistant()]),
        (
            '[{"calls": [{"name": "read", "arguments": {"path": "a.txt"}}]}]',
            [Assistant((READ,), "tool_calls")],
        ),
        (
            '[{"calls": [{"name": "ls", "arguments": "{", "id": "x", "signature": "s"}]}]',
            [Assistant((ToolCall("x", "ls", "{", "s"),), "tool_calls")],
        ),
        (
            '[{"thinking": "Hm.", "text": "Hi.", "stop": "length", "usage": {"input": 7}}]',
            [Assistant((Thinking("Hm."), Text("Hi.")), "length", usage=Usage(7))],
        ),
        ('[{"signature": "s"}]', [Assistant((Thinking("", "s", hidden=True),))]),
        ('[{"fault": "overflow"}]', [fault.overflow()]),
        (
            '[{"fault": {"status": {"code": 429, "retry_after": 1}}, "repeat": 2}]',
            [fault.status(429, retry_after=1)] * 2,
        ),
        (
            '[{"fault": {"midstream": {"kind": "overflow", "answer": "Hi."}}}]',
            [fault.midstream("overflow", answer="Hi.")],
        ),
        (
            '[{"fault": {"cut": {"after": 2, "answer": {"text": "Hi."}}}}]',
            [fault.cut(2, Assistant((Text("Hi."),)))],
        ),
        (
            '[{"fault": {"truncated": {"keep": 3, "wanted": {"name": "read", "arguments": '
            '{"path": "a.txt"}}}}}]',
            [fault.truncated(READ, 3)],
        ),
    ],
)
def test_a_script_is_read(tmp_path: Path, text: str, answers: list[Any]) -> None:
    assert read(tmp_path, text) == answers


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not a JSON list of answers"),
        ("{}", "is not a JSON list of answers"),
        ('[{"text": 7}]', "answer 1: Expected `str`"),
        ('[{}, {"txet": "Hi."}]', "answer 2: .*txet"),
        ('[{"calls": [{}]}]', "answer 1: .*name"),
        ('[{"repeat": 0}]', "repeat must be 1 to 1,000,000, not 0"),
        ('[{"repeat": 1000001}]', "repeat must be"),
        ('[{"fault": "flood"}]', "unknown fault 'flood'; use one of bad_key, cut"),
        ('[{"fault": {}}]', "one name, not 0"),
        ('[{"fault": {"cut": {}, "drop": {}}}]', "one name, not 2"),
        ('[{"fault": {"cut": {"before": 1}}}]', "fault 'cut': .*before"),
        ('[{"fault": {"status": {}}}]', "fault 'status': .*code"),
        ('[{"fault": {"status": {"code": "x"}}}]', "fault 'status'"),
        ('[{"fault": {"cut": {"answer": {"txet": 1}}}}]', "answer 1: .*txet"),
        ('[{"fault": {"whole": {}}}]', "unknown fault 'whole'"),
    ],
)
def test_problems_of_a_script_are_reported(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ScriptError, match=words):
        read(tmp_path, text)


def test_a_file_that_is_not_text_is_not_a_script(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_bytes(b'["\xff"]')
    with pytest.raises(ScriptError):
        read_script(str(path))
