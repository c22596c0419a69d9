"""The known models: context windows, output limits, capabilities and prices.

Prices are dollars per million tokens: input, output, cache read, cache write. They are omitted if
they are uncertain, covered by a subscription, or set by a relay.
"""

from __future__ import annotations

from typing import NamedTuple

_Prices = tuple[float, float, float, float]


class KnownModel(NamedTuple):
    """One row of the table."""

    id: str
    name: str
    context_window: int
    max_tokens: int
    marks: str = ""
    """`i`: accepts images. `r`: can think before it answers."""
    prices: _Prices | None = None

    @property
    def images(self) -> bool:
        return "i" in self.marks

    @property
    def reasoning(self) -> bool:
        return "r" in self.marks


_M = KnownModel

_MINIMAX = (
    _M("MiniMax-M2.7", "MiniMax M2.7", 204_800, 131_072, "r", (0.3, 1.2, 0.06, 0.375)),
    _M("MiniMax-M2.7-highspeed", "MiniMax M2.7 Highspeed", 204_800, 131_072, "r"),
    _M("MiniMax-M2.5", "MiniMax M2.5", 204_800, 131_072, "r"),
)
_MOONSHOT = (
    _M("kimi-k2.6", "Kimi K2.6", 262_144, 262_144, "i", (0.95, 4, 0.16, 0)),
    _M("kimi-k2.7-code", "Kimi K2.7 Code", 262_144, 262_144, "ir", (0.95, 4, 0.19, 0)),
    _M("kimi-k3", "Kimi K3", 1_048_576, 131_072, "ir", (3, 15, 0.3, 0)),
    _M("kimi-k2.5", "Kimi K2.5", 262_144, 262_144, "ir"),
)

MODELS: dict[str, tuple[KnownModel, ...]] = {
    "anthropic": (
        _M("claude-sonnet-4-6", "Claude Sonnet 4.6", 1_000_000, 64_000, "ir", (3, 15, 0.3, 3.75)),
        _M("claude-opus-4-6", "Claude Opus 4.6", 1_000_000, 128_000, "ir", (5, 25, 0.5, 6.25)),
        _M("claude-opus-5", "Claude Opus 5", 1_000_000, 128_000, "ir", (5, 25, 0.5, 6.25)),
        _M("claude-sonnet-5", "Claude Sonnet 5", 1_000_000, 128_000, "ir", (3, 15, 0.3, 3.75)),
        _M("claude-opus-4-8", "Claude Opus 4.8", 1_000_000, 128_000, "ir", (5, 25, 0.5, 6.25)),
        _M("claude-opus-4-7", "Claude Opus 4.7", 1_000_000, 128_000, "ir", (5, 25, 0.5, 6.25)),
        _M("claude-haiku-4-5", "Claude Haiku 4.5", 200_000, 64_000, "ir", (1, 5, 0.1, 1.25)),
        _M("claude-opus-4-5", "Claude Opus 4.5", 200_000, 64_000, "ir", (5, 25, 0.5, 6.25)),
        _M("claude-sonnet-4-5", "Claude Sonnet 4.5", 200_000, 64_000, "ir", (3, 15, 0.3, 3.75)),
        _M("claude-opus-4-1", "Claude Opus 4.1", 200_000, 32_000, "ir", (15, 75, 1.5, 18.75)),
        _M("claude-sonnet-4", "Claude Sonnet 4", 200_000, 64_000, "ir", (3, 15, 0.3, 3.75)),
    ),
    "openai": (
        _M("gpt-5.4", "GPT-5.4", 1_050_000, 128_000, "ir", (2.5, 15, 0.25, 0)),
        _M("gpt-5.4-mini", "GPT-5.4 mini", 400_000, 128_000, "ir", (0.75, 4.5, 0.075, 0)),
        _M("gpt-5.4-nano", "GPT-5.4 nano", 400_000, 128_000, "ir", (0.2, 1.25, 0.02, 0)),
        _M("gpt-5.4-pro", "GPT-5.4 Pro", 1_050_000, 128_000, "ir", (30, 180, 0, 0)),
        _M("gpt-5.5", "GPT-5.5", 1_050_000, 128_000, "ir", (5, 30, 0.5, 0)),
        _M("gpt-5.5-pro", "GPT-5.5 Pro", 1_050_000, 128_000, "ir", (30, 180, 0, 0)),
        _M("gpt-5.3-codex", "GPT-5.3 Codex", 400_000, 128_000, "ir", (1.75, 14, 0.175, 0)),
        _M("gpt-5.2", "GPT-5.2", 400_000, 128_000, "ir", (1.75, 14, 0.175, 0)),
        _M("gpt-5.1", "GPT-5.1", 400_000, 128_000, "ir", (1.25, 10, 0.125, 0)),
        _M("gpt-5", "GPT-5", 400_000, 128_000, "ir", (1.25, 10, 0.125, 0)),
        _M("gpt-5-mini", "GPT-5 mini", 400_000, 128_000, "ir", (0.25, 2, 0.025, 0)),
        _M("gpt-4.1", "GPT-4.1", 1_047_576, 32_768, "i", (2, 8, 0.5, 0)),
        _M("gpt-4.1-mini", "GPT-4.1 mini", 1_047_576, 32_768, "i", (0.4, 1.6, 0.1, 0)),
        _M("gpt-4o", "GPT-4o", 128_000, 16_384, "i", (2.5, 10, 1.25, 0)),
        _M("gpt-4o-mini", "GPT-4o mini", 128_000, 16_384, "i", (0.15, 0.6, 0.075, 0)),
        _M("o3", "o3", 200_000, 100_000, "ir", (2, 8, 0.5, 0)),
        _M("o4-mini", "o4-mini", 200_000, 100_000, "ir", (1.1, 4.4, 0.275, 0)),
    ),
    "google": (
        _M("gemini-3-flash-preview", "Gemini 3 Flash", 1_048_576, 65_536, "ir", (0.5, 3, 0.05, 0)),
        _M("gemini-3.1-pro-preview", "Gemini 3.1 Pro", 1_048_576, 65_536, "ir", (2, 12, 0.2, 0)),
        _M("gemini-2.5-pro", "Gemini 2.5 Pro", 1_048_576, 65_536, "ir", (1.25, 10, 0.125, 0)),
        _M("gemini-2.5-flash", "Gemini 2.5 Flash", 1_048_576, 65_536, "ir", (0.3, 2.5, 0.03, 0)),
    ),
    "cerebras": (
        _M("zai-glm-4.7", "GLM 4.7 (Cerebras)", 131_072, 40_960, "r", (2.25, 2.75, 2.25, 2.75)),
        _M("gpt-oss-120b", "GPT OSS 120B (Cerebras)", 131_072, 40_960, "r", (0.35, 0.75, 0, 0)),
    ),
    "kimi": (
        _M("kimi-code", "Kimi Code", 262_144, 32_768, "ir"),
        _M("kimi-for-coding", "Kimi for Coding", 262_144, 32_768, "ir"),
    ),
    "minimax": _MINIMAX,
    "minimax-cn": _MINIMAX,
    "moonshot": _MOONSHOT,
    "moonshot-cn": _MOONSHOT,
    "opencode": (
        _M("claude-opus-4-6", "Claude Opus 4.6 (Zen)", 1_000_000, 128_000, "ir"),
        _M("claude-sonnet-4-6", "Claude Sonnet 4.6 (Zen)", 1_000_000, 64_000, "ir"),
        _M("claude-haiku-4-5", "Claude Haiku 4.5 (Zen)", 200_000, 64_000, "ir"),
        _M("gpt-5.4", "GPT-5.4 (Zen)", 1_050_000, 128_000, "ir"),
        _M("gpt-5.2", "GPT-5.2 (Zen)", 400_000, 128_000, "ir"),
        _M("gemini-3-flash", "Gemini 3 Flash (Zen)", 1_048_576, 65_536, "ir"),
        _M("kimi-k2.6", "Kimi K2.6 (Zen)", 262_144, 65_536, "ir"),
    ),
    "opencode-go": (
        _M("kimi-k2.6", "Kimi K2.6 (Go)", 262_144, 65_536, "ir"),
        _M("glm-5.1", "GLM 5.1 (Go)", 204_800, 131_072, "r"),
        _M("minimax-m2.7", "MiniMax M2.7 (Go)", 204_800, 131_072, "r"),
        _M("deepseek-v4-flash", "DeepSeek V4 Flash (Go)", 1_000_000, 384_000, "r"),
    ),
    "synthetic": (_M("hf:MiniMaxAI/MiniMax-M2.5", "MiniMax M2.5", 192_000, 65_536, "r"),),
    "zai": (
        _M("glm-4.7", "GLM-4.7", 204_800, 131_072, "r", (0.6, 2.2, 0.11, 0)),
        _M("glm-5.1", "GLM-5.1", 204_800, 131_072, "r"),
        _M("glm-4.6", "GLM-4.6", 204_800, 131_072, "r", (0.6, 2.2, 0.11, 0)),
        _M("glm-4.5-air", "GLM-4.5 Air", 131_072, 98_304, "r", (0.2, 1.1, 0.03, 0)),
        _M("glm-4.5v", "GLM-4.5V", 65_536, 16_384, "ir", (0.6, 1.8, 0.11, 0)),
    ),
    "xai": (
        _M("grok-4.5", "Grok 4.5", 500_000, 64_000, "ir", (2, 6, 0.3, 0)),
        _M("grok-4.3", "Grok 4.3", 1_000_000, 64_000, "ir", (1.25, 2.5, 0.2, 0)),
        _M("grok-code-fast-1", "Grok Code Fast 1", 256_000, 10_000, "r", (0.2, 1.5, 0.02, 0)),
    ),
    "openrouter": (
        _M("anthropic/claude-sonnet-4.6", "Claude Sonnet 4.6", 1_000_000, 64_000, "ir"),
        _M("anthropic/claude-opus-4.6", "Claude Opus 4.6", 1_000_000, 128_000, "ir"),
        _M("openai/gpt-5.4", "GPT-5.4", 1_050_000, 128_000, "ir"),
    ),
    "groq": (
        _M("openai/gpt-oss-120b", "GPT OSS 120B", 131_072, 65_536, "r", (0.15, 0.6, 0.075, 0)),
        _M("openai/gpt-oss-20b", "GPT OSS 20B", 131_072, 65_536, "r", (0.075, 0.3, 0.0375, 0)),
        _M("llama-3.3-70b-versatile", "Llama 3.3 70B", 131_072, 32_768, "", (0.59, 0.79, 0, 0)),
    ),
    "mistral": (
        _M("mistral-large-latest", "Mistral Large", 262_144, 16_384, "i", (0.5, 1.5, 0.05, 0)),
        _M("mistral-medium-3-5", "Mistral Medium 3.5", 262_144, 8_192, "ir", (1.5, 7.5, 0.15, 0)),
        _M("mistral-small-latest", "Mistral Small", 262_144, 16_384, "ir", (0.15, 0.6, 0.015, 0)),
        _M("codestral-latest", "Codestral", 128_000, 4_096, "", (0.3, 0.9, 0.03, 0)),
    ),
    "deepseek": (
        _M("deepseek-v4-pro", "DeepSeek V4 Pro", 1_000_000, 384_000, "r"),
        _M("deepseek-v4-flash", "DeepSeek V4 Flash", 1_000_000, 384_000, "r"),
        _M("deepseek-chat", "DeepSeek Chat", 131_072, 8_192),
        _M("deepseek-reasoner", "DeepSeek Reasoner", 131_072, 65_536, "r"),
    ),
    "together": (
        _M("moonshotai/Kimi-K2.6", "Kimi K2.6", 262_144, 32_768, "ir"),
        _M("openai/gpt-oss-120b", "GPT OSS 120B", 131_072, 32_768, "r"),
    ),
    "fireworks": (
        _M("accounts/fireworks/models/kimi-k2p6", "Kimi K2.6", 262_144, 32_768, "ir"),
        _M("accounts/fireworks/models/gpt-oss-120b", "GPT OSS 120B", 131_072, 32_768, "r"),
    ),
    "nvidia": (_M("openai/gpt-oss-120b", "GPT OSS 120B", 131_072, 32_768, "r"),),
    "huggingface": (_M("openai/gpt-oss-120b", "GPT OSS 120B", 131_072, 32_768, "r"),),
    "venice": (_M("llama-3.3-70b", "Llama 3.3 70B", 131_072, 8_192),),
}
