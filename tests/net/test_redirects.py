"""A redirect is followed only when asked, and never with what was meant for somebody else."""

from __future__ import annotations

from typing import Any

import pytest
from tests.net.parts import LOCAL, OK, Server, answering, get, making_client

from clawkit.net.addresses import parse_url
from clawkit.net.client import Client, HttpRequest, NetError

HEADERS = {
    "Authorization": "secret",
    "x-api-key": "secret",
    "X-Goog-Api-Key": "secret",
    "Cookie": "secret",
    "api-key": "secret",
    "Accept": "a/b",
    "Content-Type": "c/d",
}


def to(location: str, status: int = 302) -> bytes:
    head = f"HTTP/1.1 {status} Moved\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"
    return head.encode()


async def post(client: Client, server: Server, max_redirects: int = 0) -> tuple[int, str]:
    async with client.stream(
        "POST", server.url("/a/b"), headers=HEADERS, body=b"x", max_redirects=max_redirects
    ) as response:
        return response.status, response.url


async def test_a_redirect_is_an_answer_like_others() -> None:
    async with answering(to("/c")) as server, making_client() as client:
        assert await post(client, server) == (302, server.url("/a/b"))
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("location", "line"),
    [("/c?d", "/c?d"), ("c", "/a/c"), ("../c#part", "/c"), ("?d", "/a/b?d"), ("/ü", "/%C3%BC")],
)
async def test_a_redirect_is_followed_from_where_it_came(location: str, line: str) -> None:
    answer = to(location).decode().encode("latin-1")
    async with answering(answer, OK) as server, making_client() as client:
        assert await post(client, server, max_redirects=1) == (200, server.url(line))
    assert server.asked[1].line == f"GET {line} HTTP/1.1"
    assert server.asked[1].headers["authorization"] == "secret"


def test_the_body_goes_along_only_when_the_method_stays(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("POST", 301, "GET"),
        ("POST", 302, "GET"),
        ("POST", 303, "GET"),
        ("POST", 307, "POST"),
        ("POST", 308, "POST"),
        ("PUT", 302, "PUT"),
        ("PUT", 303, "GET"),
        ("HEAD", 303, "HEAD"),
        ("GET", 301, "GET"),
    ]
    for method, status, after in cases:
        with subtests.test(method=method, status=status, after=after):
            ask = HttpRequest(method, parse_url("https://a.example/"), HEADERS, b"body").redirected(
                status, "/x"
            )
            assert ask.method == after
            assert ask.body == (b"body" if after == method else b"")
            assert ("Content-Type" in ask.headers) == (after == method)


def test_credentials_stay_with_their_origin(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("/x", True),
        ("https://a.example/x", True),
        ("https://A.example:443/x", True),
        ("https://a.example:444/x", False),
        ("https://b.example/x", False),
        ("https://x.a.example/x", False),
        ("//b.example/x", False),
    ]
    for location, is_kept in cases:
        with subtests.test(location=location, is_kept=is_kept):
            ask = HttpRequest("GET", parse_url("https://a.example/"), HEADERS, b"").redirected(
                302, location
            )
            assert ("secret" in ask.headers.values()) is is_kept
            assert ask.headers["Accept"] == "a/b"


async def test_another_origin_gets_no_credentials_over_the_wire() -> None:
    async with answering(OK) as other, making_client({"b.example": [LOCAL]}) as client:
        there = other.url("/x", host="b.example")
        async with answering(to(there, 307)) as server:
            assert await post(client, server, max_redirects=3) == (200, there)
    assert set(other.asked[0].headers) == {
        "host", "accept", "content-type", "accept-encoding", "content-length"
    }  # fmt: skip
    assert other.asked[0].body == b"x"


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("http://169.254.169.254/latest/", "metadata service"),
        ("http://[::ffff:a9fe:a9fe]/", "metadata service"),
        ("http://10.0.0.1/", "private address"),
        ("http://inside.example/", "private address"),
        ("http://8.8.8.8/", "use https"),
        ("ftp://a.example/", "a URL that clawkit does not use"),
        ("http://user:secret@a.example/", "a URL that clawkit does not use"),
        ("file:///etc/passwd", "a URL that clawkit does not use"),
        ("http://[::1", "a URL that clawkit does not use"),
    ],
)
async def test_every_hop_is_checked(location: str, words: str) -> None:
    names = {"inside.example": ["192.168.0.1"]}
    async with answering(to(location)) as server, making_client(names) as client:
        with pytest.raises(NetError, match=words) as caught:
            await get(client, server.url(), max_redirects=5)
    assert caught.value.kind == "refused"
    assert "secret" not in str(caught.value)


def test_encryption_is_not_given_up_on_the_way() -> None:
    ask = HttpRequest("GET", parse_url("https://a.example/"), HEADERS, b"")
    with pytest.raises(NetError, match="from https to plain http") as caught:
        ask.redirected(302, "http://a.example/")
    assert caught.value.kind == "refused"


async def test_a_circle_ends() -> None:
    async with answering(to("/again")) as server, making_client() as client:
        with pytest.raises(NetError, match="more than 3 redirects") as caught:
            await get(client, server.url(), max_redirects=3)
    assert caught.value.kind == "protocol"
    assert len(server.asked) == 4


async def test_a_redirect_to_nowhere_is_an_answer() -> None:
    answer = b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n"
    async with answering(answer) as server, making_client() as client:
        assert await get(client, server.url(), max_redirects=3) == (302, b"")
