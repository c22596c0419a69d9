"""Secrets: from a reference in the configuration to the value, when it is needed.

Messages name the provider, the place and the id, never anything that was read there.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from typing import Any

import msgspec

from clawkit.config.env import FromEnv, substitute
from clawkit.config.model import Config
from clawkit.config.paths import expand
from clawkit.config.secret_command import ask_command, decode_json, decode_text
from clawkit.config.section import SecretRef
from clawkit.config.sections.env import SecretProvider
from clawkit.errors import SecretError

_SHORTHAND = re.compile(r"\$([A-Z][A-Z0-9_]{0,127})")
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


def resolve(ref: SecretRef | str, config: Config, env: Mapping[str, str]) -> str:
    """The secret that `ref` stands for. Raises SecretError if it cannot be had.

    A string is the secret itself; `$NAME`, and `${NAME}` where it was not set when the file
    was loaded, are looked up in `env`, the environment the file was loaded with.
    """
    if isinstance(ref, str):
        shorthand = _SHORTHAND.fullmatch(ref)
        if not shorthand:
            return _from_text(ref, env)
        ref = SecretRef(source="env", id=shorthand[1])
    for key, problem, hint in SecretRef.conflicts(msgspec.to_builtins(ref)):
        raise SecretError(f"secret reference: {key} is {problem}. {hint}")
    if ref.source == "store":
        raise SecretError(
            f"secret {ref.id!r} (source store): clawkit has no secret store. "
            "Use source env, file or exec"
        )
    name, provider = _provider(ref, config)
    where = f"secret {ref.id!r} of provider {name!r} (source {ref.source})"
    try:
        if ref.source == "env":
            return _from_env(ref.id, provider, env)
        if ref.source == "file":
            return _from_file(ref.id, provider, env)
        return ask_command(name, ref.id, provider, env)
    except SecretError as error:
        raise SecretError(f"{where}: {error}") from error


def _from_text(text: str, env: Mapping[str, str]) -> str:
    found = substitute(text, env)
    if isinstance(found, FromEnv) and found.missing:
        names = " and ".join(found.missing)
        raise SecretError(f"the environment variable {names} is not set")
    if not found:
        raise SecretError("the secret is an empty string")
    return str(found)


def _provider(ref: SecretRef, config: Config) -> tuple[str, SecretProvider]:
    """Name and settings of the provider; the environment needs no settings."""
    name = ref.provider
    if name == "default":
        name = getattr(config.secrets.defaults, ref.source)
    provider = config.secrets.providers.get(name)
    if provider is None:
        if ref.source == "env" and name == "default":
            return name, SecretProvider(source="env")
        raise SecretError(
            f"secret {ref.id!r}: there is no provider {name!r} under secrets.providers"
        )
    if provider.source != ref.source:
        raise SecretError(
            f"secret {ref.id!r}: the provider {name!r} has source {provider.source}, "
            f"the reference says {ref.source}"
        )
    return name, provider


def _from_env(name: str, provider: SecretProvider, env: Mapping[str, str]) -> str:
    if provider.allowlist is not None and name not in provider.allowlist:
        raise SecretError("the variable is not in the provider's allowlist")
    value = env.get(name)
    if not value:
        raise SecretError("the environment variable is not set")
    return value


def _from_file(pointer: str, provider: SecretProvider, env: Mapping[str, str]) -> str:
    data = _read(expand(provider.path or "", env), provider.max_bytes)
    if provider.mode == "singleValue":
        if pointer != "value":
            raise SecretError("the file holds a single value; its id is 'value'")
        text = decode_text(data)
        if text is None:
            raise SecretError("the file is not UTF-8 text")
        value: Any = text.rstrip("\r\n")
    else:
        value = _follow(decode_json(data), pointer)
    if not isinstance(value, str) or not value:
        raise SecretError("what is there is not a string, or an empty one")
    return value


def _read(path: str, max_bytes: int) -> bytes:
    """A file that nobody else can have put there or can write to."""
    try:
        link = os.lstat(path)
        real = os.path.realpath(path)
        if link.st_uid not in (0, os.geteuid()) and stat.S_ISLNK(link.st_mode):
            raise SecretError(f"{path!r} is a link made by another user")
        folder = os.stat(os.path.dirname(real)).st_mode
        if folder & stat.S_IWOTH and not folder & stat.S_ISVTX:
            raise SecretError(f"anyone may replace files in {os.path.dirname(real)!r}")
        fd = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            mode = os.fstat(fd).st_mode
            if not stat.S_ISREG(mode):
                raise SecretError(f"{real!r} is not a regular file")
            if mode & stat.S_IWOTH:
                raise SecretError(f"anyone may write to {real!r}; run chmod o-w on it")
            with open(fd, "rb", closefd=False) as file:
                data = file.read(max_bytes + 1)
        finally:
            os.close(fd)
    except OSError as error:
        raise SecretError(f"{path!r} cannot be read: {error.strerror}") from error
    if len(data) > max_bytes:
        raise SecretError(f"{path!r} is larger than {max_bytes} bytes")
    return data


def _follow(value: Any, pointer: str) -> Any:
    """The value at a JSON pointer."""
    if value is None:
        raise SecretError("the file is not valid JSON")
    if pointer == "value":
        raise SecretError("the file is JSON; the id must be a pointer such as /a/b")
    for step in pointer.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and _INDEX.fullmatch(step) and int(step) < len(value):
            value = value[int(step)]
        else:
            raise SecretError("there is nothing at that pointer")
    return value
