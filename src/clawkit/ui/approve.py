"""`/approve`: questions that wait for an answer, of this clawkit and of others."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from clawkit.config.paths import waiting_file
from clawkit.errors import ToolInputError
from clawkit.text import one_line
from clawkit.ui.calls import Row
from clawkit.ui.setting import check_person
from clawkit.ui.talk import Face, Talk

if TYPE_CHECKING:
    from clawkit.approvals.waiting import Stored, Waiting

_CHOICES = {
    "allow": "allow-once",
    "yes": "allow-once",
    "always": "allow-always",
    "deny": "deny",
    "no": "deny",
}


async def approve(_talk: Talk, face: Face, rest: str) -> None:
    """Show the questions that wait, or answer one."""
    from clawkit.approvals.waiting import Waiting

    waiting = Waiting(waiting_file(os.environ))
    try:
        if rest:
            check_person()
            _answer(waiting, face, rest)
        else:
            _show(_pending(waiting), face)
    finally:
        waiting.close()


def _pending(waiting: Waiting) -> list[Stored]:
    # Nobody has asked anything yet when there is no store.
    return waiting.pending(round(time.time() * 1000)) if os.path.lexists(waiting.path) else []


def _show(found: list[Stored], face: Face) -> None:
    if not found:
        face.say("Nothing waits for an answer.")
        return
    face.rows([Row(f"{each.slug}  {one_line(each.question.title, 200)}") for each in found])
    face.say("/approve ID allow, always or deny answers one.", "dim")


def _answer(waiting: Waiting, face: Face, rest: str) -> None:
    from clawkit.approvals.broker import Broker

    wanted, choice, reason = _read(waiting, rest)
    asked = waiting.get(wanted)
    lasting = asked.question.lasting
    done = Broker(waiting).resolve(
        asked.id,
        _CHOICES[choice],
        extent=lasting[0].extent if lasting and choice == "always" else None,
        reason=reason,
        actor="the person at another terminal",
        authorized=True,
    )
    face.say(f"{done.slug}: {_CHOICES[choice]}", "good")
    if asked.orphaned and _CHOICES[choice] != "deny":
        face.say("But whoever asked is gone: nothing runs by this.", "warning")


def _read(waiting: Waiting, rest: str) -> tuple[str, str, str]:
    """Which question, what to answer, and why; the id can be left out when only one waits."""
    first, _, second = rest.partition(" ")
    if first in _CHOICES:
        found = _pending(waiting)
        if len(found) != 1:
            raise ToolInputError(f"{len(found)} questions wait, so say which: /approve ID {first}")
        return found[0].id, first, second.strip()
    choice, _, reason = second.strip().partition(" ")
    if choice not in _CHOICES:
        raise ToolInputError("say what to answer: /approve ID allow, always or deny")
    return first, choice, reason.strip()
