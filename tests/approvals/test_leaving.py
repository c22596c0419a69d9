"""Leaving the sandbox: what a person allows once, for the session, or permanently."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tests.tables import table

from clawkit.approvals.entries import EXACT, describe_entry, entry_to_json, read_entry
from clawkit.approvals.file import add_entry, read_document
from clawkit.approvals.judge import Judge
from clawkit.approvals.protocols import ExecRequest
from clawkit.approvals.types import AllowlistEntry, Decision
from clawkit.config.paths import approvals_file
from clawkit.config.sections.tools import Exec
from clawkit.core.approval import Answer
from clawkit.process.protocols import NO_GRANTS, Grants
from clawkit.testing import ScriptedApprover, open_kit

ENV = {"PATH": "/usr/bin:/bin", "HOME": "/nowhere"}
OUTSIDE = ExecRequest("touch x", "/", ENV, wanted="host", leaves=True)


def judge(place: Path, request: ExecRequest, *entries: AllowlistEntry, **settings: Any) -> Decision:
    document = str(place / "document.json")
    for entry in entries:
        add_entry(document, "main", entry)
    return Judge(Exec(**settings), document).judge(request)


def test_only_the_very_same_call_can_be_allowed_to_leave(tmp_path: Path) -> None:
    asked = judge(tmp_path, OUTSIDE)
    assert (asked.verdict, asked.code, asked.place) == ("ask", "elevated", "host")
    [offer] = asked.offers
    assert offer.extent == "exact"
    allowed = judge(tmp_path, OUTSIDE, *offer.entries)
    assert (allowed.verdict, allowed.code, allowed.place) == ("allow", "allowlist", "host")
    for other in ("touch y", "touch x; touch y", "touch x > z", "touch x | sh"):
        assert judge(tmp_path, structs.replace(OUTSIDE, command=other)).verdict == "ask"
    assert judge(tmp_path, structs.replace(OUTSIDE, cwd="/usr")).verdict == "ask"


def test_an_entry_for_the_program_does_not_let_it_leave(tmp_path: Path) -> None:
    asked = judge(tmp_path, OUTSIDE, AllowlistEntry("/usr/bin/touch", args="any"))
    assert (asked.verdict, asked.code) == ("ask", "elevated")
    # Nor does it come first when the very same call may leave.
    [offer] = asked.offers
    assert judge(tmp_path, OUTSIDE, *offer.entries).verdict == "allow"


def test_what_may_leave_stays_inside_unless_it_asks(tmp_path: Path) -> None:
    [offer] = judge(tmp_path, OUTSIDE).offers
    inside = structs.replace(OUTSIDE, wanted="auto", leaves=False)
    assert judge(tmp_path, inside, *offer.entries).place in ("entry", "sandbox")


@pytest.mark.parametrize(
    "command", ["echo hi", "cd /usr", "touch x > y", "touch $(date)", "touch x; cat y"]
)
def test_a_command_no_entry_can_name_is_allowed_outside_only_once(
    command: str, tmp_path: Path
) -> None:
    asked = judge(tmp_path, structs.replace(OUTSIDE, command=command))
    assert (asked.verdict, asked.offers) == ("ask", ())


def test_without_an_approver_no_command_leaves_the_sandbox(tmp_path: Path) -> None:
    assert judge(tmp_path, OUTSIDE, ask="off").verdict == "deny"
    inside = structs.replace(
        OUTSIDE, wanted="sandbox", leaves=False, access=Grants(hosts=("a.example",))
    )
    assert judge(tmp_path, inside, ask="off").verdict == "deny"


DETACHED = ("background", "detach")


@pytest.mark.parametrize("wanted", ["auto", "sandbox"])
@pytest.mark.parametrize("entries", [(), (AllowlistEntry("/usr/bin/touch", args="any"),)])
def test_detaching_a_command_needs_a_person(
    wanted: Any, entries: tuple[AllowlistEntry, ...], tmp_path: Path
) -> None:
    request = ExecRequest("touch x", "/", ENV, wanted=wanted)
    assert judge(tmp_path, request, *entries).verdict == "allow"
    request = structs.replace(request, modes=DETACHED)
    asked = judge(tmp_path, request)
    assert (asked.verdict, asked.code, asked.offers) == ("ask", "detach", ())
    assert judge(tmp_path, request, ask="off").verdict == "deny"
    full = judge(tmp_path, request, security="full", ask="off")
    assert full.verdict == ("allow" if wanted == "auto" else "deny")


def test_the_very_same_call_that_may_leave_may_be_detached(tmp_path: Path) -> None:
    [offer] = judge(tmp_path, OUTSIDE).offers
    detached = structs.replace(OUTSIDE, modes=DETACHED)
    assert judge(tmp_path, detached).code == "elevated"
    assert judge(tmp_path, detached, *offer.entries).verdict == "allow"


ACCESS = Grants(hosts=("a.example",), read=("/srv/in",), write=("/srv/out",))


@pytest.mark.parametrize(
    ("granted", "verdict"),
    [
        (NO_GRANTS, "ask"),
        (ACCESS, "allow"),
        (ACCESS | Grants(hosts=("b.example",)), "allow"),
        (Grants(hosts=("a.example",), read=("/srv",), write=("/srv",)), "allow"),
        (Grants(hosts=("a.example",), write=("/srv",)), "allow"),
        (Grants(hosts=("a.example",), read=("/srv",)), "ask"),
        (Grants(hosts=("b.example",), write=("/srv",)), "ask"),
        (Grants(hosts=("a.example",), read=("/srv/i",), write=("/srv/out",)), "ask"),
    ],
)
def test_granted_access_is_not_asked_about_again(
    granted: Grants, verdict: str, tmp_path: Path
) -> None:
    request = ExecRequest("make", "/", ENV, wanted="auto", access=ACCESS, granted=granted)
    found = judge(tmp_path, request)
    assert (found.verdict, found.code, found.place) == (verdict, "access", "sandbox")
    assert found.grants == ACCESS


def test_access_that_is_granted_permanently_is_an_entry(tmp_path: Path) -> None:
    request = ExecRequest("make", "/", ENV, wanted="auto", access=ACCESS)
    [offer] = judge(tmp_path, request).offers
    assert offer.extent == "access"
    assert "the host a.example" in offer.words
    assert judge(tmp_path, request, *offer.entries).verdict == "allow"
    assert judge(tmp_path, structs.replace(request, command="true")).verdict == "allow"
    more = structs.replace(request, access=ACCESS | Grants(hosts=("b.example",)))
    assert judge(
        tmp_path, more, AllowlistEntry("", extent="access", grants=Grants(write=("/x",)))
    ).verdict
    assert judge(tmp_path, more).verdict == "ask"
    items = read_document(str(tmp_path / "document.json")).items
    assert [each.entry.extent for each in items] == ["access", "access"]
    always = judge(tmp_path, more, ask="always")
    assert (always.verdict, always.offers) == ("ask", ())


@table(
    ("value", "words"),
    [
        ({"extent": "access"}, "grants"),
        ({"extent": "access", "pattern": "git", "grants": {}}, "pattern"),
        ({"pattern": "git", "unconfined": True}, "exact call"),
        ({"pattern": "git", "argPattern": "^a$", "unconfined": True}, "exact call"),
        ({"pattern": "git", "unconfined": "yes"}, "expected `bool`"),
    ],
)
def test_invalid_entries_are_refused(value: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_entry(value)


def test_entries_are_stored_and_described() -> None:
    exact = AllowlistEntry("/bin/x", arg_pattern=f"{EXACT}00", unconfined=True)
    assert read_entry(entry_to_json(exact)) == exact
    assert "even outside the sandbox" in describe_entry(exact)
    access = AllowlistEntry("", extent="access", source="allow-always", grants=ACCESS)
    assert read_entry(entry_to_json(access)) == access
    assert "every command that requests it: the host a.example" in describe_entry(access)


async def test_a_directory_is_granted_for_the_session(workspace: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    approver = ScriptedApprover(Answer("allow", extent="session"))
    access = {"write": [str(outside)]}
    async with open_kit(workspace, approver=approver) as kit:
        for name in ("a", "b"):
            call = {"command": f"touch {outside}/{name}", "access": access}
            result = await kit.call("exec", call)
            assert result.details["exitCode"] == 0, result.as_text()
        [question] = approver.requests
        assert question.place == "in the sandbox"
        # It has to be asked for, and nothing else is granted by it.
        await kit.call("exec", {"command": f"touch {outside}/c"})
    assert sorted(os.listdir(outside)) == ["a", "b"]


async def test_a_command_is_allowed_outside_permanently(workspace: Path, tmp_path: Path) -> None:
    approver = ScriptedApprover(Answer("allow", extent="exact"))
    made = tmp_path / "made"
    call = {"command": f"touch {made}", "elevated": True}
    for _ in range(2):
        async with open_kit(workspace, approver=approver, owner=True) as kit:
            result = await kit.call("exec", call)
        assert result.details["exitCode"] == 0
        made.unlink()
    assert len(approver.requests) == 1
    stored = json.loads(Path(approvals_file(os.environ)).read_text())
    [entry] = stored["agents"]["main"]["allowlist"]
    assert entry["unconfined"] is True


async def test_clawkits_own_files_are_never_granted(workspace: Path) -> None:
    approver = ScriptedApprover()
    state = os.environ["CLAWKIT_HOME"]
    async with open_kit(workspace, approver=approver) as kit:
        for access in ({"read": [state]}, {"write": [state]}, {"hosts": ["http://a.example/"]}):
            result = await kit.call("exec", {"command": "true", "access": access})
            assert result.details["code"] == 400, result.as_text()
    assert approver.requests == []


def test_adding_an_entry_again_changes_its_grants(tmp_path: Path) -> None:
    document = str(tmp_path / "document.json")
    add_entry(document, "main", AllowlistEntry("make"))
    for grants in (Grants(), Grants(write=("/srv",))):
        assert add_entry(document, "main", AllowlistEntry("make", grants=grants))[1]
        [item] = read_document(document).items
        assert item.entry.grants == grants
    # An answer to a question does not.
    add_entry(
        document, "main", AllowlistEntry("make", source="allow-always", grants=Grants(network=True))
    )
    [item] = read_document(document).items
    assert item.entry.grants == Grants(write=("/srv",))


async def test_a_confined_command_is_detached_when_a_person_says_so(workspace: Path) -> None:
    call = {"command": "touch made; sleep 1000", "background": True, "detach": True}
    async with open_kit(workspace, owner=True) as kit:
        refused = await kit.call("exec", call)
        assert refused.details["deniedReason"] == "approval-unavailable"
        assert "it would outlive clawkit" in refused.as_text()
    assert not (workspace / "made").exists()
    approver = ScriptedApprover(Answer("allow", extent="session"))
    async with open_kit(workspace, approver=approver, owner=True) as kit:
        for _ in range(2):
            result = await kit.call("exec", call)
            assert "keeps running" in result.as_text()
            await kit.call("process", {"action": "kill", "sessionId": result.details["sessionId"]})
        # Another one is another question.
        other = await kit.call("exec", {**call, "command": "sleep 1000"})
        assert other.details["deniedReason"] == "approval"
    assert len(approver.requests) == 2
    assert [each.extent for each in approver.requests[0].lasting] == ["session"]
