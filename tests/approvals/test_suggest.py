"""Rules proposed from what people have allowed."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from clawkit.approvals import allow_always
from clawkit.approvals.allow_always import Suggestion, suggest
from clawkit.approvals.audit import Audit, read
from clawkit.approvals.entries import validate_pattern
from clawkit.approvals.judge import Judge
from clawkit.approvals.path_rules import PathRules
from clawkit.approvals.protocols import ExecRequest
from clawkit.approvals.types import AllowlistEntry
from clawkit.config.sections.tools import Exec

PROGRAMS = (
    *("git", "gh", "npm", "docker", "make", "tree", "rg", "fd", "bat", "mytool", "cargo"),
    *("rm", "curl", "python3", "node", "bash", "sudo", "ssh", "xargs", "clawkit", "timeout"),
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a workspace, and programs outside of it."""
    # Nothing is proposed for programs in /tmp, where these have to be.
    monkeypatch.setattr(allow_always, "_SHARED", (f"{tmp_path}/shared/",))
    (tmp_path / "bin").mkdir()
    (tmp_path / "work").mkdir()
    for name in (*PROGRAMS, "a\u200bb"):
        (tmp_path / "bin" / name).write_bytes(b"\x7fELF")
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


def asked(*calls: str, times: int = 1, **fields: Any) -> list[dict[str, Any]]:
    """Records of a question that was answered with yes."""
    record = {"verdict": "allow", "code": "miss", "actor": "the terminal", "agent": "main"}
    return [{**record, "command": " | ".join(calls), **fields}] * times


def found_in(place: Path, records: list[dict[str, Any]], *more: AllowlistEntry) -> list[Suggestion]:
    rules = PathRules(str(place / "work"))
    judge = Judge(
        Exec(),
        str(place / "none.json"),
        may_read=rules.may_read,
        may_write=rules.may_write,
        more=more,
    )
    env = {"PATH": str(place / "bin"), "HOME": str(place)}

    def rules_for(record: Mapping[str, Any]) -> list[AllowlistEntry | None]:
        return judge.find_rules(ExecRequest(record["command"], str(place / "work"), env))

    return suggest(records, rules_for)


def show(found: list[Suggestion]) -> dict[str, int]:
    """By program and arguments: the count."""
    return {f"{os.path.basename(each.pattern)} {each.args or ''}": each.count for each in found}


def test_a_sub_command_that_is_asked_for_often_becomes_a_rule(place: Path) -> None:
    (found,) = found_in(place, asked("npm test", times=11) + asked("npm test -s"))
    assert found == Suggestion(
        pattern=f"{place}/bin/npm",
        args={"subcommand": ["test"]},
        count=12,
        example="npm test -s",
        words=(
            f"clawkit approvals allowlist add {place}/bin/npm --agent main "
            """--args '{"subcommand": ["test"]}'"""
        ),
        note="it runs code from the project's files",
    )
    assert validate_pattern(found.pattern) == ""


NARROW: list[tuple[str, Any]] = [
    ("git status", "git-read"),
    ("git commit -m x", "git"),
    ("git stash list", "git-read"),
    ("git submodule status", {"subcommand": ["submodule status"]}),
    ("gh pr view 5", {"subcommand": ["pr view"]}),
    ("npm run build", {"subcommand": ["run build"]}),
    ("docker ps -a", "docker"),
    ("make test -j4", {"subcommand": ["test"]}),
    ("mytool deploy a", {"paths": "workspace"}),
    ("mytool src", {"paths": "workspace"}),
    ("mytool /etc", None),
]


@pytest.mark.parametrize(("command", "args"), NARROW)
def test_the_narrowest_rule_is_proposed(place: Path, command: str, args: Any) -> None:
    (found,) = found_in(place, asked(command, times=2))
    assert (found.args, found.count) == (args, 2)


NEVER: dict[str, list[dict[str, Any]]] = {
    "asked once": asked("git status"),
    "asked once each": asked("npm test") + asked("npm ls"),
    "not asked": asked("git status", times=5, actor="policy"),
    "nobody answered": asked("git status", times=5, actor="askFallback, because of nobody"),
    "only asked": asked("git status", times=5, verdict="ask"),
    "always asked": asked("git status", times=5, code=""),
    "redirected": asked("git status", times=5, code="redirect"),
    "not all of it is known": asked("git status", times=5, cut=True),
    "inline code": asked("python3 -c 1", times=5),
    "script": asked("python3 a.py", times=5) + asked("node a.js", times=5),
    "module": asked("python3 -m pytest", times=5),
    "shell": asked("bash a.sh", times=5),
    "wrapper": asked("timeout 5 mytool", times=5),
    "launchers": asked("sudo ls", times=5)
    + asked("xargs ls", times=5)
    + asked("ssh h ls", times=5),
    "rm": asked("rm -rf build", times=5),
    "curl": asked("curl https://example.org", times=5),
    "clawkit": asked("clawkit approvals get", times=5),
    "anything": asked("cargo run", times=5) + asked("docker run x", times=5),
    "no sub-command": asked("npm", times=0),
    "own program": asked("./run.sh", times=5),
    "invisible": asked("a\u200bb", times=5),
    "temporary program": asked("../shared/mytool", times=5),
    "not found": asked("nothing", times=5),
    "refused": asked("npm test", times=5) + asked("npm test", verdict="deny"),
    "refused with more": asked("npm test", times=5)
    + asked("npm test && rm -rf build", verdict="deny"),
    "refused before": asked("npm test", verdict="deny", code="redirect")
    + asked("npm test", times=5),
    "with a shell": asked("git status", "bash x", times=5),
    "with one asked once": asked("npm ls", "mytool x") + asked("mytool y"),
    "allowed by now": asked("tree", times=5),
    "no agent": asked("git status", times=5, agent=None),
    "no command": asked(times=5, command=5),
    "no sense": [{}, {"actor": "me"}, *asked("git status", times=5, verdict=[])],
}


@pytest.mark.parametrize("case", NEVER)
def test_no_rule_is_proposed_for_unsuitable_commands(place: Path, case: str) -> None:
    (place / "shared").mkdir()
    for path in ("work/run.sh", "shared/mytool"):
        (place / path).write_bytes(b"\x7fELF")
        (place / path).chmod(0o755)
    assert found_in(place, NEVER[case], AllowlistEntry("tree")) == []


def test_a_question_is_saved_only_by_rules_for_all_of_its_parts(place: Path) -> None:
    records = [
        *asked("npm ls", "mytool x", times=3),
        *asked("npm ls", "bash x", times=9),
        *asked("mytool y"),
    ]
    found = found_in(place, records)
    assert show(found) == {"mytool {'paths': 'workspace'}": 4, "npm npm": 3}
    assert found[0].example == "mytool y"


def test_a_program_that_comes_twice_in_a_question_counts_once(place: Path) -> None:
    assert show(found_in(place, asked("npm test", "npm test", times=2))) == {
        "npm {'subcommand': ['test']}": 2
    }


def test_the_most_useful_comes_first_for_each_agent(place: Path) -> None:
    records = [
        *asked("npm test", times=2),
        *asked("git status", times=5),
        *asked("git log", times=3, agent="other; rm -rf ~"),
        *asked("npm test", verdict="deny", agent="other"),
    ]
    found = found_in(place, records)
    assert [(each.agent, each.count) for each in found] == [
        ("main", 5),
        ("other; rm -rf ~", 3),
        ("main", 2),
    ]
    assert shlex.split(found[1].words)[6] == "other; rm -rf ~"
    assert [each.note != "" for each in found] == [False, False, True]


def test_suggestions_can_be_made_from_the_log(place: Path) -> None:
    path = str(place / "logs" / "log.jsonl")
    log = Audit(path)
    for record in asked("npm ls", "mytool --password hunter2222 x", times=3):
        log.write(record)
    found = found_in(place, list(map(dict, read(path))))
    assert {each.count for each in found} == {3}
    assert "hunter2222" not in str(found)


def test_a_document_that_cannot_be_read_refuses_everything(place: Path) -> None:
    (place / "broken.json").write_text("{")
    (place / "broken.json").chmod(0o600)
    decision = Judge(Exec(), str(place / "broken.json")).judge(ExecRequest("ls", str(place), {}))
    assert (decision.verdict, decision.code) == ("deny", "document")
    assert "broken.json: line 1" in decision.reason
