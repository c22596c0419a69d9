"""The one place that sends the requests of providers, and reads replies that cannot be trusted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from urllib.parse import urljoin, urlsplit

from clawkit.net.addresses import env_proxy, parse_url
from clawkit.net.client import Client
from clawkit.net.route import NetError, Route
from clawkit.text import human_time, one_line
from clawkit.version import __version__
from clawkit.web.search.protocols import SearchAnswer, SearchError
from clawkit.web.search.wire import HttpReply, HttpRequest, ProviderSetup, Steps, as_text, pick

MAX_BYTES = 16 * 1024 * 1024
MAX_DETAIL = 300
DEFAULT_WAIT_S, MAX_WAIT_S = 60.0, 3_600.0
"""How long a provider is left alone that had too many requests."""
_REDIRECT_S = 5.0
_AGENT = {"User-Agent": f"clawkit/{__version__}"}


class Exchange:
    """Runs the steps of providers. Bound to one event loop."""

    def __init__(self, env: Mapping[str, str], redact: Callable[[str], str]) -> None:
        """`redact` removes secrets from what a provider said."""
        self._env, self._redact = env, redact
        self._client = Client()
        self._waiting: dict[str, float] = {}
        """Until when a provider is left alone, by its address."""

    async def run(
        self, name: str, setup: ProviderSetup, steps: Steps, timeout_s: float
    ) -> SearchAnswer:
        """The answer of a provider, called `name` in messages. Raises `SearchError`."""
        try:
            self._check_wait(setup)
            async with asyncio.timeout(timeout_s):
                request = next(steps)
                while True:
                    reply = await self._send(request, setup, timeout_s)
                    request = steps.send(reply)
        except StopIteration as done:
            answer: SearchAnswer = done.value
            return answer
        except TimeoutError:
            why = f"{name} did not answer within {timeout_s:g} s"
            raise SearchError("timeout", why, provider=setup.id) from None
        except NetError as error:
            code = "timeout" if error.kind == "timeout" else "unreachable"
            raise SearchError(code, f"{name} was not reached: {error}", provider=setup.id) from None
        except SearchError as error:
            said = self._clean(error.detail, setup)
            more = {"provider": setup.id, **error.more}
            raise SearchError(error.code, f"{name} {error}", said, **more) from None
        finally:
            steps.close()

    async def _send(
        self, request: HttpRequest, setup: ProviderSetup, timeout_s: float
    ) -> HttpReply:
        async with self._client.stream(
            request.method,
            request.url,
            headers={**_AGENT, **request.headers},
            body=request.body,
            route=self._route(request.url, setup),
            timeout_s=timeout_s,
        ) as response:
            body = await response.read(MAX_BYTES + 1)
            if len(body) > MAX_BYTES:
                too_long = f"sent more than {MAX_BYTES // 1024**2} MB"
                raise SearchError("unreadable_answer", too_long)
            reply = HttpReply(response.status, response.headers, body)
        if reply.status >= 300:
            raise self._failure(reply, setup)
        return reply

    def _route(self, url: str, setup: ProviderSetup) -> Route:
        """The address that a person set may be anywhere; others are public."""
        is_own = setup.is_own and parse_url(url).origin == parse_url(setup.base_url).origin
        return Route(loopback=is_own, private=is_own, proxy=env_proxy(url, self._env))

    def _failure(self, reply: HttpReply, setup: ProviderSetup) -> SearchError:
        status, said = reply.status, _explain(reply)
        if status < 400:
            words = f"redirected the request (HTTP {status}), which is not followed with a key"
            return SearchError("redirected", f"{words}; check its address")
        if status == 429 or (status == 503 and "retry-after" in reply.headers):
            wait_s = _wait_s(reply.headers.get("retry-after", ""))
            self._waiting[setup.base_url] = time.monotonic() + wait_s
            return _too_many(wait_s, said)
        if status == 403 and setup.id == "searxng":
            words = "refuses to answer with JSON: add json to search.formats in its settings.yml"
            return SearchError("json_disabled", words, said)
        if status in (401, 403):
            words = f"refused the key (HTTP {status})" if setup.key else f"refused (HTTP {status})"
            return SearchError("unauthorized", words, said)
        return SearchError("provider_error", f"failed (HTTP {status})", said, httpStatus=status)

    def _check_wait(self, setup: ProviderSetup) -> None:
        left_s = self._waiting.get(setup.base_url, 0.0) - time.monotonic()
        if left_s > 0:
            raise _too_many(left_s)

    def _clean(self, said: str, setup: ProviderSetup) -> str:
        """What a provider said, without secrets, in one line."""
        if setup.key:
            said = said.replace(setup.key, "…")
        return one_line(self._redact(said), MAX_DETAIL)

    async def resolve(self, urls: Sequence[str], host: str, setup: ProviderSetup) -> list[str]:
        """Where addresses at a host lead to that only redirects; unchanged if that is unknown. What
        they lead to is not asked."""
        hosts = (host, urlsplit(setup.base_url).netloc)
        return await asyncio.gather(*(self._follow(url, hosts, setup) for url in urls))

    async def _follow(self, url: str, hosts: Sequence[str], setup: ProviderSetup) -> str:
        if urlsplit(url).netloc not in hosts:
            return url
        try:
            route = self._route(url, setup)
            async with self._client.stream(
                "HEAD", url, headers=_AGENT, route=route, timeout_s=_REDIRECT_S
            ) as response:
                return urljoin(url, response.headers.get("location", ""))
        except NetError:
            return url

    async def close(self) -> None:
        await self._client.close()


def _explain(reply: HttpReply) -> str:
    """What the body of an error says."""
    try:
        found = HttpReply(200, {}, reply.body[: 64 * 1024]).data
    except SearchError as error:
        return error.detail
    return as_text(pick(found, "message")) or as_text(pick(found, "detail"))


def _wait_s(said: str) -> float:
    """The seconds that `Retry-After` asks for."""
    try:
        if said.strip().isdigit():
            wanted = float(said.strip()[:9])
        else:
            wanted = parsedate_to_datetime(said).timestamp() - time.time()
    except (ValueError, OverflowError):
        return DEFAULT_WAIT_S
    return min(max(wanted, 1.0), MAX_WAIT_S)


def _too_many(wait_s: float, said: str = "") -> SearchError:
    words = f"had too many requests; it is not asked again for {human_time(wait_s)}"
    return SearchError("rate_limited", words, said, retryAfterSeconds=round(wait_s))
