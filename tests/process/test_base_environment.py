"""The environment that commands start with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clawkit.process import environ as environ_module
from clawkit.process.environ import KEEP_S, LocalEnvironment


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A login shell has all the time it needs, however busy the machine is."""
    defaults = environ_module.login_path.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "limit_s", 600.0)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "tools").mkdir()
    for name in (".profile", ".bash_profile"):
        (tmp_path / name).write_text(f'echo asked >> {tmp_path}/log\nPATH="{tmp_path}/tools"\n')
    return {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "SHELL": "/bin/bash", "TZ": "UTC"}


async def test_the_login_shell_is_asked_once_for_all(
    environ: dict[str, str], tmp_path: Path
) -> None:
    cache = tmp_path / "state" / "login-path.json"
    for _ in range(3):
        around = LocalEnvironment(environ, cache=str(cache))
        assert (await around.variables())["PATH"] == f"/usr/bin:/bin:{tmp_path}/tools"
        assert (await around.variables())["TZ"] == "UTC"
    assert (tmp_path / "log").read_text() == "asked\n"
    assert cache.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "change",
    [
        {"at": 0},
        {"at": 1e12},
        {"at": "now"},
        {"home": "/elsewhere"},
        {"path": 5},
        {"path": None},
    ],
)
async def test_what_is_remembered_must_be_fresh_and_ones_own(
    environ: dict[str, str], tmp_path: Path, change: dict[str, object]
) -> None:
    cache = tmp_path / "login-path.json"
    await LocalEnvironment(environ, cache=str(cache)).variables()
    cache.write_text(json.dumps(json.loads(cache.read_text()) | change))
    found = await LocalEnvironment(environ, cache=str(cache)).variables()
    assert found["PATH"].endswith(f":{tmp_path}/tools")
    assert (tmp_path / "log").read_text() == "asked\nasked\n"
    assert KEEP_S > 0


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\udcff"])
async def test_a_damaged_file_is_no_memory(
    environ: dict[str, str], tmp_path: Path, text: str
) -> None:
    cache = tmp_path / "login-path.json"
    cache.write_text(text, errors="surrogateescape")
    found = await LocalEnvironment(environ, cache=str(cache)).variables()
    assert found["PATH"].endswith(f":{tmp_path}/tools")


async def test_it_need_not_be_asked(environ: dict[str, str], tmp_path: Path) -> None:
    around = LocalEnvironment(environ, login=False, prepend=[str(tmp_path)])
    assert (await around.variables())["PATH"] == f"{tmp_path}:/usr/bin:/bin"
    assert not (tmp_path / "log").exists()
