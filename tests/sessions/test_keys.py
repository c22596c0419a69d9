"""Keys of sessions, and what tools and people call them by."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import apsw
import pytest
from tests.tables import table

from clawkit.errors import NotFoundError, ToolAuthorizationError, ToolInputError
from clawkit.sessions.keys import SessionKey, child_key, kind_of, parse_key, resolve
from clawkit.sessions.protocols import Filter, Session, Visible
from clawkit.sessions.store import SessionStore

U1 = "1b9f0e16-4b89-4cf0-9fb2-29b578dcf838"
U2 = "2ed733f9-4f6d-467e-9f51-6322aa2c2615"

KEYS: list[tuple[str, SessionKey]] = [
    ("agent:a:main", SessionKey("a", "main", "main")),
    ("agent:a:work", SessionKey("a", "work", "other")),
    ("main", SessionKey("", "main", "main")),
    (
        "agent:a:telegram:group:-100",
        SessionKey("a", "telegram:group:-100", "group", "telegram", "-100"),
    ),
    (
        "agent:a:matrix:group:!room:host",
        SessionKey("a", "matrix:group:!room:host", "group", "matrix", "!room:host"),
    ),
    ("agent:a:discord:channel:77", SessionKey("a", "discord:channel:77", "group", "discord", "77")),
    (
        "agent:a:discord:channel:77:thread:9",
        SessionKey("a", "discord:channel:77:thread:9", "group", "discord", "77", "9"),
    ),
    (
        "agent:a:telegram:group:-1:topic:5",
        SessionKey("a", "telegram:group:-1:topic:5", "group", "telegram", "-1", "5"),
    ),
    ("agent:a:main:thread:3", SessionKey("a", "main:thread:3", "other", thread="3")),
    ("agent:a:signal:direct:+49", SessionKey("a", "signal:direct:+49", "other", "signal", "+49")),
    ("agent:a:slack:acme:dm:u1", SessionKey("a", "slack:acme:dm:u1", "other", "slack", "u1")),
    (f"agent:a:subagent:{U1}", SessionKey("a", f"subagent:{U1}", "other", depth=1)),
    (
        f"agent:a:subagent:{U1}:subagent:{U2}",
        SessionKey("a", f"subagent:{U1}:subagent:{U2}", "other", depth=2),
    ),
    ("cron:daily", SessionKey("", "cron:daily", "cron")),
    ("cron:daily:run:7", SessionKey("", "cron:daily:run:7", "cron")),
    ("agent:a:cron:daily:run:7", SessionKey("a", "cron:daily:run:7", "cron")),
    (f"hook:{U1}", SessionKey("", f"hook:{U1}", "hook")),
    (f"agent:a:hook:{U1}", SessionKey("a", f"hook:{U1}", "hook")),
    ("node-phone", SessionKey("", "node-phone", "node")),
    ("agent:a:node-phone", SessionKey("a", "node-phone", "node")),
    # What only looks like one of them.
    ("agent:a:telegram:group:", SessionKey("a", "telegram:group:", "other")),
    (
        "agent:a:x:group:subagent:y",
        SessionKey("a", "x:group:subagent:y", "group", "x", "subagent:y"),
    ),
    ("agent:a:subagent:", SessionKey("a", "subagent:", "other")),
    ("agent:a:nodes", SessionKey("a", "nodes", "other")),
]


@pytest.mark.parametrize(("key", "said"), KEYS, ids=[key[:60] for key, _ in KEYS])
def test_a_key_describes_its_session(key: str, said: SessionKey) -> None:
    assert parse_key(key) == said


def test_the_main_session_may_have_another_name() -> None:
    assert parse_key("agent:a:boss", "boss").kind == "main"
    assert parse_key("agent:a:main", "boss").kind == "other"


@table("key", ["", "agent:", "agent:a", "agent:a:", "agent::x", "a b", "a\n"])
def test_an_invalid_key_is_refused(key: str) -> None:
    with pytest.raises(ToolInputError, match="invalid session key"):
        parse_key(key)


def test_the_key_of_a_child_is_below_that_of_a_sub_agent() -> None:
    first = child_key("a", "agent:a:main", U1)
    assert first == f"agent:a:subagent:{U1}"
    second = child_key("b", first, U2)
    assert second == f"agent:b:subagent:{U1}:subagent:{U2}"
    key = first
    for depth in range(2, 6):
        key = child_key("a", key, str(uuid4()))
        assert parse_key(key).depth == depth
    with pytest.raises(ToolInputError):
        child_key("a", key, str(uuid4()))
    for bad in ("", "x:y"):
        with pytest.raises(ToolInputError):
            child_key("a", "agent:a:main", bad)


def test_five_sub_agents_below_each_other_can_be_stored(store: SessionStore) -> None:
    key = "agent:a:main"
    for _ in range(5):
        key = child_key("a", key, str(uuid4()))
        assert create(store, "a", parse_key(key).name).key == key


# The resolver


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SessionStore]:
    made = SessionStore(str(tmp_path / "home" / "sessions.sqlite"))
    yield made
    made.close()


def create(store: SessionStore, agent: str, name: str | None = None, **more: Any) -> Session:
    """A session; labels and archives are not set by any command yet."""
    made = store.create(agent, workspace="/", name=name, parent=more.pop("parent", ""))
    db = apsw.Connection(store.path)
    for column, value in more.items():
        db.execute(f"UPDATE session SET {column} = ? WHERE id = ?", (value, made.id))
    db.close()
    return store.get(made.id)


def test_aliases_mean_the_main_and_the_current_session(store: SessionStore) -> None:
    main, here = create(store, "a", "main"), create(store, "a", "here")
    boss = create(store, "a", "boss")
    assert resolve(store, "main", agent="a", current=here) == main
    assert resolve(store, " current ", agent="a", current=here) == here
    assert resolve(store, "main", agent="a", main="boss", current=main) == boss
    assert resolve(store, main.key, agent="a", main="boss", current=here) == main
    with pytest.raises(NotFoundError, match="'current'"):
        resolve(store, "current", agent="a")
    with pytest.raises(NotFoundError, match=r"no session 'agent:b:main'"):
        resolve(store, "main", agent="b")


def test_the_current_session_needs_no_store() -> None:
    here = Session("", "agent:a:x", "a")
    for name in ("current", "x", "agent:a:x"):
        assert resolve(None, name, agent="a", current=here) == here
    with pytest.raises(NotFoundError, match="no session 'y'; this one is 'x'"):
        resolve(None, "y", agent="a", current=here)
    with pytest.raises(NotFoundError):
        resolve(None, "y", agent="a")
    with pytest.raises(NotFoundError):
        resolve(None, "", agent="a", current=here)


def test_a_session_is_found_by_every_name(store: SessionStore) -> None:
    key = child_key("a", "agent:a:main", U1)
    made = create(store, "a", parse_key(key).name, label="nightly build")
    other = create(store, "a", "cron:daily", label="nightly")
    names = (made.id, made.id[:4], made.id.upper(), key, parse_key(key).name, U1, U1.upper())
    for name in (*names, "nightly build", " nightly build\n"):
        assert resolve(store, name, agent="a") == made
    assert resolve(store, "cron:daily", agent="a") == other
    with pytest.raises(NotFoundError):
        resolve(store, U2, agent="a")


def test_everything_else_goes_before_a_label(store: SessionStore) -> None:
    named = create(store, "a", parse_key(child_key("a", "agent:a:main", U1)).name)
    names = (named.id, named.id[:4], named.key, named.name, U1)
    for number, name in enumerate(names):
        create(store, "a", f"x{number}", label=name)
    for name in names:
        assert resolve(store, name, agent="a") == named


def test_a_label_does_not_pass_for_a_key(store: SessionStore) -> None:
    create(store, "b", "x", label="agent:a:main")
    for name in ("main", "agent:a:main"):
        with pytest.raises(NotFoundError):
            resolve(store, name, agent="a")


def test_an_ambiguous_label_lists_the_candidates(store: SessionStore) -> None:
    one, two = create(store, "a", "x", label="build"), create(store, "b", "y", label="build")
    create(store, "a", "z", label="build", archived_ms=1)
    with pytest.raises(ToolInputError, match="it matches these sessions") as caught:
        resolve(store, "build", agent="a")
    assert all(f"{each.id} ({each.key})" in str(caught.value) for each in (one, two))
    assert "agent:a:z" not in str(caught.value)


def test_the_label_of_an_archived_session_does_not_count(store: SessionStore) -> None:
    old = create(store, "a", "x", label="build", archived_ms=1)
    with pytest.raises(NotFoundError):
        resolve(store, "build", agent="a")
    assert resolve(store, "x", agent="a") == resolve(store, old.id, agent="a") == old


def test_a_session_without_a_label_has_no_empty_one(store: SessionStore) -> None:
    create(store, "a", "x")
    with pytest.raises(NotFoundError):
        resolve(store, " ", agent="a")


def test_invisible_sessions_are_neither_listed_nor_suggested(store: SessionStore) -> None:
    one, two = create(store, "a", "hello", label="build"), create(store, "b", "y", label="build")

    def refuse(session: Session) -> str:
        return "a.b is 'c'" if session.agent == "b" else ""

    assert resolve(store, "build", agent="a", refuse=refuse) == one
    for name in (two.key, two.id, two.id[:5]):
        with pytest.raises(ToolAuthorizationError, match=r"cannot be seen from here: a\.b is 'c'"):
            resolve(store, name, agent="a", refuse=refuse)
    # One that is hidden does not stand in the way of another.
    create(store, "b", "z", label=one.id[:4])
    assert resolve(store, one.id[:4], agent="a", refuse=refuse) == one
    secret = create(store, "b", "payroll")
    with pytest.raises(NotFoundError) as caught:
        resolve(store, "payrol", agent="b", refuse=refuse)
    assert "payroll" not in str(caught.value)
    assert secret.id not in str(caught.value)


def test_lists_tell_kinds_as_keys_do(store: SessionStore) -> None:
    names = {key.name for _, key in KEYS} - {"x:group:subagent:y"}
    for name in names:
        create(store, "a", name)
    everything = Visible("", agents=("a",))
    for kind in ("main", "group", "cron", "hook", "node", "other"):
        found = store.listing(everything, Filter(kinds=(kind,)), 100)
        assert {each.name for each in found} == {name for name in names if kind_of(name) == kind}
