"""Which programs a skill can have allowed."""

from __future__ import annotations

import os
from pathlib import Path

from clawkit.approvals.judge import Judge
from clawkit.approvals.protocols import ExecRequest
from clawkit.approvals.skill_entries import entries_for, is_too_much
from clawkit.config.sections.tools import Exec

TOO_MUCH = (
    *("/bin/sh", "/usr/bin/bash", "/usr/bin/zsh", "/usr/bin/python3", "/usr/bin/python3.11"),
    *("/usr/bin/node", "/usr/bin/perl", "/usr/bin/awk", "/usr/bin/sed", "/usr/local/bin/deno"),
    *("/usr/bin/env", "/usr/bin/sudo", "/usr/bin/xargs", "/usr/bin/ssh", "/usr/bin/timeout"),
    *("/usr/bin/cargo", "/usr/bin/go", "/usr/bin/pip3.12", "/usr/bin/just", "/usr/bin/terraform"),
    *("/usr/bin/tee", "/bin/rm", "/bin/dd", "/usr/bin/install", "/usr/bin/rvim", "/opt/bin/claude"),
    *("/usr/bin/npx", "/usr/bin/uv", "/usr/bin/busybox", "/usr/bin/find", "/usr/bin/nice"),
)
FINE = ("/usr/bin/uname", "/usr/bin/curl", "/usr/local/bin/gh", "/opt/weather/bin/weather")


def test_programs_that_run_others_are_never_allowed_by_a_skill() -> None:
    assert [path for path in TOO_MUCH if not is_too_much(path)] == []
    assert [path for path in FINE if is_too_much(path)] == []


def test_a_link_to_an_interpreter_is_never_allowed_by_a_skill(tmp_path: Path) -> None:
    (tmp_path / "harmless").symlink_to("/bin/sh")
    assert is_too_much(str(tmp_path / "harmless"))


def test_programs_that_the_agent_could_replace_are_not_allowed(tmp_path: Path) -> None:
    for name in ("mine", "elsewhere"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tool").write_bytes(b"")
    tool, safe = str(tmp_path / "mine" / "tool"), str(tmp_path / "elsewhere" / "tool")
    link = tmp_path / "elsewhere" / "link"
    link.symlink_to(tool)
    here = str(tmp_path / "mine")

    def allowed(*may_write: str) -> list[str]:
        found = entries_for([tool, safe, str(link)], lambda path: path in may_write)
        return [each.pattern for each in found]

    assert allowed() == [tool, safe, str(link)]
    assert allowed(here) == allowed(tool) == [safe]
    assert allowed(str(link)) == [tool, safe]
    assert entries_for(["tool", "./tool", "/opt/*/tool"], lambda _path: False) == ()


def test_the_document_decides_for_each_agent(tmp_path: Path) -> None:
    document = tmp_path / "exec-approvals.json"
    defaults = '"security": "full", "ask": "off", "askFallback": "deny"'

    def verdict(agents: str, default: str = "false", agent: str = "main") -> str:
        text = f'{{"defaults": {{{defaults}, "autoAllowSkills": {default}}}, "agents": {agents}}}'
        document.write_text(text, encoding="utf-8")
        document.chmod(0o600)
        judge = Judge(
            Exec(), str(document), agent=agent, skill_programs=lambda: ("/usr/bin/uname",)
        )
        return judge.judge(ExecRequest("uname -s", "/", {"PATH": os.defpath + ":/usr/bin"})).verdict

    assert verdict("{}") == "ask"
    assert verdict("{}", "true") == "allow"
    assert verdict('{"main": {"autoAllowSkills": true}}') == "allow"
    assert verdict('{"main": {"autoAllowSkills": false}}', "true") == "ask"
    assert verdict('{"*": {"autoAllowSkills": true}}', agent="second") == "allow"
    assert verdict('{"main": {"autoAllowSkills": true}}', agent="second") == "ask"
