from __future__ import annotations

from pathlib import Path

from clawkit.config.paths import config_file, expand, home, include_roots


def test_everything_lives_in_the_home_directory_by_default() -> None:
    env = {"HOME": "/home/someone"}
    assert home(env) == "/home/someone/.clawkit"
    assert config_file(env) == "/home/someone/.clawkit/clawkit.json5"
    assert include_roots(env) == ()


def test_the_environment_moves_the_home_and_the_file() -> None:
    env = {"HOME": "/home/someone", "CLAWKIT_HOME": "~/state"}
    assert config_file(env) == "/home/someone/state/clawkit.json5"
    env["CLAWKIT_CONFIG"] = "/etc/openclaw.json"
    assert config_file(env) == "/etc/openclaw.json"
    assert home(env) == "/home/someone/state"


def test_empty_variables_count_as_unset() -> None:
    env = {"HOME": "/h", "CLAWKIT_HOME": "", "CLAWKIT_CONFIG": "", "CLAWKIT_INCLUDE_ROOTS": ""}
    assert config_file(env) == "/h/.clawkit/clawkit.json5"
    assert include_roots(env) == ()


def test_include_roots_are_a_path_list() -> None:
    env = {"HOME": "/h", "CLAWKIT_INCLUDE_ROOTS": "~/shared::/srv/config/../team"}
    assert include_roots(env) == ("/h/shared", "/srv/team")


def test_relative_paths_become_absolute() -> None:
    assert expand("x.json5", {}) == str(Path.cwd() / "x.json5")
    assert expand("~", {}) == str(Path.home())
    assert expand("~x", {"HOME": "/h"}) == str(Path.cwd() / "~x")
