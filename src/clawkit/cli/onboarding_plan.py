"""From answers to the configuration: which settings are written, and the words above each."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from clawkit.config.alter import content, set_setting, unset_setting
from clawkit.config.edit_layout import newline_of
from clawkit.config.json5 import Node, locate, parse
from clawkit.config.known import Path, in_force, spelled, value_at
from clawkit.config.load import Loaded
from clawkit.config.modelref import ModelRef, normalize_provider
from clawkit.config.sections.agents import Agents
from clawkit.models.headers import bad_value
from clawkit.models.known import PROVIDERS

VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,127}")
MAX_KEY = 8_192
_PASTED = re.compile(r"(?:export\s+)?[A-Z][A-Z0-9]*_[A-Z0-9_]*=(.*)", re.DOTALL)
_WIDTH = 100
_HEADER = """\
// Settings of clawkit, in JSON5: comments like this one are fine.
// To change them, edit this file, or type `clawkit configure` or `clawkit config set`.
"""


class Key(NamedTuple):
    """Where the key comes from. The representation does not show it."""

    source: Literal["env", "typed", "kept", "none"] = "none"
    """A variable, what somebody typed, whatever is in use already, or none is needed."""
    name: str = ""
    """Of the variable."""
    secret: str = ""
    """What was typed."""

    def __repr__(self) -> str:
        return f"<key: {self.source} {self.name}>"


class Setup(NamedTuple):
    """What somebody wants: a model and how it is reached. Without a model only the rest."""

    ref: ModelRef | None = None
    key: Key = Key()
    base_url: str = ""
    """To be written; empty when the provider's own is right."""
    api: str = ""
    private: bool = False
    """Whether it is in a private network."""
    entry: Mapping[str, Any] | None = None
    """What is to be written about the model."""


class Setting(NamedTuple):
    """One setting to write; None removes it."""

    path: Path
    value: Any
    words: str = ""
    merge: bool = False


def clean_key(text: str) -> str:
    """A key as it was meant. Raises ValueError, which says what is wrong but not with what."""
    key = text.strip()
    if pasted := _PASTED.fullmatch(key):
        # Nothing comes after the padding that some keys end with.
        key = pasted[1].strip() if pasted[1].strip("= ") else key
    if len(key) > 1 and key[0] == key[-1] and key[0] in "\"'":
        key = key[1:-1].strip()
    key = key.removeprefix("Bearer ").strip()
    if not key:
        raise ValueError("the key is empty")
    if len(key) > MAX_KEY:
        raise ValueError(f"a key has at most {MAX_KEY} characters")
    if not key.isascii() or " " in key or bad_value(key):
        raise ValueError("a key has no blanks, line breaks or special characters in it")
    return key


def plan(setup: Setup, loaded: Loaded, agent: str) -> list[Setting]:
    """The settings that make it so. What a person wrote about other things stays."""
    settings = list(_model(setup, loaded, agent)) if setup.ref else []
    if loaded.config.tools.profile is None:
        words = "Which tools the agent has; `clawkit configure tools` shows the others."
        settings.append(Setting(("tools", "profile"), "coding", words))
    return settings


def _model(setup: Setup, loaded: Loaded, agent: str) -> Iterator[Setting]:
    ref, key = setup.ref, setup.key
    if ref is None:
        return
    words = "The model that is asked. Its key is in the environment or in auth-profiles.json."
    yield Setting(_model_path(loaded, agent), str(ref), words)
    at: Path = ("models", "providers", provider_key(loaded, ref.provider))
    if setup.base_url:
        yield Setting((*at, "baseUrl"), setup.base_url, "Where the service is.")
    if setup.api:
        yield Setting((*at, "api"), setup.api, "Which API it speaks.")
    known = PROVIDERS.get(ref.provider)
    if key.source == "env" and not (known and key.name in known.env):
        words = "The key is not in this file: it is read from the environment."
        yield Setting((*at, "apiKey"), f"${{{key.name}}}", words)
    if setup.private:
        words = "It is in a private network, which is not connected to otherwise."
        yield Setting((*at, "request", "allowPrivateNetwork"), True, words)
    if setup.entry:
        words = "What the model takes: images only if `input` says so, `contextWindow` in tokens."
        yield Setting((*at, "models"), [dict(setup.entry)], words, merge=True)
    yield from _order(loaded, ref.provider, key)


def profile_id(ref: ModelRef) -> str:
    """The name under which a key is stored."""
    return f"{ref.provider}:default"


def _order(loaded: Loaded, provider: str, key: Key) -> Iterator[Setting]:
    """Where somebody says which stored keys are used, the new one has to be among them."""
    name = f"{provider}:default"
    for written, order in loaded.config.auth.order.items():
        if key.source == "typed" and normalize_provider(written) == provider and name not in order:
            yield Setting(("auth", "order", written), [name, *order])


def provider_key(loaded: Loaded, provider: str) -> str:
    """The provider as the file spells it."""
    names = loaded.config.models.providers
    return next((name for name in names if normalize_provider(name) == provider), provider)


def configured_url(loaded: Loaded, provider: str) -> str:
    """The address that the file gives for a provider."""
    found = loaded.config.models.providers.get(provider_key(loaded, provider))
    return (found.base_url if found else None) or ""


def _model_path(loaded: Loaded, agent: str) -> Path:
    """Where the agent's model is written: with the agent if it has its own, else with all."""
    agents = loaded.config.agents
    own = _agent_path(agents, agent) if agents.get(agent).model else None
    path = (*(own or ("agents", "defaults")), "model")
    return path if isinstance(in_force(loaded.config, path), str) else (*path, "primary")


def _agent_path(agents: Agents, agent: str) -> Path | None:
    key = agents.key_of(agent)
    if key.startswith("agents.list["):
        return "agents", "list", int(key[len("agents.list[") : -1])
    return ("agents", "entries", key.removeprefix("agents.entries.")) if key else None


def edited(text: str, settings: list[Setting]) -> str:
    """`text` with the settings in it, a comment above each new one. Raises EditError."""
    text = text or _HEADER
    for each in settings:
        root = content(text)
        old = value_at(root, spelled(each.path, root))
        if each.value is None:
            text = text if old is None else unset_setting(text, each.path)
        elif old != each.value:
            text = set_setting(
                text, each.path, each.value, merge=each.merge, replace=not each.merge
            )
            if old is None and each.words:
                text = _commented(text, spelled(each.path, content(text)), each.words)
    return text


def _commented(text: str, path: Path, words: str) -> str:
    """`text` with a comment above a setting; none where the setting shares its line."""
    parent = locate(parse(text), path[:-1])
    if not isinstance(parent, Node) or path[-1] not in parent.members:
        return text
    at = parent.members[str(path[-1])].key_start
    line = text.rfind("\n", 0, at) + 1
    indent = text[line:at]
    if indent.strip():
        return text
    rows = textwrap.wrap(words, _WIDTH - len(indent) - 3)
    comment = "".join(f"{indent}// {row}{newline_of(text)}" for row in rows)
    return text[:line] + comment + text[line:]
