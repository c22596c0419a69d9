"""`scripts/setup` reports its steps; a stub replaces pip."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
_PIP = """#!/bin/sh
case "$*" in
  *requirements*) for each in $(seq 0 9); do
      echo "Collecting a$each==1 (from -r requirements/base.txt)"
      echo "  Downloading a$each-1-py3-none-any.whl (3.7 MB)"
      echo "Processing /wheels/b$each-1-py3-none-any.whl"
    done
    {command}
    echo "Installing collected packages: a, b"
    echo "Successfully installed a-1 b-1" ;;
esac
"""


@pytest.mark.parametrize(("command", "code"), [("true", 0), ("exit 3", 3)])
def test_each_step_is_reported_and_a_failure_ends_it(
    tmp_path: Path, command: str, code: int
) -> None:
    for name, text in (("venv/bin/python", _PIP), ("venv/bin/activate", ""), ("bin/bwrap", "")):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("{command}", command), encoding="utf-8")
        path.chmod(0o755)
    env = {
        **os.environ,
        "PYTHON": sys.executable,
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        [ROOT / "scripts" / "setup", tmp_path / "venv"],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (code, "")
    steps = ["fetching # packages", "  # of #", "  # of #"]
    if not code:
        steps += ["installing # packages", "installing clawkit", "compiling"]
    assert re.sub(r"\d+", "#", done.stdout).splitlines() == steps
    assert "  20 of " in done.stdout


def test_an_environment_that_was_not_completed_is_made_again(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nif [ "$2" = venv ]; then kill $PPID; fi\n', encoding="utf-8")
    python.chmod(0o755)
    old = tmp_path / "venv" / "bin" / "python"
    old.parent.mkdir(parents=True)
    old.write_text(_PIP, encoding="utf-8")
    old.chmod(0o755)
    done = subprocess.run(
        [ROOT / "scripts" / "setup", tmp_path / "venv"],
        cwd=ROOT,
        env={**os.environ, "PYTHON": str(python)},
        capture_output=True,
        text=True,
    )
    assert done.stdout == f"making {tmp_path / 'venv'}\n"
    assert not old.exists()
