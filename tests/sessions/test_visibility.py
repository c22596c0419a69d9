"""Which sessions a session may know about."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.tables import table

from clawkit.config.load import loads
from clawkit.sessions.protocols import Filter
from clawkit.sessions.store import SessionStore
from clawkit.sessions.transcripts import AgentTranscripts
from clawkit.sessions.visibility import (
    Mode,
    Requester,
    SessionTarget,
    Sight,
    all_visible,
    may_see,
    takes_part,
)

# Who is asked about, seen from the session `me` of the agent `a`.
TARGETS = {
    "itself": SessionTarget("me", "agent:a:me", "a"),
    "child": SessionTarget("c", "agent:a:c", "a", ("me", "m")),
    "grandchild": SessionTarget("g", "agent:a:g", "a", ("c", "me")),
    "sibling": SessionTarget("s", "agent:a:s", "a", ("m",)),
    "main": SessionTarget("m", "agent:a:main", "a"),
    # The key looks like that of a child; the lineage says otherwise.
    "impostor": SessionTarget("i", "agent:a:subagent:me:subagent:x", "a"),
    "foreign child": SessionTarget("f", "agent:b:f", "b", ("me",)),
    "foreign": SessionTarget("o", "agent:b:main", "b"),
}
ME = Requester("me", "agent:a:me", "a")
MAIN = Requester("m", "agent:a:main", "a")
OPEN = Sight("all", agent_to_agent=True)
SELF, SANDBOX = "tools.sessions.visibility is 'self'", "sessionToolsVisibility is 'spawned'"
TREE = "tools.sessions.visibility is 'tree'"
NOT_ALL = "not 'all'"
OFF, LIST = "tools.agentToAgent.enabled is false", "tools.agentToAgent.allow does not list"

Row = tuple[str, Requester, Sight, str, str]


def rows() -> Iterator[Row]:
    """What it is about, who asks, the settings, who is asked about, and why not."""

    def table(name: str, who: Requester, sight: Sight, *why: str) -> Iterator[Row]:
        for target, reason in zip(TARGETS, why, strict=True):
            yield f"{name}: {target}", who, sight, target, reason

    boxed, boxed_main = replace(ME, sandboxed=True), replace(MAIN, sandboxed=True)
    tree, agent, all_, self_ = (Sight(mode) for mode in ("tree", "agent", "all", "self"))
    yield from table("self", ME, self_, "", *[SELF] * 7)
    yield from table("tree", ME, tree, "", "", "", TREE, TREE, TREE, "", NOT_ALL)
    yield from table("tree from main", MAIN, tree, "", "", "", "", "", "", NOT_ALL, NOT_ALL)
    yield from table("agent", ME, agent, "", "", "", "", "", "", NOT_ALL, NOT_ALL)
    yield from table("all, agents apart", ME, all_, "", "", "", "", "", "", "", OFF)
    yield from table("all, agents together", ME, OPEN, *[""] * 8)
    listed = replace(OPEN, allow=("a",))
    yield from table("only a", ME, listed, "", "", "", "", "", "", "", f"{LIST} 'b'")
    listed = replace(OPEN, allow=("b",))
    yield from table("only b", ME, listed, "", "", "", "", "", "", "", f"{LIST} 'a'")
    yield from table("both", ME, replace(OPEN, allow=("a", "b")), *[""] * 8)
    box = [SANDBOX] * 3
    yield from table("boxed", boxed, tree, "", "", "", *box, "", SANDBOX)
    yield from table("boxed, agent", boxed, agent, "", "", "", *box, NOT_ALL, SANDBOX)
    yield from table("boxed, all", boxed, OPEN, "", "", "", *box, "", SANDBOX)
    yield from table("boxed, self", boxed, self_, "", *[SELF] * 7)
    yield from table(
        "boxed main", boxed_main, tree, *[SANDBOX, "", SANDBOX, "", "", SANDBOX], *[SANDBOX] * 2
    )
    free = replace(tree, spawned_only=False)
    yield from table("boxed, free", boxed, free, "", "", "", TREE, TREE, TREE, "", NOT_ALL)
    sub = replace(boxed, depth=1)
    yield from table("boxed sub-agent", sub, tree, "", "", "", TREE, TREE, TREE, "", NOT_ALL)
    # A session that is not stored started none, whatever lineages say.
    unstored = Requester("", "agent:a:me", "a")
    yield from table("unstored", unstored, tree, "", *[TREE] * 5, NOT_ALL, NOT_ALL)


ROWS = list(rows())


@pytest.mark.parametrize(("name", "who", "sight", "target", "why"), ROWS, ids=[r[0] for r in ROWS])
def test_visibility_follows_the_table_of_cases(
    name: str, who: Requester, sight: Sight, target: str, why: str
) -> None:
    said = may_see(who, TARGETS[target], sight)
    assert bool(said) is bool(why), name
    assert why in said


def test_the_table_has_at_least_60_cases() -> None:
    assert len(ROWS) >= 60


@table(
    ("agent", "allow", "does"),
    [
        ("home", None, True),
        ("home", ("home",), True),
        ("home", ("Home",), False),
        ("Home", ("Home",), True),
        ("home", (" home ",), True),
        ("home", ("work",), False),
        ("home", ("*",), True),
        ("home", ("HO*",), True),
        ("HOME", ("ho*",), True),
        ("home", ("ho*k",), False),
        ("home", ("*me",), True),
        ("home", ("hom",), False),
        ("home", ("",), False),
        ("home", (" ", "\t"), False),
        ("home", ("", "home"), True),
    ],
)
def test_agents_are_listed_exactly_or_by_pattern(
    agent: str, allow: tuple[str, ...] | None, does: bool
) -> None:
    assert takes_part(agent, allow) is does


def test_the_main_session_may_have_another_name() -> None:
    boss, there = Requester("x", "agent:a:boss", "a"), TARGETS["impostor"]
    assert may_see(boss, there, Sight())
    assert not may_see(boss, there, Sight(main="boss"))
    assert may_see(MAIN, there, Sight(main="boss"))
    assert may_see(Requester("y", "agent:b:main", "b"), there, Sight())


@table(
    ("config", "sight"),
    [
        ("{}", Sight("tree", True, False, None, "main")),
        ("{tools: {sessions: {visibility: 'all'}}}", Sight("all")),
        ("{session: {mainKey: 'boss'}}", Sight(main="boss")),
        ("{tools: {agentToAgent: {enabled: true}}}", Sight(agent_to_agent=True)),
        ("{tools: {agentToAgent: {allow: []}}}", Sight(allow=None)),
        ("{tools: {agentToAgent: {allow: ['a', '']}}}", Sight(allow=("a", ""))),
        (
            "{agents: {defaults: {sandbox: {sessionToolsVisibility: 'all'}}}}",
            Sight(spawned_only=False),
        ),
        (
            "{agents: {list: [{id: 'a', sandbox: {sessionToolsVisibility: 'all'}}]}}",
            Sight(spawned_only=False),
        ),
        (
            "{agents: {list: [{id: 'b', sandbox: {sessionToolsVisibility: 'all'}}]}}",
            Sight(spawned_only=True),
        ),
    ],
)
def test_the_settings_are_read(config: str, sight: Sight) -> None:
    assert Sight.of(loads(config).config, "a") == sight


# Properties

_AGENTS = ("a", "b")
_IDS = ("me", "m", "x", "y")
_requesters = st.builds(
    Requester,
    st.sampled_from((*_IDS, "")),
    st.sampled_from(("agent:a:me", "agent:a:main", "agent:b:main", "agent:b:z")),
    st.sampled_from(_AGENTS),
    st.booleans(),
    st.integers(0, 2),
)
_targets = st.builds(
    SessionTarget,
    st.sampled_from(_IDS),
    st.sampled_from(("agent:a:me", "agent:a:main", "agent:a:q", "agent:b:z")),
    st.sampled_from(_AGENTS),
    st.lists(st.sampled_from(_IDS), max_size=3).map(tuple),
)
_allows = st.none() | st.lists(st.sampled_from(("a", "b", "*", "")), min_size=1, max_size=3).map(
    tuple
)
_sights = st.builds(
    Sight, st.sampled_from(get_args(Mode)), st.booleans(), st.booleans(), _allows, st.just("main")
)
_LOOSER: dict[Mode, tuple[Mode, ...]] = {
    # `tree` reaches sub-agents of other agents, which `agent` does not: the two are not ordered.
    "self": ("self", "tree", "agent", "all"),
    "tree": ("tree", "all"),
    "agent": ("agent", "all"),
    "all": ("all",),
}


@given(_requesters, _targets, _sights, st.data())
def test_a_tighter_setting_never_shows_more(
    who: Requester, target: SessionTarget, tight: Sight, data: st.DataObject
) -> None:
    loose = replace(
        tight,
        mode=data.draw(st.sampled_from(_LOOSER[tight.mode])),
        spawned_only=tight.spawned_only and data.draw(st.booleans()),
        agent_to_agent=tight.agent_to_agent or data.draw(st.booleans()),
        allow=data.draw(st.sampled_from((tight.allow, (*(tight.allow or ("*",)), "b"), None))),
    )
    if not may_see(who, target, tight):
        assert not may_see(who, target, loose)
    if who.agent == target.agent and tight.mode == "tree" and not may_see(who, target, tight):
        assert not may_see(who, target, replace(tight, mode="agent"))


@given(_requesters, _targets, _sights)
def test_a_refusal_names_the_setting_to_change(
    who: Requester, target: SessionTarget, sight: Sight
) -> None:
    why = may_see(who, target, sight)
    assert not why or "tools." in why or "agents.defaults.sandbox." in why
    if who.key == target.key:
        assert not why


# All at once


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SessionStore]:
    made = SessionStore(str(tmp_path / "home" / "sessions.sqlite"))
    yield made
    made.close()


def test_lists_show_what_the_decision_allows(store: SessionStore) -> None:
    main = store.create("a", workspace="/", name="main")
    me = store.create("a", workspace="/", name="me", parent=main.id)
    child = store.create("a", workspace="/", name="child", parent=me.id)
    store.create("b", workspace="/", name="hers", parent=child.id)
    store.create("b", workspace="/", name="main")
    store.create("c", workspace="/", name="other")
    every = store.recent(limit=100)
    lineage = {each.id: store.lineage(each.id) for each in every}
    unstored = Requester("", "agent:a:main", "a")
    for here in every:
        for sandboxed in (False, True):
            who = Requester(here.id, here.key, here.agent, sandboxed)
            for mode in get_args(Mode):
                for allow in (None, ("a", "b")):
                    for sight in (Sight(mode), Sight(mode, False, True, allow)):
                        for asker in (who, unstored):
                            visible = all_visible(asker, sight, store.agents())
                            shown = {each.id for each in store.listing(visible, Filter(), 100)}
                            assert shown == {
                                each.id
                                for each in every
                                if not may_see(
                                    asker,
                                    SessionTarget(each.id, each.key, each.agent, lineage[each.id]),
                                    sight,
                                )
                            }


@pytest.mark.parametrize("mode", get_args(Mode))
def test_memory_shows_the_same_sessions_one_by_one_and_at_once(tmp_path: Path, mode: Mode) -> None:
    store = SessionStore(str(tmp_path / "sessions.sqlite"))
    main, side = (store.create("main", workspace="/", name=name) for name in ("main", "side"))
    store.create("main", workspace="/", name="child", parent=side.id)
    store.create("other", workspace="/", name="main")
    for id_, key in ((main.id, main.key), (side.id, side.key), ("", "agent:main:new")):
        seen = AgentTranscripts(store, Requester(id_, key, "main"), Sight(mode=mode))
        at_once = seen.visible()
        one_by_one = {each for each in seen.stamps() if seen.may_see(each)}
        assert set(seen.stamps() if at_once is None else at_once) == one_by_one
        sees_all = mode in ("agent", "all") or (mode, id_) == ("tree", main.id)
        assert (at_once is None) == sees_all
