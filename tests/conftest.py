"""Every test has a home of its own: nothing on the machine shows through."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How long something takes says more about the machine than about the code.
settings.register_profile(
    "untimed", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("untimed")


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("CLAWKIT_")]:
        monkeypatch.delenv(name)
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("CLAWKIT_HOME", str(home))
    # No profile of the person who runs the tests is read, or left half done.
    monkeypatch.setenv("HOME", str(home))


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A small directory to work in."""
    place = tmp_path / "ws"
    place.mkdir()
    (place / "a.txt").write_text("alpha\nbeta\n", encoding="utf-8")
    (place / "src").mkdir()
    (place / "src" / "main.py").write_text('print("ok")\n', encoding="utf-8")
    return place
