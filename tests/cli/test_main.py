"""How the program begins, and ends before it has begun."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

AS_SCRIPT = "import sys; from clawkit.cli.main import run; sys.exit(run(sys.argv[1:]))"


@pytest.mark.parametrize("start", [("-m", "clawkit"), ("-c", AS_SCRIPT)], ids=["module", "script"])
@pytest.mark.parametrize(
    ("module", "said"), [("click", ""), ("gettext", ""), ("msgspec", "interrupted\n")]
)
def test_an_interrupt_while_modules_are_loaded_ends_it_without_a_traceback(
    start: tuple[str, ...], module: str, said: str, tmp_path: Path
) -> None:
    # Found before the real one, as is an interrupt that comes while that is read.
    (tmp_path / f"{module}.py").write_text("raise KeyboardInterrupt\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, *start, "agent", "-m", "list"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr.lstrip()) == (130, "", said)
