"""The choices of `onboard`, the resulting settings, and saving settings and key."""

from __future__ import annotations

import os
import re
import shlex
import signal
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from clawkit.config import file_edit as edits
from clawkit.config.json5 import Node, locate, parse, parse_path
from clawkit.config.load import Loaded, load, loads
from clawkit.config.lookup import Path, in_force, spelled, value_at
from clawkit.config.migrate import apply_migrations, migrations
from clawkit.config.modelref import ModelRef, normalize_provider
from clawkit.config.paths import config_file as locate_config
from clawkit.config.paths import expand
from clawkit.config.sections.agents import Agents
from clawkit.config.sources import read_config
from clawkit.config.text_edit import newline_of
from clawkit.errors import ConfigError, EditError, Issue
from clawkit.models.catalog import Catalog
from clawkit.models.credentials import Credential, Profiles
from clawkit.models.known import PROVIDERS
from clawkit.models.providers import agent_dir
from clawkit.net.route import bad_value
from clawkit.terminal_text import wrap
from clawkit.text import nearest
from clawkit.web.search.table import named_provider, ready_providers

CUSTOM, SKIP = "custom-api-key", "skip"

# Id, provider, and the address if it is not the provider's default.
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


class AuthChoice(NamedTuple):
    """One way to get a model."""

    id: str
    provider: str = ""
    """Empty for your own server, and for no model."""
    base_url: str = ""
    """The address, if it is not the provider's default."""

    @property
    def env(self) -> tuple[str, ...]:
        """Variables that may hold the key."""
        return PROVIDERS[self.provider].env if self.provider else ()

    @property
    def is_local(self) -> bool:
        """Whether it runs on this machine and needs no key."""
        return bool(self.provider) and PROVIDERS[self.provider].is_local


_USUAL = (
    AuthChoice(each.id if each.is_local else f"{each.id}-api-key", each.id)
    for each in PROVIDERS.values()
)
_OTHERS = (AuthChoice(*line.split()) for line in _TABLE.strip().splitlines())
CHOICES = {each.id: each for each in (*_USUAL, *_OTHERS, AuthChoice(CUSTOM), AuthChoice(SKIP))}


def find_choice(text: str) -> AuthChoice:
    """The choice with that id, or the default choice of a provider. Raises ValueError."""
    name = text.strip().lower()
    provider = normalize_provider(name)
    short = {"custom": CUSTOM, "none": SKIP}.get(name, "")
    for each in (name, provider, f"{provider}-api-key", short):
        if each in CHOICES:
            return CHOICES[each]
    close = nearest(name, (*CHOICES, *PROVIDERS))
    if not close and (meant := nearest(name.partition("-")[0], PROVIDERS)):
        close = [each.id for each in CHOICES.values() if each.provider in meant]
    hint = f" Did you mean {' or '.join(map(repr, close[:3]))}?" if close else ""
    raise ValueError(f"unknown choice {text[:80]!r}.{hint}")


def address_of(choice: AuthChoice, configured: str) -> str:
    """The address to write; empty if the current one is right.

    An address that a person wrote stays, unless it belongs to another choice of the provider.
    """
    if choice.base_url:
        return choice.base_url
    others = {each.base_url for each in CHOICES.values() if each.provider == choice.provider}
    is_other = configured.strip().rstrip("/") in others - {""}
    return PROVIDERS[choice.provider].base_url if is_other else ""


VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,127}")
MAX_KEY = 8_192
_PASTED = re.compile(r"(?:export\s+)?[A-Z][A-Z0-9]*_[A-Z0-9_]*=(.*)", re.DOTALL)
_WIDTH = 100
_HEADER = """\
// Settings of clawkit, in JSON5: comments like this one are fine.
// To change them, edit this file, or type `clawkit configure` or `clawkit config set`.
"""


class ApiKey(NamedTuple):
    """Where the key comes from. The repr does not contain the secret."""

    source: Literal["env", "typed", "kept", "none"] = "none"
    """An environment variable, typed in, the current credential, or no key needed."""
    name: str = ""
    secret: str = ""

    def __repr__(self) -> str:
        return f"<key: {self.source} {self.name}>"


class Setup(NamedTuple):
    """A model and how to reach it."""

    ref: ModelRef
    key: ApiKey = ApiKey()
    base_url: str = ""
    """The address to write; empty if the provider's default is right."""
    api: str = ""
    private: bool = False
    entry: Mapping[str, Any] | None = None


class Setting(NamedTuple):
    """One setting to write; None removes it."""

    path: Path
    value: Any
    words: str = ""
    merge: bool = False


def clean_key(text: str) -> str:
    """The key without surrounding text from a paste. Raises ValueError; the message does not
    contain the key."""
    key = text.strip()
    if pasted := _PASTED.fullmatch(key):
        # Some keys end with `=` as padding; that is not an assignment.
        key = pasted[1].strip() if pasted[1].strip("= ") else key
    if len(key) > 1 and key[0] == key[-1] and key[0] in "\"'":
        key = key[1:-1].strip()
    key = key.removeprefix("Bearer ").strip()
    if not key:
        raise ValueError("the key is empty")
    if len(key) > MAX_KEY:
        raise ValueError(f"the key is longer than {MAX_KEY} characters")
    if not key.isascii() or " " in key or bad_value(key):
        raise ValueError("a key cannot contain spaces, line breaks or special characters")
    return key


def plan(setup: Setup | None, loaded: Loaded, agent: str) -> list[Setting]:
    """The settings to write for a setup. All other settings in the file stay."""
    settings = list(_plan_model(setup, loaded, agent)) if setup else []
    if loaded.config.tools.profile is None:
        words = "Which tools the agent has; `clawkit configure tools` shows the others."
        settings.append(Setting(("tools", "profile"), "coding", words))
    return settings


def _plan_model(setup: Setup, loaded: Loaded, agent: str) -> Iterator[Setting]:
    ref, key = setup.ref, setup.key
    known, at = PROVIDERS.get(ref.provider), provider_path(loaded, ref.provider)
    is_other = key.source == "env" and not (known and key.name in known.env)
    entry = [dict(setup.entry)] if setup.entry else None
    model = "The model to use. Its key is in the environment or in auth-profiles.json."
    takes = "The model accepts images only if `input` says so; `contextWindow` is in tokens."
    private = "The server is on a private network, which clawkit must be allowed to connect to."
    variable = "The key is not in this file: it is read from the environment."
    agents = loaded.config.agents
    own = agent_path(agents, agent) if agents.get(agent).model else None
    path = (*(own or ("agents", "defaults")), "model")
    if not isinstance(in_force(loaded.config, path), str):
        path = (*path, "primary")
    yield Setting(path, str(ref), model)
    for steps, value, words in (
        ("baseUrl", setup.base_url, "The address of the server."),
        ("api", setup.api, "The API that it speaks."),
        ("apiKey", is_other and f"${{{key.name}}}", variable),
        ("request.allowPrivateNetwork", setup.private, private),
        ("models", entry, takes),
    ):
        if value:
            yield Setting((*at, *steps.split(".")), value, words, merge=steps == "models")
    # If the order of stored keys is configured, the new key must be in it.
    for name, order in loaded.config.auth.order.items():
        is_about_it = key.secret and normalize_provider(name) == ref.provider
        if is_about_it and profile_id(ref) not in order:
            yield Setting(("auth", "order", name), [profile_id(ref), *order])


def profile_id(ref: ModelRef) -> str:
    """The name that a key is stored under."""
    return f"{ref.provider}:default"


def provider_path(loaded: Loaded, provider: str) -> Path:
    """The path of a provider's settings, as spelled in the file."""
    names = loaded.config.models.providers
    same = (name for name in names if normalize_provider(name) == provider)
    return "models", "providers", next(same, provider)


def configured_url(loaded: Loaded, provider: str) -> str:
    """The address of a provider in the file; empty if there is none."""
    return in_force(loaded.config, (*provider_path(loaded, provider), "baseUrl")) or ""


def agent_path(agents: Agents, agent: str) -> Path | None:
    """The path of an agent's settings; None if it has none."""
    key = agents.key_of(agent)
    if key.startswith("agents.entries."):
        return "agents", "entries", key.removeprefix("agents.entries.")
    return parse_path(key) if key else None


def edited(text: str, settings: list[Setting]) -> str:
    """`text` with the settings, and a comment above each new one. Raises EditError."""
    text = text or _HEADER
    for each in settings:
        root = edits.content(text)
        old = value_at(root, spelled(each.path, root))
        if each.value is None:
            text = text if old is None else edits.unset_setting(text, each.path)
        elif old != each.value:
            text = edits.set_setting(
                text, each.path, each.value, merge=each.merge, replace=not each.merge
            )
            if old is None and each.words:
                text = _commented(text, spelled(each.path, edits.content(text)), each.words)
    return text


def _commented(text: str, path: Path, words: str) -> str:
    """`text` with a comment above a setting, unless the setting shares its line."""
    parent = locate(parse(text), path[:-1])
    if not isinstance(parent, Node) or path[-1] not in parent.members:
        return text
    at = parent.members[str(path[-1])].key_start
    line = text.rfind("\n", 0, at) + 1
    indent = text[line:at]
    if indent.strip():
        return text
    rows = wrap(words, _WIDTH + 1, f"{indent}// ")
    comment = "".join(row.rstrip() + newline_of(text) for row in rows)
    return text[:line] + comment + text[line:]


class ConfigTarget(NamedTuple):
    """The configuration to be changed, as it is now."""

    file: str
    loaded: Loaded
    agent: str
    folder: str
    """The directory of the agent's credentials."""

    @property
    def key_file(self) -> str:
        return Profiles(self.folder).file

    def is_set(self, variable: str) -> bool:
        return bool(self.loaded.env.get(variable, "").strip())

    @property
    def searches(self) -> bool:
        """Whether a search service is chosen, or has a key."""
        config = self.loaded.config
        return bool(named_provider(config) or ready_providers(config, self.loaded.env))

    def credentials(self, provider: str) -> list[Credential]:
        """The credentials in use for a provider, in order."""
        try:
            return Catalog.of(self.loaded, self.agent).credentials.for_provider(provider)
        except ConfigError:
            return []

    def kept_credential(self, provider: str) -> str:
        """The id of a credential in use that is not an environment variable; empty for none."""
        ids = (each.id for each in self.credentials(provider))
        return next((each for each in ids if not each.startswith(("env:", "none"))), "")


def find_place(config_file: str | None) -> ConfigTarget:
    """Read the configuration; a missing file counts as empty. Raises ConfigError, EditError."""
    file = locate_config(os.environ, config_file)
    if os.environ.get(edits.READONLY, "") not in ("", "0"):
        raise EditError(f"the configuration is read-only: {edits.READONLY} is set")
    text = read_config(file) if os.path.lexists(file) else ""
    loaded = loads(text if text.strip() else "{}", file=file)
    agent = loaded.config.agents.default_id()
    return ConfigTarget(file, loaded, agent, agent_dir(loaded.config, loaded.env, agent))


def find_openclaw(env: Mapping[str, str]) -> str | None:
    """The path of OpenClaw's configuration on this machine, if there is one."""
    file = expand("~/.openclaw/openclaw.json", env)
    return file if os.path.isfile(file) else None


def read_openclaw(file: str) -> str:
    """The file's text with old spellings updated. Raises ConfigError if it cannot be copied."""
    loaded = load(file)
    if len(loaded.files) > 1:
        hint = f"Use it where it is: export CLAWKIT_CONFIG={shlex.quote(file)}"
        raise ConfigError([Issue("$include", "it includes other files", file, hint=hint)])
    return apply_migrations(loaded.text, migrations(edits.content(loaded.text)))


def preview(
    target: ConfigTarget, settings: list[Setting], *, dry_run: bool = True
) -> edits.ConfigChange:
    """The change to the file, checked but not written. Raises EditError, ConfigError."""
    paths = [each.path for each in settings]
    return edits.change(
        target.file, lambda text: edited(text, settings), paths=paths, dry_run=dry_run
    )


def save(
    target: ConfigTarget, settings: list[Setting], setup: Setup | None = None
) -> edits.ConfigChange:
    """Write key and configuration, both or neither. Signals such as Ctrl-C wait until then."""
    held = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        if not (setup and setup.key.secret):
            return preview(target, settings, dry_run=False)
        name, provider = profile_id(setup.ref), setup.ref.provider
        entry = {"type": "api_key", "provider": provider, "key": setup.key.secret}
        before = _put_profile(target, name, entry)
        try:
            return preview(target, settings, dry_run=False)
        except (ConfigError, EditError):
            _put_profile(target, name, before)
            raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _put_profile(target: ConfigTarget, name: str, entry: Any) -> Any:
    """Store or (None) remove a key in a private file; returns the previous entry."""
    with Profiles(target.folder).changing() as raw:
        found = raw.get("profiles")
        profiles = raw["profiles"] = found if isinstance(found, dict) else {}
        before = profiles.pop(name, None)
        if entry is not None:
            profiles[name] = entry
        # Failures of the previous key say nothing about this one.
        if isinstance(stats := raw.get("usageStats"), dict):
            stats.pop(name, None)
    return before


def other_credential(target: ConfigTarget, setup: Setup) -> list[str]:
    """A warning if another credential takes precedence over the chosen key."""
    if setup.key.source not in ("env", "typed"):
        return []
    written = find_place(target.file)
    found = written.credentials(setup.ref.provider)
    wanted = setup.key.secret or written.loaded.env.get(setup.key.name, "").strip()
    if not (found and wanted) or found[0].secret == wanted:
        return []
    other = f"{setup.ref.provider} has another credential, {found[0].id}, which takes precedence"
    return [other]
