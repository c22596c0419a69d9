"""Requests to providers, and defensive parsing of their replies."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping
from email.utils import parsedate_to_datetime
from itertools import islice
from typing import Any, TypeAlias
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from clawkit.net.addresses import env_proxy, parse_url
from clawkit.net.client import Client
from clawkit.net.route import NetError, Route
from clawkit.text import human_time, one_line
from clawkit.version import __version__
from clawkit.web.cache import Cache
from clawkit.web.search.protocols import SearchAnswer, SearchError, SearchHit

MAX_ITEMS = 100
"""Maximum results or sources read from a reply."""
MAX_BYTES = 16 * 1024 * 1024
MAX_DETAIL = 300
DEFAULT_WAIT_S, MAX_WAIT_S = 60.0, 3_600.0
"""Cooldown of a provider after too many requests."""
_REDIRECT_S = 5.0
_MIN_SECRET = 6
"""Shorter keys are not masked in replies, because they could be words."""
_HEADERS = {"User-Agent": f"clawkit/{__version__}", "Accept": "application/json"}


Headers: TypeAlias = Mapping[str, str]
Fields: TypeAlias = Mapping[str, object]


class HttpReply(Struct, frozen=True):
    status: int
    headers: Headers
    body: bytes

    @property
    def data(self) -> dict[str, Any]:
        """The object in it. Raises `SearchError`."""
        text = self.body.lstrip()
        if "event-stream" in self.headers.get("content-type", ""):
            events = [line for line in text.splitlines() if line.startswith(b"data:")]
            text = events[-1].removeprefix(b"data:").strip() if events else b""
        if text[:1] == b"<":
            raise unreadable("a web page instead of JSON; check its address")
        found = decode(text)
        if error := pick(found, "error"):
            message = as_text(pick(error, "message")) or as_text(error)
            raise SearchError("provider_error", "reported an error", message)
        return found


class Api(Struct, frozen=True, kw_only=True):
    """A configured provider, and requests to it. They raise `SearchError` or `NetError`."""

    id: str
    name: str
    """For messages."""
    base_url: str
    key: str
    options: Mapping[str, str]
    """Its further settings."""
    mode: str
    is_own: bool
    """Whether the person set the address, which may then be on a private network."""
    timeout_s: float
    env: Mapping[str, str]
    redact: Callable[[str], str]
    """Removes secrets from its messages."""
    client: Client
    cache: Cache
    """Shares provider cooldowns between processes."""

    def __repr__(self) -> str:
        return f"<{self.id}>"

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    async def run(self, work: Awaitable[SearchAnswer]) -> SearchAnswer:
        """Await `work`, a search with this provider. Raises a `SearchError` that names it."""
        try:
            async with asyncio.timeout(self.timeout_s):
                return await work
        except TimeoutError:
            failure = SearchError("timeout", f"did not answer within {self.timeout_s:g} s")
        except NetError as error:
            code = "timeout" if error.kind == "timeout" else "unreachable"
            failure = SearchError(code, f"cannot be reached: {error}")
        except SearchError as error:
            failure = error
        said = one_line(self.redact(failure.detail[: MAX_DETAIL * 4]), MAX_DETAIL)
        more = {"provider": self.id, **failure.more}
        raise SearchError(failure.code, f"{self.name} {failure}", said, **more)

    async def get(self, path: str, params: Fields, headers: Headers) -> HttpReply:
        """Send a GET request; parameters without a value are left out."""
        given = urlencode({name: value for name, value in params.items() if value})
        return await self.send("GET", f"{path}?{given}", headers)

    async def post(self, path: str, body: Fields, headers: Headers) -> HttpReply:
        """Send JSON; fields without a value are left out."""
        data = msgspec.json.encode({name: value for name, value in body.items() if value})
        return await self.send("POST", path, {"Content-Type": "application/json", **headers}, data)

    async def send(self, method: str, path: str, headers: Headers, body: bytes = b"") -> HttpReply:
        """A reply with a status below 300, without the key."""
        busy = f"busy {self.base_url} {hashlib.sha256(self.key.encode()).hexdigest()}"
        until = await asyncio.to_thread(self.cache.get, busy)
        if until is not None and (left_s := float(until) - time.time()) > 0:
            raise _too_many(left_s)
        url, sent = self.base_url + path, {**_HEADERS, **headers}
        async with self.client.stream(
            method, url, headers=sent, body=body, route=self._route(url), timeout_s=self.timeout_s
        ) as response:
            data = await response.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise SearchError("unreadable_answer", f"sent more than {MAX_BYTES // 1024**2} MB")
        if len(self.key) >= _MIN_SECRET:
            data = data.replace(self.key.encode(), "…".encode())
        reply = HttpReply(response.status, response.headers, data)
        if reply.status == 429 or (reply.status == 503 and "retry-after" in reply.headers):
            wait_s = _wait_s(reply.headers.get("retry-after", ""))
            until = str(time.time() + wait_s).encode()
            await asyncio.to_thread(self.cache.put, busy, until, wait_s)
            raise _too_many(wait_s, _explain(reply))
        if reply.status >= 300:
            raise _failure(reply, self)
        return reply

    def _route(self, url: str) -> Route:
        is_own = self.is_own and parse_url(url).origin == parse_url(self.base_url).origin
        return Route(loopback=is_own, private=is_own, proxy=env_proxy(url, self.env))

    async def location(self, url: str) -> str:
        """The target of a redirect, without requesting it; empty if unknown."""
        async with self.client.stream(
            "HEAD", url, headers=_HEADERS, route=self._route(url), timeout_s=_REDIRECT_S
        ) as response:
            return response.headers.get("location", "")


def _failure(reply: HttpReply, api: Api) -> SearchError:
    status, said = reply.status, _explain(reply)
    if status < 400:
        words = f"redirected the request (HTTP {status}), which is not followed; check its address"
        return SearchError("redirected", words)
    if status == 403 and api.id == "searxng":
        words = "refuses to answer with JSON: add json to search.formats in its settings.yml"
        return SearchError("json_disabled", words, said)
    if status in (401, 403):
        words = f"refused the key (HTTP {status})" if api.key else f"refused (HTTP {status})"
        return SearchError("unauthorized", words, said)
    return SearchError("provider_error", f"failed (HTTP {status})", said, httpStatus=status)


def _explain(reply: HttpReply) -> str:
    """The message in an error body."""
    try:
        found = HttpReply(200, {}, reply.body[: 64 * 1024]).data
    except SearchError as error:
        return error.detail
    return as_text(pick(found, "message")) or as_text(pick(found, "detail"))


def _wait_s(header: str) -> float:
    """The seconds in `Retry-After`."""
    try:
        if header.strip().isdigit():
            wanted = float(header.strip()[:9])
        else:
            wanted = parsedate_to_datetime(header).timestamp() - time.time()
    except (ValueError, OverflowError):
        return DEFAULT_WAIT_S
    return min(max(wanted, 1.0), MAX_WAIT_S)


def _too_many(wait_s: float, header: str = "") -> SearchError:
    words = f"had too many requests; it is not asked again for {human_time(wait_s)}"
    return SearchError("rate_limited", words, header, retryAfterSeconds=round(wait_s))


def decode(text: bytes | str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise unreadable("something that is not a JSON object") from None


def unreadable(problem: str) -> SearchError:
    return SearchError("unreadable_answer", f"sent {problem}")


def pick(value: Any, path: str) -> Any:
    """The value at a path such as `choices.0.message`; None if missing."""
    for step in path.split("."):
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


def as_text(value: Any) -> str:
    """A text, or texts in a list; empty for anything else."""
    texts = value if isinstance(value, list) else (value,)
    return "\n".join(each.strip() for each in texts if isinstance(each, str) and each.strip())


def listed(data: Any, path: str, *, optional: bool = False) -> list[dict[str, Any]]:
    """The objects in the list at a path. Raises `SearchError` if there is no list, unless it is
    `optional`."""
    items = pick(data, path)
    if not isinstance(items, list):
        if optional and items is None:
            return []
        raise unreadable(f"an answer without {path!r}")
    return [*islice((item for item in items if isinstance(item, dict)), MAX_ITEMS)]


def results(
    items: list[dict[str, Any]], text: str, date: str = "", url: str = "url"
) -> SearchAnswer:
    """Results, from the fields of these names; of several names, the first with text is used."""

    def read(item: dict[str, Any]) -> SearchHit:
        said = next(filter(None, (as_text(item.get(name)) for name in text.split())), "")
        title, where, day = (as_text(item.get(name)) for name in ("title", url, date))
        return SearchHit(title, where, said, day)

    return SearchAnswer(tuple(map(read, items)))


def answer(text: Any, sources: Any) -> SearchAnswer:
    """A text with its sources: addresses, or objects that have one, each once. Raises `SearchError`
    if there is no text."""
    if not (said := as_text(text)):
        raise unreadable("no answer")
    pages: dict[str, SearchHit] = {}
    for item in sources[:MAX_ITEMS] if isinstance(sources, list) else ():
        page = item if isinstance(item, dict) else {"url": item}
        page = page.get("url_citation") or page.get("web") or page
        if url := as_text(pick(page, "url")) or as_text(pick(page, "uri")):
            pages.setdefault(url, SearchHit(as_text(pick(page, "title")), url))
    return SearchAnswer(text=said, citations=tuple(pages.values()))
