"""Model references: `provider/model`, or a model id on its own."""

from __future__ import annotations

import re

from msgspec import Struct

_ALIASES = {
    "gemini": "google",
    "kimi-code": "kimi",
    "kimi-coding": "kimi",
    "opencode-zen": "opencode",
    "z-ai": "zai",
    "z.ai": "zai",
}
_PROVIDER = r"[a-z0-9][a-z0-9._-]{0,63}"
_MAX_LENGTH = 512


class ModelRef(Struct, frozen=True):
    """One model. `provider` is empty when only an id was given."""

    provider: str
    id: str

    def __str__(self) -> str:
        return f"{self.provider}/{self.id}" if self.provider else self.id


OPERATOR = ModelRef("clawkit", "operator")
"""The built-in model that works offline."""


def normalize_provider(name: str) -> str:
    """The provider's canonical name: lower case, aliases resolved."""
    name = name.strip().lower()
    return _ALIASES.get(name, name)


def parse_ref(text: str) -> ModelRef:
    """Parse a reference, split at the first slash: ids may contain more. Raises ValueError."""
    text = text.strip()
    if len(text) > _MAX_LENGTH:
        raise ValueError(
            f"model reference {text[:40]!r}... is longer than {_MAX_LENGTH} characters"
        )
    if not text.isprintable() or " " in text:
        raise ValueError(f"model reference {text!r} must not contain spaces or control characters")
    head, slash, model = text.partition("/")
    if not slash:
        head, model = "", head
    if (slash and not head) or not model.strip("/") or model != model.strip("/"):
        raise ValueError(f"model reference {text!r} must look like 'provider/model' or 'model'")
    if not {".", ".."}.isdisjoint(model.split("/")):
        # The id may become part of a URL, where these would change the path.
        raise ValueError(f"model reference {text!r} must not contain '.' or '..' between slashes")
    provider = normalize_provider(head)
    if provider and not re.fullmatch(_PROVIDER, provider):
        raise ValueError(
            f"model reference {text!r} starts with {head!r}, which is not a provider name: "
            "letters, digits, dots, dashes and underscores"
        )
    return ModelRef(provider, model)
