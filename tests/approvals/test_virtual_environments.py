"""Programs of a project's virtual environment: links and scripts that the agent could replace."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawkit.approvals.judge import Judge
from clawkit.approvals.path_rules import PathRules
from clawkit.approvals.protocols import ExecRequest
from clawkit.approvals.types import AllowlistEntry, Decision, Match
from clawkit.config.sections.tools import Exec
from clawkit.process.protocols import NO_GRANTS, Grants


class Project:
    """A workspace with `.venv/bin/python`, a link to a python that is not the agent's."""

    def __init__(self, folder: Path) -> None:
        self.workspace = folder / "ws"
        self.bin = self.workspace / ".venv/bin"
        self.bin.mkdir(parents=True)
        self.python = self.bin / "python"
        self.real = folder / "usr/bin/python3.11"
        self.real.parent.mkdir(parents=True)
        self.write(self.real, "\x7fELF")
        self.python.symlink_to(self.real)
        self.write(self.bin / "pytest", f"#!{self.python}\n")

    @staticmethod
    def write(path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)

    def judge(self, command: str, *entries: AllowlistEntry, leaves: bool = False) -> Decision:
        rules = PathRules(str(self.workspace))
        judge = Judge(
            Exec(),
            str(self.workspace.parent / "none.json"),
            may_read=rules.may_read,
            may_write=rules.may_write,
            more=entries,
        )
        env = {"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": "/home/me"}
        request = ExecRequest(command, str(self.workspace), env, wanted="host", leaves=leaves)
        return judge.judge(request)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_the_python_of_a_project_is_offered_exactly_and_by_the_preset(project: Project) -> None:
    decision = project.judge("python -m pytest -q")
    assert decision.verdict == "ask"
    assert decision.to_allow == "clawkit approvals allowlist add python --args python"
    assert [offer.extent for offer in decision.offers] == ["exact", "preset"]
    exact = decision.offers[0].entries[0]
    assert (exact.grants, exact.unconfined) == (NO_GRANTS, False)
    for offer in decision.offers:
        again = project.judge("python -m pytest -q", *offer.entries)
        assert (again.verdict, again.place, again.grants) == ("allow", "entry", NO_GRANTS)


def test_a_python_called_by_path_gets_a_path_suggestion(project: Project) -> None:
    decision = project.judge(".venv/bin/python -m pytest -q")
    expected = f"clawkit approvals allowlist add {project.python} --args python"
    assert decision.to_allow == expected


def test_an_exact_approval_ends_when_the_link_leads_elsewhere(project: Project) -> None:
    exact = project.judge("python -m pytest -q").offers[0].entries[0]
    other = project.real.with_name("python3.12")
    project.write(other, "\x7fELF of another")
    project.python.unlink()
    project.python.symlink_to(other)
    assert "has changed" in project.judge("python -m pytest -q", exact).reason


def test_the_preset_by_name_follows_the_link_of_a_project(project: Project) -> None:
    by_name = AllowlistEntry("python", args="python")
    assert project.judge("python -m pytest -q", by_name).verdict == "allow"
    assert project.judge("python -c 1", by_name).verdict == "ask"
    # With more than the sandbox gives, a link that the agent can replace is not enough.
    widened = AllowlistEntry("python", args="python", grants=Grants(network=True))
    assert project.judge("python -m pytest -q", widened).verdict == "ask"
    assert project.judge("python -m pytest -q", AllowlistEntry("python")).verdict == "ask"


def test_a_python_that_the_agent_could_have_written_is_not_followed(project: Project) -> None:
    by_name = AllowlistEntry("python", args="python")
    project.python.unlink()
    project.write(project.python, "\x7fELF of the agent")
    assert project.judge("python -m pytest -q", by_name).verdict == "ask"
    project.python.unlink()
    project.python.symlink_to("/usr/bin/env")
    assert project.judge("python -m pytest -q", by_name).verdict == "ask"


def test_a_project_script_is_offered_for_its_content_only(project: Project) -> None:
    decision = project.judge("pytest -q")
    assert [offer.extent for offer in decision.offers] == ["exact"]
    (entry,) = decision.offers[0].entries
    assert project.judge("pytest -q", entry).verdict == "allow"
    project.write(project.bin / "pytest", f"#!{project.python}\nevil()\n")
    assert "has changed" in project.judge("pytest -q", entry).reason


def test_a_link_of_the_agent_is_never_allowed_to_leave_the_sandbox(project: Project) -> None:
    assert project.judge("python -m pytest -q", leaves=True).offers == ()
    decision = project.judge("pytest -q", leaves=True)
    assert [offer.extent for offer in decision.offers] == ["exact"]
    assert not any(isinstance(each, Match) for each in decision.segments[0].results)
