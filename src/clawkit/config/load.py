"""Loads a configuration file, or the defaults, into a typed configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from clawkit.config.check import check
from clawkit.config.json5 import Json5Error
from clawkit.config.model import Config
from clawkit.config.paths import config_file, expand, home, include_roots
from clawkit.config.sources import (
    MAX_FILE_BYTES,
    Environment,
    ReadError,
    Source,
    Tree,
    environment,
    parse_env_file,
    read_text,
    substitute,
)
from clawkit.errors import ConfigError, Issue


class Loaded(NamedTuple):
    """A configuration and its sources."""

    config: Config
    file: str | None  # the main file; None if there is none and the defaults apply
    text: str  # text of the main file, without a byte order mark
    raw: dict[str, Any]  # as written, with included files merged; `${NAME}` is not replaced
    warnings: list[Issue]
    files: tuple[str, ...]  # the main file and all files it includes
    env: Environment = Environment()  # the variables that `${NAME}` and secrets refer to


def load(file: str | None = None, *, env: Mapping[str, str] | None = None) -> Loaded:
    """Load the configuration from `file`, or from the default location. Raises ConfigError.

    If the default file does not exist, the defaults apply; a file that is named here or in
    `CLAWKIT_CONFIG` must exist.
    """
    env = os.environ if env is None else env
    named = file is not None or bool(env.get("CLAWKIT_CONFIG"))
    path = config_file(env) if file is None else expand(file, env)
    if not named and not os.path.lexists(path):
        dotenv, warnings = _read_dotenv(env)
        merged = environment(env, dotenv, {})
        return Loaded(Config(), None, "", {}, warnings, (), merged)
    try:
        text = read_text(path)
    except ReadError as error:
        raise ConfigError([Issue("", str(error), path)]) from error
    return loads(text, file=path, env=env)


def loads(
    text: str,
    *,
    file: str = "<config>",
    env: Mapping[str, str] | None = None,
    every_error: bool = False,
) -> Loaded:
    """Load the configuration from `text`, as if it were in `file`. Raises ConfigError.

    Includes are relative to `file`; a name in angle brackets cannot have any. If there are very
    many errors, only the first are reported, unless `every_error` is set.
    """
    env = os.environ if env is None else env
    if len(text) > MAX_FILE_BYTES:
        raise ConfigError([Issue("", f"is larger than {MAX_FILE_BYTES} characters", file)])
    try:
        tree = Tree(Source(file, text), include_roots(env))
    except Json5Error as error:
        raise ConfigError([error.issue(file)]) from error
    raw = tree.value
    dotenv, warnings = _read_dotenv(env)
    merged = environment(env, dotenv, raw.get("env") if isinstance(raw, dict) else None)
    try:
        config, found = check(substitute(raw, merged), tree.locate, every_error=every_error)
    except ConfigError as error:
        raise ConfigError([*tree.issues, *error.issues]) from None
    if tree.issues:
        raise ConfigError(tree.issues)
    return Loaded(config, file, text, raw, [*warnings, *found], tuple(tree.files), merged)


def _read_dotenv(env: Mapping[str, str]) -> tuple[dict[str, str], list[Issue]]:
    path = os.path.join(home(env), ".env")
    if not os.path.lexists(path):
        return {}, []
    try:
        return parse_env_file(read_text(path)), []
    except ReadError as error:
        return {}, [Issue("", f"{error}; its variables are not used", path)]
