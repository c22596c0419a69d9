"""Questions that wait on the disk."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from clawkit.approvals.binding import MAX_QUESTION
from clawkit.approvals.broker import (
    KEEP_ENDED,
    KEEP_MS,
    MAX_PENDING,
    MAX_TIMEOUT_MS,
    TAKE_WITHIN_MS,
    PendingStore,
)
from clawkit.approvals.types import Pending
from clawkit.core.approval import Answer, Lasting, Question
from clawkit.errors import (
    ConflictError,
    NotFoundError,
    ToolAuthorizationError,
    ToolError,
    ToolInputError,
)

NOW = 1_700_000_000_000
MINUTE = 60_000
ONCE = Answer("allow", by="ada")
NO = Answer("deny", "not today", by="ada")
ASKED = Question(
    "exec",
    {"command": "touch x"},
    "run: touch x",
    command="touch x",
    cwd="/work",
    notes=("touch is not on the list",),
    lasting=(Lasting("exact", "touch x in /work"), Lasting("program", "any touch")),
)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "home" / "approvals.sqlite")


@pytest.fixture
def waiting(path: str) -> Iterator[PendingStore]:
    store = PendingStore(path)
    yield store
    store.close()


def add(store: PendingStore, question: Question = ASKED, **given: Any) -> Pending:
    return store.add(question, given.get("binding", {}), given.get("now", NOW), MINUTE)


def edit(path: str, sql: str, *given: Any) -> None:
    """Tamper with the file."""
    db = apsw.Connection(path)
    db.execute(sql, given)
    db.close()


def run(code: str, *args: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Another process."""
    command = [sys.executable, "-c", code, *args]
    return subprocess.run(command, capture_output=True, text=True, check=True, **options)


def test_a_stored_question_is_read_back_unchanged(waiting: PendingStore, path: str) -> None:
    binding = {"cwd": {"inode": 2**63}, "env": "ab"}
    pending = add(waiting, binding=binding)
    assert (pending.created_ms, pending.expires_ms) == (NOW, NOW + MINUTE)
    assert len(pending.id) == 32
    assert pending.slug == pending.id[:8]
    other = PendingStore(path)
    found = other.get(pending.id)
    assert (found.question, found.binding, found.state) == (ASKED, binding, "pending")
    assert (found.id, found.created_ms, found.expires_ms) == (pending.id, NOW, NOW + MINUTE)
    assert not found.orphaned
    other.close()


@pytest.mark.parametrize(
    "text",
    ["a\0b", "\r\x1b[2K", "\u202etxt", "\ud83d\ude00", "\udcff", "x\ud800", "ﬀ\U0010ffff", '"\\'],
)
def test_no_character_is_lost_or_joined(waiting: PendingStore, text: str) -> None:
    question = replace(ASKED, command=text, agent=text, params={text: [text]})
    assert waiting.get(add(waiting, question).id).question == question


def test_parameters_may_be_any_mapping(waiting: PendingStore) -> None:
    question = replace(ASKED, params=MappingProxyType({"a": MappingProxyType({"b": 1})}))
    assert waiting.get(add(waiting, question).id).question.params == {"a": {"b": 1}}


def deep(levels: int = 100_000) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"params": {"a": object()}}, "object cannot be shown"),
        ({"params": {"a": float("nan")}}, "cannot be asked"),
        ({"params": {"a": deep()}}, "recursion"),
        ({"timeout_s": float("inf")}, "cannot be asked"),
        ({"title": 5}, "Expected `str`"),
        ({"lasting": (Lasting("everything", "x"),)}, "Invalid enum value"),  # type: ignore[arg-type]
        ({"command": "x" * MAX_QUESTION}, "the question is 2 MB, larger than 2 MB"),
    ],
)
def test_questions_that_cannot_be_shown_are_not_asked(
    waiting: PendingStore, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ToolInputError, match=message):
        add(waiting, replace(ASKED, **change))
    assert waiting.pending(NOW) == []


def test_the_file_and_its_directory_are_private(waiting: PendingStore, path: str) -> None:
    before = os.umask(0)
    try:
        add(waiting)
    finally:
        os.umask(before)
    folder = os.path.dirname(path)
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    names = sorted(os.listdir(folder))
    assert names == [f"approvals.sqlite{end}" for end in ("", "-shm", "-wal", ".lock")]
    for name in names:
        assert stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode) == 0o600


def test_values_are_not_in_the_file_when_the_question_has_ended(
    waiting: PendingStore, path: str
) -> None:
    kept = add(waiting)
    for end in ("decide", "expire", "withdraw", "used", "late"):
        pending = add(waiting)
        if end == "decide":
            waiting.decide(pending.id, NO, NOW)
        elif end == "used":
            waiting.decide(pending.id, ONCE, NOW)
            assert waiting.get(pending.id).question == ASKED
            assert waiting.consume(pending.id, NOW)
        elif end == "late":
            waiting.decide(kept.id, ONCE, NOW)
            waiting.pending(NOW + MINUTE)
        else:
            getattr(waiting, end)(pending.id, NOW)
        assert waiting.get(pending.id).question == replace(ASKED, params={}), end
    assert waiting.get(kept.id).question == ASKED


@pytest.mark.parametrize("length", [4, 8, 31, 32])
def test_a_question_is_found_by_the_beginning_of_its_id(waiting: PendingStore, length: int) -> None:
    pending = add(waiting)
    assert waiting.get(pending.id[:length]).id == pending.id
    assert waiting.get(f" {pending.id[:length].upper()}\n").id == pending.id


@pytest.mark.parametrize(
    "given",
    ["", "abc", "../../etc/passwd", "%", "____", "*", "abcd' OR 1", "abcd\0", "ａｂｃｄ", "f" * 33],
)
def test_an_invalid_id_finds_nothing(waiting: PendingStore, given: str) -> None:
    add(waiting)
    with pytest.raises(NotFoundError, match="invalid request id") as caught:
        waiting.get(given)
    assert str(caught.value).isprintable()
    for act in (waiting.answer, lambda id_: waiting.decide(id_, ONCE, NOW)):
        with pytest.raises(NotFoundError, match="unknown request"):
            act(given)
    assert not waiting.consume(given)
    assert len(waiting.pending(NOW)) == 1


def test_a_beginning_is_enough_to_find_but_not_to_decide(waiting: PendingStore) -> None:
    pending = add(waiting)
    for act in (waiting.answer, lambda id_: waiting.decide(id_, ONCE, NOW)):
        with pytest.raises(NotFoundError, match="unknown request"):
            act(pending.id[:31])


@pytest.mark.parametrize(("count", "more"), [(2, ""), (12, " and more")])
def test_an_ambiguous_beginning_names_the_candidates(
    waiting: PendingStore, path: str, count: int, more: str
) -> None:
    for number in range(count):
        pending = add(waiting, replace(ASKED, title=f"question {number}"))
        edit(
            path,
            "UPDATE question SET id = ? WHERE id = ?",
            f"abcd{number:x}" + "0" * 27,
            pending.id,
        )
    with pytest.raises(ToolInputError, match="abcd00000000, abcd10000000") as caught:
        waiting.get("abcd")
    assert not isinstance(caught.value, NotFoundError)
    assert str(caught.value).endswith(f"0000{more}")
    assert waiting.get("abcd1").id == "abcd1" + "0" * 27


def test_an_unknown_id_is_an_error(waiting: PendingStore) -> None:
    with pytest.raises(NotFoundError, match="unknown request 'deadbeef'"):
        waiting.get("deadbeef")


def test_pending_questions_are_listed_oldest_first(waiting: PendingStore) -> None:
    late = add(waiting, now=NOW + 5)
    early = add(waiting)
    assert [each.id for each in waiting.pending(NOW + 9)] == [early.id, late.id]


def test_expired_questions_are_not_listed_and_cannot_be_answered(waiting: PendingStore) -> None:
    pending = add(waiting)
    assert [each.id for each in waiting.pending(NOW + MINUTE - 1)] == [pending.id]
    assert waiting.answer(pending.id, NOW + MINUTE - 1) is None
    with pytest.raises(ConflictError, match="expired 5s ago and counts as refused"):
        waiting.decide(pending.id, ONCE, NOW + MINUTE + 5000)
    assert waiting.answer(pending.id, NOW + MINUTE) == Answer(
        "deny", "no answer within 1m", silent=True
    )
    assert waiting.pending(NOW + MINUTE) == []
    assert waiting.get(pending.id).state == "expired"
    # Not even when the clock was set back.
    with pytest.raises(ConflictError, match="expired"):
        waiting.decide(pending.id, ONCE, NOW)
    answer = waiting.answer(pending.id, NOW)
    assert answer is not None
    assert answer.silent
    assert not waiting.consume(pending.id, NOW)


@pytest.mark.parametrize(
    ("timeout_ms", "kept_ms"), [(-5, 0), (0, 0), (7, 7), (10**15, MAX_TIMEOUT_MS)]
)
def test_no_question_waits_for_ever(waiting: PendingStore, timeout_ms: int, kept_ms: int) -> None:
    assert waiting.add(ASKED, {}, NOW, timeout_ms).expires_ms == NOW + kept_ms


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (ONCE, "allowed"),
        (NO, "denied"),
        (Answer("allow", "fine", "exact", "ada"), "allowed"),
        (Answer("allow", "\udcff\0", "program", "bob"), "allowed"),
    ],
)
def test_an_answer_is_kept_with_its_author(
    waiting: PendingStore, answer: Answer, state: str
) -> None:
    pending = add(waiting)
    waiting.decide(pending.id, answer, NOW + 1)
    assert waiting.answer(pending.id) == answer
    assert waiting.get(pending.id).state == state
    assert waiting.pending(NOW + 1) == []


def test_words_of_an_answer_are_bounded(waiting: PendingStore) -> None:
    pending = add(waiting)
    waiting.decide(pending.id, Answer("deny", "r" * 10**6, by="b\n" * 10**6), NOW)
    answer = waiting.answer(pending.id)
    assert answer is not None
    assert len(answer.reason) < 2_100
    assert len(answer.by) <= 200
    assert "\n" not in answer.by


@pytest.mark.parametrize("second", [ONCE, NO, Answer("allow", extent="program")])
@pytest.mark.parametrize(
    ("first", "words"),
    [
        (ONCE, "allow-once by ada, 3s ago"),
        (NO, "deny by ada, 3s ago"),
        (Answer("allow", extent="exact"), "allow-always by a person, 3s ago"),
    ],
)
def test_the_second_answer_is_refused_with_the_first(
    waiting: PendingStore, first: Answer, words: str, second: Answer
) -> None:
    pending = add(waiting)
    waiting.decide(pending.id, first, NOW)
    with pytest.raises(ConflictError, match=f"{pending.slug} was already answered: {words}"):
        waiting.decide(pending.id, second, NOW + 3000)
    assert waiting.answer(pending.id) == first


def test_a_used_approval_is_still_reported_to_late_waiters(waiting: PendingStore) -> None:
    pending = add(waiting)
    waiting.decide(pending.id, ONCE, NOW)
    assert waiting.consume(pending.id, NOW)
    with pytest.raises(ConflictError, match="already answered: allow-once by ada"):
        waiting.decide(pending.id, NO, NOW + 1)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Answer("allow", extent="subcommand"), "'subcommand' was not offered, only 'exact' or 'pr"),
        (Answer("deny", extent="exact"), "only an approval can be made permanent"),
        (Answer("deny", silent=True), "an answer must not be silent"),
        (Answer("maybe"), "it must be allow or deny"),  # type: ignore[arg-type]
        ("allow", "it must be allow or deny"),
        (Answer("allow", by=None), "must be strings"),  # type: ignore[arg-type]
    ],
)
def test_an_answer_that_was_not_offered_is_refused(
    waiting: PendingStore, answer: Any, message: str
) -> None:
    pending = add(waiting)
    with pytest.raises(ToolInputError, match=message):
        waiting.decide(pending.id, answer, NOW)
    assert waiting.get(pending.id).state == "pending"


def test_an_approval_is_used_once(waiting: PendingStore) -> None:
    pending = add(waiting)
    assert not waiting.consume(pending.id, NOW)
    waiting.decide(pending.id, ONCE, NOW)
    assert [waiting.consume(pending.id, NOW + 1) for _ in range(3)] == [True, False, False]


def test_a_denial_cannot_be_consumed(waiting: PendingStore) -> None:
    pending = add(waiting)
    waiting.decide(pending.id, NO, NOW)
    assert not waiting.consume(pending.id, NOW)


def test_an_approval_expires(waiting: PendingStore) -> None:
    end = NOW + MINUTE + TAKE_WITHIN_MS
    late, timely = add(waiting), add(waiting)
    for pending in (late, timely):
        waiting.decide(pending.id, ONCE, NOW)
    assert not waiting.consume(late.id, end)
    assert waiting.consume(timely.id, end - 1)
    assert not waiting.consume(late.id)


def test_the_system_clock_is_used_by_default(waiting: PendingStore) -> None:
    import time

    now_ms = int(time.time() * 1000)
    fresh, old = add(waiting, now=now_ms), add(waiting, now=now_ms - MINUTE)
    assert waiting.answer(fresh.id) is None
    assert waiting.answer(old.id) is not None
    waiting.decide(fresh.id, ONCE, now_ms)
    assert waiting.consume(fresh.id)


def test_withdrawn_questions_can_be_neither_answered_nor_used(waiting: PendingStore) -> None:
    pending, allowed = add(waiting), add(waiting)
    waiting.decide(allowed.id, ONCE, NOW)
    assert waiting.withdraw(pending.id, NOW)
    assert waiting.withdraw(allowed.id, NOW)
    assert not waiting.withdraw(allowed.id, NOW)
    assert not waiting.consume(allowed.id, NOW)
    assert waiting.pending(NOW) == []
    assert waiting.answer(pending.id) == Answer(
        "deny", "the question was withdrawn before it was answered"
    )
    with pytest.raises(ConflictError, match="was withdrawn 2s ago by the process that made it"):
        waiting.decide(pending.id, ONCE, NOW + 2000)


def test_expiring_leaves_an_answer_alone(waiting: PendingStore) -> None:
    answered, silent = add(waiting), add(waiting)
    waiting.decide(answered.id, ONCE, NOW)
    assert not waiting.expire(answered.id)
    assert waiting.expire(silent.id, NOW)
    assert waiting.answer(answered.id) == ONCE
    assert waiting.consume(answered.id, NOW)


def test_questions_that_ended_long_ago_are_deleted(waiting: PendingStore) -> None:
    old, fresh = add(waiting), add(waiting)
    waiting.decide(old.id, NO, NOW)
    waiting.decide(fresh.id, NO, NOW + 10)
    # Whoever asks something new clears away what is old.
    open_ = add(waiting, now=NOW + KEEP_MS)
    assert waiting.get(old.id).state == "denied"
    add(waiting, now=NOW + KEEP_MS + 1)
    assert waiting.get(fresh.id).state == "denied"
    assert waiting.get(open_.id).state == "pending"
    with pytest.raises(NotFoundError):
        waiting.get(old.id)


def test_the_number_of_ended_questions_is_limited(waiting: PendingStore, path: str) -> None:
    first = add(waiting)
    waiting.decide(first.id, NO, NOW)
    copy = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
        " INSERT INTO question SELECT printf('%032x', i), state, agent, owner, created_ms,"
        " expires_ms, ended_ms + i, fields, params, binding, answer FROM question, n"
    )
    edit(path, copy, KEEP_ENDED)
    assert waiting.get(first.id).state == "denied"
    add(waiting)
    with pytest.raises(NotFoundError):
        waiting.get(first.id)
    assert waiting.get(f"{KEEP_ENDED:032x}").state == "denied"


def test_the_number_of_questions_of_an_agent_is_limited(waiting: PendingStore, path: str) -> None:
    first = add(waiting)
    copy = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
        " INSERT INTO question SELECT printf('%032x', i), state, agent, owner || 'x', created_ms,"
        " expires_ms, ended_ms, fields, params, binding, answer FROM question, n"
    )
    edit(path, copy, MAX_PENDING - 2)
    last = add(waiting)
    with pytest.raises(
        ToolAuthorizationError, match="200 requests of 'main' are pending"
    ) as caught:
        add(waiting)
    assert caught.value.reason == "approval-limit"
    assert len(waiting.pending(NOW)) == MAX_PENDING
    # Others can still ask, and it can again when something ended.
    add(waiting, replace(ASKED, agent="other"))
    waiting.decide(last.id, NO, NOW)
    add(waiting)
    with pytest.raises(ToolAuthorizationError):
        add(waiting)
    assert add(waiting, now=first.expires_ms).created_ms == first.expires_ms


DECIDE = """
import sys
from clawkit.approvals.broker import PendingStore
from clawkit.core.approval import Answer
from clawkit.errors import ConflictError
path, id_, now, who = sys.argv[1:]
store = PendingStore(path)
store.get(id_)
print("ready", flush=True)
sys.stdin.readline()
try:
    store.decide(id_, Answer("allow", by=who), int(now))
    print("won", store.consume(id_, int(now)))
except ConflictError as error:
    print("late", store.consume(id_, int(now)), error)
"""


def test_one_of_many_concurrent_decisions_wins(waiting: PendingStore, path: str) -> None:
    pending = add(waiting)
    command = [sys.executable, "-c", DECIDE, path, pending.id, str(NOW + 1)]
    started = [
        subprocess.Popen(
            [*command, f"p{number}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for number in range(4)
    ]
    for each in started:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    for each in started:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    said = [each.communicate()[0] for each in started]
    won = [number for number, text in enumerate(said) if text.startswith("won")]
    assert len(won) == 1
    assert all(
        f"was already answered: allow-once by p{won[0]}" in text
        for number, text in enumerate(said)
        if number not in won
    )
    # Whoever decided: the yes was used by one of them only.
    assert sum(" True" in text for text in said) == 1
    answer = waiting.answer(pending.id)
    assert answer is not None
    assert answer.by == f"p{won[0]}"


def test_only_one_of_many_threads_can_use_an_approval(waiting: PendingStore) -> None:
    pending = add(waiting)
    waiting.decide(pending.id, ONCE, NOW)
    barrier, got = threading.Barrier(8), []

    def take() -> None:
        barrier.wait()
        got.append(waiting.consume(pending.id, NOW))

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == [False] * 7 + [True]


ASK = """
import os, sys
from clawkit.approvals.broker import PendingStore
from clawkit.core.approval import Question
print(PendingStore(sys.argv[1]).add(Question("exec", {}, "t"), {}, int(sys.argv[2]), 60_000).id)
sys.stdout.flush()
os._exit(0)
"""


def test_a_question_outlives_its_asker_and_shows_it(waiting: PendingStore, path: str) -> None:
    id_ = run(ASK, path, str(NOW)).stdout.strip()
    mine = add(waiting)
    shown = {each.id: each.orphaned for each in waiting.pending(NOW)}
    assert shown == {id_: True, mine.id: False}
    waiting.decide(id_, ONCE, NOW)
    assert waiting.get(id_).orphaned
    assert waiting.consume(id_, NOW)
    assert not waiting.get(id_).orphaned


@pytest.mark.parametrize(
    ("change", "orphaned"),
    [
        (lambda pid, since, boot, space: f"{pid} {since} {boot} {space}", False),
        (lambda pid, since, boot, space: f"{pid} {int(since) + 1} {boot} {space}", True),
        (lambda pid, since, boot, space: f"{2**22 + 1} {since} {boot} {space}", True),
        (lambda pid, since, boot, space: f"{pid} {since} {boot} pid:[1]", False),
        (lambda pid, since, boot, space: f"{pid} {since} {boot}x {space}", True),
        (lambda pid, since, boot, space: f"{pid} {since} ", False),
    ],
)
def test_a_question_is_orphaned_only_if_its_process_has_certainly_ended(
    waiting: PendingStore, path: str, change: Callable[..., str], orphaned: bool
) -> None:
    from clawkit.approvals.binding import identify_process

    pending = add(waiting)
    owner = change(*identify_process().split(" "))
    edit(path, "UPDATE question SET owner = ?", owner)
    assert waiting.get(pending.id).orphaned is orphaned
    waiting.decide(pending.id, NO, NOW)
    assert not waiting.get(pending.id).orphaned


FORK = """
import os, sys
from clawkit.approvals.broker import PendingStore
from clawkit.core.approval import Answer
path, id_, now = sys.argv[1:]
store = PendingStore(path)
store.get(id_)
pid = os.fork()
if pid:
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), store.consume(id_, int(now)))
else:
    store.decide(id_, Answer("allow"), int(now))
"""


def test_a_forked_process_uses_a_connection_of_its_own(waiting: PendingStore, path: str) -> None:
    pending = add(waiting)
    assert run(FORK, path, pending.id, str(NOW)).stdout == "0 True\n"
    assert waiting.get(pending.id).state == "used"


def test_a_database_that_was_removed_or_replaced_forgets_everything(
    waiting: PendingStore, path: str, tmp_path: Path
) -> None:
    pending = add(waiting)
    waiting.decide(pending.id, ONCE, NOW)
    # Only the file itself: what is left of it must not come back to life in the next one.
    os.unlink(path)
    assert not waiting.consume(pending.id, NOW)
    with pytest.raises(NotFoundError):
        waiting.answer(pending.id)
    other = PendingStore(str(tmp_path / "other.sqlite"))
    kept = add(other)
    other.close()
    os.replace(other.path, path)
    assert waiting.get(kept.id).state == "pending"


def test_concurrent_stores_create_one_database(path: str) -> None:
    # SQLite's lock is not fair: on a busy machine one of them waits longer than usual.
    stores = [PendingStore(path, lock_wait_s=60) for _ in range(6)]
    barrier = threading.Barrier(len(stores))

    def work(store: PendingStore) -> None:
        barrier.wait()
        add(store)

    with ThreadPoolExecutor(len(stores)) as pool:
        # Raises what one of them raised.
        assert len(list(pool.map(work, stores))) == 6
    assert len(stores[0].pending(NOW)) == 6
    for store in stores:
        store.close()


def use_all(store: PendingStore, id_: str) -> list[str]:
    """What every method says about a store that cannot be used."""
    said = []
    for act in (
        lambda: add(store),
        lambda: store.get(id_),
        lambda: store.pending(NOW),
        lambda: store.decide(id_, ONCE, NOW),
        lambda: store.answer(id_),
        lambda: store.consume(id_),
        lambda: store.withdraw(id_),
    ):
        with pytest.raises(ToolError) as caught:
            act()
        assert not isinstance(caught.value, ToolInputError)
        said.append(str(caught.value))
    return said


@pytest.mark.parametrize("content", [b"", b"{}", b"x" * 10_000, b"SQLite format 3\0" + b"\0" * 99])
def test_a_damaged_file_allows_nothing(path: str, content: bytes) -> None:
    os.mkdir(os.path.dirname(path), 0o700)
    with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as file:
        file.write(content)
    for said in use_all(PendingStore(path), "f" * 32):
        assert said.startswith(f"{path}: the store of pending approvals cannot be used: it is ")
        assert said.endswith("; move it away")
    assert Path(path).read_bytes() == content


def test_a_file_that_gets_damaged_allows_nothing(waiting: PendingStore, path: str) -> None:
    pending = add(waiting)
    waiting.decide(pending.id, ONCE, NOW)
    waiting.close()
    with open(path, "r+b") as file:
        file.seek(4096)
        file.write(os.urandom(os.path.getsize(path) - 4096))
    with pytest.raises(ToolError, match="damaged; move it away"):
        waiting.consume(pending.id, NOW)


def test_a_database_of_another_version_is_left_alone(waiting: PendingStore, path: str) -> None:
    add(waiting)
    waiting.close()
    edit(path, "PRAGMA user_version = 2")
    for said in use_all(waiting, "f" * 32):
        assert "it is not a database of this version of clawkit" in said


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("fields = x'7b'", "the question .* is damaged"),
        ("fields = x'5b5d'", "the question .* is damaged"),
        ("fields = x'ff'", "the question .* is damaged"),
        ("fields = CAST('{\"tool\": 1}' AS BLOB)", "the question .* is damaged"),
        ("params = CAST('NaN' AS BLOB)", "the question .* is damaged: NaN is not JSON"),
        ("binding = x'00'", "the question .* is damaged"),
        ("owner = 'x'", "the question .* is damaged"),
        ("params = CAST(replace(hex(zeroblob(50000)), '0', '[') AS BLOB)", "nested too deep"),
    ],
)
def test_a_question_that_was_tampered_with_is_not_shown(
    waiting: PendingStore, path: str, change: str, message: str
) -> None:
    pending = add(waiting)
    edit(path, f"UPDATE question SET {change}")
    for act in (waiting.get, lambda id_: waiting.decide(id_, ONCE, NOW)):
        with pytest.raises(ToolError, match=message):
            act(pending.id)
    with pytest.raises(ToolError, match=message):
        waiting.pending(NOW)


@pytest.mark.parametrize(
    "change",
    [
        "answer = NULL",
        "answer = x'7b'",
        "answer = x'5b5d'",
        'answer = CAST(\'{"verdict": "allow"}\' AS BLOB)',
        "state = 'fine'",
    ],
)
def test_a_tampered_answer_is_an_error(waiting: PendingStore, path: str, change: str) -> None:
    pending = add(waiting)
    waiting.decide(pending.id, NO, NOW)
    edit(path, f"UPDATE question SET {change}")
    with pytest.raises(ToolError, match=r"the answer to .* is damaged"):
        waiting.answer(pending.id)
    with pytest.raises(ToolError, match=r"the answer to .* is damaged"):
        waiting.decide(pending.id, ONCE, NOW)


def make_link(path: str) -> None:
    Path(f"{path}.real").touch(0o600)
    os.symlink(f"{path}.real", path)


def make_open(path: str) -> None:
    Path(path).touch()
    os.chmod(path, 0o640)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (os.mkdir, "not a file that belongs to you"),
        (os.mkfifo, "not a file that belongs to you"),
        (make_link, "not a file that belongs to you"),
        (lambda path: os.symlink("/nowhere", path), "not a file that belongs to you"),
        (make_open, "open to other users; run `chmod 600`"),
        (lambda path: os.chmod(os.path.dirname(path), 0o770), "can be written by others"),
    ],
)
def test_a_file_that_others_can_change_is_not_used(
    path: str, make: Callable[[str], None], message: str
) -> None:
    os.mkdir(os.path.dirname(path), 0o700)
    make(path)
    for said in use_all(PendingStore(path), "f" * 32):
        assert message in said


def test_a_home_behind_a_link_is_fine(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(0o700)
    (tmp_path / "home").symlink_to("real")
    store = PendingStore(str(tmp_path / "home" / "approvals.sqlite"))
    pending = add(store)
    assert store.get(pending.id).question == ASKED
    store.close()


def test_a_locked_database_is_an_error_until_it_is_released(path: str) -> None:
    store = PendingStore(path, lock_wait_s=0.01)
    pending = add(store)
    other = apsw.Connection(path)
    other.execute("BEGIN IMMEDIATE")
    for act in (
        lambda: add(store),
        lambda: store.decide(pending.id, ONCE, NOW),
        lambda: store.consume(pending.id, NOW),
    ):
        with pytest.raises(ToolError, match="it is locked by another process"):
            act()
    # Whoever waits for an answer is not held up.
    assert store.answer(pending.id, NOW) is None
    other.execute("ROLLBACK")
    other.close()
    store.decide(pending.id, ONCE, NOW)
    store.close()


FULL = """
import resource, sys
from clawkit.approvals.broker import PendingStore
from clawkit.core.approval import Answer
from clawkit.errors import ToolError
path, id_, now = sys.argv[1:]
store = PendingStore(path)
store.get(id_)
limits = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
for act in (
    lambda: store.decide(id_, Answer("allow"), int(now)),
    lambda: store.consume(id_, int(now)),
):
    try:
        print(act())
    except ToolError as error:
        print(error)
print(store.answer(id_, int(now)))
resource.setrlimit(resource.RLIMIT_FSIZE, limits)
"""


@pytest.mark.parametrize("decided", [False, True])
def test_a_decision_that_cannot_be_stored_does_not_count(
    waiting: PendingStore, path: str, decided: bool
) -> None:
    pending = add(waiting)
    if decided:
        waiting.decide(pending.id, ONCE, NOW)
    decide, consume, *_, answer = run(FULL, path, pending.id, str(NOW)).stdout.splitlines()
    if decided:
        assert "cannot be read or written; is the disk full?" in consume
    else:
        assert "cannot be read or written; is the disk full?" in decide
        assert consume == "False"
        assert answer == "None"
    assert waiting.get(pending.id).state == ("allowed" if decided else "pending")


async def test_nothing_heavy_is_loaded_before_it_is_used() -> None:
    code = (
        "import sys; import clawkit.approvals.broker; "
        "print([name for name in ('apsw', 'asyncio') if name in sys.modules])"
    )
    done = await asyncio.to_thread(run, code)
    assert done.stdout.strip() == "[]"


def test_ended_questions_are_listed_latest_first(waiting: PendingStore) -> None:
    ids = [waiting.add(ASKED, {}, NOW, MINUTE).id for _ in range(4)]
    for number, id_ in enumerate(ids[:3]):
        waiting.decide(id_, NO, NOW + min(number, 1))
    found = waiting.ended(2, (NOW + MINUTE, ""))
    assert [each.ended_ms for each in found] == [NOW + 1, NOW + 1]
    assert [each.id for each in found] == sorted(ids[1:3], reverse=True)
    [rest] = waiting.ended(2, (found[-1].ended_ms, found[-1].id))
    assert (rest.id, rest.state, rest.ended_ms) == (ids[0], "denied", NOW)
    assert waiting.get(ids[3]).ended_ms == 0


LEAVE = """
import os, sys
from clawkit.approvals.broker import PendingStore
from tests.approvals.test_pending_store import add
for path in sys.stdin:
    if pid := os.fork():
        os.waitpid(pid, 0)
        print("ended", flush=True)
    else:
        print(add(PendingStore(path.rstrip())).id, flush=True)
        os._exit(0)
"""


@pytest.fixture(scope="module")
def leaving() -> Iterator[subprocess.Popen[str]]:
    """Asks in copies of itself, which end."""
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    pipe, command = subprocess.PIPE, [sys.executable, "-c", LEAVE]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=env) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture
def left(leaving: subprocess.Popen[str], path: str) -> str:
    """The id of a question whose process has ended."""
    assert leaving.stdin is not None
    assert leaving.stdout is not None
    print(path, file=leaving.stdin, flush=True)
    id_ = leaving.stdout.readline().rstrip()
    assert leaving.stdout.readline() == "ended\n"
    return id_


def test_a_question_that_was_left_behind_is_taken_over_once(
    waiting: PendingStore, left: str
) -> None:
    assert waiting.get(left).orphaned
    taken = add(waiting, replace(ASKED, call_id="new"), now=NOW + 1_000)
    assert (taken.id, taken.created_ms, taken.expires_ms) == (left, NOW, NOW + MINUTE)
    found = waiting.get(left)
    assert (found.question.call_id, found.orphaned) == ("new", False)
    assert add(waiting).id != left
    waiting.decide(left, ONCE, NOW)
    assert waiting.consume(left, NOW)


@pytest.mark.parametrize(
    ("question", "binding", "now"),
    [
        (replace(ASKED, params={"command": "touch y"}), {}, NOW),
        (replace(ASKED, session="other"), {}, NOW),
        (replace(ASKED, agent="other"), {}, NOW),
        (replace(ASKED, cwd="/elsewhere"), {}, NOW),
        (replace(ASKED, notes=()), {}, NOW),
        (ASKED, {"program": "/bin/other"}, NOW),
        (ASKED, {}, NOW + MINUTE),
    ],
)
def test_another_question_takes_nothing_over(
    waiting: PendingStore, left: str, question: Question, binding: dict[str, str], now: int
) -> None:
    assert add(waiting, question, binding=binding, now=now).id != left


def test_a_question_that_was_left_behind_is_withdrawn_if_what_it_is_bound_to_has_changed(
    waiting: PendingStore, left: str
) -> None:
    ours = add(waiting, binding={"salt": "0"})
    seen: list[Any] = []

    def changed(old: Any) -> str:
        seen.append(old)
        return "the script has changed"

    fresh = waiting.add(ASKED, {"salt": "1"}, NOW + 1, MINUTE, changed=changed)
    assert fresh.id not in (left, ours.id)
    assert seen == [{}]
    assert (waiting.get(left).state, waiting.get(left).ended_ms) == ("withdrawn", NOW + 1)
    assert [each.id for each in waiting.pending(NOW)] == [ours.id, fresh.id]
    assert not waiting.consume(left, NOW)


def test_a_question_that_was_left_behind_is_taken_over_if_nothing_has_changed(
    waiting: PendingStore, left: str
) -> None:
    taken = waiting.add(ASKED, {"salt": "1"}, NOW + 1, MINUTE, changed=lambda _old: "")
    assert (taken.id, waiting.get(left).binding) == (left, {"salt": "1"})
    assert [each.id for each in waiting.pending(NOW)] == [left]


@pytest.mark.parametrize("binding", [b"{", b"1"])
def test_a_damaged_question_is_not_taken_over(
    waiting: PendingStore, path: str, left: str, binding: bytes
) -> None:
    edit(path, "UPDATE question SET binding = ?", binding)
    with pytest.raises(ToolError, match="is damaged"):
        waiting.add(ASKED, {}, NOW, MINUTE, changed=lambda _old: "")


def test_an_answer_that_was_left_behind_is_asked_for_again(
    waiting: PendingStore, left: str
) -> None:
    waiting.decide(left, ONCE, NOW)
    assert add(waiting).id != left


def test_a_process_that_has_replaced_itself_takes_over_its_own(
    waiting: PendingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = add(waiting).id
    monkeypatch.setattr("clawkit.approvals.broker._asked", {})  # as after exec
    assert waiting.get(id_).orphaned
    assert add(waiting).id == id_
    monkeypatch.setattr("clawkit.approvals.broker.MAX_ASKED", 1)
    assert not waiting.get(add(waiting).id).orphaned
    assert waiting.get(id_).orphaned


def test_an_id_can_be_given_and_is_given_once(waiting: PendingStore) -> None:
    id_ = "ab" * 16
    assert waiting.add(ASKED, {}, NOW, MINUTE, id_=id_).id == waiting.get(id_).id == id_
    with pytest.raises(ConflictError, match="another request has this id"):
        waiting.add(ASKED, {}, NOW, MINUTE, id_=id_)
    assert waiting.withdraw(id_, NOW)
    with pytest.raises(ConflictError, match="another request has this id"):
        waiting.add(ASKED, {}, NOW, MINUTE, id_=id_)
