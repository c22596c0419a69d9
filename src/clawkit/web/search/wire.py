"""Requests and replies as data. A provider is a generator: it yields requests, is sent the replies,
and returns an `SearchAnswer`; it opens no connection itself."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from clawkit.web.search.protocols import Citation, SearchAnswer, SearchError, SearchHit

_JSON = {"Content-Type": "application/json"}


class ProviderSetup(Struct, frozen=True):
    """How to reach a provider."""

    id: str
    base_url: str
    key: str = ""
    options: Mapping[str, str] = {}
    """Its other settings."""
    mode: str = ""
    is_own: bool = False
    """Whether the person set the address: then it may be on a private network."""

    def __repr__(self) -> str:
        return f"<setup of {self.id}>"

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}


class HttpRequest(Struct, frozen=True):
    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes = b""


class HttpReply(Struct, frozen=True):
    """A reply with a status below 300."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def data(self) -> dict[str, Any]:
        """The object in it. Raises `SearchError`."""
        text = self.body.lstrip()
        if "event-stream" in self.headers.get("content-type", ""):
            text = _last_event(text)
        if text[:1] == b"<":
            raise unreadable("a web page instead of JSON; check its address")
        try:
            found = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            raise unreadable("something that is not JSON") from None
        if not isinstance(found, dict):
            raise unreadable("JSON that is not an object")
        if error := found.get("error"):
            message = pick(error, "message") or error
            raise SearchError("provider_error", "reported an error", as_text(message))
        return found


Steps = Generator[HttpRequest, HttpReply, SearchAnswer]


def unreadable(what: str) -> SearchError:
    return SearchError("unreadable_answer", f"sent {what}")


def _last_event(text: bytes) -> bytes:
    lines = [line for line in text.splitlines() if line.startswith(b"data:")]
    return lines[-1].removeprefix(b"data:").strip() if lines else b""


def get(
    setup: ProviderSetup, path: str, params: Mapping[str, object], headers: Mapping[str, str]
) -> HttpRequest:
    """A request for JSON; parameters without a value are left out."""
    given = urlencode({name: value for name, value in params.items() if value}, doseq=True)
    return HttpRequest("GET", f"{setup.base_url}{path}?{given}", {**_ACCEPT, **headers})


def post(
    setup: ProviderSetup, path: str, body: Mapping[str, object], headers: Mapping[str, str]
) -> HttpRequest:
    """A request with a JSON body; fields without a value are left out."""
    data = msgspec.json.encode({name: value for name, value in body.items() if value})
    return HttpRequest("POST", f"{setup.base_url}{path}", {**_ACCEPT, **_JSON, **headers}, data)


_ACCEPT = {"Accept": "application/json"}


def pick(value: Any, path: str) -> Any:
    """What is at a path such as `choices.0.message`; None if nothing is."""
    for step in path.split("."):
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


def as_text(value: Any) -> str:
    """A text, or a list of texts; empty for anything else."""
    if isinstance(value, list):
        return "\n".join(filter(None, map(as_text, value)))
    return value.strip() if isinstance(value, str) else ""


def listed(data: Any, path: str, *, optional: bool = False) -> list[dict[str, Any]]:
    """The objects in the list at a path. Raises `SearchError` if there is no list, unless it is
    left out when there are no results."""
    items = pick(data, path)
    if not isinstance(items, list):
        if optional and items is None:
            return []
        raise unreadable(f"an answer without {path!r}")
    return [item for item in items if isinstance(item, dict)]


def read_hits(
    items: list[dict[str, Any]], text: str, date: str = "", url: str = "url"
) -> tuple[SearchHit, ...]:
    """Results, from the fields of these names; of several names, the first with text is used."""
    return tuple(
        SearchHit(
            as_text(item.get("title")),
            as_text(item.get(url)),
            next(filter(None, (as_text(item.get(name)) for name in text.split())), ""),
            as_text(item.get(date)),
        )
        for item in items
    )


def read_citations(items: Any) -> tuple[Citation, ...]:
    """Sources: addresses, or objects that have one, each once."""
    found: dict[str, Citation] = {}
    for item in items if isinstance(items, list) else ():
        inner = item.get("url_citation", item) if isinstance(item, dict) else {"url": item}
        if url := as_text(pick(inner, "url")):
            found.setdefault(url, Citation(url, as_text(pick(inner, "title"))))
    return tuple(found.values())
