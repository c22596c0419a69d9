"""What can be answered to a question about a call, and by which key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from clawkit.approvals.display import fold, render, show_command
from clawkit.core.approval import Answer, Extent, Question

BY = "the person at the terminal"
NO = Answer("deny", f"{BY} said no", by=BY)
MAX_REASON = 1_000
GONE = "Not asked any more: answered elsewhere, or too late."
_BAR = "  | "
"""What only rows of a command begin with."""
_EXTENTS: dict[Extent, tuple[str, str]] = {
    "exact": ("e", "exactly this command, in this directory"),
    "subcommand": ("s", "this sub-command"),
    "program": ("p", "the whole program"),
}


class Choice(NamedTuple):
    """One answer, and the words for it."""

    key: str
    words: str
    answer: Answer | None
    """None when the reason is to be asked for."""
    done: str

    @property
    def lasts(self) -> bool:
        """Whether it decides about later questions, too."""
        return self.answer is not None and self.answer.extent is not None


def choices_for(request: Question) -> Iterator[Choice]:
    """All that can be answered to a question, in the order in which it is shown."""
    yield Choice("y", "allow once", Answer("allow", by=BY), "Allowed once.")
    for number, each in enumerate(request.lasting):
        key, words = _EXTENTS[each.extent]
        # The first one is the narrowest.
        yield Choice(
            key if number else "a",
            f"always allow {words}",
            Answer("allow", extent=each.extent, by=BY),
            f"Allowed from now on: {words}.",
        )
    yield Choice("n", "deny", NO, "Denied.")
    yield Choice("r", "deny, and tell the model why", None, "")


def by_key(among: Sequence[Choice], key: str) -> Choice | None:
    """The choice that a key makes."""
    return next((each for each in among if each.key == key), None)


def deny_at(among: Sequence[Choice]) -> int:
    """Where the no is."""
    return next(number for number, each in enumerate(among) if each.key == "n")


def show_question(
    request: Question, width: int, room: int | None = None, *, is_own: bool = False
) -> list[str]:
    """All that a person needs to decide, as harmless rows; the first one is the title.

    With less room than that takes, the command comes last, where it can still be seen. Who asks
    is not said when it `is_own`, the agent that the person talks with.
    """
    if is_own:
        request = replace(request, agent="", session="")
    rows = render(request, width=width).split("\n")
    if request.params:
        import json

        shown = json.dumps(dict(request.params), ensure_ascii=False, default=str)
        rows += fold(f"parameters: {show_command(shown, keep='')}", width, "  ", " " * 6)
    if room is None or len(rows) <= room:
        return rows
    title, *others = rows
    return [title, *sorted(others, key=lambda row: row.startswith(_BAR))]
