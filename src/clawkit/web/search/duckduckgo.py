"""DuckDuckGo: its page for browsers without scripts, because it has no interface for programs."""

from __future__ import annotations

from html import unescape
from urllib.parse import parse_qs, urlencode, urlsplit

from selectolax.lexbor import LexborHTMLParser

from clawkit.web.search.protocols import Query, SearchAnswer, SearchError, SearchHit
from clawkit.web.search.wire import HttpRequest, ProviderSetup, Steps, unreadable

_SAFE = {"strict": "1", "moderate": "-1", "off": "-2"}
_HEADERS = {
    # It refuses programs that do not send what browsers send.
    "User-Agent": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "Accept-Language": "en-US,en;q=0.5",
    "Accept-Encoding": "gzip, deflate",
    "Upgrade-Insecure-Requests": "1",
    "Sec-Fetch-Dest": "document",
    "Sec-Fetch-Mode": "navigate",
    "Sec-Fetch-Site": "none",
    "Sec-Fetch-User": "?1",
}
_RESULT, _MAX_RESULT = "result__body", 32 * 1024
"""What each result begins with; and its size, because parsing takes time by depth squared."""


def search(query: Query, setup: ProviderSetup) -> Steps:
    safe = _SAFE[setup.options.get("safeSearch", "moderate")]
    params = {"q": query.query, "kl": setup.options.get("region", "wt-wt"), "kp": safe}
    reply = yield HttpRequest("GET", f"{setup.base_url}/html?{urlencode(params)}", _HEADERS)
    page = reply.body.decode("utf-8", "replace")
    if reply.status == 202 or "anomaly-modal" in page or "anomaly.js" in page:
        raise SearchError(
            "bot_challenge",
            "wants to see that you are not a program, so there are no results; try later, or "
            "choose another provider",
        )
    found = [_read(part[:_MAX_RESULT]) for part in page.split(_RESULT)[1:]]
    if not found and "no-results" not in page:
        raise unreadable("a page without results that clawkit can read")
    return SearchAnswer(tuple(hit for hit in found if hit is not None))


def _read(html: str) -> SearchHit | None:
    tree = LexborHTMLParser(f'<div class="{html}')
    link, snippet = tree.css_first("a.result__a"), tree.css_first(".result__snippet")
    if link is None:
        return None
    target = unescape(link.attributes.get("href") or "")
    inner = parse_qs(urlsplit(target).query).get("uddg") if "uddg=" in target else None
    text = snippet.text(strip=False) if snippet is not None else ""
    return SearchHit(
        " ".join(link.text().split()), inner[0] if inner else target, " ".join(text.split())
    )
