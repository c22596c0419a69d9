"""What tests of the command line share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def _ready(ready: None) -> None:
    """Tests of a cold start use `SLOW`."""


@pytest.fixture
def on_host() -> None:
    """Commands run on the host, so that those that are not listed ask. A clawkit that a command
    starts finds its home in HOME."""
    for home in (os.environ["CLAWKIT_HOME"], f"{os.environ['HOME']}/.clawkit"):
        os.makedirs(home, 0o700, exist_ok=True)
        file = Path(home) / "clawkit.json5"
        file.write_text('{agents: {defaults: {sandbox: {mode: "off"}}}}', encoding="utf-8")
        file.chmod(0o600)
