"""`clawkit config` as a program of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from tests.cli.asking import PROGRAM, SLOW

from clawkit.config.json5 import parse


def content(file: Path) -> Any:
    return parse(file.read_text(encoding="utf-8")).value


def clawkit(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *args],
        capture_output=True,
        text=True,
        env={**os.environ, **env},
        timeout=60,
    )


def test_the_usual_file_is_made_in_the_home_directory(tmp_path: Path) -> None:
    home = tmp_path / "home"
    where = {"CLAWKIT_HOME": str(home)}
    assert clawkit("config", "get", **where).stdout == "{}\n"
    assert "the defaults apply" in clawkit("config", "validate", **where).stdout
    assert not home.exists()
    assert clawkit("config", "set", "tools.profile", "coding", **where).returncode == 0
    assert clawkit("config", "get", "tools.profile", **where).stdout == "coding\n"
    assert home.stat().st_mode & 0o777 == 0o700
    assert (home / "clawkit.json5").stat().st_mode & 0o777 == 0o600


def test_two_programs_at_once_lose_nothing(tmp_path: Path) -> None:
    where = {**os.environ, "CLAWKIT_HOME": str(tmp_path)}
    running = [
        subprocess.Popen(
            [*PROGRAM, "config", "set", f"env.vars.N{number}", "x"],
            env=where,
            stdout=subprocess.DEVNULL,
        )
        for number in range(6)
    ]
    assert [each.wait(50) for each in running] == [0] * 6
    found = content(tmp_path / "clawkit.json5")["env"]["vars"]
    assert set(found) == {f"N{number}" for number in range(6)}


def test_bad_usage_of_a_real_process_has_no_traceback(tmp_path: Path) -> None:
    for args in (("set",), ("set", "a"), ("get", "["), ("nonsense",), ("patch", "x")):
        done = clawkit("config", *args, CLAWKIT_HOME=str(tmp_path))
        assert done.returncode == 2, args
        assert "Traceback" not in done.stderr


def test_a_patch_without_input_is_a_usage_error(tmp_path: Path) -> None:
    done = subprocess.run(
        [*SLOW, "config", "patch", "-"],
        capture_output=True,
        text=True,
        preexec_fn=lambda: os.close(0),
        timeout=60,
    )
    assert done.returncode == 2
    assert "give --file FILE" in done.stderr
