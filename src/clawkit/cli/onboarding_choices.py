"""What can be chosen in the beginning: one id for every way to get at a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from clawkit.config.modelref import normalize_provider
from clawkit.models.known import PROVIDERS
from clawkit.text import nearest

CUSTOM, SKIP = "custom-api-key", "skip"

# Id, provider, address where it is not the provider's usual one.
_TABLE = """
cerebras-api-key     cerebras
kimi-code-api-key    kimi
minimax-global-api   minimax
minimax-cn-api       minimax      https://api.minimaxi.com/anthropic
moonshot-api-key     moonshot
moonshot-api-key-cn  moonshot     https://api.moonshot.cn/v1
opencode-zen         opencode
opencode-go          opencode-go
synthetic-api-key    synthetic
zai-api-key          zai
zai-general-api-key  zai          https://api.z.ai/api/paas/v4
gemini-api-key       google
"""


class Choice(NamedTuple):
    """One way to get at a model."""

    id: str
    provider: str = ""
    """Empty for a service of one's own, and for none."""
    base_url: str = ""
    """Where it is, when that is not the provider's usual address."""

    @property
    def env(self) -> tuple[str, ...]:
        """Variables that may hold the key."""
        return PROVIDERS[self.provider].env if self.provider else ()

    @property
    def is_local(self) -> bool:
        """Whether it runs on this machine and needs no key."""
        return bool(self.provider) and PROVIDERS[self.provider].is_local

    @property
    def words(self) -> str:
        """What it is, for people."""
        if self.id == CUSTOM:
            return "a service that is not in this table, such as one of your own"
        if self.id == SKIP:
            return "no model for now"
        if self.is_local:
            return f"`{self.provider}` on this machine"
        return f"`{self.provider}` at `{self.base_url or PROVIDERS[self.provider].base_url}`"


def _rows() -> Iterator[Choice]:
    for known in PROVIDERS.values():
        yield Choice(known.id if known.is_local else f"{known.id}-api-key", known.id)
    for line in _TABLE.strip().splitlines():
        yield Choice(*line.split())
    yield Choice(CUSTOM)
    yield Choice(SKIP)


CHOICES: dict[str, Choice] = {row.id: row for row in _rows()}
_SHORT = {"custom": CUSTOM, "none": SKIP}


def find_choice(text: str) -> Choice | None:
    """The choice of that id, or the usual one of a provider."""
    name = text.strip().lower()
    provider = normalize_provider(name)
    for each in (name, provider, f"{provider}-api-key", _SHORT.get(name, "")):
        if each in CHOICES:
            return CHOICES[each]
    return None


def unknown_choice(text: str) -> str:
    """What to say about an id that is none."""
    name = text.strip().lower()
    close = nearest(name, tuple(CHOICES))
    if not close and (meant := nearest(name.partition("-")[0], tuple(PROVIDERS))):
        close = [each.id for each in CHOICES.values() if each.provider in meant]
    hint = f" Did you mean {' or '.join(map(repr, close[:3]))}?" if close else ""
    return f"there is no choice {text[:80]!r}.{hint}\nAll of them: {', '.join(sorted(CHOICES))}"


def address_of(choice: Choice, configured: str) -> str:
    """The address to write down; empty when the one that holds already is right.

    One that a person wrote stays, unless it is that of another choice for the same provider.
    """
    if choice.base_url:
        return choice.base_url
    others = {each.base_url for each in CHOICES.values() if each.provider == choice.provider}
    is_other = configured.strip().rstrip("/") in others - {""}
    return PROVIDERS[choice.provider].base_url if is_other else ""
