"""Environment variables in the configuration: where they come from and how they are put in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_REFERENCE = re.compile(r"\$(\$?)\{([A-Z_][A-Z0-9_]*)\}")
_ENV_FILE_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=(.*)")


class FromEnv(str):
    """Text with environment variables put in.

    It may stand for a number or a boolean, and it may be a secret: messages show `template`,
    what the file says, never the text itself.
    """

    template: str
    missing: tuple[str, ...]
    """Variables that are unset or empty; their `${NAME}` is still in the text."""

    def __new__(cls, text: str, template: str, missing: tuple[str, ...]) -> FromEnv:
        self = super().__new__(cls, text)
        self.template = template
        self.missing = missing
        return self


class Environment(dict[str, str]):
    """Variables by name. The representation shows no values, because some are secrets."""

    def __repr__(self) -> str:
        return f"<{len(self)} environment variables>"


def substitute(value: Any, env: Mapping[str, str]) -> Any:
    """A copy of `value` with `${NAME}` replaced in every string; keys are left alone.

    `$${NAME}` stands for a literal `${NAME}`. An unset or empty variable stays as it is
    written, and the FromEnv that is returned names it.
    """
    if isinstance(value, str):
        return _substitute_text(value, env) if "${" in value else value
    if isinstance(value, dict):
        return {key: substitute(item, env) for key, item in value.items()}
    if isinstance(value, list):
        return [substitute(item, env) for item in value]
    return value


def _substitute_text(text: str, env: Mapping[str, str]) -> str:
    used = False
    missing: list[str] = []

    def put_in(match: re.Match[str]) -> str:
        nonlocal used
        escaped, name = match.groups()
        if escaped:
            return match[0][1:]
        used = True
        found = env.get(name)
        if not found:
            missing.append(name)
            return match[0]
        return found

    result = _REFERENCE.sub(put_in, text)
    return FromEnv(result, text, tuple(dict.fromkeys(missing))) if used else result


def environment(base: Mapping[str, str], dotenv: Mapping[str, str], declared: Any) -> Environment:
    """Everything `${NAME}` may refer to. A name that is already set is never overridden.

    `base` is the process environment, then comes the state directory's `.env`, then the
    configuration's own `env` section as it stands in the file. There is no `.env` of the
    current directory: whoever wrote the workspace could plant one.
    """
    merged = Environment(dotenv)
    merged.update((name, text) for name, text in base.items() if text)
    for name, text in _declared(declared).items():
        if not merged.get(name):
            merged[name] = str(substitute(text, merged))
    return merged


def _declared(section: Any) -> dict[str, str]:
    """String entries of the `env` section, both flat and under `vars`.

    Anything of another type is left for the configuration check to report.
    """
    if not isinstance(section, dict):
        return {}
    nested = section.get("vars")
    entries = {**section, **nested} if isinstance(nested, dict) else section
    return {name: text for name, text in entries.items() if isinstance(text, str)}


def parse_env_file(text: str) -> dict[str, str]:
    """Variables of a `.env` file: `NAME=value` lines, `export` and quotes allowed.

    Nothing is expanded. Comments start with `#`, after a value only with a space before it.
    Lines that are not assignments are skipped.
    """
    found: dict[str, str] = {}
    for line in text.splitlines():
        match = _ENV_FILE_LINE.fullmatch(line)
        if match:
            found[match[1]] = _unquote(match[2].strip())
    return found


def _unquote(text: str) -> str:
    quote = text[:1]
    if quote and quote in "\"'":
        end = text.find(quote, 1)
        if end > 0:
            return text[1:end]
    return "" if quote == "#" else re.split(r"\s#", text, maxsplit=1)[0].rstrip()
