"""Addresses of services, and what can be told about a service from its address."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import urlsplit

from clawkit.config.sections.models import Compat
from clawkit.errors import ConfigError, Issue
from clawkit.models.base import Api
from clawkit.models.known import is_loopback

_OLLAMA_PORT = 11434
_NATIVE: dict[str, str] = {
    "openai-completions": "api.openai.com",
    "openai-responses": "api.openai.com",
    "anthropic-messages": "api.anthropic.com",
    "google-generative-ai": "generativelanguage.googleapis.com",
}
_PATHS = {"api.openai.com": "/v1", "generativelanguage.googleapis.com": "/v1beta"}
"""What belongs to the address of a service and is easily left out."""
_VARIABLE = re.compile(r"\$\{([A-Z_][A-Z0-9_]*)\}")
_SUPPORTED: dict[str, Api] = {
    "openai-completions": "openai-completions",
    "openai-responses": "openai-responses",
    "anthropic-messages": "anthropic-messages",
    "google-generative-ai": "google-generative-ai",
    "ollama": "openai-completions",
}

_MOONSHOT = Compat(supports_usage_in_streaming=True, max_tokens_field="max_tokens")
_ZAI = Compat(thinking_format="zai", supports_reasoning_effort=False)
_QWEN = Compat(thinking_format="qwen")
# By the end of the host name; these speak openai-completions, each in its own way.
_COMPAT = {
    "api.moonshot.ai": _MOONSHOT,
    "api.moonshot.cn": _MOONSHOT,
    "api.z.ai": _ZAI,
    "open.bigmodel.cn": _ZAI,
    "api.deepseek.com": Compat(thinking_format="deepseek", max_tokens_field="max_tokens"),
    "dashscope.aliyuncs.com": _QWEN,
    "dashscope-intl.aliyuncs.com": _QWEN,
    "dashscope-us.aliyuncs.com": _QWEN,
    "api.together.xyz": Compat(thinking_format="together", max_tokens_field="max_tokens"),
    "api.together.ai": Compat(thinking_format="together", max_tokens_field="max_tokens"),
    "openrouter.ai": Compat(thinking_format="openrouter"),
    "api.mistral.ai": Compat(requires_tool_result_name=True, max_tokens_field="max_tokens"),
}


class Address(NamedTuple):
    """A base URL, checked, without a slash at the end."""

    url: str
    host: str
    """Lower-case, without brackets."""
    port: int | None

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)


def supported_api(api: str, key: str) -> Api:
    """An API that clawkit speaks, or a ConfigError that says it does not."""
    found = _SUPPORTED.get(api)
    if found is None:
        known = ", ".join(name for name in _SUPPORTED if name != "ollama")
        raise ConfigError([Issue(key, f"the API {api!r} is not built in yet", hint=f"Use {known}")])
    return found


@lru_cache(64)
def read_address(text: str, key: str) -> Address:
    """The address a person wrote. Raises ConfigError, which says what is wrong with it."""
    text = text.strip()
    if unset := _VARIABLE.search(text):
        raise _bad(key, f"the environment variable {unset[1]} is not set")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise _bad(key, "is not an address") from None
    host = (parts.hostname or "").rstrip(".")
    if parts.scheme not in ("http", "https") or not host or not text.isprintable() or " " in text:
        raise _bad(key, "is not an address that starts with http:// or https://")
    if parts.username or parts.password:
        raise _bad(key, "holds a user name or password", "Put the credential into apiKey")
    if parts.query or parts.fragment:
        raise _bad(key, "has more behind its path", "Remove what begins with ? or #")
    where = f"[{host}]" if ":" in host else host
    origin = f"{parts.scheme}://{where}" + (f":{port}" if port is not None else "")
    return Address(origin + parts.path.rstrip("/"), host, port)


def _bad(key: str, problem: str, hint: str = "") -> ConfigError:
    return ConfigError([Issue(key, problem, hint=hint)])


def is_ollama(provider: str, api: str, address: Address) -> bool:
    """Whether a server has to be told how much context to make room for."""
    return "ollama" in (provider, api) or address.port == _OLLAMA_PORT


def fit_address(address: Address, api: Api, *, ollama: bool) -> str:
    """The base URL to which the API's own paths are added."""
    origin, slashes, rest = address.url.partition("://")
    rest, slash, path = rest.partition("/")
    path = slash + path
    if ollama and api == "openai-completions":
        path = path.removesuffix("/api")
        path = path if path.endswith("/v1") else f"{path}/v1"
    elif api == "anthropic-messages":
        # Its paths begin with the version.
        path = path.removesuffix("/v1")
    else:
        path = path or _PATHS.get(address.host, "")
    return f"{origin}{slashes}{rest}{path}"


def is_native(api: Api, address: Address) -> bool:
    """Whether this is the API's own service and not one that imitates it."""
    return address.host == _NATIVE[api]


def host_compat(api: Api, host: str) -> Compat:
    """What is known about the service at a host, whatever name it goes by here."""
    if api != "openai-completions":
        return Compat()
    return _COMPAT.get(host, Compat())
