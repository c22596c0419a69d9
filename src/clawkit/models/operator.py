"""`clawkit/operator`: a model without intelligence, for trying tools, policy and approvals offline.

Every line of a message is a command (`!ls`), a call (`/tool read {"path": "a.txt"}`) or one of a
few verbs. The answer repeats what the tools return.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import AsyncIterator, Sequence
from itertools import takewhile
from typing import Any

from clawkit.config.modelref import OPERATOR
from clawkit.content import Assistant, Text, ToolCall, ToolResult, User
from clawkit.core.result import error_message
from clawkit.models.protocols import CallDelta, CallStarted, Delta, Facts, Request, TextDelta
from clawkit.text import cut, cut_start

_MAX_SHOWN = 4_000
HELP = """I am not a language model: I am the built-in operator, for trying clawkit offline.
  !COMMAND               run a command, such as `!git status`
  /tool NAME {json}      call a tool with parameters
  read FILE              show a file
  list [DIR]             list a directory
  find PATTERN [DIR]     find files by name
  search PATTERN [PATH]  search in files
  write FILE TEXT        write a file
  status                 show the state of this session
To use a real model, set a key such as ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY, \
start Ollama, or type `clawkit onboard` in a shell."""


class Operator:
    ref = OPERATOR
    api = "clawkit"
    facts = Facts(name="Operator (offline)", context_window=200_000)

    async def stream(self, request: Request) -> AsyncIterator[Delta | Assistant]:
        last = _last(request.messages)
        parts = (
            _repeat(request.messages) if isinstance(last, ToolResult) else _answer(last, request)
        )
        for number, part in enumerate(parts):
            if isinstance(part, Text):
                yield TextDelta(part.text)
            else:
                yield CallStarted(number, part.id, part.name)
                yield CallDelta(number, json.dumps(part.arguments))
        has_calls = any(isinstance(part, ToolCall) for part in parts)
        stop: Any = "tool_calls" if has_calls else "stop"
        yield Assistant(
            tuple(parts), stop, str(OPERATOR), self.api, at_ms=time.time_ns() // 1_000_000
        )


def _last(messages: Sequence[Any]) -> Any:
    """The last message; if messages of other sessions follow one from the person or a job, that
    one."""
    for message in reversed(messages):
        if not isinstance(message, User):
            break
        if message.source is None or (message.source.kind == "cron" and message.source.runs):
            return message
    return messages[-1] if messages else User((Text("help"),))


def _repeat(messages: Sequence[Any]) -> list[Text | ToolCall]:
    """The results of tools since the last answer."""
    results = [*takewhile(lambda each: isinstance(each, ToolResult), reversed(messages))]
    shown = []
    for result in reversed(results):
        texts = [b.text if isinstance(b, Text) else "[image]" for b in result.content]
        head = f"{result.tool} failed: " if result.is_error else ""
        error = error_message(result.details)
        if head and error and texts and texts[0].startswith("{"):
            # Only the message, without the JSON that is meant for models.
            texts[0] = error.removeprefix(f"{result.tool}: ")
        # The end of a command's output matters most.
        shorten = cut_start if result.tool == "exec" else cut
        shown.append(head + (shorten("\n".join(texts).rstrip(), _MAX_SHOWN) or "(no output)"))
    return [Text("\n\n".join(shown))]


def _answer(message: Any, request: Request) -> list[Text | ToolCall]:
    text = "\n".join(b.text for b in getattr(message, "content", ()) if isinstance(b, Text))
    source = getattr(message, "source", None)
    if source is not None and source.kind == "cron" and source.runs:
        text = message.content[0].text  # a due job: its owner's text, then ours
    elif source is not None:
        # Not typed by a person, so it must not be executed.
        return [Text("REPLY_SKIP" if source.kind == "session" else text)]
    parts: list[Text | ToolCall] = []
    for number, line in enumerate(filter(None, map(str.strip, text.splitlines()))):
        try:
            name, arguments = read_line(line)
        except ValueError as error:
            return [Text(str(error))]
        # Tools that are not offered are called anyway: policy then explains why they are missing.
        call_id = f"op_{len(request.messages)}_{number}"
        parts.append(ToolCall(call_id, name, arguments))
    return parts or [Text(HELP)]


def read_line(line: str) -> tuple[str, dict[str, Any]]:
    """Parse a line as a tool call. Raises ValueError with the answer to give instead."""
    if line.startswith("!"):
        command = line[1:].strip()
        if not command:
            raise ValueError("Type a command after `!`, such as `!ls -la`.")
        return "exec", {"command": command}
    if line.startswith("/tool"):
        return _read_tool(line.removeprefix("/tool").strip())
    verb, _, rest = line.partition(" ")
    verb, rest = verb.lower(), rest.strip()
    if verb == "clawkit":
        raise ValueError(f"Type `{line}` in a shell; Ctrl-D ends this chat.")
    if verb == "run":
        return read_line(f"!{rest}")
    if verb == "write":
        path, _, text = rest.partition(" ")
        if not path or not text:
            raise ValueError("Type `write FILE TEXT`.")
        return "write", {"path": path, "content": f"{text}\n"}
    if verb not in _VERBS:
        raise ValueError(HELP)
    tool, usage, least, names = _VERBS[verb]
    try:
        words = shlex.split(rest)
    except ValueError:
        words = rest.split()
    if len(words) < least:
        raise ValueError(f"Type `{usage}`.")
    return tool, dict(zip(names, words, strict=False))


def _read_tool(rest: str) -> tuple[str, dict[str, Any]]:
    name, _, text = rest.partition(" ")
    if not name:
        raise ValueError('Type `/tool NAME {json}`, such as `/tool read {"path": "README.md"}`.')
    try:
        arguments = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise ValueError(f"The parameters of {name} are not JSON: {error}.") from None
    if not isinstance(arguments, dict):
        raise ValueError(f'The parameters of {name} must be an object, such as {{"path": "."}}.')
    return name, arguments


_READ = ("read", "read FILE", 1, ("path",))
_LIST = ("ls", "list [DIR]", 0, ("path",))
_SEARCH = ("grep", "search PATTERN [PATH]", 1, ("pattern", "path"))
_VERBS: dict[str, tuple[str, str, int, tuple[str, ...]]] = {
    "read": _READ,
    "show": _READ,
    "cat": _READ,
    "list": _LIST,
    "ls": _LIST,
    "find": ("find", "find PATTERN [DIR]", 1, ("pattern", "path")),
    "search": _SEARCH,
    "grep": _SEARCH,
    "status": ("session_status", "status", 0, ()),
}
"""Verb -> tool, usage, required number of words, and the parameters for the words."""
