from __future__ import annotations

import os

import pytest

from clawkit.web.search.table import PROVIDERS


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key and no proxy of the machine shows through."""
    names = {name for row in PROVIDERS.values() for name in row.env}
    for name in names | {each for each in os.environ if each.lower().endswith("_proxy")}:
        monkeypatch.delenv(name, raising=False)
