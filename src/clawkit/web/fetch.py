"""Fetches pages that a model chose, and converts them to text."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from itertools import accumulate
from pathlib import Path
from typing import Literal, cast

import msgspec
from msgspec.structs import replace

from clawkit.config.section import SecretInput
from clawkit.config.sections.web import WebFetch
from clawkit.core.tasks import in_thread
from clawkit.errors import ToolAuthorizationError, ToolError, ToolInputError
from clawkit.external import NOTICE, wrap_external
from clawkit.net.addresses import ParsedUrl, parse_url
from clawkit.net.client import Client
from clawkit.net.route import NetError, bad_name
from clawkit.net.url_guard import Arrival, UrlGuard, get_following
from clawkit.redact import is_secret_name
from clawkit.store import private_dir, write_atomic
from clawkit.text import human_size, one_line
from clawkit.web.cache import Cache
from clawkit.web.charset import decode
from clawkit.web.html_worker import PageWorker
from clawkit.web.protocols import MAX_TEXT, ExtractMode, FetchedPage

SETTING = "tools.web.fetch"
_IDLE_S = 15.0
_EXTRACT_S = 20.0
_MAX_ERROR_BYTES, _MAX_ERROR_CHARS = 64_000, 4_000
_MAX_ROBOTS_BYTES, _ROBOTS_S, _ROBOTS_TTL_S = 500_000, 10.0, 3_600.0
_MAX_JSON_DEPTH = 24
"""Deeper values are not indented, because indentation would be most of the text."""
_CACHED = msgspec.msgpack.Decoder(FetchedPage)
_RESERVED = frozenset({"accept", "accept-encoding", "user-agent"})
"""Headers that are controlled by other settings, or that change the answer's format."""
_KEEP_S = 24 * 3_600.0
"""How long files with long pages are kept."""
_USER_AGENT = (
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) "
    "Chrome/141.0.0.0 Safari/537.36"
)
_ROBOT = "clawkit"
Permits = Callable[[str], bool]
BodyKind = Literal["html", "markdown", "json", "text", "pdf", "image", "binary"]


class Fetcher:
    """The pages of one run. All limits apply while data arrives; cookies are not stored."""

    def __init__(
        self,
        settings: WebFetch,
        cache: Cache,
        *,
        folder: Path,
        env: Mapping[str, str],
        reveal: Callable[[SecretInput], str],
    ) -> None:
        """`folder` is the session's directory for long pages. `env` contains the proxy and the
        provider's key; `reveal` resolves a secret."""
        self._settings = settings
        self._cache = cache
        self._folder = folder
        self._env = env
        self._reveal = reveal
        self._client = Client(max_idle=4)
        self._worker = PageWorker()
        proxies = env if settings.use_trusted_env_proxy else None
        self._guard = UrlGuard(
            settings.ssrf_policy, f"{SETTING}.ssrfPolicy", plain=True, env=proxies
        )
        self._headers, self._unsent = self._own_headers()
        given = settings.firecrawl.api_key
        self._key = reveal(given) if given else env.get("FIRECRAWL_API_KEY", "")

    async def fetch(self, url: str, mode: ExtractMode, permits: Permits) -> FetchedPage:
        try:
            target = parse_url(url)
        except NetError as error:
            raise ToolInputError(str(error)) from None
        try:
            # Checked even for a cached page.
            self._guard.route(target.url)
        except NetError as error:
            raise _failure(error) from None
        # Includes secret values, because other credentials get other pages.
        asked = (self._settings, self._headers, self._key)
        key = "\0".join(("fetch", mode, target.url, msgspec.json.encode(asked).decode()))
        if (kept := self._cache.get(key)) is not None:
            page = replace(_CACHED.decode(kept), is_cached=True)
            if page.final_url == target.url or permits(page.final_url):
                return page
        page = await self._get(target, mode, permits)
        self._cache.put(key, msgspec.msgpack.encode(page), self._settings.cache_ttl_minutes * 60)
        return page

    async def save(self, text: str, url: str) -> str:
        name = hashlib.sha256(f"{url}\0{text}".encode("utf-8", "replace")).hexdigest()[:16]
        path = self._folder / f"{name}.md"

        def work() -> str:
            _remove_old(self._folder.parent)
            private_dir(self._folder)
            marked = f"{NOTICE}\n{wrap_external(text, url)}\n"
            write_atomic(path, marked.encode("utf-8", "replace"))
            return str(path)

        with suppress(OSError):
            return cast("str", await in_thread(work))
        return ""

    async def close(self) -> None:
        self._worker.close()
        await self._client.close()
        self._cache.close()

    def _own_headers(self) -> tuple[dict[str, str], tuple[str, ...]]:
        """The headers to send, and warnings about others."""
        settings, unsent = self._settings, list[str]()
        headers = {
            "Accept": "text/markdown, text/html;q=0.9, */*;q=0.1",
            "Accept-Language": "en-US,en;q=0.9",
            "Accept-Encoding": "gzip, deflate",
            "User-Agent": settings.user_agent or _USER_AGENT,
        }
        for name, value in settings.headers.items():
            if name.lower() in _RESERVED or bad_name(name):
                continue
            # The model chooses the recipient.
            if is_secret_name(name) and not settings.ssrf_policy.hostname_allowlist:
                unsent.append(
                    f"the header {name} was not sent: anyone could get it unless "
                    f"{SETTING}.ssrfPolicy.hostnameAllowlist lists the hosts"
                )
                continue
            headers = {each: headers[each] for each in headers if each.lower() != name.lower()}
            headers[name] = self._reveal(value)
        return headers, tuple(unsent)

    async def _get(self, target: ParsedUrl, mode: ExtractMode, permits: Permits) -> FetchedPage:
        try:
            if why := await self._ask_robots(target, permits):
                raise NetError("refused", f"{target.host_port} is not asked: {why}")
            self._worker.prepare()  # most pages are HTML
            async with self._follow(target.url, permits, robots=True) as arrival:
                limit = self._settings.max_response_bytes
                is_ok = 200 <= arrival.response.status < 300
                body = await arrival.response.read(limit + 1 if is_ok else _MAX_ERROR_BYTES)
        except NetError as error:
            raise _failure(error) from None
        if is_ok:
            is_main, is_cut = self._settings.readability, len(body) > limit
            page, note = await self._read(
                arrival, body[:limit], mode, main_only=is_main, is_cut=is_cut
            )
            if not note:
                return page
        try:
            return await self._scrape(arrival.url, mode, permits)
        except ToolError as error:
            said = str(error)
        if is_ok and (page.text.strip() or not body.strip()):
            return replace(page, warnings=(*page.warnings, note))
        if is_ok:
            raise ToolError(f"nothing to read: {'; '.join(filter(None, (note, said)))}")
        page, _ = await self._read(arrival, body, "text", main_only=False, is_cut=False)
        words = "\n".join(filter(None, (page.title, page.text))).strip()
        words = wrap_external(words, arrival.url, _MAX_ERROR_CHARS) if words else "no reason given"
        why = "; ".join(filter(None, (said, words)))
        raise ToolError(f"Web fetch failed ({page.status}): {why}")

    def _follow(
        self, url: str, permits: Permits, *, robots: bool
    ) -> AbstractAsyncContextManager[Arrival]:
        async def admit(target: ParsedUrl) -> str:
            if not permits(target.url):
                return "which tools.rules do not permit"
            return await self._ask_robots(target, permits) if robots else ""

        timeout_s = self._settings.timeout_seconds
        return get_following(
            self._client,
            self._guard,
            url,
            headers=self._headers,
            max_redirects=self._settings.max_redirects,
            timeout_s=timeout_s if robots else min(_ROBOTS_S, timeout_s),
            idle_s=min(_IDLE_S, timeout_s),
            admit=admit,
        )

    async def _read(
        self, arrival: Arrival, body: bytes, mode: ExtractMode, *, main_only: bool, is_cut: bool
    ) -> tuple[FetchedPage, str]:
        """The page, and a note if it is almost empty or incomplete."""
        headers = arrival.response.headers
        given = headers.get("content-type", "")
        type_ = _media_type(given)
        kind = kind_of_body(type_, body)
        size, warnings = len(body), list(self._unsent)
        if arrival.was_downgraded:
            warnings.append("a redirect led from https to plain http, which can be intercepted")
        if is_cut:
            announced = headers.get("content-length", "")
            size = max(size, int(announced)) if announced.isdigit() else size
            warnings.append(
                f"only the first {human_size(len(body))} were read ({SETTING}.maxResponseBytes)"
            )
        page = FetchedPage(
            final_url=arrival.url,
            status=arrival.response.status,
            content_type=type_,
            extractor="raw",
            fetched_at=time.time(),
            size=size,
            warnings=tuple(warnings),
            signal=one_line(headers.get("content-signal", ""), 200),
        )
        if not (is_cut or body.strip()):
            return page, "the response is empty"
        if kind in ("pdf", "image", "binary"):
            if is_cut and kind != "binary":
                why = f"it is larger than {human_size(len(body))} ({SETTING}.maxResponseBytes)"
                raise ToolError(f"the {kind} cannot be shown: {why}")
            return replace(page, extractor=kind, data=b"" if kind == "binary" else body), ""
        text = await in_thread(decode, body, given, is_cut=is_cut)
        if kind != "html":
            return await in_thread(_as_text, page, text, kind, mode), ""
        found = await self._worker.read(
            text, base_url=arrival.url, mode=mode, main_only=main_only, timeout_s=_EXTRACT_S
        )
        page = replace(page, extractor="readability" if main_only else "raw-html")
        return _with_text(page, found.text, found.title), found.note

    async def _scrape(self, url: str, mode: ExtractMode, permits: Permits) -> FetchedPage:
        """The page as rendered by the provider. Raises `ToolError`, without a message if no
        provider is configured."""
        if self._settings.provider != "firecrawl":
            raise ToolError("")
        from clawkit.web.firecrawl import scrape

        if not self._key:
            raise ToolError(f"set {SETTING}.firecrawl.apiKey or FIRECRAWL_API_KEY for Firecrawl")
        page = await scrape(self._client, url, self._key, self._settings.firecrawl)
        try:
            # It may have followed redirects.
            final = parse_url(page.final_url)
            self._guard.route(final.url)
        except NetError as error:
            raise _failure(error) from None
        if final.url != url and not permits(final.url):
            raise ToolError(f"Firecrawl read {final.host_port}, which tools.rules do not permit")
        page = replace(page, final_url=final.url, warnings=self._unsent)
        return _with_text(page, _in_mode(clean(page.text), mode), clean(page.title))

    async def _ask_robots(self, target: ParsedUrl, permits: Permits) -> str:
        """Why robots.txt disallows the page; empty if it is allowed."""
        if self._settings.robots == "ignore":
            return ""
        from urllib.robotparser import RobotFileParser

        place = parse_url(f"{target.scheme}://{target.authority}/robots.txt").url
        rules = self._cache.get(f"robots\0{place}")
        if rules is None:
            async with self._follow(place, permits, robots=False) as arrival:
                status = arrival.response.status
                rules = await arrival.response.read(_MAX_ROBOTS_BYTES)
            if status >= 500:
                return f"{place} answered {status} ({SETTING}.robots)"
            rules = rules if status == 200 else b""
            self._cache.put(f"robots\0{place}", rules, _ROBOTS_TTL_S)
        robots = RobotFileParser()
        robots.parse(rules.decode("utf-8", "replace").splitlines())
        is_free = robots.can_fetch(_ROBOT, target.url)
        return "" if is_free else f"{place} disallows it ({SETTING}.robots)"


def _remove_old(folder: Path) -> None:
    """Remove the long pages of all sessions that were saved some time ago."""
    before = time.time() - _KEEP_S
    for path in folder.glob("*/*.md"):
        with suppress(OSError):
            if path.lstat().st_mtime < before:
                path.unlink()


def _failure(error: NetError) -> ToolError:
    if error.kind == "refused":
        return ToolAuthorizationError(str(error), reason="host")
    return ToolError(f"Web fetch failed: {error}")


def _as_text(page: FetchedPage, text: str, kind: BodyKind, mode: ExtractMode) -> FetchedPage:
    if kind == "markdown":
        page, text = replace(page, extractor="cf-markdown"), _in_mode(text, mode)
    elif kind == "json" and _depth(text) <= _MAX_JSON_DEPTH:
        with suppress(msgspec.MsgspecError, RecursionError):  # else shown as it is
            text = msgspec.json.format(text, indent=2)
            page = replace(page, extractor="json")
    return _with_text(page, clean(text))


def _depth(json: str) -> int:
    """The nesting depth of a JSON text."""
    plain = json.replace("\\\\", "").replace('\\"', "")  # no quotes in strings
    # Also matches an unterminated string, so that none is scanned twice.
    marks = re.findall(r'[\[{\]}]|"[^"]*+"?', plain)
    steps = (1 if each in "[{" else -1 for each in marks if each[0] != '"')
    return max(accumulate(steps), default=0)


def _media_type(content_type: str) -> str:
    """The type without parameters, in lower case; empty if it is invalid."""
    type_ = content_type.partition(";")[0].strip().lower()
    return type_ if re.fullmatch(r"[a-z0-9.+-]{1,60}/[a-z0-9.+_-]{1,80}", type_) else ""


def _with_text(page: FetchedPage, text: str, title: str = "") -> FetchedPage:
    if len(text) > MAX_TEXT:
        page = replace(
            page, warnings=(*page.warnings, f"only the first {MAX_TEXT:,} characters are kept")
        )
    return replace(page, text=text[:MAX_TEXT], title=one_line(title, 256))


def clean(text: str) -> str:
    """The text without invisible characters."""
    from clawkit.web.dom import clean_text

    return clean_text(text, keeps_space=True)


def _in_mode(markdown: str, mode: ExtractMode) -> str:
    """Markdown, or plain text in the mode `text`."""
    if mode == "markdown":
        return markdown
    # No part may contain its own start, so that hostile text cannot cause slow matching.
    text = re.sub(r"!?\[([^\[\]\n]{0,500}+)\]\([^)\[\n]{0,2000}+\)", r"\1", markdown)
    text = re.sub(r"(?m)^[ \t]{0,3}(?:#{1,6}[ \t]+|>[ \t]?|```.*$)", "", text)
    for mark in (r"\*\*", "__", "`"):
        text = re.sub(rf"{mark}(?=\S)([^\n{mark[-1]}]{{1,500}}+)(?<=\S){mark}", r"\1", text)
    return text


_NEVER = "(?!)"
# The kinds of bodies, by content type or first bytes; the first match counts.
_KINDS: tuple[tuple[BodyKind, str, str], ...] = (
    ("pdf", "application/pdf", "%PDF-"),
    ("image", r"image/(?!svg\+xml$).+", r"\x89PNG\r\n\x1a\n|\xff\xd8\xff|GIF8[79]a|RIFF.{4}WEBP"),
    ("binary", _NEVER, r"(?!\xff\xfe|\xfe\xff).*\0"),
    ("html", r"text/html|application/xhtml\+xml", _NEVER),
    ("markdown", "text/(?:x-)?markdown", _NEVER),
    ("json", r"application/json|.+\+json", _NEVER),
    ("text", r"text/.+|.+/.+\+xml|application/(?:.+\+)?(?:xml|(?:x-)?javascript|ecmascript|toml|"
     r"(?:x-)?yaml|sql|x-sh|graphql|x-ndjson|jsonl|x-www-form-urlencoded)", _NEVER),
    ("html", _NEVER, r"\s{0,99}(?:<!--.{0,2000}?-->\s{0,99})?<(?i:!doctype html|html|head)\b"),
)  # fmt: skip


def kind_of_body(type_: str, body: bytes) -> BodyKind:
    """The kind of a body, by the server's content type and its first bytes."""
    head = body[:8_192]
    for kind, types, start in _KINDS:
        if re.fullmatch(types, type_) or re.match(f"(?s:{start})".encode("latin-1"), head):
            return kind
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4:
            return "binary"
    return "text"
