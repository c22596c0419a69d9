"""Answers in a JSON file, for the scripted server as a program.

    [
      {"text": "Let me look.", "calls": [{"name": "read", "arguments": {"path": "a.txt"}}]},
      {"fault": {"status": {"code": 429, "retry_after": 1}}},
      {"repeat": 3, "thinking": "Hm.", "text": "Done."}
    ]

A fault is named by its function in `clawkit_testkit.fault`, with the arguments of that; without
any, the name alone will do.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import msgspec

from clawkit.content import Assistant, Part, Stop, Text, Thinking, ToolCall, Usage
from clawkit.testing.answers import whole
from clawkit_testkit import fault

_MAX_REPEAT = 1_000_000


class ScriptError(Exception):
    """The file is not a valid script. The message names the answer and the error."""


class _Call(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any] | str = {}
    id: str = ""
    signature: str = ""


class _Answer(msgspec.Struct, forbid_unknown_fields=True):
    text: str = ""
    thinking: str = ""
    signature: str = ""
    calls: list[_Call] = []
    stop: Stop = "stop"
    usage: Usage = Usage()
    fault: dict[str, dict[str, Any]] | str | None = None
    repeat: int = 1


_FAULTS = {
    name: made
    for name, made in vars(fault).items()
    if inspect.isfunction(made) and made.__module__ == fault.__name__
}


def read_script(path: str) -> list[Any]:
    """Read the answers from a file. Raises `ScriptError`, or OSError if it cannot be read."""
    data = Path(path).read_bytes()
    try:
        raw = msgspec.json.decode(data, type=list[msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ScriptError(f"{path} is not a JSON list of answers: {error}") from None
    answers: list[Any] = []
    for number, one in enumerate(raw, 1):
        try:
            answer = msgspec.json.decode(one, type=_Answer)
            if not 1 <= answer.repeat <= _MAX_REPEAT:
                raise ScriptError(f"repeat must be 1 to {_MAX_REPEAT:,}, not {answer.repeat}")
            answers += [_read(answer)] * answer.repeat
        except (msgspec.MsgspecError, ScriptError) as error:
            raise ScriptError(f"{path}, answer {number}: {error}") from None
    return answers


def _read(answer: _Answer) -> Any:
    return _say(answer) if answer.fault is None else _fault(answer.fault)


def _say(answer: _Answer) -> Assistant:
    parts: list[Part] = []
    if answer.thinking or answer.signature:
        parts.append(Thinking(answer.thinking, answer.signature, hidden=not answer.thinking))
    if answer.text:
        parts.append(Text(answer.text))
    parts += map(_call, answer.calls)
    return whole(Assistant(tuple(parts), answer.stop, usage=answer.usage))


def _call(described: _Call) -> ToolCall:
    return ToolCall(described.id, described.name, described.arguments, described.signature)


def _fault(described: dict[str, dict[str, Any]] | str) -> Any:
    if isinstance(described, str):
        described = {described: {}}
    if len(described) != 1:
        raise ScriptError(f"a fault must have one name, not {len(described)}")
    [(name, given)] = described.items()
    made = _FAULTS.get(name)
    if made is None:
        raise ScriptError(f"unknown fault {name!r}; use one of {', '.join(sorted(_FAULTS))}")
    arguments = dict(given)
    if isinstance(arguments.get("answer"), dict):
        arguments["answer"] = _say(msgspec.convert(arguments["answer"], _Answer))
    if isinstance(arguments.get("wanted"), dict):
        arguments["wanted"] = _call(msgspec.convert(arguments["wanted"], _Call))
    try:
        return made(**arguments)
    except (TypeError, ValueError, AttributeError) as error:
        raise ScriptError(f"fault {name!r}: {error}") from None
