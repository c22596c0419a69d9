"""Which sessions a session may know about."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from clawkit.sessions.protocols import Session, Sight, why_hidden

PARENTS = {"child": "here", "grandchild": "child", "sibling": "main"}


def session(id_: str, agent: str = "a") -> Session:
    return Session(id_, f"agent:{agent}:{id_}", agent)


def descends(id_: str, ancestor: str) -> bool:
    while id_ in PARENTS:
        id_ = PARENTS[id_]
        if id_ == ancestor:
            return True
    return False


ALL = ("here", "main", "child", "grandchild", "sibling")


def test_what_can_be_seen(subtests: pytest.Subtests) -> None:
    cases: Iterable[tuple[Sight, str, set[str]]] = [
        ("self", "here", {"here"}),
        ("self", "main", {"main"}),
        ("tree", "here", {"here", "child", "grandchild"}),
        ("tree", "sibling", {"sibling"}),
        ("tree", "main", set(ALL)),
        ("spawned", "here", {"here", "child", "grandchild"}),
        ("spawned", "main", {"main", "sibling"}),
        ("agent", "sibling", set(ALL)),
        ("all", "sibling", set(ALL)),
    ]
    for sight, here, seen in cases:
        with subtests.test(f"{sight!r:.80}"):
            answers = {
                each: why_hidden(sight, session(here), session(each), descends) for each in ALL
            }
            assert {each for each, why in answers.items() if not why} == seen


@pytest.mark.parametrize("sight", ["self", "spawned", "tree", "agent", "all"])
def test_nobody_sees_sessions_of_another_agent(sight: Sight) -> None:
    there = session("child", "b")
    assert "of the agent 'b'" in why_hidden(sight, session("here"), there, descends)
    assert "of the agent 'b'" in why_hidden(sight, session("main"), there, descends)


def test_the_main_session_may_have_another_name() -> None:
    there = session("child")
    assert why_hidden("tree", session("boss"), there, descends, main="main")
    assert not why_hidden("tree", session("boss"), there, descends, main="boss")


def test_a_session_that_is_not_stored_started_none() -> None:
    unkept = Session("", "agent:a:x", "a")
    assert why_hidden("tree", unkept, session("child"), lambda _id, _ancestor: True)
