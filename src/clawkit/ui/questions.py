"""Approval questions in the chat: the choices, and an approver that reads keys."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from msgspec.structs import replace

from clawkit.approvals.prompt import BAR, render
from clawkit.core.approval import MAX_WAIT_S, Answer, Question, StoredExtent
from clawkit.core.context import Scope
from clawkit.terminal_text import truncate
from clawkit.text import human_time, printable
from clawkit.ui.paint import Style

BY = "the person at the terminal"
NO = Answer("deny", "at the terminal", by=BY)
MAX_REASON = 1_000
GONE = "No longer pending: answered elsewhere, timed out, or interrupted."
_KEYS: dict[StoredExtent, str] = {
    "exact": "e",
    "subcommand": "c",
    "preset": "b",
    "program": "p",
    "access": "x",
}
_WORDS: dict[StoredExtent, str] = {
    "exact": "exactly this command, in this directory",
    "subcommand": "this sub-command",
    "program": "the whole program",
}
GUARD_S = 0.3
"""Keys within this time after a question appears were not meant for it."""
SETTLE_S = 0.5
"""A letter counts once nothing follows it within this time; otherwise it starts a message."""
PASTE_S = 0.04
"""Two keys within this time were pasted, not typed."""


class PromptChoice(NamedTuple):
    key: str
    words: str
    answer: Answer | None
    """None to ask for a reason first."""
    done: str

    @property
    def lasts(self) -> bool:
        """Whether it also answers later questions."""
        return self.answer is not None and self.answer.extent is not None


def choices_for(request: Question) -> Iterator[PromptChoice]:
    yield PromptChoice("y", "allow once", Answer("allow", by=BY), "Allowed once.")
    if len(request.stored) < len(request.lasting):
        words = next(each.words for each in request.lasting if each.extent == "session")
        answer = Answer("allow", extent="session", by=BY)
        yield PromptChoice("s", f"allow {words}", answer, f"Allowed: {words}.")
    for number, each in enumerate(request.stored):
        extent = cast("StoredExtent", each.extent)
        words = _WORDS.get(extent, each.words)
        yield PromptChoice(
            # The first is the narrowest.
            _KEYS[extent] if number else "a",
            f"always allow {words}",
            Answer("allow", extent=extent, by=BY),
            f"Allowed from now on: {words}.",
        )
    yield PromptChoice("n", "deny", NO, "Denied.")
    yield PromptChoice("r", "deny, and tell the model why", None, "")


def by_key(among: Sequence[PromptChoice], key: str) -> PromptChoice | None:
    return next((each for each in among if each.key == key), None)


def deny_at(among: Sequence[PromptChoice]) -> int:
    return next(number for number, each in enumerate(among) if each.key == "n")


def show_question(request: Question, width: int, *, is_own: bool = False) -> list[str]:
    """The question as rows with unprintable characters escaped; the first row is the title. With
    `is_own`, the agent is the one the person is talking to, and is not named."""
    if is_own:
        request = replace(request, agent="", session="")
    return render(request, width=width).split("\n")


def menu_rows(
    choices: Sequence[PromptChoice],
    at: int,
    question: Sequence[str],
    width: int,
    height: int,
    *,
    is_apart: bool = False,
) -> list[tuple[str, bool]]:
    """The choices, and whether each is the one at `at`, in at most `height` rows. With `is_apart`,
    other text follows the question, so it comes first again. If the question does not fit above
    them, its subject comes first; if the choices do not fit either, a row with all keys comes
    last."""
    rows = [(f"  {each.key}  {each.words}", number == at) for number, each in enumerate(choices)]
    if len(question) + len(rows) <= height:
        return [*((row, False) for row in question if is_apart), *rows]
    command = [row for row in question if row.startswith(BAR)] or question
    words = f"{command[0].rstrip()} …" if len(command) > 1 else command[0].rstrip()
    head, room = (truncate(words, width - 1), False), max(2, height - 1)
    if len(rows) <= room:
        return [head, *rows]
    first = min(max(0, at), len(rows) - room + 1)
    keys = f"  or {' '.join(each.key for each in choices)}"
    return [head, *rows[first : first + room - 1], (keys, False)]


@dataclass
class AskedQuestion:
    choices: list[PromptChoice]
    shown: list[str]
    """The question, row by row."""
    until: str
    answer: asyncio.Future[Answer]
    at: int
    is_ready: bool = False
    is_apart: bool = False
    """Whether other text was printed after the question: it could imitate another one."""
    wants_reason: bool = False
    done: str = ""
    last: str = ""
    last_s: float = 0.0
    typed: str = ""
    """Letters typed so far, which may turn out to start a message."""
    pending: PromptChoice | None = None
    settling: asyncio.TimerHandle | None = field(default=None, repr=False)

    @property
    def confirms(self) -> PromptChoice | None:
        """The lasting answer that needs Enter to confirm it."""
        return self.pending if self.pending and self.pending.lasts else None


class Questions:
    """An approver for the chat, where the person may be typing when a question appears."""

    def __init__(
        self,
        show: Callable[[list[str], Style], None],
        columns: Callable[[], int],
        changed: Callable[[], None],
        spill: Callable[[str], None],
    ) -> None:
        """`changed` is called for a new question; `spill` gets text that is not an answer."""
        self.current: AskedQuestion | None = None
        self._show = show
        self._columns = columns
        self._changed = changed
        self._spill = spill
        self.scope: Callable[[], Scope] = Scope
        """The scope of the agent the person is talking to, which questions do not name."""
        self.waits: Callable[[str, bool], None] = lambda _call_id, _is_asked: None
        """Called with the id of a call when a question about it starts (True) and ends (False)."""
        self._one_at_a_time = asyncio.Lock()

    async def ask(self, request: Question) -> Answer:
        """Ask, and return the answer: anything but a clear yes denies. May be cancelled."""
        self.waits(request.call_id, True)
        try:
            async with self._one_at_a_time:
                loop = asyncio.get_running_loop()
                among = list(choices_for(request))
                scope = self.scope()
                is_own = (request.agent, request.session) == (scope.agent, scope.session)
                shown = show_question(request, self._columns(), is_own=is_own)
                self._show(shown, "")
                until = human_time(min(request.timeout_s, MAX_WAIT_S))
                asked = AskedQuestion(among, shown, until, loop.create_future(), deny_at(among))
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
        finally:
            self.waits(request.call_id, False)

    def _arm(self, question: AskedQuestion) -> None:
        question.is_ready = True
        if self.current is question:
            self._changed()

    def press(self, key: str) -> None:
        """Handle a key: a letter, `up`, `down`, `enter`, or `no`."""
        asked = self.current
        if asked is None or asked.answer.done():
            return
        now = asyncio.get_running_loop().time()
        if not asked.is_ready:
            # Too early for an answer, but it may be the start of a message.
            if len(key) == 1 and key.isprintable():
                asked.typed += key
                asked.last_s = now
                if asked.typed.strip(key) or by_key(asked.choices, key.lower()) is None:
                    typed, asked.typed = asked.typed, ""
                    self._spill(typed)
            return
        gap, before = now - asked.last_s, asked.last
        asked.last, asked.last_s = key, now
        pending, asked.pending = asked.pending, None
        if pending is None and gap >= SETTLE_S:
            asked.typed = ""
        if asked.settling is not None:
            asked.settling.cancel()
            asked.settling = None
        if key in ("up", "down"):
            asked.typed = ""
            asked.at = (asked.at + (1 if key == "down" else -1)) % len(asked.choices)
        elif key == "enter":
            is_pasted = gap < PASTE_S and before not in ("up", "down")
            # Many people press Enter after a letter.
            if not is_pasted or (pending and not pending.lasts):
                self._choose(asked, pending or asked.choices[asked.at])
        elif key == "no":
            self._choose(asked, asked.choices[deny_at(asked.choices)])
        elif key.isprintable():
            self._take_letter(asked, key, gap)
        self._changed()

    def _take_letter(self, question: AskedQuestion, key: str, gap: float) -> None:
        chosen = by_key(question.choices, key.lower())
        goes_on = gap < SETTLE_S and question.typed.strip(key) != ""
        if chosen is None or goes_on:
            typed, question.typed = question.typed + key, ""
            question.at = deny_at(question.choices)
            self._spill(typed)
            return
        question.typed = key
        question.at = question.choices.index(chosen)
        question.pending = chosen
        if not chosen.lasts:
            loop = asyncio.get_running_loop()
            question.settling = loop.call_later(SETTLE_S, self._settle, question, chosen)

    def _settle(self, question: AskedQuestion, chosen: PromptChoice) -> None:
        question.settling = question.pending = None
        self._choose(question, chosen)
        self._changed()

    def _choose(self, question: AskedQuestion, chosen: PromptChoice) -> None:
        if chosen.answer is None:
            question.wants_reason = True
        elif not question.answer.done():
            question.done = chosen.done
            question.answer.set_result(chosen.answer)

    def give_reason(self, text: str) -> None:
        """Deny with a reason, which may be empty."""
        asked = self.current
        if asked is None or not asked.wants_reason or asked.answer.done():
            return
        reason = printable(text.strip(), "")[:MAX_REASON]
        asked.done = "Denied."
        asked.answer.set_result(Answer("deny", reason or NO.reason, by=BY))
