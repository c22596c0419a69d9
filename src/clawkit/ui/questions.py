"""Asking in the place where the person types, one question after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from clawkit.core.approval import MAX_WAIT_S, Answer, Question
from clawkit.text import human_time, printable
from clawkit.ui.choices import (
    BY,
    GONE,
    MAX_REASON,
    NO,
    Choice,
    by_key,
    choices_for,
    deny_at,
    show_question,
)
from clawkit.ui.paint import Style

GUARD_S = 0.3
"""What is typed so soon after a question came up was not meant for it."""
SETTLE_S = 0.5
"""A letter counts when nothing follows it so soon: who goes on types a message."""
AROUND = 6
"""Rows besides the choices that stand below a question."""
PASTE_S = 0.04
"""Nobody presses two keys so fast."""


@dataclass
class Asked:
    """The question that is being asked."""

    choices: list[Choice]
    until: str
    """How long there is time, in words."""
    answer: asyncio.Future[Answer]
    at: int
    """Which choice is marked."""
    is_ready: bool = False
    """Whether keys count by now."""
    wants_reason: bool = False
    done: str = ""
    last: str = ""
    """The key before, and when it came."""
    last_s: float = 0.0
    typed: str = ""
    """The letters before, which may turn out to be the beginning of something else."""
    pending: Choice | None = None
    """What they stand for, if they do."""
    settling: asyncio.TimerHandle | None = field(default=None, repr=False)

    @property
    def confirms(self) -> Choice | None:
        """What waits for Enter: an answer that lasts."""
        return self.pending if self.pending and self.pending.lasts else None


class Questions:
    """An approver for a terminal in which other things happen, too."""

    def __init__(
        self,
        show: Callable[[list[str], Style], None],
        columns: Callable[[], int],
        changed: Callable[[], None],
        spill: Callable[[str], None],
        rows: Callable[[], int] = lambda: 24,
    ) -> None:
        """`changed` is called whenever there is another question, or none any more; `spill` is
        given what was typed and is no answer."""
        self.current: Asked | None = None
        self._show = show
        self._columns = columns
        self._changed = changed
        self._spill = spill
        self._rows = rows
        self.who: Callable[[], tuple[str, str]] = lambda: ("main", "main")
        """Agent and session that the person talks with, and need not be told."""
        self._one_at_a_time = asyncio.Lock()

    async def ask(self, request: Question) -> Answer:
        """The answer. Whatever is not a clear yes is a no. Cancelled when nobody needs it."""
        async with self._one_at_a_time:
            loop = asyncio.get_running_loop()
            among = list(choices_for(request))
            is_own = (request.agent, request.session) == self.who()
            room = self._rows() - len(among) - AROUND
            shown = show_question(request, self._columns(), room, is_own=is_own)
            self._show(shown, "")
            until = human_time(min(request.timeout_s, MAX_WAIT_S))
            asked = Asked(among, until, loop.create_future(), deny_at(among))
            self.current = asked
            self._changed()
            loop.call_later(GUARD_S, self._arm, asked)
            try:
                answer = await asked.answer
            except asyncio.CancelledError:
                self._show([f"  {GONE}"], "warning")
                raise
            finally:
                self.current = None
                self._changed()
            self._show([f"  {asked.done}"], "good" if answer.verdict == "allow" else "warning")
            return answer

    def _arm(self, asked: Asked) -> None:
        asked.is_ready = True
        if self.current is asked:
            self._changed()

    def press(self, key: str) -> None:
        """A key: a letter, `up`, `down`, `enter`, or `no`."""
        asked = self.current
        if asked is None or not asked.is_ready or asked.answer.done():
            return
        now = asyncio.get_running_loop().time()
        gap, before = now - asked.last_s, asked.last
        asked.last, asked.last_s = key, now
        pending, asked.pending = asked.pending, None
        if asked.settling is not None:
            asked.settling.cancel()
            asked.settling = None
        if key in ("up", "down"):
            asked.typed = ""
            asked.at = (asked.at + (1 if key == "down" else -1)) % len(asked.choices)
        elif key == "enter":
            is_pasted = gap < PASTE_S and before not in ("up", "down")
            # Enter after a letter is habit.
            if not is_pasted or (pending and not pending.lasts):
                self._choose(asked, pending or asked.choices[asked.at])
        elif key == "no":
            self._choose(asked, asked.choices[deny_at(asked.choices)])
        elif key.isprintable():
            self._take_letter(asked, key, gap)
        self._changed()

    def _take_letter(self, asked: Asked, key: str, gap: float) -> None:
        chosen = by_key(asked.choices, key.lower())
        goes_on = gap < SETTLE_S and asked.typed.strip(key) != ""
        if chosen is None or goes_on:
            typed, asked.typed = asked.typed + key, ""
            asked.at = deny_at(asked.choices)
            self._spill(typed)
            return
        asked.typed = key
        asked.at = asked.choices.index(chosen)
        asked.pending = chosen
        if not chosen.lasts:
            loop = asyncio.get_running_loop()
            asked.settling = loop.call_later(SETTLE_S, self._settle, asked, chosen)

    def _settle(self, asked: Asked, chosen: Choice) -> None:
        asked.settling = asked.pending = None
        self._choose(asked, chosen)
        self._changed()

    def _choose(self, asked: Asked, chosen: Choice) -> None:
        if chosen.answer is None:
            asked.wants_reason = True
        elif not asked.answer.done():
            asked.done = chosen.done
            asked.answer.set_result(chosen.answer)

    def give_reason(self, text: str) -> None:
        """Why not; empty for no reason."""
        asked = self.current
        if asked is None or not asked.wants_reason or asked.answer.done():
            return
        reason = printable(text.strip(), "")[:MAX_REASON]
        asked.done = "Denied."
        asked.answer.set_result(Answer("deny", reason or NO.reason, by=BY))
