"""Who is asked, and whose answer counts."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from clawkit.approvals import protocols, types
from clawkit.approvals.broker import MAX_PENDING, Broker, PendingStore
from clawkit.approvals.socket import serve
from clawkit.core.approval import Answer, Lasting, Question
from clawkit.errors import (
    ConflictError,
    NotFoundError,
    ToolAuthorizationError,
    ToolError,
    ToolInputError,
)
from clawkit.testing import ScriptedApprover

TOKEN = "t" * 32
ASKED = Question(
    "exec",
    {},
    "run: touch x",
    command="touch x",
    timeout_s=60,
    lasting=(Lasting("exact", "touch x"), Lasting("program", "touch")),
)


@pytest.fixture
def home() -> Iterator[str]:
    """A directory with a short name, as sockets need."""
    folder = tempfile.mkdtemp(dir="/tmp")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def waiting(home: str) -> Iterator[PendingStore]:
    store = PendingStore(os.path.join(home, "approvals.sqlite"))
    yield store
    store.close()


class Silent:
    """A prompt that nobody answers."""

    keeps_questions = False

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.stopped = asyncio.Event()

    async def ask(self, _request: Question) -> Answer:
        self.asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped.set()
        raise AssertionError


class Says:
    """A surface that says, or raises, something of its own."""

    def __init__(self, said: object) -> None:
        self.said = said

    async def ask(self, _request: Question) -> Any:
        if isinstance(self.said, BaseException):
            raise self.said
        return self.said


def now_ms() -> int:
    return int(time.time() * 1000)


async def only(waiting: PendingStore) -> types.Pending:
    """The one question that waits."""
    while not (found := waiting.pending(now_ms())):
        await asyncio.sleep(0.01)
    (one,) = found
    return one


def states(waiting: PendingStore) -> list[str]:
    db = apsw.Connection(waiting.path)
    found = [str(state) for (state,) in db.execute("SELECT state FROM question")]
    db.close()
    return found


def test_the_broker_implements_the_approvals_protocol(waiting: PendingStore) -> None:
    assert isinstance(Broker(waiting), protocols.Approvals)


@pytest.mark.parametrize(
    ("options", "route"),
    [
        ({}, "none"),
        ({"later": True}, "later"),
        ({"approver": Says(None)}, "wait"),
        ({"approver": Says(None), "later": True}, "wait"),
        ({"socket": ("/nowhere/s.sock", TOKEN)}, "none"),
        ({"socket": ("/nowhere/s.sock", TOKEN), "later": True}, "later"),
        ({"socket": lambda: None}, "none"),
        ({"socket": lambda: ("/nowhere/s.sock", TOKEN)}, "none"),
    ],
)
def test_the_route_names_who_can_answer(waiting: PendingStore, options: Any, route: str) -> None:
    assert Broker(waiting, **options).route() == route


@pytest.mark.parametrize("lazy", [False, True])
async def test_a_served_socket_is_a_route(waiting: PendingStore, home: str, lazy: bool) -> None:
    path = f"{home}/s.sock"
    socket: Any = (lambda: (path, TOKEN)) if lazy else (path, TOKEN)
    async with served(path, Says(Answer("deny"))):
        assert await asyncio.to_thread(Broker(waiting, socket=socket).route) == "wait"


@asynccontextmanager
async def served(path: str, approver: Any) -> AsyncIterator[None]:
    """A server in a loop of its own, as one in another process has."""
    loop = asyncio.new_event_loop()
    thread = asyncio.create_task(asyncio.to_thread(loop.run_forever))

    async def run(work: Any) -> Any:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))

    server = await run(serve(path, TOKEN, approver.ask))
    try:
        yield
    finally:
        await run(server.close())
        loop.call_soon_threadsafe(loop.stop)
        await thread
        loop.close()


async def test_without_an_approver_the_question_is_denied(waiting: PendingStore) -> None:
    answer = await Broker(waiting).ask(ASKED)
    assert answer == Answer("deny", "no one can be asked here", silent=True)
    assert waiting.pending(now_ms()) == []


@pytest.mark.parametrize(
    ("said", "state"),
    [
        (Answer("allow", by="ada"), "used"),
        (Answer("allow", "ok", "program", "ada"), "used"),
        (Answer("deny", "no", by="ada"), "denied"),
    ],
)
async def test_the_local_approver_is_asked(waiting: PendingStore, said: Answer, state: str) -> None:
    approver = ScriptedApprover(said)
    assert await Broker(waiting, approver=approver).ask(ASKED) == said
    assert approver.requests == [ASKED]
    assert states(waiting) == [state]


async def test_an_answer_without_a_name_is_attributed_to_a_person(waiting: PendingStore) -> None:
    answer = await Broker(waiting, approver=ScriptedApprover("allow")).ask(ASKED)
    assert answer == Answer("allow", by="a person")


async def test_the_binding_is_stored_with_the_question(waiting: PendingStore) -> None:
    broker = Broker(waiting, later=True)
    assert waiting.get(broker.submit(ASKED, {"cwd": "x"}).id).binding == {"cwd": "x"}
    task = asyncio.create_task(Broker(waiting, approver=Silent()).ask(ASKED, {"cwd": "y"}))
    while len(found := waiting.pending(now_ms())) < 2:
        await asyncio.sleep(0.01)
    assert {each.binding["cwd"] for each in found} == {"x", "y"}
    task.cancel()


async def test_the_person_at_the_socket_is_asked(waiting: PendingStore, home: str) -> None:
    path, said = f"{home}/s.sock", Answer("allow", by="eve")
    async with served(path, Says(said)):
        assert await Broker(waiting, socket=(path, TOKEN)).ask(ASKED) == said
        # Also about what is answered after the call.
        broker = Broker(waiting, socket=(path, TOKEN), later=True)
        assert await broker.outcome(broker.submit(ASKED)) == said
    assert states(waiting) == ["used", "used"]


async def test_all_are_asked_and_the_first_answer_counts(waiting: PendingStore, home: str) -> None:
    path, prompt = f"{home}/s.sock", Silent()
    async with served(path, Says(Answer("deny", "from afar", by="eve"))):
        broker = Broker(waiting, approver=prompt, socket=(path, TOKEN))
        assert (await broker.ask(ASKED)).reason == "from afar"
    # The prompt was there, and went away.
    assert prompt.asked.is_set()
    assert prompt.stopped.is_set()


async def test_prompts_on_other_surfaces_are_closed_too(waiting: PendingStore, home: str) -> None:
    path = f"{home}/s.sock"
    asked = asyncio.Event()
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()

    class Elsewhere:
        async def ask(self, _request: Question) -> Answer:
            loop.call_soon_threadsafe(asked.set)
            try:
                await asyncio.Event().wait()
            finally:
                loop.call_soon_threadsafe(stopped.set)
            raise AssertionError

    class Here:
        async def ask(self, _request: Question) -> Answer:
            await asked.wait()
            return Answer("deny", by="ada")

    async with served(path, Elsewhere()):
        assert (await Broker(waiting, approver=Here(), socket=(path, TOKEN)).ask(ASKED)).by == "ada"
        await stopped.wait()


RESOLVE = """
import sys
from clawkit.approvals.broker import Broker
from clawkit.approvals.broker import PendingStore
from clawkit.errors import ToolError
path, id_, choice = sys.argv[1:]
try:
    done = Broker(PendingStore(path)).resolve(id_, choice, actor="another process", authorized=True)
    print(done.state)
except ToolError as error:
    print(error)
"""


def resolve_elsewhere(path: str, id_: str, choice: str) -> str:
    command = [sys.executable, "-c", RESOLVE, path, id_, choice]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("choice", "answer"),
    [
        ("allow-once", Answer("allow", by="another process")),
        ("allow-always", Answer("allow", extent="exact", by="another process")),
        ("deny", Answer("deny", by="another process")),
    ],
)
async def test_another_process_can_answer(
    waiting: PendingStore, choice: str, answer: Answer
) -> None:
    prompt = Silent()
    task = asyncio.create_task(Broker(waiting, approver=prompt).ask(ASKED))
    pending = await only(waiting)
    said = await asyncio.to_thread(resolve_elsewhere, waiting.path, pending.slug, choice)
    assert said in ("allowed", "denied", "used")
    assert await task == answer
    assert prompt.stopped.is_set()


async def test_a_late_answer_is_reported_as_late(waiting: PendingStore) -> None:
    ids: list[str] = []

    class Quick:
        async def ask(self, _request: Question) -> Answer:
            ids.append((await only(waiting)).id)
            return Answer("allow", by="ada")

    await Broker(waiting, approver=Quick()).ask(ASKED)
    said = await asyncio.to_thread(resolve_elsewhere, waiting.path, ids[0], "deny")
    assert "was already answered: allow-once by ada" in said


async def test_a_local_answer_that_comes_second_does_not_count(waiting: PendingStore) -> None:
    class Slow:
        async def ask(self, _request: Question) -> Answer:
            (one,) = waiting.pending(now_ms())
            waiting.decide(one.id, Answer("deny", "first", by="eve"), now_ms())
            return Answer("allow", by="ada")

    assert await Broker(waiting, approver=Slow()).ask(ASKED) == Answer("deny", "first", by="eve")


async def test_a_later_answer_reaches_the_waiting_caller(waiting: PendingStore) -> None:
    broker = Broker(waiting, later=True)
    pending = broker.submit(ASKED)
    assert pending.expires_ms - pending.created_ms == 60_000
    task = asyncio.create_task(broker.outcome(pending))
    done = Broker(waiting).resolve(pending.id[:6], "allow-once", actor="ada", authorized=True)
    assert (done.id, done.state) == (pending.id, "allowed")
    assert await task == Answer("allow", by="ada")
    assert states(waiting) == ["used"]


async def test_a_question_may_wait_for_any_later_approver(waiting: PendingStore) -> None:
    task = asyncio.create_task(Broker(waiting, later=True).ask(ASKED))
    pending = await only(waiting)
    waiting.decide(pending.id, Answer("deny", "no", by="ada"), now_ms())
    assert await task == Answer("deny", "no", by="ada")


async def test_an_approval_lets_only_one_waiter_continue(waiting: PendingStore) -> None:
    broker = Broker(waiting, later=True)
    pending = broker.submit(ASKED)
    tasks = [asyncio.create_task(broker.outcome(pending)) for _ in range(3)]
    waiting.decide(pending.id, Answer("allow", by="ada"), now_ms())
    answers = await asyncio.gather(*tasks)
    assert sorted(answer.verdict for answer in answers) == ["allow", "deny", "deny"]
    assert "already used" in max(answer.reason for answer in answers)
    assert not any(answer.silent for answer in answers)
    # Nor anybody who asks for it again.
    assert (await broker.outcome(pending)).verdict == "deny"


ASK = """
import os, sys, time
from clawkit.approvals.broker import Broker
from clawkit.approvals.broker import PendingStore
from clawkit.core.approval import Question
question = Question("exec", {}, "t", command="ls", timeout_s=60)
print(Broker(PendingStore(sys.argv[1]), later=True).submit(question).id, flush=True)
os._exit(0)
"""


def test_an_answer_can_be_collected_once_without_waiting(waiting: PendingStore) -> None:
    broker = Broker(waiting)
    for choice, verdict in (("allow-once", "allow"), ("deny", "deny")):
        asked = broker.submit(ASKED, {protocols.RESUMABLE: "x"})
        assert broker.collect(asked.id) is None
        broker.resolve(asked.id, choice, actor="ann", authorized=True)
        answer = broker.collect(asked.id)
        assert answer is not None
        assert (answer.verdict, answer.by, answer.silent) == (verdict, "ann", False)
        again = broker.collect(asked.id)
        assert again is not None
        assert (again.verdict, again.silent) == ("deny", verdict == "allow")
    asked = broker.submit(ASKED)
    broker.withdraw(asked.id)
    for id_ in (asked.id, "f" * 32):
        gone = broker.collect(id_)
        assert gone is not None
        assert (gone.verdict, gone.silent) == ("deny", True)


def test_a_question_that_is_resumed_elsewhere_is_not_orphaned(waiting: PendingStore) -> None:
    """Its answer has an effect although the process that asked has ended."""
    Broker(waiting).submit(ASKED, {protocols.RESUMABLE: "x"})
    Broker(waiting).submit(replace(ASKED, title="other"))
    with waiting._database.writing() as db:
        db.execute("UPDATE question SET owner = '1 1 earlier'")
    assert [each.orphaned for each in waiting.pending(now_ms())] == [False, True]


async def test_an_answer_is_kept_after_its_asker_has_gone(waiting: PendingStore) -> None:
    command = [sys.executable, "-c", ASK, waiting.path]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, check=True
    )
    (orphan,) = waiting.pending(now_ms())
    assert orphan.orphaned
    assert orphan.id == done.stdout.strip()
    waiting.decide(orphan.id, Answer("allow", by="ada"), now_ms())
    # The yes waits with the question; nothing uses it until somebody comes for it.
    assert waiting.get(orphan.id).state == "allowed"
    assert await Broker(waiting).outcome(orphan) == Answer("allow", by="ada")


async def test_a_question_that_times_out_is_denied(waiting: PendingStore) -> None:
    prompt = Silent()
    answer = await Broker(waiting, approver=prompt).ask(replace(ASKED, timeout_s=0.05))
    assert answer.verdict == "deny"
    assert answer.silent
    assert answer.reason == "no answer within 0.1s"
    assert prompt.stopped.is_set() == prompt.asked.is_set()
    assert states(waiting) == ["expired"]


@pytest.mark.parametrize("timeout_s", [0, -5, -1e300])
async def test_with_no_time_left_the_broker_does_not_wait(
    waiting: PendingStore, timeout_s: float
) -> None:
    answer = await Broker(waiting, approver=Silent()).ask(replace(ASKED, timeout_s=timeout_s))
    assert answer.silent


def test_no_question_waits_longer_than_is_allowed(waiting: PendingStore) -> None:
    pending = Broker(waiting).submit(replace(ASKED, timeout_s=1e9))
    assert pending.expires_ms - pending.created_ms == 86_400_000


async def test_a_clock_that_is_set_back_does_not_lengthen_the_wait(waiting: PendingStore) -> None:
    times = iter([time.time()])
    past = time.time() - 86_400
    broker = Broker(waiting, approver=Silent(), clock=lambda: next(times, past))
    times = iter([past + 86_400, past + 86_400])
    answer = await broker.ask(replace(ASKED, timeout_s=0.05))
    assert answer.silent
    assert states(waiting) == ["expired"]


async def test_a_clock_that_is_set_forward_ends_the_wait(waiting: PendingStore) -> None:
    ahead, prompt = 0.0, Silent()
    broker = Broker(waiting, approver=prompt, clock=lambda: time.time() + ahead)
    task = asyncio.create_task(broker.ask(ASKED))
    await prompt.asked.wait()
    ahead = 86_400.0
    assert (await task).silent
    assert states(waiting) == ["expired"]


async def test_an_approval_just_before_the_end_counts(waiting: PendingStore) -> None:
    begun = now_ms()

    class LastMoment:
        async def ask(self, _request: Question) -> Answer:
            # However long it took to get here, the answer came in time.
            (one,) = waiting.pending(begun)
            waiting.decide(one.id, Answer("allow", by="ada"), begun)
            # By now the time is over, and nobody has looked.
            time.sleep(1.1)
            raise RuntimeError("closed")

    broker = Broker(waiting, approver=LastMoment())
    assert await broker.ask(replace(ASKED, timeout_s=1.0)) == Answer("allow", by="ada")


@pytest.mark.parametrize("decided", [False, True])
async def test_giving_up_withdraws_the_question(waiting: PendingStore, decided: bool) -> None:
    class Stubborn(Silent):
        async def ask(self, request: Question) -> Answer:
            try:
                return await super().ask(request)
            finally:
                await asyncio.sleep(0.5)

    prompt = Stubborn() if decided else Silent()
    task = asyncio.create_task(Broker(waiting, approver=prompt).ask(ASKED))
    pending = await only(waiting)
    await prompt.asked.wait()
    if decided:
        waiting.decide(pending.id, Answer("allow"), now_ms())
        await prompt.stopped.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert prompt.stopped.is_set()
    assert states(waiting) == ["withdrawn"]
    with pytest.raises(ConflictError, match="withdrawn"):
        waiting.decide(pending.id, Answer("allow"), now_ms())


async def test_a_question_survives_cancellation_if_the_approver_keeps_it(
    waiting: PendingStore,
) -> None:
    class Returning(Silent):
        keeps_questions = True

    prompt = Returning()
    task = asyncio.create_task(Broker(waiting, approver=prompt).ask(ASKED))
    await only(waiting)
    await prompt.asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert states(waiting) == ["pending"]


NONSENSE: list[object] = [
    None,
    True,
    "allow",
    {"verdict": "allow"},
    Answer("yes"),  # type: ignore[arg-type]
    Answer("allow", extent="subcommand"),
    Answer("deny", extent="exact"),
    Answer("allow", silent=True),
    Answer("allow", reason=None),  # type: ignore[arg-type]
    RuntimeError("broken"),
    SystemExit(0),
    asyncio.CancelledError(),
]


@pytest.mark.parametrize("said", NONSENSE, ids=repr)
async def test_an_invalid_answer_is_not_an_approval(waiting: PendingStore, said: object) -> None:
    answer = await Broker(waiting, approver=Says(said)).ask(ASKED)
    assert answer == Answer("deny", "asking for approval failed")
    assert states(waiting) == ["withdrawn"]


async def test_a_failing_surface_does_not_stop_the_others(waiting: PendingStore) -> None:
    broker = Broker(waiting, approver=Says(RuntimeError("closed")), later=True)
    task = asyncio.create_task(broker.ask(ASKED))
    pending = await only(waiting)
    await asyncio.sleep(0)
    broker.resolve(pending.id, "allow-once", actor="ada", authorized=True)
    assert await task == Answer("allow", by="ada")


async def test_an_invalid_approver_is_a_denial(waiting: PendingStore) -> None:
    class Sync:
        def ask(self, _request: Question) -> Answer:
            return Answer("allow")

    answer = await Broker(waiting, approver=Sync()).ask(ASKED)  # type: ignore[arg-type]
    assert answer.verdict == "deny"


async def test_a_question_that_cannot_be_asked_is_denied(waiting: PendingStore) -> None:
    approver = ScriptedApprover("allow")
    broker = Broker(waiting, approver=approver)
    answer = await broker.ask(replace(ASKED, params={"a": object()}))
    assert (answer.verdict, answer.silent) == ("deny", False)
    assert "cannot be asked" in answer.reason
    assert (await broker.ask(replace(ASKED, timeout_s=float("nan")))).verdict == "deny"
    assert approver.requests == []


async def test_too_many_questions_are_denied_and_not_timeouts(waiting: PendingStore) -> None:
    broker = Broker(waiting, approver=ScriptedApprover("allow"))
    patient = replace(ASKED, timeout_s=3600.0)  # however long it takes to store so many
    waiting._database._sync = "OFF"  # no power fails here
    for number in range(MAX_PENDING):
        broker.submit(replace(patient, params={"number": number}))
    answer = await broker.ask(patient)
    assert (answer.verdict, answer.silent) == ("deny", False)
    assert "are pending" in answer.reason
    with pytest.raises(ToolAuthorizationError):
        broker.submit(patient)


def lock_it(path: str) -> Callable[[], None]:
    db = apsw.Connection(path)
    db.execute("BEGIN IMMEDIATE")
    return db.close


def damage_it(path: str) -> Callable[[], None]:
    os.chmod(path, 0o666)
    return lambda: os.chmod(path, 0o600)


def remove_it(path: str) -> Callable[[], None]:
    os.unlink(path)
    return lambda: None


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lock_it, "it is locked by another process"),
        (damage_it, "open to other users"),
        (remove_it, "unknown request"),
    ],
)
async def test_an_approval_that_cannot_be_recorded_is_a_denial(
    home: str, spoil: Callable[[str], Callable[[], None]], message: str
) -> None:
    waiting = PendingStore(f"{home}/approvals.sqlite", lock_wait_s=0.01)
    undo: list[Callable[[], None]] = []

    class Spoiler:
        async def ask(self, _request: Question) -> Answer:
            undo.append(spoil(waiting.path))
            return Answer("allow", by="ada")

    answer = await Broker(waiting, approver=Spoiler()).ask(ASKED)
    assert (answer.verdict, answer.silent) == ("deny", False)
    assert message in answer.reason
    undo[0]()
    waiting.close()


async def test_an_unusable_store_denies(home: str) -> None:
    os.mkdir(f"{home}/approvals.sqlite")
    broker = Broker(PendingStore(f"{home}/approvals.sqlite"), approver=ScriptedApprover("allow"))
    answer = await broker.ask(ASKED)
    assert (answer.verdict, answer.silent) == ("deny", False)
    assert "not a file that belongs to you" in answer.reason
    made = await broker.outcome(types.Pending("ab" * 16, ASKED, now_ms(), now_ms() + 60_000))
    assert (made.verdict, made.silent) == ("deny", False)


@pytest.mark.parametrize("id_", ["ab" * 16, "../x", "", "abcd"])
async def test_a_question_that_was_never_stored_is_denied(waiting: PendingStore, id_: str) -> None:
    Broker(waiting).submit(ASKED)
    answer = await Broker(waiting).outcome(types.Pending(id_, ASKED, now_ms(), now_ms() + 60_000))
    assert (answer.verdict, answer.silent) == ("deny", False)


async def test_a_broken_socket_does_not_stop_the_local_approver(waiting: PendingStore) -> None:
    def find() -> tuple[str, str]:
        raise ToolError("the document cannot be read")

    broker = Broker(waiting, socket=find)
    assert await broker.ask(ASKED) == Answer("deny", "the document cannot be read")


@pytest.mark.parametrize("authorized", [False, None, 1, "yes"])
def test_an_unauthorized_approver_is_refused(waiting: PendingStore, authorized: Any) -> None:
    broker = Broker(waiting)
    pending = broker.submit(ASKED)
    with pytest.raises(ToolAuthorizationError, match="only an approver") as caught:
        broker.resolve(pending.id, "allow-once", actor="eve", authorized=authorized)
    assert caught.value.reason == "approver"
    assert waiting.get(pending.id).state == "pending"


@pytest.mark.parametrize(
    ("choice", "extent", "message"),
    [
        ("allow", None, "unknown decision"),
        ("allow-always", "subcommand", "was not offered"),
        ("allow-once", "exact", "requires allow-always"),
    ],
)
def test_an_invalid_decision_changes_nothing(
    waiting: PendingStore, choice: str, extent: str | None, message: str
) -> None:
    broker = Broker(waiting)
    pending = broker.submit(ASKED)
    with pytest.raises(ToolInputError, match=message):
        broker.resolve(pending.id, choice, extent=extent, authorized=True)
    assert waiting.get(pending.id).state == "pending"


def test_a_decision_about_an_unknown_question_is_reported(waiting: PendingStore) -> None:
    with pytest.raises(NotFoundError, match="unknown request 'deadbeef'"):
        Broker(waiting).resolve("deadbeef", "allow-once", authorized=True)


def test_a_repeated_decision_is_reported(waiting: PendingStore) -> None:
    broker = Broker(waiting)
    pending = broker.submit(ASKED)
    broker.resolve(pending.id, "allow-always", extent="program", actor="ada", authorized=True)
    with pytest.raises(ConflictError, match="already answered: allow-always by ada"):
        broker.resolve(pending.id, "allow-always", actor="ada", authorized=True)


async def test_a_broker_that_was_closed_still_works(waiting: PendingStore) -> None:
    broker = Broker(waiting, approver=ScriptedApprover("allow"))
    await broker.close()
    assert (await broker.ask(ASKED)).verdict == "allow"
    await broker.close()
