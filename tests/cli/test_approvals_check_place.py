"""`clawkit approvals check`: where a command would run."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.cli.test_approvals_check import Check, Done, check, feed
from tests.cli.test_sandbox import BACKENDS, configure

from clawkit.approvals.types import Decision, Policy
from clawkit.cli.approvals_check import show
from clawkit.command_check import to_json
from clawkit.process.protocols import Grants

__all__ = ["check", "feed"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_command_runs_unasked_in_the_sandbox(check: Check, backend: str) -> None:
    configure(backend=backend)
    done = check("python3 -c 'import os'", "--json")
    assert done.code == 0
    assert done.json["verdict"] == "allow"
    assert done.json["place"] == "sandbox"
    assert "grants" not in done.json
    assert done.json["analysis"] is None
    assert check("rm -rf .").out.startswith(f"allow, in the sandbox ({backend}): ")


def test_the_host_can_be_asked_about(check: Check) -> None:
    done = check("python3 x.py", "--place", "host", "--json")
    assert done.code == 3
    assert done.json["verdict"] == "ask"
    assert done.json["place"] == "host"
    shown = check("python3 x.py", "--place", "host").out
    assert "\n  if approved, it runs on the host, unconfined\n" in shown


def test_grants_of_an_entry_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    policy, grants = Policy("allowlist", "on-miss"), Grants(network=True, write=("/srv/x",))
    decision = Decision("allow", policy, "by a rule", place="entry", grants=grants)
    assert to_json(decision)["place"] == "entry"
    assert to_json(decision)["grants"] == {"network": True, "write": ["/srv/x"]}
    show(decision, "git fetch")
    shown = capsys.readouterr().out
    assert shown.startswith("allow, on the host, confined, by entry: ")
    assert "granted beyond the sandbox: the whole network, write access to /srv/x" in shown


def test_without_a_sandbox_commands_are_judged_for_the_host(check: Check) -> None:
    configure(mode="off")
    assert check("python3 x.py", "--json").json["place"] == "host"
    assert check("python3 x.py", "--place", "auto", "--json").json["verdict"] == "ask"
    assert check("python3 x.py", "--place", "sandbox", "--json").json["place"] == "sandbox"


def test_where_every_command_is_asked_about_the_sandbox_is_no_exception(check: Check) -> None:
    done = check("ls", "--ask", "always", "--json")
    assert done.json["verdict"] == "ask"
    assert done.json["place"] == "sandbox"
    assert "if approved, it runs in the sandbox" in check("ls", "--ask", "always").out


def test_a_given_allowlist_is_judged_for_the_host_unless_a_place_is_named(check: Check) -> None:
    assert check("git log", "--allow", "ls", "--json").json["verdict"] == "ask"
    assert check("head -3", "--safe-bin", "head", "--json").json["place"] == "entry"
    named = check("git log", "--allow", "ls", "--place", "auto", "--json")
    assert named.json["place"] == "sandbox"


def test_a_sandbox_that_cannot_be_used_refuses_every_command(check: Check) -> None:
    configure(backend="openshell")
    done = check("ls", "--json")
    assert done.code == 3
    assert done.json["verdict"] == "deny"
    assert done.json["place"] is None
    assert done.json["analysis"] is None
    assert "'openshell' is not supported" in check("ls").out


def test_a_host_that_is_not_there_refuses_every_command(check: Check) -> None:
    configure(mode="off")
    file = Path(os.environ["CLAWKIT_HOME"]) / "clawkit.json5"
    file.write_text('{tools: {exec: {host: "node"}}}', encoding="utf-8")
    assert check("ls", "--json").json["code"] == "host"


def test_lines_name_a_place(feed: Check) -> None:
    done: Done = feed(
        {"command": "ls", "id": 1},
        {"command": "ls", "id": 2, "place": "host"},
        {"command": "ls", "id": 3, "allowlist": ["/usr/bin/ls"]},
        {"command": "ls", "id": 4, "allowlist": [], "place": "auto"},
        {"command": "ls", "id": 5, "allowlist": []},
        {"command": "ls", "id": 6, "place": "moon"},
        {"command": "ls", "id": 7, "place": 7},
    )
    found = {each["id"]: (each["verdict"], each.get("place")) for each in done.lines}
    assert found == {
        1: ("allow", "sandbox"),
        2: ("ask", "host"),
        3: ("allow", "entry"),
        4: ("allow", "sandbox"),
        5: ("ask", "host"),
        6: ("deny", None),
        7: ("deny", None),
    }
    said = "place: Invalid enum value 'moon'; use one of auto, sandbox, host"
    assert said in done.lines[5]["error"]
    assert done.code == 1


def test_jsonl_takes_no_place_of_its_own(check: Check) -> None:
    assert check("--jsonl", "--place", "host").code == 2


def test_rules_about_files_count(check: Check, workspace: Path) -> None:
    file = Path(os.environ["CLAWKIT_HOME"]) / "clawkit.json5"
    rule = {"tool": "read", "params": {"path": "*.txt"}, "effect": "deny"}
    file.write_text(json.dumps({"tools": {"rules": [rule]}}), encoding="utf-8")
    options = ("--allow", "/usr/bin/cat", "--json")
    assert check("cat < src/main.py", *options).json["verdict"] == "allow"
    assert check("cat < a.txt", *options).json["verdict"] == "ask"
