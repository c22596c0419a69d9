"""Certificates for servers and clients, made once."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from tests.net.parts import Identity, lock_key, make_identity

_NAMES = "DNS:localhost,DNS:api.example,IP:127.0.0.1"


class Identities(NamedTuple):
    """What the servers and clients of a test can show."""

    authority: Identity
    server: Identity
    """For localhost, api.example and 127.0.0.1."""
    other: Identity
    """For other.example only."""
    expired: Identity
    client: Identity
    client_locked_key: str
    """The client's key, opened by the passphrase `open`."""


@pytest.fixture(autouse=True)
def _own_home() -> None:
    """Nothing here looks at a home, and making one for each row of a table takes long."""


@pytest.fixture(scope="session")
def identities(tmp_path_factory: pytest.TempPathFactory) -> Identities:
    folder: Path = tmp_path_factory.mktemp("identities")
    authority = make_identity(folder, "authority")
    client = make_identity(folder, "client", by=authority)
    return Identities(
        authority,
        make_identity(folder, "server", by=authority, names=_NAMES),
        make_identity(folder, "other.example", by=authority),
        make_identity(folder, "expired", by=authority, names=_NAMES, days=-1),
        client,
        lock_key(client, "open"),
    )
