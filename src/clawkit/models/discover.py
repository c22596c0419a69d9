"""Finds models that need no configuration, through API keys in the environment or a local Ollama.

The Ollama probe looks for a listening socket first, so that the HTTP client is not loaded if no
server is running.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from clawkit.config.modelref import ModelRef, parse_ref
from clawkit.errors import ClawkitError
from clawkit.models.known import OLLAMA_PORT, PROVIDERS, ollama_origin
from clawkit.models.providers import dict_of

if TYPE_CHECKING:
    from clawkit.models.catalog import Catalog
    from clawkit.net.route import Route

Get = Callable[[str, float], Awaitable[tuple[int, bytes]]]
"""Fetches a URL with a timeout in seconds; returns status and body."""

LOOK_S = 5.0
"""Timeout of requests for lists of models."""
MAX_BODY = 4 << 20
MIN_WINDOW, MAX_WINDOW = 1_024, 100_000_000
"""In tokens; a smaller window has no room for a question and its answer."""
_OLLAMA = f"http://127.0.0.1:{OLLAMA_PORT}"
_OLLAMA_WAIT_S = 0.5
_LISTEN = "0A"
_FIRST_USER = 1000
"""Lower user ids are system accounts, such as `ollama`."""
_EMBEDS = "embed|minilm|bge-|rerank"

_SEES = (
    r"gpt-4o|gpt-4-turbo|gpt-4\.1|gpt-[5-9]|\bo1(?!-mini|-preview)|\bo3(?!-mini)|\bo4\b"
    r"|claude(?!-instant|-2)|gemini|gemma-?[34](?![\db])|grok-(?:2-vision|[4-9])"
    r"|(?:^|[-_/.:\d])vl(?:$|[-_/.:\d])|qvq|llava|pixtral|internvl|mllama|minicpm-?v|glm-[\d.]+v"
    r"|vision|llama-?4|kimi-k(?:2[.p][5-9]|[3-9])|molmo|moondream|multimodal"
)
_READS_ONLY = (
    r"gpt-oss|gpt-3\.5|gpt-4(?:$|-0|-32k)|\bo1-(?:mini|preview)|\bo3-mini|claude-(?:instant|2)"
    r"|deepseek|llama-?[23]|codellama|mistral[-:]?(?:7b|nemo)|mixtral|codestral"
    r"|devstral|qwen-?(?:1\.5|2|2\.5|3)(?![\d.])|qwq|coder|glm-(?:4\.[5-9]|5)|kimi-k2(?![.p])|minimax-m[12]"
    r"|phi-?[234]|starcoder|command-[ra]|gemma|embed|whisper|nemotron"
)


class OllamaFacts(msgspec.Struct, frozen=True):
    """Facts about a model from Ollama."""

    window: int = 0
    """In tokens; 0 if unknown."""
    images: bool | None = None


def infer_images(model_id: str) -> bool | None:
    """Whether a model accepts images, by its name; None if that is unclear."""
    name = model_id.lower()[:512]
    if re.search(_SEES, name):
        return True
    return False if re.search(_READS_ONLY, name) else None


def providers_with_keys(env: Mapping[str, str]) -> list[str]:
    """Built-in providers whose key is set, in order of use."""
    found: dict[str, str] = {}
    for provider in PROVIDERS.values():
        names = [name for name in provider.env if env.get(name, "").strip()]
        # If two providers share a variable, the key is for the first one.
        if names:
            found.setdefault(names[0], provider.id)
    return list(found.values())


def default_model(provider: str) -> ModelRef | None:
    """The default model of a built-in provider."""
    known = PROVIDERS.get(provider)
    return ModelRef(provider, known.models[0].id) if known and known.models else None


def found_model(catalog: Catalog) -> ModelRef | None:
    """The model to use if none is configured: one listed in the configuration, or the default of a
    provider with a credential."""
    listed = [ModelRef(each.id, name) for each in catalog.services.values() for name in each.models]
    usual = [default_model(name) for name in PROVIDERS if name in catalog.services]
    for ref in (*listed, *usual):
        if ref and catalog.is_allowed(ref) and catalog.credentials.has(ref.provider):
            return ref
    return None


def find_local(
    catalog: Catalog, look: Callable[[Mapping[str, str]], Iterable[str]] | None = None
) -> ModelRef | None:
    """The model of a local Ollama to use if no other is found; `look` lists its models."""
    if "ollama" not in catalog.services:
        return None
    found = (ModelRef("ollama", name) for name in (look or local_models)(catalog.env))
    return next(filter(catalog.is_allowed, found), None)


def local_models(env: Mapping[str, str]) -> list[str]:
    """Ids of the models of a local Ollama; empty if there is none. Not for use in an event loop."""
    if not ollama_address(env):
        return []
    import asyncio

    async def get(url: str, timeout_s: float) -> tuple[int, bytes]:
        return await _fetch("GET", url, {}, b"", None, timeout_s)

    return [ref.id for ref in asyncio.run(ollama_models(env, get))]


async def ollama_models(env: Mapping[str, str], get: Get) -> list[ModelRef]:
    """Models of a local Ollama, newest first; `get` is not called if there is none."""
    if not (origin := ollama_address(env)):
        return []
    try:
        status, body = await get(f"{origin}/api/tags", _OLLAMA_WAIT_S)
        data: Any = msgspec.json.decode(body) if status == 200 else None
    except (ClawkitError, OSError, TimeoutError, msgspec.DecodeError, RecursionError):
        return []
    rows = dict_of(data).get("models")
    names = [dict_of(row).get("name") for row in rows] if isinstance(rows, list) else []
    return [
        ModelRef("ollama", name)
        for name in names
        if isinstance(name, str) and is_model_id(name) and not re.search(_EMBEDS, name.lower())
    ]


def ollama_address(
    env: Mapping[str, str], sockets: Callable[[], Iterable[str]] | None = None
) -> str:
    """The address of a local Ollama; empty if none can be running.

    `OLLAMA_HOST` is always used. Without it, something must be listening on the default port, and
    not as another user, who could impersonate our model. `sockets` returns the socket tables of
    Linux; if there are none, the default port is used.
    """
    if origin := ollama_origin(env):
        return origin
    tables = list((sockets or _socket_tables)())
    owners = [owner for table in tables for owner in listeners(table, OLLAMA_PORT)]
    strangers = [each for each in owners if each >= _FIRST_USER and each != os.geteuid()]
    return "" if strangers or (tables and not owners) else _OLLAMA


def _socket_tables() -> Iterator[str]:
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError), open(name, encoding="ascii") as file:
            yield file.read()


def listeners(table: str, port: int) -> list[int]:
    """User ids of the listeners on a port, from a table such as `/proc/net/tcp`."""
    found = []
    for line in table.splitlines()[1:]:
        _, local, _, state, _, _, _, owner, *_ = line.split()
        if state == _LISTEN and int(local.rpartition(":")[2], 16) == port:
            found.append(int(owner))
    return found


def show_model(origin: str, model: str) -> OllamaFacts:
    """The facts that an Ollama server reports about one of its models. Not for use in an event
    loop."""
    body = msgspec.json.encode({"model": model})
    data = dict_of(fetch_json("POST", f"{origin}/api/show", body=body))
    items = dict_of(data.get("model_info")).items()
    found = [window_size(size) for key, size in items if key.endswith(".context_length")]
    can = data.get("capabilities")
    return OllamaFacts(max(found, default=0), "vision" in can if isinstance(can, list) else None)


def ollama_origin_of(url: str) -> str:
    """Scheme, host and port of an address with Ollama's port; empty for any other."""
    scheme, _, rest = url.partition("://")
    place = rest.partition("/")[0]
    return f"{scheme}://{place}" if place.endswith(f":{OLLAMA_PORT}") else ""


def window_size(value: Any) -> int:
    """A plausible context window in tokens; 0 for any other value."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and MIN_WINDOW <= value <= MAX_WINDOW else 0


def is_model_id(name: str) -> bool:
    """Whether a text is a valid model id."""
    try:
        return parse_ref(f"x/{name}").id == name
    except ValueError:
        return False


def fetch_json(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    route: Route | None = None,
) -> Any:
    """Fetch JSON; None if that fails. Not for use in an event loop."""
    import asyncio

    try:
        status, data = asyncio.run(_fetch(method, url, headers or {}, body, route, LOOK_S))
        return msgspec.json.decode(data) if status == 200 else None
    except (ClawkitError, OSError, msgspec.DecodeError, RecursionError):
        return None


async def _fetch(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    route: Route | None,
    timeout_s: float,
) -> tuple[int, bytes]:
    from clawkit.net.client import Client
    from clawkit.net.route import DIRECT

    client = Client()
    try:
        request = client.stream(
            method, url, headers=headers, body=body, route=route or DIRECT, timeout_s=timeout_s
        )
        async with request as response:
            return response.status, await response.read(MAX_BODY)
    finally:
        await client.close()
