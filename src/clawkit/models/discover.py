"""What can be used without a word of configuration, and what a model's name tells about it."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from clawkit.config.modelref import ModelRef, parse_ref
from clawkit.errors import ClawkitError
from clawkit.models.known import PROVIDERS, ollama_origin

if TYPE_CHECKING:
    from clawkit.models.resolve import Catalog

Get = Callable[[str, float], Awaitable[tuple[int, bytes]]]
"""Fetches an address within a time in seconds; gives status and body."""

_OLLAMA_PORT = 11434
_OLLAMA = f"http://127.0.0.1:{_OLLAMA_PORT}"
_LISTENS = "0A"
_FIRST_PERSON = 1000
"""Users below are the system's own, such as `ollama`."""
_OLLAMA_WAIT_S = 0.5
_EMBEDS = ("embed", "minilm", "bge-", "rerank")

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


def infer_images(model_id: str) -> bool | None:
    """Whether a model takes images, as far as its name tells; None when it does not."""
    name = model_id.lower()[:512]
    if re.search(_SEES, name):
        return True
    return False if re.search(_READS_ONLY, name) else None


def providers_with_keys(env: Mapping[str, str]) -> list[str]:
    """Known providers whose key is set, in the order in which they are used."""
    found: dict[str, None] = {}
    taken: set[str] = set()
    for provider in PROVIDERS.values():
        names = [name for name in provider.env if env.get(name, "").strip()]
        # Two services that share a variable cannot both be meant: the first one is.
        if names and names[0] not in taken:
            found[provider.id] = None
            taken.add(names[0])
    return list(found)


def default_model(provider: str) -> ModelRef | None:
    """What to use of a known provider when nothing is said."""
    known = PROVIDERS.get(provider)
    return ModelRef(provider, known.models[0].id) if known and known.models else None


def found_model(catalog: Catalog) -> ModelRef | None:
    """A model to use where none is chosen: one that is configured, or one with a key at hand."""
    listed = [ModelRef(each.id, name) for each in catalog.services.values() for name in each.models]
    usual = [default_model(name) for name in PROVIDERS if name in catalog.services]
    for ref in (*listed, *usual):
        if ref and catalog.is_allowed(ref) and catalog.credentials.has(ref.provider):
            return ref
    return None


async def discover(catalog: Catalog, get: Get | None = None) -> ModelRef | None:
    """The same, or else one that a local Ollama runs; nothing is asked where there is no need."""
    found = found_model(catalog)
    if found or get is None or "ollama" not in catalog.services:
        return found
    return next(filter(catalog.is_allowed, await ollama_models(catalog.env, get)), None)


def _tables() -> Iterator[str]:
    """The sockets of this machine, where Linux lists them."""
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError), open(name, encoding="ascii") as file:
            yield file.read()


async def ollama_models(
    env: Mapping[str, str], get: Get, sockets: Callable[[], Iterable[str]] = _tables
) -> list[ModelRef]:
    """Models of an Ollama server on this machine, the latest first; none without a server."""
    origin = ollama_origin(env)
    if not origin and any(map(is_strangers, sockets())):
        return []
    origin = origin or _OLLAMA
    try:
        status, body = await get(f"{origin}/api/tags", _OLLAMA_WAIT_S)
        data: Any = msgspec.json.decode(body) if status == 200 else None
    except (ClawkitError, OSError, TimeoutError, msgspec.DecodeError, RecursionError):
        return []
    rows = data.get("models") if isinstance(data, dict) else None
    names = (
        [row.get("name") for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    )
    return [
        ModelRef("ollama", name)
        for name in names
        if isinstance(name, str)
        and not any(word in name.lower() for word in _EMBEDS)
        and _is_name(name)
    ]


def is_strangers(sockets: str, port: int = _OLLAMA_PORT, me: int | None = None) -> bool:
    """Whether another person listens at a port: whoever came first would be our model.

    `sockets` are those of this machine, as Linux lists them.
    """
    me = os.geteuid() if me is None else me
    for line in sockets.splitlines()[1:]:
        _, local, _, state, _, _, _, owner, *_ = line.split()
        is_here = state == _LISTENS and int(local.rpartition(":")[2], 16) == port
        if is_here and int(owner) >= _FIRST_PERSON and int(owner) != me:
            return True
    return False


def _is_name(name: str) -> bool:
    try:
        return parse_ref(f"ollama/{name}").id == name
    except ValueError:
        return False
