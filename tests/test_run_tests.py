"""A test that fails only beside others does not fail the run, and one that is broken does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent.parent / "scripts" / "run_tests.py"
PROJECT = """
import pathlib
import pytest

MARK = pathlib.Path("tried")

def test_fine():
    pass

@pytest.mark.xdist_group("alone")
@pytest.mark.parametrize("name", ["a@b"])
def test_unsteady(name):
    seen = MARK.exists()
    MARK.touch()
    assert seen

def test_broken():
    assert {broken}
"""


def run(place: Path, project: str, **env: str) -> subprocess.CompletedProcess[str]:
    (place / "test_project.py").write_text(project, encoding="utf-8")
    return subprocess.run(
        [sys.executable, str(SCRIPT), "-q", "-p", "xdist", "-n", "2", "test_project.py"],
        cwd=place,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **env},
        capture_output=True,
        text=True,
    )


def test_a_failed_test_is_repeated_alone_and_named(tmp_path: Path) -> None:
    ran = run(tmp_path, PROJECT.format(broken="True"))
    assert ran.returncode == 0, ran.stdout
    assert "a test to fix): test_project.py::test_unsteady[a@b]\n" in ran.stdout
    assert "1 passed in" in ran.stdout


def test_a_test_that_fails_again_fails_the_run(tmp_path: Path) -> None:
    ran = run(tmp_path, PROJECT.format(broken="False"))
    assert ran.returncode == 1
    assert "1 failed, 1 passed in" in ran.stdout


def test_many_failures_are_not_run_again(tmp_path: Path) -> None:
    table = "import pytest\n@pytest.mark.parametrize('n', range(6))\ndef test_n(n): assert False"
    ran = run(tmp_path, table)
    assert ran.returncode == 1
    assert "run once more" not in ran.stdout


def test_a_run_that_hangs_fails_with_the_name_of_the_test(tmp_path: Path) -> None:
    sleeper = "import time\ndef test_that_sleeps():\n    time.sleep(1_000)\n"
    ran = run(tmp_path, sleeper, CLAWKIT_TEST_SILENCE_S="20")
    assert ran.returncode == 1
    assert "nothing for 20 s: the run hangs" in ran.stdout
    assert "in test_that_sleeps" in ran.stderr
