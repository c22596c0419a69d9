"""What one service with an OpenAI API takes: as configured, else as far as it is known."""

from __future__ import annotations

import re
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from clawkit.config.sections.shared import Thinking as Level
from clawkit.models.base import Endpoint, Request
from clawkit.models.wire.shared import short_id

_SERVICES = {
    "openrouter.ai": "openrouter",
    "deepseek.com": "deepseek",
    "z.ai": "zai",
    "bigmodel.cn": "zai",
    "together.xyz": "together",
    "together.ai": "together",
    "aliyuncs.com": "qwen",
    "moonshot.ai": "moonshot",
    "moonshot.cn": "moonshot",
    "mistral.ai": "mistral",
    "x.ai": "xai",
}
_FORMATS = frozenset({"openrouter", "deepseek", "zai", "together", "qwen"})
_NO_EFFORT = frozenset({"mistral", "xai", "moonshot"})
_KEEPS_THINKING = _FORMATS | {"qwen-chat-template", "moonshot"}
"""Formats and services that want back what the model thought."""
_MISSES_THINKING = frozenset({"deepseek", "moonshot"})
"""Services that refuse a message with calls when the thinking before them is missing."""

_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_SAFE_EFFORTS = ("low", "medium", "high")
"""What every model that thinks can be expected to know."""
_PLAIN_ID = re.compile(r"[A-Za-z0-9_-]+")
_WIDE_ID = re.compile(r"[A-Za-z0-9_.:-]+")
_NINE = re.compile(r"[A-Za-z0-9]{9}")
_MAX_CACHE_KEY = 64


def _service(endpoint: Endpoint) -> str:
    """Which of the known services this is, or the provider's own name."""
    try:
        host = urlsplit(endpoint.base_url).hostname or ""
    except ValueError:
        host = ""
    for end, name in _SERVICES.items():
        if host == end or host.endswith(f".{end}"):
            return name
    return endpoint.ref.provider


def _or(given: bool | None, default: bool) -> bool:
    return default if given is None else given


class Dialect(msgspec.Struct, frozen=True):
    """Everything that is decided once for an endpoint."""

    endpoint: Endpoint
    service: str
    system_role: Literal["developer", "system"]
    format: str
    """How thinking is turned on."""
    takes_effort: bool
    keeps_thinking: bool
    """Whether the model's thinking goes back to it in a field of its own."""
    needs_thinking: bool
    """Whether a message with calls must have that field, empty if need be."""
    takes_tools: bool
    strict: bool | None
    store: bool
    usage: bool
    cache_key: bool
    cache_marks: bool
    max_tokens_field: str

    @classmethod
    def of(cls, endpoint: Endpoint) -> Dialect:
        compat, native = endpoint.compat, endpoint.is_native
        service = "" if native else _service(endpoint)
        form = compat.thinking_format or (service if service in _FORMATS else "openai")
        keeps = not (native or compat.strict_message_keys or compat.requires_thinking_as_text)
        developer = native and endpoint.facts.reasoning
        developer = developer and compat.supports_developer_role is not False
        effort = _or(compat.supports_reasoning_effort, service not in _NO_EFFORT)
        if form not in ("openai", "openrouter"):
            effort = compat.supports_reasoning_effort is True
        return cls(
            endpoint=endpoint,
            service=service,
            system_role="developer" if developer else "system",
            format=form,
            takes_effort=effort,
            keeps_thinking=keeps and (form in _KEEPS_THINKING or service in _KEEPS_THINKING),
            needs_thinking=keeps and service in _MISSES_THINKING and endpoint.facts.reasoning,
            takes_tools=compat.supports_tools is not False,
            strict=compat.supports_strict_mode,
            store=_or(compat.supports_store, native),
            usage=compat.supports_usage_in_streaming is not False,
            cache_key=_or(compat.supports_prompt_cache_key, native),
            cache_marks=compat.cache_control_format == "anthropic"
            and not (compat.requires_string_content or compat.strict_message_keys),
            max_tokens_field=compat.max_tokens_field
            or ("max_completion_tokens" if native else "max_tokens"),
        )

    def effort(self, level: Level) -> str | None:
        """The service's word for a level; None where there is none to send."""
        endpoint, compat = self.endpoint, self.endpoint.compat
        if level in endpoint.thinking_levels:
            word = endpoint.thinking_levels[level]
            return word if isinstance(word, str) else None if word is None else level
        if level in compat.reasoning_effort_map:
            return compat.reasoning_effort_map[level]
        known = compat.supported_reasoning_efforts
        if level == "off":
            return "none" if known and "none" in known else None
        return _nearest(level, known if known is not None else _SAFE_EFFORTS)

    def is_on(self, level: Level) -> bool:
        """Whether the model is to think."""
        return level != "off" and self.endpoint.thinking_levels.get(level, level) is not None

    def thinking_fields(self, level: Level) -> dict[str, Any]:
        """What turns thinking on or off in a request for chat completions."""
        if not self.endpoint.facts.reasoning:
            return {}
        is_on, word = self.is_on(level), self.effort(level)
        effort = {"reasoning_effort": word} if self.takes_effort and word else {}
        switch = {"type": "enabled" if is_on else "disabled"}
        if self.format == "openrouter":
            by_word = self.takes_effort and (word or not is_on)
            return {"reasoning": {"effort": word or "none"} if by_word else {"enabled": is_on}}
        if self.format in ("deepseek", "zai"):
            return {"thinking": switch} | (effort if is_on else {})
        if self.format == "together":
            return {"reasoning": {"enabled": is_on}} | (effort if is_on else {})
        if self.format == "qwen":
            return {"enable_thinking": is_on} | (effort if is_on else {})
        if self.format == "qwen-chat-template":
            return {"chat_template_kwargs": {"enable_thinking": is_on}}
        return effort

    def call_id(self, given: str) -> str:
        """The id of a call as the service takes it: its own as it came, others made safe."""
        if self.service == "mistral":
            return given if _NINE.fullmatch(given) else short_id(given)[5:14]
        native = self.endpoint.is_native
        pattern = _PLAIN_ID if native or "claude" in self.endpoint.ref.id.lower() else _WIDE_ID
        max_chars = 40 if native and self.endpoint.api == "openai-completions" else 64
        fits = len(given) <= max_chars and pattern.fullmatch(given)
        return given if fits else short_id(given)

    def cache_fields(self, request: Request) -> dict[str, str]:
        """What lets requests of one conversation find the same cache, and how long it is kept."""
        given = {**self.endpoint.params, **request.params}
        retention = given.get("cacheRetention", given.get("cache_retention"))
        fields: dict[str, str] = {}
        if retention == "none":
            return fields
        if self.cache_key and (key := request.session):
            fits = len(key) <= _MAX_CACHE_KEY
            fields["prompt_cache_key"] = key if fits else short_id(key, _MAX_CACHE_KEY)
        if retention == "long" and self.endpoint.compat.supports_long_cache_retention:
            fields["prompt_cache_retention"] = "24h"
        return fields


def _nearest(word: str, known: list[str] | tuple[str, ...]) -> str | None:
    """The effort that comes closest among those a model knows: the same, less, or else more."""
    if word in known:
        return word
    at = _EFFORTS.index(word)
    less = [each for each in _EFFORTS[1:at] if each in known]
    more = [each for each in _EFFORTS[at:] if each in known]
    return less[-1] if less else more[0] if more else None
