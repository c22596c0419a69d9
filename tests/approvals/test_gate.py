"""The gate that every command passes."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from clawkit.approvals.audit import Audit
from clawkit.approvals.broker import Broker, PendingStore
from clawkit.approvals.gate import BREAKER_S, TAME, LocalGate
from clawkit.approvals.judge import Judge
from clawkit.approvals.protocols import Admitted, Approvals, ExecRequest, ScriptFile, Waiting
from clawkit.approvals.types import AllowlistEntry
from clawkit.config.sections.tools import Exec
from clawkit.core.approval import Answer, Question
from clawkit.errors import ToolAuthorizationError
from clawkit.redact import Redactor

ENV = {"PATH": "/usr/bin:/bin", "HOME": "/nowhere"}


async def ready(_scripts: object) -> None:
    return None


class Person:
    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    async def ask(self, request: Question) -> Answer:
        return self.answer


def make(place: Path, *entries: str, answer: Answer | None = None, **more: Any) -> LocalGate:
    approver = Person(answer) if answer is not None else None
    broker: Approvals = Broker(PendingStore(str(place / "w.sqlite")), approver=approver)
    judge = Judge(
        Exec(safe_bins=["wc"]),
        str(place / "document.json"),
        more=tuple(AllowlistEntry(pattern) for pattern in entries),
    )
    return LocalGate(judge, lambda: broker, Audit(str(place / "log")), Redactor(), **more)


async def admit(gate: LocalGate, command: str, place: Path) -> Admitted:
    found = await gate.admit(ExecRequest(command, str(place), ENV), ready)
    assert isinstance(found, Admitted)
    return found


async def test_listed_commands_run_without_a_pager_asked_ones_unchanged(tmp_path: Path) -> None:
    assert (await admit(make(tmp_path, "ls"), "ls", tmp_path)).env == TAME
    asked = await admit(make(tmp_path, answer=Answer("allow")), "ls", tmp_path)
    assert (asked.env, asked.asked, asked.programs) == ({}, True, None)


async def test_the_scripts_of_a_command_are_handed_on_before_it_runs(tmp_path: Path) -> None:
    seen: list[Sequence[ScriptFile]] = []

    async def look(scripts: Sequence[ScriptFile]) -> None:
        seen.append(scripts)

    gate = make(tmp_path, answer=Answer("allow"))
    # Understood, in doubt, without a look at the command, and without an interpreter.
    requests = [
        ExecRequest("python3 x.py", str(tmp_path), ENV),
        ExecRequest("python3 x.py && $X", str(tmp_path), ENV),
        ExecRequest("node x.js", str(tmp_path), ENV, wanted="sandbox"),
        ExecRequest("ls", str(tmp_path), ENV),
    ]
    for request in requests:
        await gate.admit(request, look)
    python = [ScriptFile("python", f"{tmp_path}/x.py")]
    assert seen == [python, python, [ScriptFile("javascript", f"{tmp_path}/x.js")], ()]


async def test_git_runs_no_hooks_in_what_an_entry_allows(tmp_path: Path) -> None:
    repository = tmp_path / "r"
    subprocess.run(["git", "init", "-q", repository], check=True)
    hook = repository / ".git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ntouch ran\n")
    hook.chmod(0o755)
    admitted = await admit(make(tmp_path, "ls"), "ls", tmp_path)
    who = ("-c", "user.name=n", "-c", "user.email=e")
    commit = ["git", *who, "commit", "-q", "--allow-empty", "-m", "m"]
    for env, has_run in ((admitted.env, False), ({}, True)):
        subprocess.run(commit, cwd=repository, env={**ENV, **env}, check=True)
        assert (repository / "ran").exists() is has_run


async def test_the_gate_knows_what_the_file_tools_may_read(tmp_path: Path) -> None:
    gate = make(tmp_path)
    assert not gate.may_read(str(tmp_path / "x"))


async def test_a_refusal_that_ends_with_a_question_gets_no_full_stop(tmp_path: Path) -> None:
    document = tmp_path / "document.json"
    document.write_text('{"version": 1, "defaults": {"Security": "deny"}}', encoding="utf-8")
    document.chmod(0o600)
    with pytest.raises(ToolAuthorizationError, match=r"did you mean 'security'\?(?!\.)"):
        await admit(make(tmp_path), "make", tmp_path)


async def test_without_an_approver_the_refusal_tells_how_to_be_asked(tmp_path: Path) -> None:
    said = "no one can be asked here. To approve calls, run clawkit or `clawkit approvals watch`"
    with pytest.raises(ToolAuthorizationError, match=re.escape(said)):
        await admit(make(tmp_path), "make", tmp_path)


async def test_refusals_expire_and_are_limited_in_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("clawkit.approvals.gate.time.monotonic", lambda: now[0])
    gate = make(tmp_path, answer=Answer("deny"))

    async def refuse(command: str, session: str = "main") -> bool:
        with pytest.raises(ToolAuthorizationError) as caught:
            await gate.admit(ExecRequest(command, str(tmp_path), ENV, session=session), ready)
        return "Do not try other ways" in str(caught.value)

    assert [await refuse("touch a"), await refuse("touch b")] == [False, False]
    now[0] += BREAKER_S
    assert [await refuse("touch a"), await refuse("touch b")] == [False, False]
    assert await refuse("touch c")
    monkeypatch.setattr("clawkit.approvals.gate._GOALS", 16)
    for number in range(20):
        assert not await refuse("touch a", f"session {number}")
    assert len(gate._refusals) <= 16


async def test_a_permanent_exact_approval_stores_an_exact_entry(tmp_path: Path) -> None:
    gate = make(tmp_path, answer=Answer("allow", extent="exact"))
    assert (await admit(gate, "touch a", tmp_path)).asked
    stored = json.loads((tmp_path / "document.json").read_text(encoding="utf-8"))
    [entry] = stored["agents"]["main"]["allowlist"]
    assert (entry["pattern"], entry["extent"]) == ("/usr/bin/touch", "exact")


@pytest.mark.parametrize("answer", [None, Answer("allow"), Answer("allow", extent="exact")])
async def test_a_command_that_cannot_be_logged_does_not_run(
    tmp_path: Path, answer: Answer | None
) -> None:
    (tmp_path / "log").mkdir()
    gate = make(tmp_path, *([] if answer else ["ls"]), answer=answer)
    with pytest.raises(ToolAuthorizationError, match=r"/log cannot be written: .* \(EISDIR\)"):
        await admit(gate, "ls", tmp_path)
    assert not (tmp_path / "document.json").exists()


class Meddler(Person):
    """Says yes, but makes sure that it cannot be written down."""

    async def ask(self, request: Question) -> Answer:
        (Path(request.cwd) / "log").unlink()
        (Path(request.cwd) / "log").mkdir()
        return self.answer


async def test_an_approval_that_cannot_be_logged_stores_nothing(tmp_path: Path) -> None:
    gate = make(tmp_path)
    broker = Broker(
        PendingStore(str(tmp_path / "w.sqlite")), approver=Meddler(Answer("allow", extent="exact"))
    )
    gate._approvals = lambda: broker
    with pytest.raises(ToolAuthorizationError, match="EISDIR"):
        await admit(gate, "touch a", tmp_path)
    assert not (tmp_path / "document.json").exists()


async def test_a_refusal_that_cannot_be_logged_stays_a_refusal(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    with pytest.raises(ToolAuthorizationError) as refusal:
        await admit(make(tmp_path), "rm -rf /", tmp_path)
    assert refusal.value.reason != "audit"


async def test_an_allowed_command_is_logged_before_it_starts(tmp_path: Path) -> None:
    await admit(make(tmp_path, "ls"), "ls", tmp_path)
    assert json.loads((tmp_path / "log").read_text())["verdict"] == "allow"


async def test_a_long_command_is_judged_like_any_other(tmp_path: Path) -> None:
    words = " ".join(["x" * 100] * 100)
    assert (await admit(make(tmp_path, "ls"), f"ls {words}", tmp_path)).run.endswith("x")
    with pytest.raises(ToolAuthorizationError):
        await admit(make(tmp_path), f"ls {words}", tmp_path)


async def test_work_left_for_later_can_be_awaited(tmp_path: Path) -> None:
    gate, done = make(tmp_path), []

    async def work() -> None:
        done.append("first")
        if len(done) < 3:
            gate.later(work())

    gate.later(work())
    await gate.finish()
    assert len(done) == 3
    gate.later(asyncio.sleep(300))
    await gate.close()
    await gate.finish()


class Counting(Person):
    """An approver that records the questions."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer)
        self.asked: list[Question] = []

    async def ask(self, request: Question) -> Answer:
        self.asked.append(request)
        return self.answer


def make_asking(place: Path, answer: Answer) -> tuple[LocalGate, Counting]:
    person = Counting(answer)
    broker = Broker(PendingStore(str(place / "w.sqlite")), approver=person)
    judge = Judge(Exec(), str(place / "document.json"))
    return LocalGate(judge, lambda: broker, Audit(str(place / "log")), Redactor()), person


async def test_an_approval_for_the_session_is_for_exactly_what_was_shown(tmp_path: Path) -> None:
    gate, person = make_asking(tmp_path, Answer("allow", extent="session"))
    (tmp_path / "sub").mkdir()
    first = ExecRequest("touch a", str(tmp_path), ENV)
    others = [
        structs.replace(first, command="touch b"),
        structs.replace(first, cwd=str(tmp_path / "sub")),
        structs.replace(first, env={**ENV, "TZ": "UTC"}),
        structs.replace(first, session="other"),
        structs.replace(first, agent="other"),
        structs.replace(first, modes=("background", "stdin")),
    ]
    for request in (first, first, first):
        found = await gate.admit(request, ready)
        assert isinstance(found, Admitted)
        assert found.asked
    assert len(person.asked) == 1
    person.answer = Answer("deny")
    for request in others:
        with pytest.raises(ToolAuthorizationError):
            await gate.admit(request, ready)
    assert len(person.asked) == 1 + len(others)
    assert not (tmp_path / "document.json").exists()
    actors = [json.loads(line)["actor"] for line in (tmp_path / "log").read_text().splitlines()]
    assert actors[2:4] == ["a person, for this session"] * 2


async def test_an_approval_for_the_session_ends_when_a_program_changes(tmp_path: Path) -> None:
    gate, person = make_asking(tmp_path, Answer("allow", extent="session"))
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\necho good\n")
    tool.chmod(0o755)
    await admit(gate, "./tool", tmp_path)
    await admit(gate, "./tool", tmp_path)
    assert len(person.asked) == 1
    tool.write_text("#!/bin/sh\necho evil\n")
    await admit(gate, "./tool", tmp_path)
    assert len(person.asked) == 2


async def test_an_approval_for_the_session_does_not_apply_to_another_run(tmp_path: Path) -> None:
    for _ in range(2):
        gate, person = make_asking(tmp_path, Answer("allow", extent="session"))
        await admit(gate, "touch a", tmp_path)
        assert len(person.asked) == 1


async def test_only_the_latest_approvals_of_a_session_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clawkit.approvals.gate._MOST", 8)
    gate, person = make_asking(tmp_path, Answer("allow", extent="session"))
    for number in range(9):
        await admit(gate, f"touch {number}", tmp_path)
    await admit(gate, "touch 8", tmp_path)
    assert len(person.asked) == 9
    await admit(gate, "touch 0", tmp_path)
    assert len(person.asked) == 10


async def test_a_foreground_approval_does_not_cover_the_background(tmp_path: Path) -> None:
    """The answer is bound to how the command was to run when it was shown."""
    later = Broker(PendingStore(str(tmp_path / "w.sqlite")), later=True)
    judge = Judge(Exec(), str(tmp_path / "document.json"))
    gate = LocalGate(judge, lambda: later, Audit(str(tmp_path / "log")), Redactor())
    request = ExecRequest("touch a", str(tmp_path), ENV)
    waiting = await gate.admit(request, ready)
    assert not isinstance(waiting, Admitted)
    later.resolve(waiting.pending.id, "allow-once", authorized=True)
    with pytest.raises(ToolAuthorizationError, match="it would run differently than shown"):
        await gate.settle(waiting, structs.replace(request, modes=("background", "stdin")))


async def test_a_command_is_asked_about_under_the_same_id_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, path = tmp_path / "x.py", str(tmp_path / "w.sqlite")
    script.write_text("1", encoding="utf-8")

    async def ask(command: str = "python3 x.py", **env: str) -> str:
        """The id of the question of a process that then ends."""
        monkeypatch.setattr("clawkit.approvals.broker._asked", {})
        broker = Broker(PendingStore(path), later=True)
        judge = Judge(Exec(), str(tmp_path / "document.json"))
        gate = LocalGate(judge, lambda: broker, Audit(str(tmp_path / "log")), Redactor())
        found = await gate.admit(ExecRequest(command, str(tmp_path), {**ENV, **env}), ready)
        assert isinstance(found, Waiting)
        return found.pending.id

    first = await ask()
    assert [await ask(), await ask()] == [first, first]
    ids = [first, await ask(TOKEN="a")]
    script.write_text("2", encoding="utf-8")
    ids.append(await ask(TOKEN="a"))
    assert len(set(ids)) == 3
    other = await ask("python3 x.py 2", TOKEN="a")
    store = PendingStore(path)
    assert [store.get(each).state for each in ids] == ["withdrawn", "withdrawn", "pending"]
    assert [each.id for each in store.pending(0)] == [ids[2], other]
