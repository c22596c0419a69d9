"""Commands about whole conversations."""

from __future__ import annotations

import time
from collections.abc import Iterable

from clawkit.agent.compact import cut_at, estimate
from clawkit.content import Summary
from clawkit.errors import ToolInputError
from clawkit.text import human_time, one_line
from clawkit.ui.calls import Row
from clawkit.ui.talk import Face, Talk

_LISTED = 15
WORTH_TOKENS = 1_000
"""A summary of less than this would hardly be shorter."""


async def compact(talk: Talk, face: Face, rest: str) -> None:
    conversation = talk.agent.conversation
    history = conversation.history
    old = history[: cut_at(history, conversation.compaction, conversation.model.facts)]
    tokens = estimate([each for each in old if not isinstance(each, Summary)])
    if tokens < WORTH_TOKENS:
        why = f": all but about {tokens:,} tokens is recent and stays as it is" if tokens else ""
        face.say(f"There is nothing to shorten yet{why}.")
        return
    face.say("Summing up …", "dim")
    if not await conversation.compact(rest):
        face.say("There is nothing to shorten yet.")


async def new(talk: Talk, face: Face, rest: str) -> None:
    if rest and talk.agent.store and talk.agent.store.find(rest, talk.agent.kit.run.scope.agent):
        raise ToolInputError(
            f"there is a conversation {one_line(rest, 60)!r} already: /resume goes on with it"
        )
    await talk.switch(rest or None, face)
    face.rows(list(talk.greeting()))


async def resume(talk: Talk, face: Face, rest: str) -> None:
    store, session = talk.agent.store, talk.agent.session
    if store is None or session is None:
        raise ToolInputError("nothing is kept here (--no-session), so there is nothing to resume")
    if not rest:
        _list(talk, face)
        return
    wanted = store.get(rest, session.agent)
    if wanted.id == session.id:
        face.say("This is the conversation you are in.")
        return
    await talk.switch(wanted.id, face)
    face.rows(list(talk.greeting()))


def _list(talk: Talk, face: Face) -> None:
    store, session = talk.agent.store, talk.agent.session
    assert store is not None  # noqa: S101  # resume looked
    assert session is not None  # noqa: S101
    found = store.recent(session.agent, session.workspace, _LISTED)
    now = time.time() * 1000
    rows = []
    for each in found:
        mark = ">" if each.id == session.id else " "
        ago = human_time(max(0.0, now - each.updated_ms) / 1000)
        name = f" {each.name}" if each.name != each.id else ""
        title = one_line(each.title, 80) or "(nothing said yet)"
        turns = "1 turn" if each.turns == 1 else f"{each.turns} turns"
        rows.append(Row(f"{mark} {each.id}{name}  {ago} ago, {turns}: {title}"))
    face.rows(rows)
    face.say("/resume ID goes on with one of them.", "dim")


def session_words(talk: Talk) -> Iterable[tuple[str, str]]:
    store, session = talk.agent.store, talk.agent.session
    if store is None or session is None:
        return
    for each in store.recent(session.agent, session.workspace, _LISTED):
        if each.id != session.id:
            yield each.name, each.title
