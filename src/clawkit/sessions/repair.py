"""Repairs conversations so that every model API accepts them."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

import msgspec

from clawkit.content import Assistant, Message, Summary, Text, ToolCall, ToolResult, User

INTERRUPTED = "interrupted: clawkit exited before it finished; it may have taken partial effect"
Numbered = tuple[int, Message]


def repair(messages: Sequence[Message]) -> list[Numbered]:
    """The messages from the last summary on, in a form that every API accepts, each with the index
    of the message it is or was made from.

    Every call has exactly one result, in call order, right after the message with the calls; a
    missing result is replaced by one that says `interrupted`, and results without a call are
    dropped. Call ids are unique. Answers with neither text nor calls and empty user messages are
    dropped. Valid messages are returned as the same objects.
    """
    start = max((at for at, each in enumerate(messages) if isinstance(each, Summary)), default=0)
    used: dict[str, int] = {}
    mended: list[Numbered] = []
    answer: tuple[int, Assistant] | None = None
    after: list[Numbered] = []
    for at, each in list(enumerate(messages))[start:]:
        if _is_empty(each):
            continue
        if isinstance(each, Assistant):
            mended += _join(answer, after, used)
            answer, after = (at, each), []
        else:
            after.append((at, each))
    return mended + _join(answer, after, used)


def _join(
    answer: tuple[int, Assistant] | None, after: Sequence[Numbered], used: dict[str, int]
) -> list[Numbered]:
    """An answer, the results of its calls, and the other messages before the next answer."""
    others = [pair for pair in after if not isinstance(pair[1], ToolResult)]
    if answer is None:
        return others
    index, asking = answer
    content = tuple(
        _with_own_id(part, used) if isinstance(part, ToolCall) else part for part in asking.content
    )
    same = all(new is old for new, old in zip(content, asking.content, strict=True))
    renamed = asking if same else msgspec.structs.replace(asking, content=content)
    return [(index, renamed), *_results(index, asking, renamed, after), *others]


def _is_empty(message: Message) -> bool:
    if isinstance(message, Assistant):
        return not (message.calls or message.text.strip())
    if isinstance(message, User):
        return all(isinstance(part, Text) and not part.text.strip() for part in message.content)
    return False


def _with_own_id(call: ToolCall, used: dict[str, int]) -> ToolCall:
    """The call with a unique id. `used` counts how often each id occurred so far."""
    first = id_ = call.id or "call"
    while id_ in used:
        used[first] += 1
        id_ = f"{first}-{used[first]}"
    used[id_] = 1
    return call if id_ == call.id else msgspec.structs.replace(call, id=id_)


def _results(
    index: int, asking: Assistant, renamed: Assistant, after: Sequence[Numbered]
) -> list[Numbered]:
    """The results of the calls of an answer, in call order."""
    found: defaultdict[str, deque[tuple[int, ToolResult]]] = defaultdict(deque)
    for at, each in after:
        if isinstance(each, ToolResult):
            found[each.call_id].append((at, each))
    answered: list[Numbered] = []
    for before, call in zip(asking.calls, renamed.calls, strict=True):
        if found[before.id]:
            at, result = found[before.id].popleft()
            if (result.call_id, result.tool) != (call.id, call.name):
                result = msgspec.structs.replace(result, call_id=call.id, tool=call.name)
            answered.append((at, result))
        else:
            said = (Text(INTERRUPTED),)
            lost = ToolResult(call.id, call.name, said, is_error=True, at_ms=asking.at_ms)
            answered.append((index, lost))
    return answered
