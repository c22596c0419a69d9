"""One gateway for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.gateway.reference.openclaw import Reference


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reference]:
    made = Reference(tmp_path_factory.mktemp("reference"))
    made.start()
    yield made
    made.stop()
