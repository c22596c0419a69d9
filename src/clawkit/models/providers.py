"""All providers: built-in, from the configuration, and from `models.json`, which is written here
too.

The configuration takes precedence over `models.json`, key by key, and both over the built-in
values. There are two exceptions: an address in `models.json` wins, and so does a key in it, unless
the configuration refers to a key elsewhere.

For secrets that the configuration refers to, `models.json` gets only a marker: the name of a
variable, or a fixed word. A marker is never used as a secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from clawkit.config.json5 import Json5Error, format_path, parse
from clawkit.config.load import Loaded, check
from clawkit.config.masking import secrets_of, variables_of
from clawkit.config.model import Config
from clawkit.config.modelref import normalize_provider
from clawkit.config.paths import expand, home, own_secrets
from clawkit.config.section import SecretRef, Section, SectionT, layout_of
from clawkit.config.sections.models import Compat, ModelSettings, Provider
from clawkit.config.sections.shared import Headers, RequestSettings
from clawkit.config.sources import ConfigFile, ConfigTree, ReadError, read_text, substitute
from clawkit.errors import ConfigError
from clawkit.models.known import PROVIDERS, KnownProvider, fault
from clawkit.redact.masking import is_secret_name
from clawkit.store import private_dir, why_foreign, write_atomic

Origin = Literal["config", "models.json", "known"]

_BLANK: dict[type, Any] = {
    Provider: Provider(),
    ModelSettings: ModelSettings(id="-"),
    RequestSettings: RequestSettings(),
    Compat: Compat(),
}
MODELS_JSON = "models.json"
AUTH_PROFILES = "auth-profiles.json"
_KEY_NAMES = ("KEY", "TOKEN", "SECRET", "PASSWORD")
_SECRETS = ("key", "token", "access", "refresh")
"""Fields of a stored credential."""
MANAGED = "secretref-managed"
ENV_MARK = "secretref-env:"
VARIABLE = r"[A-Z][A-Z0-9_]{0,127}"
_REFERENCE = r"\$(?:([A-Z][A-Z0-9_]{0,127})|\{([A-Z_][A-Z0-9_]*)\})"
_DIRS = ("CLAWKIT_AGENT_DIR", "OPENCLAW_AGENT_DIR", "PI_CODING_AGENT_DIR")
_AGENT = r"[a-z0-9][a-z0-9_.-]{0,63}"
_OWN_WAY = frozenset({"apiKey", "headers", "models", "request"})
"""Settings that are written as markers, merged by id, or not written."""


class Service(msgspec.Struct, frozen=True):
    """One provider with its merged settings, without the built-in values."""

    id: str
    known: KnownProvider | None
    settings: Provider = Provider()
    models: Mapping[str, ModelSettings] = MappingProxyType({})
    """Models by id, the configured ones first."""
    origins: Mapping[str, Origin] = MappingProxyType({})
    """Where each model comes from."""
    key: str = ""
    """The path of its settings in the configuration, for messages."""

    def __repr__(self) -> str:
        return f"<provider {self.id}>"

    def at(self, *steps: str) -> str:
        """The path of one of its settings."""
        return ".".join((self.key, *steps))

    def model_at(self, name: str, step: str) -> str:
        """The path of a setting of one of its models."""
        listed = [each for each, origin in self.origins.items() if origin == "config"]
        place = listed.index(name) if name in listed else repr(name)
        return f"{self.at('models')}[{place}].{step}"


def load_services(
    config: Config, env: Mapping[str, str], folder: str, raw: Mapping[str, Any] | None = None
) -> dict[str, Service]:
    """All providers by id: configured ones, those of `folder`'s models.json, then built-in ones.

    `raw` is the configuration as written; without it, a key from `${NAME}` looks like a literal
    one. With `models.mode` "replace", only configured providers are used.
    """
    only_configured = config.models.mode == "replace"
    stored = {} if only_configured else read_models_json(folder, env)
    written = {normalize_provider(name): each for name, each in _written(raw or {}).items()}
    services: dict[str, Service] = {}
    for name, provider in config.models.providers.items():
        wanted, key = normalize_provider(name), format_path(("models", "providers", name))
        if wanted in services:
            problem = f"{name!r} is the same provider as {services[wanted].key}"
            raise fault(problem, key, "Merge the two")
        found = stored.pop(wanted, None)
        services[wanted] = _join(wanted, key, provider, found, written.get(wanted, {}))
    for name, provider in stored.items():
        key = format_path(("models", "providers", name))
        services[name] = _join(name, key, Provider(), provider, {})
    for name, known in PROVIDERS.items() if not only_configured else ():
        services.setdefault(name, Service(name, known, key=f"models.providers.{name}"))
    return services


def _written(raw: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    providers = dict_of(dict_of(raw.get("models")).get("providers"))
    return {name: given for name, given in providers.items() if isinstance(given, dict)}


def _join(
    name: str, key: str, configured: Provider, stored: Provider | None, written: Mapping[str, Any]
) -> Service:
    """`written` are the provider's settings as written, without substitution."""
    models = {model.id: model for model in configured.models}
    origins: dict[str, Origin] = dict.fromkeys(models, "config")
    settings = configured
    if stored:
        settings = over(configured, stored)
        written_key = written.get("apiKey", written.get("api_key")) or configured.api_key
        is_managed = isinstance(configured.api_key, SecretRef) or bool(key_mark(written_key))
        own_key = stored.api_key if not isinstance(stored.api_key, SecretRef) else None
        settings = replace(
            settings,
            base_url=stored.base_url or configured.base_url,
            api_key=(None if is_managed else own_key) or configured.api_key or stored.api_key,
        )
        for model in stored.models:
            before = models.get(model.id)
            models[model.id] = over(before, model) if before else model
            origins.setdefault(model.id, "models.json")
    return Service(name, PROVIDERS.get(name), settings, models, origins, key)


def over(high: SectionT, low: SectionT) -> SectionT:
    """`high`, with the values of `low` where it has none; maps are merged by key."""
    blank = _BLANK[type(high)]
    changes: dict[str, Any] = {}
    for name in high.__struct_fields__:
        upper, lower, unset = getattr(high, name), getattr(low, name), getattr(blank, name)
        if type(unset) in _BLANK:
            changes[name] = over(upper, lower)
        elif isinstance(unset, dict):
            changes[name] = {**lower, **upper}
        elif upper == unset:
            changes[name] = lower
    return replace(high, **changes)


def named_variable(text: str, env: Mapping[str, str]) -> str | None:
    """The name, if a literal key looks like the name of a variable; None if it is a key.
    `LITELLM_KEY` is a name, set or not; `EMPTY` only if there is a variable of that name."""
    if not re.fullmatch(VARIABLE, text):
        return None
    return text if env.get(text) or text.endswith(_KEY_NAMES) else None


def agent_dir(config: Config, env: Mapping[str, str], agent: str) -> str:
    """The directory of an agent's models and credentials, as an absolute path."""
    settings = config.agents.get(agent)
    key = f"{config.agents.key_of(agent)}.agentDir"
    for where, path in (*((name, env.get(name)) for name in _DIRS), (key, settings.agent_dir)):
        if path and not path.startswith(("/", "~/")):
            # A relative path depends on the current directory, and a repository could contain that
            # directory.
            raise fault(f"{path!r} is not an absolute path", where)
        if path:
            return expand(path, env)
    name = settings.id or agent
    if not re.fullmatch(_AGENT, name):
        problem = f"{name!r} cannot be used as the name of a directory"
        raise fault(problem, "agents", "Use letters, digits, - and _, or set its agentDir")
    return os.path.join(home(env), "agents", name, "agent")


def agent_dirs(config: Config, env: Mapping[str, str]) -> list[str]:
    """The directories of all agents."""
    found: dict[str, None] = {}
    for name in (config.agents.default_id(), *config.agents.by_id()):
        with suppress(ConfigError):
            found[agent_dir(config, env, name)] = None
    return list(found)


def read_models_json(folder: str, env: Mapping[str, str]) -> dict[str, Provider]:
    """Providers by canonical name; empty if there is no file. Raises ConfigError, with the line.
    Markers that name a variable become references to it; other markers are removed."""
    tree = read_private(os.path.join(folder, MODELS_JSON))
    if tree is None:
        return {}
    raw = {"models": substitute(tree.value, env)}
    try:
        # The same rules as for the configuration, so check it as part of one.
        config, _ = check(raw, lambda path: tree.locate(path[1:]))
    except ConfigError as error:
        raise ConfigError(
            [issue._replace(path=issue.path.removeprefix("models.")) for issue in error.issues]
        ) from None
    return {
        normalize_provider(name): _without_markers(provider)
        for name, provider in config.models.providers.items()
    }


def read_private(file: str) -> ConfigTree | None:
    """Parse a file that contains credentials, or addresses they are sent to; None if missing.
    Raises ConfigError, including when another user could have written it."""
    if not os.path.lexists(file):
        return None
    try:
        if problem := why_foreign(os.stat(file)):
            raise fault(problem, "", "Make yourself its owner, and run `chmod 600` on it", file)
        tree = ConfigTree(ConfigFile(file, read_text(file)), ())
    except OSError as error:
        raise fault(f"cannot be read: {error.strerror}", file=file) from error
    except ReadError as error:
        raise fault(str(error), file=file) from error
    except Json5Error as error:
        raise ConfigError([error.issue(file)]) from None
    if tree.issues:
        raise ConfigError(tree.issues)
    return tree


def _without_markers(provider: Provider) -> Provider:
    models = [replace(model, headers=_headers(model.headers)) for model in provider.models]
    key = provider.api_key if provider.api_key != MANAGED else None
    if isinstance(key, str) and re.fullmatch(VARIABLE, key):
        key = SecretRef(source="env", id=key)
    headers = _headers(provider.headers)
    return replace(provider, api_key=key or None, headers=headers, models=models)


def _headers(headers: Headers) -> Headers:
    found: Headers = {}
    for name, value in headers.items():
        if isinstance(value, str) and value.startswith(ENV_MARK):
            variable = value.removeprefix(ENV_MARK)
            if re.fullmatch(VARIABLE, variable):
                found[name] = SecretRef(source="env", id=variable)
        elif value != MANAGED:
            found[name] = value
    return found


def write_models_json(folder: str, raw: Mapping[str, Any], *, replace: bool) -> str:
    """Write the providers of a configuration to models.json; returns the path of the file.

    `raw` is the configuration as written, without substitution. Other content of the file is kept,
    unless `replace` is set. Its own addresses stay, and so do its keys, unless the configuration
    refers to one. Raises ConfigError for an invalid file, and OSError.
    """
    file = os.path.join(folder, MODELS_JSON)
    tree = None if replace else read_private(file)
    data = dict_of(tree.value if tree else None)
    providers = dict(dict_of(data.get("providers")))
    for name, given in _written(raw).items():
        wanted = normalize_provider(name)
        same = next((key for key in providers if normalize_provider(key) == wanted), wanted)
        before = dict_of(providers.get(same))
        spelled = _documented(given, Provider)
        entry = {**before, **{key: spelled[key] for key in spelled if key not in _OWN_WAY}}
        if before.get("baseUrl"):
            entry["baseUrl"] = before["baseUrl"]
        if mark := key_mark(spelled.get("apiKey")):
            entry["apiKey"] = mark
        if headers := _header_marks(spelled.get("headers")):
            entry["headers"] = {**dict_of(before.get("headers")), **headers}
        models = {each["id"]: each for each in _models(before.get("models"))}
        for model in _models(spelled.get("models")):
            own = _documented(model, ModelSettings)
            if "headers" in own:
                own["headers"] = _header_marks(own["headers"])
            models[model["id"]] = {**models.get(model["id"], {}), **own}
        if models:
            entry["models"] = list(models.values())
        providers[same] = entry
    private_dir(folder)
    text = msgspec.json.format(msgspec.json.encode({**data, "providers": providers}), indent=2)
    write_atomic(file, text + b"\n")
    return file


def key_mark(value: Any) -> str:
    """The marker for a key that the configuration refers to; empty for a literal key."""
    if isinstance(value, dict):
        return str(value.get("id")) if value.get("source") == "env" else MANAGED
    if not isinstance(value, str):
        return ""
    if reference := re.fullmatch(_REFERENCE, value):
        return reference[1] or reference[2]
    if "${" in value:
        return MANAGED
    return value if re.fullmatch(VARIABLE, value) else ""


def _header_marks(headers: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in dict_of(headers).items():
        mark = key_mark(value)
        if mark == MANAGED:
            found[name] = mark
        elif mark and mark != value:
            found[name] = f"{ENV_MARK}{mark}"
        elif isinstance(value, str) and not is_secret_name(name):
            found[name] = value
    return found


def dict_of(value: Any) -> dict[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def _models(value: Any) -> list[dict[str, Any]]:
    items = value if isinstance(value, list) else []
    return [item for item in items if isinstance(item, dict) and isinstance(item.get("id"), str)]


def _documented(raw: Mapping[str, Any], cls: type[Section]) -> dict[str, Any]:
    """An object with the documented spelling of its keys, without unknown keys."""
    names = layout_of(cls).names
    return {names[key]: value for key, value in raw.items() if key in names}


def stored_secrets(config: Config, env: Mapping[str, str]) -> Iterator[str]:
    """The secrets in models.json and auth-profiles.json of every agent, and in variables that they
    name."""
    for folder in agent_dirs(config, env):
        models = {"models": _read_any(os.path.join(folder, MODELS_JSON))}
        yield from map(str, secrets_of(substitute(models, env)))
        stored = _read_any(os.path.join(folder, AUTH_PROFILES))
        for entry in map(dict_of, dict_of(stored.get("profiles")).values()):
            yield from (entry[key] for key in _SECRETS if isinstance(entry.get(key), str))
        for name in (*variables_of(models), *variables_of(stored)):
            yield env.get(name, "")


def _read_any(file: str) -> dict[str, Any]:
    """The content of a file; empty if it cannot be read, which is reported elsewhere."""
    try:
        return dict_of(parse(read_text(file)).value)
    except (ReadError, Json5Error):
        return {}


def known_secrets(loaded: Loaded) -> list[str]:
    """Secrets in the configuration and in the files of agents, including variables they name."""
    raw = loaded.raw or msgspec.to_builtins(loaded.config)
    env = {**os.environ, **loaded.env}
    found = [str(each) for each in secrets_of(substitute(raw, env))]
    found += [env[name] for name in variables_of(raw) if env.get(name)]
    return [*found, *filter(None, stored_secrets(loaded.config, env))]


def secret_places(loaded: Loaded) -> tuple[str, ...]:
    """Where credentials and tokens of clawkit are or would be. No tool and no command may open
    them."""
    folders = agent_dirs(loaded.config, {**os.environ, **loaded.env})
    stored = (f"{each}/{name}" for each in folders for name in (MODELS_JSON, AUTH_PROFILES))
    return (*own_secrets(os.environ), *stored)
