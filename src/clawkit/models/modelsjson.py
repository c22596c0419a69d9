"""`models.json` in an agent's directory: providers beyond those of the configuration.

Secrets that the configuration only refers to are not in it; a marker stands in their place: the
name of a variable, or a fixed word. A marker is never taken for the secret itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from clawkit.config.check import check
from clawkit.config.env import substitute
from clawkit.config.include import ReadError, Source, Tree, read_text
from clawkit.config.json5 import Json5Error, format_path
from clawkit.config.model import Config
from clawkit.config.modelref import normalize_provider
from clawkit.config.paths import expand, home
from clawkit.config.section import SecretInput, SecretRef, Section
from clawkit.config.sections.models import Model, Provider
from clawkit.config.sections.shared import Headers
from clawkit.config.shape import layout_of
from clawkit.errors import ConfigError, Issue
from clawkit.redact.names import is_secret_name
from clawkit.store import private_dir, why_foreign, write_atomic

NAME = "models.json"
MANAGED = "secretref-managed"
ENV_MARK = "secretref-env:"
VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{0,127}")

_REFERENCE = re.compile(r"\$(?:([A-Z][A-Z0-9_]{0,127})|\{([A-Z_][A-Z0-9_]*)\})")
_DIRS = ("CLAWKIT_AGENT_DIR", "OPENCLAW_AGENT_DIR", "PI_CODING_AGENT_DIR")
_AGENT = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_OWN_WAY = frozenset({"apiKey", "headers", "models", "request"})
"""Settings that are written as marks, merged by id, or not at all."""


def agent_dir(config: Config, env: Mapping[str, str], agent: str) -> str:
    """The directory of an agent's models and credentials, as an absolute path."""
    settings = config.agents.get(agent)
    key = f"{config.agents.key_of(agent)}.agentDir"
    for where, given in (*((name, env.get(name)) for name in _DIRS), (key, settings.agent_dir)):
        if given:
            return _absolute(given, env, where)
    name = settings.id or agent
    if not _AGENT.fullmatch(name):
        problem = f"{name!r} cannot name a directory: letters, digits, - and _"
        raise ConfigError([Issue("agents", problem, hint="Set its agentDir, or rename it")])
    return os.path.join(home(env), "agents", name, "agent")


def _absolute(path: str, env: Mapping[str, str], where: str) -> str:
    if not path.startswith(("/", "~/")):
        # It would be another one in every repository, which could bring it along.
        raise ConfigError([Issue(where, f"{path!r} is not an absolute path")])
    return expand(path, env)


def agent_dirs(config: Config, env: Mapping[str, str]) -> list[str]:
    """The directories of all agents."""
    found: dict[str, None] = {}
    for name in (config.agents.default_id(), *config.agents.by_id()):
        with suppress(ConfigError):
            found[agent_dir(config, env, name)] = None
    return list(found)


def read_models_json(folder: str, env: Mapping[str, str]) -> dict[str, Provider]:
    """Providers by their one spelling; none without a file. Raises ConfigError, with the line.

    Markers are gone: those that name a variable are references to it now, the others nothing.
    """
    file = os.path.join(folder, NAME)
    tree = _parse(file)
    if tree is None:
        return {}

    def locate(path: tuple[str | int, ...]) -> tuple[str, int]:
        return tree.locate(path[1:])

    raw = tree.value
    try:
        # The rules are those of the configuration, so they are checked as a part of one.
        config, _ = check({"models": substitute(raw, env)}, locate)
    except ConfigError as error:
        raise ConfigError(
            [issue._replace(path=issue.path.removeprefix("models.")) for issue in error.issues]
        ) from None
    return {
        normalize_provider(name): _without_markers(provider)
        for name, provider in config.models.providers.items()
    }


def _parse(file: str) -> Tree | None:
    if not os.path.lexists(file):
        return None
    try:
        # It says where credentials are sent to.
        if problem := why_foreign(os.stat(file)):
            hint = "Make it your own, and run `chmod 600` on it"
            raise ConfigError([Issue("", problem, file, hint=hint)])
        tree = Tree(Source(file, read_text(file)), ())
    except OSError as error:
        raise ConfigError([Issue("", f"cannot be read: {error.strerror}", file)]) from error
    except ReadError as error:
        raise ConfigError([Issue("", str(error), file)]) from error
    except Json5Error as error:
        message = f"{error.message} (column {error.column})"
        raise ConfigError([Issue("", message, file, error.line)]) from error
    if tree.issues:
        raise ConfigError(tree.issues)
    return tree


def _without_markers(provider: Provider) -> Provider:
    models = [
        msgspec.structs.replace(model, headers=_headers(model.headers)) for model in provider.models
    ]
    return msgspec.structs.replace(
        provider,
        api_key=_key(provider.api_key),
        headers=_headers(provider.headers),
        models=models,
    )


def _key(value: SecretInput | None) -> SecretInput | None:
    if not value or value == MANAGED:
        return None
    if isinstance(value, str) and VARIABLE.fullmatch(value):
        return SecretRef(source="env", id=value)
    return value


def _headers(headers: Headers) -> Headers:
    found: Headers = {}
    for name, value in headers.items():
        if value == MANAGED:
            continue
        if isinstance(value, str) and value.startswith(ENV_MARK):
            variable = value.removeprefix(ENV_MARK)
            if VARIABLE.fullmatch(variable):
                found[name] = SecretRef(source="env", id=variable)
        else:
            found[name] = value
    return found


def write_models_json(folder: str, raw: Mapping[str, Any], *, replace: bool) -> str:
    """Writes the providers of a configuration down, and gives the path of the file.

    `raw` is the `models` section as it stands in the configuration, nothing put in for `${NAME}`.
    What the file has besides is kept, unless `replace`. Its own addresses and keys stay, keys only
    where the configuration does not refer to one. Raises ConfigError for a broken file, OSError.
    """
    file = os.path.join(folder, NAME)
    tree = None if replace else _parse(file)
    data: dict[str, Any] = tree.value if tree and isinstance(tree.value, dict) else {}
    old = data.get("providers")
    providers: dict[str, Any] = dict(old) if isinstance(old, dict) else {}
    for name, given in _objects(raw.get("providers")).items():
        wanted = normalize_provider(name)
        same = next((key for key in providers if normalize_provider(key) == wanted), wanted)
        before = providers.get(same)
        providers[same] = _entry(given, before if isinstance(before, dict) else {})
    private_dir(folder)
    text = msgspec.json.format(msgspec.json.encode({**data, "providers": providers}), indent=2)
    write_atomic(file, text + b"\n")
    return file


def _entry(given: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    spelled = _documented(given, Provider)
    entry = {**before, **{key: spelled[key] for key in spelled if key not in _OWN_WAY}}
    if before.get("baseUrl"):
        entry["baseUrl"] = before["baseUrl"]
    mark = key_mark(spelled.get("apiKey"))
    if mark:
        entry["apiKey"] = mark
    if headers := _header_marks(spelled.get("headers")):
        entry["headers"] = {**_objects_or_text(before.get("headers")), **headers}
    models = {each["id"]: each for each in _models(before.get("models"))}
    for model in _models(spelled.get("models")):
        own = _documented(model, Model)
        if "headers" in own:
            own["headers"] = _header_marks(own["headers"])
        models[model["id"]] = {**models.get(model["id"], {}), **own}
    if models:
        entry["models"] = list(models.values())
    return entry


def key_mark(value: Any) -> str:
    """What stands for a key that the configuration refers to; empty for one it holds itself."""
    if isinstance(value, dict):
        return str(value.get("id")) if value.get("source") == "env" else MANAGED
    if not isinstance(value, str):
        return ""
    if reference := _REFERENCE.fullmatch(value):
        return reference[1] or reference[2]
    if "${" in value:
        return MANAGED
    return value if VARIABLE.fullmatch(value) else ""


def _header_marks(headers: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in headers.items() if isinstance(headers, dict) else ():
        mark = key_mark(value)
        if mark == MANAGED:
            found[name] = mark
        elif mark and mark != value:
            found[name] = f"{ENV_MARK}{mark}"
        elif isinstance(value, str) and not is_secret_name(name):
            found[name] = value
    return found


def _objects(value: Any) -> dict[str, dict[str, Any]]:
    items = value.items() if isinstance(value, dict) else ()
    return {key: item for key, item in items if isinstance(item, dict)}


def _objects_or_text(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _models(value: Any) -> list[dict[str, Any]]:
    items = value if isinstance(value, list) else []
    return [item for item in items if isinstance(item, dict) and isinstance(item.get("id"), str)]


def _documented(raw: Mapping[str, Any], cls: type[Section]) -> dict[str, Any]:
    """An object of the configuration with the documented spelling of its keys."""
    names = layout_of(cls).names
    return {names[key]: value for key, value in raw.items() if key in names}


def setting(*steps: str | int) -> str:
    """The path of a setting as messages write it."""
    return format_path(steps)
