"""The gate that every command passes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from clawkit.approvals.audit import Audit
from clawkit.approvals.base import Entry
from clawkit.approvals.broker import Broker
from clawkit.approvals.gate import BREAKER_S, TAME, LocalGate
from clawkit.approvals.judge import Judge
from clawkit.approvals.seam import Admitted, Approvals, Request
from clawkit.approvals.waiting import Waiting
from clawkit.config.sections.exec import Exec
from clawkit.core.approval import Answer, Question
from clawkit.errors import ToolAuthorizationError
from clawkit.redact import Redactor

ENV = {"PATH": "/usr/bin:/bin", "HOME": "/nowhere"}


async def ready() -> None:
    return None


class Person:
    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    async def ask(self, request: Question) -> Answer:
        return self.answer


def make(place: Path, *entries: str, answer: Answer | None = None, **more: Any) -> LocalGate:
    approver = Person(answer) if answer is not None else None
    broker: Approvals = Broker(Waiting(str(place / "w.sqlite")), approver=approver)
    judge = Judge(
        Exec(safe_bins=["wc"]),
        str(place / "document.json"),
        more=tuple(Entry(pattern) for pattern in entries),
    )
    return LocalGate(judge, lambda: broker, Audit(str(place / "log")), Redactor(), **more)


async def admit(gate: LocalGate, command: str, place: Path) -> Admitted:
    found = await gate.admit(Request(command, str(place), ENV), ready)
    assert isinstance(found, Admitted)
    return found


async def test_it_is_told_once_that_the_kernel_does_not_help(tmp_path: Path) -> None:
    gate = make(tmp_path, "ls", confines=False)
    assert (await admit(gate, "ls", tmp_path)).warning == ""  # nothing is lost there
    assert "Landlock" in (await admit(gate, "wc -l", tmp_path)).warning
    assert (await admit(gate, "wc -l", tmp_path)).warning == ""
    gate = make(tmp_path, confines=True)
    assert (await admit(gate, "wc -l", tmp_path)).warning == ""


async def test_listed_commands_have_no_pager_to_be_talked_into_anything(tmp_path: Path) -> None:
    assert (await admit(make(tmp_path, "ls"), "ls", tmp_path)).env == TAME
    asked = await admit(make(tmp_path, answer=Answer("allow")), "ls", tmp_path)
    assert (asked.env, asked.asked, asked.programs) == ({}, True, None)


async def test_refusals_are_forgotten_after_a_while_and_do_not_pile_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("clawkit.approvals.gate.time.monotonic", lambda: now[0])
    gate = make(tmp_path, answer=Answer("deny"))

    async def refuse(command: str, session: str = "main") -> bool:
        with pytest.raises(ToolAuthorizationError) as caught:
            await gate.admit(Request(command, str(tmp_path), ENV, session=session), ready)
        return "Stop trying" in str(caught.value)

    assert [await refuse("touch a"), await refuse("touch b")] == [False, False]
    now[0] += BREAKER_S
    assert [await refuse("touch a"), await refuse("touch b")] == [False, False]
    assert await refuse("touch c")
    for number in range(300):
        assert not await refuse("touch a", f"session {number}")
    assert len(gate._refusals) <= 256


async def test_an_answer_for_good_that_no_rule_was_made_for_stores_nothing(tmp_path: Path) -> None:
    gate = make(tmp_path, answer=Answer("allow", extent="exact"))
    assert (await admit(gate, "touch a", tmp_path)).asked
    stored = json.loads((tmp_path / "document.json").read_text(encoding="utf-8"))
    [entry] = stored["agents"]["main"]["allowlist"]
    assert (entry["pattern"], entry["extent"]) == ("/usr/bin/touch", "exact")


async def test_a_long_command_is_judged_like_any_other(tmp_path: Path) -> None:
    words = " ".join(["x" * 100] * 100)
    assert (await admit(make(tmp_path, "ls"), f"ls {words}", tmp_path)).run.endswith("x")
    with pytest.raises(ToolAuthorizationError):
        await admit(make(tmp_path), f"ls {words}", tmp_path)


async def test_what_was_left_for_later_can_be_waited_for(tmp_path: Path) -> None:
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
