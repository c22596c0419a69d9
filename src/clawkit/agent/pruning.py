"""A conversation as the model is shown it: the same, but for old tool results that are too much.

The conversation itself keeps every result. What was once shown shortened stays so, word for word:
a provider's cache holds only as long as nothing before the end changes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import msgspec

from clawkit.config.sections.agents import ContextPruning
from clawkit.content import Assistant, Message, Text, ToolResult, User
from clawkit.core.catalog import canonical
from clawkit.text import cut, parse_time, result_cap

CHARS_PER_TOKEN = 4
_ROOM = 4
"""How many full results fit into what all of them together may take, at the least."""
_SHORT = 2_000
"""Characters that are left of a result when all together are too much."""
_AIM = 0.7
"""How far it is shortened then, so that it does not have to be again with the next result."""
_RECENT = 3
"""Answers whose results are never touched."""
_LONG, _HEAD, _TAIL = 4_000, 1_500, 1_500
_SOFT_USE, _HARD_USE, _HARD_CHARS = 0.3, 0.5, 50_000


@dataclass
class PrunedHistory:
    """Remembers what was shown how."""

    window: int
    """Tokens that the model takes in."""
    pruning: ContextPruning = field(default_factory=ContextPruning)
    clock: Callable[[], float] = time.monotonic
    _short: dict[str, tuple[ToolResult, ToolResult]] = field(default_factory=dict)
    """Call id to the result and what is shown of it."""
    _asked: float | None = None
    """When the model was last shown something."""
    _last: tuple[Message, ...] = ()
    _shown: list[Message] = field(default_factory=list)
    _total: int = 0
    """The conversation of the last request, what was shown of it, and characters of its results."""

    def show(self, history: Sequence[Message]) -> tuple[Message, ...]:
        """What the next request is made of."""
        now = tuple(history)
        # Mostly it only grew: the same objects are equal at once.
        if now[: len(self._last)] != self._last:
            self._shown, self._total = [], 0
        for message in now[len(self._shown) :]:
            self._shown.append(self._now(message) if isinstance(message, ToolResult) else message)
            self._total += _chars(self._shown[-1])
        self._last = now
        if self.pruning.mode == "cache-ttl" and self._is_expired():
            self._prune(now, self._shown)
            self._total = sum(map(_chars, self._shown))
        self._bound(now, self._shown)
        self._asked = self.clock()
        return tuple(self._shown)

    def _bound(self, history: Sequence[Message], shown: list[Message]) -> None:
        """All results together take half of the window at most; the oldest are cut first."""
        most = max(_ROOM * result_cap(self.window), self.window * CHARS_PER_TOKEN // 2)
        if self._total <= most:
            return
        for number, full in _old(history):
            if self._total <= most * _AIM:
                return
            before = _chars(now := self._now(full))
            if before > _SHORT:
                shown[number] = self._put(full, _with_text(now, cut(_text(now), _SHORT)))
                self._total -= before - _chars(shown[number])

    def _is_expired(self) -> bool:
        return self._asked is None or self.clock() - self._asked > parse_time(self.pruning.ttl)

    def _prune(self, history: Sequence[Message], shown: list[Message]) -> None:
        """Once nothing is in the provider's cache any more, less costs nothing extra."""
        room = self.window * CHARS_PER_TOKEN
        if _all_chars(shown) < room * _SOFT_USE:
            return
        wanted = [(number, full) for number, full in _old(history) if self._may_prune(full)]
        for number, full in wanted:
            if _chars(now := self._now(full)) > _LONG:
                shown[number] = self._put(full, _ends(now))
        prunable = sum(_chars(self._now(full)) for _, full in wanted)
        if not self.pruning.hard_clear.enabled or prunable < _HARD_CHARS:
            return
        total = _all_chars(shown)
        for number, full in wanted:
            if total < room * _HARD_USE:
                return
            before = _chars(self._now(full))
            cleared = self._put(full, _with_text(full, self.pruning.hard_clear.placeholder))
            shown[number] = cleared
            total -= before - _chars(cleared)

    def _may_prune(self, message: ToolResult) -> bool:
        name = canonical(message.tool)
        tools = self.pruning.tools
        denied = any(fnmatchcase(name, canonical(entry)) for entry in tools.deny)
        listed = tools.allow is None or any(
            fnmatchcase(name, canonical(entry)) for entry in tools.allow
        )
        return listed and not denied

    def _now(self, full: ToolResult) -> ToolResult:
        """The result as it is shown by now."""
        kept, short = self._short.get(full.call_id, (None, full))
        return short if kept is full else full

    def _put(self, full: ToolResult, short: ToolResult) -> ToolResult:
        self._short[full.call_id] = (full, short)
        return short


def _old(history: Sequence[Message]) -> Iterator[tuple[int, ToolResult]]:
    """The results that may be shortened, and their places, oldest first."""
    answers = [n for n, message in enumerate(history) if isinstance(message, Assistant)]
    recent = answers[-_RECENT] if len(answers) >= _RECENT else 0
    first = next((n for n, message in enumerate(history) if isinstance(message, User)), 0)
    for number in range(first, recent):
        message = history[number]
        if isinstance(message, ToolResult):
            yield number, message


def _chars(message: Message) -> int:
    """Of a result; 0 for all else."""
    if not isinstance(message, ToolResult):
        return 0
    return sum(len(block.text) for block in message.content if isinstance(block, Text))


def _all_chars(messages: Sequence[Message]) -> int:
    total = 0
    for message in messages:
        parts = getattr(message, "content", ())
        total += sum(len(getattr(part, "text", "")) for part in parts) or len(
            getattr(message, "text", "")
        )
    return total


def _ends(message: ToolResult) -> ToolResult:
    text = _text(message)
    left_out = len(text) - _HEAD - _TAIL
    middle = f"\n[… {left_out:,} characters of this old result left out …]\n"
    return _with_text(message, text[:_HEAD] + middle + text[-_TAIL:])


def _text(message: ToolResult) -> str:
    return "\n".join(block.text for block in message.content if isinstance(block, Text))


def _with_text(message: ToolResult, text: str) -> ToolResult:
    """The result with this for its text; old images go, too."""
    return msgspec.structs.replace(message, content=(Text(text),), details={})
