"""Gates: who answers them, and that an answer counts once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.bundled.lobster_kit import CONFIG, Person, open_kit, resume, run

from clawkit.approvals.broker import Broker, PendingStore
from clawkit.config.paths import waiting_file
from clawkit.core.result import Result
from clawkit.core.tool import tool
from clawkit.runtime import Toolkit

GATE = "exec printf 'a\\nb' | approve --prompt 'Go on?' | exec --stdin raw tee done.txt"


def answer(id_: str, choice: str = "allow-once", actor: str = "ann") -> None:
    """Answer a question from another surface."""
    store = PendingStore(waiting_file(os.environ))
    Broker(store).resolve(id_, choice, reason="because", actor=actor, authorized=True)
    store.close()


def home() -> Path:
    return Path(os.environ["CLAWKIT_HOME"])


def shown() -> list[str]:
    store = PendingStore(waiting_file(os.environ))
    try:
        return [each.question.title for each in store.pending(0) if not each.orphaned]
    finally:
        store.close()


async def halt(kit: Toolkit, pipeline: str = GATE, **more: Any) -> tuple[str, str]:
    envelope = await run(kit, pipeline, **more)
    assert envelope["status"] == "needs_approval", envelope
    asked = envelope["requiresApproval"]
    return asked["resumeToken"], asked["approvalId"]


async def test_a_person_who_is_there_is_asked_when_the_model_resumes(tmp_path: Path) -> None:
    person = Person()
    async with open_kit(tmp_path, approver=person) as kit:
        token, _ = await halt(kit)
        assert not (tmp_path / "done.txt").exists()
        ended = await resume(kit, token=token, approve=True)
    assert ended["output"] == ["a", "b"]
    assert (tmp_path / "done.txt").read_text() == "a\nb\n"
    [asked] = person.asked
    assert (asked.title, asked.description) == ("Go on?", '[\n  "a",\n  "b"\n]')
    assert asked.notes == ("2 items", "then: exec --stdin raw tee done.txt")


async def test_a_question_shows_no_secrets_and_no_control_characters(tmp_path: Path) -> None:
    (tmp_path / "out.json").write_text(json.dumps(["\x1b[2J\u202e", "ghp_" + "a1B2" * 10]))
    person = Person()
    async with open_kit(tmp_path, approver=person) as kit:
        gate = "approve --prompt 'a\nb' --preview-from-stdin"
        token, _ = await halt(kit, f"exec --json --shell 'cat out.json' | {gate}")
        await resume(kit, token=token, approve=True)
    [asked] = person.asked
    shown = f"{asked.title}{asked.description}"
    assert not {"\x1b", "\u202e"} & set(shown)
    assert "a1B2a1B2" not in shown


async def test_a_model_cannot_approve_for_a_person(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        token, id_ = await halt(kit)
        refused = await resume(kit, token=token, approve=True)
        assert refused["deniedReason"] == "approval-unavailable"
        assert f"clawkit approvals resolve {id_} allow-once" in refused["reason"]
        assert shown() == ["Go on?"]
        answer(id_)
        assert (await resume(kit, token=token, approve=True))["status"] == "ok"
    async with open_kit(tmp_path, approver=Person("deny")) as kit:
        token, _ = await halt(kit)
        said = await resume(kit, token=token, approve=True)
        assert (said["status"], said["reason"], said["output"]) == ("cancelled", "not now", [])
        gone = await resume(kit, token=token, approve=True)
        assert gone["error"]["message"] == "Pipeline resume state not found"


async def test_an_answer_from_another_surface_counts_and_so_does_no(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        _, id_ = await halt(kit)
        answer(id_, "deny")
        said = await resume(kit, approvalId=id_, approve=True)
        assert (said["status"], said["reason"]) == ("cancelled", "because")
        _, id_ = await halt(kit)
        assert (await resume(kit, approvalId=id_, approve=False))["status"] == "cancelled"
        _, id_ = await halt(kit)
        assert (await resume(kit, approvalId=id_, cancel=True))["status"] == "cancelled"
    assert shown() == []
    assert not (tmp_path / "done.txt").exists()


async def test_an_answer_that_was_lost_is_asked_for_again(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        token, id_ = await halt(kit)
        store = PendingStore(waiting_file(os.environ))
        store.expire(store.get(id_).id)
        store.close()
        again = await resume(kit, token=token, approve=True)
        assert again["status"] == "needs_approval"
        new = again["requiresApproval"]
        assert new["approvalId"] != id_
        answer(new["approvalId"])
        assert (await resume(kit, token=new["resumeToken"], approve=True))["status"] == "ok"


async def test_tokens_that_are_forged_or_stale_are_refused(tmp_path: Path) -> None:
    async with open_kit(tmp_path, approver=Person()) as kit:
        for token in ("nonsense", "é", "%", "_" * 32, "0" * 32, "../../etc/passwd", "[" * 50_000):
            envelope = await resume(kit, token=token, approve=True)
            assert envelope["error"]["message"] == "Pipeline resume state not found", token
        for id_ in ("", "ffffffff", "%", "../../x", "FFFFFFFF"):
            envelope = await resume(kit, approvalId=id_, approve=True)
            known = ("resume requires token or approvalId", "Pipeline resume state not found")
            assert envelope["error"]["message"] in known, id_
        token, id_ = await halt(kit)
    for scope in ({"agent": "other"}, {"session": "agent:main:group:1"}, {"owner": False}):
        async with open_kit(tmp_path, approver=Person(), **scope) as kit:
            for given in ({"approve": True}, {"cancel": True}):
                envelope = await resume(kit, token=token, **given)
                assert envelope["error"]["message"] == "Pipeline resume state not found", scope
                envelope = await resume(kit, approvalId=id_, **given)
                assert "not found" in envelope["error"]["message"], scope
    async with open_kit(tmp_path, approver=Person()) as kit:
        assert (await resume(kit, token=token, approve=True))["output"] == ["a", "b"]


async def test_a_gate_takes_only_the_answer_it_asked_for(tmp_path: Path) -> None:
    async with open_kit(tmp_path, approver=Person()) as kit:
        token, _ = await halt(kit)
        for wrong in ({}, {"response": 1}, {"approve": True, "response": 1}):
            envelope = await resume(kit, token=token, **wrong)
            assert "needs approve" in envelope["error"]["message"]
        asked = await run(kit, 'ask --schema \'{"type":"integer"}\' | map --wrap n')
        token = asked["requiresInput"]["resumeToken"]
        for other in ({}, {"approve": True}, {"approve": False}):
            envelope = await resume(kit, token=token, **other)
            assert "needs response" in envelope["error"]["message"]
        envelope = await resume(kit, token=token, response="x")
        assert envelope["error"]["message"].startswith("response failed schema validation at /:")
        assert (await resume(kit, token=token, response=3))["output"] == [{"n": 3}]


async def test_a_gate_after_a_gate_has_a_token_of_its_own(tmp_path: Path) -> None:
    async with open_kit(tmp_path, approver=Person()) as kit:
        token, _ = await halt(kit, "exec echo x | approve | map --wrap y | approve | pick y")
        second = await resume(kit, token=token, approve=True)
        assert second["requiresApproval"]["items"] == [{"y": "x"}]
        token = second["requiresApproval"]["resumeToken"]
        assert (await resume(kit, token=token, approve=True))["output"] == [{"y": "x"}]


async def test_what_fails_after_an_approval_is_not_run_again_with_it(tmp_path: Path) -> None:
    async with open_kit(tmp_path, approver=Person()) as kit:
        token, _ = await halt(kit, "exec echo x | approve | exec false")
        assert (
            "exec failed (1)" in (await resume(kit, token=token, approve=True))["error"]["message"]
        )
        gone = await resume(kit, token=token, approve=True)
        assert gone["error"]["message"] == "Pipeline resume state not found"


async def test_only_so_much_can_wait(tmp_path: Path) -> None:
    (tmp_path / "huge.json").write_text(json.dumps("x" * 5_000_000))
    async with open_kit(tmp_path) as kit:
        huge = "exec --json --shell 'cat huge.json' | approve"
        envelope = await run(kit, huge, maxStdoutBytes=16_000_000)
        assert "too many to halt with" in envelope["error"]["message"]
        assert (await run(kit, "ask"))["status"] == "needs_input"
        with closing(sqlite3.connect(home() / "lobster.sqlite")) as db, db:
            more = "SELECT key || ?, session, approval, expires_s, body FROM halted LIMIT 1"
            db.executemany(f"INSERT INTO halted {more}", [(number,) for number in range(199)])
        assert "200 pipelines are waiting" in (await run(kit, "ask"))["error"]["message"]


async def test_only_who_may_approve_a_step_does(tmp_path: Path) -> None:
    steps = [
        {"id": "g", "approval": {"prompt": "?", "required_approver": "bob"}},
        {"id": "h", "approval": {"require_different_approver": True, "initiated_by": "bob"}},
        {"id": "z", "run": "echo done"},
    ]
    (tmp_path / "w.json").write_text(json.dumps({"steps": steps}))
    async with open_kit(tmp_path) as kit:
        token, id_ = await halt(kit, "w.json")
        answer(id_, actor="ann")
        said = await resume(kit, token=token, approve=True)
        assert "given by 'bob', not by 'ann'" in said["error"]["message"]
        again = await resume(kit, token=token, approve=True)
        answer(again["requiresApproval"]["approvalId"], actor="bob")
        second = await resume(kit, token=again["requiresApproval"]["resumeToken"], approve=True)
        asked = second["requiresApproval"]
        answer(asked["approvalId"], actor="bob")
        said = await resume(kit, token=asked["resumeToken"], approve=True)
        assert "another person than 'bob'" in said["error"]["message"]


async def test_a_workflow_that_was_changed_at_a_gate_is_not_continued(tmp_path: Path) -> None:
    steps = [{"id": "g", "approval": "?"}, {"id": "z", "run": "echo done"}]
    file = tmp_path / "w.json"
    file.write_text(json.dumps({"steps": steps}))
    async with open_kit(tmp_path, approver=Person()) as kit:
        token, _ = await halt(kit, "w.json")
        steps[1]["run"] = "echo evil"
        file.write_text(json.dumps({"steps": steps}))
        said = await resume(kit, token=token, approve=True)
        assert "has changed since it halted" in said["error"]["message"]


async def test_no_workflow_that_another_runs_is_changed_at_a_gate(tmp_path: Path) -> None:
    def flow(name: str, *steps: dict[str, Any]) -> None:
        (tmp_path / name).write_text(json.dumps({"steps": steps}))

    def write_all() -> None:
        flow("last.lobster", {"id": "z", "run": "echo fine"})
        flow("inner.json", {"id": "y", "pipeline": "workflows.run --name last"})
        flow("other.json", {"id": "y", "run": "echo other"})

    for steps in (
        [{"id": "w", "workflow": "inner.json"}],
        [{"id": "w", "workflow": "inner.json", "on_error": "continue"}],
        [{"id": "w", "workflow": "${file}"}],
        [{"id": "w", "workflow": "$a.stdout"}],
        [{"id": "w", "pipeline": "workflows.run --name last"}],
        [
            {"id": "x", "pipeline": "workflows.run $later.json", "on_error": "continue"},
            {"id": "w", "parallel": {"branches": [{"id": "v", "pipeline": "workflows.run last"}]}},
        ],
        None,
    ):
        gated = "ask | workflows.run last"
        if steps is not None:
            gated = "main.yaml"
            before = [{"id": "a", "run": "printf inner.json"}, {"id": "g", "approval": "?"}]
            data = {"args": {"file": {"default": "inner.json"}}, "steps": [*before, *steps]}
            (tmp_path / gated).write_text(json.dumps(data))
        async with open_kit(tmp_path, approver=Person()) as kit:
            for changed in (False, True):
                write_all()
                envelope = await run(kit, gated)
                asked = envelope["requiresApproval"] or envelope["requiresInput"]
                if changed:
                    flow("last.lobster", {"id": "z", "run": "echo evil"})
                given = {"approve": True} if steps else {"response": {"decision": "approve"}}
                said = await resume(kit, token=asked["resumeToken"], **given)
                if changed:
                    assert "has changed since it halted" in said["error"]["message"], steps
                elif steps is None or len(steps) == 1:
                    assert said["output"] == ["fine"], (steps, said)


async def test_only_workflows_that_were_named_at_the_gate_run_after_it(tmp_path: Path) -> None:
    steps = [
        {"id": "g", "approval": "?"},
        {"id": "make", "run": "cp w.json new.json; echo new.json"},
        {"id": "z", "workflow": "$make.stdout"},
    ]
    (tmp_path / "w.json").write_text(json.dumps({"steps": steps}))
    async with open_kit(tmp_path, approver=Person()) as kit:
        token, _ = await halt(kit, "w.json")
        said = await resume(kit, token=token, approve=True)
        assert "or was not part of it" in said["error"]["message"]


async def test_a_gate_does_not_reset_what_a_workflow_has_cost(tmp_path: Path) -> None:
    @tool
    async def spend() -> Result:
        """Spend a dollar."""
        return Result.text("ok", usage={"cost": 1.0})

    call = {"pipeline": "openclaw.invoke --tool spend"}
    steps = [{"id": "a", **call}, {"id": "g", "approval": "?"}, {"id": "b", **call}]
    data = {"cost_limit": {"max_usd": 1.5}, "steps": steps}
    (tmp_path / "w.json").write_text(json.dumps(data))
    async with open_kit(tmp_path, approver=Person(), tools=[spend]) as kit:
        token, _ = await halt(kit, "w.json")
        said = await resume(kit, token=token, approve=True)
        assert "has cost $2.0000" in said["error"]["message"]


def start(place: Path, *words: str) -> subprocess.Popen[str]:
    """A process that runs or resumes, and prints the envelope."""
    program = Path(__file__).with_name("lobster_resume.py")
    command: list[str | Path] = [sys.executable, program, place, *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_what_a_killed_process_left_at_a_gate_is_resumed_by_another(tmp_path: Path) -> None:
    with start(tmp_path, "run", GATE) as process:
        assert process.stdout is not None
        envelope = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
    asked = envelope["requiresApproval"]
    assert shown() == ["Go on?"]
    answer(asked["approvalId"])
    both = [start(tmp_path, "resume", asked["resumeToken"]) for _ in range(2)]
    for process in both:
        assert process.stdout is not None
    said = [json.loads(process.communicate(input=None)[0].splitlines()[0]) for process in both]
    won = [each for each in said if each.get("status") == "ok"]
    assert len(won) == 1, said
    assert won[0]["output"] == ["a", "b"]
    [lost] = [each for each in said if each.get("status") != "ok"]
    told = ("Pipeline resume state not found", "needs_approval")
    assert lost.get("error", {}).get("message") in told or lost["status"] in told


async def test_a_call_that_is_stopped_stops_its_commands(tmp_path: Path) -> None:
    async with open_kit(tmp_path, CONFIG) as kit:
        going = asyncio.ensure_future(run(kit, "exec --shell 'touch on; sleep 60; touch off'"))
        while not (tmp_path / "on").exists():
            await asyncio.sleep(0.01)
        going.cancel()
        await asyncio.wait([going])
        listed = await kit.call("process", {"action": "list"})
        assert "running" not in listed.as_text()
