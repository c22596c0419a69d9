"""The built-in providers: API, address, and variables of the key. Parsing of addresses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from clawkit.config.sections.models import Cost
from clawkit.errors import ConfigError, Issue
from clawkit.models.protocols import Api
from clawkit.text import regex

if TYPE_CHECKING:
    from clawkit.models.known_models import KnownModel

_APIS: dict[str, Api | None] = {
    "chat": "openai-completions",
    "responses": "openai-responses",
    "messages": "anthropic-messages",
    "google": "google-generative-ai",
    "by-model": None,
}

# If no model is configured, the first provider whose key is set is used. Those without a variable
# run on the user's machine and need no key.
_TABLE = """
anthropic    messages   https://api.anthropic.com            ANTHROPIC_API_KEY
openai       responses  https://api.openai.com/v1            OPENAI_API_KEY
google       google https://generativelanguage.googleapis.com/v1beta GEMINI_API_KEY GOOGLE_API_KEY
openrouter   chat       https://openrouter.ai/api/v1         OPENROUTER_API_KEY
xai          responses  https://api.x.ai/v1                  XAI_API_KEY
moonshot     chat       https://api.moonshot.ai/v1           MOONSHOT_API_KEY
moonshot-cn  chat       https://api.moonshot.cn/v1           MOONSHOT_CN_API_KEY MOONSHOT_API_KEY
kimi         messages   https://api.kimi.com/coding/         KIMI_API_KEY
minimax      messages   https://api.minimax.io/anthropic     MINIMAX_API_KEY
minimax-cn   messages   https://api.minimaxi.com/anthropic   MINIMAX_CN_API_KEY MINIMAX_API_KEY
zai          chat       https://api.z.ai/api/coding/paas/v4  ZAI_API_KEY Z_AI_API_KEY
deepseek     chat       https://api.deepseek.com             DEEPSEEK_API_KEY
mistral      chat       https://api.mistral.ai/v1            MISTRAL_API_KEY
opencode     by-model   https://opencode.ai/zen/v1           OPENCODE_API_KEY OPENCODE_ZEN_API_KEY
opencode-go  by-model   https://opencode.ai/zen/go/v1        OPENCODE_API_KEY
cerebras     chat       https://api.cerebras.ai/v1           CEREBRAS_API_KEY
groq         chat       https://api.groq.com/openai/v1       GROQ_API_KEY
synthetic    messages   https://api.synthetic.new/anthropic  SYNTHETIC_API_KEY
together     chat       https://api.together.xyz/v1          TOGETHER_API_KEY
fireworks    chat       https://api.fireworks.ai/inference/v1  FIREWORKS_API_KEY
venice       chat       https://api.venice.ai/api/v1         VENICE_API_KEY
nvidia       chat       https://integrate.api.nvidia.com/v1  NVIDIA_API_KEY
huggingface  chat       https://router.huggingface.co/v1     HF_TOKEN HUGGINGFACE_HUB_TOKEN
ollama       chat       http://127.0.0.1:11434/v1
lmstudio     responses  http://127.0.0.1:1234/v1
vllm         chat       http://127.0.0.1:8000/v1
sglang       chat       http://127.0.0.1:30000/v1
litellm      chat       http://127.0.0.1:4000/v1
mlx          chat       http://127.0.0.1:8080/v1
"""
# For relays, the API depends on the model: prefix of the id -> API; the first match decides.
_BY_MODEL = {
    "opencode": "claude:messages qwen:messages gpt-oss:chat gpt-:responses gemini:google",
    "opencode-go": "claude:messages qwen:messages minimax:messages gpt-oss:chat gpt-:responses"
    " gemini:google",
}
_DATED = r"(?:-20\d{6}|-20\d\d-\d\d-\d\d|-latest)$"
_LOOPBACK = r"localhost|127(?:\.\d{1,3}){3}|::1"
_VARIABLE = r"\$\{([A-Z_][A-Z0-9_]*)\}"
OLLAMA_PORT = 11434
LOCAL_WINDOW = 32_768
"""Context window assumed for local servers if none is configured. Small, because Ollama allocates
memory for all of it."""


class KnownProvider(msgspec.Struct, frozen=True):
    """One row of the table."""

    id: str
    api: Api | None
    """None if it depends on the model."""
    base_url: str
    env: tuple[str, ...]
    """Variables that may hold the key, in order; empty if no key is needed."""

    @property
    def is_local(self) -> bool:
        return not self.env

    @property
    def models(self) -> tuple[KnownModel, ...]:
        """The known models, the default one first."""
        # Imported on use: most starts do not need the table.
        from clawkit.models.known_models import MODELS

        return MODELS.get(self.id, ())


PROVIDERS: dict[str, KnownProvider] = {
    name: KnownProvider(name, _APIS[api], url, tuple(env))
    for name, api, url, *env in map(str.split, _TABLE.strip().splitlines())
}


def api_of(provider: KnownProvider, model_id: str) -> Api:
    """The API that a built-in provider uses for a model."""
    if provider.api:
        return provider.api
    name = model_id.lower()
    for entry in _BY_MODEL[provider.id].split():
        start, _, api = entry.partition(":")
        if name.startswith(start) and (found := _APIS[api]):
            return found
    return "openai-completions"


def full_id(provider: str, model_id: str) -> str:
    """A model id in the provider's spelling: OpenRouter's own models have its name as prefix."""
    is_own = provider == "openrouter" and "/" not in model_id
    return f"openrouter/{model_id}" if is_own else model_id


def known_model(provider: str, model_id: str) -> KnownModel | None:
    """The table row of a model; a date at the end of its id is ignored."""
    known = PROVIDERS.get(provider)
    rows = {row.id: row for row in known.models} if known else {}
    return rows.get(model_id) or rows.get(re.sub(_DATED, "", model_id))


def cost_of(model: KnownModel) -> Cost | None:
    if model.prices is None:
        return None
    read, write, cache_read, cache_write = model.prices
    return Cost(input=read, output=write, cache_read=cache_read, cache_write=cache_write)


@lru_cache(64)
def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine."""
    return bool(regex(_LOOPBACK).fullmatch(host.strip("[]").lower()))


def base_url_of(provider: KnownProvider, env: Mapping[str, str]) -> str:
    """The address of a built-in provider; `OLLAMA_HOST` applies, if it is on this machine."""
    if provider.id == "ollama" and (origin := ollama_origin(env)):
        return f"{origin}/v1"
    return provider.base_url


def ollama_origin(env: Mapping[str, str]) -> str:
    """`OLLAMA_HOST` as scheme, host and port; empty if it is unset or another machine.

    The same variable tells the server where to listen, so it may be 0.0.0.0: that is this machine.
    """
    text = env.get("OLLAMA_HOST", "").strip()
    if not text:
        return ""
    text = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(text)
        port = parts.port or (443 if parts.scheme == "https" else OLLAMA_PORT)
    except ValueError:
        return ""
    host = parts.hostname or "127.0.0.1"
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  # read, not bound
    if parts.scheme not in ("http", "https") or parts.username or not is_loopback(host):
        return ""
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}"


class Address(msgspec.Struct, frozen=True):
    """A validated base URL without a trailing slash."""

    origin: str
    path: str
    host: str
    """Lower-case, without brackets."""
    port: int | None

    @property
    def url(self) -> str:
        return self.origin + self.path

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)


@lru_cache(64)
def read_address(text: str, key: str) -> Address:
    """Parse an address from the setting `key`. Raises ConfigError with the reason."""
    text = text.strip()
    if "${" in text and (unset := re.search(_VARIABLE, text)):
        raise fault(f"the environment variable {unset[1]} is not set", key)
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise fault("is not a URL", key) from None
    host = (parts.hostname or "").rstrip(".")
    if parts.scheme not in ("http", "https") or not host or not text.isprintable() or " " in text:
        raise fault("is not a URL that starts with http:// or https://", key)
    if parts.username or parts.password:
        raise fault("contains a user name or password", key, "Put the credential into apiKey")
    if parts.query or parts.fragment:
        raise fault("has a query or fragment", key, "Remove everything after ? or #")
    where = f"[{host}]" if ":" in host else host
    origin = f"{parts.scheme}://{where}" + (f":{port}" if port is not None else "")
    return Address(origin, parts.path.rstrip("/"), host, port)


def fault(problem: str, key: str = "", hint: str = "", file: str = "") -> ConfigError:
    """An error in one setting of the configuration, or in another file."""
    return ConfigError([Issue(key, problem, file, hint=hint)])
