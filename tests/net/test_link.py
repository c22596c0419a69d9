"""HTTP/1.1 on one connection."""

from __future__ import annotations

import pytest

from clawkit.net.base import NetError
from clawkit.net.link import Link
from clawkit.net.pipe import Pipe


async def test_a_request_that_is_not_http_is_refused_without_showing_it() -> None:
    link = Link(Pipe(), "api.example:443")
    with pytest.raises(NetError, match=r"^the request to api.example:443 is not valid HTTP$"):
        link.send("GET", "/", [(b"Host", b"a"), (b"bad name", b"secret")], b"")
