"""Searching what was said: the words, the index, and what of it is shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawkit.content import Assistant, Message, Summary, Text, Thinking, ToolResult, User
from clawkit.errors import ToolInputError
from clawkit.redact import Redactor
from clawkit.sessions.encode import encode
from clawkit.sessions.protocols import MessageHit, Session, Visible
from clawkit.sessions.search import BATCH_CHARS, BATCH_MESSAGES, FEW, SNIPPET, read_query
from clawkit.sessions.store import SessionStore

SECRET = "hunter2-and-then-some"
ALL = Visible("", agents=("main",))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SessionStore]:
    made = SessionStore(str(tmp_path / "home" / "sessions.sqlite"))
    yield made
    made.close()


def say(store: SessionStore, name: str, *texts: str, agent: str = "main") -> Session:
    found = store.find(name, agent) or store.create(agent, workspace="/", name=name)
    for text in texts:
        store.append(found.id, User((Text(text),), at_ms=7))
    return found


def find(
    store: SessionStore, query: str, visible: Visible = ALL, limit: int = 10
) -> list[MessageHit]:
    return list(store.search(query, visible, limit).hits)


def places(store: SessionStore, query: str, visible: Visible = ALL) -> list[tuple[str, int]]:
    return [(hit.session.name, hit.number) for hit in find(store, query, visible)]


def count_words(store: SessionStore) -> tuple[int, int]:
    db = apsw.Connection(store.path)
    counted = [db.execute(f"SELECT count(*) FROM {name}").get for name in ("words", "searched")]
    db.close()
    return int(counted[0] or 0), int(counted[1] or 0)


def test_all_words_must_occur_in_any_case(store: SessionStore) -> None:
    say(store, "a", "Fix the Login page", "the page is slow")
    for query in ("login", "LOGIN page", "page fix", "Lögin"):
        assert places(store, query) == [("a", 1)]
    assert places(store, "page") == [("a", 2), ("a", 1)]
    assert places(store, "login slow") == []
    assert places(store, "logi") == []


def test_quotes_make_a_phrase(store: SessionStore) -> None:
    say(store, "a", "the login page", "the page of the login")
    assert places(store, '"login page"') == [("a", 1)]
    assert places(store, '"login page" the') == [("a", 1)]
    assert places(store, '"page of') == [("a", 2)]
    assert places(store, "foo-bar") == []
    say(store, "a", "a foo-bar, foo and bar")
    assert places(store, "foo-bar") == [("a", 3)]


@pytest.mark.parametrize(
    "query", ["NOT x", "a AND", "x OR", "col:x", "a*", "^a", "NEAR(a b)", "{a}", "(a", "+a", "a''b"]
)
def test_nothing_typed_is_syntax(store: SessionStore, query: str) -> None:
    say(store, "a", "something else")
    assert find(store, query) == []
    say(store, "a", f"before {query} after")
    assert places(store, query) == [("a", 2)]


@given(st.text(max_size=40))
def test_any_query_is_answered_or_refused(query: str) -> None:
    db = apsw.Connection("")
    db.execute("CREATE VIRTUAL TABLE words USING fts5(text, content='', contentless_delete=1)")
    db.execute("INSERT INTO words (rowid, text) VALUES (1, ?)", ("x " * 3,))
    try:
        phrases = read_query(query)
    except ToolInputError:
        return
    match = " ".join('"{}"'.format(phrase.replace('"', '""')) for phrase in phrases)
    db.execute("SELECT rowid FROM words WHERE words MATCH ?", (match,)).fetchall()
    db.close()


@pytest.mark.parametrize("query", ["", " ", '""', "…?!", "\0", "🙂"])
def test_a_query_without_words_is_refused(store: SessionStore, query: str) -> None:
    with pytest.raises(ToolInputError, match="no words"):
        find(store, query)


@pytest.mark.parametrize("query", ["x " * 33, "x" * 1_001])
def test_a_query_that_is_too_long_is_refused(store: SessionStore, query: str) -> None:
    with pytest.raises(ToolInputError, match="too long"):
        find(store, query)


def test_only_visible_text_is_searched(store: SessionStore) -> None:
    made = say(store, "a")
    messages: list[Message] = [
        Assistant((Thinking("needle"), Text("an answer"))),
        ToolResult("c1", "read", (Text("needle"),)),
        Summary("needle"),
        Assistant((Text("here is the needle"),)),
    ]
    for message in messages:
        store.append(made.id, message)
    [hit] = find(store, "needle")
    assert (hit.number, hit.role, hit.snippet) == (4, "assistant", "here is the needle")


def test_a_store_without_a_file_has_nothing(store: SessionStore, tmp_path: Path) -> None:
    assert find(store, "x") == []
    assert not (tmp_path / "home").exists()


def test_the_sessions_used_last_come_first(store: SessionStore) -> None:
    say(store, "old", "needle one")
    say(store, "new", "needle two", "needle three")
    db = apsw.Connection(store.path)
    db.execute("UPDATE session SET updated_ms = iif(name = 'old', 9, 5)")
    db.close()
    assert places(store, "needle") == [("old", 1), ("new", 2), ("new", 1)]
    found = store.search("needle", ALL, 2)
    assert [hit.session.name for hit in found.hits] == ["old", "new"]
    assert found.more
    assert not store.search("needle", ALL, 3).more


@pytest.mark.parametrize("others", [1, FEW])
def test_only_visible_sessions_are_searched(store: SessionStore, others: int) -> None:
    """Both ways of searching: through all matches, and session by session."""
    crowd = say(store, "crowd", agent="third")
    fill(store, crowd, others)
    one = say(store, "one", "needle")
    store.create("main", workspace="/", name="child", parent=one.id)
    say(store, "child", "needle", "needle")
    say(store, "two", "needle")
    say(store, "hers", "needle", agent="other")
    tree = Visible("agent:main:one", one.id, (), ("main",))
    assert sorted(places(store, "needle", tree)) == [("child", 1), ("child", 2), ("one", 1)]
    assert places(store, "needle", Visible("agent:main:two")) == [("two", 1)]
    assert places(store, "needle", Visible("agent:other:x", "", ("other",))) == [("hers", 1)]
    assert len(find(store, "needle", Visible("", "", ("main", "other")), 4)) == 4


def test_new_messages_are_indexed_by_the_next_search(store: SessionStore) -> None:
    made = say(store, "a", "first needle")
    assert count_words(store) == (0, 0)
    assert places(store, "needle") == [("a", 1)]
    assert count_words(store) == (1, 1)
    store.append(made.id, ToolResult("c", "read", (Text("x"),)))
    say(store, "a", "second needle")
    assert count_words(store) == (1, 1)
    assert places(store, "needle") == [("a", 3), ("a", 1)]
    assert count_words(store) == (2, 1)
    assert places(store, "needle") == [("a", 3), ("a", 1)]


def test_a_long_index_is_made_in_batches(store: SessionStore) -> None:
    for name in ("a", "b", "c"):
        fill(store, say(store, name), BATCH_MESSAGES // 2 + 50)
    found = store.search("needle", ALL, 25, index_s=0)
    assert (len(found.hits), found.unsearched) == (0, 3)
    found = store.search("needle", ALL, 1_000)
    assert (len(found.hits), found.unsearched) == (3 * (BATCH_MESSAGES // 2 + 50), 0)
    long = "pin " * (BATCH_CHARS // 8 + 1)
    say(store, "a", *[long] * 5)
    assert len(find(store, "pin")) == 5


def fill(store: SessionStore, session: Session, count: int) -> None:
    """Many messages at once."""
    body = encode(User((Text("a needle"),)))
    db = apsw.Connection(store.path)
    row: Any = db.execute("SELECT row FROM session WHERE id = ?", (session.id,)).get
    places = [((row << 32) + number, body) for number in range(1, count + 1)]
    with db:
        db.executemany("INSERT INTO message VALUES (?, ?)", places)
        db.execute("UPDATE session SET last = ? WHERE row = ?", (count, row))
    db.close()


def test_a_deleted_session_leaves_no_words(store: SessionStore) -> None:
    one, _ = say(store, "one", "needle", "needle"), say(store, "two", "needle")
    find(store, "needle")
    assert count_words(store) == (3, 2)
    store.delete(one.id)
    assert count_words(store) == (1, 1)
    assert places(store, "needle") == [("two", 1)]


def test_a_session_in_the_place_of_a_deleted_one_is_indexed_anew(store: SessionStore) -> None:
    store.delete(say(store, "one", "needle", "pin").id)
    say(store, "two", "thread", "pin")
    assert places(store, "needle") == []
    assert places(store, "pin") == [("two", 2)]


def test_a_damaged_message_is_skipped(store: SessionStore) -> None:
    say(store, "a", "needle", "needle")
    db = apsw.Connection(store.path)
    db.execute("UPDATE message SET body = x'7b' WHERE place & 1")
    db.close()
    assert places(store, "needle") == [("a", 2)]


# Snippets


def test_a_snippet_is_around_the_match(store: SessionStore) -> None:
    before, after = "lorem ipsum\n\n" * 200, " dolor sit" * 200
    say(store, "a", f"{before}the needle{after}", "short\n needle")
    near, far = find(store, "needle")
    assert near.snippet == "short needle"
    assert near.at_ms == 7
    assert len(far.snippet) == SNIPPET
    assert far.snippet.startswith("…")
    assert far.snippet.endswith("…")
    assert "ipsum the needle dolor" in far.snippet


def test_a_match_by_another_spelling_shows_the_beginning(store: SessionStore) -> None:
    say(store, "a", "Grüße aus Köln")
    assert find(store, "Koln")[0].snippet == "Grüße aus Köln"


def test_secrets_are_neither_found_nor_shown(tmp_path: Path) -> None:
    plain = SessionStore(str(tmp_path / "home" / "sessions.sqlite"))
    say(plain, "a", f"needle {'x' * 60} {SECRET} pin")
    # What was stored before the secret was known is redacted when it is shown.
    plain.redact = Redactor([SECRET]).text
    assert SECRET not in find(plain, "needle")[0].snippet
    assert "needle" in find(plain, "needle")[0].snippet
    say(plain, "b", f"thread {SECRET}")
    assert places(plain, "hunter2 thread") == []
    plain.close()
