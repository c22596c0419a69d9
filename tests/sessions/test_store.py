"""Conversations on the disk."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.tables import table

from clawkit.config.load import loads
from clawkit.content import (
    Assistant,
    Message,
    Summary,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    User,
)
from clawkit.errors import ConfigError, ConflictError, NotFoundError, ToolError, ToolInputError
from clawkit.redact import Redactor
from clawkit.sessions.encode import encode
from clawkit.sessions.protocols import Changes, Filter, Session, Visible, locate_store
from clawkit.sessions.repair import INTERRUPTED
from clawkit.sessions.schema import APPLICATION, MIGRATIONS
from clawkit.sessions.store import KEEP_CHANGES, SessionStore
from clawkit.sessions.subagent_protocols import RunOutcome, SubagentRun
from clawkit.text import one_line

SECRET = "hunter2-and-then-some"


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "home" / "sessions.sqlite")


@pytest.fixture
def store(path: str) -> Iterator[SessionStore]:
    made = SessionStore(path, Redactor([SECRET]).text)
    yield made
    made.close()


def create(store: SessionStore, agent: str = "main", **given: Any) -> Session:
    return store.create(agent, **{"workspace": "/ws", "model": "a/b", **given})


def sent(store: SessionStore, id_: str) -> list[Message]:
    return [each.message for each in store.load(id_)]


def everything(store: SessionStore, id_: str) -> list[Message]:
    return [each.message for each in store.history(id_)]


def user(text: str) -> User:
    return User((Text(text),))


def edit(path: str, sql: str, *given: Any) -> None:
    """Tamper with the file."""
    db = apsw.Connection(path)
    db.execute(sql, given)
    db.close()


def run(code: str, *args: str) -> str:
    """What another process prints."""
    command = [sys.executable, "-c", code, *args]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def shown(text: str) -> str:
    """A name as an error repeats it."""
    return one_line(text, 60)


# Sessions


def test_a_session_comes_back_as_it_was_made(store: SessionStore, path: str) -> None:
    parent = create(store)
    made = create(store, name="work", parent=parent.id, thinking="high", workspace="/w\udcff")
    assert (made.key, made.name, made.agent) == ("agent:main:work", "work", "main")
    assert (made.workspace, made.model, made.thinking) == ("/w\udcff", "a/b", "high")
    assert (made.parent, made.turns, made.usage, dict(made.state)) == (parent.id, 0, Usage(), {})
    assert made.created_ms == made.updated_ms > 0
    other = SessionStore(path)
    assert other.get(made.id) == made
    other.close()


def test_a_session_without_a_name_is_called_by_its_id(store: SessionStore) -> None:
    made = create(store)
    assert made.key == f"agent:main:{made.id}"
    assert len(made.id) == 8
    assert made.id[0].isalpha()


def test_an_agent_has_one_session_of_a_name(store: SessionStore) -> None:
    create(store, name="work")
    create(store, "other", name="work")
    with pytest.raises(ConflictError, match="'agent:main:work' already"):
        create(store, name="work")


@pytest.mark.parametrize(
    "name", ["", "a b", "a\nb", "\0", "\ud800", "x" * 257, "current", "agent:x:y"]
)
def test_a_name_that_cannot_be_part_of_a_key_is_refused(store: SessionStore, name: str) -> None:
    made = create(store)
    with pytest.raises(ToolInputError, match="invalid name for a session"):
        create(store, name=name)
    with pytest.raises(ToolInputError, match="invalid name for a session"):
        store.rename(made.id, name)
    with pytest.raises(ToolInputError, match="invalid name for an agent"):
        create(store, name)


@pytest.mark.parametrize("name", ["main", "telegram:group:-100", "ünï", "+49", "a" * 256, "%"])
def test_other_names_are_fine(store: SessionStore, name: str) -> None:
    made = create(store, name=name)
    assert store.get(name) == store.get(made.key) == made


def test_a_session_is_found_by_all_it_is_called(store: SessionStore) -> None:
    made, _ = create(store, name="work"), create(store, name="play")
    for text in (made.id, made.key, "work", made.id[:4], f" {made.id[:5].upper()}\n"):
        assert store.get(text) == made
    with pytest.raises(NotFoundError):
        store.get(made.id[:3])


def test_an_exact_search_takes_nothing_for_another(store: SessionStore) -> None:
    uuid = "0b7e9a4e-3c1d-4f3a-9a55-1f2e3d4c5b6a"
    made = store.create("me", workspace="/", name=f"subagent:{uuid}", label="a label")
    for text in (made.id, made.key, made.name):
        assert store.find(text, "me") == made
    others = ("a label", uuid, made.id[:4], made.id.upper(), f" {made.id}", f"{made.name}\n")
    for text in others:
        assert store.find(text, "me") is None
    assert store.find(made.name) is None
    assert store.find(made.name, "you") is None
    assert store.find(made.id, "you") == made


def test_a_search_for_an_id_in_short_wants_the_exact_one_first(store: SessionStore) -> None:
    made = store.create("me", workspace="/", label="label")
    for text in (made.id[:4], made.id.upper()):
        assert store.find(text, "me", is_short=True) == made
    assert store.find("label", "me", is_short=True) is None
    named = create(store, "me", name=made.id[:4])
    assert store.find(made.id[:4], "me", is_short=True) == named


def test_a_name_is_looked_up_for_the_named_agent(store: SessionStore) -> None:
    mine, theirs = create(store, "me", name="main"), create(store, "you", name="main")
    assert store.get("main", "me") == mine
    assert store.get("main", "you") == theirs
    with pytest.raises(NotFoundError):
        store.get("main", "they")
    assert store.get(mine.key, "you") == store.get(mine.id, "you") == mine
    with pytest.raises(ToolInputError, match="it matches these sessions") as caught:
        store.get("main")
    assert f"{mine.id} (agent:me:main)" in str(caught.value)
    assert f"{theirs.id} (agent:you:main)" in str(caught.value)


@pytest.mark.parametrize(("count", "more"), [(2, ";"), (12, " and more;")])
def test_an_ambiguous_beginning_names_the_candidates(
    store: SessionStore, path: str, count: int, more: str
) -> None:
    for number in range(count):
        made = create(store)
        edit(
            path,
            "UPDATE session SET id = ? WHERE id = ?",
            f"abcdef{'cdefghjkmnpq'[number]}z",
            made.id,
        )
    with pytest.raises(
        ToolInputError, match=f"'abcdef' is ambiguous.*{more} give the id"
    ) as caught:
        store.get("abcdef")
    assert not isinstance(caught.value, NotFoundError)
    assert store.get("abcdefc").id == "abcdefcz"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("wrok", "; did you mean 'work'?"),
        ("zzzzzz", ""),
        ("", ""),
        ("a", ""),
        ("' OR 1=1 --", ""),
        ("../../etc/passwd", ""),
        ("\0\ud800", ""),
        ("%", ""),
        ("x" * 10_000, ""),
    ],
)
def test_an_unknown_session_is_an_error_with_suggestions(
    store: SessionStore, text: str, hint: str
) -> None:
    create(store, name="work")
    with pytest.raises(NotFoundError, match="there is no session") as caught:
        store.get(text)
    assert str(caught.value) == f"there is no session {shown(text)!r}{hint}"
    assert str(caught.value).isprintable()
    assert store.find(text) is None


def test_looking_makes_no_file(store: SessionStore, path: str) -> None:
    assert store.find("main") is None
    assert store.recent() == []
    with pytest.raises(NotFoundError):
        store.get("main")
    assert not os.path.exists(os.path.dirname(path))


def test_the_latest_used_session_comes_first(store: SessionStore, path: str) -> None:
    one, two = create(store, name="one"), create(store, "b", workspace="/other")
    three = create(store, name="three", workspace="/other")
    edit(path, "UPDATE session SET updated_ms = 5")
    edit(path, "UPDATE session SET updated_ms = 9 WHERE id = ?", one.id)
    assert [each.id for each in store.recent()] == [one.id, three.id, two.id]
    assert [each.id for each in store.recent(limit=1)] == [one.id]
    assert [each.id for each in store.recent("main")] == [one.id, three.id]
    assert [each.id for each in store.recent(workspace="/other")] == [three.id, two.id]
    assert [each.id for each in store.recent("b", "/other")] == [two.id]
    store.append(two.id, user("hi"))
    assert store.recent()[0].id == two.id


def test_a_session_can_get_another_name(store: SessionStore) -> None:
    made, other = create(store, name="work"), create(store, name="play")
    renamed = store.rename(made.id, "job")
    assert (renamed.id, renamed.key) == (made.id, "agent:main:job")
    assert store.find("work") is None
    assert store.rename(made.id, "job").key == "agent:main:job"
    with pytest.raises(ConflictError, match="'agent:main:job' already"):
        store.rename(other.id, "job")
    assert store.get("play") == other


def test_only_what_is_given_is_changed(store: SessionStore) -> None:
    made = create(store)
    changed = store.update(
        made.id,
        title=f"About {SECRET}\n\x1b[2Jand\ud800 " + "x" * 500,
        thinking="low",
        state={"elevated": "on", "exec": {"host": "node"}},
    )
    assert SECRET not in changed.title
    assert changed.title.isprintable()
    assert len(changed.title) == 120
    assert (changed.thinking, changed.workspace) == ("low", "/ws")
    assert changed.state == {"elevated": "on", "exec": {"host": "node"}}
    assert (changed.model, changed.model_override) == ("a/b", "")
    again = store.update(made.id, state={"elevated": None, "fast": True})
    assert again.state == {"exec": {"host": "node"}, "fast": True}
    assert (again.title, again.thinking) == (changed.title, "low")
    assert store.set_model(made.id, "e/f").model_override == "e/f"
    assert store.set_model(made.id, "").model_override == ""


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"a": "x" * 10_000}, "have 9.8 KB, more than 8 KB"),
        ({"a": object()}, "are not JSON"),
        ({"a": "\ud800"}, "are not JSON"),
    ],
)
def test_settings_are_small_and_plain(
    store: SessionStore, state: dict[str, Any], message: str
) -> None:
    made = create(store)
    with pytest.raises(ToolInputError, match=message):
        store.update(made.id, title="new", state=state)
    assert store.get(made.id) == made


def test_ancestors_are_found_and_circles_end(store: SessionStore, path: str) -> None:
    root = create(store)
    child = create(store, parent=root.id)
    grandchild = create(store, parent=child.id)
    assert store.lineage(grandchild.id) == (child.id, root.id)
    assert store.lineage(root.id) == store.lineage("nobody") == ()
    edit(path, "UPDATE session SET parent = ? WHERE id = ?", grandchild.id, root.id)
    assert set(store.lineage(grandchild.id)) == {child.id, root.id, grandchild.id}


def test_a_deleted_session_is_gone_with_all_it_had(store: SessionStore, path: str) -> None:
    made, other = create(store), create(store)
    child = create(store, parent=made.id)
    store.append(made.id, user("hi"))
    store.append(other.id, user("there"))
    store.delete(made.id)
    for act in (
        lambda: store.get(made.id),
        lambda: store.append(made.id, user("hi")),
        lambda: sent(store, made.id),
        lambda: everything(store, made.id),
        lambda: store.history(made.id),
        lambda: store.changes(made.id),
        lambda: store.compact(made.id, Summary("s"), 1),
        lambda: store.update(made.id, title="x"),
        lambda: store.rename(made.id, "x"),
        lambda: store.delete(made.id),
    ):
        with pytest.raises(NotFoundError, match=f"there is no session '{made.id}'"):
            act()
    assert sent(store, other.id) == [user("there")]
    assert store.get(child.id).parent == ""
    assert os.listdir(os.path.join(os.path.dirname(path), "sessions")) == []
    db = apsw.Connection(path)
    assert db.execute("SELECT count(*) FROM message").get == 1
    assert db.execute("SELECT count(*) FROM change WHERE session = ?", (made.id,)).get == 0
    db.close()


# Messages

TURN: list[Message] = [
    user("look around"),
    Assistant(
        (Text("I look"), ToolCall("1", "ls", {"path": "."}), ToolCall("2", "read", {"path": "a"})),
        "tool_calls",
        usage=Usage(100, 10, 5, 1, 0.25),
    ),
    ToolResult("1", "ls", (Text("a"),), details={"count": 1}),
    ToolResult("2", "read", (Text("alpha"),)),
    Assistant((Text("a is there"),), usage=Usage(120, 5, 100, 0, 0.5)),
]


def test_messages_come_back_in_order(store: SessionStore, path: str) -> None:
    made, other = create(store), create(store)
    assert [store.append(made.id, each) for each in TURN] == [1, 2, 3, 4, 5]
    assert store.append(other.id, user("else")) == 1
    again = SessionStore(path)
    assert sent(again, made.id) == everything(again, made.id) == TURN
    assert [each.number for each in again.load(made.id)] == [1, 2, 3, 4, 5]
    again.close()


def test_turns_tokens_and_title_are_kept_count_of(store: SessionStore) -> None:
    made = create(store)
    for each in (*TURN, user("and now?")):
        store.append(made.id, each)
    now = store.get(made.id)
    assert (now.turns, now.title) == (2, "look around")
    assert now.usage == Usage(220, 15, 105, 1, 0.75)
    assert now.context_tokens == 225
    assert now.updated_ms >= made.updated_ms


def test_a_title_that_was_given_stays_and_hides_secrets(store: SessionStore) -> None:
    made, named = create(store), create(store)
    store.update(named.id, title="mine")
    for each in (made, named):
        store.append(each.id, user(f"use {SECRET}\nplease, " + "x" * 1_000_000))
    title = store.get(made.id).title
    assert title.startswith("use ")
    assert SECRET not in title
    assert len(title) == 60
    assert store.get(named.id).title == "mine"


def test_secrets_are_not_in_the_file(store: SessionStore, path: str) -> None:
    made = create(store)
    store.append(made.id, user(f"use {SECRET}"))
    store.compact(made.id, Summary(f"uses {SECRET}"), 1)
    store.close()
    for name in os.listdir(os.path.dirname(path)):
        place = Path(path).parent / name
        assert place.is_dir() or SECRET.encode() not in place.read_bytes()


def test_results_come_in_the_order_of_their_calls(store: SessionStore) -> None:
    made = create(store)
    for at in (0, 1, 3, 2, 4):
        store.append(made.id, TURN[at])
    assert sent(store, made.id) == TURN
    assert [each.number for each in store.load(made.id)] == [1, 2, 4, 3, 5]
    assert everything(store, made.id) == [TURN[at] for at in (0, 1, 3, 2, 4)]


def test_a_call_that_no_one_finished_is_told_to_be_interrupted(store: SessionStore) -> None:
    made = create(store)
    for each in TURN[:3]:
        store.append(made.id, each)
    *before, missing = sent(store, made.id)
    assert before == TURN[:3]
    assert missing == ToolResult("2", "read", (Text(INTERRUPTED),), is_error=True)
    # Nothing of that is stored, and the next message comes after it.
    store.append(made.id, user("go on"))
    assert sent(store, made.id) == [*before, missing, user("go on")]
    assert everything(store, made.id) == [*TURN[:3], user("go on")]


def test_a_summary_replaces_the_messages_that_are_not_kept(store: SessionStore) -> None:
    made = create(store)
    numbers = [store.append(made.id, user(str(n))) for n in range(6)]
    assert store.compact(made.id, Summary("first four"), numbers[4]) == 7
    kept = [user("4"), user("5")]
    assert sent(store, made.id) == [Summary("first four"), *kept]
    store.append(made.id, user("6"))
    assert sent(store, made.id) == [Summary("first four"), *kept, user("6")]
    assert [each.number for each in store.load(made.id)] == [7, 5, 6, 8]
    assert store.get(made.id).context_tokens == 0
    assert len(everything(store, made.id)) == 8
    # A second one, which keeps messages from before the first one.
    store.compact(made.id, Summary("first five"), numbers[5])
    assert sent(store, made.id) == [Summary("first five"), user("5"), user("6")]
    # What a summary stands for does not come back.
    store.compact(made.id, Summary("again"), numbers[0])
    assert sent(store, made.id) == [Summary("again"), user("5"), user("6")]
    # Nothing is kept.
    store.compact(made.id, Summary("all"), 10**9)
    assert sent(store, made.id) == [Summary("all")]
    store.append(made.id, user("7"))
    store.append(made.id, Summary("appended"))
    store.append(made.id, user("8"))
    assert sent(store, made.id) == [Summary("appended"), user("8")]


def test_a_summary_between_a_call_and_its_result_breaks_nothing(store: SessionStore) -> None:
    made = create(store)
    numbers = [store.append(made.id, each) for each in TURN]
    store.compact(made.id, Summary("s"), numbers[2])
    assert sent(store, made.id) == [Summary("s"), TURN[4]]


def test_history_is_read_page_by_page_from_the_end(store: SessionStore) -> None:
    made = create(store)
    for n in range(7):
        store.append(made.id, user(str(n)))
    store.compact(made.id, Summary("s"), 7)
    page = store.history(made.id, limit=3)
    assert [each.number for each in page] == [6, 7, 8]
    assert page[-1].message == Summary("s")
    page = store.history(made.id, limit=3, before=page[0].number)
    assert [each.number for each in page] == [3, 4, 5]
    assert store.history(made.id, before=1) == []
    assert len(store.history(made.id)) == 8


def test_a_huge_result_is_not_a_problem(store: SessionStore, path: str) -> None:
    made = create(store)
    store.append(made.id, Assistant((ToolCall("1", "exec"),)))
    store.append(made.id, ToolResult("1", "exec", (Text("x" * 50_000_000),)))
    result = sent(store, made.id)[1]
    assert isinstance(result, ToolResult)
    assert isinstance(result.content[0], Text)
    assert result.content[0].text.endswith("more characters were not stored]")
    store.close()
    assert os.path.getsize(path) < 3_000_000


# Changes


def test_changes_are_returned_in_order(store: SessionStore) -> None:
    made = create(store)
    assert (made.version, store.changes(made.id).version) == (1, 1)
    for each in TURN:
        store.append(made.id, each)
    store.set_model(made.id, "c/d")
    store.set_model(made.id, "c/d")
    store.update(made.id, title="t", thinking="high", state={"fast": True})
    store.compact(made.id, Summary("s"), 3)
    store.rename(made.id, "job")
    found = store.changes(made.id, since=1)
    assert [(each.type, dict(each.details)) for each in found.events] == [
        ("turn", {"number": 1}),
        ("answered", {"number": 5}),
        ("model", {"model": "c/d"}),
        ("thinking", {"thinking": "high"}),
        ("title", {"title": "t"}),
        ("settings", {"keys": ["fast"]}),
        ("compacted", {"number": 6}),
        ("renamed", {"name": "job"}),
    ]
    assert [each.sequence for each in found.events] == list(range(2, 10))
    assert found.version == store.get(made.id).version == 9
    assert (found.truncated, found.earliest, found.gap) == (False, 1, False)
    assert store.changes(made.id, since=9).events == ()


def test_changes_come_in_pages_and_old_ones_are_forgotten(store: SessionStore) -> None:
    made = create(store)
    for n in range(KEEP_CHANGES + 9):
        store.append(made.id, user(str(n)))
    last = KEEP_CHANGES + 10
    page = store.changes(made.id, since=20, limit=5)
    assert [each.sequence for each in page.events] == [21, 22, 23, 24, 25]
    assert (page.truncated, page.earliest, page.gap, page.version) == (True, 11, False, last)
    assert not store.changes(made.id, since=10).gap
    assert store.changes(made.id, since=9).gap
    assert len(store.changes(made.id, limit=1_000).events) == KEEP_CHANGES
    # A number that has not come yet is from another store.
    assert store.changes(made.id, since=last + 1).gap
    assert store.changes(made.id, since=10**30) == Changes(last, (), False, 11, True)
    assert store.changes(made.id, since=-5).gap


# Holding

HOLD = """
import os, sys
from clawkit.errors import ConflictError
from clawkit.sessions.store import SessionStore
store = SessionStore(sys.argv[1])
try:
    with store.hold(sys.argv[2]):
        print("mine", os.getpid(), flush=True)
        sys.stdin.readline()
except ConflictError as error:
    print(error)
"""


def test_one_process_at_a_time_has_a_session(store: SessionStore, path: str) -> None:
    made, other = create(store, name="work"), create(store)
    with store.hold(made.id), store.hold(other.id):
        said = run(HOLD, path, made.id)
        assert f"the session 'work' is in use by process {os.getpid()}; wait" in said
        with pytest.raises(ConflictError, match="in use by this process"), store.hold(made.id):
            pass
        with pytest.raises(ConflictError, match="in use by this process"):
            store.delete(made.id)
    with store.hold(made.id):
        pass


def test_a_session_is_free_when_its_holder_was_killed(store: SessionStore, path: str) -> None:
    made = create(store)
    command = [sys.executable, "-c", HOLD, path, made.id]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        pid = int(holder.stdout.readline().split()[1])
        with (
            pytest.raises(ConflictError, match=f"in use by process {pid}"),
            store.hold(made.id),
        ):
            pass
        holder.kill()
        holder.wait()
        with store.hold(made.id):
            pass


def test_holders_are_few_and_the_lock_is_private(store: SessionStore, path: str) -> None:
    made = create(store)
    inside, most, lock = [0], [0], threading.Lock()

    def work() -> None:
        for _ in range(30):
            try:
                with store.hold(made.id):
                    with lock:
                        inside[0] += 1
                        most[0] = max(most[0], inside[0])
                    with lock:
                        inside[0] -= 1
            except ConflictError:
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
    folder = os.path.join(os.path.dirname(path), "sessions")
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(os.path.join(folder, f"{made.id}.lock")).st_mode) == 0o600


def test_a_lock_that_cannot_be_taken_is_an_error(store: SessionStore, path: str) -> None:
    made = create(store)
    with pytest.raises(NotFoundError), store.hold("../../etc/passwd"):
        pass
    Path(path).with_name("sessions").mkdir()
    Path(path).with_name("sessions").joinpath(f"{made.id}.lock").symlink_to("/etc/passwd")
    with (
        pytest.raises(ToolError, match="cannot be locked"),
        store.hold(made.id),
    ):
        pass


# The file


def test_the_file_and_its_directory_are_private(store: SessionStore, path: str) -> None:
    before = os.umask(0)
    try:
        store.append(create(store).id, user("hi"))
    finally:
        os.umask(before)
    folder = Path(path).parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    names = sorted(os.listdir(folder))
    assert names == [f"sessions.sqlite{end}" for end in ("", "-shm", "-wal", ".lock")]
    assert {stat.S_IMODE((folder / name).stat().st_mode) for name in names} == {0o600}


def use_all(store: SessionStore) -> list[str]:
    """What every kind of use says about a store that cannot be used."""
    said = []
    for act in (
        lambda: create(store),
        lambda: store.get("main"),
        lambda: store.recent(),
        lambda: store.append("a", user("hi")),
        lambda: sent(store, "a"),
        lambda: store.changes("a"),
        lambda: store.update("a", title="t"),
        lambda: store.delete("a"),
    ):
        with pytest.raises(ToolError) as caught:
            act()
        assert not isinstance(caught.value, ToolInputError)
        said.append(str(caught.value))
    return said


@pytest.mark.parametrize("content", [b"", b"{}", b"x" * 10_000])
def test_a_damaged_file_is_an_error_and_left_alone(path: str, content: bytes) -> None:
    os.mkdir(os.path.dirname(path), 0o700)
    with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as file:
        file.write(content)
    for said in use_all(SessionStore(path)):
        assert said.startswith(f"{path}: the store of sessions cannot be used: it is ")
        assert said.endswith("; move it away")
    assert Path(path).read_bytes() == content


def test_a_file_of_another_version_is_left_alone(store: SessionStore, path: str) -> None:
    create(store)
    store.close()
    edit(path, "PRAGMA user_version = 99")
    for said in use_all(store):
        assert "it is not a database of this version of clawkit" in said


def test_sessions_of_an_earlier_version_are_taken_over(path: str) -> None:
    os.mkdir(os.path.dirname(path), 0o700)
    os.close(os.open(path, os.O_CREAT, 0o600))
    db = apsw.Connection(path)
    db.execute(MIGRATIONS[0])
    for at, id_ in enumerate(("abcd2345", "bcde2345", "cdef2345")):
        db.execute(
            "INSERT INTO session (id, key, agent, name, workspace, model, thinking, created_ms,"
            " updated_ms, parent, last, cost) VALUES (?1, ?2, 'main', ?1, x'2f', 'm', 'off', 1, ?3,"
            " '', 3, 0.5)",
            (id_, f"agent:main:{id_}", at),
        )
        for number in (3, 1, 2):
            body = encode(user(f"{id_} {number}"))
            db.execute("INSERT INTO message VALUES (?, ?, ?)", (id_, number, body))
    db.execute("DELETE FROM session WHERE id = 'bcde2345'")
    db.pragma("application_id", APPLICATION)
    db.pragma("user_version", 1)
    db.close()
    store = SessionStore(path)
    assert [each.id for each in store.recent()] == ["cdef2345", "abcd2345"]
    assert store.get("abcd2345").usage.cost == 0.5
    assert store.append("cdef2345", user("more")) == 4
    for id_, more in (("abcd2345", []), ("cdef2345", [user("more")])):
        assert sent(store, id_) == [*(user(f"{id_} {number}") for number in (1, 2, 3)), *more]
    store.delete("abcd2345")
    assert len(sent(store, "cdef2345")) == 4
    with pytest.raises(NotFoundError):
        store.history("bcde2345")


def test_a_directory_that_cannot_be_written_is_an_error() -> None:
    store = SessionStore("/proc/clawkit/sessions.sqlite")
    with pytest.raises(ToolError, match="the store of sessions cannot be used: /proc"):
        create(store)


def test_a_locked_file_is_an_error_until_it_is_released(path: str) -> None:
    store = SessionStore(path, lock_wait_s=0.01)
    made = create(store)
    other = apsw.Connection(path)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(ToolError, match="it is locked by another process; try again"):
        store.append(made.id, user("hi"))
    assert sent(store, made.id) == []
    other.execute("ROLLBACK")
    other.close()
    assert store.append(made.id, user("hi")) == 1
    store.close()


FULL = """
import resource, sys
from clawkit.content import Text, User
from clawkit.errors import ToolError
from clawkit.sessions.store import SessionStore
path, id_ = sys.argv[1:]
store = SessionStore(path)
store.append(id_, User((Text("before"),)))
limits = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
try:
    store.append(id_, User((Text("during"),)))
except ToolError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, limits)
print(store.append(id_, User((Text("after"),))))
"""


def test_a_full_disk_is_an_error_and_loses_nothing(store: SessionStore, path: str) -> None:
    made = create(store)
    error, number = run(FULL, path, made.id).splitlines()
    assert "it cannot be read or written; is the disk full?" in error
    assert number == "2"
    assert sent(store, made.id) == [user("before"), user("after")]


@pytest.mark.parametrize(
    ("sql", "act", "message"),
    [
        ("UPDATE message SET body = x'7b'", "load", "the message 1 of the session"),
        ("UPDATE message SET body = x'5b5d'", "history", "the message 1 of the session"),
        (
            "UPDATE message SET body = CAST(replace(hex(zeroblob(50000)), '0', '[') AS BLOB)",
            "load",
            "the message 1 of the session",
        ),
        ("UPDATE session SET state = x'5b5d'", "get", "the data of the session"),
        ("UPDATE change SET details = x'ff'", "changes", "the data of the session"),
    ],
)
def test_tampered_data_is_an_error(
    store: SessionStore, path: str, sql: str, act: str, message: str
) -> None:
    made = create(store)
    store.append(made.id, user("hi"))
    edit(path, sql)
    with pytest.raises(ToolError, match=f"{message} .*is damaged") as caught:
        getattr(store, act)(made.id)
    assert not isinstance(caught.value, ToolInputError)


FORK = """
import os, sys
from clawkit.content import Text, User
from clawkit.sessions.store import SessionStore
path, id_ = sys.argv[1:]
store = SessionStore(path)
store.append(id_, User((Text("parent"),)))
pid = os.fork()
if pid:
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), store.append(id_, User((Text("p"),))))
else:
    store.append(id_, User((Text("child"),)))
"""


def test_a_forked_process_uses_a_connection_of_its_own(store: SessionStore, path: str) -> None:
    made = create(store)
    assert run(FORK, path, made.id) == "0 3\n"
    assert sent(store, made.id) == [user("parent"), user("child"), user("p")]


def test_threads_and_stores_append_side_by_side(store: SessionStore, path: str) -> None:
    made = create(store)
    stores = [store, SessionStore(path)]
    numbers: list[int] = []

    def work(mine: SessionStore) -> None:
        for n in range(50):
            numbers.append(mine.append(made.id, user(str(n))))

    threads = [threading.Thread(target=work, args=(each,)) for each in stores * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == list(range(1, 201))
    assert len(sent(store, made.id)) == 200
    stores[1].close()


def test_nothing_heavy_is_loaded_before_it_is_used() -> None:
    code = (
        "import sys; import clawkit.sessions.store; "
        "print([name for name in ('apsw', 'asyncio') if name in sys.modules])"
    )
    assert run(code).strip() == "[]"


APPEND = """
import sys
from clawkit.content import Text, User
from clawkit.sessions.store import SessionStore
path, id_ = sys.argv[1:]
store = SessionStore(path)
n = 0
while True:
    n += 1
    print(store.append(id_, User((Text(f"message {n} " + "x" * (n * 37 % 900)),))), flush=True)
"""


@pytest.mark.parametrize("round_", range(4))
def test_what_was_appended_outlives_the_process_however_it_ends(
    store: SessionStore, path: str, round_: int
) -> None:
    made = create(store)
    command = [sys.executable, "-c", APPEND, path, made.id]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        told = [child.stdout.readline() for _ in range(1 + 60 * round_)]
        child.kill()
        told += child.stdout.readlines()
    last = int([line for line in told if line.endswith("\n")][-1])
    found = sent(store, made.id)
    assert last <= len(found) <= last + 1
    for n, message in enumerate(found, 1):
        assert message == user(f"message {n} " + "x" * (n * 37 % 900))
    assert store.append(made.id, user("on it goes")) == len(found) + 1


# Where it is


@table(
    ("setting", "expected"),
    [
        (None, "/state/sessions.sqlite"),
        ("", "/state/sessions.sqlite"),
        ("/var/x.db", "/var/x.db"),
        ("~/x.db", "/h/x.db"),
        ("sub/x.db", "/state/sub/x.db"),
    ],
)
def test_the_store_is_in_the_state_directory_by_default(setting: str | None, expected: str) -> None:
    assert locate_store(setting, {"CLAWKIT_HOME": "/state", "HOME": "/h"}) == expected


@table(
    ("setting", "message"),
    [
        ("postgres://u:pw-secret@db/x", "PostgreSQL is not supported as a session store yet"),
        ("postgresql://db/x", "PostgreSQL is not supported"),
        ("redis://u:pw-secret@db", "a URL is not supported as a session store yet"),
        ("~/agents/sessions.json", "sessions are stored in a database"),
    ],
)
def test_another_kind_of_store_is_not_built_in(setting: str, message: str) -> None:
    config = loads(f'{{session: {{store: "{setting}"}}}}').config
    with pytest.raises(ConfigError, match=rf"session\.store: {message}") as caught:
        locate_store(config.session.store, {})
    assert "pw-secret" not in str(caught.value)


def test_no_method_is_left_out_of_what_tools_may_ask() -> None:
    from clawkit.sessions.protocols import Sessions

    sessions: Callable[[str], Sessions] = SessionStore
    assert sessions is SessionStore


def test_the_model_of_a_session_is_the_one_that_answered_last(store: SessionStore) -> None:
    made = create(store, model="")
    store.append(made.id, Assistant((Text("one"),), model="a/first"))
    store.append(made.id, Assistant((Text("two"),), model="b/second"))
    store.append(made.id, Assistant((Text("three"),)))
    assert store.get(made.id).model == "b/second"


def test_the_usage_of_a_summary_counts(store: SessionStore) -> None:
    made = create(store)
    number = store.append(made.id, user("hello"))
    store.compact(made.id, Summary("short", usage=Usage(7, 3, cost=0.5)), number)
    after = store.get(made.id)
    assert (after.usage.input, after.usage.output, after.usage.cost) == (7, 3, 0.5)
    assert after.context_tokens == 0


def test_a_label_can_be_changed_and_sessions_counted(tmp_path: Path) -> None:
    store = SessionStore(str(tmp_path / "sessions.sqlite"))
    everyone = Visible("", agents=("main", "other"))
    assert store.count(everyone, Filter()) == 0
    made = [store.create("main", workspace="/", name=name) for name in ("a", "b")]
    store.create("other", workspace="/", name="c")
    assert store.count(everyone, Filter()) == 3
    assert store.count(everyone, Filter(agent="main")) == 2
    assert store.update(made[0].id, label="one").label == "one"
    assert store.count(everyone, Filter(label="one")) == 1
    assert store.update(made[0].id, label="").label == ""
    store.close()


def test_results_of_runs_are_in_the_order_of_their_ends(store: SessionStore) -> None:
    ids = [f"run{number:02}" for number in range(40)]
    for id_ in ids:
        create(store, run=SubagentRun(id_, "", "root", "root", id_, "", "task"))
    for id_ in reversed(ids):  # many within one millisecond
        assert store.runs.finish(id_, RunOutcome("completed"))
        assert not store.runs.finish(id_, RunOutcome("failed"))
    assert [run.id for run in store.runs.untold("root")] == ids[::-1]
