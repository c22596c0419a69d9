"""DuckDuckGo: its page for browsers without scripts, because it has no interface for programs."""

from __future__ import annotations

from urllib.parse import parse_qs, urlencode

from selectolax.lexbor import LexborHTMLParser

from clawkit.web.search.exchange import Api, unreadable
from clawkit.web.search.protocols import Query, SearchAnswer, SearchError, SearchHit

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
_RESULT, _MAX_RESULTS, _MAX_RESULT = "result__body", 50, 32 * 1024
"""What each result begins with; how many are read, and of which size: parsing takes time by depth
squared."""


async def ask_duckduckgo(query: Query, api: Api) -> SearchAnswer:
    safe = _SAFE[api.options.get("safeSearch", "moderate")]
    params = {"q": query.query, "kl": api.options.get("region", "wt-wt"), "kp": safe}
    reply = await api.send("GET", f"/html?{urlencode(params)}", _HEADERS)
    page = reply.body.decode("utf-8", "replace")
    parts = page.split(_RESULT, _MAX_RESULTS)[1:]
    hits = tuple(hit for part in parts if (hit := _read(part[:_MAX_RESULT])) is not None)
    if not hits and (reply.status == 202 or "anomaly-modal" in page or "anomaly.js" in page):
        words = "wants proof that you are not a program; try later, or choose another service"
        raise SearchError("bot_challenge", words)
    if not hits and "no-results" not in page:
        raise unreadable("a page without results that clawkit can read")
    return SearchAnswer(hits)


def _read(html: str) -> SearchHit | None:
    tree = LexborHTMLParser(f'<div class="{html}')
    link, snippet = tree.css_first("a.result__a"), tree.css_first(".result__snippet")
    if link is None:
        return None
    target = link.attributes.get("href") or ""
    inner = parse_qs(target.partition("?")[2]).get("uddg")
    text = snippet.text() if snippet is not None else ""
    return SearchHit(link.text(), inner[0] if inner else target, " ".join(text.split()))
