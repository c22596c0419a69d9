"""What tests of the command line share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.asking import PROGRAM
from tests.forked import ready_clawkit


@pytest.fixture(scope="session", autouse=True)
def _ready(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Clawkit is a copy of one that has imported everything; how it starts from nothing is tested
    with `SLOW`."""
    env = {**os.environ, "PYTHONUTF8": "1"}
    with ready_clawkit(tmp_path_factory.mktemp("ready"), env) as program:
        PROGRAM[:] = [str(program)]
        yield


@pytest.fixture
def on_host() -> None:
    """Commands run on the host, so that those that are not listed ask. A clawkit that a command
    starts finds its home in HOME."""
    for home in (os.environ["CLAWKIT_HOME"], f"{os.environ['HOME']}/.clawkit"):
        os.makedirs(home, 0o700, exist_ok=True)
        file = Path(home) / "clawkit.json5"
        file.write_text('{agents: {defaults: {sandbox: {mode: "off"}}}}', encoding="utf-8")
        file.chmod(0o600)
