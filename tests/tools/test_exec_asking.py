"""exec: commands that a person is asked about."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clawkit.approvals.broker import Broker, PendingStore
from clawkit.approvals.file import read_document
from clawkit.config.paths import approvals_file, audit_file, waiting_file
from clawkit.core.approval import Answer, Question
from clawkit.core.result import Result
from clawkit.errors import ClawkitError
from clawkit.runtime import Toolkit
from clawkit.testing import Events, ScriptedApprover
from clawkit.testing import open_kit as open_any_kit


def open_kit(workspace: Path, config: Any = None, **options: Any) -> Toolkit:
    """A kit whose commands run on the host, so that those that are not listed ask."""
    sandbox = {"agents": {"defaults": {"sandbox": {"mode": "off"}}}}
    return open_any_kit(workspace, config={**sandbox, **(config or {})}, **options)


class Person:
    """Answers every question in the same way, after doing something."""

    def __init__(self, answer: Answer, before: Callable[[], object] = lambda: None) -> None:
        self.answer = answer
        self.before = before
        self.asked: list[Question] = []

    async def ask(self, request: Question) -> Answer:
        self.asked.append(request)
        self.before()
        return self.answer


async def run(kit: Toolkit, command: str, **params: Any) -> Result:
    return await kit.call("exec", {"command": command, **params})


def document(value: Any) -> None:
    path = Path(approvals_file(os.environ))
    path.parent.mkdir(0o700, parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    path.chmod(0o600)


def records() -> list[dict[str, Any]]:
    text = Path(audit_file(os.environ)).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


async def test_an_approval_runs_it_once(workspace: Path) -> None:
    person = Person(Answer("allow"))
    async with open_kit(workspace, approver=person) as kit:
        assert (await run(kit, "touch one")).details["status"] == "completed"
        person.answer = Answer("deny", "not now")
        result = await run(kit, "touch one two")
    assert sorted(each.name for each in workspace.iterdir()) == ["a.txt", "one", "src"]
    assert result.details["deniedReason"] == "approval"
    assert "not now" in result.as_text()
    question = person.asked[0]
    assert (question.command, question.cwd, question.host) == (
        "touch one",
        str(workspace),
        "gateway",
    )
    assert [each["verdict"] for each in records()] == ["ask", "allow", "ask", "deny"]


async def test_the_variables_of_a_call_are_shown(workspace: Path) -> None:
    person = Person(Answer("deny"))
    async with open_kit(workspace, approver=person) as kit:
        await run(kit, "touch x", env={"GREETING": "hi\u202e", "MY_TOKEN": "s3cret-s3cret-s3cret"})
    assert person.asked[0].notes[-2:] == ("with GREETING=hi\\u{202e}", "with MY_TOKEN=***")


async def test_a_command_allowed_permanently_is_not_asked_about_again(workspace: Path) -> None:
    person = Person(Answer("allow", extent="exact"))
    async with open_kit(workspace, approver=person) as kit:
        for _ in range(3):
            assert (await run(kit, "touch one && rmdir gone 2>/dev/null")).details["exitCode"] == 1
    assert len(person.asked) == 1
    entries = read_document(approvals_file(os.environ)).entries_for("main")
    assert [(entry.pattern, entry.extent) for entry in entries] == [
        ("/usr/bin/touch", "exact"),
        ("/usr/bin/rmdir", "exact"),
    ]
    async with open_kit(workspace, approver=ScriptedApprover()) as kit:
        assert (await run(kit, "touch one")).details["status"] == "completed"
        assert (await run(kit, "touch two")).details["status"] == "blocked"
        assert (await run(kit, "touch one", workdir="src")).details["status"] == "blocked"


@pytest.mark.parametrize(
    ("command", "extents"),
    [
        ("touch x", ["exact", "program"]),
        ("git init -q", ["exact", "subcommand", "program"]),
        ("env touch x", ["exact", "program"]),
        ("python3 -c 'print(1)'", []),
        ("touch $(date)", []),
        ("touch x > y", []),
        ("bash -c 'touch x'", ["exact", "program"]),
        ("./tool.sh", ["exact"]),
        ("bash tool.sh", ["exact"]),
        ("python3 tool.py", ["exact"]),
        ("nowhere-to-be-found", []),
        ("touch *.txt", ["program"]),
        ("ls *.txt", ["program"]),
    ],
)
async def test_only_what_will_match_next_time_is_offered(
    workspace: Path, command: str, extents: list[str]
) -> None:
    (workspace / "tool.sh").write_text("#!/bin/sh\necho tool\n", encoding="utf-8")
    (workspace / "tool.sh").chmod(0o755)
    (workspace / "tool.py").write_text("print('tool')\n", encoding="utf-8")
    if "$" not in command:
        extents = [*extents, "session"]
    person = Person(Answer("deny"))
    async with open_kit(workspace, approver=person) as kit:
        await run(kit, command)
        assert [each.extent for each in person.asked[0].lasting] == extents
        for extent in extents:
            Path(approvals_file(os.environ)).unlink(missing_ok=True)
            person.answer = Answer("allow", extent=extent)  # type: ignore[arg-type]
            await run(kit, command)
            before = len(person.asked)
            result = await run(kit, command)
            assert len(person.asked) == before, result.as_text()
            status = "failed" if command == "nowhere-to-be-found" else "completed"
            assert result.details["status"] == status


async def test_a_script_that_was_changed_is_asked_about_again(workspace: Path) -> None:
    script = workspace / "tool.sh"
    script.write_text("#!/bin/sh\necho good\n", encoding="utf-8")
    script.chmod(0o755)
    person = Person(Answer("allow", extent="exact"))
    async with open_kit(workspace, approver=person) as kit:
        assert (await run(kit, "./tool.sh")).as_text() == "good"
        assert (await run(kit, "./tool.sh")).as_text() == "good"
        assert len(person.asked) == 1
        script.write_text("#!/bin/sh\necho evil\n", encoding="utf-8")
        person.answer = Answer("deny")
        assert (await run(kit, "./tool.sh")).details["status"] == "blocked"


@pytest.mark.parametrize("what", ["script", "program", "directory", "policy"])
async def test_an_approval_is_only_for_what_was_shown(workspace: Path, what: str) -> None:
    place = workspace / "place"
    (workspace / "there").mkdir()
    place.symlink_to(workspace / "there")
    script = workspace / "there" / "tool.sh"
    script.write_text("#!/bin/sh\ntouch ../ran\n", encoding="utf-8")
    script.chmod(0o755)
    other = workspace / "other"
    other.mkdir()
    (other / "tool.sh").write_text("#!/bin/sh\ntouch ../evil\n", encoding="utf-8")
    (other / "tool.sh").chmod(0o755)

    def change() -> None:
        if what == "script":
            script.write_text("#!/bin/sh\ntouch ../evil\n", encoding="utf-8")
        elif what == "program":
            (other / "tool.sh").replace(script)
        elif what == "directory":
            place.unlink()
            place.symlink_to(other)
        else:
            document({"version": 1, "defaults": {"security": "deny", "ask": "off"}})

    async with open_kit(workspace, approver=Person(Answer("allow"), change)) as kit:
        result = await run(kit, "./tool.sh", workdir="place")
    assert result.details["deniedReason"] == "approval"
    assert "not run" in result.as_text()
    assert not (workspace / "evil").exists()
    assert not (workspace / "ran").exists()


async def test_durable_trust_does_not_stop_questions_that_are_always_asked(workspace: Path) -> None:
    document(
        {
            "version": 1,
            "agents": {"*": {"allowlist": ["/usr/bin/touch"]}},
            "defaults": {"security": "full", "ask": "always"},
        }
    )
    person = Person(Answer("allow", extent="program"))
    async with open_kit(workspace, approver=person) as kit:
        result = await run(kit, "touch x")
    assert person.asked[0].lasting == ()
    # What was not offered cannot be chosen.
    assert result.details["status"] == "blocked"


@pytest.mark.parametrize(
    ("written", "verdict"),
    [
        ("{", "blocked"),
        ({"version": 1, "defaults": {"security": 7}}, "blocked"),
        ({"version": 1, "agents": {"*": {"allowlist": "touch"}}}, "blocked"),
        ({"version": 1}, "blocked"),
        (
            {
                "version": 1,
                "agents": {"main": {"security": "allowlist", "allowlist": ["/usr/bin/touch"]}},
            },
            "completed",
        ),
        (
            {
                "version": 1,
                "agents": {"*": {"security": "allowlist", "allowlist": [{"pattern": "touch"}]}},
            },
            "completed",
        ),
        (
            {"version": 1, "agents": {"other": {"security": "allowlist", "allowlist": ["touch"]}}},
            "blocked",
        ),
        (
            {
                "version": 1,
                "defaults": {"security": "full"},
                "agents": {"main": {"security": "deny"}},
            },
            "blocked",
        ),
    ],
)
async def test_the_document_decides_too(workspace: Path, written: Any, verdict: str) -> None:
    document(written)
    async with open_kit(workspace) as kit:
        result = await run(kit, "touch x")
    assert result.details["status"] == verdict
    assert (workspace / "x").exists() == (verdict == "completed")


async def test_a_document_that_is_a_link_is_not_followed(workspace: Path) -> None:
    everything = {"version": 1, "defaults": {"security": "full", "ask": "off"}}
    (workspace / "fake.json").write_text(json.dumps(everything), encoding="utf-8")
    Path(approvals_file(os.environ)).symlink_to(workspace / "fake.json")
    async with open_kit(workspace, config={"tools": {"exec": {"mode": "full"}}}) as kit:
        result = await run(kit, "touch x")
    assert result.details["deniedReason"] == "security"
    assert not (workspace / "x").exists()


async def test_the_use_of_an_entry_is_recorded(workspace: Path) -> None:
    entry = {"id": "e1", "pattern": "/usr/bin/touch"}
    document({"version": 1, "agents": {"*": {"security": "allowlist", "allowlist": [entry]}}})
    async with open_kit(workspace) as kit:
        await run(kit, "touch x")
    [item] = read_document(approvals_file(os.environ)).items
    assert item.used_ms is not None
    assert (item.used_command, item.used_path) == ("touch x", "/usr/bin/touch")


@pytest.mark.parametrize(
    ("fallback", "security", "ask", "ran"),
    [
        ("deny", "full", "always", False),
        ("full", "full", "always", True),
        ("allowlist", "full", "always", True),
        ("full", "allowlist", "always", True),
        ("full", "allowlist", "on-miss", True),
    ],
)
async def test_the_fallback_applies_if_no_one_can_be_asked(
    workspace: Path, fallback: str, security: str, ask: str, ran: bool
) -> None:
    policy = {"security": security, "ask": ask, "askFallback": fallback}
    document({"version": 1, "defaults": policy, "agents": {"*": {"allowlist": ["touch"]}}})
    async with open_kit(workspace) as kit:
        result = await run(kit, "touch x")
    assert (workspace / "x").exists() is ran
    assert (result.details["status"] == "completed") is ran


async def test_no_fallback_lets_code_on_the_command_line_pass(workspace: Path) -> None:
    document({"version": 1, "defaults": {"security": "full", "ask": "off", "askFallback": "full"}})
    settings = {"tools": {"exec": {"mode": "full", "strictInlineEval": True}}}
    async with open_kit(workspace, config=settings) as kit:
        assert (await run(kit, "python3 -c 'print(1)'")).details["status"] == "blocked"
        assert (await run(kit, "python3 --version")).details["status"] == "completed"


async def test_no_answer_is_a_denial(workspace: Path) -> None:
    class Silent:
        async def ask(self, request: Question) -> Answer:
            await asyncio.Event().wait()
            raise AssertionError

    settings = {"approvals": {"timeoutSeconds": 1}}
    async with open_kit(workspace, config=settings, approver=Silent()) as kit:
        result = await run(kit, "touch x")
    assert result.details["deniedReason"] == "approval-unavailable"
    assert "no answer within 1s" in result.as_text()
    assert not (workspace / "x").exists()


async def test_after_three_denials_the_model_is_asked_to_stop(workspace: Path) -> None:
    async with open_kit(workspace, approver=Person(Answer("deny"))) as kit:
        said = [(await run(kit, f"touch {number}")).as_text() for number in range(4)]
        assert ["Do not try other ways" in each for each in said] == [False, False, True, True]
        # What works in between does not make it another goal.
        await run(kit, "pwd")
        assert "Do not try other ways" in (await run(kit, "touch x")).as_text()
        assert "Do not try other ways" not in (await run(kit, "mkdir x")).as_text()


async def test_a_broken_script_raises_no_question(workspace: Path) -> None:
    (workspace / "bad.py").write_text("print($HOME)\n", encoding="utf-8")
    person = Person(Answer("allow"))
    async with open_kit(workspace, approver=person) as kit:
        result = await run(kit, "python3 bad.py")
    assert result.details["code"] == 400
    assert person.asked == []


async def test_secrets_in_a_command_are_shown_to_no_one(workspace: Path) -> None:
    secret = "CANARY7f3aCANARY7f3aCANARY"
    person = Person(Answer("deny"))
    async with open_kit(workspace, approver=person) as kit:
        await run(kit, f"curl -H 'X-Api-Key: {secret}' https://example.com")
    stored = b"".join(
        path.read_bytes() for path in Path(os.environ["CLAWKIT_HOME"]).rglob("*") if path.is_file()
    )
    assert secret not in repr(person.asked)
    assert secret.encode() not in stored
    assert b"X-Api-Key" in stored


@pytest.mark.parametrize(
    "command",
    [
        "git clone https://x:;touch${IFS}PWNED;@h/",
        "echo https://user:$(touch${IFS}PWNED)@example.com",
        'curl -H "Authorization: Basic $(touch PWNED)aaaa" http://h',
        "echo --token `touch PWNED`",
        "echo password=abc\ntouch PWNED",
    ],
)
async def test_masking_hides_no_text_that_the_shell_acts_on(workspace: Path, command: str) -> None:
    person = Person(Answer("deny"))
    async with open_kit(workspace, approver=person) as kit:
        await run(kit, command)
    assert "touch" in person.asked[0].command
    assert "PWNED" in person.asked[0].command


class Later:
    """A kit whose questions are answered from elsewhere."""

    def __init__(self, workspace: Path, **settings: Any) -> None:
        self.events = Events()
        self.kit = open_kit(
            workspace,
            later=True,
            on_event=self.events,
            config={"tools": {"exec": settings}} if settings else {},
        )
        self.store = PendingStore(waiting_file(os.environ))

    def answer(self, id_: str, choice: str, **more: Any) -> None:
        Broker(self.store).resolve(id_, choice, authorized=True, **more)

    async def notices(self, count: int) -> list[dict[str, Any]]:
        async with asyncio.timeout(60):
            while True:
                found = [dict(each) for each in self.events if each["type"] == "notice"]
                if len(found) >= count:
                    return found
                await asyncio.sleep(0.02)


async def test_a_command_allowed_later_runs_and_is_reported(workspace: Path) -> None:
    later = Later(workspace)
    async with later.kit as kit:
        result = await run(kit, "touch x")
        details = result.details
        assert details["status"] == "approval-pending"
        assert details["approvalSlug"] == details["approvalId"][:8]
        assert details["expiresAtMs"] > time.time() * 1000
        assert not (workspace / "x").exists()
        assert not result.is_error
        later.answer(details["approvalSlug"], "allow-once")
        [notice] = await later.notices(1)
        assert notice["details"]["approvalId"] == details["approvalId"]
        assert notice["details"]["exitCode"] == 0
        with pytest.raises(ClawkitError, match="already answered"):
            later.answer(details["approvalId"], "allow-once")
    assert (workspace / "x").exists()


async def test_a_later_denial_is_reported_with_its_reason(workspace: Path) -> None:
    later = Later(workspace)
    async with later.kit as kit:
        details = (await run(kit, "touch x")).details
        later.answer(details["approvalId"], "deny", reason="use the write tool")
        [notice] = await later.notices(1)
    assert "use the write tool" in notice["content"][0]["text"]
    assert notice["details"]["deniedReason"] == "approval"
    assert not (workspace / "x").exists()


async def test_a_long_command_allowed_later_reports_its_progress(workspace: Path) -> None:
    later = Later(workspace, approvalRunningNoticeMs=50)
    async with later.kit as kit:
        details = (await run(kit, "sleep 300")).details
        later.answer(details["approvalId"], "allow-once")
        [notice] = await later.notices(1)
        assert notice["details"]["status"] == "running"
        assert notice["details"]["approvalSlug"] == details["approvalSlug"]


async def test_pending_questions_end_with_the_run(workspace: Path) -> None:
    later = Later(workspace)
    async with later.kit as kit:
        details = (await run(kit, "touch x")).details
    with pytest.raises(ClawkitError):
        later.answer(details["approvalId"], "allow-once")
    assert not (workspace / "x").exists()


async def test_a_sender_without_the_right_cannot_approve(workspace: Path) -> None:
    later = Later(workspace)
    async with later.kit as kit:
        details = (await run(kit, "touch x")).details
        with pytest.raises(ClawkitError, match="only an approver"):
            Broker(later.store).resolve(details["approvalId"], "allow-once", authorized=False)
    assert not (workspace / "x").exists()


@pytest.mark.parametrize("children", ["any", "named"])
async def test_the_kernel_limits_what_a_listed_program_starts(
    workspace: Path, children: str
) -> None:
    entry = {"pattern": "/usr/bin/awk", "args": "any", "children": children}
    document({"version": 1, "agents": {"*": {"security": "allowlist", "allowlist": [entry]}}})
    async with open_kit(workspace) as kit:
        result = await run(kit, """awk 'BEGIN { print "hi"; system("/usr/bin/touch x") }'""")
    assert result.as_text().startswith("hi")
    assert (workspace / "x").exists() == (children == "any")
