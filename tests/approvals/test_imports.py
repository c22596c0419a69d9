"""What the first command of a process costs."""

from __future__ import annotations

import subprocess
import sys

LOOKING = ("allowlist", "analysis", "decide", "interpreters", "prompt", "shell_parse")


def test_a_command_that_needs_no_look_loads_nothing_that_looks() -> None:
    code = """
import sys
from msgspec.structs import replace
from clawkit.approvals.gate import LocalGate
from clawkit.approvals.judge import Judge
from clawkit.approvals.protocols import ExecRequest
from clawkit.config.sections.tools import Exec
where = sys.argv[1]
asked = ExecRequest("make all | tee out", "/", {}, wanted="auto")
print(Judge(Exec(), where).judge(asked).place)
print(Judge(Exec(mode="full"), where).judge(replace(asked, wanted="host")).place)
print(*sys.modules)
"""
    argv = [sys.executable, "-c", code, "/nowhere/exec-approvals.json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    *places, modules = done.stdout.splitlines()
    assert places == ["sandbox", "host"]
    assert {f"clawkit.approvals.{name}" for name in LOOKING}.isdisjoint(modules.split())
