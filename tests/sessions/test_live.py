"""A conversation while it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clawkit.content import Assistant, Summary, Text, ToolCall, ToolResult, User
from clawkit.errors import ConflictError, NotFoundError, ToolInputError
from clawkit.sessions.store import LiveSession, SessionStore


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "sessions.sqlite")


def open_kept(place: str, name: str | None = "talk", agent: str = "main") -> LiveSession:
    return LiveSession.open(SessionStore(place), agent, name, "/ws")


@pytest.fixture
def kept(place: str) -> Iterator[LiveSession]:
    kept = open_kept(place)
    yield kept
    kept.close()


def names(place: str) -> list[str]:
    store = SessionStore(place)
    found = [each.name for each in store.recent()]
    store.close()
    return found


def said(text: str) -> User:
    return User((Text(text),))


def test_an_empty_session_is_deleted(place: str) -> None:
    open_kept(place).close()
    assert names(place) == []
    kept = open_kept(place)
    kept.append(said("hello"))
    kept.close()
    open_kept(place).close()
    assert names(place) == ["talk"]


def test_a_session_that_another_process_took_over_is_left_alone(place: str) -> None:
    kept = open_kept(place)
    kept._locks.close()
    other = open_kept(place)
    kept.close()
    other.append(said("mine"))
    other.close()
    assert names(place) == ["talk"]


def test_no_one_else_works_in_it(kept: LiveSession, place: str) -> None:
    with pytest.raises(ConflictError, match="in use by this process"):
        open_kept(place)


def test_a_session_belongs_to_one_agent(kept: LiveSession, place: str) -> None:
    with pytest.raises(ToolInputError, match="belongs to the agent 'main'"):
        open_kept(place, kept.session.id, "other")


@pytest.mark.parametrize("agent", ["main", "other"])
def test_a_label_or_the_beginning_of_an_id_takes_over_no_name(place: str, agent: str) -> None:
    store = SessionStore(place)
    child = store.create(agent, workspace="/", label="telegram:direct:42")
    store.append(child.id, said("hostile"))
    store.close()
    for name in ("telegram:direct:42", child.id[:5]):
        kept = open_kept(place, name)
        assert (kept.session.key, kept.load()) == (f"agent:main:{name}", [])
        kept.close()


def test_a_session_that_is_gone_is_not_taken_for_one_with_its_id_as_a_label(
    kept: LiveSession,
) -> None:
    kept.store.create("main", workspace="/", label=kept.id)
    kept._locks.close()
    kept.store.delete(kept.id)
    with pytest.raises(NotFoundError):
        _ = kept.session


def test_a_summary_replaces_all_but_the_kept_messages(kept: LiveSession) -> None:
    old, call = said("old"), Assistant((ToolCall("1", "ls"), ToolCall("2", "ls")), "tool_calls")
    # Results are stored as they come, and kept in the order of the calls.
    second, first = ToolResult("2", "ls"), ToolResult("1", "ls")
    for message in (old, call, second, first):
        kept.append(message)
    summary = Summary("before")
    kept.compact(summary, [call, first, second])
    assert kept.load() == [summary, call, first, second]
    last = Summary("all")
    kept.compact(last, [])
    assert kept.load() == [last]


def test_a_message_that_was_not_stored_does_not_prevent_compaction(kept: LiveSession) -> None:
    stored, lost = said("stored"), said("lost")
    kept.append(said("old"))
    kept.append(stored)
    summary = Summary("before")
    kept.compact(summary, [stored, lost])
    assert kept.load() == [summary, stored]
