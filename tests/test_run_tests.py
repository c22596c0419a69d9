"""Every test is run once in some worker, and told; what fails only beside others is no failure."""

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


def run(place: Path, project: str, *options: str) -> subprocess.CompletedProcess[str]:
    (place / "test_project.py").write_text(project, encoding="utf-8")
    return subprocess.run(
        [sys.executable, str(SCRIPT), "-q", "-p", "xdist", *options],
        cwd=place,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
    )


def test_what_fails_is_run_again_by_itself_and_named(tmp_path: Path) -> None:
    ran = run(tmp_path, PROJECT.format(broken="True"), str(tmp_path))
    assert ran.returncode == 0, ran.stdout
    assert "a test to fix): test_project.py::test_unsteady[a@b]\n" in ran.stdout
    assert "1 passed in" in ran.stdout


def test_what_fails_again_fails_the_run(tmp_path: Path) -> None:
    ran = run(tmp_path, PROJECT.format(broken="False"))
    assert ran.returncode == 1
    assert "1 failed, 1 passed in" in ran.stdout


def test_many_failures_are_not_run_again(tmp_path: Path) -> None:
    table = "import pytest\n@pytest.mark.parametrize('n', range(6))\ndef test_n(n): assert False"
    ran = run(tmp_path, table)
    assert ran.returncode == 1
    assert "run once more" not in ran.stdout


def test_a_worker_that_dies_fails_the_test_that_it_ran(tmp_path: Path) -> None:
    dying = "import os, pytest\n"
    for number, end in enumerate(("os.kill(os.getpid(), 9)", "os._exit(3)", "pass")):
        dying += f"def test_{number}(): {end}\n"
    ran = run(tmp_path, dying + "@pytest.mark.parametrize('n', range(20))\ndef test_n(n): pass")
    assert "FAILED test_project.py::test_0 - the worker was ended by signal 9" in ran.stdout
    assert "FAILED test_project.py::test_1 - the worker was ended by exit code 3" in ran.stdout
    assert "2 failed, 21 passed in" in ran.stdout


FIXTURES = """
import os, random
import pytest

@pytest.fixture(scope="session", autouse=True)
def chance():
    with open("chance", "a") as file:
        file.write(f"{random.random()} ")

@pytest.fixture(scope="session")
def made(tmp_path_factory):
    place = tmp_path_factory.mktemp("made")
    yield place
    with open("ended", "a") as file:
        file.write(f"{os.getpid()} ")

@pytest.mark.xdist_group("one")
@pytest.mark.parametrize("n", range(20))
def test_grouped(made, n):
    print("caught")
    with open("grouped", "a") as file:
        file.write(f"{os.getpid()} ")

@pytest.mark.parametrize("n", range(60))
def test_alone(made, n, capsys):
    (made / str(n)).touch(exist_ok=False)
    print(n)
    assert capsys.readouterr().out == f"{n}\\n"
    with open("alone", "a") as file:
        file.write(f"{os.getpid()} ")
"""


def test_groups_stay_together_and_every_worker_ends_its_fixtures(tmp_path: Path) -> None:
    ran = run(tmp_path, FIXTURES)
    assert "80 passed in" in ran.stdout, ran.stdout
    assert "caught" not in ran.stdout
    grouped, alone, ended = (
        (tmp_path / name).read_text().split() for name in ("grouped", "alone", "ended")
    )
    assert len(set(grouped)) == 1
    chance = (tmp_path / "chance").read_text().split()
    assert len(set(chance)) == len(chance) == len(ended)
    assert len(alone) == 60
    assert sorted(ended) == sorted({*grouped, *alone})


def test_what_workers_cover_is_put_together(tmp_path: Path) -> None:
    (tmp_path / "covered.py").write_text("def a():\n    return 1\n\ndef b():\n    return 2\n")
    tests = "import covered, pytest\n"
    for name in ("a", "b"):
        tests += f"@pytest.mark.xdist_group('{name}')\ndef test_{name}(): covered.{name}()\n"
    options = ("-p", "pytest_cov", "--cov", "covered", "--cov-fail-under=100")
    ran = run(tmp_path, tests, *options)
    assert ran.returncode == 0, ran.stdout
    assert "Total coverage: 100.00%" in ran.stdout
    less = run(tmp_path, tests, *options, "--deselect", "test_project.py::test_b")
    assert less.returncode == 1
